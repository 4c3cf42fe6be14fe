"""Random numbers from a seed, without a change of the caller's random number streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .process_locks import one_at_a_time, one_on_the_stream
from .whole_numbers import check_seed


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw random numbers from ``seed`` inside the block, for code that may run Pyro's handlers.

    Args:
        seed: The seed.
        device: The device whose stream is seeded too; None for every GPU in use.
    """
    with one_at_a_time(), stream(seed, device):
        yield


@contextmanager
def stream(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw torch's random numbers from ``seed`` inside the block.

    The caller's streams are restored afterwards. The streams belong to the process, so that one
    thread at a time is inside. Code inside must not run Pyro's handlers.

    Args:
        seed: The seed.
        device: The device whose stream is seeded beside the CPU's; None for every GPU in use.
    """
    if type(seed) is not int or seed.bit_length() > 63:
        seed = check_seed(seed)
    # torch.manual_seed would also seed GPUs whose streams are not restored
    cuda = [] if device is None else [device]
    if device is None and torch.cuda.is_initialized():
        cuda = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    cuda = [each for each in cuda if each.type == "cuda"]
    with one_on_the_stream(), torch.random.fork_rng(devices=cuda):
        torch.random.default_generator.manual_seed(seed)
        for each in cuda:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield


# without device="cpu" torch would create the tensor on its default device, for which it refuses a
# generator of the CPU


def standard_normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Return standard normal numbers on the CPU, [*shape], float64, the same on every device."""
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def standard_uniform(generator: torch.Generator, *shape: int) -> Tensor:
    """Return uniform numbers of [0, 1) on the CPU, [*shape], float64, the same on every device."""
    return torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")


def permutation(generator: torch.Generator, n: int) -> Tensor:
    """Return the numbers 0 to n - 1 in random order, [n], on the CPU."""
    return torch.randperm(n, generator=generator, device="cpu")


def stream_state(device: torch.device) -> Tensor:
    """Return the state of torch's random numbers on a device."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


@contextmanager
def replayed(state: Tensor, device: torch.device) -> Iterator[None]:
    """Draw torch's random numbers inside the block from a state, which ``stream_state`` gave.

    The caller's stream is restored afterwards, and one thread at a time is inside, as in
    ``stream``.

    Args:
        state: The state.
        device: The device on which the numbers are drawn.
    """
    cuda = [device] if device.type == "cuda" else []
    with one_on_the_stream(), torch.random.fork_rng(devices=cuda):
        if cuda:
            torch.cuda.set_rng_state(state, device)
        else:
            torch.set_rng_state(state)
        yield
