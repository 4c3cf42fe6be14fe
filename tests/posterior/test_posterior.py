"""Posterior: shapes, units, training rows, summary and file."""

from __future__ import annotations

from pathlib import Path

import arviz
import numpy as np
import pandas
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.data import Dataset
from ppgp.errors import DataError, NotApplicable
from ppgp.inference import NUTS
from ppgp.models import GP, LinearRegression
from ppgp.posterior import Posterior
from ppgp.posterior.arviz import is_modern

CHAINS, DRAWS = 2, 40
X = np.random.default_rng(0).normal(3.0, 2.0, size=(9, 3))
Y = np.random.default_rng(1).normal(100.0, 20.0, size=9)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior(model: object = None, how: object = None) -> Posterior:
    data, scaler = Dataset(X, Y, ["a", "b", "c"], "target").standardised()
    if isinstance(model, GP):
        draws = {
            k: normal(CHAINS, DRAWS, *s.shape).exp()
            for k, s in model.sites(3).items()
            if not s.fixed
        }
        return Posterior(model, data, draws, how=how, scaler=scaler)
    draws = {
        "weight": normal(CHAINS, DRAWS, 3),
        "bias": normal(CHAINS, DRAWS, seed=1),
        "noise": normal(CHAINS, DRAWS, seed=2).exp(),
    }
    return Posterior(
        LinearRegression(), data, draws, how=how, scaler=scaler, warnings=("one", "two")
    )


def test_theta_joins_chains_in_order() -> None:
    mine = posterior()
    assert mine.theta["weight"].shape == (CHAINS * DRAWS, 3)
    assert torch.equal(mine.theta["weight"][DRAWS], mine.draws["weight"][1, 0])
    assert mine.chains == CHAINS


def test_predictions_are_in_the_units_of_the_data() -> None:
    mine = posterior()
    assert not mine.scaler.is_identity
    rows = normal(4, 3, seed=5)
    inner = mine.model.predict(mine.theta, mine.scaler.inputs(rows), mine.data)
    expected = mine.scaler.y_mean + mine.scaler.y_sd * inner.mean.mean(0)
    torch.testing.assert_close(mine.predict(rows).mean, expected)


def test_coefficients_in_data_units_give_the_same_mean() -> None:
    mine = posterior()
    coefficients = mine.coefficients()
    rows = normal(4, 3, seed=5)
    mean = (
        torch.einsum("cdk,nk->cdn", coefficients["weight"], rows) + coefficients["bias"][..., None]
    )
    torch.testing.assert_close(mean.mean((0, 1)), mine.predict(rows).mean)


def test_training_rows_are_recognised_and_others_are_not() -> None:
    mine = posterior()
    prediction = mine.predict(
        np.concatenate([X[[4, 0]], X[[1]] + 1e-9, X[[2]] + 1e-2, np.zeros((1, 3))])
    )
    assert prediction.in_training_with(Y[[4, 0, 1, 2, 3]]).tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert prediction.in_training_with(Y[[0, 4, 3, 2, 1]]).tolist() == [False] * 5


def test_new_rows_are_checked_by_name_and_number_of_columns() -> None:
    bad = X.copy()
    bad[2, 1] = np.nan
    with pytest.raises(DataError, match="row 2, column b"):
        posterior().predict(bad)
    with pytest.raises(DataError, match="3 columns, as in training, got 2"):
        posterior().predict(X[:, :2])


def test_missing_capabilities_are_refused_with_advice() -> None:
    with pytest.raises(NotApplicable, match="use predict"):
        posterior().latent(X)
    with pytest.raises(NotApplicable, match=r"read posterior\.draws"):
        posterior(GP()).coefficients()


def test_summary_has_one_row_per_scalar_with_its_mean_sd_and_quantiles() -> None:
    table = posterior().summary()
    assert list(table.index) == ["weight[a]", "weight[b]", "weight[c]", "bias", "noise"]
    assert list(table.columns) == ["mean", "sd", "5%", "50%", "95%"]
    bias = posterior().draws["bias"].numpy().ravel()
    expected = [bias.mean(), bias.std(ddof=1), *np.quantile(bias, [0.05, 0.5, 0.95])]
    np.testing.assert_allclose(table.loc["bias"].to_numpy(dtype=float), expected)


def test_summary_of_chains_adds_their_diagnostics() -> None:
    table = posterior(how=NUTS(chains=2)).summary()
    assert {"r_hat", "ess_bulk", "mcse_mean"} <= set(table.columns)
    assert bool(np.isfinite(table.to_numpy(dtype=float)).all())


def test_the_errors_of_standard_deviations_equal_those_of_arviz() -> None:
    chains = posterior(how=NUTS(chains=2))
    theirs = arviz.mcse(chains.to_arviz(log_likelihood=False), method="sd")
    ours = chains.summary()["mcse_sd"]
    for name in ("bias", "noise"):
        assert ours[name] == pytest.approx(float(theirs[name]), rel=1e-12)
    np.testing.assert_allclose(ours[:3], theirs["weight"], rtol=1e-12)


def test_summary_of_chains_where_arviz_uses_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """ArviZ does where numba is installed, and then fails at this under NumPy 2.4."""
    if is_modern(arviz):
        pytest.skip("ArviZ 1.x uses numba on request only, and the library does not request it")
    chains = posterior(how=NUTS(chains=2))
    without = chains.summary()
    monkeypatch.setattr(arviz.utils.Numba, "numba_flag", True)
    pandas.testing.assert_frame_equal(chains.summary(), without)


def test_repr_names_model_method_draws_and_warnings() -> None:
    assert "LinearRegression by NUTS: 2 x 40 draws" in repr(posterior(how=NUTS()))
    assert "2 warnings" in repr(posterior())


@pytest.mark.parametrize("model", [None, GP()], ids=["linear", "gp"])
def test_a_saved_posterior_predicts_the_same(tmp_path: Path, model: GP | None) -> None:
    mine = posterior(model, NUTS(chains=2))
    found = ppgp.load_posterior(mine.save(tmp_path / "posterior.ppgp"))
    assert (found.model, found.how, found.warnings) == (mine.model, mine.how, mine.warnings)
    rows = normal(4, 3, seed=5)
    for figure in ("mean", "std"):
        assert torch.equal(
            getattr(found.predict(rows), figure), getattr(mine.predict(rows), figure)
        )
    assert found.predict(X).in_training_with(Y).tolist() == [True] * 9
    assert found.data.feature_names == ("a", "b", "c")
