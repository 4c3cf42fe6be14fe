"""200,000 rows: a sparse Gaussian process in mini-batches."""

import torch

import ppgp
from ppgp import inference, models

X = torch.rand(200_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
noise = torch.randn(200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
data = ppgp.Dataset(X, torch.sin(6 * X[:, 0]) * torch.cos(6 * X[:, 1]) + 0.1 * noise)
train, test = data.split(0.99, seed=0)
how = inference.SVI(steps=150, batch_size=1000, learning_rate=0.02)
fit = ppgp.fit(models.SVGP(inducing=50), train, how, progress=False)
rmse = ppgp.metrics.rmse(fit.predict(test.X), test.y)
print(rmse)
assert rmse < 0.11
