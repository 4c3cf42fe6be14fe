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
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...errors import DataError
from .bodies import Body, Everything, OfBody, body_of
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
    is None, as in a prediction, each step draws its value. Plates, masks, scales and values from
    outside the loop act on the sites as on any other.

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
        NotApplicable: If the support of a latent site changes from step to step, if steps of a
            scan inside a step have sites, and, in a fit, for discrete latent sites: write a Python
            loop with ``pyro.markov`` for them.

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
    sites = SitesOfSteps(steps)
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
        if sites.sites:
            after = [_without_ones(x, first) for x, first in zip(after, firsts, strict=False)]
        _check_carry(firsts, after, carry_form, after_form)
        each, each_form = pytree.tree_flatten(found[1])
        ys = [_as_y(y) for y in each if y is not None]
        now = [each_form, [y is None for y in each], [_kind(y) for y in ys]]
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

    def body_in(around: Any, sites_are_known: bool = False) -> Body | None:
        """Return a step as one graph, in a graph of the program around it; None if there is none.

        The first step runs by itself where it has sites, so that handlers give their values.
        """
        if not sites_are_known:
            try:
                return body_of(recordable, around, firsts, [x[at] for x in rows])
            except NewSite:
                pass
        flat(at, firsts, [x[at] for x in rows])
        sites.kept()
        if not sites.recordable:
            return None
        whole = [*rows, *sites.given().values()]
        return body_of(recordable, around, firsts, [x[at] for x in whole])

    recorder = _get_current_dispatch_mode()
    plain = peek_interpreter_stack() is None
    body: Body | None = None
    if plain and isinstance(recorder, Recorder) and not isinstance(recorder, OfBody):
        body = body_in(recorder)
    elif plain and recorder is None and steps >= FEW and sites.at_once:
        with suppress(RuntimeError):  # it keeps tensors, or has an error that comes again
            body = body_in(Everything(), True)
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
        sites.reverse()
    return carry, [torch.stack(column) for column in zip(*rows, strict=True)]


def _steps(xs: list[Any], length: int | None) -> int:
    """Return the number of steps."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise DataError("a whole number as length", repr(length), "for example length=10")
    if not xs and length is not None:
        if length < 1:
            raise DataError("at least one step", f"length={length}", "leave the loop out")
        return length
    if not xs or not all(isinstance(x, Tensor) and x.ndim for x in xs):
        got = ", ".join(type(x).__name__ for x in xs if not isinstance(x, Tensor))
        do = "pass length=steps if a step needs no data"
        if any(isinstance(x, np.ndarray) for x in xs):
            do = "write torch.as_tensor(xs)"
        raise DataError("xs of tensors [steps, ...]", (got or "a number") if xs else "none", do)
    lengths = sorted({len(x) for x in xs})
    if len(lengths) > 1:
        got = f"lengths {', '.join(map(str, lengths))}"
        raise DataError("xs of one length", got, "cut them to the shortest")
    if not lengths[0]:
        raise DataError("at least one step", "xs of length 0", "leave the loop out")
    if length is not None and length != lengths[0]:
        got = f"length={length} and xs of length {lengths[0]}"
        raise DataError("as many steps as rows of xs", got, "leave length out")
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
    before: list[Tensor], after: list[Any], form: pytree.TreeSpec, after_form: pytree.TreeSpec
) -> None:
    """Raise DataError unless a step returns a carry like the one that it was given."""
    if form != after_form:
        raise DataError(
            f"a carry of structure {_told(form)} from each step",
            _told(after_form),
            "return the carry in the structure of init",
        )
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(new, Tensor) or (old.shape, old.dtype) != (new.shape, new.dtype):
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
