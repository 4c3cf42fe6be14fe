"""Generalised linear models whose coefficients vary between groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ...capabilities import (
    Capability,
    GeneralisedLinear,
    GroupEffects,
    LeaveOneOut,
    LinearCoefficients,
)
from ...data.dataset import Dataset, Scaler
from ...data.roles import columns_given
from ...display.overrides import computed
from ...errors import NotApplicable, SettingError, UnknownName
from ...likelihoods import Categorical, Gaussian
from ...likelihoods.joint_rows import LatentMarginal
from ...numerics.cholesky import add_diagonal
from ...priors import Normal, Site, site, value_of
from ...runtime.seeding import standard_normal
from ..advice.memory_checks import check_memory_of_predictions
from ..base import mini_batch
from ..independent_rows import observed
from ..noise import with_noise
from ..sites import Theta, draw, number_of_draws, one_by_one
from ..units import times
from .glm import GLM, with_signature
from .grouped_effects import Blocks, EffectsGivenRows, effects_given_rows
from .joint_slopes import has_joint_slopes
from .multilevel_rows import GroupedRows, rows_of
from .varying import (
    Grouping,
    Units,
    Varying,
    blocks_of,
    by_grouping,
    groupings_of,
    groups_of_one,
    of_unknown,
    refuse_unknown,
    sds_of_blocks,
)

__all__ = ["Multilevel"]

TREATMENTS = ("integrated", "sampled")
WHITE = Normal(0.0, 1.0)
DRAWN_AT_ONCE = 500_000  # rows times draws
NO_POOLING = 30.0  # times the sd of the groups, beyond which the prior of u counts for nothing
Columns = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Multilevel(GLM, GroupEffects, LeaveOneOut):
    """Generalised linear model with coefficients that vary between groups of rows.

    ``GLM(likelihood, groups={"county": Varying("1 + floor")})`` makes it: eta = X weight + bias +
    offset + sum over the groupings of z' u_g, with u_g ~ N(0, sd^2). Gelman & Hill (2007). The
    sds are the sites ``county.sd`` [q]. ``Posterior.effects`` draws u. A group that the training
    rows do not have has coefficients drawn from N(0, sd^2).

    With "integrated", u is integrated out given the other sites. With Gaussian noise of one
    variance this is exact: y ~ N(X weight + bias, noise + Z S^2 Z'), by Woodbury's identity,
    O(n q^2) time for one grouping. For other likelihoods it is Laplace's approximation, as in lme4;
    Bates et al. (2015).

    With "sampled", u = sd e, and e is the site ``county.effect`` [K, q]: nothing is approximated.

    Args:
        likelihood: As in GLM, but not Categorical. With "integrated", of one function of x and with
            slopes by formula.
        weight: As in GLM.
        bias: As in GLM.
        groups: ``{grouping of the Dataset: Varying(...)}``.
        effects: "integrated" or "sampled"; None: "integrated" for Gaussian noise, and for methods
            that search for a mode (MAP, Laplace), else "sampled".
        groupings: Set by ``fit``: the groupings of the training rows.
        units: Set by ``fit``: the units of the data.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If ``groups`` holds no ``Varying``.
        UnknownName: If ``effects`` is something else.
        NotApplicable: If u cannot be integrated out, or for Categorical.
    """

    groups: Mapping[str, Varying] | None = field(default=None, kw_only=True)
    effects: str | None = field(default=None, kw_only=True)
    groupings: tuple[Grouping, ...] = field(default=(), repr=False, compare=False, kw_only=True)
    units: Units | None = field(default=None, repr=False, compare=False, kw_only=True)
    collapsed = ()
    takes_stream = False

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = self.groups
        given = isinstance(groups, Mapping) and bool(groups)
        if not given or not all(isinstance(v, Varying) for v in (groups or {}).values()):
            do = 'for example groups={"county": Varying("1")}'
            raise SettingError("groups as {name: Varying(...)}", repr(groups), do)
        if self.effects not in (None, *TREATMENTS):
            raise UnknownName("treatment of the effects", str(self.effects), TREATMENTS)
        if isinstance(self.likelihood, Categorical):
            got, do = repr(self.likelihood), "use one model per class, or a Pyro program"
            raise NotApplicable("a likelihood of one linear predictor beside groups", got, do)
        if self.effects == "integrated" and not self.integrable:
            raise NotApplicable(
                "a likelihood of one function of x with formulas for its slopes",
                repr(self.likelihood),
                "use effects='sampled'",
            )

    @property
    def varying(self) -> Mapping[str, Varying]:
        """The coefficients that vary, by grouping."""
        return self.groups or {}

    def _one_mode(self) -> bool:
        """Whether the log density has one mode; that of sds may have several."""
        return False

    one_mode = computed(_one_mode)

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, of one variance."""
        return isinstance(self.likelihood, Gaussian) and not self.likelihood.predicted

    @property
    def integrable(self) -> bool:
        """Whether the coefficients of groups can be integrated out."""
        slopes = has_joint_slopes(self.likelihood) and not self.likelihood.positive_f
        return slopes and self.likelihood.latents == 1

    @property
    def integrated(self) -> bool:
        """Whether the coefficients of groups are integrated out."""
        return self.gaussian if self.effects is None else self.effects == "integrated"

    def _latent_values(self) -> tuple[str, ...]:
        """The sites of the coefficients of groups."""
        return tuple(f"{name}.effect" for name in self.varying)

    latent_values = computed(_latent_values)

    def takes_role(self, name: str) -> bool:
        if name == "noise_sd":
            return self.gaussian
        return name == "groups" or super().takes_role(name)

    def for_method(self, how: Any) -> Multilevel:
        """Return the recipe with the treatment of the coefficients that suits the method."""
        if self.effects is not None:
            return self
        seeks = getattr(how, "seeks_mode", False) and self.integrable
        return replace(self, effects=TREATMENTS[0 if self.gaussian or seeks else 1])

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability in (GroupEffects, LinearCoefficients):
            return None
        if capability is LeaveOneOut:
            if self.integrated:
                return None
            return NotApplicable("effects integrated out", "effects sampled", LeaveOneOut.advice)
        got, do = "coefficients that vary between groups", "use MAP('lbfgs'), Laplace or NUTS"
        if capability is GeneralisedLinear:
            do = "use coefficients('draws') of a fit by Laplace or NUTS, and residuals('quantile')"
        return NotApplicable("a GLM without groups", got, do)

    def chunked(self, data: Dataset) -> bool:
        """Return whether the density has a search inside, which cannot be compiled."""
        return self.integrated and not self.gaussian

    # -- the sites --------------------------------------------------------------------------------

    def sites(self, d: int) -> dict[str, Site]:
        own = {}
        for one in self._found(d):
            own[f"{one.name}.sd"] = site(
                f"the sds of {one.name}", one.sd, (len(one.columns),), positive=True
            )
            if not self.integrated:
                own[f"{one.name}.effect"] = Site(WHITE, (one.size, len(one.columns)))
        return {**super().sites(d), **own}

    def _found(self, d: int) -> tuple[Grouping, ...]:
        """Return the groupings; before ``prepare``, those of one level."""
        if self.groupings:
            return self.groupings
        one = range(d)
        return tuple(
            Grouping(name, tuple(one)[:1] * len(v.named), 1, v.sd)
            for name, v in self.varying.items()
        )

    def found_units(self) -> Units:
        """Return the units of the data."""
        assert self.units is not None  # ``prepare`` sets it
        return self.units

    # -- preparation and units --------------------------------------------------------------------

    def in_units(self, scaler: Scaler) -> Multilevel:
        x_sd, x_mean = scaler.x_sd, scaler.x_mean
        y_sd = float(scaler.y_sd) if "y" in self.scales else 1.0
        units = Units(y_sd, tuple(x_sd.tolist()), tuple((x_mean / x_sd).tolist()))
        return replace(super().in_units(scaler), units=units)  # type: ignore[return-value]

    def prepare(self, data: Dataset) -> Multilevel:
        """Return the recipe with a likelihood and the groupings of these rows.

        Raises:
            DataError: As ``GLM.prepare``; if the Dataset has other groupings; if a row has no
                level; or if all groups of a flat sd have one row.
            SettingError: As ``GLM.prepare``.
        """
        units = self.units or Units(1.0, (1.0,) * data.d, (0.0,) * data.d)
        groupings = groupings_of(self.varying, data, units)
        ready: Any = super().prepare(data)
        return replace(ready, groupings=groupings, units=units)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = dict(super().data_units(draws, scaler))
        units = self.found_units()
        factors = {f"{one.name}.sd": units.factors(one.columns) for one in self.groupings}
        own |= times({k: v for k, v in draws.items() if k in factors}, factors)
        for one in self.groupings:
            name = f"{one.name}.effect"
            if name in draws:
                sd = self._sds(draws, draws[name])[one.name]
                factor = draws[name].new_tensor(factors[f"{one.name}.sd"])
                own[name] = sd[..., None, :] * draws[name] * factor
        return own

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Return warnings about separated classes, and about groups of one row."""
        return [*super().check_identifiability(data), *groups_of_one(self.varying, data)]

    def work(self, n: int, d: int) -> float:
        q = sum(len(one.columns) for one in self._found(d))
        if len(self.varying) > 1:  # one dense system
            q = sum(one.size * len(one.columns) for one in self._found(d))
        return super().work(n, d) + float(n) * q * q

    # -- the program ------------------------------------------------------------------------------

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
        weights: Tensor | None = None,
        groups: Mapping[str, Tensor] | None = None,
        noise_sd: Tensor | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model; see ``GLM.model``.

        Rows also have the codes of their groups, {grouping: [n]}, and for Gaussian noise may have
        a known ``noise_sd`` [n].

        Raises:
            NotApplicable: For a mini-batch, if the coefficients are integrated out.
        """
        theta = draw(self.sites_at(X.shape[-1]), X)
        columns = {"offset": offset, "trials": trials, "groups": groups, "noise_sd": noise_sd}
        if not self.integrated:
            distribution = self.distribution(theta, X, **columns)
            return observed(distribution, X, y, total, weights)
        if total is not None and total != len(X):
            raise mini_batch(self, X, total, "use the full batch, or effects='sampled'")
        blocks, sd = self._blocks(theta, X, groups or {})
        own = self._parameters(theta, X)
        known = {k: v for k, v in columns.items() if k in ("trials", "noise_sd")}
        joint = GroupedRows(
            blocks,
            sd,
            self.functions(theta, X, offset),
            partial(self._rows, names=tuple(own), weights=weights, **known),
            tuple(own.values()),
            self.gaussian,
            partial(self._given, theta, **known),
        )
        return pyro.sample("y", joint, obs=y)

    def distribution(  # type: ignore[override] # more columns
        self,
        theta: Theta,
        X: Tensor,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
        groups: Mapping[str, Tensor] | None = None,
        noise_sd: Tensor | None = None,
    ) -> Distribution:
        """Return the distribution of y given theta with sampled coefficients, batch [*draw, n]."""
        f = self.functions(theta, X, offset)
        extra = self._of_groups(theta, X, groups or {})
        if self.likelihood.latents > 1:
            f = torch.cat([f[..., :1, :] + extra[..., None, :], f[..., 1:, :]], -2)
        else:
            f = f + extra
        return self._given(theta, f, None, trials=trials, noise_sd=noise_sd)

    # -- the parts of the program ------------------------------------------------------------------

    def _sds(self, theta: Theta, like: Tensor) -> dict[str, Tensor]:
        """Return the sds, {grouping: [*draw, q]}."""
        found = {}
        for one in self.groupings:
            name, q = f"{one.name}.sd", len(one.columns)
            sd = value_of(theta, name, one.sd, like)
            found[one.name] = sd.expand(*sd.shape[:-1], q) if sd.ndim else sd.expand(q)
        return found

    def _of_groups(self, theta: Theta, X: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """Return what sampled coefficients add to eta, [*draw, n]; 0 for levels without a code."""
        total: Any = X.new_zeros(len(X))
        for one in self.groupings:
            code = codes[one.name]
            u = self._sds(theta, X)[one.name][..., None, :] * theta[f"{one.name}.effect"]
            Z = one.design(X, self.found_units()) * (code >= 0)[:, None]
            total = total + (Z * u[..., code.clamp_min(0), :]).sum(-1)
        return total

    def _given(
        self,
        theta: Theta,
        f: Tensor,
        variance: Tensor | None,
        trials: Tensor | None = None,
        noise_sd: Tensor | None = None,
    ) -> Distribution:
        """Return the distribution of y, given f or its mean and variance."""
        if self.gaussian:
            spread: Any = self._noise(theta, f, noise_sd)
            return dist.Normal(f, (spread if variance is None else spread + variance).sqrt())
        law = self.likelihood.for_rows(trials)
        own = {name: theta[name] for name in self.likelihood.sites() if name in theta}
        return law.distribution(own, f) if variance is None else law.marginal(own, f, variance)

    def _noise(self, theta: Theta, like: Tensor, noise_sd: Tensor | None) -> Tensor:
        noise = self.likelihood.value(theta, "noise", like)
        return noise if noise_sd is None else noise + noise_sd.square()

    def _rows(
        self,
        y: Tensor,
        names: tuple[str, ...],
        trials: Tensor | None = None,
        noise_sd: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Any:
        law = self.likelihood.for_rows(trials)
        return rows_of(law, names, y, self.gaussian, noise_sd, weights)

    def _parameters(self, theta: Theta, like: Tensor) -> dict[str, Tensor]:
        """Return the sites of the likelihood; of Gaussian noise, the variance in any case."""
        if self.gaussian:
            return {"noise": self.likelihood.value(theta, "noise", like)}
        return {name: theta[name] for name in self.likelihood.sites() if name in theta}

    def _blocks(
        self, theta: Theta, X: Tensor, codes: Mapping[str, Tensor]
    ) -> tuple[Blocks, Tensor]:
        blocks = blocks_of(self.groupings, X, codes, self.found_units())
        return blocks, sds_of_blocks(self.groupings, self._sds(theta, X))

    # -- given the training rows ------------------------------------------------------------------

    def _given_rows(self, one: Theta, train: Dataset, wider: float = 1.0) -> EffectsGivenRows:
        """Return the distribution of u given the training rows and one draw of the sites.

        Args:
            one: {site: [*event]}.
            train: The training rows.
            wider: A factor of the sds.
        """
        blocks, sd = self._blocks(one, train.X, train.groups or {})
        sd = wider * sd
        own = self._parameters(one, train.X)
        rows = self._rows(train.y, tuple(own), train.trials, train.noise_sd, weights=train.weights)
        mean = self.functions(one, train.X, train.offset)
        return effects_given_rows(blocks, sd, mean, rows, tuple(own.values()), self.gaussian)

    def _predictor(
        self, theta: Theta, X: Tensor, train: Dataset, columns: Columns, joint: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the mean of eta [draw, m] given the training rows, and its (co)variance."""
        codes, units = columns["groups"], self.found_units()
        count = number_of_draws(theta)
        check_memory_of_predictions(count, len(X), X, joint)
        mean = self.functions(theta, X, columns.get("offset")).expand(count, -1)
        blocks = blocks_of(self.groupings, X, codes, units)
        means, spreads = [], []
        for one in one_by_one({}, theta):
            u = self._given_rows(one, train)
            first, variance = u.moments(blocks)
            means.append(first)
            spreads.append(u.covariance_of(blocks) if joint else variance)
        unknown = of_unknown(self.groupings, X, codes, units, self._sds(theta, X))
        spread = torch.stack(spreads)
        spread = add_diagonal(spread, unknown.expand(count, -1)) if joint else spread + unknown
        return mean + torch.stack(means), spread

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
        groups: Mapping[str, Tensor] | None = None,
        noise_sd: Tensor | None = None,
    ) -> Distribution:
        """Return the predictive distribution of y at X; see ``GLM.predict``.

        Rows also have the codes of their groups, {grouping: [m]}. -1 is a new group, whose
        coefficients are N(0, sd^2); if ``joint``, each row of code -1 has a new group of its own.
        For Gaussian noise rows may have a known ``noise_sd`` [m].

        Raises:
            DataError: For a new group, if its sd has a flat prior.
        """
        columns = {"offset": offset, "trials": trials, "groups": groups, "noise_sd": noise_sd}
        known = {k: v for k, v in columns.items() if k in ("trials", "noise_sd")}
        refuse_unknown(self.varying, groups or {})
        if not self.integrated:
            found = self._from_samples(theta, X, columns)
            return Independent(found, 1) if joint else found
        mean, spread = self._predictor(theta, X, train, columns, joint)
        if not joint:
            return self._given(theta, mean, spread, **known)
        if self.gaussian:
            noise = self._noise(theta, mean, noise_sd).expand(mean.shape)
            return with_noise(mean, spread, noise, joint)
        own = {name: theta[name] for name in self.likelihood.sites() if name in theta}
        return LatentMarginal(self.likelihood.for_rows(trials), own, mean, spread)

    def _from_samples(self, theta: Theta, X: Tensor, columns: Columns) -> Distribution:
        """Return the prediction with sampled coefficients, those of new groups integrated out."""
        codes = columns["groups"]
        count = number_of_draws(theta)
        found: Any = None
        if not any(bool((code < 0).any()) for code in codes.values()):
            found = self.distribution(theta, X, **columns)
        else:
            f = self.functions(theta, X, columns["offset"])
            extra = self._of_groups(theta, X, codes)
            variance = of_unknown(self.groupings, X, codes, self.found_units(), self._sds(theta, X))
            if self.likelihood.latents > 1:
                extra, variance = (_first_of(one, f) for one in (extra, variance))
            known = {k: v for k, v in columns.items() if k in ("trials", "noise_sd")}
            f = f + extra
            found = self._given(theta, f, variance.expand(f.shape), **known)
        if len(found.batch_shape) != 2:
            found = found.expand(torch.Size([count, len(X)]))
        return found

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return log p(y_i given the draw) [draw, n], or with u integrated out that of ``loo``."""
        if self.integrated:
            return {"y": self.loo(theta, data).log_prob(data.y)}
        columns = columns_given(data)
        used = {k: columns.get(k) for k in ("offset", "trials", "groups", "noise_sd")}
        return {"y": self._from_samples(theta, data.X, used).log_prob(data.y)}

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        It is exact given theta for Gaussian noise; else the Gaussian row that stands for row i is
        taken out. Vehtari et al. (2016).
        """
        moments = []
        for one in one_by_one({}, theta):
            blocks, _ = self._blocks(one, train.X, train.groups or {})
            moments.append(self._given_rows(one, train).without_each_row(blocks))
        mean, variance = (torch.stack(part) for part in zip(*moments, strict=True))
        return self._given(theta, mean, variance, trials=train.trials, noise_sd=train.noise_sd)

    def group_effects(
        self, theta: Theta, train: Dataset, generator: torch.Generator, each: int = 1
    ) -> dict[str, Tensor]:
        units = self.found_units()
        factors = {g.name: train.X.new_tensor(units.factors(g.columns)) for g in self.groupings}
        if self.integrated:
            u = self._drawn(theta, train, generator, each)
            drawn = [by_grouping(self.groupings, one) for one in u]
            return {name: torch.stack([u[name] for u in drawn]) * f for name, f in factors.items()}
        sds = self._sds(theta, train.X)
        return {
            name: sds[name][..., None, :] * theta[f"{name}.effect"] * f
            for name, f in factors.items()
        }

    def _drawn(self, theta: Theta, train: Dataset, generator: torch.Generator, each: int) -> Tensor:
        """Draw u of all blocks [draw * each, B, m], given the training rows."""
        first = {name: value[0] for name, value in theta.items()}
        shape = self._given_rows(first, train).mean.shape
        count = number_of_draws(theta)
        e = standard_normal(generator, count, each, *shape)
        e = e.to(train.X)

        def of_draw(one: Theta, e: Tensor) -> Tensor:
            found = self._given_rows(one, train)
            return torch.stack([found.at_standard_normal(x) for x in e.unbind()])

        if self.gaussian:  # without a search, all draws go through at once
            chunk = max(1, DRAWN_AT_ONCE // train.n)
            u = torch.vmap(of_draw, chunk_size=chunk)(dict(theta), e)
        else:
            rows = zip(one_by_one({}, theta), e, strict=True)
            u = torch.stack([of_draw(*row) for row in rows])
        return u.flatten(0, 1)

    def unpooled_effects(self, theta: Theta, train: Dataset) -> dict[str, Tensor]:
        """Return the coefficients {grouping: [K, q]} that the rows of each group alone suggest.

        They are those at the mean of theta under sds ``NO_POOLING`` times as large, in the units of
        the data. Without slopes of the likelihood by formula there are none.
        """
        if not self.integrable:
            return {}
        mean = {name: value.mean(0) for name, value in theta.items()}
        u = by_grouping(self.groupings, self._given_rows(mean, train, NO_POOLING).mean)
        units = self.found_units()
        return {
            one.name: u[one.name] * train.X.new_tensor(units.factors(one.columns))
            for one in self.groupings
        }

    def effect_names(self) -> dict[str, list[str]]:
        return {name: varying.labels for name, varying in self.varying.items()}


def _first_of(value: Tensor, f: Tensor) -> Tensor:
    """Return f-shaped zeros [*draw, K, n] with ``value`` [*draw, n] in the first function."""
    whole = torch.zeros_like(f)
    whole[..., 0, :] = value
    return whole


GLM.with_groups = with_signature(Multilevel)
