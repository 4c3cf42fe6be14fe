"""What a fit by a team of processes requires of its model, its method and its ranks."""

from __future__ import annotations

from typing import Any

from ..display.user_warnings import warn
from ..errors import DataWarning, NotApplicable, an, counted
from ..models import Model
from ..posterior.posterior import Posterior
from ..runtime.process_group import first_time, rank_in_group
from ..runtime.team import Team
from .base import Inference

__all__ = ["check_options", "check_team", "warn_of_unshared"]


def warn_of_unshared(data: Any) -> None:
    """Issue a DataWarning on rank 0 if a team has been joined and the rows are not shared.

    It comes once in a process group, as a program may fit unshared rows on purpose.
    """
    rank, size = rank_in_group()
    unshared = hasattr(data, "in_team") and data.team.alone
    if rank or size == 1 or not unshared or not first_time("rows are not shared"):
        return
    warn(
        f"each of the {size} processes fits all {counted(data.n, 'row')} by itself: pass "
        "team.share(data), with team = ppgp.Team.of_environment(), to fit them together",
        DataWarning,
    )


def check_team(model: Model, data: Any, how: Inference, named: bool, seed: int) -> None:
    """Check that the ranks of a team can fit the model together, and pass the same.

    Args:
        model: The recipe.
        data: This rank's rows.
        how: The method.
        named: Whether the user named the method.
        seed: The seed.

    Raises:
        NotApplicable: If the likelihood is one joint distribution of all rows, or the method does
            not run on every rank alike.
        SettingError: If the model, the method or the seed differs between the ranks.
    """
    team = data.team
    if team.alone:
        return
    with team.all_or_none():
        if model.joint_rows and not model.sums_over_team:
            raise NotApplicable(
                f"a model whose rows {team.size} processes can divide",
                f"{type(model).__name__}, whose likelihood is one joint distribution of all rows",
                "use SGPR, SVGP, Vecchia or SKI, or fit in one process",
            )
        if not how.serves_team(model):
            raise _no_method_of_a_team(type(how).__name__, named, team.size)
    team.check_alike({"model": model, "method": how, "seed": int(seed)})


def _no_method_of_a_team(name: str, named: bool, size: int) -> NotApplicable:
    """Return the error for a method that does not run on every rank alike."""
    wanted = f"a method that {size} processes can run together"
    if named:
        do = "use MAP, Laplace or SVI, or fit in one process"
        return NotApplicable(wanted, an(name), do)
    do = "pass MAP(), Laplace() or SVI() as how, or fit in one process"
    return NotApplicable(f"how, {wanted}", f"none, and the default is {name}", do)


def check_options(team: Team, init: Any, standardise: bool, checkpoint: Any) -> None:
    """Raise SettingError if these arguments of ``fit`` differ between the ranks of a team."""
    start = (init.draws, init.params) if isinstance(init, Posterior) else init
    path = None if checkpoint is None else str(checkpoint)
    team.check_alike({"init": start, "standardise": standardise, "checkpoint": path})
