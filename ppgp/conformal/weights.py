"""Weights of calibration rows, for covariate shift and for slow drift in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.entries.arrays import as_tensor, check_inputs
from ..errors import DataError, SettingError
from ..runtime.libraries import settings_unchanged


@dataclass(frozen=True)
class Decay:
    """Weights rate^age for calibration rows in the order of time, and 1 for new rows.

    The last calibration row has age 1, and ``of(n)`` gives the weights [n]. Coverage is at least
    the level minus sum_i w_i d_i (Barber et al. 2023): w_i are the weights divided by their sum,
    that of the new row included, and d_i is the total-variation distance between the data and the
    data with row i and the new row swapped. The loss is small where the past drifts slowly.

    Args:
        rate: In (0, 1], without a unit: the weight of a row as a multiple of that of the next.

    Raises:
        SettingError: If rate does not lie in (0, 1].

    Examples:
        >>> import ppgp
        >>> from ppgp import conformal
        >>> conformal.Decay(0.5).of(4).tolist()  # weights [n]
        [0.0625, 0.125, 0.25, 0.5]

        Residuals that grow in time: with weights, late rows count more.

        >>> calibration = ppgp.Prediction.from_points([0.0] * 40)
        >>> y = [float(i) for i in range(40)]
        >>> new = ppgp.Prediction.from_points([0.0])
        >>> alike = ppgp.calibrate(conformal.Absolute(), calibration, y)
        >>> weights = conformal.Decay(0.9)
        >>> late = ppgp.calibrate(conformal.Absolute(), calibration, y, weights=weights)
        >>> alike(new, level=0.5).upper.tolist(), late(new, level=0.5).upper.tolist()
        ([20.0], [34.0])
    """

    rate: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SettingError("a rate in (0, 1] in Decay", repr(self.rate), "for example 0.99")

    def of(self, n: int) -> Tensor:
        """Return the weights [n] of n calibration rows."""
        return torch.tensor(self.rate, dtype=torch.float64) ** torch.arange(n, 0, -1)


def shift_weights(X_calibration: Any, X_new: Any, X: Any) -> Tensor:
    """Estimate the density ratio of new rows to calibration rows, at rows X.

    It is the odds that a logistic regression gives to "new" against "calibration", a function of
    each row alone. Bickel, Bruckner & Scheffer (2007); Tibshirani et al. (2019), section 2.3. Learn
    the weights on rows that calibration does not use: the guarantee then errs by at most half the
    mean absolute error of the normalised weights.

    Args:
        X_calibration: Rows [n1, d] like the calibration rows, for the classifier alone.
        X_new: Rows [n2, d] like the new ones, for the classifier alone.
        X: The rows [k, d] whose weights are wanted.

    Returns:
        The density ratios [k], without a unit: they do not depend on the units of the columns.

    Raises:
        DataError: If a table is not [rows, columns] of finite numbers, the three differ in columns,
            or one of the first two has no rows.

    Examples:
        Where old rows are N(0, 1) and new ones N(1, 1), the ratio at x is exp(x - 1/2):

        >>> import numpy as np
        >>> from ppgp import conformal
        >>> rng = np.random.default_rng(0)
        >>> old, new = rng.normal(0.0, 1.0, (2000, 1)), rng.normal(1.0, 1.0, (2000, 1))
        >>> weights = conformal.shift_weights(old, new, [[0.0], [1.0], [2.0]]).numpy()
        >>> weights.shape
        (3,)
        >>> bool(np.allclose(weights, np.exp([-0.5, 0.5, 1.5]), rtol=0.15))
        True
    """
    with settings_unchanged():
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    a, b = check_inputs(X_calibration, None), check_inputs(X_new, None)
    rows = check_inputs(X, None)
    columns = [part.shape[1] for part in (a, b, rows)]
    if len(set(columns)) > 1:
        got = f"{columns[0]}, {columns[1]} and {columns[2]}"
        do = "pass the same columns in the same order"
        raise DataError("X_calibration, X_new and X with the same columns", got, do)
    if not len(a) or not len(b):
        got = f"{len(a)} and {len(b)} rows"
        raise DataError("rows in X_calibration and in X_new", got, "pass some of each")
    labels = torch.cat([torch.zeros(len(a)), torch.ones(len(b))])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(torch.cat([a, b]).cpu().numpy(), labels.numpy())
    log_odds = torch.as_tensor(classifier.decision_function(rows.cpu().numpy()))
    return torch.exp(log_odds) * (len(a) / len(b))


def check_weights(weights: Any, n: int, new: bool = False) -> Tensor:
    """Return weights [n] in double precision, whatever the precision of y.

    Args:
        weights: Finite and not negative.
        n: How many rows there are.
        new: Whether the rows are new ones. Weights of calibration rows must not all be 0.

    Raises:
        DataError: If the weights do not fit; it names the rows that are wrong.
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
