"""A Bayesian mixture of normal distributions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..capabilities import ClosedForm, FullConditionals
from ..data.dataset import Dataset, Scaler
from ..distributions.distributions import NormalMixture
from ..errors import DataError, NotApplicable, SettingError
from ..numerics.cholesky import LOG_2PI
from ..priors import (
    Dirichlet,
    InverseGamma,
    Normal,
    Prior,
    PriorLike,
    Site,
    bare,
    rescaled,
    single,
    site,
)
from ..runtime.libraries import settings_unchanged
from ..runtime.process_locks import silenced
from ..runtime.seeding import standard_normal, standard_uniform
from .base import Model
from .sites import Theta
from .units import power, times

MOST_ASSIGNMENTS = 1_000_000  # the most assignments of rows that the exact posterior sums over
NODES = 2001  # nodes of the trapezoid rule in the log variance
MOST_ORDERED = 6  # the most components for which ``start`` tries every order
WIDTH = 25.0  # the log variance is integrated this far on either side of a typical one


@dataclass(frozen=True, repr=False)
class GaussianMixture(Model, ClosedForm, FullConditionals):
    """Gaussian mixture: y_i ~ sum_k proportion_k N(mean_k, variance_k).

    Bishop (2006), section 10.2. The assignments of rows to components are summed out, and X is not
    used. With ``variance=1.0`` and equal proportions it is the mixture of Blei, Kucukelbir &
    McAuliffe (2017), section 2.1. The posterior does not change if the components are renamed, so
    draws are reported with the components in the order of their means. Components that a tuple
    distinguishes stay in the order of the tuple.

    The sites are ``proportion`` [K] (probabilities that sum to 1), ``mean`` [K] (in the units of y)
    and ``variance`` [K] (in their square).

    Args:
        components: K, the number of components, at least 2.
        mean: Prior of each mean, or numbers.
        variance: Prior of each variance, or one number for all, or one number per component.
        concentration: Concentration of the symmetric Dirichlet prior of the proportions.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: For fewer than 2 components, or a negative variance; from ``fit``, for a
            concentration that is not positive, or another number of means or variances than K.
        DataError: From ``fit``, if there are fewer rows than components.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> offsets = torch.linspace(-0.3, 0.3, 10, dtype=torch.float64)
        >>> y = torch.cat([offsets + 5, offsets + 5, offsets - 2])  # 20 rows at 5, and 10 at -2
        >>> data = ppgp.Dataset(torch.zeros(30, 1).double(), y)
        >>> posterior = ppgp.fit(models.GaussianMixture(2), data, inference.MAP(), progress=False)
        >>> mode = posterior.draws_in("data")
        >>> mode["mean"][0, 0].numpy().round()  # in the units of y, in increasing order
        array([-2.,  5.])
        >>> mode["proportion"][0, 0].numpy().round(2)
        array([0.33, 0.67])
    """

    components: int = 2
    mean: PriorLike = Normal(0.0, 1.0)
    variance: PriorLike = InverseGamma(3.0, 1.0)
    concentration: float = 1.0
    standardised: bool = field(default=False, kw_only=True)
    scales = "y"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            isinstance(self.components, bool)
            or not isinstance(self.components, int)
            or self.components < 2
        ):
            raise SettingError(
                "at least 2 components in GaussianMixture",
                repr(self.components),
                "pass components=2",
            )

    def sites(self, d: int) -> dict[str, Site]:
        K = (self.components,)
        return {
            "proportion": site("proportion", Dirichlet(self.concentration), K),
            "mean": site("mean", self.mean, K),
            "variance": site("variance", self.variance, K, positive=True),
        }

    def in_units(self, scaler: Scaler) -> GaussianMixture:
        y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
        mean = rescaled(self.mean, 1 / y_sd, -y_mean / y_sd, "the means")
        variance = rescaled(self.variance, power(y_sd, -2), what="variance")
        return replace(self, mean=mean, variance=variance)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        converted = times(draws, {"proportion": 1.0, "variance": power(float(scaler.y_sd), 2)})
        if "mean" in draws:
            converted["mean"] = scaler.y_mean + scaler.y_sd * draws["mean"]
        return converted

    def prepare(self, data: Dataset) -> GaussianMixture:
        """Return this recipe.

        Raises:
            DataError: If there are fewer rows than components.
        """
        if data.n < self.components:
            raise DataError(
                f"at least {self.components} rows for {self.components} components",
                str(data.n),
                "use fewer components",
            )
        return self

    def _mixture(self, theta: Theta, like: Tensor) -> NormalMixture:
        """Return the mixture of one row, batch [*draw]."""
        mean, variance = self.value(theta, "mean", like), self.value(theta, "variance", like)
        return NormalMixture(theta["proportion"], mean, variance.sqrt(), validate_args=False)

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        one = self._mixture(theta, X)
        parts = (x[..., None, :] for x in (one.proportion, one.loc, one.scale))
        return NormalMixture(*parts, validate_args=False).expand((*one.batch_shape, len(X)))

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return starting values: expectation-maximisation (scikit-learn's) from k-means.

        Equal means would be a saddle point. Components that a tuple distinguishes start in the
        order of the highest density.
        """
        estimates = self._expectation_maximisation(data)
        free = {name: s for name, s in self.sites(data.d).items() if not s.fixed}
        start = {name: torch.as_tensor(estimates[name]).to(data.y) for name in free}
        if not self._distinguished or self.components > MOST_ORDERED:
            return start

        def density(theta: dict[str, Tensor]) -> float:
            prior = sum(
                float(s.distribution(data.y).log_prob(theta[name])) for name, s in free.items()
            )
            return prior + float(self._mixture(theta, data.y).log_prob(data.y).sum())

        orders = itertools.permutations(range(self.components))
        candidates = ({name: v[list(order)] for name, v in start.items()} for order in orders)
        return max(candidates, key=density)

    def _expectation_maximisation(self, data: Dataset) -> dict[str, Any]:
        """Return {site: estimate [K]} with the components by increasing mean."""
        with settings_unchanged():
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.mixture import GaussianMixture as EM

        y = data.y.double().cpu().numpy()[:, None]
        least_variance = 1e-3 * float(y.var()) + 1e-12
        with silenced(ConvergenceWarning):
            fitted: Any = EM(self.components, reg_covar=least_variance, random_state=0).fit(y)
        order = fitted.means_[:, 0].argsort()
        return {
            "proportion": 0.95 * fitted.weights_[order] + 0.05 / self.components,
            "mean": fitted.means_[order, 0],
            "variance": fitted.covariances_[order, 0, 0],
        }

    @property
    def _distinguished(self) -> bool:
        """Whether a tuple gives each component its own number or prior."""
        values = []
        for prior in (bare(self.mean), bare(self.variance)):
            values += vars(prior).values() if isinstance(prior, Prior) else [prior]
        return any(isinstance(v, tuple) for v in values)

    def relabel(self, draws: dict[str, Tensor]) -> tuple[dict[str, Tensor], str | None]:
        """Sort the components of every draw by increasing mean, unless a tuple distinguishes them.

        There is a warning if the order changed within a chain.
        """
        if "mean" not in draws or self._distinguished:
            return draws, None
        order = draws["mean"].argsort(-1)
        powers = self.components ** torch.arange(self.components, device=order.device)
        code = (order * powers).sum(-1)  # [chain, draw]
        usual = code.mode(-1).values[:, None]
        switched = float((code != usual).double().mean())
        K = draws["mean"].shape[-1]
        sorted_draws = dict(draws)
        for name, v in draws.items():
            if v.ndim == 3 and v.shape[-1] == K:
                sorted_draws[name] = v.gather(-1, order)
        if not switched:
            return sorted_draws, None
        return sorted_draws, (
            f"labels switched: in {switched:.1%} of the draws the components stood in another "
            "order than in most of their chain; all are reported by increasing mean, which means "
            "little where components overlap"
        )

    def responsibilities(self, theta: Theta, y: Tensor) -> Tensor:
        """Return p(row i belongs to component k), averaged over the draws: [n, K].

        Args:
            theta: {site: [draw, *event]}.
            y: Targets [n].
        """
        one = self._mixture(theta, y)
        log_prob = one.expand((1, *one.batch_shape)).component_log_prob(y[:, None])
        return torch.softmax(log_prob, -1).mean(1)

    # -- full conditionals ----------------------------------------------------------

    def _conjugate(self, what: str) -> tuple[Normal, InverseGamma | None]:
        """Return the conjugate priors of the means and the variances; None for fixed variances.

        Raises:
            NotApplicable: If the priors are not conjugate; ``what`` names the method that needs it.
        """
        if not isinstance(self.mean, Normal):
            raise NotApplicable(
                f"a Normal prior on mean for {what}", repr(self.mean), "use that, or NUTS"
            )
        if isinstance(self.variance, Prior) and not isinstance(self.variance, InverseGamma):
            raise NotApplicable(
                f"an InverseGamma prior on variance for {what}",
                repr(self.variance),
                "use that, or NUTS",
            )
        return self.mean, self.variance if isinstance(self.variance, InverseGamma) else None

    def gibbs(self, train: Dataset) -> Callable[[Theta, torch.Generator], dict[str, Tensor]]:
        """Return a Gibbs sweep: assignments, proportions, means and variances in turn.

        Raises:
            NotApplicable: Unless mean is Normal, and variance InverseGamma or a number.
        """
        prior, spread = self._conjugate("Gibbs")
        centre_of_prior, sd_of_prior = single(prior.loc), single(prior.scale)
        y, K = train.y, self.components

        def gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
            return torch._standard_gamma(shape.double().cpu(), generator=generator).to(y)

        def sweep(theta: Theta, generator: torch.Generator) -> dict[str, Tensor]:
            p = theta["proportion"]
            variance = self.value(theta, "variance", y).expand(p.shape)
            log_p = NormalMixture(
                p[:, None], theta["mean"][:, None], variance.sqrt()[:, None], validate_args=False
            ).component_log_prob(y.expand(len(p), -1))
            cumulative = torch.softmax(log_p, -1).cumsum(-1)
            u = standard_uniform(generator, *cumulative.shape[:-1]).to(y)
            k = (u[..., None] > cumulative[..., :-1]).sum(-1)
            member = torch.nn.functional.one_hot(k, K).to(y)  # [chain, n, K]
            count = member.sum(1)
            g = gamma(self.concentration + count, generator).clamp_min(torch.finfo(y.dtype).tiny)
            new = {"proportion": g / g.sum(-1, keepdim=True)}
            precision = count / variance + sd_of_prior**-2
            total = torch.einsum("cnk,n->ck", member, y)
            centre = (total / variance + centre_of_prior * sd_of_prior**-2) / precision
            e = standard_normal(generator, *centre.shape).to(y)
            new["mean"] = centre + e / precision.sqrt()
            if spread is not None:
                squares = (member * (y[None, :, None] - new["mean"][:, None]).square()).sum(1)
                rate = single(spread.rate) + 0.5 * squares
                new["variance"] = rate / gamma(single(spread.shape) + 0.5 * count, generator)
            return new

        return sweep

    # -- the exact posterior --------------------------------------------------------

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draw from the exact posterior, a sum over all K^n assignments of rows to components.

        It is a reference for a handful of rows, and has no params.

        Raises:
            NotApplicable: For more than a million assignments, or priors that are not conjugate.
        """
        prior, spread = self._conjugate("Exact")
        y, K, n = train.y, self.components, train.n
        if K**n > MOST_ASSIGNMENTS:
            raise NotApplicable(
                f"at most {MOST_ASSIGNMENTS} assignments of rows to components",
                f"{K}^{n}",
                "use Gibbs or NUTS",
            )
        member = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).to(y)  # all subsets of rows
        count, total = member.sum(1), member @ y
        log_variance = self._grid(spread, y)
        log_m = _log_marginals(member, y, prior, spread, log_variance)
        log_w, codes = self._log_weights(torch.logsumexp(log_m, 1), n)
        weights = torch.softmax(log_w.double(), 0).cpu()  # the device of the generator
        picked = torch.multinomial(weights, draws, replacement=True, generator=generator)
        out: dict[str, Tensor] = {
            "proportion": torch.empty(draws, K).to(y),
            "mean": torch.empty(draws, K).to(y),
        }
        variance = torch.empty(draws, K).to(y)
        v = log_variance.exp()
        centre_of_prior, precision_of_prior = single(prior.loc), single(prior.scale) ** -2
        for k in range(K):
            code = codes[k][picked]
            weights = torch.softmax(log_m[code].double(), 1).cpu()
            node = torch.multinomial(weights, 1, generator=generator)[:, 0]
            variance[:, k] = v[node]
            precision = count[code] / v[node] + precision_of_prior
            e = standard_normal(generator, draws).to(y)
            centre = (total[code] / v[node] + centre_of_prior * precision_of_prior) / precision
            out["mean"][:, k] = centre + e / precision.sqrt()
            shape = (count[code] + self.concentration).double().cpu()
            out["proportion"][:, k] = torch._standard_gamma(shape, generator=generator).to(y)
        out["proportion"] = out["proportion"] / out["proportion"].sum(-1, keepdim=True)
        if spread is not None:
            out["variance"] = variance
        return out, {}, float(torch.logsumexp(log_w, 0))

    def _grid(self, spread: InverseGamma | None, y: Tensor) -> Tensor:
        """Return the log variances to integrate over; one of them if the variance is fixed."""
        if spread is None:
            typical = single(cast(float, self.variance))
            reach = torch.zeros(1, dtype=y.dtype)
        else:
            typical = cast(float, spread.rate) / (cast(float, spread.shape) + 1) + float(y.var())
            reach = torch.linspace(-WIDTH, WIDTH, NODES, dtype=y.dtype)
        return (math.log(typical) + reach).to(y)

    def _log_weights(self, subset: Tensor, n: int) -> tuple[Tensor, list[Tensor]]:
        """Return the log joint density of y and each assignment, [K^n].

        Args:
            subset: Log marginal likelihood of each subset of the rows as one component, [2^n].
            n: Number of rows.

        Returns:
            The log densities, and for each component the index of its subset of rows, [K^n].
        """
        K, a = self.components, self.concentration
        assignments = torch.tensor(list(itertools.product(range(K), repeat=n)))
        constant = math.lgamma(K * a) - math.lgamma(K * a + n)
        log_w = torch.full((len(assignments),), constant, dtype=subset.dtype, device=subset.device)
        codes = []
        for k in range(K):
            code = ((assignments == k).long() << torch.arange(n)).sum(1)
            size = (assignments == k).sum(1).to(subset)
            log_w += subset[code] + torch.lgamma(size + a) - math.lgamma(a)
            codes.append(code)
        return log_w, codes


def _log_marginals(
    member: Tensor, y: Tensor, prior: Normal, spread: InverseGamma | None, log_variance: Tensor
) -> Tensor:
    """Return the log marginal likelihood of each subset of the rows as one component.

    The mean of the component is integrated out.

    Args:
        member: Which rows are in each subset, [2^n, n] of 0 and 1.
        y: Targets [n].
        prior: Prior of the mean.
        spread: Prior of the variance, which is then included with the width of the grid; or None.
        log_variance: The grid of log variances, [nodes].

    Returns:
        [2^n, nodes].
    """
    count, total, square = member.sum(1), member @ y, member @ y.square()
    centre, prior_variance = single(prior.loc), single(prior.scale) ** 2
    v = log_variance.exp()
    squares_about_centre = square - 2 * centre * total + count * centre**2
    explained = (
        (total - count * centre)[:, None].square()
        * prior_variance
        / (v * (v + count[:, None] * prior_variance))
    )
    log_m = -0.5 * (
        count[:, None] * (LOG_2PI + log_variance)
        + torch.log1p(count[:, None] * prior_variance / v)
        + squares_about_centre[:, None] / v
        - explained
    )
    if spread is None:
        return log_m
    step = math.log(float(log_variance[1] - log_variance[0]))
    return log_m + spread.distribution(y).log_prob(v) + log_variance + step
