"""Acquisition functions against integrals, closed forms and brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from jaxtyping import config
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

import ppgp
from ppgp import Dataset, acquisition, inference, kernels, models
from ppgp.acquisition import EI, UCB, LogEI, qEI, qUCB, suggest
from ppgp.distributions.standard_normal import log_improvement
from ppgp.errors import DataError, NotApplicable, SettingError

G = torch.Generator().manual_seed(0)
X = torch.rand(9, 2, generator=G, dtype=torch.float64) * 4 - 2
Y = 30.0 - 5.0 * (X - 0.4).square().sum(1)
NEW = torch.rand(5, 2, generator=G, dtype=torch.float64) * 4 - 2
BOUNDS = [(-2.0, 2.0), (-2.0, 2.0)]

RECIPES: dict[str, Any] = {
    "GP": models.GP(noise=1e-4),
    "SGPR": models.SGPR(inducing=6),
    "Kriging": models.Kriging(nugget=1e-4),
}


@cache
def fitted(name: str = "GP") -> ppgp.Posterior:
    """Return a posterior with three different draws of the hyperparameters."""
    fit = ppgp.fit(RECIPES[name], Dataset(X, Y), inference.MAP(steps=3), progress=False)
    factors = torch.tensor([[1.0, 1.3, 0.8]], dtype=torch.float64)
    return replace(fit, draws={site: value * factors for site, value in fit.draws.items()})


pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")


def moments(fit: ppgp.Posterior, at: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd [draw, m] of f in the units of the data, from ``latent``."""
    f = fit.latent(at)
    mean = torch.as_tensor(f.offset) + torch.as_tensor(f.scale) * f.distribution.mean
    return mean.numpy(), (torch.as_tensor(f.scale) * f.distribution.stddev).numpy()


@pytest.mark.parametrize("z", [-1e6, -1e3, -60.0, -40.0, -8.0, -1.001, -0.999, 0.0, 2.0, 30.0])
def test_the_log_of_the_improvement_is_that_of_the_integral(z: float) -> None:
    """E(Z + z)+ = pdf(z) times the integral of t exp(z t - t^2 / 2) over t > 0."""
    ours = float(log_improvement(torch.tensor(z, dtype=torch.float64)))
    if z > 5:
        assert ours == pytest.approx(math.log(norm.pdf(z) + z * norm.cdf(z)), rel=1e-14)
        return
    unit = 1 / max(1.0, -z)  # of t, which makes the integrand one of size 1
    value, _ = quad(lambda t: t * math.exp(z * unit * t - (unit * t) ** 2 / 2), 0, 60, epsabs=0)
    assert ours == pytest.approx(norm.logpdf(z) + 2 * math.log(unit) + math.log(value), rel=1e-10)


def test_the_slope_of_the_log_of_the_improvement_is_finite_everywhere() -> None:
    z = torch.tensor([-1e8, -1e4, -50.0, -1.0, 0.0, 50.0, 1e8], dtype=torch.float64)
    (slope,) = torch.autograd.grad(log_improvement(z.requires_grad_()).sum(), z)
    assert bool(torch.isfinite(slope).all())
    assert bool((slope > 0).all())
    z = torch.linspace(-60, 20, 9, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(log_improvement, z)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("maximise", [True, False])
def test_expected_improvement_is_the_mean_integral_over_the_draws(
    name: str, maximise: bool
) -> None:
    fit, best = fitted(name), 25.0
    mean, sd = moments(fit, NEW)
    sign = 1 if maximise else -1
    wanted = []
    for j in range(2):
        values = []
        for m, s in zip(mean[:, j], sd[:, j], strict=True):

            def gain(f: float, m: float = m, s: float = s) -> float:
                return max(sign * (f - best), 0.0) * norm.pdf(f, m, s)

            ends = (best, m + 12 * s) if maximise else (m - 12 * s, best)
            values.append(quad(gain, *ends)[0])
        wanted.append(np.mean(values))
    found = EI(maximise, best)(fit, NEW[:2])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(LogEI(maximise, best)(fit, NEW[:2]).exp(), found, rtol=1e-12)


def test_the_best_value_so_far_is_the_best_mean_at_the_training_rows() -> None:
    fit = fitted()
    mean, _ = moments(fit, X)
    for maximise, best in ((True, mean.mean(0).max()), (False, mean.mean(0).min())):
        explicit = LogEI(maximise, float(best))(fit, NEW)
        torch.testing.assert_close(LogEI(maximise)(fit, NEW), explicit, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", RECIPES)
def test_upper_confidence_bound(name: str) -> None:
    fit = fitted(name)
    mean, sd = moments(fit, NEW)
    np.testing.assert_allclose(UCB(beta=2.0)(fit, NEW), (mean + 2**0.5 * sd).mean(0), rtol=1e-10)
    np.testing.assert_allclose(UCB(False, 2.0)(fit, NEW), (2**0.5 * sd - mean).mean(0), rtol=1e-10)


@pytest.mark.parametrize("name", RECIPES)
def test_a_batch_of_one_place_is_the_function_of_one_place(name: str) -> None:
    """Up to the error of independent samples, which quasi-random ones stay below."""
    fit, samples = fitted(name), 4096
    one, sd = NEW[:1], float(moments(fit, NEW[:1])[1].max())
    limit = 4 * 2.0 * sd / samples**0.5
    near = float(moments(fit, one)[0].mean())
    found = float(qEI(best=near, samples=samples)(fit, one))
    assert found == pytest.approx(float(EI(best=near)(fit, one)), abs=limit)
    assert float(qUCB(beta=4.0, samples=samples)(fit, one)) == pytest.approx(
        float(UCB(beta=4.0)(fit, one)), abs=limit * 2.5
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_batch_of_two_is_the_mean_of_the_larger_of_two_normal_variables(name: str) -> None:
    """Clark (1961), with a best value that every f exceeds."""
    fit, two, samples, best = fitted(name), NEW[:2], 8192, -1e4
    joint = fit.predict(two, joint=True).distribution
    scale = float(fit.scaler.y_sd)
    noise = fit.theta.get("noise", torch.full((3,), 1e-4, dtype=torch.float64))
    wanted, sds = [], []
    for i in range(3):
        C = joint.covariance_matrix[i] - noise[i] * torch.eye(2)
        m = [float(fit.scaler.y_mean) + scale * float(v) for v in joint.mean[i]]
        spread = scale * float(C[0, 0] + C[1, 1] - 2 * C[0, 1]) ** 0.5
        a = (m[0] - m[1]) / spread
        wanted.append(m[0] * norm.cdf(a) + m[1] * norm.cdf(-a) + spread * norm.pdf(a) - best)
        sds.append(scale * float(C.diagonal().max()) ** 0.5)
    found = float(qEI(best=best, samples=samples)(fit, two))
    assert found == pytest.approx(np.mean(wanted), abs=4 * max(sds) / samples**0.5)


@pytest.mark.parametrize(
    "function",
    [EI(best=25.0), LogEI(), UCB(), qEI(best=25.0), qUCB()],
    ids=lambda f: type(f).__name__,
)
@pytest.mark.parametrize("name", RECIPES)
def test_gradients_are_those_of_finite_differences(name: str, function: Any) -> None:
    fit = fitted(name)
    ready = function.prepared(fit)
    at = NEW[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda X: ready(fit, X), at, eps=1e-5, atol=1e-4, rtol=1e-3)


def test_batches_are_valued_one_by_one() -> None:
    fit = fitted()
    sets = torch.stack([NEW[:2], NEW[2:4]])
    for function in (qEI(best=25.0), qUCB()):
        each = [function(fit, one) for one in sets]
        torch.testing.assert_close(function(fit, sets), torch.stack(each))


@pytest.mark.parametrize("function", [LogEI(), UCB(beta=9.0), LogEI(maximise=False)], ids=repr)
def test_the_suggestion_is_at_least_the_best_of_a_grid(function: Any) -> None:
    fit = fitted()
    line = torch.linspace(-2, 2, 41, dtype=torch.float64)
    grid = function(fit, torch.cartesian_prod(line, line)).max()
    place = suggest(fit, BOUNDS, acquisition=function, starts=4)
    assert place.shape == (1, 2)
    assert float(place.abs().max()) <= 2.0
    assert float(function(fit, place)) >= float(grid) - 1e-9
    assert torch.equal(place, suggest(fit, BOUNDS, acquisition=function, starts=4))


def test_a_suggested_batch_is_worth_more_than_one_place_twice() -> None:
    fit, function = fitted(), qUCB(samples=64)
    two = suggest(fit, BOUNDS, q=2, acquisition=function, starts=2, candidates=32)
    one = suggest(fit, BOUNDS, q=1, acquisition=function, starts=2, candidates=32)
    assert two.shape == (2, 2)
    assert float(function(fit, two)) > float(function(fit, one.expand(2, -1))) + 1e-3


def test_a_loop_finds_the_maximum() -> None:
    """A new measurement conditions the posterior; the hyperparameters stay."""
    fit = ppgp.fit(models.GP(kernels.RBF(400.0, 2.0), 1e-4), Dataset(X, Y), inference.MAP())
    for _ in range(5):
        place = suggest(fit, BOUNDS, starts=2, candidates=64)
        fit = fit.update(place, 30.0 - 5.0 * (place - 0.4).square().sum(1))
    assert float(fit.scaler.targets_back(fit.data.y).max()) > 30.0 - 0.01
    assert fit.data.n == 14


def test_bad_input_is_refused() -> None:
    fit = fitted()
    with pytest.raises(DataError, match=r"bounds of shape \[2, 2\]"):
        suggest(fit, [(0.0, 1.0)])
    with pytest.raises(DataError, match="the lower one first"):
        suggest(fit, [(0.0, 1.0), (1.0, 0.0)])
    with pytest.raises(SettingError, match=r"use qEI\(\) or qUCB\(\)"):
        suggest(fit, BOUNDS, q=2, acquisition=LogEI())
    with pytest.raises(SettingError, match="positive whole number as starts"):
        suggest(fit, BOUNDS, starts=0)
    with pytest.raises(DataError, match="as in training"):
        LogEI()(fit, NEW[:, :1])
    with pytest.raises(DataError, match="finite places"):
        LogEI()(fit, NEW * math.nan)
    with pytest.raises(DataError, match="places"):
        LogEI()(fit, NEW[0])
    with pytest.raises(SettingError, match="beta"):
        UCB(beta=-1.0)
    linear = ppgp.fit(models.LinearRegression(), Dataset(X, Y), inference.Exact())
    with pytest.raises(NotApplicable, match="joint Gaussian distribution of f"):
        qEI(best=1.0)(linear, NEW)
    assert acquisition.__all__


def test_numbers_of_python_keep_double_precision() -> None:
    fit = fitted()
    places = [[0.1, 0.3], [1.7, -0.7]]
    expected = acquisition.EI()(fit, np.array(places))
    torch.testing.assert_close(acquisition.EI()(fit, places), expected, rtol=1e-13, atol=0)
    found = acquisition.suggest(fit, [(0.1, 0.3), (-0.7, 0.1)], seed=0)
    assert bool((found[..., 0] >= 0.1).all() and (found[..., 0] <= 0.3).all())
    assert bool((found[..., 1] >= -0.7).all() and (found[..., 1] <= 0.1).all())


@pytest.mark.parametrize("q", [1, 2])
def test_a_batch_beside_the_best_row_without_noise_has_a_value(q: int) -> None:
    """The best row is a corner of the bounds, to which candidates are clamped."""
    rows = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    model = models.GP(kernels.RBF(1.0, 1.0), noise=0.0)
    fit = ppgp.fit(model, Dataset(rows, rows[:, 0]), inference.MAP(), progress=False)
    places = acquisition.suggest(fit, [(-1.0, 1.0)], q, acquisition.qEI(), seed=0)
    assert places.shape == (q, 1)
    value = acquisition.qEI()(fit, torch.ones(2, 1, dtype=torch.float64))
    assert float(value) == pytest.approx(0.0, abs=1e-4)


def test_places_near_each_other_have_a_value_in_single_precision() -> None:
    generator = torch.Generator().manual_seed(1)
    X = 10 * torch.rand(14, 1, generator=generator)
    y = 10 + 3 * torch.sin(X[:, 0]) + 0.3 * torch.randn(14, generator=generator)
    fits = [
        ppgp.fit(
            models.GP(kernels.RBF()), Dataset(X.to(d), y.to(d)), inference.MAP(), progress=False
        )
        for d in (torch.float32, torch.float64)
    ]
    for apart in (1e-3, 1e-4, 1e-5, 0.0):
        single, double = (float(acquisition.qUCB()(fit, [[3.0], [3.0 + apart]])) for fit in fits)
        assert single == pytest.approx(double, rel=5e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"acquisition": EI}, r"an instance .*, got the class EI: call it: EI\(\)"),
        ({"acquisition": "ei"}, r"got 'ei': write acquisition\.EI\(\)"),
        ({"acquisition": 3}, r"got an int: pass one of ppgp\.acquisition"),
        ({"q": "ei"}, "whole number as q, got 'ei': write acquisition="),
        ({"q": 2.5}, r"whole number as q, got 2\.5: use 1 or more"),
        ({"candidates": True}, "whole number as candidates, got True"),
    ],
)
def test_what_is_no_acquisition_or_number_is_refused(
    given: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    with pytest.raises((NotApplicable, SettingError), match=message):
        suggest(fitted(), BOUNDS, **given)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (UCB, (4.0,), r"maximise, the first argument of UCB, got 4\.0: .* write UCB\(beta=4\.0\)"),
        (UCB, (0,), r"got 0: if it is beta, write UCB\(beta=0\)"),
        (qUCB, (4.0,), r"write qUCB\(beta=4\.0\)"),
        (EI, (25.0,), r"write EI\(best=25\.0\)"),
        (LogEI, ("max",), "got 'max': write maximise=True or maximise=False"),
        (acquisition.Acquisition, (1.0,), "write maximise=True or maximise=False"),
        (EI, (True, math.nan), "a finite number, or None, as best, got nan"),
        (EI, (True, (1.0, 2.0)), r"as best, got \(1\.0, 2\.0\)"),
        (UCB, (True, "4"), "a finite beta of at least 0, got '4'"),
        (UCB, (True, math.inf), "a finite beta of at least 0, got inf"),
        (qEI, (True, None, 0), "a positive whole number as samples, got 0"),
        (qUCB, (True, "a"), "as samples, got 'a': use 1 or more"),
    ],
)
def test_arguments_of_another_meaning_are_refused(
    kind: Any, given: tuple[Any, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    with pytest.raises(SettingError, match=message):
        kind(*given)


def test_numbers_of_numpy_and_torch_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    given: Any = (np.bool_(False), torch.tensor(2.0))
    assert repr(EI(*given)) == repr(EI(False, 2.0))


def test_one_number_is_no_table_of_places() -> None:
    with pytest.raises(DataError, match=r"got one number: pass \[\[number\]\]"):
        LogEI()(fitted(), 0.5)


def test_what_is_no_posterior_or_no_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    ask: Any = suggest
    with pytest.raises(NotApplicable, match=r"got a GP: fit it first: ppgp\.fit\(model"):
        ask(models.GP(), BOUNDS)
    with pytest.raises(NotApplicable, match=r"got a str: pass what ppgp.fit returns"):
        ask("x", BOUNDS)
    with pytest.raises(NotApplicable, match=r"such as posterior\['p'\]"):
        ask(ppgp.MultiPosterior({"p": fitted()}), BOUNDS)
    with pytest.raises(DataError, match="got 'ab': pass"):
        ask(fitted(), "ab")
    with pytest.raises(DataError, match="got 'ab': pass numbers"):
        LogEI()(fitted(), "ab")
    data = Dataset(torch.cat([X, X[:, :1]], 1), Y)
    wide = ppgp.fit(models.GP(noise=1e-4), data, inference.MAP(steps=1), progress=False)
    with pytest.raises(DataError, match=r"the transpose of \[\[low, \.\.\.\]"):
        ask(wide, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])


def test_the_posterior_of_a_program_is_refused() -> None:
    def program(y: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    fit = ppgp.fit(program, {"y": Y}, inference.MAP(), progress=False)
    for call in (lambda: suggest(fit, BOUNDS), lambda: LogEI()(fit, NEW)):
        with pytest.raises(DataError, match="model on a table, got that of a program: fit a model"):
            call()
