"""Figures of merit of predictions and regions: plain functions of (Prediction or Region, y) in the units of the data."""

from __future__ import annotations

from typing import Any

import torch

from ..data.arrays import as_tensor
from ..data.magnitudes import root_mean_square
from ..posterior.prediction import Prediction
from ..posterior.region import Region

__all__ = ["accuracy", "brier", "coverage", "mean_crps", "mean_width", "nll", "rmse"]


def rmse(prediction: Prediction, y: Any) -> float:
    """Root of the mean squared error of the predictive mean."""
    mean = prediction.mean
    return float(root_mean_square(as_tensor(y, "y").to(mean) - mean))


def nll(prediction: Prediction, y: Any) -> float:
    """Mean negative log predictive density (log loss, for classes): minus the log of the mixture, not the mean of logs."""
    return -float(prediction.log_prob(y).mean())


def mean_crps(prediction: Prediction, y: Any) -> float:
    """Mean continuous ranked probability score."""
    return float(prediction.crps(y).mean())


def accuracy(prediction: Prediction, y: Any) -> float:
    """Share of rows whose most probable label is right."""
    p = prediction.probabilities
    return float((p.argmax(-1) == as_tensor(y, "y").to(p.device)).double().mean())


def brier(prediction: Prediction, y: Any) -> float:
    """Mean squared distance of the probabilities from the label, summed over classes. Brier (1950)."""
    p = prediction.probabilities
    hit = torch.nn.functional.one_hot(as_tensor(y, "y").long().to(p.device), p.shape[-1]).to(p)
    return float((p - hit).square().sum(-1).mean())


def coverage(region: Region, y: Any) -> float:
    """Share of rows whose set holds y."""
    return float(region.covers(y).double().mean())


def mean_width(region: Region) -> float:
    """Mean length of the intervals (number of labels); infinite as soon as one is: see ``region.infinite`` for the share."""
    return float(region.width.double().mean())
