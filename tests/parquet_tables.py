"""Parquet files that tests write, and the numbers in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet


def write(path: Path, rows_per_group: int = 100, **columns: Any) -> Path:
    """Write columns to a Parquet file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path, row_group_size=rows_per_group)
    return path


def regression(n: int, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return X [n, d] and y [n] of a curve with noise; the first column is the number of the row.

    That column is divided by n.
    """
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n, d))
    X[:, 0] = np.arange(n) / n
    y = 20.0 + 3.0 * (np.sin(6 * X[:, 0]) + 0.3 * X[:, 1]) + generator.standard_normal(n)
    return X, y


def columns_of(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return x0, x1, ... and y."""
    return {**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y}
