"""The joint mode of f and its hyperparameters, a poor fit, is reported as such."""

from __future__ import annotations

import warnings

import pytest
import torch

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.errors import ConvergenceWarning

GENERATOR = torch.Generator().manual_seed(4)
X = torch.randn(60, 2, generator=GENERATOR, dtype=torch.float64)
LABELS = (
    X[:, 0] * X[:, 1] + 0.3 * torch.randn(60, generator=GENERATOR, dtype=torch.float64) > 0
).double()
DATA, TEST = Dataset(X[:40], LABELS[:40]), Dataset(X[40:], LABELS[40:])


def recipe(kernel: kernels.Kernel) -> models.SVGP:
    return models.SVGP(kernel, likelihood=likelihoods.Bernoulli(), selection="all", learn=False)


@pytest.mark.parametrize(
    "how", [inference.MAP(), inference.Laplace(draws=20)], ids=["map", "laplace"]
)
def test_the_joint_mode_of_f_and_hyperparameters_is_reported_as_a_poor_fit(
    how: inference.Inference,
) -> None:
    with pytest.warns(ConvergenceWarning, match="SVI or NUTS"):
        joint = ppgp.fit(recipe(kernels.RBF()), DATA, how, progress=False)
    assert joint.stats["joint_mode"] is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = ppgp.fit(recipe(kernels.RBF(2.0, 1.0)), DATA, how, progress=False)
        advised = ppgp.fit(
            recipe(kernels.RBF()), DATA, inference.SVI(method="deterministic"), progress=False
        )
    assert "joint_mode" not in fixed.stats
    assert "joint_mode" not in advised.stats
    nll = [-float(p.predict(TEST.X).log_prob(TEST.y).mean()) for p in (joint, advised)]
    assert nll[0] > nll[1] + 0.01


def test_ensembles_and_free_inducing_inputs_report_a_joint_mode_too() -> None:
    with pytest.warns(ConvergenceWarning, match="joint mode"):
        result = ppgp.fit(
            recipe(kernels.RBF()), DATA, inference.Ensemble(members=2), progress=False
        )
    assert any("joint mode" in sentence for sentence in result.warnings)


def test_models_without_a_latent_function_report_no_joint_mode() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in (models.GP(), models.LogisticRegression()):
            assert "joint_mode" not in ppgp.fit(model, DATA, inference.MAP(), progress=False).stats
