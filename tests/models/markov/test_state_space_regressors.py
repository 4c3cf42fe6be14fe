"""StateSpaceGP with regressors against GP with a linear kernel on these columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.kernels import Constant, Kernel, Linear, Matern, Subspace
from ppgp.models import GP, Model, StateSpaceGP
from ppgp.models.markov.state_space_rows import StateSpaceMarginal
from ppgp.priors import HalfNormal, InUnitsOfData, Normal

close = torch.testing.assert_close
SCALES = (0.7, 2.0)
NUMBERS = StateSpaceGP(Matern(1.5, 1.0, 1.0), 0.1, 0.0)
KERNEL = Matern(2.5) + Constant(0.5)


def table(n: int, seed: int = 0) -> Dataset:
    """Return rows out of order, with equal times, a jump and a column of 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.rand(n, generator=generator, dtype=torch.float64)
    t[3], t[n // 2] = t[5], t[5]
    z = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    X = torch.stack([t, z[:, 0], (t > 0.6).double()], 1)
    return Dataset(X, torch.sin(6 * t) + X[:, 1] - 2 * X[:, 2] + 0.2 * z[:, 1])


def dense(kernel: Kernel = KERNEL) -> Kernel:
    """Return the kernel on the first column, and a line on each of the others."""
    lines = [Subspace(Linear(scale**2), [i + 1]) for i, scale in enumerate(SCALES)]
    return Subspace(kernel, [0]) + lines[0] + lines[1]


def both(data: Dataset) -> tuple[StateSpaceGP, GP]:
    model = StateSpaceGP(KERNEL, mean=0.3, regressors=Normal(0.0, SCALES)).prepare(data)
    return model, GP(dense(), mean=0.3).prepare(data)


def hyper(theta: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the sites of GP, whose kernel has that of StateSpaceGP inside."""
    return {name.replace("kernel.", "kernel.0."): value for name, value in theta.items()}


@pytest.mark.parametrize("noise", [1e-4, 0.1])
def test_value_and_slopes_are_those_of_dense_algebra(noise: float) -> None:
    data = table(400)
    ours, theirs = both(data)
    names = [name for name, site in ours.sites(3).items() if not site.fixed]
    theta = {name: torch.tensor(1.3, dtype=torch.float64) for name in names}
    theta["kernel.0.lengthscale"] = torch.tensor(0.3, dtype=torch.float64)
    theta["noise"] = torch.tensor(noise, dtype=torch.float64)
    theta = {name: value.requires_grad_() for name, value in theta.items()}
    every = list(theta.values())
    steps = ours.noisy_steps(theta, data.X, None)
    loc = torch.full((data.n,), 0.3, dtype=torch.float64)
    value = StateSpaceMarginal(loc, steps).log_prob(data.y)
    K = theirs.kernel(ppgp.priors.under("kernel", hyper(theta)), data.X)
    C = K + theta["noise"] * torch.eye(data.n, dtype=torch.float64)
    other = torch.distributions.MultivariateNormal(loc, C).log_prob(data.y)
    close(value, other, rtol=1e-10, atol=1e-8)
    pairs = zip(torch.autograd.grad(value, every), torch.autograd.grad(other, every), strict=True)
    for mine, dense_slope in pairs:
        close(mine, dense_slope, rtol=1e-8, atol=1e-5)


def test_value_and_curvature_of_the_target_are_those_of_GP() -> None:
    data = table(60)
    ours, theirs = (Target(model, data, compile=False) for model in both(data))
    z = ours.start(seed=1, spread=0.5)
    for mine, other in zip(ours.value_and_grad(z), theirs.value_and_grad(z), strict=True):
        close(mine, other, rtol=1e-9, atol=1e-9)
    close(ours.hessian(z), theirs.hessian(z), rtol=1e-7, atol=1e-7)


def test_predictions_are_those_of_GP() -> None:
    data = table(100)
    generator = torch.Generator().manual_seed(3)
    ours, theirs = both(data)
    free = [name for name, site in ours.sites(3).items() if not site.fixed]
    theta = {n: torch.rand(3, generator=generator, dtype=torch.float64) + 0.3 for n in free}
    X = 2 * torch.rand(15, 3, generator=generator, dtype=torch.float64) - 0.3
    X = torch.cat([X, X[:1], data.X[3:5]])
    for joint in (False, True):
        mine = ours.predict(theta, X, data, joint=joint)
        other = theirs.predict(hyper(theta), X, data, joint=joint)
        close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(mine.variance, other.variance, rtol=1e-8, atol=1e-8)
        if joint:
            close(mine.covariance_matrix, other.covariance_matrix, rtol=1e-8, atol=1e-8)
    for name in ("latent", "loo"):
        rest = (X, data) if name == "latent" else (data,)
        mine = getattr(ours, name)(theta, *rest)
        other = getattr(theirs, name)(hyper(theta), *rest)
        close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(mine.variance, other.variance, rtol=1e-8, atol=1e-8)
    pair = (ours.gaussian(theta, X, data), theirs.gaussian(hyper(theta), X, data))
    for mine, other in zip(*pair, strict=True):
        close(mine, other)
    parts = ours.components(theta, X, data)
    assert list(parts) == ["0 Matern", "1 Constant", "regressors"]
    total = torch.stack([part.mean for part in parts.values()]).sum(0) + 0.3
    close(total, ours.latent(theta, X, data).mean, rtol=1e-8, atol=1e-8)


def fitted(model: Model, data: Dataset, **options: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, inference.MAP(), progress=False, **options)


def test_a_prior_in_units_of_the_data_is_the_same_on_both_scales(tmp_path: object) -> None:
    """Columns are centred where X is standardised: here their means are 0."""
    rows = table(60)
    X = torch.cat([rows.X[:, :1] * 50, (rows.X[:, 1:] - rows.X[:, 1:].mean(0)) * 7], 1)
    data = Dataset(X, 4 + 10 * rows.y)
    prior = InUnitsOfData(Normal(0.0, (0.5, 1.5)))
    model = StateSpaceGP(Matern(1.5, 40.0, 30.0), 4.0, 5.0, regressors=prior)
    there, here = (fitted(model, data, standardise=each) for each in (True, False))
    close(there.predict(X).mean, here.predict(X).mean, rtol=1e-8, atol=1e-8)
    close(there.predict(X).variance, here.predict(X).variance, rtol=1e-8, atol=1e-8)
    again = ppgp.load_posterior(there.save(f"{tmp_path}/fit"))
    assert torch.equal(again.predict(X).mean, there.predict(X).mean)


def test_updates_and_functions_have_the_weights_too() -> None:
    data, samples = table(40), 4000
    order = data.X[:, 0].argsort()
    first, rest = data.rows(order[:30]), data.rows(order[30:])
    model = StateSpaceGP(Matern(2.5, 1.0, 0.4), 0.1, 0.0, regressors=Normal(0.0, SCALES))
    kernel = dense(Matern(2.5, 1.0, 0.4))
    other, as_given = GP(kernel, 0.1, 0.0), {"standardise": False}
    ours, theirs = fitted(model, first, **as_given), fitted(other, data, **as_given)
    ahead = ours.one_step_ahead(rest.X, rest.y)
    before = fitted(other, data.rows(order[:-1]), **as_given).predict(rest.X[-1:])
    close(ahead.mean[-1:], before.mean, rtol=1e-8, atol=1e-8)
    close(ahead.variance[-1:], before.variance, rtol=1e-8, atol=1e-8)
    found = ours.update(rest.X, rest.y)
    new = torch.tensor([[0.2, 1.0, 0.0], [1.2, -1.0, 1.0], [1.4, 0.0, 0.0]], dtype=torch.float64)
    close(found.predict(new).mean, theirs.predict(new).mean, rtol=1e-8, atol=1e-8)
    later = found.update(new[2:], [0.5])
    close(later.predict(new).mean.isfinite(), torch.ones(3, dtype=torch.bool))
    f, latent = found.pathwise(samples, seed=0)(new), theirs.latent(new)
    error = (f.mean(0) - latent.mean) / latent.std
    assert float(error.abs().max()) < 4.5 / samples**0.5
    ratio = f.var(0) / latent.variance - 1
    assert float(ratio.abs().max()) < 4.5 * (2 / samples) ** 0.5


@pytest.mark.parametrize("standardise", [True, False])
def test_coefficients_are_those_of_generalised_least_squares(standardise: bool) -> None:
    """The conditional distribution of the weights given y, by dense algebra."""
    rows = table(60)
    X = torch.cat([rows.X[:, :1], (rows.X[:, 1:] - rows.X[:, 1:].mean(0)) * 3], 1)
    data = Dataset(X, 2 + 5 * rows.y, ["time", "dose", "jump"], "y")
    prior = InUnitsOfData(Normal(0.0, SCALES))
    model = StateSpaceGP(Matern(1.5, 9.0, 0.4), 2.0, 1.5, regressors=prior)
    fit = fitted(model, data, standardise=standardise)
    found = fit.coefficients("draws", level=0.9)
    kernel = Matern(1.5, 9.0, 0.4)
    C = GP(kernel, 2.0)._covariance({}, X[:, :1])
    F, V = X[:, 1:], torch.tensor(SCALES, dtype=torch.float64).square().diag()
    gain = V @ F.mT @ torch.linalg.inv(C + F @ V @ F.mT)
    mean = gain @ (data.y - 1.5)
    sd = (V - gain @ F @ V).diagonal().sqrt()
    assert list(found.index) == ["dose", "jump"]
    assert list(found.columns) == ["mean", "sd", "5%", "50%", "95%"]
    close(torch.tensor(found["mean"].to_numpy()), mean, rtol=1e-7, atol=1e-8)
    close(torch.tensor(found["sd"].to_numpy()), sd, rtol=1e-7, atol=1e-8)
    close(
        torch.tensor(found["95%"].to_numpy()), mean + 1.6448536269514722 * sd, rtol=1e-6, atol=1e-6
    )
    own = torch.tensor(fit.coefficients("draws", units="model")["mean"].to_numpy())
    close(own * fit.scaler.y_sd / fit.scaler.x_sd[1:], mean, rtol=1e-7, atol=1e-8)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_coefficients_mix_over_the_draws() -> None:
    data = table(40)
    model = StateSpaceGP(Matern(1.5, 1.0, 0.4), mean=0.0, regressors=Normal(0.0, SCALES))
    fit = ppgp.fit(model, data, inference.MAP(steps=3, starts=1), progress=False)
    fit = replace(fit, draws={"noise": fit.draws["noise"] * torch.linspace(0.5, 2.0, 30)[None]})
    found = fit.coefficients("draws")
    mean, sd = fit.model.weight_moments(fit.theta, fit.data)
    unit = fit.scaler.y_sd / fit.scaler.x_sd[1:]
    assert mean.shape == sd.shape == (30, 2)
    close(torch.tensor(found["mean"].to_numpy()), mean.mean(0) * unit)
    total = (sd.square().mean(0) + mean.var(0, correction=0)).sqrt() * unit
    close(torch.tensor(found["sd"].to_numpy()), total)
    for wrong in (None, "model"):
        with pytest.raises(SettingError, match=r"coefficients\('draws'\)"):
            fit.coefficients(wrong)
    with pytest.raises(NotApplicable, match="without regressors"):
        fitted(NUMBERS, Dataset(data.X[:, :1], data.y)).coefficients("draws")


def test_bad_input_is_refused_in_one_sentence() -> None:
    data = table(20)
    with pytest.raises(SettingError, match=r"one column of X.*3 columns.*regressors=Normal"):
        fitted(StateSpaceGP(), data)
    for prior in (Normal(1.0, 1.0), HalfNormal(1.0), 2.0):
        with pytest.raises(SettingError, match=r"Normal\(0, scale\)"):
            StateSpaceGP(regressors=prior)
    with pytest.raises(SettingError, match=r"each of 2 regressors.*3 scales"):
        fitted(StateSpaceGP(regressors=Normal(0.0, (1.0, 2.0, 3.0))), data)
    fit = fitted(StateSpaceGP(Matern(1.5, 1.0, 1.0), 0.1, regressors=Normal()), data)
    for more in ({"exponentiate": True}, {"dispersion": 1.0}):
        with pytest.raises(SettingError, match="neither exponentiate nor dispersion"):
            fit.coefficients("draws", **more)
    with pytest.raises(DataError, match="NaN"):
        fit.predict(torch.full((1, 3), torch.nan))
