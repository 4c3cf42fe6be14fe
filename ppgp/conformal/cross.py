"""Cross-conformal prediction: CV+ and jackknife+."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset, noise_of
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ..inference import Inference
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..models import Model
from ..models.base import as_given
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from . import APS, LAC, Absolute, Score
from .fixed_beforehand import found_among, given_by_hand, undeclared
from .scores.base import check_score, widened

FEWEST = 2  # folds


@dataclass(frozen=True, eq=False)
class CrossCalibrator:
    """Fits that each left some rows out, with the scores of those rows; call it on new rows.

    ``calibrator(X, level=0.9) -> Region``

    Attributes:
        score: with one side.
        posteriors: one per fold.
        held_out: the rows that each fit left out, by number.
        rows: the same rows, with the noise that is known of them.
        given: what the recipe was given in place of a prior, and is not known to owe nothing to these rows.
        found: the sentence of sets whose recipe is known to owe something to them.
        interrupted: whether Ctrl-C came before the last fold. The rows of the folds that are missing are training rows of every fit:
            CV+ of the other rows, by a method that has these too, with the guarantee of so many folds and rows.
    """

    score: Score
    posteriors: tuple[Posterior, ...]
    held_out: tuple[Tensor, ...]
    rows: tuple[Dataset, ...]
    given: tuple[str, ...] = ()
    found: str | None = None
    interrupted: bool = False

    @property
    def n(self) -> int:
        return sum(map(len, self.held_out))

    def __repr__(self) -> str:
        return f"<CrossCalibrator {self.score!r}: {len(self.posteriors)} folds of {self.n} rows>"

    def promised(self, level: float) -> float:
        """1 - 2 alpha, minus what few folds cost. Barber, Candes, Ramdas & Tibshirani (2021), theorems 1 and 4.

        The theorem is about folds of one size, and takes the smaller of two costs. The second, (1 - K/n) / (K + 1), needs
        that size: all n + n/K rows of K + 1 folds are then exchangeable. The first holds for any sizes m_k: a row that is missed has
        sum (m_k + 1) p_k <= alpha (n + 1) + K - 1, where p_k is its conformal p-value among the rows of fold k, and a weighted mean of
        p-values is at most x with probability 2 x or less. Vovk & Wang (2020).
        """
        n, K, alpha = self.n, len(self.posteriors), float(1 - exact_level(level))
        cost = 2 * (1 - 1 / K) / (n / K + 1)
        if n % K == 0:
            cost = min(cost, (1 - K / n) / (K + 1))
        return 1 - 2 * alpha - cost

    def __call__(self, X: Any, level: float = 0.9, noise_sd: Any = None) -> Region:
        """The set at each row of X [m, d], in the units of the data.

        Args:
            noise_sd: the known noise of these rows, needed where the training rows have one (or X is a Dataset that has it).

        Raises:
            DataError: if the noise of the training rows is known and that of X is not.
        """
        noise_sd = noise_of(X, self.rows[0].noise_name) if noise_sd is None else noise_sd
        if (
            noise_sd is None and self.rows[0].noise_sd is not None
        ):  # rows are exchangeable with their noise, not without it
            raise DataError(
                "noise_sd of the new rows, as the training rows have it",
                "none",
                "pass noise_sd=, or a Dataset",
            )
        alpha, n = 1 - exact_level(level), self.n
        low, high = math.floor(alpha * (n + 1)), math.ceil((1 - alpha) * (n + 1))
        known = {} if noise_sd is None else {"noise_sd": noise_sd}
        new = [p.predict(X, **known) for p in self.posteriors]
        old = [p.predict(rows) for p, rows in zip(self.posteriors, self.rows, strict=True)]
        scores = [
            self.score.score(o, rows.y, level) for o, rows in zip(old, self.rows, strict=True)
        ]
        text = self._guarantee(level)
        if isinstance(self.score, LAC | APS):
            beaten = torch.stack(
                [
                    (s[:, None, None] < self.score.scores(p)).sum(0)
                    for s, p in zip(scores, new, strict=True)
                ]
            ).sum(0)
            return Region(
                level, text, labels=beaten < float((1 - alpha) * (n + 1)), n_calibration=n
            )
        if low < 1 or high > n:
            infinite = torch.full((len(new[0]),), torch.inf, dtype=torch.float64)
            return Region(
                level,
                f"{text}: infinite, as {n} rows are too few",
                -infinite,
                infinite,
                n_calibration=n,
            )
        ends = [self._ends(p, s, level) for p, s in zip(new, scores, strict=True)]
        lower, upper = (torch.cat(side) for side in zip(*ends, strict=True))
        region = widened(lower.kthvalue(low, 0).values, upper.kthvalue(high, 0).values, level)
        return replace(region, guarantee=text, n_calibration=n)

    def _guarantee(self, level: float) -> str:
        if self.found is not None:
            return self.found
        if self.given:
            return undeclared(list(self.given))
        promised = self.promised(level)
        folds = f"{len(self.posteriors)} folds{' of unequal sizes' if self.n % len(self.posteriors) else ''}"
        if promised <= 0:
            return (
                f"none: 1 - 2 (1 - level), less what {folds} of {self.n} rows cost, is not above 0"
            )
        return (
            f"coverage >= {promised:.3g} (exchangeable rows, the whole fit repeated for each fold)"
        )

    def _ends(self, prediction: Prediction, scores: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """[rows left out, m]: the ends of the new rows' sets at each left-out score."""
        regions = [self.score.region(prediction, s, level) for s in scores]
        middle = prediction.quantile(0.5)  # an empty set stands where it shrank to
        lower, upper = (
            torch.stack([getattr(r, end) for r in regions]) for end in ("lower", "upper")
        )
        empty = torch.stack([r.empty for r in regions])
        return torch.where(empty, middle, lower), torch.where(empty, middle, upper)


def cross_calibrate(
    model: Model | Callable[..., Any],
    data: Dataset | Mapping[str, Any],
    how: Inference | None = None,
    score: Score | None = None,
    folds: int | None = 10,
    *,
    seed: int = 0,
    progress: bool = False,
    standardise: bool = True,
    fixed_beforehand: bool = False,
) -> CrossCalibrator:
    """CV+ (``folds``), or jackknife+ (None: one fold per row): every row is predicted by a fit that did not see it.

    Folds of one size (their number divides n) are promised more than unequal ones.

    Args:
        model: a recipe. That of a posterior, ``posterior.model``, is taken as it was given to ``fit``: what was made ready for all
            rows (priors, inducing inputs) has seen them.
        score: with one side; None: ``Absolute()``, or ``LAC()`` for classes.
        fixed_beforehand: your word that the numbers, inducing inputs and torch modules in the recipe owe nothing to these rows; the
            sets are heuristic without it.

    Raises:
        NotApplicable: for a program, whose rows cannot be told from its arguments.
        SettingError: if there are fewer than two folds, or more than rows.
        KeyboardInterrupt: if Ctrl-C came before two folds were done; after that they are returned, with a warning.
    """
    if not isinstance(model, Model) or not isinstance(data, Dataset):
        got = f"{type(model).__name__} and {type(data).__name__}"
        raise NotApplicable(
            "a model of the zoo and a Dataset", got, "use split conformal: calibrate"
        )
    if score is not None:
        check_score(score)
    recipe = as_given(model)
    K = data.n if folds is None else folds
    if isinstance(K, bool) or not isinstance(K, int) or not FEWEST <= K <= data.n:
        raise SettingError(
            f"between 2 and n = {data.n} folds, or None", repr(folds), "for example 10"
        )
    parts = torch.randperm(data.n, generator=torch.Generator().manual_seed(seed)).tensor_split(K)
    posteriors: list[Posterior] = []
    interrupted = False
    try:
        for part in parts:
            kept = torch.ones(data.n, dtype=torch.bool)
            kept[part] = False
            posteriors.append(
                whole(
                    fit(
                        recipe,
                        data.rows(kept),
                        how,
                        seed=seed,
                        progress=progress,
                        standardise=standardise,
                    )
                )
            )
    except KeyboardInterrupt:
        if len(posteriors) < FEWEST:
            raise
        interrupted = True
        sentence = f"stopped by Ctrl-C: {len(posteriors)} of {K} folds; the rows of the others are training rows throughout"
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    parts = parts[: len(posteriors)]
    chosen = score or (LAC() if posteriors[0].predict(data.X[:1]).kind == "classes" else Absolute())
    chosen.check(posteriors[0].predict(data.X[:1]))
    if chosen.sides != 1:
        raise NotApplicable(
            "a score with one side", repr(chosen), "use Absolute, Normalized or Quantile"
        )
    given = [] if fixed_beforehand else given_by_hand(recipe, data.d)
    rows = tuple(data.rows(part) for part in parts)
    found = found_among(recipe, data)
    return CrossCalibrator(chosen, tuple(posteriors), parts, rows, tuple(given), found, interrupted)
