"""Conformal Bayes: conformal sets from reweighted posterior draws, without refits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Scaler
from ..data.roles import refuse_weights
from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, NotApplicable, counted_are
from ..models import Model
from ..posterior.convergence import why_uncorrected
from ..posterior.posterior import Posterior, inputs_and_roles
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..posterior.sample_statistics import psis
from ..runtime.levels import exact_level
from .fixed_beforehand import guarantee_of_prepared
from .full_conformal_sets import SCALED, training_data
from .scores.base import ULPS, widened
from .split import smallest_n

FEWEST_DRAWS = 100
GRID = 113  # candidates per row
CENTRAL = 49  # of the grid's points, at percentiles of the predictive distribution
REACH = 6.0  # predictive sds on either side of the grid's centre
WIDENINGS = 8  # how often the reach may double
BISECTIONS = 64  # at most; about 50 lead to adjacent numbers
BUDGET = 16_000_000  # numbers in the largest temporary
TIE = 1e-12  # a p-value within this of alpha counts as equal to alpha

SetEnds = tuple[Tensor, Tensor, Tensor]
"""Where the sets end: row number, y, and the effective number of draws there."""


class _AddOneIn:
    """The conformal p-value of a candidate (x*, y), by add-one-in importance weights.

    Each draw is reweighted by its likelihood of the candidate, as if the candidate had been among
    the data. Fong & Holmes (2021).
    """

    def __init__(self, posterior: Posterior, rows: Tensor, columns: dict[str, Any]) -> None:
        self.posterior = posterior
        self.rows = rows
        model = posterior.model
        with torch.no_grad():
            log_likelihood = model.log_likelihood(posterior.theta, posterior.data)["y"]
            # given each draw, as the likelihood of the data is
            predictive = model.distribution(posterior.theta, rows, **columns)
            self.predictive = predictive.expand(torch.Size([len(log_likelihood), len(rows)]))
        self.largest = log_likelihood.max(0).values
        self.likelihood = (log_likelihood - self.largest).exp()  # [T, n], of the largest
        self.log_weights = _guide_correction(posterior).to(self.likelihood)

    def __call__(self, which: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the p-value [c] of y[c] at rows[which[c]], and the effective number of draws."""
        from ..distributions.univariate import log_prob, take

        T, n = self.likelihood.shape
        p, ess = torch.empty_like(y), torch.empty_like(y)
        size = max(1, BUDGET // (T + n))
        for i in range(0, len(y), size):
            part = slice(i, i + size)
            each = log_prob(take(self.predictive, which[part]), y[part])  # [T, c]
            weights = torch.softmax(each + self.log_weights[:, None], 0)
            own = torch.logsumexp(torch.log(weights) + each, 0)
            others = (self.likelihood.mT @ weights).log() + self.largest[:, None]  # [n, c]
            # a candidate that equals a row ranks with it: both sums have T rounding errors
            slack = (T + ULPS) * torch.finfo(own.dtype).eps * (1 + own.abs())
            p[part] = (1 + (others <= own + slack).sum(0)) / (n + 1)
            ess[part] = 1 / weights.square().sum(0)
        return p, ess

    def k_hat(self, which: int, y: float) -> float:
        """Return the Pareto shape of the weights of the candidate y at rows[which]."""
        from ..distributions.univariate import log_prob, take

        candidate = torch.tensor([y], dtype=self.likelihood.dtype, device=self.likelihood.device)
        each = log_prob(take(self.predictive, torch.tensor([which])), candidate)[:, 0]
        return psis((each + self.log_weights).double().cpu().numpy())[1]


def _guide_correction(posterior: Posterior) -> Tensor:
    """Return Pareto-smoothed log weights that turn draws of a guide into draws of the posterior.

    They are zero for Markov chains.
    """
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    count = math.prod(posterior.shape)
    if posterior.mcmc or lp is None or log_q is None:
        return torch.zeros(count, dtype=torch.float64)
    return torch.as_tensor(psis((lp - log_q).flatten().double().cpu().numpy())[0])


def _uncorrectable(posterior: Posterior) -> str:
    """Return what the draws are, where no weights can turn them into draws of the posterior.

    The result is "" where they are draws of the posterior, or their density is known.
    """
    method = type(posterior.how).__name__
    if why_uncorrected(posterior):
        return f"chains of {method}, whose steps are never rejected,"
    density_known = {"lp", "log_q"} <= posterior.stats.keys()
    if posterior.mcmc or density_known or method == "Exact":
        return ""
    return f"those of {method}, whose density is not known,"


def conformal_bayes(
    posterior: Posterior, X: Any, level: float = 0.9, fixed_beforehand: bool = False
) -> Region:
    """Return the sets {y: conformal p-value > 1 - level} of a Bayesian model, from one fit.

    Each candidate y reweights the draws by its likelihood, as if (x, y) had been among the data;
    the score of a row is then its posterior predictive density. Draws of SVI and Laplace are first
    reweighted to the posterior (Pareto-smoothed). The set is heuristic where their density is not
    known (flows), and for SGLD and SGHMC. It is also heuristic after ``standardise=True``, because
    the ranked rows have set the scale of the priors.

    Labels are enumerated. For a continuous y, a grid locates the set and bisection its ends
    (``pieces`` of the Region where there are several). Fong & Holmes (2021).

    Args:
        posterior: The fit of a model whose rows are independent given the draw, with at least 100
            draws.
        X: New rows [m, d], in the units of the data.
        level: The coverage wanted, in (0, 1).
        fixed_beforehand: Your declaration that the numbers, inducing inputs and torch modules in
            the recipe do not depend on these rows; the sets are heuristic without it, as in
            ``full_conformal``.

    Returns:
        The Region of the m rows, in the units of y. Its sentence reports the smallest effective
        number of draws and the Pareto k-hat there.

    Raises:
        NotApplicable: If rows are not independent given the draw (a GP: use ``full_conformal``),
            if there are fewer than 100 draws, if the rows have weights, or if y is a count.
        SettingError: If level does not lie in (0, 1).
        DataError: If X has NaN, or another number of columns than the training rows.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(-2, 2, 20, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.5 * torch.cos(20 * x))
        >>> posterior = ppgp.fit(
        ...     models.LinearRegression(),
        ...     data,
        ...     inference.Exact(draws=200),
        ...     progress=False,
        ...     standardise=False,
        ... )
        >>> region = ppgp.conformal_bayes(posterior, [[0.0]], level=0.8)
        >>> round(region.lower.item(), 1), round(region.upper.item(), 1)
        (2.3, 3.5)
        >>> region.guarantee
        'coverage >= 0.8 as draws -> infinity (of 200 draws, ...)'
    """
    alpha = float(1 - exact_level(level))
    refuse_weights(training_data(posterior), "conformal_bayes")
    if type(posterior.model).distribution is Model.distribution:
        raise NotApplicable(
            "rows that are independent given the draw",
            type(posterior.model).__name__,
            "use full_conformal for a GP",
        )
    rows, columns = inputs_and_roles(posterior, X)
    draws = math.prod(posterior.shape)
    if draws < FEWEST_DRAWS:
        do = "fit by NUTS, SVI or Laplace, with priors"
        raise NotApplicable(f"at least {FEWEST_DRAWS} draws to reweight", str(draws), do)
    with torch.no_grad():
        add = _AddOneIn(posterior, rows, columns)
    n = add.likelihood.shape[1]
    prediction = Prediction(add.predictive, classes=posterior.data.classes)
    if prediction.kind == "classes":
        region, ends = _enumerate(add, prediction, alpha, level)
    else:
        region, ends = _search(add, prediction, alpha, level)
        region = _rescaled(region, posterior.scaler)
    sentence, unreliable = _guarantee(posterior, add, ends, level, fixed_beforehand)
    if unreliable:
        advice = "take more draws, or use calibrate"
        warn(f"conformal_bayes: {sentence}; {advice}", ConvergenceWarning)
    if n < smallest_n(level):
        rows_are = counted_are(n, "row")
        sentence += f": everything, as {rows_are} fewer than the {smallest_n(level)} needed"
    return replace(region, guarantee=sentence, n_calibration=n)


def _guarantee(
    posterior: Posterior, add: _AddOneIn, ends: SetEnds, level: float, fixed_beforehand: bool
) -> tuple[str, bool]:
    """Return the sentence that holds, and whether k-hat says that the weights are unreliable."""
    which, y, ess = ends
    draws = len(add.likelihood)
    k, effective = math.nan, float(draws)
    if len(ess):
        worst = int(ess.argmin())
        k, effective = add.k_hat(int(which[worst]), float(y[worst])), float(ess[worst])
    figures = f"of {draws} draws, worst effective number {effective:.0f}, k-hat {k:.2f}"
    others = _uncorrectable(posterior)
    if others:
        reason = f"as {others} are not draws of the posterior, however many"
        return f"heuristic: no guarantee, {reason}", False
    limit = min(1 - 1 / math.log10(draws), 0.7)
    if k > limit:
        return f"heuristic: weights unreliable, k-hat {k:.2f} above {limit:.2f}", True
    if not posterior.scaler.is_identity:
        return f"{SCALED} ({figures})", False
    data = training_data(posterior)
    sentence = guarantee_of_prepared(posterior.model, data, fixed_beforehand)
    return f"{sentence or f'coverage >= {level} as draws -> infinity'} ({figures})", False


def _rescaled(region: Region, scaler: Scaler) -> Region:
    """Return intervals and their pieces in the units of the user, each moved out by roundings."""
    assert region.lower is not None
    assert region.upper is not None
    lower, upper = scaler.targets_back(region.lower), scaler.targets_back(region.upper)
    pieces = region.pieces
    if pieces is not None:
        mean, sd = float(scaler.y_mean), float(scaler.y_sd)
        pieces = tuple(tuple((mean + sd * a, mean + sd * b) for a, b in row) for row in pieces)
        share = ULPS * torch.finfo(lower.dtype).eps
        pieces = tuple(
            tuple((a - share * abs(a), b + share * abs(b)) for a, b in row) for row in pieces
        )
    return replace(widened(lower, upper, region.level), pieces=pieces)


def _enumerate(
    add: _AddOneIn, prediction: Prediction, alpha: float, level: float
) -> tuple[Region, SetEnds]:
    """Return the label sets, with the labels they hold in place of ends."""
    m, K = len(prediction), prediction.probabilities.shape[1]
    which = torch.arange(m).repeat_interleave(K)
    y = torch.arange(K).repeat(m).to(add.likelihood)
    p, ess = add(which, y)
    kept = p > alpha + TIE
    labels = kept.reshape(m, K)
    region = Region(level, "", labels=labels, classes=prediction.classes)
    return region, (which[kept], y[kept], ess[kept])


def _search(
    add: _AddOneIn, prediction: Prediction, alpha: float, level: float
) -> tuple[Region, SetEnds]:
    """Return the sets of a continuous y on the model's scale, and their finite ends."""
    if prediction.kind == "count":
        do = "use split conformal: calibrate"
        raise NotApplicable("numbers on a line, or classes, for y", "counts", do)
    grid, inside = _on_grid(add, prediction, alpha)
    rows, cells = torch.nonzero(inside[:, :-1] != inside[:, 1:], as_tuple=True)
    leaving = inside[rows, cells]
    ends = _bisected(add, rows, grid[rows, cells], grid[rows, cells + 1], leaving, alpha)
    pieces = _pieces(rows, leaving, ends, inside[:, 0])
    first = [min((begin for begin, _ in row), default=math.inf) for row in pieces]
    last = [max((end for _, end in row), default=-math.inf) for row in pieces]
    region = Region(level, "", grid.new_tensor(first), grid.new_tensor(last))
    if any(len(row) > 1 for row in pieces):
        region = replace(region, pieces=tuple(map(tuple, pieces)))
    ess = torch.empty(0)
    if len(rows):
        ess = add(rows, ends)[1]
    return region, (rows, ends, ess)


def _on_grid(add: _AddOneIn, prediction: Prediction, alpha: float) -> tuple[Tensor, Tensor]:
    """Return candidates [m, GRID] and which of them belong to the set of their row.

    Each grid is widened until both its ends lie outside the set, eight times at most. It is even
    over its reach, with points added at percentiles of the predictive distribution: a narrow set
    could lie between even points.
    """
    m = len(prediction)
    centre, sd = prediction.centre, prediction.spread
    reach = torch.full_like(sd, REACH)
    inside = torch.zeros(m, GRID, dtype=torch.bool)
    grid = torch.zeros(m, GRID).to(sd)
    line = torch.linspace(-1, 1, GRID - CENTRAL).to(sd)
    shares = torch.linspace(0.02, 0.98, CENTRAL)
    percentiles = torch.stack([prediction.quantile(float(p)) for p in shares], 1)
    unfinished = torch.ones(m, dtype=torch.bool)
    for _ in range(WIDENINGS):
        here = torch.nonzero(unfinished).flatten()
        even = centre[here, None] + (reach * sd)[here, None] * line
        grid[here] = torch.cat([even, percentiles[here]], 1).sort(1).values
        p, _ = add(here.repeat_interleave(GRID), grid[here].flatten())
        inside[here] = (p > alpha + TIE).reshape(-1, GRID)
        unfinished = inside[:, 0] | inside[:, -1]
        if not bool(unfinished.any()):
            break
        reach = torch.where(unfinished, 2 * reach, reach)
    return grid, inside


def _bisected(
    add: _AddOneIn, rows: Tensor, a: Tensor, b: Tensor, a_inside: Tensor, alpha: float
) -> Tensor:
    """Return, between a and b, the last candidate that belongs to the set, by bisection.

    The p-value is a step function of the candidate, which leaves nothing to interpolate: SciPy's
    ``find_root`` needs 37 evaluations per end on average, and this 40.
    """
    if not len(rows):
        return torch.where(a_inside, a, b)
    for _ in range(BISECTIONS):
        middle = 0.5 * (a + b)
        if bool(((middle == a) | (middle == b)).all()):
            break
        same_side = (add(rows, middle)[0] > alpha + TIE) == a_inside
        a, b = torch.where(same_side, middle, a), torch.where(same_side, b, middle)
    return torch.where(a_inside, a, b)


def _pieces(
    rows: Tensor, leaving: Tensor, ends: Tensor, open_below: Tensor
) -> list[list[tuple[float, float]]]:
    """Return the intervals of each row from the ends where its set is entered or left."""
    pieces: list[list[tuple[float, float]]] = [[] for _ in range(len(open_below))]
    start: dict[int, float] = dict.fromkeys(torch.nonzero(open_below).flatten().tolist(), -math.inf)
    for row, leaves, end in zip(rows.tolist(), leaving.tolist(), ends.tolist(), strict=True):
        if leaves:
            pieces[row].append((start.pop(row), end))
        else:
            start[row] = end
    for row, begin in start.items():
        pieces[row].append((begin, math.inf))
    return pieces
