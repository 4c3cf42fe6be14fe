"""scikit-learn estimators around the models of the library, and around any other estimator."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
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

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__)
