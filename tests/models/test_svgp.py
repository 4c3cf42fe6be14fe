"""Stochastic variational GPs: the bound, natural gradients, and NUTS on the program."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import SVI as PyroSVI
from pyro.infer import Trace_ELBO
from scipy import integrate, stats
from torch import Tensor

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.models import SGPR, SVGP
from ppgp.target import Target

F64 = torch.float64
LIKELIHOODS = {
    "gaussian": likelihoods.Gaussian(0.1),
    "student_t": likelihoods.StudentT(4.0, 0.3),
    "bernoulli": likelihoods.Bernoulli(),
    "probit": likelihoods.Bernoulli("probit"),
    "poisson": likelihoods.Poisson(),
    "categorical": likelihoods.Categorical(),
}


def number(x: Any) -> Tensor:
    return torch.tensor(x, dtype=F64)


def rows(n: int = 40, kind: str = "gaussian", seed: int = 0) -> Dataset:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    f = torch.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    noise = torch.randn(n, generator=g, dtype=F64)
    if kind in ("bernoulli", "probit"):
        return Dataset(X, (f + 0.5 * noise > 0).to(F64))
    if kind == "categorical":
        return Dataset(X, (f > -0.4).to(F64) + (f > 0.5))
    if kind == "poisson":
        return Dataset(X, torch.poisson(f.exp(), generator=g))
    return Dataset(X, f + 0.3 * noise)


KERNEL = kernels.ARD(kernels.RBF())
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
    from ppgp.numerics.collapsed_bound import inducing_root

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
            [-loss.loss(model.model, model.guide, data.X, data.y) for _ in range(200)]
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
    from ppgp.numerics.whitened import marginals

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


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_marginal_distribution_equals_the_integral(kind: str) -> None:
    """Compare with E p(y given f) by adaptive quadrature, or by many draws for classes."""
    lik = LIKELIHOODS[kind]
    if kind == "categorical":
        lik = likelihoods.Categorical(3)
        mean, variance = number([[[0.3], [-0.5], [1.0]]]), number([[[0.4], [1.5], [0.2]]])
        distribution = lik.marginal({}, mean, variance)
        g = torch.Generator().manual_seed(0)
        f = mean[0, :, 0] + variance[0, :, 0].sqrt() * torch.randn(
            200_000, 3, generator=g, dtype=F64
        )
        p = torch.softmax(f, -1)
        error = (
            4 * p.std(0) / math.sqrt(len(p)) + 1e-3
        )  # plus the error of 1,024 quasi-random points
        assert bool(((distribution.probs[0, 0] - p.mean(0)).abs() < error).all())
        return
    for m, v in ((0.4, 0.3), (-1.0, 4.0)):
        distribution = lik.marginal({}, number([[m]]), number([[v]]))
        for y in [0.0, 1.0] if kind in ("bernoulli", "probit") else [0.0, 2.0]:

            def integrand(f: float, y: float = y, m: float = m, v: float = v) -> float:
                return float(
                    lik.distribution({}, number([f])).log_prob(number([y])).exp()
                ) * stats.norm.pdf(f, m, math.sqrt(v))

            exact = integrate.quad(
                integrand, m - 9 * v**0.5, m + 9 * v**0.5, points=[y, m], limit=200
            )[0]
            assert float(distribution.log_prob(number([y])).exp()) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_expected_log_likelihood_equals_the_integral(kind: str) -> None:
    lik = LIKELIHOODS[kind]
    g = torch.Generator().manual_seed(0)
    if kind == "categorical":
        lik = likelihoods.Categorical(3)
        mean, variance = number([[0.3], [-0.5], [1.0]]), number([[0.4], [1.5], [0.2]])
        f = mean[..., None] + variance[..., None].sqrt() * torch.randn(
            3, 1, 100_000, generator=g, dtype=F64
        )
        each = torch.log_softmax(f, 0)[2, 0]
        value = float(lik.expected({}, mean, variance, number([2.0])))
        assert abs(value - float(each.mean())) < 4 * float(each.std()) / math.sqrt(100_000) + 2e-3
        return
    mean, variance, y = number([0.4]), number([0.5]), number([1.0])

    def integrand(f: float) -> float:
        return float(lik.distribution({}, number([f])).log_prob(y)) * stats.norm.pdf(
            f, 0.4, math.sqrt(0.5)
        )

    exact = integrate.quad(integrand, 0.4 - 6.5, 0.4 + 6.5, limit=200)[0]
    assert float(lik.expected({}, mean, variance, y)) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("rate", [0.5, 30.0, 2000.0])
def test_poisson_lognormal_against_quadrature(rate: float) -> None:
    from ppgp.numerics.distributions import PoissonLogNormal

    m, s = math.log(rate), 0.6
    distribution = PoissonLogNormal(number([m]), number([s]))
    for k in {0, int(rate), int(2 * rate)}:
        points = [math.log(max(k, 0.5))]
        mass = integrate.quad(
            lambda x, k=k: stats.poisson.pmf(k, np.exp(x)) * stats.norm.pdf(x, m, s),
            m - 6,
            m + 6,
            points=points,
            limit=500,
        )[0]
        upto = integrate.quad(
            lambda x, k=k: stats.poisson.cdf(k, np.exp(x)) * stats.norm.pdf(x, m, s),
            m - 6,
            m + 6,
            points=points,
            limit=500,
        )[0]
        assert float(distribution.log_prob(number([float(k)])).exp()) == pytest.approx(
            mass, rel=1e-6, abs=1e-12
        )
        assert float(distribution.cdf(number([float(k)]))) == pytest.approx(upto, abs=1e-6)
    draws = distribution.sample((200_000,))[:, 0].to(F64)
    assert abs(float(draws.mean()) - float(distribution.mean)) < 4 * float(draws.std()) / math.sqrt(
        len(draws)
    )


@pytest.mark.parametrize("how", ["stochastic", "deterministic"])
def test_svi_reaches_the_optimum_of_sgpr(how: str) -> None:
    """SVGP with the best q has the bound of SGPR, so with fixed Z both have one optimum."""
    data = rows(60)
    ready: dict[str, Any] = {"kernel": KERNEL, "inducing": 10, "learn": False}
    svi = inference.SVI(method=how, steps=600, patience=100)
    fitted = ppgp.fit(SVGP(**ready), data, svi, progress=False)
    collapsed = ppgp.fit(SGPR(**ready), data, inference.MAP(), progress=False)
    assert fitted.stats["objective"] == pytest.approx(collapsed.stats["log_density"], abs=1e-3)
    new = torch.randn(5, 2, generator=torch.Generator().manual_seed(3), dtype=F64)
    torch.testing.assert_close(
        fitted.predict(new).mean, collapsed.predict(new).mean, atol=5e-3, rtol=0.0
    )
    torch.testing.assert_close(
        fitted.predict(new).std, collapsed.predict(new).std, atol=5e-3, rtol=0.0
    )


def test_the_elbo_is_a_bound_of_the_evidence_given_theta() -> None:
    """The objective less log p(theta) stays below log p(y given theta) of the exact GP."""
    svi = inference.SVI(method="deterministic")
    fitted = ppgp.fit(SVGP(KERNEL, 12, learn=False), rows(60), svi, progress=False)
    theta = {k: v[0, 0] for k, v in fitted.draws.items()}
    hyper = {
        k.removeprefix("kernel."): v[None] for k, v in theta.items() if k.startswith("kernel.")
    }
    K = fitted.model.kernel(hyper, fitted.data.X)[0] + theta["noise"] * torch.eye(60, dtype=F64)
    distribution = torch.distributions.MultivariateNormal(torch.zeros(60, dtype=F64), K)
    evidence = float(distribution.log_prob(fitted.data.y))
    assert evidence - 5 < fitted.stats["elbo"] < evidence + 1e-6
    program = pyro.poutine.condition(fitted.model.model, theta)
    nodes = pyro.poutine.trace(program).get_trace(fitted.data.X[:1]).nodes
    prior = sum(float(nodes[k]["fn"].log_prob(nodes[k]["value"]).sum()) for k in theta if k != "v")
    assert fitted.stats["objective"] - fitted.stats["elbo"] == pytest.approx(prior)


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
@pytest.mark.parametrize("q", ["full", "mean_field"])
def test_other_guides_stay_below_the_optimum(q: str) -> None:
    data = rows(60)
    best = ppgp.fit(SGPR(KERNEL, 10, learn=True), data, inference.MAP(), progress=False).stats[
        "log_density"
    ]
    fitted = ppgp.fit(
        SVGP(KERNEL, 10, q=q), data, inference.SVI(steps=800, patience=150), progress=False
    )
    assert fitted.stats["objective"] < best + 1e-6
    assert fitted.stats["objective"] > best - 30


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_ppgpr_predicts_as_well_and_is_not_a_bound() -> None:
    data = rows(200)
    test = rows(200, seed=5)
    svi = inference.SVI(steps=800, patience=150, batch_size=50)
    fitted = ppgp.fit(SVGP(KERNEL, 20, objective="ppgpr"), data, svi, progress=False)
    plain = ppgp.fit(SVGP(KERNEL, 20), data, svi, progress=False)
    ours, theirs = (ppgp.metrics.nll(p.predict(test.X), test.y) for p in (fitted, plain))
    assert ours < theirs + 0.2
    assert fitted.stats["objective"] > plain.stats["objective"]
    assert fitted.stats["elbo"] < plain.stats["elbo"]


def test_a_loaded_posterior_predicts_the_same(tmp_path: Any) -> None:
    data = rows(kind="bernoulli")
    fitted = ppgp.fit(
        SVGP(KERNEL, 6, likelihoods.Bernoulli()), data, inference.SVI().quick(), progress=False
    )
    fitted.save(tmp_path / "p.safetensors")
    again = ppgp.load_posterior(tmp_path / "p.safetensors")
    torch.testing.assert_close(
        again.predict(data.X).probabilities, fitted.predict(data.X).probabilities
    )


def test_plain_pyro_fits_it() -> None:
    data = rows()
    model = SVGP(KERNEL, 8).prepare(data)
    with pyro.get_param_store().scope(), torch.random.fork_rng():
        pyro.set_rng_seed(0)
        loop = PyroSVI(model.model, model.guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
        losses = [
            loop.step(data.X[i : i + 20], data.y[i : i + 20], total=40)
            for _ in range(200)
            for i in (0, 20)
        ]
    assert sum(losses[-50:]) < sum(losses[:50])


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


@pytest.mark.parametrize("kind", ["Bernoulli", "Categorical", "Poisson", "StudentT"])
def test_a_row_where_f_is_certain_does_not_change_the_gradient(kind: str) -> None:
    """Under a linear kernel f(0) = 0; the gradient is the same without that row."""
    likelihood = {
        "Bernoulli": likelihoods.Bernoulli(),
        "Categorical": likelihoods.Categorical(2),
        "Poisson": likelihoods.Poisson(),
        "StudentT": likelihoods.StudentT(4.0, 0.5),
    }[kind]
    shape = (2, 3) if kind == "Categorical" else (3,)
    Z = torch.tensor([[-1.0], [0.5], [2.0]], dtype=F64)
    X, y = torch.tensor([[-1.5], [1.0], [0.0]], dtype=F64), torch.tensor([0.0, 1.0, 1.0], dtype=F64)
    model = SVGP(kernels.Linear(), likelihood=likelihood, Z=Z)

    def slope(rows: int) -> Tensor:
        variance = torch.ones((), dtype=F64, requires_grad=True)
        q = {
            "v_loc": torch.full(shape, 0.3, dtype=F64),
            "v_scale_tril": 0.5 * torch.eye(3, dtype=F64).expand(*shape, 3),
        }
        theta = {"kernel.variance": variance, "inducing": Z, **q}
        return torch.autograd.grad(model.elbo(theta, X[:rows], y[:rows], total=rows), variance)[0]

    torch.testing.assert_close(slope(3), slope(2))


@pytest.mark.parametrize("given", [False, True], ids=["selected", "by hand"])
def test_nested_subset_models_keep_the_number_of_inducing_inputs(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past 2,048 rows the subset model has its own; inputs given by hand are not placed again."""
    from ppgp.models import sgpr

    monkeypatch.setattr(sgpr, "SUBSET_ROWS", 30)
    x = torch.linspace(-3, 3, 80, dtype=F64)[:, None]
    Z = x[5::12] if given else None
    model = models.SVGP(kernels.RBF(), inducing=None if given else 7, Z=Z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = ppgp.fit(
            model,
            Dataset(x, torch.sin(x[:, 0])),
            inference.SVI(steps=1),
            progress=False,
            standardise=False,
        )
    end = posterior.params["inducing"]
    assert end.shape == (7, 1)
    if Z is not None:
        assert float((end - Z).abs().max()) < 1.0  # moved by gradient, not placed again
