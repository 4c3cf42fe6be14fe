"""Which columns each kernel of a ``GridGP`` reads."""

from __future__ import annotations

from dataclasses import replace

from ...errors import SettingError, counted
from ...kernels import ARD, Kernel, Multiple, Product, Scale, Subspace
from ...kernels.base import check_kernel, replaced

Kernels = Kernel | tuple[Kernel, ...]


def checked(kernels: object) -> Kernels:
    """Return one kernel, or a tuple of kernels.

    Raises:
        SettingError: If it is anything else.
    """
    if isinstance(kernels, list | tuple):
        if not kernels:
            raise SettingError("at least one kernel in GridGP", "none", "for example GridGP(RBF())")
        return tuple(check_kernel(kernel) for kernel in kernels)
    return check_kernel(kernels)


def of_columns(kernels: Kernels, d: int) -> list[Subspace]:
    """Return the kernel of each axis of the grid, with the columns that it reads.

    One kernel is that of each column, and its variance that of their product. Of several kernels,
    a Subspace reads its own columns, and each other one the next column that no Subspace reads.

    Raises:
        SettingError: If the kernels do not read each of the d columns once.
    """
    if isinstance(kernels, Kernel) and not isinstance(kernels, Subspace):
        first, rest = kernels, _of_variance_one(kernels)
        return [Subspace(first if k == 0 else rest, (k,)) for k in range(d)]
    given = kernels if isinstance(kernels, tuple) else (kernels,)
    named = [c for kernel in given if isinstance(kernel, Subspace) for c in kernel.columns]
    free = [c for c in range(d) if c not in named]
    alone = [kernel for kernel in given if not isinstance(kernel, Subspace)]
    if sorted(named) != [c for c in range(d) if c in named] or len(alone) != len(free):
        raise SettingError(
            f"kernels of GridGP that read each of {counted(d, 'column')} once",
            f"{counted(len(given), 'kernel')}, of which Subspace reads columns {named}",
            "give one kernel per column, and columns that vary together one Subspace(kernel, "
            "columns)",
        )
    columns = iter(free)
    return [
        kernel if isinstance(kernel, Subspace) else Subspace(kernel, (next(columns),))
        for kernel in given
    ]


def product_of(factors: list[Subspace]) -> Product:
    """Return the product kernel of the factors, whose sites are numbered as the axes."""
    return Product(tuple(factors))


def _of_variance_one(kernel: Kernel) -> Kernel:
    """Return a kernel with its variance fixed to 1, where it has one."""
    if isinstance(kernel, Scale):
        return replace(kernel, outputscale=1.0)
    if isinstance(kernel, ARD | Multiple):
        return replace(kernel, kernel=_of_variance_one(kernel.kernel))
    if "variance" in kernel.hyper:
        return replaced(kernel, variance=1.0)
    return kernel
