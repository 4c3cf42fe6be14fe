"""The commands of ppgp, run as processes; all but one are forked, so that they import once."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forked import ppgp

from ppgp.recipes import parsing as recipes

PPGP = [sys.executable, "-W", "ignore", "-m", "ppgp"]
TRAIN = ("train.csv", "--target", "y")


def fitted(how: str, *more: str, cwd: Path) -> None:
    """Fit a linear model to train.csv and write q.safetensors."""
    command = "fit train.csv --target y --model linear --out q.safetensors --no-progress --how"
    done = ppgp(*command.split(), how, *more, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv and new.csv."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("cli")
    frame = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] - 2 * frame["b"] + 0.1 * rng.normal(size=90)
    frame[:60].to_csv(folder / "train.csv", index=False)
    frame[60:].to_csv(folder / "new.csv", index=False)
    return folder


def test_help_and_list_do_not_import_torch() -> None:
    code = (
        "import sys, ppgp, ppgp.cli.main, ppgp.recipes.parsing\n"
        "from typer.testing import CliRunner\n"
        "for args in (['--help'], ['list'], ['--version']):\n"
        "    assert CliRunner().invoke(ppgp.cli.main.app, args).exit_code == 0\n"
        "assert 'torch' not in sys.modules and 'pyro' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_compare_prints_the_table_and_writes_the_report(table: Path) -> None:
    command = "compare train.csv --target y --models linear --how map,nuts --out report"
    command += " --no-progress --set nuts.draws=100 --set nuts.warmup=150"
    done = subprocess.run(
        [*PPGP, *command.split()],
        cwd=table,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reference" in done.stdout
    results = json.loads((table / "report" / "results.json").read_text())
    assert [(r["model"], r["how"]) for r in results["rows"]] == [
        ("linear", "map"),
        ("linear", "nuts"),
    ]
    assert "predictions" in done.stdout
    words = {"agrees", "means agree, spread does not", "do not use", "unjudged"}
    assert results["rows"][0]["predictions"] in words
    assert results["rows"][0]["predictions_reason"]
    assert all(
        np.isfinite(r[k])
        for r in results["rows"]
        for k in ("rmse", "nll", "crps", "coverage", "width", "seconds")
    )
    page = (table / "report" / "index.html").read_text()
    assert results["rows"][0]["predictions_reason"].split(";")[0] in html.unescape(page)
    assert "data:image/png;base64," in page
    assert not re.search(r'(src|href)="http', page)  # the page needs no other file
    assert (table / "report" / "linear-nuts.nc").stat().st_size > 0
    assert list((table / "report" / "figures").glob("*.png"))


def test_fit_then_predict_with_calibration_rows(table: Path) -> None:
    fitted("laplace", cwd=table)
    command = "predict q.safetensors new.csv --calibration new.csv --level 0.8 --out p.csv"
    done = ppgp(*command.split(), cwd=table)
    assert done.returncode == 0, done.stderr
    assert "coverage >= 0.8" in done.stdout
    predictions = pd.read_csv(table / "p.csv")
    truth = pd.read_csv(table / "new.csv")["y"]
    assert list(predictions.columns) == ["mean", "sd", "lower", "upper"]
    assert np.corrcoef(predictions["mean"], truth)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("how", "figures"),
    [("laplace", {"k_hat", "marginals"}), ("nuts", {"trace", "rank", "pair", "loo"})],
)
def test_diagnose_writes_the_figures_of_the_kind_of_posterior(
    table: Path, how: str, figures: set[str]
) -> None:
    fitted(
        how,
        *(("--set", "nuts.draws=100", "--set", "nuts.warmup=100") if how == "nuts" else ()),
        cwd=table,
    )
    done = ppgp("diagnose", "q.safetensors", "--out", "figures", cwd=table)
    assert done.returncode == 0, done.stderr
    assert "verdict:" in done.stdout
    written = {p.stem for p in (table / "figures").glob("*.png")}
    assert figures <= written


@pytest.mark.slow
def test_without_how_a_model_is_fitted_by_its_own_method(table: Path) -> None:
    command = "fit train.csv --target y --model ngboost --out b.safetensors --no-progress"
    done = ppgp(*command.split(), "--set", "ngb.steps=40", cwd=table)
    assert done.returncode == 0, done.stderr
    assert "ngboost by ngb" in done.stdout
    assert "one distribution for all rows" not in done.stdout + done.stderr
    done = ppgp("predict", "b.safetensors", "new.csv", "--out", "b.csv", cwd=table)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(table / "b.csv")["mean"].nunique() > 10


def test_compare_fits_each_model_by_its_own_methods(table: Path) -> None:
    command = "compare train.csv --target y --models ngboost,mc-dropout,linear --out own"
    settings = ("ngb.steps=40", "mc-dropout.epochs=20", "nuts.draws=60", "nuts.warmup=60")
    changes = [word for setting in settings for word in ("--set", setting)]
    done = ppgp(*command.split(), "--no-progress", *changes, cwd=table)
    assert done.returncode == 0, done.stderr
    results = json.loads((table / "own" / "results.json").read_text())
    fits = {(row["model"], row["how"]) for row in results["rows"]}
    assert fits == {
        ("ngboost", "ngb"),
        ("mc-dropout", "mc-dropout"),
        *[("linear", how) for how in ("map", "laplace", "svi", "nuts")],
    }
    ranks = [row["rank"] for row in results["rows"]]
    assert ranks == sorted(ranks)


def test_calibrate_prints_one_row_per_score(table: Path) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] - 2 * frame["b"] + 0.1 * rng.normal(size=300)
    frame["site"] = np.where(rng.random(300) < 0.3, "north", "south")
    frame[:100].drop(columns="site").to_csv(table / "fit.csv", index=False)
    frame[100:].to_csv(table / "rest.csv", index=False)
    command = "fit fit.csv --target y --model linear --how map --out m.safetensors"
    done = ppgp(*command.split(), cwd=table)
    assert done.returncode == 0, done.stderr
    done = ppgp("calibrate", "m.safetensors", "rest.csv", "--level", "0.8", cwd=table)
    assert done.returncode == 0, done.stderr
    assert "100 rows to calibrate, 100 to test" in done.stdout
    assert all(
        name in done.stdout for name in ("absolute", "signed", "density", "nine times in ten")
    )
    command = "calibrate m.safetensors rest.csv --scores Quantile(unit='width') --group site"
    done = ppgp(*command.split(), cwd=table)
    assert done.returncode == 0, done.stderr
    assert "given the group" in " ".join(done.stdout.split())
    done = ppgp("calibrate", "m.safetensors", "rest.csv", "--scores", "absolut", cwd=table)
    assert done.returncode == 2
    assert "absolute" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("compare", "diabets"), "did you mean 'diabetes'"),
        (("compare", "train.csv", "--target", "z"), "the name of a target column"),
        (("compare", "train.csv"), "add --target, one of: a, b, y"),
        (("compare", "nowhere.csv", "--target", "y"), "no file nowhere.csv"),
        (("compare", *TRAIN, "--models", "gpp"), "known: " + ", ".join(recipes.MODELS)),
        (("compare", *TRAIN, "--how", "mcmc"), "known"),
        (("fit", *TRAIN, "--model", "ngbost"), "did you mean 'ngboost'"),
        (("fit", *TRAIN, "--model", "mc-dropuot"), "did you mean 'mc-dropout'"),
        (("compare", *TRAIN, "--level", "95"), "write 0.95"),
        (("compare", *TRAIN, "--models", "linear", "--set", "kernel.lengthscale=2"), "option"),
        (
            ("compare", *TRAIN, "--how", "map", "--set", "map.optimizer=adagrd"),
            "optimizer of MAP, got 'adagrd': did you mean 'adagrad'",
        ),
        (
            ("compare", *TRAIN, "--models", "logistic", "--how", "map", "--no-progress"),
            "labels 0 and 1",
        ),
        (("predict", "train.csv", "new.csv"), "the file that ppgp fit wrote"),
        (("reproduce", "nothing"), "latent-intervals"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...], sentence: str, table: Path
) -> None:
    done = ppgp(*arguments, cwd=table)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
