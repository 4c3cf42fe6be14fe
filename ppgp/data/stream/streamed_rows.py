"""What a fit to a stream is given: a sample of its rows in memory, and mini-batches of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..dataset import Dataset, IdentityScaler, Scaler, standardised_mean
from ..training_data import Batch, Rows
from .stream import POOL, BatchIterator, Stream

__all__ = ["StreamedRows"]

SUMS = "stream"  # the first part of the names of params that keep sums over a stream
OWN_BATCH = 1_000
PORTION = 8_192  # rows of which the density is evaluated at once


class StreamedRows(Dataset):
    """A sample of the rows of a stream, whose density stands for all rows of the stream.

    X, y and ``n`` are those of the sample: pilots, medians and inducing inputs follow from it.
    Mini-batches and ``portions`` are of all rows. Tables that are made from it (``rows``,
    ``dataclasses.replace``) are plain Datasets, and stand for themselves alone.

    Where ``streamed`` is False, mini-batches and ``portions`` are those of the sample, whose
    density is an estimate of that of all rows.

    Attributes:
        stream: Where all rows are.
        scaler: What puts them on the scale of X and y.
    """

    stream: Stream
    scaler: Scaler
    is_sample = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a plain Dataset; ``of`` makes a sample of a stream."""
        return Dataset(*args, **kwargs)

    @classmethod
    def of(
        cls,
        stream: Stream,
        sample: Dataset,
        scaler: Scaler | None = None,
        streamed: bool = True,
    ) -> StreamedRows:
        """Return the rows of a sample that stand for a stream.

        Args:
            stream: The stream.
            sample: Some of its rows, on the scale of the scaler.
            scaler: What puts the rows of the stream on that scale; None: it is their own.
            streamed: Whether the density is that of the rows of the stream, and not an estimate
                from the sample.
        """
        rows: StreamedRows = object.__new__(cls)
        scaler = IdentityScaler.for_data(sample) if scaler is None else scaler
        vars(rows).update(vars(sample), stream=stream, scaler=scaler, streamed=streamed)
        smallest = min(stream.rows_of_ranks or (stream.n,))
        vars(rows).update(own_batch=min(OWN_BATCH, smallest), _drawn=WeakKeyDictionary())
        vars(rows).update(team=stream.team if streamed else ALONE)
        return rows

    def in_team(self, team: Team) -> StreamedRows:
        """Return the rows, which are in the team of their stream."""
        return self

    def __copy__(self) -> StreamedRows:
        return self.of(self.stream, self.in_memory, self.scaler, self.streamed)

    @property
    def total(self) -> int:
        return self.stream.total

    @property
    def stands_for(self) -> int:
        return self.stream.n * self.team.size if self.streamed else self.total

    @property
    def rows_of_ranks(self) -> list[int]:
        return list(self.stream.rows_of_ranks) or [self.total]

    @property
    def shared(self) -> Dataset:
        return self.in_memory

    @property
    def in_memory(self) -> Dataset:
        table = self.with_numbers(self.X, self.y, {})
        vars(table).update(target_mean=self.target_mean, writers=self.stream.team)
        return table

    @property
    def sample(self) -> Dataset:
        return self.of(self.stream, self.in_memory, self.scaler, streamed=False)

    def draw(self, size: int, generator: torch.Generator) -> Rows:
        """Return the next mini-batch of the order that follows from the generator."""
        if not self.streamed:
            return permutation(generator, self.n)[:size]
        return Batch(self._scaled(next(self.batches_of(size, generator))))

    def batches_of(self, size: int, generator: torch.Generator) -> BatchIterator:
        """Return the mini-batches of one fit, whose order its generator seeds at the first call."""
        by_size = self._batches_of(generator)
        if size not in by_size:
            seed = int(torch.randint(2**31, (1,), generator=generator, device="cpu"))
            by_size[size] = self._iterator(size, seed)
        return by_size[size]

    def _batches_of(self, generator: torch.Generator) -> dict[int, BatchIterator]:
        """Return the mini-batches that are drawn by a generator, by their size."""
        drawn: WeakKeyDictionary[torch.Generator, dict[int, BatchIterator]] = vars(self)["_drawn"]
        return drawn.setdefault(generator, {})

    def _iterator(self, size: int, seed: int) -> BatchIterator:
        """Return mini-batches of this rank in an order of their own."""
        return iter(self.stream.batches(size, seed + self.team.rank, max(POOL, size)))

    def order_of_batches(self, generator: torch.Generator) -> dict[str, Tensor]:
        # the same numbers on all ranks, of which rank 0 keeps its own
        kept = [
            (
                size,
                batches.order.seed - self.team.rank,
                batches.epoch * self.stream.n + batches.row,
            )
            for size, batches in self._batches_of(generator).items()
        ]
        return {"batches": torch.tensor(kept, dtype=torch.int64).reshape(-1, 3)}

    def continue_batches(self, generator: torch.Generator, order: Mapping[str, Tensor]) -> None:
        by_size = self._batches_of(generator)
        for size, seed, drawn in order["batches"].tolist():
            batches = by_size[size] = self._iterator(size, seed)
            epoch, row = divmod(drawn, self.stream.n)
            batches.load_state_dict({**batches.state_dict(), "epoch": epoch, "row": row})

    @property
    def content(self) -> tuple[Any, ...]:
        """The sample, the sizes of the row groups, and the statistics of all rows."""
        moments = self.stream.statistics().moments
        groups = [piece.n for piece in self.stream.pieces]
        return (*self.in_memory.content, groups, moments)

    def portions(self) -> Iterator[tuple[Dataset, Rows | None, float]]:
        if not self.streamed:
            yield self, None, 1.0
            return
        for table in self.stream.chunks(min(PORTION, self.n)):
            scaled = self.scaler(table)
            yield scaled, Batch(scaled.tables(torch.arange(table.n))), table.n / self.stream.n

    def standardised(
        self, scale_y: bool = True, scale_X: bool = True
    ) -> tuple[StreamedRows, Scaler]:
        """Return the sample and the stream on the scale of the statistics of all rows."""
        scaler = Scaler.of(
            self.in_memory,  # the statistics are those of all ranks already
            scale_X=scale_X,
            scale_y=scale_y and self.classes is None,
            spreads=self.stream.statistics().spreads(self.X.dtype),
        )
        rows = self.of(self.stream, scaler(self.in_memory), scaler, self.streamed)
        mean = standardised_mean(self.stream.statistics().y_mean, scaler)
        vars(rows)["target_mean"] = mean
        return rows, scaler

    def _scaled(self, columns: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the columns of a mini-batch on the scale of X and y."""
        if self.scaler.is_identity:
            return columns
        X, y, *others = columns
        return (self.scaler.inputs(X), self.scaler.targets(y), *others)

    def with_numbers(self, X: Tensor, y: Tensor, columns: Mapping[str, Any]) -> Dataset:
        own = ("stream", "scaler", "streamed", "own_batch", "_drawn")
        table = object.__new__(Dataset)
        kept = {name: value for name, value in vars(self).items() if name not in own}
        vars(table).update(kept)
        return table.with_numbers(X, y, columns)
