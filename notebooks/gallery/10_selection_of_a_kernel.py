"""Which kernel suits the rows: kernels ranked by leave-one-out predictions."""

import torch

import ppgp
from ppgp import inference, kernels, models

x = torch.linspace(0, 12, 80, dtype=torch.float64)[:, None]
noise = torch.randn(80, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
data = ppgp.Dataset(x, torch.sin(4 * x[:, 0]) + 0.3 * x[:, 0] + 0.2 * noise)
periodic = kernels.Periodic() * kernels.RBF(variance=1.0) + kernels.Linear()
choices = {"rough": kernels.Matern(0.5), "line": kernels.Linear(), "waves": periodic}
fits = {
    name: ppgp.fit(models.GP(kernel), data, inference.MAP(starts=4), progress=False)
    for name, kernel in choices.items()
}
table = ppgp.compare(fits, loo=True).to_frame()
print(table)
assert table.loc["waves", "ranking"] == "best"
