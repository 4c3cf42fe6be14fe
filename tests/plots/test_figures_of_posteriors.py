"""Figures of posteriors show their draws, kernels and inducing inputs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import inference, kernels, likelihoods, models, networks, plots, priors
from ppgp.errors import NotApplicable, SettingError, UnknownName


def rows(n: int = 40) -> ppgp.Dataset:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["age", "dose"])
    y = pd.Series(np.sin(X["age"]) + 0.2 * rng.normal(size=n), name="response")
    return ppgp.Dataset(X, y)


def fitted(model, how=None, data=None) -> ppgp.Posterior:
    return ppgp.fit(model, data or rows(), how or inference.MAP(), progress=False)


@pytest.fixture(scope="module")
def linear() -> ppgp.Posterior:
    return fitted(models.LinearRegression(), inference.Laplace(draws=200))


@pytest.fixture(scope="module")
def ard() -> ppgp.Posterior:
    return fitted(models.GP(kernels.ARD(kernels.RBF())), inference.Laplace(draws=60))


def test_a_forest_has_the_quantiles_of_named_columns(linear: ppgp.Posterior) -> None:
    single = fitted(models.LinearRegression())
    axis = plots.forest({"Laplace": linear, "MAP": single}, level=0.8).axes[0]
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == ["weight[age]", "weight[dose]", "bias", "noise"]
    draws = linear.draws["weight"].flatten(0, 1)[:, 0].numpy()
    thin = axis.collections[0].get_segments()[0][:, 0]
    np.testing.assert_allclose(thin, np.quantile(draws, [0.1, 0.9]), rtol=1e-6)
    assert axis.lines[0].get_xdata()[0] == pytest.approx(np.median(draws))
    assert [line.get_marker() for line in axis.lines] == ["o", "s"]
    few = plots.forest(linear, sites=2).axes[0]
    assert "2 of 4 scalars shown" in few.get_xlabel()
    with pytest.raises(UnknownName, match="did you mean 'bias'"):
        plots.forest(linear, sites=["bais"])
    with pytest.raises(SettingError, match="at least one posterior"):
        plots.forest({})


def test_a_forest_is_in_the_units_asked_for(linear: ppgp.Posterior) -> None:
    axis = plots.forest(linear, sites=["noise"], units="data").axes[0]
    assert axis.get_xlabel() == "units of the data"
    shown = axis.lines[0].get_xdata()[0]
    assert shown == pytest.approx(float(np.median(linear.draws_in("data")["noise"].numpy())))


def test_figures_state_how_many_scalars_they_do_not_show(linear: ppgp.Posterior) -> None:
    some = plots.marginals({"fit": linear}, sites=3)
    assert some.get_suptitle().endswith("3 of 4 scalars shown; not shown: noise")
    assert "not shown" not in plots.marginals({"fit": linear}).get_suptitle()
    assert "2 of 4 scalars shown" in plots.pair(linear, 2).get_suptitle()


def test_every_dot_of_the_differences_has_a_name(linear: ppgp.Posterior) -> None:
    chains = ppgp.Posterior(
        linear.model,
        linear.data,
        {name: value.reshape(2, 100, *value.shape[2:]) for name, value in linear.draws.items()},
        inference.NUTS(),
        scaler=linear.scaler,
    )
    source = ppgp.fit(linear.model, rows(), inference.Laplace(draws=200), seed=7, progress=False)
    comparison = ppgp.compare({"NUTS": chains, "Laplace": source})
    figure = plots.differences(comparison, sites=2)
    table = comparison.sites
    largest = table.loc[table["difference"].abs().sort_values().index[-2:], "site"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert set(names) == set(largest)
    title = figure.get_suptitle()
    assert title.startswith("Differences from the reference: NUTS\nBars: 3 Monte Carlo")
    hidden = [name for name in dict.fromkeys(table["site"]) if name not in names]
    assert title.endswith(f"2 of 4 scalars shown; not shown: {', '.join(hidden)}")
    shown = np.asarray(figure.axes[0].containers[0][0].get_xdata(), dtype=float)
    expected = table.set_index("site").loc[names, "difference"]
    np.testing.assert_allclose(shown, expected.to_numpy(dtype=float))


def test_relevance_is_one_over_the_lengthscale(ard: ppgp.Posterior) -> None:
    lengths = ard.draws["kernel.lengthscale"].flatten(0, 1).numpy()
    medians = np.median(1 / lengths, 0)
    axis = plots.relevance(ard).axes[0]
    order = np.argsort(-medians)
    assert [t.get_text() for t in axis.get_yticklabels()] == [["age", "dose"][k] for k in order]
    np.testing.assert_allclose(axis.lines[0].get_xdata(), medians[order])
    other = plots.relevance(ard, "lengthscale", columns=1).axes[0]
    assert other.lines[0].get_xdata() == pytest.approx([np.median(lengths[:, order[0]])])
    assert "1 of 2 columns shown" in other.get_xlabel()
    with pytest.raises(UnknownName, match="did you mean 'lengthscale'"):
        plots.relevance(ard, "lengthscales")
    with pytest.raises(NotApplicable, match="one lengthscale per column"):
        plots.relevance(fitted(models.GP(kernels.RBF())))


def test_the_directions_of_a_metric_are_steps_of_one_lengthscale() -> None:
    posterior = fitted(models.GP(kernels.Metric(kernels.RBF())))
    axis = plots.metric(posterior).axes[0]
    theta = {name.removeprefix("kernel."): v[0, 0] for name, v in posterior.draws.items()}
    kernel = kernels.Metric(kernels.RBF())
    # a step along a row of the figure is one lengthscale; its numbers have two digits
    words = [float(text.get_text()) for text in axis.texts]
    steps = torch.tensor(words, dtype=torch.float64).view(2, 2) / posterior.scaler.x_sd
    found = kernel(theta, torch.zeros(1, 2, dtype=torch.float64), steps)[0] / theta["variance"]
    torch.testing.assert_close(found, torch.full_like(found, math.exp(-0.5)), rtol=0.06, atol=0)
    assert [t.get_text() for t in axis.get_xticklabels()] == ["age", "dose"]
    with pytest.raises(NotApplicable, match="one full metric in the kernel"):
        plots.metric(fitted(models.GP(kernels.ARD(kernels.RBF()))))
    with pytest.raises(NotApplicable, match="one lengthscale per column"):
        plots.relevance(posterior)


def test_a_kernel_matrix_is_in_squared_units_of_y(ard: ppgp.Posterior) -> None:
    one = fitted(models.GP(kernels.ARD(kernels.RBF())))
    axis = plots.kernel_matrix(one, sort_by="dose").axes[0]
    order = one.data.X[:, 1].argsort(stable=True)
    theta = {name.removeprefix("kernel."): v[0, 0] for name, v in one.draws.items()}
    K = one.model.kernel(theta, one.data.X[order]) * one.scaler.y_sd**2
    np.testing.assert_allclose(axis.images[0].get_array(), K.numpy(), rtol=1e-9)
    few = plots.kernel_matrix(ard, correlation=True, rows=10).axes[0]
    matrix = np.asarray(few.images[0].get_array())
    assert matrix.shape == (10, 10)
    np.testing.assert_allclose(matrix.diagonal(), 1.0)
    assert "(10 of 40)" in few.get_xlabel()
    with pytest.raises(NotApplicable, match="a model with a kernel"):
        plots.kernel_matrix(fitted(models.LinearRegression()))


def test_components_show_each_term(linear: ppgp.Posterior) -> None:
    kernel = kernels.RBF() + kernels.Linear()
    posterior = fitted(models.GP(kernel))
    figure = plots.components(posterior, "dose", points=7)
    titles = [axis.get_title() for axis in figure.axes[1:]]
    X = posterior.scaler.inputs_back(posterior.data.X).numpy()
    grid = np.tile(X.mean(0), (7, 1))
    grid[:, 1] = np.linspace(X[:, 1].min(), X[:, 1].max(), 7)
    terms = posterior.components(grid)
    assert titles == [f"term {term}" for term in terms]
    for axis, term in zip(figure.axes[1:], terms.values(), strict=True):
        np.testing.assert_allclose(axis.lines[0].get_ydata(), term.mean.numpy(), atol=1e-9)
    with pytest.raises(NotApplicable, match="a sum of"):
        plots.components(linear)


def test_components_of_a_series_are_shown_by_role() -> None:
    t = np.arange(20.0)
    data = ppgp.Dataset(t[:, None], 0.1 * t + np.cos(2 * np.pi * t / 7))
    trend, season = kernels.Matern(1.5, 1.0, 9.0), kernels.Cosine(1.0, 7.0)
    recipes = [
        models.StateSpaceGP(k, noise=0.1) for k in (trend + kernels.Linear(1.0) + season, trend)
    ]
    fits = [ppgp.fit(recipe, data, inference.MAP(), progress=False) for recipe in recipes]
    grid = np.linspace(0, 19, 5)[:, None]
    average = ppgp.average(fits, by=[0.5, 0.5])
    for shown, parts in (
        (plots.components(fits[0], points=5, by="role"), fits[0].components(grid, by="role")),
        (plots.components(average, points=5), average.components(grid)),
    ):
        assert [axis.get_title() for axis in shown.axes[1:]] == ["trend", "season"]
        for axis, part in zip(shown.axes[1:], parts.values(), strict=True):
            np.testing.assert_allclose(axis.lines[0].get_ydata(), part.mean.numpy(), atol=1e-9)
    for share, titles in ((0.0005, ["trend"]), (0.02, ["trend", "season"]), (0.0, ["trend"])):
        averaged = ppgp.average(fits, by=[share, 1 - share])
        titled = [axis.get_title() for axis in plots.components(averaged, points=5).axes[1:]]
        assert titled == titles


def test_inducing_inputs_are_in_the_units_of_the_data() -> None:
    posterior = fitted(models.SGPR(kernels.RBF(), inducing=7))
    axis = plots.inducing(posterior).axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("age", "dose")
    data, crosses = axis.lines
    X = posterior.scaler.inputs_back(posterior.data.X).numpy()
    np.testing.assert_allclose(data.get_xydata(), X)
    assert crosses.get_label() == "7 inducing inputs"
    low, high = X.min(0) - 1, X.max(0) + 1
    assert ((crosses.get_xydata() > low) & (crosses.get_xydata() < high)).all()
    against_y = plots.inducing(posterior, ("dose",)).axes[0]
    assert against_y.get_ylabel() == "response"
    np.testing.assert_allclose(against_y.lines[1].get_xdata(), crosses.get_ydata())
    with pytest.raises(NotApplicable, match="inducing inputs"):
        plots.inducing(fitted(models.GP(kernels.RBF())))


@pytest.mark.parametrize("out", [1, 2, 3])
def test_features_are_those_of_the_network(out: int) -> None:
    network = networks.MLP(hidden=(4,), out=out, activation="tanh")
    kernel = kernels.Scale(kernels.Deep(network, kernels.RBF(variance=1.0)))
    posterior = fitted(models.GP(kernel), inference.MAP("adam", steps=5))
    axis = plots.features(posterior).axes[0]
    points = np.asarray(axis.collections[0].get_offsets())
    theta = {
        name.removeprefix("kernel."): value
        for name, value in posterior.params.items()
        if name.startswith("kernel.")
    }
    with torch.no_grad():
        values = kernel.kernel.features(theta, posterior.data.X).numpy()
    if out == 1:
        np.testing.assert_allclose(points[:, 0], values[:, 0], rtol=1e-6)
        assert axis.get_ylabel() == "response"
    elif out == 2:
        np.testing.assert_allclose(points, values, rtol=1e-6)
    else:
        variances = np.linalg.eigvalsh(np.cov(values.T))[::-1]
        np.testing.assert_allclose(points.var(0, ddof=1), variances[:2], rtol=1e-6)
    with pytest.raises(NotApplicable, match="one network in the kernel"):
        plots.features(fitted(models.GP(kernels.RBF())))


def test_prior_predictive_shows_draws_of_the_prior_and_the_data(linear: ppgp.Posterior) -> None:
    axis = plots.prior_predictive(linear, replicates=15).axes[0]
    assert len(axis.lines) == 16
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["15 data sets of the prior", "observed"]
    # the panel is as high as what lies inside it needs
    low, high = axis.get_xlim()
    inside = [line.get_xydata() for line in axis.lines]
    tallest = max(xy[(xy[:, 0] >= low) & (xy[:, 0] <= high), 1].max() for xy in inside)
    assert axis.get_ylim()[1] <= 1.06 * tallest
    assert "by Laplace" not in axis.get_title()
    assert axis.get_xlabel() == "response"
    with pytest.raises(UnknownName, match="observed site"):
        plots.prior_predictive(linear, "z", replicates=2)
    with pytest.raises(SettingError, match="at least one replicate"):
        plots.prior_predictive(linear, replicates=0)
    flat = fitted(models.LinearRegression(weight=priors.Flat()))
    with pytest.raises(NotApplicable, match="flat"):
        plots.prior_predictive(flat)


def test_replicates_of_counts_are_shares_of_rows() -> None:
    data = ppgp.Dataset(rows().X, torch.arange(40) % 4, target_name="visits")
    posterior = fitted(models.GLM(likelihoods.Poisson()), inference.Laplace(draws=20), data)
    axis = plots.predictive_check(posterior, replicates=5).axes[0]
    assert len(axis.lines) == 6
    heights = axis.lines[-1].get_ydata()
    np.testing.assert_allclose(heights[:4], 0.25)
    for line in axis.lines:
        assert np.sum(line.get_ydata()) == pytest.approx(1.0)
    assert axis.get_xlabel() == "visits"


def test_components_of_log_y_and_of_counts_are_drawn_on_the_scale_of_f() -> None:
    t = np.arange(30.0)
    y = np.exp(3 + 0.3 * np.sin(t / 3)).round()
    kernel = kernels.Constant(1.0) + kernels.Matern(1.5, 1.0, 5.0)
    data = ppgp.Dataset(t[:, None], y)
    how = inference.MAP()
    logs = ppgp.fit(models.StateSpaceGP(kernel, log=True, noise=0.01), data, how, progress=False)
    top = plots.components(logs).axes[0]
    assert top.get_ylabel() == "log y"
    assert np.allclose(np.asarray(top.lines[0].get_ydata()), np.log(y))
    curve = np.asarray(top.lines[1].get_ydata())
    assert np.abs(curve[0] - np.log(y[0])) < 0.3
    model = models.StateSpaceGP(kernel, likelihood=likelihoods.Poisson())
    top = plots.components(ppgp.fit(model, data, how, progress=False)).axes[0]
    assert top.get_ylabel() == "f of y"
    assert len(top.lines) == 1
