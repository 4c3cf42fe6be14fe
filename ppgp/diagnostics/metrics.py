"""Metrics of predictions and regions.

Each is a function of a Prediction or a Region and y [n], in the units of the data.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data.arrays import as_tensor
from ..data.magnitudes import root_mean_square
from ..errors import NotApplicable, an
from ..posterior.prediction import Prediction
from ..posterior.region import Region

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


def rmse(prediction: Prediction, y: Any) -> float:
    """Return the root of the mean squared error of the predictive mean."""
    mean = prediction.mean
    return float(root_mean_square(as_tensor(y, "y").to(mean) - mean))


def nll(prediction: Prediction, y: Any) -> float:
    """Return the mean negative log predictive density (log loss, for classes).

    It is minus the log of the mixture over draws, not the mean of their logs.
    """
    return -float(prediction.log_prob(y).mean())


def mean_crps(prediction: Prediction, y: Any) -> float:
    """Return the mean continuous ranked probability score."""
    return float(prediction.crps(y).mean())


def accuracy(prediction: Prediction, y: Any) -> float:
    """Return the share of rows whose most probable label is right."""
    p = prediction.probabilities
    return float((p.argmax(-1) == as_tensor(y, "y").to(p.device)).double().mean())


def brier(prediction: Prediction, y: Any) -> float:
    """Return the mean squared distance of the probabilities from the label, summed over classes.

    Brier (1950).
    """
    p = prediction.probabilities
    hit = torch.nn.functional.one_hot(as_tensor(y, "y").long().to(p.device), p.shape[-1]).to(p)
    return float((p - hit).square().sum(-1).mean())


def calibration_error(prediction: Prediction, y: Any, bins: int = 10) -> float:
    """Return the expected calibration error of the most probable label.

    It is the mean over bins, each weighted by its rows, of the distance between the mean
    probability of the label and the share of rows where the label is right. Naeini, Cooper &
    Hauskrecht (2015), with bins of equal width on [0, 1].

    Args:
        prediction: A prediction of classes for n rows.
        y: The labels [n].
        bins: The number of bins.
    """
    confidence, label = prediction.probabilities.max(-1)
    right = (label == as_tensor(y, "y").to(label.device)).to(confidence)
    which = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=confidence.dtype, device=confidence.device)
    return float(gaps.index_add(0, which, confidence - right).abs().sum() / len(confidence))


def coverage(region: Region, y: Any) -> float:
    """Return the share of rows whose set holds y.

    Raises:
        NotApplicable: If ``region`` is no Region, such as a Prediction.
    """
    _check_region(region)
    return float(region.covers(y).double().mean())


def mean_width(region: Region) -> float:
    """Return the mean length of the intervals, or the mean number of labels.

    It is infinite where one interval is; ``region.infinite`` is the share of such intervals.

    Raises:
        NotApplicable: If ``region`` is no Region, such as a Prediction.
    """
    _check_region(region)
    return float(region.width.double().mean())


def _check_region(region: Any) -> None:
    """Raise NotApplicable for what is no Region."""
    if not isinstance(region, Region):
        do = "pass prediction.interval(0.9), or calibrator(prediction, 0.9)"
        raise NotApplicable("a Region, one set per row", an(type(region).__name__), do)
