"""Kernels with some hyperparameters fixed, at many draws of the others."""

from __future__ import annotations

import pytest
import torch

from ppgp.kernels import (
    ARD,
    RBF,
    Anisotropy,
    Kernel,
    Matern,
    Metric,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    SpectralMixture,
)

F64 = torch.float64
PARTLY: list[Kernel] = [
    Anisotropy(RBF(), angle=30.0),
    Anisotropy(RBF(), ratio=0.5),
    Anisotropy(RBF(1.0, 2.0), angle=30.0),
    ARD(Scale(RBF(1.0, (1.0, 2.0, 3.0)))),
    Scale(ARD(Matern(1.5, 2.0)), 3.0),
    Metric(RBF(1.0, 2.0)),
    Metric(RBF(1.0, (1.0, 2.0)), rank=2),
    Metric(Scale(RBF()), shear=(0.5, -1.0, 0.0)),
    Periodic(1.0, period=2.0),
    Polynomial(2, 1.0),
    RationalQuadratic(alpha=2.0),
    SpectralMixture(2, frequency=0.5),
    SpectralMixture(2, 1.0, bandwidth=0.1),
]


@pytest.mark.parametrize("kernel", PARTLY, ids=repr)
def test_all_draws_at_once_equal_each_draw_alone(kernel: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    X, Z = (torch.randn(n, 3, generator=generator, dtype=F64) for n in (4, 5))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theta = {
            name: s.distribution(X).sample((3,))
            for name, s in kernel.sites(3).items()
            if not s.fixed
        }
    each = [{name: value[i] for name, value in theta.items()} for i in range(3)]
    torch.testing.assert_close(
        kernel(theta, X, Z), torch.stack([kernel(one, X, Z) for one in each])
    )
    torch.testing.assert_close(kernel(theta, X), torch.stack([kernel(one, X) for one in each]))
    diagonal = torch.stack([kernel.diag(one, X) for one in each])
    torch.testing.assert_close(kernel.diag(theta, X).expand(3, 4), diagonal)
