"""Diagnose one posterior by itself: chains by their mixing, guides by importance weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..display import tables as html
from ..errors import NotApplicable, counted
from ..posterior.arviz import arviz
from ..posterior.averaging import Average
from ..posterior.convergence import (
    ESS_PER_CHAIN,
    RHAT_LIMIT,
    mixing,
    scalars,
    why_uncorrected,
    with_angles_as_points,
)
from ..posterior.posterior import INSTEAD, Posterior, is_boosted
from ..posterior.sample_statistics import k_hat_limit, psis
from ..posterior.summary import cut_short
from .choice_of_reference import Side, same_sites
from .differences import Difference, worst
from .judging import judge
from .scalar_samples import Sample, random_directions
from .verdicts import AGREES, CUT_SHORT, REJECTED, SEVERITY, SPREAD, UNJUDGED

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Diagnosis", "diagnose", "k_hat", "log_ratio", "reweighted"]

SHOWN = 20  # rows that a notebook shows
EBFMI_LIMIT = 0.3  # Betancourt (2016)
FAR_APART = 1.1  # R-hat above which chains are in different places
MOST_DIVERGENT = 0.05  # share of divergent transitions above which the draws are not to be used
EQUAL = 1e-9  # nats between the largest and the smallest log weight of equal weights

Moments = tuple[float, float, float, float]
"""Mean, sd, and their Monte Carlo standard errors."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The result of ``diagnose``.

    R-hat and effective sample sizes: Vehtari et al. (2021). k-hat: Yao, Vehtari, Simpson & Gelman
    (2018). Energies: Betancourt (2016).

    Attributes:
        verdict: "agrees" (no check fails), "means agree, spread does not", "do not use", or
            "unjudged".
        reason: The number that decides, or what is missing.
        findings: One sentence per failed check, with what to do.
        table: One row per scalar of the draws [chain, draw, *event], with mean and sd in the units
            of the draws. Chains: ess_bulk, ess_tail, r_hat, verdict. Draws of a guide: mean and sd
            as drawn and as corrected by importance weights, verdict. An Average: the weight of each
            posterior first, in the order of the weights.
        k_hat: The Pareto shape of the importance weights, for guides; None otherwise.

    Examples:
        With a known noise variance, the posterior of a line is normal, and Laplace's approximation
        is the posterior itself:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> recipe = models.LinearRegression(noise=0.01)
        >>> posterior = ppgp.fit(recipe, data, inference.Laplace(), progress=False)
        >>> diagnosis = ppgp.diagnose(posterior)
        >>> diagnosis
        agrees: k-hat 0.00 (limit 0.67 for 1000 draws); the weights move 0.0% of the probability
        >>> diagnosis.verdict, diagnosis.findings
        ('agrees', ())
        >>> diagnosis.table["verdict"]
        weight[0]    agrees
        bias         agrees
        Name: verdict, dtype: ...
    """

    verdict: str
    reason: str
    findings: tuple[str, ...]
    table: pd.DataFrame
    k_hat: float | None = None

    def _repr_html_(self) -> str:
        """Return what notebooks show: the verdict, the findings and the worst scalars."""
        findings = [text for text in self.findings if text != self.reason]
        parts = [html.sentence(self.reason), html.items("Findings", findings)]
        parts.append(html.frame(self.worst_first, SHOWN))
        return html.page("Diagnosis", self.verdict, *parts)

    @property
    def worst_first(self) -> pd.DataFrame:
        """The table, the scalars with the largest R-hat or shift first."""
        key = next((name for name in ("r_hat", "shift") if name in self.table.columns), None)
        if key is None:
            return self.table
        size: Any = self.table[key].astype(float).abs()
        return self.table.loc[size.sort_values(ascending=False).index]

    def __repr__(self) -> str:
        others = [finding for finding in self.findings if finding != self.reason]
        return "\n".join([f"{self.verdict}: {self.reason}", *others])


def log_ratio(posterior: Posterior) -> np.ndarray:
    """Return log p(theta, y) - log q(theta) of each draw, [draws].

    Raises:
        NotApplicable: If the method does not know the density of its draws.
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
    """Return the Pareto shape of the importance weights from the approximation to the posterior.

    Yao, Vehtari, Simpson & Gelman (2018).

    Raises:
        NotApplicable: If the method does not know the density of its draws.
    """
    ratio = log_ratio(posterior)
    if float(np.ptp(ratio)) < EQUAL:
        return 0.0  # all weights are equal: there is no tail to fit
    return psis(ratio)[1]


def reweighted(posterior: Posterior) -> dict[str, Moments]:
    """Return the moments of the posterior by Pareto-smoothed importance weights.

    The result is ``{scalar: (mean, sd, error of the mean, error of the sd)}``, with Monte Carlo
    standard errors.

    Raises:
        NotApplicable: If the method does not know the density of its draws.
    """
    w = np.exp(psis(log_ratio(posterior))[0])
    return {
        name: _weighted(w / w.sum(), x.ravel())
        for name, x in scalars(with_angles_as_points(posterior), posterior)
    }


def _weighted(w: np.ndarray, x: np.ndarray) -> Moments:
    """Return the moments of draws with weights that sum to 1."""
    mean = float(w @ x)
    square = (x - mean) ** 2
    variance = float(w @ square)
    sd = math.sqrt(variance)
    mean_error = math.sqrt(float(w**2 @ square))
    if not sd > 0:
        return mean, sd, mean_error, 0.0
    sd_error = math.sqrt(float(w**2 @ (square - variance) ** 2)) / (2 * sd)
    return mean, sd, mean_error, sd_error


def diagnose(posterior: Posterior | Average, reference: Posterior | None = None) -> Diagnosis:
    """Judge a posterior by itself: chains by their mixing, guides by importance weights.

    A point cannot be judged. Unlike ``compare`` this needs no reference, and it detects less: a
    chain that never left one mode of several looks converged. Chains whose steps are never
    rejected (SGLD, SGHMC) are "unjudged", as mixing cannot show whether they are too wide.
    Vehtari et al. (2021) for chains; Yao, Vehtari, Simpson & Gelman (2018) for guides.

    Args:
        posterior: The fit, with draws [chain, draw, *event]; or an Average, whose verdict is the
            worst of those on its posteriors that take part in predictions.
        reference: A posterior of the same sites to judge by as well; the verdict is then the worse
            of both.

    Returns:
        The Diagnosis. Its table is in the units of the draws, and k-hat and R-hat have no unit.

    Raises:
        NotApplicable: If ``reference`` has other sites, or is given beside an Average.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> recipe = models.LinearRegression()
        >>> point = ppgp.fit(recipe, data, inference.MAP(), progress=False)
        >>> ppgp.diagnose(point)
        unjudged: one point: it has no spread to judge
        one point: it has no spread to judge: fit by Laplace, or by NUTS, and compare
        >>> laplace = ppgp.fit(recipe, data, inference.Laplace(), progress=False)
        >>> ppgp.diagnose(laplace).reason
        'noise: mean 0.3... sd off (+-0.0...), the importance-weighted draws; k-hat ...'
        >>> exact = ppgp.fit(recipe, data, inference.Exact(), progress=False)
        >>> ppgp.diagnose(exact)
        agrees: draws of the posterior itself
    """
    if isinstance(posterior, Average):
        return _of_average(posterior, reference)
    if posterior.mcmc:
        alone = _chains(posterior)
    elif "log_q" in posterior.stats and "lp" in posterior.stats:
        alone = _guide(posterior)
    else:
        alone = _without_density(posterior)
    if cut_short(posterior.stats) and alone.verdict != REJECTED:
        findings = (CUT_SHORT, *alone.findings)
        alone = replace(alone, verdict=UNJUDGED, reason=CUT_SHORT, findings=findings)
    if reference is None:
        return alone
    return _with_reference(alone, posterior, reference)


def _of_average(average: Average, reference: Posterior | None) -> Diagnosis:
    """Return the worst of the diagnoses of the posteriors that take part in predictions."""
    import pandas as pd

    if reference is not None:
        do = "diagnose one of its posteriors, such as average[average.best]"
        raise NotApplicable("one posterior beside a reference", repr(average), do)
    weight_of = dict(zip(average.names, average.weights.tolist(), strict=True))
    used = sorted(average.used().items(), key=lambda pair: -weight_of[pair[0]])
    each = {name: diagnose(posterior) for name, posterior in used}
    order = (AGREES, SPREAD, UNJUDGED, REJECTED)
    decides = max(each, key=lambda name: order.index(each[name].verdict))
    found = each[decides]
    reason = found.reason
    if any(other.reason != reason for other in each.values()):
        reason = f"{decides}: {reason}"
    said: dict[str, list[str]] = {}
    for name, one in each.items():
        for finding in one.findings:
            said.setdefault(finding, []).append(name)
    findings = [
        finding if len(names) == len(each) else f"{', '.join(names)}: {finding}"
        for finding, names in said.items()
    ]
    total = sum(weight_of[name] for name in each)
    tables = []
    for name, one in each.items():
        tables.append(one.table.rename(index=f"{name}: {{}}".format))
        tables[-1].insert(0, "weight", weight_of[name] / total)
    table = pd.concat(tables)
    if all(posterior.shape == (1, 1) for _, posterior in used):  # one point has no spread
        table = pd.DataFrame(table, columns=["weight", "mean"])
    shapes = [one.k_hat for one in each.values() if one.k_hat is not None]
    own = [note for note in average.warnings if not note.endswith(tuple(f": {f}" for f in said))]
    notes = (*own, *findings)
    return Diagnosis(
        found.verdict,
        reason,
        tuple(dict.fromkeys(notes)),
        table,
        max(shapes, default=None),
    )


def _with_reference(alone: Diagnosis, posterior: Posterior, reference: Posterior) -> Diagnosis:
    """Return the worse of the diagnosis of a posterior alone and by a reference."""
    if not same_sites(posterior, reference):
        got = f"sites {sorted(reference.draws)}"
        raise NotApplicable("a reference of the same model", got, "pass one with the same sites")
    verdict = judge(Side(posterior), Side(reference))
    findings = (*alone.findings, f"beside the reference: {verdict.reason}")
    if verdict.word == UNJUDGED:
        return replace(alone, findings=findings)
    if alone.verdict != UNJUDGED and SEVERITY.index(alone.verdict) >= SEVERITY.index(verdict.word):
        return alone
    return replace(alone, verdict=verdict.word, reason=verdict.reason, findings=findings)


def _without_density(posterior: Posterior) -> Diagnosis:
    """Diagnose a posterior that has neither chains nor draws of known density."""
    table = posterior.summary()
    if posterior.certain:
        reason = "every hyperparameter is a number: nothing is uncertain"
        return Diagnosis(AGREES, reason, posterior.warnings, table)
    if type(posterior.how).__name__ == "Exact":
        return Diagnosis(AGREES, "draws of the posterior itself", posterior.warnings, table)
    if is_boosted(posterior):
        reason = "members of boosting are no draws of a posterior"
        return Diagnosis(UNJUDGED, reason, (*posterior.warnings, f"{reason}: {INSTEAD}"), table)
    reason = "draws whose density is not known cannot be weighed"
    if math.prod(posterior.shape) == 1:
        reason = "one point: it has no spread to judge"
    advice = "fit by Laplace, or by NUTS, and compare"
    return Diagnosis(UNJUDGED, reason, (*posterior.warnings, f"{reason}: {advice}"), table)


def _chains(posterior: Posterior) -> Diagnosis:
    """Diagnose chains by R-hat, effective sample sizes, divergences and energies."""
    table = posterior.summary()
    mix = mixing(posterior, table)
    findings = mix.complaints
    r_hat, _ = mix.r_hat
    bad = mix.stuck or r_hat > FAR_APART
    few, where = mix.least("tail")
    if few < ESS_PER_CHAIN * mix.chains:
        findings.append(
            f"the tail's effective sample size of {where} is {few:.0f} "
            f"(wanted {ESS_PER_CHAIN} per chain): raise draws before quoting tail quantiles"
        )
    diverging = posterior.stats.get("diverging")
    if isinstance(diverging, Tensor) and bool(diverging.any()):
        share = float(diverging.double().mean())
        bad = bad or share > MOST_DIVERGENT
        findings.append(
            f"{counted(int(diverging.sum()), 'divergence')} ({share:.1%}): the posterior is too "
            "curved for the step size somewhere and draws are missing there; raise target_accept, "
            "or reparametrise (a non-centred hierarchy)"
        )
    findings += _energy(posterior.stats.get("energy"), mix.draws)
    wider = why_uncorrected(posterior)
    if wider:
        findings.append(
            f"{wider}, and nothing corrects it: mixing does not show it; "
            "pass reference=, or fit by NUTS"
        )
    table["verdict"] = AGREES
    if mix.chains > 1:
        table["verdict"] = [_word(r) for r in table["r_hat"]]
    if bad:
        return Diagnosis(REJECTED, findings[0], tuple(findings), table)
    if wider:
        return Diagnosis(UNJUDGED, findings[-1], tuple(findings), table)
    if findings:
        word = UNJUDGED if mix.chains < 2 else SPREAD
        return Diagnosis(word, findings[0], tuple(findings), table)
    size, _ = mix.least("bulk")
    reason = f"R-hat at most {r_hat:.3f}, effective sample size at least {size:.0f}"
    return Diagnosis(AGREES, reason, (), table)


def _word(r_hat: float) -> str:
    """Return the verdict on one scalar; an R-hat of NaN means that it never moves."""
    if r_hat > FAR_APART:
        return REJECTED
    return SPREAD if r_hat > RHAT_LIMIT else AGREES


def _energy(energy: object, draws: int) -> list[str]:
    """Return a finding where a chain's energy fraction of missing information (E-BFMI) is low."""
    if not isinstance(energy, Tensor) or draws < 4:
        return []
    e = energy.double().cpu().numpy()
    if not (e.var(1) > 0).all():
        return []
    fraction = arviz().bfmi(e)
    if float(fraction.min()) >= EBFMI_LIMIT:
        return []
    return [
        f"E-BFMI {fraction.min():.2f} (wanted above {EBFMI_LIMIT}): momentum cannot reach the "
        "tails of the energy in one step; reparametrise, or use priors with lighter tails"
    ]


def _guide(posterior: Posterior) -> Diagnosis:
    """Diagnose draws of a guide by the importance weights that correct them."""
    import pandas as pd

    ratio = log_ratio(posterior)
    k, limit = k_hat(posterior), k_hat_limit(ratio.size)
    corrected = reweighted(posterior)
    rows, differences = {}, []
    for name, x in scalars(with_angles_as_points(posterior), posterior):
        difference = _against_weighted(name, x.ravel(), corrected[name])
        differences.append(difference)
        mean, sd, *_ = corrected[name]
        rows[name] = {
            "mean": float(x.mean()),
            "sd": float(x.std(ddof=1)),
            "psis_mean": mean,
            "psis_sd": sd,
            "shift": difference.shift,
            "ratio": difference.ratio,
            "verdict": difference.judged(2 * len(corrected))[0],
        }
    projections = _projections(posterior, ratio, corrected)
    table = pd.DataFrame(rows).T.infer_objects()
    findings = list(posterior.warnings)
    reason = (
        f"k-hat {k:.2f} (limit {limit:.2f} for {ratio.size} draws); "
        f"the weights move {_moved(ratio):.1%} of the probability"
    )
    if not math.isfinite(k) or k > limit:
        findings.append(
            f"{reason}: the weights that would correct this approximation are unreliable, so it is "
            "far from the posterior somewhere; use a richer guide, or NUTS"
        )
        return Diagnosis(REJECTED, reason, tuple(findings), table, k)
    word, which = worst(differences, projections)
    if word != AGREES:
        reason = f"{which}, the importance-weighted draws; {reason}"
        findings.append(
            f"{reason}: use the weighted moments (psis_mean, psis_sd), a richer guide, or NUTS"
        )
    return Diagnosis(word, reason, tuple(findings), table, k)


def _projections(
    posterior: Posterior, ratio: np.ndarray, corrected: dict[str, Moments]
) -> list[Difference]:
    """Return the differences in random directions, which differ from those of the scalars."""
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


def _against_weighted(name: str, x: np.ndarray, corrected: Moments) -> Difference:
    """Return the difference of a scalar as drawn from the same draws with weights."""
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
    """Return how much probability the weights move: their total variation from equal weights."""
    w = np.exp(ratio - ratio.max())
    return float(0.5 * np.abs(w / w.sum() - 1 / w.size).sum())
