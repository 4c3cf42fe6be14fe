"""Predictions of more rows than memory holds, from Parquet files to one Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from .. import files
from ..data.entries.row_numbers import numbered
from ..data.stream.rows_in_chunks import Chunk, RowsGiven, RowsInFiles, rows_of
from ..errors import DataError, NotApplicable, SettingError, StorageError, an, listed
from ..runtime.fingerprint import fingerprint
from ..runtime.progress import bar
from ..runtime.whole_numbers import check_whole_number
from .fitted import Fitted, refuse_in_team
from .origin import digest_of
from .prediction import Prediction
from .prediction_parts import ALL_BLANK, GUARANTEE, Parts
from .region import Region, exact_level

__all__ = ["ROWS_AT_ONCE", "Predicted", "predict_to", "predict_to_file"]

ROWS_AT_ONCE = 65_536  # a multiple of the blocks in which models predict, which fixes the rounding
SUFFIX = ".parquet"


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


def predict_to(
    self: Any,
    source: Any,
    out: str | PathLike[str],
    level: float = 0.9,
    calibrator: Any = None,
    rows_at_once: int = ROWS_AT_ONCE,
    *,
    progress: bool = True,
) -> Path:
    """Predict rows chunk by chunk, and write the predictions to one Parquet file.

    The columns are ``mean``, ``sd``, ``lower`` and ``upper``, in the units of the data. For labels
    they are ``p(label)`` for each class and, with a calibrator, ``set``, a list of the labels in
    the set. There is one row group per chunk; the rows keep their order. Numbers are those of
    ``predict`` on all rows, up to the rounding that another size of batch gives.

    Each chunk is first a file in the folder ``out.parts``; these are joined at the end and removed.
    The same call after one that was stopped goes on behind its last complete part, where the rows
    come from files.

    Args:
        self: The posterior.
        source: The new rows: a Parquet file, a folder or a list of these; a ``ppgp.stream``; a
            frame or an array [m, d], or an iterable of them. Columns of files are found by the
            names of the training columns, and others are ignored.
        out: The file to write, whose name ends in .parquet. A file that is there is replaced.
        level: The level of the intervals or sets, in (0, 1).
        calibrator: Of ``ppgp.calibrate``: the intervals or sets are conformal. None: intervals are
            those of the predictive distribution.
        rows_at_once: The most rows of one chunk.
        progress: Whether to show a progress bar.

    Returns:
        The path of the file.

    Raises:
        NotApplicable: If the posterior is one of a program or of a rank of a team, or the
            calibrator is none of ``ppgp.calibrate`` or has groups or weights.
        UnknownName: If a training column is missing.
        DataError: If a column is missing in one of the files or has another type there, or a value
            is missing or not finite; the message names column, file, row group and
                row.
        SettingError: If an option is wrong.
        StorageError: If ``out`` cannot be written, is one of the files that are read, or parts of
            another call are in the way.
    """
    path = _checked(self, out, level, calibrator, rows_at_once)
    rows = rows_of(source, self.data)
    predict_to_file(self, rows, path, level, calibrator, rows_at_once, progress)
    return path


def _checked(
    posterior: Fitted, out: str | PathLike[str], level: float, calibrator: Any, rows_at_once: Any
) -> Path:
    """Return the path of the output, once the arguments are checked."""
    if not posterior.data.is_table:
        do = "call predict(**arguments) for parts of them, and write each"
        raise NotApplicable("the posterior of a model on a table", "one of a program", do)
    _check_one_process(posterior.data)
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


def _check_one_process(data: Any) -> None:
    """Raise NotApplicable for a rank that cannot write by itself."""
    refuse_in_team(data, "predict_to(rows, out)")
    if data.writers.rank:
        got, do = f"a call on rank {data.writers.rank}", "write: if team.rank == 0: ..."
        raise NotApplicable("predict_to on rank 0 alone", got, do)


def predict_to_file(
    posterior: Any,
    rows: RowsInFiles | RowsGiven,
    out: Path,
    level: float,
    calibrator: Any,
    rows_at_once: int,
    progress: bool,
) -> Predicted:
    """Do what ``predict_to`` does, whose arguments are checked, for rows that are found."""
    if isinstance(rows, RowsInFiles):
        _refuse_source(rows, out)
    facts = {
        "posterior": digest_of(posterior),
        "source": fingerprint(rows.identity()),
        "level": str(exact_level(level)),
        "calibrator": None if calibrator is None else calibrator.identity(level),
        "rows_at_once": int(rows_at_once),
    }
    writing = _Writing(posterior, level, calibrator)
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
        posterior: The posterior.
        level: The level of the intervals or sets.
        calibrator: The calibrator; None: there is none.
    """

    posterior: Any
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
            prediction = self.posterior.predict(chunk.rows)
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
