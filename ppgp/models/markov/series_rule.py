"""The rule for a series without a kernel: candidates from the spacing and the span of its times.

Each candidate is a level, one trend, and perhaps seasons. Their priors are in units of the spacing
and the span. Which of them enter is decided by the evidence of a few fixed shapes, in closed form;
``fit`` then compares the candidates by their own evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import scipy
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...data.entries.dates import UNITS, unit_of
from ...kernels import Constant, Cosine, Exponential, Kernel, Linear, Matern, Periodic
from ...priors import InUnitsOfData, LogNormal

#: periods in spacings: quarters, days of a week, months, hours of a day, weeks of a year, hours of
#: a week, days of a year
PERIODS = (4.0, 7.0, 12.0, 24.0, 52.18, 168.0, 365.25)
#: those of the calendar, in seconds
CALENDAR = (86400.0, 7 * 86400.0, 365.25 * 86400.0)
FEWEST_ROWS = 4  # of a series that has candidates
FEWEST_STEPS = 3.0  # in a period
PERIODS_SEEN = 2.0  # that the times span at least
MOST_ROWS = 400  # the last ones, on which shapes are compared
MOST_SEASONS = 2
GAIN_OF_LOG = 5.0  # nats by which log y must be better
GAIN_OF_SEASON = 3.0  # nats that a shape with a further season must gain to be a candidate
SURE_OF_BLOCKS = 60.0  # nats, as a walk may gain some 30
SURE = 12.0  # nats from which candidates without that season are left out
ROUNDS = 3  # in which the spacing is improved
LENGTHS = (0.02, 0.07, 0.2, 0.6)  # of the trends that are compared, in spans
NOISES = (0.003, 0.05, 0.5)  # variances of noise, in those of the trend
SIZES = (0.3, 3.0)  # variances of a season
ROWS_OF_MATRIX = 1000  # up to which a matrix of rows is cheaper than many states
FEW_HARMONICS = 4  # of a season of more rows
FAR = 10.0  # spans over which a random walk returns to its mean
VAGUE = 10.0  # variance of the level, in that of y


@dataclass(frozen=True)
class Shape:
    """What the candidates of one series are made of.

    Attributes:
        log: Whether they are of log y.
        seasons: Their periods in the unit of the time, those that are sure first.
        sure: How many of the seasons every candidate has.
        cycle: The period at the highest peak of the periodogram of what trend and season leave, or
            None.
    """

    log: bool
    seasons: tuple[float, ...]
    sure: int
    cycle: float | None


class Series:
    """The rows of a series in order of time.

    Args:
        t: Times [n].
        y: Values [n].
        unit: The seconds of one unit of t, if it is known from dates.
        of_rows: The spacing of the rows of which these are means; None: these are rows.
    """

    def __init__(
        self, t: Tensor, y: Tensor, unit: float | None = None, of_rows: float | None = None
    ) -> None:
        self.unit, self.of_rows = unit, of_rows
        order = torch.argsort(t)
        self.t, self.y = t[order].double().cpu(), y[order].double().cpu()
        self.span = float(self.t[-1] - self.t[0])
        self.variance = float(self.y.var(correction=min(1, len(self.y) - 1)))  # 0 of one row

    @cached_property
    def spacing(self) -> float:
        """The usual step of time, of which the times are about whole numbers of steps apart.

        Months, of 28 to 31 days, have their mean.
        """
        steps = self.t.diff()
        found = float(steps[steps > 0].median())
        for _ in range(ROUNDS):
            number = (steps / found).round().cumsum(0)
            number = number - number.mean()
            total = float(number.square().sum())
            if not total > 0:
                break
            found = float((number * self.t[1:]).sum()) / total
        return found

    @property
    def known(self) -> bool:
        """Whether the times and the values differ at all."""
        return self.span > 0 and self.variance > 0 and math.isfinite(self.variance)

    def last(self, rows: int) -> Series:
        """Return the last rows."""
        return Series(self.t[-rows:], self.y[-rows:], self.unit)

    def blocks(self, most: int) -> Series:
        """Return the means of at most so many blocks of successive rows."""
        size = -(-len(self.t) // most)
        rows = len(self.t) // size * size
        t, y = (v[-rows:].reshape(-1, size).mean(-1) for v in (self.t, self.y))
        return Series(t, y, self.unit, of_rows=self.spacing)

    def logarithm(self) -> Series | None:
        """Return the series of log y; None unless all values are positive."""
        return Series(self.t, self.y.log(), self.unit) if bool((self.y > 0).all()) else None

    def periods(self) -> list[float]:
        """Return the periods that the spacing suggests and the span shows at least twice."""
        each = [p * (self.of_rows or self.spacing) for p in PERIODS]
        if self.unit is not None:
            each = [seconds / self.unit for seconds in CALENDAR]
        least, most = FEWEST_STEPS * self.spacing, (self.span + self.spacing) / PERIODS_SEEN
        return [p for p in each if least <= p <= most]


class Shapes:
    """The evidence of a series under trends, seasons and noise of a few fixed shapes.

    The size of all of them together is that of highest density, in closed form.
    """

    def __init__(self, series: Series) -> None:
        self.series = series
        self.eye = torch.eye(len(series.t), dtype=torch.float64)
        lags = (series.t[:, None] - series.t).abs()
        self.lags = lags
        self.trends = [_matern(lags / (x * series.span)) for x in LENGTHS]
        # with a variance of 1 over a tenth of the span
        self.trends.append(5 * FAR * torch.exp(-lags / (FAR * series.span)))
        level = VAGUE * torch.ones_like(lags)
        self.bases = [trend + level + noise * self.eye for trend in self.trends for noise in NOISES]

    def season(self, period: float) -> Tensor:
        """Return the covariance of a season of this period, whose shape changes slowly."""
        shape = torch.exp(-2 * torch.sin(math.pi * self.lags / period).square())
        return shape * _matern(self.lags / (2 * self.series.span))

    def best(self, seasons: Sequence[float], values: Sequence[Tensor]) -> Tensor:
        """Return the highest log evidence of each of the values [n], up to a constant."""
        targets = torch.stack([v - v.mean() for v in values], -1)
        parts = [self.season(period) for period in seasons]
        found = [self._evidence(K, targets) for K in self._covariances(parts)]
        return torch.stack(found).max(0).values

    def _covariances(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        for base in self.bases:
            if not parts:
                yield base
            for size in SIZES if parts else ():
                yield base + size * sum(parts[1:], parts[0])

    def _evidence(self, K: Tensor, targets: Tensor) -> Tensor:
        root, info = torch.linalg.cholesky_ex(K)
        if int(info):
            return torch.full((targets.shape[-1],), -math.inf, dtype=torch.float64)
        white = torch.linalg.solve_triangular(root, targets, upper=False)
        n = len(K)
        return -0.5 * n * white.square().sum(0).log() - root.diagonal().log().sum()


def _matern(lags: Tensor) -> Tensor:
    """Return the correlation of Matern(3/2) at lags in its lengthscale."""
    u = math.sqrt(3.0) * lags
    return (1 + u) * torch.exp(-u)


def shape_of(series: Series, may_log: bool) -> Shape:
    """Choose log y, seasons and a cycle for a series.

    Args:
        series: All rows.
        may_log: Whether log y is a choice.
    """
    logs = series.logarithm() if may_log else None
    found = _Seasons(series.last(MOST_ROWS), logs and logs.last(MOST_ROWS))
    found.add(MOST_SEASONS, GAIN_OF_SEASON)
    log = found.log_is_better
    seasons, sure = list(found.seasons), found.sure
    if len(series.t) > MOST_ROWS:
        whole = (logs if log else None) or series
        slow = _Seasons(whole.blocks(MOST_ROWS), None)
        slow.add(1, SURE_OF_BLOCKS, longer_than=found.series.span / PERIODS_SEEN)
        seasons, sure = [*slow.seasons, *seasons], sure + len(slow.seasons)
    few = (logs if log else None) or series
    return Shape(log, tuple(seasons), sure, _cycle(few.last(MOST_ROWS), seasons))


class _Seasons:
    """The seasons of a series, found one after another.

    Args:
        series: Some rows.
        logs: The same of log y, or None.

    Attributes:
        seasons: The periods found.
        sure: How many of them, from the first, gain more than ``SURE``.
    """

    def __init__(self, series: Series, logs: Series | None) -> None:
        self.series, self.shapes = series, Shapes(series)
        self.values = [series.y]
        self.jacobian = torch.zeros(1, dtype=torch.float64)
        if logs is not None:
            self.values.append(logs.y)
            self.jacobian = torch.stack([self.jacobian[0], -logs.y.sum()])
        self.seasons: list[float] = []
        self.sure = 0
        self.heights = self._heights([])

    def _heights(self, seasons: Sequence[float]) -> Tensor:
        return self.shapes.best(seasons, self.values) + self.jacobian

    @property
    def log_is_better(self) -> bool:
        """Whether the logarithm has the higher evidence by ``GAIN_OF_LOG``."""
        return len(self.heights) > 1 and bool(self.heights[1] > self.heights[0] + GAIN_OF_LOG)

    def add(self, most: int, least: float, longer_than: float = 0.0) -> None:
        """Add seasons, each the best of those left, while they gain at least so many nats."""
        for _ in range(most):
            rest = [p for p in self.series.periods() if p not in self.seasons and p > longer_than]
            each = [self._heights([*self.seasons, p]) for p in rest]
            gains = [float(e.max() - self.heights.max()) for e in each]
            if not gains or max(gains) < least:
                break
            place = gains.index(max(gains))
            self.sure += max(gains) >= SURE and self.sure == len(self.seasons)
            self.seasons.append(rest[place])
            self.heights = each[place]


def _cycle(series: Series, seasons: Sequence[float]) -> float | None:
    """Return the period at the highest Lomb-Scargle peak after a line and the seasons.

    Lomb (1976). Periods lie between four spacings and half of the span.
    """
    t, n = series.t - series.t[0], len(series.t)
    columns = [torch.ones(n, dtype=t.dtype), t / max(series.span, 1e-300)]
    for period in seasons:
        # those below half of the rate of the rows, so that no two are alike at the rows
        for j in range(1, math.ceil(min(5.0, period / (2 * series.spacing)))):
            angle = 2 * math.pi * j * t / period
            columns += [angle.cos(), angle.sin()]
    design = torch.stack(columns, -1)
    if n < 2 * design.shape[1]:
        design = design[:, :2]
    rest = series.y - design @ torch.linalg.lstsq(design, series.y[:, None]).solution[:, 0]
    low, high = 2.0 / series.span, 1.0 / (4 * series.spacing)
    if not high > low:
        return None
    count = min(2000, 4 * n)
    frequency = torch.linspace(low, high, count, dtype=t.dtype)
    power = scipy.signal.lombscargle(t.numpy(), rest.numpy(), (2 * math.pi * frequency).numpy())
    return 1.0 / float(frequency[int(power.argmax())])


def _about(median: float, sd: float) -> InUnitsOfData:
    return InUnitsOfData(LogNormal(math.log(median), sd))


@dataclass(frozen=True)
class Parts:
    """The kernels of a series, with priors in units of its spacing and span.

    Attributes:
        series: The series, of y or of log y.
        scale: The variance of the times over that by which f is standardised.
        few_states: Whether each state costs time.
        middle: How far the middle of the times is from where lines are zero.
    """

    series: Series
    scale: float
    few_states: bool = False
    middle: float = 0.0

    @cached_property
    def rough(self) -> float:
        """The variance of half a step, at most that of noise alone."""
        steps = self.series.y.diff()
        middle = float(steps.square().median()) / 0.455  # of a normal distribution
        floor = 1e-4 * self.series.variance
        return max(0.5 * min(middle, float(steps.square().mean())), floor)

    def noise(self) -> InUnitsOfData:
        return _about(0.3 * self.rough, 1.5)

    def level(self) -> Kernel:
        # a line through a distant zero moves the level as far
        return Constant(VAGUE * self.series.variance + self.slope * self.middle**2)

    def smooth(self) -> Kernel:
        s = self.series
        return Matern(1.5, _about(s.variance, 1.5), _about(max(s.span / 5, 2 * s.spacing), 0.9))

    def walk(self) -> Kernel:
        s = self.series
        length = FAR * s.span
        return Exponential(_about(self.rough * length / s.spacing, 1.5), length)

    @property
    def slope(self) -> float:
        """The variance of the slope of a line that explains the whole variance."""
        return 12 * self.series.variance / self.series.span**2

    def drift(self) -> Kernel:
        # on the scale of standardised times, which begins at their mean: a line through the zero of
        # the units of the data would depend on where they begin
        return self.walk() + Linear(LogNormal(math.log(self.slope * self.scale), 1.5))

    def cycle(self, period: float) -> Kernel:
        own = _about(self.series.variance, 1.5)
        return Exponential(own, _about(2 * period, 0.9)) * Cosine(1.0, _about(period, 0.1))

    def season(self, period: float) -> Kernel:
        own, slow = _about(0.3 * self.series.variance, 1.5), _about(2 * self.series.span, 0.9)
        if self.few_states:
            return Periodic(own, LogNormal(0.0, 0.5), period, FEW_HARMONICS) * Exponential(
                1.0, slow
            )
        wave = Periodic(own, LogNormal(0.0, 0.5), period)
        return wave * Matern(1.5, 1.0, slow)


@dataclass(frozen=True)
class Candidate:
    """One candidate: its kernel, the prior of its noise, and whether it is of log y."""

    kernel: Kernel
    noise: InUnitsOfData
    log: bool


#: period of the calendar in seconds -> the name of a season
NAMES_OF_SEASONS = {86400.0: "daily", 7 * 86400.0: "weekly", 365.25 * 86400.0: "yearly"}


def in_plain_words(kernel: Kernel, name: str) -> str:
    """Return the kernel of a candidate in words: "random walk with drift + yearly season".

    Args:
        kernel: The kernel, before ``fit`` has changed its units.
        name: The name of the column of times, with the unit of those from dates.
    """
    terms: tuple[Kernel, ...] = getattr(kernel, "children", (kernel,))
    seasons, trend = [], "level"
    for term in terms:
        leaves: tuple[Any, ...] = getattr(term, "children", (term,))
        kinds = [type(leaf) for leaf in leaves]
        if Periodic in kinds:
            seasons.append(_season_in_words(leaves[kinds.index(Periodic)].period, unit_of(name)))
        elif Cosine in kinds:
            period = math.exp(leaves[kinds.index(Cosine)].period.prior.loc)
            trend = f"cycle of about {period:.3g} {unit_of(name) or ''}".strip()
        elif Linear in kinds:
            trend = f"{trend} with drift"
        elif Exponential in kinds:
            trend = "random walk"
        elif Matern in kinds:
            trend = "smooth trend"
    return " + ".join([trend, *seasons])


def _season_in_words(period: float, unit: str | None) -> str:
    """Return the name of a season: "weekly season", or "season of 12" where no unit is known."""
    if unit is not None:
        for seconds, word in NAMES_OF_SEASONS.items():
            if math.isclose(period * UNITS[unit], seconds, rel_tol=1e-3):
                return f"{word} season"
    return f"season of {period:.4g} {unit or ''}".strip()


def candidates_of(
    data: Dataset,
    y: Tensor,
    *,
    may_log: bool,
    scales_y: bool,
    few_states: bool = False,
    standardise: bool = True,
) -> list[Candidate]:
    """Return the candidates for a series; [] if its times or its values are all the same.

    Args:
        data: The rows, whose first column is the time.
        y: Their values [n] on the scale of f.
        may_log: Whether log y is a choice.
        scales_y: Whether ``fit`` standardises y.
        few_states: Whether seasons have few states, which each cost time.
        standardise: Whether ``fit`` standardises the times, and y where ``scales_y``.
    """
    name = (data.feature_names or ("",))[0]
    if data.d > 1:  # what the regressors explain is no trend
        design = torch.cat([torch.ones_like(data.X[:, :1]), data.X], -1)
        weights = torch.linalg.lstsq(design, y[:, None], driver="gelsd").solution[2:]
        y = y - (data.X[:, 1:] @ weights)[:, 0]
    series = Series(data.X[:, 0], y, UNITS.get(unit_of(name) or ""))
    if not series.known or len(series.t) < FEWEST_ROWS:
        return []
    shape = shape_of(series, may_log)
    few_states = few_states or data.n > ROWS_OF_MATRIX or data.d > 1
    scale = float(data.X[:, 0].double().var())
    if scales_y and not shape.log:
        scale /= float(data.y.double().var())
    middle = 0.0
    if not standardise:
        scale, middle = 1.0, float(data.X[:, 0].double().mean())
    own = (series.logarithm() if shape.log else None) or series
    parts = Parts(own, scale, few_states, middle)
    trends = [parts.smooth(), parts.walk(), parts.drift()]
    if shape.cycle is not None:
        trends.append(parts.cycle(shape.cycle))
    found = []
    for count in range(shape.sure, len(shape.seasons) + 1):
        for trend in trends:
            kernel = parts.level() + trend
            for period in shape.seasons[:count]:
                kernel = kernel + parts.season(period)
            found.append(Candidate(kernel, parts.noise(), shape.log))
    return found
