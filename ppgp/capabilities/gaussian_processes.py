"""Capabilities of Gaussian processes; ``capabilities`` lists all of them.

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
from .base import Capability

Theta = Mapping[str, Tensor]
#: functions of the posterior, X [m, d] -> values [samples, m]
Functions = Callable[[Tensor], Tensor]


class LatentFunction(Capability):
    """A latent function f, the mean of y without its noise."""

    wanted = "a model with a latent function"
    advice = "use predict, the distribution of y"

    @abstractmethod
    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of f at X, batch [draw, n]."""


class JointLatent(Capability):
    """The joint Gaussian distribution of f at some places under each draw, with a gradient in X."""

    wanted = "a model with a joint Gaussian distribution of f"
    advice = "use GP, SGPR or Kriging"

    @abstractmethod
    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] and the covariance [draw, m, m] of f at X."""


class PosteriorFunctions(Capability):
    """Whole functions drawn from the posterior."""

    wanted = "a model with functions of the posterior"
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

    wanted = "a model with components, a sum of terms"
    advice = "use latent"

    @abstractmethod
    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return {term: the distribution of its part of f, batch [draw, m]}."""


class ComponentsByRole(Capability):
    """A latent function of time whose parts are trend, season, cycle and regressors."""

    wanted = "a model with a kernel, whose terms are trend, season or cycle"
    advice = "use latent"

    @abstractmethod
    def parts_by_role(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return {role: the distribution of its part of f, batch [draw, m]}."""


class LeaveOneOut(Capability):
    """Leave-one-out predictions in closed form."""

    wanted = "a model with leave-one-out predictions in closed form"
    advice = "use PSIS-LOO: ppgp.psis_loo(posterior)"

    @abstractmethod
    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y given the others, batch [draw, n]."""


class JointGaussian(Capability):
    """y that is jointly Gaussian given the hyperparameters."""

    wanted = "a model whose y is jointly Gaussian, such as GP"
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

    wanted = "a model that takes further rows without a fit"
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


class Candidates(Capability):
    """Several recipes among which the evidence of the rows decides.

    Attributes:
        covariance: The kernel.
    """

    wanted = "a model without a kernel, which has candidates"
    covariance: Any
    advice = "use models.StateSpaceGP() without a kernel"

    @abstractmethod
    def candidates(self, data: Dataset, standardise: bool = True) -> list[Any]:
        """Return the recipes, each of which can be fitted alone.

        Args:
            data: The training rows, in the units of the data.
            standardise: Whether ``fit`` will standardise the rows.

        Returns:
            Models of one class; empty where the rows tell too little to choose.
        """


class BlockMeans(Capability):
    """The mean of the surface over a block."""

    wanted = "a model with blocks"
    advice = "fit models.Kriging, or average posterior.predict(X, joint=True)"

    @abstractmethod
    def block(self, theta: Theta, blocks: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the means of f over blocks [m, k, d], batch [draw, m]."""


class Reselects(Capability):
    """Inducing inputs that are selected again during a search, every ``reselect`` steps."""

    wanted = "a model that selects its inducing inputs again"
    advice = "use SGPR(reselect=)"

    reselect: int | None

    @abstractmethod
    def reselected_inducing(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {param: the inducing inputs [m, d] selected at theta}."""


class FollowsFit(Capability):
    """A recipe with a part that ``prepare`` chose before the fit, and that suits it no longer."""

    wanted = "a model that chooses neighbours by its fitted lengthscales"
    advice = "use models.Vecchia"

    @abstractmethod
    def outdated(self, theta: Theta, data: Dataset) -> bool:
        """Return whether that part would be chosen otherwise at theta, {site: [*event]}."""

    @abstractmethod
    def reselected(self, theta: Theta, data: Dataset) -> Any:
        """Return the recipe with that part chosen again at theta, {site: [*event]}."""
