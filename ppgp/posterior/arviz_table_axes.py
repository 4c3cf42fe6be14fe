"""Names of the axes of a model on a table: rows, features, classes and components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..data.dataset import Dataset
from ..kernels.deep import Deep
from .arviz_axes import Coords, Dims


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
