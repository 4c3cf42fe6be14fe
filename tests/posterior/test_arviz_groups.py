"""``to_arviz``: names of axes, pointwise densities, replicates and prior draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import either_arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.data import Dataset
from ppgp.errors import DataError, DataWarning, NotApplicable, SettingError, UnknownName
from ppgp.posterior import Posterior
from ppgp.posterior import arviz as arviz_bridge
from ppgp.runtime import batching as chunks
from ppgp.runtime.team import Team

F64 = torch.float64
Y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=F64)
SIGMA = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=F64)


def zero() -> Tensor:
    return torch.zeros((), dtype=F64)


def schools(sigma: Tensor, y: Tensor | None = None) -> None:
    mu = pyro.sample("mu", dist.Normal(zero(), 5.0))
    tau = pyro.sample("tau", dist.HalfNormal(5.0 + zero()))
    with pyro.plate("school", len(sigma)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.deterministic("double", 2 * theta)
        pyro.sample("vector", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def branching(sigma: Tensor, y: Tensor | None = None) -> None:
    """A program that branches on a value, which vmap cannot do."""
    mu = pyro.sample("mu", dist.Normal(zero(), 5.0))
    loc = mu if mu.item() > 0 else 2 * mu
    with pyro.plate("school", len(sigma)):
        pyro.sample("y", dist.Normal(loc, sigma), obs=y)


def drawn(program: Callable[..., Any], chains: int = 1, draws: int = 12) -> Posterior:
    """Return a posterior with made-up draws of every site of ``program``."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(chains, draws, *shape, generator=generator, dtype=F64)

    values = {"mu": normal()}
    if program is schools:
        theta = normal(8)
        values |= {
            "tau": normal().exp(),
            "theta": theta,
            "double": 2 * theta,
            "vector": normal(8, 3),
        }
    return Posterior(
        models.Program(program), {"sigma": SIGMA, "y": Y}, values, how=inference.NUTS(chains=chains)
    )


@pytest.fixture(scope="module")
def eight() -> Posterior:
    return drawn(schools, 2, 30)


# -- axes --------------------------------------------------------------------------------------


def test_every_site_of_a_plate_has_its_axis(eight: Posterior) -> None:
    found = eight.to_arviz(prior=5, predictive=True)
    wanted = {
        "mu": (),
        "tau": (),
        "theta": ("school",),
        "double": ("school",),
        "vector": ("school", "vector_dim_1"),
    }
    for group in ("posterior", "prior"):
        assert {k: v.dims[2:] for k, v in found[group].data_vars.items()} == wanted
        assert found[group].coords["school"].values.tolist() == list(range(8))
    for group in ("log_likelihood", "posterior_predictive", "prior_predictive"):
        assert found[group]["y"].dims == ("chain", "draw", "school")
    assert found["observed_data"]["y"].dims == ("school",)
    assert set(found["constant_data"].data_vars) == {"sigma"}  # y is data, not a constant
    np.testing.assert_array_equal(
        found["posterior"]["vector"].values, eight.draws["vector"].numpy()
    )


def test_nested_plates_keep_their_order() -> None:
    def program(y: Tensor | None = None) -> None:
        with pyro.plate("column", 3, dim=-1):
            pyro.sample("b", dist.Normal(zero(), 1.0))
            with pyro.plate("line", 2, dim=-2):
                a = pyro.sample("a", dist.Normal(zero(), 1.0))
                pyro.sample("y", dist.Normal(a, 1.0), obs=y)

    posterior = ppgp.fit(
        program, {"y": torch.ones(2, 3, dtype=F64)}, inference.Laplace(draws=20), progress=False
    )
    found = posterior.to_arviz(predictive=True)
    assert found["posterior"]["a"].dims == ("chain", "draw", "line", "column")
    assert found["posterior"]["b"].dims == ("chain", "draw", "column")
    assert found["log_likelihood"]["y"].dims == ("chain", "draw", "line", "column")
    # C order throughout: the density of a cell is that of its own latent
    a = posterior.draws["a"]
    expected = dist.Normal(a, torch.ones((), dtype=F64)).log_prob(torch.ones((), dtype=F64))
    np.testing.assert_allclose(found["log_likelihood"]["y"].values, expected.numpy())
    assert found["posterior_predictive"]["y"].dims == ("chain", "draw", "line", "column")


def test_a_plate_named_like_a_site_or_an_axis_of_arviz_is_renamed() -> None:
    def program(y: Tensor | None = None) -> None:
        with pyro.plate("draw", 4):
            mu = pyro.sample("mu", dist.Normal(zero(), 1.0))
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    posterior = ppgp.fit(
        program, {"y": torch.ones(4, dtype=F64)}, inference.Laplace(draws=20), progress=False
    )
    assert posterior.to_arviz()["posterior"]["mu"].dims == ("chain", "draw", "draw_dim")


def test_tables_name_features_classes_and_components() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 3, generator=generator, dtype=F64)
    labels = torch.arange(30) % 3
    three = Dataset(X, labels, ["a", "b", "c"], classes=("red", "green", "blue"))

    def groups(model: Any, data: Dataset, how: Any = None) -> Any:
        return ppgp.fit(model, data, how or inference.Laplace(draws=10), progress=False).to_arviz()[
            "posterior"
        ]

    weight = groups(models.SoftmaxRegression(), three)["weight"]
    assert weight.dims[2:] == ("class", "feature")
    assert weight.coords["class"].values.tolist() == ["red", "green", "blue"]
    number = Dataset(
        X, X[:, 0] + 0.1 * torch.randn(30, generator=generator, dtype=F64), ["a", "b", "c"]
    )
    kernel = kernels.Subspace(kernels.ARD(kernels.RBF()), columns=[2, 0]) + kernels.ARD(
        kernels.RBF()
    )
    found = groups(models.GP(kernel), number, inference.MAP())
    assert found["kernel.1.lengthscale"].coords["feature"].values.tolist() == ["a", "b", "c"]
    own = found["kernel.0.lengthscale"]
    assert own.coords[own.dims[2]].values.tolist() == ["c", "a"]
    assert groups(models.GaussianMixture(3), number, inference.MAP())["mean"].dims[2:] == (
        "component",
    )


def test_the_reference_class_of_a_flat_prior_has_no_row() -> None:
    labels = torch.arange(60) % 3
    X = torch.randn(60, 2, generator=torch.Generator().manual_seed(3), dtype=F64)
    model = models.SoftmaxRegression(priors.Flat(), priors.Flat())
    posterior = ppgp.fit(
        model, Dataset(X, labels, classes=("red", "green", "blue")), inference.MAP(), progress=False
    )
    bias = posterior.to_arviz()["posterior"]["bias"]
    assert bias.coords[bias.dims[2]].values.tolist() == ["green", "blue"]


def test_coords_and_dims_of_the_user(eight: Posterior) -> None:
    names = list("ABCDEFGH")
    found = eight.to_arviz(coords={"school": names}, dims={"sigma": ["school"]})
    assert found["posterior"]["theta"].coords["school"].values.tolist() == names
    assert found["constant_data"]["sigma"].dims == ("school",)
    with pytest.raises(UnknownName, match="did you mean 'school'"):
        eight.to_arviz(coords={"schools": names})
    with pytest.raises(DataError, match="expected 8 coordinates for the axis school, got 7"):
        eight.to_arviz(coords={"school": names[:7]})


# -- densities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [schools, branching], ids=["vmap", "loop"])
def test_the_pointwise_density_is_that_of_pyro_draw_by_draw(program: Callable[..., Any]) -> None:
    posterior = drawn(program)
    found = posterior.log_likelihood()
    for i in range(12):
        one = {name: value[0, i] for name, value in posterior.draws.items()}
        with pyro.poutine.trace() as tape, pyro.poutine.condition(data=one):  # type: ignore[attr-defined]
            program(SIGMA, Y)
        node = tape.trace.nodes["y"]
        torch.testing.assert_close(found[0, i], node["fn"].log_prob(node["value"]))


@pytest.mark.parametrize("budget", [1, 3000])
def test_chunks_change_nothing(
    eight: Posterior, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    whole = eight.log_likelihood()
    monkeypatch.setattr(chunks, "MEMORY_BUDGET", budget)
    torch.testing.assert_close(eight.log_likelihood(), whole, rtol=1e-12, atol=0)


def test_a_chunk_holds_what_the_budget_allows() -> None:
    sizes = []

    def doubled(part: dict[str, Tensor]) -> dict[str, Tensor]:
        sizes.append(len(part["x"]))
        return {"x": 2 * part["x"]}

    x = torch.randn(
        10, 100, generator=torch.Generator().manual_seed(0), dtype=F64
    )  # 800 bytes a draw
    found = chunks.in_chunks(doubled, {"x": x}, budget=2500)
    assert sizes == [1, 3, 3, 3, 1]  # the first to see what one draw costs
    assert torch.equal(found["x"], 2 * x)


def test_the_params_of_a_program_are_not_draws() -> None:
    """There are a param of three numbers and a single draw."""

    def program(sigma: Tensor, y: Tensor | None = None) -> None:
        mu = pyro.sample("mu", dist.Normal(zero(), 5.0))
        shift = pyro.param("shift", torch.zeros(3, dtype=F64))
        with pyro.plate("school", len(sigma)):
            pyro.sample("y", dist.Normal(mu + shift.sum(), sigma), obs=y)

    posterior = ppgp.fit(program, {"sigma": SIGMA, "y": Y}, inference.MAP(), progress=False)
    loc = posterior.draws["mu"][0, 0] + posterior.params["shift"].sum()
    torch.testing.assert_close(
        posterior.log_likelihood()[0, 0], dist.Normal(loc, SIGMA).log_prob(Y)
    )
    torch.testing.assert_close(posterior.predict(sigma=SIGMA).mean, loc.expand(8))


def test_the_log_prior_of_a_program_is_that_of_its_sites(eight: Posterior) -> None:
    """Of each site given the other sites of the draw, summed over its entries."""
    found = eight.to_arviz()["log_prior"]
    draws = eight.draws
    wanted = {
        "mu": dist.Normal(zero(), 5.0).log_prob(draws["mu"]),
        "tau": dist.HalfNormal(5.0 + zero()).log_prob(draws["tau"]),
        "vector": dist.Normal(zero(), 1.0).log_prob(draws["vector"]).sum((-1, -2)),
    }
    given = dist.Normal(draws["mu"][..., None], draws["tau"][..., None])
    wanted["theta"] = given.log_prob(draws["theta"]).sum(-1)
    assert set(found.data_vars) == set(wanted)  # double is computed, and has no prior
    for name, value in wanted.items():
        assert found[name].dims == ("chain", "draw")
        np.testing.assert_allclose(found[name].values, value.numpy(), rtol=1e-12)
    assert "log_prior" not in eight.to_arviz(log_prior=False)


def test_the_log_prior_of_a_recipe_is_on_the_scale_of_the_model() -> None:
    data = ppgp.load("diabetes")
    how = inference.Laplace(draws=15)
    posterior = ppgp.fit(
        models.LinearRegression(weight=priors.Normal(0.0, 2.0), bias=priors.Flat()),
        data,
        how,
        progress=False,
    )
    found = posterior.to_arviz(units="data")["log_prior"]
    assert set(found.data_vars) == {"weight", "noise"}  # a flat prior has no density
    weight = dist.Normal(zero(), 2.0).log_prob(posterior.draws["weight"]).sum(-1)
    np.testing.assert_allclose(found["weight"].values, weight.numpy())


def test_a_scaled_prior_counts_as_in_the_fit() -> None:
    def program(y: Tensor) -> None:
        with pyro.poutine.scale(scale=0.5):  # type: ignore[attr-defined]
            mu = pyro.sample("mu", dist.Normal(zero(), 5.0))
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    posterior = ppgp.fit(program, {"y": Y[0]}, inference.Laplace(draws=10), progress=False)
    half = 0.5 * dist.Normal(zero(), 5.0).log_prob(posterior.draws["mu"])
    found = posterior.to_arviz()["log_prior"]["mu"].values
    np.testing.assert_allclose(found, half.numpy())


def test_power_scaling_finds_a_prior_that_matters() -> None:
    """By the function of the ArviZ that is there: a tight prior far from the data matters."""

    def program(scale: float, y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(zero(), scale))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, 10.0), obs=y)

    def of(scale: float, component: str) -> float:
        arguments = {"scale": scale, "y": Y}
        posterior = ppgp.fit(program, arguments, inference.Laplace(draws=2000), progress=False)
        return either_arviz.sensitivity(posterior.to_arviz(), component)["mu"]

    # Kallioinen et al. (2024): the influence begins at 0.05
    assert of(2.0, "prior") > 0.05 > of(1000.0, "prior")
    assert of(1000.0, "likelihood") > 0.05


def test_a_group_that_a_program_does_not_have_is_left_out_with_one_warning() -> None:
    def program(y: Tensor) -> None:
        centre = pyro.sample("centre", dist.Normal(zero(), 5.0))
        side = pyro.sample("side", dist.Bernoulli(0.5 + zero()))
        mu = pyro.sample("mu", dist.Normal(centre + 2 * side, 1.0))
        with pyro.poutine.scale(scale=2.0):  # type: ignore[attr-defined]
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    posterior = ppgp.fit(program, {"y": Y[0]}, inference.Laplace(draws=10), progress=False)
    with pytest.warns(DataWarning, match="leaves out log_likelihood .* and log_prior") as caught:
        found = posterior.to_arviz()
    assert len(caught) == 1
    assert not {"log_likelihood", "log_prior"} & set(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior.to_arviz(log_likelihood=False, log_prior=False)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")  # of two modes
@pytest.mark.filterwarnings("ignore:.*searches ended apart")  # by the signs of mu and z
def test_rows_without_a_density_of_their_own_have_no_plates() -> None:
    """A mask leaves entries out, and a discrete site joins the elements of an inner plate."""
    y = torch.tensor([[-2.0, -2.1], [2.0, 2.2], [1.0, 2.0]], dtype=F64)

    def program(y: Tensor, keep: Tensor, joined: bool) -> None:
        mu = pyro.sample("mu", dist.Normal(2.0 + zero(), 1.0))
        with pyro.plate("outer", 3, dim=-2):
            z = zero()
            if joined:
                z = pyro.sample("z", dist.Bernoulli(0.5 + zero()))
            with pyro.plate("inner", 2, dim=-1), pyro.poutine.mask(mask=keep):  # type: ignore[attr-defined]
                pyro.sample("y", dist.Normal((2 * z - 1) * mu, 0.5), obs=y)

    def dims(keep: Tensor, joined: bool) -> tuple[tuple[str, ...], tuple[int, ...]]:
        arguments = {"y": y, "keep": keep, "joined": joined}
        posterior = ppgp.fit(program, arguments, inference.Laplace(draws=10), progress=False)
        found = posterior.to_arviz()["log_likelihood"]["y"]
        return found.dims[2:], found.shape[2:]

    every = torch.ones(3, 2, dtype=torch.bool)
    assert dims(every, False) == (("outer", "inner"), (3, 2))
    assert dims(y > -2.05, False) == (("y_dim_0",), (5,))
    assert dims(every, True) == (("y_dim_0",), (3,))


def test_predictions_at_new_rows_are_a_group() -> None:
    """One draw of y given each draw of the posterior, in their order."""
    data = ppgp.load("diabetes")
    how = inference.Laplace(draws=600)
    posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
    prediction = posterior.predict(data.X[:4])
    y = posterior.to_arviz(predictions=prediction)["predictions"]["y"]
    assert y.dims == ("chain", "draw", "new_row")
    assert y.shape == (1, 600, 4)
    error = prediction.std.numpy() / 600**0.5
    assert float((np.abs(y.values[0].mean(0) - prediction.mean.numpy()) / error).max()) < 4.5

    def program(x: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(zero(), 5.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("strength", dist.Normal(slope * x, 1e-3), obs=y)

    x = torch.linspace(-1, 1, 20, dtype=F64)
    posterior = ppgp.fit(program, {"x": x, "y": x}, inference.Laplace(draws=50), progress=False)
    found = posterior.to_arviz(predictions=posterior.predict(x=x[:3]))
    strength = found["predictions"]["strength"].values
    each = strength.shape[1] // 50
    slopes = posterior.draws["slope"].repeat_interleave(each, 1)[..., None].numpy()
    assert np.abs(strength - slopes * x[:3].numpy()).max() < 6e-3


def test_predictions_are_those_of_predict(eight: Posterior) -> None:
    with pytest.raises(NotApplicable, match="a Prediction for each site, got an int as 'y'"):
        eight.to_arviz(predictions={"y": 1})


def test_an_argument_named_like_a_site_has_another_name() -> None:
    """Both have axes of their own, and ArviZ takes one set of axes for a name."""

    def program(X: Tensor, y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(zero(), 1.0))
        with pyro.plate("n", len(X)), pyro.plate("d", 2, dim=-2):
            own = pyro.sample("X", dist.Normal(m, 1.0), obs=X.T, obs_mask=~X.T.isnan())
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(own.sum(-2), 1.0), obs=y)

    X = torch.tensor([[0.1, 0.2], [torch.nan, 1.0], [0.3, torch.nan]], dtype=F64)
    data = {"X": X, "y": torch.ones(3, dtype=F64)}
    posterior = ppgp.fit(program, data, inference.Laplace(draws=20), progress=False)
    found = posterior.to_arviz()
    assert found["posterior"]["X"].dims == ("chain", "draw", "d", "n")
    assert np.array_equal(found["constant_data"]["X_data"].values, X.numpy(), equal_nan=True)


# -- data drawn again --------------------------------------------------------------------------


def test_data_are_in_their_units() -> None:
    posterior = ppgp.fit(
        models.LinearRegression(),
        ppgp.load("diabetes"),
        inference.Laplace(draws=400),
        progress=False,
    )
    found = posterior.to_arviz(predictive=True, prior=200)
    data = ppgp.load("diabetes")
    np.testing.assert_allclose(found["observed_data"]["y"].values, data.y.numpy())
    np.testing.assert_allclose(found["constant_data"]["X"].values, data.X.numpy(), atol=1e-12)
    again, prediction = found["posterior_predictive"]["y"], posterior.predict(data.X)
    error = prediction.std.numpy() / 400**0.5
    assert (
        float(
            np.abs((again.mean(("chain", "draw")).values - prediction.mean.numpy()) / error).max()
        )
        < 5
    )
    np.testing.assert_allclose(
        again.std(("chain", "draw")).values, prediction.std.numpy(), rtol=0.25
    )
    # the prior is wider than the data, around their mean
    assert float(found["prior_predictive"]["y"].std()) > float(data.y.std())


@pytest.mark.parametrize("program", [schools, branching], ids=["vmap", "loop"])
def test_replicates_of_a_program_have_its_distribution(program: Callable[..., Any]) -> None:
    """The z scores of replicates given theta are standard normal and independent."""
    posterior = drawn(program, draws=500)
    found = posterior.to_arviz(predictive=True)
    mu = posterior.draws["mu"][..., None]
    loc = posterior.draws["theta"] if program is schools else torch.where(mu > 0, mu, 2 * mu)
    z = (found["posterior_predictive"]["y"].values - loc.numpy()) / SIGMA.numpy()
    n = z.size
    assert abs(z.mean()) < 4.5 / n**0.5
    assert abs(z.var() - 1) < 4.5 * (2 / n) ** 0.5
    assert len(np.unique(z)) == n


def test_a_series_is_simulated_from_its_beginning() -> None:
    """Each value depends on the one before: a replicate follows its own past."""

    def walk(y: Tensor | None = None) -> None:
        step = pyro.sample("step", dist.HalfNormal(torch.ones((), dtype=F64)))
        last = zero()
        for t in range(4):
            last = pyro.sample(
                f"y{t}", dist.Normal(last, 1e-6 * step), obs=None if y is None else y[t]
            )

    draws = {"step": torch.ones(1, 5, dtype=F64)}
    posterior = Posterior(
        models.Program(walk), {"y": torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64)}, draws, how=None
    )
    found = posterior.to_arviz(predictive=True)["posterior_predictive"]
    assert float(np.abs(found["y3"].values).max()) < 1e-4


def test_prior_and_replicates_come_from_the_seed(eight: Posterior) -> None:
    def figures(seed: int) -> tuple[np.ndarray, ...]:
        found = eight.to_arviz(prior=20, predictive=True, seed=seed)
        names = ("prior", "theta"), ("prior_predictive", "y"), ("posterior_predictive", "y")
        return tuple(found[group][name].values for group, name in names)

    state = torch.random.get_rng_state()
    first, again, other = figures(1), figures(1), figures(2)
    assert torch.equal(state, torch.random.get_rng_state())
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)


def test_the_prior_is_that_of_the_program(eight: Posterior) -> None:
    found = eight.to_arviz(prior=4000)
    z = found["prior"]["mu"].values / 5
    assert abs(z.mean()) < 4.5 / 4000**0.5
    assert abs(z.var() - 1) < 4.5 * (2 / 4000) ** 0.5
    noise = (found["prior_predictive"]["y"].values - found["prior"]["theta"].values) / SIGMA.numpy()
    assert abs(noise.var() - 1) < 4.5 * (2 / noise.size) ** 0.5


def test_prior_draws_of_the_user_are_used(eight: Posterior) -> None:
    samples = {"mu": np.arange(5.0), "y": np.zeros((5, 8)), "unknown": np.zeros(5)}
    found = eight.to_arviz(prior=samples)
    assert found["prior"]["mu"].values.tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert set(found["prior"].data_vars) == {"mu"}
    assert found["prior_predictive"]["y"].dims == ("chain", "draw", "school")


def test_a_flat_prior_and_a_wrong_number_are_refused(eight: Posterior) -> None:
    flat = ppgp.fit(
        models.LinearRegression(weight=priors.Flat()),
        ppgp.load("diabetes"),
        inference.MAP(),
        progress=False,
    )
    with pytest.raises(NotApplicable, match="a flat one for weight: give that site a prior"):
        flat.to_arviz(prior=10)
    assert flat.to_arviz(predictive=True)["posterior_predictive"].data_vars
    with pytest.raises(SettingError, match="number of prior draws"):
        eight.to_arviz(prior=-1)


def test_the_replicates_of_a_process_are_joint() -> None:
    """Neighbouring rows of a smooth function are correlated, which only a joint draw shows."""
    x = torch.linspace(0, 1, 12, dtype=F64)[:, None]
    data = Dataset(torch.cat([x, x + 1e-4]), torch.sin(6 * torch.cat([x, x])[:, 0]))
    draws = {
        "kernel.variance": torch.ones(1, 300, dtype=F64),
        "noise": torch.full((1, 300), 1e-4, dtype=F64),
    }
    gp = models.GP(kernels.RBF(lengthscale=0.02), noise=priors.LogNormal(-4.0, 1.0))
    posterior = Posterior(gp, data, draws, how=None, scaler=None)
    y = posterior.to_arviz(predictive=True)["posterior_predictive"]["y"].values[0]
    spread, apart = y[:, :12].std(0), (y[:, :12] - y[:, 12:]).std(0)
    assert (apart < 2.2 * spread).all()
    distribution = gp.predict(posterior.theta, data.X, data, joint=True)
    covariance = distribution.covariance_matrix[0].numpy()
    found = np.cov(y.T)
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 300)
    assert float((np.abs(found - covariance) / error).max()) < 5.5


def test_everything_is_written_to_netcdf_and_read_back(eight: Posterior, tmp_path: Any) -> None:
    path = tmp_path / "eight.nc"
    eight.to_arviz(prior=5, predictive=True).to_netcdf(str(path), engine="h5netcdf")
    found = arviz_bridge.arviz().from_netcdf(str(path), engine="h5netcdf")
    np.testing.assert_array_equal(found["posterior"]["theta"].values, eight.draws["theta"].numpy())


def test_arviz_1_accepts_the_same_groups(eight: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    base = pytest.importorskip("arviz_base")
    monkeypatch.setattr(arviz_bridge, "arviz", lambda: base)
    found = eight.to_arviz(prior=5, predictive=True)
    assert found["posterior"]["vector"].dims == ("chain", "draw", "school", "vector_dim_1")
    assert found["prior_predictive"]["y"].dims == ("chain", "draw", "school")
    assert found["observed_data"]["y"].dims == ("school",)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_rank_with_some_rows_of_one_joint_distribution_says_what_to_do() -> None:
    rows = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    model, how = models.SGPR(Z=rows[::4]), inference.MAP(steps=2)
    found = ppgp.fit(model, Dataset(rows, rows[:, 0]), how, progress=False)
    vars(found.data)["team"] = Team(1, 2)
    words = r"got that of rank 1 of 2: call posterior\.save.*\.to_arviz\(\)"
    with pytest.raises(NotApplicable, match=words):
        found.to_arviz()
