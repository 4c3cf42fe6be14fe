"""Bayesian linear regression on the last hidden units of a network, by evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...capabilities import GaussianNetwork, require
from ...data.roles import refuse_weights
from ...density.target import Target
from ...numerics.cholesky import LOG_2PI
from ...runtime.seeding import standard_normal
from .dense_network import Dense

GRID = 73  # values of the ratio of the precisions, between which the search goes on
SMALLEST, LARGEST = 1e-14, 1e4  # of these ratios, relative to the largest squared singular value


@dataclass(frozen=True)
class Evidence:
    """Bayesian linear regression, y ~ N(Phi w, noise) and w ~ N(0, 1 / precision), by evidence.

    Attributes:
        mean: The posterior mean of w, [q].
        V: The directions [q, r] that the rows determine.
        sd: The posterior sds in these directions, [r].
        precision: The prior precision of w.
        noise: The variance of the noise.
        log_evidence: Log p(y given precision and noise).
    """

    mean: Tensor
    V: Tensor
    sd: Tensor
    precision: float
    noise: float
    log_evidence: float

    def sample(self, draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of w, [draw, q]."""
        e = standard_normal(generator, draws, len(self.mean))
        e = e.to(self.mean)
        prior_sd = self.precision**-0.5
        along = (e @ self.V) * (self.sd - prior_sd)
        return self.mean + prior_sd * e + along @ self.V.mT


def by_evidence(Phi: Tensor, y: Tensor, noise: float | None) -> Evidence:
    """Return the regression of y [n] on Phi [n, q] at the precisions of the highest evidence.

    MacKay (1992); Bishop (2006), section 3.5. Given the ratio of prior precision and precision of
    the noise, the best noise has a closed form, so that the search is in one dimension.

    Args:
        Phi: The features, [n, q].
        y: The targets, [n].
        noise: The variance of the noise where it is known.
    """
    n = len(y)
    U, S, Vt = torch.linalg.svd(Phi, full_matrices=False)
    c = U.mT @ y
    squares = S.square().double().cpu().numpy()
    along = c.square().double().cpu().numpy()
    across = max(float(y.square().sum() - c.square().sum()), 0.0)
    tiny = np.finfo(float).tiny

    def noise_at(ratio: float) -> float:
        if noise is not None:
            return noise
        return max((float((along / (1 + squares / ratio)).sum()) + across) / n, tiny)

    def loss(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        g, variance = 1 + squares / ratio, noise_at(ratio)
        fit = (float((along / g).sum()) + across) / variance
        return 0.5 * (float(np.log(g).sum()) + n * math.log(variance) + fit + n * LOG_2PI)

    top = math.log(max(float(squares.max()), tiny))
    grid = np.linspace(top + math.log(SMALLEST), top + math.log(LARGEST), GRID)
    middle, step = min(grid.tolist(), key=loss), grid[1] - grid[0]
    found: Any = optimize.minimize_scalar(
        loss, bounds=(middle - step, middle + step), method="bounded", options={"xatol": 1e-10}
    )
    ratio = math.exp(float(found.x))
    variance = noise_at(ratio)
    shrunk = S.square() + ratio
    return Evidence(
        mean=Vt.mT @ (S * c / shrunk),
        V=Vt.mT,
        sd=(variance / shrunk).sqrt(),
        precision=ratio / variance,
        noise=variance,
        log_evidence=-float(found.fun),
    )


def last_layer(
    target: Target, mode: Tensor, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Evidence]:
    """Return draws z [draw, p] of the last layer, other weights being those of the mode [p].

    The second result is z [p] at their mean.

    Raises:
        NotApplicable: If the model is no network with Gaussian noise of one variance.
    """
    model = require(target.model, GaussianNetwork)
    refuse_weights(target.data, "the evidence of the last layer")
    network = Dense(model, target)
    layers = network.layers(mode)
    features = network.features(layers, target.data.X)
    Phi = torch.cat([features, features.new_ones(len(features), 1)], -1)
    found = by_evidence(Phi, target.data.y, model.noise_number())
    w = torch.cat([found.mean[None], found.sample(draws, generator)])
    each = [(W.expand(len(w), *W.shape), b.expand(len(w), -1)) for W, b in layers[:-1]]
    z = network.laid(mode, [*each, (w[:, None, :-1], w[:, -1:])])
    network.put_noise(z, found.noise)
    return z[1:], z[0], found
