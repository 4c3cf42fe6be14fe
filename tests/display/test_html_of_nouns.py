"""The tables that notebooks show: well-formed, escaped, and without scripts or styles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from nouns import KINDS, frame, nouns, posterior

from ppgp import (
    Dataset,
    MultiPosterior,
    Prediction,
    conformal,
    inference,
    kernels,
    likelihoods,
    models,
)
from ppgp.display import tables
from ppgp.models.program import Program


class Checked(HTMLParser):
    """Reads HTML, and keeps the cells of tables; unbalanced tags fail."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs  # no styles, classes or handlers
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["td"], ["th"]):
            self.cells[-1] += data


def cells_of(thing: Any) -> list[str]:
    """Return the cells of the tables of an object."""
    reader = Checked()
    reader.feed(thing._repr_html_())
    assert not reader.open
    return reader.cells


@pytest.mark.parametrize("kind", KINDS)
def test_html_is_balanced_and_holds_tables_alone(kind: str) -> None:
    html = nouns()[kind]._repr_html_()
    assert kind in html
    assert cells_of(nouns()[kind])
    assert "<script" not in html
    assert "style" not in html
    assert "color" not in html
    assert len(html) < 20_000


def test_text_of_the_user_is_escaped() -> None:
    table = frame().rename(columns={"bmi": "<script>alert(1)</script>"}).drop(columns="school")
    html = Dataset.from_frame(table, "y")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "a &lt; b &amp; c" in nouns()["Posterior"]._repr_html_()


def test_dataset_shows_its_columns() -> None:
    cells = cells_of(nouns()["Dataset"])
    at = cells.index("bmi")
    bmi = frame()["bmi"]
    assert cells[at + 1 : at + 4] == ["input", f"{bmi.mean():.4g}", f"{bmi.std():.4g}"]
    assert "north: 20, south: 20" in cells
    labels = Dataset(np.zeros((3, 1)), ["no", "yes", "yes"], missing="keep")
    assert "no: 1, yes: 2" in cells_of(labels)
    wide = Dataset(np.zeros((2, 50)), [1.0, 2.0])
    assert "x28" in cells_of(wide)
    assert "x29" not in cells_of(wide)
    assert "and 21 columns more" in wide._repr_html_()
    assert "y" in cells_of(wide)
    empty = Dataset(np.array([[np.nan], [1.0]]), [1.0, 2.0], missing="keep")
    assert "1 missing" in cells_of(empty)


def test_posterior_shows_its_scalars_and_its_warnings() -> None:
    cells = cells_of(nouns()["Posterior"])
    assert {"weight[bmi]", "weight[a<b]", "r_hat", "4 chains of 500"} <= set(cells)
    mean = float(nouns()["Posterior"].draws["bias"].mean())
    assert cells[cells.index("bias") + 1] == f"{mean:.4g}"
    point = posterior(1, 1, inference.MAP())
    assert "value" in cells_of(point)
    assert "sd" not in cells_of(point)
    certain = replace(point, draws={}, stats={"parameters": 0})
    assert "weight[bmi]" not in cells_of(certain)
    assert "MAP" in "".join(cells_of(certain))


def test_posterior_of_many_scalars_counts_the_others() -> None:
    draws = {"weight": torch.randn(1, 50, 30, generator=torch.Generator().manual_seed(1))}
    fit = posterior(how=inference.Laplace())
    wide = replace(fit, draws=draws, data=Dataset(np.zeros((2, 30)), [0.0, 1.0]))
    assert "and 10 scalars more" in wide._repr_html_()
    assert "weight[19]" in cells_of(wide)
    several = MultiPosterior({"u": fit, "v": fit})
    assert {"u", "v", "Laplace"} <= set(cells_of(several))


def test_prediction_shows_first_rows_with_their_interval() -> None:
    prediction = nouns()["Prediction"]
    cells = cells_of(prediction)
    assert cells[:5] == ["", "mean", "sd", "lower", "upper"]
    lower, upper = prediction[:5].interval(0.9)
    last = [float(figure[4]) for figure in (prediction.mean, prediction.std, lower, upper)]
    assert cells[-5:] == ["4", *(f"{number:.4g}" for number in last)]
    labels = Prediction(dist.Bernoulli(torch.full((3, 2), 0.25)), classes=("no", "yes"))
    assert cells_of(labels)[:6] == ["", "p(no)", "p(yes)", "0", "0.75", "0.25"]
    joint = dist.MultivariateNormal(torch.zeros(2, 3), torch.eye(3))
    assert "joint over the rows" in Prediction(joint)._repr_html_()
    known = Prediction.from_quantiles([[0.0, 1.0, 5.0]], [0.1, 0.5, 0.9])
    assert "mean" not in cells_of(known)


def test_region_shows_its_guarantee() -> None:
    region = nouns()["Prediction"].interval(0.8)
    cells = cells_of(region)
    assert region.guarantee in cells
    assert f"{float(region.lower[0]):.4g}" in cells
    labels = Prediction(dist.Bernoulli(torch.full((3, 9), 0.25)), classes=("no", "yes"))
    sets = conformal.LAC().region(labels, torch.tensor(0.5), 0.9)
    assert cells_of(sets)[-1] == "no"
    assert "and 4 rows more" in sets._repr_html_()


def test_verdicts_come_with_their_reasons() -> None:
    comparison = nouns()["Comparison"]
    html = comparison._repr_html_()
    assert comparison.verdicts["laplace"] in cells_of(comparison)
    assert tables.escaped(comparison.reasons["laplace"]) in html
    diagnosis = nouns()["Diagnosis"]
    assert diagnosis.reason in diagnosis._repr_html_()
    assert "weight[bmi]" in cells_of(diagnosis)


def test_recipes_show_their_parts_and_priors_under_the_names_of_sites() -> None:
    kernel = kernels.Subspace(kernels.ARD(kernels.RBF()), [0]) + 2.0 * kernels.Matern(variance=1.5)
    model = models.GP(kernel)
    cells = cells_of(model)
    pairs = dict(zip(cells[2::2], cells[3::2], strict=True))
    assert pairs["kernel"] == "Sum"
    assert pairs["kernel.0"] == "Subspace of ARD of RBF"
    assert pairs["kernel.1.variance"] == "1.5"
    assert pairs["kernel.0.lengthscale"].startswith("Lengthscale(")
    assert set(model.sites(2)) <= set(pairs)
    assert "double" in cells_of(Program(double))


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_cells_are_short_and_tables_narrow() -> None:
    assert len(tables.escaped("x" * 5000)) < 300
    wide = pd.DataFrame(np.zeros((3, 40)))
    shown = tables.frame(wide, 2)
    assert "and 28 columns more" in shown
    assert "and 1 row more" in shown
    assert tables.items("Warnings", ()) == ""
    assert tables.sentence("") == ""


@dataclass
class LawOfOneNumber:
    """A class of the user's own that makes a distribution."""

    f: torch.Tensor

    def __call__(self) -> Any:
        return dist.Normal(self.f, 1.0)


def test_parts_that_are_no_records_of_the_library_take_one_row() -> None:
    network = cells_of(models.NeuralRegression())
    assert "network" in network
    assert not [cell for cell in network if cell.startswith("network.")]
    law = cells_of(models.GLM(likelihoods.FromDistribution(LawOfOneNumber)))
    assert law[law.index("likelihood.build") + 1] == "LawOfOneNumber"
    kernel = cells_of(models.GP(kernels.ARD(kernels.RBF())))
    assert "kernel.lengthscale" in kernel
