"""Files in the present format that are kept in ``fixtures`` open, and predict the same."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import ppgp
from ppgp.posterior.loading import table

FOLDER = Path(__file__).parent / "fixtures"
FILES = sorted((FOLDER / "ppgp-2").glob("*.safetensors"))


def writer() -> Any:
    """Import the script that wrote the files, which defines their program and network."""
    spec = importlib.util.spec_from_file_location("write", FOLDER / "write.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = writer()
GIVEN = {"gp-user-network": WRITER.Encoder(), "program-nuts": WRITER.program}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)


def predicts_the_same(posterior: ppgp.Posterior, path: Path) -> None:
    wanted = json.loads(path.with_suffix(".json").read_text())
    assert {name: list(v.shape) for name, v in posterior.draws.items()} == wanted["sites"]
    found = WRITER.expected(posterior, path.stem)
    assert found.get("classes") == wanted.get("classes")
    exact = 1e-4 if path.stem == "gp-float32" else 1e-9
    for name in ("mean", "std", "probabilities", "quantiles"):
        if name in wanted:
            mine, theirs = (
                list(v.values()) if isinstance(v, dict) else v for v in (found[name], wanted[name])
            )
            torch.testing.assert_close(
                torch.tensor(mine), torch.tensor(theirs), rtol=exact, atol=exact
            )


@each_file
def test_a_saved_file_opens_and_predicts_the_same(path: Path) -> None:
    predicts_the_same(ppgp.load_posterior(path, GIVEN.get(path.stem)), path)


@each_file
def test_a_file_saved_again_predicts_the_same(path: Path, tmp_path: Path) -> None:
    again = ppgp.load_posterior(path, GIVEN.get(path.stem)).save(tmp_path / path.name)
    predicts_the_same(ppgp.load_posterior(again, GIVEN.get(path.stem)), path)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "name",
    [
        "gp-fixed-numbers",
        "gp-known-noise",
        "kriging-fixed-numbers",
        "svgp-deep-svi",
        "mixture-gibbs",
        "ensemble",
    ],
)
def test_a_new_fit_is_read_as_it_was_saved(name: str, tmp_path: Path) -> None:
    model, data, how, options = WRITER.fits()[name]
    posterior = ppgp.fit(model, data, how, seed=0, progress=False, **options)
    again = ppgp.load_posterior(posterior.save(tmp_path / "today.safetensors"))
    assert (again.model, again.recipe, again.how) == (posterior.model, model, how)
    assert again.warnings == posterior.warnings
    assert again.data.feature_names == posterior.data.feature_names
    assert WRITER.expected(again, name) == WRITER.expected(posterior, name)


def test_every_class_and_field_of_the_format_is_known() -> None:
    known = table()
    for name, names in json.loads((FOLDER / "ppgp-2" / "classes.json").read_text()).items():
        if not name.startswith("conformal."):  # no file ever held one
            assert set(names) <= {f.name for f in fields(known[name]) if f.init}
