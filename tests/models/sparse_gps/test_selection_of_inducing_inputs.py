"""The selection of inducing inputs: greedy methods, features of deep kernels, reselection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from waves import F64, KERNEL, normal, thetas, waves

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.errors import NotApplicable, NumericalWarning, SettingError
from ppgp.networks.networks import MLP
from ppgp.priors import under


def test_the_greedy_bound_takes_the_best_candidate() -> None:
    """With every row as a candidate, each step takes the row with the highest full bound."""
    from ppgp.models.sparse.inducing import select

    data, theta = waves(25), {k: v[0] for k, v in thetas(1).items()}
    k = under("kernel", theta)

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        return KERNEL(k, a, b)

    result = select(
        "bound", 10, data.X, data.y, covariance, KERNEL.diag(k, data.X), float(theta["noise"])
    )
    chosen: list[int] = []
    for _ in range(10):
        values = []
        for i in range(data.n):
            Z = data.X[[*chosen, i]]
            if i in chosen:
                values.append(-np.inf)
                continue
            Q = covariance(data.X, Z) @ torch.linalg.solve(covariance(Z, Z), covariance(Z, data.X))
            gap = (KERNEL.diag(k, data.X) - Q.diagonal()).sum()
            bound = normal(data.y, Q + theta["noise"] * torch.eye(25, dtype=F64)) - gap / (
                2 * theta["noise"]
            )
            values.append(float(bound))
        chosen.append(int(np.argmax(values)))
    torch.testing.assert_close(result, data.X[chosen])


def test_greedy_conditional_variance_is_pivoted_cholesky() -> None:
    from ppgp.models.sparse.inducing import select

    data, theta = waves(25), {k: v[0] for k, v in thetas(1).items()}
    k = under("kernel", theta)
    K = KERNEL(k, data.X)
    chosen = [int(K.diagonal().argmax())]
    for _ in range(4):
        inner = torch.linalg.solve(K[chosen][:, chosen], K[chosen])
        chosen.append(int((K.diagonal() - (K[chosen] * inner).sum(0)).argmax()))
    diagonal = KERNEL.diag(k, data.X)
    result = select(
        "conditional_variance", 5, data.X, None, lambda a, b: KERNEL(k, a, b), diagonal, 0.1
    )
    torch.testing.assert_close(result, data.X[chosen])


@pytest.mark.parametrize("selection", ["conditional_variance", "bound"])
@pytest.mark.parametrize("kind", [models.SGPR, models.SVGP])
def test_fewer_inducing_inputs_where_the_kernel_distinguishes_fewer_rows(
    kind: type[models.SGPR | models.SVGP], selection: str
) -> None:
    data = waves(60, 1)
    with pytest.warns(NumericalWarning, match="50 were asked for"):
        ready = kind(kernels.RBF(1.0, 3.0), 50, selection=selection).prepare(data)
    assert ready.Z is not None
    assert len(torch.unique(ready.Z, dim=0)) == len(ready.Z) == ready.inducing
    assert 3 <= len(ready.Z) < 50
    twins = Dataset(data.X[[0] * 15 + [1] * 5], data.y[:20])
    with pytest.warns(NumericalWarning, match="2 inducing inputs"):
        ready = kind(inducing=6, selection=selection).prepare(twins)
    assert ready.Z is not None
    assert len(ready.Z) == 2


def test_a_fit_continues_with_fewer_inducing_inputs() -> None:
    data = waves(60, 1)
    with pytest.warns(NumericalWarning, match="40 were asked for"):
        posterior = ppgp.fit(
            models.SGPR(inducing=40, selection="bound"), data, inference.MAP(), progress=False
        )
    assert float((posterior.predict(data.X).mean - data.y).std()) < float(data.y.std())


def striped(n: int, seed: int) -> Dataset:
    """Return rows whose y is a wave in one of three columns, which a network must learn."""
    generator = torch.Generator().manual_seed(seed)
    X = 2 * torch.randn(n, 3, generator=generator, dtype=F64)
    return Dataset(X, torch.sin(2 * X[:, 0]) + 0.1 * torch.randn(n, generator=generator, dtype=F64))


DEEP = kernels.Deep(MLP(hidden=(8,), out=2, dropout=0.0), kernels.RBF())


def test_kmeans_under_a_deep_kernel_clusters_features() -> None:
    """Take one row per cluster of features; the column that spreads the rows is ignored."""
    n = 40
    X = torch.zeros(n, 2, dtype=F64)
    X[:, 0] = torch.where(torch.arange(n) % 2 == 0, -1.0, 1.0)
    X[:, 1] = torch.linspace(-50.0, 50.0, n, dtype=F64)
    blind = torch.nn.Linear(2, 1, bias=False, dtype=F64)
    with torch.no_grad():
        blind.weight.copy_(torch.tensor([[1.0, 1e-9]]))
    model = models.SGPR(kernels.Deep(blind, kernels.RBF()), inducing=2).prepare(Dataset(X, X[:, 0]))
    assert model.Z is not None
    assert sorted(model.Z[:, 0].tolist()) == [-1.0, 1.0]
    assert bool((model.Z[:, None] == X).all(-1).any(1).all())
    flat = models.SGPR(kernels.RBF(), inducing=2).prepare(Dataset(X, X[:, 0]))
    assert flat.Z is not None
    assert flat.Z[:, 1].abs().min() > 15  # plain k-means splits along the other column


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("selection", ["kmeans", "bound"])
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_inducing_inputs_are_placed_again_during_the_optimisation(
    selection: str, optimizer: str
) -> None:
    """They end where the selection last placed them, and no gradient has moved them."""
    data, _ = striped(50, 0).standardised()
    model = models.SGPR(DEEP, inducing=8, selection=selection, reselect=3)
    prepared = model.prepare(data)
    how = inference.MAP(
        optimizer, steps=7, learning_rate=0.02, batch_size=50 if optimizer == "sgd" else None
    )
    posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
    Z = posterior.params["inducing"]
    assert not torch.equal(Z, prepared.Z)
    assert bool((Z[:, None] == data.X).all(-1).any(1).all())  # rows of the data
    seventh = ppgp.fit(
        model, data, replace(how, steps=6, schedule="constant"), progress=False, standardise=False
    )
    if optimizer == "adam":  # step 7 starts with a selection at the weights after six steps
        theta = {**{k: v[0, 0] for k, v in seventh.draws.items()}, **seventh.params}
        torch.testing.assert_close(
            Z, model.reselected_inducing(theta, data)["inducing"], rtol=0, atol=0
        )


def test_reselection_raises_the_bound_of_a_deep_kernel() -> None:
    """The greedy selection at moved features ends above the random rows that it started from."""
    data, _ = striped(150, 1).standardised()
    how = inference.MAP("adam", steps=60, learning_rate={"kernel.network": 0.01, "": 0.03})
    ends = {}
    for name, model in {
        "left": models.SGPR(DEEP, inducing=10, selection="random"),
        "again": models.SGPR(DEEP, inducing=10, selection="bound", reselect=5),
        "gradient": models.SGPR(DEEP, inducing=10, selection="random", learn=True),
    }.items():
        ends[name] = ppgp.fit(model, data, how, progress=False, standardise=False).stats[
            "log_density"
        ]
    assert ends["again"] > ends["left"]
    assert ends["gradient"] > ends["left"]


def test_reselect_requires_stochastic_steps_and_excludes_learn() -> None:
    with pytest.raises(SettingError, match="reselect"):
        models.SGPR(DEEP, learn=True, reselect=2)
    with pytest.raises(SettingError, match="reselect"):
        models.SGPR(DEEP, reselect=0)
    for how in (inference.MAP(), inference.NUTS(), inference.SVI()):
        with pytest.raises(NotApplicable, match="adam"):
            ppgp.fit(models.SGPR(DEEP, inducing=5, reselect=2), striped(20, 0), how, progress=False)


@pytest.mark.parametrize("build", [models.SGPR, models.SVGP])
def test_the_default_number_is_at_most_that_of_the_different_rows(build: Any) -> None:
    # 120 rows, more than the default number
    X = torch.linspace(0.0, 1.0, 40, dtype=torch.float64).repeat(3)[:, None]
    ready = build().prepare(Dataset(X, torch.sin(X[:, 0])))
    assert len(ready.Z) == 40
