"""A loop of Bayesian optimisation on Branin's function (Dixon & Szego 1978), to be minimised."""

import torch

import ppgp
from ppgp import acquisition, inference, models


def branin(X):
    a, b = X.unbind(-1)
    return (b - 0.129185 * a**2 + 1.591549 * a - 6) ** 2 + 9.602113 * a.cos() + 10


bounds = [(-5.0, 10.0), (0.0, 15.0)]
X = torch.tensor([[-3.0, 2.0], [0, 9], [4, 12], [8, 3], [9, 14], [-4, 13], [3, 6], [6, 8]]).double()
fit = ppgp.fit(models.GP(noise=1e-6), ppgp.Dataset(X, branin(X)), inference.MAP(), progress=False)
for _ in range(15):
    place = acquisition.suggest(fit, bounds, acquisition=acquisition.LogEI(maximise=False))
    fit = fit.update(place, branin(place))
best = fit.scaler.targets_back(fit.data.y).min()
print(best)
assert float(best) < 0.397887 + 0.05
