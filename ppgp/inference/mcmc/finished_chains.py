"""The finished chains of nutpie: their way into a checkpoint and back, and their draws together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..base import divergences
from .nutpie_sampler import Parts
from .nuts_engines import NUTSOptions, SampledChains


def chains_in(tensors: dict[str, Tensor]) -> dict[int, Parts]:
    """Return the finished chains by number, from the tensors of a checkpoint."""
    finished: dict[int, Parts] = {}
    for name, value in tensors.items():
        chain, _, part = name.partition(".")
        finished.setdefault(int(chain), {})[part] = value.numpy()
    return finished


def tensors_of(finished: dict[int, Parts], draws: int) -> dict[str, Tensor]:
    """Return the tensors of those chains that have all their draws, for a checkpoint."""
    return {
        f"{chain}.{part}": torch.from_numpy(value)
        for chain, parts in finished.items()
        if len(parts["z"]) == draws
        for part, value in parts.items()
    }


def joined(options: NUTSOptions, chains: list[Parts], interrupted: bool) -> SampledChains:
    """Cut the chains to one length.

    After Ctrl-C their lengths differ, and some may not have begun. The length is the one that keeps
    the most draws in all.
    """
    lengths = sorted((len(parts["z"]) for parts in chains), reverse=True)
    if not lengths:
        raise KeyboardInterrupt(
            "stopped before the warm-up was over, so there is no draw to return; "
            "inference.Laplace() is faster, and approximate"
        )
    length = lengths[max(range(len(lengths)), key=lambda k: (k + 1) * lengths[k])]
    kept = [parts for parts in chains if len(parts["z"]) >= length]
    stats = {
        name: torch.from_numpy(np.stack([parts[name][:length] for parts in kept]))
        for name in kept[0]
    }
    z = stats.pop("z")
    stats["diverging"] = stats["diverging"].bool()
    notes = divergences(stats["diverging"])
    if interrupted:
        notes.append(
            f"stopped by Ctrl-C: {len(kept)} of {options.chains} chains, "
            f"{length} of {options.draws} draws each"
        )
    return SampledChains(z, stats, notes, interrupted)
