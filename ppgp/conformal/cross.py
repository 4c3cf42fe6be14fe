"""Cross-conformal prediction: CV+ and jackknife+."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import NotApplicable, SettingError
from ..inference import Inference
from ..inference.fitting import fit
from ..models import Model
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from . import APS, LAC, Absolute, Score
from .scores.base import interval


@dataclass(frozen=True, eq=False)
class CrossCalibrator:
    """Fits that each left some rows out, with the scores of those rows; call it on new rows.

    ``calibrator(X, level=0.9) -> Region``
    """

    score: Score
    posteriors: tuple[Posterior, ...]
    held_out: tuple[Tensor, ...]
    y: tuple[Tensor, ...]
    X: tuple[Tensor, ...]

    @property
    def n(self) -> int:
        return sum(map(len, self.held_out))

    def __repr__(self) -> str:
        return f"<CrossCalibrator {self.score!r}: {len(self.posteriors)} folds of {self.n} rows>"

    def promised(self, level: float) -> float:
        """1 - 2 alpha, minus what few folds cost. Barber, Candes, Ramdas & Tibshirani (2021), theorems 1 and 4."""
        n, K, alpha = self.n, len(self.posteriors), float(1 - exact_level(level))
        cost = 0.0 if n == K else min(2 * (1 - 1 / K) / (n / K + 1), (1 - K / n) / (K + 1))
        return 1 - 2 * alpha - cost

    def __call__(self, X: Any, level: float = 0.9) -> Region:
        """The set at each row of X [m, d], in the units of the data."""
        alpha, n = 1 - exact_level(level), self.n
        low, high = math.floor(alpha * (n + 1)), math.ceil((1 - alpha) * (n + 1))
        new = [p.predict(X) for p in self.posteriors]
        old = [p.predict(x) for p, x in zip(self.posteriors, self.X, strict=True)]
        scores = [self.score.score(o, t, level) for o, t in zip(old, self.y, strict=True)]
        text = f"coverage >= {self.promised(level):.3g} (exchangeable rows, the whole fit repeated for each fold)"
        if isinstance(self.score, LAC | APS):
            beaten = torch.stack(
                [(s[:, None, None] < self.score.scores(p)).sum(0) for s, p in zip(scores, new, strict=True)]
            ).sum(0)
            return Region(level, text, labels=beaten < float((1 - alpha) * (n + 1)), n_calibration=n)
        if low < 1 or high > n:
            infinite = torch.full((len(new[0]),), torch.inf, dtype=torch.float64)
            return Region(level, f"{text}: infinite, as {n} rows are too few", -infinite, infinite, n_calibration=n)
        ends = [self._ends(p, s, level) for p, s in zip(new, scores, strict=True)]
        lower, upper = (torch.cat(side) for side in zip(*ends, strict=True))
        region = interval(lower.kthvalue(low, 0).values, upper.kthvalue(high, 0).values, level)
        return replace(region, guarantee=text, n_calibration=n)

    def _ends(self, prediction: Prediction, scores: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """[rows left out, m]: the ends of the new rows' sets at each left-out score."""
        regions = [self.score.region(prediction, s, level) for s in scores]
        middle = prediction.quantile(0.5)  # an empty set stands where it shrank to
        lower, upper = (torch.stack([getattr(r, end) for r in regions]) for end in ("lower", "upper"))
        return torch.where(torch.isnan(lower), middle, lower), torch.where(torch.isnan(upper), middle, upper)


def cross_calibrate(
    model: Model,
    data: Dataset,
    how: Inference | None = None,
    score: Score | None = None,
    folds: int | None = 10,
    *,
    seed: int = 0,
    progress: bool = False,
    standardise: bool = True,
) -> CrossCalibrator:
    """CV+ (``folds``), or jackknife+ (None: one fold a row): every row is predicted by a fit that did not see it.

    Args:
        score: with one side; None: ``Absolute()``, or ``LAC()`` for classes.

    Raises:
        SettingError: if there are fewer than two folds, or more than rows.
    """
    K = data.n if folds is None else folds
    if isinstance(K, bool) or not isinstance(K, int) or not 2 <= K <= data.n:
        raise SettingError(f"between 2 and n = {data.n} folds, or None", repr(folds), "for example 10")
    parts = torch.randperm(data.n, generator=torch.Generator().manual_seed(seed)).tensor_split(K)
    posteriors = []
    for part in parts:
        kept = torch.ones(data.n, dtype=torch.bool)
        kept[part] = False
        posteriors.append(fit(model, data.rows(kept), how, seed=seed, progress=progress, standardise=standardise))
    chosen = score or (LAC() if posteriors[0].predict(data.X[:1]).kind == "classes" else Absolute())
    chosen.check(posteriors[0].predict(data.X[:1]))
    if chosen.sides != 1:
        raise NotApplicable("a score with one side", repr(chosen), "use Absolute, Normalized or Quantile")
    return CrossCalibrator(chosen, tuple(posteriors), parts, tuple(data.y[p] for p in parts), tuple(data.X[p] for p in parts))
