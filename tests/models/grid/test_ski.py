"""SKI: the dense algebra of W K W', GP in the limit of a fine grid, and grids that do not suit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor
from waves import F64, normal

import ppgp
from ppgp import Dataset, inference, kernels, models, networks
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.kernels import RBF, Matern, White
from ppgp.models import SKI
from ppgp.models.grid.cubic_interpolation import cubic_weights, interpolation, nodes_of
from ppgp.models.grid.grid_statistics import statistics
from ppgp.numerics.cholesky import jittered
from ppgp.priors import under


def rows(n: int = 60, d: int = 2, seed: int = 0) -> Dataset:
    """Return random rows with a wave and noise as y."""
    generator = torch.Generator().manual_seed(seed)
    X = 3 * torch.rand(n, d, generator=generator, dtype=F64)
    noise = torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, torch.sin(2 * X).prod(1) + 0.2 * noise)


def weights(model: SKI, X: Tensor) -> Tensor:
    """Return W [n, m] as a matrix."""
    axes = model._axes(X)
    at, w = interpolation(X, axes)
    return torch.zeros(len(X), len(nodes_of(axes, X)), dtype=F64).scatter_add(1, at, w)


def weights_at(model: SKI, train: Tensor, X: Tensor) -> Tensor:
    """Return the weights of rows X of the nodes around the training rows."""
    axes = model._axes(train)
    at, w = interpolation(X, axes)
    return torch.zeros(len(X), len(nodes_of(axes, X)), dtype=F64).scatter_add(1, at, w)


def dense(model: SKI, theta: dict[str, Tensor], X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the covariance of the nodes, and W K W'."""
    hyper, W = under("kernel", theta), weights(model, X)
    K = jittered(model.kernel(hyper, nodes_of(model._axes(X), X)))
    return K, W @ K @ W.mT


def test_weights_are_those_of_cubic_convolution() -> None:
    """They sum to one, are 1 at a node, and reproduce parabolas: Keys (1981)."""
    t = torch.linspace(0.0, 1.0, 7, dtype=F64)
    w, places = cubic_weights(t), torch.arange(-1.0, 3.0, dtype=F64)
    for power in range(3):
        torch.testing.assert_close((w * places**power).sum(1), t**power)
    assert w[0].tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("d", "grid"), [(1, 12), (2, (9, 7)), (3, 6), (4, 6)])
def test_sums_over_chunks_are_products_with_the_weights(
    d: int, grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ppgp.models.grid import grid_statistics

    data = rows(40, d)
    model = SKI(grid=grid).prepare(data)
    monkeypatch.setattr(grid_statistics, "CHUNK_BYTES", 16 * 4**d * 7)  # seven rows
    axes, W = model._axes(data.X), weights(model, data.X)
    whole = statistics(data.X, data.y, axes)
    parts = [data.rows(slice(i, j)) for i, j in pairwise((0, 15, 40))]
    one, other = (statistics(part.X, part.y, axes) for part in parts)
    for sums in (whole, one + other):
        torch.testing.assert_close(sums.G, W.mT @ W)
        torch.testing.assert_close(sums.Wz, W.mT @ (data.y - sums.origin))
        Wr, rr = sums.about(torch.tensor(0.3, dtype=F64))
        torch.testing.assert_close(Wr, W.mT @ (data.y - 0.3))
        torch.testing.assert_close(rr, (data.y - 0.3).square().sum())


@pytest.mark.parametrize("grid", [14, (75, 70)])
def test_a_large_mean_of_y_costs_no_digits(grid: Any) -> None:
    data = rows(60, 1 if isinstance(grid, int) else 2)
    moved = Dataset(data.X, data.y + 1e6)
    values = []
    for table, mean in ((data, 0.25), (moved, 1e6 + 0.25)):
        target = Target(SKI(RBF(), grid, mean=mean).prepare(table), table, compile=False)
        values.append(target.value_and_grad(torch.zeros(target.dim, dtype=F64))[0])
    torch.testing.assert_close(values[1], values[0], rtol=1e-9, atol=1e-6)


def test_what_a_coarse_grid_leaves_out_takes_no_variance_away() -> None:
    """The difference of K and W K W' is no covariance, apart from its diagonal."""
    data, new = rows(200, 3), rows(40, 3, seed=1).X
    model = SKI(RBF(1.3, 0.9), 7, mean=0.3).prepare(data)
    theta = {"noise": torch.tensor([1e-6], dtype=F64)}
    K, _ = dense(model, {}, data.X)
    W, Wn = weights(model, data.X), weights_at(model, data.X, new)
    C = W @ K @ W.mT + 1e-6 * torch.eye(200, dtype=F64)
    before = ((Wn @ K) * Wn).sum(1)
    cross = Wn @ K @ W.mT
    after = before - (torch.linalg.solve(C, cross.mT).mT * cross).sum(1)
    expected = after + (1.3 - before).clamp_min(0.0)
    marginal, joint = (model.predict(theta, new, data, joint=joint) for joint in (False, True))
    torch.testing.assert_close(marginal.variance[0] - 1e-6, expected, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(joint.variance[0] - 1e-6, expected, rtol=1e-5, atol=1e-8)
    assert bool((model.loo(theta, data).variance > 1e-6).all())


KERNELS = {
    "RBF": (RBF(), 2, (9, 7)),
    "ARD": (kernels.ARD(Matern(2.5)), 2, 8),
    "a sum": (Matern(1.5) + kernels.Linear(), 1, 14),
    "three columns": (RBF(), 3, 6),
}


@pytest.mark.parametrize("name", KERNELS)
def test_values_slopes_and_predictions_are_those_of_dense_algebra(name: str) -> None:
    kernel, d, grid = KERNELS[name]
    data = rows(60, d)
    model = SKI(kernel, grid).prepare(data)
    target = Target(model, data, compile=False)
    z = target.start(seed=1, spread=0.3)
    theta = {name: v.requires_grad_() for name, v in target.constrain(z).items()}
    K, C = dense(model, theta, data.X)
    C = C + theta["noise"] * torch.eye(data.n, dtype=F64)
    residual = data.y - model.mean
    value = normal(residual, C)
    program = pyro.poutine.trace(pyro.poutine.condition(model.model, theta))
    sites = program.get_trace(data.X, data.y)
    own = sites.nodes["y"]["fn"].log_prob(data.y)
    assert own.item() == pytest.approx(value.item(), rel=1e-8, abs=1e-8)
    slopes = [torch.autograd.grad(v, list(theta.values())) for v in (own, value)]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)
    H = target.hessian(z)
    for i, e in enumerate(torch.eye(len(z), dtype=F64)):
        ahead, behind = (target.value_and_grad(z + s * 1e-5 * e)[1] for s in (1, -1))
        torch.testing.assert_close(H[i], (ahead - behind) / 2e-5, atol=1e-4, rtol=1e-4)

    fixed = {name: v.detach() for name, v in theta.items()}
    draws = {name: v[None] for name, v in fixed.items()}
    K, C = K.detach(), C.detach()
    X = data.X[:8] * 0.9 + 0.1
    cross = weights(model, X) @ K @ weights(model, data.X).mT
    mean = model.mean + cross @ torch.linalg.solve(C, residual)
    gain = (cross * torch.linalg.solve(C, cross.mT).mT).sum(1)
    variance = model.kernel.diag(under("kernel", fixed), X) - gain
    latent = model.latent(draws, X, data)
    torch.testing.assert_close(latent.mean[0], mean, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(latent.variance[0], variance, atol=1e-8, rtol=1e-8)
    joint = model.predict(draws, X, data, joint=True)
    torch.testing.assert_close(joint.variance[0], variance + fixed["noise"], atol=1e-8, rtol=1e-8)
    inverse = torch.linalg.inv(C)
    d_i = inverse.diagonal()
    left = data.y - (inverse @ residual) / d_i
    left_out = model.kernel.diag(under("kernel", fixed), data.X) - C.diagonal() + fixed["noise"]
    loo = model.loo(draws, data)
    torch.testing.assert_close(loo.mean[0], left, atol=1e-7, rtol=1e-7)
    wanted = 1 / d_i + left_out.clamp_min(0.0)
    torch.testing.assert_close(loo.variance[0], wanted, atol=1e-7, rtol=1e-7)


def test_it_becomes_gp_as_the_grid_is_refined() -> None:
    """The error of cubic convolution is of third order: Keys (1981)."""
    data, kernel = rows(50, 1), RBF(1.2, 0.8) + White(0.1)
    gp = models.GP(kernel, 0.1, 0.2)
    expected = pyro.poutine.trace(gp.model).get_trace(data.X, data.y).log_prob_sum()
    gaps, X = [], data.X * 0.9 + 0.1
    for grid in (8, 13, 23, 43):
        model = SKI(kernel, grid, 0.1, 0.2).prepare(data)
        value = pyro.poutine.trace(model.model).get_trace(data.X, data.y).log_prob_sum()
        gaps.append(abs(float(value - expected)))
    assert all(fine < coarse for coarse, fine in pairwise(gaps))
    assert gaps[-1] < gaps[0] / 8**3  # the last spacing is an eighth of the first
    for joint in (False, True):
        one, other = (m.predict({}, X, data, joint=joint) for m in (model, gp))
        torch.testing.assert_close(one.mean, other.mean, atol=1e-4, rtol=0)
        torch.testing.assert_close(one.variance, other.variance, atol=1e-4, rtol=0)
    one, other = model.loo({}, data), gp.loo({}, data)
    torch.testing.assert_close(one.mean, other.mean, atol=1e-4, rtol=0)
    torch.testing.assert_close(one.variance, other.variance, atol=1e-4, rtol=0)


def test_a_deep_kernel_has_a_grid_of_features_and_a_gradient_through_the_weights() -> None:
    data = rows(30, 5)
    network = networks.MLP((4,), 2, dropout=0.0, activation="tanh")
    kernel = kernels.Deep(network, RBF(1.0, 1.0))
    model, gp = (m.prepare(data) for m in (SKI(kernel, 30, 0.1), models.GP(kernel, 0.1)))
    own, exact = (Target(m, data, optimise_params=True, compile=False) for m in (model, gp))
    z = own.start()
    (value, slope), (expected, other) = own.value_and_grad(z), exact.value_and_grad(z)
    assert float(value) == pytest.approx(float(expected), abs=1e-3)
    assert float((slope - other).norm()) < 0.03 * float(other.norm())
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        move = 1e-5 * torch.randn(len(z), generator=generator, dtype=F64)
        gain = (own.log_density(z + move) - own.log_density(z - move)) / 2
        assert float(slope @ move) == pytest.approx(float(gain), rel=1e-5, abs=1e-10)
    theta = own.constrain(z)
    far = 10 * data.X[:4]  # features stay in their box wherever the row is
    for X in (data.X[:4], far):
        one, two = (m.predict(theta, X, data) for m in (model, gp))
        torch.testing.assert_close(one.mean, two.mean, atol=2e-3, rtol=0)
        torch.testing.assert_close(one.variance, two.variance, atol=2e-3, rtol=0)
    one, two = model.loo(theta, data), gp.loo(theta, data)
    torch.testing.assert_close(one.mean, two.mean, atol=2e-3, rtol=0)


def test_draws_have_the_covariance_of_the_model() -> None:
    """The squared length of a whitened draw is chi-square."""
    data = rows(20)
    model = SKI(RBF(1.5, 1.0), 8, 0.3, 2.0).prepare(data)
    torch.manual_seed(0)
    draws = torch.stack([model.model(data.X) for _ in range(300)]) - 2.0
    C = dense(model, {}, data.X)[1] + 0.3 * torch.eye(20, dtype=F64)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(C), draws.mT, upper=False)
    assert float(white.square().mean()) == pytest.approx(1.0, abs=4 * (2 / (300 * 20)) ** 0.5)


@pytest.mark.filterwarnings("ignore:the search ended")
def test_a_coarse_grid_is_warned_of_with_one_that_does(tmp_path: Path) -> None:
    data = rows(200, 1)
    how = inference.MAP(starts=1)
    short = RBF(lengthscale=0.1)
    with pytest.warns(
        ConvergenceWarning, match=r"the grid of 12 nodes.*use SKI\(kernel, grid="
    ) as w:
        ppgp.fit(SKI(short, 12), data, how, progress=False, standardise=False)
    advice = next(str(one.message) for one in w if "grid=" in str(one.message))
    enough = int(advice.split("grid=")[1].rstrip(")"))
    spacing = 1.1 * 3.0 / (enough - 3)
    assert 0.1 / 4.5 < spacing <= 0.1 / 3.7
    finer = SKI(short, enough).prepare(data)
    posterior = ppgp.fit(finer, data, how, progress=False, standardise=False)
    assert not posterior.warnings
    again = ppgp.load_posterior(posterior.save(tmp_path / "ski"))
    assert torch.equal(again.predict(data.X[:5]).mean, posterior.predict(data.X[:5]).mean)
    rough = SKI(Matern(0.5, 1.0, 0.01), 40, 0.1).prepare(data)
    assert "more nodes than SKI takes" in rough.check_fit({"noise": data.y[:1]}, data)[0]


def test_the_grid_follows_the_lengthscale() -> None:
    data = rows(600, 2)
    counts = [
        [axis[2] for axis in SKI(kernels.ARD(RBF(1.0, lengths))).prepare(data).axes or ()]
        for lengths in ((2.0, 4.0), (1.0, 4.0))
    ]
    assert counts[0][0] > counts[0][1]
    assert counts[1][0] > 1.5 * counts[0][0]
    assert counts[1][1] == counts[0][1]


def test_what_a_grid_cannot_do_is_refused() -> None:
    data = rows(30, 2)
    with pytest.raises(NotApplicable, match=r"at most 4 columns.*got 6.*Vecchia"):
        ppgp.fit(SKI(), rows(30, 6), progress=False)
    with pytest.raises(NotApplicable, match=r"at most 100,000 nodes.*160,000.*fit GP"):
        SKI(grid=400).prepare(data)
    with pytest.raises(NotApplicable, match=r"at most 2 bounded features.*got 3 features"):
        SKI(kernels.Deep(networks.MLP((3,), 3), RBF())).prepare(data)
    with pytest.raises(NotApplicable, match="not bounded"):
        SKI(kernels.Deep(networks.MLP((3,), 2, bounded=False), RBF())).prepare(data)
    with pytest.raises(NotApplicable, match="put Deep outside"):
        SKI(kernels.Scale(kernels.Deep(networks.MLP((3,), 2), RBF()))).prepare(data)
    with pytest.raises(SettingError, match="one per column"):
        SKI(grid=(8, 8, 8)).prepare(data)
    for wrong in (3, (8, 2), 0):
        with pytest.raises(SettingError, match="nodes"):
            SKI(grid=wrong)
    model = SKI(RBF(1.0, 1.0), 8, 0.1).prepare(data)
    with pytest.raises(DataError, match=r"inside the grid.*row 1 outside.*margin=0\.5"):
        model.predict({}, torch.tensor([[1.0, 1.0], [9.0, 1.0]], dtype=F64), data)
    wider = SKI(RBF(1.0, 1.0), 12, 0.1, margin=3.0).prepare(data)
    assert wider.predict({}, torch.tensor([[9.0, 1.0]], dtype=F64), data).mean.shape == (1, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_nuts_agrees_with_nuts_on_gp() -> None:
    data, how = rows(50, 1), inference.NUTS(draws=500, warmup=300, chains=2)
    one, two = (
        ppgp.fit(m, data, how, seed=i, progress=False)
        for i, m in enumerate((SKI(RBF(), 48), models.GP(RBF())))
    )
    for name in two.draws:
        logs: list[Tensor] = [posterior.draws[name].log() for posterior in (one, two)]
        error = sum(ppgp.diagnostics.mcse(x.numpy(), "mean") ** 2 for x in logs) ** 0.5
        assert float(logs[0].mean() - logs[1].mean()) == pytest.approx(0.0, abs=5 * error)
