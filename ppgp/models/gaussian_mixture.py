"""A Bayesian mixture of normal laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import DataError, NotApplicable, SettingError
from ..numerics.cholesky import LOG_2PI
from ..numerics.distributions import NormalMixture
from ..numerics.libraries import unchanged
from ..numerics.process_locks import silenced
from ..priors import (
    Dirichlet,
    InverseGamma,
    Normal,
    Prior,
    PriorLike,
    Site,
    bare,
    moved,
    single,
    site,
)
from ..target.capabilities import ClosedForm, FullConditionals
from .base import Model
from .sites import Theta
from .units import power, times

MOST_ASSIGNMENTS = 1_000_000  # of rows to components, for the exact posterior
NODES = 2001  # of the trapezoid rule in the log variance
MOST_RENAMED = 6  # components, for a start that tries all their orders
WIDTH = 25.0  # the log variance is integrated over this much on either side of the data's


@dataclass(frozen=True, repr=False)
class GaussianMixture(Model, ClosedForm, FullConditionals):
    """y_i ~ sum_k proportion_k N(mean_k, variance_k), the assignments summed out; X is not used. Bishop (2006), section 10.2.

    With ``variance=1.0`` and equal proportions it is the mixture of Blei, Kucukelbir & McAuliffe (2017), section 2.1.
    The posterior is the same under every renaming of the components; draws are reported with the components in the order of
    their means. Where a tuple tells the components apart, they stay in the order in which it names them.

    Args:
        components: K, at least 2.
        mean: prior of each mean, or numbers.
        variance: prior of each variance, one number for all, or one for each.
        concentration: of the symmetric Dirichlet prior of the proportions.
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
        mean = moved(self.mean, 1 / y_sd, -y_mean / y_sd, "the means")
        return replace(
            self, mean=mean, variance=moved(self.variance, power(y_sd, -2), what="variance")
        )

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        found = times(draws, {"proportion": 1.0, "variance": power(float(scaler.y_sd), 2)})
        return (
            found | {"mean": scaler.y_mean + scaler.y_sd * draws["mean"]}
            if "mean" in draws
            else found
        )

    def prepare(self, data: Dataset) -> GaussianMixture:
        """Raises DataError where there are fewer rows than components."""
        if data.n < self.components:
            raise DataError(
                f"at least {self.components} rows for {self.components} components",
                str(data.n),
                "use fewer components",
            )
        return self

    def _mixture(self, theta: Theta, like: Tensor) -> NormalMixture:
        """Batch [*draw]."""
        mean, variance = self.value(theta, "mean", like), self.value(theta, "variance", like)
        return NormalMixture(theta["proportion"], mean, variance.sqrt(), validate_args=False)

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        one = self._mixture(theta, X)
        parts = (x[..., None, :] for x in (one.proportion, one.loc, one.scale))
        return NormalMixture(*parts, validate_args=False).expand((*one.batch_shape, len(X)))

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Where fits begin: expectation-maximisation from k-means (scikit-learn's), as all means equal would be a saddle."""
        with unchanged():
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.mixture import GaussianMixture as EM

        y = data.y.double().cpu().numpy()[:, None]
        with silenced(ConvergenceWarning):
            fitted: Any = EM(
                self.components, reg_covar=1e-3 * float(y.var()) + 1e-12, random_state=0
            ).fit(y)
        order = fitted.means_[:, 0].argsort()
        values = {
            "proportion": 0.95 * fitted.weights_[order] + 0.05 / self.components,
            "mean": fitted.means_[order, 0],
            "variance": fitted.covariances_[order, 0, 0],
        }
        free = {name: s for name, s in self.sites(data.d).items() if not s.fixed}
        begun = {name: torch.as_tensor(values[name]).to(data.y) for name in free}
        if not self._told_apart or self.components > MOST_RENAMED:
            return begun

        def density(theta: dict[str, Tensor]) -> float:
            prior = sum(
                float(s.distribution(data.y).log_prob(theta[name])) for name, s in free.items()
            )
            return prior + float(self._mixture(theta, data.y).log_prob(data.y).sum())

        orders = itertools.permutations(range(self.components))
        return max(
            ({name: v[list(order)] for name, v in begun.items()} for order in orders), key=density
        )

    @property
    def _told_apart(self) -> bool:
        """Whether a tuple gives each component a number or a prior of its own."""
        given = [bare(p) for p in (self.mean, self.variance)]
        written = [v for p in given for v in (vars(p).values() if isinstance(p, Prior) else (p,))]
        return any(isinstance(v, tuple) for v in written)

    def relabel(self, draws: dict[str, Tensor]) -> tuple[dict[str, Tensor], str | None]:
        """Components by increasing mean in every draw, unless they are told apart; a sentence where the order changed within a chain."""
        if "mean" not in draws or self._told_apart:
            return draws, None
        order = draws["mean"].argsort(-1)
        code = (order * self.components ** torch.arange(self.components)).sum(-1)  # [chain, draw]
        usual = code.mode(-1).values[:, None]
        switched = float((code != usual).double().mean())
        K = draws["mean"].shape[-1]
        sorted_draws = {
            name: v.gather(-1, order) if v.shape[-1:] == (K,) and v.ndim == 3 else v
            for name, v in draws.items()
        }
        if not switched:
            return sorted_draws, None
        return sorted_draws, (
            f"labels switched: in {switched:.1%} of the draws the components stood in another order than in most of their "
            "chain; all are reported by increasing mean, which means little where components overlap"
        )

    def responsibilities(self, theta: Theta, y: Tensor) -> Tensor:
        """p(row i belongs to component k), averaged over the draws: [n, K]."""
        one = self._mixture(theta, y)
        return torch.softmax(
            one.expand((1, *one.batch_shape)).component_log_prob(y[:, None]), -1
        ).mean(1)

    # -- conditionals --------------------------------------------------------------------------------------------

    def _conjugate(self, what: str) -> tuple[Normal, InverseGamma | None]:
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
        """(theta [chain, *event], generator) -> theta: assignments, proportions, means and variances in turn.

        Raises:
            NotApplicable: unless mean is Normal, and variance InverseGamma or a number.
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
            u = torch.rand(cumulative.shape[:-1], generator=generator, dtype=torch.float64).to(y)
            k = (u[..., None] > cumulative[..., :-1]).sum(-1)
            member = torch.nn.functional.one_hot(k, K).to(y)  # [chain, n, K]
            count = member.sum(1)
            g = gamma(self.concentration + count, generator).clamp_min(torch.finfo(y.dtype).tiny)
            new = {"proportion": g / g.sum(-1, keepdim=True)}
            precision = count / variance + sd_of_prior**-2
            centre = (
                torch.einsum("cnk,n->ck", member, y) / variance + centre_of_prior * sd_of_prior**-2
            ) / precision
            e = torch.randn(centre.shape, generator=generator, dtype=torch.float64).to(y)
            new["mean"] = centre + e / precision.sqrt()
            if spread is not None:
                squares = (member * (y[None, :, None] - new["mean"][:, None]).square()).sum(1)
                new["variance"] = (single(spread.rate) + 0.5 * squares) / gamma(
                    single(spread.shape) + 0.5 * count, generator
                )
            return new

        return sweep

    # -- by enumeration ------------------------------------------------------------------------------------------

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draws, no params, and the log evidence, by summing over all K^n assignments: an oracle for a handful of rows.

        Raises:
            NotApplicable: if there are more than a million assignments, or the priors are not conjugate.
        """
        prior, spread = self._conjugate("Exact")
        centre_of_prior, sd_of_prior = single(prior.loc), single(prior.scale)
        y, K, n = train.y, self.components, train.n
        if K**n > MOST_ASSIGNMENTS:
            raise NotApplicable(
                f"at most {MOST_ASSIGNMENTS} assignments of rows to components",
                f"{K}^{n}",
                "use Gibbs or NUTS",
            )
        member = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).to(
            y
        )  # every subset of the rows
        count, total, square = member.sum(1), member @ y, member @ y.square()
        if spread is None:
            usual = single(cast(float, self.variance))
        else:
            usual = cast(float, spread.rate) / (cast(float, spread.shape) + 1) + float(y.var())
        centre = math.log(usual)
        reach = (
            torch.zeros(1, dtype=y.dtype)
            if spread is None
            else torch.linspace(-WIDTH, WIDTH, NODES, dtype=y.dtype)
        )
        grid = (centre + reach).to(y)
        v = grid.exp()
        about = (
            square - 2 * centre_of_prior * total + count * centre_of_prior**2
        )  # squares about the prior mean
        pull = (
            (total - count * centre_of_prior)[:, None].square()
            * sd_of_prior**2
            / (v * (v + count[:, None] * sd_of_prior**2))
        )
        log_m = -0.5 * (
            count[:, None] * (LOG_2PI + grid)
            + torch.log1p(count[:, None] * sd_of_prior**2 / v)
            + about[:, None] / v
            - pull
        )
        if spread is not None:
            log_m = (
                log_m
                + spread.distribution(y).log_prob(v)
                + grid
                + math.log(float(grid[1] - grid[0]))
            )
        subset = torch.logsumexp(log_m, 1)
        assignments = torch.tensor(list(itertools.product(range(K), repeat=n)))
        total_weight = math.lgamma(K * self.concentration) - math.lgamma(K * self.concentration + n)
        log_w = torch.full((len(assignments),), total_weight, dtype=y.dtype, device=y.device)
        codes = []
        for k in range(K):
            code = ((assignments == k).long() << torch.arange(n)).sum(1)
            size = (assignments == k).sum(1).to(y)
            log_w += (
                subset[code]
                + torch.lgamma(size + self.concentration)
                - math.lgamma(self.concentration)
            )
            codes.append(code)
        picked = torch.multinomial(
            torch.softmax(log_w.double(), 0), draws, replacement=True, generator=generator
        )
        out: dict[str, Tensor] = {
            "proportion": torch.empty(draws, K).to(y),
            "mean": torch.empty(draws, K).to(y),
        }
        variance = torch.empty(draws, K).to(y)
        for k in range(K):
            code = codes[k][picked]
            node = torch.multinomial(
                torch.softmax(log_m[code].double(), 1), 1, generator=generator
            )[:, 0]
            variance[:, k] = v[node]
            precision = count[code] / v[node] + sd_of_prior**-2
            e = torch.randn(draws, generator=generator, dtype=torch.float64).to(y)
            out["mean"][:, k] = (
                total[code] / v[node] + centre_of_prior * sd_of_prior**-2
            ) / precision + e / precision.sqrt()
            out["proportion"][:, k] = torch._standard_gamma(
                (count[code] + self.concentration).double(), generator=generator
            ).to(y)
        out["proportion"] = out["proportion"] / out["proportion"].sum(-1, keepdim=True)
        if spread is not None:
            out["variance"] = variance
        return out, {}, float(torch.logsumexp(log_w, 0))
