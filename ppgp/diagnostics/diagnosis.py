"""diagnose: whether to believe one posterior, from nothing but itself; every finding has its figure and what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..errors import NotApplicable, counted
from ..posterior.convergence import (
    ESS_PER_CHAIN,
    RHAT_LIMIT,
    k_hat_limit,
    mixing,
    plane,
    psis,
    scalars,
    uncorrected,
)
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .differences import judge
from .references import Side, same_sites
from .samples import Sample, random_directions
from .verdicts import AGREES, CUT_SHORT, REJECTED, SEVERITY, SPREAD, UNJUDGED, Difference, worst

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Diagnosis", "diagnose", "k_hat", "log_ratio", "reweighted"]

EBFMI_LIMIT = 0.3  # Betancourt (2016)
FAR_APART = 1.1  # R-hat of chains that are in different places
EQUAL = 1e-9  # nats between the largest and the smallest log weight


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What ``diagnose`` found.

    Attributes:
        verdict: "agrees" (nothing speaks against it), "means agree, spread does not", "do not use", or "unjudged".
        figure: the one that says so.
        findings: a sentence for each thing wrong, with what to do.
        table: one row a scalar. Chains: ess_bulk, ess_tail, r_hat, verdict. Draws of a guide: mean and sd as drawn and as
            corrected by importance weights, verdict.
        k_hat: Pareto shape of the importance weights, for guides; None otherwise.
    """

    verdict: str
    figure: str
    findings: tuple[str, ...]
    table: pd.DataFrame
    k_hat: float | None = None

    def __repr__(self) -> str:
        lines = [f"{self.verdict}: {self.figure}", *self.findings]
        return "\n".join(lines)


def log_ratio(posterior: Posterior) -> np.ndarray:
    """log p(theta, y) - log q(theta) of each draw, [draws].

    Raises:
        NotApplicable: if the method does not know the density of its draws.
    """
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    if not isinstance(lp, Tensor) or not isinstance(log_q, Tensor):
        raise NotApplicable(
            "draws whose density under the approximation is known",
            type(posterior.how).__name__,
            "fit by Laplace or SVI with a Gaussian guide",
        )
    return (lp - log_q).flatten().double().cpu().numpy()


def k_hat(posterior: Posterior) -> float:
    """Pareto shape of the importance weights from the approximation to the posterior. Yao, Vehtari, Simpson & Gelman (2018).

    Raises:
        NotApplicable: if the method does not know the density of its draws.
    """
    ratio = log_ratio(posterior)
    if float(np.ptp(ratio)) < EQUAL:
        return 0.0  # all weights the same: there is no tail to fit
    return psis(ratio)[1]


def reweighted(posterior: Posterior) -> dict[str, tuple[float, float, float, float]]:
    """``{scalar: (mean, sd, and their Monte Carlo standard errors)}`` of the posterior, by Pareto-smoothed importance weights.

    Raises:
        NotApplicable: if the method does not know the density of its draws.
    """
    w = np.exp(psis(log_ratio(posterior))[0])
    return {name: _weighted(w / w.sum(), x.ravel()) for name, x in scalars(plane(posterior))}


def _weighted(w: np.ndarray, x: np.ndarray) -> tuple[float, float, float, float]:
    """Mean, sd and their Monte Carlo standard errors of draws with weights."""
    mean = float(w @ x)
    square = (x - mean) ** 2
    variance = float(w @ square)
    sd = math.sqrt(variance)
    error = math.sqrt(float(w**2 @ square))
    spread = math.sqrt(float(w**2 @ (square - variance) ** 2)) / (2 * sd) if sd > 0 else 0.0
    return mean, sd, error, spread


def diagnose(posterior: Posterior, reference: Posterior | None = None) -> Diagnosis:
    """Judge a posterior by itself: chains by their mixing, guides by importance weights; a point has nothing to judge.

    Agreement with a reference is what ``compare`` judges; this needs none, and finds less: a chain that never left one mode
    of several looks converged, and of chains whose steps are never rejected (SGLD, SGHMC) mixing cannot tell whether they are too
    wide: they are "unjudged".

    Args:
        reference: draws of the same sites to be judged by as well; the word is then the worse of both.

    Raises:
        NotApplicable: if ``reference`` has other sites.
    """
    if posterior.mcmc:
        alone = _chains(posterior)
    elif "log_q" in posterior.stats and "lp" in posterior.stats:
        alone = _guide(posterior)
    else:
        alone = _nothing(posterior)
    if cut_short(posterior.stats) and alone.verdict != REJECTED:
        alone = replace(
            alone, verdict=UNJUDGED, figure=CUT_SHORT, findings=(CUT_SHORT, *alone.findings)
        )
    return alone if reference is None else _beside(alone, posterior, reference)


def _beside(alone: Diagnosis, posterior: Posterior, reference: Posterior) -> Diagnosis:
    """The worse of a posterior by itself and beside a reference."""
    if not same_sites(posterior, reference):
        raise NotApplicable(
            "a reference of the same model",
            f"sites {sorted(reference.draws)}",
            "pass one with the same sites",
        )
    found = judge(Side(posterior), Side(reference))
    sentence = f"beside the reference: {found.reason}"
    if found.word == UNJUDGED:
        return replace(alone, findings=(*alone.findings, sentence))
    if alone.verdict != UNJUDGED and SEVERITY.index(alone.verdict) >= SEVERITY.index(found.word):
        return alone
    return replace(
        alone, verdict=found.word, figure=found.reason, findings=(*alone.findings, sentence)
    )


def _nothing(posterior: Posterior) -> Diagnosis:
    table = posterior.summary()
    if posterior.certain:
        reason = "every hyperparameter is a number: nothing is uncertain"
        return Diagnosis(AGREES, reason, posterior.warnings, table)
    count = math.prod(posterior.shape)
    if type(posterior.how).__name__ == "Exact":
        return Diagnosis(AGREES, "draws of the posterior itself", posterior.warnings, table)
    reason = (
        "one point: it has no spread to judge"
        if count == 1
        else "draws whose density is not known cannot be weighed"
    )
    advice = "fit by Laplace, or by NUTS, and compare"
    return Diagnosis(UNJUDGED, reason, (*posterior.warnings, f"{reason}: {advice}"), table)


# -- chains --------------------------------------------------------------------------------------------------------------


def _chains(posterior: Posterior) -> Diagnosis:
    mix = mixing(posterior)
    table, findings = posterior.summary() if mix.table is None else mix.table, mix.complaints
    r_hat, _ = mix.r_hat
    bad = mix.stuck or r_hat > FAR_APART
    few, where = mix.least("tail")
    if few < ESS_PER_CHAIN * mix.chains:
        findings.append(
            f"the tail's effective sample size of {where} is {few:.0f} (wanted {ESS_PER_CHAIN} a chain): "
            "raise draws before quoting tail quantiles"
        )
    diverging = posterior.stats.get("diverging")
    if isinstance(diverging, Tensor) and bool(diverging.any()):
        share = float(diverging.double().mean())
        bad = bad or share > 0.05
        findings.append(
            f"{counted(int(diverging.sum()), 'divergence')} ({share:.1%}): the posterior is too curved for the step size somewhere and draws "
            "are missing there; raise target_accept, or reparametrise (a non-centred hierarchy)"
        )
    findings += _energy(posterior.stats.get("energy"), mix.draws)
    wider = uncorrected(posterior)
    if wider:
        findings.append(
            f"{wider}, and nothing corrects it: how they mix says nothing of it; pass reference=, or fit by NUTS"
        )
    table["verdict"] = [_word(r) for r in table["r_hat"]] if mix.chains > 1 else AGREES
    if bad:
        return Diagnosis(REJECTED, findings[0], tuple(findings), table)
    if wider:
        return Diagnosis(UNJUDGED, findings[-1], tuple(findings), table)
    if findings:
        return Diagnosis(
            UNJUDGED if mix.chains < 2 else SPREAD, findings[0], tuple(findings), table
        )
    return Diagnosis(
        AGREES,
        f"R-hat at most {r_hat:.3f}, effective sample size at least {mix.least('bulk')[0]:.0f}",
        (),
        table,
    )


def _word(r_hat: float) -> str:
    """Of one scalar; NaN: it never moves."""
    if r_hat > FAR_APART:
        return REJECTED
    return SPREAD if r_hat > RHAT_LIMIT else AGREES


def _energy(energy: object, draws: int) -> list[str]:
    """The energy Bayesian fraction of missing information of each chain."""
    if not isinstance(energy, Tensor) or draws < 4:
        return []
    e = energy.double().cpu().numpy()
    spread = e.var(1)
    if not (spread > 0).all():
        return []
    fraction = np.square(np.diff(e, axis=1)).mean(1) / spread
    if float(fraction.min()) >= EBFMI_LIMIT:
        return []
    return [
        f"E-BFMI {fraction.min():.2f} (wanted above {EBFMI_LIMIT}): momentum cannot reach the tails of the energy in one step; "
        "reparametrise, or use priors with lighter tails"
    ]


# -- guides --------------------------------------------------------------------------------------------------------------


def _guide(posterior: Posterior) -> Diagnosis:
    import pandas as pd

    ratio = log_ratio(posterior)
    k, limit = k_hat(posterior), k_hat_limit(ratio.size)
    corrected = reweighted(posterior)
    rows, differences = {}, []
    for name, x in scalars(plane(posterior)):
        found = _against_weighted(name, x.ravel(), corrected[name])
        differences.append(found)
        mean, sd, *_ = corrected[name]
        rows[name] = {
            "mean": float(x.mean()),
            "sd": float(x.std(ddof=1)),
            "psis_mean": mean,
            "psis_sd": sd,
            "shift": found.shift,
            "ratio": found.ratio,
            "verdict": found.judged(2 * len(corrected))[0],
        }
    projections = _projections(posterior, ratio, corrected)
    table = pd.DataFrame(rows).T.infer_objects()
    findings = list(posterior.warnings)
    figure = f"k-hat {k:.2f} (limit {limit:.2f} for {ratio.size} draws); the weights move {_moved(ratio):.1%} of the probability"
    if not math.isfinite(k) or k > limit:
        findings.append(
            f"{figure}: the weights that would correct this approximation are unreliable, so it is far from the posterior "
            "somewhere; use a richer guide, or NUTS"
        )
        return Diagnosis(REJECTED, figure, tuple(findings), table, k)
    word, which = worst(differences, projections)
    if word != AGREES:
        figure = f"{which}, the importance-weighted draws; {figure}"
        findings.append(
            f"{figure}: use the weighted moments (psis_mean, psis_sd), a richer guide, or NUTS"
        )
    return Diagnosis(word, figure, tuple(findings), table, k)


def _projections(
    posterior: Posterior, ratio: np.ndarray, corrected: dict[str, tuple[float, float, float, float]]
) -> list[Difference]:
    """The same in directions drawn at random, in which no scalar lies."""
    sample = Sample.of(posterior)
    sds = np.array([sd for _, sd, *_ in corrected.values()])
    moving = [name for name, sd in zip(sample.names, sds, strict=True) if sd > 0]
    if len(moving) < 2:
        return []
    directions, names = random_directions(sds[sds > 0])
    along = sample.among(moving).along(directions, names)
    w = np.exp(psis(ratio)[0])
    columns = along.values.reshape(sample.draws, -1).T
    return [
        _against_weighted(name, x, _weighted(w / w.sum(), x))
        for name, x in zip(names, columns, strict=True)
    ]


def _against_weighted(
    name: str, x: np.ndarray, corrected: tuple[float, float, float, float]
) -> Difference:
    """A scalar as drawn against the same draws by their weights."""
    mean, sd, mean_error, sd_error = corrected
    own = float(x.std(ddof=1))
    if not sd > 0:
        return Difference(name, 0.0, 0.0, 1.0, 0.0)
    return Difference(
        name,
        (float(x.mean()) - mean) / sd,
        math.hypot(mean_error, own / math.sqrt(x.size)) / sd,
        own / sd,
        math.hypot(sd_error, own / math.sqrt(2 * x.size)) / sd,
    )


def _moved(ratio: np.ndarray) -> float:
    """Total variation between the weights and equal ones: how much probability they move."""
    w = np.exp(ratio - ratio.max())
    return float(0.5 * np.abs(w / w.sum() - 1 / w.size).sum())
