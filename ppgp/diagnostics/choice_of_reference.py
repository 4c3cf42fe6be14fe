"""The choice of a reference posterior, and what either side lacks for a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..data.roles import ROLES, same_column
from ..posterior import convergence
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .scalar_samples import Sample
from .verdicts import CUT_SHORT


@dataclass(frozen=True, eq=False)
class Side:
    """One posterior of a comparison, with what is computed from it once."""

    posterior: Any  # a Posterior, or an Average

    @cached_property
    def sample(self) -> Sample:
        return Sample.of(self.posterior)

    @cached_property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(v).all()) for v in self.posterior.draws.values())

    @cached_property
    def missing_for_comparison(self) -> list[str]:
        """What is missing before the posterior can be judged; [] where nothing is."""
        missing = convergence.missing_for_comparison(self.posterior)
        return [CUT_SHORT, *missing] if self.cut_short else missing

    @property
    def cut_short(self) -> bool:
        """Whether Ctrl-C stopped the fit."""
        return cut_short(self.posterior.stats)

    @cached_property
    def missing_as_reference(self) -> list[str]:
        """What is missing before the draws may be taken as true; [] where nothing is."""
        missing = list(self.missing_for_comparison)
        if not self.finite:
            missing.insert(0, "its draws are not finite")
        wider = convergence.why_uncorrected(self.posterior)
        if wider:
            missing.insert(0, f"{wider}, and nothing corrects it: fit by NUTS")
        return missing

    def missing(self, reference: Side) -> str:
        """Return what is missing before it can be judged by a reference; "" where nothing is."""
        theirs = [f"the reference: {sentence}" for sentence in reference.missing_as_reference]
        return "; ".join([*theirs, *self.missing_for_comparison])

    @cached_property
    def efficiency(self) -> float:
        """The effective number of draws per draw."""
        return convergence.efficiency(self.posterior)


def reference_of(own: Side, sides: Iterable[Side], given: Side | None) -> Side | None:
    """Return the posterior that ``own`` is judged by; None where there is none.

    Args:
        own: The posterior to judge.
        sides: All posteriors of the comparison.
        given: The reference that the user named; None: the chains of the same model with most
            draws, those that have converged first.
    """
    if given is not None:  # a reference that the user named need not have converged
        if same_sites(own.posterior, given.posterior):
            return given
        return None
    single = [s for s in sides if not isinstance(s.posterior, Average)]
    chains = [
        s for s in single if s.posterior.mcmc and not convergence.why_uncorrected(s.posterior)
    ]
    same = [s for s in chains if same_model(own.posterior, s.posterior)]
    return min(same, key=lambda s: (bool(s.missing_as_reference), -s.sample.draws), default=None)


def comparable(a: Posterior, b: Posterior) -> bool:
    """Return whether the log densities recorded by both are those of one density."""
    if a.params.keys() != b.params.keys():
        return False
    same_params = all(torch.equal(v, b.params[k]) for k, v in a.params.items())
    return same_params and same_model(a, b)


def same_model(a: Posterior | Average, b: Posterior | Average) -> bool:
    """Return whether both are fits of one model to the same data; an average is of several."""
    if isinstance(a, Average) or isinstance(b, Average):
        return a is b
    return same_sites(a, b) and a.model == b.model and same_data(a.data, b.data)


def same_sites(a: Posterior | Average, b: Posterior | Average) -> bool:
    """Return whether both have a model of one class, with the same sites and shapes."""
    ours, theirs = ({k: v.shape[2:] for k, v in p.draws.items()} for p in (a, b))
    return type(a.model) is type(b.model) and ours == theirs


def same_data(a: Any, b: Any) -> bool:
    """Return whether two training tables, or the arguments of two programs, hold the same."""
    if isinstance(a, Dataset) and isinstance(b, Dataset):
        names = ("X", "y", *(name for name, role in ROLES.items() if role.passed))
        return all(same_column(getattr(a, name), getattr(b, name), 0.0) for name in names)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return False
        return all(np.array_equal(np.asarray(a[k]), np.asarray(b[k])) for k in a)
    return a is b
