"""Intervals of forecasts, calibrated on the forecasts that past rows of the series would have had.

The windows of neighbouring origins share rows, and a series may change: there is no guarantee for
finite samples. Hyndman & Athanasopoulos (2021), section 5.10, for the origins.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..capabilities import Candidates, Updates, supports
from ..data.dataset import Dataset
from ..data.new_rows import refuse_without, roles_of
from ..data.roles import refuse_censored, refuse_weights
from ..errors import DataError, NotApplicable, SettingError, an, counted
from ..inference import Inference
from ..inference.fitting.candidates import fit_candidates
from ..inference.fitting.checks import check_program
from ..inference.fitting.fit import fit
from ..models import Model
from ..posterior.averaging import Average, average
from ..posterior.posterior import Posterior, model_inputs
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from .scores.base import Score
from .scores.normalized import Normalized
from .split import threshold

__all__ = ["OriginCalibrator", "calibrate_at_origins"]

GUARANTEE = (
    "heuristic: past origins of one series; about the nominal level if rows keep the same law "
    "over time"
)
ORIGINS = 10
FEWEST_ROWS = 4  # of the first fit
STEP_ROUNDING = 0.5  # of the median spacing, by which a row may lie further ahead: months differ

Fitted = Posterior | Average


@dataclass(frozen=True, eq=False)
class OriginCalibrator:
    """A forecast, with the forecasts of past origins that calibrate it; call it on later rows.

    ``calibrator(X, level=0.9) -> Region``. The scores of all steps ahead are ranked together:
    q is the k-th smallest of N = origins * horizon, k = ceil((N + 1) level).

    Attributes:
        score: The conformal score, with one side.
        posterior: The fit to all rows, a Posterior or an Average, whose forecasts are calibrated.
        predictions: One per origin, of the rows after it.
        rows: These rows, one Dataset per origin, with y in the units of the data.
        horizon: The number of rows after each origin.
    """

    score: Score
    posterior: Fitted
    predictions: tuple[Prediction, ...]
    rows: tuple[Dataset, ...]
    horizon: int

    @property
    def n(self) -> int:
        """The number of scores."""
        return sum(rows.n for rows in self.rows)

    def __repr__(self) -> str:
        number = counted(len(self.rows), "origin")
        return f"<OriginCalibrator {self.score!r}: {number} of {counted(self.horizon, 'row')}>"

    def scores(self, level: float = 0.9) -> Tensor:
        """Return the scores [origins, horizon] of the rows after each origin, in order of time."""
        pairs = zip(self.predictions, self.rows, strict=True)
        return torch.stack([self.score.score(p, rows.y, level) for p, rows in pairs])

    def __call__(self, X: Any, level: float = 0.9, **columns: Any) -> Region:
        """Return the calibrated interval at each new row, in the units of y.

        Args:
            X: New rows [m, d] after the last row of the fit, at most the horizon ahead, or a
                Dataset.
            level: The nominal level, in (0, 1).
            **columns: The known noise, offset or trials of these rows, as ``predict`` takes them.

        Returns:
            The Region of the m rows. It is infinite where there are too few scores for the level.

        Raises:
            SettingError: If level does not lie in (0, 1).
            DataError: If a row is earlier than the last row of the fit, or further ahead than the
                horizon, or a column of the fit is missing.
        """
        exact_level(level)
        known = roles_of(X, self.rows[0]) | columns
        refuse_without(known, self.rows[0], ["noise_sd"])
        self._check_times(X)
        prediction = self.posterior.predict(X, **known)
        q = threshold(self.scores(level).flatten(), level)
        region = copy(self.score.region(prediction, q, level))
        vars(region).update(guarantee=GUARANTEE, n_calibration=self.n)
        return region

    def _check_times(self, X: Any) -> None:
        """Raise DataError for rows that are not 1 to ``horizon`` steps after the last row."""
        one = self.posterior
        if isinstance(one, Average):
            one = one[one.best]
        times = model_inputs(one, X)[:, 0]
        old = one.data.X[:, 0].sort().values
        step = old.diff()[old.diff() > 0].median()
        last = old[-1]
        early = int((times <= last).sum())
        if early:
            got = f"{early} that are not"
            do = "call predict for them; forecasts of later rows alone are calibrated"
            raise DataError("rows after the last row of the fit", got, do)
        steps = float(((times - last) / step).max())
        if steps > self.horizon + STEP_ROUNDING:
            got = f"one {steps:.3g} rows ahead"
            do = "calibrate with a longer horizon="
            raise DataError(f"rows at most {self.horizon} rows ahead", got, do)


def calibrate_at_origins(
    model: Any,
    data: Any,
    how: Inference | None,
    score: Score | None,
    origins: int | None,
    horizon: int | None,
    refit: bool,
    fitted: Fitted | None = None,
    **options: Any,
) -> OriginCalibrator:
    """Return the calibrator of forecasts; see ``cross_calibrate``.

    Args:
        model: A recipe, or a list of several, whose average is taken.
        data: The rows, a Dataset; the first column of X is the time.
        how: The inference method.
        score: The conformal score; None: ``Normalized()``.
        origins: How many past origins; None: 10.
        horizon: How many rows after each.
        refit: Whether each origin has fits of its own.
        fitted: The fit to all rows; None: it is made.
        **options: Of ``fit``.
    """
    recipes = [model] if isinstance(model, Model) else model
    several = isinstance(recipes, list | tuple) and len(recipes) > 0
    if not several or not all(isinstance(one, Model) for one in recipes):
        if isinstance(model, type):
            check_program(model)
        got, do = an(type(model).__name__), "pass a recipe, such as models.StateSpaceGP()"
        raise NotApplicable("a model of ppgp.models, or a list of them", got, do)
    if not isinstance(data, Dataset) or not data.team.alone:
        got, do = an(type(data).__name__), "pass the whole table as a Dataset"
        raise NotApplicable("a Dataset of one process", got, do)
    refuse_censored(data, "conformal prediction")
    refuse_weights(data, "conformal prediction")
    count = ORIGINS if origins is None else origins
    for name, value in (("origins", count), ("horizon", horizon)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            do = "for example origins=10, horizon=12"
            raise SettingError(f"a whole number of 1 or more as {name}", repr(value), do)
    assert horizon is not None
    score = Normalized() if score is None else score
    if score.sides != 1:
        do = "use Absolute, Normalized or Quantile"
        raise NotApplicable("a score with one side", repr(score), do)
    ordered = data.rows(data.X[:, 0].sort(stable=True).indices)
    begins = _origins_of(data.n, count, horizon)
    posterior = fitted or _fitted(recipes, data, how, options)
    predictions, windows = [], []
    known: Fitted | None = None  # of the rows before the origin
    done = 0
    for begin in begins:
        window = ordered.rows(slice(begin, begin + horizon))
        if known is None or refit or not _updates(known):
            known = _fitted(recipes, ordered.rows(slice(0, begin)), how, options)
        else:
            known = known.update(ordered.rows(slice(done, begin)))
        done = begin
        prediction = known.predict(window)
        score.check(prediction)
        predictions.append(prediction)
        windows.append(window)
    return OriginCalibrator(score, posterior, tuple(predictions), tuple(windows), horizon)


def _fitted(
    recipes: Sequence[Model], data: Dataset, how: Inference | None, options: dict[str, Any]
) -> Fitted:
    """Return the fit of one recipe, or the average by evidence of several or of its candidates."""
    if len(recipes) == 1 and supports(recipes[0], Candidates):
        return fit_candidates(recipes[0], data, how, **options)
    found = [fit(recipe.given or recipe, data, how, **options) for recipe in recipes]
    return found[0] if len(found) == 1 else average(found)


def _updates(fitted: Fitted) -> bool:
    """Return whether further rows need no fit."""
    if isinstance(fitted, Average):
        return all(_updates(each) for each in fitted.posteriors.values())
    return supports(fitted.model, Updates)


def _origins_of(n: int, count: int, horizon: int) -> list[int]:
    """Return how many rows there are before each origin, in order.

    The origins are a horizon apart, or less where the first would have under half of the rows.

    Raises:
        SettingError: If the rows are too few.
    """
    last = n - horizon
    gap = horizon
    if count > 1:
        gap = min(horizon, (last - n // 2) // (count - 1))
    first = last - gap * (count - 1)
    if gap < 1 or first < FEWEST_ROWS:
        wanted = f"at least {2 * (count + horizon)} rows for {count} origins of {horizon} rows"
        raise SettingError(wanted, str(n), "use fewer origins, or a shorter horizon")
    return [first + gap * k for k in range(count)]
