"""Metrics of predictions of test rows, and of their conformal sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ..conformal import LAC, Calibrator, Normalized, Score, calibrate
from ..data.dataset import Dataset
from ..data.new_rows import in_order, joined
from ..data.roles import refuse_censored
from ..errors import DataWarning, NotApplicable
from ..metrics import metrics
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.process_locks import silenced

BAND_CONFIDENCE = 0.9  # probability of the band of the coverage of the test rows


@dataclass(frozen=True, eq=False)
class PredictiveMetrics:
    """Metrics of one posterior on the test rows.

    Attributes:
        metrics: ``{name: value}``.
        prediction: Of the test rows.
        region: Their conformal sets; None without calibration rows.
        band: Where the share of test rows in their conformal sets lies with probability
            ``BAND_CONFIDENCE``, by ``Calibrator.coverage_band``; None where it is not known.
    """

    metrics: dict[str, float]
    prediction: Prediction
    region: Region | None
    band: tuple[float, float] | None = None


def predictive_metrics(
    posterior: Posterior | Average,
    test: Dataset,
    calibration: Dataset | None,
    level: float,
    score: Score | None,
) -> PredictiveMetrics:
    """Compute the metrics of one posterior on the test rows.

    One call predicts both tables, as most of its cost does not depend on the number of rows.

    Args:
        posterior: The fit.
        test: Rows to evaluate.
        calibration: Rows for the conformal sets; None: no such sets.
        level: Of the intervals.
        score: The conformal score; None: ``Normalized()``, or ``LAC()`` for classes.
    """
    for rows in (test, calibration):
        refuse_censored(rows, "metrics of predictions")
    tables = [table for table in (test, calibration) if table is not None]
    both = predicted(posterior, tables)
    prediction = both[: test.n]
    classes = prediction.kind == "classes"
    found: dict[str, float] = {}
    if classes:
        found["accuracy"] = metrics.accuracy(prediction, test.y)
        found["nll"] = metrics.nll(prediction, test.y)
        found["brier"] = metrics.brier(prediction, test.y)
    else:
        own = prediction.interval(level)
        found["rmse"] = metrics.rmse(prediction, test.y)
        found["nll"] = metrics.nll(prediction, test.y)
        found["crps"] = metrics.mean_crps(prediction, test.y)
        found["coverage"] = metrics.coverage(own, test.y)
        found["width"] = metrics.mean_width(own)
    if calibration is None:
        return PredictiveMetrics(found, prediction, None)
    if not score:
        score = LAC() if classes else Normalized()
    with silenced(DataWarning):  # ``compare`` warns once, for all posteriors
        calibrator = calibrate(score, both[test.n :], calibration.y)
    region = calibrator(prediction, level=level)
    found["conformal_coverage"] = metrics.coverage(region, test.y)
    found["conformal_width"] = metrics.mean_width(region)
    return PredictiveMetrics(found, prediction, region, _band(calibrator, level, test.n))


def _band(calibrator: Calibrator, level: float, rows: int) -> tuple[float, float] | None:
    """Return the band of the coverage of so many test rows; None where it is not known."""
    if calibrator.ties(level):
        return None
    try:
        return calibrator.coverage_band(level, BAND_CONFIDENCE, rows)
    except NotApplicable:
        return None


def predicted(posterior: Posterior | Average, parts: list[Dataset]) -> Prediction:
    """Return the prediction of all rows of these tables, with their columns with roles."""
    columns = joined(parts, posterior.data).items()
    known = {name: column for name, column in columns if posterior.model.takes_role(name)}
    names, levels = posterior.data.feature_names, posterior.data.levels_by_name
    rows = torch.cat([in_order(part, names, levels=levels) for part in parts])
    return posterior.predict(rows, **known)


def with_heuristic(found: PredictiveMetrics, reason: str | None) -> PredictiveMetrics:
    """Return the metrics, the guarantee of their sets replaced by the reason against it.

    The band of their coverage holds no longer either.
    """
    if reason is None or found.region is None:
        return found
    region = replace(found.region, guarantee=f"heuristic: {reason}")
    return replace(found, region=region, band=None)
