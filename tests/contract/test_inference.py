"""Laws of every inference method."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import diagnostics, inference, models
from ppgp.data import Dataset
from ppgp.inference import Inference
from ppgp.prediction import seeded
from ppgp.target import Target

HOWS = [getattr(inference, n)() for n in inference.__all__ if n != "Inference"]
POINT = (inference.MAP,)
every_method = pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")

PRECISION = torch.tensor([[2.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


@quiet
@every_method
def test_a_known_gaussian_is_recovered(how: Inference) -> None:
    """Mean, and sd where the method claims one, within five Monte Carlo standard errors and the method's own tolerance."""
    posterior = ppgp.fit(gaussian, {"mean": MEAN}, how, seed=0, progress=False)
    covariance = torch.linalg.inv(PRECISION)
    for j, (_, x) in enumerate(diagnostics.scalars(posterior.draws)):
        sd = math.sqrt(float(covariance[j, j]))
        independent = not posterior.mcmc
        error = diagnostics.mcse(x, "mean", independent=independent)
        assert x.mean() == pytest.approx(float(MEAN[j]), abs=5 * error + 1e-4)
        if not isinstance(how, POINT):
            assert x.std(ddof=1) == pytest.approx(sd, abs=5 * diagnostics.mcse(x, "sd", independent=independent))


@quiet
@every_method
def test_one_seed_gives_the_same_draws_and_the_shape_is_chain_draw_event(how: Inference) -> None:
    one, two = (ppgp.fit(gaussian, {"mean": MEAN}, how.quick(), seed=3, progress=False) for _ in range(2))
    assert torch.equal(one.draws["z"], two.draws["z"])
    assert one.draws["z"].ndim == 3
    assert one.draws["z"].shape[2] == 2
    assert eval(repr(how), {n: getattr(inference, n) for n in inference.__all__}) == how


class Interrupted(Target):
    """A target during which Ctrl-C comes, after so many evaluations."""

    left = 5

    def compiled(self, batch: int | None = None, jacobian: bool = True) -> Any:
        graph = super().compiled(batch, jacobian)

        def evaluate(*arguments: Tensor) -> tuple[Tensor, Tensor]:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return graph(*arguments)

        return evaluate


@pytest.mark.parametrize("how", [inference.MAP("adam"), inference.MAP()], ids=repr)
def test_ctrl_c_keeps_what_there_is(how: Inference) -> None:
    target = Interrupted(models.Program(gaussian), {"mean": MEAN})
    posterior = how(target)
    assert any("Ctrl-C" in sentence for sentence in posterior.warnings)
    assert bool(torch.isfinite(posterior.draws["z"]).all())


def test_ctrl_c_in_svi_keeps_the_guide_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from ppgp.inference import gaussian_guide

    plain, count = gaussian_guide.GaussianGuide.set_gradients, [0]

    def step(self: Any, *arguments: Any) -> float:
        count[0] += 1
        if count[0] == 30:
            raise KeyboardInterrupt
        return plain(self, *arguments)

    monkeypatch.setattr(gaussian_guide.GaussianGuide, "set_gradients", step)
    posterior = inference.SVI()(Target(models.Program(gaussian), {"mean": MEAN}))
    assert any("after 29 of" in sentence for sentence in posterior.warnings)


def test_closed_form_of_linear_regression() -> None:
    """Noise fixed: the posterior of (weight, bias) is Gaussian, and so is y; mean, covariance and evidence in closed form."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    y = X[:, 0] - 0.5 * X[:, 1] + 0.4 * torch.randn(30, generator=generator, dtype=torch.float64)
    F = torch.cat([X, torch.ones(30, 1, dtype=torch.float64)], 1)
    covariance = torch.linalg.inv(F.mT @ F / 0.16 + torch.eye(3, dtype=torch.float64))
    mean = covariance @ F.mT @ y / 0.16
    evidence = dist.MultivariateNormal(
        torch.zeros(30, dtype=torch.float64), F @ F.mT + 0.16 * torch.eye(30, dtype=torch.float64)
    ).log_prob(y)
    data, model = Dataset(X, y), models.LinearRegression(noise=0.16)
    laplace = ppgp.fit(model, data, inference.Laplace(), progress=False, standardise=False)
    torch.testing.assert_close(laplace.stats["mode"], mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(laplace.stats["covariance"], covariance, rtol=1e-6, atol=1e-8)
    assert laplace.stats["log_evidence"] == pytest.approx(float(evidence), abs=1e-6)
    svi = ppgp.fit(model, data, inference.SVI(), progress=False, standardise=False)
    gap = svi.stats["lp"] - svi.stats["log_q"]
    assert svi.stats["elbo"] <= float(evidence) + 3 * float(gap.std()) / math.sqrt(gap.numel())
    assert svi.stats["elbo"] == pytest.approx(float(evidence), abs=0.01)
    field = ppgp.fit(model, data, inference.SVI(guide="normal"), progress=False, standardise=False)
    found = torch.cat([field.draws["weight"][0], field.draws["bias"][0, :, None]], 1)
    best = torch.linalg.inv(covariance).diagonal().rsqrt()
    assert torch.allclose(found.std(0), best, rtol=4 / math.sqrt(2 * len(found)) + 0.02)


@quiet
@pytest.mark.parametrize("guide", ["lowrank", "iaf", pyro.infer.autoguide.AutoNormal], ids=str)
def test_other_guides_go_through_pyro(guide: Any) -> None:
    data = Dataset(
        torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.linspace(-1, 1, 20)
    )
    posterior = ppgp.fit(models.LinearRegression(), data, inference.SVI(guide=guide, steps=30, draws=10), progress=False)
    assert posterior.draws["weight"].shape == (1, 10, 2)
    assert posterior.draws["weight"].dtype == torch.float64


@quiet
@pytest.mark.slow
def test_simulation_based_calibration_of_nuts_on_a_linear_model() -> None:
    """Ranks of the truth among thinned draws are uniform (Talts et al. 2018): chi-square over ten bins."""
    from scipy.stats import chisquare

    ranks = []
    model = models.LinearRegression()
    for simulation in range(60):
        generator = torch.Generator().manual_seed(simulation)
        X = torch.randn(12, 1, generator=generator, dtype=torch.float64)
        with seeded(simulation):
            trace = pyro.poutine.trace(model.model).get_trace(X)
        data = Dataset(X, trace.nodes["y"]["value"])
        how = inference.NUTS(draws=190, warmup=200, chains=1)
        posterior = ppgp.fit(model, data, how, seed=simulation, progress=False, standardise=False)
        for name in ("bias", "noise"):
            thinned = posterior.draws[name][0, ::10]
            ranks.append(int((thinned < trace.nodes[name]["value"]).sum()))
    counts = torch.bincount(torch.tensor(ranks) // 2, minlength=10).numpy()
    assert chisquare(counts).pvalue > 0.001
