"""The available memory, and the errors for what would exceed it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.density import Target
from ppgp.errors import NotEnoughMemory
from ppgp.runtime import memory

GB = 10**9


@pytest.fixture
def one_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device=None: GB)


def test_the_error_states_both_amounts_and_what_would_fit(
    one_gigabyte: None,
) -> None:
    memory.must_fit(0.9 * GB, "a table", "drop rows")
    with pytest.raises(
        NotEnoughMemory, match=r"1 GB for a table.* got 2\.5 GB.*8,000 rows"
    ) as caught:
        memory.must_fit(2.5 * GB, "a table", memory.rows_per_call(100_000.0))
    assert isinstance(caught.value, MemoryError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_small_sizes_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device=None: pytest.fail("asked"))
    memory.must_fit(memory.SMALL, "a table", "drop rows")


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.mark.parametrize("inside", [True, False])
def test_cgroups_of_version_2_count_at_every_level(
    inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``inside``: in a container, whose own cgroup is the root of the visible hierarchy."""
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(memory, "MEMBERSHIP", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("0::/all/one\n")
    group(
        tmp_path / "fs",
        memory__max=9 * GB,
        memory__current=1 * GB,
        memory__stat="anon 5\ninactive_file 0",
    )
    if not inside:
        group(
            tmp_path / "fs/all",
            memory__max=3 * GB,
            memory__current=2 * GB,
            memory__stat=f"inactive_file {GB}",
        )
        group(
            tmp_path / "fs/all/one",
            memory__max="max",
            memory__current=GB,
            memory__stat="inactive_file 0",
        )
    assert sorted(memory._cgroups()) == ([8 * GB] if inside else [2 * GB, 8 * GB])


def test_cgroups_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(memory, "MEMBERSHIP", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("5:cpu:/x\n4:hugetlb,memory:/job\n0::/\n")
    files = {
        "memory__limit_in_bytes": 4 * GB,
        "memory__usage_in_bytes": 3 * GB,
        "memory__stat": "total_inactive_file 0",
    }
    group(tmp_path / "fs/memory/job", **files)
    assert memory._cgroups() == [GB]
    monkeypatch.setattr(
        memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 5 * GB})
    )
    assert memory.available() <= GB


def test_the_address_space_limit_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    used = memory.psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + GB, -1))
    assert abs(memory._address_space()[0] - GB) < 0.1 * GB


def table(n: int, d: int = 3) -> Dataset:
    X = torch.zeros(n, d, dtype=torch.float64)
    X[:, 0] = torch.linspace(0, 1, n, dtype=torch.float64)
    X[:, 1:] = X[:, :1].sin() + torch.arange(d - 1) * X[:, :1].square()
    return Dataset(X, X[:, 0].cos())


@pytest.mark.filterwarnings("ignore:Kriging of")
@pytest.mark.parametrize(
    "model", [models.GP(kernels.RBF()), models.Kriging(drift="constant")], ids=["GP", "Kriging"]
)
def test_an_exact_gp_is_refused_before_its_covariance_is_made(
    model: models.GP, one_gigabyte: None
) -> None:
    data = table(
        20_000
    )  # 3.2 GB in one matrix: to make it takes many seconds, and a test of its own
    with pytest.raises(NotEnoughMemory, match=r"20,000 rows.*fit \w+\(kernel\), or "):
        ppgp.fit(model, data, inference.MAP())
    with pytest.raises(NotEnoughMemory, match="20,000 by 20,000"):
        kernels.RBF(1.0, 1.0)({}, data.X)


def test_the_error_of_a_full_batch_svgp_suggests_mini_batches(one_gigabyte: None) -> None:
    data = table(2_000_000, 2)
    model = models.SVGP(inducing=100, Z=data.X[::20_000].clone(), learn=False)
    target = Target(model.prepare(data), data)  # sites are seen on a few rows
    with pytest.raises(NotEnoughMemory, match="batch_size"):
        target.value_and_grad(target.origin())
    value, _ = target.value_and_grad(target.origin(), torch.arange(50))
    assert torch.isfinite(value)


def test_draws_that_do_not_fit_are_refused_before_the_first(one_gigabyte: None) -> None:
    data = table(60)
    with pytest.raises(NotEnoughMemory, match="fewer draws"):
        ppgp.fit(models.LinearRegression(), data, inference.NUTS(draws=10_000_000))
    assert inference.Laplace().numbers(20_000) * 8 > 10 * GB  # a Hessian of that many numbers
    assert inference.SVI("multivariate_normal").numbers(20_000) * 8 > 10 * GB
    assert inference.SVI("normal").numbers(20_000) * 8 < GB
