"""Facts special to single samplers (acceptance, mini-batches, error), and ensembles."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import diagnostics
from ppgp.data import Dataset
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import HMC, MAP, NUTS, SGHMC, SGLD, SVI, Ensemble, MetropolisHastings
from ppgp.inference.mcmc.nutpie_sampler import chain_seed
from ppgp.models import SVGP, GaussianMixture, LinearRegression
from ppgp.priors import Flat

F64 = torch.float64


def narrow_and_wide() -> None:
    scales = torch.tensor([1e-3, 1.0, 1e3], dtype=F64)
    pyro.sample("z", dist.StudentT(6.0, torch.zeros_like(scales), scales).to_event(1))


def test_metropolis_adapts_scales_and_acceptance() -> None:
    posterior = ppgp.fit(narrow_and_wide, {}, MetropolisHastings(draws=2000), progress=False)
    sd = posterior.draws["z"].std((0, 1)) / torch.tensor([1e-3, 1.0, 1e3], dtype=F64) / 1.5**0.5
    assert bool(((sd - 1).abs() < 0.15).all())
    assert float(posterior.stats["acceptance_rate"].mean()) == pytest.approx(0.234, abs=0.06)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "how",
    [SGLD(batch_size=50, step=0.01, thin=20), SGHMC(batch_size=50, step=0.05, thin=20)],
    ids=repr,
)
def test_mini_batches_widen_the_posterior_only_within_the_stated_error(how: SGLD) -> None:
    """The noise of the gradient widens the posterior, by less than a fifth at this step."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 2, generator=generator, dtype=F64)
    y = X @ torch.tensor([1.0, -0.5], dtype=F64) + torch.randn(400, generator=generator, dtype=F64)
    model = LinearRegression(noise=1.0)
    exact = ppgp.fit(
        model, Dataset(X, y), ppgp.inference.Exact(draws=4000), standardise=False, progress=False
    )
    ours = ppgp.fit(model, Dataset(X, y), how, standardise=False, progress=False)
    for (_, a), (_, b) in zip(
        diagnostics.scalars(ours.draws),
        diagnostics.scalars({k: exact.draws[k] for k in ours.draws}),
        strict=True,
    ):
        error = np.hypot(diagnostics.mcse(a, "mean"), diagnostics.mcse(b, "mean", independent=True))
        assert abs(a.mean() - b.mean()) < 4.5 * error
        assert 0.9 < a.std() / b.std() < 1.35


def test_the_discretisation_error_of_sgld_matches_theory() -> None:
    """On a Gaussian with steps h in units of its variance, the variance is 1 / (1 - h / 4)."""

    def one() -> None:
        pyro.sample("z", dist.Normal(torch.zeros((), dtype=F64), 3.0))

    posterior = ppgp.fit(one, {}, SGLD(step=1.0, draws=4000, thin=5), progress=False)
    x = posterior.draws["z"].numpy()
    assert x.std(ddof=1) / 3 == pytest.approx(
        (1 - 1 / 4) ** -0.5, abs=5 * diagnostics.mcse(x, "sd") / 3
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_chains_start_at_init() -> None:
    data = ppgp.load("diabetes").rows(slice(0, 80))
    first = ppgp.fit(LinearRegression(), data, HMC(draws=200, warmup=300), progress=False)
    again = ppgp.fit(LinearRegression(), data, HMC(draws=4, warmup=1), init=first, progress=False)
    lp = first.stats["lp"]
    assert float(again.stats["lp"].min()) > float(lp.min()) - 10


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_no_two_chains_share_a_seed() -> None:
    seeds = {chain_seed(seed, chain) for seed in range(20) for chain in range(8)}
    assert len(seeds) == 160
    data = ppgp.load("diabetes").rows(slice(0, 60))
    four = ppgp.fit(LinearRegression(), data, NUTS(draws=100, warmup=100), progress=False)
    two = ppgp.fit(LinearRegression(), data, NUTS(draws=100, warmup=100, chains=2), progress=False)
    assert torch.equal(four.draws["weight"][:2], two.draws["weight"])


def test_an_ensemble_of_maps_is_a_search_from_several_starts() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.cat(
        [
            torch.randn(30, generator=generator, dtype=F64),
            6 + torch.randn(20, generator=generator, dtype=F64),
        ]
    )
    data = Dataset(torch.arange(50, dtype=F64)[:, None], y)
    posterior = ppgp.fit(GaussianMixture(3), data, Ensemble(MAP(), members=4), progress=False)
    assert posterior.draws["mean"].shape == (1, 4, 3)
    assert posterior.stats["log_density"].shape == (4,)
    one = ppgp.fit(GaussianMixture(3), data, MAP(), progress=False)
    assert float(posterior.stats["log_density"][0]) == pytest.approx(one.stats["log_density"])
    assert posterior.predict(data.X[:2]).draws == 4


def test_invalid_settings_are_refused() -> None:
    for make, word in (
        (lambda: SGLD(step=3.0), "step"),
        (lambda: SGHMC(friction=1.0), "friction"),
        (lambda: MetropolisHastings(thin=0), "thin"),
        (lambda: Ensemble(members=0), "members"),
    ):
        with pytest.raises(SettingError, match=word):
            make()
    with pytest.raises(SettingError, match="batch_size"):
        ppgp.fit(LinearRegression(), ppgp.load("diabetes"), SGLD(batch_size=10_000), progress=False)

    def program(x: torch.Tensor) -> None:
        pyro.sample("z", dist.Normal(x, 1.0))

    with pytest.raises(NotApplicable, match="mini-batch"):
        ppgp.fit(program, {"x": torch.zeros((), dtype=F64)}, SGLD(batch_size=10), progress=False)
    assert Flat() == Flat()


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_an_ensemble_refuses_members_with_params_of_their_own() -> None:
    X = torch.randn(20, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    with pytest.raises(NotApplicable, match="from SVI on SVGP"):
        ppgp.fit(
            SVGP(inducing=4), Dataset(X, X[:, 0]), Ensemble(SVI(steps=2), members=2), progress=False
        )
