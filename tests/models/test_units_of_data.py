"""Numbers and priors inside InUnitsOfData are in data units, standardised or not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from data_in_units import CLASSES, DATA, F64, LABELS, NEW, Z, predictions, quiet, same

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models, priors
from ppgp.errors import SettingError
from ppgp.kernels import (
    ARD,
    RBF,
    Anisotropy,
    Constant,
    Exponential,
    Linear,
    LinearVariogram,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    SpectralMixture,
    Spherical,
    Subspace,
    White,
)
from ppgp.models import (
    GLM,
    GP,
    SGPR,
    SKI,
    SVGP,
    GaussianMixture,
    GridGP,
    LinearRegression,
    LogisticRegression,
    Model,
    SoftmaxRegression,
    Vecchia,
)
from ppgp.priors import InUnitsOfData, LogNormal, Normal

KERNELS: dict[str, kernels.Kernel] = {
    "isotropic": RBF(70.0, 6.0),
    "ARD": ARD(RBF(70.0, 6.0)),
    "periodic": Periodic(50.0, 1.2, 6.28),
    "linear": Linear(0.3) + RBF(4.0, 2.0),
    "polynomial": Polynomial(2, 1e-3, 3.0),
    "product": RBF(20.0, 9.0) * Linear(0.02),
    "sum in a product": (RBF(20.0, 9.0) + Constant(3.0)) * Matern(0.5, 0.8, 12.0),
    "scale": Scale(RBF(2.0, 5.0) * Matern(1.5, 3.0, 8.0), 4.0),
    "ARD of a scale": ARD(Scale(RBF(2.0, 5.0), 8.0)),
    "metric": kernels.Metric(RBF(70.0, 6.0), shear=0.2),
    "metric of one direction": kernels.Metric(Matern(0.5, 70.0, 20.0), rank=1, shear=-0.3),
    "anisotropy": Anisotropy(RBF(40.0, 7.0) + Linear(0.01), 30.0, 0.3),
    "subspaces": Subspace(Periodic(30.0, 1.0, 6.0), [0]) + Subspace(RBF(20.0, 30.0), [1]),
    "spectral mixture": SpectralMixture(2, 10.0, 0.1, 0.02),
    "rational quadratic": RationalQuadratic(30.0, 5.0, 1.2),
    "variogram": LinearVariogram(2.0) + Constant(900.0) + White(0.3),
    "rough": Exponential(30.0, 4.0) + Spherical(9.0, 40.0),
}

COUNTS = Dataset(DATA.X, (DATA.y / 10).round())
CELLS = Dataset(torch.cartesian_prod(DATA.X[:6, 0], DATA.X[:5, 1]), DATA.y)
FIXED: dict[str, tuple[Model, Dataset]] = {
    "SGPR": (SGPR(RBF(70.0, 6.0), noise=1.5, mean=48.0, Z=Z), DATA),
    "SKI": (SKI(RBF(70.0, 6.0), 16, 1.5, 48.0, margin=0.2), DATA),
    "Vecchia": (Vecchia(RBF(70.0, 6.0), 1.5, 12, drift="none", mean=48.0), DATA),
    "Vecchia, Student-t": (
        Vecchia(
            RBF(70.0, 6.0), neighbours=12, likelihood=likelihoods.StudentT(4.0, 1.2), mean=48.0
        ),
        DATA,
    ),
    "GridGP": (GridGP((RBF(70.0, 6.0), Matern(1.5, 1.0, 40.0)), 1.5, 48.0), CELLS),
    "GP with a known noise": (GP(RBF(70.0, 6.0), noise=0.0), Dataset(DATA.X, DATA.y, noise_sd=2.0)),
    "GP of counts": (
        GP(RBF(0.5, 6.0), likelihood=likelihoods.Poisson(), mean=1.2),
        COUNTS,
    ),
    "GP, Student-t": (
        GP(RBF(70.0, 6.0), likelihood=likelihoods.StudentT(4.0, 1.2), mean=48.0),
        DATA,
    ),
    "GP with a linear mean": (GP(RBF(9.0, 6.0), 1.5, models.LinearMean((1.0, 0.2), 41.0)), DATA),
    "SGPR with a known mean": (
        SGPR(RBF(9.0, 6.0), noise=1.5, mean=lambda X: 50 + 0.01 * X[:, 0] * X[:, 1], Z=Z),
        DATA,
    ),
    "LinearRegression": (LinearRegression(0.3, 12.0, 2.0), DATA),
    "one weight per column": (LinearRegression((2.0, 0.1), 12.0, 2.0), DATA),
    "LogisticRegression": (LogisticRegression(0.02, 1.0), LABELS),
    "GLM": (GLM(likelihoods.Gaussian(2.0), (2.0, 0.1), 12.0), DATA),
    "GLM of counts": (GLM(likelihoods.NegativeBinomial(2.0), 0.02, 1.0), COUNTS),
    "GLM of ordered classes": (
        GLM(likelihoods.Ordinal(cutpoints=(1.0, 2.5)), 0.02),
        CLASSES,
    ),
    "SoftmaxRegression": (SoftmaxRegression(0.02, 1.0, 3), CLASSES),
}

#: q(v) is fitted, and agrees to the precision of the fit
FITTED: dict[str, tuple[Model, Dataset]] = {
    "SVGP": (
        SVGP(RBF(70.0, 6.0), likelihood=likelihoods.Gaussian(1.5), mean=48.0, Z=Z, learn=False),
        DATA,
    ),
    "SVGP, Student-t": (
        SVGP(RBF(70.0, 6.0), likelihood=likelihoods.StudentT(4.0, 1.2), Z=Z, learn=False),
        DATA,
    ),
    "SVGP of counts": (
        SVGP(RBF(0.5, 6.0), likelihood=likelihoods.Poisson(), mean=1.2, Z=Z, learn=False),
        COUNTS,
    ),
}


@quiet
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_a_kernel_of_numbers_alone_is_the_same_on_both_scales(kernel: kernels.Kernel) -> None:
    for mean in (None, 47.0):
        same(*predictions(GP(kernel, noise=1.5, mean=mean), DATA, inference.MAP()))


@quiet
@pytest.mark.parametrize(("model", "data"), FIXED.values(), ids=FIXED.keys())
def test_a_model_of_numbers_alone_is_the_same_on_both_scales(model: Model, data: Dataset) -> None:
    same(*predictions(model, data, inference.MAP()))


@quiet
@pytest.mark.parametrize(("model", "data"), FITTED.values(), ids=FITTED.keys())
def test_a_sparse_model_of_numbers_alone_is_the_same_on_both_scales(
    model: Model, data: Dataset
) -> None:
    """q(v) is optimised, so predictions agree to the precision of the optimiser."""
    same(*predictions(model, data, inference.SVI(steps=300, batch_size=None)), rtol=1e-4)


@quiet
def test_a_period_in_years_forecasts_data_in_years() -> None:
    x = torch.arange(0.0, 10.0, 1 / 12, dtype=F64)
    wave = torch.sin(2 * math.pi * x) + 0.3 * torch.cos(4 * math.pi * x)
    generator = torch.Generator().manual_seed(1)
    train = Dataset(
        2000 + x[:96, None],
        40 + 5 * wave[:96] + 0.1 * torch.randn(96, generator=generator, dtype=F64),
    )
    for period in (1.0, InUnitsOfData(LogNormal(0.0, 1e-3))):
        posterior = ppgp.fit(GP(Periodic(period=period)), train, inference.MAP(), progress=False)
        gap = posterior.predict(2000 + x[96:, None]).mean - (40 + 5 * wave[96:])
        assert float(gap.square().mean().sqrt()) < 0.15


@quiet
def test_a_prior_in_data_units_is_the_same_on_both_scales() -> None:
    """With all priors in data units the evidence does not depend on the scale of the fit."""
    bent = GP(
        RBF(InUnitsOfData(LogNormal(4.0, 0.3)), InUnitsOfData(LogNormal(1.5, 0.3))),
        noise=InUnitsOfData(LogNormal(1.0, 0.5)),
    )
    one, two = predictions(bent, DATA, inference.MAP())
    # both fits have the same mode, up to the precision of the optimiser
    same(one, two, rtol=1e-2)
    modes = [
        ppgp.fit(bent, DATA, inference.Laplace(), progress=False, standardise=s).log_evidence
        for s in (True, False)
    ]
    assert modes[0] == pytest.approx(modes[1], abs=1e-3)


@quiet
def test_plain_priors_stay_on_the_standardised_scale() -> None:
    posterior = ppgp.fit(GP(RBF(variance=70.0)), DATA, inference.MAP(), progress=False)
    model, scaler = posterior.model, posterior.scaler
    assert not scaler.is_identity
    assert model.standardised
    assert "standardised=True" in repr(model)
    assert "standardised" in repr(posterior)
    assert model.kernel.variance == pytest.approx(70.0 / float(scaler.y_sd) ** 2)
    assert model.kernel.lengthscale == RBF().lengthscale
    assert model.noise == GP().noise
    assert model.mean == 0.0


@quiet
def test_one_variance_of_a_product_has_the_unit_of_y() -> None:
    for kernel, where in (
        (RBF(2.0) * Matern(variance=3.0), 0),
        (RBF(1.0) * Matern(), None),
        (RBF() * Matern(variance=2.0), None),
    ):
        posterior = ppgp.fit(GP(kernel), DATA, inference.MAP(steps=1), progress=False)
        scaler, ready = posterior.scaler, posterior.model.kernel
        assert not scaler.is_identity
        for i, (before, after) in enumerate(zip(kernel.children, ready.children, strict=True)):
            factor = float(scaler.y_sd) ** -2 if i == where else 1.0
            if isinstance(before.variance, float):
                assert after.variance == pytest.approx(before.variance * factor)


def numbers(posterior: ppgp.Posterior) -> dict[str, Any]:
    """Return the draw of a mode in data units, as numbers and tuples."""
    return {
        k: tuple(v[0, 0].tolist()) if v.ndim > 2 else float(v)
        for k, v in posterior.draws_in("data").items()
    }


@quiet
def test_draws_in_data_units_give_the_same_model() -> None:
    """As numbers in a recipe that is fitted without standardisation they predict the same."""
    how = inference.MAP(steps=5)
    fitted = ppgp.fit(
        GP(RBF() + Subspace(Periodic(), [0]) + Linear(), mean=Normal()), DATA, how, progress=False
    )
    v = numbers(fitted)
    assert len(v["kernel.0.lengthscale"]) == 2  # one length per column
    level = [v[f"kernel.{i}.variance"] for i in range(3)]
    wave = Periodic(level[1], v["kernel.1.lengthscale"], v["kernel.1.period"])
    centre = DATA.X.mean(0)
    line = Subspace(Linear(level[2][0]), [0]) + Subspace(Linear(level[2][1]), [1])
    kernel = ARD(RBF(level[0], v["kernel.0.lengthscale"])) + Subspace(wave, [0]) + line
    there = ppgp.fit(
        GP(kernel, v["noise"], v["mean"]),
        Dataset(DATA.X - centre, DATA.y),
        how,
        progress=False,
        standardise=False,
    )
    same(fitted.predict(NEW), there.predict(NEW - centre))

    for model, data in (
        (LinearRegression(), DATA),
        (LinearRegression(weight=0.3), DATA),
        (LogisticRegression(), LABELS),
        (GaussianMixture(), DATA),
    ):
        fitted = ppgp.fit(model, data, how, progress=False)
        values = {k: x[:, 0] for k, x in fitted.draws_in("data").items()}
        bare = ppgp.fit(model, data, how, progress=False, standardise=False).model
        here = bare.predict(values, NEW, data)
        mine = fitted.predict(NEW)
        torch.testing.assert_close(
            here.mean[0],
            mine.probabilities[:, 1] if data is LABELS else mine.mean,
            rtol=1e-9,
            atol=1e-9,
        )


@quiet
def test_what_has_no_equivalent_raises_a_clear_error() -> None:
    posterior = ppgp.fit(GP(Anisotropy(RBF())), DATA, inference.MAP(steps=2), progress=False)
    table = posterior.summary(units="data")
    assert table.index.name == "units of the data"
    assert {
        "kernel.angle (standardised)",
        "kernel.ratio (standardised)",
        "kernel.variance",
        "noise",
    } <= set(table.index)
    assert posterior.summary().index.name == "standardised scale"
    scaler = posterior.scaler
    assert not scaler.is_identity
    ratio = table["mean"]["noise"] / posterior.summary()["mean"]["noise"]
    assert ratio == pytest.approx(float(scaler.y_sd) ** 2)
    tree = posterior.to_arviz(units="data", log_likelihood=False)
    assert float(tree.posterior["noise"].mean()) == pytest.approx(table["mean"]["noise"])
    assert "kernel.angle" in tree.attrs["standardised"]


@quiet
def test_isotropic_lengths_become_one_per_column_in_arviz() -> None:
    posterior = ppgp.fit(
        GP(RBF()), Dataset(DATA.X, DATA.y, ["a", "b"]), inference.MAP(steps=2), progress=False
    )
    lengths = posterior.to_arviz(units="data", log_likelihood=False, prior=4)
    assert lengths.posterior["kernel.lengthscale"].dims == ("chain", "draw", "feature")
    assert lengths.prior["kernel.lengthscale"].shape == (1, 4, 2)


def test_every_model_is_among_these() -> None:
    tried = {type(model).__name__ for model, _ in (FIXED | FITTED).values()}
    # proportions are never fixed; nothing is standardised; weights have no unit; one column alone
    apart = {"Boosted", "GaussianMixture", "Kriging", "NeuralRegression"}
    apart |= {"StateSpaceGP", "LatentStateSpaceGP"}
    assert tried | apart == set(models.__all__) - {"LinearMean", "Model", "Multi", "Program"}


def test_a_model_without_units_refuses_numbers() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Level(Model):
        level: priors.PriorLike = Normal(0.0, 1.0)

        def sites(self, d: int) -> dict[str, Any]:
            return {"level": priors.site("level", self.level)}

        def distribution(self, theta: Any, X: torch.Tensor) -> torch.distributions.Distribution:
            return torch.distributions.Normal(
                self.value(theta, "level", X)[..., None].expand(len(X)), 1.0
            )

    with pytest.raises(SettingError, match="in_units"):
        ppgp.fit(Level(3.0), DATA, inference.MAP(), progress=False)
    there = ppgp.fit(Level(3.0), DATA, inference.MAP(), progress=False, standardise=False)
    assert float(there.predict(NEW).mean[0]) == 3.0
    assert there.to_arviz(log_likelihood=False).observed_data["y"].shape == (DATA.n,)


@pytest.mark.parametrize(
    "model", [GP(), SGPR(), SVGP(), models.Kriging(drift="none")], ids=lambda m: type(m).__name__
)
def test_simulation_based_calibration_fits_the_mean_it_draws_from(model: Model) -> None:
    from ppgp.diagnostics.prior_simulations import OfModel
    from ppgp.runtime.seeding import seeded

    with seeded(0), pyro.get_param_store().scope():
        _, ready, _ = OfModel(model, DATA.X[:6] / 40).drawn()
    assert ready.mean == 0.0


@pytest.mark.parametrize(
    "number",
    [
        np.float32(1.5),
        np.float64(1.5),
        np.int64(2),
        np.array(1.5),
        torch.tensor(1.5),
        torch.tensor(2),
    ],
    ids=["float32", "float64", "int64", "array", "tensor", "whole tensor"],
)
def test_numbers_of_numpy_and_torch_are_numbers(number: Any, tmp_path: Path) -> None:
    plain = number.item()
    pairs = [
        (RBF(number, number), RBF(plain, plain)),
        (
            ARD(Scale(Matern(1.5, lengthscale=(number, 2.0)), number)),
            ARD(Scale(Matern(1.5, lengthscale=(plain, 2.0)), plain)),
        ),
        (Anisotropy(RBF(), angle=number), Anisotropy(RBF(), angle=plain)),
        (Normal(number, number), Normal(plain, plain)),
        (priors.Flat(number), priors.Flat(plain)),
        (LinearRegression(number, number, number), LinearRegression(plain, plain, plain)),
        (
            SVGP(likelihood=likelihoods.StudentT(number, number)),
            SVGP(likelihood=likelihoods.StudentT(plain, plain)),
        ),
        (GP(noise=number, mean=number), GP(noise=plain, mean=plain)),
    ]
    for ours, theirs in pairs:
        assert ours == theirs
        assert repr(ours) == repr(theirs)
    posterior = ppgp.fit(
        GP(RBF(number, number), noise=number), DATA, inference.MAP(), progress=False
    )
    again = ppgp.load_posterior(posterior.save(tmp_path / "numbers.ppgp"))
    assert again.recipe == GP(RBF(plain, plain), noise=plain)


def test_booleans_and_vectors_are_not_numbers() -> None:
    for wrong in (np.bool_(True), torch.tensor(True), torch.ones(2), np.ones(2)):
        with pytest.raises(SettingError):
            ppgp.fit(GP(noise=wrong), DATA, inference.MAP(), progress=False)
