"""Plain dicts to ArviZ: InferenceData on ArviZ 0.x, DataTree on ArviZ 1.x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..numerics.libraries import imported
from ..numerics.process_locks import silenced


def arviz() -> ModuleType:
    """ArviZ, imported without its notice about the coming version."""
    return imported("arviz")


def to_arviz(
    groups: Mapping[str, Mapping[str, np.ndarray]],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any],
    library: ModuleType | None = None,
) -> Any:
    """``groups`` ({"posterior": {name: [chain, draw, ...]}, "observed_data": {name: [...]}, ...}) as ArviZ's own object.

    ``library`` is the module with ``from_dict`` (ArviZ itself by default; ``arviz_base`` serves too).
    """
    az = library if library is not None else arviz()
    groups = {
        g: {k: np.asarray(v) for k, v in values.items()} for g, values in groups.items() if values
    }
    used = {name for values in groups.values() for name in values}
    kept = {name: list(d) for name, d in dims.items() if name in used}
    major = int(str(az.__version__).split(".")[0])
    modern = major >= 1 or az.__name__ == "arviz_base"
    with silenced(UserWarning):  # more chains than draws, which one point estimate has
        if modern:
            tree = az.from_dict(groups, coords=dict(coords), dims=kept)
            tree.attrs.update(attrs)
            return tree
        return az.from_dict(**groups, coords=dict(coords), dims=kept, attrs=dict(attrs))


def netcdf(tree: Any) -> memoryview:
    """A NetCDF file in memory, compressed: HDF5 ends the process where it cannot write to a disk."""
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
