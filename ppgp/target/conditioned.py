"""A program together with the data that it is conditioned on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..data.dataset import Dataset
from ..errors import NotApplicable
from ..priors import Param

Tables = tuple[Tensor, ...]


class Conditioned:
    """A program and its data: a call runs the program on them.

    Args:
        model: a model of ``ppgp.models``, or a Program.
        data: the Dataset, on the scale that the model sees, or the arguments of a program.
        program: the Pyro program of the model.
    """

    def __init__(self, model: Any, data: Any, program: Callable[..., Any]) -> None:
        self.model, self.data, self.program = model, data, program

    def __call__(self, tables: Tables = ()) -> None:
        """Run the program on the inputs and targets of some rows; () stands for all rows."""
        if isinstance(self.data, Dataset):
            X, y = tables or (self.data.X, self.data.y)
            self.program(X, y, total=self.data.n)
        else:
            self.program(**self.data)

    def tables(self, rows: Tensor | None) -> Tables:
        """Return the inputs and targets of some rows; () for all of them.

        Raises:
            NotApplicable: if rows are asked of a program with arguments of its own.
        """
        if rows is None:
            return ()
        if not isinstance(self.data, Dataset):
            got = "a program with its own arguments"
            raise NotApplicable("a Dataset to take mini-batches from", got, "use the full batch")
        return self.data.X[rows], self.data.y[rows]

    def survey_tables(self) -> Tables:
        """Return the rows that are enough to see which sites the model has; () for all of them."""
        enough = self.model.survey
        if enough is None or not isinstance(self.data, Dataset) or self.data.n <= enough:
            return ()
        return self.data.X[:enough], self.data.y[:enough]

    def check_memory(self, rows: int | None = None) -> None:
        """Raise NotEnoughMemory if the density of so many rows, with its gradient, does not fit."""
        if isinstance(self.data, Dataset):
            n = self.data.n if rows is None else rows
            self.model.check_memory(n, self.data.d, self.data.X)

    def frozen_params(self) -> set[str]:
        """Return the params that nothing moves: buffers and frozen weights of a network.

        They are no part of z.
        """
        if not isinstance(self.data, Dataset):
            return set()
        sites = self.model.sites(self.data.d)
        return {name for name, s in sites.items() if isinstance(s, Param) and not s.trained}
