"""What a fit by a team of processes requires of its model, its method and its ranks."""

from __future__ import annotations

from typing import Any

from ..errors import NotApplicable, an
from ..models import Model
from ..numerics.team import Team
from ..posterior.posterior import Posterior
from .base import Inference

__all__ = ["check_options", "check_team"]


def check_team(model: Model, data: Any, how: Inference, seed: int) -> None:
    """Check that the ranks of a team can fit the model together, and pass the same.

    Raises:
        NotApplicable: If the likelihood is one joint distribution of all rows, or the method does
            not run on every rank alike.
        SettingError: If the model, the method or the seed differs between the ranks.
    """
    team = data.team
    if team.alone:
        return
    name, size = type(model).__name__, team.size
    with team.all_or_none():
        if model.joint_rows and not model.sums_over_team:
            raise NotApplicable(
                f"a model whose rows {size} processes can divide",
                f"{name}, whose likelihood is one joint distribution of all rows",
                "use SGPR or SVGP, or fit in one process",
            )
        if not how.serves_team(model):
            raise NotApplicable(
                f"a method that {size} processes can run together",
                an(type(how).__name__),
                "use MAP, Laplace or SVI, or fit in one process",
            )
    team.check_alike({"model": model, "method": how, "seed": int(seed)})


def check_options(team: Team, init: Any, standardise: bool, checkpoint: Any) -> None:
    """Raise SettingError if these arguments of ``fit`` differ between the ranks of a team."""
    start = (init.draws, init.params) if isinstance(init, Posterior) else init
    path = None if checkpoint is None else str(checkpoint)
    team.check_alike({"init": start, "standardise": standardise, "checkpoint": path})
