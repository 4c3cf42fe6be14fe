"""A loop whose steps are alike: recorded and compiled once for its body, not once per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from ...errors import DataError
from .bodies import Body, Everything, OfBody, body_of
from .enumerated_steps import LoopOfSites, place_of, too_far, with_values_before
from .loop_slopes import looped
from .recorder import Recorder
from .sites_of_steps import NewSite, Part, SitesOfSteps

__all__ = ["scan"]

Carry = TypeVar("Carry")
FEW = 30  # steps that run one by one where nothing is compiled: a graph would take longer


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Carry,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Carry, Any]:
    """Return the last carry of a loop, and what its steps return, stacked.

    It is ``for x in xs: carry, y = step(carry, x)`` in the convention of ``jax.lax.scan``, and runs
    as that Python loop, with derivatives of every order, except in a density that is compiled:
    there ``step`` is recorded and compiled once, whatever the number of steps. The steps are
    recorded one by one, which takes longer to compile, if ``step`` writes in place, uses
    ``torch.no_grad`` or branches on a value, and in a scan inside a step.

    The errors of y[t] = 0.5 y[t-1] + e[t] are
    ``scan(lambda last, y: (y, y - 0.5 * last), first, y)[1]``.

    A step may have sites, observed or latent, as in NumPyro: ``pyro.sample``, in plates or not,
    ``pyro.factor`` and ``pyro.deterministic``. A site has the same name in all steps, and is one
    site of the program, of values [steps, *plates, *event]. ``obs`` is a slice of xs; where that
    is None, as in a prediction, each step draws its value; with ``obs_mask`` those steps do that
    it leaves out. Plates, masks, scales and values from outside the loop act on the sites as on any
    other. Those of a scan inside a step are [steps, inner steps, *plates, *event].

    Discrete latent sites are summed out in a fit, in time linear in the number of steps: the carry
    may depend on those of the step before, as in a hidden Markov model. What the loop returns of
    them is then NaN: compute what depends on them inside the step.

    Args:
        step: (carry, x) -> (carry, y). It may use other tensors, but has no effects besides its
            results and sites: no counter, no list to which it appends. Any of carry, x and y is a
            tensor, or a tuple, list or dictionary of tensors; y may also be a number, or None.
        init: The first carry; every step returns tensors of the same shapes and dtypes.
        xs: Tensors [steps, ...], of which x is one slice each. Their length is the number of steps.
            None, or a part that is None, gives None to each step.
        length: The number of steps, where xs does not tell.
        reverse: Whether the last step comes first. What the steps return, and their sites, stay in
            the order of xs.

    Returns:
        The last carry, and tensors [steps, ...] in the structure of y.

    Raises:
        DataError: If there are no steps, the lengths of xs differ, or a step changes the
            structure, shape or dtype of the carry or of y, has two sites of one name, or other
            sites than the first step.
        NotApplicable: If the support of a latent site changes from step to step, and, in a fit that
            sums out discrete sites, if a scan inside a step has sites, or the carry keeps discrete
            sites for more than one step.

    Source: Bradbury et al. (2018), JAX: composable transformations of Python+NumPy programs.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> y = torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> total, sums = ppgp.scan(lambda total, y: (total + y, total + y), torch.tensor(0.0), y)
        >>> total, sums
        (tensor(10.), tensor([ 1.,  3.,  6., 10.]))
        >>> last, errors = ppgp.scan(lambda last, y: (y, y - 0.5 * last), y[0], y[1:])
        >>> last, errors
        (tensor(4.), tensor([1.5000, 2.0000, 2.5000]))

        A random walk that is observed with noise:

        >>> import pyro
        >>> from pyro.distributions import Normal
        >>> from ppgp import inference
        >>> def program(y=None, steps=4):
        ...     def step(level, y):
        ...         level = pyro.sample("level", Normal(level, 1.0))
        ...         pyro.sample("y", Normal(level, 1.0), obs=y)
        ...         return level, None
        ...     ppgp.scan(step, torch.tensor(0.0), y, length=steps)
        >>> posterior = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
        >>> posterior.theta["level"].numpy().round(2)  # [draw, step]
        array([[0.97, 1.91, 2.76, 3.38]], dtype=float32)
    """
    leaves, form = pytree.tree_flatten(xs)
    here = [i for i, x in enumerate(leaves) if x is not None]
    steps = _steps([leaves[i] for i in here], length)
    rows = [leaves[i] for i in here] or [torch.zeros(steps)]  # a loop takes its length from them
    firsts, carry_form = pytree.tree_flatten(init)
    for i, first in enumerate(firsts):
        if not isinstance(first, Tensor):
            got = f"{type(first).__name__} as part {i + 1}"
            raise DataError("a carry made of tensors", got, "write torch.tensor(...)")
    sites = SitesOfSteps(steps, reverse)
    forms: list[Any] = []  # the structure of y, which of its leaves are None, and their kinds
    kinds: list[Part] = []  # what the sites of a step return beside y

    def flat(t: int, carry: Sequence[Tensor], x: Sequence[Tensor]) -> list[Tensor]:
        parts = list(leaves)
        for i, one in zip(here, x, strict=False):
            parts[i] = one
        with sites.step(t):
            given = pytree.tree_unflatten(list(carry), carry_form)
            found = step(given, pytree.tree_unflatten(parts, form))
        if not isinstance(found, tuple) or len(found) != 2:
            got = type(found).__name__
            if isinstance(found, tuple):
                got += f" of {len(found)}"
            do = "return carry, y; either may be a tuple, and y may be None"
            raise DataError("a tuple (carry, y) from the step", got, do)
        after, after_form = pytree.tree_flatten(found[0])
        if sites.sites and not sites.variables:
            after = [_without_ones(x, first) for x, first in zip(after, firsts, strict=False)]
        _check_carry(firsts, after, carry_form, after_form, not sites.variables)
        each, each_form = pytree.tree_flatten(found[1])
        ys = [_as_y(y) for y in each if y is not None]
        now = [each_form, [y is None for y in each], [_kind(y) for y in ys]]
        if sites.variables:  # the first step has no values of a step before
            forms.clear()
        if forms and now != forms:
            got = f"{_told(each_form)} of {', '.join(now[2])} after another"
            raise DataError(
                "y of one structure, shape and dtype from each step", got, "return them alike"
            )
        forms[:] = now
        return [*after, *ys]

    def recordable(*tensors: Tensor) -> list[Tensor]:
        """Return what a step gives, and then what its sites give."""
        n, m = len(firsts), len(firsts) + len(rows)
        sites.slots = dict(zip(sites.given(), tensors[m:], strict=True))
        try:
            found = flat(0, tensors[:n], tensors[n:m])
            of_sites = sites.parts()
        finally:
            sites.slots = None
            sites.drop()
        kinds[:] = of_sites
        return [*found, *of_sites.values()]

    n, at = len(firsts), steps - 1 if reverse else 0

    def first_step() -> list[Tensor]:
        found = flat(at, firsts, [x[at] for x in rows])
        sites.kept()
        return found

    def body_in(around: Any, sites_are_known: bool = False) -> Body | None:
        """Return a step as one graph, in a graph of the program around it; None if there is none.

        The first step runs by itself where it has sites, so that handlers give their values.
        """
        if not sites_are_known:
            try:
                return body_of(recordable, around, firsts, [x[at] for x in rows])
            except NewSite:
                pass
        if not sites.begun:
            first_step()
        if not sites.recordable:
            return None
        whole = [*rows, *sites.given().values()]
        return body_of(recordable, around, firsts, [x[at] for x in whole])

    recorder = _get_current_dispatch_mode()
    plain = peek_interpreter_stack() is None
    around: Any = None
    if plain and isinstance(recorder, Recorder) and not isinstance(recorder, OfBody):
        around = recorder
    elif plain and recorder is None and steps >= FEW and sites.at_once:
        around = Everything()
    body: Body | None = None
    first = first_step() if sites.may_be_summed else []
    if sites.variables:
        last, ys = _in_sums(flat, sites, firsts, first, rows, reverse, around)
    else:
        if around is recorder and around is not None:
            body = body_in(around, sites.begun)
        elif around is not None:
            with suppress(RuntimeError):  # it keeps tensors, or has an error that comes again
                body = body_in(around, True)
        if body is None:
            last, ys = _in_python(flat, sites, firsts, rows, steps, reverse)
            sites.finish()
        else:
            whole = _turned([*rows, *sites.given().values()], reverse)
            found = looped(body, cast(Recorder | None, recorder), firsts, whole, steps)
            last, stacks = found[:n], _turned(found[n:], reverse)
            ys = stacks[: len(stacks) - len(kinds)]
            sites.finish(dict(zip(kinds, stacks[len(ys) :], strict=True)))
    each_form, is_none, _ = forms
    remaining = iter(ys)
    each = [None if none else next(remaining) for none in is_none]
    return pytree.tree_unflatten(last, carry_form), pytree.tree_unflatten(each, each_form)


def _turned(xs: Sequence[Tensor], reverse: bool) -> list[Tensor]:
    """Return tensors [steps, ...] with the steps in the order of the loop, or back."""
    return [x.flip(0) for x in xs] if reverse else list(xs)


def _in_python(
    flat: Callable[..., list[Tensor]],
    sites: SitesOfSteps,
    firsts: list[Tensor],
    xs: list[Tensor],
    steps: int,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the last carry and the stacked results of a loop in Python."""
    n = len(firsts)
    carry, rows = firsts, []
    columns = [x.unbind(0) for x in xs]
    sites.again()
    for t in reversed(range(steps)) if reverse else range(steps):
        found = flat(t, carry, [column[t] for column in columns])
        sites.kept()
        carry = found[:n]
        rows.append(found[n:])
    if reverse:
        rows.reverse()
        sites.turn()
    return carry, [torch.stack(column) for column in zip(*rows, strict=True)]


def _in_sums(
    flat: Callable[..., list[Tensor]],
    sites: SitesOfSteps,
    firsts: list[Tensor],
    found: list[Tensor],
    xs: list[Tensor],
    reverse: bool,
    around: Any,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the last carry and the stacked results of a loop whose discrete sites are summed out.

    The first step has run. What depends on discrete sites is NaN in the results.

    Args:
        flat: (step, carry, x) -> [*carry, *y].
        sites: Those of the steps.
        firsts: The first carry.
        found: What the first step returned.
        xs: What the steps take, [steps, ...] each.
        reverse: Whether the last step comes first.
        around: What records a step in the program around the loop; None where nothing does.
    """
    loop, n, of_first = sites.loop(), len(firsts), sites.densities()
    order = list(reversed(range(loop.steps))) if reverse else list(range(loop.steps))
    places = _places(lambda: flat(order[0], firsts, [x[order[0]] for x in xs]), sites, found)
    loop.carried |= {name for place in places[:n] for name in place}
    hidden = {i for i, place in enumerate(places) if place}  # results of discrete sites
    kinds: list[Part] = []

    def moved(carry: Sequence[Tensor]) -> list[Tensor]:
        """Return a carry as the next step takes it."""
        pairs = zip(carry, places, strict=False)
        return [with_values_before(x, loop.variables, place) for x, place in pairs]

    carry = moved(found[:n])

    def step(t: int, before: Sequence[Tensor], x: Sequence[Tensor]) -> list[Tensor]:
        results = flat(t, before, x)
        after = moved(results[:n])
        if any(a.shape != b.shape for a, b in zip(carry, after, strict=True)):
            raise too_far(sorted(loop.variables))
        # y may depend on the carry alone
        hidden.update(i for i in range(n, len(found)) if results[i].shape != found[i].shape)
        ys = [x.new_zeros(()) if i in hidden else x for i, x in enumerate(results[n:], n)]
        parts = sites.densities()
        kinds[:] = parts
        return [*after, *ys, *parts.values()]

    def recordable(*tensors: Tensor) -> list[Tensor]:
        m = n + len(xs)
        sites.slots = dict(zip(sites.given(), tensors[m:], strict=True))
        try:
            return step(0, tensors[:n], tensors[n:m])
        finally:
            sites.slots = None
            sites.drop()

    last, stacks, rest = carry, [x[None] for x in found[n:]], None
    if loop.steps > 1:
        whole = [x[1:] for x in _turned([*xs, *sites.given().values()], reverse)]
        body: Body | None = None
        if around is not None and sites.recordable:
            in_program = not isinstance(around, Everything)
            with sites.apart(), suppress(*(() if in_program else (RuntimeError,))):
                body = body_of(recordable, around, carry, [x[0] for x in whole])
        if body is not None:
            recorder = None if isinstance(around, Everything) else around
            with sites.apart():
                others = looped(body, recorder, carry, whole, loop.steps - 1, settled=True)
        else:
            others = _in_turn(step, carry, xs, order[1:])
        last, rest = list(others[:n]), dict(zip(kinds, others[len(found) :], strict=True))
        pairs = zip(stacks, others[n:], strict=False)
        stacks = [
            x if i in hidden else torch.cat([x, other.expand(loop.steps - 1, *other.shape[1:])])
            for i, (x, other) in enumerate(pairs, n)
        ]
    sites.finish_sums(loop, of_first, rest)
    for i in hidden & {*range(n)}:
        last[i] = _unknown(firsts[i].shape, firsts[i])
    ys = [
        _unknown((loop.steps, *_right_of_values(x[0], loop, places[i])), x) if i in hidden else x
        for i, x in enumerate(stacks, n)
    ]
    return last, _turned(ys, reverse)


def _places(
    again: Callable[[], list[Tensor]], sites: SitesOfSteps, found: list[Tensor]
) -> list[dict[str, int]]:
    """Return for each result of the first step the discrete sites on which it depends.

    Args:
        again: Runs the first step.
        sites: Those of the steps.
        found: The results.

    Returns:
        ``{discrete site: the number of axes of the result right of the batch}`` for each.
    """
    places: list[dict[str, int]] = [{} for _ in found]
    for name, variable in sites.variables.items():
        sites.elsewhere = name
        with torch.no_grad(), _disable_current_modes():
            shifted = again()
        sites.elsewhere = None
        for place, x, other in zip(places, found, shifted, strict=True):
            event = place_of(x, other, variable)
            if event is not None:
                place[name] = event
    sites.drop()
    return places


def _in_turn(
    step: Callable[..., list[Tensor]], carry: list[Tensor], xs: list[Tensor], order: list[int]
) -> list[Tensor]:
    """Return the last carry and the stacked results of steps, [1, ...] where they are the same."""
    n, results = len(carry), []
    for t in order:
        found = step(t, carry, [x[t] for x in xs])
        carry = found[:n]
        results.append(found[n:])
    columns = [list(column) for column in zip(*results, strict=True)]
    same = [all(x is column[0] for x in column) for column in columns]
    stacks = [x[0][None] if s else torch.stack(x) for x, s in zip(columns, same, strict=True)]
    return [*carry, *stacks]


def _right_of_values(x: Tensor, loop: LoopOfSites, place: dict[str, int]) -> tuple[int, ...]:
    """Return the shape of a result without the axes of discrete sites, as far as it is known."""
    if not place:
        return ()
    name, event = next(iter(place.items()))
    shape = list(x.shape[x.ndim + 1 + loop.variables[name].dim - event :])
    while shape and shape[0] == 1:
        del shape[0]
    return tuple(shape)


def _unknown(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return NaN."""
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    return torch.full(tuple(shape), torch.nan, dtype=dtype, device=like.device)


def _steps(xs: list[Any], length: int | None) -> int:
    """Return the number of steps."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise DataError("a whole number as length", repr(length), "for example length=10")
    if not xs and length is not None:
        if length < 1:
            raise DataError("at least one step", f"length={length}", "leave the loop out")
        return length
    if not xs or not all(isinstance(x, Tensor) and x.ndim for x in xs):
        got = ", ".join(sorted({type(x).__name__ for x in xs if not isinstance(x, Tensor)}))
        do = "pass length=steps if a step needs no data"
        if any(isinstance(x, np.ndarray) for x in xs):
            do = "write torch.as_tensor(xs)"
        elif any(isinstance(x, bool | int | float) for x in xs):  # a list is a tuple of numbers
            do = "write torch.tensor(...) of a list"
        raise DataError("xs of tensors [steps, ...]", (got or "a number") if xs else "None", do)
    lengths = sorted({len(x) for x in xs})
    if len(lengths) > 1:
        got = f"lengths {', '.join(map(str, lengths))}"
        raise DataError("xs of one length", got, "cut them to the shortest")
    if not lengths[0]:
        raise DataError("at least one step", "xs of length 0", "leave the loop out")
    if length is not None and length != lengths[0]:
        got = f"length={length} and xs of length {lengths[0]}"
        do = "leave length out"
        if length > lengths[0]:
            do = (
                "leave length out; for a forecast of more steps leave out the arguments that make "
                "xs, such as y and its mask, so that xs are None"
            )
        raise DataError("as many steps as rows of xs", got, do)
    return lengths[0]


def _without_ones(x: Any, like: Tensor) -> Any:
    """Return a part of the carry without further leading axes of length 1.

    Pyro's Predictive gives them to the sites outside the loop.
    """
    extra = x.ndim - like.ndim if isinstance(x, Tensor) else 0
    if extra > 0 and set(x.shape[:extra]) == {1} and x.shape[extra:] == like.shape:
        return x.reshape(like.shape)
    return x


def _check_carry(
    before: list[Tensor],
    after: list[Any],
    form: pytree.TreeSpec,
    after_form: pytree.TreeSpec,
    shapes: bool,
) -> None:
    """Raise DataError unless a step returns a carry like the one that it was given.

    ``shapes`` says whether its shapes have to be the same too.
    """
    if form != after_form:
        raise DataError(
            f"a carry of structure {_told(form)} from each step",
            _told(after_form),
            "return the carry in the structure of init",
        )
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        unlike = not isinstance(new, Tensor) or old.dtype != new.dtype
        if unlike or (shapes and old.shape != new.shape):
            found = type(new).__name__ if not isinstance(new, Tensor) else _kind(new)
            do = "give init the shape and dtype that a step returns"
            if isinstance(new, Tensor) and old.shape != new.shape:
                do += "; what grows from step to step is returned as y"
            raise DataError(
                f"a carry of {_kind(old)} from each step",
                found if len(before) == 1 else f"{found} as part {i + 1}",
                do,
            )


def _as_y(y: Any) -> Tensor:
    """Return a result of a step as a tensor."""
    if not isinstance(y, Tensor | int | float):
        got = f"{type(y).__name__} from the step"
        raise DataError("y of tensors, numbers or None", got, "return a tensor as y")
    return torch.as_tensor(y)


def _kind(x: Tensor) -> str:
    return f"shape {tuple(x.shape)} and dtype {str(x.dtype).removeprefix('torch.')}"


def _told(form: pytree.TreeSpec) -> str:
    """Return a structure with an asterisk for each tensor."""
    return repr(pytree.tree_unflatten([_Star()] * form.num_leaves, form))


class _Star:
    def __repr__(self) -> str:
        return "*"
