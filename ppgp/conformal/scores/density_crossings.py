"""Where the density of a mixture crosses a threshold, and where it may cross it unseen."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import elementwise
from torch import Tensor

from ...numerics.float_search import last_inside
from ...posterior.prediction import Prediction

GOLDEN = 0.5 * (math.sqrt(5) - 1)
NARROWINGS = 45  # golden sections around a mode or a dip: its depth is then exact to the last digit
STEPS = 20  # of the root finder towards an end, before the search among floating-point numbers
BUDGET = 8_000_000  # numbers in the largest temporary


class MixtureDensity:
    """The predictive density of mixtures, at pairs of a row and a value of y."""

    def __init__(self, predictive: Prediction, q: Tensor) -> None:
        self.predictive, self.q = predictive, q
        self.size = max(1, BUDGET // predictive.draws)

    def log_density(self, rows: Tensor, y: Tensor) -> Tensor:
        if not len(y):
            return y
        parts = zip(rows.split(self.size), y.split(self.size), strict=True)
        value = torch.cat([self.predictive[r].log_prob(v) for r, v in parts])
        return value.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def inside(self, rows: Tensor, log_density: Tensor) -> Tensor:
        return -log_density <= self.q[rows]


def with_extremes(
    density: MixtureDensity, rows: Tensor, y: Tensor, f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the points, with further ones where the density may cross the threshold between them.

    These are the modes that rise above the threshold and the dips that fall below it.
    """
    same = rows[1:] == rows[:-1]
    middle = torch.nonzero(same[1:] & same[:-1]).flatten() + 1
    q = density.q[rows[middle]].to(f)
    left, here, right = f[middle - 1], f[middle], f[middle + 1]
    # a concave function rises by less than this between neighbouring points
    reach = 4 * torch.maximum((here - left).abs(), (here - right).abs())
    reach = torch.where(torch.isnan(reach), torch.full_like(reach, torch.inf), reach)
    peak = (here >= left) & (here >= right) & (-here > q) & (here + reach >= -q)
    dip = (here <= left) & (here <= right) & (-here <= q) & (here - reach < -q)
    most = torch.finfo(y.dtype).max
    wanted = (peak | dip) & torch.isfinite(here) & (y[middle - 1] > -most) & (y[middle + 1] < most)
    chosen = middle[wanted]
    if not len(chosen):
        return rows, y, f
    sign = torch.where(peak[wanted], 1.0, -1.0).to(f)
    more = rows[chosen]
    more_y = _highest(density, more, y[chosen - 1], y[chosen + 1], sign)
    all_rows, all_y = torch.cat([rows, more]), torch.cat([y, more_y])
    all_f = torch.cat([f, density.log_density(more, more_y)])
    order = all_y.argsort(stable=True)
    order = order[all_rows[order].argsort(stable=True)]
    return all_rows[order], all_y[order], all_f[order]


def _highest(density: MixtureDensity, rows: Tensor, a: Tensor, b: Tensor, sign: Tensor) -> Tensor:
    """Return where sign * log density is highest between a and b, by golden sections."""
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = (sign * density.log_density(rows, v) for v in (c, d))
    for _ in range(NARROWINGS):
        left = at_c > at_d
        a, b = torch.where(left, a, c), torch.where(left, d, b)
        new = torch.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        at_new = sign * density.log_density(rows, new)
        c, d = torch.where(left, new, d), torch.where(left, c, new)
        at_c, at_d = torch.where(left, at_new, at_d), torch.where(left, at_c, at_new)
    return torch.where(at_c > at_d, c, d)


def crossed(
    density: MixtureDensity, rows: Tensor, inner: Tensor, outer: Tensor, outward: int
) -> Tensor:
    """Return the last number in the set, from ``inner`` (in it) towards ``outer`` (not in it)."""
    finite = torch.finfo(inner.dtype)

    def excess(y: np.ndarray, which: np.ndarray) -> np.ndarray:
        here = rows[torch.as_tensor(which, device=rows.device)]
        value = density.log_density(here, torch.as_tensor(y).to(inner))
        above = (value + density.q[here].to(inner)).clamp(-finite.max / 4, finite.max / 4)
        # a number on the threshold belongs to the set, and the search goes on beyond it
        on_its_side = torch.where(density.inside(here, value), finite.tiny, -torch.inf)
        return torch.maximum(above, on_its_side.to(above)).cpu().numpy()

    ends = [end.cpu().numpy() for end in (inner, outer)]
    with np.errstate(all="ignore"):  # the bracket may be as wide as the range of floats
        found = elementwise.find_root(
            excess,
            (np.minimum(*ends), np.maximum(*ends)),
            args=(np.arange(len(rows)),),
            tolerances={"fatol": 0.0},
            maxiter=STEPS,
        )
    guess = torch.as_tensor(found.x).to(inner)
    guess = torch.where(torch.isfinite(guess), guess, inner)

    def holds(v: Tensor, some: Tensor | slice) -> Tensor:
        within = outward * v < outward * outer[some]
        reached = outward * v <= outward * inner[some]
        return reached | (within & density.inside(rows[some], density.log_density(rows[some], v)))

    return last_inside(holds, guess, outward)
