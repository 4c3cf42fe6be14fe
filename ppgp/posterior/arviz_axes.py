"""What the axes of every site are called: plates of the program, features, classes, components."""

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
    """``{site: [plate, ...]}`` and ``{plate: [0, 1, ...]}`` from the records of one run of the program.

    Plates come in the order of the site's axes; axes of the site's own event follow, and ArviZ names them. A plate that is
    called like a site, or like one of ArviZ's own axes, becomes ``name_dim``.
    """
    dims: Dims = {}
    coords: Coords = {}
    for name, site in sites.items():
        value = site["value"]
        if site["type"] != "sample" or not isinstance(value, Tensor) or not value.ndim:
            continue
        # pyro.deterministic calls all its axes its event; inside a plate the outer ones are the plate's all the same
        event = len(site["fn"].event_shape)
        event = 0 if is_deterministic(site) and event == value.ndim else event
        axes: list[str | None] = [None] * value.ndim
        for frame in site["cond_indep_stack"]:
            axis = (frame.dim or 0) - event  # from the right; a plate that is a loop has no axis
            if frame.dim is not None and -axis <= value.ndim and value.shape[axis] == frame.size:
                plate = (
                    f"{frame.name}_dim"
                    if frame.name in sites or frame.name in RESERVED
                    else frame.name
                )
                axes[axis] = plate
                coords[plate] = list(range(frame.size))
        if any(axes):
            # the log density of a likelihood lacks its own axes, so that they cannot be named for all groups at once
            last = (
                max(i for i, axis in enumerate(axes) if axis) + 1 if is_data(site) else value.ndim
            )
            dims[name] = [axis or f"{name}_dim_{i}" for i, axis in enumerate(axes[:last])]
    return dims, coords


def table_axes(
    model: Any, data: Dataset, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Dims, Coords]:
    """The axes that a table gives names to: ``row`` and ``feature``; ``class`` of a classifier; ``component`` of a mixture.

    ``shapes``: {site: event shape}. A site under ``ARD`` in a ``Subspace`` gets an axis of those columns alone.
    """
    names: list[Any] = list(data.feature_names or range(data.d))
    coords: Coords = {"row": list(range(data.n)), "feature": names}
    dims: Dims = {"y": ["row"], "X": ["row", "feature"]}
    classes = getattr(model, "classes", None)
    labels = (
        [str(c) for c in data.classes]
        if data.classes and len(data.classes) == classes
        else list(range(classes or 0))
    )
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
            dims[name] = [axis, "feature"] if shape[1:] == (data.d,) else [axis]
        elif name.endswith("lengthscale") and len(shape) == 1:
            columns = _columns(getattr(model, "kernel", None), name.split(".")[1:-1], data.d)
            whole = columns == list(range(data.d))
            axis = "feature" if whole else f"{name}_feature"
            if len(columns) == shape[0]:
                dims[name] = [axis]
                coords[axis] = [names[c] for c in columns]
        elif shape == (data.d,):
            dims[name] = ["feature"]
    return dims, coords


def _columns(kernel: Any, path: list[str], d: int) -> list[int]:
    """Which columns of X the kernel at ``path`` (numbers of children) sees."""
    columns = list(range(d))
    path = list(path)
    while kernel is not None:
        if hasattr(kernel, "columns"):
            columns = [columns[c] for c in kernel.columns]
        if hasattr(kernel, "children"):
            kernel = kernel.children[int(path.pop(0))] if path and path[0].isdigit() else None
        else:
            kernel = getattr(kernel, "kernel", None)
    return columns


def renamed(
    dims: Dims,
    coords: Coords,
    user_dims: Mapping[str, Any] | None,
    user_coords: Mapping[str, Any] | None,
) -> None:
    """Put the user's names in place of the found ones.

    Raises:
        UnknownName: if coords name an axis that no variable has.
        DataError: if an axis has another length than its coords.
    """
    dims |= {name: list(axes) for name, axes in (user_dims or {}).items()}
    known = {axis for axes in dims.values() for axis in axes}
    for axis, values in (user_coords or {}).items():
        if axis not in known:
            raise UnknownName("axis", axis, sorted(known))
        if axis in coords and len(coords[axis]) != len(values):
            raise DataError(
                f"{len(coords[axis])} coordinates for the axis {axis}",
                f"{len(values)}",
                "pass one name for each entry",
            )
        coords[axis] = list(values)
