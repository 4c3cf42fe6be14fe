"""What a method of inference needs of a model; ``capabilities`` lists all of them.

Shapes: theta is ``{site: [draw, *event]}``, X is [n, d], a Dataset holds the training rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..runtime.team import ALONE, Team
from .base import Capability

Theta = Mapping[str, Tensor]


class ClosedForm(Capability):
    """The posterior itself, in closed form."""

    wanted = "a model with a closed-form posterior"
    advice = "use NUTS, or Laplace for an approximation"

    @abstractmethod
    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
        """Draw from the exact posterior.

        Args:
            train: The training rows.
            draws: Number of draws.
            generator: The random generator.

        Returns:
            The draws {site: [draw, *event]}, the params of the closed form, and the log evidence.
        """


class FullConditionals(Capability):
    """The conditional distribution of each block of sites given the others."""

    wanted = "a model with closed-form conditionals"
    advice = "use NUTS"

    @abstractmethod
    def gibbs(self, train: Dataset) -> Callable[[Theta, torch.Generator], dict[str, Tensor]]:
        """Return ``sweep(theta [chain, *event], generator) -> theta``, one draw of each block."""


class CollapsedBound(Capability):
    """A bound on log p(y given theta), some sites integrated under a variational distribution."""

    wanted = "a model with a collapsed bound"
    advice = "use SVI with guide='multivariate_normal'"

    @abstractmethod
    def elbo(
        self, theta: Theta, X: Tensor, y: Tensor, *, total: int, weights: Tensor | None = None
    ) -> Tensor:
        """Return the bound at theta: hyperparameters and params of the variational distribution."""

    @abstractmethod
    def collapsed_elbo(
        self, X: Tensor, y: Tensor, *, total: int | None = None, weights: Tensor | None = None
    ) -> None:
        """Run the Pyro program of ``elbo``: hyperparameters, params, and the bound as a factor."""

    def natural(
        self,
        theta: Theta,
        X: Tensor,
        y: Tensor,
        *,
        total: int,
        rate: float,
        weights: Tensor | None = None,
        team: Team = ALONE,
    ) -> tuple[dict[str, Tensor], Tensor] | None:
        """Return the params after a natural-gradient step, and ``elbo`` before it; None if none."""
        return None


class SubsetModel(Capability):
    """A smaller model with the same sites on fewer rows, whose mode is near."""

    wanted = "a model that can be fitted on a subset first"
    advice = "start from init="

    @abstractmethod
    def subset_model(self, data: Dataset) -> tuple[Any, Dataset] | None:
        """Return the smaller model and its rows; None if this model is small."""


class WarmStart(SubsetModel):
    """A subset model whose mode gives the start of the search for the mode of this model."""

    @abstractmethod
    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {site: value} where the search starts, given the mode of the subset model."""


class LikelihoodDerivatives(Capability):
    """The first two derivatives of the log likelihood by formula."""

    wanted = "a model that knows the derivatives of its likelihood"
    advice = "use Target.hessian"

    @abstractmethod
    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta), its gradient [p] and its Hessian [p, p].

        The sites are laid end to end, each on its natural scale.

        Args:
            theta: One draw, {site: [*event]}.
            data: The training rows.
        """

    def expected_curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same with minus the Fisher information in place of the Hessian."""
        return self.curvature(theta, data)


class LikelihoodOfFunctions(Capability):
    """A likelihood of each row given functions of its x, without other terms that the rows share.

    With the functions f(x), the density is the prior of the sites times the product of p(y | f).
    """

    wanted = "a network, or LinearRegression, LogisticRegression or SoftmaxRegression"
    advice = "use MAP('newton') for a GLM, and MAP('lbfgs') for others"

    @abstractmethod
    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the functions at X of one draw, [K, n]."""

    @abstractmethod
    def likelihood_of_functions(self) -> Any:
        """Return the likelihood, whose ``metric`` is the Fisher information in the functions."""


class BoostedSum(Capability):
    """Functions of x that are a constant plus a sum of learners, found by boosting."""

    wanted = "a model that is a sum of learners"
    advice = "fit models.Boosted(likelihood, learner), or use MAP, SVI or NUTS"

    likelihood: Any
    learner: Any

    @abstractmethod
    def site_of(self, name: str) -> str:
        """Return the name of the site that holds a tensor of the learner."""

    @abstractmethod
    def tensors_of(self, theta: Theta) -> dict[str, Tensor]:
        """Return the learner's tensors in theta; {} if nothing was boosted."""

    @abstractmethod
    def distribution_at(self, theta: Theta, f: Tensor) -> Distribution:
        """Return the distribution of y where boosting has come to f [*draw, K, n]."""

    @abstractmethod
    def from_start(self, theta: Theta, sums: Tensor) -> Tensor:
        """Return f [*draw, K, n], given the sums of the learners [*draw, K, n]."""

    @abstractmethod
    def functions(self, theta: Theta, X: Tensor) -> Tensor:
        """Return f at the rows of X, [*draw, K, n], before the temperature."""
