"""``ppgp.fit_candidates``: the candidates of a model without a kernel, averaged by evidence."""

from __future__ import annotations

from typing import Any

import torch

from ...capabilities import Candidates, require
from ...data.dataset import Dataset
from ...errors import DataError
from ...posterior.averaging import NEGLIGIBLE, Average, average
from ..base import Inference
from ..optimise.map import MAP
from .fit import fit, fits_of_candidates

__all__ = ["fit_candidates"]


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
        The Average, which predicts y in its units; its posteriors are named by their number and the
        terms of their kernel.

    Raises:
        NotApplicable: If the model has a kernel, or never has candidates.
        DataError: If there are none for these rows, such as where all times are the same.

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
    options = {"seed": seed, "progress": progress, "standardise": standardise}
    fits = fits_of_candidates(require(model, Candidates), data, options)
    if not fits:
        do = "look at the times and the values, or give a kernel"
        raise DataError("rows of a series that differ in time and y", "none that do", do)
    named = {f"{i} {_terms(each)}": fitted for i, (each, fitted) in enumerate(fits)}
    found = average(named) if len(named) > 1 else Average(named, torch.ones(1).double())
    if how is None or how == MAP():
        return found
    kept = found.weights > NEGLIGIBLE
    posteriors = {}
    for name, (recipe, fitted), counts in zip(found, fits, kept.tolist(), strict=True):
        if counts:
            posteriors[name] = fit(recipe, data, how, init=fitted, **options)
    weights = found.weights[kept] / found.weights[kept].sum()
    return Average(posteriors, weights)


def _terms(recipe: Any) -> str:
    """Return the names of the terms of the kernel, such as "Constant + Matern"."""
    terms = getattr(recipe.kernel, "children", (recipe.kernel,))
    return " + ".join(map(_name, terms))


def _name(kernel: Any) -> str:
    parts = getattr(kernel, "children", (kernel,))
    return " * ".join(type(part).__name__ for part in parts)
