"""Generalised linear models whose coefficients vary between groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    Capability,
    GeneralisedLinear,
    GroupEffects,
    LeaveOneOut,
    LinearCoefficients,
)
from ...data.dataset import Dataset, Scaler
from ...display.overrides import computed
from ...errors import NotApplicable, SettingError, UnknownName
from ...likelihoods import Categorical, Gaussian
from ...likelihoods.joint_slopes import has_joint_slopes
from ...priors import Normal, Site, site
from ..base import full_batch_only
from ..independent_rows import observed
from ..sites import Theta, draw
from ..units import times
from .glm import GLM, with_signature
from .multilevel_predictions import MultilevelPredictions
from .multilevel_rows import GroupedRows
from .varying import (
    Grouping,
    Units,
    Varying,
    groupings_of,
    groups_of_one,
)

__all__ = ["Multilevel"]

TREATMENTS = ("integrated", "sampled")
WHITE = Normal(0.0, 1.0)
Columns = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Multilevel(MultilevelPredictions, GLM, GroupEffects, LeaveOneOut):
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
        return isinstance(self.likelihood, Gaussian) and not self.likelihood.predicted

    @property
    def integrable(self) -> bool:
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

    def chunked(self, data: Any) -> bool:
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
        """Run the Pyro program of the model.

        Args:
            X: Inputs [n, d].
            y: Targets [n]; None: they are drawn.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.
            offset: Of eta [n].
            trials: Of each row [n], for a binomial likelihood.
            weights: How many rows each row counts as, [n].
            groups: Codes of the groups, {grouping: [n]}.
            noise_sd: The known noise sd of each row [n], for Gaussian noise.

        Returns:
            The targets [n].

        Raises:
            NotApplicable: For a mini-batch, if the coefficients are integrated out.
        """
        theta = draw(self.sites_at(X.shape[-1]), X)
        columns = {"offset": offset, "trials": trials, "groups": groups, "noise_sd": noise_sd}
        if not self.integrated:
            distribution = self.distribution(theta, X, **columns)
            return observed(distribution, X, y, total, weights)
        full_batch_only(self, X, total, "use the full batch, or effects='sampled'")
        blocks, sd = self._blocks(theta, X, groups or {})
        own = self._parameters(theta, X)
        known = {k: v for k, v in columns.items() if k in ("trials", "noise_sd")}
        joint = GroupedRows(
            blocks,
            sd,
            super().functions(theta, X, offset),
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

    def effect_names(self) -> dict[str, list[str]]:
        """Return the names of the coefficients of each grouping."""
        return {name: varying.labels for name, varying in self.varying.items()}


GLM.with_groups = with_signature(Multilevel)
