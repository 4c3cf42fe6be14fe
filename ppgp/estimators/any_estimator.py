"""What conformal prediction asks of any scikit-learn estimator: fits, and predictions of rows.

A predictor is one estimator, or a tuple of quantile regressors.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..conformal import Absolute, Quantile, Score, Signed
from ..errors import DataError, NotApplicable, SettingError, an
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from ..runtime.libraries import settings_unchanged

with settings_unchanged():
    import numpy as np
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import _safe_indexing, get_tags
    from sklearn.utils.validation import _check_method_params, check_is_fitted

__all__ = ["Predictor", "check_estimator_given", "is_frozen", "parts_of", "probabilities"]

WANTED = {"classifier": "a regressor", "regressor": "a classifier"}
INSTEAD = {"classifier": "use ConformalClassifier", "regressor": "use ConformalRegressor"}
NO_TARGETS = ("clusterer", "outlier_detector", "density_estimator")  # kinds that ignore y
LOSSES = ("loss", "objective")


def parts_of(estimator: Any) -> tuple[Any, ...]:
    """Return the estimators of a tuple or a list, or the one estimator."""
    return tuple(estimator) if isinstance(estimator, list | tuple) else (estimator,)


def check_estimator_given(estimator: Any, other: str = "") -> None:
    """Check an estimator, or each of a tuple.

    Args:
        estimator: The estimator.
        other: "classifier" for a regressor to be, "regressor" for a classifier.

    Raises:
        NotApplicable: For a class or a name, and for an estimator that predicts something else.
        SettingError: For a frozen estimator that is not fitted.
    """
    for one in parts_of(estimator):
        if isinstance(one, type):
            got, do = f"the class {one.__name__}", f"call it: {one.__name__}()"
            raise NotApplicable("an instance of an estimator", got, do)
        if isinstance(one, str):
            do = "pass an object such as LinearRegression()"
            raise NotApplicable("an instance of an estimator", repr(one), do)
        wanted = WANTED.get(other, "an estimator that predicts y")
        if not hasattr(one, "predict"):
            do = "put it in a pipeline before an estimator that predicts"
            raise NotApplicable(wanted, repr(one)[:80], do)
        kind = _kind_of(one)
        if kind in (other, *NO_TARGETS):
            do = INSTEAD.get(kind, "use an estimator that predicts y")
            text = " ".join(repr(one).split())
            raise NotApplicable(wanted, f"the {kind.replace('_', ' ')} {text}"[:80], do)
        _check_fitted(one)


def _kind_of(estimator: Any) -> str:
    """Return "regressor", "classifier", "clusterer", ...; "" where it is not known."""
    try:
        return get_tags(estimator).estimator_type or ""
    except (AttributeError, TypeError):  # an object without tags
        return getattr(estimator, "_estimator_type", "")


def _check_fitted(estimator: Any) -> None:
    """Raise SettingError for a frozen estimator that is not fitted."""
    if not isinstance(estimator, FrozenEstimator):
        return
    inner = estimator.estimator
    try:
        check_is_fitted(inner)
    except NotFittedError:
        name = type(inner).__name__
        do = f"freeze a fitted one: FrozenEstimator({name}().fit(X, y))"
        wanted = "a fitted estimator in FrozenEstimator"
        raise SettingError(wanted, f"{an(name)} that is not fitted", do) from None


def is_frozen(estimator: Any) -> bool:
    """Return whether an estimator, or every one of a tuple, is a FrozenEstimator."""
    frozen = [isinstance(one, FrozenEstimator) for one in parts_of(estimator)]
    if any(frozen) and not all(frozen):
        got = "some frozen and some not"
        raise SettingError("quantile regressors that are all frozen, or none", got, "freeze all")
    return all(frozen)


def quantile_option(estimator: Any) -> str | None:
    """Return the name of the option that sets the quantile of a regressor; None: it has none.

    It is ``quantile``, or the ``quantile`` or ``alpha`` beside a ``loss`` or ``objective`` for
    quantiles, in the estimator itself or in a step of a pipeline.
    """
    options = estimator.get_params(deep=True)
    for name in sorted(options, key=lambda name: (name.count("__"), name)):
        path, _, last = name.rpartition("__")
        inside = f"{path}__" if path else ""
        losses = [options[inside + loss] for loss in LOSSES if inside + loss in options]
        by_loss = any(isinstance(loss, str) and "quantile" in loss for loss in losses)
        if last == "quantile" and (by_loss or not losses):
            return name
        if last in ("alpha", "quantile_alpha") and by_loss:
            return name
    return None


def is_quantile_regressor(estimator: Any) -> bool:
    """Return whether these are quantile regressors."""
    return isinstance(estimator, list | tuple) or (
        hasattr(estimator, "get_params") and quantile_option(estimator) is not None
    )


@dataclass(frozen=True)
class Predictor:
    """Fits the estimator to some rows, and predicts others with the fitted ones.

    Attributes:
        estimator: The estimator, or (lower, upper) or (lower, middle, upper) quantile regressors.
        probabilities: Of the quantile regressors; None: the estimator is no quantile regressor.
    """

    estimator: Any
    probabilities: tuple[float, ...] | None = None

    @staticmethod
    def of(estimator: Any, score: Score | None, level: float) -> Predictor:
        """Return the predictor that a score needs.

        Args:
            estimator: The estimator, or a pair or triple of quantile regressors.
            score: The conformal score; None: that of the kind of estimator.
            level: The coverage wanted, which gives the quantiles.
        """
        tail = float((1 - exact_level(level)) / 2)
        several = isinstance(estimator, list | tuple)
        if several:
            if len(estimator) not in (2, 3):
                wanted = "(lower, upper) or (lower, median, upper) quantile regressors"
                raise SettingError(wanted, f"{len(estimator)}", "pass two or three")
            middle = (0.5,) if len(estimator) == 3 else ()
            return Predictor(tuple(estimator), (tail, *middle, 1 - tail))
        takes_quantiles = score is None or isinstance(score, Quantile)
        if not takes_quantiles or hasattr(estimator, "predict_distribution"):
            return Predictor(estimator)
        option = quantile_option(estimator) if hasattr(estimator, "get_params") else None
        if option is None or is_frozen(estimator):
            return Predictor(estimator)
        probabilities = (tail, 0.5, 1 - tail)
        copies: list[Any] = [clone(estimator) for _ in probabilities]
        each = [one.set_params(**{option: p}) for one, p in zip(copies, probabilities, strict=True)]
        return Predictor(tuple(each), probabilities)

    def fitted(
        self, X: Any, y: Any, rows: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, ...]:
        """Return copies of the estimators, fitted to some rows (None: all).

        Args:
            X: Inputs [n, d].
            y: Targets [n].
            rows: The numbers of the rows.
            options: Further arguments of ``fit``; those with one entry per row are cut too.
        """
        options = dict(options or {})
        if rows is not None:
            options = _check_method_params(X, options, indices=rows) if options else {}
            X, y = _safe_indexing(X, rows), _safe_indexing(y, rows)
        copies: list[Any] = [clone(one) for one in parts_of(self.estimator)]
        return tuple(one.fit(X, y, **options) for one in copies)

    def points(self, fitted: Sequence[Any], X: Any, **options: Any) -> np.ndarray:
        """Return one number per row [n]: the median of quantile regressors, or their middle."""
        if len(fitted) == 2:
            return (fitted[0].predict(X, **options) + fitted[1].predict(X, **options)) / 2
        return fitted[len(fitted) // 2].predict(X, **options)

    def prediction(self, fitted: Sequence[Any], X: Any, score: Score, **options: Any) -> Prediction:
        """Return what the fitted estimators predict of a number y.

        Args:
            fitted: What ``fitted`` returned.
            X: Rows [n, d].
            score: The conformal score, which may need more than points.
            **options: Further arguments of ``predict``.

        Raises:
            NotApplicable: If the score needs quantiles or a spread, and the estimator has none.
        """
        if self.probabilities is not None:
            # a median beside the ends would change the ends where quantiles cross and are sorted
            used = [0, -1]
            if getattr(score, "unit", "y") == "median" and len(fitted) == 3:
                used = [0, 1, 2]
            columns = [np.ravel(fitted[k].predict(X, **options)) for k in used]
            p = [self.probabilities[k] for k in used]
            return Prediction.from_quantiles(np.column_stack(columns), p)
        estimator = fitted[0]
        if hasattr(estimator, "predict_distribution"):
            return estimator.predict_distribution(X, **options).by_row
        plain = isinstance(score, Absolute) or score == Signed()
        if not plain and "return_std" in inspect.signature(estimator.predict).parameters:
            mean, sd = estimator.predict(X, return_std=True, **options)
            return Prediction.from_points(np.ravel(mean), np.ravel(sd))
        if not plain:
            wanted = f"predictive distributions for {score!r}"
            got = f"the points of {type(estimator).__name__}"
            do = "use 'absolute', or (lower, upper) quantile regressors with 'quantile'"
            raise NotApplicable(wanted, got, do)
        return Prediction.from_points(np.ravel(estimator.predict(X, **options)))


def probabilities(estimator: Any, X: Any, classes: np.ndarray, **options: Any) -> Prediction:
    """Return the probabilities of the classes, 0 for those that the fit did not see.

    Args:
        estimator: A fitted classifier.
        X: Rows [n, d].
        classes: All classes [K], sorted.
        **options: Further arguments of ``predict_proba``.

    Raises:
        DataError: If the classifier has other classes.
    """
    p = np.asarray(estimator.predict_proba(X, **options))
    known = np.asarray(estimator.classes_)
    if np.array_equal(known, classes):
        return Prediction.from_probabilities(p)
    others = known[~np.isin(known, classes)]
    if len(others):
        do = "fit to rows of every class"
        raise DataError(f"classes among {classes.tolist()}", f"{others.tolist()} too", do)
    every = np.zeros((len(p), len(classes)))
    every[:, np.searchsorted(classes, known)] = p
    return Prediction.from_probabilities(every)
