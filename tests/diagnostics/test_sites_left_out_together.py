"""``psis_loo(sites=...)`` adds up densities of the same rows, or refuses."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import ppgp
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import Laplace

Y = torch.tensor([0.3, -0.8, 1.4, 0.2, -0.1, 0.9], dtype=torch.float64)
ALL = torch.ones(6, dtype=torch.bool)


def two_outcomes(y: Tensor, of_a: Tensor, of_b: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(y.new_zeros(()), 1.0))
    with pyro.plate("rows", len(y)):
        with poutine.mask(mask=of_a):  # pyright: ignore[reportArgumentType]
            pyro.sample("a", dist.Normal(mu, 1.0), obs=y)
        with poutine.mask(mask=of_b):  # pyright: ignore[reportArgumentType]
            pyro.sample("b", dist.Normal(mu, 3.0), obs=y)


def fitted(of_a: Tensor, of_b: Tensor) -> ppgp.Posterior:
    arguments = {"y": Y, "of_a": of_a, "of_b": of_b}
    return ppgp.fit(two_outcomes, arguments, Laplace(draws=4000), progress=False)


def without(row: int) -> Tensor:
    return torch.arange(6) != row


def exact(kept: Tensor) -> Tensor:
    """Return the joint log density of a and b of each kept row given the other kept rows."""
    found = []
    for row in kept.nonzero()[:, 0].tolist():
        others = kept & without(row)
        precision = 1 + others.sum() * (1 + 1 / 9)
        mean = Y[others].sum() * (1 + 1 / 9) / precision
        covariance = torch.diag(Y.new_tensor([1.0, 9.0])) + 1 / precision
        law = dist.MultivariateNormal(mean.expand(2), covariance)
        found.append(law.log_prob(Y[row].expand(2)))
    return torch.stack(found)


@pytest.mark.parametrize("kept", [ALL, without(2)], ids=["all rows", "all but one"])
def test_rows_are_left_out_with_all_that_is_observed_of_them(kept: Tensor) -> None:
    loo = ppgp.psis_loo(fitted(kept, kept), sites=["a", "b"])
    assert loo.pointwise == pytest.approx(exact(kept).numpy(), abs=0.05)


def test_masks_that_leave_out_different_rows_are_refused() -> None:
    posterior = fitted(without(0), without(5))
    with pytest.raises(NotApplicable, match="masks that leave out different rows"):
        ppgp.psis_loo(posterior, sites=["a", "b"])
    assert len(ppgp.psis_loo(posterior, site="a").pointwise) == 5


def test_a_site_is_named_once() -> None:
    with pytest.raises(SettingError, match="each site once"):
        ppgp.psis_loo(fitted(ALL, ALL), sites=["a", "a"])


def steps(y: Tensor, kept: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(y.new_zeros(()), 1.0))
    with pyro.plate("rows", y.shape[1]):
        for t in range(len(y)):
            with poutine.mask(mask=kept[t]):  # pyright: ignore[reportArgumentType]
                pyro.sample(f"y_{t}", dist.Normal(mu, 1.0), obs=y[t])


def test_steps_of_a_loop_may_have_masks_of_their_own() -> None:
    y, kept = Y.reshape(2, 3), torch.tensor([[True, False, True], [True, True, False]])
    posterior = ppgp.fit(steps, {"y": y, "kept": kept}, Laplace(draws=4000), progress=False)
    loo = ppgp.psis_loo(posterior, site="y")
    seen = y[kept]
    others = seen.sum() - seen
    law = dist.Normal(
        others / len(seen), (1 + 1 / len(seen)) ** 0.5
    )  # of four: three and the prior
    assert loo.pointwise == pytest.approx(law.log_prob(seen).numpy(), abs=0.05)
    with pytest.raises(NotApplicable, match="masks that leave out different rows"):
        ppgp.psis_loo(posterior, sites=["y_0", "y_1"])
    with pytest.raises(NotApplicable, match=r"got y_0, y_1: pass site='y', or sites="):
        ppgp.psis_loo(posterior)


def test_sites_of_as_many_rows_are_named_beside_one_of_others() -> None:
    def program(y: Tensor, few: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(y.new_zeros(()), 1.0))
        with pyro.plate("few", len(few)):
            pyro.sample("c", dist.Normal(mu, 1.0), obs=few)
        with pyro.plate("rows", len(y)):
            pyro.sample("a", dist.Normal(mu, 1.0), obs=y)
            pyro.sample("b", dist.Normal(mu, 3.0), obs=y)

    arguments = {"y": Y, "few": Y[:2]}
    posterior = ppgp.fit(program, arguments, Laplace(draws=400), progress=False)
    with pytest.raises(NotApplicable, match=r"or another one, or sites=\['a', 'b'\] if they"):
        ppgp.psis_loo(posterior)
    assert len(ppgp.psis_loo(posterior, sites=["a", "b"]).pointwise) == 6
