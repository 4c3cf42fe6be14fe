"""Capabilities of Gaussian processes, of methods and of boosting.

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
from ..runtime.result_cache import ResultCache
from ..runtime.team import ALONE, Team
from .base import Capability

Theta = Mapping[str, Tensor]
#: functions of the posterior, X [m, d] -> values [samples, m]
Functions = Callable[[Tensor], Tensor]


class ClosedForm(Capability):
    """The posterior itself, in closed form."""

    expected = "a model with a closed-form posterior"
    advice = "use NUTS, or Laplace for an approximation"

    @abstractmethod
    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
        """Return draws {site: [draw, *event]}, params of the closed form, and the log evidence."""


class FullConditionals(Capability):
    """The conditional distribution of each block of sites given the others."""

    expected = "a model with closed-form conditionals"
    advice = "use NUTS"

    @abstractmethod
    def gibbs(self, train: Dataset) -> Callable[[Theta, torch.Generator], dict[str, Tensor]]:
        """Return ``sweep(theta [chain, *event], generator) -> theta``, one draw of each block."""


class OwnGuide(Capability):
    """A Pyro guide that belongs to the model; other models use an autoguide."""

    expected = "a model with a guide of its own"
    advice = "use an autoguide: SVI(guide='multivariate_normal')"

    @abstractmethod
    def guide(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Run the guide, a Pyro program with the same arguments as ``model``."""


class CollapsedBound(Capability):
    """A bound on log p(y given theta), some sites integrated under a variational distribution."""

    expected = "a model with a collapsed bound"
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

    expected = "a model that can be fitted on a subset first"
    advice = "start from init="

    @abstractmethod
    def subset_model(self, data: Dataset) -> tuple[Any, Dataset] | None:
        """Return the smaller model and its rows; None if this model is small."""


class WarmStart(SubsetModel):
    """A subset model whose mode gives the start of the search for the mode of this model."""

    @abstractmethod
    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {site: value} where the search starts, given the mode of the subset model."""


class Reselects(Capability):
    """Inducing inputs that are selected again during a search, every ``reselect`` steps."""

    expected = "a model that selects its inducing inputs again"
    advice = "use SGPR(reselect=)"

    reselect: int | None

    @abstractmethod
    def reselected_inducing(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {param: the inducing inputs [m, d] selected at theta}."""


class FollowsFit(Capability):
    """A recipe with a part that ``prepare`` chose before the fit, and that suits it no longer."""

    expected = "a model that chooses neighbours by its fitted lengthscales"
    advice = "use models.Vecchia"

    @abstractmethod
    def outdated(self, theta: Theta, data: Dataset) -> bool:
        """Return whether that part would be chosen otherwise at theta, {site: [*event]}."""

    @abstractmethod
    def reselected(self, theta: Theta, data: Dataset) -> Any:
        """Return the recipe with that part chosen again at theta, {site: [*event]}."""


class LatentFunction(Capability):
    """A latent function f, the mean of y without its noise."""

    expected = "a model with a latent function"
    advice = "use predict, the distribution of y"

    @abstractmethod
    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of f at X, batch [draw, n]."""


class JointLatent(Capability):
    """The joint Gaussian distribution of f at some places under each draw, with a gradient in X."""

    expected = "a model with a joint Gaussian distribution of f"
    advice = "use GP, SGPR or Kriging"

    @abstractmethod
    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] and the covariance [draw, m, m] of f at X."""


class PosteriorFunctions(Capability):
    """Whole functions drawn from the posterior."""

    expected = "a model with functions of the posterior"
    advice = "use predict(X, joint=True).sample(k)"

    @abstractmethod
    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Functions:
        """Return ``samples`` functions, which can be evaluated anywhere."""


class Components(Capability):
    """A latent function that is a sum of terms."""

    expected = "a model with components, a sum of terms"
    advice = "use latent"

    @abstractmethod
    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return {term: the distribution of its part of f, batch [draw, m]}."""


class LeaveOneOut(Capability):
    """Leave-one-out predictions in closed form."""

    expected = "a model with leave-one-out predictions in closed form"
    advice = "use PSIS-LOO: ppgp.psis_loo(posterior)"

    @abstractmethod
    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y given the others, batch [draw, n]."""


class JointGaussian(Capability):
    """y that is jointly Gaussian given the hyperparameters."""

    expected = "a model whose y is jointly Gaussian, such as GP"
    advice = "use split conformal: calibrate"

    @abstractmethod
    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Any, ...]:
        """Return the covariances of y at the training rows and at X under one draw.

        They are the arguments of ``conformal.leave_one_out_parts``: tensors, and of a model with a
        drift its functions.
        """


class Updates(Capability):
    """What predictions share of the training rows, from which further rows go on."""

    expected = "a model that takes further rows without a fit"
    advice = "fit all rows again, or use GP, SGPR, Kriging or StateSpaceGP without a likelihood"

    @abstractmethod
    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        """Go on from what predictions from the old rows share, where that saves time.

        Args:
            theta: {site: [draw, *event]}.
            old: The rows so far.
            new: The same rows and the new ones after them.
            kept: What predictions from the old rows have kept.
            into: The store of predictions from all rows.
        """

    @abstractmethod
    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> Distribution:
        """Return the distribution of each new y given all rows before it, batch [draw, m].

        For a model of time the new rows are in any order, none before the last of ``train``. For
        any other model they come in the order given.
        """


class LikelihoodDerivatives(Capability):
    """The first two derivatives of the log likelihood by formula."""

    expected = "a model that knows the derivatives of its likelihood"
    advice = "use Target.hessian"

    @abstractmethod
    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta) of one draw, its gradient [p] and Hessian [p, p].

        The sites are laid end to end, each on its natural scale.
        """

    def expected_curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same with minus the Fisher information in place of the Hessian."""
        return self.curvature(theta, data)


class LikelihoodOfFunctions(Capability):
    """A likelihood of each row given functions of its x, without other terms that the rows share.

    With the functions f(x), the density is the prior of the sites times the product of p(y | f).
    """

    expected = "a network, or LinearRegression, LogisticRegression or SoftmaxRegression"
    advice = "use MAP('newton') for a GLM, and MAP('lbfgs') for others"

    @abstractmethod
    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the functions at X of one draw, [K, n]."""

    @abstractmethod
    def likelihood_of_functions(self) -> Any:
        """Return the likelihood, whose ``metric`` is the Fisher information in the functions."""


class ProbitPrediction(Capability):
    """Class probabilities in closed form; the logits are taken as Gaussian over the draws."""

    expected = "a model with MacKay's approximation of its predictions"
    advice = "use predict, the average over draws"

    @abstractmethod
    def probit(self, theta: Theta, X: Tensor) -> Distribution:
        """Return the distribution of y at X, batch [1, n]."""


class BlockMeans(Capability):
    """The mean of the surface over a block."""

    expected = "a model with blocks"
    advice = "fit models.Kriging, or average posterior.predict(X, joint=True)"

    @abstractmethod
    def block(self, theta: Theta, blocks: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the means of f over blocks [m, k, d], batch [draw, m]."""


class BoostedSum(Capability):
    """Functions of x that are a constant plus a sum of learners, found by boosting."""

    expected = "a model that is a sum of learners"
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
