"""A hierarchical Pyro program: SVI beside NUTS, on the eight schools of Rubin (1981)."""

import pyro
import pyro.distributions as dist
import torch

import ppgp
from ppgp import inference


def schools(sd, y=None):
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 10.0)), pyro.sample("tau", dist.HalfNormal(10.0))
    with pyro.plate("school", len(sd)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu + tau * z, sd), obs=y)


effects, errors = [28.0, 8, -3, 7, -1, 1, 18, 12], [15.0, 10, 16, 11, 9, 11, 10, 18]
data = {"sd": torch.tensor(errors).double(), "y": torch.tensor(effects).double()}
hows = {"svi": inference.SVI(), "nuts": inference.NUTS(draws=500)}
fits = {name: ppgp.fit(schools, data, how, progress=False) for name, how in hows.items()}
table = ppgp.compare(fits).to_frame()
assert table.loc["nuts", "verdict"] == "reference"
