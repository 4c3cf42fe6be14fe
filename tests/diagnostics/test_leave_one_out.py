"""PSIS-LOO against ArviZ and refits, and its correction of wrong approximations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import either_arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import optimize
from torch import Tensor

import ppgp
from ppgp.data import Dataset
from ppgp.diagnostics import stacking
from ppgp.diagnostics.stacking import stacking_weights
from ppgp.errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    SettingError,
    UnknownName,
)
from ppgp.inference import MAP, NUTS, Exact, Laplace
from ppgp.kernels import RBF
from ppgp.models import GP, LinearRegression, LogisticRegression
from ppgp.posterior.arviz import arviz

F64 = torch.float64


@pytest.fixture(scope="module")
def line() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(25, 2, generator=generator, dtype=F64)
    return Dataset(X, X[:, 0] - X[:, 1] + 0.5 * torch.randn(25, generator=generator, dtype=F64))


@pytest.fixture(scope="module")
def refitted(line: Dataset) -> np.ndarray:
    """Return log p(y_i given the others) by n fits, which are exact as the noise is known."""
    model, out = LinearRegression(noise=0.25), []
    for i in range(line.n):
        rest = torch.arange(line.n) != i
        train = Dataset(line.X[rest], line.y[rest])
        fit = ppgp.fit(model, train, Exact(draws=20_000), standardise=False, progress=False)
        out.append(float(fit.predict(line.X[i : i + 1]).log_prob(line.y[i : i + 1])))
    return np.array(out)


def test_psis_loo_equals_arviz(line: Dataset) -> None:
    """No draw is repeated, as after a rejection, where the tails of ArviZ 0.x and 1.x differ."""
    posterior = ppgp.fit(LinearRegression(), line, Exact(draws=3600), progress=False)
    ours = ppgp.psis_loo(posterior)
    theirs = arviz().loo(posterior.to_arviz(), pointwise=True, reff=1.0)
    assert ours.elpd == pytest.approx(either_arviz.elpd(theirs), abs=1e-8)
    assert ours.se == pytest.approx(float(theirs.se), rel=0.05)
    np.testing.assert_allclose(ours.k, theirs.pareto_k.to_numpy(), atol=1e-6)
    assert "elpd" in repr(ours)


def test_psis_loo_equals_refits(line: Dataset, refitted: np.ndarray) -> None:
    exact = ppgp.fit(
        LinearRegression(noise=0.25), line, Exact(draws=20_000), standardise=False, progress=False
    )
    found = ppgp.psis_loo(exact)
    assert (found.k < found.limit).all()
    np.testing.assert_allclose(found.pointwise, refitted, atol=0.05)


def test_a_wrong_approximation_is_corrected(line: Dataset, refitted: np.ndarray) -> None:
    """The draws are 1.4 times too wide.

    With their own density the figures are those of the posterior; unweighted they are not.
    """
    laplace = ppgp.fit(
        LinearRegression(noise=0.25), line, Laplace(draws=20_000), standardise=False, progress=False
    )
    target = ppgp.Target(laplace.model, laplace.data)
    mode, covariance = laplace.stats["mode"], 1.4**2 * laplace.stats["covariance"]
    q = torch.distributions.MultivariateNormal(mode, covariance)
    e = torch.randn(20_000, len(mode), generator=torch.Generator().manual_seed(0), dtype=F64)
    z = mode + e @ torch.linalg.cholesky(covariance).mT
    lp = target.value_and_grad_batch(z)[0]
    draws = {name: v[None] for name, v in target.constrain(z).items()}
    wide = replace(laplace, draws=draws, stats={"lp": lp[None], "log_q": q.log_prob(z)[None]})
    found = ppgp.psis_loo(wide)
    np.testing.assert_allclose(found.pointwise, refitted, atol=0.05)
    plain = replace(laplace, draws=draws, stats={}, how=NUTS(chains=1))
    assert np.abs(ppgp.psis_loo(plain).pointwise - refitted).max() > 0.1


def test_compare_shows_psis_loo() -> None:
    data = ppgp.load("breast_cancer")
    posteriors = {
        "laplace": ppgp.fit(LogisticRegression(), data, Laplace(), progress=False),
        "map": ppgp.fit(LogisticRegression(), data, MAP(), progress=False),
    }
    table = ppgp.compare(posteriors, loo=True).to_frame()
    assert table.loc["laplace", "elpd_loo"] == pytest.approx(
        ppgp.psis_loo(posteriors["laplace"]).elpd
    )
    assert 0 <= table.loc["laplace", "loo_k_too_large"] <= 1
    assert np.isnan(table.loc["map", "elpd_loo"])
    with pytest.raises(NotApplicable, match="fit by Laplace, SVI or NUTS"):
        ppgp.psis_loo(posteriors["map"])


def test_stacking_weights_are_where_the_mixture_predicts_best() -> None:
    """The weights are compared with those of an unconstrained search.

    A model that is worse in every row has weight 0, and a single model has weight 1.
    """
    g = torch.Generator().manual_seed(0)
    densities = torch.randn(3, 80, generator=g, dtype=F64)
    densities[2] = densities[:2].min(0).values - 1
    weights = stacking_weights(densities)

    def loss(free: np.ndarray) -> float:
        return -float(
            torch.logsumexp(
                densities + torch.log_softmax(torch.tensor([*free, 0.0]), 0)[:, None], 0
            ).mean()
        )

    best = optimize.minimize(
        loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14}
    )
    reached = -float(torch.logsumexp(densities + weights.log()[:, None], 0).mean())
    assert reached <= best.fun + 1e-10
    assert float(weights.sum()) == pytest.approx(1.0)
    assert float(weights[2]) < 1e-6
    assert stacking_weights(densities[:1]).tolist() == [1.0]


@pytest.mark.parametrize("slope", [1e-3, 1e-4, 1e-5])
def test_stacking_weights_reach_the_edge_of_the_simplex(slope: float) -> None:
    """A model that is slightly better in every row has weight 1, however slightly."""
    densities = torch.randn(1, 50, generator=torch.Generator().manual_seed(0), dtype=F64).repeat(
        2, 1
    )
    densities[1] -= slope
    torch.testing.assert_close(
        stacking_weights(densities), torch.tensor([1.0, 0.0], dtype=F64), atol=1e-6, rtol=0.0
    )


def test_stacking_weights_that_have_not_converged_give_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacking, "ROUNDS", 1)
    densities = torch.randn(4, 30, generator=torch.Generator().manual_seed(0), dtype=F64)
    with pytest.warns(ConvergenceWarning, match="stacking weights"):
        assert float(stacking_weights(densities).sum()) == pytest.approx(1.0)


def test_hyperparameters_that_are_numbers_leave_a_closed_form(line: Dataset) -> None:
    recipe = GP(RBF(variance=1.0, lengthscale=2.0), noise=0.25, mean=0.0)
    posterior = ppgp.fit(recipe, line, MAP(), standardise=False, progress=False)
    found = ppgp.psis_loo(posterior)
    assert found.method == "closed form"
    assert repr(found).endswith("in closed form>")
    assert found.pointwise == pytest.approx(posterior.loo().log_prob(line.y).numpy())


def test_a_model_without_closed_form_names_psis_loo(line: Dataset) -> None:
    posterior = ppgp.fit(LinearRegression(), line, Exact(), progress=False)
    with pytest.raises(NotApplicable, match=r"ppgp\.psis_loo\(posterior\)"):
        posterior.loo()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_stacking_weights_refuse_numbers_that_are_no_densities(value: float) -> None:
    densities = torch.zeros(2, 5, dtype=F64)
    densities[:, 3] = value
    with pytest.raises(DataError, match="row 3"):
        stacking_weights(densities)


# -- programs with several observed sites --------------------------------------------------------


def two_outcomes(x: Tensor, height: Tensor, weight: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("height", dist.Normal(slope[0] * x, 0.5), obs=height)
        pyro.sample("weight", dist.Normal(slope[1] * x, 0.5), obs=weight)


def steps(y: Tensor) -> None:
    rho = pyro.sample("rho", dist.Normal(torch.zeros((), dtype=F64), 1.0))
    before = torch.zeros((), dtype=F64)
    for t in range(len(y)):
        before = pyro.sample(f"y_{t}", dist.Normal(rho * before, 1.0), obs=y[t])


def test_sites_that_share_their_rows_are_left_out_together() -> None:
    """The elpd is that of the same rows as one site with an event of two numbers."""

    def as_pairs(x: Tensor, pairs: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
        with pyro.plate("rows", len(x)):
            law = dist.Normal(slope * x[:, None], 0.5).to_event(1)
            pyro.sample("pairs", law, obs=pairs)

    x = torch.linspace(-1, 1, 12, dtype=F64)
    noise = torch.randn(2, 12, generator=torch.Generator().manual_seed(0), dtype=F64)
    height, weight = 2 * x + 0.5 * noise[0], -x + 0.5 * noise[1]
    arguments = {"x": x, "height": height, "weight": weight}
    posterior = ppgp.fit(two_outcomes, arguments, Laplace(draws=400), progress=False)
    pairs = {"x": x, "pairs": torch.stack([height, weight], 1)}
    one_site = ppgp.fit(as_pairs, pairs, Laplace(draws=400), progress=False)
    together = ppgp.psis_loo(posterior, sites=["height", "weight"])
    assert together.pointwise == pytest.approx(ppgp.psis_loo(one_site).pointwise, abs=1e-6)
    each = posterior.log_likelihood()
    assert isinstance(each, dict)
    assert {name: tuple(value.shape) for name, value in each.items()} == {
        "height": (1, 400, 12),
        "weight": (1, 400, 12),
    }
    alone = ppgp.psis_loo(posterior, site="height")
    assert alone.pointwise.shape == (12,)
    with pytest.raises(NotApplicable, match=r"site='height', or sites=\['height', 'weight'\]"):
        ppgp.psis_loo(posterior)
    with pytest.raises(UnknownName, match="did you mean 'weight'"):
        ppgp.psis_loo(posterior, sites=["height", "weigth"])
    for both in ({"site": "height", "sites": ["weight"]}, {"sites": "height"}, {"sites": []}):
        with pytest.raises(SettingError, match="one site, or a list of sites"):
            ppgp.psis_loo(posterior, **both)  # type: ignore[arg-type]
    wrong: tuple[tuple[Any, str], ...] = (
        (["height"], r"got \['height'\]: write site='height'$"),
        (["height", "weight"], r"write sites=\['height', 'weight'\], for sites that share"),
        (("height", "weight"), r"write sites=\['height', 'weight'\], for sites that share"),
        ([], r"got \[\]: write site='y', or sites=\['y1', 'y2'\]"),
        (0, r"got 0: write site='y', or sites=\['y1', 'y2'\]"),
    )
    for given, said in wrong:
        with pytest.raises(SettingError, match=said):
            ppgp.psis_loo(posterior, site=given)


def test_the_steps_of_a_loop_are_the_rows_of_one_site() -> None:
    """The same series as one site in a plate has the same densities."""

    def at_once(y: Tensor) -> None:
        rho = pyro.sample("rho", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        before = torch.cat([y.new_zeros(1), y[:-1]])
        with pyro.plate("steps", len(y)):
            pyro.sample("y", dist.Normal(rho * before, 1.0), obs=y)

    y = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=F64)
    looped, whole = (
        ppgp.fit(program, {"y": y}, Laplace(draws=300), progress=False)
        for program in (steps, at_once)
    )
    wanted = ppgp.psis_loo(whole).pointwise  # 12 steps, of which y_10 comes after y_9
    assert ppgp.psis_loo(looped).pointwise == pytest.approx(wanted, abs=1e-6)
    assert ppgp.psis_loo(looped, site="y").pointwise == pytest.approx(wanted, abs=1e-6)
    assert ppgp.psis_loo(looped, site="y_3").pointwise == pytest.approx(wanted[3:4], abs=1e-6)


def test_the_steps_of_a_loop_that_are_not_missing_are_the_rows_of_one_site() -> None:
    """They are those of a program that observes them alone, as each has a density of its own."""
    known = torch.arange(12) % 5 != 2
    y = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=F64)

    def imputed(y: Tensor, known: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        for i in range(12):
            pyro.sample(f"y_{i}", dist.Normal(m, 1.0), obs=y[i], obs_mask=known[i])

    data = {"y": torch.where(known, y, torch.nan), "known": known}
    posterior = ppgp.fit(imputed, data, Laplace(draws=300), progress=False)
    m = posterior.draws["m"].reshape(-1, 1)
    density = dist.Normal(m, 1.0).log_prob(y[known])
    found = ppgp.psis_loo(posterior)
    assert found.pointwise.shape == (int(known.sum()),)
    # each row left out has a density below its mean over the draws given all rows
    assert (found.pointwise < (density.exp().mean(0).log() + 1e-9).numpy()).all()
    assert ppgp.psis_loo(posterior, site="y").pointwise == pytest.approx(found.pointwise)
    first = ppgp.psis_loo(posterior, site="y_3_observed").pointwise
    assert first == pytest.approx(found.pointwise[2:3])


def test_sites_of_other_numbers_of_rows_do_not_share_them() -> None:
    def program(a: Tensor, b: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros((), dtype=F64), 5.0))
        with pyro.plate("first", len(a)):
            pyro.sample("a", dist.Normal(mu, 1.0), obs=a)
        with pyro.plate("second", len(b)):
            pyro.sample("b", dist.Normal(mu, 1.0), obs=b)

    arguments = {"a": torch.ones(3, dtype=F64), "b": torch.ones(4, dtype=F64)}
    posterior = ppgp.fit(program, arguments, Laplace(draws=50), progress=False)
    with pytest.raises(NotApplicable, match="3 of 'a', 4 of 'b'"):
        ppgp.psis_loo(posterior, sites=["a", "b"])


def test_two_outcomes_with_numbered_names_are_no_loop() -> None:
    def program(x: Tensor, y1: Tensor, y2: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros((), dtype=F64), 5.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y1", dist.Normal(mu, 1.0), obs=y1)
            pyro.sample("y2", dist.Normal(mu, 1.0), obs=y2)

    x = torch.ones(3, dtype=F64)
    posterior = ppgp.fit(program, {"x": x, "y1": x, "y2": x}, Laplace(draws=50), progress=False)
    with pytest.raises(NotApplicable, match=r"site='y', or sites=\['y1', 'y2'\]"):
        ppgp.psis_loo(posterior)
    assert ppgp.psis_loo(posterior, sites=["y1", "y2"]).pointwise.shape == (3,)
    assert ppgp.psis_loo(posterior, site="y").pointwise.shape == (6,)
