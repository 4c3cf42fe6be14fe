"""Predictions of files chunk by chunk: equal to those in memory, resumed after a stop, refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from pyarrow import parquet

import ppgp
from ppgp import Dataset, Posterior, conformal, inference, models
from ppgp.errors import DataError, NotApplicable, PpgpError, SettingError, StorageError, UnknownName
from ppgp.inference import Laplace
from ppgp.models import LinearRegression
from ppgp.posterior.predicting_to_files import Parts
from ppgp.runtime.team import Team
from tests.parquet_tables import columns_of, regression, write

N, M = 200, 1_003
X, Y = regression(N + M + 150)
TRAIN, NEW, HELD_OUT = slice(N), slice(N, N + M), slice(N + M, None)
NAMES = ["x0", "x1", "x2"]
LABELS = np.where(Y > 22, "high", np.where(Y > 20, "middle", "low"))


def fitted(y: Any, model: Any, dtype: type = float) -> Posterior:
    data = Dataset(X[TRAIN].astype(dtype), y, feature_names=NAMES, target_name="y")
    how = inference.Exact(draws=20) if isinstance(model, LinearRegression) else Laplace(draws=20)
    return ppgp.fit(model, data, how, progress=False)


@pytest.fixture(scope="module")
def of_numbers() -> Posterior:
    return fitted(Y[TRAIN], LinearRegression(conjugate=True))


@pytest.fixture(scope="module")
def of_labels() -> Posterior:
    return fitted(LABELS[TRAIN], models.SoftmaxRegression())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file of the new rows, with a further column and the inputs in another order."""
    columns = columns_of(X[NEW], Y[NEW])
    return write(tmp_path / "new.parquet", id=np.arange(M), **dict(reversed(columns.items())))


def column(table: Any, name: str) -> np.ndarray:
    return table.column(name).to_numpy()


def close(found: np.ndarray, expected: torch.Tensor) -> None:
    """Check numbers that differ by the rounding of another size of batch, if at all."""
    eps = float(torch.finfo(expected.dtype).eps)
    assert found.dtype == expected.numpy().dtype
    np.testing.assert_allclose(found, expected.numpy(), rtol=64 * eps, atol=64 * eps)


def calibrated(posterior: Posterior, score: Any, y: Any) -> Any:
    return ppgp.calibrate(score, posterior.predict(X[HELD_OUT]), y[HELD_OUT])


# -- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("conformal_score", [None, conformal.Normalized(), conformal.Signed()])
def test_numbers_equal_those_in_memory(
    of_numbers: Posterior, source: Path, tmp_path: Path, conformal_score: Any
) -> None:
    calibrator = None
    if conformal_score is not None:
        calibrator = calibrated(of_numbers, conformal_score, Y)
    out = of_numbers.predict_to(
        source, tmp_path / "out.parquet", 0.8, calibrator, 150, progress=False
    )
    table, prediction = parquet.read_table(out), of_numbers.predict(X[NEW])
    region = prediction.interval(0.8) if calibrator is None else calibrator(prediction, level=0.8)
    assert table.column_names == ["mean", "sd", "lower", "upper"]
    lower, upper = region
    expected = {"mean": prediction.mean, "sd": prediction.std, "lower": lower, "upper": upper}
    for name, values in expected.items():
        close(column(table, name), values)
    assert table.schema.metadata[b"ppgp.guarantee"].decode() == region.guarantee
    footer = parquet.read_metadata(out)
    counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    assert counts == [150] * 6 + [103]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.parquet", "out.parquet"]


@pytest.mark.parametrize("score", [None, conformal.LAC(), conformal.APS()])
def test_labels_equal_those_in_memory(
    of_labels: Posterior, source: Path, tmp_path: Path, score: Any
) -> None:
    classes = of_labels.data.classes
    codes = np.array([classes.index(label) for label in LABELS], dtype=float)
    calibrator = None if score is None else calibrated(of_labels, score, codes)
    out = of_labels.predict_to(
        source, tmp_path / "out.parquet", 0.9, calibrator, 300, progress=False
    )
    table, prediction = parquet.read_table(out), of_labels.predict(X[NEW])
    names = [f"p({label})" for label in classes]
    for k, name in enumerate(names):
        close(column(table, name), prediction.probabilities[:, k])
    if calibrator is None:
        assert table.column_names == names
        return
    assert table.column_names == [*names, "set"]
    assert table.schema.field("set").type == pyarrow.list_(pyarrow.string())
    members = calibrator(prediction, level=0.9).labels.tolist()
    expected = [[c for c, inside in zip(classes, row, strict=True) if inside] for row in members]
    assert table.column("set").to_pylist() == expected


def test_single_precision_stays(tmp_path: Path) -> None:
    single = X.astype(np.float32)
    posterior = fitted(Y[TRAIN].astype(np.float32), LinearRegression(conjugate=True), np.float32)
    path = write(tmp_path / "new.parquet", **columns_of(single[NEW], Y[NEW]))
    out = posterior.predict_to(path, tmp_path / "o.parquet", rows_at_once=400, progress=False)
    table, prediction = parquet.read_table(out), posterior.predict(single[NEW])
    assert prediction.mean.dtype == torch.float32
    close(column(table, "mean"), prediction.mean)
    close(column(table, "upper"), prediction.interval(0.9).upper)


def in_parts(rows: np.ndarray) -> Iterator[Any]:
    """Yield rows as arrays, frames and a Dataset."""
    yield rows[:300]
    yield pd.DataFrame(rows[300:303], columns=NAMES)[NAMES[::-1]]
    yield Dataset(rows[303:900], np.zeros(597), feature_names=NAMES)
    yield torch.as_tensor(rows[900:])


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a folder": lambda path: path.parent,
    "a list": lambda path: [str(path)],
    "a stream": lambda path: ppgp.stream(path, "y", NAMES),
    "an array": lambda path: X[NEW],
    "a frame": lambda path: pd.DataFrame(X[NEW], columns=NAMES),
    "an iterable": lambda path: in_parts(X[NEW]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source(of_numbers: Posterior, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "rows" / "new.parquet", **columns_of(X[NEW], Y[NEW]))
    out = tmp_path / "out.parquet"
    of_numbers.predict_to(SOURCES[kind](path), out, rows_at_once=250, progress=False)
    close(column(parquet.read_table(out), "mean"), of_numbers.predict(X[NEW]).mean)


def test_a_fit_without_names_takes_columns_in_their_order(tmp_path: Path) -> None:
    data = Dataset(X[TRAIN], Y[TRAIN])
    posterior = ppgp.fit(LinearRegression(), data, inference.MAP(), progress=False)
    path = write(tmp_path / "new.parquet", **{f"c{j}": X[NEW, j] for j in range(3)})
    out = posterior.predict_to(path, tmp_path / "out.parquet", progress=False)
    close(column(parquet.read_table(out), "mean"), posterior.predict(X[NEW]).mean)


def test_offsets_and_categories_are_read_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "rock": rng.choice(["chalk", "sand"], 90)})
    frame["exposure"] = rng.uniform(0.5, 1.5, 90)
    frame["y"] = rng.poisson(np.exp(0.4 * frame["x"] + frame["exposure"])).astype(float)
    data = Dataset.from_frame(frame, "y", offset="exposure", one_hot=["rock"])
    model = models.GLM(ppgp.likelihoods.Poisson())
    posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
    frame["rock"] = frame["rock"].astype("category")
    frame.to_parquet(tmp_path / "new.parquet", row_group_size=40)
    source, out = tmp_path / "new.parquet", tmp_path / "out.parquet"
    posterior.predict_to(source, out, rows_at_once=35, progress=False)
    close(column(parquet.read_table(out), "mean"), posterior.predict(frame).mean)


# -- stopped and continued -----------------------------------------------------------------------


class Killed(BaseException):
    """What stands for the end of the process."""


def stop_after(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """Let the process end once so many parts are written."""
    whole = Parts.write

    def write(self: Parts, number: int, table: Any) -> None:
        if number == parts:
            raise Killed
        whole(self, number, table)

    monkeypatch.setattr(Parts, "write", write)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of each part that is written."""
    numbers: list[int] = []
    whole = Parts.write

    def write(self: Parts, number: int, table: Any) -> None:
        numbers.append(number)
        whole(self, number, table)

    monkeypatch.setattr(Parts, "write", write)
    return numbers


@pytest.fixture
def stopped(of_numbers: Posterior, source: Path, tmp_path: Path) -> Path:
    """Return the output of a call that ended after four of seven parts."""
    out = tmp_path / "out.parquet"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Killed):
            of_numbers.predict_to(source, out, rows_at_once=150, progress=False)
    assert not out.exists()
    begun = Parts(out, {}).folder / ".part-000004.parquet.0123456789abcdef.new.parquet"
    begun.write_bytes(b"PAR1")  # what a killed process leaves
    return out


def test_the_same_call_goes_on_after_the_last_part(
    of_numbers: Posterior, source: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stopped.with_name("whole.parquet")
    of_numbers.predict_to(source, whole, rows_at_once=150, progress=False)
    numbers = counting(monkeypatch)
    of_numbers.predict_to(source, stopped, rows_at_once=150, progress=False)
    assert numbers == [4, 5, 6]
    assert stopped.read_bytes() == whole.read_bytes()
    assert not Parts(stopped, {}).folder.exists()


def test_a_part_that_was_cut_off_is_made_again(
    of_numbers: Posterior, source: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Parts(stopped, {}).path(2)
    part.write_bytes(part.read_bytes()[:-20])
    numbers = counting(monkeypatch)
    of_numbers.predict_to(source, stopped, rows_at_once=150, progress=False)
    assert numbers == [2, 3, 4, 5, 6]
    close(column(parquet.read_table(stopped), "mean"), of_numbers.predict(X[NEW]).mean)


def test_a_call_stopped_while_parts_are_joined(
    of_numbers: Posterior, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"

    def stop(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", stop)
        with pytest.raises(Killed):
            of_numbers.predict_to(source, out, rows_at_once=150, progress=False)
    before, numbers = out.read_bytes(), counting(monkeypatch)
    of_numbers.predict_to(source, out, rows_at_once=150, progress=False)
    assert numbers == []
    assert out.read_bytes() == before


def test_rows_that_are_handed_over_begin_anew(
    of_numbers: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.parquet"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Killed):
            of_numbers.predict_to(X[NEW], out, rows_at_once=150, progress=False)
    numbers = counting(monkeypatch)
    of_numbers.predict_to(X[NEW][:400], out, rows_at_once=150, progress=False)
    assert numbers == [0, 1, 2]
    assert parquet.read_metadata(out).num_rows == 400


def test_a_posterior_from_a_file_goes_on(
    of_numbers: Posterior, source: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = ppgp.load_posterior(of_numbers.save(stopped.with_name("fit.safetensors")))
    numbers = counting(monkeypatch)
    loaded.predict_to(source, stopped, rows_at_once=150, progress=False)
    assert numbers == [4, 5, 6]


# -- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"rows_at_once": 151}, "rows_at_once"),
        ({"rows_at_once": 150, "level": 0.8}, "level"),
    ],
)
def test_parts_of_another_call(
    of_numbers: Posterior, source: Path, stopped: Path, options: dict[str, Any], other: str
) -> None:
    with pytest.raises(StorageError, match=f"those of a call with another {other}: "):
        of_numbers.predict_to(source, stopped, **options, progress=False)
    calibrator = calibrated(of_numbers, conformal.Absolute(), Y)
    with pytest.raises(StorageError, match="those of a call with another calibrator: "):
        of_numbers.predict_to(source, stopped, 0.9, calibrator, 150, progress=False)
    refit = fitted(Y[TRAIN] + 1, LinearRegression(conjugate=True))
    with pytest.raises(StorageError, match="those of a call with another posterior: "):
        refit.predict_to(source, stopped, rows_at_once=150, progress=False)
    write(source, **columns_of(X[NEW], Y[NEW]))
    with pytest.raises(StorageError, match="those of a call with another source: "):
        of_numbers.predict_to(source, stopped, rows_at_once=150, progress=False)
    shutil.rmtree(Parts(stopped, {}).folder)
    of_numbers.predict_to(source, stopped, **options, progress=False)
    assert parquet.read_metadata(stopped).num_rows == M


def test_a_folder_of_other_files_is_left_as_it_is(
    of_numbers: Posterior, source: Path, tmp_path: Path
) -> None:
    own = tmp_path / "out.parquet.parts" / "notes.txt"
    own.parent.mkdir()
    own.write_text("mine", encoding="utf-8")
    with pytest.raises(StorageError, match="got other files: choose another out"):
        of_numbers.predict_to(source, tmp_path / "out.parquet", progress=False)
    (own.parent / "parts.json").write_text("[]", encoding="utf-8")
    with pytest.raises(StorageError, match="got other files: choose another out"):
        of_numbers.predict_to(source, tmp_path / "out.parquet", progress=False)
    assert own.read_text(encoding="utf-8") == "mine"


def test_outputs(of_numbers: Posterior, source: Path, tmp_path: Path) -> None:
    def refusal(error: type[PpgpError], out: Path, words: str, **options: Any) -> None:
        with pytest.raises(error, match=words):
            of_numbers.predict_to(source, out, progress=False, **options)

    (tmp_path / "folder.parquet").mkdir()
    refusal(StorageError, tmp_path / "folder.parquet", "a folder: name a file in it")
    refusal(StorageError, tmp_path / "none" / "out.parquet", "no folder")
    refusal(StorageError, source, "a file to write that is not read")
    refusal(SettingError, tmp_path / "out.csv", r"ends in \.parquet")
    refusal(SettingError, tmp_path / "o.parquet", "as rows_at_once, got 0", rows_at_once=0)
    refusal(SettingError, tmp_path / "o.parquet", r"a level in \(0, 1\)", level=90)
    refusal(NotApplicable, tmp_path / "o.parquet", "a calibrator of ppgp.calibrate", calibrator=3)
    with pytest.raises(StorageError, match="in the folder that is read"):
        of_numbers.predict_to(tmp_path, tmp_path / "out.parquet", progress=False)
    assert [path.name for path in tmp_path.glob("o*")] == []


def test_a_file_that_is_there_is_replaced(
    of_numbers: Posterior, source: Path, tmp_path: Path
) -> None:
    out = write(tmp_path / "out.parquet", old=np.zeros(3))
    of_numbers.predict_to(source, out, progress=False)
    assert parquet.read_metadata(out).num_rows == M


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(of_numbers: Posterior, tmp_path: Path, bad: float) -> None:
    spoilt = X[NEW].copy()
    spoilt[250, 1] = bad
    path = write(tmp_path / "new.parquet", **columns_of(spoilt, Y[NEW]))
    words = r"NaN or infinity in column x1 of new\.parquet, row group 2, row 250 of the file"
    with pytest.raises(DataError, match=words):
        of_numbers.predict_to(path, tmp_path / "out.parquet", rows_at_once=50, progress=False)
    assert [one.name for one in tmp_path.iterdir()] == ["new.parquet"]


def test_a_rank_of_a_team_says_who_writes(
    of_numbers: Posterior, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    for name, words in (
        ("team", r"got that of rank 1 of 2: call posterior\.save.*\.predict_to\(rows, out\)"),
        ("writers", r"expected predict_to on rank 0 alone, got a call on rank 1"),
    ):
        data = copy(of_numbers.data)
        vars(data)[name] = Team(1, 2)
        with pytest.raises(NotApplicable, match=words):
            replace(of_numbers, data=data).predict_to(source, out, progress=False)
    assert not out.exists()


def test_rows_of_files_are_not_for_predict(of_numbers: Posterior, source: Path) -> None:
    advice = r"call posterior\.predict_to\(rows, \"out\.parquet\"\)"
    for rows, got in ((ppgp.stream(source, "y"), "a Stream"), (source, "the path")):
        with pytest.raises(DataError, match=f"new rows in memory, got {got}.*{advice}"):
            of_numbers.predict(rows)


def test_columns(of_numbers: Posterior, tmp_path: Path) -> None:
    columns, out = columns_of(X[NEW], Y[NEW]), tmp_path / "out.parquet"
    first = write(tmp_path / "a.parquet", **columns)
    without = write(tmp_path / "b.parquet", x0=columns["x0"], x1=columns["x1"])
    text = write(tmp_path / "c.parquet", **{**columns, "x1": LABELS[NEW]})
    single = write(tmp_path / "d.parquet", **{**columns, "x1": columns["x1"].astype(np.float32)})
    empty = write(tmp_path / "e.parquet", **{name: v[:0] for name, v in columns.items()})

    def refusal(error: type[PpgpError], files: Any, words: str) -> None:
        with pytest.raises(error, match=words):
            of_numbers.predict_to(files, out, progress=False)

    refusal(UnknownName, without, "no column x2")
    refusal(DataError, [first, without], r"column x2 in every file, got b\.parquet without")
    refusal(DataError, text, r"numbers in column x1, got the type string in c\.parquet")
    refusal(DataError, [first, single], r"double in a\.parquet and float in d\.parquet")
    refusal(DataError, empty, r"at least one row, got none in e\.parquet")
    refusal(DataError, tmp_path / "z.parquet", "got no file")
    refusal(DataError, 3, "Parquet files, a stream, or an iterable of frames or arrays, got int")
    refusal(DataError, iter([]), "at least one row, got none")
    refusal(DataError, iter([3.0]), "frames or arrays .* one after the other, got float")


def test_calibrators_with_groups_and_weights(
    of_numbers: Posterior, source: Path, tmp_path: Path
) -> None:
    prediction, y = of_numbers.predict(X[HELD_OUT]), Y[HELD_OUT]
    for given in ({"groups": LABELS[HELD_OUT]}, {"weights": np.ones(len(y))}):
        calibrator = ppgp.calibrate(conformal.Absolute(), prediction, y, **given)
        with pytest.raises(NotApplicable, match=f"and weights, got one with {next(iter(given))}"):
            of_numbers.predict_to(
                source, tmp_path / "out.parquet", calibrator=calibrator, progress=False
            )


def test_a_program(source: Path, tmp_path: Path) -> None:
    import pyro
    import pyro.distributions as dist

    def program(y: Any = None) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", 5):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    posterior = ppgp.fit(program, {"y": torch.zeros(5)}, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="got one of a program"):
        posterior.predict_to(source, tmp_path / "out.parquet", progress=False)
