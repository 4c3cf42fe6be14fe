"""The models of the Olivetti experiment and how each is fitted.

Mirror images of faces are rows that are added, and change the sign of functions of an angle.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from ..data.dataset import Dataset
from ..errors import ConvergenceWarning
from ..inference import MAP, SVI
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..kernels import ARD, RBF, Deep
from ..likelihoods import Gaussian
from ..models import GP, SGPR, SVGP
from ..networks.networks import CNN
from ..networks.pretraining import regressor
from ..posterior.prediction import Prediction
from ..priors import LogNormal
from ..runtime.process_locks import silenced

CHANNELS = (16, 32, 32, 32)
RESELECT_EVERY = 5  # steps between two placements of the inducing inputs
#: a pretrained network needs a small rate; hyperparameters that start at their medians, a large one
RATES = {"kernel.network": 1e-4, "": 0.05}
#: two images of 4,096 standardised pixels are about 90 apart
PIXELS = RBF(lengthscale=LogNormal(4.0, 1.0))
#: the features of the network lie in a ball, whatever their number
FEATURES = LogNormal(0.0, 1.0)
NOISE = LogNormal(-4.0, 2.0)

Predictor = Callable[[Tensor], Prediction]
#: a predictor, and a description of how it was fitted
Fitted = tuple[Predictor, str]


def mirrored(data: Dataset) -> Dataset:
    """Return the rows and their mirror images, whose angles have the opposite sign."""
    side = round(data.d**0.5)
    other = data.X.reshape(-1, side, side).flip(2).flatten(1)
    return Dataset(
        torch.cat([data.X, other]), torch.cat([data.y, -data.y]), target_name=data.target_name
    )


class Odd(nn.Module):
    """The odd part (g(x) - g(mirror image of x)) / 2 of a module g.

    It changes its sign under a mirror, as the angle does.

    Args:
        module: The module g of images [n, side^2].
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the odd part at images [n, side^2]."""
        side = round(x.shape[-1] ** 0.5)
        other = x.reshape(-1, side, side).flip(2).flatten(1)
        return (self.module(x) - self.module(other)) / 2


@dataclass(frozen=True)
class Budget:
    """Sizes of the fits: steps, epochs, inducing inputs of pixels and of features, mini-batches."""

    steps: int = 60
    epochs: int = 30
    inducing: int = 500
    inducing_features: int = 100
    batch_size: int = 128


QUICK = Budget(steps=5, epochs=2, inducing=20, inducing_features=10, batch_size=32)


@dataclass
class Fitters:
    """One method per model; ``nn`` runs before ``dkl``, and ``dkl`` before the sparse deep kernels.

    Args:
        train: The training rows.
        seed: Seed of every fit.
        budget: Sizes of the fits.

    Attributes:
        network: The odd part of the network's features, which ``nn`` sets.
        on_features: The posterior on these features, which ``dkl`` sets.
    """

    train: Dataset
    seed: int
    budget: Budget
    network: Any = field(default=None, init=False)
    on_features: Any = field(default=None, init=False)

    def by_name(self, selection_algorithms: bool) -> dict[str, Callable[[], Fitted]]:
        """Return the functions that fit each model, in the order in which they must run.

        Args:
            selection_algorithms: Whether to include the three ways to move the inducing inputs
                of a sparse deep kernel.
        """
        fitters: dict[str, Callable[[], Fitted]] = {
            "gp": self.gp,
            "nn": self.nn,
            "sgp": self.sgp,
            "svgp": self.svgp,
            "dkl": self.dkl,
            "svdkl": self.svdkl,
        }
        if selection_algorithms:
            placed = partial(self.sdkl, reselect=RESELECT_EVERY)
            fitters["sdkl gradient"] = partial(self.sdkl, learn=True)
            fitters["sdkl k-means"] = partial(placed, selection="kmeans")
            fitters["sdkl greedy"] = partial(placed, selection="bound")
        return fitters

    def gp(self) -> Fitted:
        """Fit an exact Gaussian process of the pixels."""
        posterior = self._fit(GP(PIXELS, noise=NOISE), MAP(steps=self.budget.steps), self.train)
        return posterior.predict, "map"

    def nn(self) -> Fitted:
        """Train the network with a linear head, and keep its features for the deep kernels."""
        untrained = CNN(channels=CHANNELS, normalise=True, seed=self.seed)
        rows = mirrored(self.train).to(torch.float32)
        trained = regressor(untrained, rows, epochs=self.budget.epochs, seed=self.seed).double()
        self.network = Odd(trained[0])  # the angle is a linear function of these features
        odd = Odd(trained)
        residuals = self.train.y - _in_blocks(odd, self.train.X)[:, 0]
        sd = residuals.square().mean().sqrt()

        def predict(X: Tensor) -> Prediction:
            return Prediction(Normal(_in_blocks(odd, X)[:, 0], sd))

        return predict, f"adam, {self.budget.epochs} epochs; training residuals"

    def sgp(self) -> Fitted:
        """Fit a sparse Gaussian process of the pixels by the collapsed bound."""
        m = self.budget.inducing
        model = SGPR(PIXELS, m, noise=NOISE, seed=self.seed)
        posterior = self._fit(model, MAP(steps=self.budget.steps), self.train)
        return posterior.predict, f"map, {m} inducing inputs"

    def svgp(self) -> Fitted:
        """Fit a sparse Gaussian process of the pixels in mini-batches."""
        batch_size = self.budget.batch_size
        how = SVI(steps=3 * self.budget.steps, batch_size=batch_size, learning_rate=0.01)
        model = SVGP(PIXELS, self.budget.inducing, Gaussian(NOISE), learn=False, seed=self.seed)
        return self._fit(model, how, self.train).predict, f"svi, batches of {batch_size}"

    def dkl(self) -> Fitted:
        """Fit a Gaussian process of the network's features, with the network fixed.

        This is ``GP(Deep(network, ARD(RBF()), frozen=True))`` with the features computed once.
        """
        network = self.network
        features = Dataset(_in_blocks(network, self.train.X), self.train.y)
        model = GP(ARD(RBF(lengthscale=FEATURES)), noise=NOISE)
        posterior = self._fit(model, MAP(steps=self.budget.steps), features)
        self.on_features = posterior

        def predict(X: Tensor) -> Prediction:
            return posterior.predict(_in_blocks(network, X))

        return predict, "map, network held"

    def svdkl(self) -> Fitted:
        """Fit a sparse deep kernel in mini-batches; the network goes on learning."""
        batch_size = self.budget.batch_size
        m = self.budget.inducing_features
        how = SVI(steps=2 * self.budget.steps, batch_size=batch_size, learning_rate=RATES)
        model = SVGP(self._deep_kernel(), m, Gaussian(NOISE), learn=False, seed=self.seed)
        _, predict = self._fit_deep(model, how)
        return predict, f"svi, batches of {batch_size}, network at 1e-4"

    def sdkl(self, **placement: Any) -> Fitted:
        """Fit a sparse deep kernel by the collapsed bound.

        Args:
            **placement: Options of ``SGPR`` that say how the inducing inputs move.
        """
        m = self.budget.inducing_features
        how = MAP("adam", steps=self.budget.steps // 3, learning_rate=RATES)
        model = SGPR(self._deep_kernel(), m, noise=NOISE, seed=self.seed, **placement)
        fitted, predict = self._fit_deep(model, how)
        moved = f"{fitted.selection} every {fitted.reselect} steps"
        if fitted.learn:
            moved = "by gradient"
        return predict, f"adam, {m} inducing inputs {moved}"

    def _fit(self, model: Any, how: Any, train: Dataset, init: Any = None) -> Any:
        """Fit without the warnings of a search that its budget ends early."""
        with silenced(ConvergenceWarning):
            return raise_if_interrupted(
                fit(
                    model,
                    train,
                    how,
                    seed=self.seed,
                    progress=False,
                    standardise=False,
                    init=init,
                )
            )

    def _deep_kernel(self) -> Deep:
        """Return a deep kernel of a copy of the network, in single precision: half the cost."""
        return Deep(deepcopy(self.network).float(), ARD(RBF()))

    def _fit_deep(self, model: Any, how: Any) -> tuple[Any, Predictor]:
        """Fit a model of a network that goes on learning, from the hyperparameters of ``dkl``."""
        rows = self.train.to(torch.float32)
        posterior = self._fit(model, how, rows, self.on_features)
        return posterior.model, lambda X: posterior.predict(X.float())


def _in_blocks(network: Any, X: Tensor) -> Tensor:
    """Evaluate the network on 128 rows at a time, without gradients."""
    with torch.no_grad():
        return torch.cat([network(block) for block in X.split(128)])
