"""An ordinal regression and a multilevel model, as ppgp's models and as programs of Pyro.

``REGRESSIONS`` maps each name to a function of the data folder, which is not read, that returns
the model, the data, and Pyro's program with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppgp.data import Dataset
from ppgp.likelihoods import Gaussian, Ordinal
from ppgp.models import GLM, Varying

F64 = torch.float64
Arguments = dict[str, Tensor]
COUNTIES, HOMES = 85, 919


def ordinal(folder: Path) -> tuple[Any, Dataset, Any, Arguments]:
    """Return 400 rows like those of UCLA's students who apply to graduate school.

    Three inputs: whether a parent has a degree, whether the college is public, and the grades.
    """
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(400, 2, generator=generator, dtype=F64)
    grades = 3 + 0.4 * torch.randn(400, generator=generator, dtype=F64)
    X = torch.column_stack([u[:, 0] < 0.16, u[:, 1] < 0.14, grades]).to(F64)
    f = X @ torch.tensor([1.05, -0.06, 0.62], dtype=F64)
    below = torch.sigmoid(torch.tensor([2.2, 4.3], dtype=F64) - f[:, None])
    v = torch.rand(400, 1, generator=generator, dtype=F64)
    data, _ = Dataset(X, (v > below).sum(1).to(F64)).standardised(scale_y=False)
    return GLM(Ordinal()), data, ordinal_program, {"X": data.X, "y": data.y}


def ordinal_program(X: Tensor, y: Tensor) -> None:
    zero = torch.zeros(X.shape[1], dtype=X.dtype)
    weight = pyro.sample("weight", dist.Normal(zero, 1.0).to_event(1))
    shares = pyro.sample("shares", dist.Dirichlet(torch.ones(3, dtype=X.dtype)))
    cutpoints = torch.logit(shares.cumsum(-1)[..., :-1])
    pyro.deterministic("cutpoints", cutpoints)
    pyro.sample("y", dist.OrderedLogistic(X @ weight, cutpoints).to_event(1), obs=y)


def radon(folder: Path) -> tuple[Any, Dataset, Any, Arguments]:
    """Return 919 homes in 85 counties, simulated after Gelman & Hill (2007), chapter 12.

    y is the log of radon. The inputs are the floor of the measurement (0 or 1) and the log of the
    county's uranium. The intercept and the slope of floor vary between counties.
    """
    generator = torch.Generator().manual_seed(0)
    share = torch.randn(COUNTIES, generator=generator, dtype=F64).exp()
    drawn = torch.multinomial(share, HOMES - COUNTIES, True, generator=generator)
    county = torch.cat([torch.arange(COUNTIES), drawn])
    floor = (torch.rand(HOMES, generator=generator, dtype=F64) < 0.17).to(F64)
    uranium = (0.4 * torch.randn(COUNTIES, generator=generator, dtype=F64))[county]
    u = torch.randn(COUNTIES, 2, generator=generator, dtype=F64) * torch.tensor([0.15, 0.3])
    f = 1.45 - 0.65 * floor + 0.7 * uranium + u[county, 0] + u[county, 1] * floor
    y = f + 0.75 * torch.randn(HOMES, generator=generator, dtype=F64)
    names = ["floor", "uranium"]
    X = torch.stack([floor, uranium], 1)
    data = Dataset(X, y, feature_names=names, groups={"county": county.tolist()})
    model = GLM(Gaussian(), groups={"county": Varying("1 + floor")})
    return model, data, radon_program, {"X": X, "y": y, "county": county}


def radon_program(X: Tensor, y: Tensor, county: Tensor) -> None:
    zero = torch.zeros((), dtype=X.dtype)
    weight = pyro.sample("weight", dist.Normal(zero.expand(2), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(zero, 5.0))
    noise = pyro.sample("noise", dist.LogNormal(zero - 2, 1.0))
    sd = pyro.sample("county.sd", dist.HalfNormal((zero + 1).expand(2)).to_event(1))
    effect = pyro.sample("e", dist.Normal(zero.expand(COUNTIES, 2), 1.0).to_event(2)) * sd
    f = X @ weight + bias + effect[county, 0] + effect[county, 1] * X[:, 0]
    pyro.deterministic("county.effect", effect)
    pyro.sample("y", dist.Normal(f, noise.sqrt()).to_event(1), obs=y)


REGRESSIONS: dict[str, Callable[[Path], tuple[Any, Dataset, Any, Arguments]]] = {
    "ordinal": ordinal,
    "radon": radon,
}
