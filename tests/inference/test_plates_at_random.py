"""Plates with subsample_size=: whole, or mini-batches, as the method takes the density."""

from __future__ import annotations

import time
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from torch import Tensor

import ppgp
from ppgp import fit
from ppgp.errors import NotApplicable
from ppgp.inference import (
    HMC,
    MAP,
    NUTS,
    SGHMC,
    SGLD,
    SVI,
    Ensemble,
    Laplace,
    MetropolisHastings,
    Pathfinder,
)
from ppgp.models import Program

pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
F64 = torch.float64
WHOLE = r"the plate 'units', which takes 10 of 100 rows at random, is taken whole"


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=F64)


def program(y: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
    with pyro.plate("units", len(y), subsample_size=10) as chosen:
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y[chosen])


Y = torch.randn(100, generator=torch.Generator().manual_seed(3), dtype=F64) + 1
#: of the conjugate posterior
SD = (100 + 1 / 25) ** -0.5
MEAN = float(Y.sum()) * SD**2

WITH_ALL_ROWS = [
    SVI("normal", method="deterministic"),
    Ensemble(SVI(method="deterministic"), members=2),
    MAP(),
    Laplace(),
    NUTS(draws=200, warmup=200, chains=2),
    HMC(draws=200, warmup=200, chains=2),
    Pathfinder(),
    MetropolisHastings(draws=200, warmup=100, chains=2),
]


@pytest.mark.parametrize("how", WITH_ALL_ROWS, ids=lambda how: repr(how)[:30])
def test_methods_of_one_density_take_the_plate_whole(how: Any) -> None:
    posterior = fit(program, {"y": Y}, how, progress=False)
    assert any(note.startswith(WHOLE) for note in posterior.warnings)
    draws = posterior.draws["mean"].flatten()
    # 20 independent draws at least: one choice of 10 rows would be off by about 3 sds
    assert abs(float(draws.mean()) - MEAN) < 4 * SD / 20**0.5
    rows = posterior.pointwise()["y"]
    assert rows.shape[-1] == 100  # each row counts once
    at_first = dist.Normal(posterior.draws["mean"][0, 0], 1.0).log_prob(Y)
    torch.testing.assert_close(rows[0, 0], at_first)


@pytest.mark.parametrize("size", [10, 99])
def test_rows_of_the_users_own_choice_are_refused_without_mini_batches(size: int) -> None:
    def chosen(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
        with pyro.plate("units", len(y), subsample=torch.arange(size)) as i:
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y[i])

    with pytest.raises(NotApplicable, match=rf"all 100 rows of the plate 'units'.*of {size}"):
        fit(chosen, {"y": Y}, Laplace(), progress=False)
    found = fit(chosen, {"y": Y}, SVI("normal", steps=400, draws=400), progress=False)
    of_these = Y[:size].mean() * 100 / (100 + 1 / 25)  # they count for all, as in Pyro
    assert abs(float(found.draws["mean"].mean() - of_these)) < 0.03


def test_all_rows_by_subsample_are_a_plain_plate() -> None:
    def chosen(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
        with pyro.plate("units", len(y), subsample=torch.arange(len(y)).flip(0)) as i:
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y[i])

    posterior = fit(chosen, {"y": Y}, Laplace(draws=10), progress=False)
    assert posterior.warnings == ()


def test_one_batch_as_the_argument_is_refused() -> None:
    def of_a_batch(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
        with pyro.plate("units", 1000, subsample_size=len(y)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    for how in (MAP(), SVI(steps=5)):
        with pytest.raises(NotApplicable, match="all 1,000 rows of the plate 'units' among the"):
            fit(of_a_batch, {"y": Y}, how, progress=False)


@pytest.mark.parametrize(
    "how",
    [
        SVI("normal"),
        SVI("lowrank", steps=1500),
        SGLD(draws=400, warmup=100, step=0.01, thin=4),
        SGHMC(draws=400, warmup=100, step=0.05, thin=4),
    ],
    ids=lambda how: repr(how)[:20],
)
def test_stochastic_methods_take_mini_batches(how: Any) -> None:
    posterior = fit(program, {"y": Y}, how, progress=False)
    assert not any("whole" in note for note in posterior.warnings)
    assert "10 of 100 rows" in posterior.stats["random_density"]
    draws = posterior.draws["mean"].flatten()
    # the noise of the mini-batches moves the guide, and widens chains, by a share of the sd
    assert abs(float(draws.mean()) - MEAN) < 0.6 * SD
    assert 0.6 * SD < float(draws.std()) < 2.5 * SD


def test_each_step_has_other_rows_and_its_mean_density_is_that_of_all() -> None:
    target = ppgp.Target(Program(program), {"y": Y}, subsample=True)
    whole = ppgp.Target(Program(program), {"y": Y})
    assert target.batches == {"units": (10, 100)}
    z = number(0.3)[None]
    generator = torch.Generator().manual_seed(0)
    batches = [target.draw_rows(generator) for _ in range(300)]
    found = torch.stack([target.value_and_grad(z, rows)[1] for rows in batches])
    rows = [int(i) for batch in batches for i in batch.tables[0]]
    assert len(set(rows[:10])) == 10
    assert set(rows) == set(range(100))
    assert not target.eager  # one graph, of which the rows are an argument
    exact = whole.value_and_grad(z)[1]
    error = found.std(0) / len(found) ** 0.5
    assert bool(((found.mean(0) - exact).abs() < 4 * error).all())
    torch.testing.assert_close(target.value_and_grad(z)[1], exact)


def test_two_plates_have_mini_batches_of_their_own() -> None:
    def two(x: Tensor, y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
        with pyro.plate("a", len(x), subsample_size=5) as i:
            pyro.sample("x", dist.Normal(mean, 1.0), obs=x[i])
        with pyro.plate("b", len(y), subsample_size=7) as j:
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y[j])

    target = ppgp.Target(Program(two), {"x": Y[:40], "y": Y}, subsample=True)
    rows = target.draw_rows(torch.Generator().manual_seed(1))
    i, j = rows.tables
    value, _ = target.value_and_grad(number(0.2)[None], rows)
    law = dist.Normal(number(0.2), 1.0)
    expected = dist.Normal(number(0.0), 5.0).log_prob(number(0.2))
    expected = expected + 8 * law.log_prob(Y[i]).sum() + law.log_prob(Y[j]).sum() * 100 / 7
    torch.testing.assert_close(value, expected)


def test_a_plate_that_is_a_loop_is_whole_too() -> None:
    def loop(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0.0), 5.0))
        for i in pyro.plate("units", len(y), subsample_size=4):
            pyro.sample(f"y{i}", dist.Normal(mean, 1.0), obs=y[i])

    posterior = fit(loop, {"y": Y[:20]}, Laplace(draws=10), progress=False)
    exact = float(Y[:20].sum()) / (20 + 1 / 25)
    mode = fit(loop, {"y": Y[:20]}, MAP(), progress=False).theta["mean"]
    assert float(mode) == pytest.approx(exact, abs=1e-4)
    assert "takes 4 of 20 rows" in posterior.warnings[0]


def test_latents_of_rows_are_whole_too() -> None:
    def players(y: Tensor) -> None:
        spread = pyro.sample("spread", dist.HalfNormal(number(1.0)))
        with pyro.plate("units", len(y), subsample_size=3) as i:
            own = pyro.sample("own", dist.Normal(number(0.0), spread))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y[i])

    def plain(y: Tensor) -> None:
        spread = pyro.sample("spread", dist.HalfNormal(number(1.0)))
        with pyro.plate("units", len(y)):
            own = pyro.sample("own", dist.Normal(number(0.0), spread))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y)

    data = {"y": Y[:8]}
    mine, other = (ppgp.Target(Program(p), data) for p in (players, plain))
    z = torch.linspace(-1, 1, 9, dtype=F64)
    assert mine.dim == other.dim == 9
    torch.testing.assert_close(mine.value_and_grad(z), other.value_and_grad(z))


def encoder(y: Tensor) -> None:
    slope = pyro.param("slope", number(0.1))
    scale = pyro.param("scale", number(0.5), constraint=dist.constraints.positive)
    with pyro.plate("units", len(y), subsample_size=20) as i:
        pyro.sample("own", dist.Normal(slope * y[i], scale))


def test_a_guide_of_the_users_own_draws_the_latents_of_a_mini_batch() -> None:
    def players(y: Tensor) -> None:
        with pyro.plate("units", len(y), subsample_size=20) as i:
            own = pyro.sample("own", dist.Normal(number(0.0), number(1.0)))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y[i])

    posterior = fit(players, {"y": Y}, SVI(encoder, steps=2000, draws=400), progress=False)
    own = posterior.draws["own"][0]
    assert own.shape == (400, 100)  # of all rows
    # own given y is N(y / 2, 1 / 2)
    assert float((own.mean(0) - Y / 2).abs().max()) < 5 * (0.5 / 400) ** 0.5
    assert float(own.std(0).mean()) == pytest.approx(0.5**0.5, rel=0.1)
    for guide in ("normal", "lowrank"):
        with pytest.raises(NotApplicable, match=r"no latent site in the plate 'units'.*'own'"):
            fit(players, {"y": Y}, SVI(guide, steps=5), progress=False)


X = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1), dtype=F64)
OF_X = X @ torch.tensor([1.0, -0.5, 0.2], dtype=F64)
OF_X = OF_X + 0.5 * torch.randn(1000, generator=torch.Generator().manual_seed(2), dtype=F64)


def regression(X: Tensor, y: Tensor, size: int | None = 100) -> None:
    weight = pyro.sample("weight", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(X), subsample_size=size) as i:
        pyro.sample("y", dist.Normal(X[i] @ weight, 0.5), obs=y[i])


def test_two_thousand_steps_of_langevin_dynamics_take_seconds() -> None:
    data = {"X": X, "y": OF_X}
    started = time.process_time()
    how = SGLD(draws=180, warmup=20, chains=1, thin=10)
    posterior = fit(regression, data, how, progress=False)
    assert time.process_time() - started < 5.0
    precision = X.T @ X / 0.25 + torch.eye(3, dtype=F64)
    exact = torch.linalg.solve(precision, X.T @ OF_X / 0.25)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    off = (posterior.draws["weight"].mean((0, 1)) - exact) / sd
    assert float(off.abs().max()) < 1.0


def test_the_whole_plate_agrees_with_pyros_own_sampler() -> None:
    data = {"X": X[:100], "y": OF_X[:100]}
    pyro.set_rng_seed(0)
    sampler = MCMC(PyroNUTS(regression), num_samples=300, warmup_steps=200, disable_progbar=True)
    sampler.run(X[:100], OF_X[:100], None)
    reference = sampler.get_samples()["weight"]
    how = NUTS(draws=500, warmup=300, chains=2)
    draws = fit(regression, data | {"size": 20}, how, progress=False).draws["weight"].flatten(0, 1)
    error = reference.std(0) * (1 / 150 + 1 / 500) ** 0.5
    assert bool(((draws.mean(0) - reference.mean(0)).abs() < 4 * error).all())


TWO = torch.cat([0.5 * Y - 2.5, 0.5 * Y[:60] + 1.5])


def mixture(y: Tensor, size: int | None = None) -> None:
    share = pyro.sample("share", dist.Beta(number(2.0), number(2.0)))
    with pyro.plate("components", 2):
        centre = pyro.sample("centre", dist.Normal(torch.tensor([-2.0, 2.0], dtype=F64), 1.0))
    with pyro.plate("rows", len(y), subsample_size=size) as i:
        label = pyro.sample("label", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(centre[label.long()], 0.5), obs=y[i])


def test_a_mixture_in_a_mini_batch_is_summed_out() -> None:
    batches = ppgp.Target(Program(mixture), {"y": TWO, "size": 40}, subsample=True)
    whole = ppgp.Target(Program(mixture), {"y": TWO})
    z = torch.tensor([0.1, -1.8, 2.2], dtype=F64)
    generator = torch.Generator().manual_seed(0)
    found = torch.stack(
        [batches.value_and_grad(z, batches.draw_rows(generator))[0] for _ in range(400)]
    )
    error = float(found.std()) / 400**0.5
    assert abs(float(found.mean() - whole.value_and_grad(z)[0])) < 4 * error
    assert not batches.eager


def test_a_mixture_in_a_mini_batch_by_svi() -> None:
    data = {"y": TWO}
    how = SVI("normal", steps=1500)
    guide = fit(mixture, data | {"size": 40}, how, progress=False).draws
    laplace = fit(mixture, data, Laplace(), progress=False).draws
    for name in ("share", "centre"):
        ours, theirs = guide[name][0], laplace[name][0]
        sd = theirs.std(0)
        assert bool(((ours.mean(0) - theirs.mean(0)).abs() < 0.4 * sd).all())
        assert bool(((ours.std(0) / sd - 1).abs() < 0.3).all())
