"""Predictions of programs whose rows have several numbers, and of the steps of loops."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.conformal import Absolute
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.models import Program
from ppgp.posterior.vector_prediction import loops_of_steps

F64 = torch.float64
DRAWS = 400
X = torch.tensor([-1.0, 0.5, 2.0], dtype=F64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def at(program: Any, data: dict[str, Any], **draws: Tensor) -> ppgp.Posterior:
    """Return a posterior with the given draws, [draw, ...]."""
    kept = {name: value[None] for name, value in draws.items()}
    return ppgp.Posterior(Program(program), data, kept, inference.Laplace())


def outputs(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x[:, None] * w, 0.3).to_event(1), obs=y)


def correlated(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=F64)
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.MultivariateNormal(x[:, None] * w, covariance), obs=y)


def shares(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    logits = torch.cat([x[:, None] * w, torch.zeros(len(x), 1, dtype=F64)], -1)
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Multinomial(9, logits=logits), obs=y)


W = 1 + 0.3 * random(DRAWS, 2)


def of(program: Any, k: int = 2) -> ppgp.Posterior:
    return at(program, {"x": X, "y": torch.ones(3, k, dtype=F64)}, w=W)


def test_several_outputs_keep_their_shape() -> None:
    prediction = of(outputs).predict(x=X)
    assert isinstance(prediction, ppgp.VectorPrediction)
    mean = X[:, None] * W.mean(0)
    torch.testing.assert_close(prediction.mean, mean)
    within = (X[:, None] * (W - W.mean(0))[:, None]).square().mean(0)
    torch.testing.assert_close(prediction.variance, 0.09 + within)
    torch.testing.assert_close(prediction.epistemic, within)
    torch.testing.assert_close(prediction.aleatoric, torch.full((3, 2), 0.09, dtype=F64))
    torch.testing.assert_close(prediction.std, prediction.variance.sqrt())
    y = random(3, 2, seed=1)
    each = dist.Normal(X[:, None] * W[:, None], 0.3).log_prob(y).sum(-1)
    density = torch.logsumexp(each, 0) - math.log(DRAWS)
    torch.testing.assert_close(prediction.log_prob(y), density)
    torch.testing.assert_close(prediction.cdf(prediction.quantile(0.3)), torch.full_like(y, 0.3))
    lower, upper = prediction.interval(0.8)
    torch.testing.assert_close(torch.stack([lower, upper]), prediction.quantile([0.1, 0.9]))
    assert len(prediction) == 3
    assert "3 x 2 numbers: continuous, Normal" in repr(prediction)


def test_one_output_is_an_ordinary_prediction() -> None:
    y = X[:, None] * torch.tensor([2.0, -1.0], dtype=F64)
    posterior = at(outputs, {"x": X, "y": y}, w=W)
    prediction = posterior.predict(x=X)
    second = prediction.output(1)
    torch.testing.assert_close(second.mean, prediction.mean[:, 1])
    torch.testing.assert_close(prediction.output(-2).mean, prediction.mean[:, 0])
    assert second.in_training_with(y[:, 1]).all()  # known rows stay known
    assert not second.in_training_with(y[:, 0]).any()
    calibrator = ppgp.calibrate(Absolute(), posterior.predict(x=X + 1).output(0), X)
    assert calibrator(second).lower.shape == (3,)
    for index in ((2,), (), (0, 0), (0.5,)):
        with pytest.raises(DataError, match=r"place of a number in rows of shape \[2\]"):
            prediction.output(*index)
    with pytest.raises(DataError, match=r"y of shape \[3, 2\], got shape \[3\]"):
        prediction.log_prob(X)


@pytest.mark.usefixtures("types_unchecked")
def test_a_score_takes_one_number_of_each_row() -> None:
    with pytest.raises(NotApplicable, match=r"pass one number of each row, prediction.output\(0\)"):
        ppgp.calibrate(Absolute(), of(outputs).predict(x=X), X)  # type: ignore[arg-type]


@pytest.mark.usefixtures("types_unchecked")
def test_draws_are_counted_in_whole_numbers() -> None:
    with pytest.raises(SettingError, match="whole number of draws"):
        of(outputs).predict(x=X).sample(0.5)  # type: ignore[arg-type]


def test_numbers_of_a_row_are_drawn_together() -> None:
    prediction = of(correlated).predict(x=X)
    pyro.set_rng_seed(0)
    reference = Predictive(correlated, {"w": W}, parallel=False)(X)["y"].reshape(DRAWS, 3, 2)
    several = prediction.sample(4000, seed=1)
    assert several.shape == (4000, 3, 2)
    assert torch.equal(several, prediction.sample(4000, seed=1))
    error = 4.5 * prediction.std * (1 / DRAWS + 1 / 4000) ** 0.5
    assert bool(((reference.mean(0) - several.mean(0)).abs() < error).all())
    for i in range(3):
        ours = torch.cov(several[:, i].mT)
        torch.testing.assert_close(ours, prediction.covariance[i], rtol=0.15, atol=0.05)
    y = random(3, 2, seed=2)
    each = correlated_law().log_prob(y)
    density = torch.logsumexp(each, 0) - math.log(DRAWS)
    torch.testing.assert_close(prediction.log_prob(y), density)


def correlated_law() -> dist.MultivariateNormal:
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=F64)
    return dist.MultivariateNormal(X[:, None] * W[:, None], covariance)


def test_covariance_of_a_student_t_is_larger_than_its_scale() -> None:
    scale = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=F64)

    def heavy(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            law = dist.MultivariateStudentT(torch.tensor(6.0, dtype=F64), x[:, None] * w, scale)
            pyro.sample("y", law, obs=y)

    prediction = of(heavy).predict(x=X)
    between = torch.cov(W.mT, correction=0) * X.square()[:, None, None]
    torch.testing.assert_close(prediction.covariance, 1.5 * scale @ scale.mT + between)
    torch.testing.assert_close(
        prediction.covariance.diagonal(dim1=-2, dim2=-1), prediction.variance
    )


def test_covariance_of_several_vectors_of_a_row_is_not_that_of_independent_numbers() -> None:
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=F64)

    def pairs(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            law: Any = dist.MultivariateNormal(
                (x[:, None] * w)[:, None].repeat(1, 3, 1), covariance
            )
            pyro.sample("y", law.to_event(1), obs=y)

    prediction = at(pairs, {"x": X, "y": torch.ones(3, 3, 2, dtype=F64)}, w=W).predict(x=X)
    with pytest.raises(NotApplicable, match="whose covariance is known, got MultivariateNormal"):
        _ = prediction.covariance


def test_shares_have_the_counts_of_each_category() -> None:
    prediction = of(shares, 3).predict(x=X)
    logits = torch.cat([X[:, None] * W[:, None], torch.zeros(DRAWS, 3, 1, dtype=F64)], -1)
    torch.testing.assert_close(prediction.mean, 9 * logits.softmax(-1).mean(0))
    assert prediction.kind == "count"
    assert bool((prediction.sample(50).sum(-1) == 9).all())
    y = torch.tensor([[3.0, 3, 3], [9, 0, 0], [0, 4, 5]], dtype=F64)
    each = dist.Multinomial(9, logits=logits).log_prob(y)
    torch.testing.assert_close(prediction.log_prob(y), torch.logsumexp(each, 0) - math.log(DRAWS))
    with pytest.raises(NotApplicable, match="whose covariance is known, got Multinomial"):
        _ = prediction.covariance


@pytest.mark.parametrize(
    ("law", "marginal"),
    [
        (dist.Dirichlet(torch.tensor([1.0, 2.0, 4.0])), dist.Beta(2.0, 5.0)),
        (
            dist.DirichletMultinomial(torch.tensor([1.0, 2.0, 4.0]), torch.tensor(6.0)),
            dist.BetaBinomial(2.0, 5.0, 6.0),
        ),
        (dist.OneHotCategorical(torch.tensor([0.1, 0.2, 0.7])), dist.Bernoulli(0.2)),
    ],
    ids=["Dirichlet", "DirichletMultinomial", "OneHotCategorical"],
)
def test_numbers_have_their_marginal_distribution(law: Any, marginal: Any) -> None:
    def program(n: int, y: Tensor | None = None) -> None:
        pyro.sample("scale", dist.HalfNormal(1.0))
        with pyro.plate("rows", n):
            pyro.sample("y", law.expand([n]), obs=y)

    posterior = at(program, {"n": 2, "y": law.sample(torch.Size([2]))}, scale=torch.ones(DRAWS))
    number = posterior.predict(n=4).output(1)
    error = 4.5 * float(marginal.variance) ** 0.5 / 2000**0.5  # drawn for OneHotCategorical
    assert bool(((number.mean - marginal.mean).abs() < error + 1e-6).all())


def test_what_can_only_be_drawn_is_known_by_its_draws() -> None:
    def program(y: Tensor) -> None:
        decay = pyro.sample("decay", dist.Beta(5.0, 1.0))
        one = torch.eye(1)
        unit = dist.Normal(torch.zeros(1), 1.0).to_event(1)
        law = dist.GaussianHMM(unit, decay * one, unit, one, unit, duration=len(y))
        pyro.sample("y", law, obs=y)

    y = torch.randn(6, 1, generator=torch.Generator().manual_seed(0))
    posterior = at(program, {"y": y}, decay=torch.full((50,), 0.5))
    prediction = posterior.predict()
    assert prediction.shape == (6, 1)
    draws = prediction.sample(30)
    assert draws.shape == (30, 6, 1)
    variance, state = [], 1.0
    for _ in range(6):
        state = 0.25 * state + 1.0
        variance.append(state + 1.0)
    sd = torch.tensor(variance).sqrt()[:, None]
    runs = prediction.each.draws
    assert bool(((prediction.std / sd - 1).abs() < 4.5 / runs**0.5).all())
    assert bool((prediction.mean.abs() < 4.5 * sd / runs**0.5).all())
    assert prediction.output(0).mean.shape == (6,)
    with pytest.raises(NotApplicable, match="whose density is known, got draws"):
        prediction.log_prob(y)


def test_a_hidden_markov_model_of_pyro_has_as_many_steps_as_its_data() -> None:
    def program(y: Tensor) -> None:
        loc = pyro.sample("loc", dist.Normal(torch.tensor([0.0, 3.0]), 1.0).to_event(1))
        law = dist.DiscreteHMM(torch.zeros(2), torch.zeros(2, 2), dist.Normal(loc, 0.5))
        pyro.sample("y", law, obs=y)

    loc = torch.tensor([0.0, 3.0]).expand(50, 2)
    prediction = at(program, {"y": torch.zeros(7)}, loc=loc).predict()
    assert len(prediction) == 7
    sd = (1.5**2 + 0.25) ** 0.5  # both states are as probable at each step
    assert bool(((prediction.mean - 1.5).abs() < 4.5 * sd / prediction.draws**0.5).all())


def test_steps_of_a_loop_are_rows_of_one_prediction() -> None:
    def walk(y: Tensor) -> None:
        drift = pyro.sample("drift", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        for t in range(len(y)):
            pyro.sample(f"y_{t}", dist.Normal(t * drift, 1.0), obs=y[t])

    y = torch.arange(11, dtype=F64)
    found = at(walk, {"y": y}, drift=W[:, 0]).predict()
    assert list(found) == ["y", *(f"y_{t}" for t in range(11))]
    torch.testing.assert_close(found["y"].mean, y * W[:, 0].mean())
    torch.testing.assert_close(found["y"][10].std, found["y_10"].std)
    assert found["y"].in_training_with(y).all()
    assert not found["y"].in_training_with(y + 0.5).any()


def test_steps_of_several_kinds_stay_apart() -> None:
    def program(y: Tensor) -> None:
        m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        pyro.sample("y_0", dist.Normal(m, 1.0), obs=y[0])
        pyro.sample("y_1", dist.Laplace(m, 1.0), obs=y[1])

    found = at(program, {"y": torch.zeros(2, dtype=F64)}, m=W[:, 0]).predict()
    assert list(found) == ["y_0", "y_1"]


def test_arviz_has_the_numbers_of_new_rows() -> None:
    posterior = of(outputs)
    group = posterior.to_arviz(predictions=posterior.predict(x=X[:2]))["predictions"]
    assert group["y"].shape == (1, DRAWS, 2, 2)
    walks = at(outputs, {"x": X, "y": torch.ones(3, 2, dtype=F64)}, w=W[:2]).predict(x=X)
    assert walks.one_of_each_draw(seed=1).shape == (2, 3, 2)


def test_a_site_without_a_mean_says_so() -> None:
    def program(n: int, y: Tensor | None = None) -> None:
        nu = pyro.sample("nu", dist.Gamma(2.0, 0.1))
        with pyro.plate("rows", n):
            pyro.sample("y", dist.StudentT(nu, 1.0, 1.0), obs=y)

    posterior = at(program, {"n": 3, "y": torch.zeros(3)}, nu=torch.tensor([0.5, 3.0, 4.0, 0.9]))
    with pytest.warns(ppgp.errors.DataWarning, match=r"'y' has no mean under 2 of 4 draws"):
        prediction = posterior.predict(n=2)
    assert bool(prediction.mean.isnan().all())
    torch.testing.assert_close(prediction.quantile(0.5), torch.ones(2), atol=1e-4, rtol=0)


def test_steps_of_a_fit_and_later_ones_are_rows_of_one_distribution() -> None:
    """The former are of torch's class where a discrete site is given the data."""
    early = torch.distributions.Categorical(torch.tensor([[[0.2, 0.8]]]))
    late = dist.Categorical(torch.tensor([[[0.5, 0.5]]]))
    found = loops_of_steps({"z_0": early, "z_1": late})
    torch.testing.assert_close(found["z"].probs, torch.tensor([[[0.2, 0.8], [0.5, 0.5]]]))
