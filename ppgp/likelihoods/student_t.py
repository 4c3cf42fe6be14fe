"""The likelihood of Student-t noise, which tolerates outliers."""

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
    """y = f + scale t, where t has Student's distribution with ``df`` degrees of freedom.

    Jylanki, Vanhatalo & Vehtari (2011).

    Args:
        df: Prior of the degrees of freedom, or a number that fixes them.
        scale: Prior of the scale, or a number that fixes it (for large df, the sd of the noise).
    """

    df: PriorLike = Gamma(2.0, 0.1)
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
        """Return E log p(y | f) by quadrature that is accurate for noise much narrower than f."""
        df, scale = self.value(theta, "df", mean), self.value(theta, "scale", mean)
        return expected_log_density(df, scale, mean, variance, y)
