"""Which numbers of a program are data: BIC, AIC and the pointwise log likelihood."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import ppgp
from ppgp.errors import DataWarning, NotApplicable
from ppgp.inference import MAP, Laplace

F64 = torch.float64
Y = torch.tensor([0.3, -1.2, 2.0, 0.7, 1.9, -0.4], dtype=F64)
MISSING = torch.tensor([True, False, False, True, False, False])
PLACES = torch.tensor([0, 3])


def unknown_mean() -> Tensor:
    return pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 3.0))


def plain(y: Tensor) -> None:
    m = unknown_mean()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def weighted(y: Tensor, w: Any) -> None:
    m = unknown_mean()
    with pyro.plate("rows", len(y)), poutine.scale(scale=w):  # type: ignore[attr-defined]
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def imputed(y: Tensor) -> None:
    m = unknown_mean()
    with pyro.plate("missing", len(PLACES)):
        z = pyro.sample("z", dist.Normal(m, 1.0).mask(False))
    full = y.index_put((PLACES,), z)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=full)


def prior_as_observation(y: Tensor) -> None:
    m = pyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
    pyro.sample("prior", dist.Normal(torch.zeros((), dtype=F64), 3.0), obs=m)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def nan_masked(y: Tensor) -> None:
    m = unknown_mean()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.NanMaskedNormal(m, torch.ones((), dtype=F64)), obs=y)


def censored(y: Tensor) -> None:
    m = unknown_mean()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)
    pyro.factor("above", torch.special.log_ndtr(m - 2.0))


def fit(program: Any, how: Any = None, **data: Any) -> ppgp.Posterior:
    return ppgp.fit(program, data, how or MAP(), progress=False)


def log_likelihood(m: Tensor, y: Tensor) -> float:
    return float(dist.Normal(m, 1.0).log_prob(y).sum())


@pytest.mark.parametrize(
    ("program", "y", "kept"),
    [
        (imputed, Y, Y[~MISSING]),
        (prior_as_observation, Y, Y),
        (nan_masked, torch.where(MISSING, torch.nan, Y), Y[~MISSING]),
    ],
    ids=["imputed", "prior", "NaN"],
)
def test_what_the_program_computes_or_leaves_out_is_no_data(
    program: Any, y: Tensor, kept: Tensor
) -> None:
    posterior = fit(program, Laplace(draws=20), y=y)
    mode = posterior.stats["mode"]
    mode = (mode["m"] if isinstance(mode, dict) else mode).reshape(-1)[0]
    assert posterior.stats["observations"] == len(kept)
    assert posterior.stats["log_likelihood"] == pytest.approx(log_likelihood(mode, kept))
    assert {name: value.shape[-1] for name, value in posterior.pointwise().items()} == {
        "y": len(kept)
    }


def test_a_weight_counts_as_so_many_rows() -> None:
    w = torch.tensor([3.0, 1.0, 1.0, 2.0, 1.0, 1.0], dtype=F64)
    posterior = fit(weighted, y=Y, w=w)
    assert posterior.bic == pytest.approx(fit(plain, y=Y.repeat_interleave(w.long())).bic)
    with pytest.raises(NotApplicable, match="rows that count once each"):
        posterior.pointwise()
    once = fit(weighted, y=Y, w=torch.ones(6, dtype=F64))
    torch.testing.assert_close(once.pointwise()["y"], fit(plain, y=Y).pointwise()["y"])


def test_a_criterion_says_that_factors_are_left_out() -> None:
    posterior = fit(censored, y=Y)
    for criterion in ("aic", "bic"):
        with pytest.warns(DataWarning, match=f"the {criterion} leaves out pyro.factor .above."):
            getattr(posterior, criterion)


def test_leave_one_out_says_that_factors_are_left_out() -> None:
    posterior = fit(censored, Laplace(draws=50), y=Y)
    with pytest.warns(DataWarning, match=r"PSIS-LOO leaves out pyro.factor \(above\)"):
        ppgp.psis_loo(posterior)


def test_torch_does_not_warn_of_operations_that_vmap_takes_one_by_one() -> None:
    posterior = fit(censored, Laplace(draws=20), y=Y)
    assert posterior.pointwise()["y"].shape == (1, 20, len(Y))
