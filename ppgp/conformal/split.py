"""Split conformal prediction: scores of calibration rows give a threshold with a guarantee.

The guarantee holds for finite samples, where no calibration row was used in the fit.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data.dataset import Dataset
from ..data.entries.arrays import advice_on_targets, as_tensor
from ..data.stream.stream import Stream
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, NotApplicable, SettingError, listed
from ..numerics.finite import all_finite
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import exact_level
from .calibration_checks import check_codes, group_labels, refuse_names
from .calibrator import Calibrator
from .ranks import rank, side_level, smallest_n, threshold
from .scores.base import Score, check_prediction, check_score
from .streamed_calibrator import StreamCalibrator
from .weighted_threshold import check_weights
from .weights import Decay

__all__ = ["Calibrator", "calibrate", "rank", "side_level", "smallest_n", "threshold"]

LEVEL = 0.9  # of a stream, where none is given


def calibrate(
    score: Score,
    prediction: Prediction | Posterior,
    y: Any,
    *,
    groups: Any = None,
    weights: Any = None,
    level: float = LEVEL,
) -> Calibrator:
    """Compute the conformal scores of calibration rows from their predictions and true y.

    The guarantee (coverage >= level; Vovk et al. 2005) holds for rows that are exchangeable with
    the new ones and that no part of the fit has used. For one-sided scores that are distinct and
    not conservative, without groups or weights, coverage is also <= level + 1/(n+1) (Lei et al.
    2018). Training rows are recognised: there is a DataWarning, and the sentence of every Region
    then begins with "heuristic".

    Calibration rows in files are a ``ppgp.stream`` with the target: ``calibrate(score, posterior,
    stream)`` predicts them in chunks and keeps their scores alone, 8 bytes a row. The threshold is
    the same order statistic. Scores equal those in memory where the model predicts a row alike in
    every batch, else up to rounding (``Score.roundings``).

    Args:
        score: The conformal score, such as ``Absolute()``.
        prediction: Of the n calibration rows; for a stream the posterior, which predicts them.
        y: [n], their true values, in the units of the data; or the stream.
        groups: [n], one label per row, fixed before y is observed: coverage is then guaranteed in
            each group. Vovk et al. (2005).
        weights: [n], one weight per row, the ratio of the density of new rows to that of these
            (covariate shift; Tibshirani et al. 2019), or ``Decay`` for rows in the order of time
            (Barber et al. 2023).
        level: Of the one pass over a stream. A score that depends on the level takes a further pass
            for each other level that is asked for. Rows in memory have no level here: pass it to
            the calibrator.

    Returns:
        A Calibrator: call it on the prediction of new rows.

    Raises:
        NotApplicable: If the score is not for such a y, or is no score, or the prediction is no
            Prediction.
        DataError: If y, groups or weights do not fit the prediction.
        SettingError: If level does not lie in (0, 1), or is another than 0.9 for rows in memory.

    Examples:
        Of the errors 1, ..., 9 of nine rows, the interval at level 0.8 has the 8th smallest, as
        8 = ceil((9 + 1) 0.8), on either side of the prediction:

        >>> import torch
        >>> from torch.distributions import Normal
        >>> import ppgp
        >>> from ppgp import conformal
        >>> prediction = ppgp.Prediction(Normal(torch.zeros(9), torch.ones(9)))
        >>> y = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), prediction, y)
        >>> new = ppgp.Prediction(Normal(torch.tensor([20.0]), torch.ones(1)))
        >>> region = calibrator(new, level=0.8)
        >>> region.lower, region.upper
        (tensor([12.]), tensor([28.]))
        >>> region.guarantee
        'marginal coverage >= 0.8 (exchangeable rows)'

        Nine rows are too few for a finite interval at level 0.95:

        >>> calibrator(new, level=0.95).infinite
        tensor([True])
    """
    check_score(score)
    exact_level(level)
    if isinstance(y, Stream):
        return _of_stream(score, prediction, y, {"groups": groups, "weights": weights}, level)
    if level != LEVEL:
        do = f"leave it out, and write calibrator(prediction, level={level})"
        raise SettingError("a level for a stream alone", f"level={level} for rows in memory", do)
    return _in_memory(score, prediction, y, groups, weights)


def _in_memory(score: Score, prediction: Any, y: Any, groups: Any, weights: Any) -> Calibrator:
    """Return the calibrator of rows in memory."""
    check_prediction(prediction)
    score.check(prediction)
    if isinstance(y, Dataset):
        raise DataError("y [n] of the calibration rows", "a Dataset", "pass its .y")
    if prediction.kind == "classes":
        refuse_names(y)
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        expected = f"one y per calibration row ({len(prediction)})"
        do = advice_on_targets(y, len(prediction), "y", "pass the y of those rows")
        raise DataError(expected, f"shape {list(y.shape)}", do)
    if not all_finite(y):
        bad = torch.nonzero(~torch.isfinite(y)).flatten().tolist()
        got = f"NaN or infinity in {listed(bad, 'row')}"
        raise DataError("finite y in the calibration rows", got, "drop those rows")
    if prediction.kind == "classes":
        check_codes(y, prediction.probabilities.shape[-1])
    labels = None
    if groups is not None:
        labels = group_labels(groups, len(y))
    if weights is not None and not isinstance(weights, Decay):
        weights = check_weights(weights, len(y))
    calibrator = Calibrator(score, prediction, y, labels, weights)
    _warn_of_training_rows(calibrator)
    return calibrator


def _of_stream(
    score: Score, posterior: Any, rows: Stream, given: dict[str, Any], level: float
) -> StreamCalibrator:
    """Return the calibrator of a stream."""
    if not isinstance(posterior, Posterior) or not posterior.data.is_table:
        wanted = "the posterior of a model on a table, to predict the rows of a stream"
        raise NotApplicable(
            wanted, f"{posterior!r:.60}", "write calibrate(score, posterior, stream)"
        )
    some = [name for name, value in given.items() if value is not None]
    if rows.weights_name is not None:
        some.append("weights")
    if some:
        do = "calibrate on rows in memory, or leave them out"
        raise NotApplicable("a stream without groups and weights", some[0], do)
    calibrator = StreamCalibrator(score, posterior, rows, level)
    _warn_of_training_rows(calibrator)
    return calibrator


def _warn_of_training_rows(calibrator: Calibrator) -> None:
    """Warn if calibration rows were also used in the fit."""
    if not calibrator.n_in_training:
        return
    rows = f"{calibrator.n_in_training} of {len(calibrator)} calibration rows"
    warn(
        f"{rows} were also used in the fit: their residuals are too small, and no coverage is "
        "guaranteed; calibrate on rows that the fit did not use",
        DataWarning,
    )
