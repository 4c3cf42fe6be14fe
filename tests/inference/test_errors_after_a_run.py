"""What fails after the draws are complete is a warning on the posterior, which is returned."""

from __future__ import annotations

from typing import Any, NoReturn

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.density import target as targets
from ppgp.density.target import Target
from ppgp.errors import ConvergenceWarning, NotApplicable
from ppgp.inference import Inference
from ppgp.inference.fitting import fit as fitting
from ppgp.inference.mcmc import nutpie_chains

Y = torch.tensor([0.3, 1.2, 0.8, 1.9, 0.1])
HOWS = [
    pytest.param(inference.MAP(), id="MAP"),
    pytest.param(inference.Laplace(), id="Laplace"),
    pytest.param(inference.SVI("normal"), id="SVI"),
    pytest.param(inference.SVI("iaf"), id="SVI-iaf"),
    pytest.param(inference.NUTS(), id="NUTS"),
    pytest.param(inference.NUTS(engine="pyro"), id="NUTS-pyro"),
    pytest.param(inference.HMC(), id="HMC"),
    pytest.param(inference.SGLD(), id="SGLD"),
    pytest.param(inference.Pathfinder(), id="Pathfinder"),
]


def mean_of(y: Tensor | None = None) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    pyro.deterministic("twice", 2 * mean)
    with pyro.plate("rows", 5):
        pyro.sample("y", dist.Normal(mean.sum(), 1.0), obs=y)


def broken(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a part that breaks")


def fitted(how: Inference) -> ppgp.posterior.Posterior:
    return ppgp.fit(mean_of, {"y": Y}, how.quick(), progress=False)


def said(posterior: ppgp.posterior.Posterior, what: str) -> bool:
    return any(what in s and "a part that breaks" in s for s in posterior.warnings)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("how", HOWS)
def test_a_failed_check_of_the_graph_is_a_warning(
    how: Inference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "graph_was_wrong", broken)
    posterior = fitted(how)
    assert said(posterior, "the comparison of graph and program")
    assert bool(torch.isfinite(posterior.draws["mean"]).all())


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_failed_check_of_convergence_is_a_warning_that_is_issued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "mixing", broken)
    posterior = fitted(inference.NUTS())
    assert said(posterior, "the check of convergence")
    with pytest.warns(ConvergenceWarning, match="a part that breaks"):
        fitted(inference.NUTS())


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("how", HOWS[:2])
def test_a_mode_without_its_likelihood_has_no_bic(
    how: Inference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "log_likelihood", broken)
    posterior = fitted(how)
    assert said(posterior, "the log likelihood")
    with pytest.raises(NotApplicable):
        _ = posterior.bic


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_sites_are_kept_where_deterministic_ones_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(inference.NUTS())
    monkeypatch.setattr(targets, "over_draws", broken)
    posterior = fitted(inference.NUTS())
    assert said(posterior, "deterministic sites")
    assert set(posterior.draws) == {"mean"}
    assert torch.equal(posterior.draws["mean"], whole.draws["mean"])


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_first_chains_are_returned_if_a_second_run_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled = nutpie_chains._sampled

    def once(run: Any, numbers: range, *rest: Any) -> bool:
        return broken() if numbers.start else sampled(run, numbers, *rest)

    monkeypatch.setattr(nutpie_chains, "_sampled", once)
    monkeypatch.setattr(nutpie_chains, "trusted", lambda *_: False)
    how = inference.NUTS(draws=20, chains=2)
    posterior = ppgp.fit(mean_of, {"y": Y}, how, progress=False)
    assert said(posterior, "a second run")
    assert posterior.draws["mean"].shape == (2, 20, 2)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_model_that_cannot_judge_its_fit_returns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.LinearRegression, "check_fit", broken)
    data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 1.2, 1.9, 3.2])
    how = inference.NUTS().quick()
    posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
    assert said(posterior, "the check of the fit")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_that_autograd_lacks_come_from_differences(dtype: torch.dtype) -> None:
    def program(y: Tensor) -> None:
        level = pyro.sample("level", dist.Normal(y.new_zeros(2), 1.0).to_event(1))
        table = torch.tensor([-3.0, 0.0, 6.0], dtype=y.dtype)  # of a function at -1, 0 and 1
        places = torch.stack([level, torch.zeros_like(level)], -1)
        # autograd has the first derivative of an interpolation alone
        found = torch.nn.functional.grid_sample(
            table.reshape(1, 1, 1, 3), places[None, None], align_corners=True
        )
        pyro.sample("y", dist.Normal(found.reshape(2), 0.5).to_event(1), obs=y)

    y = torch.tensor([1.5, -0.7], dtype=dtype)
    target = ppgp.Target(models.Program(program), {"y": y})
    z = torch.tensor([0.2, -0.4], dtype=dtype)
    # of -z^2 / 2 - (y - a z)^2 / (2 s^2), with slopes a = (6, 3) and s = 1 / 2
    expected = torch.diag(torch.tensor([-1 - 36 / 0.25, -1 - 9 / 0.25], dtype=dtype))
    tolerance = 1e-8 if dtype == torch.float64 else 1e-2
    assert torch.allclose(target.hessian(z), expected, rtol=tolerance, atol=tolerance)
