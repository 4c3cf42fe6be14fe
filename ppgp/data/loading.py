"""Data sets loaded by name or from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import DataError, PpgpError, SettingError, UnknownName
from ..numerics.libraries import settings_unchanged
from .columns import refuse_twice
from .dataset import Dataset, refuse_no_rows
from .delimited import read_delimited

__all__ = ["load", "read_frame"]

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
FETCHED = ("california", "olivetti")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
READERS = (*SEPARATORS, ".parquet")


def load(
    name_or_path: str | Path,
    target: str | None = None,
    data_home: str | Path | None = None,
    coordinates: Sequence[str | int] | None = None,
    missing: str = "refuse",
    categories: str = "refuse",
    right_censored: str | None = None,
) -> Dataset:
    """Load a Dataset by name or from a file.

    Args:
        name_or_path: "diabetes", "iris", "breast_cancer", "wine" or "digits" (bundled with
            scikit-learn); "california" or "olivetti" (fetched by it, once); "openml:NAME"; or a
            .csv, .tsv or .parquet file.
        target: The column that is y; required for a file, optional otherwise.
        data_home: Where scikit-learn keeps what it fetches.
        coordinates: The columns that are places in one space, as ``Dataset`` takes them.
        missing: "refuse" or "keep" missing values, as ``Dataset.from_frame`` takes it.
        categories: "refuse", "one-hot" or "codes", what text and categories become, as
            ``Dataset.from_frame`` takes it.
        right_censored: The column with the flags of censored targets, as ``Dataset.from_frame``
            takes it; for a file or a frame that is fetched.

    Raises:
        UnknownName: If there is no such data set, target column or coordinate; the message offers
            the nearest name.
        DataError: If the file cannot be read, or ``target`` is required.
    """
    read = partial(
        Dataset.from_frame,
        missing=missing,
        categories=categories,
        right_censored=right_censored,
    )
    data = _loaded(name_or_path, target, data_home, read)
    if right_censored is not None and data.right_censored is None:
        raise SettingError(
            "right_censored of a file, or of a frame that is fetched",
            f"{str(name_or_path)!r}",
            "leave right_censored out",
        )
    if coordinates is None:
        return data
    return replace(data, coordinates=coordinates)


def _loaded(
    name_or_path: str | Path,
    target: str | None,
    data_home: str | Path | None,
    from_frame: Callable[..., Dataset],
) -> Dataset:
    """Return the Dataset of ``load``, before its coordinates are set."""
    name = str(name_or_path)
    path = Path(name)
    if path.suffix.lower() in READERS:
        return _from_file(path, target, from_frame)
    if name in BUNDLED:
        with settings_unchanged():
            from sklearn import datasets
        return _from_bunch(getattr(datasets, f"load_{name}")(as_frame=True), target)
    if name in FETCHED or name.startswith("openml:"):
        return _fetched(name, target, data_home, from_frame)
    raise UnknownName(
        "data set", name, [*BUNDLED, *FETCHED, "openml:NAME", "a .csv, .tsv or .parquet file"]
    )


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


def _from_file(path: Path, target: str | None, from_frame: Callable[..., Dataset]) -> Dataset:
    """Return the Dataset in a file."""
    frame = read_frame(path)
    if target is None:
        raise _no_target(frame)
    return from_frame(frame, target)


def _no_target(frame: Any) -> DataError:
    """Return the error for a target column that is required and not given."""
    columns = ", ".join(map(str, frame.columns))
    return DataError("the name of the target column", "none", f"pass target=, one of: {columns}")


def _from_bunch(bunch: Any, target: str | None) -> Dataset:
    """Return a Dataset from scikit-learn's Bunch.

    A target of whole numbers with ``target_names`` holds classes.
    """
    frame = bunch.frame
    own = str(bunch.target.name)
    if target is not None and target != own:
        return Dataset.from_frame(frame, target)
    names = getattr(bunch, "target_names", None)
    labels = None
    if names is not None and bunch.target.dtype.kind in "iu":
        labels = [str(label) for label in names]
    if labels is not None and len(labels) != bunch.target.nunique():
        labels = None
    inputs = frame.drop(columns=[own])
    return Dataset(
        inputs.to_numpy(dtype=float),
        bunch.target.to_numpy(),
        list(map(str, inputs.columns)),
        own,
        labels,
    )


def _fetched(
    name: str,
    target: str | None,
    data_home: str | Path | None,
    from_frame: Callable[..., Dataset],
) -> Dataset:
    """Return a Dataset that scikit-learn fetches."""
    with settings_unchanged():
        from sklearn import datasets

    home = None if data_home is None else str(data_home)
    if name == "olivetti":
        faces = _online(name, lambda: datasets.fetch_olivetti_faces(data_home=home))
        return Dataset(
            faces.data.astype(float),
            faces.target.astype(float),
            target_name="subject",
            classes=list(range(40)),
        )
    if name == "california":
        fetch = partial(datasets.fetch_california_housing, data_home=home, as_frame=True)
    else:
        openml = name.removeprefix("openml:")
        fetch = partial(datasets.fetch_openml, openml, as_frame=True, data_home=home, parser="auto")
    bunch = _online(name, fetch)
    if not target:
        target = None if bunch.target is None else str(bunch.target.name)
    if target is None:
        raise _no_target(bunch.frame)
    return from_frame(bunch.frame, target)


def _online(name: str, fetch: Callable[[], Any]) -> Any:
    """Return what scikit-learn fetches, or raise DataError if it fails."""
    try:
        return fetch()
    except (OSError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{name!r} from scikit-learn's fetcher",
            reason,
            "check the network, or pass data_home= with a local copy",
        ) from None
