"""The terms of a sum of kernels, as they are shown."""

from __future__ import annotations

from ..kernels import Kernel, Multiple, Sum, Unscaled


def labels(kernel: Sum) -> list[str]:
    """Return labels such as ``0 RBF`` and ``1 Linear``, numbered as in the names of the sites."""
    return [f"{i} {type(as_written(child)).__name__}" for i, child in enumerate(kernel.children)]


def as_written(kernel: Kernel) -> Kernel:
    """Return the kernel as the user wrote it."""
    while isinstance(kernel, Unscaled | Multiple):
        kernel = kernel.kernel
    return kernel
