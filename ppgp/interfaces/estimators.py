"""scikit-learn estimators, one per task, around any model and inference method of the library."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from ..data.columns import name_of, names_of
from ..data.dataset import Dataset
from ..errors import ConvergenceWarning, PpgpError, Renamed
from ..inference.fitting import fit as fit_posterior
from ..inference.interrupts import raise_if_interrupted
from ..numerics.libraries import settings_unchanged
from ..numerics.process_locks import silenced
from ..posterior.prediction import Prediction
from ..target.capabilities import BoostedSum
from . import recipes
from .estimator_inputs import FROM_DTYPE, as_codes, categorical_places, with_codes

with settings_unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
    from sklearn.cluster import KMeans
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["ProbabilisticClassifier", "ProbabilisticRegressor", "RBFFeatures"]


def _validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Validate X and y as scikit-learn does, after refusing columns that share a name."""
    names_of(X)
    return validate_data(estimator, X, *y, **options)


def _takes(model: Any, what: str) -> bool:
    """Return whether a model takes "missing" values, or codes of "categories"."""
    return bool(getattr(model, f"takes_{what}", False))


def _checks(model: Any) -> dict[str, Any]:
    """Return what rows are checked for: a model that takes missing values allows NaN."""
    return {
        "dtype": np.float64,
        "ensure_all_finite": "allow-nan" if _takes(model, "missing") else True,
    }


class _Probabilistic(BaseEstimator):
    """Common part: ``model`` and ``how`` are names, recipes as strings, or the records.

    Attributes:
        usual: The method of models that have none of their own, where ``how`` is None.
    """

    usual = "map"

    def __init__(
        self, model: Any, how: Any, seed: Any = 0, categorical_features: Any = FROM_DTYPE
    ) -> None:
        self.model, self.how, self.seed = model, how, seed
        self.categorical_features = categorical_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(PpgpError):  # a recipe that cannot be read is for ``fit`` to refuse
            tags.input_tags.allow_nan = _takes(self._model(), "missing")
        return tags

    def _model(self) -> Any:
        return recipes.build_model(self.model) if isinstance(self.model, str) else self.model

    def _rows(self, model: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """Return the validated rows and targets, after noting the columns of categories."""
        names_of(X)
        places = categorical_places(self.categorical_features, X, _takes(model, "categories"))
        X, self.levels_ = as_codes(X, places)
        rows, targets = _validated(self, X, y, **_checks(model), **options)
        self.is_categorical_ = np.isin(np.arange(rows.shape[1]), places)
        return rows, targets

    def _table(self, model: Any, X: Any, y: Any, given: Any, **more: Any) -> Dataset:
        """Return a Dataset with the names that the data frame and the series had."""
        columns = getattr(self, "feature_names_in_", None)
        if columns is not None:
            columns = columns.tolist()
        places = np.flatnonzero(self.is_categorical_).tolist()
        if places:
            more["categorical"] = places
            if len(self.levels_) == len(places):
                more["levels"] = list(self.levels_.values())
        missing = "keep" if _takes(model, "missing") else "refuse"
        return Dataset(X, y, columns, name_of(given), missing=missing, **more)

    def _fit(self, model: Any, data: Dataset) -> None:
        how = self.how
        if how is None:
            name = self.model if isinstance(self.model, str) else ""
            how = recipes.own_how(name, model) or self.usual
        if isinstance(how, str):
            how = recipes.build_how(how)
        with silenced(ConvergenceWarning):  # posterior_.warnings keeps them
            self.posterior_ = fit_posterior(model, data, how, seed=self.seed, progress=False)
        if isinstance(model, BoostedSum):  # such as that a method fits no learners
            posterior = self.posterior_
            for sentence in posterior.model.check_fit(posterior.theta, posterior.data):
                warnings.warn(sentence, ConvergenceWarning, stacklevel=3)
        raise_if_interrupted(self.posterior_)  # so that Ctrl-C ends a grid search

    predict_law = Renamed("predict_distribution")

    def predict_distribution(self, X: Any) -> Prediction:
        """Return the predictive distribution of y at the rows of X.

        Args:
            X: Inputs [n, d].

        Returns:
            A Prediction, with quantiles, intervals and scores.
        """
        check_is_fitted(self, "posterior_")
        checks = _checks(self.posterior_.model)
        rows = _validated(self, with_codes(X, self.levels_), reset=False, **checks)
        return self.posterior_.predict(rows)


class ProbabilisticRegressor(RegressorMixin, _Probabilistic):
    """Regression with a predictive distribution.

    NaN is a missing value where the model takes it, as "ngboost" does, and is refused elsewhere.

    Args:
        model: "gp", "linear", "ngboost", "deep-ensemble", another name that ``ppgp list`` prints,
            a recipe such as ``"GP(Matern(1.5))"``, or a model.
        how: The inference method: "map", "laplace", "svi", "nuts", another name that ``ppgp list``
            prints, a recipe, or an inference record. None: the model's own, such as natural
            gradient boosting of "ngboost"; "map" if it has none.
        seed: Seed of every random number.
        categorical_features: The columns that hold categories, for models that take them, such as
            "ngboost": names, numbers or a mask. Text and pandas' categories become codes; numbers
            are codes 0, 1, .... "from_dtype": the columns of pandas' categories, if the model
            takes them. None: no column.

    Attributes:
        posterior_: The fitted Posterior.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.
    """

    def __init__(
        self,
        model: Any = "gp",
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
    ) -> None:
        super().__init__(model, how, seed, categorical_features)

    def fit(self, X: Any, y: Any, right_censored: Any = None) -> ProbabilisticRegressor:
        """Fit to the inputs X [n, d] and the targets y [n].

        Args:
            X: Inputs [n, d].
            y: Targets [n].
            right_censored: Flags [n], 1 where the target is only known to be exceeded, for models
                that take them, such as ``"Boosted(LogNormal(noise=Predicted()))"``. ``score``
                takes all targets as known.
        """
        model = self._model()
        rows, targets = self._rows(model, X, y, y_numeric=True)
        self._fit(model, self._table(model, rows, targets, y, right_censored=right_censored))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictive mean.

        Args:
            X: Inputs [n, d].
            return_std: Whether to return the predictive standard deviation too.

        Returns:
            The mean [n], or the mean and the standard deviation [n], noise included.
        """
        predictive = self.predict_distribution(X)
        mean = predictive.mean.numpy()
        if return_std:
            return mean, predictive.std.numpy()
        return mean


class ProbabilisticClassifier(ClassifierMixin, _Probabilistic):
    """Binary classification with probabilities averaged over the posterior.

    NaN is a missing value where the model takes it, and is refused elsewhere.

    Args:
        model: "logistic", "ngboost-classifier", another name that ``ppgp list`` prints, a recipe,
            or a model.
        how: The inference method, as in ``ProbabilisticRegressor``; "laplace" if it is None and
            the model has no method of its own.
        seed: Seed of every random number.
        categorical_features: The columns that hold categories, for models that take them, such as
            "ngboost": names, numbers or a mask. Text and pandas' categories become codes; numbers
            are codes 0, 1, .... "from_dtype": the columns of pandas' categories, if the model
            takes them. None: no column.

    Attributes:
        posterior_: The fitted Posterior.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.
        classes_: The two labels, sorted.
    """

    usual = "laplace"

    def __init__(
        self,
        model: Any = "logistic",
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
    ) -> None:
        super().__init__(model, how, seed, categorical_features)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> ProbabilisticClassifier:
        """Fit to the inputs X [n, d] and the labels y [n].

        Raises:
            ValueError: If y does not have exactly two classes.
        """
        model = self._model()
        rows, labels = self._rows(model, X, y)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) != 2:
            kinds = "one class" if len(self.classes_) == 1 else "more than two classes"
            raise ValueError(
                f"Only binary classification is supported: y has {kinds} ({len(self.classes_)}), "
                "classifier needs two"
            )
        self._fit(model, self._table(model, rows, codes, y, classes=self.classes_.tolist()))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities [n, 2] of the labels, in the order of ``classes_``."""
        return self.predict_distribution(X).probabilities.numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label [n] of each row."""
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]


class RBFFeatures(TransformerMixin, BaseEstimator):
    """Gaussian radial basis functions exp(-|x - c_j|^2 / (2 l^2)) of k centres.

    Followed by a linear model they give radial basis function regression (Bishop 2006, section
    3.1). For polynomials use scikit-learn's ``PolynomialFeatures``.

    Args:
        centres: The number k of centres, which k-means places.
        lengthscale: The lengthscale l, in the units of X. None takes the mean distance between a
            centre and its nearest neighbour.
        seed: Seed of k-means.

    Attributes:
        centres_: The centres [k, d].
        lengthscale_: The lengthscale l.
    """

    def __init__(self, centres: Any = 10, lengthscale: Any = None, seed: Any = 0) -> None:
        self.centres, self.lengthscale, self.seed = centres, lengthscale, seed

    def fit(self, X: Any, y: Any = None) -> RBFFeatures:
        """Place the centres by k-means of X [n, d]; y is ignored."""
        X = _validated(self, X, dtype=np.float64)
        k = min(int(self.centres), len(np.unique(X, axis=0)))
        self.centres_ = KMeans(k, n_init="auto", random_state=self.seed).fit(X).cluster_centers_
        if self.lengthscale is None:
            self.lengthscale_ = self._typical_gap(X)
        else:
            self.lengthscale_ = float(self.lengthscale)
        return self

    def _typical_gap(self, X: np.ndarray) -> float:
        """Return the mean distance to the nearest other centre; of one centre, the sd of X."""
        k = len(self.centres_)
        if k == 1:
            return float(X.std()) or 1.0
        gaps = np.linalg.norm(self.centres_[:, None] - self.centres_[None], axis=-1)
        np.fill_diagonal(gaps, np.inf)
        return float(gaps.min(1).mean())

    def transform(self, X: Any) -> np.ndarray:
        """Return the features [n, k] of X [n, d]."""
        check_is_fitted(self, "centres_")
        X = _validated(self, X, reset=False, dtype=np.float64)
        square = ((X[:, None] - self.centres_[None]) ** 2).sum(-1)
        return np.exp(-0.5 * square / self.lengthscale_**2)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names rbf0, rbf1, ... of the features."""
        check_is_fitted(self, "centres_")
        return np.array([f"rbf{j}" for j in range(len(self.centres_))], dtype=object)
