"""Branches of a program that tracing cannot see: what a graph says is held against the program itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .graph import agrees_up_to_rounding, first_of

if TYPE_CHECKING:
    from .target import Target

Graph = Callable[..., tuple[Tensor, Tensor]]
FEWEST, MOST = 8, 64  # places that are looked at, of either kind
SHARE = 20  # draws a place


class Watched:
    """A graph that keeps the points of its calls number 1, 2, 4, 8, ...: more of them early, in the warm-up."""

    def __init__(self, graph: Graph, visited: list[Tensor]) -> None:
        self.graph, self.visited, self.calls = graph, visited, 0

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if not self.calls & (self.calls - 1):
            self.visited.append(z.detach().clone())
        return self.graph(z, *tables)


def difference(
    target: Target, graphs: Mapping[tuple[int | None, bool, int | None], Graph], z: Tensor | None
) -> str | None:
    """A sentence on the first place where the graph of a density is not the program's own value; None where they agree.

    Args:
        z: draws or a mode, [n, p]; their extremes in each coordinate come first, as a branch is often at an end.
    """
    key = next((key for key in graphs if key[0] is None), None)
    if key is None or not isinstance(graphs[key], Watched):
        return None
    graph, (_, jacobian, k) = graphs[key].graph, key  # type: ignore[attr-defined]
    places = [] if z is None else _extremes_first(z, min(MOST, max(FEWEST, len(z) // SHARE)))
    places += [
        point for visited in target.visited for point in visited.reshape(-1, target.dim)[:1]
    ][-MOST:]
    one = target.eager_gradient(jacobian)
    tolerance = 1e-8 if target.origin().dtype == torch.float64 else 1e-3
    for place in places:
        with torch.no_grad():
            found = first_of(graph, place, (), k)
            own = _own(target, place, jacobian)
        if not torch.allclose(
            found[0], own, rtol=tolerance, atol=tolerance, equal_nan=True
        ) and not (bool(torch.isfinite(own)) and agrees_up_to_rounding(found, one, place, ())):
            return (
                f"the program takes a branch that tracing cannot see: its log density at one place is {float(own):.6g}, its graph's "
                f"{float(found[0]):.6g}; it ran again eagerly, several times slower"
            )
    return None


def _own(target: Target, z: Tensor, jacobian: bool) -> Tensor:
    try:
        return target.log_density(z, jacobian=jacobian)
    except (
        RuntimeError,
        ValueError,
        ArithmeticError,
    ):  # no density there: a failed Cholesky factor, say
        return torch.full_like(z[0], torch.nan)


def _extremes_first(z: Tensor, most: int) -> list[Tensor]:
    """The draws at the ends of each coordinate, then some at equal distances."""
    ends = torch.stack([z.argmax(0), z.argmin(0)], 1).flatten()
    even = torch.linspace(0, len(z) - 1, min(most, len(z)), device=z.device).long()
    chosen = dict.fromkeys([*ends[: most // 2].tolist(), *even.tolist()])
    return [z[i] for i in list(chosen)[:most]]
