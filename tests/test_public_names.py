"""Every public name resolves, and public modules have the names that users need."""

from __future__ import annotations

import pytest

import ppgp


@pytest.mark.parametrize("name", ppgp.__all__)
def test_a_public_name_resolves(name: str) -> None:
    assert getattr(ppgp, name) is not None


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("networks", ("CNN", "MLP", "pretrained", "regressor", "training")),
        ("diagnostics", ("ess", "mcse", "psis", "rhat", "wasserstein")),
        ("metrics", ("accuracy", "brier", "coverage", "mean_crps", "mean_width", "nll", "rmse")),
        ("data", ("Dataset", "Scaler")),
        ("estimators", ("ProbabilisticClassifier", "ProbabilisticRegressor", "RBFFeatures")),
        ("target", ("Target",)),
    ],
)
def test_a_public_module_has_the_names_that_users_need(module: str, names: tuple[str, ...]) -> None:
    assert all(hasattr(getattr(ppgp, module), name) for name in names)
