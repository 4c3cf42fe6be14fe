"""Stochastic variational GPs: the bound, natural gradients, and NUTS on the program."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import Trace_ELBO
from svgp_examples import F64, KERNEL, LIKELIHOODS, number, rows
from torch import Tensor

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.models import SGPR, SVGP

HYPER = {"kernel.variance": number(1.0), "kernel.lengthscale": number([1.0, 1.5])}


def at_prior(model: SVGP) -> dict[str, Tensor]:
    assert model.Z is not None
    m, k = len(model.Z), model.likelihood.latents
    shape = (k, m) if k > 1 else (m,)
    return {
        **HYPER,
        "v_loc": torch.zeros(shape, dtype=F64),
        "v_scale_tril": torch.eye(m, dtype=F64).expand(*shape, m),
    }


def stepped(
    model: SVGP, theta: dict[str, Tensor], data: Dataset, rate: float, times: int
) -> dict[str, Tensor]:
    for _ in range(times):
        result = model.natural(theta, data.X, data.y, total=data.n, rate=rate)
        assert result is not None
        theta = {**theta, **result[0]}
    return theta


def test_one_natural_step_reaches_the_collapsed_optimum() -> None:
    """ELBO <= SGPR's bound <= evidence <= upper bound; one full step closes the first gap."""
    data = rows()
    model = SVGP(KERNEL, 12, likelihoods.Gaussian(0.1), mean=0.0).prepare(data)
    theta = at_prior(model)
    sgpr = SGPR(KERNEL, noise=0.1, mean=0.0, Z=model.Z)
    lower, upper = sgpr.bounds(HYPER, data)
    C = KERNEL({k[7:]: v for k, v in HYPER.items()}, data.X) + 0.1 * torch.eye(data.n, dtype=F64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(data.n, dtype=F64), C).log_prob(
        data.y
    )
    assert (
        float(model.elbo(theta, data.X, data.y, total=data.n))
        < float(lower)
        < float(evidence)
        < float(upper)
    )
    best = stepped(model, theta, data, 1.0, 1)
    assert float(model.elbo(best, data.X, data.y, total=data.n)) == pytest.approx(
        float(lower), abs=1e-8
    )
    mean, covariance = sgpr.inducing_posterior({k: v[None] for k, v in HYPER.items()}, data)
    from ppgp.numerics.cholesky import inducing_root

    L = inducing_root(KERNEL({k[7:]: v for k, v in HYPER.items()}, model.Z))
    torch.testing.assert_close(L @ best["v_loc"], mean[0], atol=1e-7, rtol=1e-7)
    root = L @ best["v_scale_tril"]
    torch.testing.assert_close(root @ root.mT, covariance[0], atol=1e-7, rtol=1e-7)


def test_with_all_rows_the_bound_is_the_evidence() -> None:
    data = rows(25)
    model = SVGP(KERNEL, likelihood=likelihoods.Gaussian(0.1), selection="all", mean=0.0).prepare(
        data
    )
    best = stepped(model, at_prior(model), data, 1.0, 1)
    C = KERNEL({k[7:]: v for k, v in HYPER.items()}, data.X) + 0.1 * torch.eye(data.n, dtype=F64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(data.n, dtype=F64), C).log_prob(
        data.y
    )
    bound = float(model.elbo(best, data.X, data.y, total=data.n))
    assert bound <= float(evidence)
    assert bound == pytest.approx(float(evidence), abs=1e-5)  # the jitter of 1e-8 times n / noise


def test_white_stays_in_f() -> None:
    """White of variance w in f lowers E log p(y given f) by w / (2 noise) per row, if Z = X."""
    data, w, noise = rows(25), 0.3, 0.2
    kernel = kernels.RBF(1.2, 0.8) + kernels.White(w)
    model = SVGP(kernel, likelihood=likelihoods.Gaussian(noise), selection="all", mean=0.0).prepare(
        data
    )
    best = stepped(model, at_prior(model), data, 1.0, 1)
    C = kernels.RBF(1.2, 0.8)({}, data.X) + noise * torch.eye(data.n, dtype=F64)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(data.n, dtype=F64), C).log_prob(
        data.y
    )
    assert float(model.elbo(best, data.X, data.y, total=data.n)) == pytest.approx(
        float(evidence) - data.n * w / (2 * noise), abs=1e-4
    )
    exact = models.GP(kernels.RBF(1.2, 0.8), noise=noise, mean=0.0).predict(
        {}, data.X[:5] + 0.1, data
    )
    q = {k: best[k] for k in ("v_loc", "v_scale_tril")}
    ours = model.predict(q, data.X[:5] + 0.1, data)
    torch.testing.assert_close(ours.mean, exact.mean, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.variance, exact.variance + w, atol=1e-4, rtol=0)


@pytest.mark.parametrize("q", ["full", "mean_field"])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_elbo_of_pyro_agrees_in_expectation(kind: str, q: str) -> None:
    """Trace_ELBO draws v and includes the log prior of the hyperparameters; ours integrates v."""
    data = rows(kind=kind)
    model = SVGP(KERNEL, 8, LIKELIHOODS[kind], q=q).prepare(data)
    with pyro.get_param_store().scope(), torch.random.fork_rng():
        pyro.set_rng_seed(0)
        loss = Trace_ELBO()
        loss.loss(model.model, model.guide, data.X, data.y)  # creates the params
        store = pyro.get_param_store()
        with torch.no_grad():
            store["v_loc"].add_(0.3 * torch.randn_like(store["v_loc"]))
        params = {k: v.detach() for k, v in store.items()}
        values = {k[: -len(".value")]: v for k, v in params.items() if k.endswith(".value")}
        theta = {
            **values,
            **{k: params[k] for k in params if k.startswith("v_") or k == "inducing"},
        }
        draws = torch.tensor(
            [-loss.loss(model.model, model.guide, data.X, data.y) for _ in range(80)]
        )
        prior = sum(
            float(s.distribution(data.X).log_prob(values[k]).sum())
            for k, s in model._hyperparameters(2).items()
            if k in values
        )
        ours = float(model.elbo(theta, data.X, data.y, total=data.n)) + prior
    assert abs(float(draws.mean()) - ours) < 4 * float(draws.std()) / math.sqrt(len(draws))


def test_a_mini_batch_is_unbiased() -> None:
    data = rows()
    model = SVGP(KERNEL, 8, likelihoods.Gaussian(0.1)).prepare(data)
    theta = stepped(model, at_prior(model), data, 0.5, 2)
    whole = float(model.elbo(theta, data.X, data.y, total=data.n))
    parts = [
        float(model.elbo(theta, data.X[i : i + 10], data.y[i : i + 10], total=data.n))
        for i in range(0, 40, 10)
    ]
    assert sum(parts) / 4 == pytest.approx(whole, rel=1e-10)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_natural_steps_end_at_a_stationary_point(kind: str) -> None:
    data = rows(kind=kind)
    model = SVGP(KERNEL, 8, LIKELIHOODS[kind], learn=False).prepare(data)
    theta = stepped(model, at_prior(model), data, 0.5, 80)
    q = {k: theta[k].clone().requires_grad_(True) for k in ("v_loc", "v_scale_tril")}
    value = model.elbo({**theta, **q}, data.X, data.y, total=data.n)
    slopes = torch.autograd.grad(value, list(q.values()))
    assert (
        max(float(s.tril().abs().max()) if s.ndim > 1 else float(s.abs().max()) for s in slopes)
        < 1e-5
    )


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_gradient_of_the_moments(shape: tuple[int, ...]) -> None:
    """Compare derivatives of the hand-written backward pass with finite differences."""
    from ppgp.models.sparse.whitened import marginals

    g = torch.Generator().manual_seed(1)
    m, b = 4, 6
    half = (torch.randn(m, m, generator=g, dtype=F64) + 3 * torch.eye(m, dtype=F64)).requires_grad_(
        True
    )
    Kmn = torch.randn(m, b, generator=g, dtype=F64, requires_grad=True)
    loc = torch.randn(*shape, m, generator=g, dtype=F64, requires_grad=True)
    W = torch.randn(*shape, m, m, generator=g, dtype=F64, requires_grad=True)
    diagonal = torch.full((b,), 50.0, dtype=F64)

    def both(half: Tensor, Kmn: Tensor, loc: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return marginals(half @ half.mT, Kmn, diagonal, loc, W)

    assert torch.autograd.gradcheck(both, (half, Kmn, loc, W))
    assert torch.autograd.gradgradcheck(both, (half, Kmn, loc, W))


def test_nuts_draws_the_optimal_q() -> None:
    """At fixed hyperparameters: q(u) of SGPR if m < n, and the exact posterior of f if Z = X."""
    data = rows(20)
    fixed = kernels.RBF(variance=1.0, lengthscale=1.2)
    for model in (
        SVGP(fixed, 5, likelihoods.Gaussian(0.1), learn=False, mean=0.0),
        SVGP(fixed, likelihood=likelihoods.Gaussian(0.1), selection="all", learn=False, mean=0.0),
    ):
        ready = model.prepare(data)
        target = Target(ready, data)
        posterior = inference.NUTS(draws=400, warmup=300, chains=2)(target, seed=1)
        best = stepped(
            ready, {k: v for k, v in at_prior(ready).items() if k not in HYPER}, data, 1.0, 1
        )
        for j in range(len(best["v_loc"])):
            draws = posterior.draws["v"][..., j]
            ess = ppgp.diagnostics.ess(draws.numpy())
            sd = float((best["v_scale_tril"] @ best["v_scale_tril"].mT)[j, j].sqrt())
            assert abs(float(draws.mean()) - float(best["v_loc"][j])) < 4.5 * sd / math.sqrt(ess)
        distribution = posterior.model.predict(posterior.theta, data.X, data)
        exact = models.SGPR(fixed, noise=0.1, mean=0.0, Z=ready.Z).predict({}, data.X, data)
        mean = distribution.mean.mean(0)
        error = distribution.mean.std(0) / math.sqrt(100)
        assert bool(((mean - exact.mean[0]).abs() < 5 * error).all())


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "student_t"])
def test_nuts_over_whitened_f_agrees_with_quadrature(kind: str) -> None:
    """Compare the posterior mean of f at two rows, with Z = X, with a grid over f."""
    X = number([[0.0], [0.7]])
    y = {
        "bernoulli": number([1.0, 0.0]),
        "poisson": number([3.0, 0.0]),
        "student_t": number([2.0, -0.1]),
    }[kind]
    fixed = kernels.RBF(variance=1.5, lengthscale=1.0)
    lik = LIKELIHOODS[kind]
    data = Dataset(X, y)
    ready = SVGP(fixed, likelihood=lik, selection="all", learn=False, mean=0.0).prepare(data)
    posterior = inference.NUTS(draws=600, warmup=300, chains=2)(Target(ready, data), seed=2)
    means = posterior.model.latent(posterior.theta, X, data).mean
    K = fixed({}, X)
    grid = torch.linspace(-7, 7, 401, dtype=F64)
    f = torch.cartesian_prod(grid, grid)
    log = torch.distributions.MultivariateNormal(torch.zeros(2, dtype=F64), K).log_prob(
        f
    ) + lik.distribution({}, f).log_prob(y).sum(-1)
    weight = torch.softmax(log, 0)
    exact = weight @ f
    for j in range(2):
        ess = ppgp.diagnostics.ess(means[:, j].reshape(2, -1).numpy())
        assert abs(float(means[:, j].mean() - exact[j])) < 4 * float(means[:, j].std()) / math.sqrt(
            ess
        )


@pytest.mark.parametrize(
    ("act", "error", "sentence"),
    [
        (
            lambda: SVGP(kernels.Subspace(KERNEL, [5])).prepare(rows()),
            SettingError,
            "at least 6 columns",
        ),
        (lambda: SVGP(KERNEL, 50).prepare(rows()), SettingError, "between 1 and n = 40"),
        (
            lambda: SVGP(KERNEL, Z=torch.zeros(3, 2, dtype=F64)).prepare(rows()),
            DataError,
            "duplicates",
        ),
        (lambda: SVGP(KERNEL, 0), SettingError, "positive whole number"),
        (lambda: SVGP(KERNEL, objective="elboo"), UnknownName, "did you mean 'elbo'"),
        (lambda: SVGP(KERNEL, q="natural", objective="ppgpr"), SettingError, "leave q out"),
        (
            lambda: SVGP(KERNEL, likelihood=likelihoods.Bernoulli()).prepare(rows()),
            DataError,
            "labels 0 to 1",
        ),
        (
            lambda: SVGP(KERNEL, likelihood=likelihoods.Poisson()).prepare(rows()),
            DataError,
            "counts 0, 1, 2",
        ),
        (lambda: SVGP(KERNEL, learn=False).model(rows().X), SettingError, "call prepare"),
        (lambda: SVGP(KERNEL, 5, selection="all").prepare(rows()), SettingError, "inducing=None"),
        (
            lambda: ppgp.fit(SVGP(KERNEL, 5), rows(), inference.SVI(batch_size=41), progress=False),
            SettingError,
            "batch_size of at most n = 40",
        ),
        (
            lambda: ppgp.fit(
                models.GP(), rows(), inference.SVI("normal", batch_size=10), progress=False
            ),
            NotApplicable,
            "SVGP",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_invalid_input_raises_a_clear_error(
    act: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        act()
