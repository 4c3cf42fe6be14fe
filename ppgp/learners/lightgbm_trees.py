"""Trees grown by LightGBM, through its public API.

Every stage is a ``Booster`` of its own on one ``Dataset``, whose columns are binned once. A new
booster takes half a millisecond. A stage then depends on its seed, targets and weights alone, its
raw scores are its outputs (no difference of large sums), and a fit that was killed continues
without growing its trees again.

LightGBM bins columns by their values: a bin of its own lies around 0, so that X + 2048 would grow
other trees than X. It is given the ranks of the values in place of them, from 1 on, and thresholds
are put halfway between the two values that a split separates. Trees with constant leaves then
depend on the order of the values of each column alone. Linear leaves are functions of the values,
which LightGBM is given for these.

LightGBM keeps gradients and Hessians in float32. The targets of each output are divided by a power
of two near their largest magnitude, and the trees are multiplied by it, so that the units of y
neither overflow nor change bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NotApplicable
from ..runtime.libraries import imported
from ..runtime.memory import must_fit, rows_per_call
from ..runtime.threads import threads_of_process
from .base import check_targets, scaled, seed_of
from .ranks import Ranks, ranks_of
from .tree import Tree, constant_tree

#: options of every tree: least squares without penalties, and results that do not depend on the
#: number of threads
FIXED = {
    "objective": "none",
    "metric": "none",
    "boost_from_average": False,
    "learning_rate": 1.0,
    "lambda_l1": 0.0,
    "lambda_l2": 0.0,
    "min_sum_hessian_in_leaf": 0.0,
    "min_gain_to_split": 0.0,
    "cat_l2": 0.0,
    "cat_smooth": 1.0,  # sets are formed of all codes that occur in a node
    "deterministic": True,
    "force_col_wise": True,
    "bin_construct_sample_cnt": 50_000,  # rows that decide the edges of the 255 bins
    "verbosity": -1,
}
PENALTY_OF_LEAVES = 1.0  # ridge penalty of the coefficients of a linear leaf


@cache
def _lightgbm() -> Any:
    """Return LightGBM.

    ``runtime.libraries`` has imported torch before, whose OpenMP LightGBM then shares.

    Raises:
        NotApplicable: If it is not installed.
    """
    try:
        return imported("lightgbm")
    except (ImportError, OSError) as error:
        raise NotApplicable(
            "LightGBM, which grows the trees of learners.Trees",
            f"{error}",
            'pip install "ppgp[boost]", or use learners.Linear or learners.Estimator',
        ) from error


class Grower:
    """Binned rows, from which ``grow`` grows one tree per output.

    Args:
        X: [n, d], the rows; NaN is a missing value.
        outputs: The number K of outputs.
        valid: [v, d], rows held out.
        rows: The share of rows of each stage.
        seed: The seed.
        categorical: The columns that hold codes.
        threads: The number of threads.
        options: The options of LightGBM that shape a tree.
        ranks: The ranks of each column; None: among the rows and those held out.
    """

    def __init__(
        self,
        X: np.ndarray,
        outputs: int,
        valid: np.ndarray | None,
        rows: float,
        seed: int,
        categorical: tuple[int, ...],
        threads: int,
        options: Mapping[str, Any],
        ranks: Sequence[Ranks] | None = None,
    ) -> None:
        lightgbm = _lightgbm()
        self.n, self.d = X.shape
        _refuse_without_memory(self.n, self.d, outputs)
        self.outputs, self.seed = outputs, seed
        self.linear = bool(options.get("linear_tree"))
        self.params = {
            **FIXED,
            **options,
            "num_class": outputs,
            "num_threads": threads_of_process(threads),
            "data_random_seed": 1,
        }
        if rows < 1:
            self.params |= {"bagging_fraction": rows, "bagging_freq": 1}
        table = {"categorical_feature": list(categorical), "params": dict(self.params)}
        self.ranks: dict[int, Ranks] = {}
        if not self.linear:
            tables = [X] if valid is None else [X, valid]
            ranks = ranks_of(np.concatenate(tables)) if ranks is None else ranks
            for column in set(range(self.d)) - set(categorical):
                missing = bool(np.isnan(X[:, column]).any())
                self.ranks[column] = replace(ranks[column], missing=missing)
        self.train = lightgbm.Dataset(self._ranked(X), **table).construct()
        # LightGBM leaves out columns that no split could use, and fails if none is left
        self.splittable = any(self.train.feature_num_bin(column) for column in range(self.d))
        self.valid = None
        self.v = 0 if valid is None else len(valid)
        if valid is not None:
            rows_held_out = self._ranked(valid)
            held_out = lightgbm.Dataset(rows_held_out, reference=self.train, **table)
            self.valid = held_out.construct()
        self.ones = np.ones((outputs, self.n), dtype=np.float32)

    def _ranked(self, X: np.ndarray) -> np.ndarray:
        """Return rows with ranks in place of the values of the columns that have them."""
        if not self.ranks:
            return X
        ranked = np.array(X, dtype=np.float32)  # a rank is at most ``RANKED`` + 1
        for column, ranks in self.ranks.items():
            ranked[:, column] = ranks(X[:, column])
        return ranked

    def grow(
        self, g: Tensor, weights: Tensor | None, stage: int
    ) -> tuple[list[Tree], Tensor, Tensor | None]:
        """Return the K trees of a stage and their outputs at the training and the held-out rows.

        Args:
            g: [K, n], the targets.
            weights: [K, n], or None.
            stage: The number of the stage, of which its random numbers are a function.
        """
        check_targets(g, weights)
        targets, powers = scaled(g)
        hessians, powers_of_weights = self.ones, np.zeros(self.outputs, dtype=int)
        if weights is not None:
            masses, powers_of_weights = scaled(weights)
            hessians = masses.astype(np.float32)
            targets = targets * masses
        trees, at_rows, held_out = self._grown(-targets.astype(np.float32), hessians, stage)
        for k, tree in enumerate(trees):
            parts = [part[k] for part in (at_rows, held_out) if part is not None]
            if len(tree.value) == 1:  # no split: the best constant, where LightGBM has 0
                trees[k] = constant_tree(_mean(g[k], None if weights is None else weights[k]))
                for part in parts:
                    part[:] = trees[k].value[0]
            else:
                power = int(powers[k])
                trees[k] = tree.times_power_of_two(power, 2 * power + int(powers_of_weights[k]))
                for part in parts:
                    np.ldexp(part, power, out=part)
        return trees, torch.from_numpy(at_rows), _tensor(held_out)

    def _grown(
        self, gradients: np.ndarray, hessians: np.ndarray, stage: int
    ) -> tuple[list[Tree], np.ndarray, np.ndarray | None]:
        """Return the trees of LightGBM and their outputs at the training and held-out rows."""
        if not self.splittable:
            held_out = None if self.valid is None else np.zeros((self.outputs, self.v))
            trees = [constant_tree(0.0)] * self.outputs
            return trees, np.zeros((self.outputs, self.n)), held_out
        booster = self._booster(stage)
        _update(booster, gradients, hessians)
        trees = read_trees(booster.model_to_string(), self.ranks)[-self.outputs :]
        at_rows = _scores(booster, "eval_train", self.outputs)
        held_out = None if self.valid is None else _scores(booster, "eval_valid", self.outputs)
        return trees, at_rows, held_out

    def _booster(self, stage: int) -> Any:
        """Return a booster without trees, with the seeds of a stage."""
        names = ("bagging_seed", "feature_fraction_seed", "extra_seed")
        seeds = {name: seed_of(self.seed, stage, k) for k, name in enumerate(names)}
        params = {**self.params, **seeds}
        booster = _lightgbm().Booster(params, self.train)
        if self.valid is not None:
            booster.add_valid(self.valid, "valid")
        if self.linear:
            # LightGBM gives the first tree constant leaves; a tree without splits takes that place
            _update(booster, np.zeros_like(self.ones), self.ones)
        return booster


def _refuse_without_memory(n: int, d: int, outputs: int) -> None:
    """Raise NotEnoughMemory if the bins and the arrays of one stage do not fit."""
    row = 6 * d + 64 * outputs  # bins and ranks of each column
    what = f"trees on {n:,} rows of {d} columns and {outputs} outputs"
    must_fit(row * n, what, rows_per_call(row))


def _update(booster: Any, gradients: np.ndarray, hessians: np.ndarray) -> None:
    """Grow one tree per output, from gradients and Hessians [K, n]."""
    if len(gradients) == 1:
        gradients, hessians = gradients[0], hessians[0]
    booster.update(fobj=lambda scores, table: (gradients.T, hessians.T))


def _scores(booster: Any, method: str, outputs: int) -> np.ndarray:
    """Return the raw scores [K, rows] at the rows of the fit or at those held out."""
    found = []

    def keep(scores: np.ndarray, table: Any) -> tuple[str, float, bool]:
        found.append(np.array(scores.T, order="C").reshape(outputs, -1))
        return "scores", 0.0, True

    getattr(booster, method)(feval=keep)
    return found[0]


def _mean(g: Tensor, weights: Tensor | None) -> float:
    """Return the weighted mean; 0 if all weights are 0."""
    values = g.tolist()
    if weights is None:
        return math.fsum(values) / len(values)
    total = math.fsum(weights.tolist())
    return math.fsum((g * weights).tolist()) / total if total else 0.0


def _tensor(values: np.ndarray | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(values)


# -- trees read from the text of a model -----------------------------------------------------------
# ``model_to_string`` takes a fourth of the time of ``dump_model``, and holds thresholds and values
# with 17 digits, which are exact.

VERSION = "version=v4"
CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING = 1, 2, 8  # bits of decision_type


def read_trees(text: str, ranks: Mapping[int, Ranks] = MappingProxyType({})) -> list[Tree]:
    """Return the trees of a model, with thresholds in the units of the columns.

    Args:
        text: What ``Booster.model_to_string`` returns.
        ranks: ``{column: its ranks}`` of the columns of which LightGBM was given ranks.

    Raises:
        NotApplicable: If LightGBM writes another format.
    """
    if VERSION not in text[:200]:
        raise NotApplicable(
            "a model of LightGBM 4", text[:40].replace("\n", " "), 'pip install "lightgbm<5"'
        )
    parts = text.split("\nTree=")[1:]
    return [_read(part.split("\n\n", 1)[0], ranks) for part in parts]


def _read(part: str, ranks: Mapping[int, Ranks]) -> Tree:
    """Return the tree of one part of the text, of lines ``name=numbers``."""
    entries = dict(line.split("=", 1) for line in part.split("\n")[1:] if "=" in line)
    leaves = int(entries["num_leaves"])
    if leaves == 1:
        return constant_tree(float(entries["leaf_value"].split()[0]))
    splits, nodes = leaves - 1, 2 * leaves - 1  # the splits come first, then the leaves
    decision = _whole(entries["decision_type"])
    threshold = _real(entries["threshold"])
    by_category = (decision & CATEGORICAL) > 0
    takes_nan = (decision & NAN_IS_MISSING) > 0
    feature = _whole(entries["split_feature"])
    # missing values that LightGBM's sample of rows did not have are 0 to it, below all ranks
    lowest = np.zeros(splits, dtype=bool)
    for column in set(feature[~by_category].tolist()) & set(ranks):
        here = (feature == column) & ~by_category
        threshold[here] = ranks[column].thresholds(threshold[here])
        lowest[here] = ranks[column].missing
    # a column without missing values when it was binned reads NaN as 0
    read_as_zero = lowest | (threshold >= 0.0)
    missing_left = np.where(takes_nan, (decision & DEFAULT_LEFT) > 0, read_as_zero)
    leaf = np.arange(splits, nodes)
    value = _real(entries["leaf_value"])
    constant, columns, coefficients = _linear(entries, splits, value)
    return Tree(
        feature=_padded(feature, nodes, -1).astype(np.int32),
        threshold=_padded(np.where(by_category, 0.0, threshold), nodes, 0.0),
        missing_left=_padded(missing_left & ~by_category, nodes, False),
        left=np.concatenate([_children(entries["left_child"], splits), leaf]).astype(np.int32),
        right=np.concatenate([_children(entries["right_child"], splits), leaf]).astype(np.int32),
        value=np.concatenate([np.zeros(splits), value]),
        gain=_padded(_real(entries["split_gain"]), nodes, 0.0),
        category=_padded(np.where(by_category, threshold, -1), nodes, -1).astype(np.int32),
        categories=_categories(entries),
        constant=constant,
        columns=columns,
        coefficients=coefficients,
    )


def _real(numbers: str) -> np.ndarray:
    return np.fromstring(numbers, dtype=np.float64, sep=" ")


def _whole(numbers: str) -> np.ndarray:
    return np.fromstring(numbers, dtype=np.int64, sep=" ")


def _padded(values: np.ndarray, nodes: int, fill: float) -> np.ndarray:
    """Return the values of the splits, and ``fill`` for the leaves."""
    padded = np.full(nodes, fill, dtype=values.dtype)
    padded[: len(values)] = values
    return padded


def _children(numbers: str, splits: int) -> np.ndarray:
    """Return the nodes that the children are; the text numbers leaves -1, -2, ..."""
    children = _whole(numbers)
    return np.where(children >= 0, children, splits + ~children)


def _categories(entries: dict[str, str]) -> np.ndarray:
    """Return the words [splits, words] of the splits by categories."""
    if "cat_threshold" not in entries:
        return np.zeros((0, 1), dtype=np.int64)
    ends, words = _whole(entries["cat_boundaries"]), _whole(entries["cat_threshold"])
    table = np.zeros((len(ends) - 1, int(np.diff(ends).max())), dtype=np.int64)
    for row, (start, end) in enumerate(pairwise(ends)):
        table[row, : end - start] = words[start:end]
    return table


def _linear(
    entries: dict[str, str], splits: int, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return constant, columns and coefficients of the leaves, whose outputs are ``value``."""
    constant = np.concatenate([np.zeros(splits), value])
    if entries.get("is_linear") != "1":
        nodes = len(constant)
        return constant, np.zeros((nodes, 0), dtype=np.int32), np.zeros((nodes, 0))
    constant[splits:] = _real(entries["leaf_const"])
    sizes = _whole(entries["num_features"])
    shape = (len(constant), int(sizes.max()))
    columns, coefficients = np.full(shape, -1, dtype=np.int32), np.zeros(shape)
    filled = np.zeros(shape, dtype=bool)
    filled[splits:] = np.arange(shape[1]) < sizes[:, None]
    columns[filled] = _whole(entries["leaf_features"])
    coefficients[filled] = _real(entries["leaf_coeff"])
    return constant, columns, coefficients
