"""A loop whose steps are alike: recorded and compiled once for its body, not once per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...errors import DataError
from .bodies import Body, OfBody, body_of
from .loop_slopes import looped
from .recorder import Recorder

__all__ = ["scan"]

Carry = TypeVar("Carry")


def scan(step: Callable[[Any, Any], tuple[Any, Any]], init: Carry, xs: Any) -> tuple[Carry, Any]:
    """Return the last carry of a loop, and what its steps return, stacked.

    It is ``for x in xs: carry, y = step(carry, x)`` in the convention of ``jax.lax.scan``, and runs
    as that Python loop, with derivatives of every order, except in a density that is compiled:
    there ``step`` is recorded and compiled once, whatever the number of steps. The steps are
    recorded one by one, which takes longer to compile, if ``step`` writes in place, draws random
    numbers, uses ``torch.no_grad`` or branches on a value, and in a scan inside a step.

    The errors of y[t] = 0.5 y[t-1] + e[t] are
    ``scan(lambda last, y: (y, y - 0.5 * last), first, y)[1]``.

    Args:
        step: (carry, x) -> (carry, y). It may use other tensors, but has no effects besides its
            results: no ``pyro.sample``, no counter, no list to which it appends. Any of carry, x
            and y is a tensor, or a tuple, list or dictionary of tensors; y may also be a number, or
            None.
        init: The first carry; every step returns tensors of the same shapes and dtypes.
        xs: Tensors [steps, ...], of which x is one slice each. Their length is the number of steps.

    Returns:
        The last carry, and tensors [steps, ...] in the structure of y.

    Raises:
        DataError: If there are no steps, the lengths of xs differ, a step has a site of Pyro, or it
            changes the structure, shape or dtype of the carry or of y.

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
    """
    leaves, form = pytree.tree_flatten(xs)
    steps = _steps(leaves)
    firsts, carry_form = pytree.tree_flatten(init)
    for i, first in enumerate(firsts):
        if not isinstance(first, Tensor):
            got = f"{type(first).__name__} as part {i + 1}"
            raise DataError("a carry made of tensors", got, "write torch.tensor(...)")
    forms: list[Any] = []  # the structure of y, which of its leaves are None, and their kinds

    def flat(*tensors: Tensor) -> list[Tensor]:
        carry = pytree.tree_unflatten(tensors[: len(firsts)], carry_form)
        x = pytree.tree_unflatten(tensors[len(firsts) :], form)
        with _NoSites():
            found = step(carry, x)
        if not isinstance(found, tuple) or len(found) != 2:
            got = type(found).__name__
            if isinstance(found, tuple):
                got += f" of {len(found)}"
            do = "return carry, y; either may be a tuple, and y may be None"
            raise DataError("a tuple (carry, y) from the step", got, do)
        after, after_form = pytree.tree_flatten(found[0])
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

    recorder = _get_current_dispatch_mode()
    body: Body | None = None
    outermost = isinstance(recorder, Recorder) and not isinstance(recorder, OfBody)
    if outermost and peek_interpreter_stack() is None:
        body = body_of(flat, cast(Recorder, recorder), firsts, [x[0] for x in leaves])
    if body is None:
        found = _in_python(flat, firsts, leaves, steps)
    else:
        found = looped(body, cast(Recorder, recorder), firsts, leaves)
    last, ys = found[: len(firsts)], iter(found[len(firsts) :])
    each_form, is_none, _ = forms
    each = [None if none else next(ys) for none in is_none]
    return pytree.tree_unflatten(last, carry_form), pytree.tree_unflatten(each, each_form)


class _NoSites(Messenger):
    """Refuses the sites of a step, which would have one name in all steps."""

    def _pyro_sample(self, msg: Any) -> None:
        raise DataError(
            "a step of ppgp.scan without sites",
            f"site {msg['name']!r}",
            "return the values as y, and give them to pyro.sample or pyro.factor after the scan",
        )


def _in_python(
    flat: Callable[..., list[Tensor]], firsts: list[Tensor], xs: list[Tensor], steps: int
) -> list[Tensor]:
    """Return the last carry and the stacked results of a loop in Python."""
    n = len(firsts)
    carry, rows = firsts, []
    columns = [x.unbind(0) for x in xs]
    for t in range(steps):
        found = flat(*carry, *(column[t] for column in columns))
        carry = found[:n]
        rows.append(found[n:])
    return [*carry, *(torch.stack(column) for column in zip(*rows, strict=True))]


def _steps(xs: list[Any]) -> int:
    """Return the common length of the tensors of xs."""
    if not xs or not all(isinstance(x, Tensor) and x.ndim for x in xs):
        got = ", ".join(type(x).__name__ for x in xs if not isinstance(x, Tensor))
        do = "pass torch.arange(steps) if a step needs no data"
        if any(isinstance(x, np.ndarray) for x in xs):
            do = "write torch.as_tensor(xs)"
        raise DataError("xs of tensors [steps, ...]", (got or "a number") if xs else "none", do)
    lengths = sorted({len(x) for x in xs})
    if len(lengths) > 1:
        got = f"lengths {', '.join(map(str, lengths))}"
        raise DataError("xs of one length", got, "cut them to the shortest")
    if not lengths[0]:
        raise DataError("at least one step", "xs of length 0", "leave the loop out")
    return lengths[0]


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
