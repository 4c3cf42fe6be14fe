"""Programs with branches on values, such as an ``if`` on a site: a graph for each way through them.

A graph holds the operations of one way, and its value is NaN at points where the program goes
another way. The program then runs itself, and its way there becomes the next graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from ...runtime.process_locks import one_at_a_time
from .machine_code import MachineCode, machine_code
from .tracing import ValueAndGradient, agree, one_point, traced

#: Ways with a graph. At the points of others the program runs itself.
MOST_WAYS = 16
#: Misses after which graphs are given up that serve less than this share of the points: a program
#: with an ``if`` in a loop may go another way each time.
ENOUGH, LEAST_SERVED = 256, 0.25


class Branching:
    """(z [p], *tables) -> value and gradient [p], by the graph of the way taken at z.

    The program runs itself where no graph holds, and its way there is recorded at the first such
    miss and at those of number 2, 3, 4, 6, 8, 12, 16 and so on, as recording costs as much as many
    runs. Several threads may call it at once.

    Args:
        one: The program itself.
        graph: The graph of one way.
        compiled: The same graph, compiled.
        single: Whether some numbers of the program are in float32.

    Attributes:
        graphs: That of each way that has one.
        given_up: Whether the program runs itself everywhere, as its ways are too many.
    """

    def __init__(
        self,
        one: ValueAndGradient,
        graph: fx.GraphModule,
        compiled: ValueAndGradient,
        single: bool,
    ) -> None:
        self.one, self.single = one, single
        self.graphs = [graph]
        self.ways = [compiled]  # the latest first
        self.calls = self.misses = 0
        self.before = 0, 0  # calls and misses when they were last looked at
        self.adds = True  # until a way cannot be recorded
        self.given_up = False

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        if self.given_up:
            return self.one(z, *tables)
        self.calls += 1
        ways = self.ways
        for way in ways:
            value, gradient = way(z, *tables)
            if not math.isnan(value.item()):
                if way is not ways[0]:
                    self.ways = [way, *(other for other in ways if other is not way)]
                return value, gradient
        with one_at_a_time():
            value, gradient = self.one(z, *tables)
            if not math.isnan(value.item()):
                self._missed(z, tables, value, gradient)
        return value, gradient

    def _missed(
        self, z: Tensor, tables: tuple[Tensor, ...], value: Tensor, gradient: Tensor
    ) -> None:
        """Add the way taken at z, or give graphs up."""
        self.misses += 1
        odd = self.misses >> ((self.misses & -self.misses).bit_length() - 1)  # without factors of 2
        if odd > 3:
            return
        calls, misses = self.calls - self.before[0], self.misses - self.before[1]
        self.before = self.calls, self.misses
        if self.misses >= ENOUGH and misses > (1 - LEAST_SERVED) * calls:
            self.given_up = True
        elif self.adds and len(self.graphs) < MOST_WAYS:
            self._add(z, tables, value, gradient)

    def _add(self, z: Tensor, tables: tuple[Tensor, ...], value: Tensor, gradient: Tensor) -> None:
        """Add the way taken at z, if its graph has the value and the gradient there."""
        self.adds = False
        try:
            graph = one_point(self.one, (z.clone(), *tables))
            way = traced(graph, (z.clone(), *tables))
            if not agree(way(z, *tables), (value, gradient), single=self.single):
                return
        except Exception:  # of a user's program inside a trace, of whatever kind
            return
        self.adds = True
        self.graphs.append(graph)
        self.ways = [way, *self.ways]


class SeveralBranching:
    """(z [k, p], *tables) -> values [k] and gradients [k, p] of a program with branches.

    Args:
        several: The graph of one way, for all points at once.
        one: A function that returns the ``Branching`` of one point.
    """

    def __init__(self, several: ValueAndGradient, one: Callable[[], ValueAndGradient]) -> None:
        self.several, self.one = several, one

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = self.several(z, *tables)
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
        self.codes: list[MachineCode | None] = [first]  # the latest first

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.of_numpy(z.double().numpy())
        return torch.tensor(value, dtype=z.dtype), torch.from_numpy(gradient).to(z)

    def of_numpy(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at z [p] and the gradient [p], in float64."""
        if len(self.codes) < len(self.branching.graphs):
            with one_at_a_time():
                new = self.branching.graphs[len(self.codes) :]
                self.codes = [*map(machine_code, new), *self.codes]
        codes = [] if self.branching.given_up else self.codes
        for code in codes:
            if code is not None:
                value, gradient = code.of_numpy(z)
                if not math.isnan(value):
                    self.branching.calls += 1
                    if code is not codes[0]:
                        self.codes = [code, *(other for other in codes if other is not code)]
                    return value, gradient
        point = torch.from_numpy(np.array(z)).to(self.dtype)
        found: Any = self.branching(point)
        return found[0].item(), found[1].double().numpy()
