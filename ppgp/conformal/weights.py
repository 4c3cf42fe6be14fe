"""Weights of calibration rows: for covariate shift, and for rows that grow old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.arrays import as_tensor, check_inputs
from ..errors import DataError, SettingError
from ..numerics.libraries import unchanged
from ..posterior.region import exact_level


@dataclass(frozen=True)
class Decay:
    """Weight rate^age for calibration rows in the order of time (the last is one step old), 1 for new rows. Barber et al. (2023).

    Coverage is at least the level minus the sum over rows of their normalised weight times the total-variation distance
    between their place in time and that of the new row: small where the past drifts slowly.
    """

    rate: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SettingError("a rate in (0, 1] in Decay", repr(self.rate), "for example 0.99")

    def of(self, n: int) -> Tensor:
        return torch.tensor(self.rate, dtype=torch.float64) ** torch.arange(n, 0, -1)


def check_weights(weights: Any, n: int, new: bool = False) -> Tensor:
    """Weights [n] in double precision, whatever that of y: finite, not negative, and not all 0 (of calibration rows).

    Raises:
        DataError: saying which rows are wrong.
    """
    which = "new" if new else "calibration"
    w = as_tensor(weights, "weights", torch.float64)
    if w.shape != (n,):
        raise DataError(
            f"one weight a {which} row ({n})",
            f"shape {list(w.shape)}",
            "pass weights with shape [n]",
        )
    bad = torch.nonzero(~torch.isfinite(w) | (w < 0)).flatten().tolist()
    if bad:
        raise DataError(
            "finite weights, none below 0",
            f"{w[bad[0]]:g} in {which} row {bad[0]}",
            "a weight is a ratio of densities: check it",
        )
    if not new and not bool((w > 0).any()):
        raise DataError(
            "a calibration row with a weight above 0",
            "0 for all",
            "the calibration rows say nothing about the new ones",
        )
    return w


def weighted_threshold(scores: Tensor, level: float, weights: Tensor, new: Tensor) -> Tensor:
    """[m] (or [m, 2]): for each new weight, the smallest score whose weight, with all below, reaches the level of the total.

    The total counts the new row, at a score of +infinity. Tibshirani, Barber, Candes & Ramdas (2019), lemma 1. O((n + m) log n).
    Weights count by their ratios alone: both are divided by the largest of the rows scored, in double precision.
    """
    weights, new = weights.double(), new.double()
    largest = (
        weights.max().clamp_min(torch.finfo(torch.float64).tiny)
        if len(weights)
        else weights.new_ones(())
    )
    weights, new = weights / largest, new / largest
    columns = scores.reshape(len(scores), -1)
    side = 1 - (1 - exact_level(level)) / columns.shape[1]
    result = []
    for column in columns.T:
        ordered, order = column.sort()
        total = weights[order].cumsum(0)
        wanted = float(side) * (total[-1] + new)
        # equal weights must give the exact rank: a sum of n of them is right to n roundings
        index = torch.searchsorted(total, wanted * (1 - 4 * torch.finfo(total.dtype).eps))
        index = torch.where(wanted > 0, index, len(ordered))  # no weight anywhere: nothing is known
        padded = torch.cat([ordered, ordered.new_full((1,), torch.inf)])
        result.append(padded[index])
    return torch.stack(result, -1).reshape(len(new), *scores.shape[1:])


def shift_weights(X_calibration: Any, X_new: Any, X: Any) -> Tensor:
    """Estimated density ratios at the rows X [k, d], a function of each row alone: the odds that a logistic regression gives to "new" against "calibration".

    Bickel, Bruckner & Scheffer (2007); Tibshirani et al. (2019), section 2.3. Learn them on rows that calibration does not
    use: the guarantee then errs by at most half the mean absolute error of the normalised weights.

    Args:
        X_calibration, X_new: rows [n1, d] like the calibration rows, and [n2, d] like the new ones, for the classifier alone.
        X: the rows whose weights are wanted.
    """
    with unchanged():
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    a, b = check_inputs(X_calibration, None), check_inputs(X_new, None)
    labels = torch.cat([torch.zeros(len(a)), torch.ones(len(b))])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(torch.cat([a, b]).cpu().numpy(), labels.numpy())
    log_odds = torch.as_tensor(classifier.decision_function(check_inputs(X, None).cpu().numpy()))
    return torch.exp(log_odds) * (len(a) / len(b))
