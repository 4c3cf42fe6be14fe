"""Frequency weights: a weight of 2 equals the row twice, and 0 the row absent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models, networks, priors
from ppgp.conformal.bayes import conformal_bayes
from ppgp.density import Target
from ppgp.diagnostics.leave_one_out import psis_loo
from ppgp.errors import DataError, NotApplicable
from ppgp.inference.optimise.curvature_of_rows import CurvatureOfRows
from ppgp.models import Model

N = 30
GENERATOR = torch.Generator().manual_seed(4)
X = torch.randn(N, 2, generator=GENERATOR, dtype=torch.float64) * torch.tensor([1.0, 30.0]) + 5.0
F = X @ torch.tensor([0.8, 0.03], dtype=torch.float64)
NOISE = torch.randn(N, generator=GENERATOR, dtype=torch.float64)
Y = F + NOISE
LABELS = (F.median() < F + 1.5 * NOISE).double()
THREE = torch.bucketize(F + 1.5 * NOISE, F.quantile(torch.tensor([0.3, 0.7], dtype=F.dtype)))
WEIGHTS = torch.tensor([1.0, 2, 0, 3, 1, 0] * 5, dtype=torch.float64)
TIMES = torch.arange(N).repeat_interleave(WEIGHTS.long())
CLOSE: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}


def both(y: torch.Tensor) -> tuple[Dataset, Dataset]:
    """Return the rows with weights, and the rows repeated."""
    return Dataset(X, y, weights=WEIGHTS), Dataset(X[TIMES], y[TIMES])


def fits(model: Model, y: torch.Tensor, how: Any, **options: Any) -> list[ppgp.Posterior]:
    return [ppgp.fit(model, data, how, progress=False, **options) for data in both(y)]


def compare(one: ppgp.Posterior, other: ppgp.Posterior, **tolerance: Any) -> None:
    tolerance = tolerance or CLOSE
    assert one.draws.keys() == other.draws.keys()
    for name, value in one.draws.items():
        torch.testing.assert_close(value, other.draws[name], **tolerance)
    compare_predictions(one, other, **tolerance)


def compare_predictions(one: ppgp.Posterior, other: ppgp.Posterior, **tolerance: Any) -> None:
    tolerance = tolerance or CLOSE
    new = X[:4] + 0.3
    here, there = one.predict(new), other.predict(new)
    if here.kind == "classes":
        torch.testing.assert_close(here.probabilities, there.probabilities, **tolerance)
    else:
        torch.testing.assert_close(here.mean, there.mean, **tolerance)
        torch.testing.assert_close(here.variance, there.variance, **tolerance)


def test_a_scaler_counts_rows_by_their_weights() -> None:
    weighted, repeated = both(Y)
    assert weighted.standardised()[1].like(repeated.standardised()[1])
    one, other = (data.standardised()[1] for data in (weighted, repeated))
    for name in ("x_mean", "x_sd", "y_mean", "y_sd"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-13, atol=0)
    assert one.log_scale(weighted) == pytest.approx(other.log_scale(repeated), rel=1e-13)
    # missing entries, and a column that only rows of weight 0 keep from being constant
    odd = X.clone()
    odd[[0, 3, 4], 0] = torch.nan
    odd[:, 1] = torch.where(WEIGHTS > 0, 7.0, odd[:, 1])
    tables = (
        Dataset(odd, Y, weights=WEIGHTS, missing="keep"),
        Dataset(odd[TIMES], Y[TIMES], missing="keep"),
    )
    with pytest.warns(ppgp.errors.DataWarning, match="column 1 of X constant"):
        one, other = (data.standardised()[1] for data in tables)
    torch.testing.assert_close(one.x_mean, other.x_mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(one.x_sd, other.x_sd, rtol=1e-13, atol=1e-13)


LINEAR: list[Model] = [
    models.LinearRegression(),
    models.LinearRegression(priors.Flat(), priors.Flat(), priors.Flat()),
    models.LinearRegression(noise=priors.InverseGamma(2.0, 1.0), conjugate=True),
    models.LinearRegression(noise=0.7),
]


@pytest.mark.parametrize("model", LINEAR, ids=["normal", "flat", "conjugate", "number"])
def test_the_closed_form_of_linear_regression(model: Model) -> None:
    one, other = fits(model, Y, inference.Exact(draws=50))
    # an eigenvector has either sign, which draws follow and the closed form does not
    compare_predictions(one, other)
    if "noise" in one.draws:
        torch.testing.assert_close(one.draws["noise"], other.draws["noise"], **CLOSE)
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-9)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_gibbs_draws_are_those_of_the_rows_repeated() -> None:
    model = models.LinearRegression(noise=priors.InverseGamma(2.0, 1.0))
    one, other = fits(model, Y, inference.Gibbs(draws=30, warmup=10, chains=2))
    compare(one, other)


CLASSES: list[tuple[Model, torch.Tensor]] = [
    (models.LogisticRegression(), LABELS),
    (models.LogisticRegression(priors.Flat(), priors.Flat()), LABELS),
    (models.SoftmaxRegression(), THREE.double()),
    (models.SoftmaxRegression(priors.Flat(), priors.Flat()), THREE.double()),
]


METHODS = [
    inference.MAP(),
    inference.MAP("newton"),
    inference.MAP("gauss_newton"),
    inference.Laplace(draws=20),
]


@pytest.mark.parametrize("how", METHODS, ids=["lbfgs", "newton", "gauss_newton", "laplace"])
@pytest.mark.parametrize(("model", "y"), [*CLASSES, (LINEAR[0], Y)])
def test_modes_and_their_curvature(model: Model, y: torch.Tensor, how: Any) -> None:
    one, other = fits(model, y, how)
    # L-BFGS ends within its tolerance, and not at the last digit
    digits = 1e-8 if how == inference.MAP("newton") else 1e-4
    if isinstance(how, inference.Laplace):
        for name in ("mode", "covariance"):
            torch.testing.assert_close(one.stats[name], other.stats[name], rtol=digits, atol=digits)
    else:
        compare(one, other, rtol=digits, atol=digits)
    assert one.stats["observations"] == other.stats["observations"] == len(TIMES)
    assert one.bic == pytest.approx(other.bic, rel=1e-8)
    assert one.aic == pytest.approx(other.aic, rel=1e-8)
    if isinstance(how, inference.Laplace):
        assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-8)


INDUCING = torch.tensor([[-1.0, -1.0], [0.0, 0.5], [1.0, -0.5], [0.3, 1.0]], dtype=torch.float64)
SMOOTH = networks.MLP((3,), dropout=0.0, activation="tanh")


def svgp(**options: Any) -> models.SVGP:
    return models.SVGP(kernels.RBF(), Z=INDUCING, standardised=True, mean=0.1, **options)


DENSITIES: list[tuple[Model, torch.Tensor]] = [
    *((model, Y) for model in LINEAR),
    *CLASSES,
    (models.NeuralRegression(SMOOTH, prior=priors.Normal(0.0, 1.0)), Y),
    (models.NeuralRegression(SMOOTH, likelihoods.Categorical(3)), THREE.double()),
    (svgp(), Y),
    (svgp(likelihood=likelihoods.Bernoulli()), LABELS),
    (svgp(likelihood=likelihoods.StudentT()), Y),
    (svgp(likelihood=likelihoods.Gaussian(noise=likelihoods.Predicted())), Y),
]


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize(("model", "y"), DENSITIES)
def test_densities_and_their_gradients(model: Model, y: torch.Tensor, compile: bool) -> None:
    weighted, repeated = (data.standardised(scale_y="y" in model.scales)[0] for data in both(y))
    targets = [
        Target(model.prepare(data), data, optimise_params=True, compile=compile)
        for data in (weighted, repeated)
    ]
    for seed in (1, 2):
        z = targets[1].start(seed=seed, spread=0.5)
        one, other = (target.value_and_grad(z) for target in targets)
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, **CLOSE)
        assert targets[0].log_likelihood(z) == pytest.approx(targets[1].log_likelihood(z))
    parts = [targets[0].log_density(z, rows) for rows in torch.arange(N).split(6)]
    torch.testing.assert_close(torch.stack(parts).mean(), targets[0].log_density(z))


@pytest.mark.parametrize("objective", ["elbo", "ppgpr"])
def test_the_bound_of_svgp_and_its_natural_step(objective: str) -> None:
    model = svgp(objective=objective)
    weighted, repeated = (data.standardised()[0] for data in both(Y))
    targets = [
        Target(model, data, optimise_params=True, collapsed_elbo=True)
        for data in (weighted.rows(weighted.weights > 0), repeated)
    ]
    z = targets[1].start(seed=1, spread=0.3)
    for a, b in zip(*(target.value_and_grad(z) for target in targets), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    theta = targets[0].constrain(z)
    steps = []
    for target in targets:
        rows, named = target.data.passed()
        # a mini-batch scales by the number of rows, which differs between the tables
        steps.append(model.natural(theta, *rows, rate=0.5, **named))
    if objective == "ppgpr":
        assert steps == [None, None]
        return
    (one, value), (other, same) = steps  # type: ignore[misc]
    torch.testing.assert_close(value, same, **CLOSE)
    for name in one:
        torch.testing.assert_close(one[name], other[name], **CLOSE)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_fit_of_svgp_by_svi_takes_weights() -> None:
    kernel = kernels.RBF(variance=2.0, lengthscale=3.0)
    likelihood = likelihoods.Gaussian(noise=0.5)
    model = models.SVGP(kernel, likelihood=likelihood, mean=4.0, learn=False, Z=X[::6] + 0.1)
    one, other = fits(model, Y, inference.SVI(steps=3, batch_size=None))
    compare_predictions(one, other)
    assert one.stats["elbo"] == pytest.approx(other.stats["elbo"], rel=1e-9)
    free = models.SVGP(inducing=5)
    batches = ppgp.fit(free, both(Y)[0], inference.SVI(steps=5, batch_size=8), progress=False)
    assert torch.isfinite(batches.predict(X).mean).all()


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "how",
    [
        inference.NUTS(draws=10, warmup=10, chains=1, max_depth=3),
        inference.SVI(steps=10, draws=5),
        inference.SVI(steps=10, draws=5, batch_size=7),
        inference.MAP("adam", steps=10, batch_size=7),
        inference.MAP("adam", steps=40, hold_out=0.3),
        inference.MAP("adam", steps=5, starts=2),
        inference.SGLD(draws=4, warmup=4, chains=1, batch_size=7),
    ],
    ids=["nuts", "svi", "svi-batch", "adam", "hold_out", "starts", "sgld"],
)
def test_stochastic_methods_take_weights(how: Any) -> None:
    data, _ = both(LABELS)
    posterior = ppgp.fit(models.LogisticRegression(), data, how, progress=False)
    assert posterior.data.n == int((WEIGHTS > 0).sum())
    assert posterior.log_likelihood().shape[-1] == posterior.data.n
    posterior.to_arviz(prior=2, predictive=True)


def test_a_nuts_chain_is_that_of_the_rows_repeated() -> None:
    how = inference.NUTS(draws=5, warmup=5, chains=1, max_depth=3)
    with pytest.warns(ppgp.errors.ConvergenceWarning):
        one, other = fits(models.LogisticRegression(), LABELS, how, seed=2)
    compare(one, other, rtol=1e-5, atol=1e-5)


def test_rows_of_weight_0_are_absent() -> None:
    keep = WEIGHTS > 0
    zero = Dataset(X, Y, weights=keep.double())
    absent = Dataset(X[keep], Y[keep])
    found = [
        ppgp.fit(models.LinearRegression(), data, inference.Exact(draws=5))
        for data in (zero, absent)
    ]
    compare(*found)
    assert found[0].data.n == found[1].data.n == int(keep.sum())
    two = Dataset(X, Y, weights=[1.0, 1.0] + [0.0] * (N - 2))
    with pytest.raises(DataError, match="at least 3 rows to fit a model"):
        ppgp.fit(models.LinearRegression(), two)


def test_joint_likelihoods_refuse_weights_with_the_reason() -> None:
    data, _ = both(Y)
    for model in (models.GP(), models.Kriging(), models.SGPR()):
        name = type(model).__name__
        with pytest.raises(NotApplicable, match=f"{name}, whose rows have one joint distribution"):
            ppgp.fit(model, data, inference.MAP())
    with pytest.raises(NotApplicable, match="independent rows that takes weights, got Boosted"):
        ppgp.fit(models.Boosted(), data, inference.NaturalGradientBoosting())


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_what_counts_every_row_once_refuses_weights() -> None:
    data, _ = both(Y)
    network = models.NeuralRegression(SMOOTH, likelihoods.Gaussian())
    with pytest.raises(NotApplicable, match="rows without weights, for MCDropout"):
        ppgp.fit(network, data, inference.MCDropout(rates=(0.1,), epochs=1), progress=False)
    with pytest.raises(NotApplicable, match="rows without weights, for the evidence of the last"):
        ppgp.fit(network, data, inference.Laplace(structure="last_layer"), progress=False)
    posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(draws=200))
    with pytest.raises(NotApplicable, match="rows without weights, for PSIS-LOO"):
        psis_loo(posterior)
    with pytest.raises(NotApplicable, match="rows without weights, for conformal_bayes"):
        conformal_bayes(posterior, X)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [(likelihoods.Gaussian(), Y), (likelihoods.Categorical(3), THREE.double())],
    ids=["gaussian", "classes"],
)
def test_gauss_newton_matrices(likelihood: Any, y: torch.Tensor) -> None:
    model = models.NeuralRegression(SMOOTH, likelihood, priors.Normal(0.0, 1.0))
    curvatures = []
    for data in (data.standardised(scale_y="y" in model.scales)[0] for data in both(y)):
        target = Target(model.prepare(data), data)
        curvatures.append(CurvatureOfRows(target, False))
    z = target.start(seed=1, spread=0.5, compile=False)
    one, other = (curvature.matrix(z) for curvature in curvatures)
    torch.testing.assert_close(one, other, **CLOSE)
    v = torch.linspace(-1, 1, len(z), dtype=torch.float64)
    torch.testing.assert_close(curvatures[0].product(z)(v), other @ v, **CLOSE)
