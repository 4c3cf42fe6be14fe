"""Boosting that goes on from another fit: only with its model, rows, folds and members."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ppgp import Dataset, fit, learners, models
from ppgp.errors import NotApplicable
from ppgp.inference import NaturalGradientBoosting
from ppgp.posterior.posterior import Posterior

F64 = torch.float64
pytestmark = pytest.mark.filterwarnings("ignore:the score at the rows held out")
HOW = NaturalGradientBoosting(score="nll", steps=5, folds=3, stopping="fold")
TREES = learners.Trees()


def rows() -> tuple[Tensor, Tensor]:
    """Return X, whose last column holds codes, and y."""
    g = torch.Generator().manual_seed(0)
    X = 4 * torch.rand(150, 3, generator=g, dtype=F64)
    X[:, 2] = X[:, 2].round()
    return X, torch.sin(3 * X[:, 0]) + 0.3 * torch.randn(150, generator=g, dtype=F64)


def boosted(
    how: NaturalGradientBoosting = HOW,
    init: Posterior | None = None,
    *,
    learner: learners.Learner = TREES,
    seed: int = 0,
    **options: object,
) -> Posterior:
    data = Dataset(*rows(), **options)  # type: ignore[arg-type]
    model = models.Boosted(learner=learner)
    return fit(model, data, how, progress=False, seed=seed, init=init)


@pytest.fixture(scope="module")
def first() -> Posterior:
    return boosted()


def test_the_folds_of_a_fit_are_labels_of_the_next(first: Posterior) -> None:
    folds = first.params["fold"]
    more = boosted(replace(HOW, folds=folds), first, seed=1)
    assert torch.equal(more.params["fold"], folds)
    assert bool((more.stats["stages"] > first.stats["stages"]).all())


@pytest.mark.parametrize(("folds", "seed"), [(3, 1), (2, 0), (4, 0), (None, 0)])
def test_other_folds_are_refused(first: Posterior, folds: int | None, seed: int) -> None:
    """A member would already have learned from rows of the fold that it leaves out."""
    with pytest.raises(NotApplicable, match=r"same folds.*init\.params"):
        boosted(replace(HOW, folds=folds), first, seed=seed)


def test_a_fit_to_all_rows_does_not_go_on_by_folds() -> None:
    one = boosted(replace(HOW, folds=None))
    with pytest.raises(NotApplicable, match=r"same folds.*folds=None"):
        boosted(init=one)


def test_other_numbers_of_members_are_refused(first: Posterior) -> None:
    alone = replace(first, draws={name: value[:, :1] for name, value in first.draws.items()})
    with pytest.raises(NotApplicable, match="3 members as init, got 1 member"):
        boosted(init=alone)


def test_other_flags_or_columns_of_codes_are_refused(first: Posterior) -> None:
    with pytest.raises(NotApplicable, match="these rows as init"):
        boosted(init=first, right_censored=rows()[1] > 1)
    with pytest.raises(NotApplicable, match="these rows as init"):
        boosted(init=first, categorical=[2])


@pytest.mark.parametrize("learner", [learners.Trees(linear=True), learners.Linear()])
def test_another_model_is_refused(first: Posterior, learner: learners.Learner) -> None:
    """A linear leaf read without its coefficients would be another function."""
    with pytest.raises(NotApplicable, match="this model as init"):
        boosted(init=first, learner=learner)


@pytest.mark.parametrize("stopped", ["fold", "inside"])
def test_members_do_not_choose_steps_on_rows_that_they_have_learned_from(stopped: str) -> None:
    first = boosted(replace(HOW, stopping=stopped))
    with pytest.raises(NotApplicable, match=r"init has not learned from.*stopping=\"fold\""):
        boosted(replace(HOW, stopping="inside"), first)


@pytest.mark.parametrize("hold_out", [None, 0.2])
def test_a_fit_to_all_rows_does_not_choose_steps_on_some_of_them(hold_out: float | None) -> None:
    plain = replace(HOW, folds=None)
    first = boosted(replace(plain, hold_out=hold_out))
    with pytest.raises(NotApplicable, match=r"init has not learned from.*leave out hold_out"):
        boosted(replace(plain, hold_out=0.2), first)
    more = boosted(plain, first)
    assert int(more.stats["stages"]) > int(first.stats["stages"])
