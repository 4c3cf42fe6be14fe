"""Cross-conformal prediction: CV+ and jackknife+."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..data.new_rows import refuse_without, roles_of
from ..data.roles import refuse_censored, refuse_weights
from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ..inference import Inference
from ..inference.fitting.fit import fit
from ..inference.jobs import each
from ..inference.runs import raise_if_interrupted, second_goes_to_the_caller
from ..models import Model
from ..posterior.posterior import OUT_OF_FOLD, Posterior, members_of
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from ..runtime.seeding import permutation
from ..runtime.whole_numbers import check_seed, check_workers
from . import LAC, Absolute, Score
from .cross_sets import cross_guarantee, cross_region, promised_coverage
from .fixed_beforehand import fixed_values, guarantee_if_estimated_from, undeclared
from .past_origins import OriginCalibrator, calibrate_at_origins
from .scores.base import not_a_score

FOLDS, FEWEST_FOLDS = 10, 2
SEEN_BY_STOPPING = (
    "heuristic: about the nominal level; the steps and the temperature of each member were chosen "
    "on the fold that it left out (stopping='inside' keeps the guarantee)"
)


@dataclass(frozen=True, eq=False)
class CrossCalibrator:
    """Fits that each left some rows out, with those rows; call it on new rows.

    ``calibrator(X, level=0.9) -> Region``

    Attributes:
        score: The conformal score, with one side.
        posteriors: One per fold.
        held_out: The numbers of the rows that each fit left out, one tensor per fold.
        rows: The same rows as Datasets, with their known noise.
        given: The fixed values in the recipe whose origin was not declared, in words.
        found: The "heuristic: ..." guarantee if part of the recipe was estimated from these rows,
            else None.
        interrupted: Whether Ctrl-C came before the last fold. The rows of the missing folds are
            then training rows of every fit: the result is CV+ of the other rows, by a method that
            has these rows too, with the guarantee for the folds and rows that are left.
    """

    score: Score
    posteriors: tuple[Posterior, ...]
    held_out: tuple[Tensor, ...]
    rows: tuple[Dataset, ...]
    given: tuple[str, ...] = ()
    found: str | None = None
    interrupted: bool = False

    @property
    def n(self) -> int:
        return sum(map(len, self.held_out))

    def __repr__(self) -> str:
        return f"<CrossCalibrator {self.score!r}: {len(self.posteriors)} folds of {self.n} rows>"

    def promised(self, level: float) -> float:
        """Return the guaranteed coverage: 1 - 2 alpha, minus a cost for few folds.

        See ``promised_coverage`` of ``cross_sets``.
        """
        return promised_coverage(list(map(len, self.held_out)), level)

    def __call__(self, X: Any, level: float = 0.9, noise_sd: Any = None, **columns: Any) -> Region:
        """Return the set at each new row, in the units of the data.

        Args:
            X: New rows [m, d], or a Dataset.
            level: The nominal level in (0, 1); the guaranteed coverage is ``promised(level)``.
            noise_sd: The known noise of these rows, needed where the training rows have one (or X
                is a Dataset that has it).
            **columns: The offset, trials or groups of these rows, as ``predict`` takes them.

        Returns:
            The Region of the m rows, with its guarantee.

        Raises:
            SettingError: If level does not lie in (0, 1).
            DataError: If the training rows have known noise, an offset, trials or groups, and X
                does not.
        """
        if noise_sd is not None:
            columns["noise_sd"] = noise_sd
        known = roles_of(X, self.rows[0]) | columns
        # rows are exchangeable with their noise, not without it
        refuse_without(known, self.rows[0], ["noise_sd"])
        exact_level(level)
        new = [p.predict(X, **known) for p in self.posteriors]
        scores = []
        for posterior, rows in zip(self.posteriors, self.rows, strict=True):
            scores.append(self.score.score(posterior.predict(rows), rows.y, level))
        return cross_region(self.score, new, scores, level, self._guarantee(level))

    def _guarantee(self, level: float) -> str:
        if self.found is not None:
            return self.found
        if self.given:
            return undeclared(list(self.given))
        return cross_guarantee(list(map(len, self.held_out)), level)


@overload
def cross_calibrate(
    model: Model | Sequence[Model],
    data: Dataset,
    how: Inference | None = None,
    score: Score | None = None,
    *,
    horizon: int,
    origins: int | None = None,
    refit: bool = False,
    seed: int = 0,
    progress: bool = False,
    standardise: bool = True,
) -> OriginCalibrator: ...


@overload
def cross_calibrate(
    model: Model | Posterior | Prediction | Callable[..., Any],
    data: Dataset | Mapping[str, Any] | None = None,
    how: Inference | None = None,
    score: Score | None = None,
    folds: int | None = 10,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: bool = False,
    standardise: bool = True,
    fixed_beforehand: bool = False,
) -> CrossCalibrator: ...


def cross_calibrate(
    model: Model | Sequence[Model] | Posterior | Prediction | Callable[..., Any],
    data: Dataset | Mapping[str, Any] | None = None,
    how: Inference | None = None,
    score: Score | None = None,
    folds: int | None = FOLDS,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: bool = False,
    standardise: bool = True,
    fixed_beforehand: bool = False,
    origins: int | None = None,
    horizon: int | None = None,
    refit: bool = False,
) -> CrossCalibrator | OriginCalibrator:
    """Fit once per fold, so that every row is predicted by a fit that did not use it.

    This is CV+, or jackknife+ with one fold per row. Folds of one size (their number divides n)
    have a higher guaranteed coverage than unequal ones. Barber, Candes, Ramdas & Tibshirani (2021).

    With ``horizon=``, forecasts of a series are calibrated instead: at past origins, each with the
    rows before it alone, the next rows are forecast, and the errors of these forecasts rank those
    of the rows to come. The sentence of its sets begins with "heuristic", as the rows of a series
    are not exchangeable.

    Args:
        model: A recipe, that is, a model before it meets data. The model of a posterior,
            ``posterior.model``, is taken as it was given to ``fit``, because the prepared one has
            priors and inducing inputs that depend on all rows. A Posterior by
            ``NaturalGradientBoosting(folds=)``, or its ``out_of_fold()``, has the fits already:
            no fit is made, and ``data``, ``how`` and ``folds`` have no effect. The guarantee
            assumes that its folds were chosen without looking at the rows.
        data: The training rows [n].
        how: The inference method; None: the default of ``fit``. Folds of its own are fitted inside
            each fold: ``NaturalGradientBoosting(folds=None)`` fits one member per fold.
        score: The conformal score, with one side; None: ``Absolute()``, or ``LAC()`` for classes.
        folds: How many folds; None: one per row (jackknife+).
        seed: Of the random folds, and of each fit.
        workers: How many processes fit the folds; None: those of an active
            ``joblib.parallel_config``, or else 1. Each fit has one thread, so that neither the
            number of workers nor the backend changes the result.
        progress: Whether a progress bar is shown.
        standardise: Whether each fit standardises its rows, as in ``fit``.
        fixed_beforehand: Your declaration that the numbers, inducing inputs and torch modules in
            the recipe do not depend on these rows; the sets are heuristic without it.
        origins: With ``horizon``, how many past origins of a series; None: 10. They are a horizon
            apart, or less where the first would have under half of the rows.
        horizon: How many rows after each origin are forecast, and how many rows ahead the sets are
            for. The first column of X is the time. Then ``model`` may be several recipes in a list,
            whose average by evidence is taken, and the score is ``Normalized()`` by default.
        refit: With ``horizon``: True fits at each origin; False fits before the first origin, and
            updates the fit there with the rows up to each other one. Models that cannot be updated
            are fitted at each.

    Returns:
        The CrossCalibrator, whose sets of new rows X [m, d] are in the units of y; after Ctrl-C
        that of the finished folds, with a ConvergenceWarning. With ``horizon`` an OriginCalibrator.

    Raises:
        NotApplicable: For a program, whose rows cannot be told from its arguments, rows with
            weights, a score with two sides, or a posterior that is not boosted.
        SettingError: If there are fewer than two folds, more folds than rows, or no worker; if
            origins and horizon are not whole numbers, or the rows are too few for them.
        NumericalError: If a fold ends its worker, and does so again when it is fitted once more.
        KeyboardInterrupt: If Ctrl-C came before two folds were finished.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(-2, 2, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.5 * torch.cos(20 * x))
        >>> recipe, how = models.LinearRegression(), inference.Exact()
        >>> calibrator = ppgp.cross_calibrate(recipe, data, how, folds=5)
        >>> calibrator
        <CrossCalibrator Absolute(): 5 folds of 30 rows>
        >>> region = calibrator([[0.0]], level=0.8)
        >>> round(region.lower.item(), 1), round(region.upper.item(), 1)
        (2.5, 3.5)

        Jackknife+ guarantees 1 - 2 (1 - level), and CV+ less:

        >>> round(calibrator.promised(0.9), 3)
        0.661
        >>> one_per_row = ppgp.cross_calibrate(recipe, data, how, folds=None)
        >>> round(one_per_row.promised(0.9), 3)
        0.8
    """
    check_workers(workers)
    if not (score is None or isinstance(score, Score)):
        raise not_a_score(score)
    if horizon is not None or origins is not None:
        if folds != FOLDS or fixed_beforehand:
            got = "folds=" if folds != FOLDS else "fixed_beforehand="
            raise SettingError("origins= and refit= beside horizon=", got, "leave it out")
        options = {"seed": seed, "progress": progress, "standardise": standardise}
        return calibrate_at_origins(model, data, how, score, origins, horizon, refit, **options)
    if isinstance(model, Posterior | Prediction):
        return _of_members(model, score, fixed_beforehand)
    if not isinstance(model, Model) or not isinstance(data, Dataset):
        got = f"{type(model).__name__} and {type(data).__name__}"
        do = "use split conformal: calibrate"
        raise NotApplicable("a model of ppgp.models and a Dataset", got, do)
    if not data.team.alone:
        got, do = "a part of a team's", "pass the whole Dataset, and workers=2"
        raise NotApplicable("a Dataset of one process", got, do)
    refuse_censored(data, "conformal prediction")
    refuse_weights(data, "conformal prediction")
    recipe = model.given or model
    parts = _folds(data.n, folds, seed)
    K = len(parts)
    fit_without = partial(_fit_without, recipe, data, how, seed, standardise)
    fitted: dict[int, Posterior] = {}
    interrupted = False
    with second_goes_to_the_caller():
        try:
            folds_done = each(fit_without, parts, workers, progress, title="CV+", noun="fold")
            with closing(folds_done):
                for number, posterior in folds_done:
                    fitted[number] = posterior
        except KeyboardInterrupt:
            if len(fitted) < FEWEST_FOLDS:
                raise
            interrupted = True
            sentence = (
                f"stopped by Ctrl-C: {len(fitted)} of {K} folds; "
                "the rows of the others are training rows throughout"
            )
            warn(sentence, ConvergenceWarning)
    done = sorted(fitted)
    posteriors = [fitted[number] for number in done]
    parts = tuple(parts[number] for number in done)
    given: tuple[str, ...] = ()
    if not fixed_beforehand:
        given = tuple(fixed_values(recipe, data.d))
    return CrossCalibrator(
        _chosen(score, posteriors[0].predict(data.rows(slice(0, 1)))),
        tuple(posteriors),
        parts,
        tuple(data.rows(part) for part in parts),
        given,
        guarantee_if_estimated_from(recipe, data),
        interrupted,
    )


def _fit_without(
    recipe: Model, data: Dataset, how: Inference | None, seed: int, standardise: bool, part: Tensor
) -> Posterior:
    """Return the fit to all rows but those of one fold."""
    kept = torch.ones(data.n, dtype=torch.bool)
    kept[part] = False
    rows = data.rows(kept)
    try:
        posterior = fit(recipe, rows, how, seed=seed, progress=False, standardise=standardise)
    except DataError as error:
        got = f"{error.got}, in the {rows.n} rows of the fit that leaves one fold out"
        raise DataError(error.expected, got, f"{error.do}; or use fewer folds") from None
    return raise_if_interrupted(posterior)


def _of_members(
    fitted: Posterior | Prediction, score: Score | None, fixed_beforehand: bool
) -> CrossCalibrator:
    """Return the CrossCalibrator of a boosted posterior's own members."""
    posterior: Any = fitted
    if not isinstance(fitted, Posterior):
        origin = fitted.origin
        if origin is None or origin.method != OUT_OF_FOLD:
            raise NotApplicable(
                "posterior.out_of_fold()", "another prediction", "pass the posterior itself"
            )
        posterior = origin.fit
    refuse_censored(posterior.data, "conformal prediction")
    members = members_of(posterior)
    recipe, data = (posterior.model.given or posterior.model), posterior.data
    given = () if fixed_beforehand else tuple(fixed_values(recipe, data.d))
    found = guarantee_if_estimated_from(recipe, data)
    if found is None and posterior.how.stopping == "fold":
        found = SEEN_BY_STOPPING
    return CrossCalibrator(
        _chosen(score, posterior.predict(data.rows(slice(0, 1)))),
        tuple(member for member, _, _ in members),
        tuple(rows for _, rows, _ in members),
        tuple(rows for _, _, rows in members),
        given,
        found,
    )


def _folds(n: int, folds: int | None, seed: int) -> tuple[Tensor, ...]:
    """Return the row numbers of each fold, in random order."""
    K = n if folds is None else folds
    if isinstance(K, bool) or not isinstance(K, int) or not FEWEST_FOLDS <= K <= n:
        expected = f"between 2 and n = {n} folds, or None"
        raise SettingError(expected, repr(folds), "for example 10")
    seed = check_seed(seed)
    return permutation(torch.Generator().manual_seed(seed), n).tensor_split(K)


def _chosen(score: Score | None, prediction: Prediction) -> Score:
    """Return the score given, or the default one for such a y."""
    if not score:
        score = LAC() if prediction.kind == "classes" else Absolute()
    score.check(prediction)
    if score.sides != 1:
        do = "use Absolute, Normalized or Quantile"
        raise NotApplicable("a score with one side", repr(score), do)
    return score
