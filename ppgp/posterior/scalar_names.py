"""The name of every scalar of a posterior, with the coordinates that ``to_arviz`` has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from ..data.entries.arrays import as_tensor
from ..errors import DataError
from .arviz_table_axes import table_axes
from .fitted import Fitted
from .group_effects import effect_axes

__all__ = ["scalar_names", "scalars"]


def scalar_names(draws: Mapping[str, Any], fit: Fitted | None = None) -> dict[str, list[str]]:
    """Return ``{site: names of its elements}`` in row-major order, such as ``weight[bmi]``.

    The entries of an axis that a table names (features, classes, components, terms) have its
    coordinates, as in ``to_arviz``; those of other axes are numbered from 0.

    Args:
        draws: ``{site: [chain, draw, *event]}`` in any units.
        fit: The posterior that they belong to; None: all entries are numbered.
    """
    shapes = {site: tuple(value.shape[2:]) for site, value in draws.items()}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[Any]] = {}
    if fit is not None and fit.data.is_table:
        dims, coords = table_axes(fit.model, fit.data, shapes)
        own_dims, own_coords = effect_axes(fit)
        dims, coords = dims | own_dims, coords | own_coords
    names = {}
    for site, shape in shapes.items():
        axes: list[Any] = [range(size) for size in shape]
        for position, axis in enumerate(dims.get(site, [])):
            if position < len(shape) and len(coords.get(axis, ())) == shape[position]:
                axes[position] = coords[axis]
        names[site] = [_labelled(site, entry) for entry in product(*axes)]
    return names


def _labelled(site: str, entry: tuple[Any, ...]) -> str:
    """Return the name of an element, such as "weight[0, 2]"; that of the site for a scalar."""
    if not entry:
        return site
    return f"{site}[{', '.join(map(str, entry))}]"


def scalars(
    draws: Mapping[str, Any], fit: Fitted | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of every scalar (``weight[bmi]``) and its draws [chain, draw] in float64.

    The entries of an axis that a table names (features, classes, components, terms) have its
    coordinates, as in ``to_arviz``; those of other axes are numbered from 0.

    Args:
        draws: ``{site: [chain, draw, *event]}`` in any units, such as ``posterior.draws``.
        fit: The posterior that they belong to; None: all entries are numbered.

    Yields:
        The name and the draws of each scalar, in the units of its site.

    Raises:
        DataError: If a site has no axes of chains and draws.

    Examples:
        >>> import ppgp
        >>> from ppgp import diagnostics, inference, models
        >>> data = ppgp.Dataset(
        ...     [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]], [1.0, 2.0, 3.0], feature_names=["age", "bmi"]
        ... )
        >>> model, how = models.LinearRegression(), inference.MAP()
        >>> posterior = ppgp.fit(model, data, how, progress=False)
        >>> for name, x in diagnostics.scalars(posterior.draws, posterior):
        ...     print(name, x.shape)
        weight[age] (1, 1)
        weight[bmi] (1, 1)
        bias (1, 1)
        noise (1, 1)
        >>> [name for name, _ in diagnostics.scalars({"weight": posterior.draws["weight"]})]
        ['weight[0]', 'weight[1]']
    """
    for site, value in draws.items():
        if np.ndim(value) < 2:
            got = f"shape {list(np.shape(value))} of {site}"
            raise DataError("draws with shape [chain, draw, ...]", got, "pass posterior.draws")
    names = scalar_names(draws, fit)
    for site, value in draws.items():
        array = as_tensor(value, site).double().cpu().numpy()
        columns = array.reshape(*array.shape[:2], -1)
        for position, name in enumerate(names[site]):
            yield name, columns[..., position]
