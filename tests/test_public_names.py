"""Every public name resolves, and the modules hold what users call by them."""

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
def test_a_public_module_holds_what_users_call(module: str, names: tuple[str, ...]) -> None:
    assert all(hasattr(getattr(ppgp, module), name) for name in names)
