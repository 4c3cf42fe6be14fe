"""Conformal methods that need a model and not only its predictions: full conformal, cross, and Bayes by add-one-in weights."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .conformal import APS, LAC, Absolute, PredictiveSystem, Score, deleted, full_interval, full_system
from .conformal.full_gp import Deleted
from .conformal.score import interval
from .conformal.split import smallest_n
from .data import Dataset, Scaler
from .diagnostics import psis
from .errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from .fitting import fit
from .inference import MAP, Inference
from .models import Model
from .posterior import Posterior
from .prediction import Prediction
from .region import Region, exact_level

__all__ = ["CrossCalibrator", "conformal_bayes", "cross_calibrate", "full_conformal", "full_system_of"]

EXACT = "marginal coverage >= {level} (exchangeable rows)"
FITTED = "heuristic: no finite-sample guarantee, as the hyperparameters were fitted on the ranked rows"


def _raw(posterior: Posterior) -> Dataset:
    """The training data in the units of the user."""
    if not isinstance(posterior.data, Dataset) or not isinstance(posterior.model, Model):
        raise NotApplicable(
            "a model of the zoo and a Dataset", "a program with its own arguments", "use split conformal: calibrate"
        )
    return posterior.data if posterior.scaler is None else posterior.scaler.back(posterior.data)


# -- full conformal of a Gaussian process ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Full:
    """What full conformal ranks: leave-one-out parts on the model's scale, which rows, and what is guaranteed."""

    parts: Deleted
    ranked: Tensor | None
    scaler: Scaler | None
    exact: bool


def _full(posterior: Posterior, X: Any, split: float | None, seed: int, noise_sd: Any) -> _Full:
    data = _raw(posterior)
    if isinstance(X, Dataset):
        X, noise_sd = X.X, X.noise_sd if noise_sd is None else noise_sd
    if data.noise_sd is not None and noise_sd is None:  # rows are exchangeable with their noise, not without it
        raise DataError("noise_sd of the new rows, as the training rows have it", "none", "pass noise_sd=, or a Dataset")
    if posterior.model.gaussian is None:
        raise NotApplicable(
            "a model whose y is jointly Gaussian, such as GP", type(posterior.model).__name__, "use split conformal: calibrate"
        )
    if split is None:
        theta = {**posterior.params, **{k: v.flatten(0, 1).mean(0, keepdim=True) for k, v in posterior.draws.items()}}
        rows = posterior._new_rows(X)
        parts = deleted(*posterior.model.gaussian(theta, rows, posterior.data, **posterior._known(noise_sd, rows)))
        return _Full(parts, None, posterior.scaler, False)
    if not 0 < split < 1:
        raise SettingError(
            "split in (0, 1), the share of rows that the hyperparameters are fitted on, or None", repr(split), "use 0.3"
        )
    first = round(split * data.n)
    if first < 3 or data.n - first < 1:
        raise DataError(
            "at least 3 rows to fit and 1 to rank", f"{data.n} rows split at {split:g}", "use more rows, or split conformal"
        )
    order = torch.randperm(data.n, generator=torch.Generator().manual_seed(seed))
    how = posterior.how if isinstance(posterior.how, MAP) else MAP()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any hyperparameters from these rows keep the guarantee
        small = fit(
            posterior.model, data.rows(order[:first]), how, seed=seed, progress=False, standardise=posterior.scaler is not None
        )
    rows, all_rows = small._new_rows(X), data
    if small.scaler is not None:
        all_rows = small.scaler(data)
    parts = deleted(*small.model.gaussian(small.theta, rows, all_rows, **small._known(noise_sd, rows)))
    return _Full(parts, order[first:], small.scaler, True)


def _unscaled(scaler: Scaler | None, *values: Tensor) -> list[Tensor]:
    return list(values) if scaler is None else [v * scaler.y_sd + scaler.y_mean for v in values]


def full_conformal(
    posterior: Posterior, X: Any, level: float = 0.9, split: float | None = 0.3, seed: int = 0, noise_sd: Any = None
) -> Region:
    """Full conformal intervals of a Gaussian process at rows X [m, d], in closed form and without calibration rows.

    Args:
        posterior: of a GP. With ``split`` its hyperparameters, scaling included, are found anew by MAP on that share of its
            training rows; all rows predict, and the others are ranked: the guarantee is exact.
        split: None: use the posterior's own hyperparameters (their mean over draws); then the set is heuristic.
        seed: which rows the hyperparameters come from.
        noise_sd: the known noise of the new rows, needed where the training rows have one (or X is a Dataset that has it).

    Raises:
        NotApplicable: if the model is not a GP.
        DataError: if the noise of the training rows is known and that of the new rows is not.
    """
    exact_level(level)
    full = _full(posterior, X, split, seed, noise_sd)
    n = len(full.parts.a) if full.ranked is None else len(full.ranked)
    lower, upper = _unscaled(full.scaler, *full_interval(full.parts, level, full.ranked))
    sentence = EXACT.format(level=level) if full.exact else FITTED
    if n < smallest_n(level):
        sentence += f": infinite, as {n} ranked rows are fewer than the {smallest_n(level)} a finite set needs"
    return replace(interval(lower, upper, level), guarantee=sentence, n_calibration=n)


def full_system_of(
    posterior: Posterior, X: Any, split: float | None = 0.3, seed: int = 0, noise_sd: Any = None
) -> PredictiveSystem:
    """The conformal predictive system of a GP: the whole CDF at rows X, in closed form; arguments as in ``full_conformal``."""
    full = _full(posterior, X, split, seed, noise_sd)
    (values,) = _unscaled(full.scaler, full_system(full.parts, full.ranked))
    return PredictiveSystem("calibrated CDF (exchangeable rows)" if full.exact else FITTED, values=values)


# -- CV+ and jackknife+ ------------------------------------------------------------------------------------------------


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


# -- conformal Bayes ---------------------------------------------------------------------------------------------------

GRID = 113
CENTRAL = 49  # of the grid's points, at percentiles of the predictive law
REACH = 6.0  # predictive sds on either side of the grid's centre
BISECTIONS = 40
BUDGET = 16_000_000  # numbers in the largest temporary


class _AddOneIn:
    """The conformal p-value of a candidate (x*, y), by reweighting draws as if it had been among the data. Fong & Holmes (2021)."""

    def __init__(self, posterior: Posterior, rows: Tensor) -> None:
        self.posterior, self.rows = posterior, rows
        model, data = posterior.model, posterior.data
        with torch.no_grad():
            L = model.log_likelihood(posterior.theta, data)["y"]
            law = model.law(posterior.theta, rows)  # given each draw, as the likelihood of the data is
            self.law = law.expand(torch.Size([len(L), len(rows)]))
        self.top = L.max(0).values
        self.E = (L - self.top).exp()  # [T, n]
        self.base = _guide_correction(posterior)

    def __call__(self, which: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """p-value [c] of y[c] at rows[which[c]], and the effective number of draws behind it."""
        from .univariate import log_prob, take

        T, n = self.E.shape
        p, ess = torch.empty_like(y), torch.empty_like(y)
        size = max(1, BUDGET // (T + n))
        for i in range(0, len(y), size):
            part = slice(i, i + size)
            each = log_prob(take(self.law, which[part]), y[part])  # [T, c]
            w = torch.softmax(each + self.base[:, None], 0)
            own = torch.logsumexp(torch.log(w) + each, 0)
            others = (self.E.mT @ w).log() + self.top[:, None]  # [n, c]
            p[part] = (1 + (others <= own).sum(0)) / (n + 1)
            ess[part] = 1 / w.square().sum(0)
        return p, ess

    def k_hat(self, which: int, y: float) -> float:
        from .univariate import log_prob, take

        each = (
            log_prob(take(self.law, torch.tensor([which])), torch.tensor([y], dtype=self.E.dtype, device=self.E.device))[:, 0]
            + self.base
        )
        return psis(each.double().cpu().numpy())[1]


def _guide_correction(posterior: Posterior) -> Tensor:
    """Log weights that turn draws of a guide into draws of the posterior, Pareto-smoothed; zero for Markov chains."""
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    count = next(iter(posterior.draws.values())).shape[:2].numel()
    if posterior.mcmc or lp is None or log_q is None:
        return torch.zeros(count, dtype=torch.float64)
    return torch.as_tensor(psis((lp - log_q).flatten().double().cpu().numpy())[0])


def conformal_bayes(posterior: Posterior, X: Any, level: float = 0.9) -> Region:
    """Sets {y: conformal p-value > 1 - level} of a Bayesian model at rows X [m, d], from the draws of one fit.

    Each candidate y reweights the draws by its likelihood, as if (x, y) had been among the data; the score of a row is then
    its posterior predictive density. Draws of SVI and Laplace are first reweighted to the posterior (Pareto-smoothed).
    Labels are enumerated; for numbers a grid finds the set and bisection its ends (``pieces`` where there are several).
    Fong & Holmes (2021).

    Raises:
        NotApplicable: if rows are not independent given the draw (a GP: use ``full_conformal``), or there is one draw.
    """
    alpha = float(1 - exact_level(level))
    _raw(posterior)
    model, scaler = posterior.model, posterior.scaler
    if type(model).law is Model.law:
        raise NotApplicable("rows that are independent given the draw", type(model).__name__, "use full_conformal for a GP")
    rows = posterior._new_rows(X)
    with torch.no_grad():
        add = _AddOneIn(posterior, rows)
    T, n = add.E.shape
    if T < 100:
        raise NotApplicable("at least 100 draws to reweight", f"{T}", "fit by NUTS, SVI or Laplace")
    prediction = Prediction(add.law, classes=posterior.data.classes)
    if prediction.kind == "classes":
        region, edges = _enumerate(add, prediction, alpha, level)
    else:
        region, edges = _search(add, prediction, alpha, level)
        lower, upper = _unscaled(scaler, region.lower, region.upper)  # type: ignore[arg-type]
        pieces = region.pieces
        if pieces is not None and scaler is not None:
            m, s = float(scaler.y_mean), float(scaler.y_sd)
            pieces = tuple(tuple((m + s * a, m + s * b) for a, b in row) for row in pieces)
        region = replace(region, lower=lower, upper=upper, pieces=pieces)
    which, y, ess = edges
    worst = int(ess.argmin()) if len(ess) else 0
    k = add.k_hat(int(which[worst]), float(y[worst])) if len(ess) else math.nan
    limit = min(1 - 1 / math.log10(T), 0.7)
    sentence = f"coverage >= {level} as draws -> infinity (of {T}, worst effective number {float(ess.min()) if len(ess) else T:.0f}, k-hat {k:.2f})"
    if k > limit:
        sentence = f"heuristic: weights unreliable, k-hat {k:.2f} above {limit:.2f}"
        warnings.warn(f"conformal_bayes: {sentence}; take more draws, or use calibrate", ConvergenceWarning, stacklevel=2)
    if n < smallest_n(level):
        sentence += f": everything, as {n} rows are fewer than the {smallest_n(level)} that an answer needs"
    return replace(region, guarantee=sentence, n_calibration=n)


Edges = tuple[Tensor, Tensor, Tensor]


def _enumerate(add: _AddOneIn, prediction: Prediction, alpha: float, level: float) -> tuple[Region, Edges]:
    m, K = len(prediction), prediction.probabilities.shape[1]
    which, y = torch.arange(m).repeat_interleave(K), torch.arange(K).repeat(m).to(add.E)
    p, ess = add(which, y)
    kept = p > alpha + 1e-12
    return Region(level, "", labels=kept.reshape(m, K)), (which[kept], y[kept], ess[kept])


def _search(add: _AddOneIn, prediction: Prediction, alpha: float, level: float) -> tuple[Region, Edges]:
    if prediction.kind == "count":
        raise NotApplicable("numbers on a line, or classes, for y", "counts", "use split conformal: calibrate")
    m = len(prediction)
    centre, sd = prediction.mean, prediction.std
    reach = torch.full_like(sd, REACH)
    inside = torch.zeros(m, GRID, dtype=torch.bool)
    grid = torch.zeros(m, GRID).to(sd)
    # evenly over the reach, and at the law's own percentiles, where a narrow set would slip between even points
    middle = torch.stack([prediction.quantile(float(p)) for p in torch.linspace(0.02, 0.98, CENTRAL)], 1)
    stale = torch.ones(m, dtype=torch.bool)
    for _ in range(8):  # further out, until both ends of the grid are refused
        here = torch.nonzero(stale).flatten()
        line = torch.linspace(-1, 1, GRID - CENTRAL).to(sd)
        even = centre[here, None] + (reach * sd)[here, None] * line
        grid[here] = torch.cat([even, middle[here]], 1).sort(1).values
        p, _ = add(here.repeat_interleave(GRID), grid[here].flatten())
        inside[here] = (p > alpha + 1e-12).reshape(-1, GRID)
        stale = inside[:, 0] | inside[:, -1]
        if not bool(stale.any()):
            break
        reach = torch.where(stale, 2 * reach, reach)
    rows, cells = torch.nonzero(inside[:, :-1] != inside[:, 1:], as_tuple=True)
    start = inside[rows, cells]
    a, b = grid[rows, cells].clone(), grid[rows, cells + 1].clone()
    for _ in range(BISECTIONS if len(rows) else 0):
        middle = 0.5 * (a + b)
        same = (add(rows, middle)[0] > alpha + 1e-12) == start
        a, b = torch.where(same, middle, a), torch.where(same, b, middle)
    ends = torch.where(start, a, b)
    pieces: list[list[tuple[float, float]]] = [[] for _ in range(m)]
    opened = [-math.inf if bool(inside[j, 0]) else math.nan for j in range(m)]
    for row, leaving, end in zip(rows.tolist(), start.tolist(), ends.tolist(), strict=True):
        if leaving:
            pieces[row].append((opened[row], end))
            opened[row] = math.nan
        else:
            opened[row] = end
    for row in range(m):
        if not math.isnan(opened[row]):
            pieces[row].append((opened[row], math.inf))
    lower = torch.tensor([p[0][0] if p else math.nan for p in pieces], dtype=sd.dtype, device=sd.device)
    upper = torch.tensor([p[-1][1] if p else math.nan for p in pieces], dtype=sd.dtype, device=sd.device)
    several = any(len(p) > 1 for p in pieces)
    ess = add(rows, ends)[1] if len(rows) else torch.empty(0)
    return Region(level, "", lower, upper, pieces=tuple(map(tuple, pieces)) if several else None), (rows, ends, ess)
