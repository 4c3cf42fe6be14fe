"""Tables that go with a saved posterior: inputs, targets and predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..display.user_warnings import warn
from ..errors import (
    DataError,
    DataWarning,
    NotApplicable,
    SettingError,
    UnknownName,
    counted,
    listed,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..conformal import Calibrator
    from ..posterior.averaging import Average
    from ..posterior.posterior import Posterior
    from ..posterior.predicting_to_files import Predicted
    from ..posterior.region import Region
    from ..tables.table_files import TableFile

__all__ = [
    "inputs_for",
    "known_rows",
    "known_targets",
    "predicted_file",
    "predicted_table",
    "targets_for",
]


def predicted_table(
    posterior: Path,
    data: TableFile,
    calibration: TableFile | None,
    target: str | None,
    level: float,
    drop_missing: bool = False,
    keep: Sequence[str] = (),
) -> tuple[pd.DataFrame, Region | None]:
    """Return the table that ``ppgp predict`` writes, and its intervals or label sets.

    A row of new inputs with a missing value keeps its place, and its prediction is missing.

    Args:
        posterior: The file of the posterior.
        data: The file of the new rows.
        calibration: The file of the calibration rows; None: there are none.
        target: The target column; None: that of the fit.
        level: The level of the intervals.
        drop_missing: Whether to drop calibration rows with a missing value.
        keep: The columns of the new rows that come first in the table, after the names of the rows
            if the fit had them.

    Raises:
        UnknownName: If the calibration rows lack the target column, or the new rows one to keep.
        SettingError: If a kept column is named as one of the predictions.
        DataError: If a calibration row has a missing value and is not dropped, or every new row
            has one.
    """
    from ..data.files.table_files import frame_in
    from ..posterior.averaging import load_fitted
    from ..posterior.prediction import frame_of
    from ..tables.wrong_rows import numbered

    fitted: Any = load_fitted(posterior)
    name = target or fitted.data.target_name
    rows = frame_in(data)
    kept = _kept_columns(rows, fitted, keep)
    blank = _rows_without_inputs(rows, fitted, name)
    with numbered(np.flatnonzero(~blank).tolist()):
        prediction = fitted.predict(inputs_for(rows[~blank], fitted, name))
    region = None if prediction.kind == "classes" else prediction.interval(level)
    if calibration is not None:
        calibrator = _calibrator(fitted, calibration, str(name), drop_missing)
        region = calibrator(prediction, level=level)
    table = frame_of(prediction, level, region)
    if "set" in table:  # a cell of text
        table["set"] = [" ".join(map(str, labels)) for labels in table["set"]]
    table = table.set_index(np.flatnonzero(~blank)).reindex(range(len(rows)))
    return _with_columns(kept, table), region


def predicted_file(
    posterior: Path,
    data: Path,
    out: Path,
    calibration: TableFile | None,
    target: str | None,
    level: float,
    drop_missing: bool,
    keep: Sequence[str],
    progress: bool,
) -> Predicted:
    """Write the table of ``predicted_table`` chunk by chunk, and return what was written.

    Its sets are lists of labels. The rows are those of a Parquet file or of a folder of them.

    Args:
        posterior: The file of the posterior.
        data: The file or the folder of the new rows.
        out: The Parquet file to write.
        calibration: As of ``predicted_table``, as are all others.
        target: The target column; None: that of the fit.
        level: The level of the intervals or sets.
        drop_missing: Whether to drop calibration rows with a missing value.
        keep: The columns that are kept.
        progress: Whether to show a progress bar.
    """
    from ..data.files.parquet_files import footer, parquet_files, types_in
    from ..data.stream.rows_in_chunks import rows_of
    from ..posterior.loading import load_posterior
    from ..posterior.predicting_to_files import ROWS_AT_ONCE, predict_to_file
    from ..posterior.prediction import digest_of
    from ..runtime.levels import exact_level
    from .output import results

    exact_level(level)
    fitted = load_posterior(posterior)
    name = target or fitted.data.target_name
    first = parquet_files(data)[0]
    ids = fitted.data.names_of_roles.get("ids")
    names = [ids] if ids in types_in(first, footer(first)) else []
    kept = list(dict.fromkeys(map(str, [*names, *keep])))
    rows = rows_of(data, fitted.data, excluded=(name,), kept=kept, blanks=True)
    calibrator = None
    if calibration is not None:
        calibrator = _calibrator(fitted, calibration, str(name), drop_missing)
    with results():
        written = predict_to_file(
            fitted.predict,
            digest_of(fitted),
            rows,
            out,
            level,
            calibrator,
            ROWS_AT_ONCE,
            progress,
        )
    if written.blank:
        some = f"{written.blank} of {counted(written.n, 'row')}"
        sentence = f"{some} have an input without a value: their predictions are empty"
        warn(sentence, DataWarning)
    return written


def _calibrator(
    fitted: Posterior | Average, calibration: TableFile, target: str, drop_missing: bool
) -> Calibrator:
    """Return the calibrator of the rows of a file, by the score that suits the kind of y."""
    from ..conformal import LAC, Normalized, calibrate
    from ..tables.wrong_rows import numbered

    known = known_rows(calibration, fitted, (target, None), drop_missing)
    with numbered(known.index.tolist()):
        prediction = fitted.predict(inputs_for(known, fitted, target))
        targets = known_targets(known, target, fitted)
    score = LAC() if prediction.kind == "classes" else Normalized()
    return calibrate(score, prediction, targets)


def _kept_columns(rows: Any, posterior: Posterior | Average, keep: Sequence[str]) -> Any:
    """Return the columns that go with the predictions: the names of the rows, and those to keep."""
    labels = {str(label): label for label in rows.columns}
    for name in keep:
        if name not in labels:
            raise UnknownName("column to keep", name, labels)
    ids = posterior.data.names_of_roles.get("ids")
    names = [name for name in dict.fromkeys([ids, *keep]) if name in labels]
    return rows[[labels[name] for name in names]]


def _with_columns(kept: Any, predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the predictions after the columns that are kept."""
    import pandas as pd

    twice = [str(name) for name in kept.columns if name in predictions.columns]
    if twice:
        raise SettingError(
            "names of columns to keep that differ from those of the predictions",
            listed(twice, "column"),
            "rename them in the file",
        )
    return pd.concat([kept.reset_index(drop=True), predictions], axis=1)


def known_rows(
    file: TableFile,
    posterior: Posterior | Average,
    columns: tuple[str, str | None],
    drop_missing: bool,
) -> Any:
    """Return the rows of a file that are not training rows and whose target is known.

    The index of the result is the number of each row in the file.

    Args:
        file: The file.
        posterior: The posterior that predicts them.
        columns: The target column, and the column of groups; None: there are no groups.
        drop_missing: Whether to drop rows with a missing value.

    Raises:
        UnknownName: If a column is not in the file.
        SettingError: If the target is a column that the posterior predicts from.
        DataError: If the target of the fit is not in the file, or a row has a missing value and is
            not dropped.
    """
    from ..data.files.table_files import frame_in
    from ..data.frame_parts import without_blanks

    frame = frame_in(file)
    named = [name for name in columns if name]
    _check_target(columns[0], frame, posterior, file.path.name)
    for name in named:
        if name not in frame.columns:
            kind = "target column" if name == columns[0] else "column"
            raise UnknownName(kind, name, map(str, frame.columns))
    flags = posterior.data.censored_name
    if flags in frame.columns:
        named.append(str(flags))
    needed = [*named, *_columns_without_blanks(frame, posterior, *columns)]
    return without_blanks(frame, dict.fromkeys(needed), drop_missing)


def _check_target(target: str, frame: Any, posterior: Posterior | Average, file: str) -> None:
    """Check that a column can hold the targets of calibration rows.

    Another name than that of the fit may be that of the same quantity in another table.
    """
    from ..data.stream.rows_in_chunks import names_read

    own = posterior.data.target_name
    if target != own and target in names_read(posterior.data):
        got, do = f"{target!r}, which the fit predicts from", "leave --target out"
        raise SettingError(f"the target of the fit, {own!r}, as --target", got, do)
    if target == own and target not in frame.columns:
        wanted = f"the column {target}, the target of the fit, in {file}"
        do = "add it, or name the column that holds it by --target"
        raise DataError(wanted, listed([*frame.columns], "column"), do)


def _rows_without_inputs(
    frame: Any, posterior: Posterior | Average, target: str | None
) -> np.ndarray:
    """Return which rows [n] of a frame lack an input; a DataWarning counts them."""
    from ..data.frame_parts import blank_rows

    columns = _columns_without_blanks(frame, posterior, target)
    return blank_rows(frame, columns, "their predictions are empty")


def _columns_without_blanks(
    frame: Any, posterior: Posterior | Average, *excluded: str | None
) -> list[Any]:
    """Return the columns of a frame that a prediction reads and whose cells need values."""
    from ..data.stream.rows_in_chunks import columns_without_blanks

    return columns_without_blanks(frame.columns, posterior.data, excluded)


def inputs_for(frame: Any, posterior: Posterior | Average, *excluded: str | None) -> Any:
    """Return the columns of a data frame that a posterior predicts from.

    A posterior whose training columns have names takes the columns of these names, whatever else
    the frame holds. Any other posterior takes all columns but the ``excluded`` ones.
    """
    from ..data.columns import numeric, refuse_missing
    from ..data.stream.rows_in_chunks import columns_read

    read = frame[columns_read(frame.columns, posterior.data, excluded)]
    names = posterior.data.feature_names
    if not names:
        return numeric(read).to_numpy(dtype=float)
    refuse_missing(names, [str(column) for column in frame.columns])
    return read


def known_targets(frame: Any, target: str, posterior: Posterior | Average) -> Any:
    """Return the target column of a data frame of calibration rows as ``targets_for`` does.

    Raises:
        NotApplicable: If the flags of the training rows are a column here too, and set one.
        DataError: If a flag or a target is wrong.
    """
    from ..data.roles import check_flags

    flags = posterior.data.censored_name
    if flags in frame.columns:
        censored = check_flags(frame[flags], len(frame), posterior.data.X)
        if bool(censored.any()):
            raise NotApplicable(
                "targets that are known, to calibrate on",
                f"{int(censored.sum())} right-censored ones in column {flags}",
                "predict without calibration rows: without these rows the others are a selection",
            )
    return targets_for(frame[target], posterior)


def targets_for(column: Any, posterior: Posterior | Average) -> Any:
    """Return a target column as numbers [n]; class labels become the codes of the posterior.

    Raises:
        DataError: If a target is missing or infinite, or is a label that the training rows lack.
    """
    from ..data.entries.arrays import as_tensor
    from ..tables.entries import label_text
    from ..tables.wrong_rows import WrongRows

    classes = posterior.data.classes or ()
    codes = {label_text(label): code for code, label in enumerate(classes)}
    unknown = sorted({label_text(label) for label in column} - set(codes))
    if not classes or (unknown and set(column) <= set(range(len(classes)))):
        values = as_tensor(column.to_numpy(), f"column {column.name}").numpy()
        bad = [row for row, value in enumerate(values.tolist()) if not math.isfinite(value)]
        if bad:
            raise WrongRows(
                "finite targets",
                lambda rows: f"NaN or infinity in {listed(rows, 'row')} of column {column.name}",
                bad,
                "drop those rows",
            )
        return values
    if unknown:
        raise DataError(
            f"labels among {', '.join(codes)}",
            ", ".join(unknown[:5]),
            "the training rows do not have them: drop those rows",
        )
    return column.map(lambda label: codes[label_text(label)]).to_numpy(dtype=float)
