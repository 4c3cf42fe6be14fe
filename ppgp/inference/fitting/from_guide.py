"""Posteriors from guides that were trained in plain Pyro."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.infer import SVI as PyroSVI
from pyro.infer.autoguide import AutoDelta, AutoGuide, AutoLaplaceApproximation
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.nn import Module

from ...density.handlers import is_deterministic
from ...density.layout import with_given
from ...density.plates import plates_taking
from ...density.target import Target
from ...errors import NotApplicable, SettingError, an
from ...posterior.posterior import Posterior
from ...runtime.process_locks import one_at_a_time
from ...runtime.seeding import seeded
from ...runtime.whole_numbers import check_seed
from ..base import finish, from_draws, weighed
from ..variational.pathfinder import log_densities
from ..variational.svi import SVI
from .fit import problem_of_program

__all__ = ["from_guide"]


def from_guide(
    program: Callable[..., Any],
    guide: Any,
    arguments: Mapping[str, Any],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Posterior:
    """Return the Posterior that a guide trained in plain Pyro stands for.

    The guide is run once for each draw, with the params that Pyro's store holds, and is not trained
    further. Plates with ``subsample_size=`` are whole. The store, the guide and the program stay as
    they are. Params of the program have the values of the store. Hoffman et al. (2013).

    Sites have the units of the program. Stats: ``elbo``, in nats, with ``lp`` and ``log_q`` of the
    draws, from which ``ppgp.diagnose`` judges the guide, if the guide has a density of the sites.

    Args:
        program: The Pyro program.
        guide: A guide: an autoguide, a function or a PyroModule; or the ``pyro.infer.SVI`` that
            trained it.
        arguments: The arguments that the program and the guide were trained with, by name.
        draws: The number of draws. A guide that is a point gives one: ``AutoDelta``, and
            ``AutoLaplaceApproximation`` until its ``laplace_approximation`` is called, whose result
            is the guide with a spread.
        seed: The seed of the draws.

    Returns:
        The Posterior, whose draws are ``{site: [1, draw, *event]}``.

    Raises:
        NotApplicable: If the guide was not trained, or does not draw every continuous latent site
            of the program in its shape.
        DataError: If the program does not take these arguments.
        SettingError: If ``draws`` or ``seed`` is no whole number.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> def program(y):
        ...     mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        ...     with pyro.plate("rows", len(y)):
        ...         pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> def guide(y):
        ...     where = pyro.param("where", torch.tensor(0.0))
        ...     pyro.sample("mean", dist.Normal(where, 0.5))
        >>> y = torch.tensor([1.0, 2.0, 3.0, 2.0])
        >>> pyro.set_rng_seed(0)  # of the steps of Pyro
        >>> with pyro.get_param_store().scope():
        ...     optimizer = pyro.optim.Adam({"lr": 0.1})
        ...     svi = pyro.infer.SVI(program, guide, optimizer, pyro.infer.Trace_ELBO())
        ...     for _ in range(300):
        ...         loss = svi.step(y)
        ...     posterior = ppgp.from_guide(program, svi, {"y": y})
        >>> posterior
        <Posterior of Program by SVI: 1 x 1000 draws, ... s>
        >>> bool(abs(posterior.draws["mean"].mean() - 2.0) < 0.5)
        True
    """
    started = time.perf_counter()
    seed = check_seed(seed)
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 1:
        raise SettingError("a whole number of draws above 0", repr(draws), "for example draws=1000")
    if isinstance(guide, PyroSVI):
        guide = guide.guide
    if not callable(guide):
        do = "pass the guide that was trained, or the pyro.infer.SVI that trained it"
        raise NotApplicable("a guide of Pyro", an(type(guide).__name__), do)
    if isinstance(guide, AutoGuide) and guide.prototype_trace is None:
        raise _untrained(f"an {type(guide).__name__} that has not been run")
    # before laplace_approximation is called, AutoLaplaceApproximation draws its mode
    mode = isinstance(guide, AutoLaplaceApproximation)
    if mode or isinstance(guide, AutoDelta):
        draws = 1
    with one_at_a_time():
        problem = problem_of_program(program, arguments)
        target = Target(problem.model, problem.data, empty=True)
        target.notes.clear()  # the values of the params are those of the guide's training
        if mode:
            target.notes.append(
                "an AutoLaplaceApproximation is its mode alone, without a spread: pass "
                "guide.laplace_approximation(...), with the arguments of the program"
            )
        values, log_q = _drawn(guide, target, draws, seed)
        how = SVI(guide=guide, draws=draws)
        try:
            z = target.unconstrain(values)
        except NotApplicable:  # supports that depend on other sites
            whole = with_given(values, target.survey.imputed)
            kept = {name: value[None] for name, value in whole.items()}
            return from_draws(how, target, kept, started)
        notes: list[str] = []
        stats = _densities(target, z, log_q, notes)
        return finish(how, target, z[None], started, stats, notes)


def _untrained(got: str) -> NotApplicable:
    do = "train it by pyro.infer.SVI(...).step, and call from_guide while the param store holds it"
    return NotApplicable("a guide that was trained", got, do)


def _drawn(
    guide: Callable[..., Any], target: Target, draws: int, seed: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Run the guide once for each draw.

    Returns:
        {site: [draw, *event]}, and the log densities of the guide [draw] on the natural scale; None
        where it draws other variables too, or entries that ``obs_mask`` observes.

    Raises:
        NotApplicable: If params of the guide have no value in the store, or sites are missing.
    """
    slices = target.slices
    found: dict[str, list[Tensor]] = {name: [] for name in slices}
    densities: list[Tensor] = []
    store = pyro.get_param_store()
    state = store.get_state()
    whole = pyro.validation_enabled(False), store.scope(state), plates_taking()
    with whole[0], whole[1], whole[2], seeded(seed, target.survey.like.device), torch.no_grad():
        for _ in range(draws):
            trace: Any = poutine.trace(guide).get_trace(**target.data)
            sites: dict[str, Any] = dict(trace.nodes)
            new = [n for n, s in sites.items() if s["type"] == "param" and n not in state["params"]]
            if new and not isinstance(guide, Module):
                raise _untrained(f"no value of its param {new[0]!r} in Pyro's store")
            for name, s in slices.items():
                found[name].append(_value(name, sites, s.event))
            samples = {n: s for n, s in sites.items() if s["type"] == "sample"}
            if all(n in slices or _adds_no_variable(s) for n, s in samples.items()):
                each = [s["fn"].log_prob(s["value"]).sum() for s in samples.values()]
                densities.append(torch.stack([one.to(each[0]) for one in each]).sum())
    values = {name: torch.stack(several) for name, several in found.items()}
    if target.survey.imputed:  # of the guide's numbers, those in place of data would count
        return values, None
    return values, torch.stack(densities) if len(densities) == draws > 1 else None


def _value(name: str, sites: Mapping[str, Any], event: torch.Size) -> Tensor:
    """Return the value of a latent site of the program, drawn by the guide."""
    do = "give the guide a pyro.sample of that name and shape"
    if name not in sites:
        got = f"none of {name!r}"
        raise NotApplicable("a guide that draws every latent site of the program", got, do)
    value = sites[name]["value"].detach()
    if value.numel() != event.numel():
        got = f"{list(value.shape)}"
        raise NotApplicable(f"{name!r} of shape {list(event)} from the guide", got, do)
    return value.reshape(event)


def _adds_no_variable(site: Any) -> bool:
    """Return whether a site of a guide is a plate, a value, or what an autoguide's sites are of."""
    auxiliary = (site["infer"] or {}).get("is_auxiliary", False)
    return site_is_subsample(site) or is_deterministic(site) or auxiliary


def _densities(target: Target, z: Tensor, log_q: Tensor | None, notes: list[str]) -> dict[str, Any]:
    """Return ``lp``, ``log_q`` and ``elbo`` of draws z [draw, p]; {} where they are not known."""
    if log_q is None or target.out_of_torch is not None:
        return {}
    lp, _ = weighed(target, notes, partial(log_densities, target, z))
    if lp is None:
        return {}
    natural = [target.log_density(point, jacobian=False).detach() for point in z]
    ratio = torch.stack(natural) - log_q.to(lp)
    return {"lp": lp[None], "log_q": (lp - ratio)[None], "elbo": float(ratio.mean())}
