"""Two classes in two dimensions: probabilities on a grid, and where they are uncertain."""

import torch
from sklearn.datasets import make_moons

import ppgp
from ppgp import inference, likelihoods, models

X, y = make_moons(200, noise=0.25, random_state=0)
train, test = ppgp.Dataset(X, y).split(0.7, seed=0)
model = models.GP(likelihood=likelihoods.Bernoulli())
fit = ppgp.fit(model, train, inference.MAP(), progress=False)
grid = torch.cartesian_prod(*[torch.linspace(-2, 3, 25, dtype=torch.float64)] * 2)
probability = fit.predict(grid).probabilities[:, 1].reshape(25, 25)
assert ppgp.metrics.accuracy(fit.predict(test.X), test.y) > 0.85
