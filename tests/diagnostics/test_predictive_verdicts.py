"""Verdicts on predictions: whether they differ, by how much, and whether intervals suffer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pyro.distributions as dist
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.diagnostics.predictive_differences import predictive_difference
from ppgp.posterior import Prediction

F64 = torch.float64
ROWS = torch.linspace(-1, 1, 30, dtype=F64)


def predictive(
    shift: float = 0.0, scale: float = 1.0, draws: int = 1000, between: float = 0.1, seed: int = 0
) -> Prediction:
    """Return one normal distribution per row; the sd between its draws is ``between``."""
    e = torch.randn(draws, 1, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return Prediction(
        dist.Normal(ROWS + shift + between * e, torch.tensor(scale, dtype=F64)), 10.0, 3.0
    )


def both(draws: int) -> tuple[float, float]:
    return float(draws), float(draws)


@pytest.mark.parametrize(
    ("shift", "scale", "word"),
    [
        (0.0, 1.0, "agrees"),
        (0.06, 1.0, "agrees"),
        (0.3, 1.0, "do not use"),
        (0.0, 0.8, "means agree, spread does not"),
        (0.0, 1.3, "means agree, spread does not"),
    ],
)
def test_each_wrong_prediction_has_its_verdict(shift: float, scale: float, word: str) -> None:
    """The shift is in predictive sds, and the content is a probability under the reference."""
    found = predictive_difference(predictive(shift, scale, seed=1), predictive(), 0.9, both(1000))
    assert found.word == word
    assert found.shift == pytest.approx(shift, abs=0.02)
    z = norm.ppf(0.95) * scale
    assert found.content == pytest.approx(norm.cdf(z - shift) - norm.cdf(-z - shift), abs=0.01)
    assert found.reason.startswith("does not differ" if (shift, scale) == (0.0, 1.0) else "differs")
    assert found.reason.endswith("which matters") == (word != "agrees")


def test_a_difference_within_monte_carlo_error_agrees() -> None:
    """The means differ by 0.3 sd, the Monte Carlo error of ten draws with sd 1."""
    few = predictive(draws=10, between=1.0, seed=3)
    assert predictive_difference(few, predictive(between=1.0), 0.9, (10.0, 1000.0)).word == "agrees"
    assert (
        predictive_difference(few, predictive(between=1.0), 0.9, (10_000.0, 10_000.0)).word
        != "agrees"
    )


@pytest.mark.parametrize(("p", "word"), [(0.3, "agrees"), (0.4, "do not use")])
def test_labels_are_judged_by_their_probabilities(p: float, word: str) -> None:
    """A probability of .4 for .3 is .1 / sqrt(.35 .65) = .21 sd of the label off."""

    def labels(value: float) -> Prediction:
        return Prediction(dist.Bernoulli(torch.full((200, 20), value, dtype=F64)))

    found = predictive_difference(labels(p), labels(0.3), 0.9, both(200))
    assert found.word == word
    assert found.shift == pytest.approx(
        (p - 0.3) / (0.5 * (p + 0.3) * (1 - 0.5 * (p + 0.3))) ** 0.5
    )


def test_counts_are_judged_by_the_content_of_their_intervals() -> None:
    def counts(rate: float) -> Prediction:
        return Prediction(dist.Poisson(torch.full((1, 20), rate, dtype=F64)))

    same = predictive_difference(counts(4.0), counts(4.0), 0.9, both(1))
    assert same.word == "agrees"
    assert same.content == pytest.approx(
        float(counts(4.0).cdf(torch.full((20,), 8.0)).mean()) - float(torch.tensor(-4.0).exp())
    )
    assert predictive_difference(counts(8.0), counts(4.0), 0.9, both(1)).word == "do not use"


def test_a_distribution_without_a_mean_is_judged_by_its_intervals() -> None:
    def heavy(scale: float) -> Prediction:
        return Prediction(
            dist.StudentT(torch.tensor(1.0, dtype=F64), torch.zeros(1, 5, dtype=F64), scale)
        )

    assert predictive_difference(heavy(1.0), heavy(1.0), 0.9, both(1)).word == "agrees"
    assert (
        predictive_difference(heavy(2.0), heavy(1.0), 0.9, both(1)).word
        == "means agree, spread does not"
    )


def line(n: int, seed: int) -> Dataset:
    X = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return Dataset(
        X,
        2 * X[:, 0] + torch.randn(n, generator=torch.Generator().manual_seed(seed + 1), dtype=F64),
    )


def draws(posterior: ppgp.Posterior, values: dict[str, Tensor], how: object) -> ppgp.Posterior:
    return replace(posterior, draws=values, how=how, stats={}, warnings=())


def test_the_table_holds_both_verdicts() -> None:
    """Moved hyperparameters are rejected, and predict as well as the others.

    The reference is not among the posteriors.
    """
    train, test = line(40, 0), line(50, 2)
    exact = ppgp.fit(models.LinearRegression(), train, inference.Exact(), progress=False)
    names = {
        "good": exact,
        "short": draws(exact, {k: v[:, :100] for k, v in exact.draws.items()}, inference.Laplace()),
    }
    moved = {k: v + 0.5 * v.std() if k == "noise" else v for k, v in exact.draws.items()}
    names["moved"] = draws(exact, moved, SimpleNamespace())
    other = ppgp.fit(models.LinearRegression(), train, inference.Exact(), progress=False, seed=1)
    found = ppgp.compare(names, other, test=test)
    table = found.to_frame()
    assert table["predictions"].to_dict() == {
        "good": "agrees",
        "short": "unjudged",
        "moved": "agrees",
    }
    assert table["verdict"]["moved"] == "do not use"
    assert "100 draws" in table["predictions_reason"]["short"]
    assert table.loc["good", "interval_content"] == pytest.approx(0.9, abs=0.02)
    assert "predictions" in repr(found)
    assert "predictions" not in ppgp.compare(names, other).to_frame().columns
    assert set(ppgp.compare({"good": exact}, test=test).to_frame()["predictions"]) == {"unjudged"}
