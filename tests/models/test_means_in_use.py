"""Means of Gaussian processes in mini-batches, updates, files, other units, and bad ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models, networks
from ppgp.conformal.fixed_beforehand import fixed_values
from ppgp.data import Outputs
from ppgp.density.target import Target
from ppgp.errors import DataError, PpgpWarning, SettingError, StorageError
from ppgp.kernels import Matern
from ppgp.models import GP, SGPR, SKI, SVGP, LinearMean, Model, StateSpaceGP, Vecchia
from ppgp.runtime.seeding import seeded

F64 = torch.float64
N = 20
G = torch.Generator().manual_seed(0)
X = 5 + 30 * torch.rand(N, 2, generator=G, dtype=F64)
PLACES = 6 + 28 * torch.rand(4, 2, generator=G, dtype=F64)
KERNEL = Matern(1.5, 9.0, 6.0)
Z = X[::3].clone()
EXACT = {"rtol": 1e-9, "atol": 1e-9}
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def law(x: Tensor) -> Tensor:
    """A known mean, in the units of the data."""
    return 0.1 * x[:, 0] * x[:, 1] - x[:, 1]


Y = law(X) + 3 * torch.sin(X[:, 0] / 2) + torch.randn(N, generator=G, dtype=F64)
DATA = Dataset(X, Y)
REST = Dataset(X, Y - law(X))


def fit(model: Model, data: Dataset = DATA, how: Any = None, **options: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, how or inference.MAP(), progress=False, **options)


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def svgp(mean: Any, likelihood: Any = None, **options: Any) -> SVGP:
    likelihood = likelihood or likelihoods.Gaussian(1.0)
    return SVGP(KERNEL, likelihood=likelihood, mean=mean, Z=Z, learn=False, **options)


@pytest.mark.parametrize(("q", "standardise"), [("natural", True), slow("full", False)])
def test_svgp_fits_the_rest_of_y(q: str, standardise: bool) -> None:
    how = inference.SVI(steps=2, draws=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PpgpWarning)
        ours = fit(svgp(law, q=q), how=how, standardise=standardise)
        rest = fit(svgp(0.0, q=q), REST, how, standardise=standardise)
    for joint in (False, True):
        one, other = (p.predict(PLACES, joint=joint) for p in (ours, rest))
        torch.testing.assert_close(one.mean, other.mean + law(PLACES), **EXACT)
        torch.testing.assert_close(one.std, other.std, **EXACT)


@pytest.mark.parametrize(
    "make",
    [svgp, lambda mean: Vecchia(KERNEL, neighbours=5, drift="none", mean=mean)],
    ids=["SVGP", "Vecchia"],
)
def test_a_mini_batch_has_the_mean_of_its_rows(make: Any) -> None:
    """Also the second batch: nothing is kept of the first."""
    w, b = torch.tensor([0.3, -0.2], dtype=F64), 1.5
    ours = Target(make(law).prepare(DATA), DATA)
    rest = Target(make(0.0).prepare(REST), REST)
    v = torch.randn(ours.dim, generator=G, dtype=F64)
    flat = Dataset(X, Y - X @ w - b)
    of_line = Target(make(LinearMean((0.3, -0.2), b)).prepare(DATA), DATA)
    of_flat = Target(make(0.0).prepare(flat), flat)
    for rows in (torch.arange(5), torch.arange(9, 14)):
        for one, other in ((ours, rest), (of_line, of_flat)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of a graph that fails
                found = one.value_and_grad(v, rows)
            for a, expected in zip(found, other.value_and_grad(v, rows), strict=True):
                torch.testing.assert_close(a, expected, **EXACT)


@pytest.mark.slow
def test_svi_takes_mini_batches_with_a_function() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(SVGP(KERNEL, 5, mean=law), how=inference.SVI(steps=4, batch_size=7, draws=3))
    assert not [str(w.message) for w in caught if "compiled" in str(w.message)]


@pytest.mark.parametrize("make", [GP, SGPR, StateSpaceGP], ids=lambda m: m.__name__)
def test_updates_and_steps_ahead_are_those_of_the_rest(make: Any) -> None:
    d = 1 if make is StateSpaceGP else 2
    x, order = X[:, :d], X[:, 0].argsort()
    first, later = order[:14], order[14:]
    options = {"Z": Z} if make is SGPR else {}

    def known(rows: Tensor) -> Tensor:
        return 0.5 * rows[:, 0].square()

    pair = []
    for mean, m in ((known, torch.zeros(N, dtype=F64)), (0.0, known(x))):
        posterior = fit(
            make(KERNEL, noise=1.0, mean=mean, **options), Dataset(x[first], (Y - m)[first])
        )
        ahead = posterior.one_step_ahead(x[later], (Y - m)[later])
        after = posterior.update(x[later], (Y - m)[later]).predict(PLACES[:, :d])
        pair.append((ahead.mean, ahead.std, after.mean, after.std))
    levels = (known(x[later]), 0.0, known(PLACES[:, :d]), 0.0)
    for one, other, level in zip(*pair, levels, strict=True):
        torch.testing.assert_close(one, other + level, **EXACT)


COUNTS = Dataset(X[:, :1], (4 + torch.sin(X[:, 0]) * 2).round())


@pytest.mark.parametrize(
    "make",
    [
        lambda mean: GP(KERNEL, mean=mean, likelihood=likelihoods.Poisson()),
        slow(lambda mean: StateSpaceGP(KERNEL, mean=mean, likelihood=likelihoods.Poisson())),
        slow(
            lambda mean: Vecchia(KERNEL, neighbours=9, mean=mean, likelihood=likelihoods.Poisson())
        ),
    ],
    ids=["GP", "StateSpaceGP", "Vecchia"],
)
def test_of_counts_it_is_the_mean_of_f(make: Any) -> None:
    """A line as numbers and as a function, and a constant one as a number."""
    pairs = [
        (LinearMean(0.05, 0.3), lambda x: 0.05 * x[:, 0] + 0.3),
        (0.7, lambda x: torch.full_like(x[:, 0], 0.7)),
    ]
    for one, other in pairs:
        found = [fit(make(mean), COUNTS) for mean in (one, other)]
        evidence = [p.stats["log_density"] for p in found]
        assert evidence[0] == pytest.approx(evidence[1], abs=1e-9)
        means = [p.predict(PLACES[:, :1]).mean for p in found]
        torch.testing.assert_close(*means, **EXACT)


def test_it_is_computed_once_for_the_training_rows() -> None:
    """Fits of a model of another posterior's predictions, which are a function too."""
    first = fit(GP(KERNEL, 1.0, 0.0), Dataset(X[:10], Y[:10]))
    calls = []

    def predicted(rows: Tensor) -> Tensor:
        calls.append(len(rows))
        return first.predict(rows).mean

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = fit(GP(mean=predicted), how=inference.Laplace(draws=3))
    assert len(calls) <= 4
    far = 1e4 + PLACES
    torch.testing.assert_close(posterior.predict(far).mean, first.predict(far).mean)


def test_arrays_and_places_with_a_gradient() -> None:
    of_numpy = fit(GP(KERNEL, 1.0, lambda rows: np.asarray(law(rows))))
    posterior = fit(GP(KERNEL, 1.0, law))
    assert torch.equal(of_numpy.predict(PLACES).mean, posterior.predict(PLACES).mean)
    at = PLACES.clone().requires_grad_()
    theta, model = posterior.theta, posterior.model
    rows = posterior.scaler.inputs(at)
    mean = model.latent(theta, rows, posterior.data).mean.sum()
    (slope,) = torch.autograd.grad(mean, at)
    steps = 1e-5 * torch.eye(2, dtype=F64)
    for k in range(2):
        up, down = (
            model.latent(theta, posterior.scaler.inputs(PLACES + s), posterior.data).mean[0]
            for s in (steps[k], -steps[k])
        )
        torch.testing.assert_close(slope[:, k], (up - down) / 2e-5, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [GP, slow(StateSpaceGP)])
def test_other_units_give_the_same_fit(make: Any) -> None:
    """Metres and kilometres; far from the rows, the prediction is the line of the draws."""
    x = X[:, :1] if make is StateSpaceGP else X
    model = make(Matern(1.5, lengthscale=20.0), mean=LinearMean())
    in_km = make(Matern(1.5, lengthscale=0.02), mean=LinearMean())
    metres = fit(model, Dataset(x, Y))
    other = fit(in_km, Dataset(x / 1000, 7 * Y - 3))
    places = PLACES[:, : x.shape[1]]
    prediction = other.predict(places / 1000)
    torch.testing.assert_close(
        prediction.mean, 7 * metres.predict(places).mean - 3, rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(prediction.std, 7 * metres.predict(places).std, rtol=1e-6, atol=1e-6)
    one, two = (p.draws_in("data") for p in (metres, other))
    torch.testing.assert_close(two["mean.weight"], 7000 * one["mean.weight"], rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(two["mean.bias"], 7 * one["mean.bias"] - 3, rtol=1e-5, atol=1e-5)
    far = places + 1e5
    line = far @ one["mean.weight"][0, 0] + one["mean.bias"][0, 0]
    torch.testing.assert_close(metres.predict(far).mean, line, rtol=1e-9, atol=1e-6)


def test_sets_that_rank_all_rows_add_it_back() -> None:
    sets = [
        ppgp.full_conformal(
            fit(GP(KERNEL, 1.0, mean), data, standardise=False), PLACES, level=0.8, split=None
        )
        for mean, data in ((law, DATA), (0.0, REST))
    ]
    for ours, rest in zip(*sets, strict=True):
        torch.testing.assert_close(ours, rest + law(PLACES), **EXACT)
    assert "the function of the mean" in fixed_values(GP(KERNEL, 1.0, law), 2)


def test_it_is_drawn_from_its_priors() -> None:
    from ppgp.diagnostics.prior_simulations import OfModel

    with seeded(0), pyro.get_param_store().scope():
        values, _, drawn = OfModel(GP(KERNEL, 1e-8, LinearMean()), X).drawn()
    assert values["mean.weight"].shape == (2,)
    with seeded(0), pyro.get_param_store().scope():
        _, _, known = OfModel(GP(KERNEL, 1.0, law), X).drawn()
    with seeded(0), pyro.get_param_store().scope():
        _, _, rest = OfModel(GP(KERNEL, 1.0, 0.0), X).drawn()
    torch.testing.assert_close(known.y, rest.y + law(X), **EXACT)
    assert drawn.n == N


@quiet
@pytest.mark.slow
def test_of_a_deep_kernel_it_reads_the_columns() -> None:
    def model(mean: Any) -> SKI:
        return SKI(
            kernels.Deep(networks.MLP((3,), out=1, dropout=0.0), kernels.RBF()), 12, mean=mean
        )

    how = inference.MAP("adam", steps=5)
    ours = fit(model(law), how=how, standardise=False)
    rest = fit(model(0.0), REST, how, standardise=False)
    torch.testing.assert_close(
        ours.predict(PLACES).mean, rest.predict(PLACES).mean + law(PLACES), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(ours.loo().mean, rest.loo().mean + law(X), rtol=1e-6, atol=1e-6)


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("mean", [law, LinearMean((0.4, -0.3), 1.0)], ids=["function", "linear"])
def test_of_many_nodes_it_is_the_fit_to_the_rest(mean: Any) -> None:
    m = law if mean is law else lambda x: x @ torch.tensor([0.4, -0.3], dtype=F64) + 1.0
    ours, rest = (
        fit(SKI(kernels.RBF(9.0, 6.0), 72, 1.0, given, margin=0.2), data)
        for given, data in ((mean, DATA), (0.0, Dataset(X, Y - m(X))))
    )
    torch.testing.assert_close(
        ours.predict(PLACES).mean, rest.predict(PLACES).mean + m(PLACES), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(ours.predict(PLACES).std, rest.predict(PLACES).std)


def test_several_outputs_have_it_each() -> None:
    both = ppgp.fit(
        models.Multi(GP(KERNEL, 1.0, law)),
        Outputs(X, torch.stack([Y, -Y], 1)),
        inference.MAP(),
        progress=False,
    )
    expected = fit(GP(KERNEL, 1.0, law), Dataset(X, -Y)).predict(PLACES).mean
    torch.testing.assert_close(list(both.predict(PLACES).values())[1].mean, expected)


def test_files_hold_a_linear_mean_and_name_a_function(tmp_path: Path) -> None:
    path = tmp_path / "fit.safetensors"
    line = fit(GP(KERNEL, 1.0, LinearMean()))
    line.save(path)
    again = ppgp.load_posterior(path)
    assert torch.equal(again.predict(PLACES).mean, line.predict(PLACES).mean)
    assert again.recipe == line.recipe
    known = fit(GP(KERNEL, 1.0, law))
    known.save(path)
    with pytest.raises(StorageError, match="'law', which no file can hold"):
        ppgp.load_posterior(path)
    for given in (law, known.recipe):
        again = ppgp.load_posterior(path, model=given)
        assert torch.equal(again.predict(PLACES).mean, known.predict(PLACES).mean)


def test_bad_means_raise_a_clear_error() -> None:
    for mean, got in (
        (lambda x: x, r"shape \[20, 2\]"),
        (lambda x: x[:3, 0], r"shape \[3\]"),
        (lambda x: x[:, 0] / 0, "NaN or infinity"),
        (lambda x: 3.0, "a float"),
    ):
        with pytest.raises(DataError, match=f"a finite number for each of 20 rows.*{got}"):
            fit(GP(KERNEL, 1.0, mean))
    with pytest.raises(SettingError, match='drift="none"'):
        models.Kriging(mean=LinearMean())
    with pytest.raises(SettingError, match='drift="none"'):
        Vecchia(mean=law)
    with pytest.raises(SettingError, match="weight of the mean"):
        GP(mean=LinearMean(weight=(1.0, 2.0, 3.0))).sites(2)
    with pytest.raises(SettingError, match="the class LinearMean"):
        GP(mean=LinearMean)
    with pytest.raises(SettingError, match="bias in the units of the data"):
        fit(GP(mean=LinearMean(bias=2.0)))
