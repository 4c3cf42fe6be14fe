"""One figure for every function of ``ppgp.plots``, from small fits that the figures share.

``python -m tests.plots.gallery FOLDER`` writes them as PNG files; with ``--baseline`` as the small
images to which ``test_gallery.py`` compares them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import conformal, geostatistics, inference, kernels, likelihoods, models, plots

BASELINE = Path(__file__).with_name("baseline")
DPI = 40  # of the images of the baseline
LARGE = 110  # of the others
NO_FIGURE = {"COLOURS", "MARKERS", "MOST_SITES", "suited"}
Drawing = Callable[..., Figure]

FIGURES: dict[str, Drawing] = {}


def figure(draw: Drawing) -> Drawing:
    """Add a function to the gallery under its own name; it passes its options to ``ppgp.plots``."""
    FIGURES[draw.__name__] = draw
    return draw


def fit(model: Any, data: Any, how: Any, seed: int = 0) -> ppgp.Posterior:
    """Fit without a progress bar, and without warnings about short runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppgp.errors.PpgpWarning)
        return ppgp.fit(model, data, how, seed=seed, progress=False)


# -- data ------------------------------------------------------------------------------------------


@cache
def table() -> tuple[ppgp.Dataset, ppgp.Dataset, ppgp.Dataset]:
    """Return rows of a linear regression with names: training, calibration and test rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(180, 3)), columns=["age", "dose", "mass"])
    y = 1.5 * X["age"] - 0.8 * X["dose"] + 0.6 * rng.normal(size=180)
    data = ppgp.Dataset(X, y.rename("response"))
    return data.rows(slice(0, 60)), data.rows(slice(60, 110)), data.rows(slice(110, 180))


@cache
def places() -> ppgp.Dataset:
    """Return 120 places, with a draw of a Gaussian process of exponential covariance."""
    rng = np.random.default_rng(4)
    X = rng.uniform(0, 10, size=(120, 2))
    distance = np.linalg.norm(X[:, None] - X, axis=-1)
    root = np.linalg.cholesky(np.exp(-distance) + 0.1 * np.eye(120))
    frame = pd.DataFrame(X, columns=["east", "north"])
    y = pd.Series(root @ rng.normal(size=120), name="zinc")
    return ppgp.Dataset(frame, y, coordinates=["east", "north"])


@cache
def series() -> tuple[ppgp.Dataset, ppgp.Dataset]:
    """Return a time series with a season and a trend: its history and its future."""
    rng = np.random.default_rng(2)
    t = np.arange(72) / 12
    y = np.sin(2 * np.pi * t) + 0.3 * t + 0.2 * rng.normal(size=72)
    data = ppgp.Dataset(pd.DataFrame({"year": t}), pd.Series(y, name="demand"))
    return data.rows(slice(0, 54)), data.rows(slice(54, 72))


@cache
def classes() -> tuple[ppgp.Dataset, ppgp.Dataset]:
    """Return rows of two classes: training and test rows."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(260, 2)), columns=["length", "width"])
    p = 1 / (1 + np.exp(-2 * X["length"] + X["width"]))
    y = pd.Series(np.where(rng.uniform(size=260) < p, "late", "early"), name="kind")
    data = ppgp.Dataset(X, y)
    return data.rows(slice(0, 60)), data.rows(slice(60, 260))


# -- fits ------------------------------------------------------------------------------------------


@cache
def linear() -> dict[str, ppgp.Posterior]:
    """Return fits of a linear regression by several methods.

    The chains are independent draws, dealt to four chains: draws of NUTS differ between machines.
    """
    methods = {"Laplace": inference.Laplace(draws=400), "SVI": inference.SVI(steps=600)}
    fits = {name: fit(models.LinearRegression(), table()[0], how) for name, how in methods.items()}
    source = fit(models.LinearRegression(), table()[0], inference.Laplace(draws=800), seed=1)
    diverging = torch.zeros(4, 200, dtype=torch.bool)
    diverging[0, :7] = True
    fits["NUTS"] = ppgp.Posterior(
        source.model,
        source.data,
        {name: value.reshape(4, 200, *value.shape[2:]) for name, value in source.draws.items()},
        inference.NUTS(),
        stats={"diverging": diverging},
        scaler=source.scaler,
    )
    return fits


@cache
def ard() -> ppgp.Posterior:
    """Return a fit of a Gaussian process with one lengthscale per column."""
    return fit(models.GP(kernels.ARD(kernels.RBF())), table()[0], inference.Laplace(draws=200))


@cache
def kriging() -> ppgp.Posterior:
    """Return a fit of kriging."""
    return fit(models.Kriging(), places(), inference.MAP())


@cache
def seasonal() -> ppgp.Posterior:
    """Return a fit of a trend and a season."""
    kernel = kernels.RBF() + kernels.Periodic(period=1.0)
    return fit(models.GP(kernel), series()[0], inference.MAP())


@cache
def logistic() -> ppgp.Posterior:
    """Return a fit of a logistic regression."""
    return fit(models.LogisticRegression(), classes()[0], inference.Laplace(draws=200))


@cache
def counts() -> ppgp.Posterior:
    """Return a fit of counts with a coefficient that varies between groups."""
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.normal(size=(120, 1)), columns=["dose"])
    clinic = rng.integers(0, 8, size=120)
    y = rng.poisson(np.exp(0.5 + 0.4 * X["dose"] + 0.5 * rng.normal(size=8)[clinic]))
    names = [f"clinic {k}" for k in clinic]
    data = ppgp.Dataset(X, pd.Series(y, name="visits"), groups={"clinic": names})
    model = models.GLM(likelihoods.Poisson(), groups={"clinic": models.Varying()})
    return fit(model, data, inference.MAP())


@cache
def regions() -> tuple[Any, Any, dict[str, Any]]:
    """Return the predictions of the test rows, their y, and calibrators."""
    _, calibration, test = table()
    posterior = linear()["Laplace"]
    known = posterior.predict(calibration.X)
    scores = {"absolute": conformal.Absolute(), "normalised": conformal.Normalized()}
    calibrators = {name: ppgp.calibrate(s, known, calibration.y) for name, s in scores.items()}
    return posterior.predict(test.X), response(test), calibrators


def response(data: ppgp.Dataset) -> pd.Series:
    """Return y with its name."""
    return pd.Series(data.y.numpy(), name=data.target_name)


# -- figures ---------------------------------------------------------------------------------------


@figure
def trace(**options: Any) -> Figure:
    return plots.trace(linear()["NUTS"], sites=3, **options)


@figure
def rank(**options: Any) -> Figure:
    return plots.rank(linear()["NUTS"], **options)


@figure
def pair(**options: Any) -> Figure:
    return plots.pair(linear()["NUTS"], **options)


@figure
def marginals(**options: Any) -> Figure:
    return plots.marginals(linear(), sites=4, **options)


@figure
def forest(**options: Any) -> Figure:
    return plots.forest(linear(), **options)


@figure
def differences(**options: Any) -> Figure:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppgp.errors.PpgpWarning)
        return plots.differences(ppgp.compare(linear()), **options)


@figure
def k_hat(**options: Any) -> Figure:
    return plots.k_hat({name: linear()[name] for name in ("Laplace", "SVI")}, **options)


@figure
def loo(**options: Any) -> Figure:
    return plots.loo(linear()["NUTS"], **options)


@figure
def elbo(**options: Any) -> Figure:
    return plots.elbo(linear()["SVI"], **options)


@figure
def predictive_check(**options: Any) -> Figure:
    return plots.predictive_check(linear()["Laplace"], **options)


@figure
def prior_predictive(**options: Any) -> Figure:
    return plots.prior_predictive(linear()["Laplace"], **options)


@figure
def sbc(**options: Any) -> Figure:
    result = ppgp.sbc(
        models.LinearRegression(),
        inference.Laplace(draws=60),
        simulations=20,
        workers=1,
        progress=False,
    )
    return plots.sbc(result, **options)


@figure
def intervals(**options: Any) -> Figure:
    prediction, y, calibrators = regions()
    region = calibrators["normalised"](prediction, level=0.9)
    return plots.intervals(prediction, y, region, own=prediction.interval(0.9), **options)


@figure
def coverage(**options: Any) -> Figure:
    prediction, y, calibrators = regions()
    return plots.coverage(calibrators, prediction, y, **options)


@figure
def widths(**options: Any) -> Figure:
    prediction, y, calibrators = regions()
    return plots.widths(
        {name: c(prediction, level=0.9) for name, c in calibrators.items()}, y, **options
    )


@figure
def function(**options: Any) -> Figure:
    past, _ = series()
    grid = pd.DataFrame({"year": np.linspace(0, 6, 80)})
    prediction = seasonal().predict(grid)
    bands = {"90%": prediction.interval(0.9), "50%": prediction.interval(0.5)}
    return plots.function(grid, prediction, bands, (past.X, response(past)), **options)


@figure
def online(**options: Any) -> Figure:
    prediction, _, calibrators = regions()
    score = conformal.Normalized()
    start = calibrators["normalised"]
    truth = table()[2].y
    methods = {"ACI": conformal.ACI(score, 0.9), "PID": conformal.PID(score, 0.9)}
    runs = {name: m(prediction, truth, calibration=start) for name, m in methods.items()}
    return plots.online(runs, window=25, **options)


@figure
def interval_score(**options: Any) -> Figure:
    test = table()[2]
    predictions = {"linear": linear()["Laplace"].predict(test.X), "GP": ard().predict(test.X)}
    return plots.interval_score(predictions, response(test), **options)


@figure
def residuals(**options: Any) -> Figure:
    prediction, y, _ = regions()
    return plots.residuals(prediction, y, **options)


@figure
def pit(**options: Any) -> Figure:
    prediction, y, _ = regions()
    return plots.pit(prediction, y, **options)


@figure
def map_of(**options: Any) -> Figure:
    return plots.map_of(kriging(), points=30, **options)


@figure
def surface(**options: Any) -> Figure:
    return plots.surface(kriging(), points=20, **options)


@figure
def variogram(**options: Any) -> Figure:
    empirical = geostatistics.empirical_variogram(places(), lags=10, cutoff=5.0)
    fitted = geostatistics.fit_variogram(empirical)
    spherical = geostatistics.fit_variogram(empirical, kernels.Spherical())
    return plots.variogram(empirical, {"exponential": fitted, "spherical": spherical}, **options)


@figure
def forecast(**options: Any) -> Figure:
    past, future = series()
    months = np.datetime64("2018-01") + np.arange(72)
    days = months.astype("datetime64[D]")
    prediction = seasonal().predict(future)
    history = (days[:54], response(past))
    return plots.forecast(prediction, days[54:], history, response(future), **options)


@figure
def components(**options: Any) -> Figure:
    return plots.components(seasonal(), **options)


@figure
def inducing(**options: Any) -> Figure:
    past, _ = series()
    return plots.inducing(
        fit(models.SGPR(kernels.RBF(), inducing=12), past, inference.MAP()), **options
    )


@figure
def features(**options: Any) -> Figure:
    network = ppgp.networks.MLP(hidden=(8,), out=2, activation="tanh")
    model = models.GP(kernels.Deep(network, kernels.RBF()))
    return plots.features(fit(model, table()[0], inference.MAP("adam", steps=100)), **options)


@figure
def kernel_matrix(**options: Any) -> Figure:
    return plots.kernel_matrix(ard(), sort_by="age", **options)


@figure
def metric(**options: Any) -> Figure:
    model = models.GP(kernels.Metric(kernels.RBF()))
    return plots.metric(fit(model, table()[0], inference.MAP()), **options)


@figure
def relevance(**options: Any) -> Figure:
    return plots.relevance(ard(), **options)


@figure
def rootogram(**options: Any) -> Figure:
    return plots.rootogram(counts(), **options)


@figure
def shrinkage(**options: Any) -> Figure:
    return plots.shrinkage(counts(), **options)


@figure
def reliability(**options: Any) -> Figure:
    _, test = classes()
    return plots.reliability(logistic().predict(test.X), test.y, **options)


@figure
def decision(**options: Any) -> Figure:
    return plots.decision(logistic(), points=60, **options)


def main() -> None:
    """Write every figure to a folder, or the small ones of the baseline."""
    parser = argparse.ArgumentParser(prog="python -m tests.plots.gallery", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the PNG files are written")
    parser.add_argument(
        "--baseline", action="store_true", help=f"write them with {DPI} dots per inch, not {LARGE}"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        dpi = DPI if options.baseline else LARGE
        draw().savefig(options.folder / f"{name}.png", dpi=dpi)


if __name__ == "__main__":
    main()
