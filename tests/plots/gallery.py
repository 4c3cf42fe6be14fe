"""One figure for every function of ``ppgp.plots``, from small fits that the figures share.

``python -m tests.plots.gallery FOLDER`` writes them as PNG files; with ``--baseline`` as the small
images to which ``test_gallery.py`` compares them.
"""

from __future__ import annotations

import sys
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
NO_FIGURE = {"COLOURS", "MARKERS", "MOST_SITES", "suited"}
FIGURES: dict[str, Callable[[], Figure]] = {}

Drawing = Callable[[], Figure]


def figure(draw: Drawing) -> Drawing:
    """Add a function to the gallery under its own name."""
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
    """Return 50 places with a smooth surface over them."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.uniform(0, 10, size=(50, 2)), columns=["east", "north"])
    y = np.sin(0.7 * X["east"]) + 0.3 * X["north"] + 0.1 * rng.normal(size=50)
    return ppgp.Dataset(X, y.rename("zinc"), coordinates=["east", "north"])


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
    """Return fits of a linear regression by three methods."""
    methods = {
        "Laplace": inference.Laplace(draws=400),
        "SVI": inference.SVI(steps=600),
        "NUTS": inference.NUTS(draws=100, warmup=100, chains=4),
    }
    return {name: fit(models.LinearRegression(), table()[0], how) for name, how in methods.items()}


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
    kernel = kernels.RBF() + kernels.Periodic(period=ppgp.priors.InUnitsOfData(1.0))
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
def trace() -> Figure:
    return plots.trace(linear()["NUTS"], sites=3)


@figure
def rank() -> Figure:
    return plots.rank(linear()["NUTS"])


@figure
def pair() -> Figure:
    return plots.pair(linear()["NUTS"])


@figure
def marginals() -> Figure:
    return plots.marginals(linear(), sites=4)


@figure
def forest() -> Figure:
    return plots.forest(linear())


@figure
def differences() -> Figure:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppgp.errors.PpgpWarning)
        return plots.differences(ppgp.compare(linear()))


@figure
def k_hat() -> Figure:
    return plots.k_hat({name: linear()[name] for name in ("Laplace", "SVI")})


@figure
def loo() -> Figure:
    return plots.loo(linear()["NUTS"])


@figure
def elbo() -> Figure:
    return plots.elbo(linear()["SVI"])


@figure
def predictive_check() -> Figure:
    return plots.predictive_check(linear()["Laplace"])


@figure
def prior_predictive() -> Figure:
    return plots.prior_predictive(linear()["Laplace"])


@figure
def sbc() -> Figure:
    result = ppgp.sbc(
        models.LinearRegression(), inference.Laplace(draws=60), simulations=20, workers=1,
        progress=False,
    )
    return plots.sbc(result)


@figure
def intervals() -> Figure:
    prediction, y, calibrators = regions()
    region = calibrators["normalised"](prediction, level=0.9)
    return plots.intervals(prediction, y, region, own=prediction.interval(0.9))


@figure
def coverage() -> Figure:
    prediction, y, calibrators = regions()
    return plots.coverage(calibrators, prediction, y)


@figure
def widths() -> Figure:
    prediction, y, calibrators = regions()
    return plots.widths({name: c(prediction, level=0.9) for name, c in calibrators.items()}, y)


@figure
def function() -> Figure:
    past, _ = series()
    grid = pd.DataFrame({"year": np.linspace(0, 6, 80)})
    prediction = seasonal().predict(grid)
    bands = {"90 %": prediction.interval(0.9), "50 %": prediction.interval(0.5)}
    return plots.function(grid, prediction, bands, (past.X, response(past)))


@figure
def online() -> Figure:
    prediction, y, calibrators = regions()
    score = conformal.Normalized()
    start = calibrators["normalised"]
    truth = torch.as_tensor(y.to_numpy())
    methods = {"ACI": conformal.ACI(score, 0.9), "PID": conformal.PID(score, 0.9)}
    runs = {name: m(prediction, truth, calibration=start) for name, m in methods.items()}
    return plots.online(runs, window=25)


@figure
def interval_score() -> Figure:
    test = table()[2]
    predictions = {"linear": linear()["Laplace"].predict(test.X), "GP": ard().predict(test.X)}
    return plots.interval_score(predictions, response(test))


@figure
def residuals() -> Figure:
    prediction, y, _ = regions()
    return plots.residuals(prediction, y)


@figure
def pit() -> Figure:
    prediction, y, _ = regions()
    return plots.pit(prediction, y)


@figure
def map_of() -> Figure:
    return plots.map_of(kriging(), points=30)


@figure
def surface() -> Figure:
    return plots.surface(kriging(), points=20)


@figure
def variogram() -> Figure:
    empirical = geostatistics.empirical_variogram(places(), lags=8)
    fitted = geostatistics.fit_variogram(empirical)
    spherical = geostatistics.fit_variogram(empirical, kernels.Spherical())
    return plots.variogram(empirical, {"exponential": fitted, "spherical": spherical})


@figure
def forecast() -> Figure:
    past, future = series()
    months = np.datetime64("2018-01") + np.arange(72)
    days = months.astype("datetime64[D]")
    prediction = seasonal().predict(future)
    history = (days[:54], response(past))
    return plots.forecast(prediction, days[54:], history, response(future))


@figure
def components() -> Figure:
    return plots.components(seasonal())


@figure
def inducing() -> Figure:
    past, _ = series()
    return plots.inducing(fit(models.SGPR(kernels.RBF(), inducing=12), past, inference.MAP()))


@figure
def features() -> Figure:
    network = ppgp.networks.MLP(hidden=(8,), out=2, activation="tanh")
    model = models.GP(kernels.Deep(network, kernels.RBF()))
    return plots.features(fit(model, table()[0], inference.MAP("adam", steps=100)))


@figure
def kernel_matrix() -> Figure:
    return plots.kernel_matrix(ard(), sort_by="age")


@figure
def relevance() -> Figure:
    return plots.relevance(ard())


@figure
def rootogram() -> Figure:
    return plots.rootogram(counts())


@figure
def shrinkage() -> Figure:
    return plots.shrinkage(counts())


@figure
def reliability() -> Figure:
    _, test = classes()
    return plots.reliability(logistic().predict(test.X), test.y)


@figure
def decision() -> Figure:
    return plots.decision(logistic(), points=60)


def main(folder: str, *options: str) -> None:
    """Write every figure to a folder, or the small ones of the baseline."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    dpi = DPI if "--baseline" in options else 110
    for name, draw in FIGURES.items():
        draw().savefig(out / f"{name}.png", dpi=dpi)


if __name__ == "__main__":
    main(*sys.argv[1:])
