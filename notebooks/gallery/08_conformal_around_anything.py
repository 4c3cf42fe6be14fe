"""Intervals with a guarantee around a scikit-learn model, and around a network of torch."""

import torch
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor

import ppgp
from ppgp import conformal, estimators

X, y = (torch.tensor(each).float() for each in load_diabetes(return_X_y=True))
boosted = estimators.ConformalRegressor(HistGradientBoostingRegressor(), level=0.8)
print(boosted.fit(X[:300], y[:300]).predict_interval(X[300:]))
net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
adam = torch.optim.Adam(net.parameters(), 0.1)
for _ in range(200):
    adam.zero_grad()
    (100 * net(X[:200])[:, 0] - y[:200]).square().mean().backward()
    adam.step()
old, new = (ppgp.Prediction.from_points(100 * net(x)[:, 0].detach()) for x in (X[200:300], X[300:]))
region = ppgp.calibrate(conformal.Absolute(), old, y[200:300])(new, level=0.8)
assert float(region.covers(y[300:]).double().mean()) > 0.65
