"""Any scikit-learn regressor.

Decision trees become the tensors of ``tree_tensors``. Every other regressor stays a Python object,
and tensors hold its number.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NotApplicable, SettingError
from .base import (
    Growing,
    Learner,
    Tensors,
    check_targets,
    drawn_rows,
    first_stages,
    refuse_categories,
    scaled,
    seed_of,
)
from .stacking import by_member
from .tree import Tree
from .tree_table import TreeTable
from .tree_tensors import gains, partial_sums, tree_sum

PADDING = 0  # the number that fills the tensors of shorter members


def _is_tree(estimator: Any) -> bool:
    """Return whether a scikit-learn estimator is one decision tree."""
    from sklearn.tree import BaseDecisionTree

    return isinstance(estimator, BaseDecisionTree)


def _tree_of(fitted: Any) -> Tree:
    """Return a fitted ``DecisionTreeRegressor`` of one output as a Tree."""
    tree = fitted.tree_
    nodes, leaf = np.arange(tree.node_count), tree.children_left < 0
    rows = tree.weighted_n_node_samples
    within = tree.impurity * rows
    left = np.where(leaf, nodes, tree.children_left)
    right = np.where(leaf, nodes, tree.children_right)
    return Tree(
        feature=np.where(leaf, -1, tree.feature).astype(np.int32),
        threshold=np.where(leaf, 0.0, tree.threshold),
        missing_left=np.asarray(tree.missing_go_to_left, dtype=bool),
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        value=np.where(leaf, tree.value[:, 0, 0], 0.0),
        gain=np.where(leaf, 0.0, within - within[left] - within[right]),
        category=np.full(len(nodes), -1, dtype=np.int32),
        categories=np.zeros((0, 1), dtype=np.int64),
        constant=np.where(leaf, tree.value[:, 0, 0], 0.0),
        columns=np.zeros((len(nodes), 0), dtype=np.int32),
        coefficients=np.zeros((len(nodes), 0)),
    )


class _Regressors:
    """Fitted regressors by their numbers.

    Numbers are random, so that those of another record are not found here.
    """

    def __init__(self) -> None:
        self._by_number: dict[int, Any] = {}

    def add(self, fitted: Any) -> int:
        """Keep a regressor and return its number."""
        number = 1 + secrets.randbits(62)
        self._by_number[number] = fitted
        return number

    def at(self, numbers: Iterable[int]) -> list[Any]:
        """Return the regressors of these numbers; None for padding.

        Raises:
            NotApplicable: If one of them is not kept here.
        """
        found = []
        for number in numbers:
            if number != PADDING and number not in self._by_number:
                raise NotApplicable(
                    "the learners.Estimator whose regressors these are, in the process of the fit",
                    "another one",
                    "use the model of the posterior, or fit again",
                )
            found.append(self._by_number.get(number))
        return found


@dataclass(frozen=True)
class Estimator(Learner):
    """A scikit-learn regressor, cloned for every output and stage.

    Friedman (2001), algorithm 1, with any base learner for rows X [n, d]. Its ``random_state`` is
    set for each clone. Its targets are divided by a power of two near their largest magnitude, so
    that its absolute tolerances do not depend on the units of y. A ``DecisionTreeRegressor`` or
    ``ExtraTreeRegressor`` becomes tensors, so that a posterior can be saved. Other fitted
    regressors are kept in this object for as long as it lives: their posteriors predict in the
    process of the fit, and neither they nor checkpoints can be saved.

    Args:
        estimator: A regressor with ``fit`` and ``predict``, which is not fitted itself.

    Raises:
        SettingError: If the estimator is no scikit-learn regressor.

    Examples:
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> import ppgp
        >>> from ppgp import inference, learners, models
        >>> stump = learners.Estimator(DecisionTreeRegressor(max_depth=1))
        >>> x = [[v] for v in range(8)]
        >>> data = ppgp.Dataset(x, [0.1, -0.1, 0.0, 0.1, 5.0, 5.1, 4.9, 5.0])
        >>> how = inference.NaturalGradientBoosting(steps=100, rows=1.0, folds=None)
        >>> posterior = ppgp.fit(models.Boosted(learner=stump), data, how, progress=False)
        >>> low, high = posterior.predict([[1], [6]]).mean.tolist()
        >>> abs(low) < 1 and abs(high - 5) < 1
        True
    """

    estimator: Any
    _fitted: _Regressors = field(default_factory=_Regressors, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        from sklearn.base import is_regressor

        instance = not isinstance(self.estimator, type) and hasattr(self.estimator, "get_params")
        if not instance or not is_regressor(self.estimator):
            raise SettingError(
                "a scikit-learn regressor in learners.Estimator",
                repr(self.estimator),
                "for example Estimator(DecisionTreeRegressor(max_depth=3))",
            )

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
        refuse_categories(self, categorical)
        return _GrowingEstimators(self.estimator, self._fitted, X, outputs, valid, rows, seed)

    def check_storable(self) -> None:
        if not _is_tree(self.estimator):
            raise NotApplicable(
                "a learner whose stages are tensors, for a file",
                f"Estimator({type(self.estimator).__name__}())",
                "use learners.Trees, learners.Linear or a DecisionTreeRegressor",
            )

    def predict(self, tensors: Tensors, X: Tensor, until: int | None = None) -> Tensor:
        until = first_stages(until, _stages(tensors))
        axes = tensors["outputs"].ndim
        if "feature" in tensors:  # scikit-learn compares X in float32
            total = by_member(lambda one: tree_sum(one, X.float().double(), until), tensors, axes)
            return total.to(X)
        every = max(1, until)
        return by_member(lambda one: next(self._partial_sums(one, X, until, every)), tensors, axes)

    def staged(self, tensors: Tensors, X: Tensor, every: int = 1) -> Iterator[Tensor]:
        if tensors["outputs"].ndim:
            raise SettingError("the tensors of one draw", "those of several", "pass one of them")
        if "feature" in tensors:
            return partial_sums(tensors, X.float().double(), _stages(tensors), every)
        return self._partial_sums(tensors, X, _stages(tensors), every)

    def importance(self, tensors: Tensors, d: int) -> Tensor:
        """Return the gains of decision trees.

        Raises:
            NotApplicable: If the regressor is no decision tree.
        """
        if "feature" not in tensors:
            raise NotApplicable(
                "learners.Trees, learners.Linear or a decision tree for importance",
                type(self.estimator).__name__,
                "use one of them",
            )
        return by_member(lambda one: gains(one, d), tensors, tensors["outputs"].ndim)

    def _partial_sums(
        self, tensors: Tensors, X: Tensor, until: int, every: int
    ) -> Iterator[Tensor]:
        """Yield the sums [K, m] of the first ``every``, ``2 * every``, ... and ``until`` stages."""
        fitted = self._fitted.at(tensors["regressors"].tolist())
        steps, outputs = tensors["steps"], int(tensors["outputs"])
        rows, powers = X.detach().cpu().numpy(), tensors["powers"].cpu().numpy()
        total = torch.zeros(outputs, len(X), dtype=torch.float64)
        for stage in range(until):
            regressors = fitted[stage * outputs : (stage + 1) * outputs]
            if regressors[0] is not None:
                outputs_of_stage = _outputs(regressors, powers[stage], rows)
                total = total + steps[stage].cpu() * outputs_of_stage
            if (stage + 1) % every == 0 or stage + 1 == until:
                yield total.to(X)
        if not until:
            yield total.to(X)


class _GrowingEstimators(Growing):
    """The fitted regressors of a fit in progress."""

    def __init__(
        self,
        estimator: Any,
        regressors: _Regressors,
        X: Tensor,
        outputs: int,
        valid: Tensor | None,
        rows: float,
        seed: int,
    ) -> None:
        self.estimator, self.regressors = estimator, regressors
        self.outputs, self.rows, self.seed = outputs, rows, seed
        self.X = X.detach().cpu().numpy()
        self.valid = None if valid is None else valid.detach().cpu().numpy()
        self.trees = TreeTable(outputs) if _is_tree(estimator) else None
        self.numbers: list[int] = []  # those of the fitted regressors, if they are no trees
        self.powers: list[int] = []  # what their outputs are multiplied by, as powers of two

    @property
    def stages(self) -> int:
        if self.trees is not None:
            return self.trees.stages
        return len(self.numbers) // self.outputs

    def add(self, g: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        check_targets(g, weights)
        stage = self.stages
        targets, powers = scaled(g)
        rows: Any = slice(None)
        if self.rows < 1:
            rows = drawn_rows(len(self.X), self.rows, self.seed, stage).numpy()
        fitted = []
        for k, target in enumerate(targets):
            options = {}
            if weights is not None:
                self._check_weights()
                options["sample_weight"] = weights[k].detach().cpu().numpy()[rows]
            one = _seeded_clone(self.estimator, seed_of(self.seed, stage, k))
            fitted.append(one.fit(self.X[rows], target[rows], **options))
        self._keep(fitted, powers.tolist())
        held_out = None if self.valid is None else _outputs(fitted, powers, self.valid).to(g)
        return _outputs(fitted, powers, self.X).to(g), held_out

    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        number = first_stages(steps, self.stages)
        if self.trees is not None:
            return self.trees.tensors(steps)
        numbers = self.numbers[: number * self.outputs]
        powers = torch.tensor(self.powers[: len(numbers)], dtype=torch.int64)
        return {
            "outputs": torch.tensor(self.outputs),
            "regressors": torch.tensor(numbers, dtype=torch.int64),
            "powers": powers.reshape(number, self.outputs),
            "steps": steps.detach().cpu().double(),
        }

    def restore(self, tensors: Tensors) -> None:
        if self.trees is not None:
            self.trees.restore(tensors)
        else:
            self.numbers = tensors["regressors"].tolist()
            self.powers = tensors["powers"].flatten().tolist()

    def _keep(self, fitted: Sequence[Any], powers: list[int]) -> None:
        """Add the regressors of one stage, which are fitted to targets over powers of two."""
        if self.trees is None:
            self.numbers += [self.regressors.add(one) for one in fitted]
            self.powers += powers
            return
        pairs = zip(fitted, powers, strict=True)
        self.trees.append([_tree_of(one).times_power_of_two(p, 2 * p) for one, p in pairs])

    def _check_weights(self) -> None:
        """Raise NotApplicable if the regressor takes no weights."""
        from sklearn.utils.validation import has_fit_parameter

        if not has_fit_parameter(self.estimator, "sample_weight"):
            raise NotApplicable(
                "a regressor with sample_weight for weighted rows",
                type(self.estimator).__name__,
                "use weights='unit', or learners.Trees",
            )


def _seeded_clone(estimator: Any, seed: int) -> Any:
    """Return an estimator of the same options that is not fitted, with its random states set."""
    from sklearn.base import clone

    one: Any = clone(estimator)
    names = [name for name in sorted(one.get_params()) if name.split("__")[-1] == "random_state"]
    return one.set_params(**dict.fromkeys(names, seed))


def _outputs(fitted: Sequence[Any], powers: np.ndarray, X: np.ndarray) -> Tensor:
    """Return the outputs [K, n] of one stage, times powers of two."""
    values = [np.asarray(one.predict(X), dtype=np.float64).reshape(-1) for one in fitted]
    return torch.from_numpy(np.ldexp(np.stack(values), powers[:, None]))


def _stages(tensors: Tensors) -> int:
    """Return the number of stages."""
    if "steps" in tensors:
        return tensors["steps"].shape[-1]
    return tensors["feature"].shape[-2] // int(tensors["outputs"].max())
