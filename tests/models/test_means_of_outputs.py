"""Each output of a Coregionalisation has a mean of its own, as in cokriging."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, likelihoods, models, priors
from ppgp.data import Dataset
from ppgp.errors import DataError, SettingError
from ppgp.models.exact.kriging import Kriging

F64 = torch.float64
G = torch.Generator().manual_seed(4)
AT = torch.rand(36, 2, generator=G, dtype=F64)
SPACE = kernels.Subspace(kernels.Exponential(1.0, 0.4), [0, 1])
OF_OUTPUTS = kernels.Coregionalisation(3, 1, 1.0, 0.3)
KERNEL = SPACE * kernels.Subspace(OF_OUTPUTS, [2])
LEVELS = torch.tensor([0.0, 40.0, -25.0], dtype=F64)


def codes(rows: int) -> Tensor:
    return (torch.arange(rows) % 3).to(F64)


def surface(outputs: int = 3) -> Dataset:
    """Rows of ``outputs`` outputs at different places, whose levels lie far apart."""
    code = codes(len(AT)) % outputs
    X = torch.cat([AT, code[:, None]], 1)
    root = torch.linalg.cholesky(KERNEL({}, X) + 0.01 * torch.eye(len(X)))
    noise = torch.randn(len(X), generator=torch.Generator().manual_seed(1), dtype=F64)
    return Dataset(X, LEVELS[code.long()] + root @ noise)


DATA = surface()
NEW = torch.cat([torch.rand(9, 2, generator=G, dtype=F64), codes(9)[:, None]], 1)


def fit(model: Any, data: Dataset, how: Any = None, **options: Any) -> Any:
    return ppgp.fit(model, data, how or inference.MAP(), progress=False, **options)


def indicators(X: Tensor) -> Tensor:
    return (X[:, 2:] == torch.arange(3)).to(F64)


def cokriged(X: Tensor, y: Tensor, F: Tensor, new: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f from the bordered system [C F; F' 0] of cokriging."""
    n, p = F.shape
    A = torch.zeros(n + p, n + p, dtype=F64)
    A[:n, :n], A[:n, n:], A[n:, :n] = KERNEL({}, X) + 0.01 * torch.eye(n), F, F.mT
    right = torch.cat([KERNEL({}, X, new), G.mT])
    weights = torch.linalg.solve(A, right)
    return weights[:n].mT @ y, KERNEL.diag({}, new) - (weights * right).sum(0)


def polynomials(X: Tensor) -> Tensor:
    """The constant and the two coordinates, of each output."""
    F = torch.cat([torch.ones_like(X[:, :1]), X[:, :2]], 1)
    return (indicators(X)[:, :, None] * F[:, None]).flatten(1)


@pytest.mark.parametrize(
    ("drift", "functions"), [(None, indicators), (0, indicators), (1, polynomials)]
)
def test_kriging_solves_the_system_of_cokriging(drift: Any, functions: Any) -> None:
    model = Kriging(KERNEL, 0.01, drift)
    wanted = cokriged(DATA.X, DATA.y, functions(DATA.X), NEW, functions(NEW))
    law = model.latent({}, NEW, DATA)
    torch.testing.assert_close(law.mean[0], wanted[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(law.variance[0], wanted[1], rtol=1e-8, atol=1e-8)
    joint = model.joint_latent({}, NEW, DATA)
    torch.testing.assert_close(joint[0][0], wanted[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(joint[1][0].diagonal(), wanted[1], rtol=1e-8, atol=1e-8)
    shifted = Dataset(DATA.X, DATA.y + 100.0 * (DATA.X[:, 2] == 1))
    residuals = [model.loo({}, data).mean - data.y for data in (DATA, shifted)]
    torch.testing.assert_close(*residuals, rtol=1e-7, atol=1e-7)
    vecchia = models.Vecchia(KERNEL, 0.01, DATA.n - 1, drift=drift).prepare(DATA)
    of_all = vecchia.latent({}, NEW, DATA)
    torch.testing.assert_close(of_all.mean[0], wanted[0], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(of_all.variance[0], wanted[1], rtol=1e-6, atol=1e-7)


def test_blocks_and_the_trend_have_the_mean_of_their_output() -> None:
    model = Kriging(KERNEL, 0.01)
    blocks = torch.stack([NEW, NEW + torch.tensor([0.01, 0.0, 0.0])], 1)
    shift = torch.tensor([3.0, -7.0, 11.0], dtype=F64)
    moved = Dataset(DATA.X, DATA.y + shift[DATA.X[:, 2].long()])
    of_place = shift[NEW[:, 2].long()]
    for one, other in (
        (model.block({}, blocks, DATA), model.block({}, blocks, moved)),
        (model.trend({}, NEW, DATA), model.trend({}, NEW, moved)),
    ):
        torch.testing.assert_close(one.mean[0] + of_place, other.mean[0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(one.variance, other.variance)


def test_neighbours_are_so_many_of_each_output() -> None:
    model = Kriging(KERNEL, 0.01, neighbours=5)
    law = model.latent({}, NEW, DATA)
    for i, place in enumerate(NEW):
        distance = (DATA.X[:, :2] - place[:2]).norm(dim=1)
        of_each = [torch.nonzero(DATA.X[:, 2] == j).flatten() for j in range(3)]
        near = torch.cat([rows[distance[rows].argsort()[:5]] for rows in of_each])
        X, y = DATA.X[near], DATA.y[near]
        mean, variance = cokriged(X, y, indicators(X), place[None], indicators(place[None]))
        torch.testing.assert_close(law.mean[0, i], mean[0], rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(law.variance[0, i], variance[0], rtol=1e-7, atol=1e-7)
    loo = model.loo({}, DATA)
    assert float((loo.mean[0] - DATA.y).abs().max()) < 6.0  # the levels lie 25 and more apart


def test_all_rows_as_neighbours_leave_one_out_as_the_whole_system_does() -> None:
    """A row is left out of its own output alone."""
    most = int(DATA.X[:, 2].long().bincount().max())
    whole = Kriging(KERNEL, 0.01).loo({}, DATA)
    near = Kriging(KERNEL, 0.01, neighbours=most).loo({}, DATA)
    torch.testing.assert_close(near.mean, whole.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(near.variance, whole.variance, rtol=1e-8, atol=1e-8)


def test_the_only_row_of_an_output_cannot_be_left_out() -> None:
    rows = torch.cat([torch.nonzero(DATA.X[:, 2] != 2).flatten(), torch.tensor([DATA.n - 1])])
    lonely = Dataset(DATA.X[rows], DATA.y[rows])
    for model in (Kriging(KERNEL, 0.01), Kriging(KERNEL, 0.01, neighbours=4)):
        with pytest.raises(DataError, match=r"more than 1 row of each output.*got 1 of the output"):
            model.loo({}, lonely)


def test_the_drift_constant_is_one_mean_for_all_outputs() -> None:
    F, G = torch.ones(DATA.n, 1, dtype=F64), torch.ones(9, 1, dtype=F64)
    wanted = cokriged(DATA.X, DATA.y, F, NEW, G)
    law = Kriging(KERNEL, 0.01, "constant").latent({}, NEW, DATA)
    torch.testing.assert_close(law.mean[0], wanted[0], rtol=1e-8, atol=1e-8)


def test_a_fit_does_not_depend_on_the_levels_of_the_outputs() -> None:
    moved = Dataset(DATA.X, DATA.y + 1000.0 * DATA.X[:, 2])
    free = SPACE * kernels.Subspace(kernels.Coregionalisation(3), [2])
    predictions = [fit(Kriging(free), d).predict(NEW) for d in (DATA, moved)]
    rise = 1000.0 * NEW[:, 2]
    torch.testing.assert_close(predictions[0].mean + rise, predictions[1].mean, rtol=1e-2, atol=0.5)


def gaussian(mean: Any) -> dict[str, Any]:
    """Models in which an output has a mean of its own by default."""
    return {
        "GP": models.GP(KERNEL, 0.01, mean),
        "SGPR": models.SGPR(KERNEL, noise=0.01, mean=mean, Z=DATA.X.clone()),
        "Kriging": Kriging(KERNEL, 0.01, "none", mean),
        "Vecchia": models.Vecchia(KERNEL, 0.01, 35, drift="none", mean=mean),
        "LatentGP": models.GP(KERNEL, mean=mean, likelihood=likelihoods.StudentT(6.0, 0.1)),
    }


@pytest.mark.parametrize("name", list(gaussian(None)))
@pytest.mark.parametrize("standardise", [True, False])
def test_a_gp_estimates_a_constant_of_each_output(name: str, standardise: bool) -> None:
    posterior = fit(gaussian(None)[name], DATA, standardise=standardise)
    F, n = indicators(DATA.X), DATA.n
    weights = torch.linalg.solve(KERNEL({}, DATA.X) + 0.01 * torch.eye(n), F)
    flat = torch.linalg.solve(F.mT @ weights, weights.mT @ DATA.y)
    # the prior is 30 times as wide as the estimates are uncertain
    found = posterior.draws_in("data")["mean"][0, 0]
    assert float((found - flat).abs().max()) < 0.3
    prediction = posterior.predict(NEW).mean
    known = cokriged(DATA.X, DATA.y, F, NEW, indicators(NEW))[0]
    assert float((prediction - known).abs().max()) < 0.3
    far = torch.cat([torch.full((3, 2), 50.0, dtype=F64), torch.arange(3)[:, None].to(F64)], 1)
    torch.testing.assert_close(posterior.latent(far).mean, found, rtol=1e-6, atol=1e-6)


def test_draws_paths_and_files_have_the_constants(tmp_path: Any) -> None:
    posterior = fit(models.GP(KERNEL, 0.01), DATA, inference.Laplace(draws=3))
    assert posterior.draws_in("data")["mean"].shape == (1, 3, 3)
    paths = posterior.pathwise(4, features=None, seed=0)(DATA.X)
    assert float((paths - DATA.y).abs().max()) < 1.5
    again = ppgp.load_posterior(posterior.save(tmp_path / "fit.safetensors"))
    assert torch.equal(again.predict(NEW).mean, posterior.predict(NEW).mean)
    joint = posterior.predict(NEW, joint=True).mean
    torch.testing.assert_close(joint, posterior.predict(NEW).mean)
    assert float((posterior.loo().mean - DATA.y).abs().max()) < 6.0


def test_a_mean_that_is_given_is_that_of_all_outputs() -> None:
    for mean in (0.0, priors.Normal(0.0, 10.0)):
        posterior = fit(models.GP(KERNEL, 0.01, mean), DATA, standardise=False)
        far = torch.tensor([[50.0, 50.0, code] for code in range(3)], dtype=F64)
        at_infinity = posterior.latent(far).mean
        torch.testing.assert_close(at_infinity, at_infinity[:1].expand(3), rtol=1e-6, atol=1e-6)


def test_outputs_that_are_absent() -> None:
    two = surface(outputs=2)
    posterior = fit(Kriging(KERNEL, 0.01), two)
    one = NEW[NEW[:, 2] == 1]
    assert float((posterior.predict(one).mean - 40.0).abs().max()) < 6.0
    with pytest.raises(DataError, match=r"output 2 without any: add rows of it.*drift=.constant."):
        posterior.predict(NEW)
    with pytest.raises(DataError, match=r"whole numbers from 0 to 2, got 3"):
        posterior.predict(torch.tensor([[0.5, 0.5, 3.0]], dtype=F64))
    gp = fit(models.GP(KERNEL, 0.01), two)
    absent = gp.draws_in("data")["mean"][0, 0, 2]
    torch.testing.assert_close(absent, two.y.mean())  # that of its prior
    with pytest.raises(DataError, match=r"rows for 6, where each output has functions of its own"):
        fit(Kriging(KERNEL, 0.01, 1), two.rows(torch.arange(6)))
    with pytest.raises(SettingError, match="at least 3 neighbours"):
        fit(Kriging(KERNEL, 0.01, 1, neighbours=2), two)
