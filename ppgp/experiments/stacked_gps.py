"""Gaussian processes with several kernels, mixed with stacking weights.

The candidates are kernels of several degrees of smoothness, with one lengthscale per column, and
sums of a smooth and a rough one, fitted by MAP. Yao, Vehtari, Simpson & Gelman (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..diagnostics.stacking import stacking_weights
from ..distributions.distributions import NormalMixture
from ..errors import PpgpWarning
from ..inference import MAP, SVI
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..kernels import ARD, RBF, Matern
from ..models import GP, SGPR, SVGP
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..priors import LogNormal
from ..runtime.process_locks import silenced

#: most rows of the exact model, and of the one with a collapsed bound; beyond it, mini-batches
EXACT_UP_TO = 2000
COLLAPSED_UP_TO = 20_000
INDUCING = 512  # of SGPR
MOST_INDUCING = 1000  # of SVGP
BATCH = 512
#: SVI starts at the mode of the collapsed bound of a subset, and moves q by natural gradients
SVI_STEPS = 150
MAP_STEPS = 60
#: prior of each lengthscale, with which the published table was computed
LENGTHSCALE = LogNormal(0.0, 1.0)
SMOOTH = ARD(RBF(lengthscale=LENGTHSCALE))
MIDDLE = ARD(Matern(1.5, lengthscale=LENGTHSCALE))
ROUGH = ARD(Matern(0.5, lengthscale=LENGTHSCALE))
KERNELS = (SMOOTH, MIDDLE, ROUGH)
SUMS = (SMOOTH + MIDDLE, SMOOTH + ROUGH)


def _gp(n: int) -> list[Any]:
    return [GP(kernel) for kernel in (*KERNELS, *SUMS)]


def _sgpr(n: int) -> list[Any]:
    return [SGPR(kernel, inducing=min(INDUCING, n // 2), learn=True) for kernel in KERNELS[:2]]


def _svgp(n: int) -> list[Any]:
    return [SVGP(MIDDLE, inducing=min(MOST_INDUCING, n // 2))]


def _auto(n: int) -> list[Any]:
    if n <= EXACT_UP_TO:
        return _gp(n)
    if n <= COLLAPSED_UP_TO:
        return _sgpr(n)
    return _svgp(n)


#: name -> function of the number of rows that returns the candidates
RECIPES: dict[str, Callable[[int], list[Any]]] = {
    "auto": _auto,
    "gp": _gp,
    "sgpr": _sgpr,
    "svgp": _svgp,
}


@dataclass(frozen=True, eq=False)
class Stack:
    """Fits of the candidates to the same rows.

    Attributes:
        fits: One per candidate.
        weights: [candidate], which maximise the leave-one-out density of the rows.
        how: The inference method of all of them.
    """

    fits: Sequence[Posterior]
    weights: Tensor
    how: MAP | SVI

    def predict(self, X: Tensor) -> Prediction:
        """Return the mixture of the candidates' predictions."""
        if len(self.fits) == 1:
            return self.fits[0].predict(X)
        return mixture([each.predict(X) for each in self.fits], self.weights)

    def left_out(self) -> Prediction:
        """Return the mixture of the candidates' leave-one-out predictions of the rows."""
        return mixture([each.loo() for each in self.fits], self.weights)

    def weight_of(self) -> dict[str, float]:
        """Return the weight of each kernel, by its recipe."""
        return {
            repr(each.model.kernel): round(float(weight), 4)
            for each, weight in zip(self.fits, self.weights, strict=True)
        }


def stacked(candidates: Sequence[Any], train: Dataset, seed: int, quick: bool) -> Stack:
    """Fit the candidates, and weigh them by their leave-one-out densities.

    Args:
        candidates: Models with Gaussian predictions.
        train: The rows.
        seed: The seed of the fits.
        quick: Whether to fit two candidates by few steps.
    """
    if quick:
        candidates = [_small(candidate) for candidate in candidates[:2]]
    how = _method(candidates[-1], train.n, quick)
    fits = []
    for model in candidates:
        with silenced(PpgpWarning):  # short searches suffice, and stacking weighs their results
            fits.append(raise_if_interrupted(fit(model, train, how, seed=seed, progress=False)))
    weights = torch.ones(1)
    if len(fits) > 1:
        weights = stacking_weights(torch.stack([each.loo().log_prob(train.y) for each in fits]))
    return Stack(fits, weights, how)


def _small(candidate: Any) -> Any:
    """Return the candidate with 20 inducing inputs, if it is sparse."""
    if isinstance(candidate, GP):
        return candidate
    return replace(candidate, inducing=20)


def _method(model: Any, n: int, quick: bool) -> MAP | SVI:
    """Return the inference method of a candidate; all candidates of a set have the same."""
    if isinstance(model, SVGP):
        how = SVI(steps=SVI_STEPS, batch_size=min(n, BATCH))
    else:
        how = MAP(steps=MAP_STEPS)
    return replace(how, steps=5) if quick else how


def mixture(predictions: list[Prediction], weights: Tensor) -> Prediction:
    """Mix normal predictive distributions of one draw each."""
    mean = torch.stack([prediction.mean for prediction in predictions], -1)
    sd = torch.stack([prediction.std for prediction in predictions], -1)
    return Prediction(NormalMixture(weights, mean, sd))
