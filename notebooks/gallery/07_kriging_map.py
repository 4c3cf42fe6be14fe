"""A map by kriging from a CSV with latitude and longitude, in km."""

import pandas as pd
import torch

import ppgp
from ppgp import inference, kernels, models, priors

places = torch.rand(150, 2, generator=torch.Generator().manual_seed(0)) * 8 + torch.tensor([46, 4])
level = places[:, 0].sin() + (2 * places[:, 1]).cos()
pd.DataFrame({"lat": places[:, 0], "lon": places[:, 1], "level": level}).to_csv("level.csv")
data = ppgp.load("level.csv", target="level", drop=["Unnamed: 0"], coordinates=["lat", "lon"])
surface = kernels.Matern(1.5, lengthscale=priors.LogNormal(5.0, 1.0))
model = models.Kriging(kernels.Sphere(surface, radius=6371.0), nugget=priors.LogNormal(-5.0, 1.0))
fit = ppgp.fit(model, data, inference.MAP(), progress=False)
lines = torch.linspace(46.5, 53.5, 30).double(), torch.linspace(4.5, 11.5, 30).double()
image = fit.latent(torch.cartesian_prod(*lines)).mean.reshape(30, 30)
assert float((image - lines[0].sin()[:, None] - (2 * lines[1]).cos()).abs().mean()) < 0.1
