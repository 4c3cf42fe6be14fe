"""Guides of programs with missing observations: imputed by ``obs_mask``, or left out by a mask."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from missing_numbers import DATA, F64, HERE, Y, imputed, number
from pyro import poutine
from pyro.distributions.transforms import AffineTransform
from pyro.infer.autoguide import AutoDelta, AutoGuideList, AutoNormal
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.models.program import Program

handlers: Any = poutine  # its handlers have no types


def imputed_steps(y: Tensor, here: Any) -> None:
    """The same in the steps of a loop."""
    m = pyro.sample("m", dist.Normal(number(0), 2.0))

    def step(none: Tensor, row: Any) -> tuple[Tensor, None]:
        y, here = row
        pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=here)
        return none, None

    ppgp.scan(step, number(0), (y, here))


def masked(y: Tensor, here: Any) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))
    with pyro.plate("rows", len(y)), handlers.mask(mask=here):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def masked_steps(y: Tensor, here: Any) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))

    def step(none: Tensor, row: Any) -> tuple[Tensor, None]:
        y, here = row
        with handlers.mask(mask=here):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)
        return none, None

    ppgp.scan(step, number(0), (y, here))


def own_guide(y: Tensor, here: Any) -> None:
    """One spread serves all entries, as in an amortised guide."""
    at, width = pyro.param("at", number(0.5)), pyro.param("width", number(-1.0)).exp()
    pyro.sample("m", dist.Normal(at, width))
    where, spread = pyro.param("where", torch.zeros(len(y), dtype=F64)), pyro.param("s", number(-1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y_unobserved", dist.Normal(where, spread.exp()))


MEAN = Y[HERE].sum() / (len(Y[HERE]) + 0.25)  # of m given the numbers seen
#: each guide on one program or more
CASES: list[tuple[Any, Any]] = [
    *((imputed_steps, guide) for guide in ("lowrank", "iaf", AutoNormal, AutoDelta, own_guide)),
    *((imputed, guide) for guide in (AutoNormal, own_guide)),
    (masked, AutoNormal),
    (masked_steps, "lowrank"),
]
NAMES = [f"{program.__name__}-{getattr(g, '__name__', g)}" for program, g in CASES]


@pytest.mark.parametrize(("program", "guide"), CASES, ids=NAMES)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_every_guide_fits_programs_with_missing_numbers(program: Any, guide: Any) -> None:
    imputes = program in (imputed, imputed_steps)
    how = inference.SVI(guide, steps=700, learning_rate=0.03, draws=500)
    posterior = ppgp.fit(program, DATA, how, progress=False)
    # a Gaussian posterior, whose mean every guide has; the last iterate is near it
    assert abs(float(posterior.draws["m"].mean() - MEAN)) < 0.1
    assert float(posterior.stats["elbo_history"][-1]) > -20
    if imputes:
        y = posterior.draws["y"][0]
        torch.testing.assert_close(y[:, HERE], Y[HERE].expand(len(y), -1))
        assert bool(((y[:, ~HERE].mean(0) - MEAN).abs() < 0.25).all())
        if guide is own_guide:  # the spread of y given m, as the data entries do not count
            assert abs(float(y[:, ~HERE].std()) - 1) < 0.15


def test_the_entries_that_are_data_have_a_density_of_their_own_for_autoguides() -> None:
    def program(y: Tensor, here: Any) -> None:
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.LogNormal(number(0.5), 2.0), obs=y, obs_mask=here)

    target = Target(Program(program), DATA)
    value = torch.linspace(0.5, 3, 6, dtype=F64)
    found = target.survey.imputed["y_unobserved"].unused_density(value)
    expected = dist.LogNormal(number(0), 1.0).log_prob(value[HERE]).sum()
    torch.testing.assert_close(found, expected)


def points(program: Any) -> AutoGuideList:
    parts = AutoGuideList(program)
    for hidden, shown in (("y_unobserved", "m"), ("m", "y_unobserved")):
        parts.append(AutoDelta(handlers.block(program, hide=[hidden, "y"], expose=[shown])))
    return parts


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_elbo_of_points_is_the_log_density() -> None:
    for guide in (AutoDelta, points(imputed)):
        how = inference.SVI(guide, steps=100, draws=2)
        posterior = ppgp.fit(imputed, DATA, how, progress=False)
        at = {name: posterior.draws[name][0, 0] for name in ("m", "y_unobserved")}
        density = dist.Normal(number(0), 2.0).log_prob(at["m"])
        density += dist.Normal(at["m"], 1.0).log_prob(at["y_unobserved"]).sum()
        assert posterior.stats["elbo"] == pytest.approx(float(density), abs=1e-4)


UNDER = torch.tensor([0.3, torch.nan, 0.7, 1.9], dtype=F64)
DATA_UNDER = {"y": UNDER, "here": ~UNDER.isnan()}


def under_a_bound(y: Tensor, here: Any) -> None:
    bound = pyro.sample("bound", dist.LogNormal(number(1), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Uniform(number(0), bound), obs=y, obs_mask=here)


def of_a_bound(y: Tensor, here: Any) -> None:
    above = dist.LogNormal(pyro.param("above", number(0)), 0.1)
    bound = pyro.sample("bound", dist.TransformedDistribution(above, [AffineTransform(2.0, 1.0)]))
    with pyro.plate("rows", len(y)):
        pyro.sample("y_unobserved", dist.Uniform(number(0), bound))


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_supports_that_depend_on_latent_sites_have_the_data_in_their_draws() -> None:
    how = inference.SVI(of_a_bound, steps=20, draws=50)
    fits = [ppgp.fit(under_a_bound, DATA_UNDER, how, progress=False)]
    with pyro.get_param_store().scope():
        optimizer = pyro.optim.Adam({"lr": 0.02})
        svi = pyro.infer.SVI(under_a_bound, of_a_bound, optimizer, pyro.infer.Trace_ELBO())
        svi.step(UNDER.nan_to_num(0.5), DATA_UNDER["here"])
        fits.append(ppgp.from_guide(under_a_bound, of_a_bound, DATA_UNDER, draws=50))
    for posterior in fits:
        y, bound = (posterior.draws[name][0] for name in ("y", "bound"))
        seen = DATA_UNDER["here"]
        torch.testing.assert_close(y[:, seen], UNDER[seen].expand(50, -1))
        assert bool(((y[:, 1] > 0) & (y[:, 1] < bound)).all())
        torch.testing.assert_close(y, posterior.draws["y_unobserved"][0])


def test_a_guide_that_pyro_trained_gives_the_imputed_numbers() -> None:
    pyro.set_rng_seed(0)
    with pyro.get_param_store().scope():
        guide = AutoNormal(imputed)
        optimizer = pyro.optim.Adam({"lr": 0.02})
        svi = pyro.infer.SVI(imputed, guide, optimizer, pyro.infer.Trace_ELBO())
        for _ in range(500):
            svi.step(Y.nan_to_num(0.5), HERE)
        posterior = ppgp.from_guide(imputed, svi, DATA, draws=200)
    y = posterior.draws["y"][0]
    torch.testing.assert_close(y[:, HERE], Y[HERE].expand(len(y), -1))
    assert abs(float(y[:, ~HERE].mean() - MEAN)) < 0.4
    # the entries that are data would have counted in it
    assert "elbo" not in posterior.stats


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_chains_of_pyro_refuse_imputed_numbers_and_leave_masked_ones_out() -> None:
    how = inference.NUTS(engine="pyro", draws=100, warmup=100, chains=2)
    with pytest.raises(NotApplicable, match="without obs_mask with engine='pyro', got 'y_unobs"):
        ppgp.fit(imputed, DATA, how, progress=False)
    posterior = ppgp.fit(masked, DATA, how, progress=False)
    # of at least 20 effective draws
    assert abs(float(posterior.draws["m"].mean() - MEAN)) < 5 * (1 / 4.25 / 20) ** 0.5
