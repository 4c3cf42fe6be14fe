"""The coordinates of a sampler: a change of variables with its Jacobian."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp.density.target import Target
from ppgp.inference import NUTS
from ppgp.inference.mcmc.coordinates import Coordinates
from ppgp.models import Program

F64 = torch.float64


def scale_near_0() -> None:
    pyro.sample("weight", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    pyro.sample("sd", dist.HalfNormal(torch.ones(2, dtype=F64)).to_event(1))
    pyro.sample("share", dist.Beta(torch.tensor(2.0, dtype=F64), 2.0))


def coordinates() -> tuple[Target, Coordinates]:
    target = Target(Program(scale_near_0), {})
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(5, 5, generator=generator, dtype=F64)
    return target, Coordinates(target, (torch.arange(5, dtype=F64) / 4, root))


def test_the_logs_of_positive_sites_are_bent_and_no_others() -> None:
    target, found = coordinates()
    of_sd = target.slices["sd"]
    assert found.bent.tolist() == list(range(of_sd.start, of_sd.stop))


def test_where_the_density_does_not_exist_there_is_no_tail() -> None:
    def program() -> None:
        sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
        torch.linalg.cholesky((sd - 0.1) * torch.eye(2, dtype=F64))

    origin = torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64)
    target = Target(Program(program), {}, compile=False)
    assert not len(Coordinates(target, origin).bent)


def test_point_and_inverse_undo_each_other() -> None:
    _, found = coordinates()
    for w in np.random.default_rng(0).normal(0, 5, (50, 5)):
        np.testing.assert_allclose(found.inverse(found.point(w)), w, rtol=1e-10, atol=1e-10)


def test_the_density_has_the_jacobian_and_its_slope() -> None:
    target, found = coordinates()
    callback = target.callback()

    def density(w: np.ndarray) -> tuple[float, np.ndarray]:
        return found.density(w, *callback(found.point(w)))

    step = 1e-6
    base = np.linalg.slogdet(found.preconditioner[1])[1] if found.preconditioner else 0.0
    for w in np.random.default_rng(1).normal(0, 1, (20, 5)):
        value, gradient = density(w)
        around = [(w + h, w - h) for h in step * np.eye(5)]
        by_differences = [(density(a)[0] - density(b)[0]) / (2 * step) for a, b in around]
        np.testing.assert_allclose(gradient, by_differences, rtol=1e-5, atol=1e-6)
        columns = [(found.point(a) - found.point(b)) / (2 * step) for a, b in around]
        added = value - callback(found.point(w))[0]
        log_det = np.linalg.slogdet(np.stack(columns, 1))[1]
        np.testing.assert_allclose(added + base, log_det, atol=1e-6)
        z = found.point(w)
        np.testing.assert_allclose(found.log_jacobian(z[None]), added, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*diverged:ppgp.errors.ConvergenceWarning")  # a few may
def test_draws_near_0_and_their_log_density_are_those_of_the_target() -> None:
    how = NUTS(draws=500, warmup=300, chains=4)
    posterior = ppgp.fit(scale_near_0, {}, how, seed=0, progress=False)
    sd = posterior.draws["sd"].reshape(-1, 2)
    for bound in (0.01, 0.1, 1.0):
        inside = (sd < bound).double()
        expected = torch.erf(torch.tensor(bound / 2**0.5, dtype=F64))
        # as many independent draws as a fifth of all
        error = (expected * (1 - expected) / (len(sd) / 5)).sqrt()
        assert bool(((inside.mean(0) - expected).abs() < 4 * error).all())
