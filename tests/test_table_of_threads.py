"""The table of the documentation of a gradient on one thread and on two."""

from __future__ import annotations

import torch
from tool_modules import tool

from ppgp.runtime import threads

script = tool("threads")


def test_the_table_of_times() -> None:
    table = script.table({100: {1: 0.00123, 2: 0.5}, 3000: {1: 2.0, 2: 1.0}})
    assert table.splitlines() == [
        "| rows | 1 thread | 2 threads | chosen |",
        "|---|---|---|---|",
        f"| 100 | 1.23 ms | 500 ms | {script.chosen(100)} |",
        f"| 3,000 | 2,000 ms | 1,000 ms | {script.chosen(3000)} |",
    ]


def test_what_is_chosen_is_what_a_gradient_gets(monkeypatch) -> None:
    """One thread for few rows, and every core for many, where threads sleep while they wait."""
    monkeypatch.setattr(threads, "WAIT_POLICY", "passive")
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    assert [script.chosen(n) for n in script.ROWS] == [1, 1, 1, 2, 2]


def test_the_work_is_timed_on_each_number_of_threads() -> None:
    seen: list[int] = []
    times = script.seconds(lambda: seen.append(torch.get_num_threads()), rounds=3)
    assert set(times) == set(script.THREADS)
    limit = torch.get_num_threads()
    assert seen == [min(number, limit) for number in (1, 1, 2, 2)] * 3


def test_the_work_is_a_density_with_its_gradient() -> None:
    value, slopes = script.gradient(20)()
    assert value < 0
    assert slopes.shape == (script.COLUMNS + 2,)


def test_the_readme_has_a_table_of_these_rows_and_choices(monkeypatch) -> None:
    monkeypatch.setattr(threads, "WAIT_POLICY", "passive")
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    lines = script.tables_of_docs.in_docs(script.NAME).splitlines()[2:]
    found = [line.strip("| ").split(" | ") for line in lines]
    assert [(cells[0], cells[-1]) for cells in found] == [
        (f"{n:,}", str(script.chosen(n))) for n in script.ROWS
    ]
