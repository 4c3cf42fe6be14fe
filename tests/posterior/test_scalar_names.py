"""Names of scalars: the coordinates of ``to_arviz`` in tables, verdicts and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import Dataset, Posterior, inference, kernels, likelihoods, models, networks, plots
from ppgp.models import Varying
from ppgp.posterior.arviz import arviz
from ppgp.posterior.axes import scalar_names
from ppgp.priors import Site

N = 24
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["bmi", "age", "dose"])
Y = FRAME["bmi"].to_numpy() + RNG.normal(size=N)
SCHOOLS = np.array(["north", "south", "west"] * (N // 3))
LABELS = np.array(["low", "mid", "high"] * (N // 3))


def posterior_of(model: Any, y: Any = Y, **columns: Any) -> Posterior:
    """Return a posterior of made-up draws, which names depend on by their shapes alone."""
    data = Dataset(FRAME, y, **columns)
    ready = model.prepare(data)
    generator = torch.Generator().manual_seed(1)
    draws = {}
    for name, site in ready.sites_at(data.d).items():
        if isinstance(site, Site):
            shape = (1, 9, *site.shape)
            draws[name] = torch.rand(shape, generator=generator, dtype=data.X.dtype) + 0.5
    if "proportion" in draws:
        draws["proportion"] /= draws["proportion"].sum(-1, keepdim=True)
    return Posterior(ready, data, draws, inference.Laplace())


def program(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    with pyro.plate("group", 2), pyro.plate("item", 3):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(x * a.sum(), 1.0).to_event(1), obs=y)


CASES = {
    "linear": lambda: posterior_of(models.LinearRegression()),
    "softmax": lambda: posterior_of(models.SoftmaxRegression(classes=3), LABELS),
    "subspace": lambda: posterior_of(
        models.GP(
            kernels.ARD(kernels.RBF()) + kernels.Subspace(kernels.ARD(kernels.Matern()), [1, 2])
        )
    ),
    "mixture": lambda: posterior_of(models.GaussianMixture(components=2)),
    "levels": lambda: posterior_of(
        models.GLM(
            likelihoods.Gaussian(),
            groups={"school": Varying("1 + bmi")},
            effects="sampled",
        ),
        groups={"school": SCHOOLS},
    ),
    "deep": lambda: posterior_of(
        models.GP(kernels.Deep(networks.MLP((4,), 3), kernels.ARD(kernels.RBF())))
    ),
    "program": lambda: ppgp.fit(
        program,
        {"x": torch.ones(4), "y": torch.zeros(4)},
        inference.Laplace(draws=9),
        progress=False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_summary_has_the_names_of_arviz(case: str) -> None:
    posterior = CASES[case]()
    theirs = arviz().summary(posterior.to_arviz(log_likelihood=False), kind="stats").index
    assert set(posterior.summary().index) == set(theirs)


def test_names_of_entries() -> None:
    index = list(CASES["linear"]().summary("data").index)
    assert index == ["weight[bmi]", "weight[age]", "weight[dose]", "bias", "noise"]
    assert "weight[mid, age]" in CASES["softmax"]().summary().index
    assert "kernel.1.lengthscale[dose]" in CASES["subspace"]().summary().index
    assert "school.effect[west, bmi]" in CASES["levels"]().summary().index
    assert "kernel.lengthscale[0]" in CASES["deep"]().summary().index  # of a feature
    assert "a[2, 1]" in CASES["program"]().summary().index
    unnamed = replace(CASES["linear"](), data=Dataset(FRAME.to_numpy(), Y))
    assert next(iter(unnamed.summary().index)) == "weight[0]"


def test_one_length_has_a_column_in_the_units_of_the_data() -> None:
    posterior = posterior_of(models.GP())
    assert "kernel.lengthscale" in posterior.summary().index
    _, scaler = posterior.data.standardised()
    posterior = replace(posterior, scaler=scaler)
    assert "kernel.lengthscale[dose]" in posterior.summary("data").index


def test_entries_without_a_table_are_numbered() -> None:
    draws = {"weight": torch.zeros(1, 5, 2, 2), "noise": torch.zeros(1, 5)}
    names = ["weight[0, 0]", "weight[0, 1]", "weight[1, 0]", "weight[1, 1]"]
    assert scalar_names(draws) == {"weight": names, "noise": ["noise"]}


def test_diagnose_compare_and_figures_have_these_names() -> None:
    generator = torch.Generator().manual_seed(2)
    sites = {"weight": (3,), "bias": ()}
    draws = {
        name: torch.randn(4, 500, *shape, generator=generator, dtype=torch.float64)
        for name, shape in sites.items()
    }
    model = models.LinearRegression(noise=1.0)
    chains = Posterior(model, Dataset(FRAME, Y), draws, inference.NUTS(chains=4))
    unnamed = replace(chains, data=Dataset(FRAME.to_numpy(), Y), how=inference.Laplace())
    assert "weight[bmi]" in ppgp.diagnose(chains).table.index
    assert "weight[age]" in chains.r_hat()
    found = ppgp.compare({"laplace": unnamed, "nuts": chains}, reference="nuts")
    assert list(found.sites["site"]) == ["weight[bmi]", "weight[age]", "weight[dose]", "bias"]
    figure = plots.trace(chains)
    assert figure.axes[0].get_ylabel() == "weight[bmi]"
    pair = plots.pair(chains, ["weight[bmi]", "bias"])
    assert "weight[bmi]" in {axis.get_xlabel() for axis in pair.axes}
    titles = [axis.get_title() for axis in plots.marginals({"a": chains, "b": unnamed}).axes]
    assert "weight[dose]" in titles
