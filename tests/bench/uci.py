"""The published splits of the UCI regression sets, standardised by the training rows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from ppgp.data import Dataset
from ppgp.experiments.uci import path_of, splits_of


def split(folder: Path, name: str, number: int = 0) -> tuple[Dataset, Dataset]:
    """Training and test rows of a set, standardised; ``folder`` holds ``uci/``."""
    path = path_of(folder, name)
    assert path is not None
    _, rows, test = next(islice(splits_of(path, "all"), number, None))
    train, scaler = rows.standardised()
    return train, Dataset(scaler.inputs(test.X), (test.y - scaler.y_mean) / scaler.y_sd)
