"""The skeletons of CONTRIBUTING, copied literally into the tree, pass lint and contracts."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, kernels, likelihoods, models
from ppgp.inference import MAP
from ppgp.priors import Flat

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
    for name in ("ppgp", "tests", "docs"):  # tests read tables of the documentation
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


def test_the_files_that_it_names_exist() -> None:
    """A name without its folder is the end of a path."""
    files = {"/" + str(one.relative_to(ROOT)) for one in ROOT.glob("*.*")}
    for folder in ("ppgp", "tests", "docs", "notebooks"):
        files |= {"/" + str(one.relative_to(ROOT)) for one in (ROOT / folder).rglob("*.*")}
    new = {one.path for one in SKELETONS} | {"results.json"}  # an experiment writes the latter
    named = set(re.findall(r"`([\w./-]+\.(?:py|txt|md|toml|json|jsonl))`", TEXT)) - new
    assert len(named) > 50
    assert [name for name in sorted(named) if not any(f.endswith(f"/{name}") for f in files)] == []
    folders = set(re.findall(r"`((?:ppgp|tests|docs)(?:/[\w-]+)*/)`", TEXT))
    assert [name for name in sorted(folders) if not (ROOT / name).is_dir()] == []


def test_the_first_skeleton_has_every_part_of_a_docstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = runpy.run_path(str(Path(__file__).with_name("test_docstrings.py")))
    kind = member(SKELETONS[0].name, tmp_path, monkeypatch)
    text = inspect.getdoc(kind) + "\n"
    assert [part for part, pattern in checks["PARTS"].items() if not pattern.search(text)] == []
    monkeypatch.setattr(kernels, kind.__name__, kind, raising=False)
    example = doctest.DocTestParser().get_doctest(text, {}, kind.__name__, None, 0)
    assert example.examples
    assert checks["failures"](example) == []


def member(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the class of a skeleton, imported as a module of its family."""
    one = next(one for one in SKELETONS if one.name == name)
    path = folder / Path(one.path).name
    path.write_text(one.code)
    module_name = one.path.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module_name, module)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize("name", ["Geometric", "SoftplusPoisson"])
def test_a_likelihood_of_a_glm_has_the_derivatives_of_its_density(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = member(name, tmp_path, monkeypatch)()
    f = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64)[None].requires_grad_()
    y = torch.arange(400.0, dtype=torch.float64)[:, None].expand(400, 7)
    at = f[None].expand(400, 1, 7)
    density = -law.score({}, at, y)
    torch.testing.assert_close(density.exp().sum(0), torch.ones(7, dtype=torch.float64))
    given = law.distribution({}, f[0].detach())
    torch.testing.assert_close(density, given.log_prob(y))
    first, second = law.slopes({}, f.detach(), y[3])
    (slope,) = torch.autograd.grad(-law.score({}, f, y[3]).sum(), f, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), f)
    torch.testing.assert_close(first, slope)
    torch.testing.assert_close(second, bend)
    _, bends = law.slopes({}, f.detach().expand(400, 1, 7), y)
    average = -(density.exp()[:, None] * bends).sum(0)
    torch.testing.assert_close(law.metric({}, f.detach())[..., 0, 0], average[0])


def test_a_glm_of_a_new_likelihood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A geometric distribution is a negative binomial one of shape 1."""
    law = member("Geometric", tmp_path, monkeypatch)
    g = np.random.default_rng(0)
    X = g.normal(size=(80, 2))
    data = Dataset(X, g.negative_binomial(1, 1 / (1 + np.exp(0.5 + 0.4 * X[:, 0]))))
    fits = []
    for one in (law(), likelihoods.NegativeBinomial(shape=1.0)):
        model = models.GLM(one, Flat(), Flat())
        fits.append(ppgp.fit(model, data, MAP("newton"), progress=False))
    for kind in ("model", "HC3"):
        own, peer = (fit.coefficients(kind) for fit in fits)
        np.testing.assert_allclose(own, peer, rtol=1e-6)
    assert fits[0].deviance == pytest.approx(fits[1].deviance)
    assert fits[0].aic == pytest.approx(fits[1].aic)


def test_skeletons_pass_the_linter(tree: Path) -> None:
    paths = [one.path for one in SKELETONS]
    run(tree, "ruff", "check", *paths)
    run(tree, "ruff", "format", "--check", *paths)


def test_skeletons_keep_the_import_contracts(tree: Path) -> None:
    assert "0 broken" in run(tree, "lint-imports", "--no-cache")


@pytest.mark.slow
def test_skeletons_pass_the_contract_tests(tree: Path) -> None:
    """At least one contract test applies to each; one run imports the library once for all.

    The comparison of float32 and float64 is left out: it fits each pair twice or more.
    """
    names = [one.name for one in SKELETONS]
    arguments = ["-v", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", " or ".join(names)]
    arguments += ["--ignore", "tests/contract/test_float32_recipes.py"]
    passed = re.findall(r"^(\S.*) PASSED", run(tree, "pytest", "tests/contract", *arguments), re.M)
    for name in names:
        assert any(name in test for test in passed), name
