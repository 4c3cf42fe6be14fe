"""Tables in files, .csv, .tsv, .parquet and .xlsx, and text from the standard input."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...display.user_warnings import warn
from ...errors import DataError, DataWarning, PpgpError, listed
from ...tables.names import no_target, refuse_no_rows, refuse_twice
from ...tables.table_files import TableFile, table_file, unreadable
from ..dataset import Dataset

UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)?")  # what pandas calls a column without a name


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
    return frame_in(table_file(path, sep))


def frame_in(file: TableFile) -> Any:
    """Return the pandas DataFrame [n, d] in a file.

    Raises:
        DataError: If it cannot be read, has no rows, or a name occurs twice.
    """
    frame = _read(file)
    refuse_twice(map(str, frame.columns))
    refuse_no_rows(len(frame), file.path.name)
    return frame


def _read(file: TableFile) -> Any:
    """Return the DataFrame in a file, or raise DataError if it cannot be read."""
    import pandas as pd
    import pyarrow

    try:
        if file.kind == ".parquet":
            return pd.read_parquet(file.path)
        if file.records is None:
            return _first_sheet(file.path)
        content = io.BytesIO(file.records.content)
        sep = file.separator
        frame = pd.read_csv(content, sep=sep, index_col=False, low_memory=False)
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
        raise unreadable(file.path, error) from None
    if len(frame) != len(file.records.fields):
        wanted = f"{len(file.records.fields)} rows in {file.path.name}"
        raise DataError(wanted, f"{len(frame)}", "check its quotes")
    return frame


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


def dataset_in(file: TableFile, target: str | None, from_frame: Callable[..., Dataset]) -> Dataset:
    """Return the Dataset in a file, or on the standard input."""
    frame = frame_in(file)
    if target is None:
        raise no_target(frame.columns)
    data = from_frame(frame, target)
    unnamed = [name for name in data.feature_names or () if UNNAMED.fullmatch(name)]
    if unnamed:
        sentence = (
            f"{listed(unnamed, 'input column')} without a name in the header, as the index that "
            f"pandas writes: leave out with drop={unnamed!r}, or name in the file"
        )
        warn(sentence, DataWarning)
    return data
