"""The memory that this process may still allocate, the refusal of what exceeds it, and garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from ..errors import NotEnoughMemory

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

MEMBERSHIP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
SMALL = 32 * 2**20  # bytes that are not checked: a check takes a fifth of a millisecond
SPARE = 0.8  # share of the available memory that an advice uses

Advice = str | Callable[[float], str]


def available(device: torch.device | None = None) -> int:
    """Return the bytes that this process may still allocate.

    On the CPU, this is the least of the memory of the machine, RLIMIT_AS, and the limits of the
    process's cgroups. On a GPU, it is the free memory there.
    """
    if device is not None and device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return max(0, min([psutil.virtual_memory().available, *_address_space(), *_cgroups()]))


def _address_space() -> list[int]:
    """Return the unused address space below RLIMIT_AS, or nothing if there is no limit."""
    if resource is None:
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return []
    return [limit - psutil.Process().memory_info().vms]


def _cgroups() -> list[int]:
    """Return the unused memory of each cgroup of this process, in versions 1 and 2.

    Page cache that can be dropped counts as unused.
    """
    try:
        lines = [line.split(":", 2) for line in MEMBERSHIP.read_text().splitlines()]
    except OSError:
        return []
    unused = []
    for number, controllers, path in lines:
        if number == "0" and not controllers:
            unused += _unused(CGROUPS, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            unused += _unused(CGROUPS / "memory", path, *names)
    return unused


def _unused(root: Path, path: str, limit: str, use: str, cache: str) -> list[int]:
    """Return the unused memory of a cgroup and of its visible parents.

    In a container, the container's own cgroup is the root.

    Args:
        root: Where the hierarchy is mounted.
        path: The path of the cgroup below it.
        limit: The name of the file with the limit.
        use: The name of the file with the memory in use.
        cache: The entry of ``memory.stat`` with the page cache that can be dropped.
    """
    unused = []
    folder = root / path.lstrip("/")
    for place in [folder, *folder.parents]:
        if not place.is_relative_to(root):
            break
        try:
            most = (place / limit).read_text().strip()
            if most == "max":
                continue
            stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            taken = int((place / use).read_text()) - int(stat.get(cache, 0))
            unused.append(int(most) - taken)
        except (OSError, ValueError):  # no such cgroup here, or a kernel with another format
            continue
    return unused


def must_fit(size: float, what: str, do: Advice, device: torch.device | None = None) -> None:
    """Raise NotEnoughMemory for what cannot fit, before it is allocated.

    Sizes up to ``SMALL`` are not checked.

    Args:
        size: The bytes needed at the peak.
        what: What needs them, for example "the covariance of 40,000 rows".
        do: What would fit, or a function that states it for a number of usable bytes.
        device: Where it is allocated; None for the CPU.

    Raises:
        NotEnoughMemory: With both amounts and ``do``.
    """
    if size <= SMALL:
        return
    memory = available(device)
    if size > memory:
        if callable(do):
            do = do(SPARE * memory)
        raise NotEnoughMemory(
            f"at most {readable_size(memory)} for {what}, the memory that there is",
            readable_size(size),
            do,
        )


def readable_size(size: float) -> str:
    """Return bytes in readable units: 1.2 TB, 12.8 GB, 640 MB."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e6:.3g} MB"


def rounded_down(number: float) -> int:
    """Return the largest whole number with two leading digits that does not exceed ``number``."""
    whole = max(0, int(number))
    step = 10 ** max(0, len(str(whole)) - 2)
    return whole // step * step


def rows_per_call(bytes_per_row: float, fixed: float = 0.0) -> Callable[[float], str]:
    """Return the advice for a call whose memory grows with its rows.

    Args:
        bytes_per_row: The bytes that the call needs per row.
        fixed: The bytes that it needs whatever the number of rows.

    Returns:
        A function from usable bytes to a sentence.
    """

    def advice(memory: float) -> str:
        rows = rounded_down((memory - fixed) / bytes_per_row)
        if rows:
            return f"pass at most {rows:,} rows per call"
        return "use fewer draws, or a machine with more memory"

    return advice


@contextmanager
def only_new_garbage() -> Iterator[None]:
    """Context manager: inside, the collector looks for garbage among new objects alone.

    Many new objects make it look through all objects of the process again and again, of which torch
    and its like have some hundred thousand. It stays as it is where others have set objects aside.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
