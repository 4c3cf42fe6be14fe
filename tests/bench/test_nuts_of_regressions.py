"""NUTS on an ordinal regression and on a multilevel model, beside Pyro's and NumPyro's.

The figures are the smallest bulk effective sample size per second, with compilation and warm-up.
The latents are the coefficients, cutpoints, sds, and the coefficients of groups, which ppgp
integrates out of the density and draws afterwards. The peers sample them, non-centred.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from regressions import REGRESSIONS
from side_by_side import show
from test_nuts import CHAINS, by_numpyro, by_pyro, rate

import ppgp
from ppgp.inference import NUTS

OVER_PYRO, OVER_NUMPYRO = 4.0, 1.0  # the least ratios
LENGTH = 1000  # draws, and steps of warm-up
PYRO_LENGTH = {"draws": 200, "warmup": 300}  # more would take minutes
SITES = {
    "ordinal": ("weight", "cutpoints"),
    "radon": ("weight", "bias", "noise", "county.sd", "county.effect"),
}

pytestmark = pytest.mark.usefixtures("all_threads")


def by_ppgp(model: Any, data: Any, length: int) -> float:
    how = NUTS(draws=length, warmup=length, chains=CHAINS)
    started = time.perf_counter()
    posterior = ppgp.fit(model, data, how, seed=1, progress=False, standardise=False)
    draws = {name: v.numpy() for name, v in posterior.draws.items()}
    if data.groups:
        draws |= {f"{name}.effect": u.numpy() for name, u in posterior.effects().items()}
    return rate(draws, time.perf_counter() - started)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REGRESSIONS)
def test_effective_draws_per_second(name: str, benchmark: Any, data_dir: Path) -> None:
    model, data, program, arguments = REGRESSIONS[name](data_dir)
    by_ppgp(model, data, 5)  # imports
    figures = {
        "ppgp": benchmark.pedantic(by_ppgp, (model, data, LENGTH), rounds=1),
        **by_numpyro(name, LENGTH, data_dir),
        "Pyro": by_pyro(program, arguments, **PYRO_LENGTH, of=SITES[name]),
    }
    ratio = show(f"NUTS on {name}: effective draws a second", figures, "/s", 1.0, smaller=False)
    benchmark.extra_info.update(figures, ratio=ratio)
    assert all(map(math.isfinite, figures.values()))
    assert figures["ppgp"] >= OVER_PYRO * figures["Pyro"]
    numpyro = max(value for peer, value in figures.items() if peer.startswith("NumPyro"))
    assert figures["ppgp"] >= OVER_NUMPYRO * numpyro
