"""The Bernoulli likelihood of two classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..distributions.logistic_normal import expected_softplus, log_odds
from ..distributions.ordered_links import LINKS
from ..distributions.standard_normal import cdf, hazard, hazard_excess, pdf
from ..errors import UnknownName
from ..numerics.derivatives import derivatives_of_sum
from .base import Likelihood, Theta, log_of_count, root, turning_average
from .scored import LEAST_SHARE, Scored, widened
from .target_checks import check_codes

NAMES = ("logit", "probit")


@dataclass(frozen=True)
class Bernoulli(Likelihood, Scored):
    """y ~ Bernoulli(g(f)), y in {0, 1}. Rasmussen & Williams (2006), section 3.3.

    g(f) [n] is the probability of class 1. f [n] is a log-odds for "logit" and a standard normal
    quantile for "probit"; neither has a unit.

    Args:
        link: "logit" (g is the sigmoid) or "probit" (g is the normal cdf, whose average over f has
            a closed form).

    Raises:
        UnknownName: If the link is neither.

    Examples:
        Two of 10 rows are of class 1 where x = 0, and six of 10 where x = 1. The odds ratio is
        (6 / 4) / (2 / 8):

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X = [[0.0]] * 10 + [[1.0]] * 10
        >>> y = [1] * 2 + [0] * 8 + [1] * 6 + [0] * 4
        >>> model = models.GLM(likelihoods.Bernoulli(), weight=priors.Flat(), bias=priors.Flat())
        >>> how = inference.MAP("newton")
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), how, progress=False)
        >>> posterior.predict([[0.0], [1.0]]).probabilities.round(decimals=3).tolist()
        [[0.8, 0.2], [0.4, 0.6]]
        >>> table = posterior.coefficients("model", exponentiate=True)
        >>> round(float(table.loc["x0", "estimate"]), 3)
        6.0
    """

    link: str = "logit"
    scales = "X"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in NAMES:
            raise UnknownName("link", self.link, NAMES)

    def prepare(self, data: Dataset) -> Bernoulli:
        """Return this likelihood.

        Raises:
            DataError: If a target is neither 0 nor 1.
        """
        check_codes(data, 2)
        return self

    def ratio(self) -> str | None:
        return "odds ratio" if self.link == "logit" else None

    def most_probable(self, y: Tensor) -> Tensor:
        return log_of_count(y) - log_of_count(1 - y)

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        if self.link == "probit":
            f = _logit_of_probit(f)
        return dist.Bernoulli(logits=f)

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        if self.link == "probit":  # equation 3.82
            return dist.Bernoulli(logits=_logit_of_probit(mean / (1 + variance).sqrt()))
        return dist.Bernoulli(logits=log_odds(mean, root(variance).square()))

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f), however uncertain f is.

        The error is at most 2e-8, relative to a value below -1 for "probit".
        """
        if self.link == "probit":
            sign = 2 * y - 1
            return turning_average(
                LINKS["probit"].log_cdf, sign * mean, variance, torch.zeros_like(mean)
            )
        return -expected_softplus((1 - 2 * y) * mean, variance)

    def tilted(self, mean: Tensor, variance: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log E p(y | f) over f ~ N(mean, variance), and its derivatives by the mean.

        Returns:
            The logs, the first derivatives, and minus the second derivatives, [*draw, n] each.
        """
        sign = 2 * y - 1
        if self.link == "probit":  # equations 3.58
            scale = (1 + variance).rsqrt()
            z = sign * mean * scale
            h = hazard(-z)
            return torch.special.log_ndtr(z), sign * scale * h, scale.square() * h * (h + z)

        def log_average(mean: Tensor) -> Tensor:
            return torch.nn.functional.logsigmoid(log_odds(sign * mean, variance))

        def slope(mean: Tensor) -> Tensor:
            return derivatives_of_sum(log_average, (mean,), (variance,))[0]

        second = derivatives_of_sum(slope, (mean,), (variance,))[0]
        return log_average(mean), slope(mean), -second

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        logit = _logit_of_probit(f) if self.link == "probit" else f
        if kind == "nll":
            return torch.nn.functional.softplus((1 - 2 * y) * logit)
        return torch.sigmoid((1 - 2 * y) * logit).square()

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        other = 1 - 2 * y
        if self.link == "probit":
            if kind == "nll":
                return (other * hazard(other * f),)
            return (2 * other * cdf(other * f) * pdf(f),)
        wrong = other * torch.sigmoid(other * f)  # P(y = 1) - y
        if kind == "nll":
            return (wrong,)
        return (2 * wrong * torch.sigmoid(f) * torch.sigmoid(-f),)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        if self.link == "probit":
            z = (1 - 2 * y) * f
            return (-hazard(z) * hazard_excess(z),)
        return (-torch.sigmoid(f) * torch.sigmoid(-f),)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        if self.link == "probit":
            if kind == "nll":
                return {(0, 0): hazard(f) * hazard(-f)}
            return {(0, 0): 2 * pdf(f).square()}
        variance = torch.sigmoid(f) * torch.sigmoid(-f)
        return {(0, 0): variance if kind == "nll" else 2 * variance.square()}

    def natural(
        self,
        theta: Theta,
        f: Tensor,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Return metric^-1 gradient, [*draw, 1, n], the same for both scores.

        Probabilities below 1e-6 count as 1e-6.
        """
        self._check(f, kind, right_censored)
        z = (2 * y - 1) * f
        if self.link == "logit":
            return (1 - 2 * y) / torch.sigmoid(z).clamp_min(LEAST_SHARE)
        # P(own class) P(other class) / density, from whichever of the two is small
        length = cdf(z.abs()) / hazard(z.abs())
        return (1 - 2 * y) * length / cdf(z).clamp_min(LEAST_SHARE)

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        share = (y.sum() + 0.5) / (len(y) + 1)
        if self.link == "probit":
            return (float(torch.special.ndtri(share)),)
        return (float(torch.logit(share)),)

    def _has_least(self, y: Tensor) -> bool:
        return bool(y.min() < y.max())

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f divided by the temperature."""
        return widened(f, log_temperature)


def _logit_of_probit(f: Tensor) -> Tensor:
    """Return log ndtr(f) - log ndtr(-f), which keeps full precision in the tails."""
    return torch.special.log_ndtr(f) - torch.special.log_ndtr(-f)
