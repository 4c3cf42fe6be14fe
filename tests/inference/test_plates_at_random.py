"""Methods with fixed draws refuse a density that takes some of its rows at random."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

from ppgp import fit
from ppgp.errors import NotApplicable
from ppgp.inference import MAP, NUTS, SVI, Ensemble, Laplace, Pathfinder

F64 = torch.float64


def program(y):
    mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 5.0))
    with pyro.plate("units", len(y), subsample_size=10) as chosen:
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y[chosen])


@pytest.mark.parametrize(
    "how",
    [
        SVI(method="deterministic"),
        SVI("normal", method="deterministic"),
        Ensemble(SVI(method="deterministic")),
        MAP(),
        Laplace(),
        NUTS(),
        Pathfinder(),
    ],
    ids=lambda how: repr(how)[:30],
)
def test_they_refuse_it(how) -> None:
    y = torch.arange(100.0, dtype=F64) / 50
    with pytest.raises(NotApplicable, match=r"the same density at every call .* plate 'units'"):
        fit(program, {"y": y}, how, progress=False)
