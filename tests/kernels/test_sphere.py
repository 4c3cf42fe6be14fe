"""Kernels of latitude and longitude: chords of a sphere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, kernels, models, priors
from ppgp.errors import DataError, DataWarning, SettingError
from ppgp.kernels import RBF, Matern, Sphere, Subspace

G = torch.Generator().manual_seed(0)


def places(n: int, generator: torch.Generator = G) -> Tensor:
    """Return n uniform places, in degrees."""
    z = 2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1
    longitude = 360 * torch.rand(n, generator=generator, dtype=torch.float64) - 180
    return torch.stack([z.asin().rad2deg(), longitude], -1)


def points(X: Tensor) -> Tensor:
    latitude, longitude = X.deg2rad().unbind(-1)
    x, y = latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin()
    return torch.stack([x, y, latitude.sin()], -1)


@pytest.mark.parametrize("kernel", [RBF(1.3, 0.7), Matern(1.5, 1.3, 0.7)], ids=["RBF", "Matern"])
def test_it_is_the_kernel_of_points_in_three_dimensions(kernel: Any) -> None:
    X, Z = places(12), places(5)
    wanted = kernel({}, points(X), points(Z))
    torch.testing.assert_close(Sphere(kernel)({}, X, Z), wanted, rtol=1e-12, atol=1e-14)
    km = type(kernel)(**{**vars(kernel), "lengthscale": 0.7 * 6371.0})
    torch.testing.assert_close(Sphere(km, 6371.0)({}, X, Z), wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("nu", "lengthscale", "least"), [(math.inf, 1.0, -1e-3), (1.5, 2.0, -1e-5)], ids=["RBF", "3/2"]
)
def test_it_is_a_covariance_where_great_circle_distances_give_none(
    nu: float, lengthscale: float, least: float
) -> None:
    """Gneiting (2013), table 1: beyond nu = 1/2 no Matern of great-circle distance is one."""
    X = places(400)
    kernel = RBF(1.0, lengthscale) if nu == math.inf else Matern(nu, 1.0, lengthscale)
    p = points(X)
    arc = torch.atan2(torch.linalg.cross(p[:, None], p[None]).norm(dim=-1), p @ p.mT)
    s = arc / lengthscale
    great = (
        torch.exp(-0.5 * s**2) if nu == math.inf else (1 + 3**0.5 * s) * torch.exp(-(3**0.5) * s)
    )
    assert float(torch.linalg.eigvalsh(great)[0]) < least
    chord = Sphere(kernel)({}, X)
    assert float(torch.linalg.eigvalsh(chord)[0]) > -1e-12 * len(X)


def test_there_is_no_seam_at_the_date_line_or_at_a_pole() -> None:
    kernel = Sphere(Matern(1.5, 1.0, 0.3))
    east, west = torch.tensor([[10.0, 180.0]]).double(), torch.tensor([[10.0, -180.0]]).double()
    assert float(kernel({}, east, west)) == pytest.approx(1.0, abs=1e-12)
    across = kernel({}, east - torch.tensor([0.0, 1.0]), west + torch.tensor([0.0, 1.0]))
    inland = kernel(
        {}, torch.tensor([[10.0, 41.0]]).double(), torch.tensor([[10.0, 43.0]]).double()
    )
    assert float(across) == pytest.approx(float(inland), abs=1e-12)
    pole = torch.tensor([[90.0, 0.0], [90.0, 120.0], [90.0, -77.0]]).double()
    torch.testing.assert_close(kernel({}, pole), torch.ones(3, 3).double(), rtol=0, atol=1e-12)
    far = kernel({}, east, east + torch.tensor([0.0, 360.0]))
    assert float(far) == pytest.approx(1.0, abs=1e-12)


def test_lengths_are_in_the_unit_of_the_radius_however_the_columns_were_standardised() -> None:
    """A number is in km, and so is what a fit reports; the fits agree with kriging, which does not
    standardise."""
    X = 20.0 + 0.1 * places(40)
    y = torch.sin(X[:, 0]) + X[:, 1].cos()
    data = Dataset(X, y)
    fixed = Sphere(Matern(1.5, 1.0, 300.0), 6371.0)
    fit = ppgp.fit(models.GP(fixed, 0.01, 0.0), data, inference.MAP())
    raw = ppgp.fit(
        models.Kriging(fixed, nugget=0.01, drift="none", mean=0.0), data, inference.MAP()
    )
    new = X[:7] + 0.3
    torch.testing.assert_close(fit.predict(new).mean, raw.predict(new).mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fit.predict(new).std, raw.predict(new).std, rtol=1e-8, atol=1e-8)
    free = Sphere(Matern(1.5, lengthscale=priors.LogNormal(0.0, 5.0)), 6371.0)
    found = ppgp.fit(models.GP(free, 0.01), data, inference.MAP(), progress=False)
    km = float(found.draws_in("data")["kernel.lengthscale"])
    level = float(found.draws_in("data")["kernel.variance"])
    again = Sphere(Matern(1.5, level, km), 6371.0)
    mean = float(found.scaler.y_mean + found.scaler.y_sd * found.model.mean)
    same = ppgp.fit(models.GP(again, 0.01, mean), data, inference.MAP(), progress=False)
    torch.testing.assert_close(
        same.predict(new).mean, found.predict(new).mean, rtol=1e-7, atol=1e-7
    )


def test_beside_a_column_of_time_it_is_saved_and_drawn(tmp_path: Any) -> None:
    X = torch.cat([places(30), torch.linspace(2000, 2020, 30, dtype=torch.float64)[:, None]], 1)
    kernel = Subspace(Sphere(Matern(1.5)), [0, 1]) * Subspace(RBF(variance=1.0), [2])
    data = Dataset(X, X[:, 0].deg2rad().sin())
    fit = ppgp.fit(models.GP(kernel), data, inference.MAP(), progress=False)
    again = ppgp.load_posterior(fit.save(tmp_path / "fit.safetensors"))
    assert torch.equal(again.predict(X).mean, fit.predict(X).mean)
    assert repr(Sphere(RBF(), 6371.0)) in repr(models.GP(Sphere(RBF(), 6371.0)))


def test_prior_functions_have_the_covariance_of_the_kernel() -> None:
    from ppgp.kernels.fourier_features import Draw

    X, kernel, samples = places(6), Sphere(RBF(1.0, 0.8)), 4000
    draw = Draw(samples, 200, torch.Generator().manual_seed(1), X)
    f = kernel.path({}, 2, draw)(X)
    error = f.mT @ f / samples - kernel({}, X)
    assert float(error.abs().max()) < 5 * (2 / samples) ** 0.5


@pytest.mark.parametrize("standardise", [False, True])
def test_functions_of_a_sphere_beside_another_column_are_drawn(standardise: bool) -> None:
    X = torch.cat([places(30), torch.linspace(0, 9, 30, dtype=torch.float64)[:, None]], 1)
    inner = Sphere(Matern(1.5, 1.0, 0.4))
    model = models.GP(Subspace(inner, [0, 1]) + Subspace(RBF(1.0, 3.0), [2]), noise=0.1)
    how = inference.MAP()
    y = X[:, 0].deg2rad().sin()
    fit = ppgp.fit(model, Dataset(X, y), how, standardise=standardise, progress=False)
    samples = 2000
    f, exact = fit.pathwise(samples, features=500)(X[:3]), fit.latent(X[:3])
    error = (f.mean(0) - exact.mean) / exact.std
    assert float(error.abs().max()) < 5 / samples**0.5


def test_bad_places_are_refused() -> None:
    with pytest.raises(DataError, match="latitude first"):
        Sphere(RBF(1.0, 1.0))({}, torch.tensor([[10.0, 20.0], [120.0, 10.0]]).double())
    with pytest.raises(SettingError, match="2 columns"):
        Sphere(RBF()).sites(3)
    with pytest.raises(SettingError, match="positive radius"):
        Sphere(RBF(), 0.0)


def test_kriging_on_the_sphere_starts_from_ranges_in_the_unit_of_the_radius() -> None:
    X = 20.0 + 0.05 * places(40)
    flat = Sphere(kernels.Exponential(priors.Flat(), priors.Flat()), 6371.0)
    model = models.Kriging(flat, nugget=0.01)
    start = model.start(Dataset(X, X[:, 0].sin()))
    diagonal = float((X.amax(0) - X.amin(0)).norm())
    assert float(start["variogram.lengthscale"]) == pytest.approx(
        diagonal / 10 * math.pi / 180 * 6371.0, rel=1e-6
    )


def test_a_recipe_of_the_command_line_may_hold_it() -> None:
    text = "Kriging(Sphere(Matern(1.5), radius=6371.0))"
    assert ppgp.recipes.model(text) == models.Kriging(Sphere(Matern(1.5), radius=6371.0))


def test_a_search_may_look_beyond_a_pole(recwarn: Any) -> None:
    """Vecchia looks how far the kernel correlates, and inducing inputs of SVGP wander."""
    X = torch.stack([torch.linspace(40, 60, 30), torch.linspace(0, 20, 30)], -1).double()
    data = Dataset(X, (X[:, 1] / 4).sin())
    near = models.Vecchia(Sphere(Matern(1.5, 1.0, 0.1)), noise=0.1)
    sparse = models.SVGP(Sphere(Matern(1.5, 1.0, 0.1)), inducing=4)
    for standardise, model, how in (
        (True, near, inference.MAP()),
        (False, near, inference.MAP()),
        (True, sparse, inference.SVI(steps=3)),
    ):
        fit = ppgp.fit(model, data, how, progress=False, standardise=standardise)
        with pytest.raises(DataError, match="latitudes from -90 to 90 in the first column"):
            fit.predict([[100.0, 10.0]])
    assert not [w for w in recwarn if "compiled" in str(w.message)]
    for kernel in (Sphere(RBF()), Subspace(Sphere(RBF()), [0, 1]) + Subspace(RBF(), [1])):
        with pytest.raises(DataError, match="got 120: put latitude first"):
            ppgp.fit(models.GP(kernel), Dataset(2.0 * X, data.y), inference.MAP(), progress=False)


def test_nearest_rows_on_a_sphere_are_all_rows_with_as_many_neighbours() -> None:
    X = torch.stack([torch.linspace(40, 60, 12), torch.linspace(0, 20, 12)], -1).double()
    data = Dataset(X, (X[:, 1] / 4).sin())
    kernel = Sphere(Matern(1.5, 1.0, 0.1))
    near = models.Vecchia(kernel, noise=0.01, mean=0.0, drift="none", neighbours=11)
    one, other = (
        ppgp.fit(model, data, inference.MAP(), progress=False).predict(X + 0.4)
        for model in (near, models.GP(kernel, 0.01, 0.0))
    )
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(one.std, other.std, rtol=1e-7, atol=1e-7)


RANDOM = np.random.default_rng(1)
DEGREES = {"lat": RANDOM.uniform(47, 55, 20), "lon": RANDOM.uniform(5, 15, 20)}
ON_EARTH = Sphere(kernels.Exponential(1.0, 300.0), radius=6371.0)
FLAT = kernels.Exponential(1.0, 2.0)
LAT_FIRST = [("lat", "lon"), ("Latitude (deg)", "Longitude (deg)"), ("LAT", "LONG"), ("y", "x")]
LON_FIRST = [
    ("lon", "lat"),
    ("Longitude (deg)", "Latitude (deg)"),
    ("LNG", "Lat"),
    ("x", "y"),
    ("decimalLongitude", "decimalLatitude"),
    ("site_long", "site_lat"),
]


def named(first: str, second: str, order: tuple[str, str], **options: Any) -> Dataset:
    columns = {first: DEGREES[order[0]], second: DEGREES[order[1]]}
    return Dataset(pd.DataFrame(columns), DEGREES["lat"] - 50.0, **options)


def fitted(model: Any, data: Dataset) -> Any:
    return ppgp.fit(model, data, inference.MAP(), progress=False)


@pytest.mark.parametrize("names", LON_FIRST)
def test_a_longitude_in_the_place_of_the_latitude_is_refused_by_its_name(names: Any) -> None:
    data = named(*names, ("lon", "lat"))
    with pytest.raises(DataError, match=r"latitude first, then longitude"):
        fitted(models.Kriging(ON_EARTH, 0.1), data)
    turned = models.Kriging(kernels.Subspace(ON_EARTH, [1, 0]), 0.1)
    straight = fitted(models.Kriging(ON_EARTH, 0.1), named("lat", "lon", ("lat", "lon")))
    one, other = fitted(turned, data), straight
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-12)


@pytest.mark.parametrize("names", [*LAT_FIRST, ("a", "b")])
def test_latitude_first_is_accepted(names: Any) -> None:
    fitted(models.Kriging(ON_EARTH, 0.1), named(*names, ("lat", "lon")))


def test_the_order_is_checked_inside_other_kernels_and_beside_a_drift() -> None:
    table = pd.DataFrame({"lon": DEGREES["lon"], "height": 1.0 + DEGREES["lat"] % 1.0})
    table["lat"] = DEGREES["lat"]
    data = Dataset(table, DEGREES["lat"] - 50.0, coordinates=["lat", "lon"])
    for model in (
        models.GP(kernels.Subspace(ON_EARTH, [0, 2]) + kernels.Subspace(RBF(), [1])),
        models.Kriging(ON_EARTH, 0.1, drift=(1,)),
        models.Vecchia(ON_EARTH, 0.1, drift=(1,)),
    ):
        with pytest.raises(DataError, match="got the columns lon, lat"):
            fitted(model, data)
    fitted(models.Kriging(kernels.Subspace(ON_EARTH, [1, 0]), 0.1, drift=(1,)), data)


def test_degrees_on_a_plane_are_reported_where_they_are_places() -> None:
    data = named("lon", "Lat.", ("lon", "lat"))
    with pytest.warns(DataWarning, match=r"Sphere\(Exponential.*Lat\. and lon, in this order"):
        fitted(models.Kriging(FLAT, 0.1), data)
    with pytest.warns(DataWarning, match=r"longitude is 0\.6"):
        ppgp.empirical_variogram(data, lags=4)
    X = torch.cat([data.X, torch.arange(data.n)[:, None] % 2], 1)
    outputs = Dataset(X, data.y, feature_names=["lon", "lat", "output"])
    kernel = Subspace(FLAT, [0, 1]) * Subspace(
        kernels.Coregionalisation(2, weight=0.5, variance=0.5), [2]
    )
    with pytest.warns(DataWarning, match=r"use Subspace\(Sphere\(.*\[1, 0\]\) for these two"):
        fitted(models.Kriging(kernel, 0.1), outputs)
    places = named("lon", "lat", ("lon", "lat"), coordinates=["lon", "lat"])
    with pytest.warns(DataWarning, match="Sphere"):
        fitted(models.GP(RBF(1.0, 1.0), 0.1), places)
    fitted(models.GP(RBF(1.0, 1.0), 0.1), data)  # two features among others
    ppgp.fit(models.LinearRegression(), places, inference.Exact(), progress=False)
    projected = Dataset(places.X * 1e5, places.y, feature_names=["lon", "lat"])
    fitted(models.Kriging(kernels.Exponential(1.0, 1e5), 0.1), projected)


def test_no_places_have_predictions_of_no_rows() -> None:
    X = places(20)
    model = models.GP(Sphere(RBF(1.0, 1.0)), noise=0.1)
    fit = ppgp.fit(model, Dataset(X, X[:, 0].sin()), inference.MAP(), progress=False)
    assert fit.predict(X[:0]).mean.shape == (0,)
    assert Sphere(RBF(1.0, 1.0))({}, X[:0]).shape == (0, 0)
