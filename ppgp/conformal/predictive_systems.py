"""Conformal predictive systems: a whole CDF with a guarantee, from split residuals or from a GP in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, SettingError, listed
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .scores.base import widened

BUDGET = 8_000_000


@dataclass(frozen=True, eq=False)
class PredictiveSystem:
    """A calibrated CDF for each of m rows: it steps at n values, and 1 / (n + 1) of probability lies beyond them on either side.

    The values of row j are ``centre[j] + scale[j] * residuals`` (split: the residuals of the calibration rows, sorted), or the
    rows of ``values`` [m, n] where they are not of that form (the full conformal GP).
    Vovk, Shen, Manokhin & Xie (2019); Vovk et al. (2020) for the split form.
    """

    guarantee: str
    residuals: Tensor | None = None
    centre: Tensor | None = None
    scale: Tensor | None = None
    values: Tensor | None = None

    @property
    def n(self) -> int:
        """How many rows it was calibrated on."""
        return self.residuals.shape[0] if self.residuals is not None else self.values.shape[1]  # type: ignore[union-attr]

    def __len__(self) -> int:
        return len(self.values if self.values is not None else self.centre)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return (
            f"<PredictiveSystem of {len(self)} rows, {self.n} calibration rows: {self.guarantee}>"
        )

    def steps(self) -> Tensor:
        """[m, n], sorted. As large as it says: everything else here does without it."""
        if self.values is not None:
            return self.values
        return self.centre[:, None] + self.scale[:, None] * self.residuals  # type: ignore[index]

    def _counts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """How many steps lie below y, and at or below it, for y [..., m]."""
        if self.values is not None:
            ordered, point = self.values.contiguous(), y.movedim(-1, 0).reshape(len(self), -1)
            shape = (len(self), *y.shape[:-1])
            low, high = (
                torch.searchsorted(ordered, point.contiguous(), right=r)
                .reshape(shape)
                .movedim(0, -1)
                for r in (False, True)
            )
            return low, high
        z = ((y - self.centre) / self.scale).contiguous()  # type: ignore[operator]
        low, high = (torch.searchsorted(self.residuals, z, right=r) for r in (False, True))  # type: ignore[call-overload]
        at_all = torch.isnan(
            z
        )  # a law without a spread, and y at its centre, where every step lies
        return torch.where(at_all, torch.zeros_like(low), low), torch.where(
            at_all, torch.full_like(high, self.n), high
        )

    def cdf(self, y: Any, u: float | Tensor = 0.5) -> Tensor:
        """(#{steps < y} + u (1 + #{steps = y})) / (n + 1), [..., m]: with u uniform, exactly uniform at the true y."""
        y = as_tensor(y, "y").to(self._like)
        if y.shape[-1:] != (len(self),):
            raise DataError(
                f"one y a row ({len(self)})", f"shape {list(y.shape)}", "pass y with shape [m]"
            )
        low, high = self._counts(y)
        low, high = low.to(y), high.to(y)
        return (low + u * (1 + high - low)) / (self.n + 1)

    @property
    def _like(self) -> Tensor:
        return self.values if self.values is not None else self.centre  # type: ignore[return-value]

    def _step(self, k: int) -> Tensor:
        """The k-th smallest step of each row, k = 1 .. n; -inf and inf beyond."""
        if k < 1 or k > self.n:
            return torch.full((len(self),), -math.inf if k < 1 else math.inf).to(self._like)
        if self.values is not None:
            return self.values[:, k - 1]
        return self.centre + self.scale * self.residuals[k - 1]  # type: ignore[index, operator]

    def quantile(self, p: float) -> Tensor:
        """[m]: the ceil((n + 1) p)-th step, infinite beyond the last: y lies at or below it with probability at least p.

        Raises:
            SettingError: if p lies outside (0, 1).
        """
        try:
            fraction = exact_level(p)
        except SettingError:
            raise SettingError("a probability in (0, 1)", repr(p), "for example 0.05") from None
        return self._step(math.ceil((self.n + 1) * fraction))

    def interval(self, level: float = 0.9) -> Region:
        """Central: between the floor((n + 1) alpha / 2)-th and the ceil((n + 1) (1 - alpha / 2))-th step."""
        tail = (1 - exact_level(level)) / 2
        low, high = math.floor((self.n + 1) * tail), math.ceil((self.n + 1) * (1 - tail))
        sentence = self.guarantee
        if not sentence.startswith("heuristic"):
            sentence = f"marginal coverage >= {level} (exchangeable rows)"
            sentence += (
                f": infinite, as {self.n} rows are too few for this level" if low < 1 else ""
            )
        return replace(
            widened(self._step(low), self._step(high), level),
            guarantee=sentence,
            n_calibration=self.n,
        )

    def crps(self, y: Any) -> Tensor:
        """[m], of the n steps with weight 1 / n each: the 1 / (n + 1) at infinity, whose CRPS is infinite, is left out."""
        y = as_tensor(y, "y").to(self._like)
        n = self.n
        order = (2 * torch.arange(1, n + 1, dtype=y.dtype, device=y.device) - n - 1) / n**2
        if self.values is None:
            away = (y - self.centre).abs()  # type: ignore[operator]
            flat = self.scale == 0
            z = (y - self.centre) / torch.where(flat, torch.ones_like(away), self.scale)  # type: ignore[operator, arg-type]
            # CRPS is homogeneous: score the residuals, then stretch
            r = self.residuals
            total = torch.cat([r.new_zeros(1), r.cumsum(0)])  # type: ignore[union-attr]
            below = torch.searchsorted(r, z.contiguous())  # type: ignore[call-overload]
            accuracy = (z * below - total[below] + (total[-1] - total[below]) - z * (n - below)) / n
            return torch.where(flat, away, self.scale * (accuracy - (order * r).sum()))  # type: ignore[operator, arg-type]
        parts = []
        for rows in range(0, len(y), max(1, BUDGET // n)):
            part = slice(rows, rows + max(1, BUDGET // n))
            steps = self.values[part]
            parts.append((steps - y[part, None]).abs().mean(-1) - (steps * order).sum(-1))
        return torch.cat(parts)


def predictive_system(prediction: Prediction, y: Any) -> SplitSystem:
    """The split form: residuals (y - centre) / spread of calibration rows, to be put around any new prediction.

    Centre and spread are the mean and the sd, or median and interquartile range where those are not finite (``Prediction``).

    ``predictive_system(calibration_prediction, y)(new_prediction) -> PredictiveSystem``. Cost O(n log n); memory O(n + m).

    Raises:
        DataError: if y does not fit the prediction, or an sd of 0 leaves a residual undefined.
    """
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        raise DataError(
            f"one y a calibration row ({len(prediction)})",
            f"shape {list(y.shape)}",
            "pass the y of those rows",
        )
    centre = prediction.centre
    residuals = (y.to(centre) - centre) / prediction.spread
    bad = torch.nonzero(~torch.isfinite(residuals)).flatten().tolist()
    if bad:
        raise DataError(
            "finite residuals",
            f"NaN or infinity in {listed(bad, 'row')}",
            "check the predictions of those rows",
        )
    return SplitSystem(residuals.sort().values, bool(prediction.in_training_with(y).any()))


@dataclass(frozen=True, eq=False)
class SplitSystem:
    """Sorted calibration residuals; call it on a new prediction."""

    residuals: Tensor
    in_training: bool = False

    def __call__(self, new_prediction: Prediction) -> PredictiveSystem:
        """The calibrated CDF of each row."""
        sentence = (
            "heuristic: calibration rows were also used in the fit"
            if self.in_training
            else "calibrated CDF (exchangeable rows)"
        )
        return PredictiveSystem(
            sentence, self.residuals, new_prediction.centre, new_prediction.spread
        )
