"""Programs with branches on values, such as an ``if`` on a site: a graph for each way through them.

A graph holds the operations of one way, and its value is NaN at points where the program goes
another way. The program then runs itself, and its way there becomes the next graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, fx

from ...runtime.process_locks import one_at_a_time
from .machine_code import MachineCode, machine_code
from .tracing import ValueAndGradient, agree, one_point, traced

MOST_WAYS = 8  # with a graph
#: Misses before the second way has a graph, and between two later ones. To record and compile a
#: graph costs as much as some hundred runs of the program.
FIRST, APART = 20, 100
#: What a call of a graph costs, in runs of the program; often far less.
COST = 0.25
LOOKED_AT = 256  # misses between two looks at whether graphs are worth their cost


class Branching:
    """(z [p], *tables) -> value and gradient [p], by the graph of the way taken at z.

    The program runs itself where no graph holds, which is a miss, and after some misses its way
    there is recorded. Graphs are given up where they cost more than they save: a program with an
    ``if`` in a loop may go another way each time. Several threads may call it at once.

    Args:
        one: The program itself.
        graph: The graph of one way.
        compiled: The same graph, compiled.
        single: Whether some numbers of the program are in float32.

    Attributes:
        graphs: That of each way that has one.
        given_up: Whether the program runs itself everywhere.
    """

    def __init__(
        self,
        one: ValueAndGradient,
        graph: fx.GraphModule,
        compiled: ValueAndGradient,
        single: bool,
    ) -> None:
        self.one, self.single = one, single
        self.graphs, self.ways = [graph], [compiled]
        self.latest = compiled
        self.calls = self.tries = self.misses = 0
        self.next = FIRST  # the miss at which a way is recorded
        self.given_up = False

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        if self.given_up:
            return self.one(z, *tables)
        self.calls += 1
        latest = self.latest
        for way in [latest, *(way for way in self.ways if way is not latest)]:
            self.tries += 1
            found = _on_its_way(way, z, *tables)
            if found is not None:
                self.latest = way
                return found
        with one_at_a_time():
            value, gradient = self.one(z, *tables)
            if not math.isnan(value.item()):
                self._missed(z, tables, value, gradient)
        return value, gradient

    def _missed(
        self, z: Tensor, tables: tuple[Tensor, ...], value: Tensor, gradient: Tensor
    ) -> None:
        """Count a miss; add the way taken at z, or give graphs up."""
        self.misses += 1
        if self.misses % LOOKED_AT == 0:
            self.given_up = COST * self.tries + self.misses > self.calls
            self.calls = self.tries = self.misses = 0
            self.next -= LOOKED_AT
        elif self.misses >= self.next and len(self.graphs) < MOST_WAYS:
            self.next = self.misses + APART
            self._add(z, tables, value, gradient)

    def _add(self, z: Tensor, tables: tuple[Tensor, ...], value: Tensor, gradient: Tensor) -> None:
        """Add the way taken at z, if its graph has the value and the gradient there."""
        try:
            graph = one_point(self.one, (z.clone(), *tables))
            way = traced(graph, (z.clone(), *tables))
            right = agree(way(z, *tables), (value, gradient), single=self.single)
        except Exception:  # of a user's program inside a trace, of whatever kind
            return
        if right:
            self.graphs.append(graph)
            self.ways.append(way)
            self.latest = way


def _on_its_way(way: ValueAndGradient, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what the graph of a way finds at z; None where the program goes another one."""
    try:
        value, gradient = way(z, *tables)
    except Exception:  # an operation that the condition guards, as an index out of range
        return None
    return None if math.isnan(value.item()) else (value, gradient)


class SeveralBranching:
    """(z [k, p], *tables) -> values [k] and gradients [k, p] of a program with branches.

    Args:
        several: The graph of one way, for all points at once.
        one: A function that returns the ``Branching`` of one point.
    """

    def __init__(self, several: ValueAndGradient, one: Callable[[], ValueAndGradient]) -> None:
        self.several, self.one = several, one

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        try:
            values, gradients = self.several(z, *tables)
        except Exception:  # an operation that the condition guards, as an index out of range
            values, gradients = z.new_full((len(z),), torch.nan), torch.empty_like(z)
        for i in values.isnan().nonzero()[:, 0].tolist():
            values[i], gradients[i] = self.one()(z[i], *tables)
        return values, gradients


class BranchingCode:
    """z [p] -> value and gradient [p] by machine code of the way that is taken at z.

    Args:
        branching: Has the graphs, and the values where no machine code has them.
        first: The machine code of its first graph.
        dtype: That of z in the program.
    """

    def __init__(self, branching: Branching, first: MachineCode, dtype: torch.dtype) -> None:
        self.branching, self.dtype = branching, dtype
        self.codes: list[MachineCode | None] = [first]  # None where a graph has none
        self.latest = first

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.of_numpy(z.double().numpy())
        return torch.tensor(value, dtype=z.dtype), torch.from_numpy(gradient).to(z)

    def of_numpy(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at z [p] and the gradient [p], in float64."""
        codes = [] if self.branching.given_up else [self.latest]
        codes += [code for code in self.codes if codes and code not in (None, self.latest)]
        for code in codes:
            self.branching.tries += 1
            value, gradient = code.of_numpy(z)
            if not math.isnan(value):
                self.branching.calls += 1
                self.latest = code
                return value, gradient
        point = torch.from_numpy(np.array(z)).to(self.dtype)
        found = self.branching(point)
        with one_at_a_time():
            for graph in self.branching.graphs[len(self.codes) :]:
                self._add(graph, point, found)
        return found[0].item(), found[1].double().numpy()

    def _add(self, graph: fx.GraphModule, z: Tensor, found: tuple[Tensor, Tensor]) -> None:
        """Add the machine code of a graph that was recorded at z, if it has the value there."""
        code = machine_code(graph)
        if code is not None and not agree(code(z), found):
            code = None
        self.codes.append(code)
