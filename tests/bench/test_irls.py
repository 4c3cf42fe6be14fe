"""An iteration of IRLS beside the matrix product that it needs, and full-rank VI beside Pyro."""

from __future__ import annotations

import time
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import SVI as PyroSVI
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoMultivariateNormal
from pyro.optim import Adam
from side_by_side import alternate, show

import ppgp
from ppgp.density import Target
from ppgp.inference import MAP, SVI
from ppgp.models import LogisticRegression

LIMIT_IRLS = 3.0
LIMIT_SVI = 1 / 3
NEAR = 0.05  # nats


@pytest.mark.filterwarnings("ignore")
def test_an_iteration_of_irls(benchmark: Any) -> None:
    n, d = 1_000_000, 50
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    w = 0.3 * torch.randn(d, generator=generator, dtype=torch.float64)
    y = (torch.rand(n, generator=generator, dtype=torch.float64) < torch.sigmoid(X @ w)).double()
    r = torch.rand(n, generator=generator, dtype=torch.float64)
    target = Target(LogisticRegression(), ppgp.Dataset(X, y))
    steps = MAP("newton")(target).stats["steps"]
    fit = alternate(
        {"fit": lambda: MAP("newton")(target), "(X' R X)": lambda: X.mT @ (X * r[:, None])},
        rounds=3,
    )
    figures = {"ppgp": fit["fit"] / (steps + 1), "X' R X": fit["(X' R X)"]}
    ratio = show(
        f"IRLS on {n} x {d}: one of {steps} iterations, fitting included, and X' R X",
        figures,
        "ms",
        1e3,
    )
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(lambda: MAP("newton")(target), rounds=1, iterations=1)
    assert ratio < LIMIT_IRLS


def _elbo_of_pyro(guide: Any, target: Target, draws: int = 2000) -> float:
    """Return the ELBO of the guide's Gaussian, for the density of ``target``."""
    posterior = guide.get_posterior()
    z = posterior.rsample((draws,)).detach()
    lp = torch.stack([target.value_and_grad(point)[0] for point in z])
    return float((lp - posterior.log_prob(z)).mean())


@pytest.mark.filterwarnings("ignore")
def test_full_rank_vi_to_its_best_elbo(benchmark: Any) -> None:
    data, _ = ppgp.load("breast_cancer").standardised(scale_y=False)
    model = LogisticRegression()
    target = Target(model, data)
    ours = []
    for steps in (1, 10, 50, 100, 200, 400, 800, 1600, 3200):
        started = time.perf_counter()
        posterior = SVI("multivariate_normal", steps=steps, draws=2000)(Target(model, data))
        ours.append((posterior.stats["elbo"], time.perf_counter() - started))
    best = max(elbo for elbo, _ in ours)
    seconds_to_best = next(seconds for elbo, seconds in ours if elbo >= best - NEAR)

    with pyro.get_param_store().scope():
        pyro.set_rng_seed(0)
        guide = AutoMultivariateNormal(model.model, init_scale=0.1)
        steps = 10_000
        # with a constant rate, which is the default, the loop stays about one nat away
        loop = PyroSVI(model.model, guide, Adam({"lr": 0.02}), Trace_ELBO())
        theirs, spent = [], 0.0
        for step in range(steps):
            started = time.perf_counter()
            for one in loop.optim.optim_objs.values():
                one.param_groups[0]["lr"] = 0.02 * (1 - step / steps)
            loop.step(data.X, data.y, total=data.n)
            spent += time.perf_counter() - started
            if step % 250 == 249:
                with torch.no_grad():
                    theirs.append((_elbo_of_pyro(guide, target), spent))
    top = max(elbo for elbo, _ in theirs)
    peer = next(seconds for elbo, seconds in theirs if elbo >= top - NEAR)
    ratio = show(
        f"full-rank VI on breast_cancer: seconds to within {NEAR} nats of its own best ELBO "
        f"(ours {best:.2f}, theirs {top:.2f})",
        {"ppgp": seconds_to_best, "Pyro SVI loop": peer},
        "s",
        1.0,
    )
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(
        lambda: SVI("multivariate_normal", steps=200)(target), rounds=1, iterations=1
    )
    assert best >= top - NEAR
    assert ratio <= LIMIT_SVI
