"""Learning rates that change over the steps, and rates per site."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import SettingError, UnknownName
from ...target.target import Target

if TYPE_CHECKING:
    pass


SCHEDULES = ("constant", "cosine", "inverse")


FINAL = 0.01  # share of the learning rate left at the end of the cosine


HALF_LIFE = 0.05  # share of the steps after which the inverse schedule has halved the rate


def scheduled(schedule: str, step: int, steps: int) -> float:
    """The factor on the learning rate at a step counted from 0."""
    if schedule == "cosine":
        return FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return 1 / (1 + step / (HALF_LIFE * steps)) if schedule == "inverse" else 1.0


def site_rates(given: float | Mapping[str, float], target: Target) -> dict[str, float]:
    """The learning rate of each site; ``kernel.network`` is for all under it, "" for the rest.

    Raises:
        UnknownName, SettingError: for a site that there is not, or one without a rate.
    """
    rates = given if isinstance(given, Mapping) else {"": given}
    heads = {name: [given for given in rates if _is_under(name, given)] for name in target.slices}
    unknown = [
        given
        for given in rates
        if given and not any(_is_under(name, given) for name in target.slices)
    ]
    if unknown:
        raise UnknownName("site in learning_rate", unknown[0], target.slices)
    missing = [name for name, found in heads.items() if not found]
    if missing:
        raise SettingError(
            "a learning rate for every site",
            f"none for {missing}",
            "add them, or one for the rest under ''",
        )
    return {name: rates[max(found, key=len)] for name, found in heads.items()}


def _is_under(site: str, head: str) -> bool:
    """Whether a site is the one named, or one of the group: ``kernel.network`` heads ``kernel.network.0.weight``."""
    return head in ("", site) or site.startswith(head + ".")
