"""A fit as ArviZ's object: its groups as plain arrays, with the names of their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..density.handlers import Redraw, Run, is_data, over_draws, quietly
from ..errors import NotApplicable, SettingError
from ..runtime.batching import in_chunks
from ..runtime.seeding import seeded
from . import arviz as arviz_bridge
from .arviz_axes import Coords, Dims, plate_axes, renamed
from .arviz_table_axes import columns_by_name, table_axes
from .fitted import Fitted, refuse_in_team, with_params
from .group_effects import effect_axes, effect_draws
from .units_of_draws import draws_in, quantities, scale_of

Sites = Mapping[str, Mapping[str, Any]]


def to_arviz(
    self: Fitted,
    *,
    prior: int | Mapping[str, Any] = 0,
    predictive: bool = False,
    log_likelihood: bool = True,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Any] | None = None,
    seed: int = 0,
    units: str = "model",
) -> Any:
    """Return ArviZ's object: InferenceData on ArviZ 0.x, DataTree on ArviZ 1.x.

    Its groups are posterior, sample_stats, log_likelihood, observed_data and constant_data; on
    request also prior, prior_predictive and posterior_predictive. Axes are named after the plates
    of the program (the axes of a site's own event follow), and after features, classes and
    components.

    Coefficients that vary between groups are the variables ``county.effect``, with the axes
    ``county`` (the levels) and ``county.term``, always in the units of the data.

    Data, log densities and replicates are in the units of the data. Draws are on the scale of the
    model, or as ``draws_in`` gives them with ``units="data"``; ``attrs["units"]`` names the
    scale. ``attrs["draws"]`` is "chains" or "independent": R-hat and ESS have a meaning only for
    chains.

    Args:
        self: The posterior.
        prior: The number of draws from the prior, or the user's own prior draws
            ``{site: [draw, ...]}``.
        predictive: Whether to draw data again at the training rows, once per draw.
        log_likelihood: Whether to compute the pointwise log likelihood, which leave-one-out
            cross-validation needs.
        coords: Coordinates of axes that replace the default ones, as in ``arviz.from_pyro``.
        dims: Names of the axes of variables that replace the default ones.
        seed: The seed of the prior draws and of the replicates.
        units: The scale of the draws from posterior and prior: "model" or "data".

    Raises:
        NotApplicable: If prior draws are requested of a flat prior, or a rank of a team has some
            rows of one joint distribution.
        SettingError: If ``prior`` is neither a number of draws nor a mapping.
        UnknownName: If ``units`` or an axis in ``coords`` is not known.
        DataError: If an axis has another length than its coordinates.
    """
    if self.model.joint_rows:
        refuse_in_team(self.data, "to_arviz()")
    sites = one_run(self)
    draws, standardised = draws_in(units, self.draws, self.model, self.scaler)
    draws |= effect_draws(self, seed)
    found_dims, found_coords = _axes(self, sites, draws)
    observed, constant = _data_groups(self, sites, found_coords)
    groups: dict[str, Mapping[str, Any]] = {"posterior": draws}
    groups["sample_stats"] = {
        k: v for k, v in self.stats.items() if isinstance(v, Tensor) and v.shape == self.shape
    }
    if log_likelihood:
        groups["log_likelihood"] = _log_likelihood(self, sites)
    if predictive:
        groups["posterior_predictive"] = _posterior_predictive(self, seed)
    groups["prior"], groups["prior_predictive"] = _prior(self, prior, seed, observed)
    if not isinstance(prior, Mapping):
        groups["prior"], _ = draws_in(units, groups["prior"], self.model, self.scaler)
    groups |= {"observed_data": observed, "constant_data": constant}
    renamed(found_dims, found_coords, dims, coords)
    arrays = {
        group: {name: _array(value) for name, value in values.items()}
        for group, values in groups.items()
    }
    attrs = {
        "inference_library": "ppgp",
        "inference": repr(self.how),
        "sampling_time": self.seconds,
        "draws": "chains" if self.mcmc else "independent",
        "units": scale_of(units, self.scaler),
        "standardised": ", ".join(standardised),
    }
    return arviz_bridge.to_arviz(arrays, found_coords, found_dims, attrs)


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _axes(fit: Fitted, sites: Sites, draws: Mapping[str, Tensor]) -> tuple[Dims, Coords]:
    """Return the axes of every site, and the coordinates of every axis."""
    dims, coords = plate_axes(sites)
    if not fit.data.is_table:
        return dims, coords
    # ppgp's own models call the plate of their rows "rows"; the axis of a table is "row"
    for axes in dims.values():
        axes[:] = ["row" if axis == "rows" else axis for axis in axes]
    coords.pop("rows", None)
    shapes = {name: tuple(value.shape[2:]) for name, value in draws.items()}
    table_dims, table_coords = table_axes(fit.model, fit.data, shapes)
    own_dims, own_coords = effect_axes(fit)
    return dims | table_dims | own_dims, coords | table_coords | own_coords


def _call(fit: Fitted, observed: bool) -> None:
    """Run the program once; a model on a table is run at its training rows."""
    args, kwargs = fit.data.passed(observed=observed)
    fit.model.model(*args, **kwargs)


def one_run(fit: Fitted) -> dict[str, dict[str, Any]]:
    """Return the record of every site at the first draw, with its shapes and plates."""
    first = {k: v[0, 0] for k, v in quantities(fit.draws, fit.model).items()}
    with quietly(), torch.no_grad(), seeded(0), Run(first, params=fit.params) as run:
        _call(fit, observed=True)
    return run.sites


# -- data and log likelihood -------------------------------------------------------------------


def _data_groups(
    fit: Fitted, sites: Sites, coords: Coords
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the groups observed_data and constant_data, in the units of the data."""
    if not fit.data.is_table:
        return _arguments(fit.data, sites, coords)
    X, y = fit.scaler.inputs_back(fit.data.X), fit.scaler.targets_back(fit.data.y)
    return {"y": y}, {"X": X, **columns_by_name(fit.data)}


def _arguments(
    arguments: Mapping[str, Any], sites: Sites, coords: Coords
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the observed sites, and the other numeric arguments of a program."""
    observed = {name: site["value"] for name, site in sites.items() if is_data(site)}
    constant = {}
    for name, value in arguments.items():
        array = value if isinstance(value, Tensor) else np.asarray(value)
        numeric = isinstance(array, Tensor) or array.dtype.kind in "biuf"
        if numeric and name not in observed and not any(value is y for y in observed.values()):
            if name in coords:
                name = f"{name}_data"
            constant[name] = array
    return observed, constant


def _log_likelihood(fit: Fitted, sites: Sites) -> dict[str, Tensor]:
    """Return ``{observed site: [chain, draw, ...]}``, the pointwise log likelihood."""
    densities = {}
    for name, value in fit.pointwise().items():
        n = value.shape[-1]
        shape: tuple[int, ...] = (n,)
        if name in sites:
            batch = tuple(sites[name]["fn"].batch_shape)
            if batch and int(np.prod(batch)) == n:
                shape = batch
        densities[name] = value.reshape(*fit.shape, *shape)
    return densities


# -- draws of y --------------------------------------------------------------------------------


def _posterior_predictive(fit: Fitted, seed: int) -> dict[str, Tensor]:
    """Return ``{observed site: [chain, draw, ...]}``, one replicate of the data per draw."""
    draws = {name: value.flatten(0, 1) for name, value in fit.draws.items()}
    with seeded(seed), torch.no_grad():
        values = in_chunks(replicates(fit), draws)
    return {name: v.reshape(*fit.shape, *v.shape[1:]) for name, v in values.items()}


def replicates(fit: Fitted) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Return a function that draws the data again at the training rows, jointly over the rows.

    It maps ``{site: [draw, ...]}`` to ``{observed site: [draw, ...]}``. A program is run again
    with its observed sites drawn, so that a time series is simulated from its beginning. Discrete
    sites that were summed out have values inferred from the data.
    """
    if fit.data.is_table:
        return _table_replicates(fit)
    return _program_replicates(fit)


def _table_replicates(fit: Fitted) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    data: Dataset = fit.data
    known = data.for_prediction

    def at_rows(draws: dict[str, Tensor]) -> dict[str, Tensor]:
        theta = {**fit.params, **draws}
        distribution = fit.model.predict(theta, data.X, data, joint=True, **known)
        size = next((len(value) for value in draws.values()), 1)
        if distribution.batch_shape[0] != size:
            # the params of a closed form: one distribution, whatever the draw
            distribution = distribution.expand(torch.Size([size]))
        return {"y": fit.scaler.targets_back(distribution.sample().to(data.y))}

    return at_rows


def _program_replicates(fit: Fitted) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        with Run(values, params=fit.params) as run, Redraw():
            _call(fit, observed=False)
        return {name: site["value"] for name, site in run.sites.items() if is_data(site)}

    def again(draws: dict[str, Tensor]) -> dict[str, Tensor]:
        theta = with_params(fit, draws)
        with quietly():
            inferred = fit.model.discrete_given_data(theta, fit.data)
            return over_draws(one, draws | inferred)

    return again


def _prior(
    fit: Fitted, prior: int | Mapping[str, Any], seed: int, observed: Mapping[str, Any]
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
        samples = {name: v[None] for name, v in _from_prior(fit, prior, seed).items()}
    data = {name: samples.pop(name) for name in observed if name in samples}
    latent = {name: samples[name] for name in fit.draws if name in samples}
    if latent:
        latent, _ = fit.model.relabel(latent)
    return latent, data


def _from_prior(fit: Fitted, n: int, seed: int) -> dict[str, Tensor]:
    """Return n prior draws of the sites and of y, ``{site: [n, ...]}``; y in the data's units."""
    _check_proper(fit)
    table = fit.data.is_table

    def one(_: dict[str, Tensor]) -> dict[str, Tensor]:
        with Run({}, params=fit.params) as run, Redraw():
            _call(fit, observed=False)
        values = {}
        for name, site in run.samples():
            # a model on a table draws its y, as a site that is not observed
            if name in fit.draws or is_data(site) or (table and name == "y"):
                values[name] = site["value"]
        return values

    counter = torch.arange(n, dtype=torch.float64)
    with quietly(), torch.no_grad(), seeded(seed):
        draws = in_chunks(lambda part: over_draws(one, part), {"": counter})
    if table:
        draws["y"] = fit.scaler.targets_back(draws["y"].to(fit.data.y))
    return draws


def _check_proper(fit: Fitted) -> None:
    """Refuse to draw from a flat prior.

    Raises:
        NotApplicable: Naming the site that has one.
    """
    for name, site in one_run(fit).items():
        if site["type"] != "sample":
            continue
        distribution: Any = site["fn"]
        while hasattr(distribution, "base_dist"):
            distribution = distribution.base_dist
        flat = type(distribution).__name__ == "ImproperUniform"
        if flat or getattr(distribution, "improper", False):
            do = "give that site a prior, or leave prior=0"
            raise NotApplicable("proper priors to draw from", f"a flat one for {name}", do)
