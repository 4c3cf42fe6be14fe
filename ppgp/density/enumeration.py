"""Run a program with all values of its discrete latent sites, and sum these out.

Pyro's handlers run the program once: each discrete site takes all its values along an axis of its
own, left of the plates, as in Pyro's TraceEnum_ELBO. Operations on the same tensors, as in the
steps of a Markov chain, are done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import torch
from pyro import distributions as dist
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.distributions.util import scale_and_mask
from pyro.poutine.enum_messenger import EnumMessenger
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..data.argument_mistakes import of_dtypes
from ..errors import NotApplicable, an, listed
from ..runtime.seeding import seeded
from .elimination import (
    Factor,
    Name,
    aligned,
    connected,
    eliminated,
    in_a_plate,
    over_plates,
    rest_of,
    several_scales,
    taken,
)
from .graph.enumerated_steps import DensitiesOfSteps, LoopOfSites
from .handlers import (
    Run,
    is_data,
    is_deterministic,
    is_discrete,
    quietly,
    site_log_prob,
    without_missing,
)
from .layout import UNOBSERVED
from .plates import plate_of
from .shared_operations import SharedOperations
from .supports import guarded_like

TERMS = 6  # terms of a sum that are compared with the program
MANY = 100  # values of discrete sites, of which two terms show enough
FEWEST = 4  # alike sites whose densities are evaluated together
OF_LOGITS = ("probs", "logits")
#: distributions that their parameters determine, so that many are evaluated as one
PLAIN: dict[Any, tuple[tuple[str, ...], int]] = {
    dist.Normal: (("loc", "scale"), 0),
    dist.LogNormal: (("loc", "scale"), 0),
    dist.Gamma: (("concentration", "rate"), 0),
    dist.Exponential: (("rate",), 0),
    dist.Poisson: (("rate",), 0),
    dist.Bernoulli: (OF_LOGITS, 0),
    dist.Categorical: (OF_LOGITS, 1),
}


def check_enumerable(name: str, site: dict[str, Any]) -> None:
    """Raise NotApplicable for a discrete site of infinitely many values, with no sum."""
    if site["fn"].has_enumerate_support:
        return
    do = "observe it, or bound it (a Categorical of its probabilities up to a bound)"
    if name.endswith(UNOBSERVED):
        law = type(site["fn"]).__name__
        do = (
            f"leave its missing numbers out by {law}(...).mask(known) in place of obs_mask, or by "
            "poutine.mask(mask=known), which is the same where nothing else depends on them, or "
            "bound it (a Categorical of its probabilities up to a bound)"
        )
    raise NotApplicable(
        "continuous latent sites, or discrete ones of finite support, which are summed out",
        f"{name!r}, {an(type(site['fn']).__name__)}",
        do,
    )


def plate_nesting(run: Run) -> int:
    """Return how deeply the plates of a run are nested."""
    dims = [f.dim for _, s in run.samples() for f in s["cond_indep_stack"] if f.vectorized]
    return -min(dims) if dims else 0


class Enumeration(EnumMessenger):
    """Give each discrete latent site all its values, along an axis of its own.

    Equal values of two sites are one tensor, so that what is computed from them is shared.

    Args:
        nesting: How deeply plates are nested.

    Attributes:
        variables: ``{number of the variable: site}``.
        support: ``{site: its values [K, *event]}``.
    """

    def __init__(self, nesting: int) -> None:
        super().__init__(first_available_dim=-1 - nesting)
        self.variables: dict[int, str] = {}
        self.support: dict[str, Tensor] = {}
        self.operations = SharedOperations(False)
        self._values: dict[Any, Tensor] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Context manager: operations inside are not shared with those outside."""
        operations = self.operations
        before, operations.active = operations.active, False
        try:
            yield
        finally:
            operations.active = before and not operations.written

    def _pyro_sample(self, msg: Any) -> None:
        law = msg["fn"]
        wanted = not (msg["is_observed"] or msg["done"] or site_is_subsample(msg))
        if wanted and isinstance(law, TorchDistributionMixin) and law.has_enumerate_support:
            msg["infer"] = {**(msg["infer"] or {}), "enumerate": "parallel"}
        super()._pyro_sample(msg)
        infer = msg["infer"] or {}
        dim = infer.get("_enumerate_dim")
        if not wanted or dim is None:
            return
        self.variables[infer["_dim_to_id"][dim]] = msg["name"]
        value, event = msg["value"], law.event_dim
        axis = value.ndim + dim - event
        flat = value.movedim(axis, 0)
        if flat.numel() != len(flat) * flat.shape[flat.ndim - event :].numel():
            flat = flat.flatten(1, flat.ndim - 1 - event)[:, 0]  # the same for all of a plate
        values = flat.reshape(len(flat), *flat.shape[flat.ndim - event :])
        self.support[msg["name"]] = values
        key = (dim, value.shape, value.dtype, value.device, tuple(value.flatten().tolist()))
        msg["value"] = self._values.setdefault(key, value)


@dataclass(frozen=True, eq=False)
class Enumerated:
    """What one run of a program with all values of its discrete sites shows.

    Attributes:
        factors: ``{site: its factor}``, of all sites that have one.
        variables: ``{number of a variable: site}``.
        support: ``{discrete site: its values [K, *event]}``.
        plates: ``{plate: its place}``, counted from the last axis of a density.
        batch: The plates of each discrete site, and their sizes, one for each axis of a value
            before its event. An axis in no plate has the name "" and size 1.
        data: The names of the observed sites that are data.
        writes: Whether the program wrote into a tensor that several steps share.
    """

    factors: dict[str, Factor]
    variables: dict[int, str]
    support: dict[str, Tensor]
    plates: dict[str, int]
    batch: dict[str, tuple[tuple[str, int], ...]]
    data: frozenset[str]
    writes: bool


def enumerated(
    run: Run, program: Callable[[], Any], nesting: int, shared: bool = True
) -> Enumerated:
    """Run a program with all values of its discrete sites, and return the factors of its sites.

    They are in float64, whatever the dtype of the program. A mask leaves out what is observed or
    depends on a discrete site, and not the probabilities of a discrete site itself, whose sum is
    then 1.

    Args:
        run: The handler that gives the continuous sites their values, which is active.
        program: A call runs it.
        nesting: How deeply its plates are nested.
        shared: Whether equal operations are done once, for a program that writes into no tensor.
    """
    operations = SharedOperations(shared)
    enumeration = Enumeration(nesting)
    enumeration.operations = operations
    with operations:
        with enumeration:
            program()
        sites = {
            name: {**s, "value": without_missing(s)}
            for name, s in run.samples()
            if not is_deterministic(s)
        }
        plain = {name: s for name, s in sites.items() if _of_steps(s) is None}
        numbers = _log_densities(plain)
        factors = {
            name: _factor(s, numbers[name], nesting) if name in plain else _of_loop(s, nesting)
            for name, s in sites.items()
        }
        factors = _summed_in_loops(sites, factors)
    plates = {f.name: f.dim for s in sites.values() for f in s["cond_indep_stack"] if f.vectorized}
    return Enumerated(
        factors,
        enumeration.variables,
        enumeration.support,
        plates,
        {name: _batch(sites[name]) for name in enumeration.support},
        frozenset(name for name, s in sites.items() if is_data(s)),
        operations.written,
    )


def _batch(s: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the name and the size of the plate of each axis of a discrete site."""
    frames = {f.dim: (f.name, f.size) for f in s["cond_indep_stack"] if f.vectorized}
    return tuple(frames.get(dim, ("", 1)) for dim in range(min(frames, default=0), 0))


def summed_out(
    run: Run, program: Callable[[], Any], nesting: int, likelihood: bool = True, shared: bool = True
) -> Tensor:
    """Return the log density of a program, every discrete latent site summed over its values.

    It is in float64. Call it under a ``Run`` that gives the continuous sites their values.

    Args:
        run: That handler.
        program: A call runs it.
        nesting: How deeply its plates are nested.
        likelihood: Whether the observed sites count.
        shared: See ``enumerated``.

    Raises:
        NotApplicable: If a scale belongs to a part of a sum.
    """
    found = enumerated(run, program, nesting, shared)
    kept = [f for name, f in found.factors.items() if likelihood or name not in found.data]
    total: Tensor | float = 0.0
    for part in eliminated(kept):
        total = total + part.value.sum()
    return torch.as_tensor(total)


@dataclass(frozen=True, eq=False)
class Rows:
    """The log density of data, one number for each row, with the discrete sites summed out.

    Attributes:
        sites: The observed sites that the discrete sites connect.
        plates: The plates whose elements are the rows, outermost first.
        values: [*plates].
    """

    sites: tuple[str, ...]
    plates: tuple[str, ...]
    values: Tensor


def row_densities(found: Enumerated) -> list[Rows]:
    """Return the log density of the data of each row given the continuous sites.

    Discrete sites connect all observed sites that depend on them. What is connected inside a plate
    is one row for each of its elements, as the sequences of a hidden Markov model.

    Args:
        found: What a run of the program shows.

    Raises:
        NotApplicable: If discrete sites connect data beyond all plates, so that no row has a
            density of its own.
    """
    rows = []
    for group in connected(found.factors):
        data = [name for name in group if name in found.data]
        hidden = any(found.factors[name].variables for name in group)
        if not data or not hidden:
            continue
        # several where the first step of a loop depends on no discrete site
        parts = eliminated([found.factors[name] for name in group], chains=False)
        others = [found.factors[name] for name in group if name not in found.data]
        shared = frozenset.intersection(*(part.plates for part in parts))
        plates = sorted(shared, key=found.plates.__getitem__)
        if not plates:
            raise NotApplicable(
                "a program whose data are independent given the sites that were drawn",
                f"{listed(list(map(repr, data)), 'site')} that discrete sites in no plate connect",
                "compare such programs by their log likelihood, or by rows left out and fitted "
                "again",
            )
        value = torch.zeros(())
        for sign, each in ((1, parts), (-1, eliminated(others, chains=False))):
            for part in each:
                own = over_plates(part, shared)
                value = value + sign * aligned(own.value, own.dims, plates)
        rows.append(Rows(tuple(data), tuple(plates), value))
    return rows


def _factor(s: Mapping[str, Any], found: tuple[Tensor, int | None], nesting: int) -> Factor:
    """Return the factor of a site.

    Args:
        s: The site.
        found: Its log densities, or those of several sites with its row among them.
        nesting: How deeply plates are nested.
    """
    values, row = found
    frames = {f.dim: f.name for f in s["cond_indep_stack"] if f.vectorized}
    numbers = (s["infer"] or {}).get("_dim_to_id", {})
    shape = values.shape[row is not None :]
    kept, dims = [], []
    for axis, size in enumerate(shape):
        dim = axis - len(shape)
        if size == 1 and not (dim < -nesting and dim in numbers and _is_own(s, dim)):
            continue
        kept.append(axis + (row is not None))
        if dim < -nesting and dim in numbers:
            dims.append(numbers[dim])
        elif dim in frames:
            dims.append(frames[dim])
        else:
            raise _no_plate(s)
    front = [0] if row is not None else []
    values = values.reshape([values.shape[axis] for axis in (*front, *kept)]).double()
    plates = frozenset(frames.values())
    every = {f.dim: f for f in s["cond_indep_stack"] if f.vectorized}
    return _with_scale(Factor(values, tuple(dims), plates, row=row), s["scale"], every)


def _of_steps(s: Mapping[str, Any]) -> DensitiesOfSteps | None:
    """Return the log densities of a site of a loop that sums out discrete sites."""
    return (s["infer"] or {}).get("densities_of_steps")


def _of_loop(s: Mapping[str, Any], nesting: int) -> Factor:
    """Return the factor of a site of the steps of a loop, with that of its first step."""
    found = cast(DensitiesOfSteps, _of_steps(s))
    loop, at = found.loop, -1 - found.depth
    infer = s["infer"] or {}
    frames = {f.dim: f for f in s["cond_indep_stack"] if f.vectorized and f.dim != at}
    numbers = {**infer.get("_dim_to_id", {}), **loop.numbers}
    names: dict[int, Name] = {dim: number for dim, number in numbers.items() if dim < -nesting}
    names |= {dim: frame.name for dim, frame in frames.items()} | {at: loop.plate}
    always = {at, infer.get("_enumerate_dim")}  # their axes may have length 1
    plates = frozenset(frame.name for frame in frames.values())
    first_mask, mask = _masks_of_loop(s, loop, at)

    def laid(values: Tensor, here: Any) -> tuple[Tensor, tuple[Name, ...]]:
        values = scale_and_mask(values, 1.0, here).double()
        sizes = [1] * max(values.ndim, *(-dim for dim in (*frames, at)))
        sizes[len(sizes) - values.ndim :] = values.shape
        for dim, frame in frames.items():  # a step knows no plates around the loop
            sizes[dim] = max(sizes[dim], frame.size)
        kept = [dim for dim in range(-len(sizes), 0) if sizes[dim] > 1 or dim in always]
        if not names.keys() >= {*kept}:
            raise _no_plate(s)
        shape = [sizes[dim] for dim in kept]
        return values.expand(sizes).reshape(shape), tuple(names[dim] for dim in kept)

    value, dims = laid(found.first, first_mask)
    value = value.squeeze(dims.index(loop.plate))
    outer = tuple(dim for dim in dims if dim != loop.plate)
    first = Factor(value, outer, plates)
    if found.rest is None:
        return _with_scale(first, s["scale"], frames)
    values, dims = laid(found.rest, mask)
    return Factor(values, dims, plates | {loop.plate}, loop=loop, first=first)


def _masks_of_loop(s: Mapping[str, Any], loop: LoopOfSites, at: int) -> tuple[Any, Any]:
    """Return the mask of the first step of a loop, and that of the others in their order."""
    mask = None if is_discrete(dict(s)) else s["mask"]
    if not isinstance(mask, Tensor) or mask.ndim < -at or mask.shape[at] == 1:
        return mask, mask
    turned = mask.flip(at) if loop.reverse else mask
    return turned.narrow(at, 0, 1), turned.narrow(at, 1, loop.steps - 1)


def _summed_in_loops(
    sites: Mapping[str, dict[str, Any]], factors: dict[str, Factor]
) -> dict[str, Factor]:
    """Return the factors, of which those stay in loops that the carry of a loop connects.

    The steps of the others are the elements of a plate.
    """
    found = dict(factors)
    if all(factor.loop is None for factor in factors.values()):
        return found
    for group in connected(factors):
        own = {name: factors[name] for name in group if factors[name].loop is not None}
        loops = {id(factor.loop): factor.loop for factor in own.values()}
        carried = {v for loop in loops.values() if loop for v in loop.before}
        chain = carried & {v for factor in own.values() for v in factor.variables}
        for name, factor in own.items():
            s = sites[name]
            frames = {f.dim: f for f in s["cond_indep_stack"] if f.vectorized}
            if not chain:
                found[name] = _with_scale(in_a_plate(factor), s["scale"], frames)
                continue
            # the steps have one scale, that of the first
            first = _with_scale(cast(Factor, factor.first), s["scale"], frames)
            found[name] = replace(factor, first=first)
    return found


def _is_own(s: Mapping[str, Any], dim: int) -> bool:
    """Return whether an axis is that of the values of this site, which may have one value."""
    return (s["infer"] or {}).get("_enumerate_dim") == dim


def _no_plate(s: Mapping[str, Any]) -> NotApplicable:
    return NotApplicable(
        "every batch in a plate, as discrete sites are summed out",
        f"an axis of {s['name']!r} in no plate",
        "enclose the batch in pyro.plate, or make it one event by .to_event",
    )


def _with_scale(factor: Factor, scale: Any, frames: Mapping[int, Any]) -> Factor:
    """Return a factor with a scale, which may be one for each entry of its plates.

    Args:
        factor: The factor.
        scale: A number, or a tensor that is laid as the log density of the site.
        frames: ``{axis: its plate}``.
    """
    if not isinstance(scale, Tensor):
        return replace(factor, scale=scale)
    if scale.numel() == 1:
        return replace(factor, scale=scale.reshape(()))
    plates = sorted(dim for dim in factor.dims if isinstance(dim, str))
    kept = [axis for axis, size in enumerate(scale.shape) if size > 1]
    own = [frames[axis - scale.ndim].name if axis - scale.ndim in frames else "" for axis in kept]
    if not set(own) <= set(plates):
        raise several_scales()
    values = scale.reshape([scale.shape[axis] for axis in kept])
    return replace(factor, scale=aligned(values, own, plates))


def _log_densities(sites: Mapping[str, dict[str, Any]]) -> dict[str, tuple[Tensor, int | None]]:
    """Return the log densities of each site, masked and not scaled.

    Those of many alike sites are evaluated together, and each has a row of the result.
    """
    alike: dict[Any, list[str]] = {}
    found: dict[str, tuple[Tensor, int | None]] = {}
    for name, s in sites.items():
        key = _kind(s)
        if key is None:
            if hasattr(s["value"], "_pyro_categorical_support"):
                # equal values are one tensor, which has the mark of another distribution
                s["value"]._pyro_categorical_support = id(s["fn"])
            found[name] = _masked(s, site_log_prob(s)), None
        else:
            alike.setdefault(key, []).append(name)
    for names in alike.values():
        same: dict[Any, list[str]] = {}
        for name in names:
            same.setdefault(_identity(sites[name]), []).append(name)
        if len(same) < FEWEST:
            for equal in same.values():
                values = _masked(sites[equal[0]], site_log_prob(sites[equal[0]]))
                found |= dict.fromkeys(equal, (values, None))
            continue
        together = _together([sites[equal[0]] for equal in same.values()])
        for row, equal in enumerate(same.values()):
            found |= dict.fromkeys(equal, (together, row))
    return {name: found[name] for name in sites}


def _masked(s: Mapping[str, Any], values: Tensor) -> Tensor:
    """Return log densities with 0 where a mask leaves them out, as it does of no discrete site."""
    return values if is_discrete(dict(s)) else scale_and_mask(values, 1.0, s["mask"])


def _laws(law: Any) -> tuple[Any, int]:
    """Return a distribution without ``to_event``, and how many axes this made events."""
    over = 0
    while isinstance(law, dist.Independent):
        over += law.reinterpreted_batch_ndims
        law = law.base_dist
    return law, over


def _given(law: Any) -> dict[str, Tensor]:
    """Return the parameters from which a distribution was made."""
    names, _ = PLAIN[type(law)]
    own = vars(law.base_dist if isinstance(law, dist.LogNormal) else law)  # a transformed normal
    if names == OF_LOGITS:
        names = ("probs",) if own.get("probs") is own.get("_param") else ("logits",)
    return {name: own[name] for name in names if name in own}


def _kind(s: Mapping[str, Any]) -> Any:
    """Return what sites have in common that are evaluated together; None for any other site."""
    law, over = _laws(s["fn"])
    value, mask = s["value"], s["mask"]
    if type(law) not in PLAIN or s["args"] or s["kwargs"] or not isinstance(value, Tensor):
        return None
    if hasattr(value, "_pyro_categorical_support"):
        return None  # Pyro has a short way for it
    rank = max(len(law.batch_shape), value.ndim)
    if isinstance(mask, Tensor) and mask.ndim > rank - over:
        return None
    parameters = _given(law)
    shapes = tuple((name, x.shape, x.dtype) for name, x in parameters.items())
    of_mask = (mask.shape,) if isinstance(mask, Tensor) else mask
    guard = vars(law).get("guard")
    plates = tuple((f.name, f.dim) for f in s["cond_indep_stack"] if f.vectorized)
    form = (type(law), over, law.batch_shape, shapes, guard, is_discrete(dict(s)))
    return (*form, value.shape, value.dtype, of_mask, plates)


def _identity(s: Mapping[str, Any]) -> Any:
    """Return what equal sites have in common: their tensors are the same."""
    law, _ = _laws(s["fn"])
    return (*(id(x) for x in _given(law).values()), id(s["value"]), id(s["mask"]))


def _together(sites: Sequence[Mapping[str, Any]]) -> Tensor:
    """Return the log densities [site, ...] of alike sites, masked."""
    first, over = _laws(sites[0]["fn"])
    _, of_event = PLAIN[type(first)]
    laws = [_laws(s["fn"])[0] for s in sites]
    given = [_given(law) for law in laws]
    rank = max(len(first.batch_shape), sites[0]["value"].ndim)
    parameters = {name: _stacked([g[name] for g in given], rank, of_event) for name in given[0]}
    law = guarded_like(type(first)(**parameters, validate_args=False), first)
    value = _stacked([s["value"] for s in sites], rank, 0)
    values = law.log_prob(value)
    if over:
        values = values.sum(tuple(range(-over, 0)))
    mask = sites[0]["mask"]
    if isinstance(mask, Tensor):
        mask = _stacked([s["mask"] for s in sites], rank - over, 0)
    return _masked({**sites[0], "mask": mask}, values)


def _stacked(tensors: Sequence[Tensor], rank: int, event: int) -> Tensor:
    """Return tensors as rows, or what they have in common as it is.

    Args:
        tensors: Of equal shapes.
        rank: The number of axes of the batch, before those of the event, that each row gets.
        event: The number of axes of the event.
    """
    first = tensors[0]
    if all(x is first for x in tensors):
        return first
    rows = torch.stack(list(tensors))
    missing = rank + event - first.ndim
    return rows.reshape(len(rows), *(1,) * missing, *first.shape)


class AnyValue(Messenger):
    """Draw each discrete site from all its values alike, so that rare ones are tried."""

    def _pyro_sample(self, msg: Any) -> None:
        if msg["done"] or site_is_subsample(msg) or not is_discrete(msg):
            return
        law = msg["fn"]
        every = law.enumerate_support(expand=True)
        which = torch.randint(len(every), law.batch_shape, device=every.device)
        which = which.reshape(1, *law.batch_shape, *(1 for _ in law.event_shape))
        msg["value"] = every.gather(0, which.expand(1, *every.shape[1:]))[0]
        msg["done"] = True


def check_enumeration(
    program: Callable[[], Any], nesting: int, params: Mapping[str, Tensor]
) -> bool:
    """Compare terms of the sum over discrete sites with the program at values of these sites.

    Pyro runs the program once with all values of a site in an axis of their own. A program that
    takes another axis for it, or asks for one value, has another sum. Logarithms are compared,
    however improbable the values.

    Args:
        program: A call runs it.
        nesting: How deeply its plates are nested.
        params: The values of params that are held.

    Returns:
        Whether equal operations may be done once: the program writes into no tensor.

    Raises:
        NotApplicable: If they differ, or the program does not run with all values at once.
    """
    shared, pinned = True, {}
    for seed in range(TERMS):
        if seed == 2 and sum(value.numel() for value in pinned.values()) > MANY:
            break
        # of a loop, first the steps by themselves, and then all at once
        plain = Run({}, params=params, steps_at_once=seed > 0)
        with quietly(), torch.no_grad(), seeded(seed), plain as run, AnyValue():
            program()
        latents = run.latents()
        values = {name: s["value"] for name, s in latents.items() if not is_discrete(s)}
        pinned = {name: s["value"] for name, s in latents.items() if is_discrete(s)}
        with quietly(), torch.no_grad():
            own = sum(
                _masked(s, site_log_prob(s)).double().sum()
                for _, s in run.samples()
                if not is_deterministic(s)
            )
        try:
            at_values = Run(values, params=params, steps_at_once=seed > 0)
            with quietly(), torch.no_grad(), at_values as again:
                found = enumerated(again, program, nesting)
            shared = shared and not found.writes
            if seed == 0:  # the sum has its own errors
                eliminated(found.factors.values())
            term = _term(found, run, pinned)
        except NotApplicable:
            raise
        except (RuntimeError, ValueError, NotImplementedError, IndexError, AssertionError) as error:
            if of_dtypes(error):
                raise
            _refuse(pinned, f"an error when they are summed out ({_first_line(error)})")
        own = torch.as_tensor(own)
        if not torch.isfinite(own):
            continue
        tolerance = 1e-6 if _is_double(run) else 1e-3
        if not torch.allclose(term, own, rtol=tolerance, atol=tolerance):
            got = f"a term of {float(term):.6g} of the sum where the program has {float(own):.6g}"
            if bool(term.isnan()) and any(f.loop for f in found.factors.values()):
                raise NotApplicable(
                    "discrete sites of ppgp.scan that are used in its steps alone",
                    f"{', '.join(map(repr, pinned))}, of which the loop returns values that are "
                    "used after it",
                    "put what depends on them into the step",
                )
            _refuse(pinned, got)
    return shared


def _term(found: Enumerated, run: Run, values: Mapping[str, Tensor]) -> Tensor:
    """Return the log density of one assignment, from the factors of all.

    Args:
        found: The factors.
        run: A run of the program at these values.
        values: ``{discrete site: its value}``.
    """
    index: dict[int, tuple[Tensor, tuple[str, ...]]] = {}
    for number, name in found.variables.items():
        site = run.sites[name]
        frames = {f.dim: plate_of(f, site) for f in site["cond_indep_stack"] if f.vectorized}
        event = site["fn"].event_dim
        value, support = values[name], found.support[name]
        batch = value.shape[: value.ndim - event]
        every = support.reshape(len(support), *(1,) * len(batch), *support.shape[1:])
        same = value == every
        same = same.flatten(same.ndim - event).all(-1) if event else same
        which = same.to(torch.uint8).argmax(0)
        axes = [axis for axis, size in enumerate(batch) if size > 1]
        dims = tuple(frames[axis - len(batch)] for axis in axes)
        index[number] = which.reshape([batch[axis] for axis in axes]), dims
    total = torch.zeros((), dtype=torch.float64)
    for factor in found.factors.values():
        if factor.loop is not None:
            total = total + _term_of_loop(factor, index)
            continue
        for variable in factor.variables:
            which, dims = index[variable]
            factor = taken(factor, variable, which, dims)
        total = total + factor.value.sum().cpu()
    return total


def _term_of_loop(factor: Factor, index: Mapping[int, tuple[Tensor, tuple[str, ...]]]) -> Tensor:
    """Return the log density of a site of a loop at one assignment.

    Args:
        factor: Of the site.
        index: ``{variable: the places of its values, and their plates}``.
    """
    loop, first = cast(LoopOfSites, factor.loop), cast(Factor, factor.first)
    rest = rest_of(factor)
    before = {past: now for now, past in loop.before.items()}
    for variable in rest.variables:
        which, dims = index[before.get(variable, variable)]
        if variable not in loop.own:
            rest = taken(rest, variable, which, dims)
            continue
        which = loop.in_time(which) if dims[:1] == (loop.plate,) else which[None]
        others = dims[1:] if dims[:1] == (loop.plate,) else dims
        now = which[:-1] if variable in before else which[1:]
        rest = taken(rest, variable, now, (loop.plate, *others))
        if variable not in before:
            first = taken(first, variable, which[0], others)
    for variable in first.variables:
        first = taken(first, variable, *index[variable])
    return (rest.value.sum() + first.value.sum()).cpu()


def _refuse(sites: Mapping[str, Tensor], got: str) -> NoReturn:
    raise NotApplicable(
        f"a program that works for all values of {', '.join(sites)} at once",
        got,
        "use no if on them and no sum over their plate, keep the axes of plates by [..., None], or "
        "sum them out in the program",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _is_double(run: Run) -> bool:
    """Return whether the values of a run are in double precision."""
    values = [s["value"] for _, s in run.samples() if isinstance(s["value"], Tensor)]
    return all(v.dtype == torch.float64 for v in values if v.is_floating_point())
