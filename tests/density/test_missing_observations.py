"""Observations that are missing: ``obs_mask`` makes them latent, and a mask leaves them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from missing_numbers import F64, HERE, Y, imputed, number
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, NumericalError, PpgpError
from ppgp.models import Program


def positive(y: Tensor, here: Tensor) -> None:
    """Missing values of a covariate, on which something depends."""
    m = pyro.sample("m", dist.Normal(number(0), 1.0))
    with pyro.plate("rows", len(y)):
        x = pyro.sample("x", dist.LogNormal(m, 0.5), obs=y, obs_mask=here)
        pyro.sample("w", dist.Normal(x, 0.3), obs=torch.arange(6, dtype=F64))


def vectors(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 1.0))
    with pyro.plate("rows", 3):
        x = pyro.sample(
            "x", dist.Dirichlet(m.exp() * torch.ones(2, dtype=F64)), obs=y, obs_mask=here
        )
        pyro.sample("w", dist.Normal(x[..., 0], 0.3), obs=torch.zeros(3, dtype=F64))


PARTS = torch.tensor([[0.3, 0.7], [torch.nan, torch.nan], [0.8, 0.2]], dtype=F64)
CASES: list[tuple[Any, str, Tensor]] = [
    (imputed, "y", Y),
    (positive, "x", Y),
    (vectors, "x", PARTS),
]


@pytest.mark.parametrize(("program", "site", "y"), CASES, ids=[c[0].__name__ for c in CASES])
def test_the_density_is_pyros_and_its_coordinates_are_the_missing_entries(
    program: Any, site: str, y: Tensor
) -> None:
    here = ~y.isnan() if y.ndim == 1 else ~y.isnan().any(-1)
    arguments = {"y": y, "here": here}
    target = Target(Program(program), arguments)
    assert not target.eager
    assert target.dim == 1 + int((~here).sum())
    z = torch.linspace(-0.5, 0.4, target.dim, dtype=F64)
    values = target.constrain(z)
    latents = {name: values[name] for name in ("m", f"{site}_unobserved")}
    shape = here.reshape(*here.shape, *(1,) * (y.ndim - 1))
    assert torch.equal(values[site], torch.where(shape, y, latents[f"{site}_unobserved"]))
    filled = {"y": y.nan_to_num(0.5), "here": here}
    trace = poutine.trace(poutine.condition(program, data=latents)).get_trace(**filled)
    expected = float(trace.log_prob_sum())
    assert float(target.log_density(z, jacobian=False)) == pytest.approx(expected, rel=1e-12)
    _, gradient = target.value_and_grad(z)
    assert bool(torch.isfinite(gradient).all())
    step = 1e-6 * torch.eye(target.dim, dtype=F64)
    differences = [(target.log_density(z + h) - target.log_density(z - h)) / 2e-6 for h in step]
    assert torch.allclose(gradient, torch.stack(differences), rtol=1e-6, atol=1e-6)
    assert torch.allclose(target.unconstrain(values), z)


def test_missing_values_have_their_predictive_distribution() -> None:
    """The mean of four values, and a fifth and a sixth from N(m, 1): all Gaussian."""
    how = inference.NUTS(draws=2000, warmup=500, chains=2)
    posterior = ppgp.fit(imputed, {"y": Y, "here": HERE}, how, progress=False)
    seen = Y[HERE]
    variance = 1 / (0.25 + len(seen))
    mean = variance * seen.sum()
    missing = posterior.draws["y_unobserved"][..., ~HERE]
    assert abs(float(posterior.draws["m"].mean() - mean)) < 5 * (variance / 1000) ** 0.5
    for values in missing.flatten(0, 1).T:
        assert abs(float(values.mean() - mean)) < 5 * ((1 + variance) / 1000) ** 0.5
        assert float(values.var()) == pytest.approx(float(1 + variance), rel=0.2)
    assert torch.equal(posterior.draws["y"][..., HERE], seen.expand(2, 2000, -1))
    names = posterior.summary().index
    assert "y_unobserved[1]" in names
    assert posterior.log_likelihood().shape == (2, 2000, 4)


@pytest.mark.parametrize(
    "how", [inference.MAP(), inference.Laplace(), inference.SVI(), inference.Pathfinder()]
)
def test_other_methods_take_it(how: Any) -> None:
    posterior = ppgp.fit(positive, {"y": Y, "here": HERE}, how.quick(), progress=False)
    assert all(bool(torch.isfinite(v).all()) for v in posterior.draws.values())


def test_discrete_missing_values_are_summed_out() -> None:
    y = torch.tensor([1.0, torch.nan, 0.0, torch.nan], dtype=F64)
    here = ~y.isnan()

    def program(y: Tensor, here: Tensor) -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(3)))
        with pyro.plate("rows", len(y)):
            x = pyro.sample("x", dist.Bernoulli(p), obs=y, obs_mask=here)
            pyro.sample("w", dist.Normal(2 * x, 1.0), obs=torch.arange(4, dtype=F64))

    target = Target(Program(program), {"y": y, "here": here})
    p = number(0.3)
    found = target.log_density(target.unconstrain({"p": p}), jacobian=False)
    conditioned = poutine.condition(config_enumerate(program), data={"p": p})
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(
        conditioned, lambda **_: None, y=y.nan_to_num(0.0), here=here
    )
    assert float(found) == pytest.approx(-loss, rel=1e-10)
    posterior = ppgp.fit(program, {"y": y, "here": here}, inference.MAP(), progress=False)
    assert posterior.discrete("x_unobserved").probabilities.shape == (1, 1, 4, 2)


def by_mask(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))
    s = pyro.sample("s", dist.LogNormal(number(0), 1.0))
    with pyro.plate("rows", len(y)), poutine.mask(mask=here):
        pyro.sample("y", dist.Normal(m, s), obs=y)


def by_distribution(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))
    s = pyro.sample("s", dist.LogNormal(number(0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, s).expand([len(y)]).mask(here), obs=y)


def enumerated(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 2.0))
    s = pyro.sample("s", dist.LogNormal(number(0), 1.0))
    for t in pyro.markov(range(len(y))):
        k = pyro.sample(f"k_{t}", dist.Bernoulli(number(0.2)))
        with poutine.mask(mask=here[t]):
            pyro.sample(f"y_{t}", dist.Normal(m + k, s), obs=y[t])


@pytest.mark.parametrize("program", [by_mask, by_distribution, enumerated])
def test_a_masked_nan_reaches_no_gradient(program: Any) -> None:
    target = Target(Program(program), {"y": Y, "here": HERE})
    without = Target(Program(program), {"y": Y[HERE], "here": HERE[HERE]})
    z = torch.tensor([0.4, -0.2], dtype=F64)
    for one, other in zip(target.value_and_grad(z), without.value_and_grad(z), strict=True):
        assert torch.allclose(one, other, rtol=1e-10)


def test_nan_without_a_mask_is_an_error() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(number(0), 2.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    with pytest.raises(PpgpError, match="mask"):
        ppgp.fit(program, {"y": Y}, inference.MAP(), progress=False)
    with pytest.raises(PpgpError):
        ppgp.fit(by_mask, {"y": Y, "here": HERE | True}, inference.MAP(), progress=False)


def test_a_row_of_several_numbers_outside_plates() -> None:
    """The value of the site is one event, which is latent or not."""

    def program(y: Tensor, here: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(number(0), 1.0))
        law = dist.Normal(m * torch.ones(6, dtype=F64), 1.0).to_event(1)
        pyro.sample("y", law, obs=y, obs_mask=here)

    target = Target(Program(program), {"y": Y, "here": torch.tensor(False)})
    assert target.dim == 7
    z = torch.linspace(-1, 1, 7, dtype=F64)
    expected = dist.Normal(number(0), 1.0).log_prob(z[0])
    expected = expected + dist.Normal(z[0], 1.0).log_prob(z[1:]).sum()
    torch.testing.assert_close(target.log_density(z), expected)
    torch.testing.assert_close(target.unconstrain(target.constrain(z)), z)


def test_missing_numbers_whose_distribution_depends_on_a_discrete_site() -> None:
    """The sum over a component k in each row, of which some rows have no number."""

    def program(y: Tensor, here: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(y)):
            k = pyro.sample("k", dist.Bernoulli(number(0.3)))
            pyro.sample("y", dist.Normal(m + 2 * k, 1.0), obs=y, obs_mask=here)

    target = Target(Program(program), {"y": Y, "here": HERE})
    assert target.names() == ["m", "y_unobserved[0]", "y_unobserved[1]"]
    z = torch.tensor([0.3, -0.5, 1.2], dtype=F64)
    y = Y.masked_scatter(~HERE, z[1:])
    each = torch.stack([dist.Normal(z[0] + 2 * k, 1.0).log_prob(y) for k in (0, 1)])
    weights = torch.tensor([[0.7], [0.3]], dtype=F64).log()
    expected = torch.logsumexp(weights + each, 0).sum() + dist.Normal(number(0), 1.0).log_prob(z[0])
    torch.testing.assert_close(target.log_density(z), expected, rtol=1e-12, atol=1e-12)


def test_missing_counts_are_left_out_by_a_mask() -> None:
    def program(y: Tensor, here: Tensor, impute: bool = False) -> None:
        rate = pyro.sample("rate", dist.Gamma(number(2), number(1)))
        with pyro.plate("rows", len(y)):
            if impute:
                pyro.sample("y", dist.Poisson(rate), obs=y, obs_mask=here)
            else:
                with poutine.mask(mask=here):
                    pyro.sample("y", dist.Poisson(rate), obs=y)

    y = torch.tensor([3.0, torch.nan, 5.0], dtype=F64)
    data = {"y": y, "here": ~y.isnan()}
    with pytest.raises(
        NotApplicable, match=r"a Poisson: leave .* Poisson\(\.\.\.\)\.mask\(known\)"
    ):
        ppgp.fit(program, {**data, "impute": True}, inference.MAP(), progress=False)
    posterior = ppgp.fit(program, data, inference.MAP(), progress=False)
    # the mode of Gamma(2 + 3 + 5, 1 + 2)
    assert float(posterior.theta["rate"]) == pytest.approx(3, rel=1e-5)

    def of_law(y: Tensor, here: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(number(2), number(1)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Poisson(rate).mask(here), obs=y)

    posterior = ppgp.fit(of_law, data, inference.MAP(), progress=False)
    assert float(posterior.theta["rate"]) == pytest.approx(3, rel=1e-5)


def test_a_mask_that_depends_on_latent_sites_is_refused() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=m < y)

    with pytest.raises(NotApplicable, match="one of 'y' that depends on them: pass the mask"):
        Target(Program(program), {"y": Y.nan_to_num(0.5)})


ROWS = 4


def rows_of_numbers(y: Tensor, here: Any) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 1.0))
    with pyro.plate("rows", ROWS):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=here)


def steps_of_numbers(y: Tensor, here: Any) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 1.0))

    def step(last: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        last = pyro.sample("y", dist.Normal(m * last, 1.0), obs=row[0], obs_mask=row[1])
        return last, None

    ppgp.scan(step, number(0), (y, here))


def rows_of_vectors(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", ROWS):
        pyro.sample("y", dist.Normal(m, 1.0).to_event(1), obs=y, obs_mask=here)


def steps_of_vectors(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 1.0))

    def step(last: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        law = dist.Normal(m * last, 1.0).to_event(1)
        return pyro.sample("y", law, obs=row[0], obs_mask=row[1]), None

    ppgp.scan(step, torch.zeros(3, dtype=F64), (y, here))


def rows_of_normal_vectors(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", ROWS):
        law = dist.MultivariateNormal(m, torch.eye(3, dtype=F64))
        pyro.sample("y", law, obs=y, obs_mask=here)


def no_rows(y: Tensor, here: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(number(0), 1.0))
    pyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=here)


@pytest.mark.parametrize("program", [rows_of_numbers, steps_of_numbers])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_an_obs_mask_of_numbers_is_refused(program: Any, dtype: torch.dtype) -> None:
    data = {"y": torch.ones(ROWS, dtype=F64), "here": torch.ones(ROWS, dtype=dtype)}
    told = f"truth values as obs_mask of site 'y', got {str(dtype)[6:]}: pass .bool\\(\\) of it"
    with pytest.raises(DataError, match=told):
        ppgp.fit(program, data, inference.MAP(), progress=False)


@pytest.mark.parametrize("make", [list, np.array], ids=["list", "array"])
def test_an_obs_mask_that_is_no_tensor_is_refused(make: Any) -> None:
    here = make([True, True, False, True])
    data = {"y": torch.ones(ROWS, dtype=F64)}
    told = f"obs_mask of site 'y', got an? {type(here).__name__}: pass torch.tensor"
    with pytest.raises(DataError, match=told):
        ppgp.fit(lambda y: rows_of_numbers(y, here), data, inference.MAP(), progress=False)


@pytest.mark.parametrize(
    ("program", "shape", "mask", "told"),
    [
        (rows_of_numbers, (4,), (4, 1), r"\(4,\), one truth value a row, got \(4, 1\): .*squeeze"),
        (rows_of_numbers, (4,), (5,), r"\(4,\), .* row, got \(5,\): pass as many truth values as"),
        (steps_of_numbers, (4,), (4, 1), r"\(4,\), .* a step, got \(4, 1\): pass .squeeze\(-1\)"),
        (rows_of_vectors, (4, 3), (4, 3), r"\(4,\), .* got \(4, 3\): write a pyro.plate in place"),
        (steps_of_vectors, (4, 3), (4, 3), r"\(4,\), .* a step, got \(4, 3\): write a pyro.plate"),
        (rows_of_normal_vectors, (4, 3), (4, 3), r"\(4,\), .* got \(4, 3\): pass .all\(-1\) of it"),
        (no_rows, (4,), (4,), r"\(\), .* got \(4,\): draw the site in a pyro.plate"),
    ],
)
def test_an_obs_mask_of_another_shape_is_refused(
    program: Any, shape: tuple[int, ...], mask: tuple[int, ...], told: str
) -> None:
    here = torch.ones(mask, dtype=torch.bool)
    data = {"y": torch.ones(shape, dtype=F64), "here": here}
    with pytest.raises(DataError, match=f"obs_mask of site 'y' of shape {told}"):
        ppgp.fit(program, data, inference.MAP(), progress=False)


def test_a_list_as_obs_mask_of_steps_is_refused() -> None:
    y = torch.ones(ROWS, dtype=F64)
    with pytest.raises(DataError, match=r"got bool: write torch\.tensor\(\.\.\.\) of a list"):
        ppgp.fit(steps_of_numbers, {"y": y, "here": [True] * ROWS}, inference.MAP(), progress=False)


@pytest.mark.parametrize("program", [rows_of_numbers, steps_of_numbers])
@pytest.mark.parametrize(
    ("here", "wrong"), [((1, 1, 1, 1), 2), ((0, 0, 1, 1), 1), ((0, 1, 0, 1), 2)]
)
def test_an_obs_mask_that_is_true_at_nan_is_refused(
    program: Any, here: tuple[int, ...], wrong: int
) -> None:
    y = torch.tensor([1.0, torch.nan, 2.0, torch.nan], dtype=F64)
    data = {"y": y, "here": torch.tensor(here).bool()}
    told = rf"got True at {wrong} NaN of 'y': pass obs_mask=~torch\.isnan\(y\)"
    with pytest.raises(NumericalError, match=told):
        ppgp.fit(program, data, inference.MAP(), progress=False)


def test_nan_without_a_mask_is_sent_to_masks() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(m, 1.0), obs=y)

    with pytest.raises(NumericalError, match=r"NaN for 2 of 6 numbers .* obs_mask=~y\.isnan"):
        ppgp.fit(program, {"y": Y}, inference.MAP(), progress=False)
