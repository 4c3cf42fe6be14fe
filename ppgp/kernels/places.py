"""Rows at which a kernel is a covariance, where not every row is one of its places."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import Around, Product, Sum, Unscaled

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
    elif isinstance(kernel, Sum | Product):
        for child in kernel.children:
            check_places(child, X)
    elif isinstance(kernel, Unscaled):
        check_places(kernel.kernel, kernel.rescaled(X))
    elif isinstance(kernel, Around):
        check_places(kernel.kernel, X)
