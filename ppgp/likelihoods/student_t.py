"""Student-t noise: a few rows may lie far off."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from ..numerics.student_t_plus_normal import StudentTPlusNormal, expected_log_density
from ..priors import Gamma, LogNormal, PriorLike, Site, site
from .base import Likelihood, Theta, root


@dataclass(frozen=True)
class StudentT(Likelihood):
    """y = f + scale t, t of Student's law with ``df`` degrees of freedom. Jylanki, Vanhatalo & Vehtari (2011).

    Args:
        df: prior or number of the degrees of freedom.
        scale: prior or number of the scale (for large df it is the sd of the noise).
    """

    df: PriorLike = Gamma(2.0, 0.1)  # noqa: RUF009
    scale: PriorLike = LogNormal(-1.0, 1.0)
    dimensions = {"scale": 1}

    def sites(self) -> dict[str, Site]:
        return {
            "df": site("df", self.df, positive=True),
            "scale": site("scale", self.scale, positive=True),
        }

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.StudentT(self.value(theta, "df", f), f, self.value(theta, "scale", f))

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        df, scale = self.value(theta, "df", mean), self.value(theta, "scale", mean)
        return StudentTPlusNormal(df, mean, scale, root(variance), validate_args=False)

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """By one rule for all rows, however narrow the noise is beside f."""
        df, scale = self.value(theta, "df", mean), self.value(theta, "scale", mean)
        return expected_log_density(df, scale, mean, variance, y)
