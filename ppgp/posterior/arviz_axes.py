"""Names of the axes of every site: plates of the program, features, classes and components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..data.dataset import Dataset
from ..errors import DataError, UnknownName
from ..target.handlers import is_data, is_deterministic

RESERVED = ("chain", "draw", "sample")  # ArviZ's own

Dims = dict[str, list[str]]
Coords = dict[str, list[Any]]


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
        plate = frame.name
        if plate in sites or plate in RESERVED:
            plate = f"{plate}_dim"
        axes[axis] = plate
        coords[plate] = list(range(frame.size))
    return axes


def table_axes(
    model: Any, data: Dataset, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Dims, Coords]:
    """Return the axes that a table names, and their coordinates.

    They are ``row`` and ``feature``, ``class`` of a classifier and ``component`` of a mixture. A
    lengthscale under ``ARD`` in a ``Subspace`` gets an axis of the columns of the subspace.

    Args:
        model: the prepared model.
        data: the training table.
        shapes: ``{site: event shape}``.
    """
    names: list[Any] = list(data.feature_names or range(data.d))
    coords: Coords = {"row": list(range(data.n)), "feature": names}
    dims: Dims = {"y": ["row"], "X": ["row", "feature"]}
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


def _axis_of_columns(name: str, columns: list[int], d: int) -> str:
    """Return the name of the axis of a site with one entry per column of X in ``columns``."""
    return "feature" if columns == list(range(d)) else f"{name}_feature"


def _columns(kernel: Any, path: list[str], d: int) -> list[int]:
    """Return the columns of X that the kernel at ``path`` reads (a path of child numbers)."""
    columns = list(range(d))
    path = list(path)
    while kernel is not None:
        if hasattr(kernel, "columns"):
            columns = [columns[c] for c in kernel.columns]
        if hasattr(kernel, "children"):
            if not path or not path[0].isdigit():
                break
            kernel = kernel.children[int(path.pop(0))]
        else:
            kernel = getattr(kernel, "kernel", None)
    return columns


def renamed(
    dims: Dims,
    coords: Coords,
    user_dims: Mapping[str, Any] | None,
    user_coords: Mapping[str, Any] | None,
) -> None:
    """Replace names and coordinates by those of the user, in place.

    Raises:
        UnknownName: if ``user_coords`` names an axis that no variable has.
        DataError: if an axis has another length than its coordinates.
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
