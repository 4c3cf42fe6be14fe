"""Measures of point and probabilistic predictions."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from .metrics import accuracy, brier, calibration_error, coverage, mean_crps, mean_width, nll, rmse

__all__ = [
    "accuracy",
    "brier",
    "calibration_error",
    "coverage",
    "mean_crps",
    "mean_width",
    "nll",
    "rmse",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__)
