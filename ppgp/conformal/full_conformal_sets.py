"""Conformal methods that need a model and not only its predictions: full conformal, cross, and Bayes by add-one-in weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler, noise_of
from ..errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    SettingError,
    counted,
    counted_are,
)
from ..inference import MAP
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..models import Model
from ..models.base import as_given
from ..numerics.process_locks import silenced
from ..posterior.posterior import Posterior
from ..posterior.region import Region, exact_level
from ..target.capabilities import JointGaussian, require
from . import PredictiveSystem, full_interval, full_system, leave_one_out_parts
from .fixed_beforehand import found_among, given_by_hand, searches, undeclared
from .leave_one_out_gp import LeaveOneOutParts
from .scores.base import widened
from .split import smallest_n

__all__ = ["full_conformal", "full_system_of"]

EXACT = "marginal coverage >= {level} (exchangeable rows)"
BEFOREHAND = (
    "marginal coverage >= {level} (exchangeable rows; exact: hyperparameters fixed beforehand)"
)
SCALED = "heuristic: no finite-sample guarantee, as the ranked rows have scaled the data; fit with standardise=False"
CENTRED = "heuristic: no finite-sample guarantee, as the mean is that of the ranked rows; fix it too, or pass split=0.3"
UNKNOWN = "heuristic: no finite-sample guarantee, as this posterior does not know its recipe as it was given; fit it again"
FITTED = (
    "heuristic: no finite-sample guarantee, as the hyperparameters were fitted on the ranked rows"
)


def _raw(posterior: Posterior) -> Dataset:
    """The training data in the units of the user."""
    if not isinstance(posterior.data, Dataset) or not isinstance(posterior.model, Model):
        raise NotApplicable(
            "a model of the zoo and a Dataset",
            "a program with its own arguments",
            "use split conformal: calibrate",
        )
    return posterior.data if posterior.scaler is None else posterior.scaler.back(posterior.data)


# -- full conformal of a Gaussian process ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Full:
    """What full conformal ranks: leave-one-out parts on the model's scale, which rows, and what is guaranteed."""

    parts: LeaveOneOutParts
    ranked: Tensor | None
    scaler: Scaler | None
    sentence: str

    @property
    def exact(self) -> bool:
        return not self.sentence.startswith("heuristic")


def _full(
    posterior: Posterior,
    X: Any,
    split: float | None,
    seed: int,
    noise_sd: Any,
    fixed_beforehand: bool,
) -> _Full:
    data = _raw(posterior)
    noise_sd = noise_of(X, data.noise_name) if noise_sd is None else noise_sd
    if (
        data.noise_sd is not None and noise_sd is None
    ):  # rows are exchangeable with their noise, not without it
        raise DataError(
            "noise_sd of the new rows, as the training rows have it",
            "none",
            "pass noise_sd=, or a Dataset",
        )
    require(posterior.model, JointGaussian)
    if split is None:
        theta = {
            **posterior.params,
            **{k: v.flatten(0, 1).mean(0, keepdim=True) for k, v in posterior.draws.items()},
        }
        rows = posterior._new_rows(X)
        parts = leave_one_out_parts(
            *posterior.model.gaussian(
                theta, rows, posterior.data, **posterior._known(noise_sd, rows)
            )
        )
        return _Full(parts, None, posterior.scaler, _sentence_of_own(posterior, fixed_beforehand))
    if not 0 < split < 1:
        raise SettingError(
            "split in (0, 1), the share of rows that the hyperparameters are fitted on, or None",
            repr(split),
            "use 0.3",
        )
    first = round(split * data.n)
    if first < 3 or data.n - first < 1:
        raise DataError(
            "at least 3 rows to fit and 1 to rank",
            f"{counted(data.n, 'row')} split at {split:g}",
            "use more rows, or split conformal",
        )
    order = torch.randperm(data.n, generator=torch.Generator().manual_seed(seed))
    how = posterior.how if isinstance(posterior.how, MAP) else MAP()
    recipe = as_given(posterior.model) if posterior.recipe is None else posterior.recipe
    with silenced(ConvergenceWarning):  # any hyperparameters from these rows keep the guarantee
        scaled = posterior.scaler is not None
        small = whole(
            fit(
                recipe, data.rows(order[:first]), how, seed=seed, progress=False, standardise=scaled
            )
        )
    rows, all_rows = small._new_rows(X), data
    if small.scaler is not None:
        all_rows = small.scaler(data)
    parts = leave_one_out_parts(
        *small.model.gaussian(small.theta, rows, all_rows, **small._known(noise_sd, rows))
    )
    return _Full(
        parts, order[first:], small.scaler, _sentence_of_split(posterior, fixed_beforehand)
    )


def _sentence_of_own(posterior: Posterior, fixed_beforehand: bool) -> str:
    """What holds with the hyperparameters of the posterior, {level} left open."""
    recipe, d = as_given(posterior.model), posterior.data.d
    if searches(recipe, d):
        if fixed_beforehand:
            raise SettingError(
                "a recipe whose hyperparameters are all numbers, for fixed_beforehand=True without a split",
                f"{', '.join(posterior.theta)} found by {type(posterior.how).__name__}",
                "leave fixed_beforehand out, or pass split=0.3",
            )
        return FITTED
    if not fixed_beforehand:
        return undeclared(given_by_hand(recipe, d))
    found = found_among(recipe, _raw(posterior))
    if found is not None:
        return found
    if "mean" in recipe.sites(d) and getattr(recipe, "mean", 0.0) is None:
        return CENTRED
    return BEFOREHAND if posterior.scaler is None else SCALED


def _sentence_of_split(posterior: Posterior, fixed_beforehand: bool) -> str:
    """What holds with hyperparameters from rows that are not ranked, {level} left open."""
    if fixed_beforehand:
        return found_among(as_given(posterior.model), _raw(posterior)) or EXACT
    if posterior.recipe is None:
        return UNKNOWN
    given = given_by_hand(posterior.recipe, posterior.data.d)
    return undeclared(given) if given else EXACT


def _unscaled(scaler: Scaler | None, *values: Tensor) -> list[Tensor]:
    return list(values) if scaler is None else [v * scaler.y_sd + scaler.y_mean for v in values]


def full_conformal(
    posterior: Posterior,
    X: Any,
    level: float = 0.9,
    split: float | None = 0.3,
    seed: int = 0,
    noise_sd: Any = None,
    fixed_beforehand: bool = False,
) -> Region:
    """Full conformal intervals of a Gaussian process at rows X [m, d], in closed form and without calibration rows.

    Args:
        posterior: of a GP. With ``split`` its hyperparameters, scaling included, are found anew by MAP on that share of its
            training rows, from the recipe as it was given to ``fit``; all rows predict, and the others are ranked: the guarantee is
            exact.
        split: None: use the posterior's own hyperparameters (their mean over draws); then the set is heuristic, unless they were
            fixed beforehand.
        seed: which rows the hyperparameters come from.
        noise_sd: the known noise of the new rows, needed where the training rows have one (or X is a Dataset that has it).
        fixed_beforehand: your word that the numbers, inducing inputs and torch modules in the recipe owe nothing to these rows. Those
            of ``fit_variogram`` or ``pretrained`` on the same rows do, and the set is heuristic without this word; with it too, where
            they are known to come from these rows.

    Raises:
        NotApplicable: if the model is not a GP.
        SettingError: if ``fixed_beforehand`` is said of hyperparameters that were fitted.
        DataError: if the noise of the training rows is known and that of the new rows is not.
    """
    exact_level(level)
    full = _full(posterior, X, split, seed, noise_sd, fixed_beforehand)
    n = len(full.parts.a) if full.ranked is None else len(full.ranked)
    lower, upper = _unscaled(full.scaler, *full_interval(full.parts, level, full.ranked))
    sentence = full.sentence.format(level=level)
    if n < smallest_n(level):
        sentence += f": infinite, as {counted_are(n, 'ranked row')} fewer than the {smallest_n(level)} a finite set needs"
    return replace(widened(lower, upper, level), guarantee=sentence, n_calibration=n)


def full_system_of(
    posterior: Posterior,
    X: Any,
    split: float | None = 0.3,
    seed: int = 0,
    noise_sd: Any = None,
    fixed_beforehand: bool = False,
) -> PredictiveSystem:
    """The conformal predictive system of a GP: the whole CDF at rows X, in closed form; arguments as in ``full_conformal``."""
    full = _full(posterior, X, split, seed, noise_sd, fixed_beforehand)
    (values,) = _unscaled(full.scaler, full_system(full.parts, full.ranked))
    sentence = "calibrated CDF (exchangeable rows)" if full.exact else full.sentence
    return PredictiveSystem(sentence, values=values)


# -- CV+ and jackknife+ ------------------------------------------------------------------------------------------------


# -- conformal Bayes ---------------------------------------------------------------------------------------------------
