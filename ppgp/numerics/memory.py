"""The one budget of memory: what this process may still take, and the sentence for what asks for more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from ..errors import NotEnoughMemory

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

SMALL = 32 * 2**20  # bytes about which nothing is asked: to ask takes a fifth of a millisecond
SPARE = 0.8  # of the memory that there is: what an advice counts on
MEMBERSHIP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")

Advice = str | Callable[[float], str]


def available(device: torch.device | None = None) -> int:
    """Bytes that this process may still take: of the machine, below RLIMIT_AS, in its cgroups, whichever is least; of a GPU what is
    free there."""
    if device is not None and device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return max(0, min([psutil.virtual_memory().available, *_address_space(), *_cgroups()]))


def _address_space() -> list[int]:
    if resource is None:
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [limit - psutil.Process().memory_info().vms]


def _cgroups() -> list[int]:
    """What each cgroup that this process is in has left, of version 1 and 2; page cache that can be dropped counts as free."""
    try:
        lines = [line.split(":", 2) for line in MEMBERSHIP.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for number, controllers, path in lines:
        if number == "0" and not controllers:
            found += _left(CGROUPS, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += _left(CGROUPS / "memory", path, *names)
    return found


def _left(root: Path, path: str, limit: str, use: str, cache: str) -> list[int]:
    """Of the cgroup at ``path`` and of those around it, as far as they are to be seen: in a container its own is the root."""
    found = []
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
            found.append(int(most) - taken)
        except (OSError, ValueError):  # no such cgroup here, or a kernel that says it otherwise
            continue
    return found


def must_fit(size: float, what: str, do: Advice, device: torch.device | None = None) -> None:
    """Refuse what cannot fit before it is allocated; what is ``SMALL`` is not asked about.

    Args:
        size: bytes that it takes at its peak.
        what: its name, "the covariance of 40,000 rows".
        do: what would fit, or a function of the bytes that may be counted on.

    Raises:
        NotEnoughMemory: with both numbers and ``do``.
    """
    if size <= SMALL:
        return
    room = available(device)
    if size > room:
        advice = do if isinstance(do, str) else do(SPARE * room)
        raise NotEnoughMemory(
            f"at most {said(room)} for {what}, the memory that there is", said(size), advice
        )


def said(size: float) -> str:
    """Bytes in words: 1.2 TB, 12.8 GB, 640 MB."""
    units = {"PB": 1e15, "TB": 1e12, "GB": 1e9}
    unit, factor = next(
        ((unit, factor) for unit, factor in units.items() if size >= factor), ("MB", 1e6)
    )
    return f"{size / factor:.3g} {unit}"


def rounded_down(number: float) -> int:
    """A whole number of two digits and zeros that is no larger."""
    whole = max(0, int(number))
    step = 10 ** max(0, len(str(whole)) - 2)
    return whole // step * step


def rows_per_call(a_row: float, fixed: float = 0.0) -> Callable[[float], str]:
    """The advice of a call that takes ``a_row`` bytes per row, and ``fixed`` whatever their number."""

    def advice(room: float) -> str:
        rows = rounded_down((room - fixed) / a_row)
        return (
            f"pass at most {rows:,} rows per call"
            if rows
            else "use fewer draws, or a machine with more memory"
        )

    return advice
