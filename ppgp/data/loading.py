"""Data sets loaded by name or from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import SettingError, UnknownName
from ..numerics.libraries import settings_unchanged
from .dataset import Dataset
from .scikit_learn_data import BUNDLED, FETCHED, fetched, from_bunch
from .table_files import READERS, dataset_in

__all__ = ["load"]


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
        return dataset_in(path, target, from_frame)
    if name in BUNDLED:
        with settings_unchanged():
            from sklearn import datasets
        return from_bunch(getattr(datasets, f"load_{name}")(as_frame=True), target)
    if name in FETCHED or name.startswith("openml:"):
        return fetched(name, target, data_home, from_frame)
    raise UnknownName(
        "data set", name, [*BUNDLED, *FETCHED, "openml:NAME", "a .csv, .tsv or .parquet file"]
    )
