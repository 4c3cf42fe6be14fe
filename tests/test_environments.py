"""The versions that pyproject.toml, the pinned lists and the documentation state agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tool_modules import tool

environments = tool("environments")
ROOT = Path(__file__).parents[1]
OWN = {"test", "bench", "gallery", "docs"}  # extras of those who work on the library


def pythons() -> list[str]:
    """Return the versions of Python that pyproject.toml classifies."""
    start = "Programming Language :: Python :: 3."
    lines = [line for line in environments.project()["classifiers"] if line.startswith(start)]
    return [line.rpartition(" ")[2] for line in lines]


def pinned(file: Path) -> dict[str, str]:
    """Return {name: version} of a list of versions."""
    pairs = (line.split("==") for line in file.read_text().splitlines())
    return {environments.canonical(name): version for name, version in pairs}


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def test_the_classifiers_are_the_versions_that_may_install_it() -> None:
    lowest, highest = pythons()[0], pythons()[-1]
    after = f"3.{int(highest.partition('.')[2]) + 1}"
    assert environments.project()["requires-python"] == f">={lowest},<{after}"
    assert pythons() == [f"3.{i}" for i in range(int(lowest[2:]), int(after[2:]))]


@pytest.mark.parametrize("page", ["README.md", "docs/installation.md"])
def test_pages_name_the_same_versions_of_python(page: str) -> None:
    found = re.search(r"Python (3[\d., ]+(?:and|or) 3\.\d+)", (ROOT / page).read_text())
    assert found is not None
    assert re.findall(r"3\.\d+", found[1]) == pythons()


def test_the_checkers_assume_the_lowest_python() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["pyright"]["pythonVersion"] == pythons()[0]
    assert tools["ruff"]["target-version"] == f"py{pythons()[0].replace('.', '')}"


def test_the_newest_versions_run_on_a_version_that_is_classified() -> None:
    assert environments.NEW_PYTHONS[0] == pythons()[-1]
    assert set(environments.NEW_PYTHONS) <= set(pythons())


def test_every_extra_of_users_has_tests_that_are_there() -> None:
    extras = set(environments.project()["optional-dependencies"])
    assert set(environments.EXTRAS) == extras - OWN
    for tests, _ in environments.EXTRAS.values():
        assert all((ROOT / name).exists() for name in tests if name.startswith("tests/"))


def test_the_test_extra_has_the_bounds_of_the_extras() -> None:
    extras = environments.project()["optional-dependencies"]
    bounds = environments.bounds_of_users()
    for name, least in environments.lower_bounds(extras["test"]).items():
        assert bounds.get(name, least) == least, name


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-newest.txt"])
def test_a_pinned_list_holds_every_dependency_above_its_bound(file: str) -> None:
    versions = pinned(ROOT / file)
    bounds = environments.lower_bounds(environments.project()["dependencies"])
    for name, least in bounds.items():
        assert as_numbers(versions[name]) >= as_numbers(least), name


def test_the_newest_versions_are_not_older_than_the_pinned_ones() -> None:
    newest, others = pinned(ROOT / "constraints-newest.txt"), pinned(ROOT / "constraints.txt")
    name, version = environments.TORCH.split("==")
    assert newest[name] == version
    for name in environments.lower_bounds(environments.project()["dependencies"]):
        assert as_numbers(newest[name]) >= as_numbers(others[name]), name


def test_the_installation_page_states_the_versions_of_torch_and_arviz() -> None:
    page = (ROOT / "docs" / "installation.md").read_text()
    bounds = environments.bounds_of_users()
    assert f"torch {bounds['torch']}" in page
    for file in ("constraints.txt", "constraints-newest.txt"):
        version = ".".join(pinned(ROOT / file)["arviz"].split(".")[:2])
        assert f"`{file}`" in page
        assert f"ArviZ {version}" in page


@pytest.mark.parametrize("requirement", ["numpy", "numpy<3", "numpy; python_version >= '3.12'"])
def test_a_requirement_without_a_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="expected a lower bound"):
        environments.lower_bounds([requirement])


def test_a_python_that_is_not_there_is_counted_as_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    absent = tmp_path / "python3.98"
    absent.write_text("#!/bin/sh\nexit 127\n")  # as a shim of pyenv for a version without one
    absent.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(environments, "NEW_PYTHONS", ("3.98", "3.97"))
    summary = environments.Summary()
    environments.newest_python(summary, None)
    assert "0 passed, 0 failed, 1 skipped" in capsys.readouterr().out.splitlines()
    assert summary.end() == 0


def test_a_part_that_fails_fails_the_whole_and_the_others_still_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = environments.Summary()
    with summary.part("one"):
        environments.subprocess.run([environments.sys.executable, "-c", "exit(3)"], check=True)
    with summary.part("two"):
        pass
    assert summary.end() == 1
    printed = capsys.readouterr().out
    assert "one: FAILED (exit status 3)" in printed
    assert "two: passed" in printed


def test_numpy_is_told_of_features_that_it_knows_alone() -> None:
    oldest, middle = environments.OLDER
    here = {"dispatched": ["X86_V3", "X86_V4", "AVX512_ICL"]}
    assert oldest.variables(here)["NPY_DISABLE_CPU_FEATURES"] == "X86_V3 X86_V4 AVX512_ICL"
    assert middle.variables(here)["NPY_DISABLE_CPU_FEATURES"] == "X86_V4 AVX512_ICL"
    here = {"dispatched": ["SSE42", "FMA3", "AVX2", "AVX512F"]}  # NumPy 1.26
    assert oldest.variables(here)["NPY_DISABLE_CPU_FEATURES"] == "FMA3 AVX2 AVX512F"
    assert middle.variables(here)["NPY_DISABLE_CPU_FEATURES"] == "AVX512F"


def test_instructions_that_a_library_does_not_follow_are_noticed() -> None:
    oldest, _ = environments.OLDER
    assert oldest.hold({"torch": "DEFAULT", "openblas": {"numpy": "Nehalem"}})
    assert not oldest.hold({"torch": "AVX2", "openblas": {"numpy": "Nehalem"}})
    assert not oldest.hold({"torch": "DEFAULT", "openblas": {"numpy": "Nehalem", "scipy": "Zen"}})
