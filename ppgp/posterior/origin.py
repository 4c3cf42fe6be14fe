"""Where a prediction comes from: of which fit, and by which method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data.training_data import same_value
from ..runtime.fingerprint import fingerprint
from .program_rows import columns


@dataclass(frozen=True, eq=False)
class Origin:
    """The function of one row that gave a prediction.

    Attributes:
        fit: The posterior.
        method: Its method, in words.
        settings: What the method was told, one value for all rows.
        unknown: () -> why it cannot be told which rows are training rows; "" where it can.
    """

    fit: Any  # posterior.py imports this module
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unknown: Callable[[], str] = str

    def difference(self, other: Origin | None) -> str:
        """Return how this prediction was made, in words, where another was made otherwise.

        The result is "" where both are of one fit and one method, and where the origin of the
        other is not known.
        """
        if other is None:
            return ""
        if not _same_fit(self.fit, other.fit):
            return "another fit"
        if self.method != other.method:
            return f"{self.method}, not {other.method}"
        for name in sorted(self.settings.keys() | other.settings.keys()):
            missing = name not in self.settings or name not in other.settings
            if missing or not same_value(self.settings[name], other.settings[name]):
                return f"{self.method} with another {name}"
        return ""


def _same_fit(one: Any, other: Any) -> bool:
    """Whether two posteriors are the same, such as one read from the file of the other."""
    return one is other or digest_of(one) == digest_of(other)


def digest_of(fit: Any) -> str:
    """Return a digest of a posterior, equal to that of one read from its file."""
    return fingerprint(fit.model, fit.data, fit.draws, fit.params, fit.scaler)


def of_program(
    fit: Any,
    site: str,
    arguments: Mapping[str, Any],
    rows: int,
    seed: int,
    unknown: Callable[[], str],
) -> Origin:
    """Return the origin of the prediction of a program's site.

    Args:
        fit: The posterior.
        site: The site.
        arguments: The arguments of the prediction.
        rows: How many rows the site has. Arguments with one entry per row, and counts of the rows,
            belong to the rows.
        seed: Of the draws.
        unknown: See ``Origin``.
    """
    settings: dict[str, Any] = {"seed": seed}
    for name, value in arguments.items():
        by_row = columns(value, rows) is not None or same_value(value, rows)
        settings[name] = None if by_row else value
    return Origin(fit, f"the prediction of {site!r}", settings, unknown)
