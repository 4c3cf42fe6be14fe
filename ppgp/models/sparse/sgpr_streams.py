"""SGPR of rows that are read as they are needed: its sums over them, and their slopes.

The sums at the hyperparameters of a fit are kept in the params of its posterior, so that
predictions and bounds need no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...data.stream.streamed_rows import SUMS
from ...errors import NotApplicable
from ...numerics.cholesky import inducing_root, jittered
from ...numerics.projection import Projection
from ..sites import Theta
from .collapsed_bound import SparseMarginal
from .collapsed_slopes import Slopes, slopes_of

__all__ = ["KEPT", "SumsOfStreams", "kept_sums", "projection_of", "without_sums"]

#: params of a posterior: S, Ar, (r'r, the trace, n) for each draw, and the draw
KEPT = S, AR, NUMBERS, AT = tuple(f"{SUMS}.{name}" for name in ("S", "Ar", "numbers", "at"))


class SumsOfStreams:
    """The part of SGPR that takes a stream of rows."""

    def _marginal_at(self, theta: Theta, X: Tensor) -> SparseMarginal:
        """Return the approximate distribution of y at X for one draw theta {site: [*event]}."""
        raise NotImplementedError

    def _one_by_one(self, theta: Theta, d: int) -> list[dict[str, Tensor]]:
        """Return theta of each draw, {site: [*event]}, with the params."""
        raise NotImplementedError

    def kept_of(self, theta: Theta, data: Any) -> dict[str, Tensor]:
        """Return the params by which a posterior keeps the sums at its draws.

        Args:
            theta: {site: [draw, *event]}, with the params.
            data: The rows of a stream, over which it takes one pass.
        """
        every = self._one_by_one(without_sums(theta), data.d)
        wide = [{name: value.double() for name, value in one.items()} for one in every]
        totals: list[Projection] = []
        for table, *_ in data.portions():
            X, y = table.X.double(), table.y.double()
            own = [self.sums_of_rows(one, X, y) for one in wide]
            totals = [a.plus(b) for a, b in zip(totals, own, strict=True)] if totals else own
        return _params_of(every, [total.over_ranks(data.team) for total in totals])

    def sums_of_rows(self, theta: Theta, X: Tensor, y: Tensor) -> Projection:
        """Return the sums over some rows X [n, d] and y [n] at theta {site: [*event]}."""
        marginal = self._marginal_at(theta, X)
        return marginal.project(y, inducing_root(marginal.Kmm))

    def bound_of_sums(self, theta: Theta, like: Tensor, sums: Projection) -> Tensor:
        """Return the bound at theta; the arguments are those of ``slopes_of_sums``."""
        return sums.lower(self._marginal_at(theta, like).noise)

    def slopes_of_sums(self, theta: Theta, like: Tensor, sums: Projection) -> Slopes:
        """Return the slopes of the bound at theta, given the sums over all rows.

        Args:
            theta: {site: [*event]}.
            like: One row [1, d].
            sums: The sums over all rows.
        """
        marginal = self._marginal_at(theta, like)
        return slopes_of(sums, inducing_root(marginal.Kmm), marginal.noise)

    def term_of_rows(self, theta: Theta, X: Tensor, y: Tensor, slopes: Slopes) -> Tensor:
        """Return a number with the slopes of the bound by theta that some rows contribute."""
        marginal = self._marginal_at(theta, X)
        K = marginal.cross(marginal.X, *marginal.inputs)
        return slopes.of_rows(K, y - marginal.loc, marginal.diagonal)

    def term_of_shared(self, theta: Theta, like: Tensor, slopes: Slopes) -> Tensor:
        """Return a number with the slopes of the bound by theta that belong to no row."""
        marginal = self._marginal_at(theta, like)
        return slopes.of_shared(jittered(marginal.Kmm), marginal.noise)


def _params_of(thetas: list[dict[str, Tensor]], sums: list[Projection]) -> dict[str, Tensor]:
    """Return the sums at the draws of a fit as params of its posterior."""
    parts = (
        torch.stack([one.S for one in sums]),
        torch.stack([one.Ar for one in sums]),
        torch.stack([torch.stack([s.rr, s.trace, s.rr.new_tensor(float(s.n))]) for s in sums]),
        torch.stack([_flat(theta) for theta in thetas]),
    )
    return dict(zip(KEPT, parts, strict=True))


def kept_sums(theta: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the sums that are kept for one draw theta {site: [*event]}, by their names.

    Raises:
        NotApplicable: If theta is no draw of the fit.
    """
    same = (kept[AT] == _flat(theta)).all(1).nonzero().flatten()
    if not len(same):
        raise NotApplicable(
            "the hyperparameters of a draw of the fit, at which the sums over the stream are kept",
            "others",
            "fit a Dataset, or the stream again",
        )
    return {name: value[same[0]] for name, value in kept.items()}


def projection_of(theta: Mapping[str, Tensor]) -> Projection | None:
    """Return the sums that theta brings along; None if it has none."""
    if S not in theta:
        return None
    rr, trace, n = theta[NUMBERS]
    return Projection(theta[S], theta[AR], rr, trace, round(float(n)))


def without_sums(theta: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return theta without the sums that are kept."""
    return {name: value for name, value in theta.items() if name not in KEPT}


def _flat(theta: Mapping[str, Tensor]) -> Tensor:
    """Return the hyperparameters of one draw, end to end, in float64."""
    names = sorted(without_sums(theta))
    none = torch.zeros(0, dtype=torch.float64)
    return torch.cat([none, *(theta[name].detach().double().reshape(-1).cpu() for name in names)])
