"""Conformal Bayes: conformal sets from reweighted posterior draws, without refits."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ConvergenceWarning, NotApplicable, counted_are
from ..models import Model
from ..posterior.convergence import psis, uncorrected
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .full_conformal_sets import SCALED, _raw, _unscaled
from .split import smallest_n

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
            law = model.distribution(
                posterior.theta, rows
            )  # given each draw, as the likelihood of the data is
            self.law = law.expand(torch.Size([len(L), len(rows)]))
        self.top = L.max(0).values
        self.E = (L - self.top).exp()  # [T, n]
        self.base = _guide_correction(posterior)

    def __call__(self, which: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """p-value [c] of y[c] at rows[which[c]], and the effective number of draws behind it."""
        from ..numerics.univariate import log_prob, take

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
        from ..numerics.univariate import log_prob, take

        each = (
            log_prob(
                take(self.law, torch.tensor([which])),
                torch.tensor([y], dtype=self.E.dtype, device=self.E.device),
            )[:, 0]
            + self.base
        )
        return psis(each.double().cpu().numpy())[1]


def _guide_correction(posterior: Posterior) -> Tensor:
    """Log weights that turn draws of a guide into draws of the posterior, Pareto-smoothed; zero for Markov chains."""
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    count = math.prod(posterior.shape)
    if posterior.mcmc or lp is None or log_q is None:
        return torch.zeros(count, dtype=torch.float64)
    return torch.as_tensor(psis((lp - log_q).flatten().double().cpu().numpy())[0])


def _of_another_law(posterior: Posterior) -> str:
    """What the draws are, where they are not those of the posterior and nothing is known that weighs them to it; else ""."""
    if uncorrected(posterior):
        return f"chains of {type(posterior.how).__name__}, whose steps are never rejected,"
    known = (
        posterior.mcmc
        or {"lp", "log_q"} <= posterior.stats.keys()
        or type(posterior.how).__name__ == "Exact"
    )
    return "" if known else f"those of {type(posterior.how).__name__}, whose density is not known,"


def conformal_bayes(posterior: Posterior, X: Any, level: float = 0.9) -> Region:
    """Sets {y: conformal p-value > 1 - level} of a Bayesian model at rows X [m, d], from the draws of one fit.

    Each candidate y reweights the draws by its likelihood, as if (x, y) had been among the data; the score of a row is then
    its posterior predictive density. Draws of SVI and Laplace are first reweighted to the posterior (Pareto-smoothed); where their
    density is not known (flows), and for SGLD and SGHMC, the set is heuristic. So it is after ``standardise=True``: the
    rows that are ranked have set the scale of the priors.
    Labels are enumerated; for numbers a grid finds the set and bisection its ends (``pieces`` where there are several).
    Fong & Holmes (2021).

    Raises:
        NotApplicable: if rows are not independent given the draw (a GP: use ``full_conformal``), or there is one draw.
    """
    alpha = float(1 - exact_level(level))
    _raw(posterior)
    model, scaler = posterior.model, posterior.scaler
    if type(model).law is Model.law:
        raise NotApplicable(
            "rows that are independent given the draw",
            type(model).__name__,
            "use full_conformal for a GP",
        )
    rows = posterior._new_rows(X)
    if math.prod(posterior.shape) < 100:
        got = str(math.prod(posterior.shape))
        raise NotApplicable(
            "at least 100 draws to reweight", got, "fit by NUTS, SVI or Laplace, with priors"
        )
    with torch.no_grad():
        add = _AddOneIn(posterior, rows)
    T, n = add.E.shape
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
    effective = float(ess.min()) if len(ess) else T
    figures = f"of {T} draws, worst effective number {effective:.0f}, k-hat {k:.2f}"
    sentence = f"coverage >= {level} as draws -> infinity ({figures})"
    strange = _of_another_law(posterior)
    if strange:
        sentence = (
            f"heuristic: no guarantee, as {strange} are not draws of the posterior, however many"
        )
    elif k > limit:
        sentence = f"heuristic: weights unreliable, k-hat {k:.2f} above {limit:.2f}"
        warnings.warn(
            f"conformal_bayes: {sentence}; take more draws, or use calibrate",
            ConvergenceWarning,
            stacklevel=2,
        )
    elif scaler is not None:
        sentence = f"{SCALED} ({figures})"
    if n < smallest_n(level):
        sentence += f": everything, as {counted_are(n, 'row')} fewer than the {smallest_n(level)} that an answer needs"
    return replace(region, guarantee=sentence, n_calibration=n)


Edges = tuple[Tensor, Tensor, Tensor]


def _enumerate(
    add: _AddOneIn, prediction: Prediction, alpha: float, level: float
) -> tuple[Region, Edges]:
    m, K = len(prediction), prediction.probabilities.shape[1]
    which, y = torch.arange(m).repeat_interleave(K), torch.arange(K).repeat(m).to(add.E)
    p, ess = add(which, y)
    kept = p > alpha + 1e-12
    return Region(level, "", labels=kept.reshape(m, K)), (which[kept], y[kept], ess[kept])


def _search(
    add: _AddOneIn, prediction: Prediction, alpha: float, level: float
) -> tuple[Region, Edges]:
    if prediction.kind == "count":
        raise NotApplicable(
            "numbers on a line, or classes, for y", "counts", "use split conformal: calibrate"
        )
    m = len(prediction)
    centre, sd = prediction.centre, prediction.spread
    reach = torch.full_like(sd, REACH)
    inside = torch.zeros(m, GRID, dtype=torch.bool)
    grid = torch.zeros(m, GRID).to(sd)
    # evenly over the reach, and at the law's own percentiles, where a narrow set would slip between even points
    middle = torch.stack(
        [prediction.quantile(float(p)) for p in torch.linspace(0.02, 0.98, CENTRAL)], 1
    )
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
    lower = torch.tensor(
        [p[0][0] if p else math.inf for p in pieces], dtype=sd.dtype, device=sd.device
    )
    upper = torch.tensor(
        [p[-1][1] if p else -math.inf for p in pieces], dtype=sd.dtype, device=sd.device
    )
    several = any(len(p) > 1 for p in pieces)
    ess = add(rows, ends)[1] if len(rows) else torch.empty(0)
    return Region(level, "", lower, upper, pieces=tuple(map(tuple, pieces)) if several else None), (
        rows,
        ends,
        ess,
    )
