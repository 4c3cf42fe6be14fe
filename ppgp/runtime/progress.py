"""The progress of every long run: steps, a few numbers and the time left.

It is a bar in a terminal and in a notebook, and a plain line per tenth of the run elsewhere, such
as in a log. All go to the standard error, so that the standard output holds results alone; a
notebook with ipywidgets shows a widget.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .process_locks import silenced

__all__ = ["bar"]

REFRESH_SECONDS = 0.1  # redrawing more often costs more than the cheapest steps
LINES = 10  # of a run whose output is no terminal

Draw = Callable[[int, str], None]
Numbers = Mapping[str, float]


@contextmanager
def bar(title: str, total: int, show: bool) -> Iterator[Callable[..., None]]:
    """Show the progress of what happens inside the block, if ``show``.

    It yields ``update(step, **numbers)``; the numbers (loss, divergences, ...) follow the bar. The
    last update is always shown, also where a run ends before ``total``.
    """
    if not show or sys.stderr is None:
        yield lambda step, **numbers: None
        return
    opened, due = _place(title, total)
    latest: tuple[int, Numbers] | None = None
    with opened as draw:

        def update(step: int, **numbers: float) -> None:
            nonlocal latest
            latest = step, numbers
            if due(step):
                draw(step, _in_words(numbers))
                latest = None

        try:
            yield update
        finally:
            if latest is not None:
                draw(latest[0], _in_words(latest[1]))


def _in_words(numbers: Numbers) -> str:
    return "  ".join(f"{name} {value:,.6g}" for name, value in numbers.items())


def _place(title: str, total: int) -> tuple[AbstractContextManager[Draw], Callable[[int], bool]]:
    """Return where the progress is shown, and a function of the step: whether to draw it."""
    try:
        if _in_notebook():
            return _notebook(title, total), _seldom(total)
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            return _terminal(Progress, console, title, total), _seldom(total)
    except ImportError:
        pass
    return _lines(title, total), _tenths(total)


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _seldom(total: int) -> Callable[[int], bool]:
    """Return a function that allows a step to be drawn if the last one was long enough ago."""
    last = 0.0

    def due(step: int) -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last < REFRESH_SECONDS and step < total:
            return False
        last = now
        return True

    return due


def _tenths(total: int) -> Callable[[int], bool]:
    """Return a function that allows the first step in each tenth of the run."""
    reached = 0

    def due(step: int) -> bool:
        nonlocal reached
        tenth = step * LINES // max(total, 1)
        if tenth <= reached:
            return False
        reached = tenth
        return True

    return due


@contextmanager
def _lines(title: str, total: int) -> Iterator[Draw]:
    """Write one line per call to the standard error."""

    def draw(step: int, text: str) -> None:
        share = step / max(total, 1)
        line = f"{title}: {step:,} of {total:,} ({share:.0%})"
        print(f"{line}  {text}".rstrip(), file=sys.stderr, flush=True)

    yield draw


@contextmanager
def _terminal(kind: Any, console: Any, title: str, total: int) -> Iterator[Draw]:
    """Draw a bar in a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with kind(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, numbers="")
        yield lambda step, text: progress.update(task, completed=step, numbers=text)


def _notebook(title: str, total: int) -> AbstractContextManager[Draw]:
    """Return a bar in a notebook: a widget where ipywidgets is installed, else text."""
    with silenced():  # of tqdm's advice to install ipywidgets
        from tqdm.auto import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # no thread that outlives the run

    return _notebook_bar(Bar, title, total)


@contextmanager
def _notebook_bar(kind: Any, title: str, total: int) -> Iterator[Draw]:
    with kind(desc=title, total=total, file=sys.stderr) as shown:

        def draw(step: int, text: str) -> None:
            shown.n = step
            shown.set_postfix_str(text, refresh=False)
            shown.refresh()

        yield draw
    widget = getattr(shown, "container", None)
    if widget is not None:  # tqdm colours a run that ends before its last step as a failure
        widget.children[1].bar_style = "success"
