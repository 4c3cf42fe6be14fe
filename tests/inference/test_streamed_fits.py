"""Fits to streams of rows equal those to the same rows in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, likelihoods, models
from ppgp.data.stream.streamed_rows import StreamedRows
from ppgp.density import Target
from ppgp.errors import NotApplicable, PpgpError, SettingError
from ppgp.inference import MAP, NUTS, SGLD, SVI, Laplace
from ppgp.inference.variational.collapsed_svi import JointSteps, NaturalSteps
from tests.parquet_tables import columns_of, regression, write

N = 1_500
X, Y = regression(N)
COUNTS = np.random.default_rng(1).poisson(np.exp(0.5 + 0.3 * X[:, 1])).astype(float)
LABELS = np.median(Y) < Y
WEIGHTS = np.random.default_rng(2).integers(1, 4, N).astype(float)


@pytest.fixture
def stream(tmp_path: Path) -> ppgp.data.Stream:
    return ppgp.stream(write(tmp_path / "a.parquet", 400, **columns_of(X, Y)), "y")


def small_sample(stream: ppgp.data.Stream, rows: int = 500) -> StreamedRows:
    """Return the standardised stream with so many rows in memory."""
    scaled, _ = StreamedRows.of(stream, stream.sample(rows)).standardised()
    assert isinstance(scaled, StreamedRows)
    return scaled


def in_memory(y: np.ndarray = Y, **options: Any) -> Dataset:
    return Dataset(X, y, feature_names=["x0", "x1", "x2"], target_name="y", **options)


# -- the density ---------------------------------------------------------------------------------


def test_a_pass_gives_the_density_of_all_rows(
    stream: ppgp.data.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppgp.data.stream.streamed_rows.PORTION", 70)
    model = models.LinearRegression()
    streamed = Target(model, small_sample(stream))
    whole = Target(model, in_memory().standardised()[0])
    z = whole.origin() + 0.3
    for found, expected in zip(streamed.value_and_grad(z), whole.value_and_grad(z), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-9)
    value, observations = streamed.log_likelihood(z)
    assert value == pytest.approx(whole.log_likelihood(z)[0], rel=1e-12)
    assert observations == N


def test_a_pass_gives_the_curvature_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppgp.data.stream.streamed_rows.PORTION", 70)
    path = write(tmp_path / "a.parquet", 400, **columns_of(X, LABELS))
    model = models.LogisticRegression()
    streamed = Target(model, small_sample(ppgp.stream(path, "y")))
    whole = Target(model, in_memory(LABELS).standardised()[0])
    z = whole.origin() + 0.3
    for found, expected in zip(streamed.curvature(z), whole.curvature(z), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-9)


def test_the_mean_over_the_batches_of_an_epoch_is_the_density(stream: ppgp.data.Stream) -> None:
    data = small_sample(stream)
    target = Target(models.LinearRegression(), data)
    z = target.origin() + 0.2
    generator = torch.Generator().manual_seed(0)
    drawn = [target.value_and_grad(z, data.draw(250, generator))[0] for _ in range(N // 250)]
    assert float(torch.stack(drawn).mean()) == pytest.approx(
        float(target.value_and_grad(z)[0]), rel=1e-12
    )


def test_a_step_on_all_rows_equals_that_in_memory(stream: ppgp.data.Stream) -> None:
    ends = []
    Z = torch.from_numpy(np.random.default_rng(0).standard_normal((20, 3)))
    for data in (small_sample(stream, N), in_memory().standardised()[0]):
        model = models.SVGP(Z=Z).prepare(data)
        bound = Target(model, data, optimise_params=True, collapsed_elbo=True)
        z = bound.origin()
        options = SVI(batch_size=N, learning_rate=0.05)._options()
        natural = NaturalSteps(bound, model, data, z)
        step = JointSteps(options, bound, natural, z, torch.Generator().manual_seed(0))
        values = [step(0.05) for _ in range(5)]
        ends.append((torch.tensor(values, dtype=torch.float64), z))
    # the order of the rows differs, so that sums differ by rounding
    for found, expected in zip(*ends, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_tables_made_from_the_sample_stand_for_themselves(stream: ppgp.data.Stream) -> None:
    data = small_sample(stream)
    for table in (data.rows(slice(0, 10)), data.in_memory):
        assert type(table) is Dataset
        assert table.total == table.n
    assert (data.n, data.total, data.sample.total) == (500, N, N)
    assert not data.sample.streamed


# -- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["lbfgs", "newton"])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (models.LinearRegression(), Y),
        (models.LogisticRegression(), LABELS),
        (models.GLM(likelihoods.Poisson()), COUNTS),
    ],
    ids=["linear", "logistic", "poisson"],
)
def test_linear_models_end_where_they_end_in_memory(
    tmp_path: Path, model: models.Model, y: np.ndarray, optimizer: str
) -> None:
    path = write(tmp_path / "a.parquet", 400, **columns_of(X, y), w=WEIGHTS)
    how = MAP(optimizer)
    streamed = ppgp.fit(model, ppgp.stream(path, "y", weights="w"), how, progress=False)
    whole = ppgp.fit(model, in_memory(y, weights=WEIGHTS), how, progress=False)
    assert streamed.stats["rows"] == N
    assert streamed.stats["log_density"] == pytest.approx(whole.stats["log_density"], abs=1e-6)
    assert streamed.stats["log_likelihood"] == pytest.approx(
        whole.stats["log_likelihood"], abs=1e-3
    )
    for name, draws in whole.theta.items():
        torch.testing.assert_close(streamed.theta[name], draws, rtol=1e-4, atol=1e-5)
    new = torch.from_numpy(X[:5])
    both = [
        fit.predict(new).log_prob(torch.ones(5, dtype=torch.float64)) for fit in (streamed, whole)
    ]
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_steps_on_batches_come_near_the_mode(stream: ppgp.data.Stream, optimizer: str) -> None:
    how = MAP(optimizer, steps=600, batch_size=300, schedule="cosine")
    found = ppgp.fit(models.LinearRegression(), stream, how, progress=False)
    exact = ppgp.fit(models.LinearRegression(), in_memory(), MAP(), progress=False)
    below = exact.stats["log_density"] - found.stats["log_density"]
    # the noise of the gradient of 300 of 1500 rows leaves less than the 5 coordinates' spread
    assert -1e-6 < below < 5.0
    assert type(found.data) is Dataset


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")  # few draws
def test_langevin_chains_follow_the_posterior(stream: ppgp.data.Stream) -> None:
    how = SGLD(draws=300, warmup=100, chains=2, batch_size=300)
    found = ppgp.fit(models.LinearRegression(), stream, how, progress=False)
    exact = ppgp.fit(models.LinearRegression(), in_memory(), Laplace(), progress=False)
    for name in ("weight", "bias"):
        gap = found.theta[name].mean(0) - exact.theta[name].mean(0)
        assert bool((gap.abs() < 2 * exact.theta[name].std(0)).all())


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
@pytest.mark.parametrize("objective", ["elbo", "ppgpr"])
def test_an_svgp_has_the_bound_that_it_has_in_memory(
    stream: ppgp.data.Stream, objective: str
) -> None:
    how = SVI(steps=250, batch_size=500, learning_rate=0.05)
    model = models.SVGP(inducing=20, objective=objective)
    found = ppgp.fit(model, stream, how, progress=False)
    whole = ppgp.fit(model, in_memory(), how, progress=False)
    assert found.stats["rows"] == N
    # batches of a third of the rows: the ends differ by some nats of 1,500 rows
    maximised = "elbo" if objective == "elbo" else "objective"
    assert found.stats[maximised] == pytest.approx(whole.stats[maximised], abs=0.02 * N)
    scaled, _ = StreamedRows.of(stream, stream.sample(N)).standardised()
    theta = {**found.params, **{name: v[0, 0] for name, v in found.draws.items()}}
    elbo_model = models.SVGP(inducing=20, Z=found.model.Z)
    bound = elbo_model.elbo(theta, scaled.X, scaled.y, total=N)
    assert found.stats["elbo"] == pytest.approx(float(bound), rel=1e-9)


def test_the_same_seed_gives_the_same_fit(stream: ppgp.data.Stream) -> None:
    how = SVI(steps=20, batch_size=100)
    fits = [
        ppgp.fit(models.SVGP(inducing=10), stream, how, seed=s, progress=False) for s in (1, 1, 2)
    ]
    first, again, other = (fit.stats["objective_history"] for fit in fits)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")  # of rounded gradients
def test_float32_columns_far_from_zero(tmp_path: Path) -> None:
    y = (1e6 + Y - Y.mean()).astype(np.float32)
    path = write(tmp_path / "a.parquet", 400, **columns_of(X.astype(np.float32), y))
    found = ppgp.fit(models.LinearRegression(), ppgp.stream(path, "y"), MAP(), progress=False)
    data = Dataset(X.astype(np.float32), y)
    whole = ppgp.fit(models.LinearRegression(), data, MAP(), progress=False)
    here, there = found.predict(X[:50]).mean, whole.predict(X[:50]).mean
    # a float32 near 1e6 has a rounding unit of 0.06
    torch.testing.assert_close(here, there, rtol=0, atol=0.13)


def test_without_standardisation_rows_keep_their_units(stream: ppgp.data.Stream) -> None:
    options: dict[str, Any] = {"progress": False, "standardise": False}
    found = ppgp.fit(models.LinearRegression(), stream, MAP(), **options)
    whole = ppgp.fit(models.LinearRegression(), in_memory(), MAP(), **options)
    assert found.stats["log_density"] == pytest.approx(whole.stats["log_density"], abs=1e-6)


# -- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "how", "sentence"),
    [
        (models.GP(), MAP(), "a model of independent rows for a stream, got GP"),
        (models.Vecchia(), MAP(), "a model of independent rows for a stream, got Vecchia"),
        (models.SKI(), MAP(), "a model of independent rows for a stream, got SKI"),
        (lambda x: None, MAP(), "a model of independent rows for a stream, got a program"),
        (models.LinearRegression(), NUTS(), "a stream as how, got NUTS: use MAP('adam')"),
        (models.LinearRegression(), Laplace(), "a stream as how, got Laplace"),
        (models.LinearRegression(), MAP("gd"), "a stream as how, got MAP('gd')"),
        (models.LinearRegression(), SVI(), "got SVI of LinearRegression with guide=None"),
        (models.LinearRegression(), None, "a stream as how, got none"),
        (models.SVGP(), NUTS(), "a stream as how, got NUTS: use SVI()"),
        (models.SVGP(), SVI(method="deterministic"), "method='deterministic'"),
        (models.LinearRegression(), MAP("adam", hold_out=0.1), "leave hold_out out"),
        (models.LinearRegression(), MAP("adam", adversarial=0.1), "leave adversarial out"),
        (models.LinearRegression(), inference.Ensemble(MAP("adam")), "got Ensemble"),
    ],
)
def test_what_takes_no_stream_says_what_to_use(
    stream: ppgp.data.Stream, model: Any, how: Any, sentence: str
) -> None:
    with pytest.raises(NotApplicable, match=re.escape(sentence)) as raised:
        ppgp.fit(model, stream, how, progress=False)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (models.SVGP(), SVI(batch_size=N + 1)),
        (models.LinearRegression(), MAP("adam", batch_size=N + 1)),
    ],
)
def test_batches_larger_than_the_stream(stream: ppgp.data.Stream, model: Any, how: Any) -> None:
    with pytest.raises(SettingError, match=f"batch_size of at most n = {N} in"):
        ppgp.fit(model, stream, how, progress=False)


def test_nan_is_named_before_the_fit(tmp_path: Path) -> None:
    spoilt = Y.copy()
    spoilt[900] = np.nan
    path = write(tmp_path / "a.parquet", 400, **columns_of(X, spoilt))
    with pytest.raises(PpgpError, match=r"column y of a\.parquet, row group 2"):
        ppgp.fit(models.SVGP(), ppgp.stream(path, "y"), SVI(), progress=False)
