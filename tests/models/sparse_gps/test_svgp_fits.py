"""Fits of SVGP by SVI: their optimum, other guides, PPGPR, storage, and plain Pyro."""

from __future__ import annotations

import warnings
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import SVI as PyroSVI
from pyro.infer import Trace_ELBO
from svgp_examples import F64, KERNEL, rows

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.models import SGPR, SVGP


@pytest.mark.parametrize("how", ["stochastic", "deterministic"])
def test_svi_reaches_the_optimum_of_sgpr(how: str) -> None:
    """SVGP with the best q has the bound of SGPR, so with fixed Z both have one optimum."""
    data = rows(60)
    ready: dict[str, Any] = {"kernel": KERNEL, "inducing": 10, "learn": False}
    svi = inference.SVI(method=how, steps=600, patience=100)
    fitted = ppgp.fit(SVGP(**ready), data, svi, progress=False)
    collapsed = ppgp.fit(SGPR(**ready), data, inference.MAP(), progress=False)
    assert fitted.stats["objective"] == pytest.approx(collapsed.stats["log_density"], abs=1e-3)
    new = torch.randn(5, 2, generator=torch.Generator().manual_seed(3), dtype=F64)
    torch.testing.assert_close(
        fitted.predict(new).mean, collapsed.predict(new).mean, atol=5e-3, rtol=0.0
    )
    torch.testing.assert_close(
        fitted.predict(new).std, collapsed.predict(new).std, atol=5e-3, rtol=0.0
    )


def test_the_elbo_is_a_bound_of_the_evidence_given_theta() -> None:
    """The objective less log p(theta) stays below log p(y given theta) of the exact GP."""
    svi = inference.SVI(method="deterministic")
    fitted = ppgp.fit(SVGP(KERNEL, 12, learn=False), rows(60), svi, progress=False)
    theta = {k: v[0, 0] for k, v in fitted.draws.items()}
    hyper = {
        k.removeprefix("kernel."): v[None] for k, v in theta.items() if k.startswith("kernel.")
    }
    K = fitted.model.kernel(hyper, fitted.data.X)[0] + theta["noise"] * torch.eye(60, dtype=F64)
    distribution = torch.distributions.MultivariateNormal(torch.zeros(60, dtype=F64), K)
    evidence = float(distribution.log_prob(fitted.data.y))
    assert evidence - 5 < fitted.stats["elbo"] < evidence + 1e-6
    program = pyro.poutine.condition(fitted.model.model, theta)
    nodes = pyro.poutine.trace(program).get_trace(fitted.data.X[:1]).nodes
    prior = sum(float(nodes[k]["fn"].log_prob(nodes[k]["value"]).sum()) for k in theta if k != "v")
    assert fitted.stats["objective"] - fitted.stats["elbo"] == pytest.approx(prior)


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
@pytest.mark.parametrize("q", ["full", "mean_field"])
def test_other_guides_stay_below_the_optimum(q: str) -> None:
    data = rows(60)
    best = ppgp.fit(SGPR(KERNEL, 10, learn=True), data, inference.MAP(), progress=False).stats[
        "log_density"
    ]
    fitted = ppgp.fit(
        SVGP(KERNEL, 10, q=q), data, inference.SVI(steps=800, patience=150), progress=False
    )
    assert fitted.stats["objective"] < best + 1e-6
    assert fitted.stats["objective"] > best - 30


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_ppgpr_predicts_as_well_and_is_not_a_bound() -> None:
    data = rows(200)
    test = rows(200, seed=5)
    svi = inference.SVI(steps=800, patience=150, batch_size=50)
    fitted = ppgp.fit(SVGP(KERNEL, 20, objective="ppgpr"), data, svi, progress=False)
    plain = ppgp.fit(SVGP(KERNEL, 20), data, svi, progress=False)
    ours, theirs = (ppgp.metrics.nll(p.predict(test.X), test.y) for p in (fitted, plain))
    assert ours < theirs + 0.2
    assert fitted.stats["objective"] > plain.stats["objective"]
    assert fitted.stats["elbo"] < plain.stats["elbo"]


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_a_loaded_posterior_predicts_the_same(tmp_path: Any) -> None:
    data = rows(kind="bernoulli")
    fitted = ppgp.fit(
        SVGP(KERNEL, 6, likelihoods.Bernoulli()), data, inference.SVI().quick(), progress=False
    )
    fitted.save(tmp_path / "p.safetensors")
    again = ppgp.load_posterior(tmp_path / "p.safetensors")
    torch.testing.assert_close(
        again.predict(data.X).probabilities, fitted.predict(data.X).probabilities
    )


def test_plain_pyro_fits_it() -> None:
    data = rows()
    model = SVGP(KERNEL, 8).prepare(data)
    with pyro.get_param_store().scope(), torch.random.fork_rng():
        pyro.set_rng_seed(0)
        loop = PyroSVI(model.model, model.guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
        losses = [
            loop.step(data.X[i : i + 20], data.y[i : i + 20], total=40)
            for _ in range(200)
            for i in (0, 20)
        ]
    assert sum(losses[-50:]) < sum(losses[:50])


@pytest.mark.parametrize("given", [False, True], ids=["selected", "by hand"])
def test_nested_subset_models_keep_the_number_of_inducing_inputs(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past 2,048 rows the subset model has its own; inputs given by hand are not placed again."""
    from ppgp.models.sparse import sgpr

    monkeypatch.setattr(sgpr, "SUBSET_ROWS", 30)
    x = torch.linspace(-3, 3, 80, dtype=F64)[:, None]
    Z = x[5::12] if given else None
    model = models.SVGP(kernels.RBF(), inducing=None if given else 7, Z=Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = ppgp.fit(
            model,
            Dataset(x, torch.sin(x[:, 0])),
            inference.SVI(steps=1),
            progress=False,
            standardise=False,
        )
    end = posterior.params["inducing"]
    assert end.shape == (7, 1)
    if Z is not None:
        assert float((end - Z).abs().max()) < 1.0  # moved by gradient, not placed again
