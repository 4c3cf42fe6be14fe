"""The negative binomial likelihood of counts that vary more than Poisson's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from .. import priors
from ..data.dataset import Dataset
from ..distributions.negative_binomial import (
    MeanNegativeBinomial,
    shape_information,
    shape_slope,
    shape_slopes,
)
from ..numerics.shapes import broadcast_shapes
from ..priors import PriorLike
from .base import Theta, log_of_count
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, log_rate
from .target_checks import check_counts_of_events

LARGEST_SHAPE = 1e6  # at which the search of a constant begins, for counts no wider than Poisson's


@dataclass(frozen=True)
class NegativeBinomial(Parametric):
    """Counts of mean mu = exp(f) and variance mu + mu^2 / shape, y = 0, 1, 2, ...

    Lawless (1987), equation 1, with shape = 1 / a; Poisson's distribution is the limit of large
    shapes. The shape is ``theta`` of R's ``glm.nb``, and 1 / ``alpha`` of statsmodels. The Fisher
    information of the shape is that of Fisher (1941). f is [n]. With ``shape=Predicted()`` the log
    of the shape is a second function of x, and the functions are [2, n]. There is no CRPS, whose
    gradient has no closed form.

    Args:
        shape: Prior of the shape, a number that fixes it, or ``Predicted()``. It has no unit.

    Raises:
        UnknownArgument: If an argument has another name.
        SettingError: If the shape is a class in place of an instance. ``fit`` raises it for a shape
            of 0 or less, and for a prior that allows one.

    Examples:
        Means of 4 and 8, and variances of 4 + 16 / 2 and 8 + 64 / 2:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1, 7, 2, 14])
        >>> likelihood = likelihoods.NegativeBinomial(shape=2.0)
        >>> model = models.GLM(likelihood, weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> counts = posterior.predict([[0.0], [1.0]])
        >>> counts.mean.round(decimals=3).tolist(), counts.variance.round(decimals=3).tolist()
        ([4.0, 8.0], [12.0, 40.0])
    """

    shape: PriorLike | Predicted = priors.LogNormal(1.0, 1.0)
    scales = "X"
    counts = True
    numeric = True
    kinds = ("nll",)
    limits = (math.inf, LARGEST_STEP)

    def prepare(self, data: Dataset) -> NegativeBinomial:
        """Return this likelihood.

        Raises:
            DataError: If a target is not a count.
        """
        check_counts_of_events(data)
        return self

    def ratio(self) -> str:
        return "rate ratio"

    def most_probable(self, y: Tensor) -> Tensor:
        return log_of_count(y)

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return MeanNegativeBinomial(f, p["shape"])

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        return -self._distribution(p, f).log_prob(y)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        # the log density is a line in f below the log of the shape, and another above it
        return self._turning(p, mean, variance, y, p["shape"].log())

    def _shares(self, p: Theta, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return mu / (mu + shape) and shape / (mu + shape)."""
        u = f - p["shape"].log()
        return torch.sigmoid(u), torch.sigmoid(-u)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        t, (share, rest) = p["shape"], self._shares(p, f)
        return t * share - y * rest, -shape_slope(t, f, y)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        t, (share, rest) = p["shape"], self._shares(p, f)
        return -(y + t) * share * rest, shape_slopes(t, f, y)[1]

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        t = p["shape"].expand(broadcast_shapes(p["shape"].shape, f.shape))
        entries = {(0, 0): t * self._shares(p, f)[0]}
        if self.predicted:
            entries[1, 1] = shape_information(t, f)
        return entries

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        mean, variance = float(y.mean()), float(y.var())
        shape = LARGEST_SHAPE
        if variance > mean:
            shape = min(mean**2 / (variance - mean), LARGEST_SHAPE)
        return log_rate(y), log_or_zero(shape)

    def _has_least(self, y: Tensor) -> bool:
        return bool(y.max() > 0)
