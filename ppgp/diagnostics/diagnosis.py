"""diagnose: whether to believe one posterior, from nothing but itself; every finding has its figure and what to do about it."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..errors import NotApplicable
from ..posterior.arviz import arviz
from ..posterior.convergence import ESS_A_CHAIN, RHAT_LIMIT, k_hat_limit, psis, scalars
from ..posterior.posterior import Posterior
from .verdicts import AGREES, REJECTED, SPREAD, Difference, worst

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Diagnosis", "diagnose", "k_hat", "log_ratio", "reweighted"]

EBFMI_LIMIT = 0.3  # Betancourt (2016)
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
    w /= w.sum()
    found = {}
    for name, x in scalars(posterior.draws):
        x = x.ravel()
        mean = float(w @ x)
        square = (x - mean) ** 2
        variance = float(w @ square)
        sd = math.sqrt(variance)
        error = math.sqrt(float(w**2 @ square))
        spread = math.sqrt(float(w**2 @ (square - variance) ** 2)) / (2 * sd) if sd > 0 else 0.0
        found[name] = mean, sd, error, spread
    return found


def diagnose(posterior: Posterior) -> Diagnosis:
    """Judge a posterior by itself: chains by their mixing, guides by importance weights; a point has nothing to judge.

    Agreement with a reference is what ``compare`` judges; this needs none, and finds less: a chain that never left one mode
    of several looks converged.
    """
    if posterior.mcmc:
        return _chains(posterior)
    if "log_q" in posterior.stats and "lp" in posterior.stats:
        return _guide(posterior)
    return _nothing(posterior)


def _nothing(posterior: Posterior) -> Diagnosis:
    table = posterior.summary()
    if posterior.certain:
        reason = "every hyperparameter is a number: nothing is uncertain"
        return Diagnosis(AGREES, reason, posterior.warnings, table)
    count = math.prod(posterior.shape)
    if type(posterior.how).__name__ == "Exact":
        return Diagnosis(AGREES, "draws of the posterior itself", posterior.warnings, table)
    reason = "one point: it has no spread to judge" if count == 1 else "draws whose density is not known cannot be weighed"
    advice = "fit by Laplace, or by NUTS, and compare"
    return Diagnosis("unjudged", reason, (*posterior.warnings, f"{reason}: {advice}"), table)


# -- chains --------------------------------------------------------------------------------------------------------------


def _chains(posterior: Posterior) -> Diagnosis:
    table = posterior.summary()
    chains, draws = next(iter(posterior.draws.values())).shape[:2]
    bulk = arviz().convert_to_dataset({k: v.double().cpu().numpy() for k, v in posterior.draws.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scalars that never move have no variance to divide by
        tail = arviz().ess(bulk, method="tail")
    table["ess_tail"] = np.concatenate([np.atleast_1d(tail[k].to_numpy()).ravel() for k in posterior.draws])
    findings: list[str] = []
    bad = False
    if chains < 2:
        findings.append("one chain: R-hat compares chains, and has none to compare; run at least two, better four")
    stuck = [name for name, x in scalars(posterior.draws) if x.size > 1 and np.ptp(x) == 0]
    r_hats = table["r_hat"] if chains > 1 else table["mean"] * math.nan
    r_hat = r_hats.drop(stuck).dropna()
    if chains > 1 and len(r_hat) and float(r_hat.max()) > RHAT_LIMIT:
        worst = str(r_hat.idxmax())
        bad = bad or float(r_hat.max()) > 1.1
        findings.append(
            f"R-hat {r_hat.max():.3f} for {worst} (wanted below {RHAT_LIMIT}): the chains do not agree; raise warmup, or "
            "reparametrise; if they sit in different places, there are several modes"
        )
    for column, what in (("ess_bulk", "bulk"), ("ess_tail", "tail")):
        values = table[column].drop(stuck).dropna()
        if len(values) and float(values.min()) < ESS_A_CHAIN * chains:
            findings.append(
                f"{what} effective sample size {values.min():.0f} for {values.idxmin()} (wanted {ESS_A_CHAIN} a chain): "
                + ("raise draws" if what == "bulk" else "raise draws before quoting tail quantiles")
            )
    diverging = posterior.stats.get("diverging")
    if isinstance(diverging, Tensor) and bool(diverging.any()):
        share = float(diverging.double().mean())
        bad = bad or share > 0.05
        findings.append(
            f"{int(diverging.sum())} divergences ({share:.1%}): the posterior is too curved for the step size somewhere and draws "
            "are missing there; raise target_accept, or reparametrise (a non-centred hierarchy)"
        )
    findings += _energy(posterior.stats.get("energy"), draws)
    if len(stuck) == len(table):
        bad = True
        findings.append("no draw differs from another: the sampler is stuck; start elsewhere, or change its steps")
    table["verdict"] = [
        REJECTED if chains > 1 and r > 1.1 else AGREES if (chains == 1 or r <= RHAT_LIMIT) else SPREAD
        for r in r_hats.fillna(1.0)
    ]
    if bad:
        return Diagnosis(REJECTED, findings[0], tuple(findings), table)
    if findings:
        return Diagnosis("unjudged" if chains < 2 else SPREAD, findings[0], tuple(findings), table)
    figure = (
        f"R-hat at most {r_hat.max():.3f}, effective sample size at least {table['ess_bulk'].min():.0f}" if len(r_hat) else ""
    )
    return Diagnosis(AGREES, figure, (), table)


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
    for name, x in scalars(posterior.draws):
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
            "verdict": found.verdict,
        }
    table = pd.DataFrame(rows).T.infer_objects()
    findings = list(posterior.warnings)
    figure = (
        f"k-hat {k:.2f} (limit {limit:.2f} for {ratio.size} draws); the weights move {_moved(ratio):.1%} of the probability"
    )
    if not math.isfinite(k) or k > limit:
        findings.append(
            f"{figure}: the weights that would correct this approximation are unreliable, so it is far from the posterior "
            "somewhere; use a richer guide, or NUTS"
        )
        return Diagnosis(REJECTED, figure, tuple(findings), table, k)
    word, which = worst(differences)
    if word != AGREES:
        figure = f"{which}, the importance-weighted draws; {figure}"
        findings.append(f"{figure}: use the weighted moments (psis_mean, psis_sd), a richer guide, or NUTS")
    return Diagnosis(word, figure, tuple(findings), table, k)


def _against_weighted(name: str, x: np.ndarray, corrected: tuple[float, float, float, float]) -> Difference:
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
