"""The covariance between outputs, by a column of codes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, models, priors
from ppgp.errors import DataError, SettingError
from ppgp.kernels import RBF, Coregionalisation, Matern, Subspace
from ppgp.kernels.fourier_features import Draw

G = torch.Generator().manual_seed(0)
Q, R, N = 3, 2, 7
KERNEL = Coregionalisation(Q, R)


def drawn(*batch: int) -> dict[str, Tensor]:
    return {
        "weight": torch.randn(*batch, Q, R, generator=G, dtype=torch.float64),
        "variance": torch.rand(*batch, Q, generator=G, dtype=torch.float64),
    }


def codes(n: int) -> Tensor:
    return torch.randint(Q, (n, 1), generator=G).double()


def dense(theta: dict[str, Tensor]) -> Tensor:
    return theta["weight"] @ theta["weight"].mT + torch.diag(theta["variance"])


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_it_is_the_entry_of_b_and_positive_definite(rank: int) -> None:
    kernel, X, Z = Coregionalisation(Q, rank), codes(N), codes(5)
    theta = {"variance": drawn()["variance"]}
    B = torch.diag(theta["variance"])
    if rank:
        theta["weight"] = torch.randn(Q, rank, generator=G, dtype=torch.float64)
        B = B + theta["weight"] @ theta["weight"].mT
    i, j = X[:, 0].long(), Z[:, 0].long()
    torch.testing.assert_close(kernel(theta, X, Z), B[i][:, j], rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(kernel(theta, X), B[i][:, i], rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(kernel.diag(theta, X), B.diagonal()[i], rtol=1e-14, atol=1e-14)
    assert float(torch.linalg.eigvalsh(kernel(theta, X))[0]) > -1e-12
    assert set(kernel.sites(1)) == set(theta)


def test_every_output_at_every_place_has_a_kronecker_product() -> None:
    x = torch.rand(N, 1, generator=G, dtype=torch.float64)
    X = torch.cat([x.repeat(Q, 1), torch.arange(Q).double().repeat_interleave(N)[:, None]], 1)
    inner = Matern(1.5, 1.0, 0.4)
    kernel = Subspace(inner, [0]) * Subspace(KERNEL, [1])
    theta = drawn()
    K = kernel({f"1.{name}": value for name, value in theta.items()}, X)
    torch.testing.assert_close(K, torch.kron(dense(theta), inner({}, x)), rtol=1e-13, atol=1e-13)


def test_a_batch_of_draws_is_a_loop_in_either_precision() -> None:
    theta, X, Z = drawn(4), codes(N), codes(5)
    whole, diagonal = KERNEL(theta, X, Z), KERNEL.diag(theta, X)
    for i in range(4):
        one = {name: value[i] for name, value in theta.items()}
        torch.testing.assert_close(whole[i], KERNEL(one, X, Z))
        torch.testing.assert_close(diagonal[i], KERNEL.diag(one, X))
    single = KERNEL({name: value.float() for name, value in theta.items()}, X.float(), Z.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), whole, rtol=1e-5, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences() -> None:
    theta, X = drawn(), codes(N)
    values = [value.requires_grad_() for value in theta.values()]
    assert torch.autograd.gradcheck(lambda *v: KERNEL(dict(zip(theta, v, strict=True)), X), values)


def test_prior_functions_have_the_covariance_of_the_kernel() -> None:
    theta, X, samples = drawn(), codes(N), 20_000
    draw = Draw(samples, 0, torch.Generator().manual_seed(1), X)
    f = KERNEL.path(theta, 1, draw)(X)
    K = KERNEL(theta, X)
    scale = K.diagonal().sqrt()
    error = (f.mT @ f / samples - K) / (scale[:, None] * scale)
    assert float(error.abs().max()) < 5 * (2 / samples) ** 0.5


def related(n: int = 40) -> Dataset:
    """Return two outputs, the second minus twice the first, which has no rows past x = 0.5."""
    x = torch.linspace(0, 1, n, dtype=torch.float64)
    f = torch.sin(7 * x)
    kept = x < 0.5
    X = torch.cat([torch.stack([x, torch.zeros(n)], 1)[kept], torch.stack([x, torch.ones(n)], 1)])
    y = torch.cat([f[kept], -2 * f]) + 0.01 * torch.randn(len(X), generator=G, dtype=torch.float64)
    return Dataset(X.double(), y)


def test_an_output_is_predicted_where_only_the_other_was_seen(tmp_path: Any) -> None:
    data = related()
    kernel = Subspace(RBF(variance=1.0), [0]) * Subspace(Coregionalisation(2), [1])
    fit = ppgp.fit(models.GP(kernel), data, inference.MAP(), progress=False)
    x = torch.linspace(0.55, 0.95, 9, dtype=torch.float64)
    new = torch.stack([x, torch.zeros(9).double()], 1)
    error = fit.predict(new).mean - torch.sin(7 * x)
    alone = Subspace(RBF(variance=1.0), [0]) * Subspace(Coregionalisation(2, rank=0), [1])
    other = ppgp.fit(models.GP(alone), data, inference.MAP(), progress=False)
    without = other.predict(new).mean - torch.sin(7 * x)
    assert float(error.abs().max()) < 0.5 * float(without.abs().max())
    again = ppgp.load_posterior(fit.save(tmp_path / "fit.safetensors"))
    assert torch.equal(again.predict(new).mean, fit.predict(new).mean)
    theta = {k.rsplit(".", 1)[1]: v[0, 0] for k, v in fit.draws_in("data").items() if ".1." in k}
    B = Coregionalisation(2).matrix(theta, data.X)
    assert float(B[0, 1] / (B[0, 0] * B[1, 1]).sqrt()) < -0.9


def test_numbers_are_in_the_units_of_the_data() -> None:
    data = Dataset(related().X, 50.0 * related().y)
    kernel = Subspace(RBF(1.0, 0.3), [0]) * Subspace(Coregionalisation(2, 1, 20.0, (4.0, 9.0)), [1])
    fit = ppgp.fit(models.GP(kernel, 0.5, 0.0), data, inference.MAP())
    C = kernel({}, data.X) + 0.5 * torch.eye(data.n)
    new = data.X[:5] + torch.tensor([0.01, 0.0])
    wanted = kernel({}, new, data.X) @ torch.linalg.solve(C, data.y)
    torch.testing.assert_close(fit.predict(new).mean, wanted, rtol=1e-7, atol=1e-7)


def test_other_codes_and_settings_are_refused() -> None:
    for wrong in (0.5, 3.0, -1.0):
        with pytest.raises(DataError, match="codes of outputs, whole numbers from 0 to 2"):
            KERNEL(drawn(), torch.tensor([[0.0], [wrong]]).double())
    with pytest.raises(SettingError, match="rank"):
        Coregionalisation(2, -1)
    with pytest.raises(SettingError, match="outputs"):
        Coregionalisation(0)
    with pytest.raises(SettingError, match="1 column"):
        KERNEL.sites(2)
    assert KERNEL.uncertain_level()
    assert not Coregionalisation(2, 0, variance=1.0).uncertain_level()
    assert eval(repr(KERNEL), {"Coregionalisation": Coregionalisation, **vars(priors)}) == KERNEL
