"""Capabilities of models whose predictors are linear in x; ``capabilities`` lists all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from .base import Capability

Theta = Mapping[str, Tensor]


class LinearCoefficients(Capability):
    """A linear predictor, whose coefficients have units."""

    wanted = "a model with coefficients"
    advice = "use a linear model, or read posterior.draws"

    @abstractmethod
    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients in the units of the data.

        Args:
            draws: {site: [chain, draw, *event]} on the scale of the model.
            scaler: The Scaler that standardised the data.
            X: The training inputs [n, d].

        Returns:
            Their draws {site: [chain, draw, *event]}.
        """


class IntegratedCoefficients(Capability):
    """A linear part whose coefficients are normal given theta, and integrated out."""

    wanted = "a model with coefficients"
    advice = "use a linear model, or read posterior.draws"

    @abstractmethod
    def weighted(self, d: int) -> range:
        """Return the columns of X, of d in all, that have the r coefficients."""

    @abstractmethod
    def weight_moments(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return their means and standard deviations [draw, r] on the scale of the model."""


class GroupEffects(Capability):
    """Coefficients that vary between groups of rows."""

    wanted = "a model with coefficients that vary between groups"
    advice = "fit models.GLM(..., groups={name: Varying()})"

    @abstractmethod
    def group_effects(
        self, theta: Theta, train: Dataset, generator: torch.Generator, each: int = 1
    ) -> dict[str, Tensor]:
        """Return draws of the coefficients {grouping: [draw, K, q]} in the units of the data.

        Those that the model integrates out are drawn ``each`` times per draw of theta.
        """

    @abstractmethod
    def unpooled_effects(self, theta: Theta, train: Dataset) -> dict[str, Tensor]:
        """Return what the rows of each group alone suggest, {grouping: [K, q]}; {} if nothing."""

    @abstractmethod
    def effect_names(self) -> dict[str, list[str]]:
        """Return the names of the q coefficients of each grouping."""


@dataclass(frozen=True)
class RowScores:
    """The derivatives of a log likelihood whose rows are independent, in p coordinates.

    Attributes:
        sites: The sites of the coordinates in their order, ``{site: shape}``.
        scores: The gradient of each row's log density, [n, p], without the weight of the row.
        hessian: () -> minus the Hessian of the log likelihood, [p, p], which only sandwiches need.
        expected: The Fisher information, [p, p]; that Hessian where it has no formula.
        leverage: That of each row in iteratively reweighted least squares, [n]; None if there are
            several functions of x, or coordinates besides coefficients.
    """

    sites: dict[str, torch.Size]
    scores: Tensor
    hessian: Callable[[], Tensor]
    expected: Tensor
    leverage: Tensor | None


class GeneralisedLinear(Capability):
    """A likelihood of each row given its linear predictors, without coefficients of groups.

    Attributes:
        likelihood: A likelihood of ``ppgp.likelihoods``.
    """

    wanted = "a generalised linear model without groups"
    advice = "fit models.GLM(likelihood, Flat(), Flat()) by MAP('newton')"

    likelihood: Any

    @abstractmethod
    def functions(self, theta: Theta, X: Tensor, offset: Tensor | None = None) -> Tensor:
        """Return eta [*draw, n], or f [*draw, K, n] for K > 1 functions."""

    @abstractmethod
    def informative_priors(self) -> list[str]:
        """Return the priors that make the mode another than the maximum of the likelihood.

        That of the dispersion is none of them, as the coefficients do not depend on it.
        """

    @abstractmethod
    def row_scores(self, theta: Theta, data: Dataset) -> RowScores:
        """Return the derivatives at one draw, {site: [*event]}.

        The coordinates are the coefficients that have a prior and the likelihood's parameters that
        have one, but for a dispersion.
        """


class ProbitPrediction(Capability):
    """Class probabilities in closed form; the logits are taken as Gaussian over the draws."""

    wanted = "a model with MacKay's approximation of its predictions"
    advice = "use predict, the average over draws"

    @abstractmethod
    def probit(self, theta: Theta, X: Tensor) -> Distribution:
        """Return the distribution of y at X, batch [1, n]."""
