"""Plain dictionaries as ArviZ objects: InferenceData on ArviZ 0.x, DataTree on ArviZ 1.x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..numerics.libraries import imported
from ..numerics.process_locks import silenced


def arviz() -> ModuleType:
    """Return the module ArviZ, imported without its notice about the next version."""
    return imported("arviz")


def to_arviz(
    groups: Mapping[str, Mapping[str, np.ndarray]],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
    library: ModuleType | None = None,
) -> Any:
    """Return ArviZ's object of plain arrays.

    Args:
        groups: ``{"posterior": {name: [chain, draw, ...]}, "observed_data": {name: [...]}, ...}``;
            empty groups are left out.
        coords: ``{axis: coordinates}``.
        dims: ``{variable: [axis, ...]}``, without chain and draw.
        attrs: attributes of the whole object.
        library: a module with ``from_dict``: ArviZ by default; ``arviz_base`` works too.
    """
    az = library if library is not None else arviz()
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for group, values in groups.items():
        if values:
            arrays[group] = {name: np.asarray(value) for name, value in values.items()}
    used = {name for values in arrays.values() for name in values}
    kept = {name: list(d) for name, d in dims.items() if name in used}
    major = int(str(az.__version__).split(".")[0])
    modern = major >= 1 or az.__name__ == "arviz_base"
    with silenced(UserWarning):  # a point estimate has more chains than draws
        if modern:
            tree = az.from_dict(arrays, coords=dict(coords), dims=kept)
            tree.attrs.update(attrs)
            return tree
        return az.from_dict(**arrays, coords=dict(coords), dims=kept, attrs=dict(attrs))


def netcdf(tree: Any) -> memoryview:
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
    return tree.to_netcdf(engine="h5netcdf", encoding=compressed)
