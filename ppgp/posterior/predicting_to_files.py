"""Predictions of more rows than memory holds, from Parquet files to one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from .. import files
from ..data.stream.rows_in_chunks import Chunk, RowsGiven, RowsInFiles
from ..errors import DataError, NotApplicable, SettingError, StorageError, an, listed
from ..runtime.fingerprint import fingerprint
from ..runtime.levels import exact_level
from ..runtime.progress import bar
from ..runtime.whole_numbers import check_whole_number
from ..tables.wrong_rows import numbered
from .prediction import Prediction
from .region import Region

__all__ = ["ROWS_AT_ONCE", "Parts", "Predicted", "checked_path", "predict_to_file"]

ROWS_AT_ONCE = 65_536  # a multiple of the blocks in which models predict, which fixes the rounding
SUFFIX = ".parquet"
FACTS = "parts.json"
PART = "part-{:06d}.parquet"
GUARANTEE = b"ppgp.guarantee"  # in the metadata of parts and output
ALL_BLANK = b"ppgp.blank"  # in the metadata of a part none of whose rows has a prediction


@runtime_checkable
class Calibrated(Protocol):
    """What turns predictions into sets: the result of ``ppgp.calibrate``."""

    def __call__(self, new_prediction: Prediction, level: float = 0.9) -> Region:
        """Return the sets of new rows."""
        ...

    def identity(self, level: float) -> str:
        """Return a digest of what the sets depend on besides the predictions."""
        ...


@dataclass(frozen=True)
class Predicted:
    """What was written.

    Attributes:
        n: The number of rows.
        blank: How many of them have no prediction.
        guarantee: The sentence that holds for the intervals or sets; None: there are none.
    """

    n: int
    blank: int
    guarantee: str | None


def checked_path(
    data: Any, out: str | PathLike[str], level: float, calibrator: Any, rows_at_once: Any
) -> Path:
    """Return the path of the output, once the arguments of ``Posterior.predict_to`` are checked.

    Args:
        data: The training data.
        out: See ``Posterior.predict_to``, as for the other arguments.
        level: The level of the intervals or sets.
        calibrator: The calibrator.
        rows_at_once: The most rows of one chunk.
    """
    if not data.is_table:
        do = "call predict(**arguments) for parts of them, and write each"
        raise NotApplicable("the posterior of a model on a table", "one of a program", do)
    _check_one_process(data)
    exact_level(level)
    check_whole_number("rows_at_once", rows_at_once, 1, f"the default is {ROWS_AT_ONCE:,}")
    if calibrator is not None and not isinstance(calibrator, Calibrated):
        wanted = "a calibrator of ppgp.calibrate"
        raise NotApplicable(wanted, an(type(calibrator).__name__), "call its intervals by parts")
    path = Path(out)
    if path.suffix.lower() != SUFFIX:
        raise SettingError(f"a file to write that ends in {SUFFIX}", str(out), "rename it")
    if files.is_stream(path):
        do = "choose another path"
        raise StorageError("a file to write", f"{out}, which is no regular file", do)
    return files.check_file(path)


def refuse_in_team(data: Any, call: str) -> None:
    """Raise NotApplicable if a rank of a team has some of the training rows alone.

    Args:
        data: The training data.
        call: The call of a posterior that needs all of them.
    """
    if not data.team.alone:
        raise NotApplicable(
            f"{call} of a posterior in one process",
            f"that of rank {data.team.rank} of {data.team.size}",
            'call posterior.save("fit.safetensors") on every rank, and on one of them '
            f'ppgp.load_posterior("fit.safetensors").{call}',
        )


def _check_one_process(data: Any) -> None:
    """Raise NotApplicable for a rank that cannot write by itself."""
    refuse_in_team(data, "predict_to(rows, out)")
    if data.writers.rank:
        got, do = f"a call on rank {data.writers.rank}", "write: if team.rank == 0: ..."
        raise NotApplicable("predict_to on rank 0 alone", got, do)


def predict_to_file(
    predict: Callable[[Any], Prediction],
    identity: str,
    rows: RowsInFiles | RowsGiven,
    out: Path,
    level: float,
    calibrator: Any,
    rows_at_once: int,
    progress: bool,
) -> Predicted:
    """Do what ``Posterior.predict_to`` does, whose arguments are checked, for rows that are found.

    Args:
        predict: Returns the prediction of new rows.
        identity: A digest of the posterior.
        rows: The rows.
        out: The file to write.
        level: The level of the intervals or sets.
        calibrator: The calibrator; None: there is none.
        rows_at_once: The most rows of one chunk.
        progress: Whether to show a progress bar.
    """
    if isinstance(rows, RowsInFiles):
        _refuse_source(rows, out)
    facts = {
        "posterior": identity,
        "source": fingerprint(rows.identity()),
        "level": str(exact_level(level)),
        "calibrator": None if calibrator is None else calibrator.identity(level),
        "rows_at_once": int(rows_at_once),
    }
    writing = _Writing(predict, level, calibrator)
    parts = Parts(out, facts)
    with files.locked(out):
        parts.open()
        try:
            written = _written(rows, rows_at_once, parts, writing, progress)
        except (DataError, SettingError):
            parts.remove()  # the call cannot go on, and a corrected one is another call
            raise
        parts.remove()
    return written


def _written(
    rows: RowsInFiles | RowsGiven, rows_at_once: int, parts: Parts, writing: _Writing, show: bool
) -> Predicted:
    """Write the parts that are not complete, and the output."""
    number = at = 0
    if rows.n is not None:
        number = parts.complete(rows_at_once, rows.n)
        at = min(number * rows_at_once, rows.n)
    with bar("predict_to", rows.n or 1, show and rows.n is not None) as update:
        for chunk in rows.chunks(rows_at_once, at):
            parts.write(number, writing.table(chunk, at))
            number, at = number + 1, at + len(chunk.blank)
            update(at)
    if not number:
        raise DataError("at least one row", "none", "pass rows of inputs")
    blank, guarantee = parts.join(number)
    return Predicted(at, blank, guarantee)


def _refuse_source(rows: RowsInFiles, out: Path) -> None:
    """Raise StorageError for an output that would be read as one of the sources."""
    target = files.target_of(out)
    if target in {piece.file.resolve() for piece in rows.pieces}:
        do = "choose another path"
        raise StorageError("a file to write that is not read", f"{out}, which is", do)
    if any(target.is_relative_to(folder.resolve()) for folder in rows.folders):
        got = f"{out}, in the folder that is read"
        raise StorageError("a file to write outside of it", got, "choose another folder")


@dataclass(frozen=True)
class _Writing:
    """What makes the table of a chunk.

    Attributes:
        predict: Returns the prediction of new rows.
        level: The level of the intervals or sets.
        calibrator: The calibrator; None: there is none.
    """

    predict: Callable[[Any], Prediction]
    level: float
    calibrator: Any

    def table(self, chunk: Chunk, start: int) -> Any:
        """Return the table of Arrow of a chunk, a row of which may have no prediction.

        Args:
            chunk: The rows.
            start: The number of the first of them, for messages.
        """
        import pyarrow

        columns: dict[str, Any] = {}
        if chunk.kept is not None:
            columns = {name: chunk.kept.column(name) for name in chunk.kept.column_names}
        if chunk.blank.all():
            columns = columns or {"": pyarrow.nulls(len(chunk.blank))}
            return pyarrow.table(columns, metadata={ALL_BLANK: b""})
        with numbered(_Numbers(start, np.flatnonzero(~chunk.blank))):
            prediction = self.predict(chunk.rows)
            region = self._region(prediction)
        place = _places(chunk.blank)
        found = {
            name: column if place is None else column.take(place)
            for name, column in self._columns(prediction, region).items()
        }
        twice = [name for name in columns if name in found]
        if twice:
            wanted = "names of columns to keep that differ from those of the predictions"
            raise SettingError(wanted, listed(twice, "column"), "rename them in the file")
        metadata = {} if region is None else {GUARANTEE: region.guarantee}
        return pyarrow.table({**columns, **found}, metadata=metadata)

    def _region(self, prediction: Prediction) -> Region | None:
        """Return the intervals or sets; None for labels without a calibrator."""
        if self.calibrator is not None:
            return self.calibrator(prediction, level=self.level)
        if prediction.kind == "classes":
            return None
        return prediction.interval(self.level)

    def _columns(self, prediction: Prediction, region: Region | None) -> dict[str, Any]:
        """Return ``{name: array of Arrow}``."""
        if prediction.kind != "classes":
            assert region is not None
            lower, upper = region
            numbers = {"mean": prediction.mean, "sd": prediction.std}
            return {k: _arrow(v) for k, v in {**numbers, "lower": lower, "upper": upper}.items()}
        probabilities = prediction.probabilities
        labels = prediction.classes or tuple(range(probabilities.shape[1]))
        columns = {f"p({label})": _arrow(probabilities[:, k]) for k, label in enumerate(labels)}
        if region is not None and region.labels is not None:
            columns["set"] = _sets(region.labels, labels)
        return columns


class _Numbers(Sequence[int]):
    """The numbers of rows in the whole table, which begin at ``start``."""

    def __init__(self, start: int, rows: np.ndarray) -> None:
        self.start, self.rows = start, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self.start + int(self.rows[row])


def _places(blank: np.ndarray) -> Any:
    """Return the place of each row among those with predictions, or nothing for a blank one.

    None: no row is blank.
    """
    import pyarrow

    if not blank.any():
        return None
    return pyarrow.array(np.cumsum(~blank) - 1, mask=blank)


def _arrow(column: Tensor) -> Any:
    """Return a column of numbers [m] as an array of Arrow."""
    import pyarrow

    return pyarrow.array(np.ascontiguousarray(column.detach().cpu().numpy()))


def _sets(members: Tensor, labels: Sequence[Any]) -> Any:
    """Return sets of labels [m, K] as lists of text."""
    import pyarrow

    inside = members.cpu().numpy()
    ends = np.concatenate([[0], inside.sum(1).cumsum()]).astype(np.int32)
    codes = pyarrow.array(np.nonzero(inside)[1].astype(np.int32))
    names = pyarrow.array([str(label) for label in labels])
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), names.take(codes))


@dataclass(frozen=True)
class Parts:
    """The parts of one output, in a folder beside it: each is written whole, and joined at the end.

    Attributes:
        out: The output.
        facts: What the call depends on, as JSON. Its parts go on with no other.
    """

    out: Path
    facts: dict[str, Any]

    @property
    def folder(self) -> Path:
        """The folder."""
        return self.out.with_name(f"{self.out.name}.parts")

    def path(self, number: int) -> Path:
        """Return the path of a part."""
        return self.folder / PART.format(number)

    def open(self) -> None:
        """Make the folder with the facts, or check that it holds the parts of the same call.

        Raises:
            StorageError: If it holds those of another call, or other files, or cannot be made.
        """
        folder, facts = self.folder, self.folder / FACTS
        with files.explained(folder):
            there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        if there in ([], [FACTS]):
            files.write(facts, json.dumps(self.facts), folder=True)
            return
        try:
            known = json.loads(facts.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = None
        if known == self.facts:
            return
        differing: list[str] = []
        if isinstance(known, dict):
            differing = [key for key in self.facts if known.get(key) != self.facts[key]]
        got = f"those of a call with another {differing[0]}" if differing else "other files"
        do = "choose another out, make the same call again, or remove that folder"
        raise StorageError(f"the parts of this call in {folder}", got, do)

    def complete(self, rows: int, n: int) -> int:
        """Return how many of the first parts are complete.

        A file that was cut off has no footer, and is made again with all after it.

        Args:
            rows: The rows of each part but the last.
            n: The rows of all.
        """
        import pyarrow
        from pyarrow import parquet

        number = 0
        while number * rows < n:
            try:
                found = parquet.read_metadata(self.path(number)).num_rows
            except (OSError, pyarrow.ArrowException):
                break
            if found != min(rows, n - number * rows):
                break
            number += 1
        return number

    def write(self, number: int, table: Any) -> None:
        """Write a part under another name, and give it its own once it is whole."""
        from pyarrow import parquet

        with files.replacing_path(self.path(number)) as new, files.explained(new):
            parquet.write_table(table, new, **_settings(table.schema), row_group_size=len(table))

    def join(self, count: int) -> tuple[int, str | None]:
        """Write the parts to the output as one row group each; it replaces a file there.

        Returns:
            How many rows have no prediction, and the guarantee of the intervals or sets, None if
            there are none.

        Raises:
            DataError: If no row has a prediction.
            StorageError: If the operating system does not allow it.
        """
        from pyarrow import parquet

        schemas = (parquet.read_schema(self.path(number)) for number in range(count))
        schema = next((one for one in schemas if ALL_BLANK not in (one.metadata or {})), None)
        if schema is None:
            raise DataError("a row with a value in every cell", "none", "fill empty cells")
        blank = 0
        with (
            files.replacing_path(self.out) as new,
            files.explained(new),
            parquet.ParquetWriter(new, schema, **_settings(schema)) as file,
        ):
            for table in self._tables(count):
                table = _with_columns(table, schema)
                blank += table.column(len(schema) - 1).null_count
                file.write_table(table, row_group_size=len(table))
        guarantee = (schema.metadata or {}).get(GUARANTEE)
        return blank, None if guarantee is None else guarantee.decode()

    def _tables(self, count: int) -> Iterator[Any]:
        """Yield the tables of the parts, one in memory at a time."""
        from pyarrow import parquet

        for number in range(count):
            with parquet.ParquetFile(self.path(number)) as part:
                yield part.read()

    def remove(self) -> None:
        """Remove the parts, the last first, and the folder unless it holds other files."""
        for path in sorted(self.folder.glob("part-*.parquet"), reverse=True):
            path.unlink()
        for left in self.folder.glob(".part-*.new.parquet"):
            left.unlink()
        with suppress(OSError):
            (self.folder / FACTS).unlink()
            self.folder.rmdir()


def _with_columns(table: Any, schema: Any) -> Any:
    """Return a table with the columns of a schema; those that it lacks are empty."""
    import pyarrow

    if table.schema.equals(schema):
        return table
    columns = [
        table.column(field.name)
        if field.name in table.column_names
        else pyarrow.nulls(len(table), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _settings(schema: Any) -> dict[str, Any]:
    """Return how a schema is encoded: text by dictionaries, which real numbers do not repay."""
    from pyarrow import types

    numbers = {field.name for field in schema if types.is_floating(field.type)}
    nested = {field.name for field in schema if types.is_list(field.type)}
    others = [name for name in schema.names if name not in numbers | nested]
    return {"use_dictionary": [*others, *(f"{name}.list.element" for name in nested)]}
