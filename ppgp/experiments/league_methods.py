"""The methods of the league: what is fitted to the training rows, and how it is calibrated.

Natural gradient boosting is that of Duan et al. (2020), in the authors' setting and in one recipe
of this library for all sets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ..conformal import Normalized, calibrate
from ..conformal.cross import CrossCalibrator, cross_calibrate
from ..data.dataset import Dataset
from ..diagnostics.stacking import stacking_weights
from ..distributions.distributions import NormalMixture
from ..errors import PpgpWarning
from ..inference import (
    MAP,
    SWAG,
    Ensemble,
    Exact,
    Inference,
    Laplace,
    MCDropout,
    NaturalGradientBoosting,
)
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..learners import Trees
from ..likelihoods import Gaussian, Predicted
from ..models import Boosted, LinearRegression, NeuralRegression
from ..networks.networks import MLP
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.process_locks import silenced
from ..runtime.seeding import permutation
from .stacked_gps import RECIPES, stacked

#: the share of the training rows that calibrate a method without out-of-fold predictions
CALIBRATION = 0.2
SCORE = Normalized()
FOLDS = 10  # of natural gradient boosting, and of CV+ for the linear model
DRAWS = 200
#: passes over the rows for networks, unless the caller says otherwise, and those of MC dropout as
#: published (the corrected runs of Gal & Ghahramani 2016 train 100 times 40 epochs)
EPOCHS = 100
PUBLISHED_EPOCHS = 4000
BATCH = 100
MOST_STEPS = 20_000  # of a network, other than MC dropout
PASSES = (1, 4, 10)  # times the epochs: among these, a deep ensemble chooses
ADVERSARIAL = 0.01  # step of adversarial training as a share of the range of each column
#: networks have 50 hidden units, and 100 for sets as large as protein, as in the publications
UNITS, MANY_UNITS, MANY_ROWS = 50, 100, 20_000
STAGES = 2000


@dataclass(frozen=True)
class Setting:
    """What the caller chooses.

    Attributes:
        seed: The seed of all fits.
        quick: Whether to take few steps.
        epochs: Passes over the rows for networks.
        rows: The share of the rows that a stage of NGBoost as published is fitted to.
    """

    seed: int = 0
    quick: bool = False
    epochs: int = EPOCHS
    rows: float = 1.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit of one method.

    Attributes:
        predict: From new rows [m, d] to their Prediction.
        left_out: The prediction of each row by a fit that has not seen it; None: there is none.
        cross: The CV+ calibrator made of these fits, or a function that makes it; None: the method
            is calibrated by split conformal prediction.
        how: The name of the inference method.
        seconds: The CPU seconds of the fit.
    """

    predict: Callable[[Tensor], Prediction]
    left_out: Callable[[], Prediction] | None = None
    cross: Callable[[], CrossCalibrator] | None = None
    how: str = ""
    seconds: float = 0.0


class Fits:
    """The fits to some rows, each made when it is first asked for."""

    def __init__(self, rows: Dataset, setting: Setting) -> None:
        self.rows, self.setting = rows, setting
        self._made: dict[str, Fitted] = {}

    def of(self, name: str) -> Fitted:
        """Return the fit of a method; its seconds include those of its parts."""
        if name not in self._made:
            parts = [self.of(part) for part in PARTS.get(name, ())]
            started = time.process_time()
            with silenced(PpgpWarning):
                fitted = METHODS[name](self)
            seconds = time.process_time() - started + sum(part.seconds for part in parts)
            self._made[name] = replace(fitted, seconds=seconds)
        return self._made[name]


class Calibration:
    """The calibrated intervals of the methods on one split.

    NGBoost of this library and the linear model are calibrated by CV+, which takes out-of-fold
    predictions. All other methods are fitted again to four fifths of the training rows and
    calibrated on the rest: split conformal prediction.
    """

    def __init__(self, fits: Fits) -> None:
        self.fits = fits
        rows, setting = fits.rows, fits.setting
        generator = torch.Generator().manual_seed(setting.seed)
        order = permutation(generator, rows.n)
        count = math.ceil(CALIBRATION * rows.n)
        self.rest = Fits(rows.rows(order[count:]), setting)
        self.held_out = rows.rows(order[:count])

    def interval(self, name: str, X: Tensor, level: float) -> Region:
        """Return the calibrated intervals of a method at new rows."""
        cross = self.fits.of(name).cross
        if cross is not None:
            return cross()(X, level)
        fitted = self.rest.of(name)
        calibrator = calibrate(SCORE, fitted.predict(self.held_out.X), self.held_out.y)
        return calibrator(fitted.predict(X), level)


# -- the methods --------------------------------------------------------------------------------


def _of_posterior(fits: Fits, model: Any, how: Inference) -> Fitted:
    """Fit a model."""
    setting = fits.setting
    if setting.quick:
        how = how.quick()
    posterior = raise_if_interrupted(fit(model, fits.rows, how, seed=setting.seed, progress=False))
    return Fitted(posterior.predict, how=type(how).__name__)


def _ngb_published(score: str, fits: Fits) -> Fitted:
    """Depth 3: the best of all stages on a fifth of the rows, then a fit of so many to all rows."""
    how = NaturalGradientBoosting(
        score=score,
        steps=STAGES,
        learning_rate=0.01,
        rows=fits.setting.rows,
        folds=None,
        hold_out=0.2,
        patience=STAGES,
        temperature=False,
    )
    learner = Trees(leaves=8, depth=3, min_rows=1, columns=1.0)
    return _of_posterior(fits, Boosted(learner=learner), how)


def _ngb(fits: Fits) -> Fitted:
    """The recipe of this library: CRPS, ten out-of-fold members and one temperature.

    Every tree may split every column: the out-of-fold CRPS of kin8nm is a tenth lower than where
    trees draw 80 % of them, and on the small sets there is no clear difference.
    """
    setting = fits.setting
    how = NaturalGradientBoosting(
        score="crps", steps=STAGES, learning_rate=0.04, folds=FOLDS, stopping="fold"
    )
    if setting.quick:
        how = how.quick()
    posterior: Posterior = raise_if_interrupted(
        fit(Boosted(learner=Trees(columns=1.0)), fits.rows, how, seed=setting.seed, progress=False)
    )

    def cross() -> CrossCalibrator:
        return cross_calibrate(posterior.out_of_fold(), score=SCORE)

    return Fitted(posterior.predict, posterior.out_of_fold, cross, type(how).__name__)


def _network(fits: Fits, predicted_noise: bool) -> NeuralRegression:
    units = MANY_UNITS if fits.rows.n > MANY_ROWS else UNITS
    likelihood = Gaussian(noise=Predicted()) if predicted_noise else Gaussian()
    return NeuralRegression(MLP(hidden=(units,), dropout=0.0), likelihood)


def _steps(fits: Fits, passes: int = 1) -> int:
    """Return how many steps so many times the epochs are."""
    return min(MOST_STEPS, math.ceil(passes * fits.setting.epochs * fits.rows.n / BATCH))


def _adam(fits: Fits, adversarial: float | None = None, passes: int = 1) -> MAP:
    return MAP(
        "adam",
        steps=_steps(fits, passes),
        starts=1,
        learning_rate=0.01,
        schedule="cosine",
        batch_size=min(BATCH, fits.rows.n),
        adversarial=adversarial,
    )


def _mc_dropout(fits: Fits) -> Fitted:
    how = MCDropout(epochs=fits.setting.epochs, draws=DRAWS)
    return _of_posterior(fits, _network(fits, predicted_noise=False), how)


def _deep_ensemble(fits: Fits) -> Fitted:
    """Five networks, whose setting predicts a fifth of the rows best.

    The passes over the rows grow as long as the predictions get better, once with adversarial
    training and once without. Training is without it only if this predicts those rows better by
    more than two standard errors, as on sets of little noise. On other sets, networks trained
    without it are too sure of a few rows.
    """
    rows = fits.rows
    some, held_out = rows.split(1 - CALIBRATION, seed=fits.setting.seed)
    trial = Fits(some, fits.setting)

    def search(adversarial: float | None) -> tuple[int, Tensor]:
        """Return the passes, and the log density of each row held out [m]."""
        best: tuple[int, Tensor] | None = None
        for passes in PASSES:
            if best is not None and _steps(trial, passes) == _steps(trial, best[0]):
                break
            posterior = _of_networks(trial, adversarial, passes)
            log_density = posterior.predict(held_out.X).log_prob(held_out.y)
            if best is not None and not log_density.mean() > best[1].mean():
                break
            best = (passes, log_density)
        assert best is not None
        return best

    (passes, log_density), (passes_without, log_density_without) = search(ADVERSARIAL), search(None)
    gains = log_density_without - log_density
    if float(gains.mean()) > 2 * float(gains.std()) / math.sqrt(held_out.n):
        return _of_networks(fits, None, passes_without)
    return _of_networks(fits, ADVERSARIAL, passes)


def _of_networks(fits: Fits, adversarial: float | None, passes: int) -> Fitted:
    how = Ensemble(_adam(fits, adversarial=adversarial, passes=passes), members=5)
    return _of_posterior(fits, _network(fits, predicted_noise=True), how)


def _swag(fits: Fits) -> Fitted:
    how = SWAG(base=_adam(fits), draws=DRAWS)
    return _of_posterior(fits, _network(fits, predicted_noise=True), how)


def _last_layer(fits: Fits) -> Fitted:
    how = Laplace(structure="last_layer", base=_adam(fits), draws=DRAWS)
    return _of_posterior(fits, _network(fits, predicted_noise=False), how)


def _gp(fits: Fits) -> Fitted:
    """The kernels of ``ppgp reproduce uci``, mixed with stacking weights."""
    rows, setting = fits.rows, fits.setting
    stack = stacked(RECIPES["auto"](rows.n), rows, setting.seed, setting.quick)
    return Fitted(stack.predict, stack.left_out, how=type(stack.how).__name__)


def _linear(fits: Fits) -> Fitted:
    """A line, whose out-of-fold predictions are those of ten fits."""
    rows, seed = fits.rows, fits.setting.seed
    model, how = LinearRegression(), Exact(draws=DRAWS)
    posterior = raise_if_interrupted(fit(model, rows, how, seed=seed, progress=False))

    @cache
    def cross() -> CrossCalibrator:
        with silenced(PpgpWarning):
            calibrator = cross_calibrate(model, rows, how, SCORE, FOLDS, seed=seed)
        if calibrator.interrupted:
            raise KeyboardInterrupt
        return calibrator

    def left_out() -> Prediction:
        mean, sd = torch.empty_like(rows.y), torch.empty_like(rows.y)
        for posterior, held_out in zip(cross().posteriors, cross().held_out, strict=True):
            prediction = posterior.predict(rows.X[held_out])
            mean[held_out], sd[held_out] = prediction.mean, prediction.std
        return Prediction(torch.distributions.Normal(mean, sd))

    return Fitted(posterior.predict, left_out, cross, "Exact")


def _stack(fits: Fits) -> Fitted:
    """The mixture of its parts whose out-of-fold density is largest."""
    parts = [fits.of(name) for name in PARTS["stack"]]
    left_out = [part.left_out() for part in parts if part.left_out is not None]
    y = fits.rows.y
    weights = stacking_weights(torch.stack([_normals([one], None).log_prob(y) for one in left_out]))

    def predict(X: Tensor) -> Prediction:
        return _normals([part.predict(X) for part in parts], weights)

    return Fitted(predict, how="Stacking")


def _normals(predictions: list[Prediction], weights: Tensor | None) -> Prediction:
    """Mix predictions, each a mixture of normals or, if it is not, the normal of its moments."""
    if weights is None:
        weights = torch.ones(len(predictions), dtype=torch.float64)
    each = [_components(prediction) for prediction in predictions]
    shares = [w * share for w, (share, _, _) in zip(weights, each, strict=True)]
    mean, sd = (torch.cat([parts[k] for parts in each], -1) for k in (1, 2))
    share = torch.cat(shares, -1).clamp_min(0)
    return Prediction(NormalMixture(share / share.sum(-1, keepdim=True), mean, sd))


def _components(prediction: Prediction) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shares, means and sds [n, K] of the normal components of a prediction."""
    law: Any = prediction.distribution
    offset, scale = prediction.offset, prediction.scale
    if isinstance(law, torch.distributions.Normal):
        mean, sd = (offset + scale * law.loc).mT, (scale * law.scale).mT
        return torch.full_like(mean, 1 / mean.shape[-1]), mean, sd
    if isinstance(law, NormalMixture) and law.loc.shape[0] == 1:
        return law.proportion[0], (offset + scale * law.loc)[0], (scale * law.scale)[0]
    mean = prediction.mean[:, None]
    return torch.ones_like(mean), mean, prediction.std[:, None]


#: name -> function from the fits to the rows to the fit of the method
METHODS: dict[str, Callable[[Fits], Fitted]] = {
    "ngb": _ngb,
    "ngb-nll": partial(_ngb_published, "nll"),
    "ngb-crps": partial(_ngb_published, "crps"),
    "mc-dropout": _mc_dropout,
    "deep-ensemble": _deep_ensemble,
    "swag": _swag,
    "last-layer": _last_layer,
    "gp": _gp,
    "linear": _linear,
    "stack": _stack,
}
#: what a method is made of, fitted once
PARTS = {"stack": ("ngb", "gp", "linear")}
