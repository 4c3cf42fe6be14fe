"""The progress bar of every long run: steps, a few numbers and the time left.

It goes to the standard error, so that the standard output holds results alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REFRESH_SECONDS = 0.1  # redrawing more often costs more than the cheapest steps


@contextmanager
def bar(title: str, total: int, show: bool) -> Iterator[Callable[..., None]]:
    """Show a progress bar inside the block, if ``show``.

    It yields ``update(step, **numbers)``; the numbers (loss, divergences, ...) follow the bar.
    """
    if not show:
        yield lambda step, **numbers: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, numbers="")
        last = 0.0

        def update(step: int, **numbers: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= REFRESH_SECONDS or step >= total:
                last = now
                text = "  ".join(f"{name} {value:,.6g}" for name, value in numbers.items())
                progress.update(task, completed=step, numbers=text)

        yield update
