"""The average of log p(y | f) over a normal f is the integral, by adaptive quadrature."""

from __future__ import annotations

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from ppgp.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
    ZeroInflated,
)

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


CUTPOINTS = (-1.0, 0.3, 9.5)  # a class in the middle is narrow, another is wide
CLASSES = (0.0, 1.0, 2.0, 3.0)
#: likelihoods whose log density turns within a few units of f, targets, and a relative error
TURNING: dict[str, tuple[Likelihood, tuple[float, ...], float]] = {
    "bernoulli": (Bernoulli("probit"), (0.0, 1.0), 1e-8),
    "ordinal probit": (Ordinal(cutpoints=CUTPOINTS, link="probit"), CLASSES, 1e-8),
    "ordinal cloglog": (Ordinal(cutpoints=CUTPOINTS, link="cloglog"), CLASSES[:3], 1e-5),
    "negative binomial": (NegativeBinomial(1.4), (0.0, 3.0, 40.0), 1e-8),
    "beta": (Beta(6.0), (0.02, 0.6), 1e-8),
    "few zeros": (ZeroInflated(Poisson(), 1e-6), COUNTS, 1e-8),
    "zeros among negative binomial": (ZeroInflated(NegativeBinomial(2.0), 1e-3), COUNTS, 1e-6),
}
SDS = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0)
#: the reference has no gradient where exp(f), or the mean of a share, overflows
BEYOND = (("beta", 30.0), ("beta", 100.0), ("ordinal cloglog", 100.0), ("few zeros", 100.0))
MEANS = (-30.0, -3.0, 0.0, 2.0, 10.0, 30.0)
CENSUS = torch.linspace(-12, 12, 8001, dtype=torch.float64)
FINE = torch.linspace(-12, 12, 200_001, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "sd"), [(name, sd) for name in TURNING for sd in SDS if (name, sd) not in BEYOND]
)
def test_expected_is_the_integral_however_uncertain_f_is(name: str, sd: float) -> None:
    """So are its gradients by the mean and by the sd. The trapezoidal rule with 8,001 nodes is
    exact to rounding: its step is at most 0.3 in f. Averages of exp(f) are
    left out beyond sd = 3, where they lie farther out than 12 sds."""
    law, targets, error = TURNING[name]
    if name in ("ordinal cloglog", "few zeros") and sd > 3:
        targets = targets[:1]
    m = number(MEANS).requires_grad_()
    s = number(sd).requires_grad_()
    z = FINE if "zeros" in name else CENSUS  # log P(0) has a corner
    weight = torch.softmax(-0.5 * z.square(), 0)
    for y in targets:
        f = m + s * z[:, None]
        log_prob = law.distribution({}, f).log_prob(number(y).expand_as(f))
        exact = (weight[:, None] * log_prob).sum(0)
        found = law.expected({}, m, s.square().expand(len(MEANS)), number(y).expand(len(MEANS)))
        small = 1e-4  # the average of 0 to many digits is 0
        worst = ((found - exact).abs() / (exact.abs() + small)).detach().max()
        assert float(worst) < error, (y, worst)
        for variable in (m, s):
            wanted = torch.autograd.grad(exact.sum(), variable, retain_graph=True)[0]
            slope = torch.autograd.grad(found.sum(), variable, retain_graph=True)[0]
            worst = ((slope - wanted).abs() / (wanted.abs() + small)).max()
            assert float(worst) < 10 * error, (y, worst)
