"""The posteriordb programs, written in Pyro from their descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppgp.distributions.distributions import GPMarginal
from ppgp.priors import FlatDistribution, HalfCauchy


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def flat(*shape: int) -> Any:
    return FlatDistribution(
        torch.zeros(shape, dtype=torch.float64), torch.distributions.constraints.real
    ).to_event(len(shape))


def eight_schools(sigma: Tensor, y: Tensor | None = None) -> None:
    mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
    tau = pyro.sample("tau", HalfCauchy(5.0).distribution(sigma))
    z = pyro.sample("z", dist.Normal(torch.zeros_like(sigma), 1.0).to_event(1))
    theta = pyro.deterministic("theta", mu + tau * z, event_dim=1)
    with pyro.plate("rows", len(sigma)):
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def eight_schools_centred(sigma: Tensor, y: Tensor | None = None) -> None:
    """The same posterior of mu, tau and theta in a form that is hard to sample."""
    mu = pyro.sample("mu", dist.Normal(number(0), number(5)))
    tau = pyro.sample("tau", HalfCauchy(5.0).distribution(sigma))
    with pyro.plate("rows", len(sigma)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def kidiq(iq: Tensor, y: Tensor | None = None) -> None:
    beta = pyro.sample("beta", flat(2))
    sigma = pyro.sample("sigma", HalfCauchy(2.5).distribution(iq))
    with pyro.plate("rows", len(iq)):
        pyro.sample("y", dist.Normal(beta[0] + beta[1] * iq, sigma), obs=y)


def gp_regr(x: Tensor, y: Tensor | None = None) -> None:
    rho = pyro.sample("rho", dist.Gamma(number(25), number(4)))
    alpha = pyro.sample("alpha", dist.HalfNormal(number(2)))
    sigma = pyro.sample("sigma", dist.HalfNormal(number(1)))
    K = alpha**2 * torch.exp(-0.5 * (x[:, None] - x).square() / rho**2) + sigma * torch.eye(
        len(x), dtype=x.dtype
    )
    pyro.sample("y", GPMarginal(torch.zeros_like(x), K), obs=y)


def blr(X: Tensor, y: Tensor | None = None) -> None:
    beta = pyro.sample(
        "beta", dist.Normal(torch.zeros(X.shape[1], dtype=X.dtype), 10.0).to_event(1)
    )
    sigma = pyro.sample("sigma", dist.HalfNormal(number(10)))
    with pyro.plate("rows", len(X)):
        pyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def nes(X: Tensor, y: Tensor | None = None) -> None:
    beta = pyro.sample("beta", flat(X.shape[1]))
    sigma = pyro.sample(
        "sigma", FlatDistribution(number(1), torch.distributions.constraints.positive)
    )
    with pyro.plate("rows", len(X)):
        pyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def arguments(data: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
    """Return the arguments of each program, from the data of its name."""
    t = {k: torch.as_tensor(v, dtype=torch.float64) for k, v in data.items()}
    if "J" in t:
        return {"args": {"sigma": t["sigma"], "y": t["y"]}}
    if "kid_score" in t:
        return {"args": {"iq": t["mom_iq"], "y": t["kid_score"]}}
    if "partyid7" in t:
        age = [(t["age_discrete"] == k).double() for k in (2, 3, 4)]
        columns = [
            torch.ones_like(t["educ1"]),
            t["real_ideo"],
            t["race_adj"],
            *age,
            t["educ1"],
            t["gender"],
            t["income"],
        ]
        return {"args": {"X": torch.stack(columns, 1), "y": t["partyid7"]}}
    return {"args": {"X": t["X"], "y": t["y"]} if "X" in t else {"x": t["x"], "y": t["y"]}}


PROGRAMS: dict[str, Callable[..., None]] = {
    "eight_schools-eight_schools_noncentered": eight_schools,
    "kidiq-kidscore_momiq": kidiq,
    "gp_pois_regr-gp_regr": gp_regr,
    "sblrc-blr": blr,
    "nes1972-nes": nes,
}
