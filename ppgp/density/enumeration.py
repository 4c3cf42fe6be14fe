"""Sum discrete latent sites out of the density of a program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

import torch
from pyro import poutine
from pyro.distributions import MaskedDistribution
from pyro.infer import config_enumerate
from pyro.infer.mcmc.util import TraceEinsumEvaluator
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..data.argument_mistakes import of_dtypes
from ..errors import NotApplicable, an
from ..runtime.seeding import seeded
from .handlers import Run, is_data, is_discrete, quietly

TERMS = 6  # terms of a sum that are compared with the program


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

    It is in float64, whatever the dtype of the program. The sum is Pyro's tensor variable
    elimination (Obermeyer et al. 2019). Call it under a ``Run`` that gives the continuous sites
    their values.

    Args:
        program: A call runs it.
        nesting: How deeply its plates are nested.
        likelihood: Whether the observed sites count.

    Raises:
        NotApplicable: If a discrete site has a scale (a subsampled plate) or a mask: neither
            commutes with the sum.
    """
    handlers: Any = poutine  # its handlers have no types
    enumerated = handlers.enum(config_enumerate(program), first_available_dim=-1 - nesting)
    trace = handlers.trace(enumerated).get_trace()
    nodes: dict[str, dict[str, Any]] = dict(trace.nodes)
    for name, site in nodes.items():
        if site["type"] != "sample" or site_is_subsample(cast(Any, site)) or not is_discrete(site):
            continue
        scaled = not isinstance(site["scale"], int | float) or site["scale"] != 1
        if site["mask"] is not None or scaled or _is_masked(site["fn"]):
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
    trace.compute_log_prob()
    for site in nodes.values():
        if "log_prob" in site:
            # the sum multiplies probabilities, of which those below exp(-103) are 0 in float32
            site["log_prob"] = site["log_prob"].double()
    return TraceEinsumEvaluator(trace, True, nesting).log_prob(trace)


def _is_masked(law: Any) -> bool:
    while hasattr(law, "base_dist"):
        if isinstance(law, MaskedDistribution):
            return True
        law = law.base_dist
    return isinstance(law, MaskedDistribution)


class Pinned(Messenger):
    """Give every value of a discrete site but one a density of 0, so that a sum has one term.

    Args:
        values: ``{discrete site: its value}``.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values = values

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] not in self.values:
            return
        plain, wanted = msg["fn"].log_prob, self.values[msg["name"]]
        msg["fn"] = copy.copy(msg["fn"])

        def log_prob(value: Tensor) -> Tensor:
            return torch.where(value == wanted, plain(value), -torch.inf)

        msg["fn"].log_prob = log_prob


class AnyValue(Messenger):
    """Draw each discrete site from all its values alike, so that rare ones are tried."""

    def _pyro_sample(self, msg: Any) -> None:
        if msg["done"] or site_is_subsample(msg) or not is_discrete(msg):
            return
        law = msg["fn"]
        every = law.enumerate_support(expand=True)
        which = torch.randint(len(every), law.batch_shape, device=every.device)
        which = which.reshape(1, *law.batch_shape, *(1 for _ in law.event_shape))
        msg["value"] = every.gather(0, which.expand(1, *every.shape[1:]))[0]
        msg["done"] = True


def check_enumeration(
    program: Callable[[], None], nesting: int, params: Mapping[str, Tensor]
) -> None:
    """Compare terms of the sum over discrete sites with the program at values of these sites.

    Pyro runs the program once with all values of a site in an axis of their own. A program that
    takes another axis for it, or asks for one value, has another sum.

    Args:
        program: A call runs it.
        nesting: How deeply its plates are nested.
        params: The values of params that are held.

    Raises:
        NotApplicable: If they differ, or the program does not run with all values at once.
    """
    for seed in range(TERMS):
        with quietly(), torch.no_grad(), seeded(seed), Run({}, params=params) as run, AnyValue():
            program()
        latents = run.latents()
        values = {name: s["value"] for name, s in latents.items() if not is_discrete(s)}
        pinned = {name: s["value"] for name, s in latents.items() if is_discrete(s)}
        own = torch.as_tensor(run.log_prob()).double()
        try:
            with quietly(), torch.no_grad(), Run(values, params=params), Pinned(pinned):
                found = summed_out(program, nesting).double()
        except NotApplicable:
            raise
        except (RuntimeError, ValueError, NotImplementedError, IndexError) as error:
            if of_dtypes(error):
                raise
            _refuse(pinned, f"an error when they are summed out ({_first_line(error)})")
        if not torch.isfinite(own):
            continue
        tolerance = 1e-6 if _is_double(run) else 1e-3
        if not torch.allclose(found, own, rtol=tolerance, atol=tolerance):
            got = f"a term of {float(found):.6g} of the sum where the program has {float(own):.6g}"
            _refuse(pinned, got)


def _refuse(sites: Mapping[str, Tensor], got: str) -> NoReturn:
    raise NotApplicable(
        f"a program that works for all values of {', '.join(sites)} at once",
        got,
        "use no if on them and no sum over their plate, keep the axes of plates by [..., None], or "
        "sum them out in the program",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _is_double(run: Run) -> bool:
    """Return whether the values of a run are in double precision."""
    values = [s["value"] for _, s in run.samples() if isinstance(s["value"], Tensor)]
    return all(v.dtype == torch.float64 for v in values if v.is_floating_point())
