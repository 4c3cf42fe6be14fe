"""Locks around process-wide state, with threads, helper threads and forks."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
import torch

from ppgp import Prediction
from ppgp.runtime.process_locks import Turns, help_in, one_at_a_time, silenced, turns_of_this_thread
from ppgp.runtime.seeding import seeded, stream

LONG = 60.0  # seconds, after which a thread is said to wait for ever


def in_a_thread(work: Callable[[], object]) -> threading.Event:
    """Return an event that is set when the work in a thread is done."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done


def enters(turn: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    def work() -> None:
        with turn():
            pass

    return work


@pytest.mark.parametrize("turn", [one_at_a_time, lambda: seeded(0), silenced])
def test_a_second_thread_waits_until_the_first_is_done(
    turn: Callable[[], AbstractContextManager[None]],
) -> None:
    with one_at_a_time(), one_at_a_time():
        done = in_a_thread(enters(turn))
        assert not done.wait(0.05)
    assert done.wait(LONG)


def test_calls_of_decorated_functions_wait_for_one_another() -> None:
    inside, most = 0, 0

    @one_at_a_time()
    def work(_: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        torch.ones(50, 50) @ torch.ones(50, 50)
        inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert most == 1


def test_a_draw_from_a_prediction_does_not_wait_for_a_fit() -> None:
    prediction = Prediction(torch.distributions.Normal(torch.zeros(3), torch.ones(3)))
    with one_at_a_time():  # as a fit has
        assert in_a_thread(lambda: prediction.sample(2)).wait(LONG)


def test_a_helper_thread_shares_the_lock_of_the_thread_it_helps() -> None:
    def help_with(turns: Turns) -> Callable[[], None]:
        def work() -> None:
            help_in(turns)
            with seeded(0), one_at_a_time():
                pass

        return work

    with seeded(1):
        earlier = turns_of_this_thread()
        assert in_a_thread(help_with(earlier)).wait(LONG)
    with seeded(1):
        stranger = in_a_thread(help_with(earlier))  # of a turn that is over
        assert not stranger.wait(0.05)
    assert stranger.wait(LONG)


def test_a_helper_has_no_lock_to_share_if_the_owner_has_none() -> None:
    assert turns_of_this_thread() == (None, None)


def forked(work: Callable[[], None]) -> int:
    """Return the exit status of a forked child that runs the work; 0 for success."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        pid = os.fork()
    if not pid:
        threading.Timer(LONG, lambda: os._exit(3)).start()
        try:
            work()
        except BaseException:
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin",
    reason="processes are forked on Linux alone",
)
def test_a_forked_child_does_not_wait_for_threads_of_its_parent() -> None:
    holds, over = threading.Event(), threading.Event()

    def hold() -> None:
        with seeded(0):
            holds.set()
            over.wait(LONG)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(LONG)
    try:
        assert forked(enters(lambda: seeded(1))) == 0
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin",
    reason="processes are forked on Linux alone",
)
def test_a_forked_child_keeps_the_lock_of_the_thread_that_forked() -> None:
    def work() -> None:
        assert None not in turns_of_this_thread()
        done = in_a_thread(enters(one_at_a_time))
        assert not done.wait(0.05)

    with seeded(0):
        assert forked(work) == 0
    assert turns_of_this_thread() == (None, None)


def test_warning_filters_are_restored_whatever_the_order_of_threads() -> None:
    before = list(warnings.filters)

    def work(_: int) -> None:
        with silenced(UserWarning):
            torch.ones(50, 50) @ torch.ones(50, 50)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert warnings.filters == before


def test_a_seeded_stream_is_reproducible_in_eight_threads() -> None:
    def draw(seed: int) -> torch.Tensor:
        with stream(seed):
            return torch.randn(1000) @ torch.ones(1000, 10) + torch.randn(1)

    alone = [draw(seed) for seed in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(draw, [k % 4 for k in range(200)]))
    assert all(torch.equal(value, alone[k % 4]) for k, value in enumerate(found))
