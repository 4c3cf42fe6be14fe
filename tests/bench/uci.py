"""The published splits of the UCI regression sets, standardised by the training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ppgp.data import Dataset


def split(folder: Path, name: str, number: int = 0) -> tuple[Dataset, Dataset]:
    """Training and test rows of a set, standardised; ``folder`` holds ``uci/``."""
    raw = np.load(folder / "uci" / f"{name}.npz")
    n = int(raw["n"])
    test = np.unpackbits(raw["test_mask"], axis=1)[:, :n].astype(bool)[number]
    X, y = torch.as_tensor(raw["X"]).double(), torch.as_tensor(raw["y"]).double()
    train, scaler = Dataset(X[~test], y[~test]).standardised()
    return train, Dataset(scaler.inputs(X[test]), (y[test] - scaler.y_mean) / scaler.y_sd)
