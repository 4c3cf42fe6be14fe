"""What the library takes from ArviZ, the same in ArviZ 0.x and ArviZ 1.x.

It is the conversion of plain dictionaries, to InferenceData on ArviZ 0.x and to a DataTree on ArviZ
1.x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from ..runtime.libraries import imported
from ..runtime.process_locks import silenced


def arviz() -> ModuleType:
    """Return the module ArviZ, imported without its notice about the next version."""
    return imported("arviz")


def is_modern(library: ModuleType) -> bool:
    """Whether a module is ArviZ 1.x, or its part ``arviz_base``."""
    return library.__name__ == "arviz_base" or int(str(library.__version__).split(".")[0]) >= 1


def to_arviz(
    groups: Mapping[str, Mapping[str, np.ndarray]],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
    library: ModuleType | None = None,
    own_dims: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType({}),
) -> Any:
    """Return ArviZ's object of plain arrays.

    Args:
        groups: ``{"posterior": {name: [chain, draw, ...]}, "observed_data": {name: [...]}, ...}``;
            empty groups are left out.
        coords: ``{axis: coordinates}``.
        dims: ``{variable: [axis, ...]}``, without chain and draw.
        attrs: Attributes of the whole object.
        library: A module with ``from_dict``: ArviZ by default; ``arviz_base`` works too.
        own_dims: ``{group: {variable: [axis, ...]}}`` of groups whose variables have the names of
            others and axes of their own.
    """
    az = library if library is not None else arviz()
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for group, values in groups.items():
        if values:
            arrays[group] = {name: np.asarray(value) for name, value in values.items()}
    apart = {group: arrays.pop(group) for group in own_dims if group in arrays}
    used = {name for values in arrays.values() for name in values}
    kept = {name: list(axes) for name, axes in dims.items() if name in used}
    with silenced(UserWarning):  # a point estimate has more chains than draws
        if is_modern(az):
            found = az.from_dict(arrays, coords=dict(coords), dims=kept)
        else:
            found = az.from_dict(**arrays, coords=dict(coords), dims=kept)
        for group, values in apart.items():
            own = {name: list(axes) for name, axes in own_dims[group].items()}
            dataset = az.dict_to_dataset(values, coords=dict(coords), dims=own)
            if is_modern(az):
                found[group] = type(found)(dataset)
            else:  # its from_dict has no group log_prior
                found.add_groups({group: dataset})
    found.attrs.update(attrs)
    return found


def netcdf(tree: Any) -> bytes:
    """Return a compressed NetCDF file in memory.

    It is not written to disk here, because HDF5 ends the process if a write fails.
    """
    from xarray import DataTree

    if not isinstance(tree, DataTree):
        attrs = tree.attrs
        tree = DataTree.from_dict(dict(tree.items()))
        tree.attrs.update(attrs)
    compressed = {
        node.path: {
            name: {"zlib": True}
            for name, v in node.dataset.variables.items()
            if v.dtype.kind in "iufb"
        }
        for node in tree.subtree
    }
    # a copy: xarray returns a view of a buffer, and where an error keeps both in a cycle, the
    # garbage collector of CPython frees the buffer first and crashes
    return bytes(tree.to_netcdf(engine="h5netcdf", encoding=compressed))
