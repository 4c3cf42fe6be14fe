"""Deterministic variational inference: exact on Gaussians, elsewhere as good as stochastic."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import kernels
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.inference import SVI
from ppgp.inference.variational.deterministic import matched_draws
from ppgp.models import GP, LogisticRegression

F64 = torch.float64
PRECISION = torch.tensor([[2.0, 1.3], [1.3, 1.0]], dtype=F64)
COVARIANCE = torch.linalg.inv(PRECISION)
MEAN = torch.tensor([1.0, -2.0], dtype=F64)
DETERMINISTIC = SVI("multivariate_normal", method="deterministic", draws=4000)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


def test_matched_draws_have_exact_moments() -> None:
    e = matched_draws(41, 5, torch.Generator().manual_seed(0), MEAN)
    torch.testing.assert_close(e.mean(0), torch.zeros(5, dtype=F64), atol=1e-12, rtol=0)
    torch.testing.assert_close(e.mT @ e / len(e), torch.eye(5, dtype=F64), atol=1e-12, rtol=0)


def test_a_gaussian_is_fitted_to_rounding() -> None:
    """The ELBO at the optimum is the log evidence, here 0."""
    posterior = ppgp.fit(gaussian, {"mean": MEAN}, DETERMINISTIC, progress=False)
    assert posterior.stats["elbo"] == pytest.approx(0.0, abs=1e-6)
    assert float(posterior.stats["elbo_history"][-1]) == pytest.approx(0.0, abs=1e-6)


def test_the_linear_response_is_the_covariance_that_mean_field_leaves_out() -> None:
    posterior = ppgp.fit(
        gaussian, {"mean": MEAN}, SVI("normal", method="deterministic"), progress=False
    )
    torch.testing.assert_close(posterior.stats["covariance"], COVARIANCE, rtol=1e-4, atol=1e-5)
    own = posterior.draws["z"].var(1)[0]
    assert bool((own < 0.5 * COVARIANCE.diagonal()).all())


@pytest.mark.parametrize("guide", ["normal", "multivariate_normal"])
def test_the_elbo_equals_that_of_the_stochastic_method(guide: str) -> None:
    """Within 0.02 nats plus Monte Carlo error, in no more than a few dozen iterations."""
    data = ppgp.load("breast_cancer")
    data = ppgp.Dataset(data.X[:, :12], data.y)
    two = {
        method: ppgp.fit(
            LogisticRegression(), data, SVI(guide, method=method, draws=4000), progress=False
        )
        for method in ("stochastic", "deterministic")
    }
    gap = {m: p.stats["lp"] - p.stats["log_q"] for m, p in two.items()}
    error = sum(float(g.var()) / g.numel() for g in gap.values()) ** 0.5
    assert two["deterministic"].stats["elbo"] >= two["stochastic"].stats["elbo"] - 0.02 - 3 * error
    assert len(two["deterministic"].stats["elbo_history"]) < 60


def test_it_fits_a_gaussian_process() -> None:
    data = ppgp.load("diabetes").rows(slice(0, 50))
    data = ppgp.Dataset(data.X[:, :2], data.y)
    result = {
        m: ppgp.fit(GP(kernels.ARD(kernels.RBF())), data, SVI(method=m, draws=2000), progress=False)
        for m in ("stochastic", "deterministic")
    }
    assert result["deterministic"].stats["elbo"] >= result["stochastic"].stats["elbo"] - 0.05
    assert ppgp.diagnose(result["deterministic"]).k_hat is not None


def test_unsupported_options_are_refused() -> None:
    with pytest.raises(UnknownName, match="method"):
        SVI(method="magic")
    with pytest.raises(SettingError, match="batch_size"):
        SVI(method="deterministic", batch_size=10)
    with pytest.raises(NotApplicable, match="deterministic"):
        ppgp.fit(
            LogisticRegression(),
            ppgp.load("breast_cancer"),
            SVI("lowrank", method="deterministic"),
            progress=False,
        )
