"""Ridge regressions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SettingError
from ..runtime.threads import at_most
from .base import (
    Growing,
    Learner,
    Tensors,
    check_targets,
    drawn_rows,
    first_stages,
    refuse_categories,
)
from .stacking import by_member


@dataclass(frozen=True)
class Linear(Learner):
    """Ridge regression of each output on all columns, by its closed form.

    A stage minimises sum_i w_i (g_i - b - c' s_i)^2 + penalty |c|^2, where s_i is row i with the
    columns standardised on the rows X [n, d] of the fit. Hoerl & Kennard (1970). Columns of codes
    of categories are refused.

    Args:
        penalty: Penalty on the coefficients of the standardised columns, in rows (the units of n).
            0 is least squares, of smallest norm where columns are collinear.

    Raises:
        SettingError: If the penalty is negative or infinite.

    Examples:
        Without a penalty, one stage fits the line 1 + 2 x.

        >>> import torch
        >>> from ppgp import learners
        >>> line = learners.Linear(penalty=0.0)
        >>> growing = line.begin(torch.tensor([[0.0], [1.0], [2.0]]), outputs=1)
        >>> at_rows, _ = growing.add(torch.tensor([[1.0, 3.0, 5.0]]))
        >>> stages = growing.tensors(torch.ones(1))
        >>> line.predict(stages, torch.tensor([[10.0]])).round(decimals=4)
        tensor([[21.]])
    """

    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.penalty, int | float) and not isinstance(self.penalty, bool)
        if not number or not 0 <= self.penalty < math.inf:
            raise SettingError(
                "a finite number of at least 0 as penalty of Linear", repr(self.penalty), "use 1.0"
            )

    def bytes_per_stage(self, n: int, d: int) -> float:
        return 8.0 * (d + 1)

    def begin(
        self,
        X: Tensor,
        outputs: int,
        *,
        valid: Tensor | None = None,
        rows: float = 1.0,
        seed: int = 0,
        categorical: tuple[int, ...] = (),
        threads: int = 1,
    ) -> Growing:
        refuse_categories(self, categorical)
        return _GrowingLines(self.penalty, X.double(), outputs, valid, rows, seed)

    def predict(self, tensors: Tensors, X: Tensor, until: int | None = None) -> Tensor:
        until = first_stages(until, tensors["intercept"].shape[-2])
        weight = tensors["coefficients"][..., :until, :, :].sum(-3)
        start = tensors["intercept"][..., :until, :].sum(-2)
        centred = X.double() - tensors["center"][..., None, :]
        return (weight @ centred.mT + start[..., None]).to(X)

    def staged(self, tensors: Tensors, X: Tensor, every: int = 1) -> Iterator[Tensor]:
        stages = tensors["intercept"].shape[-2]
        for until in [*range(every, stages, every), stages]:
            yield self.predict(tensors, X, until)

    def importance(self, tensors: Tensors, d: int) -> Tensor:
        """Return the squared coefficient of each standardised column, summed over the stages."""
        return by_member(_importance, tensors, tensors["center"].ndim - 1)


def _importance(tensors: dict[str, Tensor]) -> Tensor:
    return (tensors["coefficients"] * tensors["spread"]).square().sum(0)


class _GrowingLines(Growing):
    """The coefficients of a fit in progress."""

    def __init__(
        self,
        penalty: float,
        X: Tensor,
        outputs: int,
        valid: Tensor | None,
        rows: float,
        seed: int,
    ) -> None:
        self.penalty, self.outputs, self.rows, self.seed = penalty, outputs, rows, seed
        self.center = X.mean(0)
        centred = X - self.center
        self.spread = centred.square().mean(0).sqrt()
        constant = self.spread <= torch.finfo(X.dtype).eps * self.center.abs()
        self.spread = torch.where(constant, 1.0, self.spread)
        self.S = torch.where(constant, 0.0, centred / self.spread)
        self.held_out = None
        if valid is not None:
            self.held_out = (valid.double() - self.center) / self.spread
        self.plain = rows == 1.0
        if self.plain:
            with at_most(1):
                self.inverse = self._inverse(self.S.mT @ self.S)
        self.coefficients: list[Tensor] = []
        self.intercepts: list[Tensor] = []

    @property
    def stages(self) -> int:
        return len(self.intercepts)

    def add(self, g: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        check_targets(g, weights)
        targets = g.double()
        with at_most(1):  # the order of the sums, and so their last digits, depends on the threads
            if self.plain and weights is None:
                intercept = targets.mean(1)
                c = (targets - intercept[:, None]) @ self.S @ self.inverse
            else:
                c, intercept = self._weighted(targets, weights)
            self.coefficients.append(c / self.spread)
            self.intercepts.append(intercept)
            held_out = None
            if self.held_out is not None:
                held_out = (c @ self.held_out.mT + intercept[:, None]).to(g)
            return (c @ self.S.mT + intercept[:, None]).to(g), held_out

    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        number = first_stages(steps, self.stages)
        steps = steps.to(self.center)
        intercept = steps.new_zeros(number, self.outputs)
        weight = steps.new_zeros(number, self.outputs, len(self.center))
        for stage in range(number):
            weight[stage] = steps[stage] * self.coefficients[stage]
            intercept[stage] = steps[stage] * self.intercepts[stage]
        return {
            "coefficients": weight,
            "intercept": intercept,
            "center": self.center,
            "spread": self.spread,
        }

    def restore(self, tensors: Tensors) -> None:
        self.coefficients = list(tensors["coefficients"].to(self.center))
        self.intercepts = list(tensors["intercept"].to(self.center))

    def _inverse(self, products: Tensor) -> Tensor:
        """Return the pseudo-inverse of the products [d, d] of columns plus the penalty."""
        eye = torch.eye(len(products), dtype=products.dtype, device=products.device)
        return torch.linalg.pinv(products + self.penalty * eye, hermitian=True)

    def _weighted(self, g: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return coefficients [K, d] and intercepts [K] of weighted rows."""
        w = torch.ones_like(g) if weights is None else weights.to(g)
        if self.rows < 1:
            w = w * drawn_rows(g.shape[1], self.rows, self.seed, self.stages).to(w)
        total = w.sum(1).clamp_min(torch.finfo(w.dtype).tiny)
        mean = (w * g).sum(1) / total
        coefficients, intercepts = [], []
        for k in range(self.outputs):
            at = w[k] @ self.S / total[k]
            S = self.S - at
            weighted = S * w[k][:, None]
            c = self._inverse(weighted.mT @ S) @ (weighted.mT @ (g[k] - mean[k]))
            coefficients.append(c)
            intercepts.append(mean[k] - at @ c)
        return torch.stack(coefficients), torch.stack(intercepts)
