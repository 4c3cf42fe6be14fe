"""Measures of point and probabilistic predictions."""

from .diagnostics.metrics import (
    accuracy,
    brier,
    calibration_error,
    coverage,
    mean_crps,
    mean_width,
    nll,
    rmse,
)

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
