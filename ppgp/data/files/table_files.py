"""Tables in files, .csv, .tsv, .parquet and .xlsx, and text from the standard input."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ... import files
from ...display.user_warnings import warn
from ...errors import DataError, DataWarning, PpgpError, SettingError, listed
from ..columns import refuse_no_rows, refuse_twice
from ..dataset import Dataset
from .delimited import read_delimited

SEPARATORS = {".csv": ",", ".tsv": "\t"}
BINARY = (".parquet", ".xlsx")
READERS = (*SEPARATORS, *BINARY)
STANDARD_INPUT = "-"
UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)?")  # what pandas calls a column without a name


def is_table(path: Path, sep: str | None = None) -> bool:
    """Return whether ``read_frame`` takes a path: by its suffix, or with ``sep`` any.

    Args:
        path: The path, or "-".
        sep: The character that separates columns; None: that of the suffix.
    """
    return str(path) == STANDARD_INPUT or sep is not None or path.suffix.lower() in READERS


def read_frame(path: str | Path, sep: str | None = None) -> Any:
    """Return a pandas DataFrame [n, d] from a .csv, .tsv, .parquet or .xlsx file.

    Of an .xlsx file, the first sheet is read. Text in .csv is that of RFC 4180 (2005).

    Args:
        path: The file; "-" for text from the standard input.
        sep: The character that separates columns; None: a comma, or in a .tsv file a tab.

    Raises:
        SettingError: If ``sep`` is not one character, or the file is not text.
        DataError: If there is no such file, it cannot be read or has no rows, a row has another
            number of fields than the header, or a name occurs twice.

    Examples:
        >>> import pandas as pd
        >>> from ppgp import data
        >>> wells = pd.DataFrame({"depth": [10, 20], "zinc": [1.5, 2.5]})
        >>> wells.to_csv("wells.txt", sep=";", index=False)
        >>> data.read_frame("wells.txt", sep=";")
           depth  zinc
        0     10   1.5
        1     20   2.5
    """
    path = Path(path)
    _check_separator(path, sep)
    if str(path) == STANDARD_INPUT:
        frame = _read(path, "the standard input", sep or ",")
    else:
        if not path.is_file():
            raise DataError("a file to read", files.no_file(path), "check the path")
        if not is_table(path, sep):
            do = "convert it, or pass sep= for a text file of another name"
            raise DataError(f"a {', '.join(READERS)} file", path.name, do)
        frame = _read(path, path.name, sep or SEPARATORS.get(path.suffix.lower(), ","))
    refuse_twice(map(str, frame.columns))
    refuse_no_rows(len(frame), path.name)
    return frame


def _check_separator(path: Path, sep: str | None) -> None:
    """Raise SettingError for a separator of a file that is not text, or not of one character."""
    if sep is None:
        return
    if path.suffix.lower() in BINARY:
        raise SettingError("sep of a text file", path.name, "leave sep out")
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n':
        raise SettingError("one character as sep", repr(sep), "write ',', ';', '|' or a tab")


def _read(path: Path, name: str, sep: str) -> Any:
    """Return the DataFrame in a file, or raise DataError if it cannot be read."""
    import pandas as pd
    import pyarrow

    kind = path.suffix.lower()
    try:
        if str(path) == STANDARD_INPUT:
            return read_delimited(sys.stdin.buffer.read(), sep, name)
        if kind == ".parquet":
            return pd.read_parquet(path)
        if kind == ".xlsx":
            return _first_sheet(path)
        return read_delimited(path.read_bytes(), sep, name)
    except PpgpError:
        raise
    except (
        ValueError,
        OSError,
        LookupError,
        TypeError,
        ArithmeticError,
        zipfile.BadZipFile,
        pyarrow.ArrowException,
    ) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"a readable {kind} file", f"{path.name} ({reason})", "check the file"
        ) from None


def _first_sheet(path: Path) -> Any:
    """Return the DataFrame in the first sheet of an .xlsx file."""
    import pandas as pd

    try:
        cells = pd.read_excel(path, header=None, nrows=1, engine="openpyxl")
        frame = pd.read_excel(path, engine="openpyxl")
    except ImportError:
        do = 'install openpyxl, by pip install "ppgp[excel]", or save the table as .csv'
        raise DataError("openpyxl, to read .xlsx files", "none", do) from None
    refuse_twice(str(cell) for cell in cells.to_numpy().ravel() if not pd.isna(cell))
    return frame


def dataset_in(
    path: Path, target: str | None, from_frame: Callable[..., Dataset], sep: str | None = None
) -> Dataset:
    """Return the Dataset in a file, or on the standard input."""
    frame = read_frame(path, sep)
    if target is None:
        raise no_target(frame)
    data = from_frame(frame, target)
    unnamed = [name for name in data.feature_names or () if UNNAMED.fullmatch(name)]
    if unnamed:
        sentence = (
            f"{listed(unnamed, 'input column')} without a name in the header, as the index that "
            f"pandas writes: leave out with drop={unnamed!r}, or name in the file"
        )
        warn(sentence, DataWarning)
    return data


def no_target(frame: Any) -> DataError:
    """Return the error for a target column that is required and not given."""
    columns = ", ".join(map(str, frame.columns))
    return DataError("the name of the target column", "none", f"pass target=, one of: {columns}")
