"""A likelihood whose functions of x are sums of learners, found by boosting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, constraints

from ..capabilities import BoostedSum
from ..data.dataset import Dataset
from ..display.overrides import computed
from ..distributions.blocks import distribution_by_rows
from ..distributions.tails import log_tail
from ..errors import SettingError
from ..learners import Learner, Trees
from ..likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Predicted, Scored
from ..priors import Flat, Site
from .base import Model
from .classification import check_two_classes
from .sites import Theta, draw

WORK_PER_ENTRY = 1000.0  # multiplications that the binning and splitting of one entry count as
TREES, STAGES = "trees.", "stages."


@dataclass(frozen=True, repr=False)
class Boosted(Model, BoostedSum):
    """y ~ likelihood(f(x)), where each function f_k is a constant plus a sum of learners.

    Friedman (2001); Duan et al. (2020). Fit it by ``NaturalGradientBoosting``. The program itself
    has the constants alone, the site ``start`` [K] of K functions with a flat prior, so that MAP,
    Laplace, NUTS and SVI fit one distribution for all rows, and say so.

    The functions are f and, in the order of the likelihood's parameters, the logs of those that are
    ``Predicted()``; of K classes the first K - 1 logits, where the last is 0. y is not
    standardised: boosting works in a unit that is a power of two, the param ``unit``, in which the
    logs of parameters with a unit are given.

    The draws of a boosted posterior are the members of ``folds=``, and a single fit is one draw:
    its ``epistemic`` variance is 0. The spread of members is no posterior, and it does not grow
    away from the data, where trees are constant.

    Args:
        likelihood: A likelihood of ``ppgp.likelihoods`` with scores. A parameter that is not
            predicted should be a number: ``NaturalGradientBoosting`` refuses a prior, which only
            the methods that fit the constant distribution take.
        learner: A learner of ``ppgp.learners``.

    Raises:
        SettingError: If the likelihood has no scores, or the learner is something else.
        NotApplicable: For a likelihood whose f must be positive; from ``fit`` by
            ``NaturalGradientBoosting``, for a parameter with a prior, or a score that the
            likelihood does not have.
        DataError: From ``fit``, if y does not suit the likelihood, or holds one class alone.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, learners, likelihoods, models
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64)[:, None]
        >>> y = torch.where(X[:, 0] < 0.5, 1.0, 3.0) + 0.1 * torch.sin(40 * X[:, 0])
        >>> noise = likelihoods.Predicted()
        >>> model = models.Boosted(likelihoods.Gaussian(noise=noise), learners.Trees(depth=2))
        >>> how = inference.NaturalGradientBoosting(steps=30, learning_rate=0.2, folds=None)
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), how, progress=False)
        >>> posterior.predict([[0.2], [0.8]]).mean.numpy().round(1)
        array([1., 3.])
    """

    likelihood: Likelihood = field(default_factory=lambda: Gaussian(noise=Predicted()))
    learner: Learner = field(default_factory=Trees)
    scales = ""
    one_mode = True
    structural = (TREES, STAGES)
    own_method = "ngb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.likelihood, Scored):
            raise SettingError(Scored.wanted, repr(self.likelihood), Scored.advice)
        self.likelihood.check_real_f()
        if not isinstance(self.learner, Learner):
            raise SettingError(
                "a member of ppgp.learners as learner", repr(self.learner), "for example Trees()"
            )

    @property
    def _scored(self) -> Any:
        return self.likelihood

    def _takes_missing(self) -> bool:
        """Whether X may hold missing values, which depends on the learner."""
        return self.learner.takes_missing

    takes_missing = computed(_takes_missing)

    def _takes_categories(self) -> bool:
        """Whether X may hold codes of categories, which depends on the learner."""
        return self.learner.takes_categories

    takes_categories = computed(_takes_categories)

    def _takes_censored(self) -> bool:
        """Whether targets may be right-censored, which depends on the likelihood."""
        return self._scored.censorable

    takes_censored = computed(_takes_censored)

    @property
    def takes_labels(self) -> bool:
        return self.likelihood.takes_labels

    def sites(self, d: int) -> dict[str, Site]:
        start = Site(Flat(), (self._scored.learned,))
        return {"start": start, **self.likelihood.sites()}

    def work(self, n: int, d: int) -> float:
        return float(n) * d * WORK_PER_ENTRY

    def check_storable(self) -> None:
        self.learner.check_storable()

    def prepare(self, data: Dataset) -> Boosted:
        """Return the recipe with a likelihood for these targets.

        Raises:
            DataError: If y does not suit the likelihood, or holds one class alone.
        """
        likelihood = self.likelihood.prepare(data)
        if isinstance(likelihood, Bernoulli | Categorical):
            check_two_classes(data)
        return self if likelihood is self.likelihood else replace(self, likelihood=likelihood)

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the constants of least score."""
        if any(not s.fixed for s in self.likelihood.sites().values()):
            return {}
        flags = data.right_censored
        return {"start": self._scored.initial(data.y, right_censored=flags)[: self._scored.learned]}

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        if self.tensors_of(theta):
            return []
        return [
            "no learners: one distribution for all rows; fit by NaturalGradientBoosting to let it "
            "depend on x"
        ]

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Run the Pyro program: one distribution for all rows; see ``Model.model``.

        ``right_censored`` [n] tells which targets are only known to be exceeded; None: none.
        """
        if right_censored is None:
            return super().model(X, y, total=total)
        theta = draw(self.sites_at(X.shape[-1]), X)
        distribution = Censored(self.distribution(theta, X), right_censored)
        with pyro.plate("rows", total or len(X), subsample=X):
            return pyro.sample("y", distribution, obs=y)

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {"y": log p(y_i given theta), [draw, n]}; of a censored row the log survival."""
        distribution = self.predict(theta, data.X, data)
        if data.right_censored is not None:
            distribution = Censored(distribution, data.right_censored)
        return {"y": distribution.log_prob(data.y)}

    # -- boosting -----------------------------------------------------------------------------

    def site_of(self, name: str) -> str:
        return (TREES if isinstance(self.learner, Trees) else STAGES) + name

    def tensors_of(self, theta: Theta) -> dict[str, Tensor]:
        prefix = self.site_of("")
        return {k.removeprefix(prefix): v for k, v in theta.items() if k.startswith(prefix)}

    def functions(self, theta: Theta, X: Tensor) -> Tensor:
        start = theta["start"][..., None]
        tensors = self.tensors_of(theta)
        if not tensors:
            return start.expand(*start.shape[:-1], len(X))
        return self.from_start(theta, self.learner.predict(tensors, X).to(start))

    def from_start(self, theta: Theta, sums: Tensor) -> Tensor:
        """Return f [*draw, K, n], given the sums of learners, of which the first is in ``unit``."""
        start = theta["start"][..., None]
        if "unit" not in theta or "y" not in self.likelihood.scales:
            return start + sums
        return start + torch.cat([sums[..., :1, :] * theta["unit"], sums[..., 1:, :]], -2)

    def distribution_at(self, theta: Theta, f: Tensor) -> Distribution:
        f = self._scored.completed(f)
        if "temperature" in theta:
            f = self._scored.tempered(f, theta["temperature"][..., None])
        values = {k: v for k, v in theta.items() if k in self.likelihood.sites()}
        if "unit" in theta:
            values |= levels(self.likelihood, theta["unit"])
        if self.likelihood.latents == 1:
            f = f[..., 0, :]
        return self.likelihood.distribution(values, f)

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        return self.distribution_at(theta, self.functions(theta, X))

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        draws = len(theta["start"])
        if joint:
            return Independent(self.distribution(theta, X), 1)
        return distribution_by_rows(lambda rows: self.distribution(theta, rows), X, draws)


def levels(likelihood: Likelihood, unit: Tensor) -> dict[str, Tensor]:
    """Return {parameter: the value, in units of the data, of 1 on the scale of the fit}."""
    if "y" not in likelihood.scales:
        return {}
    return {name: unit ** likelihood.dimensions.get(name, 0.0) for name in likelihood.predicted}


class Censored(dist.TorchDistribution):
    """A distribution whose ``log_prob`` at a right-censored row is its log survival.

    Args:
        base: The distribution of the targets, batch [*draw, n].
        flags: Which targets are only known to be exceeded, [n].
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"flags": constraints.boolean}

    def __init__(
        self, base: Distribution, flags: Tensor, validate_args: bool | None = None
    ) -> None:
        self.base, self.flags = base, flags
        super().__init__(base.batch_shape, torch.Size(), validate_args=False)

    @property
    def support(self) -> Any:
        """The support of y."""
        return self.base.support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Censored:
        return Censored(self.base.expand(torch.Size(batch_shape)), self.flags)

    def log_prob(self, value: Tensor) -> Tensor:
        density = self.base.log_prob(value)
        return torch.where(self.flags, log_tail(self.base, value, True), density)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return draws of the targets as they are before censoring."""
        return self.base.sample(torch.Size(sample_shape))
