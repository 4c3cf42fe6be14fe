"""Sets with published splits, and the means over splits.

The splits are those of Hernández-Lobato & Adams (2015).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..errors import SettingError

FILES = (
    "one NAME.npz per set, with X [n, d], y [n], n, splits, and test_mask = np.packbits of a bool "
    "[splits, n], in DIR or DIR/uci"
)


def path_of(folder: Path, name: str) -> Path | None:
    """Return the path of ``name``.npz in the folder or its folder ``uci``; None if missing."""
    candidates = (folder / f"{name}.npz", folder / "uci" / f"{name}.npz")
    return next((path for path in candidates if path.is_file()), None)


def file_of(folder: Path, name: str) -> Path:
    """Return the path of ``name``.npz.

    Raises:
        SettingError: If the folder does not hold it.
    """
    path = path_of(folder, name)
    if path is None:
        raise SettingError(f"{name}.npz in {folder}", "no such file", f"it holds {FILES}")
    return path


def splits_of(path: Path, splits: str | int) -> Iterator[tuple[int, Dataset, Dataset]]:
    """Yield the number, the training rows and the test rows of each split.

    Args:
        path: The file of the set.
        splits: Number of published splits to use, or "all".

    Raises:
        SettingError: If there are fewer splits than asked for.
    """
    raw = np.load(path)
    n, published = int(raw["n"]), int(raw["splits"])
    count = 0
    if splits == "all":
        count = published
    elif str(splits).isdigit():
        count = int(splits)
    if not 1 <= count <= published:
        raise SettingError(
            f"1 to {published} splits of {path.stem}, or all", str(splits), "lower --splits"
        )
    masks = np.unpackbits(raw["test_mask"], axis=1)[:, :n].astype(bool)
    X, y = torch.as_tensor(raw["X"]).double(), torch.as_tensor(raw["y"]).double()
    for number in range(count):
        mask = torch.from_numpy(masks[number])
        yield number, Dataset(X[~mask], y[~mask]), Dataset(X[mask], y[mask])


def folder_of(data_dir: str | None) -> Path:
    """Return the folder of the sets.

    Raises:
        SettingError: If none is given.
    """
    if data_dir is None:
        raise SettingError(
            "a folder with the published splits", "none", f"pass --data-dir DIR: {FILES}"
        )
    return Path(data_dir)


def mean_of(records: Sequence[dict[str, Any]], key: str) -> float:
    """Return the mean over splits."""
    return sum(record[key] for record in records) / len(records)


def standard_error_of(records: Sequence[dict[str, Any]], key: str) -> float | None:
    """Return the standard error of the mean over splits; None for one split."""
    if len(records) == 1:
        return None
    values = [record[key] for record in records]
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))
