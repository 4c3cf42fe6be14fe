"""Full conformal prediction for the posterior of a Gaussian process: intervals and CDFs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..capabilities import JointGaussian, require
from ..data.dataset import Dataset, Scaler
from ..data.new_rows import refuse_without, roles_of
from ..errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    SettingError,
    counted,
    counted_are,
)
from ..inference import MAP
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..models import Model
from ..posterior.posterior import Posterior, inputs_and_roles
from ..posterior.region import Region
from ..runtime.levels import exact_level
from ..runtime.process_locks import silenced
from ..runtime.seeding import permutation
from ..runtime.whole_numbers import check_seed
from . import PredictiveSystem, full_interval, full_system, leave_one_out_parts
from .fixed_beforehand import fixed_values, guarantee_if_estimated_from, searches, undeclared
from .full_conformal_closed_form import LeaveOneOutParts
from .scores.base import ULPS, widened
from .split import smallest_n

__all__ = ["full_conformal", "full_system_of"]

EXACT = "marginal coverage >= {level} (exchangeable rows)"
BEFOREHAND = (
    "marginal coverage >= {level} (exchangeable rows; exact: hyperparameters fixed beforehand)"
)
SCALED = (
    "heuristic: no finite-sample guarantee, as the ranked rows have scaled the data; "
    "fit with standardise=False"
)
CENTRED = (
    "heuristic: no finite-sample guarantee, as the mean is that of the ranked rows; "
    "fix it too, or pass split=0.3"
)
UNKNOWN = (
    "heuristic: no finite-sample guarantee, as this posterior does not hold its recipe as it was "
    "given to fit; fit it again"
)
FITTED = (
    "heuristic: no finite-sample guarantee, as the hyperparameters were fitted on the ranked rows"
)


def training_data(posterior: Posterior) -> Dataset:
    """Return the training rows in the units of the user.

    Raises:
        NotApplicable: For a user's program.
    """
    if not isinstance(posterior.data, Dataset) or not isinstance(posterior.model, Model):
        raise NotApplicable(
            "a model of ppgp.models and a Dataset",
            "a program with its own arguments",
            "use split conformal: calibrate",
        )
    return posterior.scaler.back(posterior.data)


@dataclass(frozen=True, eq=False)
class _Ranking:
    """What full conformal prediction ranks, and what holds for it.

    Attributes:
        parts: Leave-one-out predictions at the new rows, on the model's scale.
        ranked: Numbers of the rows that are ranked against the new one; None: all.
        scaler: From the model's scale to the units of the user.
        sentence: The guarantee, with {level} left open.
    """

    parts: LeaveOneOutParts
    ranked: Tensor | None
    scaler: Scaler
    sentence: str

    @property
    def exact(self) -> bool:
        return not self.sentence.startswith("heuristic")

    @property
    def n(self) -> int:
        if self.ranked is None:
            return len(self.parts.a)
        return len(self.ranked)


def _ranking(
    posterior: Posterior,
    X: Any,
    split: float | None,
    seed: int,
    noise_sd: Any,
    fixed_beforehand: bool,
) -> _Ranking:
    """Return what is ranked, with the arguments of ``full_conformal``."""
    data = training_data(posterior)
    # rows are exchangeable with their noise, not without it
    known = roles_of(X, data) if noise_sd is None else {"noise_sd": noise_sd}
    refuse_without(known, data, ["noise_sd"])
    require(posterior.model, JointGaussian)
    if split is None:
        return _with_own_hyperparameters(posterior, X, noise_sd, fixed_beforehand)
    if not 0 < split < 1:
        expected = (
            "split in (0, 1), the share of rows that the hyperparameters are fitted on, or None"
        )
        raise SettingError(expected, repr(split), "use 0.3")
    return _with_split(posterior, X, split, seed, noise_sd, fixed_beforehand)


def _with_own_hyperparameters(
    posterior: Posterior, X: Any, noise_sd: Any, fixed_beforehand: bool
) -> _Ranking:
    """Rank all rows, with the posterior's hyperparameters (their mean over draws)."""
    means = {k: v.flatten(0, 1).mean(0, keepdim=True) for k, v in posterior.draws.items()}
    theta = {**posterior.params, **means}
    rows, known = inputs_and_roles(posterior, X, {"noise_sd": noise_sd})
    parts = leave_one_out_parts(*posterior.model.gaussian(theta, rows, posterior.data, **known))
    sentence = _sentence_without_split(posterior, fixed_beforehand)
    return _Ranking(parts, None, posterior.scaler, sentence)


def _with_split(
    posterior: Posterior, X: Any, split: float, seed: int, noise_sd: Any, fixed_beforehand: bool
) -> _Ranking:
    """Fit the hyperparameters on a share of the rows and rank the others."""
    data = training_data(posterior)
    first = round(split * data.n)
    if first < 3 or data.n - first < 1:
        raise DataError(
            "at least 3 rows to fit and 1 to rank",
            f"{counted(data.n, 'row')} split at {split:g}",
            "use more rows, or split conformal",
        )
    seed = check_seed(seed)
    order = permutation(torch.Generator().manual_seed(seed), data.n)
    how, recipe = posterior.how, posterior.recipe
    if not isinstance(how, MAP):
        how = MAP()
    if recipe is None:
        recipe = posterior.model.given or posterior.model
    scaled = not posterior.scaler.is_identity
    subset = data.rows(order[:first])
    with silenced(ConvergenceWarning):  # any hyperparameters from these rows keep the guarantee
        small = raise_if_interrupted(
            fit(recipe, subset, how, seed=seed, progress=False, standardise=scaled)
        )
    rows, known = inputs_and_roles(small, X, {"noise_sd": noise_sd})
    all_rows = small.scaler(data)
    parts = leave_one_out_parts(*small.model.gaussian(small.theta, rows, all_rows, **known))
    sentence = _sentence_with_split(posterior, fixed_beforehand)
    return _Ranking(parts, order[first:], small.scaler, sentence)


def _sentence_without_split(posterior: Posterior, fixed_beforehand: bool) -> str:
    """Return the guarantee with the posterior's hyperparameters, {level} left open."""
    recipe, d = (posterior.model.given or posterior.model), posterior.data.d
    if searches(recipe, d):
        if fixed_beforehand:
            names, method = ", ".join(posterior.theta), type(posterior.how).__name__
            raise SettingError(
                "a recipe whose hyperparameters are all numbers, "
                "for fixed_beforehand=True without a split",
                f"{names} estimated by {method}",
                "leave fixed_beforehand out, or pass split=0.3",
            )
        return FITTED
    if not fixed_beforehand:
        return undeclared(fixed_values(recipe, d))
    sentence = guarantee_if_estimated_from(recipe, training_data(posterior))
    if sentence is not None:
        return sentence
    if "mean" in recipe.sites(d) and getattr(recipe, "mean", 0.0) is None:
        return CENTRED
    return BEFOREHAND if posterior.scaler.is_identity else SCALED


def _sentence_with_split(posterior: Posterior, fixed_beforehand: bool) -> str:
    """Return the guarantee with hyperparameters from other rows, {level} left open."""
    if fixed_beforehand:
        recipe = posterior.model.given or posterior.model
        return guarantee_if_estimated_from(recipe, training_data(posterior)) or EXACT
    if posterior.recipe is None:
        return UNKNOWN
    given = fixed_values(posterior.recipe, posterior.data.d)
    if given:
        return undeclared(given)
    return EXACT


def full_conformal(
    posterior: Posterior,
    X: Any,
    level: float = 0.9,
    split: float | None = 0.3,
    seed: int = 0,
    noise_sd: Any = None,
    fixed_beforehand: bool = False,
) -> Region:
    """Return full conformal intervals of a Gaussian process, in closed form.

    No calibration rows are needed. The score is the leave-one-out residual over its standard
    deviation. Papadopoulos (2024); Pion & Vazquez (2024).

    Args:
        posterior: Of a GP. With ``split``, its hyperparameters and its scaling are estimated again
            by MAP on that share of its training rows, from the recipe as it was given to ``fit``.
            All rows then predict, and the others are ranked: the guarantee is exact.
        X: New rows [m, d], in the units of the data, or a Dataset.
        level: The coverage wanted, in (0, 1).
        split: The share of rows that the hyperparameters are fitted on. None: use the posterior's
            own hyperparameters (their mean over draws); the set is then heuristic, unless they
            were fixed beforehand.
        seed: Decides which rows the hyperparameters come from.
        noise_sd: The known noise of the new rows, needed where the training rows have one (or X is
            a Dataset that has it).
        fixed_beforehand: Your declaration that the numbers, inducing inputs and torch modules in
            the recipe do not depend on these rows. Those of ``fit_variogram`` or ``pretrained`` on
            the same rows do. The set is heuristic without this declaration, and also with it where
            they are known to come from these rows.

    Returns:
        The Region of the m rows, in the units of y, with its guarantee. Intervals are infinite
        where too few rows are ranked for the level.

    Raises:
        NotApplicable: If the model is not a GP.
        SettingError: If level or split does not lie in (0, 1), or ``fixed_beforehand`` is declared
            of hyperparameters that were fitted.
        DataError: If the noise of the training rows is known and that of the new rows is not, or
            there are too few rows to split.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> x = torch.linspace(-2, 2, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.5 * torch.cos(20 * x))
        >>> recipe = models.GP(kernels.RBF(variance=4.0, lengthscale=2.0), noise=0.2, mean=3.0)
        >>> posterior = ppgp.fit(
        ...     recipe, data, inference.MAP(), progress=False, standardise=False
        ... )

        All hyperparameters are numbers, chosen before the rows were seen, so that none of the rows
        is needed to fit them:

        >>> region = ppgp.full_conformal(
        ...     posterior, [[0.0], [1.0]], level=0.8, split=None, fixed_beforehand=True
        ... )
        >>> region.guarantee
        'marginal coverage >= 0.8 (exchangeable rows; exact: hyperparameters fixed beforehand)'
        >>> region.n_calibration
        30
        >>> region.covers([3.0, 5.0])
        tensor([True, True])

        With hyperparameters to fit, 30 % of the rows do that, and the others are ranked:

        >>> posterior = ppgp.fit(models.GP(kernels.RBF()), data, inference.MAP(), progress=False)
        >>> region = ppgp.full_conformal(posterior, [[0.0], [1.0]], level=0.8)
        >>> region.guarantee, region.n_calibration
        ('marginal coverage >= 0.8 (exchangeable rows)', 21)
    """
    exact_level(level)
    ranking = _ranking(posterior, X, split, seed, noise_sd, fixed_beforehand)
    ends = full_interval(ranking.parts, level, ranking.ranked)
    lower, upper = map(ranking.scaler.targets_back, ends)
    sentence, n, need = ranking.sentence.format(level=level), ranking.n, smallest_n(level)
    if n < need:
        rows_are = counted_are(n, "ranked row")
        sentence += f": infinite, as {rows_are} fewer than the {need} a finite set needs"
    return replace(widened(lower, upper, level), guarantee=sentence, n_calibration=n)


def full_system_of(
    posterior: Posterior,
    X: Any,
    split: float | None = 0.3,
    seed: int = 0,
    noise_sd: Any = None,
    fixed_beforehand: bool = False,
) -> PredictiveSystem:
    """Return the conformal predictive system of a GP: the whole CDF at new rows, in closed form.

    Args:
        posterior: As in ``full_conformal``.
        X: As in ``full_conformal``.
        split: As in ``full_conformal``.
        seed: As in ``full_conformal``.
        noise_sd: As in ``full_conformal``.
        fixed_beforehand: As in ``full_conformal``.

    Returns:
        The PredictiveSystem of the m rows.
    """
    ranking = _ranking(posterior, X, split, seed, noise_sd, fixed_beforehand)
    values = ranking.scaler.targets_back(full_system(ranking.parts, ranking.ranked))
    sentence = ranking.sentence
    if ranking.exact:
        sentence = "calibrated CDF (exchangeable rows)"
    slack = ranking.parts.slack
    if slack is not None and bool((slack > 0).any()):
        rounding = ULPS * torch.finfo(values.dtype).eps * values.abs().amax(-1)
        slack = rounding + slack * ranking.scaler.location_and_scale[1]
    return PredictiveSystem(sentence, values=values, slack=slack)
