"""The average of log p(y | f) over a normal f is the integral, by adaptive quadrature."""

from __future__ import annotations

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from ppgp.likelihoods import Beta, Binomial, Likelihood, NegativeBinomial, Poisson, ZeroInflated

COUNTS, SHARES = (0.0, 3.0), (0.02, 0.6)
#: likelihoods without other tests of this integral, and targets
LAWS: dict[str, tuple[Likelihood, tuple[float, float]]] = {
    "negative binomial": (NegativeBinomial(1.4), COUNTS),
    "nearly poisson": (NegativeBinomial(1e7), COUNTS),
    "zero-inflated": (ZeroInflated(Poisson(), 0.3), COUNTS),
    "zero-inflated negative binomial": (ZeroInflated(NegativeBinomial(2.0), 0.1), COUNTS),
    "beta": (Beta(6.0), SHARES),
    "binomial": (Binomial(trials=7), COUNTS),
}


def number(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("name", list(LAWS))
@pytest.mark.parametrize("which", [0, 1])
def test_expected_is_an_integral(name: str, which: int) -> None:
    law, targets = LAWS[name]
    y, m, sd = targets[which], 0.4, 0.8

    def inside(f: float) -> float:
        return float(law.distribution({}, number([f])).log_prob(number([y]))) * stats.norm.pdf(
            f, m, sd
        )

    exact = integrate.quad(inside, m - 10 * sd, m + 10 * sd, epsabs=1e-12, limit=400)[0]
    found = float(law.expected({}, number([m]), number([sd**2]), number([y])))
    assert found == pytest.approx(exact, rel=1e-6)
