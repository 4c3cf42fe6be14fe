"""Coefficients of groups, integrated out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from ppgp.likelihoods import Bernoulli, Poisson, StudentT
from ppgp.likelihoods.joint_rows import LikelihoodRows
from ppgp.models.linear.grouped_effects import effects_given_rows, grouped_log_evidence
from ppgp.models.linear.multilevel_rows import GaussianRows, WeightedRows
from ppgp.models.linear.varying import Grouping, Units, blocks_of, by_grouping, sds_of_blocks

D = torch.float64
N = 40
ONE = Grouping("g", (-1, 0), 7, 1.0)
OTHER = Grouping("h", (-1,), 4, 1.0)
UNITS = Units(1.0, (1.0, 1.0), (0.3, 0.0))
NOISE = torch.tensor([0.4], dtype=D)


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = torch.as_tensor(rng.normal(size=(n, 2)))
    codes = {"g": torch.arange(n) % 7, "h": torch.as_tensor(rng.integers(0, 4, n))}
    return X, codes, torch.as_tensor(rng.normal(size=n)), torch.as_tensor(rng.normal(size=n))


def dense(X, codes, groupings, sds):
    """Return Z S^2 Z' [n, n] without blocks."""
    total = torch.zeros(len(X), len(X), dtype=D)
    for one in groupings:
        Z, code = one.design(X, UNITS), codes[one.name]
        same = code[:, None] == code[None, :]
        total += same * ((Z * sds[one.name] ** 2) @ Z.mT)
    return total


SDS = {"g": torch.tensor([0.8, 1.7], dtype=D), "h": torch.tensor([0.6], dtype=D)}


@pytest.mark.parametrize("groupings", [(ONE,), (OTHER,), (ONE, OTHER)])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_woodbury_is_the_dense_density(groupings, known, size):
    X, codes, mean, y = table()
    sds = {name: size * sd for name, sd in SDS.items()}
    noise_sd = torch.linspace(0.1, 2, N, dtype=D) if known else None
    blocks, sd = blocks_of(groupings, X, codes, UNITS), sds_of_blocks(groupings, sds)
    found = grouped_log_evidence(blocks, sd, mean, GaussianRows(y, noise_sd), (NOISE,), True)
    noise = NOISE + (0 if noise_sd is None else noise_sd**2)
    C = dense(X, codes, groupings, sds) + torch.diag(noise.expand(N))
    exact = torch.distributions.MultivariateNormal(mean, C).log_prob(y)
    assert abs(float(found) - float(exact)) < 1e-10 * max(1.0, abs(float(exact))) * size

    u = effects_given_rows(blocks, sd, mean, GaussianRows(y, noise_sd), (NOISE,), True)
    K = C - torch.diag(noise.expand(N))
    f, variance = u.moments(blocks)
    gain = torch.linalg.solve(C, K)
    torch.testing.assert_close(f, gain.mT @ (y - mean), rtol=1e-7, atol=1e-9 * size)
    torch.testing.assert_close(u.covariance_of(blocks), K - K @ gain, rtol=1e-5, atol=1e-7 * size)
    torch.testing.assert_close(variance, u.covariance_of(blocks).diagonal())


def test_leave_one_out_is_the_dense_one():
    X, codes, mean, y = table()
    blocks, sd = blocks_of((ONE, OTHER), X, codes, UNITS), sds_of_blocks((ONE, OTHER), SDS)
    u = effects_given_rows(blocks, sd, mean, GaussianRows(y, None), (NOISE,), True)
    loc, variance = u.without_each_row(blocks)
    inverse = (dense(X, codes, (ONE, OTHER), SDS) + NOISE * torch.eye(N, dtype=D)).inverse()
    d = inverse.diagonal()
    torch.testing.assert_close(loc, y - inverse @ (y - mean) / d)
    torch.testing.assert_close(variance + NOISE, 1 / d)


def test_a_weight_of_two_is_the_row_twice_and_of_zero_the_row_absent():
    X, codes, mean, y = table()
    sd = sds_of_blocks((ONE,), SDS)
    weights = torch.ones(N, dtype=D)
    weights[3], weights[5] = 2.0, 0.0
    rows = WeightedRows(GaussianRows(y, None), weights)
    found = grouped_log_evidence(blocks_of((ONE,), X, codes, UNITS), sd, mean, rows, (NOISE,), True)
    index = torch.tensor([i for i in range(N) if i != 5] + [3])
    codes = {name: code[index] for name, code in codes.items()}
    twice = blocks_of((ONE,), X[index], codes, UNITS)
    rows = GaussianRows(y[index], None)
    expected = grouped_log_evidence(twice, sd, mean[index], rows, (NOISE,), True)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("likelihood", "names"), [(Poisson(), ()), (Bernoulli(), ()), (StudentT(), ("scale", "df"))]
)
@pytest.mark.parametrize("groupings", [(ONE,), (ONE, OTHER)])
def test_derivatives_count_how_the_mode_moves(likelihood, names, groupings):
    X, codes, mean, _ = table(24)
    y = torch.as_tensor(np.random.default_rng(1).integers(0, 2, 24)).to(D)
    names = tuple(name for name in names if name in likelihood.sites())
    own = tuple(torch.tensor(4.0, dtype=D) for _ in names)
    blocks = blocks_of(groupings, X, codes, UNITS)
    rows = LikelihoodRows(likelihood, names, y)

    def evidence(log_sd, mean, *own):
        sds = {name: log_sd[i] * sd for i, (name, sd) in enumerate(SDS.items())}
        return grouped_log_evidence(blocks, sds_of_blocks(groupings, sds), mean, rows, own)

    inputs = (torch.tensor([0.7, 0.4], dtype=D), mean, *own)
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(evidence, inputs)
    scaled = (inputs[0],)
    assert torch.autograd.gradgradcheck(lambda s: evidence(s, mean, *own), scaled)


@pytest.mark.parametrize("likelihood", [Poisson(), Bernoulli()])
def test_large_groups_have_the_evidence_of_quadrature(likelihood):
    n = 400
    rng = np.random.default_rng(2)
    X, y = torch.zeros(n, 2, dtype=D), torch.as_tensor(rng.integers(0, 2, n)).to(D)
    one = Grouping("h", (-1,), 2, 1.0)
    codes = {"h": torch.arange(n) % 2}
    sd = torch.tensor([[0.7]], dtype=D)
    mean = torch.full((n,), -0.2, dtype=D)
    rows = LikelihoodRows(likelihood, (), y)
    found = grouped_log_evidence(blocks_of((one,), X, codes, UNITS), sd, mean, rows)
    total = 0.0
    for g in range(2):
        part = LikelihoodRows(likelihood, (), y[codes["h"] == g])
        loc = mean[codes["h"] == g]

        def height(u, part=part, loc=loc):
            prior = stats.norm.logpdf(u, 0, 0.7)
            return float(part.log_prob(loc + u, ()).sum()) + prior

        best = max(height(u) for u in np.linspace(-2, 2, 401))
        area = integrate.quad(lambda u, h=height, b=best: math.exp(h(u) - b), -3, 3, limit=200)[0]
        total += best + math.log(area)
    assert abs(float(found) - total) < 0.003


def test_no_mode_gives_nan():
    X, codes, mean, y = table()
    rows = LikelihoodRows(Poisson(), (), y.abs().round())
    blocks = blocks_of((ONE,), X, codes, UNITS)
    value = grouped_log_evidence(blocks, sds_of_blocks((ONE,), SDS), mean * math.nan, rows)
    assert math.isnan(float(value))


def test_coefficients_return_to_their_groupings():
    X, codes, _, _ = table()
    blocks = blocks_of((ONE, OTHER), X, codes, UNITS)
    u = torch.arange(18, dtype=D)[None]
    each = by_grouping((ONE, OTHER), u)
    expected = (ONE.design(X, UNITS) * each["g"][codes["g"]]).sum(-1) + each["h"][codes["h"], 0]
    torch.testing.assert_close(blocks.of_rows(u), expected)


@pytest.mark.parametrize("groupings", [(ONE,), (ONE, OTHER)])
@pytest.mark.parametrize("form", ["equal", "known", "weights"])
def test_derivatives_for_gaussian_rows(groupings, form):
    X, codes, mean, y = table(24)
    blocks = blocks_of(groupings, X, codes, UNITS)
    known = torch.linspace(0.1, 2, 24, dtype=D) if form == "known" else None
    rows = GaussianRows(y, known)
    if form == "weights":
        rows = WeightedRows(rows, torch.arange(24, dtype=D) % 3)

    def evidence(log_sd, mean, noise):
        sds = {name: log_sd[i] * sd for i, (name, sd) in enumerate(SDS.items())}
        sd = sds_of_blocks(groupings, sds)
        return grouped_log_evidence(blocks, sd, mean, rows, (noise,), True)

    inputs = (torch.tensor([0.7, 0.4], dtype=D), mean, NOISE)
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(evidence, inputs)
    assert torch.autograd.gradgradcheck(lambda s, v: evidence(s, mean, v), inputs[::2])
