"""The empirical variogram of a table: how much two rows differ, by their distance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, SettingError
from ..kernels import Exponential
from ..kernels.sphere import flat_degrees
from ..models.exact.drift import Drift, basis, checked, coordinate_columns, nothing_left, places
from ..runtime.whole_numbers import check_seed

__all__ = ["EmpiricalVariogram", "empirical_variogram"]

MAX_PAIRS = 2_000_000  # tables with more pairs are subsampled
ROWS_AT_ONCE = 1024
KINDS = ("matheron", "cressie")


@dataclass(frozen=True, eq=False)
class EmpiricalVariogram:
    """Half the mean squared difference of two rows, by their distance.

    Attributes:
        edges: The edges of the lags [k + 1]; a pair at distance h belongs to the lag with
            edges[j] < h <= edges[j + 1].
        distance: The mean distance of the pairs of each lag [k].
        semivariance: The semivariance of each lag [k], in squared units of y.
        pairs: The number of pairs in each lag [k].
        direction: The direction of the pairs, in degrees clockwise from north (0 to 180); None:
            all directions.
        subsampled: The number of pairs used if there were more than ``max_pairs``, else None.
        rows: The table; None if it is not known.
    """

    edges: Tensor
    distance: Tensor
    semivariance: Tensor
    pairs: Tensor
    direction: float | None = None
    subsampled: int | None = None
    rows: Dataset | None = field(default=None, repr=False)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per lag.

        Its columns are lower, upper, distance, semivariance and pairs.
        """
        import pandas as pd

        columns = {
            "lower": self.edges[:-1],
            "upper": self.edges[1:],
            "distance": self.distance,
            "semivariance": self.semivariance,
            "pairs": self.pairs,
        }
        return pd.DataFrame({name: value.cpu().numpy() for name, value in columns.items()})

    def __repr__(self) -> str:
        along = "" if self.direction is None else f" along {self.direction:g} degrees"
        lags = f"{len(self.pairs)} lags up to {float(self.edges[-1]):g}{along}"
        return f"<EmpiricalVariogram of {lags}, {int(self.pairs.sum())} pairs>"


def empirical_variogram(
    data: Dataset,
    lags: int = 15,
    cutoff: float | None = None,
    *,
    drift: Drift = "constant",
    kind: str = "matheron",
    direction: float | None = None,
    tolerance: float = 22.5,
    max_pairs: int = MAX_PAIRS,
    seed: int = 0,
) -> EmpiricalVariogram:
    """Return the semivariance of y in lags of equal width.

    Matheron (1963); Cressie & Hawkins (1980). Pairs of rows at the same place (distance 0) are left
    out: they show the nugget, and belong to no lag.

    Args:
        data: The table, with coordinates X [n, d] and y [n].
        lags: The number of lags k.
        cutoff: The largest distance, in the units of the coordinates; None: a third of the
            diagonal of the bounding box of the rows, as in gstat.
        drift: The trend of y, see ``models.Kriging``. With more than a constant, the variogram is
            that of the residuals of an ordinary least-squares fit of the drift.
        kind: "matheron", from the mean squared difference, or "cressie", from the fourth power of
            the mean square root of |difference|, which is robust.
        direction: Degrees clockwise from north (first column east, second north); only pairs
            within ``tolerance`` of it are used. None: all pairs.
        tolerance: In degrees, above 0 and at most 90.
        max_pairs: From a table with more pairs, this many are drawn with replacement.
        seed: Seed of that draw.

    Returns:
        The EmpiricalVariogram: distances [k] in the units of the coordinates, and semivariances [k]
        in squared units of y.

    Raises:
        SettingError: If an option lies outside its range.
        DataError: If a lag has no pairs, there are fewer than 2 rows, all rows are at the same
            place, or ``direction`` is given and there are not two coordinates.

    Examples:
        Where y grows by 1 per unit of distance, rows at a distance h differ by h, and the
        semivariance is h^2 / 2:

        >>> import ppgp
        >>> places = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
        >>> data = ppgp.Dataset(places, [0.0, 1.0, 2.0, 3.0])
        >>> empirical = ppgp.empirical_variogram(data, lags=3, cutoff=3.0)
        >>> empirical
        <EmpiricalVariogram of 3 lags up to 3, 6 pairs>
        >>> empirical.to_frame()
           lower  upper  distance  semivariance  pairs
        0    0.0    1.0       1.0           0.5      3
        1    1.0    2.0       2.0           2.0      2
        2    2.0    3.0       3.0           4.5      1
    """
    _check(lags, cutoff, kind, direction, tolerance, max_pairs)
    drift = checked(drift)
    F = basis(drift, data.X, data.X, {})
    where, residual = places(drift, data.X), _residuals(data, F)
    if data.feature_names:
        names = [data.feature_names[c] for c in coordinate_columns(drift, data.d)]
        sentence = flat_degrees(Exponential(), where, names)
        if sentence is not None:
            warn(sentence, DataWarning)
    if data.n < 2:
        raise DataError("at least 2 rows for a variogram", f"{data.n}", "collect more")
    constant = nothing_left(F, data.y)
    if constant is not None:
        residual = torch.zeros_like(residual)  # without the rounding of the drift
        warn(f"{constant}: there is no variogram, its semivariance is 0 at all lags", DataWarning)
    if direction is not None and where.shape[1] != 2:
        raise DataError(
            "two coordinates, east and north, for a direction",
            f"{where.shape[1]}",
            "leave direction out",
        )
    if cutoff is None:
        cutoff = float((where.amax(0) - where.amin(0)).norm()) / 3
    if cutoff == 0:
        raise DataError("rows at different places", "all at one", "check the coordinates")
    edges = torch.linspace(0.0, float(cutoff), lags + 1, dtype=where.dtype, device=where.device)
    totals = where.new_zeros(3, lags)
    drawn = max_pairs if data.n * (data.n - 1) // 2 > max_pairs else None
    for i, j in _pairs(data.n, drawn, seed, where.device):
        step = where[i] - where[j]
        h = step.square().sum(-1).sqrt()
        kept = (h > 0) & (h <= cutoff)
        if direction is not None:
            kept &= _along(step, h, direction, tolerance)
        h, difference = h[kept], (residual[i] - residual[j])[kept].abs()
        lag = (torch.bucketize(h, edges) - 1).clamp(0, lags - 1)
        power = difference.square() if kind == "matheron" else difference.sqrt()
        totals = totals.index_add(1, lag, torch.stack([torch.ones_like(h), h, power]))
    pairs, distance, power = totals
    _check_lags(pairs, edges)
    mean = power / pairs
    if kind == "cressie":
        mean = mean.pow(4) / (0.457 + 0.494 / pairs)
    return EmpiricalVariogram(
        edges, distance / pairs, mean / 2, pairs.long(), direction, drawn, data
    )


def _check(
    lags: int,
    cutoff: float | None,
    kind: str,
    direction: float | None,
    tolerance: float,
    max_pairs: int,
) -> None:
    """Check the options of ``empirical_variogram``."""
    if type(lags) is not int or lags < 1:
        raise SettingError("a whole number of lags", repr(lags), "pass 1 or more")
    if cutoff is not None and not 0 < cutoff < math.inf:
        raise SettingError(
            "a cutoff above 0", repr(cutoff), "pass a distance in the units of the coordinates"
        )
    if kind not in KINDS:
        raise SettingError('kind "matheron" or "cressie"', repr(kind), "choose one")
    if direction is not None and not 0 <= direction <= 180:
        raise SettingError(
            "a direction from 0 to 180 degrees, clockwise from north",
            repr(direction),
            "add or subtract 180",
        )
    if not 0 < tolerance <= 90:
        raise SettingError(
            "a tolerance above 0 and at most 90 degrees", repr(tolerance), "change it"
        )
    if type(max_pairs) is not int or max_pairs < 1:
        raise SettingError("a whole number as max_pairs", repr(max_pairs), "pass 1 or more")


def _check_lags(pairs: Tensor, edges: Tensor) -> None:
    """Refuse lags without pairs.

    Raises:
        DataError: Naming the first such lag.
    """
    empty = torch.nonzero(pairs == 0).flatten().tolist()
    if not empty:
        return
    j = empty[0]
    name = f"lag {j + 1} ({float(edges[j]):g} to {float(edges[j + 1]):g})"
    if len(empty) > 1:
        name = f"{name} and {len(empty) - 1} more"
    raise DataError(
        "pairs of rows in every lag", f"none in {name}", "use fewer lags, or another cutoff"
    )


def _residuals(data: Dataset, F: Tensor) -> Tensor:
    """Return y without the drift, by ordinary least squares; a constant cancels in differences."""
    if F.shape[1] < 2:
        return data.y
    return data.y - F @ torch.linalg.lstsq(F, data.y[:, None]).solution[:, 0]


def _pairs(
    n: int, drawn: int | None, seed: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of pairs of rows: all pairs i < j, or ``drawn`` of them with replacement."""
    if drawn is not None:
        seed = check_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        i = torch.randint(n, (drawn,), generator=generator, device="cpu")
        steps = torch.randint(n - 1, (drawn,), generator=generator, device="cpu")
        j = (i + 1 + steps) % n  # another row than i
        size = ROWS_AT_ONCE**2
        for one, other in zip(i.split(size), j.split(size), strict=True):
            yield one.to(device), other.to(device)
        return
    for rows in torch.arange(n, device=device).split(ROWS_AT_ONCE):
        i, j = torch.meshgrid(rows, torch.arange(n, device=device), indexing="ij")
        yield i[j > i], j[j > i]


def _along(step: Tensor, h: Tensor, direction: float, tolerance: float) -> Tensor:
    """Return which steps of length h lie within ``tolerance`` degrees of the direction."""
    angle = math.radians(direction)
    projection = (step[:, 0] * math.sin(angle) + step[:, 1] * math.cos(angle)).abs()
    cosine = projection / h.clamp_min(torch.finfo(h.dtype).tiny)
    return cosine >= math.cos(math.radians(tolerance)) - 1e-12
