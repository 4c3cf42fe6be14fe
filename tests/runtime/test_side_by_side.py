"""Pieces of a computation side by side in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
import torch

from ppgp.runtime import threads
from ppgp.runtime.threads import PIECES_PAY_FROM, side_by_side

CPU = torch.device("cpu")


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow two threads, whatever the cores and the limit of this suite."""
    monkeypatch.setattr(threads, "threads_allowed", lambda: 2)


def run(
    function: Callable[[int], None],
    pieces: Sequence[int],
    *,
    work: float = PIECES_PAY_FROM,
    at_once: int = 8,
) -> None:
    side_by_side(function, pieces, work=work, at_once=at_once, device=CPU)


@pytest.mark.usefixtures("two_threads")
@torch.no_grad()
def test_two_pieces_run_at_the_same_time_each_on_one_thread_of_torch() -> None:
    meeting = threading.Barrier(2, timeout=120)
    seen = torch.zeros(2, dtype=torch.long)

    def meet(i: int) -> None:
        meeting.wait()  # breaks unless the other piece has begun too
        seen[i] = torch.get_num_threads()

    before = torch.get_num_threads()
    run(meet, [0, 1])
    assert seen.tolist() == [1, 1]
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("case", ["gradients", "little work", "little memory", "one piece"])
def test_pieces_run_in_the_callers_thread_where_threads_do_not_serve(case: str) -> None:
    pieces = [0] if case == "one piece" else [0, 1, 2]
    work = 0.0 if case == "little work" else PIECES_PAY_FROM
    seen: list[int] = []
    with torch.set_grad_enabled(case == "gradients"):
        run(
            lambda _: seen.append(threading.get_ident()),
            pieces,
            work=work,
            at_once=0 if case == "little memory" else 8,
        )
    assert seen == [threading.get_ident()] * len(pieces)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference_mode"])
def test_modes_of_the_caller_hold_in_the_threads(inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        out = torch.zeros(6, dtype=torch.float64)

        def store(i: int) -> None:
            assert not torch.is_grad_enabled()
            out[i] = i**2  # torch refuses it where the modes differ

        run(store, range(6))
        assert out.tolist() == [0.0, 1.0, 4.0, 9.0, 16.0, 25.0]


@pytest.mark.usefixtures("two_threads")
@torch.no_grad()
def test_the_error_of_the_first_piece_that_fails_is_raised_and_later_pieces_are_left_out() -> None:
    begun: list[int] = []

    def fail(i: int) -> None:
        begun.append(i)
        raise ValueError(f"piece {i}")

    with pytest.raises(ValueError, match="piece 0"):
        run(fail, range(10_000))
    assert len(begun) < 10_000


@torch.no_grad()
def test_the_callers_limit_holds() -> None:
    with threads.at_most(1):
        assert threads.threads_allowed() == 1
    assert threads.threads_allowed() <= max(1, torch.get_num_threads())
