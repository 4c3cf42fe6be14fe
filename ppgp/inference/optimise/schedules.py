"""Learning rates: how they change over the steps, and one rate per site."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...density.target import Target
from ...errors import SettingError, UnknownName

SCHEDULES = ("constant", "cosine", "inverse")
FINAL = 0.01  # share of the learning rate that is left at the end of the cosine
HALF_LIFE = 0.05  # share of the steps after which the inverse schedule has halved the rate


def scheduled(schedule: str, step: int, steps: int) -> float:
    """Return the factor on the learning rate at a step, counted from 0."""
    if schedule == "cosine":
        return FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * step / steps))
    if schedule == "inverse":
        return 1 / (1 + step / (HALF_LIFE * steps))
    return 1.0


def factors(schedule: str, steps: int) -> list[float]:
    """Return the factors on the learning rate at all steps."""
    return [scheduled(schedule, step, steps) for step in range(steps)]


def site_rates(given: float | Mapping[str, float], target: Target) -> dict[str, float]:
    """Return the learning rate of each site.

    Args:
        given: One rate for all sites, or ``{site: rate}``. The name of a group such as
            ``kernel.network`` stands for all sites in it, and "" for all other sites.
        target: The density, whose sites are the ones to optimise.

    Raises:
        UnknownName: If a rate is given for a site that the target does not have.
        SettingError: If a site has no rate.
    """
    rates = given if isinstance(given, Mapping) else {"": given}
    groups = {name: [group for group in rates if _is_in(name, group)] for name in target.slices}
    for group in rates:
        if group and not any(_is_in(name, group) for name in target.slices):
            raise UnknownName("site in learning_rate", group, target.slices)
    missing = [name for name, matching in groups.items() if not matching]
    if missing:
        raise SettingError(
            "a learning rate for every site",
            f"none for {missing}",
            "add them, or one for the rest under ''",
        )
    return {name: rates[max(matching, key=len)] for name, matching in groups.items()}


def _is_in(site: str, group: str) -> bool:
    """Whether a site is in a group: ``kernel.network.0.weight`` is in ``kernel.network``."""
    return group in ("", site) or site.startswith(group + ".")
