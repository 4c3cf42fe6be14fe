"""Tables that go with a saved posterior: inputs, targets and predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, NotApplicable, UnknownName, listed

if TYPE_CHECKING:
    import pandas as pd

    from ..posterior.posterior import Posterior
    from ..posterior.prediction import Prediction
    from ..posterior.region import Region

__all__ = ["inputs_for", "known_targets", "predicted_table", "targets_for"]


def predicted_table(
    posterior: Path, data: Path, calibration: Path | None, target: str | None, level: float
) -> tuple[pd.DataFrame, Region | None]:
    """Return the table that ``ppgp predict`` writes, and its intervals or label sets.

    Args:
        posterior: The file of the posterior.
        data: The file of the new rows.
        calibration: The file of the calibration rows; None: there are none.
        target: The target column; None: that of the fit.
        level: The level of the intervals.

    Raises:
        UnknownName: If the calibration rows lack the target column.
    """
    from ..conformal import LAC, Normalized, calibrate
    from ..data.table_files import read_frame
    from ..posterior.loading import load_posterior

    fitted = load_posterior(posterior)
    name = target or fitted.data.target_name
    prediction = fitted.predict(inputs_for(read_frame(data), fitted, name))
    if prediction.kind == "classes":
        score, region = LAC(), None
    else:
        score, region = Normalized(), prediction.interval(level)
    if calibration is not None:
        known = read_frame(calibration)
        if name not in known.columns:
            raise UnknownName("target column", str(name), map(str, known.columns))
        of_known = fitted.predict(inputs_for(known, fitted, name))
        calibrator = calibrate(score, of_known, known_targets(known, str(name), fitted))
        region = calibrator(prediction, level=level)
    labels = fitted.data.classes
    if labels is None and prediction.kind == "classes":
        labels = tuple(range(prediction.probabilities.shape[1]))
    return prediction_table(prediction, region, labels or ()), region


def inputs_for(frame: Any, posterior: Posterior, *excluded: str | None) -> Any:
    """Return the columns of a data frame that a posterior predicts from.

    A posterior whose training columns have names takes the columns of these names, whatever else
    the frame holds. Any other posterior takes all columns but the ``excluded`` ones.
    """
    from ..data.columns import numeric
    from ..data.dates import source_of

    data = posterior.data
    names = data.feature_names
    if not names:
        kept = [column for column in frame.columns if column not in excluded]
        return numeric(frame[kept]).to_numpy(dtype=float)
    categorical = {name.partition("=")[0] for name in names}
    others = {*data.names_of_roles.values(), *(data.groups or ())}
    made = categorical | {source_of(name) for name in names}
    kept = [c for c in frame.columns if str(c) in made | others or str(c) in names]
    return frame[kept]


def known_targets(frame: Any, target: str, posterior: Posterior) -> Any:
    """Return the target column of a data frame of calibration rows as ``targets_for`` does.

    Raises:
        NotApplicable: If the flags of the training rows are a column here too, and set one.
        DataError: If a flag or a target is wrong.
    """
    from ..data.censoring import check_flags

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


def targets_for(column: Any, posterior: Posterior) -> Any:
    """Return a target column as numbers [n]; class labels become the codes of the posterior.

    Raises:
        DataError: If a target is missing or infinite, or is a label that the training rows lack.
    """
    from ..data.arrays import as_tensor
    from ..data.role_checks import label_text

    classes = posterior.data.classes or ()
    codes = {label_text(label): code for code, label in enumerate(classes)}
    unknown = sorted({label_text(label) for label in column} - set(codes))
    if not classes or (unknown and set(column) <= set(range(len(classes)))):
        values = as_tensor(column.to_numpy(), f"column {column.name}").numpy()
        bad = [row for row, value in enumerate(values.tolist()) if not math.isfinite(value)]
        if bad:
            got = f"NaN or infinity in {listed(bad, 'row')} of column {column.name}"
            raise DataError("finite targets", got, "drop those rows")
        return values
    if unknown:
        raise DataError(
            f"labels among {', '.join(codes)}",
            ", ".join(unknown[:5]),
            "the training rows do not have them: drop those rows",
        )
    return column.map(lambda label: codes[label_text(label)]).to_numpy(dtype=float)


def prediction_table(
    prediction: Prediction, region: Region | None, labels: tuple[Any, ...]
) -> pd.DataFrame:
    """Return a data frame with one row per predicted row.

    Args:
        prediction: The predictive distribution of the rows.
        region: The intervals or label sets of the rows; None only for classes.
        labels: Names of the classes, for a classification.

    Returns:
        Columns ``mean``, ``sd``, ``lower`` and ``upper``; for classes, a column ``p(label)`` per
        class and the column ``set`` if there is a region.
    """
    import pandas as pd

    if prediction.kind != "classes":
        assert region is not None
        lower, upper = region
        return pd.DataFrame(
            {"mean": prediction.mean, "sd": prediction.std, "lower": lower, "upper": upper}
        )
    columns = [f"p({label})" for label in labels]
    table = pd.DataFrame(prediction.probabilities.numpy(), columns=columns)
    if region is not None and region.labels is not None:
        table["set"] = [_label_set(row, labels) for row in region.labels.tolist()]
    return table


def _label_set(members: list[bool], labels: tuple[Any, ...]) -> str:
    """Return the labels of one set, separated by spaces."""
    return " ".join(str(label) for label, kept in zip(labels, members, strict=True) if kept)
