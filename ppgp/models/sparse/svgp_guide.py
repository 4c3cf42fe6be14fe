"""The guide of SVGP for Pyro's own SVI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...priors import Param, Prior, Site
from ..before_fit import medians


def variational(q: str | None, shape: tuple[int, ...], Z: Tensor) -> dict[str, Tensor]:
    """Return the params of q(v), which starts as the prior.

    Args:
        q: "mean_field", or another word for a full covariance.
        shape: That of v.
        Z: Inducing inputs [m, d].
    """
    loc = pyro.param("v_loc", lambda: Z.new_zeros(shape))
    if q == "mean_field":
        sd = pyro.param("v_scale", lambda: Z.new_ones(shape), constraint=constraints.positive)
        return {"v_loc": loc, "v_scale": sd}
    eye = torch.eye(len(Z)).to(Z).expand(*shape, len(Z))
    root = pyro.param("v_scale_tril", lambda: eye.clone(), constraint=constraints.lower_cholesky)
    return {"v_loc": loc, "v_scale_tril": root}


def run_guide(
    sites: Mapping[str, Site | Param], q: Mapping[str, Tensor], X: Tensor, seed: int
) -> None:
    """Run the Pyro statements of the guide: a Delta for each hyperparameter, and q(v).

    Args:
        sites: The hyperparameters.
        q: The params of q(v).
        X: Inputs [n, d].
        seed: Of the medians of priors that have none in closed form.
    """
    for name, one in sites.items():
        if isinstance(one, Site) and isinstance(one.prior, Prior):
            distribution: Any = one.distribution(X)
            value = pyro.param(
                f"{name}.value",
                lambda n=name, s=one: medians({n: s}, X, seed)[n],
                constraint=distribution.support,
            )
            pyro.sample(name, dist.Delta(value, event_dim=len(one.shape)))
    axes = q["v_loc"].ndim
    of_v: Any
    if "v_scale" in q:
        of_v = dist.Normal(q["v_loc"], q["v_scale"])
    else:
        of_v = dist.MultivariateNormal(q["v_loc"], scale_tril=q["v_scale_tril"])
        axes = axes - 1
    pyro.sample("v", of_v.to_event(axes))
