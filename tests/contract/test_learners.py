"""Properties of every learner in ``ppgp.learners.__all__``."""

from __future__ import annotations

import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from ppgp import learners
from ppgp.errors import NotApplicable, NumericalError
from ppgp.learners import Estimator, Learner, Linear, Trees, stack

F64 = torch.float64
N, D, K, STAGES = 300, 3, 2, 5
#: learners whose constructors need an argument
SPELT_OUT: dict[str, Learner] = {"Estimator": Estimator(DecisionTreeRegressor(max_depth=3))}
MEMBERS = {
    name: SPELT_OUT.get(name) or getattr(learners, name)()
    for name in learners.__all__
    if name != "Learner"
}
MEMBERS["depth"] = Trees(depth=3, columns=1.0)
MEMBERS["linear leaves"] = Trees(leaves=4, linear=True)
MEMBERS["least squares"] = Linear(penalty=0.0)
MEMBERS["neighbours"] = Estimator(KNeighborsRegressor())
each = pytest.mark.parametrize("learner", MEMBERS.values(), ids=MEMBERS.keys())


def rows(n: int = N, seed: int = 0) -> Tensor:
    """Return X [n, d]."""
    return torch.randn(n, D, dtype=F64, generator=torch.Generator().manual_seed(seed))


def targets(X: Tensor) -> Tensor:
    """Return g [K, n]."""
    return torch.stack([X[:, 0].sin() + X[:, 1] * X[:, 2], X[:, 0].abs() + 3.0])


def boosted(learner: Learner, X: Tensor, seed: int = 0, **options: object):
    """Return a fit of some stages to residuals, their sum, and their sum at rows held out."""
    valid, g, steps = rows(40, 1), targets(X), torch.linspace(0.3, 0.7, STAGES, dtype=F64)
    growing = learner.begin(X, K, valid=valid, seed=seed, **options)
    total, held_out = torch.zeros_like(g), torch.zeros(K, len(valid), dtype=F64)
    for step in steps:
        at_rows, at_valid = growing.add(g - total)
        assert at_valid is not None
        total, held_out = total + step * at_rows, held_out + step * at_valid
    assert growing.stages == STAGES
    return growing, growing.tensors(steps), total, held_out


@each
def test_predictions_are_the_outputs_of_the_stages(learner: Learner) -> None:
    X = rows()
    _, tensors, total, held_out = boosted(learner, X)
    torch.testing.assert_close(learner.predict(tensors, X), total, rtol=1e-12, atol=1e-12)
    at_valid = learner.predict(tensors, rows(40, 1))
    torch.testing.assert_close(at_valid, held_out, rtol=1e-12, atol=1e-12)
    assert all(value.dtype is not torch.float32 for value in tensors.values())


@each
def test_stages_reduce_the_squared_error(learner: Learner) -> None:
    X = rows()
    _, _, total, _ = boosted(learner, X)
    g = targets(X)
    assert bool(((g - total).square().mean(1) < 0.95 * g.square().mean(1)).all())


@each
def test_a_constant_is_fitted_exactly(learner: Learner) -> None:
    at_rows, _ = learner.begin(rows(), 1).add(torch.full((1, N), 3.7, dtype=F64))
    torch.testing.assert_close(at_rows, torch.full((1, N), 3.7, dtype=F64), rtol=1e-7, atol=0.0)


@each
def test_staged_predictions_are_partial_sums(learner: Learner) -> None:
    X = rows(7, 2)
    growing, tensors, _, _ = boosted(learner, rows())
    partial = list(learner.staged(tensors, X, 2))
    assert len(partial) == 3
    for until, one in zip((2, 4, 5), partial, strict=True):
        assert torch.equal(one, learner.predict(tensors, X, until))
    first = growing.tensors(torch.linspace(0.3, 0.7, STAGES, dtype=F64)[:2])
    assert torch.equal(learner.predict(first, X), partial[0])
    assert not learner.predict(growing.tensors(torch.zeros(0)), X).any()


@each
def test_a_row_does_not_depend_on_the_others(learner: Learner) -> None:
    X = rows(50, 2)
    _, tensors, _, _ = boosted(learner, rows())
    together = learner.predict(tensors, X)
    alone = torch.cat([learner.predict(tensors, X[i : i + 1]) for i in range(50)], 1)
    torch.testing.assert_close(alone, together, rtol=1e-13, atol=1e-13)


@each
def test_members_of_different_length_are_stacked(learner: Learner) -> None:
    X = rows(7, 2)
    growing, tensors, _, _ = boosted(learner, rows())
    shorter = growing.tensors(torch.ones(3))
    together = learner.predict(stack([tensors, shorter]), X)
    assert torch.equal(together[0], learner.predict(tensors, X))
    assert torch.equal(together[1], learner.predict(shorter, X))


@each
def test_a_seed_gives_the_same_bits_and_a_killed_fit_continues(learner: Learner) -> None:
    X, valid = rows(), rows(40, 1)
    _, tensors, total, _ = boosted(learner, X, seed=5, rows=0.7)
    steps = torch.linspace(0.3, 0.7, STAGES, dtype=F64)
    growing = learner.begin(X, K, valid=valid, seed=5, rows=0.7)
    sum_so_far = torch.zeros_like(total)
    for stage, step in enumerate(steps):
        if stage == 2:
            kept = growing.tensors(torch.ones(stage))
            growing = learner.begin(X, K, valid=valid, seed=5, rows=0.7)
            growing.restore(kept)
        sum_so_far = sum_so_far + step * growing.add(targets(X) - sum_so_far)[0]
    assert torch.equal(sum_so_far, total)
    again = growing.tensors(steps)
    assert torch.equal(learner.predict(again, valid), learner.predict(tensors, valid))
    other = boosted(learner, X, seed=6, rows=0.7)[2]
    assert not torch.equal(other, total)


@each
@pytest.mark.parametrize("power", [-30, 41])
def test_powers_of_two_in_the_targets_change_no_bit(learner: Learner, power: int) -> None:
    X, factor = rows(), 2.0**power
    at_rows, _ = learner.begin(X, K).add(targets(X))
    scaled, _ = learner.begin(X, K).add(targets(X) * factor)
    assert torch.equal(scaled, at_rows * factor)


@each
def test_importance_is_largest_where_the_function_varies(learner: Learner) -> None:
    X = rows()
    growing = learner.begin(X, K)
    for _ in range(8):  # a tree may be drawn without the column
        growing.add(torch.stack([2.0 * X[:, 1], X[:, 2]]))
    tensors = growing.tensors(torch.ones(8))
    try:
        found = learner.importance(tensors, D)
    except NotApplicable:
        assert not isinstance(learner, Trees | Linear)
        return
    assert found.shape == (K, D)
    assert bool((found >= 0).all())
    assert found.argmax(1).tolist() == [1, 2]


@each
def test_inputs_in_float32_are_taken(learner: Learner) -> None:
    X = rows().float()
    growing = learner.begin(X, K)
    at_rows, _ = growing.add(targets(X).double())
    predicted = learner.predict(growing.tensors(torch.ones(1)), X)
    assert predicted.dtype is torch.float32
    torch.testing.assert_close(predicted.double(), at_rows, rtol=1e-5, atol=1e-5)


@each
def test_constant_columns_and_few_rows_are_taken(learner: Learner) -> None:
    X = torch.cat([rows(6), torch.full((6, 1), 2.0, dtype=F64)], 1)
    growing = learner.begin(X, 1)
    at_rows, _ = growing.add(X[:, :1].T)
    assert bool(torch.isfinite(at_rows).all())
    only_constants = learner.begin(torch.ones(9, 2, dtype=F64), 1)
    g = torch.arange(9, dtype=F64)[None]
    at_rows, _ = only_constants.add(g)
    if not isinstance(getattr(learner, "estimator", None), KNeighborsRegressor):
        torch.testing.assert_close(at_rows, torch.full_like(g, 4.0))


@each
def test_targets_that_are_not_finite_are_refused(learner: Learner) -> None:
    g = targets(rows())
    g[0, 3] = float("inf")
    with pytest.raises(NumericalError, match="finite targets"):
        learner.begin(rows(), K).add(g)
    with pytest.raises(NumericalError, match="weights of at least 0"):
        learner.begin(rows(), K).add(targets(rows()), torch.full((K, N), -1.0, dtype=F64))
