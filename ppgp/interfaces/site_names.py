"""Names of scalars with the columns of the table, where a site has one number per column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["with_columns"]

ELEMENT = re.compile(
    r"(.+)\[(\d+)\](.*)", re.DOTALL
)  # such as kernel.lengthscale[0] (standardised)


def with_columns(scalars: Iterable[object], posterior: Any) -> list[str]:
    """Return names such as "kernel.lengthscale[depth]" in place of "kernel.lengthscale[0]".

    Args:
        scalars: The names of scalars in a summary.
        posterior: The posterior.
    """
    columns = _columns_of_sites(posterior)
    return [_with_column(str(scalar), columns) for scalar in scalars]


def _with_column(scalar: str, columns: dict[str, Sequence[str]]) -> str:
    found = ELEMENT.fullmatch(scalar)
    if found is None or int(found[2]) >= len(columns.get(found[1], ())):
        return scalar
    return f"{found[1]}[{columns[found[1]][int(found[2])]}]{found[3]}"


def _columns_of_sites(posterior: Any) -> dict[str, Sequence[str]]:
    """Return {site: the names of its entries} of the sites with one number per column."""
    names = posterior.data.feature_names
    if not names:
        return {}
    model = posterior.model
    found: dict[str, Sequence[str]] = {}
    weight = posterior.draws.get("weight")
    if weight is not None and tuple(weight.shape[2:]) == (len(names),):
        found["weight"] = names
    if getattr(model, "kernel", None) is not None:
        found |= {f"kernel.{site}": of for site, of in _lengths(model.kernel, names).items()}
    return found


def _lengths(kernel: Any, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return {hyperparameter: names of columns} of the lengths of a kernel of these columns."""
    from ..kernels import Deep, Subspace

    if isinstance(kernel, Deep):  # of features
        return {}
    if isinstance(kernel, Subspace):
        return _lengths(kernel.kernel, [names[column] for column in kernel.columns])
    if hasattr(kernel, "children"):
        parts = [_lengths(child, names) for child in kernel.children]
        return {f"{i}.{site}": of for i, part in enumerate(parts) for site, of in part.items()}
    if hasattr(kernel, "kernel"):
        return _lengths(kernel.kernel, names)
    return {site: names for site in kernel.hyper if kernel.dimensions.get(site, (0, 0))[1]}
