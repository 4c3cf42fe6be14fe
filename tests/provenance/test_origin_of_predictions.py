"""Calibration rows and new rows are predicted by one fit, in one way, where coverage is stated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Posterior, Prediction, inference, kernels, models
from ppgp import conformal as C
from ppgp.data import Dataset

F64 = torch.float64
LINE = torch.linspace(0, 1, 30, dtype=F64)[:, None]


def fitted(variance: float = 1.0, noise: float = 0.1) -> Posterior:
    data = Dataset(LINE, torch.sin(6 * LINE[:, 0]), noise_sd=torch.full((30,), 0.5, dtype=F64))
    model = models.GP(kernels.RBF(variance=variance, lengthscale=0.3), noise=noise, mean=0.0)
    return ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)


def rows(n: int) -> Tensor:
    return 0.013 + torch.linspace(0, 1, n, dtype=F64)[:, None]


def known(posterior: Posterior, n: int) -> Prediction:
    return posterior.predict(rows(n), noise_sd=0.5)


#: how calibration rows and new rows are predicted, and what the sentence says
CASES: dict[str, tuple[Callable[[Posterior, int], Prediction], str]] = {
    "predict": (lambda p, n: p.predict(rows(n)), "predict, not predict with known noise"),
    "latent": (lambda p, n: p.latent(rows(n)), "latent"),
    "another fit": (lambda _, n: known(fitted(variance=2.0), n), "another fit"),
    "half": (lambda p, n: p.predict(rows(n))[: n // 2], "predict, not predict with known noise"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_coverage_is_stated_for_rows_predicted_otherwise(case: str) -> None:
    posterior, (predicted, reason) = fitted(), CASES[case]
    prediction, y = known(posterior, 40), torch.zeros(40, dtype=F64)
    new = predicted(posterior, 10)
    sentences = [
        C.calibrate(C.Normalized(), prediction, y)(new, 0.8).guarantee,
        C.predictive_system(prediction, y)(new).guarantee,
        C.predictive_system(prediction, y)(new).interval(0.8).guarantee,
    ]
    for sentence in sentences:
        assert sentence.startswith("heuristic: no coverage is guaranteed")
        assert reason in sentence


def test_coverage_is_stated_for_rows_of_one_fit_and_method(tmp_path: Path) -> None:
    posterior = fitted()
    reread = ppgp.load_posterior(posterior.save(tmp_path / "fit"))
    calibrator = C.calibrate(C.Normalized(), known(posterior, 40), torch.zeros(40, dtype=F64))
    for same in (posterior, fitted(), reread):
        sentence = calibrator(known(same, 20)[5:], 0.8).guarantee
        assert sentence == "marginal coverage >= 0.8 (exchangeable rows)"


def test_a_program_is_predicted_with_the_same_settings() -> None:
    def program(x: Tensor, sd: float = 1.0, n: int = 0, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", n or len(x)):
            pyro.sample("y", dist.Normal(w * x, sd), obs=y)

    x = torch.linspace(-1, 1, 20)
    data = {"x": x, "y": x + 0.1 * torch.sin(9 * x)}
    posterior = ppgp.fit(program, data, inference.MAP(), progress=False)
    old, new = 0.01 + torch.linspace(-1, 1, 30), torch.linspace(-1, 1, 7)
    calibrator = C.calibrate(C.Normalized(), posterior.predict(x=old, n=30), torch.zeros(30))
    assert calibrator(posterior.predict(x=new, n=7), 0.8).guarantee.startswith("marginal")
    other = calibrator(posterior.predict(x=new, n=7, sd=0.1), 0.8).guarantee
    assert other.startswith("heuristic")
    assert "another sd" in other
