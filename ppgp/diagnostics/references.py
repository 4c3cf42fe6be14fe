"""Which posterior another may be judged by, and what either lacks for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..posterior import convergence
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .samples import Sample
from .verdicts import CUT_SHORT


@dataclass(frozen=True, eq=False)
class Side:
    """One posterior of a comparison; what is computed of it, once."""

    posterior: Posterior

    @cached_property
    def sample(self) -> Sample:
        return Sample.of(self.posterior)

    @cached_property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(v).all()) for v in self.posterior.draws.values())

    @cached_property
    def lacks(self) -> list[str]:
        """What is missing before it can be judged."""
        cut = [CUT_SHORT] if self.cut_short else []
        return [*cut, *convergence.lacks(self.posterior)]

    @property
    def cut_short(self) -> bool:
        return cut_short(self.posterior.stats)

    @cached_property
    def lacks_as_reference(self) -> list[str]:
        """What is missing before its draws may be taken for the truth."""
        missing = self.lacks if self.finite else ["its draws are not finite", *self.lacks]
        wider = convergence.uncorrected(self.posterior)
        return [f"{wider}, and nothing corrects it: fit by NUTS", *missing] if wider else missing

    def missing(self, standard: Side) -> str:
        """What is missing before it can be judged by ``standard``; "" where nothing is."""
        return "; ".join(
            [
                *(f"the reference: {sentence}" for sentence in standard.lacks_as_reference),
                *self.lacks,
            ]
        )

    @cached_property
    def efficiency(self) -> float:
        """Effective draws a draw."""
        return convergence.efficiency(self.posterior)


def reference_of(own: Side, sides: Iterable[Side], given: Side | None) -> Side | None:
    """Whose draws are taken for the truth of ``own``'s posterior; None where there is nobody."""
    if given is not None:  # a reference that was named is taken at its word
        return given if same_sites(own.posterior, given.posterior) else None
    chains = [s for s in sides if s.posterior.mcmc and not convergence.uncorrected(s.posterior)]
    same = [s for s in chains if same_model(own.posterior, s.posterior)]
    return min(same, key=lambda s: (bool(s.lacks_as_reference), -s.sample.draws), default=None)


def comparable(a: Posterior, b: Posterior) -> bool:
    """Whether the log densities of both are those of one density."""
    same = a.params.keys() == b.params.keys() and all(
        torch.equal(v, b.params[k]) for k, v in a.params.items()
    )
    return same and same_model(a, b)


def same_model(a: Posterior, b: Posterior) -> bool:
    return same_sites(a, b) and a.model == b.model and _same_data(a.data, b.data)


def same_sites(a: Posterior, b: Posterior) -> bool:
    shapes = ({k: v.shape[2:] for k, v in p.draws.items()} for p in (a, b))
    return type(a.model) is type(b.model) and next(shapes) == next(shapes)


def _same_data(a: Any, b: Any) -> bool:
    if isinstance(a, Dataset) and isinstance(b, Dataset):
        tables = [tuple(t for t in (d.X, d.y, d.noise_sd) if t is not None) for d in (a, b)]
        return len(tables[0]) == len(tables[1]) and all(
            x.shape == y.shape and bool((x == y).all()) for x, y in zip(*tables, strict=True)
        )
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(
            np.array_equal(np.asarray(a[k]), np.asarray(b[k])) for k in a
        )
    return a is b
