"""Functions of many rows, computed part by part, so that no gradient holds all parts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Part", "PartBySlopes", "by_parts", "sum_of_parts"]

#: (row numbers, the rows of each table, the shared tensors) -> outputs
Part = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]
Pieces = Sequence[Tensor]


@dataclass(frozen=True)
class PartBySlopes:
    """A part with its derivatives by formula; second derivatives are those of ``outputs``.

    Attributes:
        outputs: The part itself.
        begun: (row numbers, tables, shared) -> the outputs, and a function of their cotangents that
            returns the derivatives in each table and each shared tensor.
    """

    outputs: Part
    begun: Callable[..., tuple[tuple[Tensor, ...], Callable[..., Sequence[Tensor]]]]

    def __call__(
        self, piece: Tensor, tables: Sequence[Tensor], shared: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        return self.outputs(piece, tables, shared)


class _Work:
    """What is computed: the function, the row numbers of each part, and the number of tables."""

    def __init__(self, part: Part, pieces: Pieces, tables: int) -> None:
        self.part, self.pieces, self.tables = part, pieces, tables
        self.formula = part.begun if isinstance(part, PartBySlopes) else None

    def rows(self, piece: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of the tables that a part reads, and the shared tensors."""
        at = piece.clamp_min(0).long()
        return [t[at] if i < self.tables else t for i, t in enumerate(tensors)]

    def outputs(self, piece: Tensor, read: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.part(piece, read[: self.tables], read[self.tables :])

    def values(self, piece: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of a part, which nothing differentiates."""
        read = self.rows(piece, tensors)
        if self.formula is None:
            return self.outputs(piece, read)
        return self.formula(piece, read[: self.tables], read[self.tables :])[0]

    def slopes(
        self,
        piece: Tensor,
        leaves: Sequence[Tensor],
        needed: Sequence[bool],
        cotangents: Sequence[Tensor] | None,
    ) -> tuple[tuple[Tensor, ...], Sequence[Any]]:
        """Return the outputs of a part, and the slopes of their weighted sum that are needed.

        Args:
            piece: The row numbers.
            leaves: What it reads, as tensors that require gradients.
            needed: By which of them slopes are needed.
            cotangents: The weights; None: 1.
        """
        if self.formula is not None:
            with torch.no_grad():
                read = [leaf.detach() for leaf in leaves]
                outputs, slopes = self.formula(piece, read[: self.tables], read[self.tables :])
                weights = cotangents or [torch.ones_like(each) for each in outputs]
                return outputs, _required(slopes(*weights), needed)
        with torch.enable_grad():
            outputs = self.outputs(piece, leaves)
            weights = cotangents or [torch.ones_like(each) for each in outputs]
            required = _required(leaves, needed)
            return outputs, torch.autograd.grad(outputs, required, weights, allow_unused=True)

    def leaves(
        self, tensors: Sequence[Tensor], needed: Sequence[bool]
    ) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Yield each piece, and what it reads as tensors that require the gradients needed."""
        detached = [t.detach() for t in tensors]
        for piece in self.pieces:
            read = self.rows(piece, detached)
            yield piece, [r.detach().requires_grad_(n) for r, n in zip(read, needed, strict=True)]

    def add(self, totals: Sequence[Tensor | None], piece: Tensor, slopes: Sequence[Any]) -> None:
        """Add the slopes of a part, by what it reads, to those of the tables and shared tensors."""
        given = iter(slopes)
        for i, total in enumerate(totals):
            if total is None:
                continue
            slope = next(given)
            if slope is None:
                continue
            if i < self.tables:
                at = piece.clamp_min(0).long().flatten()
                total.index_add_(0, at, slope.flatten(0, piece.ndim - 1))
            else:
                total += slope


def _zeros(tensors: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
    return [torch.zeros_like(t) if n else None for t, n in zip(tensors, needed, strict=True)]


def _required(leaves: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor]:
    return [leaf for leaf, n in zip(leaves, needed, strict=True) if n]


class _Slopes(torch.autograd.Function):
    """The slopes of the outputs, weighted by cotangents, and their own slopes."""

    @staticmethod
    def forward(ctx: Any, work: _Work, needed: Sequence[bool], count: int, *tensors: Tensor) -> Any:
        ctx.work, ctx.needed, ctx.count = work, needed, count
        ctx.save_for_backward(*tensors)
        cotangents, inputs = tensors[:count], tensors[count:]
        totals, start = _zeros(inputs, needed), 0
        for piece, leaves in work.leaves(inputs, needed):
            stop = start + piece.shape[-1]
            weights = [c[start:stop] for c in cotangents]
            _, slopes = work.slopes(piece, leaves, needed, weights)
            work.add(totals, piece, slopes)
            start = stop
        return tuple(totals)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        work, needed, count = ctx.work, ctx.needed, ctx.count
        cotangents, inputs = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        directions = [
            torch.zeros_like(t) if g is None else g
            for t, g in zip(inputs, grad_outputs, strict=True)
        ]
        of_cotangents = [torch.zeros_like(c) for c in cotangents]
        totals, start = _zeros(inputs, needed), 0
        for piece, leaves in work.leaves(inputs, needed):
            with torch.enable_grad():
                outputs = work.outputs(piece, leaves)
                stop = start + len(outputs[0])
                own = [c[start:stop].detach().requires_grad_() for c in cotangents]
                required = _required(leaves, needed)
                slopes = torch.autograd.grad(
                    outputs, required, own, create_graph=True, materialize_grads=True
                )
                along = _required(work.rows(piece, directions), needed)
                second = torch.autograd.grad(slopes, [*own, *required], along, allow_unused=True)
            for whole, slope in zip(of_cotangents, second, strict=False):
                if slope is not None:
                    whole[start:stop] = slope
            work.add(totals, piece, second[count:])
            start = stop
        return None, None, None, *of_cotangents, *totals


class _ByParts(torch.autograd.Function):
    """The outputs of all parts, one after another."""

    @staticmethod
    def forward(ctx: Any, work: _Work, *inputs: Tensor) -> Any:
        ctx.work, ctx.needed = work, ctx.needs_input_grad[1:]
        ctx.save_for_backward(*inputs)
        outputs = [work.values(piece, inputs) for piece in work.pieces]
        return tuple(torch.cat(each) for each in zip(*outputs, strict=True))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        slopes: Any = _Slopes.apply(
            ctx.work, ctx.needed, len(grad_outputs), *grad_outputs, *ctx.saved_tensors
        )
        return None, *slopes


class _SumOfParts(torch.autograd.Function):
    """The sum of the only output of all parts, whose gradient is computed together with it."""

    @staticmethod
    def forward(ctx: Any, work: _Work, *inputs: Tensor) -> Any:
        ctx.work, ctx.needed = work, ctx.needs_input_grad[1:]
        totals, values = _zeros(inputs, ctx.needed), []
        for piece, leaves in work.leaves(inputs, ctx.needed):
            if any(ctx.needed):
                (output,), slopes = work.slopes(piece, leaves, ctx.needed, None)
                work.add(totals, piece, slopes)
            else:
                (output,) = work.values(piece, inputs)
            values.append(output.detach().sum())
        ctx.totals = totals
        ctx.save_for_backward(*inputs)
        return torch.stack(values).sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (g,) = grad_outputs
        if not torch.is_grad_enabled():
            return None, *(None if t is None else g * t for t in ctx.totals)
        rows = sum(piece.shape[-1] for piece in ctx.work.pieces)
        slopes: Any = _Slopes.apply(ctx.work, ctx.needed, 1, g.expand(rows), *ctx.saved_tensors)
        return None, *slopes


def by_parts(
    part: Part, pieces: Pieces, tables: Sequence[Tensor], shared: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the outputs of all parts, with first and second derivatives.

    The derivatives compute each part anew, and hold one part at a time.

    Args:
        part: (row numbers [..., r], the rows [..., r, *] of each table, the shared tensors) ->
            outputs of r rows each. It depends on no other tensor with a gradient.
        pieces: The row numbers of each part; negative: none, for which it reads row 0.
        tables: Tensors of all rows.
        shared: Tensors that every part reads.

    Returns:
        Each output for all parts, one after another.
    """
    outputs: Any = _ByParts.apply(_Work(part, pieces, len(tables)), *tables, *shared)
    return outputs


def sum_of_parts(
    part: Part, pieces: Pieces, tables: Sequence[Tensor], shared: Sequence[Tensor]
) -> Tensor:
    """Return the sum of an output of one number a row, with first and second derivatives.

    The gradient is computed together with the value, so that it costs no second pass.

    Args:
        part: As in ``by_parts``; one output [r].
        pieces: As in ``by_parts``.
        tables: As in ``by_parts``.
        shared: As in ``by_parts``.
    """
    total: Any = _SumOfParts.apply(_Work(part, pieces, len(tables)), *tables, *shared)
    return total
