"""The warm-up and the acceptance of NUTS where the caller gives none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from eight_schools import SCHOOLS, schools
from torch import Tensor

import ppgp
from ppgp import diagnostics, inference
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning
from ppgp.inference.mcmc import nutpie_chains, nuts_defaults
from ppgp.inference.mcmc.nuts_defaults import SettledOptions, falls, run_plan, trusted
from ppgp.inference.optimise.expansion import laplace_preconditioner
from ppgp.models import Program

F64 = torch.float64
SD = torch.tensor([0.1, 1.0, 30.0], dtype=F64)


def normal(sd: Tensor) -> None:
    pyro.sample("x", dist.Normal(torch.zeros_like(sd), sd).to_event(1))


def gumbel(sd: Tensor) -> None:
    """Falls far faster on one side than on the other."""
    pyro.sample("x", dist.Gumbel(torch.zeros_like(sd), sd).to_event(1))


def funnel(sd: Tensor) -> None:
    """Neal (2003): along each axis through the mode it is normal."""
    v = pyro.sample("v", dist.Normal(torch.zeros((), dtype=sd.dtype), 3.0))
    pyro.sample("x", dist.Normal(torch.zeros_like(sd), (v / 2).exp()).to_event(1))


def chosen(program, sd: Tensor, how: inference.NUTS) -> tuple[int, float]:
    target = Target(Program(program), {"sd": sd})
    options = run_plan(how, target, laplace_preconditioner(target, target.start(0)))[0]
    return options.warmup, options.target_accept


def test_what_is_left_open_follows_the_posterior() -> None:
    how = inference.NUTS()
    assert chosen(normal, SD, how) == (200, 0.7)
    assert chosen(normal, torch.ones(7, dtype=F64), how) == (200, 0.8)
    assert chosen(gumbel, SD, how) == (300, 0.8)
    assert chosen(funnel, SD, how) == (300, 0.8)


def test_without_an_approximation_the_warm_up_is_long() -> None:
    target = Target(Program(gumbel), {"sd": SD})
    (options,) = run_plan(inference.NUTS(), target, None)
    assert (options.warmup, options.target_accept, options.metric) == (1000, 0.8, None)
    # the density falls more than five times as fast as that of unit normals
    unit = torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64)
    (options,) = run_plan(inference.NUTS(), target, unit)
    assert (options.warmup, options.target_accept, options.metric) == (1000, 0.9, "diagonal")
    (options,) = run_plan(inference.NUTS(target_accept=0.6), target, unit)
    assert options.target_accept == 0.6


def test_what_is_given_is_kept() -> None:
    how = inference.NUTS(draws=7, warmup=5, chains=3, target_accept=0.9, max_depth=4)
    assert chosen(normal, SD, how) == (5, 0.9)
    options = run_plan(how, Target(Program(normal), {"sd": SD}), None)[0]
    assert (options.draws, options.chains, options.max_depth) == (7, 3, 4)


def test_a_density_that_ends_is_not_nearly_normal() -> None:
    """Beyond the end of its support it is not finite."""

    def ends(sd: Tensor) -> None:
        x = pyro.sample("x", dist.Normal(torch.zeros_like(sd), sd).to_event(1))
        pyro.factor("end", torch.where(x.sum() < 1.0, 0.0, torch.nan))

    target = Target(Program(ends), {"sd": SD})
    origin = torch.zeros(3, dtype=F64)
    axes, draws = falls(target, origin, torch.diag(SD))
    assert np.isnan(axes).any()
    assert np.isnan(draws).any()
    options = run_plan(inference.NUTS(), target, (origin, torch.diag(SD)))[0]
    assert (options.warmup, options.target_accept) == (300, 0.8)


def test_a_density_unlike_its_approximation_has_a_diagonal_metric() -> None:
    """At draws of an approximation three times as wide, a normal falls nine times as fast."""
    target = Target(Program(normal), {"sd": SD})
    origin = torch.zeros(3, dtype=F64)
    for scale, metric in ((3.0, "diagonal"), (2.0, None)):
        (options, *_) = run_plan(inference.NUTS(), target, (origin, scale * torch.diag(SD)))
        assert options.metric == metric
    asked = inference.NUTS(metric="low_rank")
    (options, *_) = run_plan(asked, target, (origin, 3.0 * torch.diag(SD)))
    assert options.metric == "low_rank"


def test_a_normal_density_falls_like_its_approximation() -> None:
    target = Target(Program(normal), {"sd": SD})
    origin = torch.zeros(3, dtype=F64)
    for scale, ratio in ((1.0, 1.0), (0.5, 0.25)):
        for part in falls(target, origin, scale * torch.diag(SD)):
            np.testing.assert_allclose(part, ratio, rtol=1e-9)


def one_event(sd: Tensor) -> None:
    """The log rate of one event, whose density falls steeply on one side."""
    x = pyro.sample("x", dist.Normal(torch.zeros_like(sd), 1e3).to_event(1))
    pyro.factor("likelihood", (x - x.exp()).sum())


def test_a_skewed_density_keeps_the_higher_acceptance() -> None:
    assert chosen(one_event, torch.ones(1, dtype=F64), inference.NUTS()) == (200, 0.8)


@pytest.mark.parametrize(("chains", "draws", "p"), [(4, 5, 1), (4, 20, 5), (2, 50, 20), (1, 50, 9)])
def test_few_independent_draws_are_trusted(chains: int, draws: int, p: int) -> None:
    """Of 40 sets, each of which is refused once in a thousand."""
    generator = np.random.default_rng(1)
    none = np.zeros((chains, draws), dtype=bool)
    refused = sum(
        not trusted(generator.standard_normal((chains, draws, p)), none) for _ in range(40)
    )
    assert refused <= 1


def test_draws_at_the_defaults_are_those_of_a_normal_distribution() -> None:
    posterior = ppgp.fit(normal, {"sd": SD}, inference.NUTS(), seed=3, progress=False)
    for place, sd in enumerate(SD):
        x = posterior.draws["x"][..., place]
        assert diagnostics.rhat(x.numpy()) < 1.02
        n = float(diagnostics.ess(x.numpy()))
        assert abs(float(x.mean())) < 4 * float(sd) / n**0.5
        n = float(diagnostics.ess(x.square().numpy()))
        variance = float(x.square().mean()) / float(sd) ** 2
        assert abs(variance - 1) < 4 * (2 / n) ** 0.5


def two_modes(far: Tensor) -> None:
    """Two normals whose chains never meet; around either mode it looks normal."""
    x = pyro.sample("x", dist.Normal(torch.zeros((), dtype=far.dtype), 1e3))
    pyro.factor("modes", torch.logsumexp(-0.5 * (x - far).square(), 0))


FAR = {"far": torch.tensor([-20.0, 20.0], dtype=F64)}
HOW = inference.NUTS(draws=60, chains=8)
FEW = {"NEARLY_NORMAL": 31, "APPROXIMATED": 32, "UNKNOWN": 40}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SettledOptions]:
    """Return the list to which every run appends its options; warm-ups are short."""
    seen: list[SettledOptions] = []
    sampled = nutpie_chains._sampled
    for name, steps in FEW.items():
        monkeypatch.setattr(nuts_defaults, name, steps)

    def recorded(run: Any, *rest: Any) -> bool:
        seen.append(run.options)
        return sampled(run, *rest)

    monkeypatch.setattr(nutpie_chains, "_sampled", recorded)
    return seen


def fitted(how: inference.NUTS, **options: Any) -> Any:
    return ppgp.fit(two_modes, FAR, how, seed=2, progress=False, **options)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_chains_that_disagree_after_a_short_warm_up_run_again(
    runs: list[SettledOptions],
) -> None:
    posterior = fitted(HOW)
    assert [(each.warmup, each.target_accept) for each in runs] == [(31, 0.7), (40, 0.8)]
    assert posterior.draws["x"].shape == (8, 60)
    assert (posterior.stats["warmup"], posterior.stats["target_accept"]) == (40, 0.8)
    assert diagnostics.rhat(posterior.draws["x"].numpy()) > 1.2
    runs.clear()
    other = fitted(replace(HOW, warmup=31, target_accept=0.7))
    assert len(runs) == 1
    assert not torch.equal(posterior.draws["x"], other.draws["x"])


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_checkpoint_holds_both_runs(
    runs: list[SettledOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    undisturbed = fitted(HOW)

    def killed(*_: Any) -> bool:
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        patch.setattr(nutpie_chains, "trusted", killed)
        with pytest.raises(SystemExit, match="killed"):
            fitted(HOW, checkpoint=tmp_path / "chains")
    runs.clear()
    resumed = fitted(HOW, checkpoint=tmp_path / "chains")
    again = fitted(HOW, checkpoint=tmp_path / "chains")
    for each in (resumed, again):
        assert torch.equal(each.draws["x"], undisturbed.draws["x"])


def test_after_ctrl_c_in_the_second_run_the_first_is_returned(
    runs: list[SettledOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = nutpie_chains._sampled
    monkeypatch.setattr(nutpie_chains, "_sampled", lambda *a: True if runs else once(*a))
    with pytest.warns(ConvergenceWarning):
        posterior = fitted(HOW)
    assert posterior.draws["x"].shape == (8, 60)
    assert posterior.stats["warmup"] == 31
    assert any("which need a longer one" in each for each in posterior.warnings)


def test_draws_are_trusted_if_chains_agree_and_do_not_diverge() -> None:
    generator = np.random.default_rng(0)
    z = generator.standard_normal((4, 200, 3))
    none = np.zeros((4, 200), dtype=bool)
    assert trusted(z, none)
    assert trusted(z[:1], none[:1])
    shifted = z.copy()
    shifted[0, :, 1] += 2.0
    assert not trusted(shifted, none)
    drifting = z[:1] + 3 * (np.arange(200) > 100)[:, None]
    assert not trusted(drifting, none[:1])
    some = none.copy()
    some[:, :3] = True
    assert not trusted(z, some)
    few = none.copy()
    few[:2, :2] = True
    assert trusted(z, few)
    assert not trusted(z, few, accept=0.7)
    one = none.copy()
    one[0, 0] = True
    assert trusted(z[:, :20], one[:, :20], accept=0.7)
    stuck = z.copy()
    stuck[..., 2] = 1.0
    assert not trusted(stuck, none)
    assert trusted(z[:, :2], none[:, :2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*diverged:ppgp.errors.ConvergenceWarning")  # counted below
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_eight_schools_at_the_defaults_does_as_well_as_with_a_long_warm_up(seed: int) -> None:
    short = ppgp.fit(schools, SCHOOLS, inference.NUTS(), seed=seed, progress=False)
    long = ppgp.fit(
        schools, SCHOOLS, inference.NUTS(warmup=1000, draws=2000), seed=seed + 10, progress=False
    )
    assert int(short.stats["diverging"].sum()) <= 4
    for name in ("mu", "tau"):
        a, b = short.draws[name], long.draws[name]
        assert diagnostics.rhat(a.numpy()) < 1.02
        error = a.var() / diagnostics.ess(a.numpy()) + b.var() / diagnostics.ess(b.numpy())
        assert abs(float(a.mean() - b.mean())) < 4 * float(error) ** 0.5
