"""Large predictions are computed in blocks: equal results, less memory, a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
)

from ppgp import Dataset, Prediction, likelihoods, models
from ppgp.conformal import PIT, Density, Normalized, Quantile, calibrate
from ppgp.diagnostics.predictive_differences import predictive_difference
from ppgp.distributions import blocks
from ppgp.distributions.rows_on_demand import RowsOnDemand
from ppgp.errors import NotEnoughMemory
from ppgp.runtime import memory

DRAWS, ROWS = 7, 23
g = torch.Generator().manual_seed(0)
A = torch.randn(DRAWS, ROWS, generator=g, dtype=torch.float64)
B = torch.rand(DRAWS, 1, generator=g, dtype=torch.float64) + 0.5
X = torch.randn(ROWS, 3, generator=g, dtype=torch.float64)
TRAIN = Dataset(X[:5], X[:5, 0])
THETA = {"weight": torch.randn(DRAWS, 3, generator=g, dtype=torch.float64), "bias": A[:, 0]}
CONTINUOUS: dict[str, Distribution] = {
    "normal": Normal(A, B),
    "t": StudentT(torch.tensor(5.0).double(), A, B.expand_as(A)),
}
LAWS: dict[str, Distribution] = {
    **CONTINUOUS,
    "poisson": Poisson(A.exp()),
    "bernoulli": Bernoulli(logits=A),
    "categorical": Categorical(logits=torch.stack([A, -A, 0 * A], -1)),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def make() -> None:
        monkeypatch.setattr(blocks, "BLOCK", 4 * DRAWS)
        monkeypatch.setattr(blocks, "ROW_BLOCK", 4 * DRAWS)

    return make


def figures(distribution: Distribution) -> dict[str, torch.Tensor]:
    p = (
        Prediction(distribution, 2.0, 3.0)
        if distribution in CONTINUOUS.values()
        else Prediction(distribution)
    )
    if p.kind == "classes":
        y = torch.zeros(ROWS)
        return {"probabilities": p.probabilities, "log_prob": p.log_prob(y)}
    y = 2.0 + torch.arange(ROWS, dtype=torch.float64) % 3
    found = {
        "mean": p.mean,
        "std": p.std,
        "epistemic": p.epistemic,
        "aleatoric": p.aleatoric,
        "cdf": p.cdf(y),
        "crps": p.crps(y),
    }
    each = torch.linspace(0.1, 0.9, ROWS, dtype=torch.float64)
    found |= {
        "by draw": p.cdf_by_draw(y),
        "quantile": p.quantile(0.3),
        "of each": p.quantile(each[None])[0],
        "of levels": p.quantile([0.1, 0.8]),
        "log_prob": p.log_prob(y),
    }
    if p.kind == "continuous":
        below, above = p.log_tails(torch.stack([y, y + 1])[0])
        found |= {
            "below": below,
            "above": above,
            "far": p.tail_quantile(torch.full((ROWS,), -30.0).double(), upper=True),
        }
    return found


@pytest.mark.parametrize("name", LAWS)
def test_blocks_give_the_statistics_of_all_rows_at_once(
    name: str, small_blocks: Callable[[], None]
) -> None:
    whole = figures(LAWS[name])
    small_blocks()
    for figure, value in figures(LAWS[name]).items():
        torch.testing.assert_close(
            value, whole[figure], rtol=1e-12, atol=1e-14, msg=lambda m, f=figure: f"{f}: {m}"
        )


@pytest.mark.parametrize(
    ("model", "more"),
    [(models.LinearRegression(), {"noise": B[:, 0]}), (models.LogisticRegression(), {})],
    ids=["linear", "logistic"],
)
def test_a_distribution_is_assembled_from_blocks(
    model: models.Model, more: dict, small_blocks: Callable[[], None]
) -> None:
    theta = THETA | more
    whole = model.predict(theta, X, TRAIN)
    small_blocks()
    distribution = model.predict(theta, X, TRAIN)
    assert type(distribution) is type(whole)
    assert distribution.batch_shape == (DRAWS, ROWS)
    torch.testing.assert_close(distribution.mean, whole.mean, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(distribution.variance, whole.variance, rtol=1e-13, atol=1e-14)
    if isinstance(distribution, Normal):
        assert distribution.scale.stride(1) == 0  # a value that all rows share is stored once


@pytest.mark.parametrize("joint", [None, "independent", "normal"])
def test_samples_of_large_mixtures_use_each_component_equally_often(
    joint: str | None, small_blocks: Callable[[], None]
) -> None:
    place = 10.0 * torch.arange(DRAWS, dtype=torch.float64)[:, None].expand(DRAWS, ROWS)
    distribution: Distribution = Normal(place, 1e-3)
    if joint == "independent":
        distribution = Independent(distribution, 1)
    if joint == "normal":
        distribution = MultivariateNormal(
            place, scale_tril=1e-3 * torch.eye(ROWS).double().expand(DRAWS, ROWS, ROWS)
        )
    small_blocks()
    drawn = Prediction(distribution, 1.0, 2.0).sample(2 * DRAWS + 3, seed=1)
    assert torch.equal(drawn, Prediction(distribution, 1.0, 2.0).sample(2 * DRAWS + 3, seed=1))
    component = ((drawn - 1.0) / 20.0).round().long()
    assert bool((component == component[:, :1]).all())  # one posterior draw for all rows
    counts = torch.bincount(component[:, 0], minlength=DRAWS)
    assert sorted(counts.tolist()) == [2] * (DRAWS - 3) + [3] * 3
    assert len(drawn.unique()) == drawn.numel()


def test_a_request_beyond_memory_is_refused_with_a_number_of_rows_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Figures of one number per row are computed on demand; samples are that many numbers."""
    monkeypatch.setattr(memory, "available", lambda device=None: 100 * 10**6)
    theta = {
        name: value[:1].expand(500, *value.shape[1:])
        for name, value in (THETA | {"noise": B[:, 0]}).items()
    }
    model, many = models.LinearRegression(), X[:1].expand(40_000, 3)  # 160 MB
    prediction = Prediction(model.predict(theta, many, TRAIN))
    for ask in (
        lambda: prediction.distribution.loc,
        lambda: prediction.distribution.mean,
        lambda: calibrate(Density(), prediction, X.new_zeros(40_000))(prediction),
    ):
        with pytest.raises(NotEnoughMemory, match=r"200 MB.*at most 16,000 rows per call"):
            ask()
    assert isinstance(prediction[:16_000].distribution, Normal)
    with pytest.raises(NotEnoughMemory, match="1,000 draws at 40,000 rows"):
        prediction.sample(1000)
    assert prediction.sample(2).shape == (2, 40_000)


@pytest.mark.parametrize(
    ("classes", "cause"), [(False, "memory"), (False, "cheap"), (True, "memory")]
)
def test_a_prediction_on_demand_has_the_figures_of_one_in_memory(
    classes: bool,
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
    small_blocks: Callable[[], None],
) -> None:
    model: models.Model = models.LogisticRegression() if classes else models.LinearRegression()
    theta = THETA if classes else THETA | {"noise": B[:, 0]}
    offset, scale = (0.0, 1.0) if classes else (2.0, 3.0)
    known = Prediction(model.predict(theta, X, TRAIN), offset, scale)
    small_blocks()

    def refused(*_: object) -> None:
        raise NotEnoughMemory("less", "more", "use fewer rows")

    if cause == "memory":
        monkeypatch.setattr(blocks, "must_fit", refused)
    else:
        monkeypatch.setattr(blocks, "KEPT_BYTES", 0)
    distribution = model.predict(theta, X, TRAIN)
    monkeypatch.undo()
    small_blocks()
    assert isinstance(distribution, RowsOnDemand)
    prediction = Prediction(distribution, offset, scale)
    assert (len(prediction), prediction.draws) == (ROWS, DRAWS)
    assert repr(prediction) == repr(known)
    assert (prediction.kind, prediction.dtype) == (known.kind, known.dtype)
    y = (torch.arange(ROWS) % 2).double()
    some = torch.tensor([3, 21, 4])

    def compare(figure: Callable[[Prediction], torch.Tensor]) -> None:
        torch.testing.assert_close(figure(prediction), figure(known), rtol=1e-12, atol=1e-13)

    compare(lambda p: p.log_prob(y))
    compare(lambda p: p[some].log_prob(y[:3]))
    assert prediction.sample(20, seed=3).shape == (20, ROWS)
    if classes:
        compare(lambda p: p.probabilities)
        return
    for name in ("mean", "std", "variance", "epistemic", "aleatoric", "centre", "spread"):
        compare(lambda p, name=name: getattr(p, name))
    for name in ("cdf", "crps", "pit", "cdf_by_draw", "log_tail"):
        compare(lambda p, name=name: getattr(p, name)(y))
    compare(lambda p: p.quantile(0.3))
    compare(lambda p: p.interval(0.9).upper)
    compare(lambda p: torch.stack(p.log_tails(y)))
    compare(lambda p: p.tail_quantile(torch.full((ROWS,), -30.0).double(), upper=True))
    scores = (Normalized(), Quantile(), PIT(), *([Density()] if cause == "cheap" else []))
    for score in scores:
        compare(lambda p, score=score: calibrate(score, p, y)(p).upper)
    drawn = prediction.sample(4000, seed=1)
    error = (drawn.mean(0) - known.mean).abs() / known.std
    assert float(error.max()) < 5 / 4000**0.5


def test_a_distribution_on_demand_has_the_attributes_of_its_family(
    monkeypatch: pytest.MonkeyPatch, small_blocks: Callable[[], None]
) -> None:
    model, theta = models.LinearRegression(), THETA | {"noise": B[:, 0]}
    known, y = model.predict(theta, X, TRAIN), X[:, 0]
    small_blocks()
    monkeypatch.setattr(blocks, "KEPT_BYTES", 0)
    anew: Any = model.predict(theta, X, TRAIN)
    assert isinstance(anew, RowsOnDemand)
    for name in ("loc", "scale", "mean", "variance"):
        torch.testing.assert_close(getattr(anew, name), getattr(known, name))
    torch.testing.assert_close(anew.log_prob(y), known.log_prob(y))
    torch.testing.assert_close(anew.cdf(y), known.cdf(y))
    torch.testing.assert_close(anew.icdf(y.sigmoid()), known.icdf(y.sigmoid()))
    torch.testing.assert_close(anew.entropy(), known.entropy())
    assert anew.sample().shape == anew.rsample().shape == (DRAWS, ROWS)
    assert anew.expand((DRAWS, ROWS)).loc.shape == (DRAWS, ROWS)
    with pytest.raises(AttributeError):
        _ = anew.rate


@pytest.mark.parametrize(
    ("model", "columns"),
    [
        (models.GLM(likelihoods.Poisson()), {"offset": A[0]}),
        (models.GLM(likelihoods.Binomial()), {"trials": torch.full((ROWS,), 5.0).double()}),
    ],
    ids=["poisson", "binomial"],
)
def test_linear_models_of_counts_predict_on_demand(
    model: models.Model,
    columns: dict[str, torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    small_blocks: Callable[[], None],
) -> None:
    theta, y = THETA, (torch.arange(ROWS) % 2).double()
    data = Dataset(X, y, **columns)
    known = model.predict(theta, X, data, **columns)
    pointwise = model.log_likelihood(theta, data)["y"]
    small_blocks()
    monkeypatch.setattr(blocks, "KEPT_BYTES", 0)
    given, inputs = {name: column.clone() for name, column in columns.items()}, X.clone()
    draws = {name: value.clone() for name, value in theta.items()}
    anew = model.predict(draws, inputs, data, **given)
    for argument in (inputs, *draws.values(), *given.values()):
        argument += 1.0  # a prediction is that of the arguments as they were
    assert isinstance(anew, RowsOnDemand)
    torch.testing.assert_close(anew.log_prob(y), known.log_prob(y))
    torch.testing.assert_close(model.log_likelihood(theta, data)["y"], pointwise)
    one, two = Prediction(anew), Prediction(known)
    torch.testing.assert_close(one.log_prob(y), two.log_prob(y))
    subset = one[torch.arange(ROWS) != 3]
    assert isinstance(subset.distribution, RowsOnDemand)
    found, expected = (predictive_difference(p, two, 0.9, (100.0, 100.0)) for p in (one, two))
    assert found.word == expected.word == "agrees"


def test_parameters_of_few_rows_or_of_many_columns_are_kept(
    monkeypatch: pytest.MonkeyPatch, small_blocks: Callable[[], None]
) -> None:
    model, theta = models.LinearRegression(), THETA | {"noise": B[:, 0]}
    small_blocks()
    assert isinstance(model.predict(theta, X, TRAIN), Normal)
    monkeypatch.setattr(blocks, "KEPT_BYTES", 0)
    wide = X.repeat(1, 50)
    many = {**theta, "weight": theta["weight"].repeat(1, 50)}
    assert isinstance(model.predict(many, wide, TRAIN), Normal)


@pytest.mark.parametrize("joint", [False, True])
def test_a_gp_beyond_memory_is_refused(joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device=None: 100 * 10**6)
    model = models.GP(mean=0.0)
    theta = {
        name: torch.ones(200, dtype=torch.float64)
        for name in ("kernel.variance", "kernel.lengthscale", "noise")
    }
    with pytest.raises(NotEnoughMemory, match="rows per call"):
        model.predict(theta, X[:1].expand(2_000 if joint else 40_000, 3), TRAIN, joint=joint)
