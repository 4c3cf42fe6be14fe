"""The progress of long runs: in a terminal, in a notebook and in a log."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import pytest

from ppgp.runtime.progress import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(steps: int, total: int) -> None:
    with bar("NUTS", total, True) as update:
        for step in range(1, steps + 1):
            update(step, loss=step / 4)


def in_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object(), config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    written = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", written)
    return written


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    run(40, 40)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "NUTS: 4 of 40 (10%)  loss 1"
    assert lines[-1] == "NUTS: 40 of 40 (100%)  loss 10"
    assert len(lines) == 10
    assert "\r" not in err
    assert "\x1b" not in err


@pytest.mark.parametrize(("steps", "last"), [(37, "37 of 1,000 (4%)"), (250, "250 of 1,000 (25%)")])
def test_a_run_that_ends_early_ends_at_its_last_value(
    steps: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(steps, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"NUTS: {last}  loss {steps / 4:g}"
    assert len(lines) == steps // 100 + 1


def failing() -> None:
    with bar("MAP", 100, True) as update:
        update(3)
        raise ArithmeticError


def test_a_run_that_fails_shows_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArithmeticError):
        failing()
    assert capsys.readouterr().err == "MAP: 3 of 100 (3%)\n"


def test_steps_may_jump_and_nothing_is_shown_without_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bar("MAP", 0, True):
        pass
    with bar("MAP", 100, False) as update:
        update(100)
    assert capsys.readouterr().err == ""
    with bar("MAP", 100, True) as update:
        update(95)
        update(100)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_terminal_has_a_bar_that_ends_at_its_last_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = in_terminal(monkeypatch)
    run(37, 1000)
    written = terminal.getvalue()
    assert "37/1000" in written
    assert "loss 9.25" in written
    assert "\x1b" in written
    assert capsys.readouterr().out == ""


def test_a_notebook_has_a_bar_of_text_without_ipywidgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_notebook(monkeypatch)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)
    before = set(threading.enumerate())
    run(37, 1000)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.rstrip("\n").split("\r")[-1]
    assert last.startswith("NUTS:   4%")
    assert "37/1000" in last
    assert "loss 9.25" in last
    assert set(threading.enumerate()) <= before  # a thread of an earlier bar may end


@pytest.mark.parametrize("missing", ["rich.console", "rich.progress"])
def test_a_terminal_without_rich_has_lines(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, missing, None)
    run(40, 40)
    assert terminal.getvalue().splitlines()[-1] == "NUTS: 40 of 40 (100%)  loss 10"


def test_a_notebook_without_tqdm_has_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_notebook(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    run(40, 40)
    assert capsys.readouterr().err.splitlines()[-1] == "NUTS: 40 of 40 (100%)  loss 10"


def test_a_process_without_a_standard_error_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    run(3, 3)
