"""Posteriors from guides that were trained in plain Pyro."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import (
    AutoDelta,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoMultivariateNormal,
    AutoNormal,
    AutoStructured,
)
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import NotApplicable, SettingError

F64 = torch.float64
X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
Y = X @ torch.tensor([1.0, -0.5], dtype=F64)
Y = Y + 0.3 * torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=F64)
DATA = {"X": X, "y": Y}


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def program(X: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(number(1)))
    line = pyro.deterministic("line", X @ w)
    with pyro.plate("rows", len(X), subsample_size=min(30, len(X))) as i:
        pyro.sample("y", dist.Normal(line[i], s), obs=None if y is None else y[i])


def by_hand(X: Tensor, y: Tensor | None = None) -> None:
    loc = pyro.param("loc", torch.zeros(2, dtype=F64))
    scale = pyro.param("scale", number(0.1), constraint=dist.constraints.positive)
    pyro.sample("w", dist.Normal(loc, scale).to_event(1))
    where = pyro.param("where", number(-1.0))
    pyro.sample("s", dist.LogNormal(where, number(0.1)))


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    with pyro.get_param_store().scope():
        yield


def trained(guide: Any, steps: int = 300) -> SVI[..., Any]:
    pyro.set_rng_seed(0)
    svi = SVI(program, guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
    for _ in range(steps):
        svi.step(**DATA)
    return svi


GUIDES = {
    "normal": lambda: AutoNormal(program),
    "multivariate": lambda: AutoMultivariateNormal(program),
    "by hand": lambda: by_hand,
}


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize("as_svi", [True, False])
def test_its_draws_are_those_of_the_guide(name: str, as_svi: bool) -> None:
    guide = GUIDES[name]()
    svi = trained(guide)
    before = {n: p.detach().clone() for n, p in pyro.get_param_store().items()}
    posterior = ppgp.from_guide(program, svi if as_svi else guide, DATA)
    after = dict(pyro.get_param_store().items())
    assert before.keys() == after.keys()
    assert all(torch.equal(after[n], p) for n, p in before.items())
    with torch.no_grad():
        reference = Predictive(guide, num_samples=1000)(**DATA)
    for site in ("w", "s"):
        ours, theirs = posterior.draws[site][0], reference[site].reshape(1000, -1).squeeze(-1)
        sd = theirs.std(0)
        assert bool(((ours.mean(0) - theirs.mean(0)).abs() < 4.5 * sd * (2 / 1000) ** 0.5).all())
        assert bool(((ours.std(0) / sd - 1).abs() < 4.5 * (1 / 1000) ** 0.5).all())
    again = ppgp.from_guide(program, guide, DATA)
    assert torch.equal(again.draws["w"], posterior.draws["w"])
    torch.testing.assert_close(posterior.draws["line"][0], posterior.draws["w"][0] @ X.T)


def test_the_density_of_the_guide_is_known() -> None:
    posterior = ppgp.from_guide(program, trained(by_hand), DATA, draws=50)
    params = {name: p.detach() for name, p in pyro.get_param_store().items()}
    w, s = posterior.draws["w"][0], posterior.draws["s"][0]
    log_q = dist.Normal(params["loc"], params["scale"]).log_prob(w).sum(-1)
    log_q = log_q + dist.LogNormal(params["where"], number(0.1)).log_prob(s)
    log_p = dist.Normal(number(0), 1.0).log_prob(w).sum(-1) + dist.HalfNormal(number(1)).log_prob(s)
    log_p = log_p + dist.Normal(w @ X.T, s[:, None]).log_prob(Y).sum(-1)
    ratio = posterior.stats["lp"] - posterior.stats["log_q"]
    torch.testing.assert_close(ratio[0], log_p - log_q)
    assert posterior.stats["elbo"] == pytest.approx(float((log_p - log_q).mean()))


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_what_comes_after_a_fit_works() -> None:
    guide = AutoMultivariateNormal(program)
    posterior = ppgp.from_guide(program, trained(guide), DATA)
    reference = ppgp.fit(program, DATA, inference.Laplace(), progress=False)
    new = X[:5] + 1
    mine = posterior.predict(X=new)
    with torch.no_grad():
        theirs = Predictive(program, guide=guide, num_samples=1000)(new)["y"]
    sd = theirs.std(0)
    assert bool(((mine.mean - theirs.mean(0)).abs() < 4.5 * sd * (2 / 1000) ** 0.5).all())
    assert bool(((mine.std / sd - 1).abs() < 4.5 * (1 / 1000) ** 0.5).all())
    assert posterior.to_arviz()["posterior"]["w"].shape[:2] == (1, 1000)
    loo = [ppgp.psis_loo(p).elpd for p in (posterior, reference)]
    assert abs(loo[0] - loo[1]) < 10.0  # the guide is a little off after so few steps
    table = ppgp.compare({"guide": posterior, "laplace": reference}, "laplace").to_frame()
    assert len(table)
    assert "k-hat" in str(ppgp.diagnose(posterior)).lower()


def test_a_point_is_one_draw() -> None:
    posterior = ppgp.from_guide(program, trained(AutoDelta(program)), DATA)
    assert posterior.shape == (1, 1)


@pytest.mark.parametrize("kind", [AutoIAFNormal, AutoStructured])
def test_guides_with_networks_of_their_own_keep_their_draws(kind: Any) -> None:
    """Their networks have the default dtype of torch, float32."""

    def single(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 2.0))
        s = pyro.sample("s", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, s), obs=y)

    y, draws = Y.float()[:20], 400
    pyro.set_rng_seed(0)
    guide = kind(single)
    svi = SVI(single, guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
    for _ in range(100):
        svi.step(y)
    posterior = ppgp.from_guide(single, svi, {"y": y}, draws=draws)
    with torch.no_grad():
        reference = Predictive(guide, num_samples=draws)(y)
    for site in ("m", "s"):
        ours, theirs = posterior.draws[site][0], reference[site].reshape(-1)
        assert abs(ours.mean() - theirs.mean()) < 4.5 * theirs.std() * (2 / draws) ** 0.5
    assert "elbo" in posterior.stats


def test_a_laplace_approximation_of_pyro_has_its_spread() -> None:
    guide = AutoLaplaceApproximation(program)
    trained(guide)
    mode = ppgp.from_guide(program, guide, DATA)
    assert mode.shape == (1, 1)
    assert "pass guide.laplace_approximation(...)" in mode.warnings[0]
    gaussian = guide.laplace_approximation(**DATA)
    posterior = ppgp.from_guide(program, gaussian, DATA)
    scale = gaussian.get_posterior(**DATA).covariance_matrix.diagonal().sqrt()[:2]
    draws = posterior.draws["w"][0]
    error = 4.5 * scale / len(draws) ** 0.5
    assert bool(((draws.mean(0) - mode.draws["w"][0, 0]).abs() < error).all())
    assert bool(((draws.std(0) / scale - 1).abs() < 4.5 / len(draws) ** 0.5).all())


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(NotApplicable, match=r"a guide that was trained, got no value.*'loc'"):
        ppgp.from_guide(program, by_hand, DATA)
    with pytest.raises(NotApplicable, match="an AutoNormal that has not been run"):
        ppgp.from_guide(program, AutoNormal(program), DATA)
    with pytest.raises(NotApplicable, match="got a list"):
        ppgp.from_guide(program, [], DATA)
    with pytest.raises(SettingError, match="draws above 0"):
        ppgp.from_guide(program, by_hand, DATA, draws=0)

    def of_w_alone(X: Tensor, y: Tensor | None = None) -> None:
        pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))

    with pytest.raises(NotApplicable, match="every latent site of the program, got none of 's'"):
        ppgp.from_guide(program, of_w_alone, DATA)
