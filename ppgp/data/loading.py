"""Data sets loaded by name or from a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SettingError, UnknownName
from ..numerics.libraries import settings_unchanged
from .dataset import Dataset
from .scikit_learn_data import BUNDLED, FETCHED, fetched, from_bunch
from .table_files import READERS, dataset_in
from .targets import in_order

__all__ = ["load"]


def load(
    name_or_path: str | Path,
    target: str | None = None,
    data_home: str | Path | None = None,
    coordinates: Sequence[str | int] | None = None,
    missing: str = "refuse",
    categories: str = "refuse",
    right_censored: str | None = None,
    noise_sd: str | None = None,
    offset: str | None = None,
    trials: str | None = None,
    weights: str | None = None,
    groups: Sequence[str] | None = None,
    ids: str | None = None,
    classes: Sequence[Any] | None = None,
    dates: str = "refuse",
) -> Dataset:
    """Load a Dataset by name or from a file.

    Args:
        name_or_path: "diabetes", "iris", "breast_cancer", "wine" or "digits" (bundled with
            scikit-learn); "california" or "olivetti" (fetched by it, once); "openml:NAME"; or a
            .csv, .tsv or .parquet file.
        target: The column that is y; required for a file, optional otherwise.
        data_home: Where scikit-learn keeps what it fetches.
        coordinates: The columns that are places in one space, as ``Dataset`` takes them.
        missing: "refuse", "keep" or "drop" missing values, as ``Dataset.from_frame`` takes it.
        categories: "refuse", "one-hot" or "codes", what text and categories become, as
            ``Dataset.from_frame`` takes it.
        right_censored: The column with the flags of censored targets, as ``Dataset.from_frame``
            takes it; for a file or a frame that is fetched, as all columns with roles.
        noise_sd: The column of the known noise.
        offset: The column of the offset.
        trials: The column of the numbers of trials.
        weights: The column of the frequency weights.
        groups: The columns of groupings.
        ids: The column with the names of the rows.
        classes: The labels of the target in their order; None: sorted.
        dates: "refuse" or "years", what dates become, as ``Dataset.from_frame`` takes it.

    Raises:
        UnknownName: If there is no such data set, column or coordinate; the message offers the
            nearest name.
        SettingError: If a data set that is bundled has no columns with roles, or its own order of
            classes.
        DataError: If the file cannot be read, ``target`` is required, or the target holds a label
            that is not among ``classes``.
    """
    named = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
    named |= {"trials": trials, "weights": weights, "ids": ids}
    roles: dict[str, Any] = {role: name for role, name in named.items() if name is not None}
    if groups:
        roles["groups"] = groups
    read: Callable[..., Dataset]
    read = partial(Dataset.from_frame, missing=missing, categories=categories, dates=dates, **roles)
    if classes is not None:
        read = partial(_ordered, read, classes)
    data = _loaded(name_or_path, target, data_home, read)
    for role in roles:
        if role not in data.columns_with_roles:
            raise SettingError(
                f"{role} of a file, or of a frame that is fetched",
                f"{str(name_or_path)!r}",
                f"leave {role} out",
            )
    if classes is not None and len(data.classes or ()) != len(classes):
        raise SettingError(
            "classes of a file, or of a frame that is fetched",
            f"{str(name_or_path)!r}",
            "leave classes out",
        )
    if coordinates is None:
        return data
    return replace(data, coordinates=coordinates)


def _ordered(
    from_frame: Callable[..., Dataset], classes: Sequence[Any], frame: Any, target: str
) -> Dataset:
    """Return the Dataset of a frame whose target has labels of a given order."""
    if target in frame.columns:
        frame = frame.assign(**{target: in_order(frame[target], classes)})
    return from_frame(frame, target)


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
