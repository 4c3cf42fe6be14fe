"""``ppgp.fit_candidates``: the candidates of a model without a kernel, averaged by evidence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from warnings import catch_warnings, simplefilter

import torch

from ...capabilities import Candidates, require
from ...data.dataset import Dataset
from ...display.user_warnings import warn
from ...errors import ConvergenceWarning, DataError, NotApplicable, PpgpError, counted
from ...models import Model
from ...models.markov.latent_state_space_gp import LOGARITHMIC
from ...models.markov.series_rule import FEWEST_ROWS, in_plain_words
from ...posterior.averaging import NEGLIGIBLE, Average, average
from ...posterior.posterior import Posterior
from ...posterior.summary import cut_short
from ..base import Inference
from ..optimise.map import MAP
from ..runs import TWICE
from .checks import check_program, no_dataset, no_method
from .fit import MOST_TO_COMPARE, ROWS_TO_COMPARE, STOPPED, fit, fits_of_candidates

__all__ = ["expected_seconds", "fit_candidates", "without_candidates"]

#: seconds of one core, measured: of a candidate, per pair of rows beside it, and per row of a long
#: series, whose candidate is fitted to all rows
SECONDS_OF_FIT, SECONDS_OF_PAIR, SECONDS_OF_ROW = 0.3, 2e-5, 4e-4


def fit_candidates(
    model: Any,
    data: Dataset,
    how: Inference | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
    standardise: bool = True,
) -> Average:
    """Fit each candidate of a model without a kernel, and average them by their evidence.

    ``ppgp.fit`` keeps the candidate of the highest evidence alone. The average forecasts better
    where several have a similar evidence, such as a random walk with and without a drift. Hoeting,
    Madigan, Raftery & Volinsky (1999).

    Args:
        model: A model without a kernel, such as ``StateSpaceGP()``.
        data: The training rows [n, 1 + r], whose first column is the time.
        how: The method of those whose weight counts. All are fitted by MAP first, which gives the
            weights. None: MAP.
        seed: As in ``fit``.
        progress: As in ``fit``.
        standardise: As in ``fit``.

    Returns:
        The Average, which predicts y in its units; its posteriors are named by trend and seasons,
        such as "random walk with drift + yearly season". Candidates more than 60 nats below the
        highest density at the mode are left out. After Ctrl-C it is that of the candidates that
        have been fitted, and its ``warnings`` say so.

    Raises:
        NotApplicable: If the model has a kernel, or never has candidates, as under a likelihood of
            classes or shares.
        DataError: If there are none for these rows: fewer than four, or all with one time or value.
            If y does not suit the likelihood.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import models
        >>> t = np.arange(40.0)
        >>> data = ppgp.Dataset(t[:, None], np.random.default_rng(0).normal(size=40).cumsum())
        >>> average = ppgp.fit_candidates(models.StateSpaceGP(), data)
        >>> float(average.weights.sum().round(decimals=6))
        1.0
        >>> average.predict([[40.0]]).interval(0.9).width > 0
        tensor([True])
    """
    begun = time.perf_counter()
    options = {"seed": seed, "progress": progress, "standardise": standardise}
    if not isinstance(model, Model):
        check_program(model)
    model = require(model, Candidates)
    if not isinstance(data, Dataset):
        raise no_dataset(model, data)
    if how is not None and not isinstance(how, Inference):
        raise no_method(how, model)
    fits = fits_of_candidates(model, data, options)
    if not fits:
        raise without_candidates(model, data)
    named = {_name(recipe, data): fitted for recipe, fitted in fits}
    found = average(named) if len(named) > 1 else Average(named, torch.ones(1).double())
    weights = zip(named.items(), found.weights, strict=True)
    notes = _with_names({name: fitted for (name, fitted), w in weights if w > NEGLIGIBLE})
    stopped = any(cut_short(fitted.stats) for _, fitted in fits)
    if how is not None and how != MAP() and not stopped:
        found, notes = _by_method(how, data, found, [recipe for recipe, _ in fits], options)
    else:
        _say(notes)
    return replace(found, warnings=tuple(notes), took=time.perf_counter() - begun)


def without_candidates(model: Any, data: Dataset) -> PpgpError:
    """Return the error that says why a model without a kernel has no candidates for some rows."""
    if data.n < FEWEST_ROWS:
        do = "add rows, or give a kernel"
        return DataError(f"at least {FEWEST_ROWS} rows of a series", str(data.n), do)
    law = getattr(model, "likelihood", None)
    if law is not None and "y" not in model.scales and not isinstance(law, LOGARITHMIC):
        wanted = "a likelihood whose series have candidates, such as Poisson or StudentT"
        return NotApplicable(wanted, type(law).__name__, "give a kernel")
    wanted = "rows of a series that differ in time and y"
    for column, name in ((data.X[:, 0], "time"), (data.y, "y")):
        if bool((column == column[0]).all()):
            do = "look at the times and the values, or give a kernel"
            got = f"{name} = {float(column[0]):g} in all {data.n}"
            return DataError(wanted, got, do)
    low = int(data.y.argmin())
    if getattr(model, "log", False) and float(data.y[low]) <= 0:
        do = "leave log=True out, or give a kernel"
        return DataError("y above 0 for log=True", f"{float(data.y[low]):g} in row {low}", do)
    wanted = "y whose variance is a number of its precision, above 0"
    got = f"a variance of {float(data.y.double().var()):g}"
    return DataError(wanted, got, "multiply y by a constant, or give a kernel")


def _by_method(
    how: Inference, data: Dataset, by_map: Average, recipes: Sequence[Any], options: dict[str, Any]
) -> tuple[Average, list[str]]:
    """Return the candidates whose weight counts, fitted by a method, and its notes.

    After Ctrl-C those that follow stay as MAP has fitted them.
    """
    kept = by_map.weights > NEGLIGIBLE
    posteriors: dict[str, Posterior] = {}
    by_method: dict[str, Posterior] = {}
    stopped = False
    for (name, fitted), recipe, counts in zip(by_map.items(), recipes, kept.tolist(), strict=True):
        if not counts:
            continue
        posteriors[name] = fitted
        if not stopped:
            with catch_warnings():
                simplefilter("ignore", ConvergenceWarning)
                by_method[name] = fit(recipe, data, how, init=fitted, **options)
            _say(_with_names({name: by_method[name]}))
            stopped = cut_short(by_method[name].stats)
    posteriors |= by_method
    notes = _with_names(by_method)
    by_how = sum(each.how == how for each in posteriors.values())
    if by_how < len(posteriors):
        note = (
            f"stopped by Ctrl-C: {by_how} of {counted(len(posteriors), 'candidate')} fitted by "
            f"{type(how).__name__}, the others by MAP"
        )
        warn(note, ConvergenceWarning)
        notes.append(note)
    return Average(posteriors, by_map.weights[kept] / by_map.weights[kept].sum()), notes


def _with_names(fits: Mapping[str, Posterior]) -> list[str]:
    """Return the warnings of candidates, each after the names of those that have it.

    What says that Ctrl-C ended the choice stands alone.
    """
    names: dict[str, list[str]] = {}
    for name, fitted in fits.items():
        for note in dict.fromkeys(fitted.warnings):
            names.setdefault(note, []).append(name)
    return [
        note if STOPPED in note else f"{', '.join(those)}: {note}" for note, those in names.items()
    ]


def _say(notes: Iterable[str]) -> None:
    """Issue the warnings of candidates."""
    for note in notes:
        warn(f"{note}; {TWICE}" if STOPPED in note else note, ConvergenceWarning)


def expected_seconds(candidates: int, rows: int) -> float:
    """Return about how many seconds candidates take together by MAP on one core."""
    compared = rows if rows <= MOST_TO_COMPARE else ROWS_TO_COMPARE
    of_all = SECONDS_OF_ROW * rows if rows > MOST_TO_COMPARE else 0.0
    return candidates * (SECONDS_OF_FIT + SECONDS_OF_PAIR * compared**2) + of_all


def _name(recipe: Any, data: Dataset) -> str:
    """Return the name of a candidate: its kernel in words."""
    words = in_plain_words(recipe.kernel, (data.feature_names or ("",))[0])
    return f"{words}, of log y" if getattr(recipe, "log", False) else words
