"""NaN or infinity under a mask, and masks around sites with obs_mask=: what the program sees."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density.target import Target
from ppgp.errors import NotApplicable, PpgpError
from ppgp.models.program import Program

Y = torch.tensor([1.0, torch.nan, 100.0, 100.0])
SEEN: Any = ~Y.isnan()


def by_scan(y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(1.0, 0.5))

    def step(last: Tensor, here: Any) -> tuple[Tensor, None]:
        value, seen = here
        with poutine.mask(mask=seen):
            value = pyro.sample("y", dist.Normal(a * last, 1.0), obs=value)
        return value, None

    ppgp.scan(step, torch.ones(()), (y, SEEN))


def in_a_plate(y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(1.0, 0.5))
    with pyro.plate("rows", len(y)), poutine.mask(mask=SEEN):
        v = pyro.sample("y", dist.Normal(0.0, 1.0), obs=y)
    with pyro.plate("again", len(y)):
        pyro.sample("w", dist.Normal(a * v, 1.0), obs=torch.ones(len(y)))


METHODS = [
    inference.MAP(),
    inference.SVI(steps=20),
    inference.SVI("lowrank", steps=20),
    inference.NUTS(draws=10, warmup=10, chains=1),
    inference.NUTS(draws=10, warmup=10, chains=1, engine="pyro"),
]


@pytest.mark.filterwarnings("ignore:Encountered NaN")  # by Pyro, before the error
@pytest.mark.parametrize("how", METHODS, ids=str)
@pytest.mark.parametrize("program", [by_scan, in_a_plate])
def test_a_missing_number_that_is_used_again_is_no_data(program: Any, how: Any) -> None:
    with pytest.raises(PpgpError):
        ppgp.fit(program, {"y": Y}, how, progress=False)


@pytest.mark.parametrize(
    ("law", "y"),
    [
        (lambda m: dist.Poisson(m.exp()), torch.tensor([2.0, torch.nan, 1.0])),
        (lambda m: dist.Bernoulli(logits=m), torch.tensor([1.0, torch.nan, 0.0])),
        (lambda m: dist.Exponential(m.exp()), torch.tensor([0.4, torch.nan, 2.0])),
        (
            lambda m: dist.Dirichlet(m.exp().expand(3)),
            torch.tensor([[0.2, 0.3, 0.5], [torch.nan] * 3, [0.1, 0.8, 0.1]]),
        ),
    ],
    ids=["Poisson", "Bernoulli", "Exponential", "Dirichlet"],
)
def test_steps_of_a_loop_without_data_are_left_out(law: Any, y: Tensor) -> None:
    """As in a fit without these steps: Pyro's validation takes the number in place of NaN."""

    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        for i, value in enumerate(y):
            seen: Any = ~value.isnan().any()
            with poutine.mask(mask=seen):
                pyro.sample(f"y_{i}", law(m), obs=value)

    kept = y[~y.isnan().reshape(len(y), -1).any(1)]
    modes = [
        ppgp.fit(program, {"y": data}, inference.MAP(), progress=False).draws["m"].item()
        for data in (y, kept)
    ]
    assert modes[0] == pytest.approx(modes[1], abs=1e-4)


@pytest.mark.parametrize("hole", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("how", METHODS[:3], ids=str)
def test_what_a_mask_leaves_out_need_not_be_finite(how: Any, hole: float) -> None:
    """As in a fit to the other rows; also by obs_mask, of which these rows are imputed."""
    y = torch.tensor([1.0, 0.4, hole, -0.2, 0.7])
    seen: Any = y.isfinite()

    def by_mask(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)), poutine.mask(mask=seen[: len(y)] | (len(y) < 5)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    def by_obs_mask(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=seen)

    def in_a_loop(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))

        def step(none: Tensor, row: Any) -> tuple[Tensor, None]:
            with poutine.mask(mask=row[1]):
                pyro.sample("y", dist.Normal(m, 1.0), obs=row[0])
            return none, None

        ppgp.scan(step, torch.zeros(()), (y, seen))

    cases = [(by_mask, y), (by_mask, y[seen]), (by_obs_mask, y), (in_a_loop, y)]
    gradients = []
    for program, given in cases:
        target = Target(Program(program), {"y": given})
        z = target.origin()
        gradients.append(target.value_and_grad(z)[1][0])
        assert bool(torch.isfinite(target.value_and_grad(z)[0]))
    # the density of an imputed number has its mode at m, where it has no slope
    torch.testing.assert_close(torch.stack(gradients), gradients[0].expand(4))
    posterior = ppgp.fit(by_mask, {"y": y}, how, progress=False)
    assert bool(torch.isfinite(posterior.draws["m"]).all())


def masked(inside: Any, seen: Any, y: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y)):
        with poutine.mask(mask=inside):
            v = pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=seen)
        pyro.sample("w", dist.Normal(v, 1.0), obs=torch.full((len(y),), 2.0))


def test_entries_that_two_masks_leave_out() -> None:
    """They have neither data nor a density; as data under a mask they are numbers."""
    y = torch.tensor([1.0, 9.0, 9.0])
    inside, seen = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    given = {"inside": inside, "seen": seen, "y": y}
    with pytest.raises(NotApplicable, match="1 entries that both leave out"):
        Target(Program(masked), given)
    with pytest.raises(NotApplicable, match="1 entries that both leave out"):
        Target(Program(masked), given | {"y": torch.tensor([1.0, torch.nan, torch.nan])})
    target = Target(Program(masked), given | {"seen": seen | ~inside})
    assert target.dim == 2  # m and the second entry
    z = torch.tensor([0.3, 0.8])
    run = poutine.condition(masked, {"m": z[0], "y_unobserved": torch.stack([y[0], z[1], y[2]])})
    trace = poutine.trace(run).get_trace(**(given | {"seen": seen | ~inside}))
    torch.testing.assert_close(target.log_density(z), trace.log_prob_sum())


def test_a_guide_whose_entries_are_one_event_is_refused() -> None:
    """The entries that are data would have any spread there, and its ELBO no bound."""
    y = torch.tensor([1.0, torch.nan, 0.5])

    seen: Any = ~y.isnan()

    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=seen)

    def guide(y: Tensor) -> None:
        pyro.sample("m", dist.Normal(pyro.param("loc", torch.zeros(())), 0.5))
        law = dist.Normal(pyro.param("at", torch.zeros(len(y))), 1.0)
        pyro.sample("y_unobserved", law.to_event(1), infer={"is_auxiliary": False})

    with pytest.raises(NotApplicable, match="without to_event"):
        ppgp.fit(program, {"y": y}, inference.SVI(guide, steps=20), progress=False)
