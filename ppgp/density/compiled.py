"""Compiled graphs of a density and its gradient, checked against the program at three points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from ..display.user_warnings import warn
from ..errors import LostRank, NotApplicable, NumericalWarning
from ..runtime.process_locks import one_at_a_time
from ..runtime.seeding import standard_normal
from .density import Density
from .graph.tracing import (
    Looped,
    ValueAndGradient,
    agrees_up_to_rounding,
    one_point,
    several_of,
    traced,
    worth_widening,
)

VALUES = "its graph depends on the values (an if or random numbers in it), or on how often it ran"
SHAPE = "the shape of a tensor depends on the values, as with a boolean mask or nonzero"
PYTHON_NUMBER = "it turns a value into a Python number, as an if, float(), .item() or .numpy() does"


@dataclass(frozen=True, eq=False)
class _Recorded:
    """The operations of a density at one point, behind its graphs of one point and of several.

    Attributes:
        graph: The operations.
        points: Where graphs are compared with the program, [p] each.
        own: Functions that return value and gradient of the program there, computed once.
    """

    graph: GraphModule
    points: list[Tensor]
    own: list[Callable[[], tuple[Tensor, Tensor]]]


class Graphs:
    """The graphs of one density: of all rows or a mini-batch, of one point or several.

    Args:
        density: What is compiled.
        compile: Whether to compile at all; the program runs at every call otherwise.
        notes: A list to which sentences for the user are added.
        watch: Whether to remember points at which graphs run, to compare graph and program there
            later. A user's program may have branches that tracing cannot see.

    Attributes:
        visited: Some of the points at which graphs were run.
        failed: Whether the program could not be compiled.
        warned: Those of ``notes`` that a warning has stated.
    """

    def __init__(self, density: Density, compile: bool, notes: list[str], watch: bool) -> None:
        self.density, self.compile, self.notes, self.watch = density, compile, notes, watch
        self.visited: list[Tensor] = []
        self.failed = False
        self.warned: list[str] = []
        self._graphs: dict[Key, ValueAndGradient] = {}
        self._recorded: dict[tuple[int | None, bool], _Recorded] = {}
        self._of_tables: dict[tuple[Any, ...], ValueAndGradient] = {}

    @property
    def eager(self) -> bool:
        """Whether the program itself runs at every call."""
        return self.failed or not self.compile

    def get(
        self,
        batch: int | None,
        jacobian: bool,
        k: int | None = None,
        compile: bool = True,
        few: bool = False,
    ) -> ValueAndGradient:
        """Return (z, *tables) -> value, gradient; see ``Target.compiled``."""
        key = (batch, jacobian, k)
        if key not in self._graphs:
            self.density.check_memory(batch)
            if not compile and k is None:
                return self.density.eager_gradient(jacobian)
            with one_at_a_time():
                graph, reason = self._compiled(batch, jacobian, k, few)
            if reason is not None:
                self._warn_eager(reason)
            watched = self.watch and not self.eager
            self._graphs[key] = _Watched(graph, self.visited) if watched else graph
        return self._graphs[key]

    def of_tables(
        self, batch: int, jacobian: bool, k: int | None, reach: Tensor | None
    ) -> ValueAndGradient:
        """Return (z, X, y) -> value, gradient, where each of k points has rows of its own.

        Args:
            batch: Rows per point.
            jacobian: As in ``get``.
            k: The arguments are [k, ...]; None for one point.
            reach: The length of an adversarial step in each column, [d]; None: the density itself.
        """
        key = (batch, jacobian, k, None if reach is None else tuple(reach.tolist()))
        if key in self._of_tables:
            return self._of_tables[key]
        self.density.check_memory(batch * (k or 1))
        one = self.density.eager_gradient(jacobian)
        if reach is not None:
            one = self.density.adversarial_gradient(jacobian, reach)
        graph = one if k is None else Looped(one, True)
        if self.compile:
            tables = self.density.tables(torch.arange(batch))
            points = self._three_points()
            with one_at_a_time():
                found = traced(one, (points[0].clone(), *tables), k, True)
                # other rows at each point, or the same in another order
                rows = [tuple(x.roll(i, 0) for x in tables) for i in range(len(points))]
                agree = (
                    agrees_up_to_rounding(there, one, z, own, single=self.density.survey.single)
                    for there, z, own in zip(
                        several_of(found, points, rows, k, True), points, rows, strict=True
                    )
                )
                graph = found if all(agree) else graph
        self._of_tables[key] = graph
        return graph

    def _compiled(
        self, batch: int | None, jacobian: bool, k: int | None, few: bool = False
    ) -> tuple[ValueAndGradient, str | None]:
        """Return the graph, and why it is the program itself instead, if it has to be."""
        one = self.density.eager_gradient(jacobian)
        if not self.compile:
            return one if k is None else Looped(one), None
        tables = () if batch is None else self.density.tables(torch.arange(batch))
        try:
            recorded = self._of_one_point(batch, jacobian, one, tables)
            if k is not None and not worth_widening(recorded.graph):
                return Looped(self.get(batch, jacobian)), None
            points, own = recorded.points, recorded.own
            graph = traced(recorded.graph, (points[0].clone(), *tables), k, False, few)
            if isinstance(graph, GraphModule) and k is None:
                # it agrees where it was traced; a point costs a step
                points, own = points[1:], own[1:]
            found = several_of(graph, points, [tables] * len(points), k)
            single = self.density.survey.single
            agree = (
                agrees_up_to_rounding(there, one, z, tables, known(), single=single)
                for there, z, known in zip(found, points, own, strict=True)
            )
            reason = None if all(agree) else VALUES
        except (KeyboardInterrupt, LostRank, NotApplicable):
            raise
        except Exception as error:  # any error of a user's program inside a trace: run it eagerly
            graph, reason = one, _reason(error)
        if reason is None:
            return graph, None
        if k is not None:  # a graph of one point may serve where that of several does not
            return Looped(self.get(batch, jacobian)), None
        return one, reason

    def _of_one_point(
        self, batch: int | None, jacobian: bool, one: ValueAndGradient, tables: tuple[Tensor, ...]
    ) -> _Recorded:
        """Return the operations of the density at one point, which are recorded once."""
        key = (batch, jacobian)
        if key not in self._recorded:
            points = self._three_points()
            graph = one_point(one, (points[0].clone(), *tables))
            self._recorded[key] = _Recorded(
                graph, points, [cache(partial(one, z, *tables)) for z in points]
            )
        return self._recorded[key]

    def _three_points(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        origin, dim = self.density.origin(), self.density.dim
        steps = [torch.zeros(dim, dtype=torch.float64)]
        for _ in range(2):
            steps.append(0.5 * standard_normal(generator, dim))
        return [origin + step.to(origin) for step in steps]

    def _warn_eager(self, reason: str) -> None:
        if self.failed:
            return
        self.failed = True
        note = (
            f"the program could not be compiled ({reason}); it runs eagerly, several times slower"
        )
        self.notes.append(note)
        self.warned.append(note)
        warn(note, NumericalWarning)

    def remember(self, points: Sequence[Tensor]) -> None:
        """See ``Target.remember``."""
        like, dim = self.density.survey.like, self.density.dim
        self.visited += [z for several in points for z in several.reshape(-1, dim).to(like)]

    def was_wrong(self, z: Tensor | None) -> bool:
        """See ``Target.graph_was_wrong``."""
        graph = next((g for key, g in self._graphs.items() if key[0] is None), None)
        if not isinstance(graph, _Watched):
            return False
        key = next(key for key in self._graphs if key[0] is None)
        sentence = _difference(self.density, graph, key, z)
        if sentence is None:
            return False
        self.compile = False
        self._graphs.clear()
        self._recorded.clear()
        self.visited.clear()
        self.notes.append(sentence)
        warn(sentence, NumericalWarning)
        return True


def _reason(error: Exception) -> str:
    """Return what kept a program from being traced, in one sentence."""
    said = str(error)
    if "of a value that depends" in said or "data-dependent" in said or "Could not guard" in said:
        return PYTHON_NUMBER
    if "has a shape that depends" in said:
        return SHAPE
    first_line = said.splitlines()[0] if said else ""
    return f"{type(error).__name__}: {first_line}"


Key = tuple[int | None, bool, int | None]  # rows of a mini-batch, with Jacobian, number of points
FEWEST, MOST = 8, 64  # points that are compared, of draws and of earlier calls each
SHARE = 20  # draws per point


class _Watched:
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


def _difference(density: Density, watched: _Watched, key: Key, z: Tensor | None) -> str | None:
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
