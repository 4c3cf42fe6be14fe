"""Gaussian-process regression and classification with any likelihood, all rows at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import Capability, LeaveOneOut
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable, UnknownName
from ...kernels import RBF, Kernel
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Bernoulli, Likelihood
from ...likelihoods.joint_rows import LatentMarginal, LikelihoodRows
from ...numerics.cholesky import at_least_rounding, inducing_root
from ...numerics.latent_ep import expand_by_ep
from ...numerics.latent_laplace import LatentGaussian, expand_at_mode
from ...priors import Normal, Param, PriorLike, Site, prefixed, under
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import (
    check_memory_of_conditioning,
    check_memory_of_covariance,
    check_memory_of_predictions,
)
from ..base import broken_network, mini_batch
from ..means import MeanLike, rows_of_mean
from ..sites import Theta, draw, one_by_one
from .latent_model import LatentModel, check_latent

APPROXIMATIONS = ("laplace", "ep", "sampled")
WHITE = Normal(0.0, 1.0)  # the prior of v
ROWS_AT_ONCE = 2048
SEARCH = 10  # factorisations in the search for one mode, about


@dataclass(frozen=True, repr=False)
class LatentGP(LatentModel):
    """GP of any likelihood, all rows at once: f ~ GP(mean, kernel), and y_i given f_i.

    f [n] is in the units of the link, such as log odds for Bernoulli and log rates for Poisson.
    Rasmussen & Williams (2006), chapter 3. ``GP(kernel, likelihood=..., latent="laplace")`` makes
    it. f is integrated out given the hyperparameters, which are the sites: MAP maximises the
    evidence times their prior, and NUTS averages over them. It costs O(n^3) time per evaluation,
    and O(n^2) memory.

    With "laplace" f is Gaussian around its mode, algorithms 3.1 and 3.2. The evidence is equation
    3.32, with its exact gradient. Where the log density of a row is not concave, such as that of
    StudentT, f may have several modes: the one with the highest evidence of those is taken to which
    searches from the mean and from y lead.

    With "ep", for Bernoulli alone, f is the Gaussian of expectation propagation, algorithms 3.5 and
    3.6 with parallel updates. It is closer to the posterior of f than Laplace's, and takes several
    times as long.

    With "sampled" f = mean + L v, L L' = K, and v is a site beside the hyperparameters: nothing is
    approximated, and NUTS on it is the reference for the others.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition.
        likelihood: Any likelihood of one function of x with formulas for its slopes; all of
            ``ppgp.likelihoods`` but Categorical, Laplace, FromDistribution, and those with
            ``Predicted()`` parameters.
        approximation: That of f given the rows: "laplace", "ep" or "sampled".
        mean: The mean of f: number, prior, ``LinearMean`` or function of X, see ``GP``; None: the
            mean of the training rows, and 0 under a likelihood of classes, counts or positive
            numbers.
        rows: Set by ``fit``: the number of training rows, the length of v.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        UnknownName: If there is no such approximation.
        SettingError: If the likelihood is not a member of ``ppgp.likelihoods``, or the kernel none
            of ``ppgp.kernels``.
        NotApplicable: If the likelihood has several functions, or no slopes by formula, or for
            "ep" with another likelihood than Bernoulli.
        DataError: From ``fit``, if y does not suit the likelihood.
        NotEnoughMemory: From ``fit``, if the covariance [n, n] does not fit into memory.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, kernels, likelihoods, models
        >>> data = ppgp.Dataset([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
        >>> kernel = kernels.RBF(variance=4.0, lengthscale=2.0)
        >>> model = models.GP(kernel, mean=0.0, likelihood=likelihoods.Bernoulli(), latent="ep")
        >>> type(model).__name__
        'LatentGP'
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
        >>> p = posterior.predict([[-1.5], [0.0], [1.5]]).probabilities[:, 1]
        >>> round(float(p[1]), 6), round(float(p[0] + p[2]), 6)  # by symmetry 1/2 and 1
        (0.5, 1.0)
        >>> bool(p[0] < 0.3)
        True
    """

    kernel: Kernel = field(default_factory=RBF)
    likelihood: Likelihood = field(default_factory=Bernoulli)
    approximation: str = "laplace"
    mean: MeanLike | None = None
    rows: int | None = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    keeps_factor = True
    sampled_rows = 200
    latent_values = ("v",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        if self.approximation not in APPROXIMATIONS:
            raise UnknownName("approximation", self.approximation, APPROXIMATIONS)
        if self.approximation == "ep" and not isinstance(self.likelihood, Bernoulli):
            do = "use latent='laplace' or 'sampled'"
            raise NotApplicable("Bernoulli for EP", repr(self.likelihood), do)

    @property
    def _sampled(self) -> bool:
        return self.approximation == "sampled"

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return the hyperparameters, and v if f is sampled."""
        v = {"v": Site(WHITE, (self.rows or 1,))} if self._sampled else {}
        return {**self._hyperparameters(d), **v}

    def _hyperparameters(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            **self.likelihood.sites(),
            **self.mean_of(d).sites(d),
        }

    def work(self, n: int, d: int) -> float:
        return SEARCH * float(n) ** 3 + super().work(n, d)

    def chunked(self, data: Dataset) -> bool:
        """Return whether the density has a search inside, which cannot be compiled."""
        return not self._sampled

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the covariance of n rows and its gradient fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        check_memory_of_covariance(n, d, self.kernel, like, self.likelihood)

    def prepare(self, data: Dataset) -> LatentGP:
        """Return the recipe with a likelihood and a mean for these rows.

        Raises:
            DataError: If y does not suit the likelihood.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        mean = self.mean_for(data)
        rows = data.n if self._sampled else None
        return replace(self, likelihood=self.likelihood.prepare(data), mean=mean, rows=rows)

    def in_units(self, scaler: Scaler) -> LatentGP:
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        return replace(self, kernel=kernel, likelihood=likelihood, mean=mean)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = prefixed("kernel", self.kernel.factors(Units.of(scaler)))
        factors |= self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, {**factors, "v": 1.0}, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is LeaveOneOut and self._sampled:
            return NotApplicable("f integrated out", "f sampled", LeaveOneOut.advice)
        return None

    # -- the program --------------------------------------------------------------------------

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        if total is not None and total != len(X):
            raise mini_batch(
                self, X, total, "use the full batch, or SVGP, which takes mini-batches"
            )
        theta = draw(self._hyperparameters(X.shape[-1]), X)
        mean = self.mean_at(theta, X).expand(len(X))
        K = self.kernel(under("kernel", theta), X)
        if not self._sampled:
            own = self.of_likelihood(theta)
            joint = LatentMarginal(self.likelihood, own, mean, K, self.approximation)
            return pyro.sample("y", joint, obs=y)
        v = pyro.sample("v", Site(WHITE, (len(X),)).distribution(X))
        f = mean + inducing_root(K) @ v
        with pyro.plate("rows", len(X)):
            given: Any = self.likelihood.distribution(theta, f)
            return pyro.sample("y", given, obs=y)

    # -- f given the training rows, one draw at a time: theta is {site: [*event]} ----------------

    def _approximation(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return the tensors of the LatentGaussian of f at the training rows."""
        X, y = train.X, train.y
        K = self.kernel(under("kernel", theta), X)
        if self._sampled:  # f is as good as a row without noise
            L = inducing_root(K)
            weights = torch.linalg.solve_triangular(L.mT, theta["v"][:, None], upper=True)[:, 0]
            return weights, torch.ones_like(weights), L
        own = self.of_likelihood(theta)
        mean = self.mean_at(theta, X).expand(len(X))
        rows = LikelihoodRows(self.likelihood, tuple(own), y)
        if self.approximation == "ep":
            found = expand_by_ep(K, mean, rows)
        else:
            found = expand_at_mode(K, mean, rows, tuple(own.values()))
        tensors = (found.weights, found.precision, found.root)
        return tensors if found.downdate is None else (*tensors, found.downdate)

    def moments(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        kept = kept or ResultCache(limit=0)
        m = len(X)
        width = max(1, m if joint else min(m, ROWS_AT_ONCE))
        check_memory_of_conditioning(train.n, width, 1, self.kernel, X)
        every = one_by_one(self.sites_at(X.shape[1]), theta)
        check_memory_of_predictions(len(every), m, X, joint)
        means = X.new_empty(len(every), m)
        spreads = X.new_empty(len(every), *((m,) if joint else ()), m)
        for i, one in enumerate(every):
            hyper, level = under("kernel", one), self.mean_at(one, X)
            found = LatentGaussian(*kept.get(i, partial(self._approximation, one, train), one))
            for row in range(0, m, width):
                rows = slice(row, row + width)
                cross = self.kernel(hyper, train.X, X[rows])
                means[i, rows] = rows_of_mean(level, rows) + found.mean(cross)
                if joint:
                    spreads[i] = self.kernel(hyper, X) - found.covariance_explained(cross)
                else:
                    prior = self.kernel.diag(hyper, X[rows])
                    left = prior - found.variance_explained(cross)
                    spreads[i, rows] = at_least_rounding(left, prior)
        return means, spreads

    def without_each_row(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        found = LatentGaussian(*self._approximation(theta, train))
        return found.without_each_row(self.kernel(under("kernel", theta), train.X))

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return log p(y_i | f_i) [draw, n] if f is sampled, else that of ``loo``."""
        if not self._sampled:
            return super().log_likelihood(theta, data)
        f = []
        for one in one_by_one(self.sites_at(data.d), theta):
            root = inducing_root(self.kernel(under("kernel", one), data.X))
            f.append(self.mean_at(one, data.X) + root @ one["v"])
        given = self.likelihood.distribution(self.of_likelihood(theta), torch.stack(f))
        return {"y": given.log_prob(data.y)}


def with_likelihood(
    kernel: Kernel | None = None,
    noise: PriorLike | None = None,
    mean: MeanLike | None = None,
    *,
    likelihood: Any = None,
    latent: Any = None,
    standardised: bool = False,
) -> LatentGP:
    """Return the LatentGP that ``GP`` with these arguments makes.

    Raises:
        SettingError: If latent is given without a likelihood, or noise beside one.
    """
    check_latent(likelihood, noise)
    if kernel is None:
        kernel = RBF()
    return LatentGP(kernel, likelihood, latent or "laplace", mean, standardised=standardised)
