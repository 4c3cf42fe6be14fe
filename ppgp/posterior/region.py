"""Region: intervals or label sets, with the sentence that is guaranteed about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, NumericalError, SettingError, listed

__all__ = ["Region"]


def exact_level(level: float) -> Fraction:
    """The level as the rational number the user wrote: 0.9 is 9/10, not the nearest double.

    Raises:
        SettingError: if it does not lie strictly between 0 and 1.
    """
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        do = (
            f"write {level / 100:g} for {level:g} %"
            if isinstance(level, int | float) and 1 < level < 100
            else "for example 0.9"
        )
        raise SettingError("a level in (0, 1)", repr(level), do)
    return Fraction(str(level))


@dataclass(frozen=True, eq=False)
class Region:
    """A set for each of n rows: an interval [lower, upper], or a set of labels [n, K].

    An interval with lower > upper is empty; methods give it lower = inf and upper = -inf. NaN is no end. ``pieces`` holds a
    union of intervals where the set is one: for each row a list of (lower, upper). ``guarantee`` is the exact sentence
    that holds.

    Raises:
        SettingError: if there are neither intervals nor labels, or both.
        NumericalError: if an end is NaN: a set that could not be computed is not an empty one.
    """

    level: float
    guarantee: str
    lower: Tensor | None = None
    upper: Tensor | None = None
    labels: Tensor | None = None
    n_calibration: int | None = None
    pieces: tuple[tuple[tuple[float, float], ...], ...] | None = None

    def __post_init__(self) -> None:
        interval = self.lower is not None and self.upper is not None
        if interval == (self.labels is not None):
            raise SettingError(
                "either lower and upper, or labels, in a Region", "both or neither", "pass one kind"
            )
        if interval:
            lower, upper = cast(Tensor, self.lower), cast(Tensor, self.upper)
            missing = torch.isnan(lower) | torch.isnan(upper)
            bad = torch.nonzero(missing).flatten().tolist()
            if bad:
                raise NumericalError(
                    "ends of intervals that are numbers",
                    f"NaN in {listed(bad, 'row')}",
                    "check the predictions of those rows; an empty interval has lower = inf and upper = -inf",
                )

    def __len__(self) -> int:
        return len(self.labels if self.labels is not None else self.lower)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Tensor]:
        """``lower, upper = region``."""
        return iter(self._ends())

    def _ends(self) -> tuple[Tensor, Tensor]:
        if self.lower is None or self.upper is None:
            raise DataError("an interval", "a set of labels", "use region.labels")
        return self.lower, self.upper

    @property
    def empty(self) -> Tensor:
        """[n] bool: rows whose set holds nothing."""
        if self.labels is not None:
            return ~self.labels.any(-1)
        lower, upper = self._ends()
        return ~(lower <= upper)

    @property
    def infinite(self) -> Tensor:
        """[n] bool: rows whose interval has no end on some side (all labels, for label sets)."""
        if self.labels is not None:
            return self.labels.all(-1)
        lower, upper = self._ends()
        return (torch.isinf(lower) | torch.isinf(upper)) & ~self.empty

    @property
    def width(self) -> Tensor:
        """[n]: length of the interval (of all its pieces), or number of labels; 0 where empty."""
        if self.labels is not None:
            return self.labels.sum(-1)
        lower, upper = self._ends()
        if self.pieces is not None:
            return torch.tensor(
                [sum(b - a for a, b in row) for row in self.pieces],
                dtype=lower.dtype,
                device=lower.device,
            )
        return torch.where(self.empty, torch.zeros_like(lower), upper - lower)

    def covers(self, y: Any) -> Tensor:
        """[n] bool: whether each y lies in its set; both ends belong to it.

        Raises:
            DataError: if y has another length.
        """
        y = as_tensor(y, "y")
        if y.shape != (len(self),):
            raise DataError(
                f"y with shape [{len(self)}]", f"shape {list(y.shape)}", "pass one target a row"
            )
        if self.labels is not None:
            y = y.to(self.labels.device)
            known = (y == y.round()) & (y >= 0) & (y < self.labels.shape[1])
            index = torch.where(known, y, torch.zeros_like(y)).long()
            return self.labels.gather(1, index[:, None])[:, 0] & known
        lower, upper = self._ends()
        y = y.to(lower)
        if self.pieces is not None:
            inside = [
                any(a <= v <= b for a, b in row)
                for row, v in zip(self.pieces, y.tolist(), strict=True)
            ]
            return torch.tensor(inside, device=lower.device)
        return (lower <= y) & (y <= upper)

    def __repr__(self) -> str:
        kind = "label sets" if self.labels is not None else "intervals"
        shares = f"{float(self.infinite.double().mean()):.1%} infinite, {float(self.empty.double().mean()):.1%} empty"
        calibrated = (
            "" if self.n_calibration is None else f", {self.n_calibration} calibration rows"
        )
        return (
            f"<Region {len(self)} {kind} at {self.level}: {self.guarantee}{calibrated}; {shares}>"
        )
