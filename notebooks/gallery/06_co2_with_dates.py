"""CO2 on Mauna Loa by date (Keeling & Whorf 2004): five years ahead, beside what was measured."""

import torch
from statsmodels.datasets import co2

import ppgp
from ppgp import inference, kernels, models, priors

frame = co2.load_pandas().data.resample("MS").mean().dropna().rename_axis("date").reset_index()
past, ahead = frame[:-60], frame[-60:]
data = ppgp.Dataset.from_frame(past, "co2", dates="years")
length = priors.InUnitsOfData(priors.LogNormal(0.0, 0.5))
slow = kernels.Polynomial(2) + kernels.Matern(1.5, lengthscale=length)
wave = kernels.Cosine(period=1.0) + kernels.Cosine(period=0.5)
fit = ppgp.fit(models.GP(slow + wave), data, inference.MAP(), progress=False)
region = fit.predict(ahead).interval(0.9)
print(region.lower[-1], region.upper[-1], ahead["date"].iloc[-1])
assert float(region.covers(torch.tensor(ahead["co2"].to_numpy())).double().mean()) > 0.7
