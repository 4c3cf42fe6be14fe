"""Student-t noise: a few rows may lie far off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..numerics.distributions import NormalMixture
from ..priors import Gamma, LogNormal, PriorLike, Site, site
from .base import Likelihood, Theta

SCALES = 64  # nodes of the mixture of normals that a Student-t is
TAIL = 1e-16  # probability beyond either end of them


@dataclass(frozen=True)
class StudentT(Likelihood):
    """y = f + scale t, t of Student's law with ``df`` degrees of freedom. Jylanki, Vanhatalo & Vehtari (2011).

    Args:
        df: prior or number of the degrees of freedom.
        scale: prior or number of the scale (for large df it is the sd of the noise).
    """

    df: PriorLike = Gamma(2.0, 0.1)  # noqa: RUF009
    scale: PriorLike = LogNormal(-1.0, 1.0)
    nodes = 40

    def sites(self) -> dict[str, Site]:
        return {"df": site("df", self.df, positive=True), "scale": site("scale", self.scale, positive=True)}

    def law(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.StudentT(self.value(theta, "df", f), f, self.value(theta, "scale", f))

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        """t is normal given a precision of Gamma(df / 2, df / 2), so that the variances add up: a mixture of normals, the precision
        integrated by the trapezoidal rule on its logarithm, which reaches as far into the tail as its ends do."""
        df, scale = self.value(theta, "df", mean), self.value(theta, "scale", mean)
        flat = df.detach().double().cpu().reshape(-1)
        found = [_precisions(float(one)) for one in flat]
        precision, weight = (torch.stack([pair[j] for pair in found]).to(mean).reshape(*df.shape, SCALES) for j in (0, 1))
        each = variance[..., None] + scale.square()[..., None] / precision
        own = scale.square() * torch.where(df > 2, df / (df - 2), torch.inf)
        return _KnownVariance(weight, mean[..., None], each.sqrt(), variance + own)


class _KnownVariance(NormalMixture):
    """A mixture of normals that stands for a law of a known variance [*batch], which lies partly beyond its widest members."""

    arg_constraints = {  # type: ignore[assignment]
        "proportion": constraints.simplex,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
        "spread": constraints.nonnegative,
    }

    def __init__(
        self, proportion: Tensor, loc: Tensor, scale: Tensor, spread: Tensor, validate_args: bool | None = False
    ) -> None:
        super().__init__(proportion, loc, scale, validate_args=validate_args)
        self.spread = spread.expand(self.batch_shape)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> _KnownVariance:
        shape = torch.Size(batch_shape)
        p, loc, scale = (x.expand(*shape, SCALES) for x in (self.proportion, self.loc, self.scale))
        return _KnownVariance(p, loc, scale, self.spread.expand(shape))

    @property
    def variance(self) -> Tensor:
        return self.spread


@lru_cache(maxsize=4096)
def _precisions(df: float) -> tuple[Tensor, Tensor]:
    """Nodes and weights [SCALES] for a precision of Gamma(df / 2, df / 2)."""
    law: Any = stats.gamma(df / 2, scale=2 / df)
    log = np.linspace(np.log(max(law.ppf(TAIL), 1e-280)), np.log(law.isf(TAIL)), SCALES)
    weight = law.pdf(np.exp(log)) * np.exp(log)
    return torch.from_numpy(np.exp(log)), torch.from_numpy(weight / weight.sum())
