"""Several starts, on a likelihood whose two peaks are known from a grid, and their warnings."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, SettingError
from ppgp.inference.optimise.search_starts import ENOUGH, SEVERAL, elsewhere, from_prior

GENERATOR = torch.Generator().manual_seed(7)
X = torch.linspace(-3, 3, 9, dtype=torch.float64)[:, None] + 0.3 * torch.randn(
    9, 1, generator=GENERATOR, dtype=torch.float64
)
WIGGLES = torch.sin(3 * X[:, 0]) + 0.5 * X[:, 0]
DATA = Dataset(X, WIGGLES + 0.3 * torch.randn(9, generator=GENERATOR, dtype=torch.float64))
SILL = float(DATA.y.var(correction=0))  # a variance of 1 on the standardised scale
GP = models.GP(kernels.RBF(variance=SILL, lengthscale=priors.Flat()), noise=priors.Flat())
RIVALS = r"2 modes within 3 nats \(the other [^,]* below the best\)"


def peaks() -> list[tuple[float, float, float]]:
    """Return the peaks of the likelihood on a grid, best first.

    Each is (log likelihood, log lengthscale, log noise).
    """
    data = DATA.standardised()[0]
    apart = (data.X - data.X.mT).square()
    ell, noise = np.meshgrid(np.linspace(-4, 2, 121), np.linspace(-6, 2, 161), indexing="ij")
    C = torch.exp(-0.5 * apart / torch.from_numpy(np.exp(2 * ell))[..., None, None])
    C = C + torch.from_numpy(np.exp(noise))[..., None, None] * torch.eye(9, dtype=torch.float64)
    height = (
        torch.distributions.MultivariateNormal(torch.zeros(9, dtype=torch.float64), C)
        .log_prob(data.y)
        .numpy()
    )
    inside = height[1:-1, 1:-1]
    around = [
        height[1 + i : 120 + i, 1 + j : 160 + j]
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
        if (i, j) != (0, 0)
    ]
    where = np.argwhere(inside > np.max(around, axis=0)) + 1
    return sorted(
        ((float(height[i, j]), float(ell[i, j]), float(noise[i, j])) for i, j in where),
        reverse=True,
    )


def test_both_peaks_of_a_gp_are_found_and_the_higher_is_the_answer() -> None:
    high, low = peaks()
    one = ppgp.fit(GP, DATA, inference.MAP(starts=1), progress=False)
    assert one.stats["log_density"] == pytest.approx(
        low[0], abs=0.02
    )  # the usual start leads to the lower one
    with pytest.warns(ConvergenceWarning, match=RIVALS):
        many = ppgp.fit(GP, DATA, inference.MAP(starts=8), progress=False, seed=1)
    ends, heights = many.stats["ends"], many.stats["end_log_densities"]
    assert ends.shape == (8, 2)
    assert many.stats["log_density"] == pytest.approx(high[0], abs=0.02)
    assert float(many.draws["kernel.lengthscale"].log()) == pytest.approx(high[1], abs=0.05)
    for end, height in zip(ends, heights, strict=True):
        peak = high if abs(float(height) - high[0]) < abs(float(height) - low[0]) else low
        assert np.allclose(end, peak[1:], atol=0.06)  # the grid's spacing is 0.05
    assert float(heights[0]) == pytest.approx(one.stats["log_density"], abs=1e-6)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_laplace_expands_around_the_higher_peak_too() -> None:
    """The peaks are those of the density with its Jacobian; the usual start leads to the lower."""
    wide = priors.LogNormal(0.0, 3.5)
    model = models.GP(kernels.RBF(variance=SILL, lengthscale=wide), noise=wide)
    one, many = (
        ppgp.fit(model, DATA, inference.Laplace(draws=20, starts=k), progress=False, seed=1)
        for k in (1, SEVERAL)
    )
    target = Target(many.model, many.data)
    low, high = (float(target.value_and_grad(result.stats["mode"])[0]) for result in (one, many))
    assert high == pytest.approx(float(many.stats["end_log_densities"].max()), abs=1e-6)
    assert high > low + 0.1
    assert len(many.stats["ends"]) == SEVERAL


def test_searches_stop_once_the_first_five_end_alike() -> None:
    x = torch.linspace(-3, 3, 40, dtype=torch.float64)
    noise = 0.1 * torch.randn(40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    plain = Dataset(x[:, None], torch.sin(2 * x) + noise)
    model = models.GP(kernels.RBF(1.0, 1.0), noise=priors.Flat())
    for how in (inference.MAP, inference.Laplace):
        assert len(ppgp.fit(model, plain, how(), progress=False).stats["ends"]) == ENOUGH
        assert (
            len(ppgp.fit(model, plain, how(starts=SEVERAL), progress=False).stats["ends"])
            == SEVERAL
        )
    assert (
        "ends" not in ppgp.fit(models.GP(), plain, inference.Laplace(draws=2), progress=False).stats
    )


def test_flat_sills_and_ranges_start_on_the_scale_of_the_rows() -> None:
    """In metres and squared milligrams, a sill of 1 and a range of 1 are no useful start."""
    generator = torch.Generator().manual_seed(0)
    X = 5000 * torch.rand(30, 2, generator=generator, dtype=torch.float64)
    y = (
        300
        + 200 * torch.sin(X[:, 0] / 800)
        + 20 * torch.randn(30, generator=generator, dtype=torch.float64)
    )
    flat = priors.Flat()
    inner = (
        kernels.Exponential(flat, flat)
        + kernels.Linear(flat)
        + kernels.RBF(flat, priors.Flat(start=70.0))
    )
    for scale in (1.0, 1e3):
        model, data = models.Kriging(inner, flat), Dataset(scale * X, y)
        begun = Target(model.prepare(data), data).constrain(
            Target(model.prepare(data), data).origin()
        )
        values = {name: float(value) for name, value in begun.items()}
        assert values["variogram.0.variance"] == pytest.approx(float(y.var()))
        assert 300 * scale < values["variogram.0.lengthscale"] < 1000 * scale
        assert values["variogram.1.variance"] == pytest.approx(
            float(y.var()) / values["variogram.0.lengthscale"] ** 2
        )
        assert values["variogram.2.lengthscale"] == pytest.approx(70.0)
        assert 0 < values["nugget"] < float(y.var())


def test_the_ends_depend_on_the_seed_alone() -> None:
    recipe = models.GP()
    target = Target(recipe, DATA.standardised()[0])
    assert torch.equal(from_prior(target, 3), from_prior(target, 3))
    assert not torch.equal(from_prior(target, 3), from_prior(target, 4))
    a, b = (
        ppgp.fit(recipe, DATA, inference.MAP(starts=3), progress=False, seed=5) for _ in range(2)
    )
    assert torch.equal(a.stats["ends"], b.stats["ends"])


def test_starts_follow_the_prior_on_the_unconstrained_scale() -> None:
    target = Target(
        models.GP(kernels.RBF(1.0, priors.LogNormal(0.7, 0.4)), noise=0.1), DATA.standardised()[0]
    )
    z = torch.stack([from_prior(target, i) for i in range(400)])[:, 0]
    assert abs(float(z.mean()) - 0.7) < 4.5 * 0.4 / 400**0.5
    assert abs(float(z.std()) / 0.4 - 1) < 4.5 / 800**0.5
    flat = Target(models.GP(kernels.RBF(1.0, priors.Flat()), noise=0.1), DATA.standardised()[0])
    away = torch.stack([from_prior(flat, i) for i in range(400)])[:, 0] - flat.origin()
    assert float(away.abs().max()) <= 2
    assert abs(float(away.std()) - 4 / 12**0.5) < 0.15


def test_a_single_mode_and_a_straight_ridge_give_no_warning() -> None:
    X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = Dataset(
        X,
        X[:, 0]
        + 0.3 * torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ppgp.fit(models.LinearRegression(), data, inference.MAP(starts=4), progress=False)
        # the second column is irrelevant: under a flat prior its lengthscale has no finite mode
        ridge = models.GP(
            kernels.ARD(kernels.RBF(variance=1.0, lengthscale=priors.Flat())), noise=0.1
        )
        ends = ppgp.fit(ridge, Dataset(X, X[:, 0]), inference.MAP(starts=4), progress=False).stats[
            "ends"
        ]
    assert float(ends[:, 1].max() - ends[:, 1].min()) > 0.5


def test_mirrored_modes_of_a_program_are_reported() -> None:
    def program(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 3.0))
        pyro.sample("y", dist.Normal(a**2, 1.0), obs=y)

    with pytest.warns(ConvergenceWarning, match=RIVALS):
        result = ppgp.fit(
            program,
            {"y": torch.tensor(4.0)},
            inference.MAP(starts=10),
            progress=False,
            init=torch.tensor([1.0]),
        )
    ends = result.stats["ends"][:, 0]
    assert set(ends.sign().tolist()) == {-1.0, 1.0}
    assert float(ends.abs().std()) < 1e-3


def test_networks_start_at_their_own_weights() -> None:
    from ppgp import networks

    recipe = models.GP(kernels.Deep(networks.MLP((4,), 2), kernels.RBF()))
    target = Target(recipe.prepare(DATA), DATA, optimise_params=True)
    weights = [name for name, s in target.slices.items() if s.param]
    z, origin = from_prior(target, 0), target.origin()
    assert weights
    assert all(
        torch.equal(target.slices[name].of(z), target.slices[name].of(origin)) for name in weights
    )
    assert not torch.equal(z, origin)


def test_zero_starts_are_refused() -> None:
    with pytest.raises(SettingError, match="starts of MAP"):
        inference.MAP(starts=0)


@pytest.mark.data("kriging/meuse.csv")
@pytest.mark.filterwarnings(
    "ignore::ppgp.errors.ConvergenceWarning"
)  # several starts end apart, and say so
def test_several_starts_find_the_anisotropy_of_the_meuse(data_dir: Path) -> None:
    """Zinc by REML: isotropy is a mode some 5 nats below the anisotropy along the river.

    A search that starts there stays there.
    """
    import pandas as pd

    frame = pd.read_csv(data_dir / "kriging" / "meuse.csv")
    data = Dataset(frame[["x", "y"]].to_numpy(float), np.log(frame["zinc"].to_numpy(float)))
    inner = kernels.Exponential(priors.LogNormal(-0.7, 1.0), priors.LogNormal(7.0, 0.5))
    model = models.Kriging(kernels.Anisotropy(inner))
    target = Target(model.prepare(data), data)
    place = {
        "variogram.angle": 120.0,
        "variogram.ratio": 0.97,
        "variogram.variance": 0.6,
        "variogram.lengthscale": 700.0,
    }
    across = target.unconstrain(
        {n: torch.tensor(v, dtype=torch.float64) for n, v in {**place, "nugget": 0.02}.items()}
    )
    one, many = (
        ppgp.fit(model, data, inference.MAP(starts=k), progress=False, init=across) for k in (1, 6)
    )
    assert many.stats["log_density"] > one.stats["log_density"] + 4
    assert 20 < float(many.draws["variogram.angle"]) < 40
    assert any("start" in sentence for sentence in many.warnings)


def wiggly(seed: int) -> Dataset:
    """Return 20 rows of a smooth function of lengthscale 0.25 on a slope, with little noise."""
    random = np.random.default_rng(seed)
    x = np.sort(random.normal(0.0, 0.8, 20))
    K = np.exp(-0.5 * ((x[:, None] - x) / 0.25) ** 2) + 1e-8 * np.eye(20)
    f = np.linalg.cholesky(K) @ random.normal(size=20)
    return Dataset(x[:, None], f + 0.1 * random.normal(size=20) + 0.5 * x + 1.0)


FLAT = priors.Flat()
WIDE = priors.LogNormal(0.0, 5.0)
LIKELIHOOD = models.GP(kernels.RBF(FLAT, FLAT), noise=FLAT, mean=FLAT)


def test_flat_priors_get_several_starts_and_a_warning_about_the_ends() -> None:
    """From 1 on the standardised scale, the search ends 6.9 nats below the best of 40 starts."""
    data = wiggly(12)
    one = ppgp.fit(LIKELIHOOD, data, inference.MAP(starts=1), progress=False)
    with pytest.warns(ConvergenceWarning, match="ended apart"):
        result = ppgp.fit(LIKELIHOOD, data, inference.MAP(), progress=False)
    heights = result.stats["end_log_densities"]
    assert len(heights) == len(result.stats["losses_of_starts"]) > 4
    assert result.stats["log_density"] == float(heights.max())
    assert result.stats["log_density"] - one.stats["log_density"] == pytest.approx(6.86, abs=0.02)
    assert float(result.draws["noise"]) < 0.1 * float(one.draws["noise"])
    lowest = [-float(losses.min()) for losses in result.stats["losses_of_starts"]]
    assert heights.tolist() == pytest.approx(lowest, abs=1e-9)
    assert any("ended apart" in sentence and "6.9" in sentence for sentence in result.warnings)


@pytest.mark.parametrize(
    ("model", "several"),
    [
        (models.GP(), False),
        (models.GP(kernels.RBF(lengthscale=FLAT)), True),
        (models.GP(mean=FLAT), True),
        (models.GP(noise=WIDE), True),
        (models.GP(noise=priors.LogNormal(0.0, 3.0)), False),
        (models.GP(noise=priors.Gamma(0.05, 1.0)), True),  # its log has an sd of 20
        (models.GP(noise=priors.HalfCauchy()), False),
        (models.GP(kernels.RBF(lengthscale=priors.InverseGamma(0.1, 1.0))), True),
        (
            models.GP(mean=priors.Normal(0.0, 1e3)),
            False,
        ),  # a wide prior on the real line leaves no scale open
        (models.LogisticRegression(FLAT, FLAT), False),  # one mode
    ],
    ids=repr,
)
def test_priors_that_leave_a_scale_open_get_several_starts(
    model: models.Model, several: bool
) -> None:
    from ppgp.inference.optimise.search_starts import plan_of_starts

    y = (wiggly(1).y > 1).double() if isinstance(model, models.LogisticRegression) else wiggly(1).y
    target = Target(model, Dataset(wiggly(1).X, y))
    assert (plan_of_starts(target, None, None).starts > 1) is several
    assert plan_of_starts(target, None, target.origin()).starts == 1


def test_a_program_with_a_wide_prior_gets_several_starts() -> None:
    def program(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.LogNormal(0.0, 5.0))
        pyro.sample("y", dist.Normal(0.0, scale).expand([3]).to_event(1), obs=y)

    result = ppgp.fit(
        program, {"y": torch.tensor([1.0, -2.0, 3.0])}, inference.MAP(), progress=False
    )
    assert len(result.stats["ends"]) > 4


def test_a_member_of_an_ensemble_makes_one_search() -> None:
    result = ppgp.fit(LIKELIHOOD, wiggly(12), inference.Ensemble(members=3), progress=False)
    assert result.stats["log_density"].shape == (3,)
    assert "ends" not in result.stats
    assert not any("ended apart" in sentence for sentence in result.warnings)


def test_starts_of_a_wide_prior_lie_around_its_median() -> None:
    target = Target(models.GP(noise=priors.LogNormal(4.0, 30.0)), wiggly(1).standardised()[0])
    z = torch.stack([target.slices["noise"].of(from_prior(target, i)) for i in range(60)])
    assert float((z - 4.0).abs().max()) <= 2


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_components_of_a_mixture_are_told_apart() -> None:
    """At the usual start they are equal, and one search stays there."""

    def program(y: torch.Tensor) -> None:
        with pyro.plate("components", 2):
            means = pyro.sample("means", dist.Normal(torch.zeros((), dtype=y.dtype), 10.0))
        with pyro.plate("rows", len(y)):
            half = torch.full((2,), 0.5, dtype=y.dtype)
            z = pyro.sample("z", dist.Categorical(half), infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(means[z], 1.0), obs=y)

    y = torch.tensor([-4.0, -5.0, -6.0, 4.0, 5.0, 6.0], dtype=torch.float64)
    one = ppgp.fit(program, {"y": y}, inference.MAP(starts=1), progress=False)
    assert torch.allclose(one.draws["means"], torch.zeros(2, dtype=y.dtype), atol=1e-4)
    for how in (inference.MAP(), inference.Laplace(draws=20)):
        several = ppgp.fit(program, {"y": y}, how, progress=False)
        found = several.draws["means"].mean((0, 1)).sort().values
        # the prior shrinks a mean of three rows by 1 / 301, and draws have an sd of 0.6
        assert torch.allclose(found, torch.tensor([-4.98, 4.98], dtype=y.dtype), atol=0.7)
        assert any(re.match(RIVALS, warning) for warning in several.warnings)


F64 = torch.float64
GENERATED = torch.Generator().manual_seed(11)


def heavy_tails(y: Tensor) -> None:
    """Each cluster of the rows is a mode of the location, and so is the middle."""
    m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 10.0))
    law: Any = dist.StudentT(torch.tensor(2.0, dtype=F64), m, 0.3)
    pyro.sample("y", law.expand(y.shape).to_event(1), obs=y)


def one_factor(y: Tensor) -> None:
    """Loadings of 0 are a saddle: the density is the same at L and at -L."""
    loadings = pyro.sample("loadings", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    C = torch.outer(loadings, loadings) + 0.3 * torch.eye(3, dtype=F64)
    law: Any = dist.MultivariateNormal(torch.zeros(3, dtype=F64), C)
    pyro.sample("y", law.expand([len(y)]).to_event(1), obs=y)


def mixture(y: Tensor) -> None:
    """A mixture that is summed out by hand."""
    means = pyro.sample("means", dist.Normal(torch.zeros(3, dtype=F64), 5.0).to_event(1))
    shares = dist.Categorical(torch.full((3,), 1 / 3, dtype=F64))
    law = dist.MixtureSameFamily(shares, dist.Normal(means, 0.7))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", law, obs=y)


def around(centres: list[float], rows: int) -> Tensor:
    """Return rows around each centre."""
    noise = 0.3 * torch.randn(len(centres), rows, generator=GENERATED, dtype=F64)
    return (torch.tensor(centres, dtype=F64)[:, None] + noise).reshape(-1)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    ("program", "y"),
    [
        (heavy_tails, torch.cat([around([-5.0], 12), around([5.0], 8)])),
        (
            one_factor,
            torch.randn(60, 1, generator=GENERATED, dtype=F64)
            * torch.tensor([1.0, -1.0, 0.7], dtype=F64),
        ),
        (mixture, around([-5.0, 0.0, 6.0], 15)),
    ],
    ids=["heavy tails", "a saddle", "a mixture"],
)
def test_programs_with_several_modes_end_in_the_best(program: Any, y: Tensor) -> None:
    found, many = (
        ppgp.fit(program, {"y": y}, how, progress=False)
        for how in (inference.MAP(), inference.MAP(starts=16))
    )
    assert found.stats["log_density"] >= many.stats["log_density"] - 0.1


def test_gaps_of_other_ends_are_written_without_a_power_of_ten() -> None:
    found = elsewhere(torch.tensor([-10.0, -12.5, -141.0]))
    assert found == "2 of 3 searches ended elsewhere, 2.5 to 130 nats below the best"
