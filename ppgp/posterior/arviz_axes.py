"""Names of the axes of every site: plates of the program, and those that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..density.handlers import is_data, is_deterministic
from ..errors import DataError, UnknownName

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
