"""The density of a target and its gradient as one graph, held against the program at three points."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule

from ..errors import NotApplicable
from .graph import agrees_up_to_rounding, first_of, looped, traced

if TYPE_CHECKING:
    from .target import Target

Graph = Callable[..., tuple[Tensor, Tensor]]


def compiled(
    target: Target, batch: int | None, jacobian: bool, k: int | None
) -> tuple[Graph, str | None]:
    """(z, *tables) -> value, gradient; and why it is the program itself rather than a graph, if it had to be."""
    one = target.eager_gradient(jacobian)
    if not target.compile:
        return one if k is None else looped(one), None
    tables = () if batch is None else target.tables(torch.arange(batch))
    points = _three_points(target)
    try:
        graph = traced(one, (points[0].clone(), *tables), k)
        if isinstance(
            graph, GraphModule
        ):  # a point costs a step of the search, and where it was traced it agrees
            points = points[1:]
        wrong = next(
            (
                z
                for z in points
                if not agrees_up_to_rounding(first_of(graph, z, tables, k), one, z, tables)
            ),
            None,
        )
        reason = (
            None
            if wrong is None
            else "its graph depends on the values (an if, or random numbers in it)"
        )
    except (KeyboardInterrupt, NotApplicable):
        raise
    except (
        Exception
    ) as error:  # whatever a stranger's program does inside a trace, running it eagerly is right
        graph, reason = one, _why(error)
    if reason is None:
        return graph, None
    if k is not None:  # a graph of one point may serve where that of several does not
        return looped(target.compiled(batch, jacobian)), None
    return one, reason


def _why(error: Exception) -> str:
    """What kept a program from being traced, in one sentence."""
    said = str(error)
    if "_local_scalar_dense" in said or "data-dependent" in said or "Could not guard" in said:
        return "it turns a value into a Python number, as an if, float() or .item() does"
    return f"{type(error).__name__}: {said.splitlines()[0] if said else ''}"


def _three_points(target: Target) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    origin = target.origin()
    steps = [torch.zeros(target.dim, dtype=torch.float64)]
    steps += [
        0.5 * torch.randn(target.dim, generator=generator, dtype=torch.float64) for _ in range(2)
    ]
    return [origin + step.to(origin) for step in steps]


def on_vectors(
    target: Target, like: Tensor, jacobian: bool, after: float
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """See ``Target.callback``; ``like``: a tensor of the dtype and on the device of z."""
    calls = 0
    plain = like.dtype == torch.float64 and like.device.type == "cpu"
    if not after:
        target.compiled(None, jacobian)

    def value_and_grad(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        # in torch's own memory: BLAS may sum in another order where NumPy's is aligned otherwise, run by run
        point = torch.from_numpy(z).clone()
        calls += 1
        graph = target.compiled(None, jacobian, compile=calls > after)
        value, gradient = graph(point if plain else point.to(like))
        return value.item(), gradient.numpy() if plain else gradient.double().cpu().numpy()

    return value_and_grad
