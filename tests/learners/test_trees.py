"""Trees: equal to LightGBM's own predictions, and what is special to them."""

from __future__ import annotations

import math
import os
import sys
import threading
import warnings
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch

from ppgp.errors import NotApplicable, NotEnoughMemory, SettingError, StorageError
from ppgp.learners import Trees, lightgbm_trees
from ppgp.learners.lightgbm_trees import read_trees
from ppgp.learners.tree_table import TreeTable
from ppgp.learners.tree_tensors import tree_sum
from ppgp.runtime import memory

F64 = torch.float64
N, D = 2000, 5


def table(missing: bool = False, seed: int = 0) -> np.ndarray:
    """Return X [n, d]; columns 3 and 4 hold codes, of which 4 has many."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    X[:, 3] = rng.integers(0, 4, N)
    X[:, 4] = rng.integers(0, 120, N)
    if missing:
        X[rng.random((N, D)) < 0.15] = np.nan
    return X


def grown(X: np.ndarray, outputs: int, categorical: bool, **options: Any) -> Any:
    """Return a booster of LightGBM with some stages."""
    columns = [3, 4] if categorical else []
    params = {"objective": "none", "num_class": outputs, "min_data_in_leaf": 5, "verbosity": -1}
    params |= {"num_threads": 1, "min_data_per_group": 10, **options}
    train = lightgbm.Dataset(X, categorical_feature=columns, params=dict(params))
    booster = lightgbm.Booster(params, train)
    code = np.nan_to_num(X)
    base = np.sin(code[:, 0]) + code[:, 1] * code[:, 2] + (code[:, 4] * 7 % 11) / 4 + code[:, 3]
    goal = np.stack([base * (k + 1) - k for k in range(outputs)], 1)

    def gradients(scores: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
        slopes = scores.reshape(N, outputs) - goal
        return (slopes, np.ones_like(slopes)) if outputs > 1 else (slopes[:, 0], np.ones(N))

    for _ in range(12):
        booster.update(fobj=gradients)
    return booster


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categorical", [False, True])
def test_the_tensors_predict_what_lightgbm_predicts(
    outputs: int, linear: bool, missing: bool, categorical: bool
) -> None:
    """Missing values come in training, or at new rows alone; codes are unknown, large, negative."""
    booster = grown(table(missing), outputs, categorical, linear_tree=linear, learning_rate=0.3)
    X = table(missing=True, seed=1)
    X[:6, 3:] = [[4, 121], [200, 500], [-1, -3], [2.5, 0.9], [1e9, 3e8], [-0.5, 1e-9]]
    trees, kept = read_trees(booster.model_to_string()), TreeTable(outputs, categorical, linear)
    kept.append(trees)
    tensors = kept.tensors(torch.ones(kept.stages))
    expected = booster.predict(X, raw_score=True, num_threads=1).reshape(N, outputs).T
    found = tree_sum(tensors, torch.from_numpy(X), len(trees) // outputs).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    splits = {int(f) for tree in trees for f in tree.feature}
    assert splits >= {0, 1, 2, 3, 4}
    assert any(len(tree.categories) for tree in trees) == categorical


def test_leaves_are_weighted_means() -> None:
    X, generator = torch.from_numpy(table()), torch.Generator().manual_seed(0)
    g = X[:, 0].sin()[None] + torch.randn(1, N, dtype=F64, generator=generator)
    weights = torch.rand(1, N, dtype=F64, generator=generator)
    for w in (None, weights):
        at_rows, _ = Trees(columns=1.0).begin(X, 1).add(g, w)
        mass = torch.ones_like(g) if w is None else w
        _, leaf = torch.unique(at_rows, return_inverse=True)
        assert 2 <= int(leaf.max()) < 32
        total = torch.zeros(32, dtype=F64).index_add_(0, leaf[0], mass[0])
        mean = torch.zeros(32, dtype=F64).index_add_(0, leaf[0], (mass * g)[0]) / total
        # LightGBM holds gradients and weights in float32
        torch.testing.assert_close(mean[leaf], at_rows, rtol=0.0, atol=1e-6)
        smallest = int(leaf.unique(return_counts=True)[1].min())
        assert w is not None or smallest >= 5


def test_depth_and_leaves_are_limits() -> None:
    X = torch.from_numpy(table())
    g = (X[:, 0].sin() + X[:, 1] * X[:, 2])[None]
    for learner, leaves in ((Trees(depth=2), 4), (Trees(leaves=6), 6), (Trees(depth=40), 32)):
        growing = learner.begin(X, 1)
        growing.add(g)
        feature = growing.tensors(torch.ones(1))["feature"]
        assert feature.shape == (1, 2 * leaves - 1)


def test_gains_are_reductions_of_the_squared_error() -> None:
    X = torch.from_numpy(table())
    g = 1e5 * (X[:, 0].sin() + X[:, 1])[None]
    growing = Trees().begin(X, 1)
    at_rows, _ = growing.add(g)
    total = Trees().importance(growing.tensors(torch.ones(1)), D).sum()
    reduced = (g - g.mean()).square().sum() - (g - at_rows).square().sum()
    torch.testing.assert_close(total, reduced, rtol=1e-4, atol=0.0)  # written with 6 digits


@pytest.mark.parametrize("size", [1e-300, 1e-40, 1e40, 1e300])
def test_targets_of_any_size_are_taken(size: float) -> None:
    X = torch.from_numpy(table())
    g = (X[:, 0].sin() + X[:, 1] * X[:, 2])[None]
    plain, _ = Trees().begin(X, 1).add(g)
    scaled, _ = Trees().begin(X, 1).add(g * size)
    torch.testing.assert_close(scaled / size, plain, rtol=1e-5, atol=1e-6)


def test_an_output_without_a_split_is_the_mean_of_its_targets() -> None:
    X = torch.from_numpy(table())
    g = torch.stack([X[:, 0].sin(), torch.full((N,), 0.3, dtype=F64)])
    growing = Trees().begin(X, 2, valid=X[:5])
    at_rows, held_out = growing.add(g)
    assert held_out is not None
    for part in (at_rows, held_out):
        torch.testing.assert_close(part[1], torch.full_like(part[1], 0.3))
        assert len(part[0].unique()) > 1
    growing.add(torch.zeros_like(g))
    growing.add(g)
    predicted = Trees().predict(growing.tensors(torch.ones(3)), X)
    torch.testing.assert_close(predicted[1], torch.full((N,), 0.6, dtype=F64))


def test_stages_are_packed_without_a_change() -> None:
    X = torch.from_numpy(table())
    g = torch.stack([X[:, 0].sin(), X[:, 1] * X[:, 2]])
    growing, total = Trees(leaves=9).begin(X, 2), torch.zeros(2, N, dtype=F64)
    for m in range(70):
        total += 0.1 * growing.add(g if m % 30 else torch.ones_like(g))[0]
    tensors = growing.tensors(torch.full((70,), 0.1, dtype=F64))
    torch.testing.assert_close(Trees().predict(tensors, X), total, rtol=1e-12, atol=1e-12)
    shorter = growing.tensors(torch.full((50,), 0.1, dtype=F64))
    assert torch.equal(Trees().predict(shorter, X), Trees().predict(tensors, X, 50))


def test_codes_are_split_into_sets() -> None:
    """One tree separates codes that no threshold does."""
    X = torch.from_numpy(table())
    odd = (X[:, 4] % 2)[None]
    as_number, _ = Trees(leaves=4, columns=1.0).begin(X, 1).add(odd)
    as_codes, _ = Trees(leaves=4, columns=1.0).begin(X, 1, categorical=(4,)).add(odd)
    assert float((odd - as_number).square().mean()) > 0.2
    # the 60 codes of one class take two sets, as a set has at most 32
    assert float((odd - as_codes).square().mean()) < 0.02


@pytest.mark.parametrize(("n", "levels"), [(60, 5), (150, 8), (400, 40)])
def test_few_rows_are_split_by_codes_of_many_levels(n: int, levels: int) -> None:
    """A set of codes takes ``min_rows`` rows, and its output is the mean of its targets."""
    X = torch.arange(n, dtype=F64)[:, None] % levels
    g = (3 * X[:, :1].T) % levels
    growing = Trees(leaves=64).begin(X, 1, categorical=(0,))
    at_rows, _ = growing.add(g)
    torch.testing.assert_close(at_rows, g, rtol=0.0, atol=1e-5)
    assert torch.equal(Trees().predict(growing.tensors(torch.ones(1)), X), at_rows)


@pytest.mark.parametrize(("min_rows", "leaves"), [(1, 12), (2, 5), (3, 4)])
def test_few_rows_are_binned_as_finely_as_leaves_may_be(min_rows: int, leaves: int) -> None:
    X = 1 + torch.arange(12, dtype=F64)[:, None]
    at_rows, _ = Trees(min_rows=min_rows).begin(X, 1).add(X.T.square())
    sizes = at_rows.unique(return_counts=True)[1]
    assert len(sizes) >= leaves
    assert int(sizes.min()) >= min_rows


def test_a_fit_without_stages_has_one_sum() -> None:
    X = torch.from_numpy(table())
    growing = Trees().begin(X, 2)
    growing.add(X[:, :2].T)
    sums = list(Trees().staged(growing.tensors(torch.ones(0)), X))
    assert len(sums) == 1
    assert torch.equal(sums[0], torch.zeros(2, N, dtype=F64))


def test_missing_values_go_where_they_fit() -> None:
    X = torch.from_numpy(table())
    X[::3, 0] = torch.nan
    g = X[:, 0].isnan().to(F64)[None]
    growing = Trees().begin(X, 1)
    at_rows, _ = growing.add(g)
    torch.testing.assert_close(at_rows, g, rtol=0.0, atol=1e-6)
    predicted = Trees().predict(growing.tensors(torch.ones(1)), X)
    assert torch.equal(predicted, at_rows)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(20_000, 8, dtype=F64, generator=generator)
    g = torch.stack([X[:, 0].sin() + X[:, 1] * X[:, 2], X[:, 3].square()])
    g = g + torch.randn(g.shape, dtype=F64, generator=generator)
    weights = 0.5 + X[:, :2].T.sigmoid()
    found = []
    for threads in (1, 2, 4):
        growing = Trees().begin(X, 2, rows=0.7, seed=1, threads=threads)
        total = torch.zeros_like(g)
        for _ in range(4):
            total += 0.5 * growing.add(g - total, weights)[0]
        found.append([total, *growing.tensors(torch.ones(4)).values()])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin",
    reason="processes are forked on Linux alone",
)
def test_a_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    X = torch.from_numpy(table())

    def work() -> None:
        Trees().begin(X, 1, threads=2).add(X[:, :1].T)

    work()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if not child:
        threading.Timer(30.0, lambda: os._exit(3)).start()
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_predictions_need_no_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    X = torch.from_numpy(table())
    growing = Trees().begin(X, 1, categorical=(3, 4))
    at_rows, _ = growing.add((X[:, 0].sin() + X[:, 4])[None])
    tensors = growing.tensors(torch.ones(1))
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert torch.equal(Trees().predict(tensors, X), at_rows)


def test_without_lightgbm_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    lightgbm_trees._lightgbm.cache_clear()
    with pytest.raises(NotApplicable, match=r'pip install "ppgp\[boost\]"'):
        Trees().begin(torch.randn(30, 2, dtype=F64), 1)
    monkeypatch.undo()
    lightgbm_trees._lightgbm.cache_clear()


def test_rows_that_exceed_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device=None: 10**6)
    monkeypatch.setattr(memory, "SMALL", 0)
    with pytest.raises(NotEnoughMemory, match="trees on 50,000 rows of 2 columns and 3 outputs"):
        Trees().begin(torch.randn(50_000, 2, dtype=F64), 3)


@pytest.mark.parametrize(
    "options",
    [
        {"leaves": 1},
        {"leaves": True},
        {"depth": 0},
        {"min_rows": 0},
        {"columns": 0.0},
        {"columns": 1.1},
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"as {next(iter(options))} of Trees"):
        Trees(**options)


def test_trees_that_are_no_trees_are_refused() -> None:
    """A damaged file must not loop for ever."""
    growing = Trees().begin(torch.from_numpy(table()), 1)
    growing.add(torch.from_numpy(table()[:, :1].T.copy()))
    tensors = growing.tensors(torch.ones(1))
    tensors["left"][0, 3] = 0
    with pytest.raises(StorageError, match="children after their parents"):
        Trees().predict(tensors, torch.zeros(2, D, dtype=F64))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("of", [lambda x: x + 2048, lambda x: 3 * x, np.exp, lambda x: x**3 - 1e6])
def test_trees_depend_on_the_order_of_the_values_alone(of: Any, missing: bool) -> None:
    X = table(missing)[:400]
    X[:, 1] = np.round(X[:, 1], 1)  # ties, and values halfway between two others
    g = torch.tensor(np.nan_to_num(np.stack([X[:, 0] * X[:, 1], np.sin(X[:, 2]) + X[:, 3]])))
    moved = np.where(np.arange(D) < 3, of(X), X)
    for column in range(3):
        assert len(np.unique(moved[:, column])) == len(np.unique(X[:, column]))

    def grown_on(rows: np.ndarray) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the outputs at all rows of trees on some, with others held out or left out."""
        every, part = torch.tensor(rows), torch.arange(len(rows)) % 4
        learner = Trees(leaves=16).knowing(every)
        growing = learner.begin(
            every[part < 2], 2, valid=every[part == 2], rows=0.8, categorical=(3, 4)
        )
        at_rows, held_out = torch.zeros(2, 200), torch.zeros(2, 100)
        for _ in range(6):
            here, there = growing.add(g[:, part < 2])
            assert there is not None
            at_rows, held_out = at_rows + here, held_out + there
        tensors = growing.tensors(torch.ones(6))
        found = learner.predict(tensors, every)
        torch.testing.assert_close(at_rows, found[:, part < 2])
        torch.testing.assert_close(held_out, found[:, part == 2])
        return found, tensors

    (found, trees), (other, moved_trees) = grown_on(X), grown_on(moved)
    assert torch.equal(found, other)
    for name in ("feature", "missing_left", "left", "right", "value", "categories"):
        if name != "missing_left" or missing:  # else NaN is read as 0, in the units of the column
            assert torch.equal(trees[name], moved_trees[name]), name


def test_a_threshold_lies_halfway_between_two_values() -> None:
    X = torch.tensor([[-3.0], [-2.0], [-1.0], [4.0], [5.0], [7.0]], dtype=F64)
    growing = Trees(leaves=2, min_rows=1, columns=1.0).begin(X, 1)
    growing.add((X.mT > 0).to(F64))
    tensors = growing.tensors(torch.ones(1))
    assert tensors["threshold"][0, 0] == 1.5
    at = Trees().predict(tensors, torch.tensor([[1.4], [1.5], [1.6], [math.nan]], dtype=F64))
    torch.testing.assert_close(at, torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=F64))
    close = torch.tensor([[1.0], [1.0 + 2**-52]], dtype=F64).repeat(4, 1)
    growing = Trees(leaves=2, min_rows=1, columns=1.0).begin(close, 1)
    at_rows, _ = growing.add((close.mT > 1).to(F64))
    torch.testing.assert_close(at_rows, (close.mT > 1).to(F64))
