"""Regression trees grown by LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import SettingError
from .base import (
    Growing,
    Learner,
    Tensors,
    check_flag,
    check_share,
    check_whole,
    first_stages,
)
from .lightgbm_trees import PENALTY_OF_LEAVES, Grower
from .ranks import ranks_of
from .stacking import by_member
from .tree_table import TreeTable
from .tree_tensors import gains, partial_sums, tree_sum

MOST_LEAVES = 131_072
MOST_DEPTH = 64
NODE_BYTES = 37  # feature, threshold, children, side of missing values, value and gain
LINEAR_BYTES = 12  # and per column of a linear leaf


@dataclass(frozen=True)
class Trees(Learner):
    """Regression trees, one per output and stage, grown leaf by leaf by LightGBM.

    They split the columns of X [n, d]. The units of a column do not matter to trees with constant
    leaves, only the order of its values: X + 2048, 3 X and exp(X) give the same leaves. A threshold
    lies halfway between the two values of the training rows that it separates. Ke et al. (2017),
    "LightGBM: a highly efficient gradient boosting decision tree". The columns are binned once.
    Fitting needs the extra ``ppgp[boost]``; predicting does not. A missing value goes to the side
    of each split that fits it better if the column had missing values in the fit; otherwise it is
    read as 0. A column of codes of categories is split into two sets of codes; a missing code, and
    one that no row of the fit has, goes right. Sets follow noise more closely than thresholds do; a
    larger ``min_rows`` mends that. A tree that no split improves is a constant, the mean of its
    targets.

    Args:
        leaves: The largest number of leaves of a tree.
        depth: The largest depth of a tree; None: no limit.
        min_rows: The smallest number of rows of a leaf. With weights, LightGBM estimates the
            number of rows of a leaf from its share of the weights.
        columns: The share of the columns that each tree may split, drawn at random.
        linear: Whether a leaf is a linear function of the columns on its path, and not a constant.
            LightGBM adds a ridge penalty of 1 on its coefficients, for the columns as they are.

    Raises:
        SettingError: If an option is outside its range.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, learners, models
        >>> x = [[v] for v in range(8)]
        >>> data = ppgp.Dataset(x, [0.1, -0.1, 0.0, 0.1, 5.0, 5.1, 4.9, 5.0])
        >>> model = models.Boosted(learner=learners.Trees(leaves=2, min_rows=2))
        >>> how = inference.NaturalGradientBoosting(steps=100, rows=1.0, folds=None)
        >>> posterior = ppgp.fit(model, data, how, progress=False)
        >>> low, high = posterior.predict([[1], [6]]).mean.tolist()
        >>> abs(low) < 1 and abs(high - 5) < 1
        True
    """

    leaves: int = 32
    depth: int | None = None
    min_rows: int = 5
    columns: float = 0.8
    linear: bool = False
    takes_missing = True
    takes_categories = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "leaves", 2, MOST_LEAVES)
        if self.depth is not None:
            check_whole(self, "depth", 1, MOST_DEPTH)
        check_whole(self, "min_rows", 1, 2**31 - 1)
        check_share(self, "columns")
        check_flag(self, "linear")

    def bytes_per_stage(self, n: int, d: int) -> float:
        leaves = min(self.leaves, max(1, n // self.min_rows))
        if self.depth is not None:
            leaves = min(leaves, 2**self.depth)
        per_node = NODE_BYTES + (LINEAR_BYTES * d if self.linear else 0)
        return float(per_node) * (2 * leaves - 1)

    def knowing(self, X: Tensor) -> Trees:
        learner = copy(self)
        if not self.linear:
            vars(learner)["ranks"] = ranks_of(_array(X))
        return learner

    def begin(
        self,
        X: Tensor,
        outputs: int,
        *,
        valid: Tensor | None = None,
        rows: float = 1.0,
        seed: int = 0,
        categorical: tuple[int, ...] = (),
        threads: int = 1,
    ) -> Growing:
        options: dict[str, Any] = {
            "num_leaves": self.leaves,
            "max_depth": self.depth or -1,
            "min_data_in_leaf": self.min_rows,
            "min_data_per_group": self.min_rows,  # on the side of a set of codes
            "min_data_in_bin": min(3, self.min_rows),  # 3 is LightGBM's own
            "feature_fraction": self.columns,
        }
        if self.depth is not None and self.depth < MOST_LEAVES.bit_length():
            options["num_leaves"] = min(self.leaves, 2**self.depth)
        if self.linear:
            options |= {"linear_tree": True, "linear_lambda": PENALTY_OF_LEAVES}
        grower = Grower(
            _array(X),
            outputs,
            None if valid is None else _array(valid),
            rows,
            seed,
            categorical,
            threads,
            options,
            vars(self).get("ranks"),
        )
        return _GrowingTrees(self, grower, X, valid, bool(categorical))

    def predict(self, tensors: Tensors, X: Tensor, until: int | None = None) -> Tensor:
        until = first_stages(until, _stages(tensors))
        return by_member(lambda one: tree_sum(one, X, until), tensors, tensors["outputs"].ndim)

    def staged(self, tensors: Tensors, X: Tensor, every: int = 1) -> Iterator[Tensor]:
        if tensors["outputs"].ndim:
            raise SettingError("the tensors of one draw", "those of several", "pass one of them")
        return partial_sums(tensors, X, _stages(tensors), every)

    def importance(self, tensors: Tensors, d: int) -> Tensor:
        return by_member(lambda one: gains(one, d), tensors, tensors["outputs"].ndim)


class _GrowingTrees(Growing):
    """The trees of a fit in progress."""

    def __init__(
        self, learner: Trees, grower: Grower, X: Tensor, valid: Tensor | None, categorical: bool
    ) -> None:
        self.linear, self.grower = learner.linear, grower
        self.X, self.valid = (X, valid) if learner.linear else (X[:0], None)
        self.trees = TreeTable(grower.outputs, categorical, learner.linear)

    @property
    def stages(self) -> int:
        return self.trees.stages

    def add(self, g: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        trees, at_rows, held_out = self.grower.grow(g, weights, self.stages)
        self.trees.append(trees)
        if self.linear:  # LightGBM evaluates linear leaves in float32
            stage = self.trees.tensors_of(trees)
            at_rows = tree_sum(stage, self.X.double(), 1)
            held_out = None if self.valid is None else tree_sum(stage, self.valid.double(), 1)
        held_out = None if held_out is None else held_out.to(g)
        return at_rows.to(g), held_out

    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        first_stages(steps, self.stages)
        return self.trees.tensors(steps)

    def restore(self, tensors: Tensors) -> None:
        self.trees.restore(tensors)


def _stages(tensors: Tensors) -> int:
    """Return the number of stages."""
    return tensors["feature"].shape[-2] // int(tensors["outputs"].max())


def _array(X: Tensor) -> np.ndarray:
    """Return rows as an array of LightGBM, in float32 or float64."""
    return np.ascontiguousarray(X.detach().cpu().numpy())
