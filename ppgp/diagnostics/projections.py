"""Directions other than the scalars in which two posteriors are compared."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh

from ..posterior import convergence
from ..runtime.libraries import settings_unchanged
from .scalar_samples import Sample

RANDOM = 20  # directions drawn at random, the same in every run
MOST = 500  # coordinates for learnt directions; of more scalars, so many random projections
LEADING = 3  # scalars that the name of a direction mentions


def projected(sample: Sample, reference: Sample) -> list[tuple[Sample, Sample]]:
    """Return both samples in directions other than the scalars.

    Some directions are random, and two are those in which sds differ most. The latter are learnt on
    one half of the draws and evaluated on the other, so that the choice raises no false alarm.

    Args:
        sample: Of the posterior that is judged.
        reference: Of the reference; every scalar of it varies.
    """
    scalars = len(reference.names)
    if scalars < 2:
        return []
    random, names = random_directions(reference.sd)
    pairs = [(sample.along(random, names), reference.along(random, names))]
    if min(sample.values.shape[1], reference.values.shape[1]) >= 2 * convergence.FEWEST:
        learnt, names = _extreme(sample.half(False), reference.half(False), reference.sd)
        second = sample.half(True), reference.half(True)
        pairs.append((second[0].along(learnt, names), second[1].along(learnt, names)))
    return pairs


def random_directions(scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return random directions [scalar, RANDOM], the same in every run, and their names.

    Args:
        scale: [scalar], the units of the scalars.
    """
    e = np.random.default_rng(0).normal(size=(len(scale), RANDOM))
    names = [f"projection {k + 1} of {RANDOM} at random" for k in range(RANDOM)]
    return e / math.sqrt(len(scale)) / scale[:, None], names


def _extreme(sample: Sample, reference: Sample, scale: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the directions [scalar, 2] with the smallest and largest ratio of sds, and names."""
    with settings_unchanged():
        from sklearn.covariance import ledoit_wolf

    scalars = len(scale)
    basis = np.diag(1 / scale)
    if scalars > MOST:
        basis = basis @ (np.random.default_rng(1).normal(size=(scalars, MOST)) / math.sqrt(scalars))
    ours, theirs = (
        ledoit_wolf(s.values.reshape(s.draws, -1) @ basis)[0] for s in (sample, reference)
    )
    _, vectors = eigh(ours, theirs)
    directions = basis @ vectors[:, [0, -1]]
    weights = directions * scale[:, None]
    names = []
    for j, which in enumerate(("narrowest", "widest")):
        leading = np.argsort(-np.abs(weights[:, j]))[:LEADING]
        mostly = ", ".join(reference.names[i] for i in leading)
        names.append(f"the direction of {which} spread (mostly {mostly})")
    return directions, names
