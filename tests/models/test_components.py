"""The terms of a sum of kernels against the joint Gaussian distribution of all terms."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NotApplicable
from ppgp.kernels import ARD, RBF, Linear, Matern, Subspace
from ppgp.models import GP, StateSpaceGP
from ppgp.posterior import Posterior
from ppgp.priors import Normal, under

KERNEL = Subspace(RBF(), [0]) + Linear() + Matern(1.5)


def fitted(standardise: bool = True) -> tuple[Posterior, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(15, 2, generator=generator, dtype=torch.float64)
    y = (
        5
        + torch.sin(2 * X[:, 0])
        + X[:, 1]
        + 0.1 * torch.randn(15, generator=generator, dtype=torch.float64)
    )
    model = GP(KERNEL, mean=Normal(0.0, 1.0))
    posterior = ppgp.fit(
        model, Dataset(X, y), inference.Laplace(draws=6), standardise=standardise, progress=False
    )
    return posterior, torch.randn(4, 2, generator=generator, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("standardise", [True, False])
def test_the_means_of_the_terms_add_up_to_the_mean(standardise: bool) -> None:
    posterior, X = fitted(standardise)
    parts = posterior.components(X)
    assert list(parts) == ["0 Subspace", "1 Linear", "2 Matern"]
    scaler = posterior.scaler
    offset, scale = scaler.location_and_scale
    constant = offset + scale * posterior.draws["mean"].mean()
    total = sum((p.mean for p in parts.values()), start=torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(total + constant, posterior.latent(X).mean, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_each_term_is_conditioned_from_one_joint_distribution() -> None:
    """Condition the Gaussian (f_i(X*), y), with cross-covariance k_i, by inverting its matrix."""
    posterior, X = fitted(standardise=False)
    train, theta = posterior.data, posterior.theta
    for i, part in enumerate(posterior.components(X).values()):
        for s in range(6):
            one = {name: value[s] for name, value in theta.items()}
            hyper = under("kernel", one)
            child, own = KERNEL.children[i], under(str(i), hyper)
            C = KERNEL(hyper, train.X) + one["noise"] * torch.eye(15, dtype=torch.float64)
            k = child(own, X, train.X)
            mean = k @ torch.linalg.inv(C) @ (train.y - one["mean"])
            variance = (child(own, X) - k @ torch.linalg.inv(C) @ k.mT).diagonal()
            torch.testing.assert_close(part.distribution.mean[s], mean, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(
                part.distribution.variance[s], variance, rtol=1e-6, atol=1e-8
            )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_a_single_kernel_has_no_components() -> None:
    posterior, X = fitted()
    alone = ppgp.fit(GP(RBF()), posterior.data, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match=r"RBF.*use latent"):
        alone.components(X)
    fixed = ppgp.fit(GP(ARD(RBF(1.0, 2.0))), posterior.data, inference.MAP(), progress=False)
    # the message names the kernel as the user wrote it
    with pytest.raises(NotApplicable, match=r"ARD.*use latent"):
        fixed.components(X)


@pytest.mark.parametrize("model", [GP, StateSpaceGP])
def test_a_line_is_0_at_the_origin_without_doubt(model: type[GP | StateSpaceGP]) -> None:
    t = torch.linspace(0.0, 1.0, 12, dtype=torch.float64)[:, None]
    data = Dataset(t, torch.sin(3 * t[:, 0]))
    options = inference.MAP(), {"standardise": False, "progress": False}
    of_sum = ppgp.fit(model(Matern(1.5) + Linear()), data, options[0], **options[1])
    line = of_sum.components(t[:1])["1 Linear"]
    alone = ppgp.fit(model(Linear(), mean=0.0), data, options[0], **options[1]).latent(t[:1])
    for found in (line, alone):
        assert float(found.mean) == 0.0
        assert float(found.std) < 1e-100
