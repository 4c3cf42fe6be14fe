"""Several starts of one search: points drawn from the prior, the best end kept, and a sentence where ends rival one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import biject_to

from ...numerics.seeding import seeded
from ...target.handlers import Run, quietly
from ...target.target import Target

SPREAD = 2.0  # where a prior is flat, starts are Uniform(-2, 2) around the origin of the unconstrained scale, as Stan's chains
TRIES = 20  # draws of the prior that are looked at for one of finite density
NEAR = 3.0  # nats: a mode with less than e^-3 = 5 % of the best one's height is no rival
DIP = 0.1  # nats that the density falls between two ends which are not one mode
SAME = 1e-3  # of the unconstrained scale: searches end less far from their mode

Found = tuple[Tensor, dict[str, Any], list[str]]


def best_of(target: Target, search: Callable[[Tensor, int], Found], z0: Tensor, starts: int, seed: int) -> Found:
    """Search from z0 and from ``starts - 1`` points of the prior; the highest end, with all ends in its stats.

    ``search(z, seed)`` gives the end, its stats (with ``log_density``) and notes, which say that it is no mode. Stats gain ``ends``
    [start, p] on the unconstrained scale and ``end_log_densities`` [start].
    """
    found: list[Found] = []
    for i in range(starts):
        found.append(search(z0 if i == 0 else from_prior(target, seed + i), seed + i))
        if found[-1][1].get("interrupted"):
            break
    ends = torch.stack([z for z, _, _ in found])
    heights = torch.tensor([stats["log_density"] for _, stats, _ in found], dtype=torch.float64)
    order = heights.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True).tolist()
    z, stats, notes = found[order[0]]
    settled = [i for i in order if not found[i][2] and heights[i] > heights[order[0]] - NEAR]
    rivals = _apart(target, ends[settled], heights[settled])
    if len(rivals) > 1:
        below = ", ".join(f"{float(heights[order[0]] - h):.2g}" for h in rivals[1:6])
        notes = [
            *notes,
            f"{len(rivals)} modes within {NEAR:g} nats (the others {below} below the best): one point cannot stand for them all; "
            "look at stats['ends'], or draw by NUTS from several chains",
        ]
    interrupted = any(s.get("interrupted") for _, s, _ in found)
    extra = {"ends": ends, "end_log_densities": heights, "interrupted": interrupted}
    return z, {**stats, **extra}, notes


def from_prior(target: Target, seed: int) -> Tensor:
    """z [p] drawn from the prior, of finite density; flat sites spread around the origin, params where they begin."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(TRIES):
        z = target.origin()
        jump = SPREAD * (2 * torch.rand(target.dim, generator=generator, dtype=torch.float64) - 1)
        own = int(torch.randint(2**31, (), generator=generator))
        with quietly(), seeded(own), torch.no_grad(), Run({}, params=target.params) as run:
            target._call(())
        for name, s in target.slices.items():
            if s.param:
                continue
            law = run.sites[name]["fn"]
            if _improper(law):
                z[s.start : s.stop] += jump[s.start : s.stop].to(z)
            else:
                z[s.start : s.stop] = biject_to(law.support).inv(run.sites[name]["value"]).reshape(-1)
        value, gradient = target.value_and_grad(z, jacobian=False)
        if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
            return z
    return target.start(seed, SPREAD, jacobian=False)


def _improper(law: Any) -> bool:
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return bool(getattr(law, "improper", False)) or type(law).__name__ == "ImproperUniform"


def _apart(target: Target, ends: Tensor, heights: Tensor) -> list[Tensor]:
    """Heights of those ends, best first, with lower ground on the straight way to every better one."""
    kept: list[int] = []
    for i in range(len(ends)):
        if all(_dips(target, ends[i], ends[j], float(min(heights[i], heights[j]))) for j in kept):
            kept.append(i)
    return [heights[i] for i in kept]


def _dips(target: Target, a: Tensor, b: Tensor, lower: float) -> bool:
    if float((a - b).abs().max()) < SAME:
        return False
    between = [float(target.value_and_grad(a + t * (b - a), jacobian=False)[0]) for t in (0.25, 0.5, 0.75)]
    return not min(between) >= lower - DIP  # NaN is lower ground
