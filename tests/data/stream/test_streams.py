"""Streams of rows in Parquet files: statistics of one pass, mini-batches, shards and resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import ppgp
from ppgp.data import Stream
from ppgp.data.stream.stream_statistics import RunningMoments
from tests.parquet_tables import columns_of, regression, write

N = 1_003
X, Y = regression(N)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the rows in two files, of row groups of 100 rows."""
    for name, rows in (("a", slice(0, 530)), ("b", slice(530, N))):
        write(tmp_path / "rows" / f"{name}.parquet", **columns_of(X[rows], Y[rows]))
    return tmp_path / "rows"


def numbers(batches: Any) -> list[int]:
    """Return the numbers of the rows of batches, in their order."""
    return [round(float(x) * N) for X, *_ in batches for x in X[:, 0]]


def some(batches: Any, count: int) -> list[torch.Tensor]:
    """Return X of the first batches."""
    iterator = iter(batches)
    return [next(iterator)[0] for _ in range(count)]


def test_a_stream_knows_its_size_and_names(folder: Path) -> None:
    stream = ppgp.stream(folder, "y")
    assert (stream.n, stream.d, len(stream)) == (N, 3, N)
    assert stream.feature_names == ("x0", "x1", "x2")
    assert stream.target_name == "y"
    assert stream.dtype == torch.float64
    assert len(stream.pieces) == 11
    assert repr(stream) == "<Stream n=1003 d=3 target=y (11 row groups)>"


def test_features_and_files_can_be_named(folder: Path) -> None:
    files = [folder / "a.parquet", folder / "b.parquet"]
    stream = ppgp.stream(files, "y", ["x2", "x0"])
    assert stream.feature_names == ("x2", "x0")
    (rows,) = stream.chunks(2 * N)
    assert np.array_equal(rows.X.numpy(), X[:, [2, 0]])
    assert np.array_equal(rows.y.numpy(), Y)


def test_nothing_but_footers_is_read_at_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=[1.0, None], y=[0.0, 1.0])
    assert ppgp.stream(path, "y").n == 2


# -- statistics ---------------------------------------------------------------------------------


def test_statistics_equal_those_of_numpy_in_float64(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    n = 200_000
    values = generator.standard_normal((n, 3)).astype(np.float32)
    y = (1e6 + generator.standard_normal(n)).astype(np.float32)
    path = write(tmp_path / "a.parquet", 7_001, **columns_of(values, y))
    stream = ppgp.stream(path, "y")
    found = stream.statistics()
    exact, exact_y = values.astype(float), y.astype(float)
    assert stream.dtype == torch.float32
    assert found.n == n
    np.testing.assert_allclose(found.means, exact.mean(0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sds, exact.std(0), rtol=1e-12)
    assert found.y_mean == pytest.approx(exact_y.mean(), rel=1e-12)
    assert found.y_sd == pytest.approx(exact_y.std(), rel=1e-12)
    assert found.constant == ()


def test_moments_of_parts_give_those_of_the_whole() -> None:
    generator = np.random.default_rng(2)
    values = 1e9 + generator.standard_normal((2, 1000))
    weights = generator.uniform(0.5, 3.0, 1000)
    whole = RunningMoments.of(values, weights)
    joined = RunningMoments.none(2)
    for part in np.split(np.arange(1000), [1, 400, 999]):
        joined = joined.joined(RunningMoments.of(values[:, part], weights[part]))
    share = weights / weights.sum()
    mean = 1e9 + ((values - 1e9) * share).sum(1)
    sd = np.sqrt((np.square(values - mean[:, None]) * share).sum(1))
    # a mean near 1e9 has a rounding unit of 1.2e-7, which the sd sees squared
    np.testing.assert_allclose(joined.mean, mean, rtol=1e-15)
    np.testing.assert_allclose([joined.sd, whole.sd], [sd, sd], rtol=1e-12)


def test_constant_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 2, a=[2.0] * 5, b=[1.0, 1, 1, 1, 2], y=[0.1] * 5)
    assert ppgp.stream(path, "y").statistics().constant == ("a", "y")


def test_weights_count_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 2, x=[1.0, 5.0, 2.0], y=[0.0, 1.0, 3.0], w=[1.0, 2.0, 3.0])
    stream = ppgp.stream(path, "y", weights="w")
    repeated = np.array([1.0, 5, 5, 2, 2, 2])
    assert stream.feature_names == ("x",)
    assert stream.statistics().means[0] == pytest.approx(repeated.mean(), rel=1e-15)
    assert stream.statistics().sds[0] == pytest.approx(repeated.std(), rel=1e-15)
    assert next(iter(stream.batches(3)))[2].sort().values.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["b", "c", "a", "b"], ("a", "b", "c")), ([True, False, True, True], (False, True))],
)
def test_labels_become_codes_of_all_files_together(
    tmp_path: Path, labels: list[Any], classes: tuple[Any, ...]
) -> None:
    write(tmp_path / "a.parquet", 1, x=[0.0, 1.0], y=labels[:2])
    write(tmp_path / "b.parquet", 1, x=[2.0, 3.0], y=labels[2:])
    stream = ppgp.stream(tmp_path, "y")
    table = ppgp.Dataset(torch.arange(4.0)[:, None], labels)
    assert stream.statistics().classes == classes
    assert stream.sample().classes == classes
    assert stream.sample().y.tolist() == table.y.tolist()
    assert stream.shard(0, 2).sample().y.tolist() == table.y[::2].tolist()
    X, y = next(iter(stream.batches(4)))
    assert y.tolist() == table.y[X[:, 0].long()].tolist()


def test_categories_of_text_are_labels(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": pd.Categorical(["v", "u", "v"])})
    frame.to_parquet(tmp_path / "a.parquet")
    stream = ppgp.stream(tmp_path, "y")
    assert stream.classes == ("u", "v")
    assert stream.sample().y.tolist() == [1.0, 0.0, 1.0]


# -- mini-batches -------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [1, 64, 250, N, 10 * N])
@pytest.mark.parametrize("batch_size", [1, 64, N])
def test_every_row_occurs_once_per_epoch(folder: Path, pool: int, batch_size: int) -> None:
    batches = list(ppgp.stream(folder, "y").batches(batch_size, pool=pool, epochs=2))
    drawn = numbers(batches)
    assert sorted(drawn[:N]) == sorted(drawn[N:]) == list(range(N))
    assert drawn[:N] != drawn[N:] != list(range(N))
    assert {len(y) for _, y in batches[:-1]} <= {batch_size}


def test_inputs_and_targets_stay_together(folder: Path) -> None:
    for inputs, y in ppgp.stream(folder, "y").batches(50, pool=300, epochs=1):
        rows = (inputs[:, 0] * N).round().long().numpy()
        assert np.array_equal(inputs.numpy(), X[rows])
        assert np.array_equal(y.numpy(), Y[rows])


def test_the_seed_and_the_pool_decide_on_the_order(folder: Path) -> None:
    stream = ppgp.stream(folder, "y")
    first = numbers(stream.batches(64, seed=3, pool=200, epochs=1))
    assert first == numbers(ppgp.stream(folder, "y").batches(64, seed=3, pool=200, epochs=1))
    assert first != numbers(stream.batches(64, seed=4, pool=200, epochs=1))
    assert first != numbers(stream.batches(64, seed=3, pool=400, epochs=1))


def test_a_pool_mixes_row_groups(folder: Path) -> None:
    (drawn,) = ppgp.stream(folder, "y").batches(N, pool=N, epochs=1)
    at = (drawn[0][:, 0] * N).round()
    # the correlation of a random order with the order of the files has an sd of 1 / sqrt(N)
    correlation = torch.corrcoef(torch.stack([at, torch.arange(N, dtype=at.dtype)]))[0, 1]
    assert abs(float(correlation)) < 5 / N**0.5


@pytest.mark.parametrize("drawn", [0, 1, 7, 15, 16, 40])
@pytest.mark.parametrize("pool", [150, 10_000])
def test_batches_go_on_bit_equal_in_mid_epoch(folder: Path, drawn: int, pool: int) -> None:
    batches = ppgp.stream(folder, "y").batches(64, seed=5, pool=pool)
    iterator = iter(batches)
    for _ in range(drawn):
        next(iterator)
    state = iterator.state_dict()
    resumed = iter(ppgp.stream(folder, "y").batches(64, seed=5, pool=pool))
    resumed.load_state_dict(state)
    for _ in range(30):
        assert all(map(torch.equal, next(iterator), next(resumed)))
    assert iterator.state_dict() == resumed.state_dict()


# -- shards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 11, 40])
def test_shards_have_each_row_once(folder: Path, size: int) -> None:
    stream = ppgp.stream(folder, "y")
    shards = [stream.shard(rank, size) for rank in range(size)]
    drawn = [numbers(shard.batches(32, epochs=1)) for shard in shards]
    assert sorted(row for own in drawn for row in own) == list(range(N))
    assert all(len(own) == shard.n > 0 for own, shard in zip(drawn, shards, strict=True))


def test_shards_are_row_groups_where_there_are_enough(folder: Path) -> None:
    stream = ppgp.stream(folder, "y")
    parts = [stream.shard(rank, 3).pieces for rank in range(3)]
    assert {piece for own in parts for piece in own} == set(stream.pieces)


def test_shards_of_one_row_each(tmp_path: Path) -> None:
    stream = ppgp.stream(write(tmp_path / "a.parquet", x=[0.0, 1.0, 2.0], y=[0.0, 1.0, 2.0]), "y")
    assert [stream.shard(rank, 3).n for rank in range(3)] == [1, 1, 1]


def test_the_statistics_of_shards_join_to_those_of_all(folder: Path) -> None:
    stream = ppgp.stream(folder, "y")
    parts = [stream.shard(rank, 4).statistics().moments for rank in range(4)]
    joined = parts[0].joined(parts[1]).joined(parts[2]).joined(parts[3])
    np.testing.assert_allclose(joined.mean, stream.statistics().moments.mean, rtol=1e-13)
    np.testing.assert_allclose(joined.sd, stream.statistics().moments.sd, rtol=1e-13)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_covers_each_row_once(folder: Path, workers: int) -> None:
    stream: Stream = ppgp.stream(folder, "y")
    batches = stream.batches(64, seed=0, pool=200, epochs=1)
    loader = DataLoader(batches, batch_size=None, num_workers=workers)
    assert sorted(numbers(loader)) == list(range(N))
    assert sorted(numbers(loader)) == list(range(N))


# -- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 64, 500, 5 * N])
def test_chunks_are_all_rows_in_order(folder: Path, rows: int) -> None:
    tables = list(ppgp.stream(folder, "y").chunks(rows))
    assert np.array_equal(torch.cat([table.X for table in tables]).numpy(), X)
    assert {table.n for table in tables[:-1]} <= {rows}


def test_a_sample_is_a_seeded_choice_of_rows(folder: Path) -> None:
    stream = ppgp.stream(folder, "y", coordinates=["x1", "x2"])
    sample = stream.sample(200, seed=1)
    rows = (sample.X[:, 0] * N).round().long()
    assert len(set(rows.tolist())) == 200
    assert np.array_equal(sample.y.numpy(), Y[rows.numpy()])
    assert torch.equal(sample.X, stream.sample(200, seed=1).X)
    assert not torch.equal(sample.X, stream.sample(200, seed=2).X)
    assert sample.feature_names == ("x0", "x1", "x2")
    assert sample.coordinates == ("x1", "x2")
    # the mean number of a row chosen at random has an sd of N / sqrt(12 * 200)
    assert abs(float(rows.double().mean()) - N / 2) < 5 * N / (12 * 200) ** 0.5
    assert stream.sample(5 * N).n == N
