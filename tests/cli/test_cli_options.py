"""Options of the command line: what a command takes without them, and hints for misspelt ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import ppgp
from ppgp.cli.data_options import in_the_shell
from ppgp.cli.fit_commands import fit_grid, warn_of_long_fits, warn_of_many_rows
from ppgp.cli.main import app
from ppgp.cli.recipe_options import build_models_and_methods, options_in, usual_models
from ppgp.diagnostics import comparison
from ppgp.errors import PpgpError, PpgpWarning, SettingError, StorageError, UnknownName
from ppgp.recipes import parsing as recipes


def run(*arguments: str) -> str:
    """Run a command, return what it prints, and raise what it raises."""
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False, standalone_mode=False)
    return done.stdout


@pytest.mark.parametrize(
    ("setting", "near"),
    [
        ("kernel.lengthscal=2", "kernel.lengthscale"),
        ("kernel.variace=2", "kernel.variance"),
        ("nose=1", "noise"),
        ("nuts.drws=3", "nuts.draws"),
        ("gp.kernel.lengthscales=2", "gp.kernel.lengthscale"),
        ("warm_up=3", "warmup"),
    ],
)
def test_a_misspelt_option_offers_that_of_the_right_family(setting: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean '{near}'"):
        build_models_and_methods(["gp"], ["nuts"], [setting])
    build_models_and_methods(["gp"], ["nuts"], [f"{near}=2"])


def test_an_option_of_a_term_and_one_of_an_absent_method() -> None:
    model = "GP(ARD(RBF()) + Linear())"
    with pytest.raises(UnknownName, match=r"did you mean 'kernel\.0\.lengthscale'"):
        build_models_and_methods([model], ["map"], ["kernel.0.lengthscal=2"])
    with pytest.raises(SettingError, match=r"'nuts\.draws': run nuts too"):
        build_models_and_methods(["gp"], ["map"], ["nuts.draws=3"])


@pytest.mark.parametrize("name", ["gp", "svgp", "dkl", "glm", "GP(Periodic() * RBF() + White())"])
def test_every_listed_option_can_be_set(name: str) -> None:
    model = recipes.build_model(name)
    options = dict(options_in(model))
    assert len(options) == len(list(options_in(model))) > 1
    for option, value in options.items():
        assert recipes.changed(model, option, repr(value)) == model


def test_messages_name_the_models_of_the_command_line() -> None:
    with pytest.raises(PpgpError) as raised:
        run("fit", "iris", "--model", "gp", "--how", "map", "--no-progress")
    sentence = in_the_shell(str(raised.value))
    assert "use logistic or gp with --likelihood bernoulli for two classes" in sentence
    assert "softmax or svgp with --likelihood categorical for more" in sentence


def test_the_folder_of_the_file_is_checked_before_the_data(tmp_path: Path) -> None:
    out = str(tmp_path / "absent" / "p.safetensors")
    with pytest.raises(StorageError, match=r"got no folder .*absent: make it first"):
        run("fit", "no data", "--out", out)
    with pytest.raises(StorageError, match=r"got no folder .*absent: make it first"):
        run("predict", "no posterior", "no data", "--out", f"{out}.csv")
    with pytest.raises(SettingError, match="got the standard output"):
        run("fit", "no data", "--out", "-")


def test_the_model_follows_the_target() -> None:
    assert usual_models(ppgp.load("iris")) == ["softmax"]
    assert usual_models(ppgp.load("breast_cancer")) == ["logistic"]
    assert usual_models(ppgp.load("diabetes")) == ["gp", "linear"]
    assert usual_models(ppgp.load("diabetes"), "student-t") == ["gp"]
    many = torch.arange(5001.0)
    assert usual_models(ppgp.Dataset(many[:, None], many)) == ["sgpr", "linear"]


def test_an_exact_model_of_many_rows_is_warned_of() -> None:
    rows = torch.arange(20_000.0, dtype=torch.float64)
    data = ppgp.Dataset(rows[:, None] * torch.ones(10, dtype=torch.float64), rows)
    models, _ = build_models_and_methods(["gp", "sgpr", "linear"], [], [])
    with pytest.warns(PpgpWarning) as found:
        warn_of_many_rows(models, data)
    (sentence,) = (str(one.message) for one in found)
    gp = next(one for one in ppgp.advise(data).options if one.model == "GP")
    assert sentence.startswith(f"gp {gp.reason}; a fit to 20,000 takes about 3 h: fit sgpr (")
    assert "or svgp (" in sentence
    warn_of_many_rows(models, data.rows(slice(5000)))


def test_a_long_fit_is_told_before_it_begins() -> None:
    rows = torch.arange(1_000.0, dtype=torch.float64)
    data = ppgp.Dataset(rows[:, None] * torch.ones(3, dtype=torch.float64), rows)
    models, methods = build_models_and_methods(["gp", "linear"], ["nuts", "map"], [])
    pairs = [(model, method) for model in models for method in methods]
    with pytest.warns(PpgpWarning) as found:
        warn_of_long_fits(pairs, models, methods, data)
    (sentence,) = (str(one.message) for one in found)
    assert re.match(r"gp by nuts takes about \d+ min: --how laplace takes about \d", sentence)
    assert ", and --how map " in sentence
    warn_of_long_fits(pairs, models, methods, data.rows(slice(100)))  # short: no warning


def test_fit_takes_three_classes(tmp_path: Path) -> None:
    out = tmp_path / "iris.safetensors"
    assert "softmax by map" in run("fit", "iris", "--how", "map", "--out", str(out))
    assert ppgp.load_posterior(out).data.classes == ("setosa", "versicolor", "virginica")


def test_compare_saves_the_fits_if_their_comparison_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(comparison, "compare", fail)
    command = "compare diabetes --models linear --how map --no-progress --out"
    with pytest.raises(ZeroDivisionError):
        run(*command.split(), str(tmp_path / "report"))
    saved = ppgp.load_posterior(tmp_path / "report" / "linear-map.safetensors")
    assert saved.data.n == 265


@pytest.mark.slow
def test_compare_takes_three_classes(tmp_path: Path) -> None:
    out = tmp_path / "report"
    printed = json.loads(run("compare", "iris", "--how", "map", "--json", "--out", str(out)))
    written = json.loads((out / "results.json").read_text())
    assert printed["rows"] == written["rows"]
    assert printed["split"] == written["split"]
    (row,) = printed["rows"]
    assert (row["model"], row["how"]) == ("softmax", "map")
    assert row["accuracy"] > 0.8


def test_a_model_that_does_not_fit_in_memory_is_left_out() -> None:
    rows = torch.linspace(0.0, 1.0, 200_000, dtype=torch.float64)
    X = torch.stack([rows, (9.0 * rows).sin(), (9.0 * rows).cos()], 1)
    data = ppgp.Dataset(X, rows + (12_345.0 * rows).sin())
    built = build_models_and_methods(["gp", "linear"], ["exact", "map"], [])
    pairs = [("gp", "map"), ("linear", "map")]
    posteriors, _, refused, _ = fit_grid(*built, pairs, data, 0, False)
    assert list(posteriors) == ["linear map"]
    sentence = in_the_shell(refused[0])
    assert "the covariance of 200,000 rows" in sentence
    assert "fit ski, or sgpr, or svgp by --how 'SVI(batch_size=1000)'" in sentence
