"""Target: compiled equals eager equals Pyro's own potential; transforms, params, refusals."""

from __future__ import annotations

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from torch import Tensor
from torch.distributions import constraints

import ppgp
from ppgp import inference, kernels, models, priors
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import NotApplicable, NumericalError, NumericalWarning
from ppgp.models import Program
from ppgp.priors import LogNormal


def one(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def mixed(y: Tensor | None = None) -> None:
    """Every kind of support, a factor, a mask and a scale."""
    tau = pyro.sample("tau", dist.HalfCauchy(one(2)))
    share = pyro.sample("share", dist.Dirichlet(torch.ones(3, dtype=torch.float64)))
    u = pyro.sample("u", dist.Uniform(one(-1), one(3)))
    L = pyro.sample("L", dist.LKJCholesky(2, one(1.5)))
    pyro.factor("prior", -(u**2) * L[1, 0])
    with pyro.poutine.scale(scale=2.0), pyro.poutine.mask(mask=torch.tensor([True, False, True])):  # noqa: SIM117
        with pyro.plate("rows", 3):
            pyro.sample("y", dist.Normal(u * share, tau), obs=y)


Y = {"y": torch.tensor([0.3, 9.0, -0.2], dtype=torch.float64)}


def test_the_density_is_minus_pyros_potential() -> None:
    target = Target(Program(mixed), Y)
    _, potential, transforms, _ = initialize_model(mixed, (), Y)
    assert set(transforms) == set(target.slices)
    for seed in range(3):
        z = target.start(seed, spread=1.0)
        expected = -potential({name: s.of(z) for name, s in target.slices.items()})
        torch.testing.assert_close(target.log_density(z), expected)
        torch.testing.assert_close(target.value_and_grad(z)[0], expected)


def test_compiled_equals_eager_and_the_hessian_finite_differences() -> None:
    target, eager = Target(Program(mixed), Y), Target(Program(mixed), Y, compile=False)
    z = target.start(1, spread=0.7)
    for jacobian in (True, False):
        for a, b in zip(
            target.value_and_grad(z, jacobian=jacobian),
            eager.value_and_grad(z, jacobian=jacobian),
            strict=True,
        ):
            torch.testing.assert_close(a, b)
    step = 1e-5 * torch.eye(target.dim, dtype=torch.float64)
    numeric = torch.stack(
        [(target.value_and_grad(z + e)[1] - target.value_and_grad(z - e)[1]) / 2e-5 for e in step]
    )
    torch.testing.assert_close(target.hessian(z), numeric, rtol=1e-5, atol=1e-6)
    assert not target.notes


def test_the_hessian_of_a_gp_is_that_of_a_plain_cholesky() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(15, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(15, generator=generator, dtype=torch.float64)
    kernel = kernels.ARD(kernels.Matern(1.5, lengthscale=LogNormal(0.0, 1.0)))
    target = Target(models.GP(kernel), Dataset(X, y))

    def plain(z: Tensor) -> Tensor:
        v, length, noise = z[0].exp(), z[1:3].exp(), z[3].exp()
        C = kernel({"variance": v, "lengthscale": length}, X) + noise * torch.eye(
            15, dtype=torch.float64
        )
        L = torch.linalg.cholesky(C)
        w = torch.linalg.solve_triangular(L, y[:, None], upper=False)
        log_likelihood = (
            -0.5 * w.square().sum() - L.diagonal().log().sum() - 7.5 * torch.log(one(2 * torch.pi))
        )
        log_prior = dist.Normal(one(0), one(1)).log_prob(z[:3]).sum() + dist.Normal(
            one(-2), one(1)
        ).log_prob(z[3])
        return log_likelihood + log_prior

    z = target.start(0, 0.4)
    torch.testing.assert_close(target.log_density(z), plain(z))
    torch.testing.assert_close(target.hessian(z), torch.autograd.functional.hessian(plain, z))


def test_constrain_and_unconstrain_are_inverse_and_batched() -> None:
    target = Target(Program(mixed), Y)
    z = torch.randn(
        2, 3, target.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    draws = target.constrain(z)
    assert draws["share"].shape == (2, 3, 3)
    torch.testing.assert_close(draws["share"].sum(-1), torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(target.unconstrain(draws), z)


def test_a_support_that_moves_with_another_site_and_deterministic_sites() -> None:
    def program() -> None:
        top = pyro.sample("top", dist.Exponential(one(1)))
        x = pyro.sample("x", dist.Uniform(torch.zeros_like(top), top))
        pyro.deterministic("twice", 2 * x)

    target = Target(Program(program), {})
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = target.constrain(z)
    assert bool((draws["x"] < draws["top"]).all())
    torch.testing.assert_close(draws["twice"], 2 * draws["x"])


def test_a_program_with_an_if_runs_eagerly_after_one_warning() -> None:
    def program() -> None:
        x = pyro.sample("x", dist.Normal(one(0), one(1)))
        pyro.factor("f", -x if float(x.detach()) > 0 else 2 * x)

    target = Target(Program(program), {})
    with pytest.warns(NumericalWarning, match="could not be compiled"):
        target.value_and_grad(one(0.5).reshape(1))
    for at, slope in ((0.5, -1.5), (-0.5, 2.5)):
        assert float(target.value_and_grad(one(at).reshape(1))[1]) == pytest.approx(slope)
    assert len(target.notes) == 1
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        posterior = ppgp.fit(program, {}, inference.Laplace(), progress=False)
    sentences = [str(each.message) for each in warned]
    assert sum("could not be compiled" in sentence for sentence in sentences) == 1
    assert any("could not be compiled" in sentence for sentence in posterior.warnings)


def test_a_program_with_a_mask_of_its_sites_runs_eagerly_after_one_warning() -> None:
    """A graph would keep how many entries the mask chose while it was recorded."""

    def program() -> None:
        u = pyro.sample("u", dist.Normal(torch.zeros(3, dtype=torch.float64), 3.0).to_event(1))
        pyro.factor("penalty", -10 * (u[u > 3] - 3).square().sum())

    target = Target(Program(program), {})
    z = torch.tensor([5.0, 4.0, -1.0], dtype=torch.float64)
    with pytest.warns(NumericalWarning, match="shape of a tensor depends on the values"):
        _, gradient = target.value_and_grad(z)
    expected = -z / 9 - 20 * (z - 3).clamp_min(0)
    torch.testing.assert_close(gradient, expected)


def test_params_are_held_by_samplers_and_found_by_map() -> None:
    def program(y: Tensor) -> None:
        shift = pyro.param("shift", one(1.0), constraint=constraints.positive)
        x = pyro.sample("x", dist.Normal(one(0), one(1)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x + shift, one(0.1)), obs=y)

    data = {"y": torch.full((20,), 5.0, dtype=torch.float64)}
    held = Target(Program(program), data)
    assert held.dim == 1
    assert "shift" in held.notes[0]
    posterior = ppgp.fit(program, data, inference.MAP(), progress=False)
    assert float(posterior.params["shift"]) == pytest.approx(5.0, abs=1e-3)
    assert float(posterior.draws["x"]) == pytest.approx(0.0, abs=1e-3)


def test_refusals_are_one_sentence() -> None:
    def discrete() -> None:
        pyro.sample("k", dist.Poisson(one(3.0)))

    def impossible() -> None:
        x = pyro.sample("x", dist.Normal(one(0), one(1)))
        pyro.factor("never", x * torch.inf)

    with pytest.raises(NotApplicable, match="'k', a Poisson: observe it"):
        Target(Program(discrete), {})

    def crooked() -> None:
        x = pyro.sample("x", dist.Normal(one(0), one(1)))
        pyro.sample("y", dist.Normal((0 * x).sqrt(), one(1)), obs=one(1))

    with pytest.raises(NumericalError, match="NaN or infinity at all of"):
        Target(Program(impossible), {}).start()
    with pytest.raises(
        NumericalError,
        match="a finite density with a gradient of NaN or infinity in x: look for a sqrt",
    ):
        Target(Program(crooked), {}).start()
    with pytest.raises(NotApplicable, match="at least one uncertain site"):
        Target(models.LinearRegression(1.0, 0.0, 1.0), Dataset(torch.eye(3), torch.ones(3)))
    with pytest.raises(NotApplicable, match="full batch"):
        Target(Program(mixed), Y).log_density(torch.zeros(6, dtype=torch.float64), torch.arange(2))


def test_float32_data_make_a_float32_target() -> None:
    X = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    target = Target(models.GP(kernels.RBF(lengthscale=priors.Flat())), Dataset(X, X[:, 0]))
    value, gradient = target.value_and_grad(target.start())
    assert value.dtype == gradient.dtype == torch.float32


@pytest.mark.parametrize(
    "how",
    [inference.MAP(), inference.Laplace(), inference.NUTS(draws=5, warmup=5)],
    ids=lambda h: type(h).__name__,
)
def test_a_latent_mixture_is_one_sentence(how: inference.Inference) -> None:
    def program(y: torch.Tensor) -> None:
        which = dist.Categorical(torch.tensor([0.3, 0.7]))
        m = pyro.sample(
            "m", dist.MixtureSameFamily(which, dist.Normal(torch.tensor([-3.0, 3.0]), 1.0))
        )
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    with pytest.raises(
        NotApplicable,
        match="'m' on MixtureSameFamilyConstraint: for a mixture draw its component",
    ):
        ppgp.fit(program, {"y": torch.tensor(1.0)}, how, progress=False)


def test_many_log_densities_come_from_a_graph_without_a_gradient() -> None:
    X = torch.linspace(-2, 2, 90, dtype=torch.float64)[:, None]
    target = Target(models.GP(kernels.RBF()), Dataset(X, X[:, 0].sin()))
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(200, target.dim, generator=generator, dtype=torch.float64)
    expected = torch.stack([target.value_and_grad(point)[0] for point in z])
    torch.testing.assert_close(target.log_densities(z), expected, rtol=1e-10, atol=1e-10)
    alone = target._graphs.values_alone()
    assert alone is not None
    assert len(alone(z[0])) == 1


def test_few_rows_and_programs_of_users_keep_the_graph_with_a_gradient() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.tensor(0.0, dtype=torch.float64), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    y = torch.linspace(-1, 1, 5, dtype=torch.float64)
    few = Target(models.GP(kernels.RBF()), Dataset(y[:, None], y))
    for target in (few, Target(Program(program), {"y": y})):
        target.compiled()
        assert target._graphs.values_alone() is None
