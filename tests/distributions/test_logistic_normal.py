"""Averages of the sigmoid and its integral over a Gaussian, compared with fine quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from ppgp.distributions.logistic_normal import expected_softplus, log_odds
from ppgp.likelihoods import Bernoulli

F64 = torch.float64
CASES = list(product((0.0, 0.3, -1.7, 3.0, -25.0, 40.0), (1e-3, 0.3, 1.0, 5.0, 20.0, 100.0)))


def log_average(log_of: Callable[[Tensor], Tensor], mean: float, sd: float) -> float:
    """Return log E exp(log_of(f)) by a fine trapezoidal rule.

    The spacing is far below the widths of the sigmoid and of the Gaussian.
    """
    z = torch.linspace(-40, 40, 200_001, dtype=F64)
    weight = -0.5 * z.square()
    return float(torch.logsumexp(weight + log_of(mean + sd * z), 0) - torch.logsumexp(weight, 0))


def columns() -> tuple[Tensor, Tensor]:
    mean, sd = torch.tensor(CASES, dtype=F64).mT
    return mean, sd.square()


def test_the_expected_log_likelihood_is_the_integral_however_uncertain_f_is() -> None:
    for (m, s), found in zip(CASES, expected_softplus(*columns()).tolist(), strict=True):
        exact = math.exp(log_average(lambda f: softplus(f, threshold=700).log(), m, s))
        assert found == pytest.approx(exact, abs=2e-8, rel=1e-11), (m, s)


def test_the_log_odds_are_accurate_in_both_tails() -> None:
    for (m, s), found in zip(CASES, log_odds(*columns()).tolist(), strict=True):
        yes, no = (log_average(lambda f, t=t: logsigmoid(t * f), m, s) for t in (1, -1))
        assert found == pytest.approx(yes - no, abs=1e-11, rel=1e-11), (m, s)


@pytest.mark.parametrize("of", [expected_softplus, log_odds], ids=lambda f: f.__name__)
def test_first_and_second_derivatives(of: object) -> None:
    mean = torch.tensor([0.0, 3.0, -2.0, -1.0, 6.0], dtype=F64, requires_grad=True)
    variance = torch.tensor([1.0, 400.0, 0.01, 1.0, 1e4], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(of, (mean, variance), eps=1e-5, atol=1e-6)
    assert torch.autograd.gradgradcheck(of, (mean, variance), eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_values_and_gradients_are_finite_at_any_size(dtype: torch.dtype) -> None:
    mean = torch.tensor([-1e4, -1e3, 0.0, 1e3, 1e4], dtype=dtype)[:, None]
    variance = torch.tensor([1e-6, 1.0, 1e4, 1e8], dtype=dtype)
    inputs = [x.clone().requires_grad_() for x in torch.broadcast_tensors(mean, variance)]
    for of in (expected_softplus, log_odds):
        value = of(*inputs)
        slopes = torch.autograd.grad(value.sum(), inputs)
        assert all(bool(torch.isfinite(x).all()) for x in (value, *slopes))
        torch.testing.assert_close(
            of(*(x.double() for x in inputs)).to(dtype), value, rtol=1e-4, atol=1e-4
        )


def test_a_likelihood_is_accurate_for_a_wide_latent_function() -> None:
    """With sd(f) = 20 the value is .5594; Gauss-Hermite with 64 nodes gave .5438."""
    mean, variance = torch.tensor([[3.0]], dtype=F64), torch.tensor([[400.0]], dtype=F64)
    p = Bernoulli().marginal({}, mean, variance).probs
    assert float(p) == pytest.approx(math.exp(log_average(logsigmoid, 3.0, 20.0)), rel=1e-11)
    assert round(float(p), 4) == 0.5594
