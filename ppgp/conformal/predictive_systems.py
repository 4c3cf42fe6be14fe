"""Conformal predictive systems: a calibrated CDF, from split residuals or from a GP."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import advice_on_targets, as_tensor
from ..errors import DataError, SettingError, listed
from ..posterior.prediction import Origin, Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from .calibration_checks import if_not_used
from .scores.base import ULPS, made_otherwise, widened

BUDGET = 8_000_000  # numbers in the largest temporary


@dataclass(frozen=True, eq=False)
class PredictiveSystem:
    """A calibrated CDF for each of m rows.

    It steps at n values, by 1 / (n + 1) each. The remaining 1 / (n + 1) lies beyond them, half of
    it on either side by default. The values of row j are ``centre[j] + scale[j] * residuals`` in
    the split form, or the rows of ``values`` for the full conformal GP. Vovk, Shen, Manokhin & Xie
    (2019); Vovk et al. (2020) for the split form. Centres, scales, values and slack are in the
    units of y; residuals are in units of the predictive spread.

    Attributes:
        guarantee: The sentence that holds.
        residuals: [n], the sorted residuals of the calibration rows; None in the full form.
        centre: [m], the centre of each new row; None in the full form.
        scale: [m], the unit of the residuals in each new row; None in the full form.
        values: [m, n], sorted in each row; None in the split form.
        slack: [m], the rounding error of the steps, where y has repeated values: steps this near
            to y count as equal to it. None: 0.

    Raises:
        DataError: By ``cdf``, if y does not have one entry per row.
        SettingError: By ``quantile`` and ``interval``, if the probability or level does not lie in
            (0, 1).

    Examples:
        Nine residuals, -4 to 4 in units of the sd, and two new rows:

        >>> import ppgp
        >>> calibration = ppgp.Prediction.from_points([0.0] * 9, sd=1.0)
        >>> split = ppgp.predictive_system(calibration, [float(y) for y in range(-4, 5)])
        >>> system = split(ppgp.Prediction.from_points([10.0, 20.0], sd=[1.0, 2.0]))
        >>> system
        <PredictiveSystem of 2 rows, 9 calibration rows: calibrated CDF (exchangeable rows)>
        >>> [round(p, 2) for p in system.cdf([10.5, 24.5]).tolist()]
        [0.55, 0.75]
        >>> system.quantile(0.9).tolist()
        [14.0, 28.0]
        >>> system.interval(0.8).to_frame()
           lower  upper
        0    6.0   14.0
        1   12.0   28.0
    """

    guarantee: str
    residuals: Tensor | None = None
    centre: Tensor | None = None
    scale: Tensor | None = None
    values: Tensor | None = None
    slack: Tensor | None = None

    @property
    def _split(self) -> tuple[Tensor, Tensor, Tensor]:
        """The residuals, centres and scales of the split form."""
        assert self.residuals is not None
        assert self.centre is not None
        assert self.scale is not None
        return self.residuals, self.centre, self.scale

    @property
    def _like(self) -> Tensor:
        """A tensor with the number of rows, dtype and device of the system."""
        return self._split[1] if self.values is None else self.values

    @property
    def n(self) -> int:
        """The number of rows it was calibrated on."""
        if self.values is not None:
            return self.values.shape[1]
        return len(self._split[0])

    def __len__(self) -> int:
        return len(self._like)

    def __repr__(self) -> str:
        rows = f"{len(self)} rows, {self.n} calibration rows"
        return f"<PredictiveSystem of {rows}: {self.guarantee}>"

    def steps(self) -> Tensor:
        """Return the sorted steps, [m, n]; no other method builds a table of this size."""
        if self.values is not None:
            return self.values
        residuals, centre, scale = self._split
        return centre[:, None] + scale[:, None] * residuals

    @property
    def _margin(self) -> Tensor | float:
        return 0.0 if self.slack is None else self.slack

    def _counts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many steps lie below y, and at or below it, for y [..., m]."""
        low, high = y - self._margin, y + self._margin
        if self.values is not None:
            steps = self.values.contiguous()
            shape = (len(self), *y.shape[:-1])
            low, high = (
                end.movedim(-1, 0).reshape(len(self), -1).contiguous() for end in (low, high)
            )
            below = torch.searchsorted(steps, low, right=False).reshape(shape)
            upto = torch.searchsorted(steps, high, right=True).reshape(shape)
            return below.movedim(0, -1), upto.movedim(0, -1)
        residuals, centre, scale = self._split
        low, high = (((end - centre) / scale).contiguous() for end in (low, high))
        below = torch.searchsorted(residuals, low, right=False)
        upto = torch.searchsorted(residuals, high, right=True)
        # y at the centre of a predictive distribution without spread, where every step lies
        at_all = torch.isnan(low) | torch.isnan(high)
        below = torch.where(at_all, torch.zeros_like(below), below)
        return below, torch.where(at_all, torch.full_like(upto, self.n), upto)

    def cdf(self, y: Any, u: float | Tensor = 0.5) -> Tensor:
        """Return (#{steps < y} + u (1 + #{steps = y})) / (n + 1), [..., m].

        With u uniform it is exactly uniform at the true y.

        Args:
            y: Points [..., m].
            u: The share, in [0, 1], of the jump at y that counts.

        Raises:
            DataError: If the last axis of y does not have one entry per row.
        """
        y = as_tensor(y, "y").to(self._like)
        if y.shape[-1:] != (len(self),):
            got = f"shape {list(y.shape)}"
            raise DataError(f"one y per row ({len(self)})", got, "pass y with shape [m]")
        low, high = self._counts(y)
        low, high = low.to(y), high.to(y)
        return (low + u * (1 + high - low)) / (self.n + 1)

    def _step(self, k: int) -> Tensor:
        """Return the k-th smallest step of each row, k = 1 .. n; -inf and inf beyond."""
        if k < 1 or k > self.n:
            beyond = -math.inf if k < 1 else math.inf
            return torch.full((len(self),), beyond).to(self._like)
        if self.values is not None:
            return self.values[:, k - 1]
        residuals, centre, scale = self._split
        return centre + scale * residuals[k - 1]

    def quantile(self, p: float) -> Tensor:
        """Return the ceil((n + 1) p)-th step of each row, [m], infinite beyond the last.

        y lies at or below it with probability at least p.

        Raises:
            SettingError: If p lies outside (0, 1).
        """
        try:
            fraction = exact_level(p)
        except SettingError:
            raise SettingError("a probability in (0, 1)", repr(p), "for example 0.05") from None
        return self._step(math.ceil((self.n + 1) * fraction)) + self._margin

    def interval(self, level: float = 0.9) -> Region:
        """Return the central intervals.

        They lie between the floor((n + 1) alpha / 2)-th and the ceil((n + 1) (1 - alpha / 2))-th
        step, and are infinite where n is too small for the level.
        """
        tail = (1 - exact_level(level)) / 2
        low, high = math.floor((self.n + 1) * tail), math.ceil((self.n + 1) * (1 - tail))
        sentence = self.guarantee
        if not sentence.startswith("heuristic"):
            sentence = f"marginal coverage >= {level} (exchangeable rows)"
            if low < 1:
                sentence += f": infinite, as {self.n} rows are too few for this level"
        lower, upper = self._step(low) - self._margin, self._step(high) + self._margin
        region = widened(lower, upper, level)
        return replace(region, guarantee=sentence, n_calibration=self.n)

    def crps(self, y: Any) -> Tensor:
        """Return the continuous ranked probability score, [m], of n steps with weight 1 / n each.

        The probability of 1 / (n + 1) at infinity, whose CRPS is infinite, is left out.
        """
        y = as_tensor(y, "y").to(self._like)
        n = self.n
        order = (2 * torch.arange(1, n + 1, dtype=y.dtype, device=y.device) - n - 1) / n**2
        if self.values is None:
            return self._split_crps(y, order)
        parts = []
        size = max(1, BUDGET // n)
        for start in range(0, len(y), size):
            rows = slice(start, start + size)
            steps = self.values[rows]
            parts.append((steps - y[rows, None]).abs().mean(-1) - (steps * order).sum(-1))
        return torch.cat(parts)

    def _split_crps(self, y: Tensor, order: Tensor) -> Tensor:
        """Return the CRPS of the split form: that of the residuals, times the scale."""
        residuals, centre, scale = self._split
        n = len(residuals)
        away = (y - centre).abs()
        flat = scale == 0
        z = (y - centre) / torch.where(flat, torch.ones_like(away), scale)
        total = torch.cat([residuals.new_zeros(1), residuals.cumsum(0)])
        below = torch.searchsorted(residuals, z.contiguous())
        accuracy = (z * below - total[below] + (total[-1] - total[below]) - z * (n - below)) / n
        return torch.where(flat, away, scale * (accuracy - (order * residuals).sum()))


def predictive_system(prediction: Prediction, y: Any) -> SplitSystem:
    """Measure the residuals (y - centre) / spread of calibration rows, for use at new rows.

    Centre and spread are the mean and the sd, or median and interquartile range where those are not
    finite (``Prediction``). ``predictive_system(calibration_prediction, y)(new_prediction) ->
    PredictiveSystem``. Cost O(n log n); memory O(n + m). Vovk et al. (2020).

    Args:
        prediction: Of the n calibration rows.
        y: [n], their true values, in the units of the data.

    Returns:
        A SplitSystem: call it on the prediction of new rows.

    Raises:
        DataError: If y does not match the prediction, or an sd of 0 leaves a residual undefined.

    Examples:
        The residuals of nine rows, around a new prediction of 10 with a standard deviation of 2:

        >>> import torch
        >>> from torch.distributions import Normal
        >>> import ppgp
        >>> prediction = ppgp.Prediction(Normal(torch.zeros(9), torch.ones(9)))
        >>> y = torch.tensor([-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0])
        >>> new = ppgp.Prediction(Normal(torch.tensor([10.0]), torch.tensor([2.0])))
        >>> system = ppgp.predictive_system(prediction, y)(new)
        >>> system.steps()
        tensor([[ 2.,  4.,  6.,  8., 10., 12., 14., 16., 18.]])
        >>> system.quantile(0.5), system.cdf([11.0])
        (tensor([10.]), tensor([0.5500]))
        >>> lower, upper = system.interval(0.8)
        >>> round(lower.item(), 3), round(upper.item(), 3)
        (2.0, 18.0)
    """
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        expected = f"one y per calibration row ({len(prediction)})"
        do = advice_on_targets(y, len(prediction), "y", "pass the y of those rows")
        raise DataError(expected, f"shape {list(y.shape)}", do)
    centre = prediction.centre
    residuals = (y.to(centre) - centre) / prediction.spread
    bad = torch.nonzero(~torch.isfinite(residuals)).flatten().tolist()
    if bad:
        got = f"NaN or infinity in {listed(bad, 'row')}"
        raise DataError("finite residuals", got, "check the predictions of those rows")
    in_training = bool(prediction.in_training_with(y).any())
    alike = int(prediction.alike_with(y).sum())
    return SplitSystem(residuals.sort().values, in_training, prediction.origin, alike)


@dataclass(frozen=True, eq=False)
class SplitSystem:
    """Sorted calibration residuals; call it on a new prediction.

    Attributes:
        residuals: [n], in units of the predictive spread.
        in_training: Whether some of the calibration rows were also used in the fit.
        origin: How the calibration rows were predicted; None if it is not known.
        n_alike: How many of them equal a training row, whether by chance or not.
    """

    residuals: Tensor
    in_training: bool = False
    origin: Origin | None = None
    n_alike: int = 0

    def __call__(self, new_prediction: Prediction) -> PredictiveSystem:
        """Return the calibrated CDF of each new row."""
        sentence = "calibrated CDF (exchangeable rows)"
        n = len(self.residuals)
        if self.n_alike:
            sentence += f", {if_not_used(self.n_alike, n)}"
        otherwise = made_otherwise(new_prediction.origin, self.origin)
        if otherwise is not None:
            sentence = otherwise
        if self.in_training:
            sentence = "heuristic: calibration rows were also used in the fit"
        centre, spread = new_prediction.centre, new_prediction.spread
        slack, eps = None, torch.finfo(spread.dtype).eps
        apart = self.residuals.diff() > ULPS * eps * self.residuals[1:].abs()
        if not bool(apart.all()):
            slack = ULPS * eps * (centre.abs() + spread * self.residuals.abs().max())
        return PredictiveSystem(sentence, self.residuals, centre, spread, slack=slack)
