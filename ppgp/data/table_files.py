"""Tables in files: .csv, .tsv and .parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import DataError, PpgpError
from .columns import refuse_twice
from .dataset import Dataset
from .delimited import read_delimited
from .frame_parts import refuse_no_rows

SEPARATORS = {".csv": ",", ".tsv": "\t"}
READERS = (*SEPARATORS, ".parquet")


def read_frame(path: str | Path) -> Any:
    """Return a pandas DataFrame from a .csv, .tsv or .parquet file.

    Raises:
        DataError: If there is no such file, it cannot be read or has no rows, a row has another
            number of fields than the header, or a name occurs twice.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("a file to read", f"no file {path}", "check the path")
    if path.suffix.lower() not in READERS:
        raise DataError(f"a {', '.join(READERS)} file", path.name, "convert it")
    frame = _read(path)
    refuse_twice(map(str, frame.columns))
    refuse_no_rows(len(frame), path.name)
    return frame


def _read(path: Path) -> Any:
    """Return the DataFrame in a file, or raise DataError if it cannot be read."""
    import pandas as pd
    import pyarrow

    kind = path.suffix.lower()
    try:
        if kind in SEPARATORS:
            return read_delimited(path, SEPARATORS[kind])
        return pd.read_parquet(path)
    except PpgpError:
        raise
    except (
        ValueError,
        OSError,
        LookupError,
        TypeError,
        ArithmeticError,
        pyarrow.ArrowException,
    ) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"a readable {kind} file", f"{path.name} ({reason})", "check the file"
        ) from None


def dataset_in(path: Path, target: str | None, from_frame: Callable[..., Dataset]) -> Dataset:
    """Return the Dataset in a file."""
    frame = read_frame(path)
    if target is None:
        raise no_target(frame)
    return from_frame(frame, target)


def no_target(frame: Any) -> DataError:
    """Return the error for a target column that is required and not given."""
    columns = ", ".join(map(str, frame.columns))
    return DataError("the name of the target column", "none", f"pass target=, one of: {columns}")
