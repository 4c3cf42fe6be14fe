"""Old names work for one more version, with a warning that states the new name.

A saved file opens without the fields that are gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

import ppgp
from ppgp import conformal, inference, likelihoods
from ppgp.diagnostics.comparison import Comparison
from ppgp.diagnostics.diagnosis import Diagnosis
from ppgp.models import GP, Kriging, LinearRegression, Model
from ppgp.posterior import loading
from ppgp.posterior.files import encoding

NORMAL = torch.distributions.Normal(torch.zeros(3).double(), torch.ones(3).double())


def test_old_fields_of_records() -> None:
    with pytest.warns(FutureWarning, match="Ensemble.of is now base"):
        ensemble = inference.Ensemble(of=inference.MAP(steps=7))
    with pytest.warns(FutureWarning, match="Ensemble.of is now base"):
        assert ensemble.of == ensemble.base == inference.MAP(steps=7)
    with pytest.warns(FutureWarning, match="RAPS.free is now k_reg"):
        assert conformal.RAPS(free=3) == conformal.RAPS(k_reg=3)
    with pytest.warns(FutureWarning, match="Prediction.seen is now in_training"):
        law = ppgp.Prediction(NORMAL, seen=torch.ones(3, dtype=torch.bool))
    with pytest.warns(FutureWarning, match="seen_with is now in_training_with"):
        assert law.seen_with(torch.zeros(3).double()).all()
    assert replace(ensemble, members=2).base == ensemble.base  # no old name, no warning


def test_old_fields_of_comparisons_and_diagnoses() -> None:
    table = pd.DataFrame({"site": ["weight"]})
    with pytest.warns(FutureWarning, match="Comparison.latents is now sites"):
        comparison = Comparison(latents=table, predictive=table, verdicts={}, reasons={})
    with pytest.warns(FutureWarning, match="Comparison.latents is now sites"):
        assert comparison.latents is comparison.sites is table
    diagnosis = Diagnosis("agrees", "R-hat at most 1.000", (), table)
    with pytest.warns(FutureWarning, match="Diagnosis.figure is now reason"):
        assert diagnosis.figure == diagnosis.reason == "R-hat at most 1.000"
    assert replace(diagnosis, reason="").reason == ""  # no old name, no warning


def test_old_methods() -> None:
    theta = {"noise": torch.tensor(0.5).double()}
    with pytest.warns(FutureWarning, match="Gaussian.law is now distribution"):
        old = likelihoods.Gaussian().law(theta, torch.zeros(4).double())
    assert torch.equal(
        old.scale, likelihoods.Gaussian().distribution(theta, torch.zeros(4).double()).scale
    )
    with pytest.warns(FutureWarning, match="deleted is now leave_one_out_parts"):
        assert conformal.deleted is conformal.leave_one_out_parts
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        conformal.nothing


def test_the_old_method_of_targets() -> None:
    data = ppgp.Dataset(torch.zeros(3, 1).double(), torch.ones(3).double())
    target = ppgp.density.Target(LinearRegression(), data)
    with pytest.warns(FutureWarning, match="Target.misled is now graph_was_wrong"):
        assert not target.misled(None)


def test_a_subclass_that_defines_a_method_by_its_old_name() -> None:
    with pytest.warns(FutureWarning, match="Wide.law is now distribution"):

        class Wide(LinearRegression):
            def law(self, theta: Any, X: torch.Tensor) -> Any:
                return torch.distributions.Normal(torch.zeros(len(X)).double(), 100.0)

    assert float(Wide().distribution({}, torch.zeros(2, 1).double()).scale[0]) == 100.0


def test_a_saved_file_with_an_old_field() -> None:
    old = type("Ensemble", (), {"__module__": "ppgp.inference.ensemble"})
    tree = {
        "class": "inference.Ensemble",
        "fields": {"of": {"class": "inference.MAP", "fields": {}}, "members": 3},
    }
    table = {"inference.Ensemble": inference.Ensemble, "inference.MAP": inference.MAP}
    assert encoding.Source({}, table).decode(tree) == inference.Ensemble(inference.MAP(), members=3)
    assert encoding.class_name(old) == "inference.Ensemble"


@pytest.mark.parametrize("model", [GP(noise=0.25), Kriging(nugget=0.25)])
def test_a_saved_recipe_with_the_field_of_known_noise(model: Model) -> None:
    written = encoding.Written()
    tree = encoding.encode(model, written, "the recipe")
    tree["fields"]["noise_sd"] = encoding.encode(torch.ones(3), written, "the known noise")
    assert encoding.Source(written.tensors, loading.table()).decode(tree) == model
