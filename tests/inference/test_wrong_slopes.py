"""Newton's method warns where no step rises although the slopes promise a rise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, likelihoods
from ppgp.inference import MAP, Laplace
from ppgp.models import GLM
from ppgp.numerics.newton import too_small_to_see


@dataclass(frozen=True)
class OtherSign(likelihoods.Poisson):
    """Poisson counts whose slopes have the wrong sign."""

    def _slopes(self, p: Any, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        return tuple(-slope for slope in super()._slopes(p, f, y, kind))


def counts() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    return Dataset(X, torch.poisson((1.0 + 0.5 * X[:, 0]).exp(), generator=generator))


@pytest.mark.parametrize("how", [MAP("newton"), Laplace()])
def test_a_search_that_nothing_raises_has_not_converged(how: Any) -> None:
    with pytest.warns(UserWarning, match=r"no step raised the density, but its gradient promises"):
        posterior = ppgp.fit(GLM(OtherSign()), counts(), how, progress=False)
    assert any("check the derivatives" in note for note in posterior.warnings)


def test_the_search_converges_with_the_slopes_of_the_density() -> None:
    posterior = ppgp.fit(GLM(likelihoods.Poisson()), counts(), MAP("newton"), progress=False)
    assert not posterior.warnings


@pytest.mark.parametrize(("dtype", "least"), [(torch.float64, 1e-10 * 101), (torch.float32, 1e-3)])
def test_a_rise_is_too_small_to_see_below_the_rounding_of_the_density(
    dtype: torch.dtype, least: float
) -> None:
    assert too_small_to_see(0.9 * least, -100.0, dtype)
    assert not too_small_to_see(1.1 * least, -100.0, dtype)
    assert not too_small_to_see(float("nan"), -100.0, dtype)
