"""Sum discrete latent sites out of the density of a program."""

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
    """Return whether a record of ``Run`` is a latent site of discrete values."""
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and bool(site["fn"].support.is_discrete)
    )


def check_enumerable(name: str, site: dict[str, Any]) -> None:
    """Raise NotApplicable for a discrete site with infinitely many values."""
    if not site["fn"].has_enumerate_support:
        raise NotApplicable(
            "continuous latent sites, or discrete ones of finite support, which are summed out",
            f"{name!r}, {an(type(site['fn']).__name__)}",
            "observe it, or sum it out in the program up to a bound",
        )


def plate_nesting(run: Run) -> int:
    """Return how deeply the plates of a run are nested."""
    dims = [f.dim for _, s in run.samples() for f in s["cond_indep_stack"] if f.vectorized]
    return -min(dims) if dims else 0


def summed_out(program: Callable[[], None], nesting: int, likelihood: bool = True) -> Tensor:
    """Return the log density of the program, every discrete latent site summed over its values.

    The sum is Pyro's tensor variable elimination (Obermeyer et al. 2019). Call it under a ``Run``
    that gives the continuous sites their values.

    Args:
        program: a call runs it.
        nesting: how deeply its plates are nested.
        likelihood: whether the observed sites count.

    Raises:
        NotApplicable: if a discrete site has a scale (a subsampled plate) or a mask: neither
            commutes with the sum.
    """
    enumerated = poutine.enum(config_enumerate(program), first_available_dim=-1 - nesting)  # type: ignore[attr-defined]
    trace = poutine.trace(enumerated).get_trace()  # type: ignore[attr-defined]
    nodes: dict[str, dict[str, Any]] = dict(trace.nodes)  # type: ignore[arg-type]
    for name, site in nodes.items():
        if site["type"] != "sample" or site_is_subsample(cast(Any, site)) or not is_discrete(site):
            continue
        scaled = not isinstance(site["scale"], int | float) or site["scale"] != 1
        if site["mask"] is not None or scaled:
            raise NotApplicable(
                "discrete sites without scale, subsample or mask",
                f"one at {name!r}",
                "sum the discrete site out in the program",
            )
    if not likelihood:
        samples = [(name, site) for name, site in nodes.items() if site["type"] == "sample"]
        for name, site in samples:
            if is_data(site):
                trace.remove_node(name)
    return TraceEinsumEvaluator(trace, True, nesting).log_prob(trace)
