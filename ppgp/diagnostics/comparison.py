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
from ..conformal.scores.base import check_score
from ..data.dataset import Dataset, in_order
from ..errors import DataError, DataWarning, NotApplicable, SettingError, UnknownName, an
from ..numerics.process_locks import silenced
from ..numerics.same_rows import same_rows
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.provenance import numbers
from ..posterior.region import Region, exact_level
from . import metrics
from .differences import Found, judge
from .leave_one_out import psis_loo
from .predictive_differences import PredictiveDifference, predictive_difference
from .references import Side, reference_of, same_sites
from .verdicts import CUT_SHORT, REFERENCE, UNJUDGED

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]

JOINT_MODE = "the joint mode of f and its hyperparameters is a poor fit: use SVI or NUTS, which integrate f out"
NO_REFERENCE = "no reference draws of this model: fit it by NUTS too"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What ``compare`` found.

    Attributes:
        latents: one row a posterior and scalar: ``difference`` of means in reference sds and ``ratio`` of sds, each with
            its Monte Carlo standard error; ``tail_5`` and ``tail_95``, the shares beyond the reference's 5 % and 95 % quantiles,
            with theirs; the distances ``kolmogorov`` (largest difference of shares of draws) and ``wasserstein`` (in reference sds),
            ``ess_per_second`` and ``verdict``.
        joint: one row a posterior and direction: the same figures of projections of all scalars, some drawn at random and the two
            in which sds differ most, and of the log density, where both posteriors recorded it.
        predictive: one row a posterior: rmse, nll, crps (accuracy, nll, brier for classes), coverage and width of the
            model's own interval and of the conformal one, seconds; ``predictive_shift`` from the reference's law (root mean square
            over rows, in its sds) and ``interval_content``, the share of that law in the posterior's own intervals; with ``loo`` also
            elpd_loo, its standard error, and the share of rows whose Pareto k is too large.
        verdicts: ``{name: word}``: "agrees", "means agree, spread does not", "do not use" (a mean is off, or not finite);
            "reference"; "unjudged" where there is none, too few draws on either side, or a search that Ctrl-C cut short. That of a posterior is that of its worst
            figure; where the two laws are the same it is "agrees" but for one time in a hundred at most, whatever their number.
        reasons: ``{name: sentence}``, the figure that says so, or what is missing.
        predictive_verdicts, predictive_reasons: the same on the predictions of test rows: whether they differ from the reference's by
            more than Monte Carlo error, by how much, and whether that matters for intervals.
        regions, predictions: of the test rows, by name, where there are any.
    """

    latents: pd.DataFrame
    predictive: pd.DataFrame
    verdicts: dict[str, str]
    reasons: dict[str, str]
    predictions: dict[str, Prediction] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    joint: pd.DataFrame | None = None
    predictive_verdicts: dict[str, str] = field(default_factory=dict)
    predictive_reasons: dict[str, str] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """One row a posterior: the predictive figures, seconds, verdict and reason; with test rows, those on ``predictions`` too."""
        table = self.predictive.copy()
        table["verdict"] = [self.verdicts[name] for name in table.index]
        table["reason"] = [self.reasons[name] for name in table.index]
        if self.predictive_verdicts:
            table["predictions"] = [self.predictive_verdicts[name] for name in table.index]
            table["predictions_reason"] = [self.predictive_reasons[name] for name in table.index]
        return table

    def __repr__(self) -> str:
        table = self.to_frame().drop(columns=["reason", "predictions_reason"], errors="ignore")
        return table.to_string(float_format=lambda v: f"{v:.4g}")


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

    Both sides need enough draws: chains R-hat of at most 1.01 and 100 effective draws each, other methods 400 draws; a point is
    judged on its means. Where they lack them, or Ctrl-C cut a search short, the word is "unjudged".

    Args:
        posteriors: by name. Sites are compared between posteriors of the same model.
        reference: whose draws are taken for the truth: a name, a Posterior, or None (for each model, the chains with most
            draws, those that have converged first; never those whose steps are not rejected: SGLD, SGHMC).
        test: rows to score predictions on, in the units of the data, that no fit has seen; where one has, a warning says so.
        calibration: rows that no fit has seen, other than those of ``test``, for conformal intervals at ``level``. Where they are not, a
            warning says so, and the regions' sentence is "heuristic".
        score: the conformal score; None: ``Normalized()``, or ``LAC()`` for classes.
        loo: whether to predict each training row from the others, by PSIS-LOO.

    Raises:
        SettingError: if there is nothing to compare, posteriors are not given by name, or level does not lie in (0, 1).
        DataError: if ``test`` or ``calibration`` is no Dataset.
        UnknownName: if ``reference`` is no name among the posteriors.
        NotApplicable: if a reference given by hand shares no site with any posterior.
    """
    import pandas as pd

    exact_level(level)
    _check_arguments(posteriors, reference, {"test": test, "calibration": calibration}, score)
    if isinstance(reference, str) and reference not in posteriors:
        raise UnknownName("reference", reference, posteriors)
    if isinstance(reference, Posterior) and not any(
        same_sites(p, reference) for p in posteriors.values()
    ):
        raise NotApplicable(
            "a reference of the same model",
            f"sites {sorted(reference.draws)}",
            "pass one with the same sites",
        )
    sides = {name: Side(posterior) for name, posterior in posteriors.items()}
    given = (
        Side(reference)
        if isinstance(reference, Posterior)
        else None
        if reference is None
        else sides[reference]
    )
    standards = {name: reference_of(side, sides.values(), given) for name, side in sides.items()}
    judged = {name: _judge(side, standards[name]) for name, side in sides.items()}
    figures: dict[str, dict[str, Any]] = {name: {} for name in sides}
    predictions, regions, second = {}, {}, {}
    if test is not None:
        for name, side in sides.items():
            figures[name], predictions[name], regions[name] = _predictive(
                side.posterior, test, calibration, level, score
            )
        doubt = None if calibration is None else _shared(test, calibration)
        seen = {name: _seen(predictions[name], test) for name in sides}
        regions = {
            name: _with_doubt(region, doubt or seen[name]) for name, region in regions.items()
        }
        for sentence in sorted({one for one in seen.values() if one}):
            named = ", ".join(name for name, one in seen.items() if one == sentence)
            warnings.warn(
                f"figures of {named} are not those of new rows: {sentence}",
                DataWarning,
                stacklevel=2,
            )
        for sentence in sorted(
            {
                r.guarantee
                for r in regions.values()
                if r is not None and r.guarantee.startswith("heuristic")
            }
        ):
            warnings.warn(
                f"conformal coverage is not that of new rows: {sentence}", DataWarning, stacklevel=2
            )
        laws = {id(side.posterior): predictions[name] for name, side in sides.items()}
        if given is not None and id(given.posterior) not in laws:
            laws[id(given.posterior)] = _predicted(given.posterior, [test])
        for name, side in sides.items():
            second[name] = _judge_predictions(side, standards[name], laws, level)
            figures[name] |= {
                "predictive_shift": second[name].shift,
                "interval_content": second[name].content,
            }
    for name, side in sides.items():
        figures[name] |= _left_out(side.posterior) if loo else {}
        figures[name] |= {"seconds": side.posterior.seconds}
    return Comparison(
        pd.DataFrame(
            [{"name": name, **row} for name, one in judged.items() for row in one.scalars]
        ),
        pd.DataFrame([{"name": name, **row} for name, row in figures.items()]).set_index("name"),
        {name: one.word for name, one in judged.items()},
        {name: _told(sides[name], one.reason) for name, one in judged.items()},
        predictions,
        {name: region for name, region in regions.items() if region},
        pd.DataFrame([{"name": name, **row} for name, one in judged.items() for row in one.joint]),
        {name: one.word for name, one in second.items()},
        {name: _told(sides[name], one.reason) for name, one in second.items()},
    )


def _check_arguments(
    posteriors: Any, reference: Any, tables: Mapping[str, Any], score: Any
) -> None:
    """Refuse what is of another type than ``compare`` takes."""
    do = "pass {name: posterior}, such as {'nuts': posterior}"
    if not isinstance(posteriors, Mapping):
        raise SettingError("posteriors by name", an(type(posteriors).__name__), do)
    if not posteriors:
        raise SettingError("at least one posterior to compare", "none", do)
    for name, posterior in posteriors.items():
        if not isinstance(posterior, Posterior):
            raise SettingError(
                "posteriors by name", f"{an(type(posterior).__name__)} as {name!r}", do
            )
    if not (reference is None or isinstance(reference, str | Posterior)):
        raise SettingError(
            "a name, a Posterior or None as reference",
            an(type(reference).__name__),
            "pass one of those",
        )
    for name, table in tables.items():
        if not (table is None or isinstance(table, Dataset)):
            raise DataError(f"a Dataset as {name}", an(type(table).__name__), "pass Dataset(X, y)")
    if score is not None:
        check_score(score)


def _with_doubt(region: Region | None, doubt: str | None) -> Region | None:
    """The sets, and in place of their guarantee the doubt, where there is one."""
    if doubt is None or region is None:
        return region
    return replace(region, guarantee=f"heuristic: {doubt}")


def _seen(prediction: Prediction, test: Dataset) -> str | None:
    """What is said of test rows that the fit has seen."""
    count = int(prediction.in_training_with(test.y).sum())
    return f"{count} of {test.n} test rows were also used in the fit" if count else None


def _shared(test: Dataset, calibration: Dataset) -> str | None:
    """What makes rows of the two tables not exchangeable: that they are the same, or the noise of one table alone is known."""
    rows = in_order(test, calibration.feature_names)
    if rows.shape[1] == calibration.d:
        old, new = (
            np.column_stack([numbers(a), numbers(b)])
            for a, b in ((calibration.X, calibration.y), (rows, test.y))
        )
        same = int(same_rows(old, new).sum())
        if same:
            return f"{same} of {test.n} test rows are calibration rows"
    if (test.noise_sd is None) != (calibration.noise_sd is None):
        return "the noise of the test rows or of the calibration rows is known, not of both"
    return None


def _told(side: Side, reason: str) -> str:
    """The reason, and what speaks against the method itself."""
    return f"{reason}; {JOINT_MODE}" if side.posterior.stats.get("joint_mode") else reason


def _judge(own: Side, standard: Side | None) -> Found:
    if not own.posterior.draws:
        return Found(UNJUDGED, "every hyperparameter is a number, or a param: no draws to judge")
    if standard is None:
        return Found(UNJUDGED, NO_REFERENCE)
    if standard.posterior is own.posterior and own.cut_short:
        return Found(UNJUDGED, CUT_SHORT)
    if standard.posterior is own.posterior:
        trouble = "; ".join(dict.fromkeys([*own.posterior.warnings, *own.lacks_as_reference]))
        return Found(REFERENCE, f"but: {trouble}" if trouble else "chains converged")
    return judge(own, standard)


def _judge_predictions(
    own: Side, standard: Side | None, laws: Mapping[int, Prediction], level: float
) -> PredictiveDifference:
    """``laws``: the predictions of each posterior at the same rows, by ``id``."""
    if standard is None:
        return PredictiveDifference(UNJUDGED, NO_REFERENCE)
    if standard.posterior is own.posterior and own.cut_short:
        return PredictiveDifference(UNJUDGED, CUT_SHORT)
    if standard.posterior is own.posterior:
        return PredictiveDifference(REFERENCE, "")
    missing = own.missing(standard)
    if missing:
        return PredictiveDifference(UNJUDGED, missing)
    ours, theirs = (laws[id(side.posterior)] for side in (own, standard))
    return predictive_difference(
        ours, theirs, level, (own.efficiency * ours.draws, standard.efficiency * theirs.draws)
    )


def _left_out(posterior: Posterior) -> dict[str, float]:
    """NaN where the method has no spread to weigh."""
    try:
        found = psis_loo(posterior)
    except NotApplicable:
        return {"elpd_loo": math.nan, "elpd_loo_se": math.nan, "loo_k_too_large": math.nan}
    return {
        "elpd_loo": found.elpd,
        "elpd_loo_se": found.se,
        "loo_k_too_large": float((found.k > found.limit).mean()),
    }


def _predictive(
    posterior: Posterior,
    test: Dataset,
    calibration: Dataset | None,
    level: float,
    score: Score | None,
) -> tuple[dict[str, float], Prediction, Region | None]:
    """Figures on the test rows; one prediction serves both tables, as most of its cost does not depend on the rows."""
    both = _predicted(posterior, [test] if calibration is None else [test, calibration])
    prediction = both[: test.n]
    classes = prediction.kind == "classes"
    if classes:
        figures = {
            "accuracy": metrics.accuracy(prediction, test.y),
            "nll": metrics.nll(prediction, test.y),
        }
        figures["brier"] = metrics.brier(prediction, test.y)
    else:
        own = prediction.interval(level)
        figures = {"rmse": metrics.rmse(prediction, test.y), "nll": metrics.nll(prediction, test.y)}
        figures |= {"crps": metrics.mean_crps(prediction, test.y)}
        figures |= {"coverage": metrics.coverage(own, test.y), "width": metrics.mean_width(own)}
    if calibration is None:
        return figures, prediction, None
    with silenced(DataWarning):  # said of all posteriors at once, in ``compare``
        calibrator: Calibrator = calibrate(
            score or (LAC() if classes else Normalized()), both[test.n :], calibration.y
        )
    region = calibrator(prediction, level=level)
    figures |= {
        "conformal_coverage": metrics.coverage(region, test.y),
        "conformal_width": metrics.mean_width(region),
    }
    return figures, prediction, region


def _predicted(posterior: Posterior, parts: list[Dataset]) -> Prediction:
    """The law of y at all their rows, with the noise that is known of them."""
    known: dict[str, Any] = {}
    if any(part.noise_sd is not None for part in parts) and posterior.model.known_noise:
        sds = [
            part.y.new_zeros(part.n) if part.noise_sd is None else part.noise_sd for part in parts
        ]
        known = {"noise_sd": torch.cat(sds)}
    return posterior.predict(
        torch.cat([in_order(part, posterior.data.feature_names) for part in parts]), **known
    )
