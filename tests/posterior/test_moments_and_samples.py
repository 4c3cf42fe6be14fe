"""Moments by total variance, units, samples, joint distributions and indexing of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from mixtures import ALL, CONTINUOUS, DRAWS, ROWS, Mixture
from scipy import stats

from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.posterior.prediction import Prediction
from ppgp.runtime.seeding import seeded

FINITE = {name: m for name, m in ALL.items() if name != "Cauchy"}
finite = pytest.mark.parametrize("m", FINITE.values(), ids=FINITE.keys())
NORMAL = CONTINUOUS["Normal"].distribution
OFFSET, SCALE = 7.0, 2.5


@finite
def test_mean_and_variance_are_those_of_the_mixture(m: Mixture) -> None:
    prediction = Prediction(m.distribution)
    rows = [m.row(i) for i in range(ROWS)]
    mean = np.array([row.mean().mean() for row in rows])
    second = np.array(
        [(row.var() + (row.mean() - mu) ** 2).mean() for row, mu in zip(rows, mean, strict=True)]
    )
    np.testing.assert_allclose(prediction.mean.numpy(), mean, rtol=1e-10)
    np.testing.assert_allclose(prediction.variance.numpy(), second, rtol=1e-8)
    np.testing.assert_allclose(prediction.std.numpy() ** 2, second, rtol=1e-8)


@finite
def test_variance_is_epistemic_plus_aleatoric(m: Mixture) -> None:
    prediction = Prediction(m.distribution, OFFSET, SCALE)
    torch.testing.assert_close(prediction.epistemic + prediction.aleatoric, prediction.variance)


def test_one_draw_has_no_epistemic_variance() -> None:
    assert Prediction(CONTINUOUS["one Normal"].distribution).epistemic.tolist() == [0.0] * ROWS


@finite
def test_samples_have_the_moments_of_the_distribution(m: Mixture) -> None:
    k, prediction = 20_000, Prediction(m.distribution)
    draws = prediction.sample(k, seed=0)
    assert draws.shape == (k, ROWS)
    sd, centred = draws.std(0), draws - draws.mean(0)
    assert bool(((draws.mean(0) - prediction.mean).abs() < 5 * sd / k**0.5).all())
    if "StudentT" not in repr(
        m.distribution
    ):  # the fourth moment, and so the error of a variance, may be infinite
        error = ((centred**4).mean(0) - sd**4).clamp_min(0).sqrt() / k**0.5
        assert bool(((draws.var(0) - prediction.variance).abs() < 5 * error + 1e-12).all())


def test_samples_follow_the_seed_and_use_no_other_random_numbers() -> None:
    prediction, state = Prediction(NORMAL), torch.get_rng_state()
    assert torch.equal(prediction.sample(7, seed=3), prediction.sample(7, seed=3))
    assert not torch.equal(prediction.sample(7, seed=3), prediction.sample(7, seed=4))
    assert torch.equal(torch.get_rng_state(), state)
    assert prediction.sample().shape == (1, ROWS)


@pytest.mark.parametrize("name", ["Normal", "StudentT", "Gamma"])
def test_offset_and_scale_convert_every_statistic_to_the_units_of_the_data(name: str) -> None:
    distribution = CONTINUOUS[name].distribution
    inner, outer = (
        Prediction(distribution),
        Prediction(distribution, OFFSET, torch.tensor(SCALE).double()),
    )
    y = inner.quantile(0.3)
    there = OFFSET + SCALE * y
    for moved, plain in (
        (outer.mean, OFFSET + SCALE * inner.mean),
        (outer.std, SCALE * inner.std),
        (outer.epistemic, SCALE**2 * inner.epistemic),
        (outer.aleatoric, SCALE**2 * inner.aleatoric),
        (outer.quantile(0.3), there),
        (outer.interval(0.9).upper, OFFSET + SCALE * inner.interval(0.9).upper),
        (outer.cdf(there), inner.cdf(y)),
        (outer.pit(there), inner.pit(y)),
        (outer.crps(there), SCALE * inner.crps(y)),
        (outer.log_prob(there), inner.log_prob(y) - np.log(SCALE)),
        (outer.sample(5, seed=1), OFFSET + SCALE * inner.sample(5, seed=1)),
    ):
        torch.testing.assert_close(moved, plain, rtol=1e-9, atol=1e-9)


def test_a_scaled_density_still_integrates_to_one() -> None:
    y = torch.linspace(-100, 100, 20_001, dtype=torch.float64)
    distribution = torch.distributions.Normal(
        torch.tensor([[-1.0], [2.0]]).double(), torch.ones(2, 1).double()
    )
    density = torch.cat(
        [Prediction(distribution, OFFSET, SCALE).log_prob(v[None]).exp() for v in y[::10]]
    )
    assert float(torch.trapezoid(density, y[::10])) == pytest.approx(1.0, rel=1e-6)


def test_a_distribution_without_a_draw_axis_is_one_draw() -> None:
    prediction = Prediction(dist.Normal(torch.zeros(4), torch.ones(4)))
    assert (prediction.draws, len(prediction)) == (1, 4)
    assert "continuous" in repr(prediction)


@pytest.mark.parametrize("shape", [(), (2, 3, 4)], ids=str)
def test_a_distribution_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"batch \[draw, n\]"):
        Prediction(dist.Normal(torch.zeros(shape), torch.ones(shape)))


def test_targets_of_another_length_are_refused() -> None:
    for use in ("cdf", "log_prob", "crps", "pit"):
        with pytest.raises(DataError, match=r"one y per row \(3\)"):
            getattr(Prediction(NORMAL), use)(np.zeros(4))


@pytest.mark.parametrize(
    "index",
    [
        slice(1, None),
        [2, 0],
        np.array([2, 0]),
        torch.tensor([2, 0]),
        [True, False, True],
        np.array([True, False, True]),
        1,
        -1,
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["Normal", "StudentT", "Poisson", "NegativeBinomial"])
def test_indexing_selects_rows_of_every_statistic(name: str, index: object) -> None:
    distribution = ALL[name].distribution
    seen = torch.tensor([True, False, True])
    whole, part = (
        Prediction(distribution, OFFSET, 1.0, in_training=seen),
        Prediction(distribution, OFFSET, 1.0, in_training=seen)[index],
    )
    rows = np.atleast_1d(np.arange(ROWS)[index])
    y = OFFSET + torch.arange(3, dtype=torch.float64)
    assert (part.draws, len(part)) == (DRAWS, len(rows))
    assert part.in_training is not None
    assert torch.equal(part.in_training, seen[rows])
    torch.testing.assert_close(part.mean, whole.mean[rows])
    torch.testing.assert_close(part.log_prob(y[rows]), whole.log_prob(y)[rows])
    torch.testing.assert_close(part.quantile(0.7), whole.quantile(0.7)[rows])


def test_an_index_past_the_end_raises() -> None:
    with pytest.raises(IndexError):
        Prediction(NORMAL)[ROWS]


def joint() -> tuple[torch.Tensor, torch.Tensor]:
    A = torch.randn(
        DRAWS, ROWS, ROWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return NORMAL.loc, A @ A.mT + 0.3 * torch.eye(ROWS, dtype=torch.float64)


def test_a_joint_distribution_has_one_density_over_all_rows() -> None:
    mean, covariance = joint()
    prediction = Prediction(dist.MultivariateNormal(mean, covariance), OFFSET, SCALE)
    y = np.array([6.0, 7.0, 9.0])
    each = [
        stats.multivariate_normal(OFFSET + SCALE * m.numpy(), SCALE**2 * c.numpy()).pdf(y)
        for m, c in zip(mean, covariance, strict=True)
    ]
    assert prediction.joint
    assert prediction.log_prob(y).shape == ()
    assert float(prediction.log_prob(y)) == pytest.approx(float(np.log(np.mean(each))), rel=1e-10)


def test_the_rows_of_a_joint_distribution_have_its_marginals() -> None:
    mean, covariance = joint()
    whole = Prediction(dist.MultivariateNormal(mean, covariance), OFFSET, SCALE)
    rows = Prediction(
        dist.Normal(mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt()), OFFSET, SCALE
    )
    y = torch.tensor([6.0, 7.0, 9.0]).double()
    for figure in (
        lambda p: p.mean,
        lambda p: p.std,
        lambda p: p.quantile(0.2),
        lambda p: p.crps(y),
        lambda p: p.cdf(y),
    ):
        torch.testing.assert_close(figure(whole), figure(rows), rtol=1e-9, atol=1e-9)


def test_samples_of_a_joint_distribution_have_its_covariance() -> None:
    k, covariance = 20_000, joint()[1][:1]
    prediction = Prediction(
        dist.MultivariateNormal(torch.zeros(1, ROWS).double(), covariance), OFFSET, SCALE
    )
    found, C = torch.cov(prediction.sample(k).mT), SCALE**2 * covariance[0]
    error = ((C.square() + C.diagonal()[:, None] * C.diagonal()) / k).sqrt()
    assert bool(((found - C).abs() < 5 * error).all())


def test_an_independent_distribution_over_rows_is_joint_with_the_product_density() -> None:
    prediction = Prediction(dist.Normal(NORMAL.loc, NORMAL.scale).to_event(1))
    y = torch.zeros(ROWS).double()
    expected = torch.logsumexp(NORMAL.log_prob(y).sum(-1), 0) - np.log(DRAWS)
    torch.testing.assert_close(prediction.log_prob(y), expected)
    torch.testing.assert_close(prediction.mean, NORMAL.loc.mean(0))


def test_rows_of_a_joint_distribution_cannot_be_selected() -> None:
    mean, covariance = joint()
    with pytest.raises(NotApplicable, match="predict without joint=True"):
        Prediction(dist.MultivariateNormal(mean, covariance))[0]


def test_quantiles_take_one_probability_several_or_one_for_each_row() -> None:
    prediction = Prediction(dist.Normal(torch.zeros(2, dtype=torch.float64), 1.0))
    assert prediction.quantile(torch.tensor([[0.2, 0.5]]))[0, 1] == 0.0
    assert prediction.quantile([0.5, 0.5, 0.9])[1].tolist() == [0.0, 0.0]
    with pytest.raises(SettingError, match=r"each of 2 rows, got shape \[1, 3\]: for example"):
        prediction.quantile(torch.tensor([[0.1, 0.5, 0.9]]))


UNIFORM = torch.from_numpy(np.random.default_rng(5).random((7, 5)))


@pytest.mark.parametrize(
    "distribution",
    [
        dist.Normal(UNIFORM * 4, 0.7),
        dist.Normal(UNIFORM[:1], 0.7),
        dist.StudentT(2.5, UNIFORM, 3.0),
        dist.Poisson(UNIFORM * 9),
        dist.NegativeBinomial(3.0, UNIFORM),
        Prediction.from_samples((UNIFORM * 9).round().int().numpy()).distribution,
        Prediction.from_quantiles(UNIFORM[:3].mT.sort(1).values, [0.01, 0.5, 0.99]).distribution,
    ],
    ids=lambda d: f"{type(d).__name__}{d.batch_shape[0]}",
)
@pytest.mark.parametrize("rows", [5, 1, 3])  # as many rows as levels, one, and others
def test_several_quantiles_are_those_of_each_level(distribution: Any, rows: int) -> None:
    prediction = Prediction(distribution, offset=2.0, scale=3.0)[:rows]
    levels = [0.01, 0.3, 0.9]
    found = prediction.quantile(levels)
    each = torch.stack([prediction.quantile(p) for p in levels])
    assert found.shape == (3, rows)
    torch.testing.assert_close(found, each, rtol=1e-13, atol=1e-13)
    again = prediction.quantile(torch.tensor(levels, dtype=torch.float64)[:, None].expand(3, rows))
    torch.testing.assert_close(again, each, rtol=1e-13, atol=1e-13)


def test_every_random_generator_that_is_seeded_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed seeds all GPUs, and those that are used later.

    fork_rng restores only the devices that are passed to it.
    """
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2)
    assert not seeds
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, torch.rand(2, generator=torch.Generator().manual_seed(3)))
