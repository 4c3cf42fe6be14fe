"""A program together with the data that it is conditioned on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.training_data import Tables


class Conditioned:
    """A program and its data: a call runs the program on them.

    Args:
        model: a model of ``ppgp.models``, or a Program.
        data: the Dataset, on the scale that the model sees, or the arguments of a program.
        program: the Pyro program of the model.
    """

    def __init__(self, model: Any, data: Any, program: Callable[..., Any]) -> None:
        self.model, self.data, self.program = model, data, program
        self.all_rows = data.passed()
        self._fit: set[int] = set()  # numbers of rows that fit into memory

    def __call__(self, tables: Tables = ()) -> None:
        """Run the program on the inputs and targets of some rows; () stands for all rows."""
        args, kwargs = self.data.passed(tables) if tables else self.all_rows
        self.program(*args, **kwargs)

    def tables(self, rows: Tensor | None) -> Tables:
        """Return the inputs and targets of some rows; () for all of them.

        Raises:
            NotApplicable: if rows are asked of a program with arguments of its own.
        """
        return () if rows is None else self.data.tables(rows)

    def survey_tables(self) -> Tables:
        """Return the rows that are enough to see which sites the model has; () for all of them."""
        enough = self.model.survey
        if enough is None or self.data.n <= enough:
            return ()
        return self.data.tables(torch.arange(enough))

    def check_memory(self, rows: int | None = None) -> None:
        """Raise NotEnoughMemory if the density of so many rows, with its gradient, does not fit."""
        if rows is None:
            rows = self.data.n
        if rows is None or rows in self._fit:  # nothing tells the rows of a program
            return
        self.model.check_memory(rows, self.data.d, self.data.X)
        self._fit.add(rows)
