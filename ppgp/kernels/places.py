"""Rows at which a kernel is a covariance, where not every row is one of its places."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .around import Around, Unscaled
from .base import Product, Sum
from .wrappers import Subspace

__all__ = ["check_places"]


def check_places(kernel: Any, X: Tensor) -> None:
    """Check the rows of data, which a kernel with places of its own does not take everywhere.

    Places that a search tries, such as inducing inputs, are not checked.

    Args:
        kernel: A kernel, with a method ``check_places`` if it has places; None has none.
        X: Rows [n, d], as the kernel sees them.

    Raises:
        DataError: If a row is no place of the kernel, or of one inside it.
    """
    own = getattr(kernel, "check_places", None)
    if own is not None:
        own(X)
    for child in _inside(kernel):
        if _has_places(child):
            check_places(child, _seen_inside(kernel, X))


def _inside(kernel: Any) -> tuple[Any, ...]:
    """Return the kernels that a kernel combines or wraps."""
    if isinstance(kernel, Sum | Product):
        return kernel.children
    return (kernel.kernel,) if isinstance(kernel, Around) else ()


def _has_places(kernel: Any) -> bool:
    return hasattr(kernel, "check_places") or any(map(_has_places, _inside(kernel)))


def _seen_inside(kernel: Any, X: Tensor) -> Tensor:
    """Return the rows as the kernel inside sees them."""
    if isinstance(kernel, Subspace):
        return kernel.chosen(X)
    return kernel.rescaled(X) if isinstance(kernel, Unscaled) else X
