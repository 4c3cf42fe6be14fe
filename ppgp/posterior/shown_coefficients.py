"""Draws of coefficients, which print and show as their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from ..display import tables as html

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Coefficients"]

SHOWN = 60  # coefficients that a notebook shows


class Coefficients(dict[str, Tensor]):
    """Draws of coefficients in the units of the data, ``{name: [chain, draw, ...]}``.

    Args:
        draws: The draws.
        table: Makes the data frame of the draws.
    """

    def __init__(self, draws: Mapping[str, Tensor], table: Callable[[], pd.DataFrame]) -> None:
        super().__init__(draws)
        self._table = table

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per coefficient: ``Posterior.coefficients("draws")``."""
        return self._table()

    def _shown(self) -> pd.DataFrame:
        """Return the table; of a point, which has no spread, the values alone."""
        table = self.to_frame()
        chains, draws = next(iter(self.values())).shape[:2]
        if chains * draws > 1:
            return table
        return table["mean"].to_frame("value")

    def __repr__(self) -> str:
        return self._shown().to_string(float_format=lambda number: f"{number:.4g}")

    def _repr_html_(self) -> str:
        table = self._shown()
        about = f"{len(table):,}, {table.index.name}"
        return html.page("Coefficients", about, html.frame(table.rename_axis(None), SHOWN))
