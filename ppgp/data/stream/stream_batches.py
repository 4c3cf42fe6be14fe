"""Mini-batches of a stream of rows, in random order, which go on where they were left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ...errors import SettingError
from ...runtime.whole_numbers import check_whole_number
from ..entries.arrays import laid_out
from ..files.parquet_files import Piece
from ..files.parquet_rows import Columns, ParquetRows
from ..training_data import Tables

__all__ = ["BatchIterator", "StreamBatches"]


@runtime_checkable
class Source(Protocol):
    """What mini-batches need of a ``Stream``, by the same names."""

    @property
    def n(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def pieces(self) -> tuple[Piece, ...]: ...
    @property
    def reader(self) -> ParquetRows: ...
    def shard(self, rank: int, size: int) -> Source: ...


@dataclass(frozen=True)
class Order:
    """How the rows of a stream are shuffled.

    Attributes:
        batch_size: The rows of a mini-batch.
        seed: The seed of the order.
        pool: The rows that are in memory at once, and are shuffled together.
        epochs: How often each row is drawn; None: without end.
    """

    batch_size: int
    seed: int
    pool: int
    epochs: int | None


class StreamBatches(IterableDataset[Tables]):
    """The mini-batches of a stream: (X [b, d], y [b]), followed by the weights [b] if it has any.

    In each epoch the row groups come in a random order. As many of their rows as fit into the
    pool are read, and are drawn from it in a random order before the next are read. Every row is
    drawn once per epoch. The rows of all epochs follow one another, so that each batch has
    ``batch_size`` rows, but the last one of a limited number of epochs.

    ``torch.utils.data.DataLoader(batches, batch_size=None, num_workers=2)`` reads in other
    processes: each has a share of the row groups, and an order of its own.

    Args:
        stream: Where the rows are.
        order: How they are shuffled.
    """

    def __init__(self, stream: Source, order: Order) -> None:
        super().__init__()
        self.stream, self.order = stream, order

    def __iter__(self) -> BatchIterator:
        worker = get_worker_info()
        if worker is None:
            return BatchIterator(self.stream, self.order, 0)
        return BatchIterator(
            self.stream.shard(worker.id, worker.num_workers), self.order, worker.id
        )


class BatchIterator:
    """The iterator of ``StreamBatches``, whose state is a few numbers.

    Attributes:
        epoch: How many epochs are complete.
        row: How many rows of this epoch were drawn.

    Args:
        stream: Where the rows are.
        order: How they are shuffled.
        worker: The number of the process that reads, which has an order of its own.
    """

    def __init__(self, stream: Source, order: Order, worker: int) -> None:
        self.stream, self.order, self.worker = stream, order, worker
        self.epoch, self.row = 0, 0
        self._rows: Iterator[Tables] | None = None
        self._left: Tables | None = None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Tables:
        """Return the next mini-batch."""
        if self._rows is None:
            self._rows = self._blocks(self.epoch, self.row)
        parts: list[Tables] = []
        needed = self.order.batch_size
        while needed:
            block = self._left or next(self._rows, None)
            if block is None:
                break
            parts.append(tuple(column[:needed] for column in block))
            self._left = tuple(column[needed:] for column in block)
            if not len(self._left[0]):
                self._left = None
            needed -= len(parts[-1][0])
        if not parts:
            raise StopIteration
        drawn = sum(len(part[0]) for part in parts)
        self.epoch += (self.row + drawn) // self.stream.n
        self.row = (self.row + drawn) % self.stream.n
        if len(parts) == 1:
            return tuple(map(laid_out, parts[0]))
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    # -- the state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, int]:
        """Return where the iterator is, and what its order depends on."""
        return {**self._settings(), "epoch": self.epoch, "row": self.row}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go to where another iterator of the same stream was; its next batches are bit-equal.

        The row groups that were in its pool are read again.

        Raises:
            SettingError: If the state is that of other rows, or of another order.
        """
        for name, own in self._settings().items():
            if state.get(name) != own:
                raise SettingError(
                    f"a state of batches with {name}={own}",
                    f"{name}={state.get(name)}",
                    "resume with the same files and options",
                )
        self.epoch, self.row = int(state["epoch"]), int(state["row"])
        self._rows, self._left = None, None

    def _settings(self) -> dict[str, int]:
        order = self.order
        own = {"n": self.stream.n, "batch_size": order.batch_size, "seed": order.seed}
        return {**own, "pool": order.pool, "worker": self.worker}

    # -- the pool --------------------------------------------------------------------------------

    def _blocks(self, epoch: int, row: int) -> Iterator[Tables]:
        """Yield the rows in the order in which they are drawn, a pool at a time.

        Args:
            epoch: The epoch in which to begin.
            row: The row of that epoch at which to begin.
        """
        while self.order.epochs is None or epoch < self.order.epochs:
            yield from self._epoch(epoch, row)
            epoch, row = epoch + 1, 0

    def _epoch(self, epoch: int, row: int) -> Iterator[Tables]:
        """Yield the rows of one epoch from ``row`` on."""
        n, pieces = self.stream.n, self.stream.pieces
        order = self._random(epoch, 0).permutation(len(pieces))
        count = -(-n // self.order.pool)  # pools of almost the same size
        edges = [i * n // count for i in range(count + 1)]
        first = next(i for i in range(count) if row < edges[i + 1])
        reader = self.stream.reader
        source = _Rechunked(reader.read([pieces[i] for i in order], edges[first]))
        for i in range(first, count):
            block = self._read(source, edges[i + 1] - edges[i])
            drawn = self._random(epoch, i + 1).permutation(edges[i + 1] - edges[i])
            drawn = torch.from_numpy(drawn[max(0, row - edges[i]) :])
            yield tuple(column[drawn] for column in block)

    def _random(self, epoch: int, part: int) -> np.random.Generator:
        """Return the generator of the order of the row groups (part 0), or of one pool."""
        return np.random.default_rng([self.order.seed, self.worker, epoch, part])

    def _read(self, source: _Rechunked, size: int) -> Tables:
        """Return the next ``size`` rows: X [size, d], y [size] and the weights."""
        reader, dtype = self.stream.reader, self.stream.dtype
        X = torch.empty(size, len(reader.inputs), dtype=dtype)
        others = [torch.empty(size, dtype=dtype) for _ in reader.names[len(reader.inputs) :]]
        into = [*X.numpy().T, *(column.numpy() for column in others)]
        start = 0
        while start < size:
            columns = source.take(size - start)
            stop = start + len(columns[0])
            for column, place in zip(columns, into, strict=True):
                place[start:stop] = column
            start = stop
        return (X, *others)


class _Rechunked:
    """Chunks of columns, cut to the sizes that are asked for.

    Args:
        chunks: The chunks.
    """

    def __init__(self, chunks: Iterator[Columns]) -> None:
        self.chunks = chunks
        self.left: Columns | None = None

    def take(self, most: int) -> Columns:
        """Return the next rows, at most so many and at least one."""
        columns = next(self.chunks) if self.left is None else self.left
        self.left = None
        if len(columns[0]) > most:
            self.left = [column[most:] for column in columns]
            columns = [column[:most] for column in columns]
        return columns


def order_of(batch_size: Any, seed: Any, pool: Any, epochs: Any) -> Order:
    """Return the checked options of ``Stream.batches``.

    Raises:
        SettingError: If one of them is not a whole number, or too small.
    """
    least = {"batch_size": 1, "seed": 0, "pool": 1, "epochs": 1}
    given = {"batch_size": batch_size, "seed": seed, "pool": pool, "epochs": epochs}
    for name, value in given.items():
        if name == "epochs" and value is None:
            continue
        check_whole_number(name, value, least[name], "change it")
    return Order(int(batch_size), int(seed), int(pool), None if epochs is None else int(epochs))
