"""What every search for a mode shares: its options, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import SettingError
from .record import Record
from .schedules import site_rates

#: Evaluations after which the SciPy searches compile the density. Most end earlier, and compiling
#: costs about as much as this many evaluations.
COMPILE_AFTER = 60
#: The largest gradient at a mode, in units of the root of the value: in float64, and in float32,
#: whose gradients have larger errors of rounding.
STEEP, STEEP_IN_SINGLE = 1e-3, 2e-2


def is_steep(slope: float, value: float, dtype: torch.dtype) -> bool:
    """Return whether the largest entry of a gradient is too large for a mode of this density."""
    least = STEEP if dtype == torch.float64 else STEEP_IN_SINGLE
    return slope > least * max(1.0, abs(value) ** 0.5)


@dataclass(frozen=True)
class SearchOptions:
    """The numbers that a search for a mode needs.

    Attributes:
        optimizer: Its name, which the progress bar and the notes show.
        steps: The largest number of iterations.
        learning_rate: One number, or one number per site. None: ``default_rate``.
        default_rate: The default of the optimizer. None: it has no learning rate.
        schedule: How the learning rate changes over the steps. None: the default of the optimizer.
        batch_size: Rows per step. None: all rows, or 32 for "sgd".
        reach: The length of an adversarial step in each column of X, [d]. None: no such step.
        jacobian: Whether the density includes the log-Jacobian of the transform.
        progress: Whether to show a progress bar.
        compile_after: Evaluations after which the SciPy searches compile the density.
        record: What the search has computed so far, for a checkpoint.
    """

    optimizer: str = "lbfgs"
    steps: int = 1000
    learning_rate: float | Mapping[str, float] | None = None
    default_rate: float | None = None
    schedule: str | None = None
    batch_size: int | None = None
    reach: Tensor | None = None
    jacobian: bool = False
    progress: bool = False
    compile_after: float = COMPILE_AFTER
    record: Record = field(default_factory=Record)

    def rates(self, target: Target) -> dict[str, float]:
        """Return the learning rate of each site.

        Raises:
            UnknownName: If a rate is given for a site that the model does not have.
            SettingError: If a site has no rate, or the optimizer has no learning rate.
        """
        given = self.learning_rate
        if given is None:
            given = self.default_rate
        if given is None:
            do = "use one that has, such as 'adam'"
            raise SettingError("an optimizer with a learning rate", self.optimizer, do)
        return site_rates(given, target)


@dataclass(frozen=True)
class SearchResult:
    """Where a search for a mode ended.

    Attributes:
        z: The end on the unconstrained scale, [p].
        stats: Numbers of the search, such as ``log_density``, ``gradient``, ``steps``, ``losses``.
        notes: Reasons to doubt that z is a mode. Empty if the search converged.
        interrupted: Whether Ctrl-C ended the search.
    """

    z: Tensor
    stats: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
