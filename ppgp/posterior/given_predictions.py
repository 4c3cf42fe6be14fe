"""Predictions that another library made, as a Prediction: points, quantiles, probabilities, draws.

What is given may be an array, a list or a tensor of any library. It is copied without its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.entries.arrays import array_of, as_tensor
from ..distributions.known_in_part import CountMass, Points, QuantileFunction
from ..errors import DataError, listed

if TYPE_CHECKING:
    from typing import Self

__all__ = ["GivenPredictions"]

SUM_TOLERANCE = 1e-3  # of the probabilities of one row, which half precision rounds
QUARTILES = 1.34
AT_A_POINT = 1e-3  # of the sd of draws, half of which or more are equal
FEWEST_DRAWS = 2
INFINITE = "NaN or infinity"


class GivenPredictions:
    """Constructors of a Prediction from the output of any other model."""

    if TYPE_CHECKING:

        def __init__(
            self, distribution: Distribution, *, classes: tuple[Any, ...] | None = None
        ) -> None: ...

    @classmethod
    def from_points(cls, points: Any, sd: Any = None) -> Self:
        """Return the prediction that a regressor's output stands for.

        Args:
            points: [n], one predicted number per row.
            sd: [n] or one number, the predictive standard deviation: y is then normal. None: only
                the points are known, which is enough for ``conformal.Absolute`` and ``Signed``.

        Raises:
            DataError: If there is not one finite number per row, or an sd is not positive.
        """
        value = _finite(points, "points", "[n]", 1)
        if sd is None:
            return cls(Points(value[None]))
        scale = as_tensor(sd, "sd").to(value)
        if scale.ndim > 1 or scale.numel() not in (1, len(value)):
            wanted = f"one sd per row ({len(value)}), or one for all"
            raise DataError(wanted, f"shape {list(scale.shape)}", "pass the sd of those rows")
        scale = scale.reshape(-1).expand(len(value))
        _refuse(
            ~(torch.isfinite(scale) & (scale > 0)),
            "an sd above 0",
            "check those rows",
            "0, less or NaN",
        )
        return cls(dist.Normal(value[None], scale[None], validate_args=False))

    @classmethod
    def from_quantiles(cls, quantiles: Any, probabilities: Any) -> Self:
        """Return the prediction that the output of a quantile regression stands for.

        Quantiles of a row that cross are sorted. Between the given probabilities quantiles are
        interpolated, and beyond them none is known: ``conformal.Quantile`` takes levels up to that
        of the outermost pair.

        Args:
            quantiles: [n, k], one column per probability.
            probabilities: [k], increasing, such as ``[0.05, 0.5, 0.95]``.

        Raises:
            DataError: If the shapes do not fit, a quantile is not finite, or the probabilities do
                not increase between 0 and 1.
        """
        value = _finite(quantiles, "quantiles", "[n, k]", 2)
        p = as_tensor(probabilities, "probabilities").to(value)
        if p.ndim != 1 or len(p) != value.shape[1] or len(p) < 2:
            wanted = "two or more probabilities, one per column of quantiles"
            got = f"{list(p.shape)} for quantiles of shape {list(value.shape)}"
            raise DataError(wanted, got, "pass quantiles [n, k] and probabilities [k]")
        if not bool(((p > 0) & (p < 1)).all() and (p.diff() > 0).all()):
            got = ", ".join(f"{one:g}" for one in p.tolist())
            do = "for example [0.05, 0.5, 0.95]"
            raise DataError("probabilities that increase between 0 and 1", got, do)
        return cls(QuantileFunction(value.sort(1).values[None], p, validate_args=False))

    @classmethod
    def from_probabilities(cls, probabilities: Any, classes: Sequence[Any] | None = None) -> Self:
        """Return the prediction that a classifier's probabilities stand for.

        Args:
            probabilities: [n, K], one column per class; the rows sum to 1.
            classes: The names of the K classes; y is the number of a class, 0 to K - 1, anyway.

        Raises:
            DataError: If the shape is not that of K >= 2 classes, or a row has no probabilities.
        """
        p = _finite(probabilities, "probabilities", "[n, K] with K >= 2", 2)
        if p.shape[1] < 2:
            got = f"shape {list(p.shape)}"
            do = "for two classes stack 1 - p and p"
            raise DataError("probabilities with shape [n, K] with K >= 2", got, do)
        strange = (p < 0).any(1) | ((p.sum(1) - 1).abs() > SUM_TOLERANCE)
        do = "apply softmax to logits, or check those rows"
        _refuse(strange, "probabilities >= 0 that sum to 1 in each row", do)
        if classes is not None and len(classes) != p.shape[1]:
            got = f"{len(classes)} for {p.shape[1]} columns"
            raise DataError("one name per class", got, "pass the classes in the order of columns")
        named = None if classes is None else tuple(classes)
        law = dist.Categorical(probs=(p / p.sum(1, keepdim=True))[None], validate_args=False)
        return cls(law, classes=named)

    @classmethod
    def from_samples(cls, samples: Any) -> Self:
        """Return the prediction that draws of y stand for.

        Draws of counts (of an integer type) have their empirical distribution. Other draws are
        smoothed by a normal kernel (bandwidth of Silverman 1986, equation 3.31) around points that
        are moved towards the mean, so that the mean and the variance are those of the draws
        (Silverman 1986, section 6.4.1). Every score applies. Where half of the draws of a row or
        more are equal, such as no rain, the bandwidth is a thousandth of the usual one.

        Args:
            samples: [draw, n] or [chain, draw, n], draws of y, observation noise included.

        Raises:
            DataError: If there are fewer than two draws, a draw is not finite, the draws of a row
                are all the same, or counts are negative.
        """
        counts = _holds_integers(samples)
        value = as_tensor(samples, "samples")
        if value.ndim not in (2, 3) or value.shape[:-1].numel() < FEWEST_DRAWS:
            wanted = "samples with shape [draw, n] or [chain, draw, n] and two or more draws"
            do = "put one draw of all rows in each line"
            if value.ndim == 4:
                do = "make one prediction for each target, such as of samples[..., 0]"
            raise DataError(wanted, f"shape {list(value.shape)}", do)
        value = value.reshape(-1, value.shape[-1])
        _refuse(
            ~torch.isfinite(value).all(0), "finite samples", "check those rows", "NaN or infinity"
        )
        if counts:
            do = "pass floats if y is not a count"
            _refuse((value < 0).any(0), "counts of 0 or more in integer samples", do)
            return cls(CountMass(value, validate_args=False))
        mean, sd = value.mean(0), value.std(0, correction=0)
        quarter = max(1, len(value) // 4)
        low, high = (value.kthvalue(k, 0).values for k in (quarter, len(value) + 1 - quarter))
        rounding = 4 * torch.finfo(value.dtype).eps * mean.abs()
        do = "pass predictive draws, noise included, or use from_points"
        _refuse(~(sd > rounding), "samples that differ within each row", do)
        narrow = (high - low) / QUARTILES
        unit = torch.where(narrow > 0, torch.minimum(sd, narrow), AT_A_POINT * sd)
        width = 0.9 * len(value) ** -0.2 * unit
        kept = (1 - (width / sd).square()).sqrt()
        places = mean + kept * (value - mean)
        return cls(dist.Normal(places, width.expand_as(places), validate_args=False))


def _holds_integers(values: Any) -> bool:
    """Return whether entries are integers by their type."""
    if isinstance(values, Tensor):
        return (
            not (values.is_floating_point() or values.is_complex()) and values.dtype != torch.bool
        )
    return bool(np.issubdtype(array_of(values, "samples").dtype, np.integer))


def _finite(values: Any, what: str, shape: str, axes: int) -> Tensor:
    """Return values as a finite float tensor with so many axes and at least one row."""
    tensor = as_tensor(values, what)
    if tensor.ndim != axes or len(tensor) == 0:
        wanted, do = f"{what} with shape {shape}", f"reshape it to {shape}"
        if tensor.ndim == axes:
            do = "pass at least one row"
        elif tensor.ndim == axes + 1 and min(tensor.shape) > 1:
            wanted = f"{what} of one target with shape {shape}"
            do = f"make one prediction for each target, such as of {what}[..., 0]"
        raise DataError(wanted, f"shape {list(tensor.shape)}", do)
    strange = ~torch.isfinite(tensor).reshape(len(tensor), -1).all(1)
    _refuse(strange, f"finite {what}", "check those rows", INFINITE)
    return tensor


def _refuse(strange: Tensor, wanted: str, do: str, got: str = "others") -> None:
    """Raise DataError that names the rows where ``strange`` [n] holds ``got``."""
    rows = torch.nonzero(strange).flatten().tolist()
    if rows:
        raise DataError(wanted, f"{got} in {listed(rows, 'row')}", do)
