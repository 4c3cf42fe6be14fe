"""Predictions of models whose coefficients vary between groups of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ...data.dataset import Dataset
from ...data.roles import columns_given
from ...likelihoods.joint_rows import LatentMarginal
from ...numerics.cholesky import add_diagonal
from ...priors import value_of
from ...runtime.seeding import standard_normal
from ..advice.memory_checks import check_memory_of_predictions
from ..noise import with_noise
from ..sites import Theta, number_of_draws, one_by_one
from .glm import GLM
from .group_blocks import Blocks
from .grouped_effects import EffectsGivenRows, effects_given_rows
from .multilevel_rows import rows_of
from .varying import (
    Grouping,
    Units,
    Varying,
    blocks_of,
    by_grouping,
    of_unknown,
    refuse_unknown,
    sds_of_blocks,
)

Columns = Mapping[str, Any]
DRAWN_AT_ONCE = 500_000  # rows times draws
NO_POOLING = 30.0  # times the sd of the groups, beyond which the prior of u counts for nothing


class MultilevelPredictions:
    """What ``Multilevel`` computes given its training rows, and the parts that its program shares.

    Attributes:
        likelihood: That of the rows.
        groupings: The groupings of the training rows.
    """

    likelihood: Any
    groupings: tuple[Grouping, ...]

    @property
    def varying(self) -> Mapping[str, Varying]:
        """The coefficients that vary, by grouping."""
        raise NotImplementedError

    @property
    def integrated(self) -> bool:
        """Whether the coefficients of groups are integrated out."""
        raise NotImplementedError

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, of one variance."""
        raise NotImplementedError

    @property
    def integrable(self) -> bool:
        """Whether the coefficients of groups can be integrated out."""
        raise NotImplementedError

    def found_units(self) -> Units:
        """Return the units of the data."""
        raise NotImplementedError

    def distribution(self, theta: Any, X: Any, **columns: Any) -> Distribution:
        """Return the distribution of y given theta with sampled coefficients, batch [*draw, n]."""
        raise NotImplementedError

    def functions(self, theta: Any, X: Any, offset: Any = None) -> Tensor:
        """Return f without the coefficients of groups, [*draw, n] or [*draw, K, n]."""
        return GLM.functions(self, theta, X, offset)  # type: ignore[arg-type] # a mixin of GLM

    # -- shared with the program ------------------------------------------------------------------

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
        """Return the predictive distribution of y at X for each draw of theta.

        Args:
            theta: {site: [draw, *event]}.
            X: Inputs [m, d].
            train: The training rows.
            joint: Whether the rows are predicted jointly. Rows of unknown groups then each belong
                to a group of their own.
            offset: Of eta [m].
            trials: Of each row [m], for a binomial likelihood.
            groups: Codes of the groups, {grouping: [m]}; -1: a new group, whose coefficients are
                N(0, sd^2).
            noise_sd: The known noise sd of the new rows [m].

        Returns:
            A distribution of batch [draw, m]; if ``joint``, of batch [draw] and event [m].

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
        """Draw the coefficients of the groups.

        Args:
            theta: {site: [draw, *event]}.
            train: The training rows.
            generator: The random generator, for coefficients that were integrated out.
            each: How many draws of these to take per draw of theta.

        Returns:
            {grouping: [draw, K, q]} in the units of the data.
        """
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


def _first_of(value: Tensor, f: Tensor) -> Tensor:
    """Return f-shaped zeros [*draw, K, n] with ``value`` [*draw, n] in the first function."""
    whole = torch.zeros_like(f)
    whole[..., 0, :] = value
    return whole
