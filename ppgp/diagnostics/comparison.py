"""Compare posteriors: the same sites under several inferences, and a verdict on each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..conformal import Score
from ..conformal.scores.base import not_a_score
from ..data.dataset import Dataset
from ..data.new_rows import in_order
from ..display import tables as html
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, NotApplicable, SettingError, UnknownName, an
from ..posterior.averaging import Average
from ..posterior.multi import MultiPosterior
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..provenance.provenance import numbers, same_rows
from ..runtime.levels import exact_level
from .choice_of_reference import Side, reference_of, same_data, same_model, same_sites
from .judging import judge
from .leave_one_out import LOO, leave_one_out
from .predictive_differences import PredictiveDifference, predictive_difference
from .predictive_metrics import PredictiveMetrics, predicted, predictive_metrics, with_heuristic
from .ranking import ranking_of
from .stacking import same_targets
from .verdicts import CUT_SHORT, REFERENCE, UNJUDGED, Verdict

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]

POOR_AT_THE_JOINT_MODE = (
    "the joint mode of f and its hyperparameters is a poor fit: "
    "use SVI or NUTS, which integrate f out"
)
NO_REFERENCE = "no reference draws of this model: fit it by NUTS too"
OTHER_ROWS = "the training rows differ: fit all models to the same rows, or pass test="
OTHER_KINDS = "densities and probabilities of y are not comparable, and some models take y as {}"
REFERENCE_OF_OTHER_ROWS = "the reference was fitted to other rows"
LEFT_OUT_BY_FEW = "fewer than two have leave-one-out densities, of which test= needs none"
SHOWN = 20  # rows that a notebook shows
REASONS = ["reason", "predictions_reason"]  # columns that become sentences there
OF_AVERAGE = "an average of several models: ppgp.diagnose judges each of them"
NO_DRAWS = "every hyperparameter is a number, or a param: no draws to judge"


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of ``compare``.

    Densities are in nats, rmse, crps and widths in the units of y, and times in seconds. The
    scalars of a posterior are those of its draws [chain, draw, *event].

    Attributes:
        sites: One row per posterior and scalar: ``difference`` of means in reference sds and
            ``ratio`` of sds, each with its Monte Carlo standard error; ``tail_5`` and ``tail_95``,
            the shares beyond the reference's 5 % and 95 % quantiles, with theirs; the distances
            ``kolmogorov`` (largest difference of shares of draws) and ``wasserstein`` (in reference
            sds); ``ess_per_second`` and ``verdict``.
        joint: One row per posterior and direction: the same columns for projections of all scalars,
            some drawn at random and the two in which sds differ most, and of the log density, where
            both posteriors recorded it.
        predictive: One row per posterior: rmse, nll, crps (accuracy, nll, brier for classes),
            coverage and width of the model's own interval and of the conformal one, seconds;
            ``predictive_shift`` from the reference's predictive distribution (root mean square over
            rows, in its sds) and ``interval_content``, the probability that this distribution gives
            to the posterior's own intervals; with ``loo`` also elpd_loo, its standard error, and
            the share of rows whose Pareto k is too large.
        ranking: One row per posterior, the best first, where models or rows differ; else None.
            ``elpd`` is the sum of the log densities of the test rows or, without these, of the
            training rows from the others; ``elpd_difference`` from the best and its standard error
            ``elpd_difference_se``; ``weight`` in the mixture that predicts best
            (``stacking_weights``); ``ranking``: "best", "as good as the best" (the difference is at
            most 4 nats, or two standard errors; Sivula, Magnusson, Matamoros & Vehtari 2020) or
            "worse", and "not ranked" without densities.
        not_ranked: Why different models, or fits to different rows, have no ranking, which
            ``print`` shows too; else "".
        verdicts: ``{name: word}``: "agrees"; "means agree, spread does not"; "do not use" (a mean
            is off, or not finite); "reference"; "unjudged" where there is no reference, there are
            too few draws on either side, or Ctrl-C stopped the fit. The verdict on a posterior is
            that by its worst difference. Where the two distributions are the same it is other than
            "agrees" with probability 0.01 at most, however many comparisons are made.
        reasons: ``{name: sentence}``, the difference that decides, or what is missing.
        predictive_verdicts: ``{name: word}``, the same for the predictions of test rows: whether
            they differ from the reference's by more than Monte Carlo error, by how much, and
            whether that matters for intervals.
        predictive_reasons: ``{name: sentence}``, the differences behind them.
        regions: The conformal sets of the test rows, by name, where there are calibration rows.
        predictions: Of the test rows, by name, where there are any.
        coverage_bands: ``{name: (low, high)}``, where the conformal coverage of the test rows lies
            with probability 0.9 (``Calibrator.coverage_band``), for regions of which it is known.

    Examples:
        A line and a constant, ranked by the densities of test rows that lie along a line:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> train, test = data.split(0.5)
        >>> recipes = {
        ...     "line": models.LinearRegression(),
        ...     "constant": models.LinearRegression(weight=0.0),
        ... }
        >>> posteriors = {
        ...     name: ppgp.fit(recipe, train, inference.Exact(), progress=False)
        ...     for name, recipe in recipes.items()
        ... }
        >>> comparison = ppgp.compare(posteriors, test=test)
        >>> comparison.ranking[["rank", "weight", "ranking"]].round(2)
                  rank  weight ranking
        name
        line         1     1.0    best
        constant     2     0.0   worse
        >>> comparison.predictive["rmse"].round(1)
        name
        line        0.1
        constant    0.7
        Name: rmse, dtype: float64
        >>> comparison.predictions["line"]
        <Prediction of 20 rows: continuous, mixture of 1000 Normal>
    """

    sites: pd.DataFrame
    predictive: pd.DataFrame
    verdicts: dict[str, str]
    reasons: dict[str, str]
    predictions: dict[str, Prediction] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    joint: pd.DataFrame | None = None
    predictive_verdicts: dict[str, str] = field(default_factory=dict)
    predictive_reasons: dict[str, str] = field(default_factory=dict)
    ranking: pd.DataFrame | None = None
    not_ranked: str = ""
    coverage_bands: dict[str, tuple[float, float]] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per posterior: predictive metrics, seconds, verdict and reason.

        With test rows there are also the verdict and the reason on its predictions. Posteriors of
        different models are in the order of their ranking.
        """
        table = self.predictive.copy()
        table["verdict"] = [self.verdicts[name] for name in table.index]
        table["reason"] = [self.reasons[name] for name in table.index]
        if self.predictive_verdicts:
            table["predictions"] = [self.predictive_verdicts[name] for name in table.index]
            table["predictions_reason"] = [self.predictive_reasons[name] for name in table.index]
        if self.ranking is not None:
            shown = ["rank", "elpd_difference", "elpd_difference_se", "ranking"]
            table = table.join(self.ranking[shown]).sort_values("rank")
        return table

    def _repr_html_(self) -> str:
        """Return what notebooks show: a line for each posterior, and the reasons."""
        table = self.to_frame()
        reasons = [f"{name}: {text}" for name, text in self.reasons.items() if text]
        predicted = [f"{name}: {text}" for name, text in self.predictive_reasons.items() if text]
        parts = [html.frame(table.drop(columns=REASONS, errors="ignore"), SHOWN)]
        parts.append(html.items("Reasons", reasons))
        parts.append(html.items("Reasons, of predictions", predicted))
        if self.not_ranked:
            parts.append(html.sentence(f"not ranked: {self.not_ranked}"))
        return html.page("Comparison", f"{len(table)} posteriors", *parts)

    def __repr__(self) -> str:
        table = self.to_frame().drop(columns=["reason", "predictions_reason"], errors="ignore")
        shown = table.to_string(float_format=lambda v: f"{v:.4g}")
        return f"{shown}\nnot ranked: {self.not_ranked}" if self.not_ranked else shown


def compare(
    posteriors: Mapping[str, Posterior | Average],
    reference: str | Posterior | None = None,
    *,
    test: Dataset | None = None,
    calibration: Dataset | None = None,
    level: float = 0.9,
    score: Score | None = None,
    loo: bool = False,
) -> Comparison:
    """Compare posteriors with a reference and, where there are test rows, their predictions.

    Both sides need enough draws: chains an R-hat of at most 1.01 and 100 effective draws per chain
    (Vehtari et al. 2021), other methods 400 draws; a point is judged on its means. The verdict is
    "unjudged" where there are too few draws, or Ctrl-C stopped the fit.

    Args:
        posteriors: By name. Sites are compared between posteriors of the same model; different
            models are ranked by their log predictive densities of the test rows or, without these,
            of each training row from the others, where all were fitted to the same targets. An
            Average is judged by its predictions of test rows alone.
        reference: The posterior whose draws are taken as true: a name, a Posterior, or None. None
            takes, for each model, the chains with most draws, those that have converged first;
            never chains whose steps are not rejected (SGLD, SGHMC).
        test: New rows X [m, d] and y [m] to evaluate predictions on, in the units of the data.
            Where a fit used one of them, there is a DataWarning.
        calibration: Rows that no fit has used, other than those of ``test``, for conformal sets.
            Where they are not such rows, there is a DataWarning, and the sentence of the regions
            begins with "heuristic".
        level: Of the intervals, in (0, 1).
        score: The conformal score; None: ``Normalized()``, or ``LAC()`` for classes.
        loo: Whether to predict each training row from the others: in closed form given the
            hyperparameters where the model knows it, else by PSIS-LOO. PSIS also weights the draws
            of the hyperparameters; at a single point they are those of the fit to all rows.

    Returns:
        The Comparison.

    Raises:
        SettingError: If there is nothing to compare, posteriors are not given by name, or level
            does not lie in (0, 1).
        DataError: If ``test`` or ``calibration`` is no Dataset.
        UnknownName: If ``reference`` is no name among the posteriors.
        NotApplicable: If a reference given as a Posterior shares no site with any posterior, there
            are test rows and one posterior is that of a user's program, or ``score`` is no score,
            or not for such a y.

    Examples:
        The noise variance of a line has a skewed posterior, which a normal approximation misses:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> methods = {"exact": inference.Exact(), "laplace": inference.Laplace()}
        >>> posteriors = {
        ...     name: ppgp.fit(models.LinearRegression(), data, how, progress=False)
        ...     for name, how in methods.items()
        ... }
        >>> comparison = ppgp.compare(posteriors, reference="exact")
        >>> comparison.verdicts
        {'exact': 'reference', 'laplace': 'do not use'}
        >>> comparison.reasons["laplace"]
        'noise: mean 0.3... sd off (+-0.0...)'
        >>> comparison.sites[["name", "site", "verdict"]]
              name       site     verdict
        0  laplace      noise  do not use
        1  laplace  weight[0]      agrees
        2  laplace       bias      agrees
    """
    import pandas as pd

    exact_level(level)
    _check_arguments(posteriors, {"test": test, "calibration": calibration}, score)
    _check_reference(reference, posteriors)
    sides = {name: Side(posterior) for name, posterior in posteriors.items()}
    given: Side | None = None
    if isinstance(reference, Posterior):
        given = Side(reference)
    elif reference is not None:
        given = sides[reference]
    references = {name: reference_of(side, sides.values(), given) for name, side in sides.items()}
    judged = {name: _judge(side, references[name]) for name, side in sides.items()}
    on_test: dict[str, PredictiveMetrics] = {}
    second: dict[str, PredictiveDifference] = {}
    if test is not None:
        on_test = _on_test_rows(sides, test, calibration, level, score)
        by_posterior = {id(sides[n].posterior): one.prediction for n, one in on_test.items()}
        if given is not None and id(given.posterior) not in by_posterior:
            by_posterior[id(given.posterior)] = predicted(given.posterior, [test])
        for name, side in sides.items():
            second[name] = _judge_predictions(side, references[name], by_posterior, level)
    left_out = _left_out(posteriors, loo or (test is None and _fits_differ(sides)))
    ranking, not_ranked = _ranking(sides, on_test, test, left_out)
    rows = []
    for name, side in sides.items():
        row: dict[str, Any] = {"name": name}
        if name in on_test:
            row |= on_test[name].metrics
            row["predictive_shift"] = second[name].shift
            row["interval_content"] = second[name].content
        if loo:
            row |= _leave_one_out(left_out[name])
        rows.append(row | {"seconds": side.posterior.seconds})
    regions = {name: one.region for name, one in on_test.items()}
    return Comparison(
        sites=_table({name: one.scalars for name, one in judged.items()}),
        predictive=pd.DataFrame(rows).set_index("name"),
        verdicts={name: one.word for name, one in judged.items()},
        reasons={name: _with_advice(sides[name], one.reason) for name, one in judged.items()},
        predictions={name: one.prediction for name, one in on_test.items()},
        regions={name: region for name, region in regions.items() if region is not None},
        joint=_table({name: one.joint for name, one in judged.items()}),
        predictive_verdicts={name: one.word for name, one in second.items()},
        predictive_reasons={
            name: _with_advice(sides[name], one.reason) for name, one in second.items()
        },
        ranking=ranking,
        not_ranked=not_ranked,
        coverage_bands={n: one.band for n, one in on_test.items() if one.band is not None},
    )


def _check_arguments(posteriors: Any, tables: Mapping[str, Any], score: Any) -> None:
    """Raise the error of the first argument of a type that ``compare`` does not take."""
    do = "pass {name: posterior}, such as {'nuts': posterior}"
    if not isinstance(posteriors, Mapping):
        raise SettingError("posteriors by name", an(type(posteriors).__name__), do)
    if not posteriors:
        raise SettingError("at least one posterior to compare", "none", do)
    for name, posterior in posteriors.items():
        if not isinstance(posterior, Posterior | Average):
            got = f"{an(type(posterior).__name__)} as {name!r}"
            if isinstance(posterior, MultiPosterior):
                do = f"pass those of one output, such as posterior[{posterior.names[0]!r}]"
            raise SettingError("posteriors by name", got, do)
    for name, table in tables.items():
        if not (table is None or isinstance(table, Dataset)):
            raise DataError(f"a Dataset as {name}", an(type(table).__name__), "pass Dataset(X, y)")
    if tables["test"] is not None:
        _check_on_tables(posteriors)
    if not (score is None or isinstance(score, Score)):
        raise not_a_score(score)


def _check_on_tables(posteriors: Mapping[str, Posterior | Average]) -> None:
    """Raise NotApplicable for a user's program, whose arguments no rows of a table stand for."""
    for name, posterior in posteriors.items():
        if not posterior.data.is_table:
            do = "leave test out, and apply ppgp.metrics to posterior.predict(...)"
            raise NotApplicable("fits to a Dataset, with test rows", f"a program as {name!r}", do)


def _check_reference(reference: Any, posteriors: Mapping[str, Posterior | Average]) -> None:
    """Raise an error where no posterior can be judged by the reference."""
    if reference is None:
        return
    if isinstance(reference, str):
        if reference not in posteriors:
            raise UnknownName("reference", reference, posteriors)
        return
    if not isinstance(reference, Posterior):
        expected = "a name, a Posterior or None as reference"
        raise SettingError(expected, an(type(reference).__name__), "pass one of those")
    if not any(same_sites(posterior, reference) for posterior in posteriors.values()):
        got = f"sites {sorted(reference.draws)}"
        raise NotApplicable("a reference of the same model", got, "pass one with the same sites")


def _table(rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
    """Return one table of the rows of all posteriors, the name in the first column."""
    import pandas as pd

    return pd.DataFrame([{"name": name, **row} for name, each in rows.items() for row in each])


def _on_test_rows(
    sides: Mapping[str, Side],
    test: Dataset,
    calibration: Dataset | None,
    level: float,
    score: Score | None,
) -> dict[str, PredictiveMetrics]:
    """Return the metrics on the test rows by name, with warnings where these are not new rows."""
    found: dict[str, PredictiveMetrics] = {}
    names_by_reason: dict[str, list[str]] = {}
    shared = None
    if calibration is not None:
        shared = _not_exchangeable(test, calibration)
    for name, side in sides.items():
        own = predictive_metrics(side.posterior, test, calibration, level, score)
        used = _used_in_fit(own.prediction, test)
        if used:
            names_by_reason.setdefault(used, []).append(name)
        found[name] = with_heuristic(own, shared or used)
    for reason in sorted(names_by_reason):
        names = ", ".join(names_by_reason[reason])
        message = f"metrics of {names} are not those of new rows: {reason}"
        warn(message, DataWarning)
    sentences = {one.region.guarantee for one in found.values() if one.region is not None}
    for sentence in sorted(s for s in sentences if s.startswith("heuristic")):
        message = f"conformal coverage is not that of new rows: {sentence}"
        warn(message, DataWarning)
    return found


def _used_in_fit(prediction: Prediction, test: Dataset) -> str | None:
    """Return how many test rows were used in the fit, in words; None where none was."""
    count = int(prediction.in_training_with(test.y).sum())
    if not count:
        return None
    return f"{count} of {test.n} test rows were also used in the fit"


def _not_exchangeable(test: Dataset, calibration: Dataset) -> str | None:
    """Return why rows of the two tables are not exchangeable; None where nothing shows it.

    They may hold the same rows, or the noise of one table alone may be known.
    """
    rows = in_order(test, calibration.feature_names, levels=calibration.levels_by_name)
    if rows.shape[1] == calibration.d:
        old = np.column_stack([numbers(calibration.X), numbers(calibration.y)])
        new = np.column_stack([numbers(rows), numbers(test.y)])
        same = int(same_rows(old, new).sum())
        if same:
            return f"{same} of {test.n} test rows are calibration rows"
    if (test.noise_sd is None) != (calibration.noise_sd is None):
        return "the noise of the test rows or of the calibration rows is known, not of both"
    return None


def _with_advice(side: Side, reason: str) -> str:
    """Return the reason, with what is known against the inference method."""
    if side.posterior.stats.get("joint_mode"):
        return f"{reason}; {POOR_AT_THE_JOINT_MODE}"
    return reason


def _judge(own: Side, reference: Side | None) -> Verdict:
    """Return the verdict on the draws of one posterior."""
    if isinstance(own.posterior, Average):
        return Verdict(UNJUDGED, OF_AVERAGE)
    if not own.posterior.draws:
        return Verdict(UNJUDGED, NO_DRAWS)
    if reference is None:
        return Verdict(UNJUDGED, NO_REFERENCE)
    if reference.posterior is not own.posterior:
        verdict = judge(own, reference)
        if same_data(own.posterior.data, reference.posterior.data):
            return verdict
        reason = "; ".join(filter(None, [verdict.reason, REFERENCE_OF_OTHER_ROWS]))
        return replace(verdict, reason=reason)
    if own.cut_short:
        return Verdict(UNJUDGED, CUT_SHORT)
    concerns = "; ".join(dict.fromkeys([*own.posterior.warnings, *own.missing_as_reference]))
    if concerns:
        return Verdict(REFERENCE, f"but: {concerns}")
    return Verdict(REFERENCE, _what_is_known_of(own.posterior))


def _what_is_known_of(reference: Posterior) -> str:
    """Return why the draws of a reference without concerns may be taken as true."""
    if reference.mcmc:
        return "chains converged"
    if math.prod(reference.shape) == 1:
        return "one point: nothing varies in it"
    return f"independent draws by {type(reference.how).__name__}"


def _judge_predictions(
    own: Side, reference: Side | None, by_posterior: Mapping[int, Prediction], level: float
) -> PredictiveDifference:
    """Return the verdict on predictions; ``by_posterior`` holds them by ``id`` of the posterior."""
    if isinstance(own.posterior, Average):
        return PredictiveDifference(UNJUDGED, OF_AVERAGE)
    if reference is None:
        return PredictiveDifference(UNJUDGED, NO_REFERENCE)
    if reference.posterior is own.posterior:
        if own.cut_short:
            return PredictiveDifference(UNJUDGED, CUT_SHORT)
        return PredictiveDifference(REFERENCE, "")
    missing = own.missing(reference)
    if missing:
        return PredictiveDifference(UNJUDGED, missing)
    ours, theirs = by_posterior[id(own.posterior)], by_posterior[id(reference.posterior)]
    sizes = own.efficiency * ours.draws, reference.efficiency * theirs.draws
    return predictive_difference(ours, theirs, level, sizes)


def _left_out(posteriors: Mapping[str, Posterior | Average], wanted: bool) -> dict[str, LOO | None]:
    """Return the leave-one-out densities by name; None where there are none, or not ``wanted``."""
    found: dict[str, LOO | None] = dict.fromkeys(posteriors)
    if wanted:
        for name, posterior in posteriors.items():
            if isinstance(posterior, Average):
                continue
            with suppress(NotApplicable):
                found[name] = leave_one_out(posterior)
    return found


def _leave_one_out(loo: LOO | None) -> dict[str, Any]:
    """Return the numbers of a leave-one-out estimate, NaN where there is none."""
    if loo is None:
        nothing = dict.fromkeys(("elpd_loo", "elpd_loo_se", "loo_k_too_large"), math.nan)
        return {**nothing, "loo_method": ""}
    return {
        "elpd_loo": loo.elpd,
        "elpd_loo_se": loo.se,
        "loo_k_too_large": float((loo.k > loo.limit).mean()),
        "loo_method": loo.method,
    }


def _fits_differ(sides: Mapping[str, Side]) -> bool:
    """Return whether some of the posteriors are of different models, or of different rows."""
    first, *others = (side.posterior for side in sides.values())
    return any(not same_model(first, other) for other in others)


def _kind_of(posterior: Posterior | Average) -> str:
    """Return the kind of y in predictions; "" for a program, whose rows nothing tells."""
    if not posterior.data.is_table:
        return ""
    row = posterior.scaler.back(posterior.data.rows(slice(0, 1)))
    return posterior.predict(row).kind


def _ranking(
    sides: Mapping[str, Side],
    on_test: Mapping[str, PredictiveMetrics],
    test: Dataset | None,
    left_out: Mapping[str, LOO | None],
) -> tuple[pd.DataFrame | None, str]:
    """Return the ranking of different fits; None, and why, where there is none."""
    if not _fits_differ(sides):
        return None, ""
    kinds = sorted({kind for side in sides.values() if (kind := _kind_of(side.posterior))})
    if len(kinds) > 1:
        return None, OTHER_KINDS.format(" and some as ".join(kinds))
    if test is not None:
        found = {n: one.prediction.log_prob(test.y).cpu().numpy() for n, one in on_test.items()}
        return ranking_of(found), ""
    known = {name: loo.pointwise for name, loo in left_out.items() if loo is not None}
    of_known = [sides[name].posterior for name in known]
    if len(known) < 2:
        return None, LEFT_OUT_BY_FEW
    if not same_targets(of_known) or len({len(v) for v in known.values()}) > 1:
        return None, OTHER_ROWS
    nothing = np.full(len(next(iter(known.values()))), np.nan)
    return ranking_of({name: known.get(name, nothing) for name in sides}), ""
