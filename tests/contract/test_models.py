"""Properties of every model."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam  # type: ignore[attr-defined]
from samples import block_of, columns_for, data_for, error_of, every_model, program_of

import ppgp
from ppgp import inference, kernels, learners, likelihoods, models, networks, priors
from ppgp.data import Dataset
from ppgp.data.roles import ROLES
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.models import Model
from ppgp.recipes import parsing as recipes
from ppgp.runtime.seeding import seeded

NAMES = {
    name: getattr(family, name)
    for family in (likelihoods, models, learners, kernels, networks, priors)
    for name in family.__all__
} | {"Multilevel": models.Multilevel, "Varying": models.Varying}
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def row_wise(model: Model) -> bool:
    data = data_for(model)
    model = model.prepare(data)
    try:
        Target(model, data).log_density(
            torch.zeros(Target(model, data).dim, dtype=torch.float64), torch.arange(4)
        )
    except NotApplicable:
        return False
    return True


@every_model
def test_prior_draws_lie_in_the_support(model: Model) -> None:
    data = data_for(model, 5)
    with seeded(0), pyro.get_param_store().scope():
        trace = pyro.poutine.trace(program_of(model, data)).get_trace(data.X)
    for name, site in model.sites(data.d).items():
        if not site.fixed:
            assert bool(trace.nodes[name]["fn"].support.check(trace.nodes[name]["value"]).all())


@every_model
def test_the_density_is_finite_and_its_gradient_correct(model: Model) -> None:
    data = data_for(model)
    target = Target(model.prepare(data), data)
    z = target.start(seed=3, spread=0.5)
    _, gradient = target.value_and_grad(z)
    step = 1e-5
    for i, e in enumerate(torch.eye(target.dim, dtype=torch.float64)):
        slope = (target.log_density(z + step * e) - target.log_density(z - step * e)) / (2 * step)
        assert float(gradient[i]) == pytest.approx(float(slope), rel=1e-5, abs=1e-5)


@every_model
def test_mini_batches_are_unbiased_or_refused_with_advice(model: Model) -> None:
    data = data_for(model)
    model = model.prepare(data)
    target = Target(model, data)
    z = target.start(seed=1, spread=0.3, compile=False)
    if not row_wise(model):
        with pytest.raises(NotApplicable, match="use"):
            target.log_density(z, torch.arange(6))
        return
    parts = [target.log_density(z, rows) for rows in torch.arange(data.n).split(6)]
    torch.testing.assert_close(torch.stack(parts).mean(), target.log_density(z))
    torch.testing.assert_close(target.value_and_grad(z, torch.arange(6))[0], parts[0])


@every_model
def test_the_order_of_rows_does_not_matter(model: Model) -> None:
    data = data_for(model)
    model = model.prepare(data)
    shuffled = data.rows(torch.randperm(data.n, generator=torch.Generator().manual_seed(0)))
    z = Target(model, data).start(seed=1, spread=0.3, compile=False)
    torch.testing.assert_close(
        Target(model, data).log_density(z), Target(model, shuffled).log_density(z)
    )


@every_model
def test_predict_and_the_likelihood_of_the_program_agree(model: Model) -> None:
    """Per row if rows are independent; by the product of conditionals for a joint likelihood."""
    data = data_for(model)
    model = model.prepare(data)
    target = Target(model, data)
    z = target.start(seed=2, spread=0.3, compile=False)
    theta = {k: v[None] for k, v in target.constrain(z).items()}
    prior = sum(
        (
            s.distribution(data.X).log_prob(theta[name][0]).sum()
            for name, s in model.sites(data.d).items()
            if not s.fixed
        ),
        start=torch.zeros((), dtype=torch.float64),
    )
    likelihood = target.log_density(z, jacobian=False) - prior
    if row_wise(model):
        total = model.predict(theta, data.X, data, **data.for_prediction).log_prob(data.y).sum()
    else:
        total = torch.zeros((), dtype=torch.float64)
        step = block_of(model)
        for i in range(step, data.n, step):
            new = data.rows(slice(i, i + step))
            distribution = model.predict(
                theta, new.X, data.rows(slice(0, i)), joint=True, **new.for_prediction
            )
            total = total + distribution.log_prob(new.y)[0]
        first = Target(model, data.rows(slice(0, step)))
        total = total + first.log_density(z, jacobian=False) - prior
    torch.testing.assert_close(total, likelihood, atol=error_of(model), rtol=1e-7)


@every_model
def test_a_joint_prediction_has_the_marginals_of_the_others(model: Model) -> None:
    data = data_for(model)
    model = model.prepare(data)
    target = Target(model, data)
    z = target.start(seed=2, spread=0.3, compile=False)
    theta = {name: value[None] for name, value in target.constrain(z).items()}
    new = data.rows(slice(0, 5))
    joint, alone = (
        model.predict(theta, new.X + 0.1, data, joint=j, **new.for_prediction)
        for j in (True, False)
    )
    if isinstance(alone, torch.distributions.Categorical):  # its mean is not a number
        torch.testing.assert_close(joint.log_prob(data.y[:5]), alone.log_prob(data.y[:5]).sum(-1))
        return
    torch.testing.assert_close(joint.mean, alone.mean)
    torch.testing.assert_close(joint.variance, alone.variance)


@quiet
@every_model
def test_two_fits_with_one_seed_are_identical_and_do_not_change_the_recipe(model: Model) -> None:
    data, before = data_for(model, 10), repr(model)
    how = inference.NUTS(draws=10, warmup=10, chains=2, max_depth=5)
    one, two = (ppgp.fit(model, data, how, seed=5, progress=False) for _ in range(2))
    assert all(torch.equal(one.draws[k], two.draws[k]) for k in one.draws)
    assert repr(model) == before


@every_model
def test_the_repr_builds_the_recipe_and_the_docstring_names_a_source(model: Model) -> None:
    assert eval(repr(model), dict(NAMES)) == model
    assert recipes.build_model(repr(model)) == model
    assert re.search(r"(19|20)\d\d", type(model).__doc__ or "")


@pytest.mark.parametrize("role", list(ROLES))
@every_model
def test_columns_that_the_model_does_not_use_are_refused(model: Model, role: str) -> None:
    data = data_for(model)
    column: dict[str, object] = {
        "noise_sd": 0.5,
        "right_censored": [False] * data.n,
        "offset": 1.0,
        "trials": 3,
        "weights": [1.0] * data.n,
        "groups": {"county": ["a", "b"] * (data.n // 2)},
        "ids": range(data.n),
    }
    columns: Any = columns_for(model, data.n) | {role: column[role]}
    data = Dataset(data.X, data.y, **columns)
    if model.takes_role(role):
        parameters = inspect.signature(model.model).parameters
        assert role == "ids" or role in parameters or "columns" in parameters
        return
    with pytest.raises(NotApplicable, match=f"{type(model).__name__}.*a Dataset without {role}$"):
        ppgp.fit(model, data, inference.MAP(), progress=False)


@every_model
def test_plain_pyro_scripts_work(model: Model) -> None:
    data = data_for(model, 10)
    with seeded(0), pyro.get_param_store().scope():
        program = program_of(model, data)
        loop = SVI(
            program,
            getattr(model, "guide", None) or AutoNormal(program),
            Adam({"lr": 0.01}),
            Trace_ELBO(),
        )
        assert torch.isfinite(torch.tensor(loop.step(data.X, data.y)))
        chain = MCMC(
            NUTS(program, max_tree_depth=3), num_samples=3, warmup_steps=3, disable_progbar=True
        )
        chain.run(data.X, data.y)
        few = data.rows(slice(0, 4))
        found = Predictive(program_of(model, few), chain.get_samples())(few.X)
        assert found["y"].shape == (3, 4)
