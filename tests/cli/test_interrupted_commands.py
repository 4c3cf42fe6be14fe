"""Ctrl-C and SIGTERM on the command line: files, reported fits and the exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from interrupted_search import interrupted_at
from typer.testing import CliRunner

import ppgp
from ppgp import inference, models
from ppgp.cli import signals
from ppgp.cli.main import app
from ppgp.inference import Inference
from ppgp.inference.fitting import fit as fitting
from ppgp.inference.optimise import scipy_search
from ppgp.inference.runs import TWICE

pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] - 2 * frame["b"] + 0.1 * rng.normal(size=90)
    path = tmp_path / "train.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def interrupt_lbfgs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt every L-BFGS search at its third evaluation."""
    monkeypatch.setattr(scipy_search, "_Objective", interrupted_at(3))


@pytest.mark.usefixtures("interrupt_lbfgs")
def test_an_interrupted_fit_leaves_an_existing_file(table: Path) -> None:
    good = table.parent / "good.safetensors"
    good.write_bytes(b"good")
    options = "--target y --model gp --how map --no-progress --out"
    done = CliRunner().invoke(app, ["fit", str(table), *options.split(), str(good)])
    assert done.exit_code == 130
    assert good.read_bytes() == b"good"
    partial = ppgp.load_posterior(good.with_name("good.partial.safetensors"))
    assert partial.stats["interrupted"] is True
    assert "interrupted" in partial.summary().index.name
    assert "interrupted" in repr(partial)
    assert "interrupted" in done.output


@pytest.mark.usefixtures("interrupt_lbfgs")
def test_an_interrupted_choice_of_a_series_is_saved_as_partial(tmp_path: Path) -> None:
    walk = np.random.default_rng(0).normal(size=30).cumsum()
    pd.DataFrame({"t": np.arange(30.0), "y": walk}).to_csv(tmp_path / "s.csv", index=False)
    options = "--target y --time t --no-progress --json --out"
    out = str(tmp_path / "s.safetensors")
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "s.csv"), *options.split(), out])
    assert done.exit_code == 130
    found = json.loads(done.stdout)
    assert found["interrupted"] is True
    assert found["warnings"][0].startswith("stopped by Ctrl-C: 1 of ")
    assert ppgp.Average.load(tmp_path / "s.partial.safetensors").stats["interrupted"]
    assert not Path(out).exists()


@pytest.mark.usefixtures("interrupt_lbfgs")
def test_an_interrupted_comparison_reports_the_completed_fits(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Inference] = []
    fit_as_ever = fitting.fit

    def fit(model: Any, data: Any, how: Inference, **options: Any) -> ppgp.Posterior:
        started.append(how)
        return fit_as_ever(model, data, how, **options)

    monkeypatch.setattr(fitting, "fit", fit)
    out = table.parent / "report"
    options = "--target y --models linear,gp --how exact,map,nuts --no-progress --out"
    done = CliRunner().invoke(app, ["compare", str(table), *options.split(), str(out)])
    assert done.exit_code == 130, done.output
    assert [type(how).__name__ for how in started] == ["Exact", "MAP"]
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [(row["how"], row["interrupted"]) for row in rows] == [("exact", False), ("map", True)]
    assert rows[1]["verdict"] == "unjudged"
    assert "interrupted" in done.output
    assert "interrupted" in (out / "index.html").read_text()


def interrupted(posterior: ppgp.Posterior) -> ppgp.Posterior:
    return replace(posterior, stats={**posterior.stats, "interrupted": True})


def test_an_interrupted_fit_is_unjudged_and_is_no_reference() -> None:
    X = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = ppgp.Dataset(
        X,
        X[:, 0]
        + 0.5 * torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    )
    laplace = ppgp.fit(
        models.LinearRegression(), data, inference.Laplace(draws=400), progress=False
    )
    how = inference.NUTS(draws=600, warmup=200, chains=2)
    chains = ppgp.fit(models.LinearRegression(), data, how, progress=False)
    assert ppgp.compare({"laplace": laplace, "nuts": chains}).verdicts["nuts"] == "reference"
    found = ppgp.compare({"laplace": interrupted(laplace), "nuts": chains}, test=data)
    assert found.verdicts == {"laplace": "unjudged", "nuts": "reference"}
    assert found.predictive_verdicts == {"laplace": "unjudged", "nuts": "reference"}
    found = ppgp.compare({"laplace": laplace, "nuts": interrupted(chains)}, test=data)
    assert set(found.verdicts.values()) == set(found.predictive_verdicts.values()) == {"unjudged"}
    found = ppgp.compare({"laplace": laplace, "cut": interrupted(chains), "nuts": chains})
    assert found.verdicts["nuts"] == "reference"
    assert found.verdicts["cut"] == "unjudged"
    assert ppgp.diagnose(chains).verdict == "agrees"
    assert ppgp.diagnose(interrupted(chains)).verdict == "unjudged"


@pytest.fixture
def default_handlers() -> Iterator[None]:
    """Restore the default handlers of both signals."""
    before = [
        signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.signal(signal.SIGTERM, signal.SIG_DFL),
    ]
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def receive(number: signal.Signals, swallowed: bool) -> None:
    """Send a signal to this process; catch the KeyboardInterrupt if ``swallowed``."""
    try:
        os.kill(os.getpid(), number)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        if not swallowed:
            raise


@pytest.mark.usefixtures("default_handlers")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str
)
@pytest.mark.parametrize("swallowed", [True, False])
def test_the_exit_status_is_128_plus_the_signal(
    number: signal.Signals, status: int, swallowed: bool
) -> None:
    with pytest.raises(SystemExit) as ended, signals.exit_on_signals():
        receive(number, swallowed)
    assert ended.value.code == status
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.usefixtures("default_handlers")
def test_a_signal_that_the_caller_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals.exit_on_signals():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_messages_name_the_signal_that_came_first() -> None:
    sentence = f"stopped by Ctrl-C after 3 steps; {TWICE}"
    for number in (signal.SIGINT, signal.SIGTERM):
        found = signals.in_words_of([number, signal.SIGINT], sentence)
        assert (found == sentence) == (number == signal.SIGINT)
    assert found == "stopped by SIGTERM after 3 steps"
    assert signals.in_words_of([], sentence) == sentence


def read_terminal(descriptor: int, until: re.Pattern[bytes] | None = None) -> bytes:
    """Read from a terminal up to a pattern, or to its end."""
    text = b""
    while until is None or not until.search(text):
        assert select.select([descriptor], [], [], 120)[0], text[-2000:]
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            more = b""
        if not more:
            assert until is None, text[-2000:]
            return text
        text += more
    return text


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str
)
def test_a_signal_stops_a_fit_on_a_terminal(
    number: signal.Signals, status: int, table: Path
) -> None:
    good = table.parent / "good.safetensors"
    good.write_bytes(b"good")
    command = "fit train.csv --target y --model linear --how svi --out good.safetensors"
    more = "--set svi.steps=1000000 --set svi.patience=1000000"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ppgp", *command.split(), *more.split()],
        cwd=table.parent,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(ppgp.__file__).parents[1]),
            "TERM": "xterm",
            "COLUMNS": "160",
        },
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        os.close(theirs)
        text = read_terminal(ours, re.compile(rb"elbo"))
        process.send_signal(number)
        text += read_terminal(ours)
    os.close(ours)
    assert process.returncode == status
    assert text.rfind(SHOWN) > text.rfind(HIDDEN) >= 0
    assert b"Traceback" not in text
    name, other = (b"Ctrl-C", b"SIGTERM")[:: 1 if status == 130 else -1]
    assert b"warning: stopped by " + name in text
    assert b"ppgp: stopped by " + name in text
    assert other not in text
    assert good.read_bytes() == b"good"
    assert ppgp.load_posterior(table.parent / "good.partial.safetensors").stats["interrupted"]


def test_a_signal_inside_a_callback_of_a_weak_reference_is_not_lost() -> None:
    """Python drops what such a callback raises; torch has one for each tensor in a graph."""

    class Referred:
        pass

    def work() -> None:
        thing = Referred()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
        assert reference() is None
        time.sleep(20.0)
        pytest.fail("the signal was lost")

    with pytest.raises(SystemExit) as end, signals.exit_on_signals():
        work()
    assert end.value.code == 128 + signal.SIGTERM
