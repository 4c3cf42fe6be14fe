"""Random numbers from a seed, with the caller's streams left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .process_locks import one_at_a_time, one_on_the_stream


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """``stream`` for code that may run Pyro's handlers too."""
    with one_at_a_time(), stream(seed, device):
        yield


@contextmanager
def stream(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """torch's random numbers from ``seed`` inside, and the caller's streams untouched outside: that of the CPU, and those of
    ``device``, or of every GPU in use where none is named.

    The streams are those of the process: one thread at a time is inside. Nothing inside may run Pyro's handlers.
    """
    # torch.manual_seed would seed every GPU, those that are not given back afterwards too
    used = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    cuda = (
        [torch.device("cuda", i) for i in used]
        if device is None
        else [device]
        if device.type == "cuda"
        else []
    )
    with one_on_the_stream(), torch.random.fork_rng(devices=cuda):
        torch.random.default_generator.manual_seed(seed)
        for each in cuda:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield
