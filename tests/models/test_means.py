"""The mean of a Gaussian process as a function: a fit to y - m(X) with m(X) added back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models, priors
from ppgp.errors import NotApplicable
from ppgp.kernels import Matern
from ppgp.models import GP, SGPR, SKI, GridGP, Kriging, LinearMean, Model, StateSpaceGP, Vecchia

F64 = torch.float64
N = 24
G = torch.Generator().manual_seed(0)
X = 5 + 30 * torch.rand(N, 1, generator=G, dtype=F64)
PLACES = 6 + 28 * torch.rand(5, 1, generator=G, dtype=F64)
LATER = X.amax() + torch.tensor([[0.5], [1.0], [2.5]], dtype=F64)
NOISE = torch.randn(N + 3, generator=G, dtype=F64)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def parabola(x: Tensor) -> Tensor:
    """A known mean, in the units of the data."""
    return 3.0 * x[:, 0] - 0.05 * x[:, 0].square()


def line(x: Tensor) -> Tensor:
    return 1.5 * x[:, 0] + 2.0


MEANS: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "function": (parabola, parabola),
    "linear": (LinearMean(1.5, 2.0), line),
}

Y = parabola(X) + 4 * torch.sin(X[:, 0]) + NOISE[:N]
NEW_Y = parabola(LATER) + 4 * torch.sin(LATER[:, 0]) + NOISE[N:]
KERNEL = Matern(1.5, 9.0, 2.0)
SUM = Matern(1.5, 9.0, 2.0) + Matern(0.5, 2.0, 20.0)
T = likelihoods.StudentT(4.0, 1.2)
Z = X[::3].clone()

MODELS: dict[str, Callable[[Any], Model]] = {
    "GP": lambda mean: GP(SUM, 1.0, mean),
    "SGPR": lambda mean: SGPR(KERNEL, noise=1.0, mean=mean, Z=Z),
    "StateSpaceGP": lambda mean: StateSpaceGP(SUM, 1.0, mean),
    "Vecchia": lambda mean: Vecchia(KERNEL, 1.0, 6, drift="none", mean=mean),
    "SKI": lambda mean: SKI(Matern(1.5, 9.0, 9.0), 64, 1.0, mean, margin=0.3),
    "Kriging": lambda mean: Kriging(KERNEL, 1.0, "none", mean),
    "Kriging of neighbours": lambda mean: Kriging(KERNEL, 1.0, "none", mean, neighbours=6),
    "GridGP": lambda mean: GridGP(KERNEL, 1.0, mean),
    "LatentGP": lambda mean: GP(KERNEL, mean=mean, likelihood=T),
    "LatentStateSpaceGP": lambda mean: StateSpaceGP(KERNEL, mean=mean, likelihood=T),
    "LatentVecchia": lambda mean: Vecchia(KERNEL, neighbours=6, mean=mean, likelihood=T),
}


def fit(model: Model, data: Dataset, standardise: bool = True, how: Any = None) -> ppgp.Posterior:
    how = how or inference.MAP()
    return ppgp.fit(model, data, how, progress=False, standardise=standardise)


def less(m: Callable[[Tensor], Tensor]) -> Dataset:
    return Dataset(X, Y - m(X))


def found(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the mean and the second moments of what a call predicts, or that it does not."""
    try:
        prediction = call(*arguments, **options)
    except NotApplicable as error:
        return type(error)
    law = getattr(prediction, "distribution", prediction)
    spread = getattr(law, "covariance_matrix", None)
    offset, scale = getattr(prediction, "offset", 0.0), getattr(prediction, "scale", 1.0)
    second = law.variance if spread is None else spread
    return offset + scale * law.mean, scale**2 * second


def same(one: Any, other: Any, level: Tensor) -> None:
    if isinstance(one, type):
        assert one is other
        return
    torch.testing.assert_close(one[0], other[0] + level, **EXACT)
    torch.testing.assert_close(one[1], other[1], **EXACT)


FAST = ("StateSpaceGP", "constant")  # of the models and means with several draws
SLOW = ("LatentStateSpaceGP", "LatentVecchia")


def cases() -> list[Any]:
    """Every model with a function, and the slower rest of the combinations."""
    every = []
    for name in MODELS:
        for given in MEANS:
            for standardise in (True, False):
                fast = given == "function" and standardise and name not in SLOW
                marks = () if fast else (pytest.mark.slow,)
                every.append(pytest.param(name, given, standardise, marks=marks))
    return every


@pytest.mark.parametrize(("name", "given", "standardise"), cases())
def test_it_is_the_fit_to_the_rest_of_y(name: str, given: str, standardise: bool) -> None:
    mean, m = MEANS[given]
    ours = fit(MODELS[name](mean), Dataset(X, Y), standardise)
    rest = fit(MODELS[name](0.0), less(m), standardise)
    assert ours.stats["log_density"] - ours.scaler.log_scale(ours.data) == pytest.approx(
        rest.stats["log_density"] - rest.scaler.log_scale(rest.data), abs=1e-8
    )
    for places in (PLACES, X[:4]):
        same(found(ours.predict, places), found(rest.predict, places), m(places))
    same(found(ours.latent, PLACES), found(rest.latent, PLACES), m(PLACES))
    same(found(ours.loo), found(rest.loo), m(X))
    if not isinstance(ours.model, models.LatentGP | models.LatentStateSpaceGP):
        pair = [found(p.predict, PLACES, joint=True) for p in (ours, rest)]
        same(*pair, m(PLACES))
    if isinstance(ours.model, Kriging):
        blocks = torch.stack([PLACES, PLACES + 1.0], 1)
        laws = [p.model.block(p.theta, blocks, p.data) for p in (ours, rest)]
        level = 0.5 * (m(PLACES) + m(PLACES + 1.0))
        torch.testing.assert_close(laws[0].mean, laws[1].mean + level, **EXACT)
        torch.testing.assert_close(laws[0].stddev, laws[1].stddev, **EXACT)
    if isinstance(ours.model, GP | StateSpaceGP):
        parts, others = ours.components(PLACES), rest.components(PLACES)
        for term, part in parts.items():
            same(found(lambda p: p, part), found(others.__getitem__, term), torch.zeros(5))
    # on another scale the states have other roots, and the functions are other draws
    if isinstance(ours.model, GP | GridGP) or (not standardise and name == "StateSpaceGP"):
        paths = [p.pathwise(3, features=None, seed=0)(PLACES) for p in (ours, rest)]
        torch.testing.assert_close(paths[0], paths[1] + m(PLACES), **EXACT)


def line_model(kind: str, mean: Any, kernel: kernels.Kernel) -> Model:
    """Return the exact process by three algorithms."""
    if kind == "GP":
        return GP(kernel, 1.0, mean)
    if kind == "StateSpaceGP":
        return StateSpaceGP(kernel, 1.0, mean)
    return Vecchia(kernel, 1.0, N - 1, drift="none", mean=mean)


@pytest.mark.parametrize(
    "kind", ["GP", pytest.param("StateSpaceGP", marks=pytest.mark.slow), "Vecchia"]
)
def test_integrated_weights_are_those_of_linear_and_constant_kernels(kind: str) -> None:
    """log p(y | w) + log p(w) - log p(w | y) is the same at any w; Chib (1995)."""
    mean = LinearMean(priors.Normal(0.5, 2.0), priors.Normal(-3.0, 30.0))
    data = Dataset(X, Y)
    C = KERNEL({}, X) + torch.eye(N, dtype=F64)
    F = torch.cat([X, torch.ones_like(X)], 1)
    prior = torch.diag(torch.tensor([0.25, 1 / 900], dtype=F64))
    P = F.T @ torch.linalg.solve(C, F) + prior
    centre = torch.tensor([0.5, -3.0], dtype=F64)
    middle = torch.linalg.solve(P, F.T @ torch.linalg.solve(C, Y) + prior @ centre)
    w = middle + torch.tensor([0.1, -2.0], dtype=F64)
    values = {"mean.weight": w[:1], "mean.bias": w[1]}
    given_w = line_model(kind, mean, KERNEL).log_evidence(data, values)
    Normal = torch.distributions.MultivariateNormal
    of_w = Normal(centre, precision_matrix=prior).log_prob(w)
    after = Normal(middle, precision_matrix=P).log_prob(w)
    wide = KERNEL + kernels.Linear(4.0) + kernels.Constant(900.0)
    m = LinearMean(0.5, -3.0)
    whole = line_model(kind, m, wide).log_evidence(data)
    assert given_w + float(of_w - after) == pytest.approx(whole, abs=1e-7)
    # with numbers for the rest, the posterior of w is normal: Laplace is exact, and its mode
    # predicts what the wide kernel does
    ours = fit(line_model(kind, mean, KERNEL), data, False, inference.Laplace(draws=4))
    torch.testing.assert_close(ours.stats["mode"], middle, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.stats["covariance"], P.inverse(), rtol=1e-5, atol=1e-6)
    at_mode = replace(
        ours, draws={"mean.weight": middle[None, None, :1], "mean.bias": middle[1][None, None]}
    )
    theirs = fit(line_model(kind, m, wide), data, False)
    torch.testing.assert_close(
        at_mode.predict(PLACES).mean, theirs.predict(PLACES).mean, rtol=1e-7, atol=1e-7
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    ("name", "mean"),
    [
        pytest.param(name, mean, marks=() if (name, kind) == FAST else (pytest.mark.slow,))
        for name in MODELS
        for kind, mean in (("linear", LinearMean()), ("constant", priors.Normal()))
        if "Latent" not in name
    ],
)
def test_several_draws_predict_as_each_alone(name: str, mean: Any) -> None:
    """The mean alone is drawn: the other sites have no axis of draws."""
    one = fit(MODELS[name](mean), Dataset(X, Y), False)
    factors = torch.tensor([[1.0, 1.3, 0.6]], dtype=F64)
    draws = {
        k: v[:, :1] * factors.reshape(1, 3, *(1,) * (v.ndim - 2)) for k, v in one.draws.items()
    }
    several = replace(one, draws=draws)
    alone = [replace(one, draws={k: v[:, i : i + 1] for k, v in draws.items()}) for i in range(3)]
    calls: list[Callable[[ppgp.Posterior], Any]] = [
        lambda p: p.predict(PLACES),
        lambda p: p.predict(PLACES, joint=True),
        lambda p: p.latent(PLACES),
        lambda p: p.loo(),
        lambda p: p.one_step_ahead(LATER, NEW_Y),
        lambda p: p.update(LATER, NEW_Y).predict(PLACES),
    ]
    for call in calls:
        try:
            law: Any = call(several).distribution
        except NotApplicable:
            continue
        for i, posterior in enumerate(alone):
            own: Any = call(posterior).distribution
            torch.testing.assert_close(law.mean[i], own.mean[0], **EXACT)
            torch.testing.assert_close(law.variance[i], own.variance[0], **EXACT)
