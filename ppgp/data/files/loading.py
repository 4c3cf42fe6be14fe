"""Data sets loaded by name or from a file; scikit-learn bundles or fetches those with a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import DataError, SettingError, UnknownName, an
from ...runtime.libraries import settings_unchanged
from ..dataset import Dataset
from ..targets import in_order
from .table_files import READERS, dataset_in, is_table, no_target

__all__ = ["load"]

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
FETCHED = ("california", "olivetti")


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
    _check_names(target, one_hot, drop)
    _check_place(name_or_path)
    named = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
    named |= {"trials": trials, "weights": weights, "ids": ids}
    roles: dict[str, Any] = {role: name for role, name in named.items() if name is not None}
    if groups:
        roles["groups"] = groups
    read: Callable[..., Dataset]
    columns = list(one_hot) or False
    if isinstance(one_hot, str):
        columns = one_hot
    treated = {"missing": missing, "categories": categories, "dates": dates, "one_hot": columns}
    read = partial(Dataset.from_frame, **treated, **roles)
    if classes is not None:
        read = partial(_ordered, read, classes)
    data = _loaded(name_or_path, target, data_home, partial(_without, read, drop), sep)
    absent = [role for role in roles if role not in data.columns_with_roles]
    if classes is not None and len(data.classes or ()) != len(classes):
        absent.append("classes")
    if str(name_or_path) in (*BUNDLED, "olivetti"):  # bundled, or fetched without a frame
        given = {"drop": drop, "one_hot": one_hot, "sep": sep}
        absent += [name for name, value in given.items() if value]
    for name in absent:
        wanted = f"{name} of a file, or of a frame that is fetched"
        raise SettingError(wanted, f"{str(name_or_path)!r}", f"leave {name} out")
    if coordinates is None:
        return data
    return replace(data, coordinates=coordinates)


def _check_place(place: Any) -> None:
    """Refuse what is neither a name nor a path, such as a table."""
    if isinstance(place, str | PathLike):
        return
    do = "pass a name or a path as text"
    if hasattr(place, "columns"):
        do = "pass it to ppgp.Dataset.from_frame(frame, target)"
    raise DataError("the name of a data set, or a file", an(type(place).__name__), do)


def _check_names(target: Any, one_hot: Sequence[str], drop: Sequence[str]) -> None:
    """Refuse several targets, and columns that are to be turned and dropped."""
    if isinstance(target, list | tuple):
        do = "for several: ppgp.data.Outputs.from_frame(ppgp.data.read_frame(path), targets)"
        raise DataError("the name of one target column", repr(target)[:60], do)
    if isinstance(one_hot, str) or isinstance(drop, str):
        return  # refused where they are used
    for name in one_hot:
        if name in drop:
            got = f"{name!r}, which is dropped"
            raise SettingError("an input column in one_hot", got, "leave it out of one of the two")


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
    """Return the Dataset of a frame without some of its columns.

    Raises:
        UnknownName: If there is no such column.
        SettingError: If the target is among them, or they are one text.
    """
    if isinstance(drop, str):
        raise SettingError("a list of columns to drop", repr(drop), f"write [{drop!r}]")
    for name in drop:
        if name not in frame.columns:
            raise UnknownName("column to drop", str(name), map(str, frame.columns))
        if name == target:
            raise SettingError("to drop other columns than the target", repr(name), "keep it")
    return from_frame(frame.drop(columns=list(drop)), target)


def _loaded(
    name_or_path: str | Path,
    target: str | None,
    data_home: str | Path | None,
    from_frame: Callable[..., Dataset],
    sep: str | None,
) -> Dataset:
    """Return the Dataset of ``load``, before its coordinates are set."""
    name = str(name_or_path)
    path = Path(name)
    if is_table(path, sep) and name not in BUNDLED:
        return dataset_in(path, target, from_frame, sep)
    if name in BUNDLED:
        with settings_unchanged():
            from sklearn import datasets
        return _from_bunch(getattr(datasets, f"load_{name}")(as_frame=True), target)
    if name in FETCHED or name.startswith("openml:"):
        return _fetched(name, target, data_home, from_frame)
    file = f"a {', '.join(READERS[:-1])} or {READERS[-1]} file"
    if path.is_file():
        do = "read a saved posterior by ppgp.load_posterior(path), text of another name by sep="
        raise DataError(f"the name of a data set, or {file}", path.name, do)
    raise UnknownName("data set", name, [*BUNDLED, *FETCHED, "openml:NAME", file])


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
        raise no_target(bunch.frame)
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
