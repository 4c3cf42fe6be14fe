"""Learners whose stages are fitted and evaluated by one function each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ..errors import NotApplicable, SettingError
from .base import (
    Growing,
    Learner,
    Tensors,
    check_targets,
    drawn_rows,
    first_stages,
    refuse_categories,
    seed_of,
)
from .stacking import by_member, padded_tensors

STEPS, OUTPUTS = "steps", "outputs"  # tensors beside those of ``fit_stage``


class Stagewise(Learner):
    """A learner that defines ``fit_stage`` and ``evaluate``, and nothing else."""

    @abstractmethod
    def fit_stage(
        self, X: Tensor, g: Tensor, weights: Tensor | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return one stage as tensors, whose numbers of axes are the same for all stages.

        Smaller tensors are padded, with 0 or with the number of their name in ``stacking.FILL``;
        ``evaluate`` must ignore the padding.

        Args:
            X: [n, d], the rows of the stage.
            g: [K, n], the targets.
            weights: [K, n], the weights of the squared errors, or None.
            generator: The source of all random numbers.
        """

    @abstractmethod
    def evaluate(self, stage: Tensors, X: Tensor) -> Tensor:
        """Return the K outputs of one stage at the rows of X, [K, m]."""

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
        return _GrowingStages(self, X, outputs, valid, rows, seed)

    def predict(self, tensors: Tensors, X: Tensor, until: int | None = None) -> Tensor:
        until = first_stages(until, tensors[STEPS].shape[-1])
        axes = tensors[STEPS].ndim - 1
        return by_member(lambda one: next(self._sums(one, X, until, max(1, until))), tensors, axes)

    def staged(self, tensors: Tensors, X: Tensor, every: int = 1) -> Iterator[Tensor]:
        if tensors[STEPS].ndim > 1:
            raise SettingError("the tensors of one draw", "those of several", "pass one of them")
        return self._sums(tensors, X, len(tensors[STEPS]), every)

    def importance(self, tensors: Tensors, d: int) -> Tensor:
        """Raise NotApplicable; a learner that knows the importance defines it."""
        raise NotApplicable(
            "a learner with importance", type(self).__name__, "use learners.Trees or Linear"
        )

    def _sums(self, tensors: Tensors, X: Tensor, until: int, every: int) -> Iterator[Tensor]:
        """Yield the sums [K, m] of the first ``every``, ``2 * every``, ... ``until`` stages."""
        rows = X.double()
        total = rows.new_zeros(int(tensors[OUTPUTS]), len(rows))
        for m in range(until):
            stage = {name: tensors[name][m] for name in tensors.keys() - {STEPS, OUTPUTS}}
            total = total + tensors[STEPS][m] * self.evaluate(stage, rows)
            if (m + 1) % every == 0 or m + 1 == until:
                yield total.to(X)
        if not until:
            yield total.to(X)


class _GrowingStages(Growing):
    """The stages of a fit in progress."""

    def __init__(
        self,
        learner: Stagewise,
        X: Tensor,
        outputs: int,
        valid: Tensor | None,
        rows: float,
        seed: int,
    ) -> None:
        self.learner, self.outputs, self.rows, self.seed = learner, outputs, rows, seed
        self.X, self.valid = X.double(), None if valid is None else valid.double()
        self.fitted: list[dict[str, Tensor]] = []

    @property
    def stages(self) -> int:
        return len(self.fitted)

    def add(self, g: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        check_targets(g, weights)
        X, targets, masses = self.X, g, weights
        if self.rows < 1:
            drawn = drawn_rows(len(X), self.rows, self.seed, self.stages).to(X.device)
            X, targets = X[drawn], g[:, drawn]
            masses = None if weights is None else weights[:, drawn]
        generator = torch.Generator().manual_seed(seed_of(self.seed, self.stages, 1))
        stage = self.learner.fit_stage(X, targets, masses, generator)
        self.fitted.append(stage)
        held_out = None if self.valid is None else self.learner.evaluate(stage, self.valid)
        return self.learner.evaluate(stage, self.X), held_out

    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        number = first_stages(steps, self.stages)
        kept = self.fitted[:number]
        names = kept[0].keys() if kept else ()
        stages = {name: padded_tensors(name, [one[name] for one in kept]) for name in names}
        return {OUTPUTS: torch.tensor(self.outputs), STEPS: steps.to(self.X), **stages}

    def restore(self, tensors: Tensors) -> None:
        names = tensors.keys() - {STEPS, OUTPUTS}
        stages = range(len(tensors[STEPS]))
        self.fitted = [{name: tensors[name][m] for name in names} for m in stages]
