"""What a fit by a team of processes requires of its model, its method and its ranks."""

from __future__ import annotations

import warnings
from typing import Any

from ..errors import DataWarning, NotApplicable, an, counted
from ..models import Model
from ..numerics.process_group import first_time, rank_in_group
from ..numerics.team import Team
from ..posterior.posterior import Posterior
from .base import Inference

__all__ = ["check_default", "check_options", "check_team", "warn_of_unshared"]

MODELS = "use SGPR, SVGP, Vecchia or SKI, or fit in one process"


def warn_of_unshared(data: Any) -> None:
    """Issue a DataWarning on rank 0 if a team has been joined and the rows are not shared.

    It comes once in a process group, as a program may fit unshared rows on purpose.
    """
    rank, size = rank_in_group()
    unshared = hasattr(data, "in_team") and data.team.alone
    if rank or size == 1 or not unshared or not first_time("rows are not shared"):
        return
    warnings.warn(
        f"each of the {size} processes fits all {counted(data.n, 'row')} by itself: pass "
        "team.share(data), with team = ppgp.Team.of_environment(), to fit them together",
        DataWarning,
        stacklevel=3,
    )


def check_default(model: Any, team: Team, how: Inference) -> None:
    """Check that a team can run the method of a fit for which none was named.

    Raises:
        NotApplicable: If it cannot, or the likelihood is one joint distribution of all rows.
    """
    if team.alone or not isinstance(model, Model):
        return
    with team.all_or_none():
        _check_rows(model, team)
        if not how.serves_team(model):
            raise NotApplicable(
                f"how, a method that {team.size} processes can run together",
                f"none, and the default is {type(how).__name__}",
                "pass MAP(), Laplace() or SVI() as how, or fit in one process",
            )


def _check_rows(model: Model, team: Team) -> None:
    """Raise NotApplicable if the likelihood is one joint distribution of all rows."""
    if model.joint_rows and not model.sums_over_team:
        raise NotApplicable(
            f"a model whose rows {team.size} processes can divide",
            f"{type(model).__name__}, whose likelihood is one joint distribution of all rows",
            MODELS,
        )


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
    with team.all_or_none():
        _check_rows(model, team)
        if not how.serves_team(model):
            raise NotApplicable(
                f"a method that {team.size} processes can run together",
                an(type(how).__name__),
                "use MAP, Laplace or SVI, or fit in one process",
            )
    team.check_alike({"model": model, "method": how, "seed": int(seed)})


def check_options(team: Team, init: Any, standardise: bool, checkpoint: Any) -> None:
    """Raise SettingError if these arguments of ``fit`` differ between the ranks of a team."""
    start = (init.draws, init.params) if isinstance(init, Posterior) else init
    path = None if checkpoint is None else str(checkpoint)
    team.check_alike({"init": start, "standardise": standardise, "checkpoint": path})
