"""The interface of every inference method, and how its draws become a Posterior."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import NotApplicable, SettingError, an
from ..numerics.memory import must_fit
from ..posterior.posterior import Posterior
from ..target.target import Target
from .options import check_options


class Inference:
    """A frozen record of options; ``how(target, seed=, progress=, init=)`` returns a Posterior.

    A run that went badly returns, with warnings; only misuse raises. A new method gives ``__call__`` and ``quick``, and annotates
    its options by what ``options.py`` has; a ``__post_init__`` of its own calls this one first.
    """

    #: whether ``pyro.param`` values are part of what is searched (Target's ``optimise_params``)
    optimises_params: ClassVar[bool] = False
    #: whether it can take a density that is random at every call, right on average (a subsampled plate)
    takes_random_density: ClassVar[bool] = False

    @property
    def reselects_inducing(self) -> bool:
        """Whether it can select inducing inputs again on the way, as ``SGPR(reselect=)`` asks for."""
        return False

    def __post_init__(self) -> None:
        """Raises SettingError or UnknownName for an option that its annotation does not allow."""
        check_options(self)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        """Run it.

        Args:
            target: the density.
            seed: every random number comes from it.
            progress: show one progress bar.
            init: where to start: a Posterior over the same sites, or some of them (its mean), or z [p].
        """
        raise NotImplementedError

    def numbers(self, p: int) -> float:
        """How many numbers its draws of p numbers each take, and what it makes them from."""
        return 3.0 * p * (getattr(self, "draws", None) or 1) * (getattr(self, "chains", None) or 1)

    def quick(self) -> Inference:
        """The same method on a tiny budget: to see that a model runs, not what it says."""
        raise NotImplementedError


def check_draws(how: Inference, target: Target) -> None:
    """Raises NotEnoughMemory where the draws, or a matrix that they are made from, do not fit."""
    name = f"the draws of {target.dim:,} numbers by {type(how).__name__}"
    must_fit(
        8 * how.numbers(target.dim),
        name,
        "use fewer draws, or SVI('normal'), which holds no matrix of them",
    )


def check_batch(how: Inference, target: Target, batch_size: int | None) -> None:
    """Refuse a mini-batch that the data or the model cannot give."""
    if batch_size is None:
        return
    n = getattr(target.data, "n", None)
    if n is None:
        raise NotApplicable(
            "a Dataset to take mini-batches from",
            "a program with its own arguments",
            "leave batch_size out",
        )
    if batch_size > n:
        raise SettingError(
            f"batch_size of at most n = {n} in {type(how).__name__}",
            str(batch_size),
            "lower it, or leave it out",
        )


def draw_batch(target: Target, batch_size: int | None, generator: torch.Generator) -> Tensor | None:
    """Indices of so many rows, without replacement; None, all rows, without a batch size."""
    return (
        None
        if batch_size is None
        else torch.randperm(target.data.n, generator=generator)[:batch_size]
    )


def starting_point(
    target: Target,
    init: Posterior | Tensor | None,
    seed: int,
    spread: float = 0.0,
    jacobian: bool = True,
    check: bool = True,
    compile: bool = True,
) -> Tensor:
    """z [p]: from ``init`` where given, else a point near the origin, of finite density if that is to be checked, which ``compile=False`` does
    without compiling."""
    if init is None:
        return (
            target.start(seed, spread, jacobian=jacobian, compile=compile)
            if check
            else target.origin()
        )
    if isinstance(init, Posterior):
        return _where_it_ended(init, target)
    try:
        z = torch.as_tensor(init)
    except (TypeError, ValueError, RuntimeError):
        do = "pass a Posterior that has those sites, or a tensor of their unconstrained values"
        raise SettingError(
            f"a Posterior or z [{target.dim}] as init", an(type(init).__name__), do
        ) from None
    if z.shape != (target.dim,):
        raise SettingError(
            f"init with shape [{target.dim}]", f"shape {list(z.shape)}", "pass a Posterior or z"
        )
    return z


def _where_it_ended(init: Posterior, target: Target) -> Tensor:
    """z [p] in the middle of a posterior's draws and at its params; sites that it does not have stay at the origin.

    Raises:
        NotApplicable: where no site is in both.
    """
    middles = {**init.params, **{name: v.flatten(0, 1).mean(0) for name, v in init.draws.items()}}
    both = {
        name: v
        for name, v in middles.items()
        if name in target.slices and v.shape == target.slices[name].event
    }
    if not both:
        got = f"one over {', '.join(middles)}"
        raise NotApplicable(
            f"init over some of {', '.join(target.slices)}",
            got,
            "pass a Posterior of this model, or z",
        )
    if both.keys() == target.slices.keys() <= init.draws.keys():
        return target.unconstrain(init.draws).flatten(0, 1).mean(0)
    return target.placed(both)


def divergences(diverging: Tensor) -> list[str]:
    """What is said of draws whose trajectories left the posterior; [] where there are none."""
    count = int(diverging.sum())
    if not count:
        return []
    return [
        f"{count} of {diverging.numel()} draws diverged: the sampler could not follow the posterior there; "
        "raise target_accept, or reparametrise"
    ]


def at_the_mode(target: Target, z: Tensor) -> dict[str, Any]:
    """What BIC and AIC are made of."""
    log_likelihood, observations = target.log_likelihood(z)
    return {
        "log_likelihood": log_likelihood,
        "observations": observations,
        "parameters": target.parameters,
    }


def finish(
    how: Inference,
    target: Target,
    z: Tensor,
    started: float,
    stats: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    params: Mapping[str, Tensor] | None = None,
    interrupted: bool = False,
) -> Posterior:
    """A Posterior from draws z [chain, draw, p]; ``interrupted``: Ctrl-C ended the search before its time."""
    with torch.no_grad():
        values = target.constrain(z)
    found = {
        name: v[0, 0]
        for name, v in values.items()
        if name in target.slices and target.slices[name].param
    }
    draws = {name: v for name, v in values.items() if name not in found}
    return from_draws(
        how, target, draws, started, stats, notes, {**found, **(params or {})}, interrupted
    )


def from_draws(
    how: Inference,
    target: Target,
    draws: dict[str, Tensor],
    started: float,
    stats: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    params: Mapping[str, Tensor] | None = None,
    interrupted: bool = False,
) -> Posterior:
    """A Posterior from draws on the natural scale, ``{site: [chain, draw, *event]}``; its stats gain ``interrupted``."""
    draws, sentence = target.model.relabel(draws)
    notes = [*notes, *([sentence] if sentence else [])]
    own: dict[str, Any] = {} if target.random is None else {"random_density": target.random}
    angles = tuple(name for name in draws if name in target.slices and target.slices[name].circular)
    own |= {"circular": angles} if angles else {}
    return Posterior(
        model=target.model,
        data=target.data,
        draws=draws,
        how=how,
        params={**target.params, **(params or {})},
        stats={**(stats or {}), **own, "interrupted": interrupted},
        seconds=time.perf_counter() - started,
        warnings=(*target.notes, *notes),
    )
