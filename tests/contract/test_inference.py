"""Properties of every inference method."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import diagnostics, inference
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import Inference
from ppgp.inference.mcmc import nutpie_chains
from ppgp.models import Program

# they need closed forms of the model, its rows or its network, which a program does not have
OWN_FORMULAS = ("Exact", "Gibbs", "MCDropout", "NaturalGradientBoosting", "SWAG")
HOWS = [getattr(inference, n)() for n in inference.__all__ if n not in ("Inference", *OWN_FORMULAS)]
POINT = (inference.MAP, inference.Ensemble)
every_method = pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")

PRECISION = torch.tensor([[2.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


def skew(mean: Tensor) -> None:
    pyro.sample("z", dist.Gumbel(mean, 1.0).to_event(1))


@quiet
@every_method
def test_a_known_gaussian_is_recovered(how: Inference) -> None:
    """Compare the mean, and the sd if the method estimates it, with the truth.

    The tolerance is five Monte Carlo standard errors, plus that of the method.
    """
    posterior = ppgp.fit(gaussian, {"mean": MEAN}, how, seed=0, progress=False)
    covariance = torch.linalg.inv(PRECISION)
    for j, (_, x) in enumerate(diagnostics.scalars(posterior.draws)):
        sd = math.sqrt(float(covariance[j, j]))
        independent = not posterior.mcmc
        error = diagnostics.mcse(x, "mean", independent=independent)
        assert x.mean() == pytest.approx(float(MEAN[j]), abs=5 * error + 1e-4)
        if not isinstance(how, POINT):
            assert x.std(ddof=1) == pytest.approx(
                sd, abs=5 * diagnostics.mcse(x, "sd", independent=independent)
            )


@quiet
@every_method
def test_one_seed_gives_the_same_draws_and_the_shape_is_chain_draw_event(how: Inference) -> None:
    one, two = (
        ppgp.fit(gaussian, {"mean": MEAN}, how.quick(), seed=3, progress=False) for _ in range(2)
    )
    assert torch.equal(one.draws["z"], two.draws["z"])
    assert one.draws["z"].ndim == 3
    assert one.draws["z"].shape[2] == 2
    assert eval(repr(how), {n: getattr(inference, n) for n in inference.__all__}) == how


@quiet
@every_method
def test_the_random_numbers_of_the_caller_are_left_alone(how: Inference) -> None:
    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    ppgp.fit(gaussian, {"mean": MEAN}, how.quick(), seed=3, progress=False)
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize("name", OWN_FORMULAS)
def test_methods_that_need_formulas_refuse_a_program(name: str) -> None:
    how = getattr(inference, name)()
    with pytest.raises(NotApplicable, match=r"use NUTS|or NUTS"):
        ppgp.fit(gaussian, {"mean": MEAN}, how, progress=False)
    assert eval(repr(how), {n: getattr(inference, n) for n in inference.__all__}) == how


WARMUP = 75  # transitions, which end well before 5,000 evaluations


class Interrupted(Target):
    """A target that is interrupted by Ctrl-C after some evaluations.

    In the main thread it raises at once; in another thread it sends the signal.
    """

    def __init__(
        self,
        after: int,
        seen: SimpleNamespace | None = None,
        program: Callable[[Tensor], None] = gaussian,
    ) -> None:
        super().__init__(Program(program), {"mean": MEAN})
        self.after = after
        self.seen = seen or SimpleNamespace(calls=count(1), came=False)
        self.arguments = (after, self.seen, program)  # targets made again share what was seen

    @property
    def came(self) -> bool:
        return self.seen.came

    def compiled(
        self,
        batch: int | None = None,
        jacobian: bool = True,
        k: int | None = None,
        compile: bool = True,
        few: bool = False,
    ) -> Any:
        graph = super().compiled(batch, jacobian, k, compile, few)

        def evaluate(*arguments: Tensor) -> tuple[Tensor, Tensor]:
            if next(self.seen.calls) == self.after:
                self.seen.came = True
                if threading.current_thread() is threading.main_thread():
                    raise KeyboardInterrupt
                os.kill(os.getpid(), signal.SIGINT)
            return graph(*arguments)

        return evaluate


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("after", [4, 8, 20_000])
@pytest.mark.parametrize("how", [*HOWS, inference.MAP("adam"), inference.MAP("newton")], ids=repr)
def test_ctrl_c_keeps_the_draws_so_far(
    how: Inference, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Posterior marked as interrupted; KeyboardInterrupt only if there is nothing to return."""
    monkeypatch.setattr(
        nutpie_chains, "can_fork", lambda: False
    )  # a forked child would interrupt itself, unseen from here
    if hasattr(how, "warmup"):
        how = type(how)(draws=5000, warmup=WARMUP)  # type: ignore[call-arg]
        after = min(after, 5000)  # a plain method may make more evaluations, chains far more
    target = Interrupted(after)
    try:
        posterior = how(target, seed=0)
    except KeyboardInterrupt:
        assert hasattr(how, "warmup")
        assert after < WARMUP
        return
    assert bool(torch.isfinite(posterior.draws["z"]).all())
    assert posterior.stats["interrupted"] is target.came
    assert any("Ctrl-C" in sentence for sentence in posterior.warnings) == target.came
    if hasattr(how, "draws"):
        assert posterior.draws["z"].shape[1] <= (how.draws or 1000)


def test_ctrl_c_during_the_initialisation_of_svi_stops_it() -> None:
    posterior = inference.SVI()(Interrupted(4))
    assert any("after 0 of 5000 steps" in sentence for sentence in posterior.warnings)


def test_ctrl_c_during_the_steps_of_svi_keeps_the_current_guide() -> None:
    posterior = inference.SVI()(Interrupted(200, program=skew))
    steps = len(posterior.stats["elbo_history"])
    assert 0 < steps < 200
    assert any(f"after {steps} of 5000 steps" in sentence for sentence in posterior.warnings)
