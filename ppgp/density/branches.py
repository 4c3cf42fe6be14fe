"""Find branches of a program that tracing cannot see, by comparing a graph with the program."""

from __future__ import annotations

import torch
from torch import Tensor

from .density import Density
from .graph.tracing import ValueAndGradient, agrees_up_to_rounding, several_of

Key = tuple[int | None, bool, int | None]  # rows of a mini-batch, with Jacobian, number of points
FEWEST, MOST = 8, 64  # points that are compared, of draws and of earlier calls each
SHARE = 20  # draws per point


class Watched:
    """A graph that keeps the points of its calls number 1, 2, 4, 8, ...

    More of them are early, in the warm-up of a sampler, where the values vary most.
    """

    def __init__(self, graph: ValueAndGradient, visited: list[Tensor]) -> None:
        self.graph, self.visited, self.calls = graph, visited, 0

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if not self.calls & (self.calls - 1):
            self.visited.append(z.detach().clone())
        return self.graph(z, *tables)


def difference(density: Density, watched: Watched, key: Key, z: Tensor | None) -> str | None:
    """Return a sentence on the first point where the graph and the program differ; None if none.

    Args:
        density: The density of the program.
        watched: Its graph over all rows.
        key: What the graph is of.
        z: Draws or a mode, [n, p]; their extremes in each coordinate come first, as a branch is
            often at an end.
    """
    _, jacobian, k = key
    points = [] if z is None else _extremes_first(z, min(MOST, max(FEWEST, len(z) // SHARE)))
    first_points = [
        point for each in watched.visited for point in each.reshape(-1, density.dim)[:1]
    ]
    points += first_points[-MOST:]
    one = density.eager_gradient(jacobian)
    single = density.survey.single
    tolerance = 1e-3 if single or density.survey.like.dtype == torch.float32 else 1e-8
    for point in points:
        with torch.no_grad():
            from_graph = several_of(watched.graph, [point], [()], k)[0]
            own = _own(density, point, jacobian)
        if torch.allclose(from_graph[0], own, rtol=tolerance, atol=tolerance, equal_nan=True):
            continue
        finite = bool(torch.isfinite(own))
        if finite and agrees_up_to_rounding(from_graph, one, point, (), single=single):
            continue
        return (
            "the program takes a branch that tracing cannot see: its log density at one point is "
            f"{float(own):.6g}, that of its graph {float(from_graph[0]):.6g}; it ran again "
            "eagerly, several times slower"
        )
    return None


def _own(density: Density, z: Tensor, jacobian: bool) -> Tensor:
    """Return the value of the program itself; NaN where it has none."""
    try:
        return density.joint(z, (), jacobian)
    except (RuntimeError, ValueError, ArithmeticError):  # a failed Cholesky factor, for example
        return torch.full_like(z[0], torch.nan)


def _extremes_first(z: Tensor, most: int) -> list[Tensor]:
    """Return the draws at the ends of each coordinate, then some at equal distances."""
    ends = torch.stack([z.argmax(0), z.argmin(0)], 1).flatten()
    even = torch.linspace(0, len(z) - 1, min(most, len(z)), device=z.device).long()
    chosen = dict.fromkeys([*ends[: most // 2].tolist(), *even.tolist()])
    return [z[i] for i in list(chosen)[:most]]
