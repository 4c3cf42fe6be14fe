"""Names of the axes of every site, of plates and tables, and of every scalar of a posterior."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from ..capabilities import GroupEffects, require, supports
from ..data.dataset import Dataset
from ..data.entries.arrays import as_tensor
from ..density.handlers import is_data, is_deterministic
from ..density.plates import plate_of
from ..errors import DataError, UnknownName
from ..kernels.deep import Deep

RESERVED = ("chain", "draw", "sample")  # ArviZ's own

Dims = dict[str, list[str]]
Coords = dict[str, list[Any]]


def axes_of(
    model: Any, data: Any, sites: Mapping[str, Mapping[str, Any]], draws: Mapping[str, Tensor]
) -> tuple[Dims, Coords]:
    """Return the axes of every site, and the coordinates of every axis.

    Args:
        model: The prepared model, or the program.
        data: The training data.
        sites: Every site of one run of the program.
        draws: ``{site: [chain, draw, *event]}``.
    """
    dims, coords = plate_axes(sites)
    if not data.is_table:
        return dims, coords
    # ppgp's own models call the plate of their rows "rows"; the axis of a table is "row"
    for axes in dims.values():
        axes[:] = ["row" if axis == "rows" else axis for axis in axes]
    coords.pop("rows", None)
    shapes = {site: tuple(value.shape[2:]) for site, value in draws.items()}
    own_dims, own_coords = table_axes(model, data, shapes)
    if supports(model, GroupEffects):
        _add_effect_axes(model, data, own_dims, own_coords)
    return dims | own_dims, coords | own_coords


def plate_axes(sites: Mapping[str, Mapping[str, Any]]) -> tuple[Dims, Coords]:
    """Return ``{site: [plate, ...]}`` and ``{plate: [0, 1, ...]}``, from one run of the program.

    Plates come in the order of the site's axes. The axes of the site's own event follow, and
    ArviZ names them. A plate with the name of a site, or of one of ArviZ's own axes, is called
    ``name_dim``.
    """
    dims: Dims = {}
    coords: Coords = {}
    for name, site in sites.items():
        value = site["value"]
        if site["type"] != "sample" or not isinstance(value, Tensor) or not value.ndim:
            continue
        axes = _plates(site, sites, coords)
        if not any(axes):
            continue
        last = value.ndim
        if is_data(site):
            # the log density of an observed site lacks the axes of its event, so that these
            # cannot have names that hold for all groups
            last = max(i for i, axis in enumerate(axes) if axis) + 1
        dims[name] = [axis or f"{name}_dim_{i}" for i, axis in enumerate(axes[:last])]
    return dims, coords


def _plates(
    site: Mapping[str, Any], sites: Mapping[str, Mapping[str, Any]], coords: Coords
) -> list[str | None]:
    """Return the plate of each axis of a site, None for other axes; add the plates to coords."""
    value = site["value"]
    event = len(site["fn"].event_shape)
    if is_deterministic(site) and event == value.ndim:
        # pyro.deterministic counts all axes as its event, those of plates too
        event = 0
    axes: list[str | None] = [None] * value.ndim
    for frame in site["cond_indep_stack"]:
        if frame.dim is None:  # a plate that is a loop has no axis
            continue
        axis = frame.dim - event  # from the right
        if -axis > value.ndim or value.shape[axis] != frame.size:
            continue
        plate = plate_of(frame, site)
        if plate in sites or plate in RESERVED:
            plate = f"{plate}_dim"
        axes[axis] = plate
        coords[plate] = list(range(frame.size))
    return axes


def steps_of_loops(names: Iterable[str]) -> dict[str, list[str]]:
    """Return {name: its steps, in order} of sites named like ``y_0``, ``y_1``, ...

    Two sites are a loop where their names differ in a number at the end, and no site has the name
    without it.

    Args:
        names: Of all sites.
    """
    every = list(names)
    found: dict[str, list[tuple[int, str]]] = {}
    for name in every:
        number = re.search(r"_?(\d+)$", name)
        if number is not None:
            found.setdefault(name[: number.start()], []).append((int(number[1]), name))
    return {
        name: [step for _, step in sorted(own)]
        for name, own in found.items()
        if len(own) > 1 and name and name not in every
    }


def renamed(
    dims: Dims,
    coords: Coords,
    user_dims: Mapping[str, Any] | None,
    user_coords: Mapping[str, Any] | None,
) -> None:
    """Replace names and coordinates by those of the user, in place.

    Raises:
        UnknownName: If ``user_coords`` names an axis that no variable has.
        DataError: If an axis has another length than its coordinates.
    """
    dims |= {name: list(axes) for name, axes in (user_dims or {}).items()}
    known = {axis for axes in dims.values() for axis in axes}
    for axis, values in (user_coords or {}).items():
        if axis not in known:
            raise UnknownName("axis", axis, sorted(known))
        if axis in coords and len(coords[axis]) != len(values):
            wanted = f"{len(coords[axis])} coordinates for the axis {axis}"
            raise DataError(wanted, f"{len(values)}", "pass one name for each entry")
        coords[axis] = list(values)


def table_axes(
    model: Any, data: Dataset, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Dims, Coords]:
    """Return the axes that a table names, and their coordinates.

    They are ``row`` (with the ids of the rows) and ``feature``, ``class`` of a classifier and
    ``component`` of a mixture; columns with roles have the axis ``row``. A
    lengthscale under ``ARD`` in a ``Subspace`` gets an axis of the columns of the subspace.

    Args:
        model: The prepared model.
        data: The training table.
        shapes: ``{site: event shape}``.
    """
    names: list[Any] = list(data.feature_names or range(data.d))
    coords: Coords = {"row": list(data.ids or range(data.n)), "feature": names}
    dims: Dims = {"y": ["row"], "X": ["row", "feature"]}
    dims |= {name: ["row"] for name in columns_by_name(data)}
    classes = getattr(model, "classes", None)
    labels: list[Any] = list(range(classes or 0))
    if data.classes and len(data.classes) == classes:
        labels = [str(c) for c in data.classes]
    components = getattr(model, "components", None)
    for name, shape in shapes.items():
        if not shape:
            continue
        if components and shape == (components,):
            dims[name], coords["component"] = ["component"], list(range(components))
        elif classes and name in ("weight", "bias") and shape[0] in (classes, classes - 1):
            # under a flat prior the first class is the reference and has no site
            axis = "class" if shape[0] == classes else "class_but_first"
            coords[axis] = labels[classes - shape[0] :]
            dims[name] = [axis]
            if shape[1:] == (data.d,):
                dims[name] = [axis, "feature"]
        elif name.endswith("lengthscale") and len(shape) == 1:
            columns = _columns(getattr(model, "kernel", None), name.split(".")[1:-1], data.d)
            if len(columns) == shape[0]:
                axis = _axis_of_columns(name, columns, data.d)
                dims[name], coords[axis] = [axis], [names[c] for c in columns]
        elif shape == (data.d,):
            dims[name] = ["feature"]
    return dims, coords


def columns_by_name(data: Dataset) -> dict[str, Tensor]:
    """Return ``{name: [n]}`` of the columns of offset, trials and weights, and of the groupings."""
    columns = {name: getattr(data, name) for name in ("offset", "trials", "weights")}
    named = {name: column for name, column in columns.items() if column is not None}
    return named | {f"groups.{name}": codes for name, codes in (data.groups or {}).items()}


def _axis_of_columns(name: str, columns: list[int], d: int) -> str:
    """Return the name of the axis of a site with one entry per column of X in ``columns``."""
    return "feature" if columns == list(range(d)) else f"{name}_feature"


def _columns(kernel: Any, path: list[str], d: int) -> list[int]:
    """Return the columns of X that the kernel at ``path`` reads (a path of child numbers)."""
    columns = list(range(d))
    path = list(path)
    while kernel is not None:
        if isinstance(kernel, Deep):  # its inner kernel reads features, which have no names
            return []
        if hasattr(kernel, "columns"):
            columns = [columns[c] for c in kernel.columns]
        if hasattr(kernel, "children"):
            if not path or not path[0].isdigit():
                break
            kernel = kernel.children[int(path.pop(0))]
        else:
            kernel = getattr(kernel, "kernel", None)
    return columns


def _add_effect_axes(model: Any, data: Any, dims: Dims, coords: Coords) -> None:
    """Add the axes of the coefficients of groups and of their sds, and the coordinates."""
    for name, terms in require(model, GroupEffects).effect_names().items():
        axis = f"{name}.term"
        dims[f"{name}.effect"], dims[f"{name}.sd"] = [name, axis], [axis]
        coords[name], coords[axis] = list(data.group_levels[name]), list(terms)


def scalar_names(
    draws: Mapping[str, Any], model: Any = None, data: Any = None
) -> dict[str, list[str]]:
    """Return ``{site: names of its elements}`` in row-major order, such as ``weight[bmi]``.

    The entries of an axis that a table names (features, classes, components, terms) have its
    coordinates, as in ``to_arviz``; those of other axes are numbered from 0.

    Args:
        draws: ``{site: [chain, draw, *event]}`` in any units.
        model: The prepared model that they belong to.
        data: Its training data; None: all entries are numbered.
    """
    shapes = {site: tuple(value.shape[2:]) for site, value in draws.items()}
    dims: dict[str, list[str]] = {}
    coords: dict[str, list[Any]] = {}
    if data is not None and data.is_table and any(shapes.values()):
        dims, coords = table_axes(model, data, shapes)
        if supports(model, GroupEffects):
            _add_effect_axes(model, data, dims, coords)
    names: dict[str, list[str]] = {}
    for site, shape in shapes.items():
        if not shape:
            names[site] = [site]
            continue
        axes: list[Any] = [range(size) for size in shape]
        for position, axis in enumerate(dims.get(site, [])):
            if position < len(shape) and len(coords.get(axis, ())) == shape[position]:
                axes[position] = coords[axis]
        names[site] = [f"{site}[{', '.join(map(str, entry))}]" for entry in product(*axes)]
    return names


def named_scalars(
    draws: Mapping[str, Any], names: Mapping[str, list[str]]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of every scalar and its draws [chain, draw] in float64.

    Args:
        draws: ``{site: [chain, draw, *event]}``.
        names: ``scalar_names`` of them.
    """
    for site, value in draws.items():
        array = as_tensor(value, site).double().cpu().numpy()
        columns = array.reshape(*array.shape[:2], -1)
        for position, name in enumerate(names[site]):
            yield name, columns[..., position]
