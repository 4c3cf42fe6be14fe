"""The process group of ``torchrun``: how a process joins and leaves it, and who is lost."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psutil
import torch

from ..errors import LostRank, SettingError

__all__ = ["at_step", "first_time", "join", "loss", "naming", "rank_in_group"]

GRACE = 3.0  # seconds in which ranks that hear of a loss sign, so that the lost are known
FAREWELL = 2.0  # seconds that a rank waits for the others to leave with it
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # as torchrun sets them


def join(timeout: float) -> None:
    """Join the process group of the environment."""
    import torch.distributed as dist

    missing = [name for name in ENVIRONMENT if name not in os.environ]
    if missing:
        raise SettingError(
            "the variables that torchrun sets",
            f"WORLD_SIZE without {', '.join(missing)}",
            "start the script by torchrun, or unset WORLD_SIZE",
        )
    backend = "gloo"
    if torch.cuda.is_available():
        gpus, ranks = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        # nccl refuses ranks that share a GPU
        backend = "cpu:gloo,cuda:nccl" if ranks <= gpus else "cpu:gloo,cuda:gloo"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % gpus)
    try:
        limit = timedelta(seconds=timeout)
        store, rank, size = next(dist.rendezvous("env://", timeout=limit))
        # torchrun may keep one store for all starts, with the addresses of processes that ended
        own = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        own.set_timeout(limit)
        dist.init_process_group(backend, timeout=limit, store=own, rank=rank, world_size=size)
    except (RuntimeError, ValueError, OSError) as error:
        size, rank = os.environ["WORLD_SIZE"], os.environ["RANK"]
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise SettingError(
            f"{size} processes that meet at {place}",
            f"none on rank {rank} ({str(error).splitlines()[0][:120]})",
            "free the port, or pass torchrun another --master-port, and start all processes",
        ) from None
    atexit.register(_leave)
    _store().set(_place(dist.get_rank()), f"{socket.gethostname()} {os.getpid()}")


def rank_in_group() -> tuple[int, int]:
    """Return the rank of this process, and the size of the group that it has joined by ``join``.

    (0, 1): it has joined none, or the program has joined one for ends of its own.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    rank = dist.get_rank()
    try:
        joined = _store().check([_place(rank)])
    except RuntimeError:  # the store has gone with the rank that kept it
        joined = False
    return (rank, dist.get_world_size()) if joined else (0, 1)


def first_time(thing: str) -> bool:
    """Return whether this rank asks about a thing for the first time since it has joined."""
    store, key = _store(), f"{_place(int(os.environ['RANK']))}: {thing}"
    if store.check([key]):
        return False
    store.set(key, "")
    return True


def _leave() -> None:
    """Leave the process group, whose threads must have ended before the interpreter does.

    A rank that has finished waits a moment for the others, as gloo may abort a rank whose peers
    close their connections while it leaves.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    if not hasattr(sys, "last_type"):  # no error has ended the program
        with suppress(RuntimeError, ValueError):
            _wait_for_others(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def _wait_for_others(rank: int, size: int) -> None:
    """Wait until all ranks of the team leave, or for ``FAREWELL`` seconds."""
    store = _store()
    store.set(f"{_place(rank)}: leaves", "")
    until = time.monotonic() + FAREWELL
    while time.monotonic() < until:
        if all(store.check([f"{_place(r)}: leaves"]) for r in range(size)):
            return
        time.sleep(0.02)


def _store() -> Any:
    """Return the store of the process group."""
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store()


def _place(rank: int) -> str:
    """Return the key of a rank's host and process in the store of the group."""
    return f"ppgp process of rank {rank}"


def loss(rank: int, size: int) -> LostRank:
    """Return the error that names the ranks that have ended or hang.

    The first of the other ranks returns it, and the rest exit with status 1.
    """
    lost = _lost_ranks(rank, size)
    survivors = [r for r in range(size) if r not in lost]
    if lost and rank != survivors[0]:  # the first of them says it
        raise SystemExit(1)
    return LostRank(lost, size)


def _lost_ranks(rank: int, size: int, wait: float = GRACE) -> list[int]:
    """Return the ranks that have ended or hang; [] if they cannot be told.

    A rank that hears of a loss signs in the store of the group. Ranks of this host whose process
    has ended unsigned are lost; where there is none, those that do not sign in time are.
    """
    others = [r for r in range(size) if r != rank]
    try:
        store = _store()
        store.set(f"{_place(rank)}: hears of a loss", "")
        until = time.monotonic() + wait
        while True:
            unsigned = [r for r in others if not store.check([f"{_place(r)}: hears of a loss"])]
            ended = [r for r in unsigned if _has_ended(store, r)]
            if ended or not unsigned:
                return ended
            if time.monotonic() > until:
                return unsigned if wait else []
            time.sleep(0.05)
    except (RuntimeError, ValueError):  # the store has gone with the rank that kept it
        return [0] if rank else []


def _has_ended(store: Any, rank: int) -> bool:
    """Return whether a rank of this host has ended."""
    host, process = store.get(_place(rank)).decode().rsplit(" ", 1)
    if host != socket.gethostname():
        return False
    try:
        return psutil.Process(int(process)).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


@contextmanager
def at_step(steps: Callable[[], int]) -> Iterator[None]:
    """Add the number of steps that a fit has taken to the error of a lost rank."""
    try:
        yield
    except LostRank as error:
        raise error.at(step=steps()) from None


@contextmanager
def naming(rank: int, size: int, checkpoint: Any) -> Iterator[None]:
    """Add the checkpoint of a fit to the error that tells of a lost rank.

    ``torchrun`` terminates the other ranks when one ends, mostly before they hear of it. They then
    say which one it was.
    """
    if size == 1:
        yield
        return
    try:
        with _terminated_by_loss(rank, size):
            yield
    except LostRank as error:
        raise error.at(checkpoint=None if checkpoint is None else str(checkpoint)) from None


@contextmanager
def _terminated_by_loss(rank: int, size: int) -> Iterator[None]:
    """Turn SIGTERM into the error of a lost rank where one has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminated(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        if _lost_ranks(rank, size, wait=0.0):
            raise loss(rank, size)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
