"""Every metric of NUTS samples the same strongly correlated Gaussian."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import diagnostics, inference
from ppgp.errors import UnknownName
from ppgp.inference.mcmc import nutpie_chains
from ppgp.inference.mcmc.nutpie_sampler import low_rank_mass_matrix

MEAN = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
ROOT = torch.tensor([[1.0, 0.0, 0.0], [0.99, 0.1, 0.0], [-5.0, 3.0, 20.0]], dtype=torch.float64)


def correlated(mean: Tensor) -> None:
    pyro.sample("x", dist.MultivariateNormal(mean, scale_tril=ROOT))


def funnel(mean: Tensor) -> None:
    v = pyro.sample("v", dist.Normal(mean[0], 3.0))
    pyro.sample("x", dist.Normal(torch.zeros(2, dtype=torch.float64), torch.exp(v / 2)).to_event(1))


@pytest.mark.parametrize(
    "how",
    [
        inference.NUTS(metric="low_rank", draws=500, warmup=500),
        inference.NUTS(metric="diagonal", draws=500, warmup=500),
        inference.NUTS(engine="pyro", metric="dense", draws=200, warmup=120, chains=1),
    ],
    ids=lambda how: how.metric,
)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_mean_and_sd_are_within_four_standard_errors(how: inference.NUTS) -> None:
    posterior = ppgp.fit(correlated, {"mean": MEAN}, how, seed=2, progress=False)
    sd = (ROOT @ ROOT.mT).diagonal().sqrt()
    for j, (_, x) in enumerate(diagnostics.scalars(posterior.draws)):
        assert abs(x.mean() - float(MEAN[j])) < 4 * diagnostics.mcse(x, "mean")
        assert abs(x.std(ddof=1) - float(sd[j])) < 4 * diagnostics.mcse(x, "sd")


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_low_rank_needs_fewer_gradients_where_sites_are_correlated() -> None:
    low_rank, diagonal = (
        ppgp.fit(
            correlated,
            {"mean": MEAN},
            inference.NUTS(metric=m, draws=300, warmup=500, chains=2),
            seed=2,
            progress=False,
        ).stats["n_steps"]
        for m in ("low_rank", "diagonal")
    )
    assert float(low_rank.mean()) < 0.5 * float(diagonal.mean())


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_funnel_is_sampled_although_its_mode_is_misleading() -> None:
    """In Neal's funnel, the scale at the mode is e^-20 of the scale elsewhere."""
    posterior = ppgp.fit(
        funnel, {"mean": MEAN}, inference.NUTS(draws=200, warmup=300, chains=2), progress=False
    )
    assert float(posterior.draws["x"].std()) > 0.1


def test_the_error_for_an_unknown_metric_lists_those_of_the_engine() -> None:
    with pytest.raises(UnknownName, match="low_rank, diagonal"):
        inference.NUTS(metric="dense")
    with pytest.raises(UnknownName, match="diagonal, dense"):
        inference.NUTS(engine="pyro", metric="low_rank")


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("draws", [1, 60])
def test_pyro_reports_divergences_of_any_number_of_draws(draws: int) -> None:
    """R-hat, which Pyro would estimate from at least four draws, is not needed for them."""
    how = inference.NUTS(engine="pyro", draws=draws, warmup=5, chains=1, target_accept=0.3)
    posterior = ppgp.fit(funnel, {"mean": MEAN}, how, seed=1, progress=False)
    diverging = posterior.stats["diverging"]
    assert diverging.shape == (1, draws)
    assert draws == 1 or bool(diverging.any())


def test_a_mass_matrix_of_low_rank_is_asked_for_by_the_name_that_nutpie_has() -> None:
    def older(*, low_rank_modified_mass_matrix: bool = False) -> None: ...

    def newer(*, low_rank_modified_mass_matrix: bool = False, adaptation: str = "diag") -> None: ...

    assert low_rank_mass_matrix(older) == {"low_rank_modified_mass_matrix": True}
    assert low_rank_mass_matrix(newer) == {"adaptation": "low_rank"}


def test_a_diagonal_metric_is_kept_where_it_diverges_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt with a diagonal is made at any share of divergences here."""

    def diverged(how: inference.NUTS) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = ppgp.fit(funnel, {"mean": MEAN}, how, progress=False)
        return int(fit.stats["diverging"].sum())

    how = inference.NUTS(draws=200, warmup=200, chains=2)
    monkeypatch.setattr(nutpie_chains, "HURTS", 2.0)  # never
    of_low_rank = diverged(how)
    monkeypatch.setattr(nutpie_chains, "HURTS", -1.0)  # always
    tried: list[bool] = []
    sampler = nutpie_chains.NutpieSampler

    def recorded(*args: Any) -> Any:
        tried.append(args[3] is None)  # without the coordinates of low rank
        return sampler(*args)

    monkeypatch.setattr(nutpie_chains, "NutpieSampler", recorded)
    assert diverged(how) <= of_low_rank
    assert tried == [False, True]
    tried.clear()
    diverged(replace(how, metric="low_rank"))
    assert tried == [False]
