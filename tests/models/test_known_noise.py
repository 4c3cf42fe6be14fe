"""Noise that is known for each row, against closed forms and scikit-learn.

Every part of a Posterior must use it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam  # type: ignore[attr-defined]
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch import Tensor
from torch.distributions import MultivariateNormal

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.conformal import leave_one_out_parts
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.diagnostics.prior_simulations import OfModel
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.runtime.seeding import seeded

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
SD = 0.05 + 0.6 * torch.rand(30, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(2 * X[:, 0]) + SD * torch.randn(30, generator=GENERATOR, dtype=torch.float64)
NEW = torch.randn(7, 2, generator=GENERATOR, dtype=torch.float64)
NEW_SD = torch.linspace(0.0, 0.5, 7, dtype=torch.float64)
DATA = Dataset(X, Y, noise_sd=SD)
KERNEL = kernels.Matern(2.5, variance=1.7, lengthscale=0.8)
BOTH = [
    models.GP(KERNEL, noise=0.05, mean=priors.Normal(0.0, 1.0)),
    models.Kriging(KERNEL, nugget=priors.LogNormal(-3.0, 1.0)),
    models.Kriging(KERNEL, nugget=priors.LogNormal(-3.0, 1.0), drift="none", mean=0.1),
]


def covariance(a: Tensor, b: Tensor) -> Tensor:
    return KERNEL({}, a, b)


def test_the_program_has_both_noises_in_its_covariance() -> None:
    model = models.GP(KERNEL, noise=0.05, mean=priors.Normal(0.0, 1.0))
    ours = Target(model.prepare(DATA), DATA).log_density(torch.tensor([0.3], dtype=torch.float64))
    C = covariance(X, X) + torch.diag(0.05 + SD**2)
    theirs = MultivariateNormal(torch.full((30,), 0.3, dtype=torch.float64), C).log_prob(Y)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(0.3, dtype=torch.float64))
    torch.testing.assert_close(ours, theirs + prior, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("model", BOTH, ids=["gp", "ordinary", "simple"])
def test_a_pyro_script_passes_the_noise_to_the_program(model: Any) -> None:
    free = {name: 0.2 for name, site in model.sites(2).items() if not site.fixed}
    theta = {name: torch.tensor(value, dtype=torch.float64) for name, value in free.items()}
    program = pyro.condition(model.model, data=theta)
    trace = pyro.poutine.trace(program).get_trace(X, Y, noise_sd=SD)
    target = Target(model, DATA)
    ours = target.log_density(target.placed(theta), jacobian=False)
    torch.testing.assert_close(trace.log_prob_sum(), ours, rtol=1e-10, atol=0)
    bare = pyro.poutine.trace(program).get_trace(X, Y).log_prob_sum()
    torch.testing.assert_close(
        bare, Target(model, Dataset(X, Y)).log_density(target.placed(theta), jacobian=False)
    )
    assert abs(float(bare - ours)) > 0.1
    with seeded(0), pyro.get_param_store().scope():
        loop = SVI(model.model, AutoNormal(model.model), Adam({"lr": 0.01}), Trace_ELBO())
        assert np.isfinite(loop.step(X, Y, noise_sd=SD))
        chain = MCMC(
            NUTS(model.model, max_tree_depth=3), num_samples=3, warmup_steps=3, disable_progbar=True
        )
        chain.run(X, Y, noise_sd=SD)
    assert chain.get_samples().keys() == free.keys()


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "how",
    [
        inference.MAP(steps=3),
        inference.MAP(steps=3, hold_out=0.3),
        inference.MAP("adam", steps=3, starts=2),
        inference.NUTS(draws=3, warmup=3, chains=1),
        inference.NUTS(draws=4, warmup=3, chains=1, max_depth=2, engine="pyro"),
        inference.SVI(steps=3, draws=3),
        inference.SVI("lowrank", steps=3, draws=3),
    ],
    ids=["map", "hold_out", "starts", "nuts", "pyro", "svi", "lowrank"],
)
def test_every_run_of_the_program_in_a_fit_has_the_noise_of_its_rows(
    how: inference.Inference, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, seen = models.GP.model, []

    def watched(self: models.GP, X: Tensor, y: Tensor | None = None, **named: Any) -> Tensor:
        seen.append((X, named["noise_sd"]))
        return program(self, X, y, **named)

    monkeypatch.setattr(models.GP, "model", watched)
    posterior = ppgp.fit(models.GP(KERNEL), DATA, how, standardise=False, progress=False)
    posterior.to_arviz(prior=2, predictive=True)
    assert seen
    for rows, noise in seen:
        index = [int((row == X).all(1).nonzero()) for row in rows]
        assert torch.equal(noise, SD[index])


def test_known_noise_alone_equals_alpha_of_scikit_learn() -> None:
    kernel = sk.ConstantKernel(1.7, "fixed") * sk.Matern(0.8, "fixed", nu=2.5)
    peer = GaussianProcessRegressor(kernel, alpha=SD.numpy() ** 2, optimizer=None).fit(
        X.numpy(), Y.numpy()
    )
    mean, spread = peer.predict(NEW.numpy(), return_cov=True)
    model = models.GP(KERNEL, noise=0.0)
    distribution, known = (model.predict({}, NEW, DATA, noise_sd=sd) for sd in (None, NEW_SD))
    assert np.allclose(distribution.mean[0], mean, atol=1e-10)
    assert np.allclose(distribution.variance[0], np.diag(spread), atol=1e-10)
    assert np.allclose(known.variance[0], np.diag(spread) + NEW_SD.numpy() ** 2, atol=1e-10)
    joint = model.predict({}, NEW, DATA, joint=True, noise_sd=NEW_SD).covariance_matrix[0]
    assert np.allclose(joint, spread + np.diag(NEW_SD.numpy() ** 2), atol=1e-8)
    fitted = models.GP(kernels.Matern(2.5, priors.Flat(), priors.Flat()), noise=0.0, mean=0.0)
    peer = GaussianProcessRegressor(
        sk.ConstantKernel() * sk.Matern(nu=2.5), alpha=SD.numpy() ** 2
    ).fit(X.numpy(), Y.numpy())
    ours = ppgp.fit(fitted, DATA, inference.MAP(), progress=False, standardise=False).draws
    result = float(ours["kernel.variance"]), float(ours["kernel.lengthscale"])
    assert np.allclose(result, np.exp(peer.kernel_.theta), rtol=1e-3)


@pytest.mark.parametrize("model", BOTH, ids=["gp", "ordinary", "simple"])
def test_closed_form_leave_one_out_equals_n_refits(model: Any) -> None:
    theta = {
        name: torch.full((1,), 0.2, dtype=torch.float64)
        for name in model.sites(2)
        if not model.sites(2)[name].fixed
    }
    distribution = model.loo(theta, DATA)
    for i in (0, 13, 29):
        rest = [j for j in range(DATA.n) if j != i]
        refit = model.predict(theta, X[i : i + 1], DATA.rows(rest), noise_sd=SD[i : i + 1])
        torch.testing.assert_close(distribution.mean[0, i], refit.mean[0, 0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            distribution.variance[0, i], refit.variance[0, 0], rtol=1e-8, atol=1e-8
        )
    torch.testing.assert_close(model.log_likelihood(theta, DATA)["y"], distribution.log_prob(Y))
    parts = leave_one_out_parts(*model.gaussian(theta, NEW, DATA, NEW_SD))
    new = model.predict(theta, NEW, DATA, noise_sd=NEW_SD)
    torch.testing.assert_close(parts.mean, new.mean[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(parts.variance, new.variance[0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        parts.studentised, (Y - distribution.mean[0]) / distribution.stddev[0], rtol=1e-8, atol=1e-8
    )


def test_neighbours_have_their_own_noise() -> None:
    theta = {"nugget": torch.full((1,), 0.05, dtype=torch.float64)}
    near = models.Kriging(KERNEL, nugget=priors.LogNormal(), neighbours=29)
    row = torch.cdist(NEW[:1], X)[0].argmax()  # the row that 29 of 30 neighbours leave out
    kept = [j for j in range(30) if j != int(row)]
    whole = models.Kriging(KERNEL, nugget=priors.LogNormal()).predict(
        theta, NEW[:1], DATA.rows(kept), noise_sd=NEW_SD[3:4]
    )
    local = near.predict(theta, NEW[:1], DATA, noise_sd=NEW_SD[3:4])
    torch.testing.assert_close(local.mean, whole.mean)
    torch.testing.assert_close(local.variance, whole.variance)


def test_noise_is_scaled_with_y_and_predictions_are_scaled_back() -> None:
    far = Dataset(1000 + 50 * X, -300 + 7 * Y, noise_sd=7 * SD)
    one, two = (ppgp.fit(models.GP(), d, inference.MAP(), progress=False) for d in (DATA, far))
    torch.testing.assert_close(two.data.noise_sd, one.data.noise_sd, rtol=1e-10, atol=0)
    torch.testing.assert_close(one.data.noise_sd, SD / Y.std(correction=0))
    a, b = one.predict(NEW, noise_sd=NEW_SD), two.predict(1000 + 50 * NEW, noise_sd=7 * NEW_SD)
    torch.testing.assert_close(b.mean, -300 + 7 * a.mean, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(b.std, 7 * a.std, rtol=1e-5, atol=1e-6)
    bare = one.predict(NEW)
    torch.testing.assert_close(a.variance, bare.variance + NEW_SD**2)
    torch.testing.assert_close(one.predict(Dataset(NEW, Y[:7], noise_sd=NEW_SD)).std, a.std)
    torch.testing.assert_close(one.predict(NEW, noise_sd=0.3).variance, bare.variance + 0.09)


def test_rows_with_less_noise_have_more_weight() -> None:
    """Two measurements at one place under a wide prior: the mean is weighted by precision."""
    x = torch.tensor([[0.0], [0.0], [9.0]], dtype=torch.float64)
    data = Dataset(x, [1.0, 2.0, 0.0], noise_sd=[0.1, 0.2, 0.0])
    model = models.GP(kernels.RBF(variance=1e6, lengthscale=1.0), noise=0.0).prepare(data)
    mean = model.predict({}, x[:1], data).mean[0, 0]
    torch.testing.assert_close(
        mean,
        torch.tensor((1 / 0.01 + 2 / 0.04) / (1 / 0.01 + 1 / 0.04), dtype=torch.float64),
        rtol=1e-6,
        atol=0,
    )
    for twins, refused in (([0.0, 0.2, 0.1], False), ([0.0, 0.0, 0.1], True)):
        table = Dataset(x, [1.0, 2.0, 0.0], noise_sd=twins)
        for recipe in (models.GP(noise=0.0), models.Kriging(nugget=0.0)):
            if refused:
                with pytest.raises(DataError, match="duplicates in rows 0, 1"):
                    recipe.prepare(table)
            else:
                recipe.prepare(table)


def test_paths_and_components_use_the_noise() -> None:
    model = models.GP(
        kernels.RBF(variance=1.0, lengthscale=0.7) + kernels.Linear(variance=0.5),
        noise=priors.LogNormal(-3.0, 1.0),
    )
    fitted = ppgp.fit(model, DATA, inference.MAP(), progress=False)
    latent = fitted.latent(NEW)
    f = fitted.pathwise(4000, features=None, seed=1)(NEW)
    error = latent.std / 4000**0.5
    assert bool(((f.mean(0) - latent.mean).abs() < 4.5 * error).all())
    assert bool(((f.std(0) / latent.std - 1).abs() < 4.5 / 8000**0.5).all())
    parts = fitted.components(NEW)
    constant = fitted.scaler.y_mean
    torch.testing.assert_close(sum(p.mean for p in parts.values()) + constant, latent.mean)


def test_noise_is_kept_with_rows_devices_frames_and_files(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "error": SD})
    data = Dataset.from_frame(frame, "y", noise_sd="error")
    assert data.feature_names == ("a", "b")
    assert "noise known" in repr(data)
    for part, rows in zip(
        data.split(0.5, seed=3),
        torch.randperm(30, generator=torch.Generator().manual_seed(3)).split(15),
        strict=True,
    ):
        assert torch.equal(part.noise_sd, SD[rows])
    assert data.to(torch.float32).noise_sd.dtype == torch.float32
    posterior = ppgp.fit(models.GP(), data, inference.MAP(), progress=False)
    again = ppgp.load_posterior(posterior.save(tmp_path / "gp.safetensors"))
    assert torch.equal(again.data.noise_sd, posterior.data.noise_sd)
    theta = {name: value[0] for name, value in posterior.theta.items()}
    densities = []
    for fitted in (posterior, again):
        target = Target(fitted.model, fitted.data)
        densities.append(target.log_density(target.unconstrain(theta)))
    assert torch.equal(*densities)
    torch.testing.assert_close(
        again.predict(NEW, noise_sd=NEW_SD).std, posterior.predict(NEW, noise_sd=NEW_SD).std
    )
    torch.testing.assert_close(again.log_likelihood(), posterior.log_likelihood())
    twice = ppgp.fit(posterior.model, Dataset(X, Y), inference.MAP(), progress=False)
    once = ppgp.fit(models.GP(), Dataset(X, Y), inference.MAP(), progress=False)
    assert twice.data.noise_sd is None
    assert all(torch.equal(twice.draws[name], once.draws[name]) for name in once.draws)


@pytest.mark.parametrize("model", BOTH, ids=["gp", "kriging", "known mean"])
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_rows_held_out_of_an_optimisation_have_their_own_noise(model: Any) -> None:
    result = ppgp.fit(
        model, DATA, inference.MAP(steps=3, hold_out=0.3), standardise=False, progress=False
    )
    order = torch.randperm(DATA.n, generator=torch.Generator().manual_seed(0))
    held, rest = DATA.rows(order[:9]), DATA.rows(order[9:])
    distribution = model.prepare(rest).predict(result.theta, held.X, rest, noise_sd=held.noise_sd)
    torch.testing.assert_close(
        result.stats["held_out_nlpd"].min(), -distribution.log_prob(held.y).mean()
    )
    torch.testing.assert_close(result.data.noise_sd, SD)  # the posterior is that of all rows


def test_replicates_have_the_noise_of_their_rows() -> None:
    loud = Dataset(X, Y, noise_sd=torch.where(torch.arange(30) < 15, 3.0, 0.01))
    posterior = ppgp.fit(
        models.GP(KERNEL, noise=priors.LogNormal(-5.0, 0.1)),
        loud,
        inference.Laplace(draws=400),
        progress=False,
    )
    drawn = posterior.to_arviz(predictive=True, log_likelihood=False)["posterior_predictive"][
        "y"
    ].to_numpy()[0]
    spread = drawn.std(0)
    assert spread[:15].min() > 3.0 * (1 - 4.5 / 800**0.5)
    assert spread[15:].max() < 1.5


def test_prior_draws_of_y_have_the_noise_of_their_rows() -> None:
    loud = Dataset(X, Y, noise_sd=torch.where(torch.arange(30) < 15, 9.0, 0.01))
    model = models.GP(kernels.RBF(variance=1.0, lengthscale=0.7), noise=priors.LogNormal(-5.0, 0.1))
    how = inference.Laplace(draws=2)
    posterior = ppgp.fit(model, loud, how, standardise=False, progress=False)
    spread = posterior.to_arviz(prior=400)["prior_predictive"]["y"].to_numpy()[0].std(0)
    assert np.all(np.abs(spread[:15] / 82**0.5 - 1) < 4.5 / 800**0.5)
    assert np.all(np.abs(spread[15:] - 1) < 4.5 / 800**0.5)


def test_calibration_of_a_fitted_recipe_draws_as_that_of_the_recipe_itself() -> None:
    model = models.GP(KERNEL, noise=priors.LogNormal(-3.0, 0.5), mean=0.0)
    fitted = ppgp.fit(model, DATA, inference.MAP(), standardise=False, progress=False).model
    for rows in (X, NEW):
        drawn = []
        for recipe in (fitted, model):
            with seeded(3):
                drawn.append(OfModel(recipe, rows).drawn()[2].y)
        assert torch.equal(*drawn)


def test_full_conformal_requires_the_noise_of_the_new_rows() -> None:
    posterior = ppgp.fit(models.GP(), DATA, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="noise_sd of the new rows"):
        ppgp.full_conformal(posterior, NEW)
    narrow, wide = (
        ppgp.full_conformal(posterior, NEW, 0.8, noise_sd=sd).width for sd in (0.0, 2.0)
    )
    assert bool((wide > narrow).all())
    table = Dataset(NEW, Y[:7], noise_sd=torch.full((7,), 2.0))
    torch.testing.assert_close(ppgp.full_conformal(posterior, table, 0.8).width, wide)


def test_comparison_scores_test_rows_with_their_noise() -> None:
    posterior = ppgp.fit(models.GP(), DATA, inference.MAP(), progress=False)
    test = Dataset(NEW, Y[:7], noise_sd=NEW_SD)
    result = ppgp.compare(
        {"gp": posterior}, test=test, calibration=Dataset(X[:9] + 0.1, Y[:9], noise_sd=SD[:9])
    )
    torch.testing.assert_close(result.predictions["gp"].std, posterior.predict(test).std)


@pytest.mark.parametrize(
    ("attempt", "kind", "words"),
    [
        (lambda: Dataset(X, Y, noise_sd=-SD), DataError, "finite noise_sd >= 0"),
        (lambda: Dataset(X, Y, noise_sd=SD[:5]), DataError, r"noise_sd with shape \[30\]"),
        (
            lambda: ppgp.fit(models.LinearRegression(), DATA, inference.Exact()),
            NotApplicable,
            "use GP, Kriging, StateSpaceGP or Vecchia",
        ),
        (
            lambda: models.GP(KERNEL).prepare(DATA).model(NEW, noise_sd=SD),
            DataError,
            r"noise_sd with shape \[7\], one per row, got shape \[30\]: align it with X",
        ),
        (
            lambda: models.Kriging(KERNEL).model(X, Y, noise_sd=SD[:1]),
            DataError,
            r"noise_sd with shape \[30\]",
        ),
        (
            lambda: models.GP(noise_sd=SD),  # type: ignore[call-arg]
            NotApplicable,
            r"a GP without noise_sd, got GP\(noise_sd=...\): write Dataset\(X, y, noise_sd=sd\)",
        ),
        (
            lambda: replace(models.Kriging(), noise_sd=SD),  # type: ignore[call-arg]
            NotApplicable,
            r"a Kriging without noise_sd",
        ),
        (
            lambda: Dataset.from_frame(pd.DataFrame({"a": [1.0], "y": [2.0]}), "y", noise_sd="z"),
            UnknownName,
            "noise column",
        ),
        (
            lambda: Dataset.from_frame(pd.DataFrame({"a": [1.0], "y": [2.0]}), "y", noise_sd="y"),
            SettingError,
            "its own",
        ),
    ],
    ids=[
        "negative",
        "length",
        "linear",
        "other rows",
        "one row",
        "a field of GP",
        "a field of Kriging",
        "no column",
        "the target",
    ],
)
def test_invalid_noise_raises_a_clear_error(
    attempt: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        attempt()


def test_predict_refuses_noise_that_a_model_would_not_use() -> None:
    linear = ppgp.fit(models.LinearRegression(), Dataset(X, Y), inference.Exact(), progress=False)
    with pytest.raises(NotApplicable, match="takes known noise"):
        linear.predict(NEW, noise_sd=0.1)
    with pytest.raises(NotApplicable, match="noise_ds"):
        linear.predict(NEW, noise_ds=0.1)


@pytest.mark.parametrize(
    "build",
    [lambda k: models.GP(k, noise=0), lambda k: models.Kriging(k, nugget=0)],
    ids=["gp", "kriging"],
)
def test_white_allows_duplicates_without_other_noise(
    build: Callable[[Any], Any],
) -> None:
    twice = Dataset(torch.cat([X, X]), torch.cat([Y, Y + 0.1]))
    ready = build(KERNEL + kernels.White(0.2)).prepare(twice)
    assert bool(torch.isfinite(ready.loo({}, twice).mean).all())
    with pytest.raises(DataError, match="duplicates"):
        build(KERNEL).prepare(twice)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_noise_of_a_frame_is_read_by_its_column_name(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "error": SD})
    data = Dataset.from_frame(frame, "y", noise_sd="error")
    assert data.noise_name == "error"
    assert data.rows(slice(3)).noise_name == "error"
    assert Dataset(frame[["a", "b"]], frame["y"], noise_sd=frame["error"]).noise_name == "error"
    assert Dataset(X, Y, noise_sd=SD).noise_name is None
    posterior = ppgp.fit(models.GP(), data, inference.MAP(steps=5), progress=False)
    for result in (posterior, ppgp.load_posterior(posterior.save(tmp_path / "gp.ppgp"))):
        with_it, without = result.predict(frame), result.predict(frame.drop(columns=["error", "y"]))
        torch.testing.assert_close(with_it.std, result.predict(X, noise_sd=SD).std)
        torch.testing.assert_close(without.std, result.predict(X).std)
        torch.testing.assert_close(
            result.predict(frame, noise_sd=2.0).std, result.predict(X, noise_sd=2.0).std
        )
