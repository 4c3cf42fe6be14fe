"""Predictions of varying coefficients against the dense Gaussian distribution of all rows."""

from __future__ import annotations

import math

import pytest
import torch

import ppgp
from ppgp import inference
from ppgp.data import Dataset
from ppgp.likelihoods import Gaussian, Poisson
from ppgp.likelihoods.joint_rows import LatentMarginal
from ppgp.models import GLM, Varying
from ppgp.posterior.posterior import AT_A_MODE
from ppgp.priors import Normal
from ppgp.runtime.seeding import seeded

F64 = torch.float64
SD = {"a": (0.7, 0.4), "b": (0.5,)}  # of intercept and slope, and of an intercept
WEIGHT, NOISE = (0.8, -0.3), 0.3


def design(X: torch.Tensor, a: list[str], b: list[str]) -> torch.Tensor:
    """Return the columns that the coefficients of 3 levels of a, then 2 of b, multiply."""
    columns = []
    for level in ("a0", "a1", "a2"):
        own = torch.tensor([float(x == level) for x in a], dtype=F64)
        columns += [own, own * X[:, 0]]
    columns += [torch.tensor([float(x == level) for x in b], dtype=F64) for level in ("b0", "b1")]
    return torch.stack(columns, 1)


@pytest.mark.parametrize("standardise", [True, False])
def test_rows_of_weights_known_noise_and_two_groupings(standardise: bool) -> None:
    g = torch.Generator().manual_seed(1)
    X, e = torch.randn(20, 2, generator=g, dtype=F64), torch.randn(20, generator=g, dtype=F64)
    y = 0.4 + X[:, 0] + e
    a, b = [f"a{i % 3}" for i in range(20)], [f"b{i * i % 2}" for i in range(20)]
    weights, known = torch.arange(20).remainder(3).to(F64), 0.1 + e.abs()
    model = GLM(
        Gaussian(NOISE),
        WEIGHT,
        Normal(0.0, 1.0),
        groups={"a": Varying(("1", 0), SD["a"]), "b": Varying("1", SD["b"])},
    )
    data = Dataset(X, y, weights=weights, noise_sd=known, groups={"a": a, "b": b})
    how = inference.Laplace(draws=1)
    posterior = ppgp.fit(model, data, how, standardise=standardise, progress=False)
    found = posterior.coefficients()
    torch.testing.assert_close(found["weight"][0, 0], torch.tensor(WEIGHT, dtype=F64))

    new, new_a, new_b = X[:4] + 0.5, ["a0", "a2", "?", "?"], ["b1", "?", "b0", "?"]
    prediction = posterior.predict(
        new, groups={"a": new_a, "b": new_b}, noise_sd=torch.full((4,), 0.2, dtype=F64)
    )
    times = torch.repeat_interleave(torch.arange(20), weights.long())
    prior = torch.tensor([s**2 for s in SD["a"] * 3 + SD["b"] * 2], dtype=F64)
    Z, Z_new = design(X, a, b)[times], design(new, new_a, new_b)
    C = Z @ (prior[:, None] * Z.mT) + torch.diag(NOISE + known[times].square())
    cross = Z_new @ (prior[:, None] * Z.mT)
    weight, bias = torch.tensor(WEIGHT, dtype=F64), found["bias"][0, 0]
    mean = new @ weight + bias + cross @ torch.linalg.solve(C, y[times] - X[times] @ weight - bias)
    own = (Z_new * prior) @ Z_new.mT - cross @ torch.linalg.solve(C, cross.mT)
    unknown_a = torch.tensor([float(x == "?") for x in new_a], dtype=F64)
    unknown_b = torch.tensor([float(x == "?") for x in new_b], dtype=F64)
    unknown = unknown_a * (SD["a"][0] ** 2 + (SD["a"][1] * new[:, 0]) ** 2)
    variance = own.diagonal() + unknown + unknown_b * SD["b"][0] ** 2 + NOISE + 0.04
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(prediction.mean, mean, **close)
    torch.testing.assert_close(prediction.variance, variance, **close)


def test_joint_draws_of_rows_in_few_groups_need_no_warning() -> None:
    """Two groups make a covariance of rank 2, and an sd of 0 one of rank 0."""
    Z = torch.nn.functional.one_hot(torch.arange(40) % 2).double()
    mean = torch.full((40,), 3.0, dtype=F64)
    found = {}
    for variance in (0.5, 0.0):
        joint = LatentMarginal(Poisson(), {}, mean, variance * Z @ Z.mT).expand([500])
        with seeded(0):
            found[variance] = y = joint.sample()
        off = y.mean(0) - (mean + variance / 2).exp()
        assert bool((off.abs() < 5 * (y.var(0) / 500).sqrt()).all())
    same, other = (torch.corrcoef(found[0.5][:, [0, j]].mT)[0, 1] for j in (2, 1))
    m = math.exp(3.25)
    expected = m * math.expm1(0.5) / (1 + m * math.expm1(0.5))  # of counts given log-normal rates
    assert float(same) == pytest.approx(expected, abs=5 / 500**0.5)
    assert float(other) == pytest.approx(0.0, abs=5 / 500**0.5)


def test_the_table_of_effects_at_a_mode_has_their_means_and_sds_given_it() -> None:
    """One group mean: u given n rows is N(shrunk mean, 1 / (1 / sd^2 + n / noise))."""
    y = torch.tensor([0.2, 1.9, 1.1, -0.7, 2.3, 0.4], dtype=F64)
    codes = torch.tensor([0, 0, 0, 1, 1, 2])
    data = Dataset(torch.zeros(6, 1, dtype=F64), y, groups={"g": codes})
    model = GLM(Gaussian(0.5), 0.0, 0.0, groups={"g": Varying("1", 0.8)})
    posterior = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
    rows = posterior.effects_table()
    precision = 1 / 0.64 + torch.bincount(codes) / 0.5
    mean = torch.zeros(3, dtype=F64).index_add(0, codes, y) / 0.5 / precision
    off = (torch.tensor(rows["mean"].to_numpy()) - mean).abs()
    assert bool((off < 5 * (precision * AT_A_MODE).rsqrt()).all())
    ratio = torch.tensor(rows["sd"].to_numpy()) * precision.sqrt()
    assert bool(((ratio - 1).abs() < 5 / (2 * AT_A_MODE) ** 0.5).all())
