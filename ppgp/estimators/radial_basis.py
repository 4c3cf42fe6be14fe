"""Gaussian radial basis functions as features, for linear models of scikit-learn."""

from __future__ import annotations

from typing import Any

from ..errors import SettingError
from ..runtime.libraries import settings_unchanged
from ..runtime.whole_numbers import check_whole_number
from .estimator_inputs import validated

with settings_unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.cluster import KMeans
    from sklearn.utils.validation import check_is_fitted

__all__ = ["RBFFeatures"]

NUMBERS = (int, float, np.integer, np.floating)


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
        centres_: The centres [k, d], in the units of X.
        lengthscale_: The lengthscale l.

    Raises:
        SettingError: By ``fit``, if the number of centres is not a whole number above 0, or the
            lengthscale is not a finite number above 0.

    Examples:
        With one centre, at 1, and lengthscale 1, the feature at 0 is exp(-1/2) = 0.607.

        >>> import numpy as np
        >>> from ppgp.estimators import RBFFeatures
        >>> features = RBFFeatures(centres=1, lengthscale=1.0).fit([[0.0], [1.0], [2.0]])
        >>> features.transform([[0.0], [1.0]]).round(3)
        array([[0.607],
               [1.   ]])
    """

    def __init__(self, centres: Any = 10, lengthscale: Any = None, seed: Any = 0) -> None:
        self.centres, self.lengthscale, self.seed = centres, lengthscale, seed

    def fit(self, X: Any, y: Any = None) -> RBFFeatures:
        """Place the centres by k-means of X [n, d]; y is ignored.

        Raises:
            SettingError: If an option is outside its range.
        """
        check_whole_number("centres", self.centres, 1, "for example 10")
        length = self.lengthscale
        if length is not None and not (isinstance(length, NUMBERS) and 0 < length < np.inf):
            do = "pass a length in the units of X, or None to choose it"
            raise SettingError("a lengthscale above 0", repr(length)[:60], do)
        X = validated(self, X, dtype=np.float64)
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
        X = validated(self, X, reset=False, dtype=np.float64)
        square = ((X[:, None] - self.centres_[None]) ** 2).sum(-1)
        return np.exp(-0.5 * square / self.lengthscale_**2)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names rbf0, rbf1, ... of the features."""
        check_is_fitted(self, "centres_")
        return np.array([f"rbf{j}" for j in range(len(self.centres_))], dtype=object)
