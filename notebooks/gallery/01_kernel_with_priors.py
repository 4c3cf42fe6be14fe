"""A kernel with priors on its hyperparameters, and a band around the function."""

import torch

import ppgp
from ppgp import inference, kernels, models, priors

x = torch.linspace(0, 10, 40, dtype=torch.float64)[:, None]
data = ppgp.Dataset(x, torch.sin(x[:, 0]) + 0.1 * torch.cos(37 * x[:, 0]))
length = priors.InUnitsOfData(priors.LogNormal(0.5, 0.5))
kernel = kernels.RBF(variance=priors.HalfNormal(1.0), lengthscale=length)
fit = ppgp.fit(models.GP(kernel), data, inference.Laplace(draws=400), progress=False)
print(fit.summary(units="data"))
lower, upper = fit.latent(x).interval(0.9)
assert float(((lower < x[:, 0].sin()) & (x[:, 0].sin() < upper)).double().mean()) > 0.8
