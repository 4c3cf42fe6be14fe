"""What conformal estimators share: the rows that calibrate, their scores, and the new sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..conformal import Calibrator, Score, calibrate
from ..conformal.cross_sets import cross_region
from ..conformal.scores.base import check_score
from ..conformal.split import smallest_n
from ..errors import NotApplicable, SettingError, UnknownName, counted_are
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from ..recipes import parsing as recipes
from ..runtime.libraries import settings_unchanged
from .any_estimator import Predictor, is_frozen, parts_of
from .calibration_rows import METHODS, Folds, check_weights, folds_of, group_codes
from .columns_of_text import explained
from .estimator_inputs import rows_given
from .estimator_options import Options, routing_of
from .mondrian import by_category, categories_of

with settings_unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator, MetaEstimatorMixin
    from sklearn.utils import get_tags, indexable
    from sklearn.utils.validation import check_is_fitted

__all__ = ["ConformalEstimator"]

IF_FROZEN = ", if the frozen estimator was fitted to other rows"
OF_NEW_GROUPS = "marginal coverage >= {} for a row of a new group (exchangeable groups)"


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
        return routing_of(self, parts_of(self.estimator)[0], self.cv)

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
        check_score(score)
        if self.method != "split" and score.sides != 1:
            do = "use method='split', or 'absolute'"
            raise NotApplicable(f"a score with one side for {self.method}", repr(score), do)
        return score

    def _options(self, method: str, given: Mapping[str, Any]) -> Options:
        return Options.of(self, parts_of(self.estimator)[0], method, given)

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
        categories = categories_of(X, self.mondrian)
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
        categories = categories_of(X, self.mondrian)
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
        return by_category(score, new, scores, level, known, categories)

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
