"""A likelihood from any distribution of PyTorch or Pyro, scored by autograd and quadrature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..distributions import mixture, univariate
from ..distributions.crps import crps, crps_nodes
from ..errors import DataError, NotApplicable, SettingError, counted, listed
from .base import Likelihood, Theta, product_nodes, root
from .latent_average import LatentAverage
from .scored import Scored, log_or_zero

NODES = 64  # of the expectation that is the Fisher information
REACH = 8.0  # the nodes lie at quantiles Phi(t), abs(t) <= REACH
DAMPING = 1e-9  # of the metric, relative to its diagonal
STEP = 1e-3  # of five-point differences of the cdf
ROWS = 4096  # rows whose metric is computed at once
BLOCK = 2**18  # rows times counts whose slopes are computed at once
HERMITE = {1: 20, 2: 20, 3: 10}  # nodes per function in ``expected``
FEWEST = 6  # for more functions


@dataclass(frozen=True)
class FromDistribution(Likelihood, Scored):
    """y ~ build(f), where build returns a distribution of PyTorch or Pyro.

    The gradient of the negative log density is found by autograd, and the Fisher information as
    an expectation over 64 quantiles, or as a sum over counts or classes. The CRPS, its gradient
    and its metric are integrals over quantiles, which continuous distributions have. Duan et al.
    (2020). Predictions average over uncertain functions by quadrature that adapts to the first, of
    which the density may be a narrow function, with one peak; a kink in it leaves two digits.
    The likelihoods with names are faster. Boosting scores it in the units of y, and no
    temperature applies to it.

    A saved posterior holds ``build`` by its name: pass the function to ``load_posterior``.

    Args:
        build: A function of f [*draw, K, n], the functions of x on an unconstrained scale, that
            returns a distribution of batch [*draw, n]. Row i depends on f[..., i] alone.
        parameters: The number K of functions of x.

    Raises:
        SettingError: If ``build`` is not a function, or the number is not 1, 2, 3, ...
        UnknownArgument: If an argument has another name.

    Examples:
        Losses above 1, in the units of y, with a Pareto tail. The maximum of the likelihood is the
        number of rows over the sum of log y:

        >>> import math
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> def tail(f):
        ...     index = f[..., 0, :].exp()
        ...     return torch.distributions.Pareto(torch.ones_like(index), index)
        >>> likelihood = likelihoods.FromDistribution(tail)
        >>> model = models.GLM(likelihood, weight=0.0, bias=priors.Flat())
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [2.0, 4.0, 8.0, 4.0])
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> index = float(posterior.draws_in("data")["bias"].exp())
        >>> round(index, 3), round(4 / (8 * math.log(2)), 3)
        (0.721, 0.721)
    """

    build: Any
    parameters: int = 1
    scales = "X"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.build):
            do = "for example lambda f: Gumbel(f[..., 0, :], f[..., 1, :].exp())"
            raise SettingError("a function as build", repr(self.build), do)
        number: Any = self.parameters
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            got = repr(number)
            raise SettingError("a number of parameters of at least 1", got, "count them")

    @property
    def latents(self) -> int:
        return self.parameters

    def prepare(self, data: Dataset) -> FromDistribution:
        """Return this likelihood.

        Raises:
            SettingError: If ``build`` does not return a distribution of one number per row.
            DataError: If a target is outside its support.
        """
        d: Any = self._at_zero(data)
        shape = getattr(d, "batch_shape", None)
        if shape != (data.n,) or len(d.event_shape):
            got = "something else" if shape is None else f"batch {list(shape)}"
            do = "index the functions as f[..., k, :]"
            raise SettingError(f"a distribution of batch [{data.n}] from build", got, do)
        wrong = torch.nonzero(~d.support.check(data.y).expand(data.n)).flatten().tolist()
        if wrong:
            raise DataError(
                f"targets in the support of {type(d).__name__}",
                f"others in {listed(wrong, 'row')}",
                "choose another distribution, or transform y",
            )
        return self

    def _at_zero(self, data: Dataset) -> Any:
        """Return what ``build`` returns where all functions are 0.

        Raises:
            SettingError: If it reads more functions than there are, or has no such parameters.
        """
        try:
            return self.build(data.y.new_zeros(self.parameters, data.n))
        except IndexError:
            wanted = f"a build that reads {counted(self.parameters, 'function')}"
            do = "pass parameters=, the number of functions f[..., k, :] that it reads"
            raise SettingError(wanted, "one that reads others too", do) from None
        except ValueError as error:
            reason = str(error).partition("\n")[0].partition(", but")[0]
            wanted = "a build with a distribution where all functions are 0"
            do = "map each function to the range of its parameter, for example f[..., 1, :].exp()"
            raise SettingError(wanted, f"ValueError({reason})", do) from None

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return self.build(f if self.parameters > 1 else f[..., None, :])

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        K = self.parameters
        if K == 1:
            return super().expected(theta, mean, variance, y)
        nodes, weights = product_nodes(HERMITE.get(K, FEWEST), K, mean)
        f = mean + root(variance) * nodes.reshape(-1, *(1,) * (mean.ndim - 2), K, 1)
        weights = weights.reshape(-1, *(1,) * (mean.ndim - 1))
        return (self.build(f).log_prob(y) * weights).sum(0)

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        if self.parameters == 1:
            mean, variance = mean[..., None, :], variance[..., None, :]
        none = mean.new_zeros(*mean.shape[:-2], mean.shape[-1], 0)
        return LatentAverage(mean.mT, root(variance).mT, none, self)

    # -- what LatentAverage asks for ------------------------------------------------------------

    integrates_f = False

    def at_nodes(self, f: Tensor, given: Tensor) -> Mapping[str, Tensor]:
        """Return the functions after the first, [..., K - 1]."""
        return {"others": f}

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        others = p["others"].expand(*f.shape, p["others"].shape[-1])
        return self.build(torch.cat([f[..., None], others], -1).mT)

    # -- scores ---------------------------------------------------------------------------------

    def _coordinates(self) -> tuple[int, ...]:
        return tuple(range(self.parameters))

    def _check(self, f: Tensor, kind: str, right_censored: Tensor | None = None) -> None:
        super()._check(f, kind, right_censored)
        if kind == "crps" and univariate.is_discrete(self.build(f[..., :1])):
            raise NotApplicable("a continuous distribution for 'crps'", "counts", "use 'nll'")

    def score(self, theta: Theta, f: Tensor, y: Tensor, kind: str = "nll", **flags: Any) -> Tensor:
        self._check(f, kind, **flags)
        if kind == "nll":
            return -self.build(f).log_prob(y)
        rows, targets = _as_rows(f, y)
        return crps(self.build(rows[None]), targets).reshape(f.shape[:-2] + y.shape)

    def gradient(
        self, theta: Theta, f: Tensor, y: Tensor, kind: str = "nll", **flags: Any
    ) -> Tensor:
        self._check(f, kind, **flags)
        if kind == "nll":
            return self._slopes_of_nll(f, y)
        rows, targets = _as_rows(f, y)
        x, weights, above = crps_nodes(self.build(rows[None]), targets)
        excess = self._cdf(rows, x) - above
        slopes = torch.stack([(2 * weights * excess * s).sum(0) for s in self._cdf_slopes(rows, x)])
        return slopes.reshape(len(rows), *f.shape[:-2], f.shape[-1]).movedim(0, -2)

    def slopes(self, theta: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives of the row log density by each function, found by autograd."""
        self._check(f, "nll")
        with torch.enable_grad():
            at = f.detach().clone().requires_grad_()
            total = self.build(at).log_prob(y).sum()
            (first,) = torch.autograd.grad(total, at, create_graph=True)
            second = torch.zeros_like(at)
            for k in range(f.shape[-2] if first.requires_grad else 0):
                row = torch.autograd.grad(first[..., k, :].sum(), at, retain_graph=True)[0]
                second[..., k, :] = row[..., k, :]
        return first.detach(), second.detach()

    def metric(self, theta: Theta, f: Tensor, kind: str = "nll") -> Tensor:
        self._check(f, kind)
        rows = _as_rows(f, f[..., 0, :])[0]
        of = self._fisher if kind == "nll" else self._metric_of_crps
        found = torch.cat([of(part) for part in rows.split(ROWS, -1)])
        return found.reshape(*f.shape[:-2], f.shape[-1], *found.shape[1:])

    def natural(
        self, theta: Theta, f: Tensor, y: Tensor, kind: str = "nll", **flags: Any
    ) -> Tensor:
        """Return metric^-1 gradient, [*draw, K, n], with a metric damped by 1e-9 of itself."""
        gradient = self.gradient(theta, f, y, kind, **flags)
        metric = self.metric(theta, f, kind)
        diagonal = metric.diagonal(dim1=-2, dim2=-1)
        floor = torch.finfo(metric.dtype).tiny
        damped = metric + torch.diag_embed(DAMPING * diagonal + floor)
        return torch.linalg.solve(damped, gradient.mT).mT

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        """Return the best of some constants that location-scale families begin at."""
        spread, zeros = log_or_zero(float(y.std())), [0.0] * self.parameters
        starts = [zeros, [float(y.mean()), spread], [log_or_zero(float(y.mean()))]]
        starts = [(start + zeros)[: self.parameters] for start in starts]

        def total(start: list[float]) -> float:
            f = y.new_tensor(start)[:, None].expand(-1, len(y))
            value = float(self.score({}, f, y).mean())
            return value if np.isfinite(value) else float("inf")

        return tuple(min(starts, key=total))

    def _slopes_of_nll(self, f: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            at = f.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad(-self.build(at).log_prob(y).sum(), at)
        return slope

    def _fisher(self, f: Tensor) -> Tensor:
        """Return E[gradient gradient'], [n, K, K], for f [K, n]."""
        if univariate.is_discrete(self.build(f[:, :1])):
            return self._fisher_of_counts(f)
        p, weights = _quantile_nodes()
        count, (K, n) = len(p), f.shape
        wide = f[:, None].expand(K, count, n).reshape(K, -1)
        shares = torch.as_tensor(p).to(f)[:, None].expand(count, n).reshape(-1)
        shares = shares.clamp(torch.finfo(f.dtype).tiny, 1 - torch.finfo(f.dtype).eps / 2)
        d = self.build(wide)
        y = univariate.icdf(d, shares)
        if y is None:
            y = mixture.quantile(self.build(wide[None]), shares)
        g = self._slopes_of_nll(wide, univariate.inside(d, y.detach(), open_above=True)).reshape(
            K, count, n
        )
        return torch.einsum("c,icn,jcn->nij", torch.as_tensor(weights).to(f), g, g)

    def _fisher_of_counts(self, f: Tensor) -> Tensor:
        """Return E[gradient gradient'] as a sum over counts or classes, [n, K, K]."""
        K, n = f.shape
        low, high = self._reach(f)
        size = max(1, BLOCK // n)
        wide = f[:, None].expand(K, size, n).reshape(K, -1)
        total = f.new_zeros(n, K, K)
        for first in range(0, int((high - low).max()) + 1, size):
            steps = torch.arange(first, first + size, dtype=f.dtype, device=f.device)
            counts = low + steps[:, None]
            y = torch.minimum(counts, high).reshape(-1)
            with torch.no_grad():
                mass = self.build(wide).log_prob(y).exp().reshape(size, n)
            g = self._slopes_of_nll(wide, y).reshape(K, size, n)
            total += torch.einsum("cn,icn,jcn->nij", mass * (counts <= high), g, g)
        return total

    def _reach(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least and the largest count per row, [n], beyond which is no mass."""
        d = self.build(f[None])
        if univariate.is_classes(d):
            zero = torch.zeros_like(f[0])
            return zero, zero + univariate.probabilities(d).shape[-1] - 1
        tail = torch.finfo(f.dtype).eps ** 0.75
        return mixture.quantile(d, tail), mixture.quantile(d, 1 - tail)

    def _metric_of_crps(self, f: Tensor) -> Tensor:
        """Return 2 integral (dF/df_i)(dF/df_j) dz, [n, K, K], for f [K, n]."""
        d = self.build(f[None])
        x, weights, _ = crps_nodes(d, mixture.quantile(d, 0.5))
        slopes = self._cdf_slopes(f, x)
        return torch.einsum("cn,icn,jcn->nij", 2 * weights, slopes, slopes)

    def _cdf(self, f: Tensor, x: Tensor) -> Tensor:
        """Return the cdf at nodes x [count, n] where the functions are f [K, n]."""
        with torch.no_grad():
            return univariate.cdf(self.build(f[None].expand(len(x), -1, -1)), x)

    def _cdf_slopes(self, f: Tensor, x: Tensor) -> Tensor:
        """Return the derivatives of the cdf with respect to f, [K, count, n].

        They are five-point differences.
        """
        slopes = []
        for k in range(len(f)):
            step = torch.zeros_like(f)
            step[k] = STEP
            near = self._cdf(f + step, x) - self._cdf(f - step, x)
            far = self._cdf(f + 2 * step, x) - self._cdf(f - 2 * step, x)
            slopes.append((8 * near - far) / (12 * STEP))
        return torch.stack(slopes)


def _as_rows(f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return f [*draw, K, n] and y [n] with draws as further rows: [K, rows] and [rows]."""
    rows = f.movedim(-2, 0).reshape(f.shape[-2], -1)
    return rows, y.expand(f.shape[:-2] + f.shape[-1:]).reshape(-1)


@lru_cache(maxsize=1)
def _quantile_nodes() -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities Phi(t) at Gauss-Legendre nodes t, and their weights.

    Equal steps of probability would miss the tails, where gradients are largest.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t = REACH * nodes
    density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    p = torch.special.ndtr(torch.from_numpy(t)).numpy()
    return p, REACH * weights * density
