"""Discrete latent sites of a program, summed out: what makes its density a function of the continuous ones alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pyro import poutine
from pyro.infer import config_enumerate
from pyro.infer.mcmc.util import TraceEinsumEvaluator
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..errors import NotApplicable, an
from .handlers import Run, is_data


def is_discrete(site: dict[str, Any]) -> bool:
    """Whether a record of ``Run`` is a latent site of discrete values."""
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and bool(site["fn"].support.is_discrete)
    )


def check_enumerable(name: str, site: dict[str, Any]) -> None:
    """Raises NotApplicable for a discrete site of endless support."""
    if not site["fn"].has_enumerate_support:
        raise NotApplicable(
            "continuous latent sites, or discrete ones of finite support, which are summed out",
            f"{name!r}, {an(type(site['fn']).__name__)}",
            "observe it, or sum it out in the program up to a bound",
        )


def plate_nesting(run: Run) -> int:
    """How many nested plates the sites of a run have."""
    dims = [f.dim for _, s in run.samples() for f in s["cond_indep_stack"] if f.vectorized]
    return -min(dims) if dims else 0


def summed_out(program: Callable[[], None], nesting: int, likelihood: bool = True) -> Tensor:
    """log density of the program with every discrete latent site summed over its values, by Pyro's tensor variable
    elimination (Obermeyer et al. 2019); to be called under a ``Run`` that gives the continuous ones.

    Without ``likelihood``, of its latent sites alone.

    Raises:
        NotApplicable: under a scale (a subsampled plate) or a mask, which a sum over values cannot be taken through.
    """
    enumerated = poutine.enum(config_enumerate(program), first_available_dim=-1 - nesting)  # type: ignore[attr-defined]
    trace = poutine.trace(enumerated).get_trace()  # type: ignore[attr-defined]
    nodes: dict[str, dict[str, Any]] = dict(trace.nodes)  # type: ignore[arg-type]
    for name, site in nodes.items():
        if site["type"] != "sample" or site_is_subsample(cast(Any, site)) or not is_discrete(site):
            continue
        if (
            site["mask"] is not None
            or not isinstance(site["scale"], int | float)
            or site["scale"] != 1
        ):
            raise NotApplicable(
                "discrete sites without scale, subsample or mask",
                f"one at {name!r}",
                "sum the discrete site out in the program",
            )
    if not likelihood:
        for name in [
            name for name, site in nodes.items() if site["type"] == "sample" and is_data(site)
        ]:
            trace.remove_node(name)
    return TraceEinsumEvaluator(trace, True, nesting).log_prob(trace)
