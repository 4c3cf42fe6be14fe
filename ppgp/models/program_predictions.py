"""A program run again at draws of its posterior: discrete sites given the data, and the laws of what was not drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro.distributions import ExpandedDistribution, MaskedDistribution
from pyro.infer import config_enumerate, infer_discrete
from pyro.poutine import condition
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, MixtureSameFamily

from ..errors import DataError, NotApplicable
from ..numerics import univariate
from ..numerics.seeding import seeded
from ..target.enumeration import is_discrete, plate_nesting
from ..target.handlers import Run, is_data, over_draws

RUNS = 1000  # at least so many where a run draws something: each draw of the posterior serves several times
# and about so many where discrete sites are inferred, which is done one draw at a time
Values = dict[str, Tensor]
Call = Callable[[], Any]


class Replay(Run):
    """``Run`` at drawn values, which have to have the shapes of the program's sites."""

    def _pyro_sample(self, msg: Any) -> None:
        super()._pyro_sample(msg)
        name = msg["name"]
        if msg["is_observed"] or name not in self.values or not hasattr(msg["fn"], "event_shape"):
            return
        here, there = (
            tuple(msg["fn"].batch_shape + msg["fn"].event_shape),
            tuple(self.values[name].shape),
        )
        if here != there:
            raise DataError(
                f"{name!r} of shape {list(there)}, as in the fit",
                f"shape {list(here)}",
                "give new groups or rows a site of their own in the program: it is drawn from its prior",
            )


def laws(
    program: Call, fitted: Call, same_rows: bool, draws: Values, seed: int
) -> dict[str, Distribution]:
    """{site: its law} for every site that was not drawn, batch [draw, n]; plates within plates are laid end to end.

    Args:
        program: runs it with the arguments of the prediction.
        fitted: runs it with those of the fit.
        same_rows: whether both are about the same rows, so that the discrete sites of rows are those of the fit.
        draws: {site: [draw, *event]}.
    """
    first = {name: value[0] for name, value in draws.items()}
    with seeded(seed), Run(first) as run:
        fitted()
    kept = _of_the_fit(run, set(draws), same_rows)
    again = max(1, math.ceil(RUNS / len(next(iter(draws.values())))))
    kinds: dict[str, Distribution] = {}

    def one(values: Values) -> Values:
        return _parts(program, values, set(kept), kinds)

    with seeded(seed):
        if kept:
            draws = _repeated(_spaced(draws, RUNS), again)  # each run of them takes milliseconds
            draws = draws | over_draws(lambda values: _inferred(fitted, run, values, kept), draws)
        elif again > 1 and _draws_something(one, first, seed):
            draws = _repeated(draws, again)
        stacked = over_draws(one, draws)
    return {name: _law(name, kind, stacked) for name, kind in kinds.items()}


def _repeated(draws: Values, times: int) -> Values:
    return {name: value.repeat_interleave(times, 0) for name, value in draws.items()}


def _spaced(draws: Values, most: int) -> Values:
    """At most so many draws, at equal distances."""
    size = len(next(iter(draws.values())))
    index = torch.linspace(0, size - 1, min(most, size)).long()
    return {name: value[index] for name, value in draws.items()}


def _of_the_fit(run: Run, drawn: set[str], same_rows: bool) -> list[str]:
    """The discrete sites that were summed out and are inferred given the data: all but those of rows that are now others."""
    observed = [_plates(s) for _, s in run.samples() if is_data(s)]
    found = [name for name, s in run.latents().items() if name not in drawn and is_discrete(s)]
    return [
        n
        for n in found
        if same_rows or not _plates(run.sites[n]) or _plates(run.sites[n]) not in observed
    ]


def _plates(site: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(f.name for f in site["cond_indep_stack"] if f.vectorized)


def _inferred(fitted: Call, run: Run, values: Values, wanted: list[str]) -> Values:
    """The discrete sites drawn from their law given the data and one draw of the others; ``run``: one of the program."""
    latent = {name: value for name, value in values.items() if name in run.latents()}
    runs: list[Run] = []

    def held() -> None:
        with Run({}, params=values) as found, condition(data=latent):
            fitted()
        runs.append(found)

    infer_discrete(config_enumerate(held), first_available_dim=-1 - plate_nesting(run))()  # type: ignore[operator]
    return {name: runs[-1].sites[name]["value"] for name in wanted}


def _draws_something(one: Callable[[Values], Values], first: Values, seed: int) -> bool:
    """Whether the laws are others with other random numbers: a site that was not drawn stands above another."""
    found = []
    for own in (seed, seed + 1):
        with seeded(own):
            found.append(one(first))
    return any(not torch.equal(value, found[1][name]) for name, value in found[0].items())


def _parts(
    program: Call, values: Values, inferred: set[str], kinds: dict[str, Distribution]
) -> Values:
    """The parameters of the law of every site that was not drawn, in one run; ``kinds`` gets the laws."""
    with Replay(values) as run:
        program()
    parts = {}
    for name, site in run.latents().items():
        if name in values and name not in inferred:
            continue
        law = _certain(site) if name in values else _plain(site["fn"])
        if law is None:
            continue
        each = univariate.parameters(law)
        if not each:
            raise NotApplicable(
                f"a law with tensor parameters for {name!r}",
                type(law).__name__,
                "use a plain Pyro distribution for it",
            )
        kinds[name] = law
        parts |= {f"{name}\0{k}": v for k, v in each.items()}
    return parts


def _certain(site: Mapping[str, Any]) -> Distribution | None:
    """A discrete site that was inferred, as a law that is sure of its value; None for a law that is not one of labels."""
    law, value = _plain(site["fn"]), site["value"]
    if isinstance(law, Bernoulli):
        return Bernoulli(probs=value)
    if isinstance(law, Categorical):
        sure = torch.nn.functional.one_hot(value.long(), law.probs.shape[-1]).to(law.probs)
        return Categorical(probs=sure)
    return None


def _plain(law: Any) -> Any:
    """A law without what only arranges it; of a mixture one component, drawn by its weights."""
    while isinstance(law, Independent | MaskedDistribution | ExpandedDistribution):
        law = (
            law.base_dist
            if not isinstance(law, ExpandedDistribution)
            else law.base_dist.expand(law.batch_shape)
        )
    if isinstance(law, MixtureSameFamily) and not law.event_shape:
        which = law.mixture_distribution.sample()
        component = law.component_distribution
        each = univariate.parameters(component)
        return univariate.rebuilt(component, {k: _taken(v, which) for k, v in each.items()})
    return law


def _taken(parameter: Tensor, which: Tensor) -> Tensor:
    """[*batch, K, *event] -> [*batch, *event] at ``which`` [*batch]."""
    axis = which.ndim
    index = which.reshape(*which.shape, *(1,) * (parameter.ndim - axis))
    return torch.take_along_dim(parameter, index, axis).squeeze(axis)


def _law(name: str, kind: Distribution, stacked: Values) -> Distribution:
    """The law over all draws, its plates laid end to end."""
    values = {k.split("\0")[1]: v for k, v in stacked.items() if k.split("\0")[0] == name}
    batch, size = kind.batch_shape, kind.batch_shape.numel()
    if kind.event_shape and size > 1:
        raise NotApplicable(
            f"one joint law, or one number a place, for {name!r}",
            f"a law of batch {list(batch)} and event {list(kind.event_shape)}",
            "predict fewer places at a time",
        )
    rows = () if kind.event_shape else (size,)
    flat = {k: v.reshape(len(v), *rows, *v.shape[1 + len(batch) :]) for k, v in values.items()}
    return univariate.rebuilt(kind, flat)
