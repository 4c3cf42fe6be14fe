"""Rows held out of a search: it ends where their predictive density is highest, which is not where that of the others is."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...errors import NotApplicable, SettingError, counted
from ...target.target import Target
from ..base import finish

if TYPE_CHECKING:
    from .map import MAP

LOOKS = (
    50  # at the rows held out, over the steps of sgd and Adam; L-BFGS looks after every iteration
)
PATIENT = 5  # looks without a better one, after which the search ends
FEWEST = 2
SEARCHES = ("lbfgs", "adam", "sgd")


class Watch:
    """Keeps the best point that a search on ``target``, the rows not held out, has passed. Prechelt (1998)."""

    def __init__(self, how: MAP, target: Target, seed: int) -> None:
        data = target.data
        if not isinstance(data, Dataset):
            raise NotApplicable(
                "a Dataset to hold rows out of",
                "a program with its own arguments",
                "leave hold_out out",
            )
        count = round(float(how.hold_out or 0.0) * data.n)
        if not FEWEST <= count <= data.n - FEWEST:
            raise SettingError(
                f"at least {FEWEST} rows held out, and {FEWEST} left",
                f"{count} of {data.n}",
                "change hold_out, or leave it out",
            )
        order = torch.randperm(data.n, generator=torch.Generator().manual_seed(seed)).to(
            data.X.device
        )
        self.how, self.held = how, data.rows(order[:count])
        rest = data.rows(order[count:])
        # a recipe with known noise knows that of its own rows alone
        model = target.model if data.noise_sd is None else target.model.prepare(rest)
        self.target = Target(model, rest, optimise_params=True)
        self.every = 1 if how.optimizer == "lbfgs" else max(1, how.steps // LOOKS)
        self.best, self.at = math.inf, 0
        self.best_z: Tensor | None = None
        self.path: list[float] = []

    def nlpd(self, z: Tensor) -> float:
        """Mean negative log predictive density of the rows held out, at z [p]."""
        with torch.no_grad():
            theta = finish(self.how, self.target, z[None, None], time.perf_counter()).theta
            known = {} if self.held.noise_sd is None else {"noise_sd": self.held.noise_sd}
            law = self.target.model.predict(theta, self.held.X, self.target.data, **known)
            return -float(law.log_prob(self.held.y).mean())

    def over(self, t: int, z: Tensor) -> bool:
        """Look, if it is time after t steps, at z; whether the search should end."""
        if t % self.every:
            return False
        self.path.append(self.nlpd(z))
        if self.path[-1] < self.best:
            self.best, self.best_z, self.at = self.path[-1], z.clone(), t
        return t - self.at >= PATIENT * self.every

    def chosen(self, z: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """The best point, or z where none was finite, and what goes into the stats."""
        found = {
            "held_out_nlpd": torch.tensor(self.path, dtype=torch.float64),
            "held_out_step": self.at,
        }
        return (z if self.best_z is None else self.best_z), found


def unguarded(how: MAP, target: Target) -> list[str]:
    """A sentence where a method without dropout or rows held out has moved more weights of a network than there are rows."""
    weights = sum(
        s.stop - s.start
        for name, s in target.slices.items()
        if s.param and ".network." in f".{name}"
    )
    rows = target.data.n if isinstance(target.data, Dataset) else math.inf
    if how.hold_out is not None or how.optimizer in ("adam", "sgd") or weights <= rows:
        return []
    return [
        f"{how.optimizer} has moved {counted(weights, 'weight')} of a network to suit {counted(int(rows), 'row')}, against which the marginal likelihood does "
        "not guard: pass hold_out=0.1, or use MAP('adam') with dropout, or Deep(..., frozen=True), and see ppgp.check_network"
    ]
