"""What a fit is given: a Dataset for a model, or the arguments of a user's own program.

``TrainingData`` is what both offer, so that code for either need not ask which of them it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..runtime.seeding import permutation
from ..runtime.team import ALONE, Team

if TYPE_CHECKING:
    from .formula_design import Design

__all__ = ["Batch", "Rows", "Tables", "TrainingData", "same_value"]

Tables = tuple[Tensor, ...]
"""The inputs, the targets, and what a model takes by name, of some rows; () for all of them."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of a mini-batch themselves, where no table in memory has them.

    Attributes:
        tables: Their inputs, targets and other columns.
    """

    tables: Tables

    def __len__(self) -> int:
        return len(self.tables[0])


Rows = Tensor | Batch
"""The indices of rows of a table, or the rows themselves."""


class TrainingData:
    """What a model or a program is fitted to.

    Attributes:
        is_table: Whether it is a table, whose rows can be told apart.
        n: The number of rows; None for a program, whose rows its arguments do not tell.
        d: The number of columns; 0 for a program.
        together: The numbers of the coordinates of a table, which are scaled by one factor.
        coded: The numbers of the columns of a table that hold codes of categories.
        team: The processes among which the rows are divided.
        writers: The processes that have the same data, of which rank 0 writes files.
        workers: The processes that have the same data, and divide the work of a density.
        shared: Rows that all processes of the team have alike: the data themselves of a process by
            itself, and a sample of the rows of all in a team.
        target_mean: The mean of all targets, where these rows are a sample of them; None elsewhere.
        design: The formula that made the columns of a table, a ``Design``; None: none. No file
            holds it.
        streamed: Whether the rows in memory are a sample of those that the density stands for.
        is_sample: Whether the rows in memory are a sample of a stream.
        own_batch: The rows of a mini-batch where a method of mini-batches is given no number; None:
            all.
        alphabetical: Whether the order of the classes is that of texts, as y has no other. No file
            holds it.
    """

    is_table: ClassVar[bool] = False
    streamed: bool = False
    is_sample: bool = False
    own_batch: int | None = None
    n: Any = None
    d: int = 0
    together: list[int]
    coded: list[int]
    design: Design | None = None
    alphabetical: bool = False
    team: Team = ALONE
    writers: Team = ALONE
    workers: Team = ALONE
    target_mean: float | None = None

    @property
    def shared(self) -> Any:
        return self

    @property
    def rows_of_ranks(self) -> list[Any]:
        """The number of rows of each process of the team."""
        return [self.total]

    def with_origin_of(self, other: TrainingData) -> Any:
        """Return the same data, with what is known of where the other's columns are from."""
        table = copy(self)
        vars(table).update(design=other.design, alphabetical=other.alphabetical)
        vars(table).update(team=other.team, target_mean=other.target_mean)
        return table

    def worked_on_by(self, team: Team) -> Any:
        """Return the same data, which all processes of a team have, who divide the work."""
        table = copy(self)
        vars(table).update(writers=team, workers=team)
        return table

    def with_design(self, design: Design) -> Any:
        """Return the same data, with the formula that made its columns."""
        table = copy(self)
        vars(table)["design"] = design
        return table

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and device of the computation."""
        raise NotImplementedError

    @property
    def content(self) -> Any:
        """The numbers that a result depends on, for a digest."""
        raise NotImplementedError

    def passed(
        self, tables: Tables = (), observed: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the named arguments of the Pyro program.

        Args:
            tables: The inputs and targets of some rows; () for all.
            observed: Whether the model on a table sees its targets. A program has arguments of
                its own.
        """
        raise NotImplementedError

    @property
    def total(self) -> Any:
        """The number of all rows, of every process of a team; None for a program."""
        return self.n

    @property
    def in_memory(self) -> Any:
        """The rows that are in memory, as a table of their own."""
        if self.workers.alone:
            return self
        table = copy(self)
        vars(table)["workers"] = ALONE
        return table

    @property
    def sample(self) -> Any:
        """The rows that are in memory, standing for all: the same data unless they are streamed."""
        return self

    def draw(self, size: int, generator: torch.Generator) -> Rows:
        """Return a random mini-batch of so many rows, without replacement.

        Processes that divide the work have different rows.
        """
        before, every = self.workers.rank * size, self.workers.size * size
        return permutation(generator, self.n)[:every][before : before + size]

    def order_of_batches(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return how far mini-batches have been drawn by a generator, besides its own state."""
        return {}

    def continue_batches(self, generator: torch.Generator, order: Mapping[str, Tensor]) -> None:
        """Draw the mini-batches that follow those of ``order_of_batches``."""

    def portions(self) -> Iterator[tuple[Any, Rows | None, float]]:
        """Yield all rows as tables that fit into memory.

        Yields:
            A table, its rows as a density takes them, and their share of all rows. The density of
            all rows is the mean, weighted by the shares, of those of the portions.
        """
        yield self, None, 1.0

    def tables(self, rows: Rows | None) -> Tables:
        """Return the inputs and targets of some rows; () for all of them.

        Raises:
            NotApplicable: If rows are asked of a program.
        """
        raise NotImplementedError

    def same_rows(self, other: Any) -> bool:
        """Return whether the other data hold the same rows in the same order."""
        raise NotImplementedError

    def work(self, model: Any) -> float:
        """Return about how many multiplications one evaluation of the density takes.

        Args:
            model: The model or the Program.
        """
        raise NotImplementedError


def same_value(a: Any, b: Any) -> bool:
    """Return whether two arguments are equal; tensors and arrays are compared by their numbers.

    NaN, as of a missing number, is equal to NaN.
    """
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.device != b.device:
            return False
        return bool(((a == b) | ((a != a) & (b != b))).all())
    try:
        one, other = np.asarray(a), np.asarray(b)
        numbers = all(x.dtype.kind in "fc" for x in (one, other))
        same = np.array_equal(one, other, equal_nan=numbers)
    except (TypeError, ValueError, RuntimeError):
        return False
    return bool(same)
