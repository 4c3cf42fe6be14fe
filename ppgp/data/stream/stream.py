"""Rows in Parquet files that are read as they are needed, and may be more than memory holds.

Their mini-batches come in random order, and go on where they were left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ...errors import DataError, SettingError, counted, listed
from ...runtime.team import ALONE, Team
from ...runtime.whole_numbers import check_whole_number
from ...tables.names import check_columns, refuse_twice
from ..dataset import SAMPLE, Dataset, check_alike, joined
from ..entries.arrays import laid_out
from ..files.parquet_files import (
    Piece,
    check_columns_exist,
    check_same_types,
    footer,
    holds_numbers,
    kind_of,
    parquet_files,
    pieces_of,
    shared_out,
    types_in,
)
from ..files.parquet_rows import Columns, ParquetRows, columns_at, regrouped
from ..training_data import Tables
from .stream_statistics import Statistics, statistics_of

__all__ = ["BatchIterator", "Stream", "StreamBatches", "stream"]

POOL = 131_072


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows in Parquet files. Nothing is in memory but what their footers tell.

    While a row group is read, the compressed bytes of its columns are in memory.

    ``ppgp.stream`` makes it, and ``fit`` takes it in place of a Dataset for methods that read
    mini-batches, and for linear models. Inputs [n, d] and targets [n] are in the units of the
    files. Moments of chunks are joined as in Chan, Golub & LeVeque (1983).

    Attributes:
        n: The number of rows.
        d: The number of inputs.
        feature_names: The names of the inputs.
        target_name: The name of the target.
        weights_name: The name of the column of frequency weights; None: there is none.
        coordinates: The inputs that are places in one space; None: there are none.
        dtype: Float32 if all inputs are float32 or float16 in the files, else float64.
        kind: What the target holds: "text", "booleans", or the type of its numbers in Arrow.
        pieces: Where the rows are: row groups, or parts of them.
        team: The processes that read other rows (``Team.share``). ``statistics`` and ``classes``
            are then those of the rows of all, and so is ``sample``, which every rank calls; what
            else is read are this rank's rows.
        rows_of_ranks: The number of rows of each process of the team.

    Raises:
        DataError: While rows are read, if a value is missing or not finite; the message names
            column, file, row group and row.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [0.5, 1.0, 1.5, 2.0]})
        >>> frame.to_parquet("rows.parquet", row_group_size=2)
        >>> rows = ppgp.stream("rows.parquet", "y")
        >>> rows
        <Stream n=4 d=1 target=y (2 row groups)>
        >>> rows.shard(0, 2)
        <Stream n=2 d=1 target=y (1 row group)>
        >>> [(len(table), table.y.tolist()) for table in rows.chunks(3)]
        [(3, [0.5, 1.0, 1.5]), (1, [2.0])]
    """

    feature_names: tuple[str, ...]
    target_name: str
    weights_name: str | None
    coordinates: tuple[str | int, ...] | None
    dtype: torch.dtype
    kind: str
    pieces: tuple[Piece, ...] = field(repr=False)
    whole: Stream | None = field(default=None, repr=False)
    team: Team = field(default=ALONE, repr=False)
    rows_of_ranks: tuple[int, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        groups = counted(len(self.pieces), "row group")
        return f"<Stream n={self.n} d={self.d} target={self.target_name} ({groups})>"

    def __len__(self) -> int:
        return self.n

    @cached_property
    def n(self) -> int:
        """The number of rows."""
        return sum(piece.n for piece in self.pieces)

    @property
    def total(self) -> int:
        """The number of rows of the whole team."""
        return self.n if self.team.alone else sum(self.rows_of_ranks)

    @property
    def d(self) -> int:
        """The number of inputs."""
        return len(self.feature_names)

    # -- one pass --------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return n, means, standard deviations, labels and constant columns, from one pass.

        The pass is made once; its result is kept. Moments of chunks are joined in float64 (Chan,
        Golub & LeVeque 1983).

        Raises:
            DataError: If a value is missing or not finite; the message names column, file, row
                group and row.
        """
        return self._statistics

    @cached_property
    def _statistics(self) -> Statistics:
        return statistics_of(self._numbers, self.pieces, self.kind, self.dtype, self.team)

    @property
    def _numbers(self) -> ParquetRows:
        return ParquetRows(self.feature_names, self.target_name, self.weights_name, None)

    @cached_property
    def classes(self) -> tuple[Any, ...] | None:
        """The labels of the target, all files together; None: it holds numbers.

        Labels of text take the pass of ``statistics``.
        """
        if self.kind == "booleans":
            return (False, True)
        if self.kind != "text":
            return None
        return (self.whole or self).statistics().classes

    @cached_property
    def reader(self) -> ParquetRows:
        """What reads the rows, labels as codes."""
        classes = self.classes if self.kind == "text" else None
        return replace(self._numbers, classes=classes)

    # -- rows ------------------------------------------------------------------------------------

    def batches(
        self,
        batch_size: int,
        seed: int = 0,
        pool: int = POOL,
        epochs: int | None = None,
    ) -> StreamBatches:
        """Return mini-batches in random order, an ``IterableDataset``.

        Write ``DataLoader(batches, batch_size=None)``, as the batches are made already.

        Each is (X [b, d], y [b]), followed by the weights [b] if the stream has any. Rows of
        files that are sorted are mixed well if the pool holds several row groups.

        Args:
            batch_size: The rows of each batch.
            seed: The seed of the order.
            pool: How many rows are in memory at once and are shuffled together.
            epochs: How often each row is drawn; None: without end.

        Raises:
            SettingError: If an option is not a whole number, or too small.
        """
        order = _order_of(batch_size, seed, pool, epochs)
        _ = self.reader  # labels are found here, not once in each process that reads
        return StreamBatches(self, order)

    def shard(self, rank: int, size: int) -> Stream:
        """Return the share of one of several processes: every ``size``-th row group.

        With fewer row groups than processes, the largest are divided, so that each has rows.

        Args:
            rank: The number of the process, from 0.
            size: The number of processes.

        Raises:
            SettingError: If there is no such process, or there are fewer rows than processes.
        """
        if not 0 <= rank < size:
            got = f"rank {rank} of {size}"
            raise SettingError("a rank from 0 to size - 1", got, "number the processes from 0")
        if size > self.n:
            do = "use fewer processes"
            raise SettingError(f"at most {self.n} processes", f"{size}", do)
        parts = shared_out(self.pieces, size)[rank::size]
        whole = self.whole or self
        return replace(self, pieces=tuple(parts), whole=whole, team=ALONE, rows_of_ranks=())

    def share_of(self, team: Team) -> Stream:
        """Return the part of the stream that this rank of a team reads; see ``Team.share``."""
        rows = [(piece.file.name, piece.group, piece.start, piece.stop) for piece in self.pieces]
        do = "open the same files on every rank, or call shard for files of its own"
        team.check_alike({"stream": rows}, do)
        return self.shard(team.rank, team.size).in_team(team)

    def in_team(self, team: Team) -> Stream:
        """Return the stream as this rank's part of the rows of a team; see ``Team.shard``.

        It takes one pass, for the statistics.

        Raises:
            DataError: If the ranks have other columns or other kinds of targets, or a value cannot
                be used.
        """
        if team.alone:
            return self
        about = team.gathered(
            {
                "n": self.n,
                "columns": list(self.feature_names),
                "target": self.target_name,
                "weights": self.weights_name,
                "dtype": str(self.dtype),
                "coordinates": list(map(str, self.coordinates or ())),
                "kind of target": self.kind,
            }
        )
        with team.all_or_none():
            check_alike(about)
        counts = tuple(each["n"] for each in about)
        part = replace(self, whole=None, team=team, rows_of_ranks=counts)
        part.statistics()
        return part

    def chunks(self, rows: int) -> Iterator[Dataset]:
        """Yield all rows in the order of the files, as tables of ``rows`` rows.

        The last table has the rows that are left.

        Args:
            rows: The rows of each table.

        Raises:
            SettingError: If it is not a whole number above 0.
            DataError: If a value is missing or not finite.
        """
        check_whole_number("rows", rows, 1, "for example 10_000")
        parts = self.reader.read(self.pieces)
        for held in regrouped(parts, rows, lambda columns: len(columns[0]), columns_at):
            yield self._table(held)

    def sample(self, rows: int = SAMPLE, seed: int = 0) -> Dataset:
        """Return random rows, without replacement, in the order of the files.

        It takes one pass. In a team the ranks call it together, and each has the rows that all of
        them choose.

        Args:
            rows: How many; all, if there are fewer.
            seed: The seed of the choice.

        Raises:
            SettingError: If ``rows`` is not a whole number above 0, or ``seed`` none of at least 0.
            DataError: If a value is missing or not finite.
        """
        check_whole_number("seed", seed, 0, "change it")
        generator = np.random.default_rng(seed)
        check_whole_number("rows", rows, 1, f"the default is {SAMPLE:,}")
        own = min(-(-rows * self.n // self.total), self.n)
        chosen = np.sort(generator.choice(self.n, own, replace=False, shuffle=False))
        held: list[list[np.ndarray]] = []
        start = 0
        for columns in self.reader.read(self.pieces):
            stop = start + len(columns[0])
            low, high = np.searchsorted(chosen, (start, stop))
            if low < high:
                here = chosen[low:high] - start
                held.append([column[here] for column in columns])
            start = stop
        return joined(self._table(held), self.team)

    def _table(self, parts: Sequence[Sequence[np.ndarray]]) -> Dataset:
        """Return rows that were read in parts as a table."""
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        numbers = np.empty(
            (len(columns[0]), self.d),
            dtype=np.float32 if self.dtype == torch.float32 else np.float64,
        )
        for j in range(self.d):
            numbers[:, j] = columns[j]
        names: dict[str, Any] = {}
        if self.weights_name is not None:
            names = {"role_names": {"weights": self.weights_name}, "weights": columns[-1]}
        table = Dataset(
            numbers,
            columns[self.d].astype(numbers.dtype),
            feature_names=self.feature_names,
            target_name=self.target_name,
            classes=self.classes,
            coordinates=self.coordinates,
            **names,
        )
        vars(table)["alphabetical"] = self.kind == "text"
        return table


@dataclass(frozen=True)
class _Order:
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

    def __init__(self, stream: Stream, order: _Order) -> None:
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

    def __init__(self, stream: Stream, order: _Order, worker: int) -> None:
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


def _order_of(batch_size: Any, seed: Any, pool: Any, epochs: Any) -> _Order:
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
    return _Order(int(batch_size), int(seed), int(pool), None if epochs is None else int(epochs))


def stream(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    target: str,
    features: Sequence[str] | None = None,
    *,
    weights: str | None = None,
    coordinates: Sequence[str | int] | None = None,
) -> Stream:
    """Open Parquet files as rows that are read as they are needed.

    Only the footers of the files are read. A fit that standardises the columns reads all rows once
    for their means and standard deviations (Chan, Golub & LeVeque 1983).

    Args:
        paths: A file, a folder (with the folders in it), or a list of files and folders.
        target: The column that is y: numbers, booleans or text.
        features: The columns of X, of numbers or booleans; None: all others.
        weights: The column that says how often each row counts, numbers above 0.
        coordinates: The inputs that are places in one space, as ``Dataset`` takes them.

    Returns:
        A Stream of rows X [n, d] and y [n], in the units of the files.

    Raises:
        DataError: If there is no file, one cannot be read, they have no rows, an input holds no
            numbers, or a column is missing in a file or has another type there.
        UnknownName: If there is no such column; the message offers the nearest name.
        SettingError: If one column has two parts.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.0, 3.0, 5.0, 7.0]})
        >>> frame.to_parquet("rows.parquet", row_group_size=2)
        >>> rows = ppgp.stream("rows.parquet", target="y")
        >>> rows
        <Stream n=4 d=1 target=y (2 row groups)>
        >>> [part.y.tolist() for part in rows.chunks(3)]
        [[1.0, 3.0, 5.0], [7.0]]
        >>> recipe = models.LinearRegression(noise=0.01)
        >>> posterior = ppgp.fit(recipe, rows, inference.MAP("newton"), progress=False)
        >>> round(posterior.predict([[1.5]]).mean.item(), 3)
        4.0
    """
    found = parquet_files(paths)
    footers = [footer(file) for file in found]
    types = types_in(found[0], footers[0])
    check_columns_exist([target], types, "target column")
    given = [] if weights is None else [weights]
    check_columns_exist(given, types, "column of weights")
    if isinstance(features, str):
        raise SettingError("a list of features", repr(features), f"write [{features!r}]")
    if features is None:
        features = [name for name in types if name not in (target, *given)]
    names = tuple(map(str, features))
    check_columns_exist(names, types, "feature")
    refuse_twice(names)
    twice = [name for name in (target, *given) if name in names]
    if twice or target == weights:
        got = f"{listed(twice or [target], 'column')} twice"
        raise SettingError("one part for each column", got, "leave it out of one of them")
    if not names:
        raise DataError("at least one feature", "none", "name the columns of X in features")
    used = (*names, target, *given)
    for file, metadata in zip(found[1:], footers[1:], strict=True):
        check_same_types(used, (found[0], types), (file, types_in(file, metadata)))
    _check_numbers([*names, *given], types)
    kind = kind_of(types[target])
    if kind not in ("text", "booleans"):
        _check_numbers([target], types)
    pieces = [
        p for file, metadata in zip(found, footers, strict=True) for p in pieces_of(file, metadata)
    ]
    if not pieces:
        raise DataError(
            "at least one row",
            f"none in {listed([f.name for f in found], 'file')}",
            "check the files",
        )
    if coordinates is not None:
        coordinates = check_columns(coordinates, names, len(names), "coordinates")
    narrow = all(str(types[name]) in ("float", "halffloat") for name in names)
    return Stream(
        names,
        str(target),
        weights,
        coordinates,
        torch.float32 if narrow else torch.float64,
        kind,
        tuple(pieces),
    )


def _check_numbers(names: Sequence[str], types: dict[str, Any]) -> None:
    """Raise DataError for a column that holds neither numbers nor booleans."""
    for name in names:
        if holds_numbers(types[name]):
            continue
        do = "leave the column out of features, or write numbers in its place"
        raise DataError(f"numbers in column {name}", f"the type {types[name]}", do)
