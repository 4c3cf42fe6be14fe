"""Region: prediction intervals or label sets, with the exact statement of their guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..data.entries.arrays import advice_on_targets, as_tensor
from ..display import tables as html
from ..errors import DataError, NumericalError, SettingError, counted, listed
from ..numerics.finite import all_finite

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Region"]

SHOWN = 3  # intervals whose ends a repr shows
SHOWN_ROWS = 5  # rows that a notebook shows


@dataclass(frozen=True, eq=False)
class Region:
    """One set per row: an interval [lower, upper], or a set of labels.

    An interval with lower > upper is empty; an empty interval has lower = inf and upper = -inf.
    Ends and widths are in the units of y; the width of a label set is its number of labels.

    Attributes:
        level: The nominal coverage, a probability strictly between 0 and 1.
        guarantee: The exact sentence that holds about the coverage.
        lower: Lower ends [n], None for labels.
        upper: Upper ends [n], None for labels.
        labels: [n, K] bool, the labels in each set; None for intervals.
        n_calibration: The number of calibration rows, if there are any.
        pieces: One tuple of (lower, upper) per row, where the sets are unions of intervals.
        classes: The names of the labels, in the order of the columns of ``labels``.

    Raises:
        SettingError: If there are neither intervals nor labels, or both.
        NumericalError: If an end is NaN. A set that could not be computed is not an empty one.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> lower, upper = torch.tensor([0.0, 1.0]), torch.tensor([2.0, torch.inf])
        >>> region = ppgp.Region(0.9, "none: an example", lower, upper)
        >>> region
        <Region 2 intervals at 0.9: [0, 2]; [1, inf]; none: an example; 50.0% infinite, 0.0% empty>
        >>> region.width
        tensor([2., inf])
        >>> region.covers([2.0, 0.5])
        tensor([ True, False])

        Sets of labels:

        >>> labels = torch.tensor([[True, False], [True, True]])
        >>> sets = ppgp.Region(0.9, "none: an example", labels=labels, classes=("no", "yes"))
        >>> sets.to_frame()
                 set
        0      (no,)
        1  (no, yes)
        >>> sets.covers([1, 1])
        tensor([False,  True])
    """

    level: float
    guarantee: str
    lower: Tensor | None = None
    upper: Tensor | None = None
    labels: Tensor | None = None
    n_calibration: int | None = None
    pieces: tuple[tuple[tuple[float, float], ...], ...] | None = None
    classes: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        interval = self.lower is not None and self.upper is not None
        if interval == (self.labels is not None):
            wanted = "either lower and upper, or labels, in a Region"
            raise SettingError(wanted, "both or neither", "pass one kind")
        if self.lower is not None and self.upper is not None:
            lower, upper = self.lower, self.upper
            bad = []
            if not (all_finite(lower) and all_finite(upper)):
                missing = torch.isnan(lower) | torch.isnan(upper)
                bad = torch.nonzero(missing).flatten().tolist()
            if bad:
                do = (
                    "check the predictions of those rows; an empty interval has lower = inf and "
                    "upper = -inf"
                )
                got = f"NaN in {listed(bad, 'row')}"
                raise NumericalError("ends of intervals that are numbers", got, do)

    def __len__(self) -> int:
        if self.labels is not None:
            return len(self.labels)
        return len(self._ends()[0])

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate over (lower, upper), so that ``lower, upper = region`` works."""
        return iter(self._ends())

    def _ends(self) -> tuple[Tensor, Tensor]:
        if self.lower is None or self.upper is None:
            raise DataError("an interval", "a set of labels", "use region.labels")
        return self.lower, self.upper

    @property
    def empty(self) -> Tensor:
        """Whether the set is empty, [n] bool."""
        if self.labels is not None:
            return ~self.labels.any(-1)
        lower, upper = self._ends()
        return ~(lower <= upper)

    @property
    def infinite(self) -> Tensor:
        """Whether the interval is unbounded, or the label set holds all labels, [n] bool."""
        if self.labels is not None:
            return self.labels.all(-1)
        lower, upper = self._ends()
        return (torch.isinf(lower) | torch.isinf(upper)) & ~self.empty

    @property
    def width(self) -> Tensor:
        """The length of the interval or of all its pieces, or the number of labels, [n].

        It is 0 if the set is empty.
        """
        if self.labels is not None:
            return self.labels.sum(-1)
        lower, upper = self._ends()
        if self.pieces is not None:
            lengths = [sum(b - a for a, b in row) for row in self.pieces]
            return torch.tensor(lengths, dtype=lower.dtype, device=lower.device)
        return torch.where(self.empty, torch.zeros_like(lower), upper - lower)

    def covers(self, y: Any) -> Tensor:
        """Return whether each y lies in its set, [n] bool; both ends belong to an interval.

        Args:
            y: Targets [n].

        Raises:
            DataError: If y has another length.
        """
        y = as_tensor(y, "y")
        if y.shape != (len(self),):
            got = f"shape {list(y.shape)}"
            do = advice_on_targets(y, len(self), "y", "pass one target per row")
            raise DataError(f"y with shape [{len(self)}]", got, do)
        if self.labels is not None:
            y = y.to(self.labels.device)
            known = (y == y.round()) & (y >= 0) & (y < self.labels.shape[1])
            index = torch.where(known, y, torch.zeros_like(y)).long()
            return self.labels.gather(1, index[:, None])[:, 0] & known
        lower, upper = self._ends()
        y = y.to(lower)
        if self.pieces is not None:
            rows = zip(self.pieces, y.tolist(), strict=True)
            inside = [any(a <= v <= b for a, b in row) for row, v in rows]
            return torch.tensor(inside, device=lower.device)
        return (lower <= y) & (y <= upper)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per set.

        Its columns are ``lower`` and ``upper``, and ``pieces`` where the sets are unions of
        intervals; of labels the column ``set``, tuples of the labels in each set. ``attrs`` holds
        the level and the guarantee.
        """
        return self._frame(None)

    def _frame(self, most: int | None) -> pd.DataFrame:
        """Return the data frame of the first ``most`` sets; None: of all."""
        import pandas as pd

        if self.labels is None:
            lower, upper = self
            table = pd.DataFrame(
                {"lower": numbers_of(lower[:most]), "upper": numbers_of(upper[:most])}
            )
            if self.pieces is not None:
                table["pieces"] = list(self.pieces[:most])
        else:
            table = pd.DataFrame({"set": label_sets(self.labels[:most], self.classes)})
        table.attrs = {"level": self.level, "guarantee": self.guarantee}
        return table

    def _repr_html_(self) -> str:
        """Return what notebooks show: the guarantee and the first rows."""
        kind, whole = "intervals", "infinite"
        if self.labels is not None:
            kind, whole = "label sets", "hold all labels"
        facts = {
            "level": self.level,
            "guarantee": self.guarantee,
            "calibration rows": self.n_calibration,
            whole: f"{float(self.infinite.double().mean()):.1%}",
            "empty": f"{float(self.empty.double().mean()):.1%}",
        }
        if not len(self):
            facts = {name: value for name, value in facts.items() if name not in (whole, "empty")}
        table = self._frame(SHOWN_ROWS)
        if self.labels is not None:
            table["set"] = [", ".join(map(str, labels)) for labels in table["set"]]
        parts = [html.facts(facts), html.frame(table, SHOWN_ROWS)]
        left = html.more(len(self) - len(table), "row")
        return html.page("Region", f"{len(self):,} {kind}", *parts, left)

    def __repr__(self) -> str:
        kind, whole = "interval", "infinite"
        if self.labels is not None:
            kind, whole = "label set", "hold all labels"
        infinite = float(self.infinite.double().mean())
        empty = float(self.empty.double().mean())
        text = f"<Region {counted(len(self), kind)} at {self.level}: "
        if self.lower is not None and self.upper is not None and 0 < len(self) <= SHOWN:
            ends = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
            text += "".join(f"[{low:.4g}, {high:.4g}]; " for low, high in ends)
        text += self.guarantee
        if self.n_calibration is not None:
            text += f", {self.n_calibration} calibration rows"
        return f"{text}; {infinite:.1%} {whole}, {empty:.1%} empty>"


def numbers_of(values: Tensor) -> np.ndarray:
    """Return a tensor as an array of NumPy."""
    return values.detach().cpu().numpy()


def label_sets(labels: Tensor, classes: tuple[Any, ...] | None) -> list[tuple[Any, ...]]:
    """Return the labels in each set [n, K]; codes where they have no names."""
    names = classes or range(labels.shape[1])
    rows = labels.tolist()
    return [tuple(name for name, kept in zip(names, row, strict=True) if kept) for row in rows]
