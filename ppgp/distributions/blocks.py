"""Predictive distributions of many rows, evaluated one block of rows at a time.

The memory used beside the result does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..errors import NotEnoughMemory, PpgpError
from ..runtime.memory import SPARE, must_fit, rounded_down, rows_per_call
from .rows_on_demand import RowsOnDemand
from .univariate import components, parameters, rebuilt, take

ROW_BLOCK = 250_000  # numbers [draw, row] in one block of a figure, which has several temporaries
BLOCK = 1_000_000  # numbers [draw, row] in one block: 8 MB, which stay in the processor's caches
KEPT_BYTES = 256e6  # cheap parameters that take more are not kept, but computed for each figure

F = TypeVar("F", bound=Callable[..., Tensor])


def distribution_by_rows(
    predictive: Callable[[Tensor], Distribution], X: Tensor, draws: int, cheap: bool = False
) -> Distribution:
    """Return ``predictive(X)``, computed one block of rows at a time.

    If its parameters do not fit in memory, or if they are cheap and take more than ``KEPT_BYTES``,
    they are not kept: the result is ``RowsOnDemand``, and each figure computes them again, block by
    block. This needs a distribution of batch [draw, m].

    Args:
        predictive: Maps rows [m, d] to a distribution of batch [draw, m] or [m] whose rows are
            independent.
        X: [n, d], the rows.
        draws: The number of posterior draws.
        cheap: Whether the parameters take little time beside a figure such as a quantile.

    Raises:
        NotEnoughMemory: If the parameters do not fit in memory and have batch [m]; the message
            states how many rows per call do.
    """
    n = len(X)
    size = max(1, BLOCK // draws)
    if n <= size:
        return predictive(X)
    first = predictive(X[:size])
    values = _rebuilding_parameters(first)
    if values is None:
        return predictive(X)
    axis = len(first.batch_shape) - 1
    by_row = [name for name, v in values.items() if v.stride(axis)]
    distinct = {name: _without_repeats(v) for name, v in values.items()}
    bytes_per_row = sum(
        distinct[name].numel() * distinct[name].element_size() / size for name in by_row
    )
    on_demand = partial(_on_demand, predictive, X, draws, cheap)
    if cheap and axis == 1 and bytes_per_row * n > KEPT_BYTES:
        return on_demand(partial(_of_all_rows, predictive, X, draws))
    try:
        must_fit(
            bytes_per_row * n / SPARE,  # the figures need memory too
            f"the predictive distribution of {n:,} rows under {draws:,} draws",
            rows_per_call(bytes_per_row / SPARE),
            X.device,
        )
    except NotEnoughMemory as refusal:
        if axis != 1:
            raise
        return on_demand(partial(_raise, refusal))
    for name in by_row:
        shape = list(distinct[name].shape)
        shape[axis] = n
        distinct[name] = distinct[name].new_empty(shape)
    for start in range(0, n, size):
        if start > 0:
            values = parameters(predictive(X[start : start + size]))
        for name in by_row:
            whole = distinct[name]
            piece = _narrowed(values[name], [length == 1 for length in whole.shape], axis)
            whole.narrow(axis, start, piece.shape[axis]).copy_(piece)
    batch = [*first.batch_shape[:axis], n]
    return rebuilt(
        first, {name: v.expand(*batch, *v.shape[axis + 1 :]) for name, v in distinct.items()}
    )


def _on_demand(
    predictive: Callable[[Tensor], Distribution],
    X: Tensor,
    draws: int,
    cheap: bool,
    of_all_rows: Callable[[], Distribution],
) -> RowsOnDemand:
    """Return the distribution of X, computed when it is needed.

    ``of_all_rows`` returns that with the parameters of all rows, or raises NotEnoughMemory.
    """

    def some(index: Any) -> Distribution:
        return distribution_by_rows(predictive, X[index], draws, cheap)

    return RowsOnDemand(some, predictive(X[:1]), len(X), of_all_rows)


def _of_all_rows(
    predictive: Callable[[Tensor], Distribution], X: Tensor, draws: int
) -> Distribution:
    """Return the distribution with the parameters of all rows, or raise NotEnoughMemory."""
    found = distribution_by_rows(predictive, X, draws)
    return found.whole if isinstance(found, RowsOnDemand) else found


def _raise(error: NotEnoughMemory) -> Distribution:
    raise error


def each_block(
    answer: Callable[..., Tensor], distribution: Distribution, *tables: Tensor, share: int = 1
) -> Tensor:
    """Return ``answer(distribution, *tables)``, computed one block of rows at a time.

    Args:
        answer: Maps a distribution and tables of some rows to a tensor [..., rows].
        distribution: Of batch [draw, n], with independent rows.
        *tables: Further arguments of ``answer``, [..., n] or [..., 1].
        share: How many numbers ``answer`` computes for each element of the distribution.

    Returns:
        [..., n].
    """
    draws, n = distribution.batch_shape
    leading = max([1, *(t.numel() // t.shape[-1] for t in tables if t.ndim and t.shape[-1])])
    size = max(1, ROW_BLOCK // (draws * leading * share))
    on_demand = isinstance(distribution, RowsOnDemand)
    if not on_demand and (n <= size or _rebuilding_parameters(distribution) is None):
        return answer(distribution, *tables)
    out: Tensor | None = None  # parts kept until the end would scatter over the memory
    for start in range(0, n, size):
        rows = slice(start, start + size)
        some = [_at_rows(table, rows, n) for table in tables]
        part = answer(take(distribution, rows), *some)
        if out is None:
            out = part.new_empty((*part.shape[:-1], n))
        out[..., rows] = part
    if out is None:  # no rows on demand
        return answer(take(distribution, slice(0, 0)), *tables)
    return out


def by_rows(answer: F) -> F:
    """Decorate an ``answer`` of ``each_block``, which then computes all of its results."""
    whole: Any = update_wrapper(partial(each_block, answer), answer)
    return whole


def _at_rows(table: Tensor, rows: slice, n: int) -> Tensor:
    """Return a table at some rows, if its last axis has n rows."""
    if table.ndim and table.shape[-1] == n:
        return table[..., rows]
    return table


def sampled(distribution: Distribution, k: int, finish: Callable[[Tensor], Tensor]) -> Tensor:
    """Draw k samples from an equal mixture of the components of a distribution.

    Components are drawn without replacement from as many whole rounds of them as k needs. Where k
    is a multiple of their number, each is used equally often.

    Args:
        distribution: Of batch [draw, n], or of batch [draw] and event [n]; one component per draw.
        k: The number of samples.
        finish: A function applied to blocks of samples [*, n].

    Returns:
        [k, n].

    Raises:
        NotEnoughMemory: If the samples do not fit in memory; the message states how many rows or
            samples per call do.
    """
    draws, n = (
        distribution.batch_shape[0],
        (*distribution.batch_shape, *distribution.event_shape)[1],
    )
    rounds = -(-k // draws)
    if isinstance(distribution, RowsOnDemand):
        return _sampled_on_demand(distribution, k, finish)
    values = None
    if rounds * draws * n > BLOCK:
        values = _rebuilding_parameters(distribution)
    if values is None:
        samples = distribution.sample(torch.Size([rounds])).reshape(rounds * draws, n)
        return finish(samples[torch.randperm(len(samples))[:k]])
    like = next(iter(values.values()))
    bytes_per_row = float(k * like.element_size())

    def fewer(memory: float) -> str:
        return f"draw at most {rounded_down(memory / (n * like.element_size())):,} at a time"

    advice = fewer if distribution.event_shape else rows_per_call(bytes_per_row)
    must_fit(bytes_per_row * n, f"{k:,} draws at {n:,} rows", advice, like.device)
    chosen = torch.randperm(rounds * draws)[:k] % draws
    step = max(1, BLOCK // max(v[0].numel() for v in values.values()))
    out: Tensor | None = None
    for start in range(0, k, step):
        some = chosen[start : start + step].to(like.device)
        samples = finish(components(distribution, some).sample())
        if out is None:
            out = samples.new_empty(k, n)
        out[start : start + len(some)] = samples
    assert out is not None
    return out


def _sampled_on_demand(
    distribution: RowsOnDemand, k: int, finish: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return what ``sampled`` returns, computed one block of rows at a time."""
    draws, n = distribution.batch_shape
    like = next(iter(parameters(distribution.first).values()))
    bytes_per_row = float(k * like.element_size())
    must_fit(
        bytes_per_row * n, f"{k:,} draws at {n:,} rows", rows_per_call(bytes_per_row), like.device
    )
    chosen = torch.randperm(-(-k // draws) * draws)[:k].to(like.device) % draws
    size = max(1, BLOCK // max(draws, k))
    out: Tensor | None = None  # parts kept until the end would need as much memory again
    for start in range(0, n, size):
        block = take(distribution, slice(start, start + size))
        samples = finish(components(block, chosen).sample())
        if out is None:
            out = samples.new_empty(k, n)
        out[:, start : start + size] = samples
    assert out is not None
    return out


def _rebuilding_parameters(distribution: Distribution) -> dict[str, Tensor] | None:
    """Return the parameters of a distribution if it can be rebuilt from them, else None."""
    if isinstance(distribution, Independent):
        return _rebuilding_parameters(distribution.base_dist)
    try:
        values = parameters(distribution)
        rows = len(distribution.batch_shape) - 1
        rebuilt(distribution, {name: v.narrow(rows, 0, 1) for name, v in values.items()})
    except (PpgpError, TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return values or None


def _without_repeats(value: Tensor) -> Tensor:
    """Return the tensor with its expanded axes (of stride 0) reduced to length 1."""
    return _narrowed(value, [step == 0 for step in value.stride()], None)


def _narrowed(value: Tensor, once: list[bool], rows: int | None) -> Tensor:
    """Reduce the axes marked in ``once`` to their first entry, except the axis ``rows``."""
    for axis, alone in enumerate(once):
        if alone and axis != rows:
            value = value.narrow(axis, 0, 1)
    return value
