"""Programs in float32 are fitted by the methods that fit them in float64, with the same results."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from dtype_programs import DTYPES, Case, cases, methods
from scipy import stats
from tool_modules import tool
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.diagnostics.leave_one_out import psis_loo
from ppgp.errors import NotApplicable
from ppgp.inference import Inference
from ppgp.inference.mcmc import nutpie_chains
from ppgp.posterior.convergence import ess
from ppgp.posterior.posterior import Posterior

script = tool("dtypes")
CASES = cases()
SINGLE, DOUBLE = DTYPES.values()
#: pairs in the fast tests: every program by NUTS, and every method on the first of these programs
FAST_METHOD, FAST_PROGRAMS = "NUTS()", ("varying intercepts", "a list of Normal sites")
LEVEL = 1e-4  # of a false alarm in one comparison of all numbers of a program

pytestmark = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
every_program = pytest.mark.parametrize(
    "program",
    [
        pytest.param(name, marks=[] if name in FAST_PROGRAMS else pytest.mark.slow, id=name)
        for name in CASES
    ],
)


def pairs() -> list[Any]:
    """Return each method with each program, most of them slow."""
    return [
        pytest.param(
            method, program, marks=[] if fast else pytest.mark.slow, id=f"{method}-{program}"
        )
        for program in CASES
        for method in methods()
        for fast in [
            method == FAST_METHOD or (program == FAST_PROGRAMS[0] and "pyro" not in method)
        ]
    ]


def fitted(case: Case, dtype: torch.dtype, how: Inference, seed: int = 0) -> Posterior:
    """Return the fit of a program in a dtype."""
    return ppgp.fit(case.make(dtype), case.fit_arguments(dtype), how, seed=seed, progress=False)


def said(call: Any) -> str:
    """Return "ran", or what a refusal says that there should be."""
    try:
        call()
    except NotApplicable as refusal:
        return refusal.expected
    return "ran"


def afterwards(posterior: Posterior, case: Case, dtype: torch.dtype) -> dict[str, str]:
    """Return what prediction, leave-one-out and ArviZ make of a fit."""
    found = {"psis_loo": said(lambda: psis_loo(posterior)), "arviz": said(posterior.to_arviz)}
    new = case.new_arguments(dtype)
    if new is not None:
        found["predict"] = said(lambda: posterior.predict(**new))
    return found


@pytest.mark.usefixtures("shared_graphs")
@pytest.mark.parametrize(("method", "program"), pairs())
def test_a_method_serves_a_program_in_both_dtypes_or_in_neither(method: str, program: str) -> None:
    case, how = CASES[program], methods()[method].quick()
    if isinstance(how, inference.NUTS):  # Pyro's engine takes a millisecond or more a gradient
        how = replace(how, draws=10, warmup=10, max_depth=3)
    seen, after = {}, {}
    for name, dtype in DTYPES.items():
        try:
            posterior = fitted(case, dtype, how)
        except NotApplicable:  # cannot be built without advice
            seen[name] = False
            continue
        seen[name] = True
        assert all(value.dtype == dtype for value in posterior.draws.values())
        assert all(bool(torch.isfinite(value).all()) for value in posterior.draws.values())
        after[name] = afterwards(posterior, case, dtype)
    assert script.cells_of(script.tables_of_docs.in_docs("dtypes"))[method, program] == script.cell(
        seen
    )
    assert len(set(seen.values())) == 1
    assert after.get("float32") == after.get("float64")


def test_the_table_has_every_pair() -> None:
    text = script.tables_of_docs.in_docs("dtypes")
    cells = script.cells_of(text)
    assert set(cells) == {(method, program) for method in methods() for program in CASES}
    assert script.table(cells) == text


@every_program
def test_chains_of_threads_are_those_of_processes(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without forks, as on macOS, NUTS draws the same numbers."""
    how = inference.NUTS(draws=10, warmup=20, chains=2, max_depth=3)
    found = []
    for forks in (True, False):
        monkeypatch.setattr(nutpie_chains, "can_fork", lambda forks=forks: forks)
        found.append(fitted(CASES[program], SINGLE, how).draws)
    for name, value in found[0].items():
        assert value.dtype == SINGLE
        assert torch.equal(value, found[1][name])


# -- agreement -------------------------------------------------------------------------------------


@cache
def reference(program: str) -> Posterior:
    """Return the Laplace approximation in float64, which has the scale of each number."""
    return fitted(CASES[program], DOUBLE, inference.Laplace())


def means(posterior: Posterior) -> Tensor:
    """Return the mean of each number that is not constant, in float64."""
    return torch.cat([value.double().mean(0).reshape(-1) for value in posterior.theta.values()])


def spreads(posterior: Posterior) -> Tensor:
    """Return the standard deviation of each number."""
    return torch.cat([value.double().std(0).reshape(-1) for value in posterior.theta.values()])


@every_program
@pytest.mark.parametrize("how", [inference.MAP(), inference.Laplace()], ids=["MAP", "Laplace"])
def test_modes_agree(how: Inference, program: str) -> None:
    """A log density L is rounded by 6e-8 L, which is the fall at sqrt(2 6e-8 L) deviations."""
    single, double = (fitted(CASES[program], dtype, how) for dtype in (SINGLE, DOUBLE))
    scale = spreads(reference(program))
    moves = scale > 1e-6  # the upper triangle of a Cholesky factor is 0
    size = abs(float(reference(program).stats["log_evidence"]))
    tolerance = max(1e-3, 2 * math.sqrt(6e-8 * size))
    apart = (means(single) - means(double)).abs()
    assert bool((apart[moves] < tolerance * scale[moves]).all())
    assert bool((apart[~moves] < 1e-6).all())
    assert single.warnings == double.warnings
    if isinstance(how, inference.Laplace):
        ratio = spreads(single)[moves] / scale[moves]
        assert bool(((ratio - 1).abs() < 1e-2).all())


GUIDES = {
    "normal": inference.SVI("normal", steps=150, draws=100),
    "multivariate_normal": inference.SVI(steps=150, draws=100),
    "iaf": inference.SVI("iaf", steps=40, draws=100),
    "deterministic": inference.SVI(method="deterministic", draws=100),
    "deterministic normal": inference.SVI("normal", method="deterministic", draws=100),
    "Pathfinder": inference.Pathfinder(draws=100, paths=2, steps=50),
}
SEEDS = 10


@pytest.mark.usefixtures("shared_graphs")
@pytest.mark.slow
@every_program
@pytest.mark.parametrize("guide", GUIDES)
def test_approximations_agree_within_the_spread_of_seeds(guide: str, program: str) -> None:
    case, how = CASES[program], GUIDES[guide]
    try:
        fits = [means(fitted(case, DOUBLE, how, seed)) for seed in range(SEEDS)]
    except NotApplicable:  # the table says so of both dtypes
        return
    several = torch.stack(fits)
    single = means(fitted(case, SINGLE, how, SEEDS))
    moves = several.std(0) > 1e-8
    # the prediction of an eleventh run from ten, Bonferroni over the numbers
    t = float(stats.t.isf(LEVEL / 2 / int(moves.sum()), SEEDS - 1))
    limit = t * several.std(0) * math.sqrt(1 + 1 / SEEDS)
    assert bool(((single - several.mean(0)).abs() <= limit + 1e-6).all())


SAMPLERS = {
    "NUTS": inference.NUTS(draws=100, warmup=100),
    "HMC": inference.HMC(draws=100, warmup=60),
    "MetropolisHastings": inference.MetropolisHastings(draws=100, warmup=100),
    "SGLD": inference.SGLD(draws=100, warmup=60),
    "SGHMC": inference.SGHMC(draws=100, warmup=60),
}


def errors(posterior: Posterior) -> Tensor:
    """Return the Monte Carlo standard error of each mean."""
    found = []
    for value in posterior.draws.values():
        flat = value.double().flatten(2) if value.ndim > 2 else value.double()[..., None]
        for j in range(flat.shape[2]):
            x = flat[..., j].numpy()
            found.append(0.0 if x.std() < 1e-8 else float(x.std()) / math.sqrt(ess(x)))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.usefixtures("shared_graphs")
@pytest.mark.slow
@every_program
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_agree_within_monte_carlo_error(sampler: str, program: str) -> None:
    case, how = CASES[program], SAMPLERS[sampler]
    single = fitted(case, SINGLE, how, 1)
    double = fitted(case, DOUBLE, how, 2)
    error = torch.hypot(errors(single), errors(double))
    z = float(stats.norm.isf(LEVEL / 2 / len(error)))
    assert bool(((means(single) - means(double)).abs() <= z * error + 1e-6).all())
