"""Every public name resolves, and public modules have the names that users need."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import ppgp

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", ppgp.__all__)
def test_a_public_name_resolves(name: str) -> None:
    assert getattr(ppgp, name) is not None


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("acquisition", ("EI", "LogEI", "UCB", "qEI", "qUCB", "suggest")),
        ("networks", ("CNN", "MLP", "pretrained", "regressor", "training")),
        ("diagnostics", ("ess", "mcse", "psis", "rhat", "wasserstein")),
        ("metrics", ("accuracy", "brier", "coverage", "mean_crps", "mean_width", "nll", "rmse")),
        ("data", ("Dataset", "Scaler")),
        ("estimators", ("ConformalClassifier", "ConformalRegressor", "ProbabilisticRegressor")),
        ("recipes", ("likelihood", "method", "model", "names", "score")),
        ("density", ("Target",)),
    ],
)
def test_a_public_module_has_the_names_that_users_need(module: str, names: tuple[str, ...]) -> None:
    assert importlib.import_module(f"ppgp.{module}") is getattr(ppgp, module)
    assert all(hasattr(getattr(ppgp, module), name) for name in names)


@pytest.mark.parametrize(
    "family",
    ["acquisition", "conformal", "inference", "kernels", "likelihoods", "models", "priors"],
)
def test_records_show_the_arguments_of_their_constructors(family: str) -> None:
    module = getattr(ppgp, family)
    records = [kind for kind in map(vars(module).get, module.__all__) if is_dataclass(kind)]
    assert records
    for kind in records:
        assert "positional" not in inspect.signature(kind).parameters, kind


def test_the_former_name_of_density_is_answered() -> None:
    with pytest.raises(AttributeError, match=r"did you mean ppgp\.density\?"):
        ppgp.target


PAGES = [str(page.relative_to(DOCS.parent)) for page in sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_modules_that_the_documentation_imports_from_exist(name: str) -> None:
    text = (DOCS.parent / name).read_text(encoding="utf-8")
    for module in re.findall(r"\bfrom (ppgp[\w.]*) import", text):
        assert importlib.util.find_spec(module) is not None, module
