"""Laws of many rows a block of rows at a time: what is held beside the answer does not grow with the rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..errors import PpgpError
from .memory import must_fit, rounded_down, rows_per_call
from .univariate import components, parameters, rebuilt, take

BLOCK = 1_000_000  # numbers [draw, row] in one block: 8 MB, which stay in the caches


def law_by_rows(law: Callable[[Tensor], Distribution], X: Tensor, draws: int) -> Distribution:
    """``law(X)``, batch [draw, n] or [n], of rows that are independent of one another.

    Raises:
        NotEnoughMemory: if its parameters do not fit, with the rows per call that do.
    """
    n, size = len(X), max(1, BLOCK // draws)
    if n <= size:
        return law(X)
    first = law(X[:size])
    found = _parts(first)
    if found is None:
        return law(X)
    axis = len(first.batch_shape) - 1
    own = {name: _own(v) for name, v in found.items()}
    moving = [name for name, v in found.items() if v.stride(axis)]
    a_row = sum(own[name].numel() * own[name].element_size() / size for name in moving)
    must_fit(
        a_row * n, f"the law of {n:,} rows under {draws:,} draws", rows_per_call(a_row), X.device
    )
    for name in moving:
        shape = list(own[name].shape)
        shape[axis] = n
        own[name] = own[name].new_empty(shape)
    for start in range(0, n, size):
        part = found if start == 0 else parameters(law(X[start : start + size]))
        for name in moving:
            piece = _narrowed(part[name], [length == 1 for length in own[name].shape], axis)
            own[name].narrow(axis, start, piece.shape[axis]).copy_(piece)
    batch = [*first.batch_shape[:axis], n]
    return rebuilt(first, {name: v.expand(*batch, *v.shape[axis + 1 :]) for name, v in own.items()})


def each_block(
    answer: Callable[..., Tensor], law: Distribution, *tables: Tensor, share: int = 1
) -> Tensor:
    """``answer(law, *tables)``, [..., n] from tables [..., n] or [..., 1] and a law of batch [draw, n], whose rows are independent.

    Args:
        share: how many numbers ``answer`` makes of each one of the law.
    """
    draws, n = law.batch_shape
    leading = max((t.numel() // t.shape[-1] for t in tables if t.ndim and t.shape[-1]), default=1)
    size = max(1, BLOCK // (draws * leading * share))
    if n <= size or _parts(law) is None:
        return answer(law, *tables)
    parts = []
    for start in range(0, n, size):
        rows = slice(start, start + size)
        parts.append(
            answer(
                take(law, rows),
                *(t[..., rows] if t.ndim and t.shape[-1] == n else t for t in tables),
            )
        )
    return torch.cat(parts, -1)


def sampled(law: Distribution, k: int, finish: Callable[[Tensor], Tensor]) -> Tensor:
    """k draws [k, n] from an equal mixture, batch [draw, n] or batch [draw] and event [n]: components without replacement
    from as many whole rounds of them as k needs: as often as any other where k is a multiple of their number.

    Args:
        finish: of samples [*, n].

    Raises:
        NotEnoughMemory: if they do not fit, with the rows per call or the draws that do.
    """
    draws, n = law.batch_shape[0], (*law.batch_shape, *law.event_shape)[1]
    rounds = -(-k // draws)
    found = None if rounds * draws * n <= BLOCK else _parts(law)
    if found is None:
        values = law.sample(torch.Size([rounds])).reshape(rounds * draws, n)
        return finish(values[torch.randperm(len(values))[:k]])
    like = next(iter(found.values()))
    a_row = float(k * like.element_size())

    def fewer(room: float) -> str:
        return f"draw at most {rounded_down(room / (n * like.element_size())):,} at a time"

    must_fit(
        a_row * n,
        f"{k:,} draws at {n:,} rows",
        fewer if law.event_shape else rows_per_call(a_row),
        like.device,
    )
    chosen = torch.randperm(rounds * draws)[:k] % draws
    step = max(1, BLOCK // max(v[0].numel() for v in found.values()))
    out: Tensor | None = None
    for start in range(0, k, step):
        some = chosen[start : start + step].to(like.device)
        values = finish(components(law, some).sample())
        out = values.new_empty(k, n) if out is None else out
        out[start : start + len(some)] = values
    assert out is not None
    return out


class Assembled:
    """A tensor [draw, ..., row] put together piece by piece: no second copy of it while it grows."""

    def __init__(self, draws: int, rows: int, inner: tuple[int, ...] = ()) -> None:
        self.draws, self.rows, self.inner = draws, rows, inner
        self._whole: Tensor | None = None

    def put(self, piece: Tensor, draws: slice, row: int) -> None:
        """``piece`` [k, ..., b], or [..., b] for each of these draws, at rows from ``row`` on."""
        if self._whole is None:
            self._whole = piece.new_empty(self.draws, *self.inner, self.rows)
        self._whole[draws, ..., row : row + piece.shape[-1]] = piece

    @property
    def whole(self) -> Tensor:
        assert self._whole is not None
        return self._whole


def _parts(law: Distribution) -> dict[str, Tensor] | None:
    """Its parameters where it can be made from them again."""
    if isinstance(law, Independent):
        return _parts(law.base_dist)
    try:
        found = parameters(law)
        rows = len(law.batch_shape) - 1
        rebuilt(law, {name: v.narrow(rows, 0, 1) for name, v in found.items()})
    except (PpgpError, TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return found or None


def _own(value: Tensor) -> Tensor:
    """Without the repetitions along axes that merely repeat it."""
    return _narrowed(value, [step == 0 for step in value.stride()], None)


def _narrowed(value: Tensor, once: list[bool], rows: int | None) -> Tensor:
    """The first entry alone along these axes, that of the rows excepted."""
    for axis, alone in enumerate(once):
        if alone and axis != rows:
            value = value.narrow(axis, 0, 1)
    return value
