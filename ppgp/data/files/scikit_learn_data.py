"""Data sets that scikit-learn bundles or fetches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...runtime.libraries import settings_unchanged
from ..dataset import Dataset
from .table_files import no_target

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
FETCHED = ("california", "olivetti")


def from_bunch(bunch: Any, target: str | None) -> Dataset:
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


def fetched(
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
