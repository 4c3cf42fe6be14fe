"""SGPR of a stream of rows: the bound, its slopes and the predictions are those in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import kernels, models
from ppgp.data.stream.streamed_rows import StreamedRows
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import MAP, NUTS, SVI, Laplace
from ppgp.networks.networks import MLP
from tests.parquet_tables import columns_of, regression, write

N, M = 900, 15
X, Y = regression(N)
Z = X[:: N // M]
ARD = kernels.ARD(kernels.Matern(1.5))
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    "a White": ({"kernel": ARD + kernels.White()}, 1e-10),
    "learnt inputs": ({"kernel": kernels.RBF(), "learn": True}, 1e-9),
    "a linear mean": ({"kernel": ARD, "mean": models.LinearMean()}, 1e-10),
    # features of the inducing inputs lie close together: Kmm is worse conditioned
    "a network": ({"kernel": kernels.Deep(MLP((4,), out=2), kernels.RBF())}, 1e-7),
}


@pytest.fixture
def stream(tmp_path: Path) -> ppgp.data.Stream:
    return ppgp.stream(write(tmp_path / "a.parquet", 250, **columns_of(X, Y)), "y")


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppgp.data.stream.streamed_rows.PORTION", 200)
    monkeypatch.setattr("ppgp.density.target.ROWS", 70)


def in_memory() -> ppgp.Dataset:
    return ppgp.Dataset(X, Y, feature_names=["x0", "x1", "x2"], target_name="y")


def both(
    stream: ppgp.data.Stream, **options: Any
) -> tuple[Target, Target, Tensor, ppgp.data.Scaler]:
    """Return the target of the stream, that in memory, a point z, and the scaler of both."""
    whole, scaler = in_memory().standardised()
    sample = scaler(stream.sample(300))
    recipe = models.SGPR(Z=scaler.inputs(torch.from_numpy(Z)), **options)
    model = recipe.prepare(whole)
    of_stream = Target(model, StreamedRows.of(stream, sample, scaler), optimise_params=True)
    of_rows = Target(model, whole, optimise_params=True)
    z = of_rows.origin()
    return of_stream, of_rows, z + 0.1 * torch.arange(len(z)).to(z).sin(), scaler


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("jacobian", [True, False])
def test_value_and_gradient_are_those_in_memory(
    stream: ppgp.data.Stream, name: str, jacobian: bool
) -> None:
    options, tolerance = MODELS[name]
    of_stream, of_rows, z, _ = both(stream, **options)
    value, gradient = of_stream.value_and_grad(z, jacobian=jacobian)
    expected, slope = of_rows.value_and_grad(z, jacobian=jacobian)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    assert float((gradient - slope).abs().max() / slope.abs().max()) <= tolerance
    likelihood, rows = of_stream.log_likelihood(z)
    assert likelihood == pytest.approx(of_rows.log_likelihood(z)[0], rel=1e-12)
    assert rows == N


def test_single_precision_is_summed_in_double(tmp_path: Path) -> None:
    """The numbers in the file are those of float32; the bound has the digits of float64."""
    columns = {name: value.astype(np.float32) for name, value in columns_of(X, Y).items()}
    narrow = ppgp.stream(write(tmp_path / "b.parquet", 250, **columns), "y")
    whole = ppgp.Dataset(X.astype(np.float32).astype(float), Y.astype(np.float32).astype(float))
    model = models.SGPR(Z=torch.from_numpy(Z), mean=20.0).prepare(whole)
    data = StreamedRows.of(narrow, narrow.sample(300))
    of_stream, of_rows = Target(model, data), Target(model, whole)
    z = of_rows.origin()
    value, gradient = of_stream.value_and_grad(z.float())
    expected, slope = of_rows.value_and_grad(z)
    assert value.dtype == gradient.dtype == torch.float32
    # two roundings to float32, of unit 6e-8, of the result
    assert float(value) == pytest.approx(float(expected), rel=2e-7)
    assert float((gradient - slope).abs().max() / slope.abs().max()) <= 2e-6


@pytest.mark.parametrize("how", [MAP(), MAP("adam", steps=25)], ids=["lbfgs", "adam"])
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_fit_predicts_without_the_stream(
    stream: ppgp.data.Stream, how: MAP, tmp_path: Path
) -> None:
    """The file has the sums over all rows, and a sample of 300 of them."""
    recipe = models.SGPR(Z=Z)
    found = ppgp.fit(recipe, stream, how, progress=False)
    whole = ppgp.fit(recipe, in_memory(), how, progress=False)
    assert found.stats["log_density"] == pytest.approx(whole.stats["log_density"], abs=1e-6)
    assert found.stats["observations"] == found.stats["rows"] == N
    new = torch.from_numpy(X[:7]) + 0.01
    here, there = found.predict(new), whole.predict(new)
    # both searches end within their tolerance of the mode
    torch.testing.assert_close(here.mean, there.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(here.std, there.std, rtol=1e-4, atol=0)
    at_same = whole.model.bounds({n: found.theta[n] for n in whole.theta}, whole.data)
    torch.testing.assert_close(
        found.model.bounds(found.theta, found.data), at_same, rtol=1e-9, atol=0
    )
    again = ppgp.load_posterior(found.save(tmp_path / "fit"))
    assert torch.equal(again.predict(new).mean, here.mean)
    at_again = again.model.bounds(again.theta, again.data)
    torch.testing.assert_close(at_again, at_same, rtol=1e-9, atol=0)


def test_leave_one_out_of_the_sample_leaves_one_of_all_rows_out(
    stream: ppgp.data.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppgp.inference.fitting.streams.SAMPLE", 300)
    found = ppgp.fit(models.SGPR(Z=Z), stream, MAP(), progress=False)
    assert found.data.n == 300
    theta = {name: found.theta[name] for name in found.draws}
    whole = in_memory()
    scaled = found.scaler(whole)
    every = found.model.loo(theta, scaled).mean[0]
    own = found.model.loo(found.theta, found.data).mean[0]
    rows = (found.data.X[:, :1] - scaled.X[:, 0]).abs().argmin(1)
    torch.testing.assert_close(own, every[rows], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (MAP("sgd"), "got MAP('sgd'): use MAP() or MAP('adam'), or fit a sample"),
        (MAP("newton"), "got MAP('newton'): use MAP()"),
        (MAP("adam", batch_size=100), "leave batch_size out"),
        (MAP(hold_out=0.2), "leave hold_out out"),
        (Laplace(), "got Laplace: use MAP()"),
        (NUTS(), "got NUTS: use MAP()"),
        (SVI(), "got SVI: use MAP()"),
        (None, "got none: use MAP()"),
    ],
)
def test_methods_that_take_no_stream_say_what_to_use(
    stream: ppgp.data.Stream, how: Any, sentence: str
) -> None:
    with pytest.raises(NotApplicable, match=re.escape(sentence)):
        ppgp.fit(models.SGPR(inducing=10), stream, how, progress=False)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_what_needs_the_rows_says_so(stream: ppgp.data.Stream) -> None:
    found = ppgp.fit(models.SGPR(Z=Z), stream, MAP(steps=3), progress=False)
    with pytest.raises(NotApplicable, match="a fit to a Dataset for further rows"):
        found.update(torch.from_numpy(X[:2]), torch.from_numpy(Y[:2]))
    elsewhere = {**found.theta, "noise": found.theta["noise"] * 1.1}
    with pytest.raises(NotApplicable, match="at which the sums over the stream are kept"):
        found.model.bounds(elsewhere, found.data)
