"""Data sets loaded by name or from a file; scikit-learn bundles or fetches those with a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...runtime.libraries import settings_unchanged
from ...tables.first_look import BUNDLED, Asked, Looked, check_drop, look
from ...tables.names import no_target
from ..dataset import Dataset
from ..targets import in_order
from .table_files import dataset_in

__all__ = ["load", "loaded"]


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
    sep: str | None = None,
    one_hot: Sequence[str] = (),
    drop: Sequence[str] = (),
    time: str | None = None,
) -> Dataset:
    """Load a Dataset by name or from a file.

    The sources of the named data sets are Efron, Hastie, Johnstone & Tibshirani (2004) for
    "diabetes", Fisher (1936) for "iris", Street, Wolberg & Mangasarian (1993) for "breast_cancer",
    Aeberhard, Coomans & de Vel (1992) for "wine", Alpaydin & Kaynak (1998) for "digits", Pace &
    Barry (1997) for "california", and Samaria & Harter (1994) for "olivetti".

    Args:
        name_or_path: "diabetes", "iris", "breast_cancer", "wine" or "digits" (bundled with
            scikit-learn); "california" or "olivetti" (fetched by it, once); "openml:NAME"; a
            .csv, .tsv, .parquet or .xlsx file; or "-", the standard input, with text as in .csv.
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
        dates: "refuse" or a unit, what dates become, as ``Dataset.from_frame`` takes it.
        sep: The character that separates columns; None: a comma, or in a .tsv file a tab. With it
            a text file may have any name.
        one_hot: The columns that become columns of 0 and 1, also if they hold numbers.
        drop: The columns of a file, or of a frame that is fetched, to leave out.
        time: The input column that is the time, as ``Dataset.from_frame`` takes it.

    Returns:
        The Dataset, with X [n, d] and y [n] in the units of the file or of the data set.

    Raises:
        UnknownName: If there is no such data set, column or coordinate; the message offers the
            nearest name.
        SettingError: If a data set that is bundled has no columns with roles, no columns to drop,
            or its own order of classes.
        DataError: If the file cannot be read, ``target`` is required, or the target holds a label
            that is not among ``classes``.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> ppgp.load("diabetes")
        <Dataset n=442 d=10 target=target (numbers)>
        >>> ppgp.load("iris").classes
        ('setosa', 'versicolor', 'virginica')
        >>> table = {"height": [8, 9, 7], "girth": [21, 24, 19], "sort": ["oak", "ash", "oak"]}
        >>> pd.DataFrame(table).to_csv("trees.csv", index=False)
        >>> data = ppgp.load("trees.csv", target="height", categories="one-hot")
        >>> data.feature_names
        ('girth', 'sort=ash', 'sort=oak')
        >>> data.X
        tensor([[21.,  0.,  1.],
                [24.,  1.,  0.],
                [19.,  0.,  1.]], dtype=torch.float64)
    """
    named = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
    named |= {"trials": trials, "weights": weights, "ids": ids}
    asked = Asked(
        target=target,
        roles={role: name for role, name in named.items() if name is not None},
        groups=groups or (),
        words={"missing": missing, "categories": categories, "dates": dates},
        one_hot=one_hot,
        drop=drop,
        classes=classes,
        coordinates=coordinates,
        sep=sep,
        time=time,
    )
    return loaded(look(name_or_path, asked), data_home)


def loaded(looked: Looked, data_home: str | Path | None = None) -> Dataset:
    """Return the Dataset of a table that was looked at.

    Args:
        looked: What ``look`` returned.
        data_home: The folder of what scikit-learn fetches; None: its own.

    Raises:
        UnknownName: If there is no such column.
        SettingError: If a column has two roles, or an option has another value.
        DataError: If the table cannot be read, or a cell cannot be used.
    """
    asked, target = looked.asked, looked.asked.target
    roles: dict[str, Any] = dict(asked.roles)
    if asked.time is not None:
        roles["time"] = asked.time
    if asked.groups:
        roles["groups"] = asked.groups
    one_hot = asked.one_hot if isinstance(asked.one_hot, str) else list(asked.one_hot) or False
    read: Callable[..., Dataset]
    read = partial(Dataset.from_frame, **asked.words, one_hot=one_hot, **roles)
    if asked.classes is not None:
        read = partial(_ordered, read, asked.classes)
    read = partial(_without, read, asked.drop)
    if looked.file is not None:
        data = dataset_in(looked.file, target, read)
    elif looked.place in BUNDLED:
        with settings_unchanged():
            from sklearn import datasets
        data = _from_bunch(getattr(datasets, f"load_{looked.place}")(as_frame=True), target)
    else:
        data = _fetched(looked.place, target, data_home, read)
    if asked.coordinates is None:
        return data
    return replace(data, coordinates=asked.coordinates)


def _ordered(
    from_frame: Callable[..., Dataset], classes: Sequence[Any], frame: Any, target: str
) -> Dataset:
    """Return the Dataset of a frame whose target has labels of a given order."""
    if target in frame.columns:
        frame = frame.assign(**{target: in_order(frame[target], classes)})
    return from_frame(frame, target)


def _without(
    from_frame: Callable[..., Dataset], drop: Sequence[str], frame: Any, target: str
) -> Dataset:
    """Return the Dataset of a frame without some of its columns."""
    check_drop(drop, list(frame.columns), target)
    return from_frame(frame.drop(columns=list(drop)), target)


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
        raise no_target(bunch.frame.columns)
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
