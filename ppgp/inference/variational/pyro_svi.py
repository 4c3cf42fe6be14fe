"""SVI with any other guide, trained by Pyro on the program, and compared with a Gaussian one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pyro
import torch
from pyro.distributions.transforms import AffineAutoregressive
from pyro.distributions.transforms.utils import clamp_preserve_gradients
from pyro.infer import SVI as PyroSVI
from pyro.infer import Predictive, Trace_ELBO, autoguide
from pyro.nn import AutoRegressiveNN
from pyro.optim import PyroOptim
from pyro.poutine.messenger import Messenger
from pyro.poutine.trace_messenger import TraceMessenger
from torch import Tensor
from torch.nn import Module

from ...density.checks import check_flat
from ...density.layout import Partly, with_given
from ...density.plates import plates_taking
from ...density.target import Target
from ...display.wording import counted
from ...errors import NotApplicable, NumericalError
from ...networks.networks import training
from ...numerics.cholesky import lacks_factor
from ...posterior.posterior import Posterior
from ...runtime.seeding import seeded, standard_normal
from ..base import Inference, attempted, draw_batch, from_draws
from ..optimise.first_order import class_of
from .deterministic import fit_guide
from .gaussian_guide import GaussianGuide
from .guide_start import START_SCALE, initial_gaussian
from .natural_steps import NaturalSteps
from .pathfinder import log_densities
from .training_loop import SVIOptions, train

ELBO_DRAWS = 100  # behind the ELBO of the fitted guide

#: what to do about a matrix that has no factorisation
WIDER = "raise the jitter of the program, or run it in float64"

RECOVERY = 1.05  # of the learning rate in a step, after it was halved

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
        NotApplicable: For a site that is an angle, or one that the guide does not draw.
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
        args, kwargs = data.passed()
        if not isinstance(q, Module):  # a function; a module is not run before its first step
            with pyro.get_param_store().scope(), torch.no_grad(), seeded(seed, like.device):
                _check_draws(Predictive(q, num_samples=1)(*args, **kwargs), target)
        optimizer = PyroOptim(class_of(options.optimizer), {"lr": options.rate})
        trained = q
        if target.survey.imputed and isinstance(q, autoguide.AutoGuide):
            program = _with_unused(program, target, q)
        elif target.survey.imputed:
            trained = _OfFreeEntries(target.survey.imputed)(q)
        loop = PyroSVI(program, trained, optimizer, Trace_ELBO(num_particles=options.particles))

        undone = _Undone(optimizer)

        def step(rate: float) -> float:
            for one in optimizer.optim_objs.values():
                one.param_groups[0]["lr"] = rate * undone.factor
            rows = draw_batch(target, options.batch_size, generator)
            args, kwargs = data.passed(target.tables(rows))
            with training(), undone.if_it_fails():  # networks drop units out in these steps only
                elbo = -cast(float, loop.step(*args, **kwargs))
            if undone.now:
                return undone.elbo
            undone.elbo = elbo
            params = pyro.get_param_store().values()
            if math.isnan(elbo) and any(bool(p.isnan().any()) for p in params):
                raise NumericalError(
                    "a finite ELBO",
                    "NaN, after which the params of the guide are NaN",
                    "look for NaN in the data that the program uses again, or for a sqrt or log of "
                    "0, or lower the learning rate",
                )
            return elbo

        if options.optimizer == "natural":
            step = NaturalSteps(options, target, program, q, generator).step
        fit = train(options, step, progress)
        args, kwargs = data.passed()
        if undone.reasons:  # the program has not run at the params of the last step
            undone.check(lambda: loop.evaluate_loss(*args, **kwargs))
        with torch.no_grad(), plates_taking():  # latent sites of all rows
            sampled = Predictive(q, num_samples=options.draws)(*args, **kwargs)
        _check_draws(sampled, target)
        notes = [*fit.notes, *undone.notes()]

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
    if target.survey.imputed:
        draws = _as_imputed(target, draws, held)
    interrupted = fit.interrupted
    if guide == "iaf" and elbos is not None and not interrupted:
        try:
            what = "the comparison of this guide with a Gaussian one"
            notes += attempted(
                target,
                notes,
                what,
                partial(_below_a_gaussian, target, params, elbos.double(), seed),
                [],
            )
        except KeyboardInterrupt:
            interrupted = True
            notes.append("stopped by Ctrl-C before this guide was compared with a Gaussian one")
    stats: dict[str, Any] = {"elbo_history": torch.tensor(fit.history, dtype=torch.float64)}
    if elbos is not None:
        stats["elbo"] = float(elbos.mean())
    return from_draws(how, target, draws, started, stats, notes, held, interrupted)


class _Undone:
    """Steps to params where a matrix of the program has no factorisation, which are undone.

    The next one is half as long, and those after it grow back.

    Attributes:
        factor: Of the learning rate.
        now: Whether the last step found the program to fail.
        elbo: Of the last step that did not.
        reasons: What was said of each step that did.
    """

    def __init__(self, optimizer: PyroOptim) -> None:
        self.optimizer, self.factor, self.now, self.elbo = optimizer, 1.0, False, math.nan
        self._good: dict[Tensor, Tensor] = {}  # params, and their values at the step before
        self.reasons: list[str] = []

    @contextmanager
    def if_it_fails(self) -> Iterator[None]:
        """Run one step inside, and go back to the params of the one before where it fails.

        Raises:
            NumericalError: If the first step fails.
        """
        values = {p: p.detach().clone() for p in self._params()}
        self.now = False
        try:
            yield
        except RuntimeError as error:
            if not lacks_factor(error):
                raise
            reason = str(error).partition("\n")[0]
            if not self._good:
                wanted = "a program that runs at the first params, and after one step"
                raise NumericalError(wanted, reason, WIDER) from None
            self.go_back()
            self.reasons.append(reason)
            self.now, self.factor = True, 0.5 * self.factor
        else:
            self._good, self.factor = values, min(1.0, RECOVERY * self.factor)

    def go_back(self) -> None:
        """Give the params their values at the last step that did not fail."""
        with torch.no_grad():
            for p, before in self._good.items():
                p.copy_(before)
                p.grad = None  # of particles before the one that failed

    def check(self, run: Callable[[], object]) -> None:
        """Go back to the step before the last one if the program fails at its params."""
        try:
            run()
        except RuntimeError as error:
            if not lacks_factor(error):
                raise
            self.go_back()

    @staticmethod
    def _params() -> list[Tensor]:
        """Return the unconstrained params of program and guide so far."""
        store = pyro.get_param_store()
        return [param for _, param in store.named_parameters()]

    def notes(self) -> list[str]:
        """Return a sentence about the steps that were undone, if there are any."""
        if not self.reasons:
            return []
        count, reason = counted(len(self.reasons), "step"), self.reasons[0]
        return [f"{count} led to params where the program fails, and went back ({reason}): {WIDER}"]


def _check_draws(drawn: Mapping[str, Tensor], target: Target) -> None:
    """Raise NotApplicable for a latent site of the program that the guide does not draw."""
    absent = [name for name, s in target.slices.items() if not s.param and name not in drawn]
    if absent:
        raise NotApplicable(
            "a guide that draws every latent site of the program",
            f"none of {', '.join(map(repr, absent))}",
            "give the guide a pyro.sample of that name and shape, or use guide='normal'",
        )


class _OfFreeEntries(Messenger):
    """Count those entries of a guide's sites alone that are free in the program.

    Args:
        imputed: The transforms of the sites that ``obs_mask`` makes. The other entries of such a
            site have no density in the program, and would have any spread in the guide.
    """

    def __init__(self, imputed: Mapping[str, Partly]) -> None:
        super().__init__()
        self.imputed = imputed

    def _pyro_sample(self, msg: Any) -> None:
        transform = self.imputed.get(msg["name"])
        if transform is None:
            return
        batch, free = msg["fn"].batch_shape, transform.free
        if len(batch) < free.ndim:
            raise NotApplicable(
                f"a guide whose site {msg['name']!r} has batch shape {tuple(free.shape)}, of which "
                "obs_mask chooses",
                f"{tuple(batch)} with an event of {tuple(msg['fn'].event_shape)}",
                "write it in the plate of the program, without to_event",
            )
        if batch != free.shape:
            return
        mask = msg["mask"]
        msg["mask"] = transform.free if mask is None else mask & transform.free


def _with_unused(
    program: Callable[..., Any], target: Target, guide: autoguide.AutoGuide
) -> Callable[..., Any]:
    """Return a program in which what ``obs_mask`` sites do not use has a density of its own.

    Autoguides draw all entries of a site, and those that are data have none in the program. A
    guide that is a point there has no density to match.
    """

    def extended(*args: Any, **kwargs: Any) -> Any:
        with TraceMessenger() as run:
            result = program(*args, **kwargs)
        sites: dict[str, Any] = dict(run.trace.nodes)
        for name, transform in target.survey.imputed.items():
            if not _is_point(guide, name):
                pyro.factor(f"{name}_unused", transform.unused_density(sites[name]["value"]))
        return result

    return extended


def _is_point(guide: Any, name: str) -> bool:
    """Return whether the law of a site in an autoguide is a point without a density."""
    if isinstance(guide, autoguide.AutoGuideList):
        return any(_is_point(part, name) for part in guide)
    found = guide.prototype_trace if isinstance(guide, autoguide.AutoDelta) else None
    return found is not None and name in found


def _as_imputed(
    target: Target, draws: dict[str, Tensor], held: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the draws of a guide with the numbers that are data, and the values made of both.

    Args:
        target: The density.
        draws: {site: [1, draw, *event]}.
        held: {param of the program: its value}.
    """
    if target.static:
        leading = next(iter(draws.values())).shape[:2]
        params = {name: p.expand(*leading, *p.shape) for name, p in held.items()}
        values = target.constrain(target.unconstrain({**draws, **params}))
        return {name: value for name, value in values.items() if name not in held}
    return with_given(draws, target.survey.imputed)


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


UNITS = 8  # of each hidden layer, besides one for each coordinate


class Flow(AffineAutoregressive):
    """Pyro's affine autoregressive transform, whose inverse has the dtype of its argument.

    Kingma et al. (2016). The inverse of Pyro begins with zeros of torch's default dtype.

    Args:
        dim: The number of coordinates d.
        like: A tensor whose dtype and device the network has.
    """

    def __init__(self, dim: int, like: Tensor) -> None:
        network = AutoRegressiveNN(dim, [dim + UNITS, dim + UNITS])
        super().__init__(network.to(like))

    def _inverse(self, y: Tensor) -> Tensor:
        """Return x [*, d] of y [*, d].

        Each of the d passes makes one more coordinate exact, as it depends on those before it.
        """
        x = log_scale = torch.zeros_like(y)
        for _ in range(y.shape[-1]):
            mean, log_scale = self.arn(x)
            log_scale = clamp_preserve_gradients(
                log_scale, self.log_scale_min_clip, self.log_scale_max_clip
            )
            x = (y - mean) * torch.exp(-log_scale)
        self._cached_log_scale = log_scale
        return x


STEPS = 50  # along the natural gradient; a dozen suffice if the posterior is near a Gaussian
DRAWS = 400  # behind the ELBO of the Gaussian guide
#: The Gaussian guide must be better by so many Monte Carlo standard errors, plus so many nats.
ERRORS = 3.0
NEGLIGIBLE = 0.01


def _below_a_gaussian(
    target: Target, params: Mapping[str, Tensor], elbos: Tensor, seed: int
) -> list[str]:
    """Return a warning if a full-rank Gaussian guide has a higher ELBO than another guide, else [].

    Args:
        target: The density.
        params: The params of the model, which stay fixed while the Gaussian guide is fitted.
        elbos: Estimates [k] of the ELBO of the other guide, from one draw each.
        seed: The seed of the fit.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the fit.
    """
    if target.random is not None:
        return []  # fixed draws would fit the Gaussian guide to one choice of the rows
    held = Target(target.model, target.data)
    held.params.update({name: value for name, value in params.items() if name in held.params})
    generator = torch.Generator().manual_seed(seed)
    try:
        origin, root, interrupted = initial_gaussian(held, True, held.start(seed), seed)
        if interrupted:
            raise KeyboardInterrupt
        fit = fit_guide(GaussianGuide(origin, root, True), held, STEPS, generator, False)
    except NumericalError:
        return []  # no Gaussian guide can be fitted
    if fit.interrupted:
        raise KeyboardInterrupt
    guide = fit.guide
    e = standard_normal(generator, DRAWS, held.dim).to(origin)
    gaussian = log_densities(held, guide.draw(e)) - guide.log_prob(e)
    gap = float(gaussian.mean() - elbos.mean())
    error = math.hypot(*(float(x.std()) / math.sqrt(len(x)) for x in (gaussian, elbos)))
    if not gap > ERRORS * error + NEGLIGIBLE:
        return []
    return [
        f"the ELBO of this guide, {float(elbos.mean()):.2f}, is {gap:.2f} nats (+-{error:.2f}) "
        "below that of a full-rank Gaussian, which it could be: raise steps or lower "
        "learning_rate, or use guide='multivariate_normal'"
    ]
