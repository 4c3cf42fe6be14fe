"""Vecchia: the exact process where all rows are neighbours, and near it where few are."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, kernels, models, priors
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, PpgpError, SettingError
from ppgp.kernels import ARD, Matern, White
from ppgp.models import Vecchia
from ppgp.models.neighbours import weights
from ppgp.models.neighbours.nearest_rows import NearestRows, correlation_lengths
from ppgp.models.neighbours.weights import conditional_weights, pairs_below
from ppgp.runtime.seeding import seeded

F64 = torch.float64
KERNEL = Matern(1.5, 1.3, 0.3)


def field(n: int, seed: int = 0, noise: float = 0.1, d: int = 2) -> Dataset:
    """Return rows of a Matern field with lengthscale 0.3 on the unit cube."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=F64)
    C = Matern(1.5, 1.0, 0.3)({}, X) + noise * torch.eye(n, dtype=F64)
    y = torch.linalg.cholesky(C) @ torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, y)


def target(model: Any, data: Dataset) -> Target:
    return Target(model.prepare(data), data, empty=True)


def test_weights_are_the_last_column_of_the_inverse_with_two_derivatives() -> None:
    A = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    C = A @ A.mT + torch.eye(5, dtype=F64)
    i, j = pairs_below(5)
    pairs = C[:, i, j].T.contiguous().requires_grad_()
    variances = C.diagonal(dim1=1, dim2=2).T.contiguous().requires_grad_()
    expected = torch.linalg.inv(C)[..., -1].T
    torch.testing.assert_close(conditional_weights(pairs, variances), expected)
    assert torch.autograd.gradcheck(conditional_weights, (pairs, variances))
    assert torch.autograd.gradgradcheck(conditional_weights, (pairs, variances))
    assert conditional_weights(pairs, -variances).isnan().all()


@pytest.mark.parametrize("drift", ["none", "constant", 1, (1,)])
@pytest.mark.parametrize("known", [False, True])
def test_with_all_rows_as_neighbours_it_is_the_exact_process(drift: Any, known: bool) -> None:
    data = field(40)
    if known:
        data = replace_noise(data)
    kernel = Matern(1.5) + White(0.02)
    vecchia = target(Vecchia(kernel, neighbours=39, drift=drift, mean=None), data)
    nugget = Vecchia.noise
    exact = target(models.Kriging(kernel, nugget, drift=drift), data)
    for z in 0.5 * torch.randn(3, vecchia.dim, generator=torch.Generator().manual_seed(1)).to(F64):
        (a, slope_a), (b, slope_b) = vecchia.value_and_grad(z), exact.value_and_grad(z)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(slope_a, slope_b, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(vecchia.hessian(z), exact.hessian(z), rtol=1e-6, atol=1e-6)


def replace_noise(data: Dataset) -> Dataset:
    sd = 0.1 + 0.2 * torch.rand(data.n, generator=torch.Generator().manual_seed(5), dtype=F64)
    return Dataset(data.X, data.y, noise_sd=sd)


@pytest.mark.parametrize("drift", ["none", "constant", 1])
def test_with_all_rows_as_neighbours_predictions_are_those_of_kriging(drift: Any) -> None:
    data, new = field(30), field(7, seed=1).X
    options = {"progress": False, "standardise": False}
    how = inference.MAP()
    vecchia = ppgp.fit(Vecchia(KERNEL, 0.1, 29, drift=drift), data, how, **options)
    exact = ppgp.fit(models.Kriging(KERNEL, 0.1, drift=drift), data, how, **options)
    every = replace(vecchia.model, neighbours=60)
    for joint in (False, True):
        a = every.predict(vecchia.theta, new, data, joint=joint)
        b = exact.model.predict(exact.theta, new, data, joint=joint)
        torch.testing.assert_close(a.mean, b.mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(a.variance, b.variance, rtol=1e-8, atol=1e-8)
        if joint:
            torch.testing.assert_close(a.covariance_matrix, b.covariance_matrix)
    for model in (every, vecchia.model):
        a, b = model.latent(vecchia.theta, new, data), exact.model.latent(exact.theta, new, data)
        torch.testing.assert_close(a.mean, b.mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(a.variance, b.variance, rtol=1e-8, atol=1e-8)
    a, b = vecchia.loo(), exact.loo()
    torch.testing.assert_close(a.mean, b.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(a.std, b.std, rtol=1e-8, atol=1e-8)


def dense(model: Vecchia, theta: dict[str, Tensor], data: Dataset) -> Tensor:
    """Return the covariance that the approximation implies, one row after another."""
    C = model.kernel({}, data.X) + theta["noise"] * torch.eye(data.n, dtype=F64)
    implied = torch.zeros_like(C)
    for members in model._nearest.sets(data.X).members.tolist():
        *others, row = [i for i in members if i >= 0]
        weights = torch.linalg.solve(C[others][:, others], C[others, row])
        implied[row] = weights @ implied[others]
        implied[:, row] = implied[row]
        implied[row, row] = C[row, row] - weights @ C[others, row]
        implied[row, row] += weights @ implied[others][:, others] @ weights
    return implied


@pytest.mark.parametrize("order", ["random", "maximin"])
def test_it_is_the_density_of_a_gaussian_vector(order: str) -> None:
    data = field(25)
    model = Vecchia(KERNEL, 0.1, 4, order=order, drift="none", mean=0.0).prepare(data)
    theta = {"noise": torch.tensor(0.1, dtype=F64)}
    C = dense(model, theta, data)
    law = torch.distributions.MultivariateNormal(torch.zeros(25, dtype=F64), C)
    own = model._marginal({}, data.X, None)
    torch.testing.assert_close(own.log_prob(data.y), law.log_prob(data.y), rtol=1e-10, atol=1e-10)
    precision = torch.linalg.inv(C)
    loo = model.loo({}, data)
    torch.testing.assert_close(loo.variance[0], 1 / precision.diagonal())
    torch.testing.assert_close(
        loo.mean[0], data.y - (precision @ data.y) / precision.diagonal(), rtol=1e-8, atol=1e-8
    )
    with seeded(0):
        drawn = own.sample((4000,))
    # each entry of a sample covariance has the variance (C_ij^2 + C_ii C_jj) / 4000
    se = ((C.square() + torch.outer(C.diagonal(), C.diagonal())) / 4000).sqrt()
    assert ((drawn.T @ drawn / 4000 - C).abs() / se).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_thirty_neighbours_are_within_half_a_nat(nu: float) -> None:
    # a lengthscale of 0.3 costs up to 4.7 nats under noise: rows tell of f far away
    kernel, generator = Matern(nu, 1.0, 0.05), torch.Generator().manual_seed(0)
    X = torch.rand(1500, 2, generator=generator, dtype=F64)
    root = torch.linalg.cholesky(kernel({}, X) + 0.1 * torch.eye(1500, dtype=F64))
    y = root @ torch.randn(1500, generator=generator, dtype=F64)
    exact = torch.distributions.MultivariateNormal(torch.zeros_like(y), scale_tril=root)
    for order in ("random", "maximin"):
        model = Vecchia(kernel, 0.1, 30, order=order, drift="none", mean=0.0)
        near = model.prepare(Dataset(X, y))._marginal({}, X, None)
        assert abs(float(near.log_prob(y) - exact.log_prob(y))) < 0.5
        # the mean of that difference over y: the Kullback-Leibler divergence
        logs = near.weights()[-1].log().sum() / 2
        assert 0 < float(-logs - root.diagonal().log().sum()) < 0.5


@pytest.mark.parametrize("known", [False, True])
def test_mini_batches_with_their_neighbours_are_unbiased(known: bool) -> None:
    data = field(60)
    if known:
        data = replace_noise(data)
    whole = target(Vecchia(Matern(1.5) + Matern(0.5), neighbours=8, drift="none"), data)
    z = whole.start(seed=1, spread=0.3)
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(12)
    parts = [whole.value_and_grad(z, rows) for rows in shuffled]
    values, slopes = (torch.stack(each).mean(0) for each in zip(*parts, strict=True))
    torch.testing.assert_close((values, slopes), whole.value_and_grad(z))
    for rows, (value, _) in zip(shuffled[:2], parts, strict=False):
        torch.testing.assert_close(whole.log_density(z, rows), value)


@pytest.mark.parametrize(
    "how",
    [
        inference.MAP("adam", batch_size=40, steps=20),
        inference.SVI(batch_size=40, steps=20),
        inference.SVI("iaf", batch_size=40, steps=5),
        inference.SGLD(batch_size=40, draws=3, warmup=3, chains=2),
    ],
    ids=lambda how: f"{type(how).__name__} {getattr(how, 'guide', '')}",
)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_methods_take_mini_batches(how: inference.Inference) -> None:
    model = Vecchia(neighbours=5, drift="none")
    posterior = ppgp.fit(model, field(80), how, progress=False)
    assert all(value.isfinite().all() for value in posterior.theta.values())
    with pytest.raises(NotApplicable, match='drift="none"'):
        ppgp.fit(replace(model, drift="constant"), field(80), how, progress=False)


@pytest.mark.parametrize("drift", ["none", "constant"])
def test_parts_of_the_rows_give_the_same_value_and_slopes(
    drift: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ppgp.models.neighbours import vecchia as module
    from ppgp.models.neighbours import weights as vecchia

    data = field(150)
    whole = target(Vecchia(neighbours=8, drift=drift), data)
    z = torch.full((whole.dim,), 0.2, dtype=F64)
    value, slope = whole.value_and_grad(z)
    H = whole.hessian(z)
    monkeypatch.setattr(vecchia, "ROWS_AT_ONCE", 40)
    for file in (vecchia, module):
        monkeypatch.setattr(file, "ROWS_IN_ONE_PASS", 60)
    parts = target(Vecchia(neighbours=8, drift=drift), data)
    assert not parts.compile
    assert whole.compile
    torch.testing.assert_close(parts.value_and_grad(z), (value, slope), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(parts.hessian(z), H, rtol=1e-8, atol=1e-8)
    again = parts.value_and_grad(z)
    assert torch.equal(again[0], parts.value_and_grad(z)[0])


def test_lengths_are_those_of_columns_in_very_different_units() -> None:
    X = field(50).X * torch.tensor([1e6, 1e-3], dtype=F64)
    theta = {
        "variance": torch.ones((), dtype=F64),
        "lengthscale": torch.tensor([1e5, 1e-4], dtype=F64),
    }
    long, short = correlation_lengths(ARD(Matern(0.5)), theta, X)
    assert long == pytest.approx(math.log(2) * 1e5, rel=1e-6)
    assert short == pytest.approx(math.log(2) * 1e-4, rel=1e-6)


def test_a_row_that_alone_determines_a_coefficient_has_almost_any_value_without_it() -> None:
    data, alone = field(40), torch.zeros(40, 1, dtype=F64)
    alone[7] = 1.0
    both = Dataset(torch.cat([data.X, alone], 1), data.y)
    model = Vecchia(KERNEL, drift=(2,)).prepare(both)
    exact = models.Kriging(KERNEL, drift=(2,)).prepare(both)
    noise = torch.tensor([0.1], dtype=F64)
    for found in (model.loo({"noise": noise}, both), exact.loo({"nugget": noise}, both)):
        others = torch.cat([found.stddev[0, :7], found.stddev[0, 8:]])
        assert float(found.stddev[0, 7]) > 1e5 * float(others.max())


def test_fit_searches_neighbours_again_along_the_column_that_matters() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(250, 2, generator=generator, dtype=F64)
    y = torch.sin(20 * X[:, 0]) + 0.05 * torch.randn(250, generator=generator, dtype=F64)
    data = Dataset(X, y)
    posterior = ppgp.fit(
        Vecchia(ARD(Matern(2.5)), neighbours=10), data, inference.MAP(), progress=False
    )
    first, second = posterior.model.lengths
    assert second > 2 * first
    fixed = Vecchia(ARD(Matern(2.5)), neighbours=10).prepare(data)
    assert fixed.lengths[0] == pytest.approx(fixed.lengths[1], rel=1e-2)
    theta = {name: value[0] for name, value in posterior.theta.items()}
    assert fixed.outdated(theta, data)
    assert not posterior.model.outdated(theta, data)
    notes = fixed.check_fit({name: value[None] for name, value in theta.items()}, data)
    assert any("neighbours were chosen" in note for note in notes)
    assert not any("neighbours were chosen" in note for note in posterior.warnings)


def test_predictions_from_nearest_rows_differ_as_their_variances_say() -> None:
    # the mean given all rows minus that given some has the difference of the variances as its
    # variance, so that the squares of the ratios have the mean 1; those of 100 places, whose
    # differences are correlated where they are near, count as at least 30 independent ones
    data = field(700)
    train, places = data.rows(torch.arange(600)), data.X[600:]
    options = {"progress": False, "standardise": False}
    kernel, how = Matern(1.5, 1.0, 0.3), inference.MAP()
    near = ppgp.fit(Vecchia(kernel, 0.1, 10, drift="none", mean=0.0), train, how, **options)
    exact = ppgp.fit(models.GP(kernel, 0.1, mean=0.0), train, how, **options)
    some, every = near.latent(places), exact.latent(places)
    more = some.variance - every.variance
    assert (more > 0).all()
    squares = (some.mean - every.mean).square() / more
    assert abs(float(squares.mean()) - 1) < 4 * (2 / 30) ** 0.5


def test_a_fit_is_saved_and_loaded(tmp_path: Any) -> None:
    data, new = field(60), field(5, seed=2).X
    posterior = ppgp.fit(Vecchia(neighbours=6), data, inference.MAP(), progress=False)
    again = ppgp.load_posterior(posterior.save(tmp_path / "fit"))
    assert torch.equal(again.predict(new).mean, posterior.predict(new).mean)
    assert again.model.lengths == posterior.model.lengths


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_nuts_agrees_with_nuts_on_gp() -> None:
    data, how = field(30, seed=6), inference.NUTS(draws=200, warmup=200, chains=2)
    exact = models.GP(Matern(1.5), mean=0.0)
    one, two = (
        ppgp.fit(model, data, how, seed=i, progress=False, standardise=False)
        for i, model in enumerate((Vecchia(neighbours=29, drift="none", mean=0.0), exact))
    )
    for name in two.draws:
        logs = [posterior.draws[name].log() for posterior in (one, two)]
        error = sum(ppgp.diagnostics.mcse(x.numpy(), "mean") ** 2 for x in logs) ** 0.5
        assert float(logs[0].mean() - logs[1].mean()) == pytest.approx(0.0, abs=5 * error), name


@pytest.mark.slow
def test_nuts_passes_simulation_based_calibration() -> None:
    """At 200 rows, with a false alarm in a thousand."""
    kernel = Matern(1.5, priors.LogNormal(0.0, 0.5), priors.LogNormal(-1.0, 0.5))
    model = Vecchia(kernel, priors.LogNormal(-2.0, 0.5), 5, drift="none", mean=0.0)
    how = inference.NUTS(draws=60, warmup=60, chains=1)
    found = ppgp.sbc(model, how, 20, X=field(200).X, progress=False, level=0.999)
    assert len(found.ranks) == 3
    assert found.passes, found.to_frame()


def test_second_derivatives_are_differences_of_slopes() -> None:
    whole = target(Vecchia(neighbours=6), field(60))
    z, h = torch.full((whole.dim,), 0.2, dtype=F64), 1e-5
    rows = []
    for e in torch.eye(whole.dim, dtype=F64):
        ahead, behind = (whole.value_and_grad(z + step * e)[1] for step in (h, -h))
        rows.append((ahead - behind) / (2 * h))
    torch.testing.assert_close(whole.hessian(z), torch.stack(rows), rtol=1e-6, atol=1e-6)


BAD: list[tuple[Any, type[PpgpError], str]] = [
    (lambda: Vecchia(neighbours=0), SettingError, "1 or more"),
    (lambda: Vecchia(neighbours=True), SettingError, "whole number"),
    (lambda: Vecchia(order="sorted"), SettingError, "random or maximin"),
    (lambda: Vecchia(drift=lambda X: X[:, 0]), SettingError, "as columns of X"),
    (lambda: Vecchia(mean=2.0), SettingError, 'drift="none"'),
    (lambda: Vecchia(neighbours=30).prepare(field(30)), SettingError, "at most 29"),
    (
        lambda: Vecchia(neighbours=3, noise=0.0).prepare(
            Dataset(torch.ones(9, 2, dtype=F64), torch.arange(9.0, dtype=F64))
        ),
        DataError,
        "duplicates in rows",
    ),
    (
        lambda: Vecchia(neighbours=3).prepare(field(20)).model(field(9).X, field(9).y, total=20),
        NotApplicable,
        "use the full batch",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=lambda case: str(case)[:12])
def test_bad_input_gets_one_sentence(call: Any, kind: type[PpgpError], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_priors_of_numbers_are_in_the_units_of_the_data() -> None:
    data = Dataset(100 * field(50).X, 7 * field(50).y + 3)
    model = Vecchia(Matern(1.5, 49.0, 30.0), 4.9, 49)
    exact = models.Kriging(Matern(1.5, 49.0, 30.0), 4.9)
    fits = [
        ppgp.fit(one, data, inference.MAP(), progress=False, standardise=scaled)
        for one, scaled in ((model, True), (model, False), (exact, False))
    ]
    means = [one.predict(100 * field(4, seed=3).X).mean for one in fits]
    torch.testing.assert_close(means[0], means[1], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(means[0], means[2], rtol=1e-3, atol=1e-3)
    assert priors.LogNormal(-2.0, 1.0) == Vecchia().noise


def test_few_neighbours_are_told_by_the_variances_of_rows() -> None:
    """The ratio is that of the standard deviations by dense algebra."""
    data = field(300)
    model = Vecchia(KERNEL, 0.05, neighbours=2, drift="none", mean=0.0).prepare(data)
    (said,) = model.check_fit({}, data)

    def log_sd(number: int) -> float:
        sets = replace(model, neighbours=number)._nearest.sets(data.X)
        C = KERNEL({}, data.X) + 0.05 * torch.eye(data.n, dtype=F64)
        total = 0.0
        for members in sets.members:
            rows = members[members >= 0].long()
            total += 0.5 * float(torch.logdet(C[rows][:, rows]))
            total -= 0.5 * float(torch.logdet(C[rows[:-1]][:, rows[:-1]]))
        return total / data.n

    percent = 100 * (math.exp(log_sd(2) - log_sd(30)) - 1)
    assert percent > 10
    assert f"given 2 neighbours, the standard deviations of rows are {percent:.0f} % larger" in said
    for number in (14, 15, None):
        assert not replace(model, neighbours=number).check_fit({}, data)


@pytest.mark.parametrize("drift", ["none", None, 1])
@pytest.mark.parametrize(
    "kernel",
    [
        kernels.ARD(kernels.Matern(0.5)),
        kernels.Metric(kernels.RBF(), rank=2),
        kernels.Scale(kernels.RationalQuadratic()) + kernels.White(),
        kernels.Subspace(kernels.Matern(2.5), [1]) * kernels.Linear() + kernels.Constant(),
    ],
    ids=["ARD", "metric", "sum", "product"],
)
def test_slopes_of_parts_by_formula_are_those_of_torch(
    kernel: kernels.Kernel, drift: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows have fewer neighbours than the others."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = torch.sin(X.sum(1)) + 0.1 * torch.randn(60, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(weights, "ROWS_IN_ONE_PASS", 10)
    monkeypatch.setattr(weights, "ROWS_AT_ONCE", 16)
    model = models.Vecchia(kernel, neighbours=7, drift=drift)
    found = []
    for formulas in (True, False):
        if not formulas:
            monkeypatch.setattr(weights.Law, "_has_formulas", False)
        target = ppgp.Target(model, ppgp.Dataset(X, y, noise_sd=0.01 + y.abs()))
        z = target.origin() + 0.2
        value, slope = target.value_and_grad(z, compile=False)
        found.append((value, slope, target.hessian(z)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_neighbours_are_nearest_under_the_metric_that_was_learnt(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 3, generator=generator, dtype=F64)
    y = torch.sin(3 * (X[:, 0] + X[:, 1])) + 0.05 * torch.randn(400, generator=generator, dtype=F64)
    model = models.Vecchia(kernels.Metric(Matern(2.5)), neighbours=12)
    fit = ppgp.fit(model, Dataset(X, y), inference.MAP(), progress=False)
    P = torch.tensor(fit.model.lengths, dtype=F64)
    assert P.shape == (3, 3)
    # across the direction of the function, neighbours are far apart
    sets = fit.model._nearest.sets(fit.data.X)
    last = sets.members[-1].long()
    steps = fit.data.X[last[:-1]] - fit.data.X[last[-1:]]
    along, across = (steps @ torch.tensor(v, dtype=F64) for v in ([1.0, 1, 0], [1.0, -1, 0]))
    assert float(across.abs().mean()) > 2 * float(along.abs().mean())
    every = (fit.data.X - fit.data.X[last[-1]]) @ P
    nearest = every.norm(dim=1).argsort()[1:13]
    assert set(nearest.tolist()) == set(last[:-1].tolist())
    fit.save(tmp_path / "fit.safetensors")
    again = ppgp.load_posterior(tmp_path / "fit.safetensors")
    new = torch.randn(5, 3, generator=generator, dtype=F64)
    assert torch.equal(again.predict(new).mean, fit.predict(new).mean)


def test_a_metric_is_outdated_where_distances_have_changed_their_ratios() -> None:
    X = field(50, d=2).X
    nearest = NearestRows(kernels.Metric(Matern(1.5)), 5, "random", 0, ((1.0, 0.0), (0.0, 1.0)))
    theta = {"variance": torch.ones(1, dtype=F64)}

    def outdated(lengthscale: list[float], shear: float) -> bool:
        own = {"lengthscale": lengthscale, "shear": [shear]}
        values = {name: torch.tensor(value, dtype=F64) for name, value in own.items()}
        return nearest.outdated({f"kernel.{n}": v for n, v in (theta | values).items()}, X)

    assert not outdated([1.0, 1.0], 0.0)
    assert not outdated([0.1, 0.1], 0.0)  # a common factor changes no neighbour
    assert not outdated([1.0, 1.5], 0.2)
    assert outdated([1.0, 3.0], 0.0)
    assert outdated([1.0, 1.0], 2.0)
