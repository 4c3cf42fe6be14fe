"""Sparse GP regression: bounds, limits, gradients, chunks, and predictions by dense formulas."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from waves import F64, KERNEL, normal, thetas, waves

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.density.graph.recorder import recorded
from ppgp.density.graph.simplify import simplified
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.kernels import White
from ppgp.models.sparse import collapsed_bound, sgpr
from ppgp.numerics.cholesky import JITTER
from ppgp.priors import under


def dense(
    model: models.SGPR, theta: dict[str, Tensor], data: Dataset, i: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Knn, Qnn from the inverse of Kmm, and the noise, at draw i."""
    one = {k: v[i] for k, v in theta.items()}
    k, Z = under("kernel", one), model.Z
    assert Z is not None
    Kmm, Kmn = model.kernel(k, Z), model.kernel(k, Z, data.X)
    jitter = JITTER * Kmm.diagonal().mean() * torch.eye(len(Z), dtype=F64)
    return model.kernel(k, data.X), Kmn.mT @ torch.linalg.inv(Kmm + jitter) @ Kmn, one["noise"]


@pytest.mark.parametrize("selection", ["kmeans", "random", "conditional_variance", "bound"])
def test_the_evidence_lies_between_the_bounds(selection: str) -> None:
    data, theta = waves(), thetas()
    model = models.SGPR(KERNEL, inducing=12, selection=selection).prepare(data)
    lower, upper = model.bounds(theta, data)
    eye = torch.eye(data.n, dtype=F64)
    for i in range(4):
        K, Q, s2 = dense(model, theta, data, i)
        evidence = normal(data.y, K + s2 * eye)
        expected = normal(data.y, Q + s2 * eye) - (K - Q).diagonal().sum() / (2 * s2)
        assert float(lower[i]) == pytest.approx(float(expected), abs=1e-6)
        assert lower[i] < evidence < upper[i]
    single = model.bounds({k: v[0] for k, v in theta.items()}, data)
    assert float(single[0]) == pytest.approx(float(lower[0]))


def test_with_all_rows_bounds_and_predictions_equal_the_exact_gp() -> None:
    data, theta = waves(30), thetas()
    model, exact = models.SGPR(KERNEL, inducing=30).prepare(data), models.GP(KERNEL)
    lower, upper = model.bounds(theta, data)
    for i in range(4):
        one = {k: v[i : i + 1] for k, v in theta.items()}
        evidence = normal(data.y, exact._covariance({k: v[0] for k, v in one.items()}, data.X))
        # the jitter takes away at most its size per row, over the noise
        slack = 30 * 30 * JITTER * float(one["kernel.variance"] / one["noise"])
        assert float(lower[i]) == pytest.approx(float(evidence), abs=slack)
        assert float(upper[i]) == pytest.approx(float(evidence), abs=slack)
    X = waves(7, seed=5).X
    for joint in (False, True):
        ours, theirs = (m.predict(theta, X, data, joint=joint) for m in (model, exact))
        torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "white",
    [White(0.3), kernels.Scale(White(0.5), 0.6), White(0.3) * kernels.RBF(1.0, 0.7)],
    ids=["white", "scaled", "product"],
)
def test_white_counts_as_noise(white: kernels.Kernel) -> None:
    data, kernel = waves(30), kernels.RBF(1.2, 0.5) + white
    model, exact = (
        models.SGPR(kernel, inducing=30, noise=0.1).prepare(data),
        models.GP(kernel, noise=0.1),
    )
    lower, upper = model.bounds({}, data)
    evidence = float(normal(data.y, exact._covariance({}, data.X)))
    slack = 30 * 30 * JITTER * 1.2 / 0.4
    assert float(lower) == pytest.approx(evidence, abs=slack)
    assert float(upper) == pytest.approx(evidence, abs=slack)
    assert float(
        model.prepare(data)._marginal({}, data.X, model.Z).log_prob(data.y)
    ) == pytest.approx(float(lower))
    X = waves(7, seed=5).X
    for ask in ("predict", "joint", "latent", "loo"):
        if ask == "loo":
            ours, theirs = (m.loo({}, data) for m in (model, exact))
        elif ask == "latent":
            ours, theirs = (m.latent({}, X, data) for m in (model, exact))
        else:
            ours, theirs = (m.predict({}, X, data, joint=ask == "joint") for m in (model, exact))
        torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-5, rtol=0)
    few = models.SGPR(kernel, inducing=8, noise=0.1).prepare(data).bounds({}, data)
    assert float(few[0]) < evidence < float(few[1])


def test_a_white_that_differs_between_rows_is_refused() -> None:
    with pytest.raises(NotApplicable, match="the same in every row"):
        models.SGPR(kernels.RBF() + White() * kernels.Linear(), inducing=5).prepare(waves(30))


def test_closed_form_leave_one_out_equals_n_refits() -> None:
    """The inducing inputs stay the same in all refits."""
    data, theta = waves(20), thetas(2)
    model = models.SGPR(KERNEL, inducing=6).prepare(data)
    result = model.loo(theta, data)
    for i in range(data.n):
        rest = data.rows(torch.arange(data.n) != i)
        distribution = model.predict(theta, data.X[i : i + 1], rest)
        torch.testing.assert_close(result.mean[:, i], distribution.mean[:, 0], atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(
            result.variance[:, i], distribution.variance[:, 0], atol=1e-8, rtol=1e-8
        )


def test_q_of_u_equals_its_formula() -> None:
    """N(Kmm P^-1 Kmn y / s2, Kmm P^-1 Kmm), P = Kmm + Kmn Knm / s2: Titsias (2009), eq. 10."""
    data, theta = waves(), thetas()
    model = models.SGPR(KERNEL, inducing=8).prepare(data)
    mean, covariance = model.inducing_posterior(theta, data)
    for i in range(4):
        one = {k: v[i] for k, v in theta.items()}
        k = under("kernel", one)
        Kmm, Kmn = model.kernel(k, model.Z), model.kernel(k, model.Z, data.X)
        inner = torch.linalg.inv(Kmm + Kmn @ Kmn.mT / one["noise"])
        torch.testing.assert_close(
            mean[i], Kmm @ inner @ Kmn @ data.y / one["noise"], atol=1e-5, rtol=1e-5
        )
        torch.testing.assert_close(covariance[i], Kmm @ inner @ Kmm, atol=1e-6, rtol=1e-5)


def test_first_and_second_derivatives_equal_plain_autograd() -> None:
    data = waves()
    model = models.SGPR(KERNEL, inducing=10, learn=True).prepare(data)
    target = Target(model, data, optimise_params=True)
    assert target.dim == 4 + 20
    z = target.start(0, 0.3)

    def plain(z: Tensor) -> Tensor:
        values = target.constrain(z)
        k = under("kernel", values)
        Kmm, Kmn = KERNEL(k, values["inducing"]), KERNEL(k, values["inducing"], data.X)
        Kmm = Kmm + JITTER * Kmm.diagonal().mean() * torch.eye(10, dtype=F64)
        Q = Kmn.mT @ torch.linalg.solve(Kmm, Kmn)
        gap = KERNEL.diag(k, data.X).sum() - Q.diagonal().sum()
        value = normal(data.y, Q + values["noise"] * torch.eye(data.n, dtype=F64)) - gap / (
            2 * values["noise"]
        )
        prior = sum(
            s.distribution(data.X).log_prob(values[name]).sum()
            for name, s in model.sites(2).items()
            if not s.fixed
        )
        return value + prior

    z = z.requires_grad_(True)
    expected = plain(z)
    (slope,) = torch.autograd.grad(expected, z)
    value, gradient = target.value_and_grad(z.detach(), jacobian=False)
    assert float(value) == pytest.approx(float(expected.detach()), abs=1e-6)
    torch.testing.assert_close(gradient, slope, atol=1e-4, rtol=1e-5)
    H = torch.autograd.functional.hessian(plain, z.detach())
    torch.testing.assert_close(target.hessian(z.detach(), jacobian=False), H, atol=1e-2, rtol=1e-4)


def test_the_slope_by_the_mean_is_that_of_differences() -> None:
    data = waves()
    mean = models.LinearMean()
    target = Target(models.SGPR(KERNEL, inducing=12, mean=mean).prepare(data), data)
    z = target.origin() + 0.1
    slope, step = target.value_and_grad(z)[1], 1e-5
    for j, name in enumerate(target.names()):
        move = torch.zeros_like(z)
        move[j] = step
        high, low = (float(target.value_and_grad(z + sign * move)[0]) for sign in (1.0, -1.0))
        # the rounding of the bound, some 1e-10, over the step
        assert float(slope[j]) == pytest.approx((high - low) / (2 * step), rel=1e-5, abs=1e-4), name


def test_single_precision_agrees_with_double() -> None:
    data = waves(300)
    model = models.SGPR(KERNEL, inducing=40).prepare(data)
    z = Target(model, data).start(0, compile=False)
    single = Dataset(data.X.float(), data.y.float())
    values = [Target(model, d).value_and_grad(z) for d in (data, single)]
    assert float(values[1][0]) == pytest.approx(float(values[0][0]), rel=0.02)
    torch.testing.assert_close(values[1][1].double(), values[0][1], rtol=0.05, atol=1.0)


def test_chunks_do_not_change_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    data = waves(200)
    model = models.SGPR(KERNEL, inducing=10, learn=True).prepare(data)
    z = Target(model, data, optimise_params=True).start(0, 0.3, compile=False)
    whole = Target(model, data, optimise_params=True).value_and_grad(z)
    monkeypatch.setattr(collapsed_bound, "CHUNK_BYTES", 10 * 8 * 32)
    target = Target(model, data, optimise_params=True)
    again = target.value_and_grad(z)
    assert not target.eager
    torch.testing.assert_close(again[0], whole[0])
    torch.testing.assert_close(again[1], whole[1], atol=1e-9, rtol=1e-9)


def test_the_graph_computes_each_chunk_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """If both passes shared the chunks, all of Kmn would stay in memory."""
    data = waves(64)
    monkeypatch.setattr(collapsed_bound, "CHUNK_BYTES", 6 * 8 * 16)
    target = Target(models.SGPR(KERNEL, inducing=6).prepare(data), data)
    graph = simplified(recorded(partial(target.eager_gradient, False), (target.origin(),)))
    shapes = [
        n.meta["layout"].shape for n in graph.graph.nodes if n.target is torch.ops.aten.exp.default
    ]
    assert sum(shape == (6, 16) for shape in shapes) == 8


@pytest.mark.parametrize("kernel", [KERNEL, KERNEL + White(0.3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_with_all_rows_the_density_is_that_of_the_exact_gp(
    kernel: kernels.Kernel, dtype: torch.dtype
) -> None:
    data = waves(40)
    data = Dataset(data.X.to(dtype), data.y.to(dtype))
    sparse = models.SGPR(kernel, inducing=40).prepare(data)
    target, exact = Target(sparse, data), Target(models.GP(kernel), data)
    z = target.origin() + 0.1
    tolerance = {} if dtype == F64 else {"rtol": 1e-4, "atol": 1e-3}
    for found, expected in zip(target.value_and_grad(z), exact.value_and_grad(z), strict=True):
        torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("learn", [False, True])
def test_a_subset_model_improves_the_start(learn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = waves(300).standardised()[0]
    model = models.SGPR(KERNEL, inducing=8, learn=learn)
    plain = ppgp.fit(model, data, inference.MAP(steps=1), progress=False, standardise=False)
    monkeypatch.setattr(sgpr, "SUBSET_ROWS", 100)
    posterior = ppgp.fit(model, data, inference.MAP(steps=1), progress=False, standardise=False)
    assert posterior.stats["losses"][0] < plain.stats["losses"][0] - 10
    result = model.prepare(data).subset_model(data)
    assert result is not None
    small, some = result
    assert some.n == 100
    assert set(small.sites(2)) == set(model.sites(2))
    start = model.prepare(data).warm_start({k: v[0] for k, v in thetas(1).items()}, data)
    assert ("inducing" in start) == learn
    assert model.subset_model(waves(150)) is None


def test_the_step_of_inducing_inputs_is_a_multiple_of_the_lengthscale() -> None:
    data = waves()
    target = Target(
        models.SGPR(KERNEL, inducing=3, learn=True).prepare(data), data, optimise_params=True
    )
    z = target.placed({"kernel.lengthscale": torch.tensor([0.5, 4.0], dtype=F64)})
    unit = target.step_scales(z)
    assert unit.tolist() == pytest.approx([1.0] * 4 + [1.0, 8.0] * 3)


def test_prior_draws_have_the_covariance_of_the_distribution() -> None:
    data, theta = waves(5), {k: v[0] for k, v in thetas(1).items()}
    model = models.SGPR(KERNEL, inducing=3).prepare(data)
    distribution = model._marginal(theta, data.X, model.Z)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = distribution.sample((40_000,))
    _, Q, s2 = dense(model, {k: v[None] for k, v in theta.items()}, data, 0)
    C = Q + s2 * torch.eye(5, dtype=F64)
    error = torch.sqrt((C.diagonal()[:, None] * C.diagonal() + C.square()) / 40_000)
    assert bool(((x.mT.cov() - C).abs() < 5 * error).all())


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_learnt_and_reselected_inducing_inputs_raise_the_bound(tmp_path: Path) -> None:
    data = waves(150).standardised()[0]
    plain = models.SGPR(KERNEL, inducing=8)
    first = ppgp.fit(plain, data, inference.MAP(), progress=False, standardise=False)
    learnt = ppgp.fit(
        models.SGPR(KERNEL, inducing=8, learn=True),
        data,
        inference.MAP(),
        progress=False,
        standardise=False,
    )
    assert learnt.stats["log_density"] > first.stats["log_density"] + 1
    assert learnt.params["inducing"].shape == (8, 2)
    one = {k: v[0, 0] for k, v in first.draws.items()}
    again = models.SGPR(KERNEL, inducing=8, selection="bound").prepare(data).reselected(one, data)
    second = ppgp.fit(again, data, inference.MAP(), progress=False, standardise=False)
    assert second.stats["log_density"] > first.stats["log_density"]
    prediction = learnt.predict(data.X[:5])
    result = ppgp.load_posterior(learnt.save(tmp_path / "sgpr"))
    torch.testing.assert_close(result.predict(data.X[:5]).mean, prediction.mean)


def test_invalid_options_raise_a_clear_error() -> None:
    data = waves(20)
    with pytest.raises(SettingError, match="between 1 and n = 20 inducing inputs, got 50"):
        models.SGPR(inducing=50).prepare(data)
    with pytest.raises(UnknownName, match="did you mean 'kmeans'"):
        models.SGPR(inducing=5, selection="kmean").prepare(data)
    Z = torch.zeros(2, 2, dtype=F64)
    with pytest.raises(DataError, match="duplicates among them"):
        models.SGPR(Z=Z).prepare(data)
    with pytest.raises(DataError, match="inducing inputs of 2 columns"):
        models.SGPR(Z=Z[:, :1]).prepare(data)
    for recipe in (models.SGPR, models.SVGP):
        with pytest.raises(DataError, match=r"as a matrix, got shape \[\]: .* inducing="):
            recipe(Z=8)
    twins = Dataset(data.X[[0] * 15 + [1] * 5], data.y)
    for selection in ("kmeans", "random"):
        with pytest.raises(DataError, match="lower inducing"):
            models.SGPR(inducing=6, selection=selection).prepare(twins)
    with pytest.raises(NotApplicable, match="its cost grows linearly"):
        Target(models.SGPR(inducing=5).prepare(data), data).log_density(
            torch.zeros(3, dtype=F64), torch.arange(4)
        )
