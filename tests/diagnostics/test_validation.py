"""Simulation-based calibration: correct methods stay in the band, wrong ones leave it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import inference, kernels, models, plots
from ppgp.diagnostics.prior_simulations import OfProgram
from ppgp.diagnostics.simulation_based_calibration import ecdf_band
from ppgp.errors import NotApplicable, SettingError, StorageError
from ppgp.inference import NUTS, SVI, Exact, Inference
from ppgp.inference.base import from_draws
from ppgp.models import LinearRegression
from ppgp.priors import Flat, InverseGamma
from ppgp.runtime.seeding import seeded

NIG = LinearRegression(noise=InverseGamma(3.0, 1.0), conjugate=True)


@dataclass(frozen=True)
class Distorted(Inference):
    """The exact posterior with draws stretched about their mean or shifted: wrong on purpose."""

    stretch: float = 1.0
    shift: float = 0.0

    def __call__(
        self, target: Any, *, seed: int = 0, progress: bool = False, init: Any = None
    ) -> ppgp.Posterior:
        exact = Exact(draws=200)(target, seed=seed)
        draws = {}
        for name, x in exact.draws.items():
            mean, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True)
            draws[name] = mean + self.stretch * (x - mean) + self.shift * sd
        return from_draws(self, target, draws, 0.0)


def run(how: Inference, simulations: int = 200, **options: Any) -> Any:
    return ppgp.sbc(NIG, how, simulations, progress=False, **options)


@cache
def of_distorted(how: Distorted) -> Any:
    """Return what 200 simulations find, which several tests read."""
    return run(how)


def test_exact_draws_pass() -> None:
    found = run(Exact(draws=200))
    assert found.passes
    assert set(found.to_frame().index) == {"noise", "weight[0]", "weight[1]", "bias"}
    assert "passes" in repr(found)
    assert "passes" in plots.sbc(found).axes[0].get_title()


@pytest.mark.parametrize(
    ("how", "figure", "above"),
    [
        (Distorted(stretch=0.6), "spread", 1.05),
        (Distorted(stretch=1.7), "spread", None),
        (Distorted(shift=0.5), "shift", None),
    ],
    ids=repr,
)
def test_distorted_draws_fail(how: Inference, figure: str, above: float | None) -> None:
    found = of_distorted(how)
    assert not found.passes
    table = found.to_frame()
    if figure == "spread":
        assert (table["spread"].loc[["weight[0]", "bias"]] > 1).all() == (above is not None)
    else:
        assert (table["shift"] < 0).all()


def test_the_band_has_its_nominal_coverage() -> None:
    generator = np.random.default_rng(1)
    points = np.arange(1, 100) / 100
    lower, upper = ecdf_band(150, points)
    u = generator.random((1000, 150))
    difference = np.stack([(u < p).mean(1) - p for p in points], 1)
    inside = ((difference >= lower) & (difference <= upper)).all(1).mean()
    assert inside == pytest.approx(0.95, abs=4.5 * (0.95 * 0.05 / 1000) ** 0.5 + 0.01)


def test_mean_field_on_a_correlated_posterior_fails() -> None:
    """Two inputs are nearly equal, so that the posterior of the weights is a ridge."""
    x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(20, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X = torch.cat([x, x + 0.1 * noise], 1)
    how = SVI("normal", method="deterministic", draws=200)
    found = ppgp.sbc(LinearRegression(noise=0.3), how, 20, X=X, progress=False)
    assert not found.passes
    assert (found.to_frame()["spread"].loc[["weight[0]", "weight[1]"]] > 1.1).all()


#: with a density that lacks its Jacobian, 60 simulations of the first fail
MODELS = {
    "linear": (LinearRegression(), 60, {"n": 12, "d": 1}),
    "logistic": (models.LogisticRegression(), 60, {"n": 20, "d": 2}),
    "gp": (models.GP(kernels.RBF()), 60, {"n": 12, "d": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_nuts_passes(name: str) -> None:
    """One chain of few draws is thinned to independent ones."""
    model, simulations, size = MODELS[name]
    how = NUTS(draws=100, warmup=120, chains=1)
    # three models, with one false alarm in a hundred runs of each
    found = ppgp.sbc(model, how, simulations, progress=False, level=0.99, **size)
    assert found.simulations == simulations
    assert found.passes, found.to_frame()


def test_symmetry_tests_the_means_only() -> None:
    """VSBC: a wrong spread leaves the ranks symmetric, a shift does not."""
    wide, shifted = (
        of_distorted(Distorted(**kw)).to_frame() for kw in ({"stretch": 0.6}, {"shift": 0.5})
    )
    assert (wide["p_value"] < 1e-3).any()
    assert (wide.loc[["weight[0]", "weight[1]", "bias"], "symmetry"] > 0.01 / 3).all()
    assert (shifted["symmetry"] < 1e-3).any()


def test_refused_data_are_drawn_again() -> None:
    """Three labels are of one class in more than a quarter of the simulations."""
    found = ppgp.sbc(
        models.LogisticRegression(), inference.Laplace(draws=200), 20, n=3, d=1, progress=False
    )
    assert found.simulations == 20


def test_a_call_resumes_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "sbc.jsonl"
    whole = run(Exact(draws=200), 30)
    run(Exact(draws=200), 20, checkpoint=path)
    with path.open("a") as file:
        file.write('{"i": 20, "ra')  # a line of a killed process
    again = run(Exact(draws=200), 30, checkpoint=path)
    for name, ranks in whole.ranks.items():
        np.testing.assert_array_equal(again.ranks[name], ranks)
    with pytest.raises(StorageError, match="another"):
        run(Exact(draws=201), 30, checkpoint=path)


def test_the_file_of_another_program_of_the_same_name_is_refused(tmp_path: Path) -> None:
    def written(sd: float) -> Any:
        def program(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
            slope = pyro.sample("slope", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
            with pyro.plate("rows", len(x)):
                pyro.sample("y", dist.Normal(slope * x, sd), obs=y)

        return program

    path, arguments = (
        tmp_path / "sbc.jsonl",
        {"x": torch.linspace(-1.0, 1.0, 10, dtype=torch.float64)},
    )
    how = inference.Laplace(draws=200)
    ppgp.sbc(written(0.5), how, 20, arguments=arguments, checkpoint=path, progress=False)
    with pytest.raises(StorageError, match="another"):
        ppgp.sbc(written(2.0), how, 20, arguments=arguments, checkpoint=path, progress=False)


def test_workers_do_not_change_the_ranks() -> None:
    one, two = run(Exact(draws=200), 24), run(Exact(draws=200), 24, workers=2)
    for name, ranks in one.ranks.items():
        np.testing.assert_array_equal(two.ranks[name], ranks)


def test_models_that_cannot_be_simulated_are_refused() -> None:
    with pytest.raises(NotApplicable, match="Flat for weight"):
        ppgp.sbc(LinearRegression(weight=Flat()), Exact(), progress=False)
    with pytest.raises(NotApplicable, match="spread"):
        ppgp.sbc(NIG, inference.MAP(), 20, progress=False)
    with pytest.raises(SettingError, match="20 simulations"):
        ppgp.sbc(NIG, Exact(), 5, progress=False)


def program(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(torch.zeros((), dtype=x.dtype), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)


def test_a_program_is_validated_too() -> None:
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)
    found = ppgp.sbc(program, inference.Laplace(draws=200), 60, arguments={"x": x}, progress=False)
    assert set(found.ranks) == {"slope"}
    assert found.passes


def sized_by_its_data(y: torch.Tensor) -> None:
    """A chain that only its data give a length, whose steps are parts of one argument."""
    rho = pyro.sample("rho", dist.Uniform(torch.zeros((), dtype=y.dtype), 1.0))
    before = torch.zeros((), dtype=y.dtype)
    for t in range(len(y)):
        before = pyro.sample(f"y_{t}", dist.Normal(rho * before, 1.0), obs=y[t])


def test_data_that_give_the_sizes_are_drawn_too() -> None:
    """Ranks that the values of the data entered would not be uniform: these are far from any."""
    y = torch.full((8,), 1e3, dtype=torch.float64)
    how = inference.Laplace(draws=100)
    sources = [OfProgram(sized_by_its_data, {"y": y})]
    table = torch.stack([y, y], 1)
    sources.append(OfProgram(program, {"x": table[:, 0] / 1e3, "y": table[:, 1]}))
    for source in sources:
        source.check()
        with seeded(3):
            values, _, arguments = source.drawn()
        drawn = [v for name, v in values.items() if name.startswith("y")]
        assert torch.equal(arguments["y"], torch.stack(drawn).reshape(-1))
        assert float(arguments["y"].abs().max()) < 20
    assert torch.equal(table, torch.full((8, 2), 1e3, dtype=torch.float64))
    found = ppgp.sbc(sized_by_its_data, how, 20, arguments={"y": y}, progress=False)
    assert set(found.ranks) == {"rho"}
    assert float(found.to_frame()["symmetry"].iloc[0]) > 1e-3


def test_a_program_that_reads_its_data_is_refused() -> None:
    def lagged(y: torch.Tensor) -> None:
        rho = pyro.sample("rho", dist.Uniform(torch.zeros((), dtype=y.dtype), 1.0))
        before = torch.cat([y.new_zeros(1), y[:-1]])
        with pyro.plate("steps", len(y)):
            pyro.sample("y", dist.Normal(rho * before, 1.0), obs=y)

    def centred(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros((), dtype=y.dtype), 1.0))
        with pyro.plate("steps", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y - 1)

    y, how = torch.ones(5, dtype=torch.float64), inference.Laplace()
    with pytest.raises(NotApplicable, match="'y' depends on the values of the data"):
        ppgp.sbc(lagged, how, 20, arguments={"y": y}, progress=False)
    with pytest.raises(NotApplicable, match="pass the tensor that the site observes"):
        ppgp.sbc(centred, how, 20, arguments={"y": y}, progress=False)


def test_a_program_without_data_is_refused() -> None:
    def no_data(x: torch.Tensor) -> None:
        pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))

    with pytest.raises(NotApplicable, match="arguments=dict"):
        ppgp.sbc(no_data, inference.Laplace(), 20, arguments={"x": torch.ones(2)}, progress=False)


def test_discrete_sites_are_drawn_and_summed_out() -> None:
    """Components far apart: the posterior of their means is Gaussian, and Laplace exact."""

    def mixture(y: torch.Tensor) -> None:
        loc = pyro.sample("loc", dist.Normal(torch.tensor([-30.0, 30.0]), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", dist.Categorical(torch.tensor([0.3, 0.7])))
            pyro.sample("y", dist.Normal(loc[k], 1.0), obs=y)

    found = ppgp.sbc(
        mixture,
        inference.Laplace(draws=99),
        20,
        arguments={"y": torch.zeros(8)},
        progress=False,
        level=0.999,
    )
    assert list(found.ranks) == ["loc[0]", "loc[1]"]
    assert bool(found.to_frame()["inside"].all())
