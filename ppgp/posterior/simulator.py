"""The model of a fit, run forwards: its sites, replicates of its data, draws from its prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from ..data.dataset import Dataset, Scaler
from ..density.enumeration import AnyValue
from ..density.handlers import Redraw, Run, is_data, over_draws, quietly, site_log_prob
from ..density.plates import plates_taking
from ..errors import NotApplicable, SettingError
from ..runtime.batching import in_chunks
from ..runtime.seeding import seeded
from .units_of_draws import quantities

__all__ = ["Simulator"]

RUNS = 6  # of a program, with other values of the discrete sites that were summed out


@dataclass(frozen=True)
class Simulator:
    """The model of a fit, run forwards.

    Attributes:
        model: The prepared recipe, or the wrapped program.
        data: The training data on the scale of the model: a Dataset, or a program's arguments.
        draws: ``{site: [chain, draw, *event]}``.
        params: ``{name: tensor}``, the values that were optimised.
        scaler: The standardisation of the data.
    """

    model: Any
    data: Any
    draws: Mapping[str, Tensor]
    params: Mapping[str, Tensor]
    scaler: Scaler

    def with_params(self, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return draws ``{site: [draw, *event]}`` together with the params of the fit.

        A program is run draw by draw, so its params are expanded to one copy per draw. A program of
        params alone is one draw.
        """
        if self.data.is_table:
            return {**self.params, **draws}
        sizes = (len(value) for name, value in draws.items() if name not in self.params)
        size = next(sizes, 1)
        copies = {name: value.expand(size, *value.shape) for name, value in self.params.items()}
        return {**copies, **{name: draws[name] for name in self.draws}}

    def _call(self, observed: bool) -> None:
        """Run the program once, on all rows; a model on a table is run at its training rows."""
        args, kwargs = self.data.passed(observed=observed)
        with nullcontext() if self.data.is_table else plates_taking():
            self.model.model(*args, **kwargs)

    def one_run(self) -> dict[str, dict[str, Any]]:
        """Return the record of every site at the first draw, with its shapes and plates."""
        first = {k: v[0, 0] for k, v in quantities(self.draws, self.model).items()}
        with quietly(), torch.no_grad(), seeded(0):
            return self._at(first)

    def log_prior(self) -> dict[str, Tensor]:
        """Return ``{site: [chain, draw]}``, the log prior density of each latent site.

        It is the density that the fit uses, given the other sites of the draw and with scales and
        masks, on the natural scale of the site and summed over its entries. Flat priors are left
        out: they have none.

        Raises:
            NotApplicable: If the prior of a site depends on discrete sites that were summed out.
        """
        drawn = quantities(self.draws, self.model)
        latents = {name: s for name, s in self.one_run().items() if _is_latent(s)}
        names = [name for name, s in latents.items() if name in drawn and not _is_flat(s["fn"])]
        if not names:
            return {}
        if not latents.keys() <= drawn.keys():
            self._check_given_draws(names)

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            sites = self._at(values)
            return {name: _log_density(sites[name]) for name in names}

        def each(part: dict[str, Tensor]) -> dict[str, Tensor]:
            with quietly():
                return over_draws(one, part)

        flat = {name: value.flatten(0, 1) for name, value in drawn.items()}
        with torch.no_grad(), seeded(0):
            found = in_chunks(each, flat)
        shape = next(iter(drawn.values())).shape[:2]
        return {name: value.reshape(shape) for name, value in found.items()}

    def _at(self, values: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
        """Return the record of every site of a run at one draw ``{site: [*event]}``."""
        with Run(values, params=self.params) as run:
            self._call(observed=True)
        return run.sites

    def _check_given_draws(self, names: list[str]) -> None:
        """Check that the priors depend on nothing but the sites that were drawn.

        Raises:
            NotApplicable: Naming a site whose prior differs between two runs at the same draw.
        """
        first = {k: v[0, 0] for k, v in quantities(self.draws, self.model).items()}
        runs = []
        for seed in range(RUNS):
            with quietly(), torch.no_grad(), seeded(seed), AnyValue():
                runs.append(self._at(first))
        for name in names:
            densities = [_log_density(sites[name]) for sites in runs]
            if any(not torch.equal(value, densities[0]) for value in densities):
                raise NotApplicable(
                    "priors that depend on drawn sites alone",
                    f"that of {name!r}, which depends on a site that was summed out",
                    "sum that site out in the program",
                )

    def posterior_predictive(self, seed: int) -> dict[str, Tensor]:
        """Return ``{observed site: [chain * draw, ...]}``, one replicate of the data per draw."""
        draws = {name: value.flatten(0, 1) for name, value in self.draws.items()}
        with seeded(seed), torch.no_grad():
            return in_chunks(self.replicates(), draws)

    def replicates(self) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        """Return a function that draws the data again at the training rows, jointly over the rows.

        It maps ``{site: [draw, ...]}`` to ``{observed site: [draw, ...]}``. A program is run again
        with its observed sites drawn, so that a time series is simulated from its beginning.
        Discrete sites that were summed out have values inferred from the data.
        """
        if self.data.is_table:
            return self._table_replicates()
        return self._program_replicates()

    def _table_replicates(self) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        data: Dataset = self.data
        known = data.for_prediction

        def at_rows(draws: dict[str, Tensor]) -> dict[str, Tensor]:
            theta = {**self.params, **draws}
            distribution = self.model.predict(theta, data.X, data, joint=True, **known)
            size = next((len(value) for value in draws.values()), 1)
            if distribution.batch_shape[0] != size:
                # the params of a closed form: one distribution, whatever the draw
                distribution = distribution.expand(torch.Size([size]))
            return {"y": self.scaler.targets_back(distribution.sample().to(data.y))}

        return at_rows

    def _program_replicates(self) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(values, params=self.params) as run, Redraw():
                self._call(observed=False)
            return {name: site["value"] for name, site in run.sites.items() if is_data(site)}

        def again(draws: dict[str, Tensor]) -> dict[str, Tensor]:
            theta = self.with_params(draws)
            with quietly():
                inferred = self.model.discrete_given_data(theta, self.data)
                return over_draws(one, draws | inferred)

        return again

    def prior_groups(
        self, prior: int | Mapping[str, Any], seed: int, observed: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the groups prior and prior_predictive, each of one chain.

        Raises:
            SettingError: If ``prior`` is neither a number of draws nor a mapping.
        """
        if isinstance(prior, Mapping):
            samples = {name: torch.as_tensor(v)[None] for name, v in prior.items()}
        elif isinstance(prior, bool) or not isinstance(prior, int) or prior < 0:
            wanted = "a number of prior draws, or {site: draws}"
            raise SettingError(wanted, repr(prior), "for example prior=500")
        elif prior == 0:
            return {}, {}
        else:
            samples = {name: v[None] for name, v in self._from_prior(prior, seed).items()}
        data = {name: samples.pop(name) for name in observed if name in samples}
        latent = {name: samples[name] for name in self.draws if name in samples}
        if latent:
            latent, _ = self.model.relabel(latent)
        return latent, data

    def _from_prior(self, n: int, seed: int) -> dict[str, Tensor]:
        """Return n prior draws ``{site: [n, ...]}`` of the sites, and of y in its own units."""
        self._check_proper()
        table = self.data.is_table

        def one(_: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run({}, params=self.params) as run, Redraw():
                self._call(observed=False)
            values = {}
            for name, site in run.samples():
                # a model on a table draws its y, as a site that is not observed
                if name in self.draws or is_data(site) or (table and name == "y"):
                    values[name] = site["value"]
            return values

        counter = torch.arange(n, dtype=torch.float64)
        with quietly(), torch.no_grad(), seeded(seed):
            draws = in_chunks(lambda part: over_draws(one, part), {"": counter})
        if table:
            draws["y"] = self.scaler.targets_back(draws["y"].to(self.data.y))
        return draws

    def _check_proper(self) -> None:
        """Refuse to draw from a flat prior.

        Raises:
            NotApplicable: Naming the site that has one.
        """
        for name, site in self.one_run().items():
            if site["type"] != "sample":
                continue
            if _is_flat(site["fn"]):
                do = "give that site a prior, or leave prior=0"
                raise NotApplicable("proper priors to draw from", f"a flat one for {name}", do)


def _is_flat(distribution: Any) -> bool:
    """Return whether a distribution, or the one that it wraps, is a flat prior."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    named = type(distribution).__name__ == "ImproperUniform"
    return named or bool(getattr(distribution, "improper", False))


def _is_latent(site: Mapping[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _log_density(site: Mapping[str, Any]) -> Tensor:
    return scale_and_mask(site_log_prob(site), site["scale"], site["mask"]).sum()
