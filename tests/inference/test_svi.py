"""SVI: the bound on the evidence, every kind of guide, mini-batches, patience."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.distributions import constraints

import ppgp
from ppgp import diagnostics, inference, models
from ppgp.data import Dataset
from ppgp.errors import NotApplicable, PpgpWarning
from ppgp.inference.variational.pyro_svi import Flow

NOISE = 0.16
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0] - 0.5 * X[:, 1] + 0.4 * torch.randn(30, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, Y)
MODEL = models.LinearRegression(noise=NOISE)
F = torch.cat([X, torch.ones(30, 1, dtype=torch.float64)], 1)
COVARIANCE = torch.linalg.inv(F.mT @ F / NOISE + torch.eye(3, dtype=torch.float64))
POSTERIOR_MEAN = COVARIANCE @ F.mT @ Y / NOISE
EVIDENCE = float(
    dist.MultivariateNormal(
        torch.zeros(30, dtype=torch.float64), F @ F.mT + NOISE * torch.eye(30, dtype=torch.float64)
    ).log_prob(Y)
)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def fitted(**options: Any) -> tuple[ppgp.Posterior, Tensor]:
    posterior = ppgp.fit(MODEL, DATA, inference.SVI(**options), progress=False, standardise=False)
    return posterior, torch.cat(
        [posterior.draws["weight"][0], posterior.draws["bias"][0, :, None]], 1
    )


def test_a_full_covariance_reaches_the_evidence() -> None:
    """The posterior is Gaussian, so that log p - log q is constant in the limit."""
    posterior, draws = fitted()
    gap = posterior.stats["lp"] - posterior.stats["log_q"]
    error = float(gap.std()) / math.sqrt(gap.numel())
    assert posterior.stats["elbo"] <= EVIDENCE + 4 * error
    assert posterior.stats["elbo"] == pytest.approx(EVIDENCE, abs=0.01)
    errors = (COVARIANCE.diagonal() / len(draws)).sqrt()
    assert bool(((draws.mean(0) - POSTERIOR_MEAN).abs() < 5 * errors + 0.01).all())


def test_a_first_guide_that_is_the_posterior_takes_no_step(tmp_path: Path) -> None:
    """log p - log q is then the log evidence at every draw."""
    posterior, _ = fitted()
    history = posterior.stats["elbo_history"]
    assert history.shape == (100,)
    torch.testing.assert_close(history, torch.full_like(history, EVIDENCE), rtol=0, atol=1e-6)
    gap = posterior.stats["lp"] - posterior.stats["log_q"]
    torch.testing.assert_close(gap, torch.full_like(gap, EVIDENCE), rtol=0, atol=1e-6)
    # a checkpoint of it goes on to the same draws
    path = tmp_path / "run.ckpt"
    kept, again = (
        ppgp.fit(
            MODEL, DATA, inference.SVI(), progress=False, standardise=False, checkpoint=path
        ).draws["weight"]
        for _ in range(2)
    )
    assert torch.equal(kept, posterior.draws["weight"])
    assert torch.equal(again, kept)


def test_a_first_guide_that_is_not_the_posterior_is_trained() -> None:
    """A diagonal Gaussian is not, nor is the Laplace approximation of a skew density."""
    posterior, _ = fitted(guide="normal")
    assert len(posterior.stats["elbo_history"]) > 500
    unknown = models.LinearRegression()
    posterior = ppgp.fit(unknown, DATA, inference.SVI(), progress=False)
    assert len(posterior.stats["elbo_history"]) > 500


def test_a_mean_field_guide_reaches_the_best_diagonal_and_its_bound() -> None:
    """For a Gaussian with precision P, the best factors have variance 1 / P_ii.

    The bound is below the evidence by their KL divergence.
    """
    posterior, draws = fitted(guide="normal")
    precision = torch.linalg.inv(COVARIANCE)
    assert torch.allclose(
        draws.std(0), precision.diagonal().rsqrt(), rtol=4 / math.sqrt(2 * len(draws)) + 0.02
    )
    shortfall = 0.5 * float(precision.diagonal().log().sum() - torch.logdet(precision))
    gap = posterior.stats["lp"] - posterior.stats["log_q"]
    error = float(gap.std()) / math.sqrt(gap.numel())
    assert shortfall > 0
    assert posterior.stats["elbo"] == pytest.approx(EVIDENCE - shortfall, abs=4 * error + 0.01)


@quiet
def test_mini_batches_reach_the_posterior_mean() -> None:
    _, draws = fitted(batch_size=10, steps=6000, patience=3000, learning_rate=0.01)
    sd = COVARIANCE.diagonal().sqrt()
    # the jitter of the optimiser is a third of a posterior sd, at ten of thirty rows per step
    assert bool(
        ((draws.mean(0) - POSTERIOR_MEAN).abs() < sd / 3 + 4 * sd / math.sqrt(len(draws))).all()
    )
    with pytest.raises(NotApplicable, match="full batch"):
        ppgp.fit(models.GP(), DATA, inference.SVI(batch_size=10), progress=False)


def own_guide(X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> None:
    """A mean-field guide, which can represent the exact posterior."""
    loc = pyro.param("loc", torch.zeros(3, dtype=X.dtype))
    scale = pyro.param("scale", 0.1 * torch.ones(3, dtype=X.dtype), constraint=constraints.positive)
    pyro.sample("weight", dist.Normal(loc[:2], scale[:2]).to_event(1))
    pyro.sample("bias", dist.Normal(loc[2], scale[2]))


@quiet  # its ELBO, from two draws per step, may still be rising
def test_a_guide_of_the_users_own_is_the_mean_field_it_describes() -> None:
    posterior, draws = fitted(guide=own_guide, steps=1000, patience=1000, particles=2)
    best = torch.linalg.inv(COVARIANCE).diagonal().rsqrt()
    assert torch.allclose(draws.std(0), best, rtol=4 / math.sqrt(2 * len(draws)) + 0.15)
    assert torch.allclose(draws.mean(0), POSTERIOR_MEAN, atol=0.04)
    assert pyro.get_param_store().keys() == {}.keys()
    assert math.isfinite(posterior.stats["elbo"])


def test_a_guide_that_omits_a_site_is_refused() -> None:
    def without(X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> None:
        pyro.sample("bias", dist.Normal(torch.zeros((), dtype=X.dtype), 1.0))

    class Module(torch.nn.Module):
        def forward(self, X: Tensor, y: Tensor | None = None, total: int | None = None) -> None:
            without(X)

    for guide in (without, Module()):
        with pytest.raises(NotApplicable, match=r"draws every latent site .* none of 'weight'"):
            fitted(guide=guide, steps=3)


@quiet
@pytest.mark.parametrize(
    "guide", ["normal", "lowrank", "iaf", pyro.infer.autoguide.AutoNormal], ids=str
)
def test_every_kind_of_guide_gives_draws_of_the_right_shape_and_dtype(guide: Any) -> None:
    posterior = ppgp.fit(
        models.LinearRegression(),
        DATA,
        inference.SVI(guide=guide, steps=30, draws=10),
        progress=False,
    )
    assert posterior.draws["weight"].shape == (1, 10, 2)
    assert posterior.draws["noise"].shape == (1, 10)
    assert posterior.draws["weight"].dtype == torch.float64
    assert bool((posterior.draws["noise"] > 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_flow_has_the_dtype_of_the_model_in_both_directions(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    flow, x = Flow(4, torch.zeros(1, dtype=dtype)), torch.randn(6, 4, dtype=dtype)
    y = flow(x)
    back = flow.inv(y.clone())  # Pyro keeps the last pair
    assert y.dtype == back.dtype == dtype
    assert torch.allclose(back, x, atol=100 * torch.finfo(dtype).eps)
    slopes = torch.autograd.functional.jacobian(flow, x[0])
    assert torch.allclose(flow.log_abs_det_jacobian(x, y)[0], torch.linalg.slogdet(slopes)[1])


@quiet
def test_a_flow_with_a_lower_elbo_than_a_gaussian_warns() -> None:
    """The flow could represent that Gaussian, which is the posterior here."""
    posterior, _ = fitted(guide="iaf", steps=100, draws=50)
    assert any("Gaussian" in sentence for sentence in posterior.warnings)
    assert posterior.stats["elbo"] < EVIDENCE - 1


def test_it_stops_once_the_bound_has_not_risen_for_patience_steps() -> None:
    posterior, _ = fitted(steps=5000, patience=50)
    assert 100 <= len(posterior.stats["elbo_history"]) < 5000


def test_laplace_is_exact_where_the_posterior_is_gaussian() -> None:
    laplace = ppgp.fit(MODEL, DATA, inference.Laplace(), progress=False, standardise=False)
    torch.testing.assert_close(laplace.stats["mode"], POSTERIOR_MEAN, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(laplace.stats["covariance"], COVARIANCE, rtol=1e-6, atol=1e-8)
    assert laplace.stats["log_evidence"] == pytest.approx(EVIDENCE, abs=1e-6)


def test_nuts_agrees_with_the_closed_form() -> None:
    posterior = ppgp.fit(MODEL, DATA, inference.NUTS(), progress=False, standardise=False)
    for j, (_, x) in enumerate(diagnostics.scalars(posterior.draws)):
        assert x.mean() == pytest.approx(
            float(POSTERIOR_MEAN[j]), abs=4 * diagnostics.mcse(x, "mean")
        )
        assert x.std(ddof=1) == pytest.approx(
            float(COVARIANCE[j, j].sqrt()), abs=4 * diagnostics.mcse(x, "sd")
        )


def test_a_step_to_params_where_the_program_fails_is_undone() -> None:
    """The factor pulls r towards 1, where the covariance is singular, and beyond."""

    def program(y: Tensor) -> None:
        r = pyro.param("r", torch.tensor(0.5))
        pyro.sample("z", dist.Normal(0.0, 1.0))
        L = torch.linalg.cholesky(torch.stack([torch.stack([one, r]), torch.stack([r, one])]))
        pyro.factor("growth", 100 * r + 0 * L.sum())
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    one, y = torch.tensor(1.0), torch.tensor(0.3)
    how = inference.SVI(pyro.infer.autoguide.AutoNormal, steps=200)
    with pytest.warns(PpgpWarning):
        posterior = ppgp.fit(program, {"y": y}, how, progress=False)
    assert 0.9 < float(posterior.params["r"]) < 1
    assert any("led to params where the program fails" in said for said in posterior.warnings)
    assert bool(torch.isfinite(posterior.stats["elbo_history"]).all())


@quiet
@pytest.mark.parametrize("steps", [40, 41, 42, 43])
def test_the_program_runs_at_the_params_that_a_fit_returns(steps: int) -> None:
    """Many steps lead beyond m = 1, where the program fails, some of them the last one."""

    def program(y: Tensor) -> None:
        m = pyro.param("m", torch.tensor(0.5))
        pyro.sample("z", dist.Normal(0.0, 1.0))
        torch.linalg.cholesky((1.0 - m)[None, None])
        pyro.factor("growth", 100 * m)
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    how = inference.SVI(pyro.infer.autoguide.AutoNormal, steps=steps, particles=2)
    posterior = ppgp.fit(program, {"y": torch.tensor(0.3)}, how, progress=False)
    assert float(posterior.params["m"]) < 1
    assert math.isfinite(posterior.stats["elbo"])


def test_draws_at_which_the_program_fails_do_not_end_a_fit() -> None:
    def program(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 0.5))
        torch.linalg.cholesky(torch.stack([torch.stack([one, z]), torch.stack([z, one])]))
        pyro.sample("y", dist.Normal(z, 0.5), obs=y)

    one, y = torch.tensor(1.0), torch.tensor(0.3)  # z given y has mean 0.15 and sd 0.35
    how = inference.SVI(pyro.infer.autoguide.AutoNormal, steps=1500)
    with pytest.warns(PpgpWarning):
        posterior = ppgp.fit(program, {"y": y}, how, progress=False)
    assert float(posterior.draws["z"].std()) == pytest.approx(0.35, rel=0.15)
    assert any("where the program fails" in said for said in posterior.warnings)
