"""SVI with any other guide, trained by Pyro on the program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pyro
import torch
from pyro.infer import SVI as PyroSVI
from pyro.infer import Predictive, Trace_ELBO, autoguide
from pyro.optim import PyroOptim
from torch import Tensor

from ...density.checks import check_flat
from ...density.target import Target
from ...networks.networks import training
from ...posterior.posterior import Posterior
from ...runtime.seeding import seeded
from ..base import Inference, attempted, draw_batch, from_draws
from ..optimise.torch_optimizers import class_of
from .check_against_gaussian import below_a_gaussian
from .flow import Flow
from .guide_start import START_SCALE
from .natural_steps import NaturalSteps
from .svi_options import SVIOptions
from .training_loop import train

ELBO_DRAWS = 100  # behind the ELBO of the fitted guide

Guide = str | Callable[..., Any]


def fit_pyro_guide(
    how: Inference,
    options: SVIOptions,
    target: Target,
    guide: Guide,
    seed: int,
    progress: bool,
    started: float,
) -> Posterior:
    """Fit a guide with Pyro, and draw from it.

    Args:
        how: The method, recorded in the posterior.
        options: Its numbers.
        target: The density, whose program is fitted.
        guide: A Pyro guide, an autoguide class, or the name of an autoguide.
        seed: Every random number follows from it.
        progress: Whether to show a progress bar.
        started: When the fit began, as ``time.perf_counter()``.

    Returns:
        The Posterior, with the stats ``elbo`` and ``elbo_history``.

    Raises:
        NotApplicable: For a site that is an angle.
    """
    check_flat(target.slices, "guide='normal' or 'multivariate_normal'")
    program, data = target.guarded_program, target.data
    like = target.survey.like
    generator = torch.Generator().manual_seed(seed)
    with (
        seeded(seed, like.device),
        pyro.get_param_store().scope() as _,
        pyro.validation_enabled(False),
    ):
        q = _autoguide(guide, program, like)
        optimizer = PyroOptim(class_of(options.optimizer), {"lr": options.rate})
        loop = PyroSVI(program, q, optimizer, Trace_ELBO(num_particles=options.particles))

        def step(rate: float) -> float:
            for one in optimizer.optim_objs.values():
                one.param_groups[0]["lr"] = rate
            rows = draw_batch(target, options.batch_size, generator)
            args, kwargs = data.passed(target.tables(rows))
            with training():  # networks drop units out in these steps only
                return -cast(float, loop.step(*args, **kwargs))

        if options.optimizer == "natural":
            step = NaturalSteps(options, target, program, q, generator).step
        fit = train(options, step, progress)
        args, kwargs = data.passed()
        with torch.no_grad():
            sampled = Predictive(q, num_samples=options.draws)(*args, **kwargs)
        notes = list(fit.notes)

        def elbos_of_guide() -> Tensor:
            losses = [cast(float, loop.evaluate_loss(*args, **kwargs)) for _ in range(ELBO_DRAWS)]
            return -torch.tensor(losses)

        elbos = attempted(target, notes, "the ELBO of the guide", elbos_of_guide, None)
        params = {name: p.detach().clone() for name, p in pyro.get_param_store().items()}
    sites = [name for name, s in target.slices.items() if not s.param]
    draws = {
        name: sampled[name].detach().reshape(1, options.draws, *target.slices[name].event)
        for name in sites
    }
    held = {name: p for name, p in params.items() if name in target.slices}
    interrupted = fit.interrupted
    if guide == "iaf" and elbos is not None and not interrupted:
        try:
            what = "the comparison of this guide with a Gaussian one"
            notes += attempted(
                target,
                notes,
                what,
                partial(below_a_gaussian, target, params, elbos.double(), seed),
                [],
            )
        except KeyboardInterrupt:
            interrupted = True
            notes.append("stopped by Ctrl-C before this guide was compared with a Gaussian one")
    stats: dict[str, Any] = {"elbo_history": torch.tensor(fit.history, dtype=torch.float64)}
    if elbos is not None:
        stats["elbo"] = float(elbos.mean())
    return from_draws(how, target, draws, started, stats, notes, held, interrupted)


def _autoguide(guide: Guide, program: Callable[..., Any], like: Tensor) -> Callable[..., Any]:
    """Return the guide itself, or the autoguide that a name or a class stands for."""
    if guide == "normal":
        return autoguide.AutoNormal(program, init_scale=START_SCALE)
    if guide == "multivariate_normal":
        return autoguide.AutoMultivariateNormal(program, init_scale=START_SCALE)
    if guide == "lowrank":
        return autoguide.AutoLowRankMultivariateNormal(program, init_scale=START_SCALE)
    if guide == "iaf":
        return autoguide.AutoNormalizingFlow(program, lambda dim: Flow(dim, like))
    if isinstance(guide, type) and issubclass(guide, autoguide.AutoGuide):
        return guide(program)
    assert callable(guide)
    return guide
