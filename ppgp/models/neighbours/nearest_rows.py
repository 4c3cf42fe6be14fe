"""Rows that depend on the nearest rows before them, for models of Vecchia's approximation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...capabilities import FollowsFit, WarmStart
from ...data.dataset import Dataset
from ...errors import SettingError
from ...kernels import Kernel
from ...priors import Param, under
from ..base import Model
from ..exact.drift import Drift, coordinate_columns, places
from ..sites import Theta
from .correlation_lengths import correlation_lengths
from .nearest_earlier import ORDERS, nearest_earlier, nearest_rows, order_of_rows
from .weights import Sets

DEFAULT_NEIGHBOURS = 30
MOVED = 2.0  # neighbours are searched again if the ratio of two lengthscales changes so much


class NearestRows(Model, WarmStart, FollowsFit):
    """The neighbours of each row, nearest in columns divided by how far the kernel correlates."""

    kernel: Kernel
    neighbours: int | None
    order: str
    drift: Drift = "none"
    seed: int
    lengths: tuple[float, ...] | None

    def covariance_columns(self, d: int) -> list[int]:
        return coordinate_columns(self.drift, d)

    def check_neighbours(self) -> None:
        """Check the options of the recipe.

        Raises:
            SettingError: For a number of neighbours or an order that is none.
        """
        if self.neighbours is not None and (
            type(self.neighbours) is not int or self.neighbours < 1
        ):
            got = repr(self.neighbours)
            raise SettingError("a whole number of neighbours", got, "pass 1 or more")
        if self.order not in ORDERS:
            wanted = f"an order of rows: {' or '.join(ORDERS)}"
            raise SettingError(wanted, repr(self.order), "choose one")

    def refuse_too_many(self, data: Dataset) -> None:
        """Refuse as many neighbours as rows.

        Raises:
            SettingError: For as many, or more.
        """
        if self.neighbours is not None and self.neighbours >= data.n:
            raise SettingError(
                f"fewer neighbours than the {data.n} rows",
                str(self.neighbours),
                f"pass at most {data.n - 1}, which is the exact process, or use GP",
            )

    @property
    def _number(self) -> int:
        """The largest number of neighbours of a row."""
        return self.neighbours or DEFAULT_NEIGHBOURS

    def _number_for(self, n: int) -> int:
        """Return the number of neighbours of a new row: all n where rows depend on all others."""
        return n if self._number == n - 1 else self._number

    def lengths_at(self, hyper: Theta, where: Tensor) -> tuple[float, ...]:
        """Return the lengths of the recipe, or without them those of the kernel.

        Args:
            hyper: The hyperparameters of the kernel.
            where: The coordinates of the training rows [n, d].
        """
        if self.lengths is None or len(self.lengths) != where.shape[1]:
            return self._lengths(hyper, where)
        return self.lengths

    def _lengths(self, hyper: Theta, where: Tensor) -> tuple[float, ...]:
        """Return how far the kernel correlates along each coordinate.

        That of a column of codes is infinite: rows are near by their places, whatever the output.
        """
        if self._deep(where.shape[1]):
            return (1.0,) * where.shape[1]
        outputs = self.kernel.output_columns()
        if not outputs:
            return correlation_lengths(self.kernel, hyper, where)
        columns = [c for c in range(where.shape[1]) if c not in outputs]

        def of_one_output(theta: Theta, *tables: Tensor) -> Tensor:
            whole = [where[:1].repeat(len(table), 1) for table in tables]
            for rows, table in zip(whole, tables, strict=True):
                rows[:, columns] = table
            return self.kernel(theta, *whole)

        lengths = iter(correlation_lengths(of_one_output, hyper, where[:, columns]))
        return tuple(math.inf if c in outputs else next(lengths) for c in range(where.shape[1]))

    def _deep(self, d: int) -> bool:
        """Return whether the kernel has a network, so that rows are near by their inputs alone."""
        return any(isinstance(s, Param) for s in self.kernel.sites(d).values())

    def _scaled(self, X: Tensor) -> Tensor:
        """Return the coordinates in the lengths by which rows are near."""
        where = places(self.drift, X)
        return where if self.lengths is None else where / where.new_tensor(self.lengths)

    def _sets(self, X: Tensor) -> Sets:
        """Return the neighbours of the rows; they are searched once for the same rows."""
        known: tuple[Tensor, Sets] | None = vars(self).get("_sets_of")
        if known is not None and (known[0] is X or torch.equal(known[0], X)):
            return known[1]
        scaled = self._scaled(X.detach())
        order = order_of_rows(scaled, self.order, self.seed)
        near = nearest_earlier(scaled[order], self._number)
        members = torch.where(near >= 0, order[near.clamp_min(0)], -1)
        sets = Sets(torch.cat([members, order[:, None]], 1).int())
        vars(self)["_sets_of"] = (X, sets)
        return sets

    def _members_after(self, train: Tensor, X: Tensor) -> Tensor:
        """Return the sets of new rows [m, k + 1], numbered after the training rows."""
        n, m = len(train), len(X)
        old, new = self._scaled(train), self._scaled(X)
        number = self._number_for(n)
        near = nearest_rows(old, new, number)
        away = (old[near] - new[:, None]).norm(dim=-1)
        between = torch.cdist(new, new, compute_mode="donot_use_mm_for_euclid_dist")
        later = torch.ones(m, m, dtype=torch.bool, device=X.device).triu()
        between = between.masked_fill(later, torch.inf)
        numbers = torch.cat([near, n + torch.arange(m, device=X.device).expand(m, m)], 1)
        width = min(number, n + m - 1)
        nearest = torch.cat([away, between], 1).topk(width, largest=False)
        members = numbers.gather(1, nearest.indices).masked_fill(nearest.values.isinf(), -1)
        itself = n + torch.arange(m, device=X.device)[:, None]
        return torch.cat([members, itself], 1)

    def reselected(self, theta: Theta, data: Dataset) -> Any:
        """Return the recipe with neighbours that are nearest at theta, for another fit.

        Args:
            theta: The hyperparameters of one draw, {site: [*event]}.
            data: The training rows.
        """
        where = places(self.drift, data.X)
        lengths = self._lengths(under("kernel", theta), where)
        own: Any = self  # a dataclass with the field, as each recipe is
        return replace(own, lengths=lengths).made_from(self, self.made_for)

    def outdated(self, theta: Theta, data: Dataset) -> bool:
        """Return whether lengthscales relative to one another have changed by more than 2."""
        if self.lengths is None or self._deep(len(self.lengths)):
            return False
        new = self._lengths(under("kernel", theta), places(self.drift, data.X))
        pairs = zip(new, self.lengths, strict=True)
        ratios = [a / b for a, b in pairs if math.isfinite(a)] or [1.0]
        return max(ratios) > MOVED * min(ratios)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about neighbours that are no longer the nearest, and about a network."""
        notes = self.kernel.check_fit(under("kernel", theta), places(self.drift, data.X))
        middle = {name: value.median(0).values for name, value in theta.items()}
        if not self.outdated(middle, data):
            return notes
        sentence = (
            "the ratio of two lengthscales differs by more than a factor of 2 from that by which "
            "neighbours were chosen: fit by MAP, which chooses them again, and then fit its "
            "posterior.model by this method"
        )
        return [*notes, sentence]

    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the hyperparameters of the subset model."""
        return {name: value for name, value in theta.items() if name in self.sites_at(data.d)}
