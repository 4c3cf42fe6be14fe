"""Early stopping of a search on the predictive density of rows that are held out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...data.entries.magnitudes import average
from ...data.roles import refuse_censored
from ...density.target import Target
from ...errors import NotApplicable, SettingError
from ...runtime.seeding import permutation
from ..base import Inference, finish

#: Evaluations of the held-out rows in a search of many cheap steps; others make one per iteration.
EVALUATIONS = 50
PATIENCE = 5  # evaluations without an improvement after which the search ends
FEWEST_ROWS = 2


class EarlyStopping:
    """Track the best point of a search, judged by rows that are held out (Prechelt 1998).

    Attributes:
        target: The density given the rows that are not held out, which the search maximises.

    Args:
        how: The method, recorded in the posteriors that are evaluated.
        every: The number of steps between two evaluations of these rows.
        share: The share of the rows to hold out.
        target: The density given all rows.
        seed: The seed of the random choice of rows.

    Raises:
        NotApplicable: If the data are not a Dataset.
        SettingError: If fewer than two rows would be held out, or left.
    """

    def __init__(self, how: Inference, every: int, share: float, target: Target, seed: int) -> None:
        data = target.data
        if not data.is_table:
            raise NotApplicable(
                "a Dataset to hold rows out of",
                "a program with its own arguments",
                "leave hold_out out",
            )
        refuse_censored(data, "hold_out")
        count = round(share * data.n)
        if not FEWEST_ROWS <= count <= data.n - FEWEST_ROWS:
            raise SettingError(
                f"at least {FEWEST_ROWS} rows held out, and {FEWEST_ROWS} left",
                f"{count} of {data.n}",
                "change hold_out, or leave it out",
            )
        generator = torch.Generator().manual_seed(seed)
        order = permutation(generator, data.n).to(data.X.device)
        self.how = how
        self.held_out = data.rows(order[:count])
        rest = data.rows(order[count:])
        self.target = Target(target.model, rest, optimise_params=True)
        self.every = every
        self.best, self.best_step = math.inf, 0
        self.best_z: Tensor | None = None
        self.path: list[float] = []

    def nlpd(self, z: Tensor) -> float:
        """Return the mean negative log predictive density of the held-out rows at z [p]."""
        with torch.no_grad():
            theta = finish(self.how, self.target, z[None, None], time.perf_counter()).theta
            predictive = self.target.model.predict(
                theta, self.held_out.X, self.target.data, **self.held_out.for_prediction
            )
            each = predictive.log_prob(self.held_out.y)
            return -float(average(each, self.held_out.weights).mean())

    def should_stop(self, step: int, z: Tensor) -> bool:
        """Evaluate the held-out rows at z if they are due after ``step`` steps.

        Returns:
            Whether the search should end.
        """
        if step % self.every:
            return False
        self.path.append(self.nlpd(z))
        if self.path[-1] < self.best:
            self.best, self.best_z, self.best_step = self.path[-1], z.clone(), step
        return step - self.best_step >= PATIENCE * self.every

    def tensors(self) -> dict[str, Tensor]:
        """Return the evaluations so far, for a checkpoint."""
        out = {
            "held_out.path": torch.tensor(self.path, dtype=torch.float64),
            "held_out.best": torch.tensor(self.best, dtype=torch.float64),
            "held_out.best_step": torch.tensor(self.best_step),
        }
        if self.best_z is not None:
            out["held_out.best_z"] = self.best_z
        return out

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what ``tensors`` returned."""
        self.path = saved["held_out.path"].tolist()
        self.best = float(saved["held_out.best"])
        self.best_step = int(saved["held_out.best_step"])
        self.best_z = saved.get("held_out.best_z")

    def best_point(self, z: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the best point and its stats; the point is z if no evaluation was finite."""
        stats = {
            "held_out_nlpd": torch.tensor(self.path, dtype=torch.float64),
            "held_out_step": self.best_step,
        }
        if self.best_z is None:
            return z, stats
        return self.best_z, stats
