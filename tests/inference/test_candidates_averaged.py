"""The candidates of a series, averaged by their evidence."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.inference import MAP
from ppgp.inference.fitting.candidates import _name

RNG = np.random.default_rng(1)
TIMES = np.arange(42.0)
VALUES = 0.1 * TIMES + 2 * np.sin(2 * np.pi * TIMES / 7) + 0.3 * RNG.normal(size=42)
DATA = ppgp.Dataset(TIMES[:, None], VALUES)
AHEAD = np.arange(42.0, 49.0)[:, None]


def test_the_average_holds_a_fit_of_each_candidate_with_its_evidence() -> None:
    recipe = models.StateSpaceGP()
    average = ppgp.fit_candidates(recipe, DATA)
    fits = [
        ppgp.fit(one, DATA, inference.MAP(starts=1), progress=False)
        for one in recipe.candidates(DATA)
    ]
    logs = torch.tensor([each.log_evidence for each in fits], dtype=torch.float64)
    assert torch.allclose(average.weights, logs.softmax(0), atol=1e-8)
    best = ppgp.fit(recipe, DATA, inference.MAP(), progress=False)
    assert average[average.best].model == best.model
    assert average.names[:2] == ("smooth trend + season of 7", "random walk + season of 7")
    assert average.seconds > sum(each.seconds for each in average.posteriors.values())
    forecast = average.predict(AHEAD)
    truth = 0.1 * AHEAD[:, 0] + 2 * np.sin(2 * np.pi * AHEAD[:, 0] / 7)
    error = np.sqrt(np.mean((forecast.mean.numpy() - truth) ** 2))
    assert error < 0.6 * np.sqrt(np.mean((VALUES[-1] - truth) ** 2))
    assert "season" in average.components(AHEAD)


def test_another_method_fits_those_whose_weight_counts() -> None:
    average = ppgp.fit_candidates(models.StateSpaceGP(), DATA, inference.Laplace(draws=8))
    assert {type(each.how).__name__ for each in average.posteriors.values()} == {"Laplace"}
    assert float(average.weights.sum()) == pytest.approx(1.0)
    assert {each.shape for each in average.posteriors.values()} == {(1, 8)}
    assert len(average.predict(AHEAD)) == 7


def test_forecasts_of_candidates_are_calibrated_over_past_origins() -> None:
    found = ppgp.cross_calibrate(models.StateSpaceGP(), DATA, horizon=3, origins=4)
    assert isinstance(found.posterior, ppgp.Average)
    assert found.scores().shape == (4, 3)
    assert found(AHEAD[:3], 0.8).guarantee.startswith("heuristic: past origins of one series")


def test_a_model_with_a_kernel_and_rows_without_a_span_are_refused() -> None:
    with pytest.raises(NotApplicable):
        ppgp.fit_candidates(models.StateSpaceGP(kernels.Matern(1.5)), DATA)
    with pytest.raises(NotApplicable, match="a model without a kernel, which has candidates"):
        ppgp.fit_candidates(models.LinearRegression(), DATA)
    flat = ppgp.Dataset(TIMES[:, None], np.ones(42))
    with pytest.raises(DataError, match="rows of a series that differ in time and y"):
        ppgp.fit_candidates(models.StateSpaceGP(), flat)


def of_y(y: Any) -> ppgp.Dataset:
    return ppgp.Dataset(TIMES[:, None], y)


COUNTS = np.arange(42.0) % 5


@pytest.mark.parametrize(
    ("likelihood", "y", "sentence"),
    [
        (likelihoods.Poisson(), COUNTS - 1, r"expected counts .* in y, got -1 in row 0"),
        (likelihoods.Poisson(), 0 * COUNTS, "differ in time and y, got y = 0 in all 42: look at"),
        (likelihoods.Beta(), COUNTS, r"expected targets above 0 and below 1 in y, got 0 in row 0"),
        (likelihoods.Beta(), (COUNTS + 1) / 9, "a likelihood whose series have .*, got Beta: give"),
        (
            likelihoods.Gamma(),
            1e-20 * (COUNTS + 1),
            r"got a variance of 2\.\S*e-40: multiply y by a constant",
        ),
    ],
)
def test_the_error_names_why_there_are_no_candidates(
    likelihood: Any, y: Any, sentence: str
) -> None:
    recipe = models.StateSpaceGP(likelihood=likelihood)
    with pytest.raises((DataError, NotApplicable), match=sentence):
        ppgp.fit_candidates(recipe, of_y(y))


def test_log_of_y_that_is_not_above_0_is_named() -> None:
    recipe = models.StateSpaceGP(log=True)
    with pytest.raises(DataError, match=r"expected y above 0 for log=True, got -0\.5 in row 3"):
        ppgp.fit_candidates(recipe, of_y(np.where(np.arange(42) == 3, -0.5, COUNTS + 1)))


def test_rows_of_one_time_are_named() -> None:
    same = ppgp.Dataset(np.ones((42, 1)), VALUES)
    with pytest.raises(DataError, match="differ in time and y, got time = 1 in all 42: look"):
        ppgp.fit_candidates(models.StateSpaceGP(), same)


@pytest.mark.usefixtures("types_unchecked")
def test_what_is_no_dataset_no_model_and_no_method_is_named() -> None:
    recipe: Any = models.StateSpaceGP()
    table: Any = pd.DataFrame({"t": TIMES, "y": VALUES})
    with pytest.raises(DataError, match=r"expected a Dataset for StateSpaceGP, got DataFrame: use"):
        ppgp.fit_candidates(recipe, table)
    called = r"expected a model, got the class StateSpaceGP: call it: StateSpaceGP\(\)"
    kind: Any = models.StateSpaceGP
    with pytest.raises(NotApplicable, match=called):
        ppgp.fit_candidates(kind, DATA)
    with pytest.raises(NotApplicable, match=called):
        ppgp.cross_calibrate(kind, DATA, horizon=3)
    method: Any = inference.Laplace
    with pytest.raises(NotApplicable, match=r"got <class .*Laplace'>: call it: Laplace\(\)"):
        ppgp.fit_candidates(recipe, DATA, method)
    law: Any = likelihoods.Poisson
    with pytest.raises(SettingError, match=r"got the class Poisson: call it: Poisson\(\)"):
        models.StateSpaceGP(likelihood=law)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.filterwarnings("error")
def test_a_series_of_few_rows_is_refused_by_their_number(rows: int) -> None:
    few = ppgp.Dataset(TIMES[:rows, None], np.arange(rows) + 1.0)
    wanted = f"expected at least 4 rows of a series, got {rows}: add rows"
    with pytest.raises(DataError, match=wanted):
        ppgp.fit_candidates(models.StateSpaceGP(), few)


def test_candidates_far_below_the_best_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their weight is 0 in double precision, and predictions are the same without them."""
    module = import_module("ppgp.inference.fitting.fit")
    own, asked = module._with_evidence, []

    def counted(posterior: ppgp.Posterior) -> ppgp.Posterior:
        asked.append(posterior)
        return own(posterior)

    monkeypatch.setattr(module, "_with_evidence", counted)
    t = np.arange(200.0)
    noise = np.random.default_rng(0).normal(size=200)
    data = ppgp.Dataset(t[:, None], 3 * np.sin(2 * np.pi * t / 11) + 0.02 * noise)
    found = ppgp.fit_candidates(models.StateSpaceGP(), data)
    assert len(found) == len(asked) < 4
    monkeypatch.setattr(module, "FAR_BELOW", np.inf)
    every = ppgp.fit_candidates(models.StateSpaceGP(), data)
    assert len(every) == 4
    left_out = [w for name, w in zip(every.names, every.weights, strict=True) if name not in found]
    assert max(left_out) < 1e-12
    ahead = [[200.0], [205.0]]
    torch.testing.assert_close(found.predict(ahead).mean, every.predict(ahead).mean)


def interrupting(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Make Ctrl-C come inside the search of one of the calls of ``fit`` by MAP."""
    run, calls = MAP._search, []

    def interrupted(self: MAP, options: Any, *others: Any) -> Any:
        calls.append(options)
        found = run(self, options, *others)
        return replace(found, interrupted=True) if len(calls) == call else found

    monkeypatch.setattr(MAP, "_search", interrupted)


def test_after_an_interrupt_the_candidates_that_were_fitted_are_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = ppgp.fit_candidates(models.StateSpaceGP(), DATA)
    interrupting(monkeypatch, call=3)
    said = r"stopped by Ctrl-C: 2 of 4 candidates fitted and compared; Ctrl-C twice"
    with pytest.warns(ConvergenceWarning, match=said):
        average = ppgp.fit_candidates(models.StateSpaceGP(), DATA)
    assert average.names == whole.names[:2]
    assert torch.allclose(
        average.weights[0] / average.weights[1], whole.weights[0] / whole.weights[1]
    )
    assert average.warnings[0].startswith("stopped by Ctrl-C: 2 of 4 candidates")
    assert all(each.stats["interrupted"] for each in average.posteriors.values())
    interrupting(monkeypatch, call=2)
    with pytest.warns(ConvergenceWarning, match="1 of 4 candidates fitted"):
        one = ppgp.fit(models.StateSpaceGP(), DATA, inference.MAP(), progress=False)
    assert one.model == whole[whole.names[0]].model
    interrupting(monkeypatch, call=1)
    with pytest.warns(ConvergenceWarning, match="1 of 4 candidates fitted"):
        begun = ppgp.fit_candidates(models.StateSpaceGP(), DATA)
    assert begun.names == whole.names[:1]
    assert len(begun.predict(AHEAD)) == 7


def test_an_interrupt_of_the_evidence_keeps_the_candidates_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("ppgp.inference.fitting.fit")
    own, calls = module._with_evidence, []

    def interrupted(posterior: ppgp.Posterior) -> ppgp.Posterior:
        calls.append(posterior)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return own(posterior)

    monkeypatch.setattr(module, "_with_evidence", interrupted)
    with pytest.warns(ConvergenceWarning, match="2 of 4 candidates"):
        assert len(ppgp.fit_candidates(models.StateSpaceGP(), DATA)) == 2
    calls[:] = calls[:2]  # the next one is the first that is interrupted
    monkeypatch.setattr(module, "_fitted_in_turn", raised)
    with pytest.raises(KeyboardInterrupt):
        ppgp.fit_candidates(models.StateSpaceGP(), DATA)


def raised(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_after_an_interrupt_of_another_method_the_rest_stays_as_map_fitted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("ppgp.inference.fitting.candidates")
    own = module.fit

    def interrupted(*arguments: Any, **options: Any) -> ppgp.Posterior:
        found = own(*arguments, **options)
        return replace(found, stats={**found.stats, "interrupted": True})

    monkeypatch.setattr(module, "fit", interrupted)
    with pytest.warns(ConvergenceWarning, match=r"1 of \d candidates fitted by Laplace,"):
        average = ppgp.fit_candidates(models.StateSpaceGP(), DATA, inference.Laplace(draws=4))
    kinds = [type(each.how).__name__ for each in average.posteriors.values()]
    assert kinds == ["Laplace", *["MAP"] * (len(kinds) - 1)]


def test_warnings_name_the_candidates_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("ppgp.inference.fitting.fit")
    own, count = module._with_evidence, []

    def noted(posterior: ppgp.Posterior) -> ppgp.Posterior:
        count.append(posterior)
        notes = ("the search is hard", *["the noise is small"] * (len(count) == 1))
        return replace(own(posterior), warnings=notes)

    monkeypatch.setattr(module, "_with_evidence", noted)
    with pytest.warns(ConvergenceWarning) as said:
        average = ppgp.fit_candidates(models.StateSpaceGP(), DATA)
    used = list(average.used())
    assert f"{', '.join(used)}: the search is hard" in average.warnings
    (alone,) = [note for note in average.warnings if note.endswith(": the noise is small")]
    assert alone.partition(":")[0] in used
    assert {str(one.message) for one in said} == set(average.warnings)
    findings = ppgp.diagnose(average).findings
    assert findings.count("the search is hard") == 1
    assert not any(note.endswith(", ".join(used) + ": the search is hard") for note in findings)


def test_warnings_of_another_method_name_its_candidate() -> None:
    method = inference.NUTS(draws=4, warmup=4, chains=1)
    with pytest.warns(ConvergenceWarning) as said:
        average = ppgp.fit_candidates(models.StateSpaceGP(), DATA, method)
    messages = [str(one.message) for one in said if one.category is ConvergenceWarning]
    assert messages
    assert all(message.startswith(average.names) for message in messages)
    assert all(note.startswith(average.names) for note in average.warnings)


def test_a_diagnosis_of_an_average_shows_weights_and_no_missing_numbers() -> None:
    average = ppgp.fit_candidates(models.StateSpaceGP(), DATA)
    table = ppgp.diagnose(average).table
    assert list(table.columns) == ["weight", "mean"]
    assert table.notna().all(axis=None)
    weights = table["weight"].to_numpy()
    np.testing.assert_array_equal(weights, np.sort(weights)[::-1])
    assert str(table.index[0]).startswith(f"{average.best}: ")
    names = [str(index).partition(": ")[0] for index in table.index]
    of_names = dict(zip(names, weights.tolist(), strict=True))
    assert list(of_names) == sorted(average.used(), key=lambda name: -of_names[name])
    assert sum(of_names.values()) == pytest.approx(1.0)
    laplace = ppgp.fit_candidates(models.StateSpaceGP(), DATA, inference.Laplace(draws=50))
    assert {"weight", "mean", "sd"} <= set(ppgp.diagnose(laplace).table.columns)


def test_the_seconds_of_the_best_candidate_count_the_choice() -> None:
    best = ppgp.fit(models.StateSpaceGP(), DATA, inference.MAP(), progress=False)
    alone = ppgp.fit(best.recipe, DATA, inference.MAP(starts=1), progress=False)
    assert best.seconds > alone.seconds


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("years", "yearly season"),
        ("days", "yearly season"),
        (None, "season of 12"),
    ],
)
def test_candidates_are_named_by_trend_and_seasons(unit: str | None, name: str) -> None:
    months = pd.date_range("2015-01-01", periods=60, freq="MS")
    t = np.arange(60.0)
    noise = 0.3 * np.random.default_rng(0).normal(size=60)
    values = 5 + 0.05 * t + np.sin(2 * np.pi * t / 12) + noise
    data = ppgp.Dataset(t[:, None], values)
    if unit is not None:
        frame = pd.DataFrame({"month": months, "y": values})
        data = ppgp.Dataset.from_frame(frame, "y", dates=unit)
    names = [_name(recipe, data) for recipe in models.StateSpaceGP().candidates(data)]
    assert f"random walk with drift + {name}" in names
    assert len(set(names)) == len(names)
    cycles = [one for one in names if one.startswith("cycle of about ")]
    assert cycles
    assert all((unit or "") in one for one in cycles)


@pytest.mark.parametrize(("scale", "level"), [(1e-3, 0.0), (1.0, 1e6)])
def test_forecasts_hardly_depend_on_standardising(scale: float, level: float) -> None:
    t = 7000 + np.arange(50.0)
    walk = np.random.default_rng(1).normal(size=50).cumsum() + 0.5 * np.arange(50.0)
    data = ppgp.Dataset(t[:, None], level + scale * walk)
    found = []
    for standardise in (True, False):
        average = ppgp.fit_candidates(models.StateSpaceGP(), data, standardise=standardise)
        forecast = average.predict([[7055.0]])
        found.append([(forecast.mean.item() - level) / scale, forecast.std.item() / scale])
        drift = average["random walk with drift"].log_evidence
        found[-1].append(drift - average["random walk"].log_evidence)
    (mean, sd, gain), (other_mean, other_sd, other_gain) = found
    assert abs(mean - other_mean) < 0.1 * sd
    assert other_sd == pytest.approx(sd, rel=0.1)
    assert abs(gain - other_gain) < 0.7


def test_all_rows_of_a_long_series_are_searched_to_the_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The curvature at the mode of fewer rows gives the steps, few of which are needed."""
    module = import_module("ppgp.inference.fitting.fit")
    monkeypatch.setattr(module, "MOST_TO_COMPARE", 100)
    monkeypatch.setattr(module, "ROWS_TO_COMPARE", 100)
    monkeypatch.setattr(module, "ROWS_BETWEEN", 200)
    rng = np.random.default_rng(0)
    t = np.arange(900.0)
    y = 0.1 * rng.normal(size=900).cumsum() + rng.normal(size=900)
    data = ppgp.Dataset(t[:, None], y)
    posterior = ppgp.fit(models.StateSpaceGP(), data, inference.MAP(), progress=False)
    assert posterior.warnings == ()
    assert posterior.stats["steps"] <= 10
    height = float(posterior.stats["log_density"])
    assert posterior.stats["gradient"] < 1e-3 * abs(height) ** 0.5
    plain = ppgp.fit(posterior.recipe, data, inference.MAP(), init=posterior, progress=False)
    assert height == pytest.approx(float(plain.stats["log_density"]), abs=1e-3)
    assert posterior.how == inference.MAP(starts=1, steps=posterior.how.steps)
