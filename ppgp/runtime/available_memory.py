"""The memory that this process may still allocate."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

MEMBERSHIP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


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
