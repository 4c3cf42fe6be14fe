"""The scalars of a posterior that a figure shows, and the scale of their draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import SettingError, UnknownName
from ..posterior.convergence import scalars
from ..posterior.posterior import Posterior
from ..posterior.units_of_draws import draws_in, quantities, scale_of
from ..runtime.whole_numbers import check_whole_number


def scalars_of(
    posterior: Posterior, units: str = "model", named_as: Posterior | None = None
) -> dict[str, np.ndarray]:
    """Return the draws of every scalar, ``{name: [chain, draw]}``, such as ``weight[age]``.

    Args:
        posterior: The posterior.
        units: "model" or "data", as in ``Posterior.draws_in``.
        named_as: The posterior whose table names the columns; None: this one.
    """
    draws = quantities(posterior.draws, posterior.model)
    if units != "model":
        draws, _ = draws_in(units, posterior.draws, posterior.model, posterior.scaler)
    return dict(scalars(draws, named_as or posterior))


def chosen(
    posterior: Posterior, sites: Sequence[str] | int, varying: bool = False
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return ``{scalar: draws [chain, draw]}`` of named scalars, or of the first ones.

    Args:
        posterior: The posterior.
        sites: Names of scalars, or how many to take.
        varying: Whether to pass over scalars whose draws are all equal, if none are named.

    Returns:
        The scalars, and the names of those that could be shown.

    Raises:
        UnknownName: If a scalar does not exist.
        SettingError: If none are asked for, or they are one text.
    """
    check_sites(sites)
    every = scalars_of(posterior)
    if isinstance(sites, int):
        names = [name for name, x in every.items() if not varying or np.ptp(x) > 0]
        return {name: every[name] for name in names[:sites]}, names
    for name in sites:
        if name not in every:
            raise UnknownName("scalar", name, every)
    return {name: every[name] for name in sites}, list(sites)


def check_sites(sites: Any) -> None:
    """Raise SettingError unless sites are a list of names, or a number of at least one."""
    if isinstance(sites, int):
        check_whole_number("sites", sites, 1, "or pass a list of names")
    elif isinstance(sites, str):
        raise SettingError("a list of names of scalars", repr(sites), f"write [{sites!r}]")
    elif not isinstance(sites, Iterable):
        wanted = "names of scalars, or how many to show, as sites"
        raise SettingError(wanted, repr(sites)[:60], "for example sites=3")
    elif not len(list(sites)):
        raise SettingError("at least one scalar to show", "none", "name one, or leave sites out")


def scale_in_words(posterior: Posterior, units: str = "model") -> str:
    """Return the scale of the draws: "units of the data" or "standardised scale"."""
    return scale_of(units, posterior.scaler)
