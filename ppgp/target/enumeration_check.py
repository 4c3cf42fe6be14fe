"""Check that a program treats all values of its discrete sites side by side as it does each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from pyro import poutine
from pyro.infer import config_enumerate
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from ..errors import NotApplicable
from ..numerics.seeding import seeded
from .enumeration import is_discrete
from .handlers import Run, is_deterministic, quietly

RANDOM = 3  # choices of the discrete sites that are compared, besides all first and all last
TOLERANCE = {torch.float64: 1e-8}
IN_SINGLE = 1e-3
LONGEST = 200  # characters of a message of Pyro's
ADVICE = (
    "their values have more axes on the left: add axes by unsqueeze(-1), sum over no plate of "
    "theirs, and write torch.where for if; or sum them out in the program (MixtureSameFamily)"
)
Indices = dict[str, Tensor]
ERRORS = (RuntimeError, ValueError, NotImplementedError, IndexError, KeyError, TypeError)


def check_enumeration(
    program: Callable[[], Any],
    density: Callable[[], Tensor],
    run: Run,
    params: dict[str, Tensor],
    nesting: int,
) -> None:
    """Compare the density of each site at some values of the discrete sites, chosen and summed.

    Args:
        program: runs the program.
        density: its density, with the discrete sites summed out.
        run: a run of the program.
        params: params that are held.
        nesting: how deeply its plates are nested.

    Raises:
        NotApplicable: if they differ, or if the discrete sites cannot be summed out.
    """
    values = {
        name: s["value"].detach()
        for name, s in run.sites.items()
        if s["type"] == "param" or (name in run.latents() and not is_discrete(s))
    }
    discrete = {name: s["fn"] for name, s in run.latents().items() if is_discrete(s)}
    try:
        with torch.no_grad():
            density()
            with quietly(), seeded(0), Run(values, params=params):
                nodes = _enumerated(program, nesting)
        supports = {name: law.enumerate_support() for name, law in discrete.items()}
    except NotApplicable:
        raise
    except ERRORS as error:
        said = " ".join(str(error).split()).partition(" Trace Shapes:")[0][:LONGEST]
        expected = "discrete sites that can be summed out, or none"
        raise NotApplicable(expected, f"{type(error).__name__}: {said}", ADVICE) from None
    for name in discrete:
        if nodes[name]["infer"].get("num_samples"):
            do = "leave num_samples out of infer"
            raise NotApplicable("discrete sites that are summed out", f"samples of {name!r}", do)
    if any(nodes[name]["infer"].get("_enumerate_dim") is None for name in discrete):
        return
    for indices in _choices(supports):
        chosen = {name: _at(supports[name], index) for name, index in indices.items()}
        with torch.no_grad(), quietly(), seeded(0), Run(values | chosen, params=params) as one:
            program()
        _compare(one, nodes, indices)


def _enumerated(program: Callable[[], Any], nesting: int) -> dict[str, dict[str, Any]]:
    """Return the sites of a run with all values of the discrete sites, and their densities."""
    every = poutine.enum(config_enumerate(program), first_available_dim=-1 - nesting)  # type: ignore[attr-defined]
    trace = poutine.trace(every).get_trace()  # type: ignore[attr-defined]
    trace.compute_log_prob()
    return dict(trace.nodes)


def _choices(supports: dict[str, Tensor]) -> Iterator[Indices]:
    """Yield indices into the support of each discrete site, [*batch]."""
    generator = torch.Generator().manual_seed(0)

    def filled(support: Tensor, index: int) -> Tensor:
        return torch.full(support.shape[1:], index, dtype=torch.long, device=support.device)

    yield {name: filled(s, 0) for name, s in supports.items()}
    yield {name: filled(s, len(s) - 1) for name, s in supports.items()}
    for _ in range(RANDOM):
        yield {
            name: torch.randint(len(s), s.shape[1:], generator=generator).to(s.device)
            for name, s in supports.items()
        }


def _at(support: Tensor, index: Tensor) -> Tensor:
    return support.gather(0, index[None])[0]


def _compare(one: Run, nodes: dict[str, dict[str, Any]], indices: Indices) -> None:
    """Compare the density of each site in a run at given values with that of all values.

    Raises:
        NotApplicable: naming the first site where they differ.
    """
    site_of_dim: dict[int, str] = {}  # sites of a Markov chain take turns in a dimension
    for name, node in nodes.items():
        if node["type"] != "sample" or site_is_subsample(cast(Any, node)):
            continue
        if node["infer"].get("_enumerate_dim") is not None:
            site_of_dim[node["infer"]["_enumerate_dim"]] = name
        if is_deterministic(node):
            continue
        here = _chosen(node["log_prob"], site_of_dim, indices)
        alone = one.log_prob_of(name) if name in one.sites else torch.zeros_like(here)
        if not _agree(float(alone), float(here), TOLERANCE.get(alone.dtype, IN_SINGLE)):
            raise NotApplicable(
                "the same density at each value of the discrete sites as at all side by side",
                f"{float(alone):.6g} and {float(here):.6g} at {name!r}",
                ADVICE,
            )


def _chosen(log_prob: Tensor, site_of_dim: dict[int, str], indices: Indices) -> Tensor:
    """Return the sum of a log density at the given indices of the enumerated dimensions."""
    for dim, name in site_of_dim.items():
        if -dim > log_prob.ndim or log_prob.shape[dim] == 1:
            continue
        index = indices[name]
        shape = [*log_prob.shape]
        shape[dim] = 1
        try:
            index = index.expand(torch.broadcast_shapes(shape, index.shape))
            wide = [*index.shape]
            wide[dim] = log_prob.shape[dim]
            log_prob = log_prob.expand(wide).gather(dim, index)
        except (RuntimeError, IndexError):  # of another shape than its plates: not comparable
            return log_prob.new_tensor(math.nan)
    return log_prob.sum()


def _agree(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isinf(a):
        return a == b or math.isnan(a)
    return abs(a - b) <= tolerance * (1 + max(abs(a), abs(b)))
