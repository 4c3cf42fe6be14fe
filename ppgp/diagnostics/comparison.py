"""compare: the same latents under several inferences, their predictions on test rows, and a verdict on each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..conformal import LAC, Calibrator, Normalized, Score, calibrate
from ..data.dataset import Dataset, in_order
from ..errors import DataWarning, NotApplicable, SettingError, UnknownName
from ..numerics.same_rows import same_rows
from ..posterior import convergence as diagnostics
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.provenance import numbers
from ..posterior.region import Region, exact_level
from . import metrics
from .leave_one_out import psis_loo
from .verdicts import REJECTED, Difference, worst

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]

FEW = 20  # effective draws: from fewer, a standard error is itself a guess


@dataclass(frozen=True, eq=False)
class Comparison:
    """What ``compare`` found.

    Attributes:
        latents: one row a posterior and scalar: ``difference`` of means in reference sds and ``ratio`` of sds, each with
            its Monte Carlo standard error; ``tail_5`` and ``tail_95``, the shares beyond the reference's 5 % and 95 % quantiles,
            with theirs; ``wasserstein`` in reference sds, ``ess_per_second`` and ``verdict``.
        predictive: one row a posterior: rmse, nll, crps (accuracy, nll, brier for classes), coverage and width of the
            model's own interval and of the conformal one, seconds; with ``loo`` also elpd_loo, its standard error, and the share of
            rows whose Pareto k is too large.
        verdicts: ``{name: word}``: "agrees", "means agree, spread does not", "do not use" (a mean is off, or not finite);
            "reference"; "unjudged" where there is none. That of a posterior is that of its worst scalar.
        reasons: ``{name: sentence}``, the figure that says so.
        regions, predictions: of the test rows, by name, where there are any.
    """

    latents: pd.DataFrame
    predictive: pd.DataFrame
    verdicts: dict[str, str]
    reasons: dict[str, str]
    predictions: dict[str, Prediction] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """One row a posterior: the predictive figures, seconds, verdict and reason."""
        table = self.predictive.copy()
        table["verdict"] = [self.verdicts[name] for name in table.index]
        table["reason"] = [self.reasons[name] for name in table.index]
        return table

    def __repr__(self) -> str:
        return self.to_frame().drop(columns="reason").to_string(float_format=lambda v: f"{v:.4g}")


def compare(
    posteriors: Mapping[str, Posterior],
    reference: str | Posterior | None = None,
    *,
    test: Dataset | None = None,
    calibration: Dataset | None = None,
    level: float = 0.9,
    score: Score | None = None,
    loo: bool = False,
) -> Comparison:
    """Compare posteriors with a reference and, where there are test rows, their predictions.

    Args:
        posteriors: by name. Sites are compared between posteriors of the same model.
        reference: whose draws are taken for the truth: a name, a Posterior, or None (for each model, its NUTS
            posterior with most draws).
        test: rows to score predictions on, in the units of the data.
        calibration: rows that no fit has seen, other than those of ``test``, for conformal intervals at ``level``. Where they are not, a
            warning says so, and the regions' sentence is "heuristic".
        score: the conformal score; None: ``Normalized()``, or ``LAC()`` for classes.
        loo: whether to predict each training row from the others, by PSIS-LOO.

    Raises:
        SettingError: if there is nothing to compare, or level does not lie in (0, 1).
        UnknownName: if ``reference`` is no name among the posteriors.
        NotApplicable: if a reference given by hand shares no site with any posterior.
    """
    exact_level(level)
    if not posteriors:
        raise SettingError("at least one posterior to compare", "none", "pass {name: posterior}")
    if isinstance(reference, str) and reference not in posteriors:
        raise UnknownName("reference", reference, posteriors)
    if isinstance(reference, Posterior) and not any(_same_sites(p, reference) for p in posteriors.values()):
        raise NotApplicable("a reference of the same model", f"sites {sorted(reference.draws)}", "pass one with the same sites")
    latent_rows: list[dict[str, Any]] = []
    verdicts: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, posterior in posteriors.items():
        standard = _reference_of(posterior, posteriors, reference)
        rows, verdicts[name], reasons[name] = _judge(name, posterior, standard)
        latent_rows += rows
    rows, predictions, regions = [], {}, {}
    doubt = None if test is None or calibration is None else _shared(test, calibration)
    for name, posterior in posteriors.items():
        row: dict[str, Any] = {"name": name}
        if test is not None:
            figures, predictions[name], regions[name] = _predictive(posterior, test, calibration, level, score)
            row |= figures
            region = regions[name]
            if doubt is not None and region is not None:
                regions[name] = replace(region, guarantee=f"heuristic: {doubt}")
        if loo:
            row |= _left_out(posterior)
        rows.append(row | {"seconds": posterior.seconds})
    found = {r.guarantee for r in regions.values() if r is not None and r.guarantee.startswith("heuristic")}
    for sentence in sorted(found):
        warnings.warn(f"conformal coverage is not that of new rows: {sentence}", DataWarning, stacklevel=2)
    import pandas as pd

    predictive = pd.DataFrame(rows).set_index("name")
    return Comparison(
        pd.DataFrame(latent_rows), predictive, verdicts, reasons, predictions, {k: r for k, r in regions.items() if r}
    )


def _shared(test: Dataset, calibration: Dataset) -> str | None:
    """What makes rows of the two tables not exchangeable: that they are the same, or the noise of one table alone is known."""
    rows = in_order(test, calibration.feature_names)
    if rows.shape[1] == calibration.d:
        old, new = (np.column_stack([numbers(a), numbers(b)]) for a, b in ((calibration.X, calibration.y), (rows, test.y)))
        same = int(same_rows(old, new).sum())
        if same:
            return f"{same} of {test.n} test rows are calibration rows"
    if (test.noise_sd is None) != (calibration.noise_sd is None):
        return "the noise of the test rows or of the calibration rows is known, not of both"
    return None


def _same_model(a: Posterior, b: Posterior) -> bool:
    return _same_sites(a, b) and a.model == b.model and _same_data(a.data, b.data)


def _same_sites(a: Posterior, b: Posterior) -> bool:
    shapes = ({k: v.shape[2:] for k, v in p.draws.items()} for p in (a, b))
    return type(a.model) is type(b.model) and next(shapes) == next(shapes)


def _same_data(a: Any, b: Any) -> bool:
    if isinstance(a, Dataset) and isinstance(b, Dataset):
        tables = [tuple(t for t in (d.X, d.y, d.noise_sd) if t is not None) for d in (a, b)]
        return len(tables[0]) == len(tables[1]) and all(
            x.shape == y.shape and bool((x == y).all()) for x, y in zip(*tables, strict=True)
        )
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(np.array_equal(np.asarray(a[k]), np.asarray(b[k])) for k in a)
    return a is b


def _reference_of(
    posterior: Posterior, posteriors: Mapping[str, Posterior], reference: str | Posterior | None
) -> Posterior | None:
    if isinstance(reference, Posterior):
        candidates = [reference]
    elif isinstance(reference, str):
        candidates = [posteriors[reference]]
    else:
        chains = [p for p in posteriors.values() if p.mcmc]
        candidates = sorted(chains, key=lambda p: -next(iter(p.draws.values()))[..., None].shape[:2].numel())
    by_hand = reference is not None  # a reference that was named is taken at its word
    return next((p for p in candidates if (_same_sites if by_hand else _same_model)(posterior, p)), None)


def _judge(name: str, posterior: Posterior, standard: Posterior | None) -> tuple[list[dict[str, Any]], str, str]:
    if posterior.certain:
        return [], "unjudged", "every hyperparameter is a number: no draws to judge"
    if standard is None:
        return [], "unjudged", "no reference draws of this model: fit it by NUTS too"
    if standard is posterior:
        trouble = "; ".join(posterior.warnings)
        return [], "reference", f"but: {trouble}" if trouble else "chains converged"
    if not all(bool(np.isfinite(x).all()) for _, x in diagnostics.scalars(posterior.draws)):
        return [], REJECTED, "its draws are not finite"
    size, where = _shortest(standard)
    if size < FEW:
        return [], "unjudged", f"the reference has {size:.0f} effective draws of {where}, too few to judge by: run it longer"
    rows = [
        _scalar(name, site, x, y, posterior, standard)
        for (site, x), (_, y) in zip(_ordered(posterior, standard), _ordered(standard, standard), strict=True)
        if np.ptp(y) > 0  # a deterministic constant of a program has no sd to measure by
    ]
    if not rows:
        return [], "unjudged", "nothing varies in the reference draws"
    word, reason = worst([row.pop("judged") for row in rows])
    if standard.warnings and word != REJECTED:
        reason += " (the reference has warnings of its own)"
    return rows, word, reason


def _shortest(standard: Posterior) -> tuple[float, str]:
    """The smallest effective number of draws of a scalar, and which it is; chains too short to tell have none."""
    sizes = []
    for site, y in diagnostics.scalars(standard.draws):
        if np.ptp(y) > 0:
            size = y.size if not standard.mcmc else diagnostics.ess(y) if y.shape[-1] >= 4 else 0.0
            sizes.append((float(np.nan_to_num(size)), site))
    return min(sizes, default=(math.inf, ""))


def _ordered(posterior: Posterior, order: Posterior) -> list[tuple[str, np.ndarray]]:
    return list(diagnostics.scalars({k: posterior.draws[k] for k in order.draws}))


def _scalar(name: str, site: str, x: np.ndarray, y: np.ndarray, posterior: Posterior, standard: Posterior) -> dict[str, Any]:
    """One scalar under the approximation (x) and the reference (y), differences in sds of the reference."""
    sd = float(y.std(ddof=1))
    point = x.size == 1
    shift = (float(x.mean()) - float(y.mean())) / sd
    spread = 0.0 if point else float(x.std(ddof=1)) / sd
    errors = {}
    for quantity in ("mean", "sd"):
        own = 0.0 if point else diagnostics.mcse(x, quantity, independent=not posterior.mcmc)
        errors[quantity] = math.hypot(own, diagnostics.mcse(y, quantity, independent=not standard.mcmc)) / sd
    size = x.size if not posterior.mcmc else diagnostics.ess(x)
    low, high = np.quantile(y, [0.05, 0.95])
    tails = float((x < low).mean()), float((x > high).mean())
    theirs = y.size if not standard.mcmc else diagnostics.ess(y)
    tail_error = math.sqrt(0.05 * 0.95 * (1 / max(size, 1.0) + 1 / max(theirs, 1.0)))
    judged = Difference(site, shift, errors["mean"], spread, errors["sd"], None if point else tails, tail_error)
    return {
        "name": name,
        "site": site,
        "mean": float(x.mean()),
        "reference_mean": float(y.mean()),
        "difference": shift,
        "difference_error": errors["mean"],
        "ratio": spread,
        "ratio_error": errors["sd"],
        "tail_5": tails[0],
        "tail_95": tails[1],
        "tail_error": tail_error,
        "wasserstein": diagnostics.wasserstein(x, y) / sd,
        "ess_per_second": float("nan") if point else size / max(posterior.seconds, 1e-9),
        "verdict": judged.verdict,
        "judged": judged,
    }


def _left_out(posterior: Posterior) -> dict[str, float]:
    """NaN where the method has no spread to weigh."""
    try:
        found = psis_loo(posterior)
    except NotApplicable:
        return {"elpd_loo": math.nan, "elpd_loo_se": math.nan, "loo_k_too_large": math.nan}
    return {"elpd_loo": found.elpd, "elpd_loo_se": found.se, "loo_k_too_large": float((found.k > found.limit).mean())}


def _predictive(
    posterior: Posterior, test: Dataset, calibration: Dataset | None, level: float, score: Score | None
) -> tuple[dict[str, float], Prediction, Region | None]:
    """Figures on the test rows; one prediction serves both tables, as most of its cost does not depend on the rows."""
    parts = [test] if calibration is None else [test, calibration]
    known: dict[str, Any] = {}
    if any(part.noise_sd is not None for part in parts) and getattr(posterior.model, "known_noise", False):
        sds = [part.y.new_zeros(part.n) if part.noise_sd is None else part.noise_sd for part in parts]
        known = {"noise_sd": torch.cat(sds)}
    both = posterior.predict(torch.cat([in_order(part, posterior.data.feature_names) for part in parts]), **known)
    prediction = both[: test.n]
    classes = prediction.kind == "classes"
    if classes:
        figures = {"accuracy": metrics.accuracy(prediction, test.y), "nll": metrics.nll(prediction, test.y)}
        figures["brier"] = metrics.brier(prediction, test.y)
    else:
        own = prediction.interval(level)
        figures = {"rmse": metrics.rmse(prediction, test.y), "nll": metrics.nll(prediction, test.y)}
        figures |= {"crps": metrics.mean_crps(prediction, test.y)}
        figures |= {"coverage": metrics.coverage(own, test.y), "width": metrics.mean_width(own)}
    if calibration is None:
        return figures, prediction, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said of all posteriors at once, in ``compare``
        calibrator: Calibrator = calibrate(score or (LAC() if classes else Normalized()), both[test.n :], calibration.y)
    region = calibrator(prediction, level=level)
    figures |= {"conformal_coverage": metrics.coverage(region, test.y), "conformal_width": metrics.mean_width(region)}
    return figures, prediction, region
