"""Discrete sites in the steps of a loop: the axes of their values, and of those a step before.

All values of a site are along one axis left of the plates. What the loop carries from a step on
depends on them along this axis, and the next step takes it along another one, so that a density of
one step is a table of the values before and after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...errors import NotApplicable

__all__ = ["DensitiesOfSteps", "LoopOfSites", "Variable", "place_of", "with_values_before"]

UNROLLED = "write the loop in Python, for t in pyro.markov(range(steps)), with a number in the name"


@dataclass(frozen=True, eq=False)
class Variable:
    """A discrete site of the steps.

    Attributes:
        values: All its values, along the axis ``dim``, counted from the last one of a batch.
        dim: That axis.
        number: The number of the variable.
        dim_before: The axis of its values in the step before.
        number_before: The number of the variable in the step before.
        event: How many axes an event has.
    """

    values: Tensor
    dim: int
    number: int
    dim_before: int
    number_before: int
    event: int

    @property
    def elsewhere(self) -> Tensor:
        """Its values along the axis of the step before."""
        return self.swapped(self.values, self.event)

    def swapped(self, x: Tensor, event: int) -> Tensor:
        """Return a tensor with the axes of the values now and before exchanged."""
        missing = event - self.dim_before - x.ndim
        if missing > 0:
            x = x.reshape((1,) * missing + tuple(x.shape))
        return x.transpose(self.dim - event, self.dim_before - event)


@dataclass(eq=False)
class LoopOfSites:
    """What is known of a loop whose discrete sites are summed out.

    Attributes:
        plate: The name of the axis of steps.
        steps: Their number.
        reverse: Whether the last step comes first.
        variables: ``{discrete site: its variable}``.
        carried: The sites on which the next step depends.
    """

    plate: str
    steps: int
    reverse: bool
    variables: dict[str, Variable]
    carried: set[str] = field(default_factory=set)

    @property
    def before(self) -> dict[int, int]:
        """``{variable: that of the step before}``, of those on which the next step depends."""
        each = [self.variables[name] for name in self.variables if name in self.carried]
        return {v.number: v.number_before for v in each}

    @property
    def numbers(self) -> dict[int, int]:
        """``{axis: the number of its variable}``."""
        now = {v.dim: v.number for v in self.variables.values()}
        return now | {v.dim_before: v.number_before for v in self.variables.values()}

    @property
    def own(self) -> set[int]:
        """The numbers of all variables."""
        return set(self.numbers.values())

    def in_time(self, x: Tensor) -> Tensor:
        """Return a tensor of all steps, in the order of the loop, in the order of xs; or back."""
        return x.flip(0) if self.reverse else x


@dataclass(frozen=True, eq=False)
class DensitiesOfSteps:
    """The log densities of a site of the steps, masked.

    Attributes:
        loop: The loop.
        depth: How many axes of the batch are right of that of the steps.
        first: Of the first step.
        rest: Of the others, in the order of the loop, with the axis of the steps left of the
            plates; of size 1 where they are the same. None where there are no others.
    """

    loop: LoopOfSites
    depth: int
    first: Tensor
    rest: Tensor | None


def place_of(x: Tensor, shifted: Tensor, variable: Variable) -> int | None:
    """Return how many axes are right of the batch; None where x does not depend on a variable.

    Args:
        x: What a step returns.
        shifted: What it returns where the variable has the axis of the step before.
        variable: The variable.
    """
    rank = max(x.ndim, shifted.ndim)
    a, b = ((1,) * (rank - t.ndim) + tuple(t.shape) for t in (x, shifted))
    places = [rank - i for i in range(rank) if a[i] != b[i]]
    return min(places) + variable.dim if places else None


def with_values_before(x: Any, variables: Mapping[str, Variable], places: Mapping[str, int]) -> Any:
    """Return a part of the carry as the next step takes it.

    Args:
        x: The part.
        variables: ``{discrete site: its variable}``.
        places: ``{discrete site: axes right of the batch}``, of the sites on which it depends.
    """
    for name, event in places.items():
        x = variables[name].swapped(x, event)
    return x


def too_far(names: Sequence[str]) -> NotApplicable:
    """Return the error for a carry that depends on discrete sites of earlier steps."""
    sites = ", ".join(map(repr, names))
    return NotApplicable(
        "a carry of ppgp.scan that depends on the discrete sites of the last step alone",
        f"one that keeps {sites} for longer",
        f"{UNROLLED} and history=2 (or more) for that many steps",
    )
