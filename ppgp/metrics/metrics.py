"""Metrics of predictions and regions.

Each is a function of a Prediction or a Region and y [n], in the units of the data.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..conformal.calibration_checks import check_codes
from ..conformal.scores.base import not_a_prediction
from ..data.entries.arrays import one_per_row
from ..data.entries.magnitudes import root_mean_square
from ..errors import NotApplicable, SettingError, an
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
    """Return the root of the mean squared error of the predictive mean.

    It is sqrt(mean (y - mean)^2), the sd of the errors around 0.

    Args:
        prediction: A prediction of numbers for n rows.
        y: Their true values [n], in the units of the data.

    Returns:
        The error, in the units of y.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or one of classes.
        DataError: If there is not one y per row.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_points([1.0, 2.0, 3.0])
        >>> ppgp.metrics.rmse(prediction, [1.0, 2.0, 6.0])  # sqrt((0 + 0 + 9) / 3)
        1.732...
    """
    y = _one_per_row(prediction, y)
    mean = prediction.mean
    return float(root_mean_square(y.to(mean) - mean))


def nll(prediction: Prediction, y: Any) -> float:
    """Return the mean negative log predictive density (log loss, for classes).

    It is minus the log of the mixture over draws, not the mean of their logs. Of a joint prediction
    it is minus the log density of all rows together. Good (1952).

    Args:
        prediction: A prediction for n rows.
        y: Their true values [n], in the units of the data; labels as codes 0 to K - 1.

    Returns:
        The loss, in nats per row; of a joint prediction, in nats for all n rows together. The
        density is one per unit of y: in units that are c times as small, the loss is larger by
        log c for each row. The log loss of classes has no such dependence.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or one without a density, of points
            alone.
        DataError: If there is not one y per row, or a label is not known.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_points([0.0, 5.0], sd=1.0)
        >>> ppgp.metrics.nll(prediction, [0.0, 5.0])  # log(2 pi) / 2
        0.9189...
        >>> classes = ppgp.Prediction.from_probabilities([[0.5, 0.5], [0.5, 0.5]])
        >>> ppgp.metrics.nll(classes, [0, 1])  # log 2
        0.6931...
    """
    y = _one_per_row(prediction, y)
    return -float(prediction.log_prob(y).mean())


def mean_crps(prediction: Prediction, y: Any) -> float:
    """Return the mean continuous ranked probability score.

    The score of a row is E|Y - y| - E|Y - Y'| / 2, with Y and Y' independent draws of its
    predictive distribution. Gneiting & Raftery (2007), section 4.2.

    Args:
        prediction: A prediction of numbers for n rows.
        y: Their true values [n], in the units of the data.

    Returns:
        The score, in the units of y; 0 is best.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or one of classes or of points alone.
        DataError: If there is not one y per row.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_points([0.0, 10.0], sd=[1.0, 2.0])
        >>> at_the_mean = ppgp.metrics.mean_crps(prediction, [0.0, 10.0])
        >>> round(at_the_mean, 4)  # 1.5 (sqrt(2) - 1) / sqrt(pi)
        0.3505
    """
    y = _one_per_row(prediction, y)
    return float(prediction.crps(y).mean())


def accuracy(prediction: Prediction, y: Any) -> float:
    """Return the share of rows whose most probable label is right.

    Of labels with the same probability, the first counts.

    Args:
        prediction: A prediction of K classes for n rows.
        y: Their labels [n], as codes 0 to K - 1.

    Returns:
        The share, in [0, 1], without a unit.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or not one of classes.
        DataError: If there is not one y per row, or a label is not known.

    Examples:
        >>> import ppgp
        >>> p = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.4, 0.5, 0.1]]
        >>> prediction = ppgp.Prediction.from_probabilities(p)
        >>> round(ppgp.metrics.accuracy(prediction, [0, 1, 0]), 4)
        0.6667
    """
    p, y = _probabilities(prediction, y)
    return float((p.argmax(-1) == y).double().mean())


def brier(prediction: Prediction, y: Any) -> float:
    """Return the mean squared distance of the probabilities from the label, summed over classes.

    Brier (1950). It is 0 for right labels of probability 1, and 2 for wrong ones. For two classes
    it is twice the squared error of the probability of either.

    Args:
        prediction: A prediction of K classes for n rows.
        y: Their labels [n], as codes 0 to K - 1.

    Returns:
        The score, in [0, 2], without a unit.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or not one of classes.
        DataError: If there is not one y per row, or a label is not known.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_probabilities([[0.7, 0.3], [0.0, 1.0]])
        >>> round(ppgp.metrics.brier(prediction, [0, 1]), 4)  # (0.3^2 + 0.3^2 + 0) / 2
        0.09
    """
    p, y = _probabilities(prediction, y)
    hit = torch.nn.functional.one_hot(y.long(), p.shape[-1]).to(p)
    return float((p - hit).square().sum(-1).mean())


def calibration_error(prediction: Prediction, y: Any, bins: int = 10) -> float:
    """Return the expected calibration error of the most probable label.

    It is the mean over bins, each weighted by its rows, of the distance between the mean
    probability of the label and the share of rows where the label is right. Naeini, Cooper &
    Hauskrecht (2015), with bins of equal width on [0, 1].

    Args:
        prediction: A prediction of K classes for n rows.
        y: The labels [n], as codes 0 to K - 1.
        bins: The number of bins.

    Returns:
        The error, a difference of probabilities.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction, or not one of classes.
        DataError: If there is not one y per row, or a label is not known.
        SettingError: If ``bins`` is not a whole number of at least 1.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_probabilities([[0.75, 0.25]] * 4)
        >>> ppgp.metrics.calibration_error(prediction, [0, 0, 0, 1])  # right in 3 rows of 4
        0.0
        >>> ppgp.metrics.calibration_error(prediction, [0, 0, 0, 0])
        0.25
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise SettingError("a whole number of bins, at least 1", repr(bins), "for example 10")
    p, y = _probabilities(prediction, y)
    confidence, label = p.max(-1)
    right = (label == y).to(confidence)
    which = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=confidence.dtype, device=confidence.device)
    return float(gaps.index_add(0, which, confidence - right).abs().sum() / len(confidence))


def coverage(region: Region, y: Any) -> float:
    """Return the share of rows whose set holds y.

    Both ends belong to an interval. A share near the level is wanted (calibration), with sets as
    small as possible (``mean_width``); Gneiting, Balabdaoui & Raftery (2007).

    Args:
        region: One set per row, for n rows.
        y: Their true values [n], in the units of the data; labels as codes 0 to K - 1.

    Returns:
        The share, in [0, 1], without a unit.

    Raises:
        NotApplicable: If ``region`` is no Region, such as a Prediction.
        DataError: If there is not one y per row.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_points([0.0, 0.0, 0.0, 0.0], sd=1.0)
        >>> region = prediction.interval(0.9)  # from -1.645 to 1.645
        >>> ppgp.metrics.coverage(region, [0.0, 1.6, -1.7, 1.0])
        0.75
    """
    _check_region(region)
    return float(region.covers(y).double().mean())


def mean_width(region: Region) -> float:
    """Return the mean length of the intervals, or the mean number of labels.

    It is infinite where one interval is; ``region.infinite`` is the share of such intervals. Narrow
    sets count only at the coverage wanted; Gneiting, Balabdaoui & Raftery (2007) call their width
    the sharpness.

    Args:
        region: One set per row, for n rows: the widths are ``region.width`` [n].

    Returns:
        The mean, in the units of y; of label sets, a number of labels.

    Raises:
        NotApplicable: If ``region`` is no Region, such as a Prediction.

    Examples:
        >>> import ppgp
        >>> prediction = ppgp.Prediction.from_points([0.0, 5.0], sd=[1.0, 3.0])
        >>> round(ppgp.metrics.mean_width(prediction.interval(0.9)), 4)  # 2 sds of 1.6449 each way
        6.5794
    """
    _check_region(region)
    return float(region.width.double().mean())


def _one_per_row(prediction: Any, y: Any) -> Tensor:
    """Return y [n] as a tensor: another shape would be spread over the rows.

    Raises:
        NotApplicable: If ``prediction`` is no Prediction.
        DataError: If there is not one y per row.
    """
    if not isinstance(prediction, Prediction):
        raise not_a_prediction(prediction)
    return one_per_row(y, len(prediction))


def _probabilities(prediction: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the probabilities [n, K] and the labels [n] of a prediction of classes."""
    y = _one_per_row(prediction, y)
    p = prediction.probabilities
    check_codes(y, p.shape[-1])
    return p, y.to(p.device)


def _check_region(region: Any) -> None:
    """Raise NotApplicable for what is no Region."""
    if not isinstance(region, Region):
        do = "pass prediction.interval(0.9), or calibrator(prediction, 0.9)"
        raise NotApplicable("a Region, one set per row", an(type(region).__name__), do)
