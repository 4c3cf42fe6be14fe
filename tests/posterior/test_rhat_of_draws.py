"""R-hat and ESS exist for chains only; a single chain gets a warning instead of NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ppgp
from ppgp import diagnostics, inference, models
from ppgp.errors import NotApplicable
from ppgp.posterior import Posterior

OF_CHAINS = {"mcse_mean", "mcse_sd", "ess_bulk", "ess_tail", "r_hat"}


def fitted(how: inference.Inference) -> Posterior:
    return ppgp.fit(models.LinearRegression(), ppgp.load("diabetes"), how, progress=False)


@pytest.mark.parametrize(
    "how",
    [inference.SVI(steps=50), inference.Laplace(), inference.Exact(), inference.MAP()],
    ids=lambda h: type(h).__name__,
)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_independent_draws_have_neither(how: inference.Inference) -> None:
    posterior = fitted(how)
    assert not OF_CHAINS & set(posterior.summary().columns)
    assert not {"r_hat", "ess_bulk", "ess_tail"} & set(ppgp.diagnose(posterior).table.columns)
    assert posterior.to_arviz(log_likelihood=False).attrs["draws"] == "independent"
    with pytest.raises(
        NotApplicable,
        match=f"Markov chains for R-hat, got independent draws by {type(how).__name__}: ask",
    ):
        posterior.r_hat()


def chains(number: int) -> Posterior:
    z = torch.randn(number, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Posterior(None, {}, {"z": z}, how=inference.NUTS(chains=number))


def test_one_chain_gets_a_warning_and_no_nan() -> None:
    one = chains(1)
    table = one.summary()
    assert set(table.columns) & OF_CHAINS == OF_CHAINS - {"r_hat"}
    assert bool(np.isfinite(table.to_numpy(dtype=float)).all())
    sentence = (
        r"expected at least two chains for R-hat, got one: run more, for example NUTS\(chains=4\)"
    )
    with pytest.raises(NotApplicable, match=sentence):
        one.r_hat()
    with pytest.raises(NotApplicable, match=sentence):
        diagnostics.rhat(one.draws["z"].numpy())
    found = ppgp.diagnose(one)
    assert found.verdict == "unjudged"
    assert "r_hat" not in found.table.columns


def test_several_chains_have_both() -> None:
    four = chains(4)
    assert four.r_hat()["z"] == pytest.approx(diagnostics.rhat(four.draws["z"].numpy()))
    assert set(four.summary().columns) >= OF_CHAINS
