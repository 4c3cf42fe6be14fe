"""Adam or AdaGrad from several starts at once: all densities and gradients in one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...capabilities import Reselects, SubsetModel
from ...density.target import Target
from ...networks.networks import drops_out
from ...runtime.progress import bar
from ..base import draw_batch, numbers_of
from .first_order import OF_TORCH, ended, not_finite, stopped_by_the_user
from .schedules import scheduled
from .search import SearchOptions, SearchResult


def can_go_abreast(target: Target) -> bool:
    """Return whether the searches differ in their starts and mini-batches alone.

    Dropout draws units from one stream of random numbers, some models move their inducing inputs or
    start at the mode of a smaller model, and a model with params holds one value of each.
    """
    model = target.model
    data = target.data
    if not data.is_table or target.eager:
        return False
    if data.passed()[1].keys() != {"total"}:  # columns with roles
        return False
    if isinstance(model, Reselects | SubsetModel) or drops_out(model):
        return False
    return not any(s.param for s in target.slices.values())


def by_entry_abreast(
    options: SearchOptions, target: Target, starts: Tensor, seeds: Sequence[int]
) -> list[SearchResult]:
    """Maximise the log density by Adam or AdaGrad from several points, side by side.

    The results are those of ``by_entry`` from each start, up to rounding.

    Args:
        options: Those of the search.
        target: The density.
        starts: [k, p].
        seeds: Of the mini-batches of each search, [k].
    """
    z = starts.clone()
    rates = options.rates(target)
    pieces = {name: z[:, s.start : s.stop] for name, s in target.slices.items()}
    optimizer = OF_TORCH[options.optimizer](
        [{"params": [piece], "lr": rates[name]} for name, piece in pieces.items()]
    )
    batches = _Batches(options, target, seeds)
    exact = options.batch_size is None and options.reach is None
    best, best_z = z.new_full((len(z),), -math.inf), z.clone()
    running = torch.ones(len(z), dtype=torch.bool)
    losses: list[list[float]] = [[] for _ in seeds]
    notes: list[list[str]] = [[] for _ in seeds]
    interrupted = False
    schedule = options.schedule or "constant"
    try:
        with bar(
            f"MAP ({options.optimizer}), {len(z)} abreast", options.steps, options.progress
        ) as update:
            for t in range(options.steps):
                values, gradients = batches.gradients(z)
                finite = torch.isfinite(gradients).all(-1)
                for i in torch.nonzero(running & ~finite).flatten().tolist():
                    notes[i].append(not_finite(t + 1))
                running &= finite
                if not bool(running.any()):
                    break
                # where all rows are used, the best point counts, and otherwise the last one
                kept = running & (values > best) if exact else running
                best = torch.where(kept, values, best)
                best_z = torch.where(kept[:, None], z, best_z)
                gradients = torch.where(running[:, None], gradients, 0.0)
                factor = scheduled(schedule, t, options.steps)
                for (name, s), group in zip(
                    target.slices.items(), optimizer.param_groups, strict=True
                ):
                    pieces[name].grad = -gradients[:, s.start : s.stop]
                    group["lr"] = factor * rates[name]
                optimizer.step()
                for own, value, runs in zip(losses, values.tolist(), running, strict=True):
                    if runs:
                        own.append(-value)
                update(t + 1, loss=float(-values.mean()))
    except KeyboardInterrupt:
        interrupted = True
        for i in torch.nonzero(running).flatten().tolist():
            notes[i].append(stopped_by_the_user(len(losses[i]), options.steps))
    z = torch.where(running[:, None], z, best_z)
    results = []
    for i, last in enumerate(z):
        highest, place = (float(best[i]), best_z[i]) if exact else (-math.inf, None)
        result = ended(options, target, last, losses[i], notes[i], interrupted, highest, place)
        results.append(result)
    return results


class _Batches:
    """Log densities and gradients at points z [k, p], each with mini-batches of its own seed."""

    def __init__(self, options: SearchOptions, target: Target, seeds: Sequence[int]) -> None:
        self.options, self.target = options, target
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def gradients(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return log densities [k] and gradients [k, p]."""
        rows = None
        if self.options.batch_size is not None:
            size = self.options.batch_size
            each = [numbers_of(draw_batch(self.target, size, g)) for g in self.generators]
            rows = torch.stack([batch for batch in each if batch is not None])
        return self.target.value_and_grad_of_rows(
            z, rows, jacobian=self.options.jacobian, reach=self.options.reach
        )
