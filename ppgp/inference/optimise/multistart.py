"""Several starts of one search: points drawn from the prior, the best end kept, and a sentence where searches ended apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...numerics.seeding import seeded
from ...target.handlers import Run, mapping, quietly
from ...target.target import Target
from .vague import WIDE, improper, log_spread, vague_sites

SEVERAL = 8  # by default: an end that one search in three reaches is missed by all of them in 4 % of the fits
SPREAD = 2.0  # where a prior is flat, starts are Uniform(-2, 2) around the origin of the unconstrained scale, as Stan's chains
TRIES = 20  # draws of the prior that are looked at for one of finite density
ENOUGH = 5  # of these, by default, where the first so many end alike: an end that half of the searches reach is missed in 3 %, one in three in 13 %
NEAR = 3.0  # nats: a mode with less than e^-3 = 5 % of the best one's height is no rival
DIP = 0.1  # nats that the density falls between two ends which are not one mode
SAME = 1e-3  # of the unconstrained scale: searches end less far from their mode

Found = tuple[Tensor, dict[str, Any], list[str]]


def best_of(
    target: Target,
    search: Callable[[Tensor, int], Found],
    z0: Tensor,
    starts: int,
    seed: int,
    *,
    jacobian: bool = False,
    enough: int | None = None,
) -> Found:
    """Search from z0 and from ``starts - 1`` points of the prior; the highest end, with all ends in its stats. ``enough``: no more than so
    many searches where these end alike. ``jacobian``: whether the density that is climbed has it.

    ``search(z, seed)`` gives the end, its stats (with ``log_density`` and ``losses``) and notes, which say that it is
    no mode. Stats gain ``ends`` [start, p] on the unconstrained scale, ``end_log_densities`` [start], and
    ``losses_of_starts``, the losses of each search.
    """
    found: list[Found] = []
    interrupted = False
    try:
        for i in range(starts):
            found.append(search(z0 if i == 0 else from_prior(target, seed + i), seed + i))
            if found[-1][1]["interrupted"]:
                raise KeyboardInterrupt
            if i + 1 == enough and _alike(found):
                break
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    ends = torch.stack([z for z, _, _ in found])
    heights = torch.tensor([stats["log_density"] for _, stats, _ in found], dtype=torch.float64)
    order = heights.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True).tolist()
    z, stats, notes = found[order[0]]
    settled = [i for i in order if not found[i][2] and heights[i] > heights[order[0]] - NEAR]
    rivals = _apart(target, ends[settled], heights[settled], jacobian)
    if len(rivals) > 1:
        below = ", ".join(f"{float(heights[order[0]] - h):.2g}" for h in rivals[1:6])
        notes = [
            *notes,
            f"{len(rivals)} modes within {NEAR:g} nats (the others {below} below the best): one point cannot stand for them all; "
            "look at stats['ends'], or draw by NUTS from several chains",
        ]
    if len(rivals) < 2 and not interrupted:
        notes = [*notes, *scattered(heights)]
    extra = {
        "ends": ends,
        "end_log_densities": heights,
        "losses_of_starts": tuple(s["losses"] for _, s, _ in found if "losses" in s),
        "interrupted": interrupted,
    }
    return z, {**stats, **extra}, notes


def default_starts(target: Target, init: object) -> int:
    """How many searches there are where the caller has not said: ``SEVERAL`` where priors leave the scale of a site open,
    unless the caller says where to begin, or the density has one mode."""
    one = init is not None or target.model.one_mode or not vague_sites(target)
    return 1 if one else SEVERAL


def number_of_starts(target: Target, starts: int | None, init: object) -> tuple[int, int | None]:
    """How many searches there are, and after how many that end alike no more are made (None: all are)."""
    return (default_starts(target, init), ENOUGH) if starts is None else (starts, None)


def _alike(found: list[Found]) -> bool:
    """Whether all searches ended in a mode, and none below another."""
    heights = torch.tensor([stats["log_density"] for _, stats, _ in found], dtype=torch.float64)
    return not any(notes for _, _, notes in found) and bool((heights >= heights.max() - DIP).all())


def scattered(heights: Tensor, least: float = DIP) -> list[str]:
    """A sentence where searches ended ``least`` nats below the best, or more; [] where they agree."""
    gaps = heights.nan_to_num(nan=-torch.inf).max() - heights
    low = gaps[~(gaps <= least)]
    if not len(low):
        return []
    known = [f"{gap:.2g}" for gap in sorted(low[low.isfinite()].tolist())]
    ends = " to ".join(dict.fromkeys(known[:1] + known[-1:]))
    far = f"{ends} nats below" if known else "at no finite density, beside"
    return [
        f"{len(low)} of {len(heights)} searches ended apart, {far} the best, which is the answer: see "
        "stats['end_log_densities']; where few reach the best, raise starts or give proper priors"
    ]


def from_prior(target: Target, seed: int) -> Tensor:
    """z [p] drawn from the prior, of finite density; flat sites spread around the origin, those of a prior
    too wide to search around its middle, params where they begin."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(TRIES):
        z = target.origin()
        jump = SPREAD * (2 * torch.rand(target.dim, generator=generator, dtype=torch.float64) - 1)
        own = int(torch.randint(2**31, (), generator=generator))
        with quietly(), seeded(own), torch.no_grad(), Run({}, params=target.params) as run:
            target.run_program()
        for name, s in target.slices.items():
            if s.param:
                continue
            law = run.sites[name]["fn"]
            middle, spread = log_spread(law)
            if improper(law):
                z[s.start : s.stop] += jump[s.start : s.stop].to(z)
            elif spread > WIDE:
                centre = middle.expand(s.event).reshape(-1).nan_to_num(0.0, 0.0, 0.0)
                z[s.start : s.stop] = (centre + jump[s.start : s.stop].to(centre)).to(z)
            else:
                z[s.start : s.stop] = mapping(name, law).inv(run.sites[name]["value"]).reshape(-1)
        value, gradient = target.value_and_grad(z, jacobian=False)
        if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
            return z
    return target.start(seed, SPREAD, jacobian=False)


def _apart(target: Target, ends: Tensor, heights: Tensor, jacobian: bool) -> list[Tensor]:
    """Heights of those ends, best first, with lower ground on the straight way to every better one."""
    kept: list[int] = []
    for i in range(len(ends)):
        if all(
            _dips(target, ends[i], ends[j], float(min(heights[i], heights[j])), jacobian)
            for j in kept
        ):
            kept.append(i)
    return [heights[i] for i in kept]


def _dips(target: Target, a: Tensor, b: Tensor, lower: float, jacobian: bool) -> bool:
    if float((a - b).abs().max()) < SAME:
        return False
    between = [
        float(target.value_and_grad(a + t * (b - a), jacobian=jacobian)[0])
        for t in (0.25, 0.5, 0.75)
    ]
    return not min(between) >= lower - DIP  # NaN is lower ground
