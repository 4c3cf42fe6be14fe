"""scikit-learn estimators around the models of the library, and around any other estimator."""

from .conformal_estimators import ConformalClassifier, ConformalRegressor
from .probabilistic_classifier import ProbabilisticClassifier
from .probabilistic_regressor import ProbabilisticRegressor
from .radial_basis import RBFFeatures

__all__ = [
    "ConformalClassifier",
    "ConformalRegressor",
    "ProbabilisticClassifier",
    "ProbabilisticRegressor",
    "RBFFeatures",
]
