"""What conformal estimators share: the rows that calibrate, their scores, and the new sets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..conformal import Calibrator, Score, calibrate
from ..conformal.cross_sets import cross_guarantee, cross_region
from ..conformal.scores.base import not_a_score
from ..conformal.split import smallest_n
from ..errors import DataError, NotApplicable, SettingError, UnknownName, counted_are
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..recipes import parsing as recipes
from ..runtime.levels import exact_level
from ..runtime.libraries import settings_unchanged
from .any_estimator import Predictor, is_frozen, parts_of
from .calibration_rows import METHODS, Folds, check_weights, folds_of, group_codes
from .estimator_inputs import explained, rows_given

with settings_unchanged():
    import numpy as np
    from sklearn import get_config
    from sklearn.base import BaseEstimator, MetaEstimatorMixin
    from sklearn.model_selection import GroupKFold
    from sklearn.utils import _safe_indexing, get_tags, indexable
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.validation import _check_method_params, check_is_fitted

__all__ = ["ConformalEstimator"]

IF_FROZEN = ", if the frozen estimator was fitted to other rows"
OF_NEW_GROUPS = "marginal coverage >= {} for a row of a new group (exchangeable groups)"


# -- metadata ----------------------------------------------------------------------------------


def _routing_of(owner: Any, estimator: Any, cv: Any) -> Any:
    """Return the routes of metadata of a conformal estimator."""
    mapping = MethodMapping()
    for method in ("fit", "predict"):
        mapping.add(caller=method, callee=method)
    mapping.add(caller="fit", callee="predict")
    if hasattr(estimator, "predict_proba"):
        mapping.add(caller="predict_proba", callee="predict_proba")
    splitter = cv if hasattr(cv, "get_metadata_routing") else GroupKFold()
    return (
        MetadataRouter(owner=owner)
        .add(estimator=estimator, method_mapping=mapping)
        .add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    )


@dataclass(frozen=True)
class _Options:
    """Arguments beside X and y, by who takes them.

    Attributes:
        of_fit: Of ``fit`` of the estimator.
        of_predict: Of its ``predict``, at the same rows.
        groups: Of the splitter, or None.
    """

    of_fit: Mapping[str, Any] = field(default_factory=dict)
    of_predict: Mapping[str, Any] = field(default_factory=dict)
    groups: Any = None

    @staticmethod
    def of(owner: Any, estimator: Any, method: str, given: Mapping[str, Any]) -> _Options:
        """Return what was given to a method, sorted.

        With scikit-learn's metadata routing, requests decide. Without it, ``groups`` of ``fit`` are
        those of the splitter, and everything else goes to the estimator: to ``fit``, and to
        ``predict`` what it takes by name.

        Args:
            owner: The conformal estimator.
            estimator: The one inside.
            method: "fit", "predict" or "predict_proba".
            given: What the method was given.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            return _Options()
        if get_config().get("enable_metadata_routing"):
            routed = process_routing(owner, method, **given)
            of = routed.estimator
            if method != "fit":
                return _Options(of_predict=of[method])
            return _Options(of.fit, of.predict, routed.splitter.split.get("groups"))
        if method != "fit":
            return _Options(of_predict=given)
        groups = given.pop("groups", None)
        known = inspect.signature(estimator.predict).parameters
        return _Options(given, {k: v for k, v in given.items() if k in known}, groups)

    def at(self, X: Any, rows: Any) -> tuple[Any, dict[str, Any]]:
        """Return some rows of X (None: all), and the arguments of ``predict`` at these."""
        told = dict(self.of_predict)
        if rows is None:
            return X, told
        if told:
            told = _check_method_params(X, told, indices=rows)
        return _safe_indexing(X, rows), told


# -- categories (Mondrian conformal prediction) ------------------------------------------------


def _categories_of(X: Any, mondrian: Any) -> np.ndarray | None:
    """Return the category of each row [n], or None where there are none.

    Args:
        X: Inputs [n, d].
        mondrian: The name or the number of a column, a function of X that returns [n] categories,
            or None.

    Raises:
        UnknownName: If there is no such column.
        SettingError: If it is something else.
        DataError: If the function does not return one category per row.
    """
    if mondrian is None:
        return None
    if callable(mondrian):
        categories, n = np.asarray(mondrian(X)), np.shape(X)[0]
        if categories.shape != (n,):
            got = f"shape {list(categories.shape)}"
            do = "return one entry for each row of X"
            raise DataError(f"one category per row ({n}) from mondrian", got, do)
        return categories
    frame = hasattr(X, "columns")
    if isinstance(mondrian, str):
        names = list(map(str, X.columns)) if frame else []
        if mondrian not in names:
            raise UnknownName("column of categories", mondrian, names)
        return np.asarray(X[mondrian])
    if isinstance(mondrian, bool) or not isinstance(mondrian, int | np.integer):
        wanted = "the name or the number of a column, or a function of X, as mondrian"
        raise SettingError(wanted, repr(mondrian)[:60], "for example mondrian=0")
    d = np.shape(X)[1]
    if not -d <= mondrian < d:
        raise UnknownName("column of categories", str(mondrian), map(str, range(d)))
    return np.asarray(X.iloc[:, mondrian]) if frame else np.asarray(X)[:, mondrian]


def _by_category(
    score: Score,
    new: list[Prediction],
    scores: list[Tensor],
    level: float,
    known: Sequence[np.ndarray],
    categories: np.ndarray,
) -> Region:
    """Return the CV+ sets whose left-out rows are those of the category of each new row.

    Args:
        score: The conformal score.
        new: The predictions of the m new rows, one per fold.
        scores: The scores of the left-out rows, one tensor per fold.
        level: The nominal level.
        known: The categories of the left-out rows, one array per fold.
        categories: Those of the new rows [m].

    Raises:
        DataError: If no left-out row has a category, or one alone.
    """
    parts: list[Region] = []
    order = []
    for category in np.unique(categories):
        here = torch.as_tensor(np.flatnonzero(categories == category))
        chosen = [torch.as_tensor(np.flatnonzero(labels == category)) for labels in known]
        folds = [k for k, rows in enumerate(chosen) if len(rows)]
        if len(folds) < 2:
            do = "merge categories, or use fewer rows per fold"
            raise DataError("training rows of every category in two folds", str(category), do)
        mine = [scores[k][chosen[k]] for k in folds]
        sentence = cross_guarantee(list(map(len, mine)), level, list(map(len, known)))
        parts.append(cross_region(score, [new[k][here] for k in folds], mine, level, sentence))
        order.append(here)
    back = torch.cat(order).argsort()

    def joined(name: str) -> Tensor | None:
        if getattr(parts[0], name) is None:
            return None
        return torch.cat([getattr(part, name) for part in parts])[back]

    # the weakest of the sentences holds in every category
    weakest = min(parts, key=lambda part: _stated(part.guarantee))
    return replace(
        weakest,
        lower=joined("lower"),
        upper=joined("upper"),
        labels=joined("labels"),
        guarantee=f"given the category, fixed beforehand: {weakest.guarantee}",
        n_calibration=sum(map(len, known)),
    )


def _stated(guarantee: str) -> float:
    """Return the coverage that a sentence of ``cross_guarantee`` states, 0 for none."""
    if not guarantee.startswith("coverage >= "):
        return 0.0
    return float(guarantee.split()[2])


# -- the estimator -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _LeftOut:
    """What is kept of each fold: its fit, and the rows that it left out."""

    fitted: tuple[Any, ...]
    prediction: Prediction
    y: Tensor
    categories: np.ndarray | None


class ConformalEstimator(MetaEstimatorMixin, BaseEstimator):
    """Common part: the rows that calibrate, their scores, and the sets of new rows.

    Attributes:
        default: The score where none is given.
    """

    default: Score

    def __init__(
        self,
        estimator: Any,
        method: Any = "split",
        conformity_score: Any = None,
        level: Any = 0.9,
        cv: Any = None,
        mondrian: Any = None,
        seed: Any = 0,
    ) -> None:
        self.estimator, self.method, self.level = estimator, method, level
        self.conformity_score, self.cv = conformity_score, cv
        self.mondrian, self.seed = mondrian, seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(parts_of(self.estimator)[0]).input_tags
        tags.input_tags.pairwise = False  # a fold takes rows of X, not columns too
        return tags

    def get_metadata_routing(self) -> Any:
        """Return which method of the estimator and of the splitter takes which metadata."""
        return _routing_of(self, parts_of(self.estimator)[0], self.cv)

    def _predictor(self, score: Score) -> Predictor:
        """Return what is fitted."""
        return Predictor(self.estimator)

    def _prediction(
        self, fitted: tuple[Any, ...], X: Any, options: Mapping[str, Any]
    ) -> Prediction:
        """Return the Prediction of rows by a fit."""
        raise NotImplementedError

    def _chosen_score(self) -> Score:
        given = self.conformity_score
        if given is None:
            return self.default
        score = recipes.build_score(given) if isinstance(given, str) else given
        if not isinstance(score, Score):
            raise not_a_score(score)
        if self.method != "split" and score.sides != 1:
            do = "use method='split', or 'absolute'"
            raise NotApplicable(f"a score with one side for {self.method}", repr(score), do)
        return score

    def _options(self, method: str, given: Mapping[str, Any]) -> _Options:
        return _Options.of(self, parts_of(self.estimator)[0], method, given)

    def _calibrate(self, X: Any, y: Any, numbers: np.ndarray, given: Mapping[str, Any]) -> None:
        """Fit to some rows, and measure the scores of those that were left out.

        Args:
            X: Inputs [n, d].
            y: Targets [n] as the estimator takes them.
            numbers: Targets [n], classes as codes.
            given: What ``fit`` was given beside these.
        """
        if self.method not in METHODS:
            raise UnknownName("method of conformal prediction", str(self.method), METHODS)
        exact_level(self.level)
        X, y = indexable(rows_given(X), y)
        check_weights(given.get("sample_weight"), len(y))
        options = self._options("fit", given)
        self.score_ = self._chosen_score()
        self._fitted_with = predictor = self._predictor(self.score_)
        categories = _categories_of(X, self.mondrian)
        frozen = is_frozen(self.estimator)
        self._folds = self._rows(X, numbers, options.groups, frozen)
        kept: list[_LeftOut] = []
        for train, test in self._folds.pairs:
            if frozen:
                fitted = parts_of(self.estimator)
            else:
                with explained(X, self.mondrian):
                    fitted = predictor.fitted(X, y, train, options.of_fit)
            rows, told = options.at(X, None if frozen else test)
            prediction = self._prediction(fitted, rows, told)
            if not frozen:  # these rows are known to be new
                prediction = replace(prediction, in_training=None)
            of_rows = None if categories is None else categories[test]
            targets = torch.as_tensor(numbers[test], dtype=torch.float64)
            kept.append(_LeftOut(fitted, prediction, targets, of_rows))
        self._kept = tuple(kept)
        self._fitted: Any = kept[0].fitted
        if self.method == "split":
            self.calibrator_ = self._calibrator(kept[0])
        else:
            self._fitted = predictor.fitted(X, y, None, options.of_fit)
        several = len(self._fitted) > 1
        self.estimator_: Any = self._fitted if several else self._fitted[0]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self._fitted[0], name):
                setattr(self, name, getattr(self._fitted[0], name))

    def _rows(self, X: Any, y: np.ndarray, groups: Any, frozen: bool) -> Folds:
        if not frozen:
            return folds_of(self.method, self.cv, X, y, groups, self.seed)
        if self.method != "split":
            do = "use method='split', or an estimator that is not frozen"
            raise SettingError(f"an estimator that {self.method} can refit", "a frozen one", do)
        if self.cv is not None:
            do = "leave cv out"
            raise SettingError("no cv, as all rows calibrate a frozen one", repr(self.cv)[:60], do)
        every = np.arange(len(y))
        codes = None if groups is None else group_codes(groups, len(y))
        return Folds(((every[:0], every),), groups=codes)

    def _calibrator(self, kept: _LeftOut) -> Calibrator:
        groups, weights = self._folds.groups, None
        if groups is not None:
            if self.mondrian is not None:
                raise NotApplicable("groups or mondrian", "both", "leave one of them out")
            here = groups[self._folds.pairs[0][1]]
            weights = 1 / np.bincount(here)[here]
        return calibrate(
            self.score_, kept.prediction, kept.y, groups=kept.categories, weights=weights
        )

    def _region(self, X: Any, level: Any, given: Mapping[str, Any]) -> Region:
        """Return the set of each new row."""
        check_is_fitted(self, "estimator_")
        level = self.level if level is None else level
        exact_level(level)
        X = rows_given(X)
        told = self._options("predict", given).of_predict
        categories = _categories_of(X, self.mondrian)
        if self.method == "split":
            new = self._prediction(self._fitted, X, told)
            weights = None if self._folds.groups is None else np.ones(len(new))
            region = self.calibrator_(new, level, groups=categories, weights=weights)
        else:
            region = self._cross(X, level, told, categories)
        return replace(region, guarantee=self._guarantee(region.guarantee, level))

    def _cross(
        self, X: Any, level: float, told: Mapping[str, Any], categories: np.ndarray | None
    ) -> Region:
        score, kept = self.score_, self._kept
        new = [self._prediction(one.fitted, X, told) for one in kept]
        scores = [score.score(one.prediction, one.y, level) for one in kept]
        if categories is None:
            return cross_region(score, new, scores, level)
        known = [np.asarray(one.categories) for one in kept]
        return _by_category(score, new, scores, level, known, categories)

    def _guarantee(self, sentence: str, level: float) -> str:
        """Return what holds, given the sentence for exchangeable rows."""
        if self._folds.heuristic:
            return self._folds.heuristic
        if sentence.startswith("heuristic"):
            return sentence
        if self._folds.groups is not None and self.method == "split":
            sentence = OF_NEW_GROUPS.format(level)
            n = len(np.unique(self._folds.groups[self._folds.pairs[0][1]]))
            need = smallest_n(level, self.score_.sides)
            if n < need:
                groups_are = counted_are(n, "calibration group")
                sentence += f": infinite, as {groups_are} fewer than the {need} a finite set needs"
        return sentence + IF_FROZEN if is_frozen(self.estimator) else sentence
