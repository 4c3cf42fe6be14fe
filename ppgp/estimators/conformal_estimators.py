"""Intervals and label sets around any scikit-learn estimator, with a coverage guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conformal import LAC, Absolute, Quantile, Score
from ..display.user_warnings import warn
from ..errors import DataWarning, NotApplicable, listed
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.libraries import settings_unchanged
from .any_estimator import (
    Predictor,
    check_estimator_given,
    is_frozen,
    is_quantile_regressor,
    probabilities,
)
from .conformal_fit import ConformalEstimator
from .estimator_inputs import rows_given

with settings_unchanged():
    import numpy as np
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.utils import assert_all_finite, check_array, column_or_1d, get_tags
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

__all__ = ["ConformalClassifier", "ConformalRegressor"]


def _has_probabilities(self: Any) -> bool:
    return hasattr(getattr(self, "estimator_", self.estimator), "predict_proba")


class ConformalRegressor(RegressorMixin, ConformalEstimator):
    """Intervals with a coverage guarantee around any regressor.

    ``predict_interval(X)`` returns a Region with ``lower`` and ``upper`` [m] for X [m, d], in the
    units of y. The estimator is cloned and fitted inside, to rows that do not calibrate. A
    ``sklearn.frozen.FrozenEstimator`` is not fitted, and all rows calibrate it.

    Args:
        estimator: A regressor of scikit-learn's interface. For conformalised quantile regression a
            quantile regressor (with an option ``quantile``, or ``alpha`` beside a loss for
            quantiles; a pipeline that ends in one), which is fitted at both ends and the median, or
            a pair (lower, upper) or triple (lower, median, upper) for ``level``.
        method: "split": fit to some rows, calibrate on the others (Papadopoulos et al. 2002).
            "cv+": one fit per fold, and "jackknife+": one per row, each calibrated on the rows that
            it leaves out (Barber, Candes, Ramdas & Tibshirani 2021).
        conformity_score: The conformal score or its name: "absolute", ``conformal.Signed()``,
            "quantile", or, where the estimator predicts a standard deviation or a distribution,
            "normalized" and others that ``ppgp list`` prints. None: "quantile" for quantile
            regressors, otherwise "absolute".
        level: The coverage wanted where ``predict_interval`` is not told.
        cv: For "split" the share of calibration rows (None: a quarter), for "cv+" the number of
            folds (None: 10), or a splitter of scikit-learn, or pairs (train, test) of row numbers;
            "split" takes the last pair.
        mondrian: The name or number of a column, or a function of X, that gives the category of
            each row: coverage holds in each category, fixed before y is seen (Vovk et al. 2005).
        seed: Seed of random folds.

    Attributes:
        estimator_: The fitted estimator that ``predict`` uses; a tuple for quantile regressors.
        score_: The conformal score.
        calibrator_: The Calibrator, of "split" alone.

    Raises:
        UnknownName: By ``fit``, if there is no such method or score.
        SettingError: By ``fit``, if the level or the folds cannot be used.
        DataError: By ``fit``, if there are too few rows.
        NotApplicable: By ``fit``, if the score needs more than the estimator predicts, or the
            estimator is no regressor, or a class or a name.

    Examples:
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from ppgp.estimators import ConformalRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(200, 1))
        >>> y = 3 * X[:, 0] + rng.uniform(-1, 1, size=200)
        >>> model = ConformalRegressor(LinearRegression(), level=0.8).fit(X, y)
        >>> region = model.predict_interval([[0.5]])
        >>> print(region.guarantee)
        marginal coverage >= 0.8 (exchangeable rows)
        >>> lower, upper = region
        >>> bool(abs(upper - lower - 1.6) < 0.3)  # 80 % of a uniform distribution of width 2
        True
    """

    default = Absolute()

    def _chosen_score(self) -> Score:
        if self.conformity_score is None and is_quantile_regressor(self.estimator):
            return Quantile()
        return super()._chosen_score()

    def _predictor(self, score: Score) -> Predictor:
        return Predictor.of(self.estimator, score, self.level)

    def _prediction(
        self, fitted: tuple[Any, ...], X: Any, options: Mapping[str, Any]
    ) -> Prediction:
        return self._fitted_with.prediction(fitted, X, self.score_, **options)

    def fit(self, X: Any, y: Any, **params: Any) -> ConformalRegressor:
        """Fit the estimator, and measure the scores of the rows that it did not use.

        Args:
            X: Inputs [n, d], as the estimator takes them.
            y: Targets [n].
            **params: Metadata: ``groups`` [n] of the splitter, and what ``fit`` and ``predict`` of
                the estimator take, such as ``sample_weight`` [n]. The rows of a group stay
                together; with "split" each group then counts as one (Lee, Barber & Willett 2023),
                and coverage is that of a row of a new group.

        Raises:
            UnknownName: If there is no such method or score.
            SettingError: If the level or the folds cannot be used.
            DataError: If there are too few rows.
            NotApplicable: If the score needs more than the estimator predicts, or the estimator is
                no regressor, or a class or a name.
        """
        check_estimator_given(self.estimator, "classifier")
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        target = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype="float64")
        self._calibrate(X, target, target, params)
        return self

    def predict(self, X: Any, **params: Any) -> np.ndarray:
        """Return the estimator's own prediction [n]; of quantile regressors the median."""
        check_is_fitted(self, "estimator_")
        told = self._options("predict", params).of_predict
        return self._fitted_with.points(self._fitted, rows_given(X), **told)

    def predict_interval(self, X: Any, level: Any = None, **params: Any) -> Region:
        """Return an interval per row, with the sentence that is guaranteed.

        Args:
            X: New rows [m, d].
            level: The coverage wanted, in (0, 1); None: that of the constructor.
            **params: Metadata of ``predict`` of the estimator.

        Returns:
            The Region of the m rows: ``lower, upper = region``.

        Raises:
            SettingError: If the level does not lie in (0, 1).
            NotApplicable: If the quantile regressors are not for this level.
        """
        return self._region(X, level, params)


class ConformalClassifier(ClassifierMixin, ConformalEstimator):
    """Sets of labels with a coverage guarantee around any classifier with probabilities.

    Args:
        estimator: A classifier with ``predict_proba``. It is cloned and fitted inside, unless it is
            a ``sklearn.frozen.FrozenEstimator``, which all rows calibrate.
        method: "split", "cv+" or "jackknife+", as of ``ConformalRegressor``.
        conformity_score: "lac" (smallest sets on average; Sadinle, Lei & Wasserman 2019), "aps"
            (adaptive sets; Romano, Sesia & Candes 2020), "raps", or a score. None: "lac".
        level: The coverage wanted where ``predict_set`` is not told.
        cv: The rows that calibrate, as of ``ConformalRegressor``. Stratified folds depend on y and
            leave no guarantee; the default ones are random.
        mondrian: The categories of rows, as of ``ConformalRegressor``.
        seed: Seed of random folds.

    Attributes:
        estimator_: The fitted estimator that ``predict`` uses.
        classes_: The K labels of y, sorted.
        score_: The conformal score.
        calibrator_: The Calibrator, of "split" alone.

    Levels are probabilities. The sets of m new rows are a mask [m, K].

    Raises:
        UnknownName: By ``fit``, if there is no such method or score.
        SettingError: By ``fit``, if the level or the folds cannot be used.
        DataError: By ``fit``, if there are too few rows.
        NotApplicable: By ``fit``, if the estimator has no probabilities, or is a class or a name.

    Examples:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from ppgp.estimators import ConformalClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 1))
        >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "high", "low")
        >>> model = ConformalClassifier(LogisticRegression(), level=0.9).fit(X, y)
        >>> region = model.predict_set([[-4.0], [0.0], [4.0]])
        >>> [model.classes_[mask].tolist() for mask in region.labels.numpy()]
        [['low'], ['high', 'low'], ['high']]
    """

    default = LAC()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).classifier_tags
        if inner is not None and tags.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.multi_class
        return tags

    def _prediction(
        self, fitted: tuple[Any, ...], X: Any, options: Mapping[str, Any]
    ) -> Prediction:
        return probabilities(fitted[0], X, self.classes_, **options)

    def fit(self, X: Any, y: Any, **params: Any) -> ConformalClassifier:
        """Fit the estimator, and measure the scores of the rows that it did not use.

        Args:
            X: Inputs [n, d], as the estimator takes them.
            y: Labels [n].
            **params: Metadata, as of ``ConformalRegressor.fit``.

        Raises:
            UnknownName: If there is no such method or score.
            SettingError: If the level or the folds cannot be used.
            DataError: If there are too few rows.
            NotApplicable: If the estimator has no probabilities, or is a class or a name.
        """
        check_estimator_given(self.estimator)  # a regressor has no predict_proba
        if not hasattr(self.estimator, "predict_proba"):
            do = "use CalibratedClassifierCV, or another estimator"
            raise NotApplicable("a classifier with predict_proba", repr(self.estimator), do)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        if labels.dtype.kind == "f":
            assert_all_finite(labels, input_name="y")
        check_classification_targets(y)
        self.classes_ = np.unique(labels)
        if is_frozen(self.estimator):  # rows that calibrate it may lack a rare class
            self.classes_ = np.union1d(self.classes_, self.estimator.classes_)
        codes = np.searchsorted(self.classes_, labels)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class ({len(self.classes_)}), classifier needs two or more"
            )
        self._calibrate(X, labels, codes, params)
        self._warn_of_unknown_classes()
        return self

    def _warn_of_unknown_classes(self) -> None:
        """Warn of classes that a fit did not see, whose probability is 0 there."""
        known = [np.asarray(one.fitted[0].classes_) for one in self._kept]
        unknown = [c for c in self.classes_.tolist() if any(c not in seen for seen in known)]
        if unknown:
            warn(
                f"no row of a fit has the {listed(unknown, 'label')}, so that sets are large: use "
                "folds that hold every label in all fits",
                DataWarning,
            )

    def predict(self, X: Any, **params: Any) -> np.ndarray:
        """Return the estimator's own label [n] of each row."""
        check_is_fitted(self, "estimator_")
        told = self._options("predict", params).of_predict
        return self._fitted[0].predict(rows_given(X), **told)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, **params: Any) -> np.ndarray:
        """Return the estimator's probabilities [n, K] of the labels in ``classes_``."""
        check_is_fitted(self, "estimator_")
        told = self._options("predict_proba", params).of_predict
        found = probabilities(self.estimator_, rows_given(X), self.classes_, **told)
        return found.probabilities.numpy()

    def predict_set(self, X: Any, level: Any = None, **params: Any) -> Region:
        """Return a set of labels per row, with the sentence that is guaranteed.

        Args:
            X: New rows [m, d].
            level: The coverage wanted, in (0, 1); None: that of the constructor.
            **params: Metadata of ``predict`` of the estimator.

        Returns:
            The Region of the m rows: ``region.labels`` is a mask [m, K], in the order of
            ``classes_``.
        """
        return self._region(X, level, params)
