"""The skeletons of CONTRIBUTING, copied literally into the tree, pass lint and contracts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


@dataclass(frozen=True)
class Skeleton:
    """A new member of a family.

    Attributes:
        path: of its file, relative to the root.
        code: the text of the file.
    """

    path: str
    code: str

    @property
    def name(self) -> str:
        """The name of the class."""
        return re.findall(r"^class (\w+)", self.code, re.MULTILINE)[-1]

    @property
    def family(self) -> Path:
        """The folder with the ``__init__.py`` that lists the family."""
        return Path(*Path(self.path).parts[:2])


def skeletons() -> list[Skeleton]:
    """Return the code blocks of CONTRIBUTING, each with the last path named before it."""
    found = []
    for block in re.finditer(r"```python\n(.*?)```", TEXT, re.DOTALL):
        path = re.findall(r"`(ppgp/[\w/]+\.py)`", TEXT[: block.start()])
        named = [one for one in path if not one.endswith("__init__.py")]
        found.append(Skeleton(named[-1], block[1]))
    return found


SKELETONS = skeletons()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with all skeletons in it, and a line for each in its family."""
    copy = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "*.ipynb")
    for name in ("ppgp", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    for one in SKELETONS:
        (copy / one.path).write_text(one.code)
        members = copy / one.family / "__init__.py"
        module = ".".join(Path(one.path).with_suffix("").parts[2:])
        text = members.read_text()
        start = re.search(r"^from \.\w+(\.\w+)* import ", text, re.MULTILINE)
        assert start is not None
        line = f"from .{module} import {one.name}\n"
        text = text[: start.start()] + line + text[start.start() :]
        members.write_text(text.replace("__all__ = [", f'__all__ = [\n    "{one.name}",', 1))
    families = sorted({str(one.family / "__init__.py") for one in SKELETONS})
    run(copy, "ruff", "check", "--quiet", "--fix", "--select", "I,RUF022", *families)
    run(copy, "ruff", "format", "--quiet", *families)
    return copy


def run(tree: Path, module: str, *arguments: str) -> str:
    """Run a tool in the copy; fail with its output if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    if module == "lint-imports":
        command = [str(Path(sys.executable).parent / module), *arguments]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_family_has_a_skeleton() -> None:
    families = {str(one.family) for one in SKELETONS}
    wanted = {"kernels", "learners", "likelihoods", "models", "inference", "conformal"}
    assert families == {f"ppgp/{name}" for name in wanted}
    assert len({one.path for one in SKELETONS}) == len(SKELETONS)


def test_skeletons_pass_the_linter(tree: Path) -> None:
    paths = [one.path for one in SKELETONS]
    run(tree, "ruff", "check", *paths)
    run(tree, "ruff", "format", "--check", *paths)


def test_skeletons_keep_the_import_contracts(tree: Path) -> None:
    assert "0 broken" in run(tree, "lint-imports", "--no-cache")


@pytest.mark.slow
def test_skeletons_pass_the_contract_tests(tree: Path) -> None:
    """At least one contract test applies to each; one run imports the library once for all."""
    names = [one.name for one in SKELETONS]
    arguments = ("-v", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", " or ".join(names))
    passed = re.findall(r"^(\S.*) PASSED", run(tree, "pytest", "tests/contract", *arguments), re.M)
    for name in names:
        assert any(name in test for test in passed), name
