"""CV+ from the folds of a boosted fit, by simulation, beside fits that are repeated per fold."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ppgp import Dataset, conformal, cross_calibrate, fit, learners, models
from ppgp.inference import NaturalGradientBoosting

SETS, ROWS, NEW = 24, 200, 200
LEVEL = 0.9


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 3, generator=g, dtype=torch.float64)
    sd = 0.1 + X[:, 0]
    return X, torch.sin(6 * X[:, 0]) + sd * torch.randn(n, generator=g, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_coverage_and_width_are_those_of_repeated_fits() -> None:
    """Coverage is at the nominal level, and the width that of nested fits.

    The standard error of the mean coverage is that over the sets.
    """
    model = models.Boosted(learner=learners.Trees(leaves=6))
    folds = NaturalGradientBoosting(steps=50, learning_rate=0.2, folds=5, patience=8)
    alone = NaturalGradientBoosting(
        steps=50, learning_rate=0.2, folds=None, hold_out=0.1, patience=8
    )
    coverage, widths, nested_widths, nested_coverage = [], [], [], []
    for seed in range(SETS):
        data, (X, y) = Dataset(*rows(ROWS, seed)), rows(NEW, 1000 + seed)
        members = fit(model, data, folds, seed=seed, progress=False)
        own = cross_calibrate(members.out_of_fold(), score=conformal.Absolute())(X, LEVEL)
        nested = cross_calibrate(
            model, data, alone, conformal.Absolute(), folds=5, seed=seed, fixed_beforehand=True
        )(X, LEVEL)
        coverage.append(float(own.covers(y).double().mean()))
        nested_coverage.append(float(nested.covers(y).double().mean()))
        widths.append(float((own.upper - own.lower).mean()))
        nested_widths.append(float((nested.upper - nested.lower).mean()))
    share = torch.tensor(coverage, dtype=torch.float64)
    error = float(share.std()) / math.sqrt(SETS)
    print(f"coverage {share.mean():.3f} +- {error:.3f}, nested {sum(nested_coverage) / SETS:.3f}")
    assert float(share.mean()) > LEVEL - 3 * error
    assert float(share.mean()) < LEVEL + 3 * error + 2 / ROWS + 0.02
    assert sum(widths) / sum(nested_widths) == pytest.approx(1.0, abs=0.05)
