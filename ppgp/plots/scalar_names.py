"""The scalars of a posterior that a figure shows, and the names of columns and targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import NotApplicable, SettingError, UnknownName
from ..numerics.whole_numbers import check_whole_number
from ..posterior.posterior import Posterior
from ..posterior.scalar_names import scalars
from ..posterior.units_of_draws import draws_in, quantities, scale_of


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
) -> tuple[dict[str, np.ndarray], int]:
    """Return ``{scalar: draws [chain, draw]}`` of named scalars, or of the first ones.

    Args:
        posterior: The posterior.
        sites: Names of scalars, or how many to take.
        varying: Whether to pass over scalars whose draws are all equal, if none are named.

    Returns:
        The scalars, and the number of those that could be shown.

    Raises:
        UnknownName: If a scalar does not exist.
        SettingError: If none are asked for, or they are one text.
    """
    check_sites(sites)
    every = scalars_of(posterior)
    if isinstance(sites, int):
        names = [name for name, x in every.items() if not varying or np.ptp(x) > 0]
        return {name: every[name] for name in names[:sites]}, len(names)
    for name in sites:
        if name not in every:
            raise UnknownName("scalar", name, every)
    return {name: every[name] for name in sites}, len(sites)


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


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of X of a table; x0, x1, ... where they have none."""
    return list(data.feature_names or [f"x{k}" for k in range(data.d)])


def target_name(data: Any) -> str:
    """Return the name of y."""
    return getattr(data, "target_name", None) or "y"


def column_numbers(data: Any, columns: Sequence[int | str]) -> list[int]:
    """Return the numbers of columns of X that are given by number or by name.

    Raises:
        UnknownName: If there is no such column.
    """
    names = column_names(data)
    numbers = []
    for column in columns:
        if isinstance(column, str) and column in names:
            numbers.append(names.index(column))
        elif isinstance(column, int) and -data.d <= column < data.d:
            numbers.append(column % data.d)
        else:
            raise UnknownName("column of X", str(column), names)
    return numbers


def columns_of_plane(
    posterior: Posterior, columns: Sequence[int | str], points: int, what: str, do: str
) -> tuple[int, int]:
    """Return the numbers of the two different columns of X that span a plane.

    Args:
        posterior: The posterior of a model on a table.
        columns: The columns, by number or by name.
        points: The number of grid points per side.
        what: What the figure is called, for the message.
        do: What to do with one column of X.

    Raises:
        NotApplicable: If X has one column.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.
    """
    data = table_of(posterior)
    if data.d < 2:
        raise NotApplicable(f"at least two columns of X for {what}", "one", do)
    numbers = column_numbers(data, columns)
    if len(numbers) != 2 or numbers[0] == numbers[1]:
        raise SettingError("two different columns of X", repr(columns), "for example (0, 1)")
    check_whole_number("points", points, 2, "for example 60, the grid points per side")
    return numbers[0], numbers[1]


def table_of(posterior: Posterior) -> Any:
    """Return the training table.

    Raises:
        NotApplicable: If the posterior is that of a program.
    """
    if not posterior.data.is_table:
        do = "plot the draws or the replicates of the program"
        raise NotApplicable("a model on a table for this figure", "a program", do)
    return posterior.data


def inputs_and_targets(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return X [n, d] and y [n] of the training rows, in the units of the data."""
    data = table_of(posterior)
    X = posterior.scaler.inputs_back(data.X).double().cpu().numpy()
    return X, posterior.scaler.targets_back(data.y).double().cpu().numpy()


def described(posterior: Posterior) -> str:
    """Return the model and the method in words: ``GP by NUTS``."""
    program = getattr(posterior.model, "function", None)
    name = getattr(program, "__name__", type(posterior.model).__name__)
    return f"{name} by {type(posterior.how).__name__}"


def scale_in_words(posterior: Posterior, units: str = "model") -> str:
    """Return the scale of the draws: "units of the data" or "standardised scale"."""
    return scale_of(units, posterior.scaler)
