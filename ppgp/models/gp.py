"""Exact Gaussian-process regression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable
from ..kernels import RBF, Kernel, Sum, Unscaled
from ..kernels.base import check_kernel
from ..kernels.fourier_features import Draw
from ..numerics.blocks import Assembled
from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.distributions import GPMarginal
from ..priors import LogNormal, Param, PriorLike, Site, moved, prefixed, site, under
from ..target.capabilities import (
    Capability,
    Components,
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
)
from .base import Model, full_batch_only
from .inducing import medians, refuse_broken
from .known_noise import known_at, refuse_twins, with_known
from .matheron import matheron
from .memory_checks import check_memory_of_covariance, check_memory_of_predictions
from .sites import Theta, begun, draw, first_draw, number_of_draws, split_params
from .units import filled, level, of_gp, power, units_of

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of predict
ROWS_AT_ONCE = 2048


@dataclass(frozen=True, repr=False)
class GP(Model, LatentFunction, PosteriorFunctions, Components, LeaveOneOut, JointGaussian):
    """y ~ N(mean, K + noise I), K = kernel(X, X): exact GP regression. Rasmussen & Williams (2006), chapter 2.

    Args:
        kernel: any member of ``ppgp.kernels``, or a sum, product or wrapping of them.
        noise: prior (or number) for the noise variance; 0 interpolates.
        mean: prior or number for the constant mean; None: the mean of the training rows (0 in a recipe that has seen none).
        noise_sd: the known noise of each training row [n], on top of ``noise``; ``prepare`` takes it from the Dataset.

    With ``noise=0`` a Dataset's known noise is all there is, as scikit-learn's ``alpha=`` array (of variances) and GPyTorch's
    FixedNoiseGaussianLikelihood have it. After NUTS the prediction is the mixture over hyperparameter draws, evaluated in batches of draws within
    ``MEMORY_BUDGET`` bytes. O(n^3) time a draw, O(n^2) memory; all rows at once.
    """

    kernel: Kernel = field(default_factory=RBF)
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: PriorLike | None = None
    noise_sd: Tensor | None = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True, zero=True),
            "mean": site("mean", 0.0 if self.mean is None else self.mean),
        }

    def work(self, n: int, d: int) -> float:
        return float(n) ** 3 + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Raises NotEnoughMemory where the covariance of n rows, and what its gradient needs, does not fit."""
        check_memory_of_covariance(n, self.kernel, like)

    def prepare(self, data: Dataset) -> GP:
        """With the known noise and the mean of these rows. Raises DataError for duplicate rows under a noise of exactly 0, which no covariance
        can have, and NumericalError for a network that starts broken."""
        self.sites(data.d)
        refuse_broken(self.kernel, data.X)
        if self.noise == 0:
            own = self.kernel.nugget(
                under("kernel", medians(self.sites(data.d), data.X, 0)), data.X
            )
            refuse_twins(data.X, data.noise_sd, own, "different rows of X", "noise")
        return replace(self, noise_sd=data.noise_sd, mean=filled(self.mean, data))

    def in_units(self, scaler: Scaler) -> GP:
        noise = moved(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel, mean = self.kernel.in_units(units_of(scaler)), level(self.mean, scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return of_gp(
            draws,
            {f"kernel.{name}": f for name, f in self.kernel.factors(units_of(scaler)).items()},
            scaler,
        )

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """The initial weights of a network that has a prior: all 0, the middle of it, is a saddle."""
        return begun(self.sites(data.d))

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """What the fit has made of a network."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    def _covariance(self, theta: Theta, X: Tensor, noise_sd: Tensor | None = None) -> Tensor:
        return add_diagonal(self.kernel(under("kernel", theta), X), self._noise(theta, X, noise_sd))

    def _noise(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        return with_known(self.value(theta, "noise", X)[..., None], noise_sd)

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        full_batch_only(self, X, total, "use the full batch, or SVGP, which takes mini-batches")
        theta = draw(self.sites(X.shape[-1]), X)
        loc = self.value(theta, "mean", X).expand(len(X))
        return pyro.sample(
            "y", GPMarginal(loc, self._covariance(theta, X, known_at(X, self.noise_sd))), obs=y
        )

    def _chunks(
        self, theta: Theta, n: int, m: int, like: Tensor
    ) -> tuple[int, Iterator[tuple[slice, dict[str, Tensor]]]]:
        """How many draws there are; which of them, and theta there, as many at a time as fit into the budget."""
        drawn, params = split_params(self.sites(like.shape[-1]), theta)
        size = max(1, MEMORY_BUDGET // (like.element_size() * (4 * n * n + 4 * n * m)))
        count = number_of_draws(drawn)
        some = [slice(i, min(i + size, count)) for i in range(0, count, size)]
        return count, ((one, {**params, **{k: v[one] for k, v in drawn.items()}}) for one in some)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool
    ) -> tuple[Tensor, Tensor]:
        """Mean [draw, m] and covariance [draw, m, m] (joint) or variance [draw, m] of f at X given the training rows."""
        width = max(1, len(X) if joint else min(len(X), ROWS_AT_ONCE))
        count, chunks = self._chunks(theta, train.n, width, X)
        check_memory_of_predictions(count, len(X), X, joint)
        self.check_memory(train.n, train.d, train.X)
        means, spreads = (
            Assembled(count, len(X)),
            Assembled(count, len(X), (len(X),) if joint else ()),
        )
        for draws, part in chunks:
            hyper = under("kernel", part)
            mean = self.value(part, "mean", X)[..., None]
            L = cholesky(
                self._covariance(part, train.X, train.noise_sd), "covariance of the training rows"
            )
            w = torch.linalg.solve_triangular(L, (train.y - mean).unsqueeze(-1), upper=False)
            for row in range(0, max(1, len(X)), width):
                block = X[row : row + width]
                V = torch.linalg.solve_triangular(
                    L, self.kernel(hyper, train.X, block), upper=False
                )
                means.put(mean + (V.mT @ w).squeeze(-1), draws, row)
                if joint:
                    spreads.put(self.kernel(hyper, block) - V.mT @ V, draws, row)
                else:
                    prior = self.kernel.diag(hyper, block)
                    tiny = torch.finfo(prior.dtype).eps * prior
                    spreads.put(torch.maximum(prior - V.square().sum(-2), tiny), draws, row)
        return means.whole, spreads.whole

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        noise_sd: Tensor | None = None,
    ) -> Distribution:
        mean, spread = self._conditional(theta, X, train, joint)
        noise = self._noise(theta, X, noise_sd)
        if joint:
            return dist.MultivariateNormal(
                mean, scale_tril=cholesky(add_diagonal(spread, noise), "predictive covariance")
            )
        return dist.Normal(
            mean, spread.add_(noise).sqrt_()
        )  # their own, and as large as the answer

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of f at X, without the noise: batch [draw, m]."""
        mean, variance = self._conditional(theta, X, train, False)
        return dist.Normal(mean, variance.sqrt_())

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """At one draw: covariance of y [n, n], y - mean [n], covariance with f at X [n, m], variance of y there [m], mean [m]."""
        one = first_draw(self.sites(X.shape[-1]), theta)
        hyper, mean = under("kernel", one), self.value(one, "mean", X)
        variance = self.kernel.diag(hyper, X) + self._noise(one, X, noise_sd)
        C = self._covariance(one, train.X, train.noise_sd)
        return C, train.y - mean, self.kernel(hyper, train.X, X), variance, mean.expand(len(X))

    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Callable[[Tensor], Tensor]:
        """Functions of the posterior, X [m, d] -> [samples, m], each at a draw of theta at random; see ``pathwise.matheron``."""
        drawn, params = split_params(self.sites(train.d), theta)
        count = number_of_draws(drawn)
        chosen = torch.randint(count, (samples,), generator=generator)
        paths = []
        for i in chosen.unique().tolist():
            one = {**params, **{name: value[i] for name, value in drawn.items()}}
            draw = Draw(int((chosen == i).sum()), features or 0, generator, train.X)
            level, noise = (
                self.value(one, "mean", train.X),
                self._noise(one, train.X, train.noise_sd),
            )
            hyper = under("kernel", one)
            paths.append(
                matheron(self.kernel, hyper, noise, level, train.X, train.y, draw, features is None)
            )
        return lambda X: torch.cat([path(X) for path in paths])

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is Components and not isinstance(self.kernel, Sum):
            got = type(_inner(self.kernel)).__name__
            return NotApplicable("a sum of kernels", got, "add kernels with +, or use latent")
        return None

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """The law of each term of a sum of kernels, batch [draw, m]: mean k_i(X, x)' C^-1 (y - mean), variance k_i(x, x) -
        k_i(X, x)' C^-1 k_i(X, x). Duvenaud (2014), section 2.4.5. The constant mean is in none of them."""
        assert isinstance(self.kernel, Sum)  # see lacks
        found: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for _, part in self._chunks(theta, train.n, len(X), X)[1]:
            mean = self.value(part, "mean", X)[..., None]
            L = cholesky(
                self._covariance(part, train.X, train.noise_sd), "covariance of the training rows"
            )
            w = torch.linalg.solve_triangular(L, (train.y - mean).unsqueeze(-1), upper=False)
            for name, (child, hyper) in zip(
                _labels(self.kernel), self.kernel.parts(under("kernel", part)), strict=True
            ):
                V = torch.linalg.solve_triangular(
                    L, child(hyper, train.X, X).expand(*L.shape[:-1], len(X)), upper=False
                )
                prior = child.diag(hyper, X)
                spread = torch.maximum(
                    prior - V.square().sum(-2), torch.finfo(prior.dtype).eps * prior
                )
                loc = (V.mT @ w).reshape(-1, len(X))
                found.setdefault(name, []).append((loc, spread.expand(len(loc), -1)))
        laws = {
            name: [torch.cat(each) for each in zip(*pieces, strict=True)]
            for name, pieces in found.items()
        }
        return {name: dist.Normal(loc, variance.sqrt()) for name, (loc, variance) in laws.items()}

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """y_i given the other rows, batch [draw, n]: mean y_i - a_i / d_i, variance 1 / d_i, with a = C^-1 (y - mean),
        d = diag C^-1. Rasmussen & Williams (2006), equations 5.10 to 5.12."""
        means, variances = [], []
        for _, part in self._chunks(theta, train.n, train.n, train.X)[1]:
            inverse = torch.cholesky_inverse(
                cholesky(
                    self._covariance(part, train.X, train.noise_sd),
                    "covariance of the training rows",
                )
            )
            residual = train.y - self.value(part, "mean", train.X)[..., None]
            a = (inverse @ residual.unsqueeze(-1)).squeeze(-1)
            d = inverse.diagonal(dim1=-2, dim2=-1)
            means.append((train.y - a / d).reshape(-1, train.n))
            variances.append((1 / d).expand(len(means[-1]), -1))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The likelihood is joint; pointwise it is the leave-one-out density."""
        return {"y": self.loo(theta, data).log_prob(data.y)}


def _labels(kernel: Sum) -> list[str]:
    """``0 RBF``, ``1 Linear``: a child's number is that of its sites."""
    return [f"{i} {type(_inner(child)).__name__}" for i, child in enumerate(kernel.children)]


def _inner(kernel: Kernel) -> Kernel:
    """The kernel as the user wrote it."""
    return kernel.kernel if isinstance(kernel, Unscaled) else kernel
