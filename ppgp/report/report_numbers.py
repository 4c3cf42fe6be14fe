"""The tables of numbers of the report: ranking, errors, coverage, convergence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor

from ..diagnostics.comparison import Comparison
from ..diagnostics.diagnosis import k_hat, log_ratio
from ..diagnostics.predictive_metrics import BAND_CONFIDENCE
from ..diagnostics.ranking import AS_GOOD, BEST, ERRORS, NOT_RANKED, SMALL, WORSE
from ..errors import NotApplicable, counted
from ..posterior.averaging import Average
from ..posterior.convergence import ESS_PER_CHAIN, RHAT_LIMIT, mixing
from ..posterior.posterior import Posterior
from ..posterior.sample_statistics import k_hat_limit
from .report_html import BAD, FAIR, GOOD, PLAIN, Cell, answer, note, number, section, table, text

__all__ = ["convergence_section", "coverage_section", "errors_section", "ranking_section"]

#: conclusion of the ranking -> (answer, colour)
CONCLUSIONS = {
    BEST: ("best", GOOD),
    AS_GOOD: (AS_GOOD, GOOD),
    WORSE: ("worse", BAD),
    NOT_RANKED: ("not ranked", PLAIN),
}
#: column of the comparison -> its heading
ERRORS_OF_PREDICTIONS = {
    "rmse": "RMSE",
    "accuracy": "Accuracy",
    "nll": "NLL",
    "crps": "CRPS",
    "brier": "Brier score",
    "predictive_shift": "Shift from the reference",
    "interval_content": "Content of its intervals",
}


def ranking_section(comparison: Comparison, n_test: int) -> str:
    """Return the section with the ranking of different models.

    Args:
        comparison: The comparison.
        n_test: The number of test rows.
    """
    title = "Ranking of the models"
    if comparison.ranking is None:
        why = "All posteriors are of one model: there is nothing to rank."
        if comparison.not_ranked:
            why = f"The models are not ranked: {comparison.not_ranked}."
        return section(title, note(why))
    headings = ["Posterior", "elpd", "Difference from the best", "Weight", "Conclusion"]
    rows = [_ranked(str(name), row) for name, row in comparison.ranking.iterrows()]
    return section(
        title,
        table(headings, rows),
        note(
            f"elpd: the sum of the log predictive densities of the {n_test} test rows; larger is "
            "better. Difference: from the best, ± its standard error, over rows paired with those "
            "of the best. A posterior is as good as the best where the difference is at most "
            f"{SMALL:g} nats, or at most {ERRORS:g} standard errors. Weight: of stacking, in the "
            "mixture that predicts these rows best; alike posteriors share a weight in any "
            "proportion."
        ),
    )


def _ranked(name: str, row: Any) -> list[Cell]:
    """Return the cells of one row of the ranking."""
    difference, error = float(row["elpd_difference"]), float(row["elpd_difference_se"])
    shown = None
    if not math.isnan(difference):
        shown = f"{difference:.2f}"
        if not math.isnan(error):
            shown += f" ± {error:.2f}"
    words, tone = CONCLUSIONS[row["ranking"]]
    return [
        text(name),
        number(float(row["elpd"]), _decimals(float(row["elpd"]), 2)),
        number(difference, shown),
        number(float(row["weight"]), _decimals(float(row["weight"]), 2)),
        answer(words, tone, rank=list(CONCLUSIONS).index(row["ranking"])),
    ]


def _decimals(value: float, places: int) -> str:
    """Return a number with so many decimals; "" for NaN."""
    return "" if math.isnan(value) else f"{value:.{places}f}"


def errors_section(comparison: Comparison, names: Sequence[str]) -> str:
    """Return the section with the errors of the predictions of the test rows.

    Args:
        comparison: The comparison.
        names: The posteriors, in the order of the rows.
    """
    found: Any = comparison.predictive
    columns = [
        column
        for column in ERRORS_OF_PREDICTIONS
        if column in found.columns and found[column].notna().any()
    ]
    headings = ["Posterior", *(ERRORS_OF_PREDICTIONS[column] for column in columns)]
    rows = [
        [text(name), *(number(float(found[column][name])) for column in columns)] for name in names
    ]
    words = (
        "NLL: mean negative log predictive density; like RMSE, CRPS and the Brier score, smaller "
        "is better. RMSE and CRPS are in the unit of the target."
    )
    if "predictive_shift" in columns:
        words += (
            " Shift: root mean square, over rows, of the difference of the means, in predictive "
            "sds of the reference. Content: the probability that the reference gives to the "
            "intervals of the posterior; it is their level where the two agree."
        )
    return section("Errors on the test rows", table(headings, rows), note(words))


def coverage_section(
    comparison: Comparison, names: Sequence[str], n_test: int, level: float
) -> str:
    """Return the section with the coverage of the intervals or label sets of the test rows.

    Args:
        comparison: The comparison.
        names: The posteriors, in the order of the rows.
        n_test: The number of test rows.
        level: The nominal coverage.
    """
    found: Any = comparison.predictive
    own = "coverage" in found.columns
    calibrated = "conformal_coverage" in found.columns
    if not own and not calibrated:
        return ""
    headings = ["Posterior"]
    if own:
        headings += ["Coverage of its own intervals", "Width of its own intervals"]
    if calibrated:
        headings += ["Conformal coverage", f"Band for {n_test} test rows", "Conformal width"]
    rows = []
    for name in names:
        cells = [text(name)]
        if own:
            cells += [_share(found["coverage"][name]), number(float(found["width"][name]))]
        if calibrated:
            cells += _conformal(comparison, name)
        rows.append(cells)
    title = f"Coverage of the test rows (level {level:g})"
    about = "Own intervals: the central ones of the predictive distribution."
    if own:
        about += " Width: the mean over the test rows, in the unit of the target."
    words = [note(about)]
    if calibrated:
        words += [note(sentence) for sentence in _about_the_band(comparison, n_test, level)]
    return section(title, table(headings, rows), *words)


def _conformal(comparison: Comparison, name: str) -> list[Cell]:
    """Return the conformal coverage of one posterior, its band, and the width of its sets."""
    found: Any = comparison.predictive
    covered = float(found["conformal_coverage"][name])
    band = comparison.coverage_bands.get(name)
    width = number(float(found["conformal_width"][name]))
    if band is None:
        return [_share(covered), number(math.nan, "not known"), width]
    low, high = band
    tone = GOOD if low <= covered <= high else FAIR
    place = "inside" if tone == GOOD else "outside"
    return [_share(covered, tone), number(low, f"{low:.3f} to {high:.3f}, {place}"), width]


def _share(value: Any, tone: str = PLAIN) -> Cell:
    """Return the cell of a share of rows."""
    return number(float(value), _decimals(float(value), 3), tone)


def _about_the_band(comparison: Comparison, n_test: int, level: float) -> list[str]:
    """Return what the band of the conformal coverage is."""
    sizes = {region.n_calibration for region in comparison.regions.values()}
    calibration = " or ".join(str(size) for size in sorted(filter(None, sizes)))
    sentences = [
        f"Band: the share of {n_test} test rows in their conformal sets is random, even where the "
        f"guarantee of {level:g} holds exactly: with n = {calibration} calibration rows the number "
        f"of covered rows is beta-binomial, with {n_test} trials and the parameters k and "
        f"n + 1 - k, where k = ceil((n + 1) {level:g}) is the rank of the score that is the "
        f"threshold. The band is its central {BAND_CONFIDENCE:.0%}. For independent rows of one "
        "distribution a coverage lies outside it at most once in ten draws of both sets of rows; "
        "otherwise the rows may not be exchangeable. All posteriors are measured on the same rows, "
        "so that their coverages are not independent."
    ]
    if any(name not in comparison.coverage_bands for name in comparison.regions):
        sentences.append(
            "The band is not known where scores repeat, where a score has two sides, or where the "
            "guarantee is heuristic."
        )
    return sentences


def convergence_section(
    posteriors: Mapping[str, Posterior | Average],
    pairs: Mapping[str, tuple[str, str]],
    names: Sequence[str],
) -> str:
    """Return the section with the convergence statistics of each posterior.

    Args:
        posteriors: The posteriors by name.
        pairs: The pair ``(model, method)`` of each, shown where its name does not say it.
        names: Their names, in the order of the rows.
    """
    headings = ["Posterior", "Draws", "Largest R-hat", "Least bulk ESS", "Least tail ESS"]
    headings += ["Divergences", "k-hat", "Seconds"]
    rows = [_diagnosed(name, posteriors[name]) for name in names]
    if any(name != " ".join(pairs[name]) for name in names):
        headings.insert(1, "Model and method")
        for name, cells in zip(names, rows, strict=True):
            cells.insert(1, text(" by ".join(pairs[name])))
    return section(
        "Convergence of each posterior by itself",
        table(headings, rows),
        note(
            f"Markov chains: R-hat at most {RHAT_LIMIT}, an effective sample size (ESS) of at "
            f"least {ESS_PER_CHAIN} per chain, and no divergences are wanted. Draws of a density "
            "that is known (Laplace, variational inference): k-hat is the Pareto shape of their "
            "importance weights, and is wanted below the limit beside it. A point has none of "
            "these. Numbers beyond a limit are marked."
        ),
    )


def _diagnosed(name: str, posterior: Posterior | Average) -> list[Cell]:
    """Return the convergence statistics of one posterior; an average has none of its own."""
    if isinstance(posterior, Average):
        size = number(float(len(posterior)), f"{len(posterior)} models averaged")
        return [text(name), size, *[number(None)] * 5, number(posterior.seconds)]
    cells = [text(name), _size(posterior)]
    if posterior.mcmc:
        mix = mixing(posterior)
        r_hat, where = mix.r_hat
        wanted = ESS_PER_CHAIN * mix.chains
        cells.append(_statistic(r_hat, f"{r_hat:.3f}", r_hat > RHAT_LIMIT, where))
        for kind in ("bulk", "tail"):
            size, where = mix.least(kind)
            cells.append(_statistic(size, f"{size:.0f}", size < wanted, where))
    else:
        cells += [number(None)] * 3
    return [*cells, _divergences(posterior), _weights(posterior), number(posterior.seconds)]


def _size(posterior: Posterior) -> Cell:
    """Return the cell of the numbers of chains and draws."""
    chains, draws = posterior.shape
    if chains * draws == 1:
        return number(1.0, "a point")
    if posterior.mcmc:
        return number(float(chains * draws), f"{counted(chains, 'chain')} of {draws}")
    return number(float(chains * draws))


def _statistic(value: float, shown: str, beyond: bool, where: str) -> Cell:
    """Return the cell of a statistic of chains, with the scalar where it is worst."""
    if math.isnan(value):
        return number(None)
    if beyond:
        return number(value, shown, BAD, below=f"of {where}")
    return number(value, shown)


def _divergences(posterior: Posterior) -> Cell:
    """Return the cell of the number of divergent transitions."""
    diverging = posterior.stats.get("diverging")
    if not isinstance(diverging, Tensor):
        return number(None)
    count = int(diverging.sum())
    if count:
        return number(float(count), f"{count} ({count / diverging.numel():.1%})", BAD)
    return number(0.0, "0")


def _weights(posterior: Posterior) -> Cell:
    """Return the cell of the k-hat of the importance weights, with its limit."""
    draws = math.prod(posterior.shape)
    with suppress(NotApplicable):
        if draws > 1 and not posterior.mcmc:
            if not np.isfinite(log_ratio(posterior)).all():
                return number(math.inf, "not finite", BAD)
            k, limit = k_hat(posterior), k_hat_limit(draws)
            if k > limit:
                return number(k, f"{k:.2f} (limit {limit:.2f})", BAD)
            return number(k, f"{k:.2f} (limit {limit:.2f})")
    return number(None)
