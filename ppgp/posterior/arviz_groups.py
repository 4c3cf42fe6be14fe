"""What a Posterior hands over to ArviZ: its groups as plain arrays, with the names of their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import NotApplicable, SettingError
from ..numerics.batching import in_chunks
from ..numerics.seeding import seeded
from ..target.handlers import Redraw, Run, is_data, over_draws, quietly
from .arviz_axes import Coords, Dims, plate_axes, renamed, table_axes
from .summary import draws_in

if TYPE_CHECKING:
    from .posterior import Posterior

Groups = dict[str, dict[str, Any]]


def collected(
    posterior: Posterior,
    log_likelihood: bool,
    predictive: bool,
    prior: int | Mapping[str, Any],
    user_coords: Mapping[str, Any] | None,
    user_dims: Mapping[str, Any] | None,
    seed: int,
    units: str = "model",
) -> tuple[Groups, Coords, Dims]:
    """``{group: {variable: array}}``, coords and dims; see ``Posterior.to_arviz``."""
    shape = posterior.shape
    sites = _one_run(posterior)
    dims, coords = plate_axes(sites)
    draws, _ = draws_in(units, posterior.draws, posterior.model, posterior.scaler)
    groups: Groups = {"posterior": dict(draws)}
    groups["sample_stats"] = {
        k: v for k, v in posterior.stats.items() if isinstance(v, Tensor) and v.shape == shape
    }
    if isinstance(posterior.data, Dataset):
        observed, constant = _table(posterior)
        # a zoo model calls the plate of its rows "rows"; the axis of a table is "row"
        dims = {
            name: ["row" if axis == "rows" else axis for axis in axes]
            for name, axes in dims.items()
        }
        coords.pop("rows", None)
        more = table_axes(
            posterior.model, posterior.data, {k: tuple(v.shape[2:]) for k, v in draws.items()}
        )
        dims, coords = dims | more[0], coords | more[1]
    else:
        observed, constant = _arguments(posterior.data, sites, coords)
    if log_likelihood:
        groups["log_likelihood"] = {
            name: v.reshape(*shape, *_batch(sites, name, v.shape[-1]))
            for name, v in posterior.pointwise().items()
        }
    if predictive:
        with seeded(seed), torch.no_grad():
            found = in_chunks(
                replicates(posterior), {k: v.flatten(0, 1) for k, v in posterior.draws.items()}
            )
        groups["posterior_predictive"] = {
            name: v.reshape(*shape, *v.shape[1:]) for name, v in found.items()
        }
    groups["prior"], groups["prior_predictive"] = _prior(posterior, prior, seed, observed)
    if not isinstance(prior, Mapping):
        groups["prior"], _ = draws_in(units, groups["prior"], posterior.model, posterior.scaler)
    groups |= {"observed_data": observed, "constant_data": constant}
    renamed(dims, coords, user_dims, user_coords)
    return (
        {g: {k: _array(v) for k, v in values.items()} for g, values in groups.items()},
        coords,
        dims,
    )


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _call(posterior: Posterior, y: Tensor | None) -> None:
    """The program once; a zoo model at its training rows."""
    data = posterior.data
    if isinstance(data, Dataset):
        posterior.model.model(data.X, y, total=data.n)
    else:
        posterior.model.model(**data)


def _one_run(posterior: Posterior) -> dict[str, dict[str, Any]]:
    """Every site's record at the first draw: shapes and plates."""
    first = {name: value[0, 0] for name, value in posterior.draws.items()}
    with quietly(), torch.no_grad(), seeded(0), Run(first, params=posterior.params) as run:
        _call(posterior, getattr(posterior.data, "y", None))
    return run.sites


def _batch(sites: Mapping[str, Mapping[str, Any]], name: str, n: int) -> tuple[int, ...]:
    """The shape of a site's log density, where n numbers have it."""
    shape = tuple(sites[name]["fn"].batch_shape) if name in sites else ()
    return shape if int(np.prod(shape)) == n and shape else (n,)


# -- data ----------------------------------------------------------------------------------------------------------------


def _units(posterior: Posterior, y: Tensor) -> Tensor:
    scaler = posterior.scaler
    return y if scaler is None else y * scaler.y_sd + scaler.y_mean


def _table(posterior: Posterior) -> tuple[dict[str, Any], dict[str, Any]]:
    """y and X in the units of the data."""
    data, scaler = posterior.data, posterior.scaler
    X = data.X if scaler is None else data.X * scaler.x_sd + scaler.x_mean
    return {"y": _units(posterior, data.y)}, {"X": X}


def _arguments(
    arguments: Mapping[str, Any], sites: Mapping[str, Mapping[str, Any]], coords: Coords
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the observed sites, and the numeric arguments that are none of them."""
    observed = {name: site["value"] for name, site in sites.items() if is_data(site)}
    constant = {}
    for name, value in arguments.items():
        array = value if isinstance(value, Tensor) else np.asarray(value)
        numeric = isinstance(array, Tensor) or array.dtype.kind in "biuf"
        if numeric and name not in observed and not any(value is y for y in observed.values()):
            constant[f"{name}_data" if name in coords else name] = array
    return observed, constant


# -- draws of y ----------------------------------------------------------------------------------------------------------


def replicates(posterior: Posterior) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """{site: [draw, ...]} -> {observed site: [draw, ...]}: data drawn again at the training rows, jointly over the rows.

    A program is run again with its observed sites drawn, so that a series is simulated from its beginning.
    """
    if isinstance(posterior.data, Dataset):

        def at_rows(draws: dict[str, Tensor]) -> dict[str, Tensor]:
            data = posterior.data
            known = {} if data.noise_sd is None else {"noise_sd": data.noise_sd}
            law = posterior.model.predict(
                {**posterior.params, **draws}, data.X, data, joint=True, **known
            )
            size = len(next(iter(draws.values()))) if draws else 1
            if (
                law.batch_shape[0] != size
            ):  # the params of a closed form: one law, whatever the draw
                law = law.expand(torch.Size([size]))
            return {"y": _units(posterior, law.sample().to(posterior.data.y))}

        return at_rows

    def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
        with Run(values, params=posterior.params) as run, Redraw():
            _call(posterior, None)
        return {name: s["value"] for name, s in run.sites.items() if is_data(s)}

    def again(draws: dict[str, Tensor]) -> dict[str, Tensor]:
        with quietly():
            return over_draws(one, draws)

    return again


def _prior(
    posterior: Posterior, prior: int | Mapping[str, Any], seed: int, observed: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two groups, of one chain: the sites from the prior, and data drawn given them."""
    if isinstance(prior, Mapping):
        samples = {name: torch.as_tensor(v)[None] for name, v in prior.items()}
    elif isinstance(prior, bool) or not isinstance(prior, int) or prior < 0:
        raise SettingError(
            "a number of prior draws, or {site: draws}", repr(prior), "for example prior=500"
        )
    elif prior == 0:
        return {}, {}
    else:
        samples = {name: v[None] for name, v in _from_prior(posterior, prior, seed).items()}
    data = {name: samples.pop(name) for name in observed if name in samples}
    latent = {name: samples[name] for name in posterior.draws if name in samples}
    if latent:
        latent, _ = posterior.model.relabel(latent)
    return latent, data


def _from_prior(posterior: Posterior, n: int, seed: int) -> dict[str, Tensor]:
    """{site: [n, ...]} of latent and observed sites, the latter in the units of the data."""
    for name, site in _one_run(posterior).items():
        law = site["fn"] if site["type"] == "sample" else None
        while hasattr(law, "base_dist"):
            law = law.base_dist  # type: ignore[union-attr]
        if getattr(law, "improper", False) or type(law).__name__ == "ImproperUniform":
            raise NotApplicable(
                "proper priors to draw from",
                f"a flat one for {name}",
                "give that site a prior, or leave prior=0",
            )

    table = isinstance(posterior.data, Dataset)  # then y is a site that is left to be drawn

    def one(_: dict[str, Tensor]) -> dict[str, Tensor]:
        with Run({}, params=posterior.params) as run, Redraw():
            _call(posterior, None)
        return {
            k: s["value"]
            for k, s in run.samples()
            if k in posterior.draws or is_data(s) or (table and k == "y")
        }

    counter = torch.arange(n, dtype=torch.float64)
    with quietly(), torch.no_grad(), seeded(seed):
        found = in_chunks(lambda part: over_draws(one, part), {"": counter})
    if table:
        found["y"] = _units(posterior, found["y"].to(posterior.data.y))
    return found
