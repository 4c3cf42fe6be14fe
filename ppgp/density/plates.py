"""Plates that take some of their rows: taken whole, or with rows that are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from pyro.poutine.subsample_messenger import SubsampleMessenger
from torch import Tensor

from ..errors import NotApplicable
from ..runtime.process_locks import one_at_a_time
from ..runtime.seeding import permutation
from .handlers import is_discrete

__all__ = ["Batches", "check_whole", "drawn_rows", "plates_taking", "sites_in", "taken_whole"]

#: {plate with subsample_size=: (how many rows it takes at random, how many it has)}
Batches = dict[str, tuple[int, int]]


@contextmanager
def plates_taking(rows: Mapping[str, Tensor] | None = None) -> Iterator[Batches]:
    """Give each plate with ``subsample_size=`` the rows of its name, or all of them.

    A plate whose rows are all there has a scale of 1. One with ``subsample=`` keeps its rows. The
    block belongs to one thread, like Pyro's handlers: the size of a plate is read where it is made,
    before a handler can see it.

    Args:
        rows: {plate: the numbers of its rows}; None: all rows of every plate.

    Yields:
        The plates with ``subsample_size=``, filled while the program runs.
    """
    given = rows or {}
    found: Batches = {}

    def choose(
        name: str,
        size: int | None = None,
        subsample_size: int | None = None,
        subsample: Any = None,
        *others: Any,
    ) -> Any:
        if size is not None and subsample is None and subsample_size is not None:
            if subsample_size < size:
                found[name] = (subsample_size, size)
                subsample = given.get(name)
            subsample_size = None
        return plain(name, size, subsample_size, subsample, *others)

    with one_at_a_time():
        before = SubsampleMessenger.__dict__["_subsample"]
        plain = SubsampleMessenger._subsample
        SubsampleMessenger._subsample = staticmethod(choose)  # type: ignore[method-assign]
        try:
            yield found
        finally:
            SubsampleMessenger._subsample = before  # type: ignore[method-assign]


def _fewer_than_declared(sites: Mapping[str, Mapping[str, Any]]) -> tuple[str, int, int] | None:
    """Return the first plate with fewer rows than its size: its name, its rows and its size.

    Args:
        sites: The sites of a run in which plates with ``subsample_size=`` were taken whole.
    """
    for site in sites.values():
        for frame in site.get("cond_indep_stack", ()):
            declared = getattr(frame, "full_size", None)
            if isinstance(declared, int) and 0 < frame.size < declared:
                return frame.name, frame.size, declared
    return None


def check_whole(sites: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise NotApplicable if a plate has fewer rows than its size, as by ``subsample=``."""
    found = _fewer_than_declared(sites)
    if found is not None:
        name, rows, size = found
        raise NotApplicable(
            f"all {size:,} rows of the plate {name!r}, as no mini-batch was asked for",
            f"subsample= of {rows:,}",
            "pass all rows, give the plate the size of what it holds, or use SVI(), SGLD or SGHMC",
        )


def sites_in(latents: Mapping[str, dict[str, Any]], batches: Batches) -> dict[str, str]:
    """Return {latent site of real numbers: its plate}, of those in plates with mini-batches.

    Such a site is that of other rows at each call.
    """
    found = {}
    for name, site in latents.items():
        plates = [frame.name for frame in site["cond_indep_stack"] if frame.name in batches]
        if plates and not is_discrete(site):
            found[name] = plates[0]
    return found


def plate_of(frame: Any, site: Mapping[str, Any]) -> str:
    """Return the name of a plate of a site.

    The steps of ``ppgp.scan`` are one plate, whatever number of axes is right of theirs.
    """
    return (site["infer"] or {}).get("plates_of_steps", {}).get(frame.name, frame.name)


def taken_whole(batches: Batches) -> list[str]:
    """Return a note for each plate that a method takes whole."""
    return [
        f"the plate {name!r}, which takes {rows:,} of {size:,} rows at random, is taken whole: all "
        "its rows are in the density"
        for name, (rows, size) in batches.items()
    ]


def drawn_rows(batches: Batches, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return the numbers of random rows of each plate, without replacement."""
    return tuple(permutation(generator, size)[:rows] for rows, size in batches.values())
