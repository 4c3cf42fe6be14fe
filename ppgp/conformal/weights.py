"""Weights of calibration rows, for covariate shift and for slow drift in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..data.input_checks import check_inputs
from ..errors import DataError, SettingError
from ..numerics.libraries import settings_unchanged
from ..posterior.region import exact_level


@dataclass(frozen=True)
class Decay:
    """Weights rate^age for calibration rows in the order of time, and 1 for new rows.

    The last calibration row has age 1. Coverage is at least the level minus sum_i w_i d_i (Barber
    et al. 2023): w_i are the weights divided by their sum, that of the new row included, and d_i is
    the total-variation distance between the data and the data with row i and the new row swapped.
    The loss is small where the past drifts slowly.

    Args:
        rate: in (0, 1].

    Raises:
        SettingError: if rate does not lie in (0, 1].
    """

    rate: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SettingError("a rate in (0, 1] in Decay", repr(self.rate), "for example 0.99")

    def of(self, n: int) -> Tensor:
        """Return the weights [n] of n calibration rows."""
        return torch.tensor(self.rate, dtype=torch.float64) ** torch.arange(n, 0, -1)


def check_weights(weights: Any, n: int, new: bool = False) -> Tensor:
    """Return weights [n] in double precision, whatever the precision of y.

    Args:
        weights: finite and not negative.
        n: how many rows there are.
        new: whether the rows are new ones. Weights of calibration rows must not all be 0.

    Raises:
        DataError: if the weights do not fit; it names the rows that are wrong.
    """
    which = "new" if new else "calibration"
    w = as_tensor(weights, "weights", torch.float64)
    if w.shape != (n,):
        raise DataError(
            f"one weight per {which} row ({n})",
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
    """Return the weighted conformal threshold for each new weight, [m] or [m, 2].

    It is the smallest score whose weight, with all below, reaches the level of the total. The total
    counts the new row, at a score of +infinity. Tibshirani, Barber, Candes & Ramdas (2019), lemma
    1. The cost is O((n + m) log n). Only ratios of weights matter: both are divided by the largest
    of the calibration rows, in double precision.

    Args:
        scores: [n], or [n, 2] with one column per side.
        level: the coverage wanted, in (0, 1).
        weights: [n], of the calibration rows.
        new: [m], of the new rows.
    """
    weights, new = weights.double(), new.double()
    largest = weights.new_ones(())
    if len(weights):
        largest = weights.max().clamp_min(torch.finfo(torch.float64).tiny)
    weights, new = weights / largest, new / largest
    columns = scores.reshape(len(scores), -1)
    side = 1 - (1 - exact_level(level)) / columns.shape[1]
    result = []
    for column in columns.T:
        ordered, order = column.sort()
        total = weights[order].cumsum(0)
        wanted = float(side) * (total[-1] + new)
        # equal weights must give the exact rank, and a sum of n of them has n rounding errors
        index = torch.searchsorted(total, wanted * (1 - 4 * torch.finfo(total.dtype).eps))
        index = torch.where(wanted > 0, index, len(ordered))  # no weight anywhere: infinite
        padded = torch.cat([ordered, ordered.new_full((1,), torch.inf)])
        result.append(padded[index])
    return torch.stack(result, -1).reshape(len(new), *scores.shape[1:])


def shift_weights(X_calibration: Any, X_new: Any, X: Any) -> Tensor:
    """Estimate the density ratio of new rows to calibration rows, at rows X.

    It is the odds that a logistic regression gives to "new" against "calibration", a function of
    each row alone. Bickel, Bruckner & Scheffer (2007); Tibshirani et al. (2019), section 2.3. Learn
    the weights on rows that calibration does not use: the guarantee then errs by at most half the
    mean absolute error of the normalised weights.

    Args:
        X_calibration: rows [n1, d] like the calibration rows, for the classifier alone.
        X_new: rows [n2, d] like the new ones, for the classifier alone.
        X: the rows [k, d] whose weights are wanted.

    Returns:
        The density ratios [k].
    """
    with settings_unchanged():
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    a, b = check_inputs(X_calibration, None), check_inputs(X_new, None)
    labels = torch.cat([torch.zeros(len(a)), torch.ones(len(b))])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(torch.cat([a, b]).cpu().numpy(), labels.numpy())
    log_odds = torch.as_tensor(classifier.decision_function(check_inputs(X, None).cpu().numpy()))
    return torch.exp(log_odds) * (len(a) / len(b))
