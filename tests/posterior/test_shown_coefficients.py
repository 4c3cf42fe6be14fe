"""Coefficients print and show as a table with names and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from ppgp import Dataset, Posterior, inference, likelihoods, models
from ppgp.models import Varying
from ppgp.priors import Site

N = 30
RNG = np.random.default_rng(8)
FRAME = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["dose", "a<b"])
LABELS = np.array(["no", "yes", "yes"] * (N // 3))
LEVELS = {"school": ["north", "south", "west"] * (N // 3)}
SHARED = ["intercept", "dose", "a<b"]


def posterior_of(model: Any, y: Any, draws: int = 40, **columns: Any) -> Posterior:
    data = Dataset(FRAME, y, **columns)
    ready = model.prepare(data)
    generator = torch.Generator().manual_seed(1)
    found = {
        name: torch.rand((1, draws, *site.shape), generator=generator, dtype=torch.float64)
        for name, site in ready.sites_at(data.d).items()
        if isinstance(site, Site)
    }
    return Posterior(ready, data, found, inference.Laplace())


CASES = {
    "linear": (lambda: models.LinearRegression(), FRAME["dose"], {}),
    "logistic": (lambda: models.LogisticRegression(), LABELS, {}),
    "glm": (lambda: models.GLM(likelihoods.Poisson()), np.arange(N) % 4, {}),
    "multilevel": (
        lambda: models.GLM(likelihoods.Gaussian(), groups={"school": Varying("1")}),
        FRAME["dose"],
        {"groups": LEVELS},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_coefficients_show_names_means_and_intervals(case: str) -> None:
    model, y, columns = CASES[case]
    posterior = posterior_of(model(), y, **columns)
    found = posterior.coefficients()
    table = found.to_frame()
    pd.testing.assert_frame_equal(table, posterior.coefficients("draws"))
    assert list(table) == ["mean", "sd", "2.5%", "50%", "97.5%"]
    assert sorted(table.index) == sorted(SHARED)
    dose = found["weight"][0, :, 0]
    assert table.loc["dose", "mean"] == pytest.approx(float(dose.mean()))
    assert table.loc["dose", "97.5%"] == pytest.approx(float(torch.quantile(dose, 0.975)))
    assert f"{float(dose.mean()):.4g}" in repr(found)
    html = found._repr_html_()
    assert "<th>a&lt;b</th>" in html
    assert "units of the data" in html
    assert f"<td>{float(dose.mean()):.4g}</td>" in html


def test_a_point_shows_values_alone() -> None:
    found = posterior_of(models.LinearRegression(), FRAME["dose"], draws=1).coefficients()
    assert repr(found).split()[0] == "value"
    assert "<th>sd</th>" not in found._repr_html_()
    assert {"weight", "bias"} == set(found)
