"""scikit-learn estimators, one a task: any model and method of the zoo in a pipeline, a grid search or a cross-validation."""

from __future__ import annotations

from typing import Any

from ..data.columns import name_of, names_of
from ..data.dataset import Dataset
from ..errors import ConvergenceWarning, Renamed
from ..inference.fitting import fit as fit_posterior
from ..inference.interrupts import whole
from ..numerics.libraries import unchanged
from ..numerics.process_locks import silenced
from ..posterior.prediction import Prediction
from . import recipes as zoo

with unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
    from sklearn.cluster import KMeans
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = ["ProbabilisticClassifier", "ProbabilisticRegressor", "RBFFeatures"]


def _validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """What scikit-learn makes of X and y; columns that share a name are refused first."""
    names_of(X)
    return validate_data(estimator, X, *y, **options)


class _Probabilistic(BaseEstimator):
    """``model`` and ``how``: names of the zoo, recipes as strings, or records themselves."""

    def __init__(self, model: Any, how: Any, seed: Any = 0) -> None:
        self.model, self.how, self.seed = model, how, seed

    def _table(self, X: Any, y: Any, given: Any, classes: Any = None) -> Dataset:
        """With the names that the frame and the series had before scikit-learn made arrays of them."""
        names = getattr(self, "feature_names_in_", None)
        return Dataset(X, y, None if names is None else names.tolist(), name_of(given), classes)

    def _fit(self, data: Dataset) -> None:
        model = zoo.build_model(self.model) if isinstance(self.model, str) else self.model
        how = zoo.build_how(self.how) if isinstance(self.how, str) else self.how
        with silenced(ConvergenceWarning):  # a grid search asks posterior_.warnings
            self.posterior_ = fit_posterior(model, data, how, seed=self.seed, progress=False)
        whole(self.posterior_)  # a grid search ends with Ctrl-C

    predict_law = Renamed("predict_distribution")

    def predict_distribution(self, X: Any) -> Prediction:
        """The law of y at each row: quantiles, intervals, scores."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.predict(_validated(self, X, reset=False, dtype=np.float64))


class ProbabilisticRegressor(RegressorMixin, _Probabilistic):
    """Regression with a predictive law.

    Args:
        model: "gp", "linear", a recipe such as ``"GP(Matern(1.5))"``, or a model.
        how: "map", "laplace", "svi", "nuts", a recipe, or an inference record.
        seed: every random number comes from it.

    Attributes:
        posterior_: the Posterior.
    """

    def __init__(self, model: Any = "gp", how: Any = "map", seed: Any = 0) -> None:
        super().__init__(model, how, seed)

    def fit(self, X: Any, y: Any) -> ProbabilisticRegressor:
        """Fit to X [n, d] and y [n]."""
        rows, targets = _validated(self, X, y, y_numeric=True, dtype=np.float64)
        self._fit(self._table(rows, targets, y))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean [n], and with ``return_std`` its standard deviation (noise included)."""
        law = self.predict_distribution(X)
        mean = law.mean.numpy()
        return (mean, law.std.numpy()) if return_std else mean


class ProbabilisticClassifier(ClassifierMixin, _Probabilistic):
    """Classification with probabilities averaged over the posterior.

    Args, attributes: as ``ProbabilisticRegressor``, and ``classes_``.
    """

    def __init__(self, model: Any = "logistic", how: Any = "laplace", seed: Any = 0) -> None:
        super().__init__(model, how, seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> ProbabilisticClassifier:
        """Fit to X [n, d] and labels y [n]."""
        rows, labels = _validated(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) != 2:
            kinds = "one class" if len(self.classes_) == 1 else "more than two classes"
            raise ValueError(
                f"Only binary classification is supported: y has {kinds} ({len(self.classes_)}), classifier needs two"
            )
        self._fit(self._table(rows, codes, y, self.classes_.tolist()))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """[n, 2], in the order of ``classes_``."""
        return self.predict_distribution(X).probabilities.numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label [n]."""
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]


class RBFFeatures(TransformerMixin, BaseEstimator):
    """exp(-|x - c_j|^2 / (2 l^2)) for k centres: with a linear model, radial basis function regression. Bishop (2006), 3.1.

    For polynomials use scikit-learn's ``PolynomialFeatures``.

    Args:
        centres: k, placed by k-means.
        lengthscale: l, in the units of X; None: the mean distance of a centre to its nearest one.
        seed: of k-means.

    Attributes:
        centres_: [k, d].
        lengthscale_: l.
    """

    def __init__(self, centres: Any = 10, lengthscale: Any = None, seed: Any = 0) -> None:
        self.centres, self.lengthscale, self.seed = centres, lengthscale, seed

    def fit(self, X: Any, y: Any = None) -> RBFFeatures:
        """Place the centres."""
        X = _validated(self, X, dtype=np.float64)
        k = min(int(self.centres), len(np.unique(X, axis=0)))
        self.centres_ = KMeans(k, n_init="auto", random_state=self.seed).fit(X).cluster_centers_
        gaps = np.linalg.norm(self.centres_[:, None] - self.centres_[None], axis=-1) + np.diag(
            np.full(k, np.inf)
        )
        nearest = float(gaps.min(1).mean()) if k > 1 else float(X.std()) or 1.0
        self.lengthscale_ = nearest if self.lengthscale is None else float(self.lengthscale)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """[n, k]"""
        check_is_fitted(self, "centres_")
        X = _validated(self, X, reset=False, dtype=np.float64)
        square = ((X[:, None] - self.centres_[None]) ** 2).sum(-1)
        return np.exp(-0.5 * square / self.lengthscale_**2)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """rbf0, rbf1, ..."""
        check_is_fitted(self, "centres_")
        return np.array([f"rbf{j}" for j in range(len(self.centres_))], dtype=object)
