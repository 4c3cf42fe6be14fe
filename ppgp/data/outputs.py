"""Several targets of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import DataError, UnknownName, counted
from .columns import names_of
from .dataset import Dataset
from .entries.arrays import array_of
from .frame_parts import check_frame

__all__ = ["Outputs"]


@dataclass(frozen=True, eq=False)
class Outputs:
    """Inputs X [n, d] and several targets Y [n, q] of the same rows, for ``models.Multi``.

    Args:
        X: [n, d], the inputs, as in ``Dataset``.
        Y: [n, q], the targets, each in its own units: an array, a tensor, a frame or a list of
            rows.
        target_names: The names of the q columns of Y; None: those of a frame, or "y0", "y1", ..
        **columns: Further arguments of ``Dataset``, which all outputs share, such as
            ``feature_names``.

    Attributes:
        datasets: One Dataset for each output, all of the same X.

    Raises:
        DataError: If Y has not one row for each row of X, names are repeated or missing, or X or a
            column of Y is what a Dataset refuses.

    Examples:
        >>> import pandas as pd
        >>> from ppgp import data
        >>> metals = pd.DataFrame({"lead": [1.0, 3.0, 2.0], "zinc": [10.0, 30.0, 25.0]})
        >>> outputs = data.Outputs([[0.0], [1.0], [2.0]], metals)
        >>> outputs
        <Outputs n=3 d=1 targets=lead, zinc>
        >>> outputs.rows([0, 2]).Y
        tensor([[ 1., 10.],
                [ 2., 25.]], dtype=torch.float64)
    """

    datasets: tuple[Dataset, ...]

    def __init__(
        self, X: Any, Y: Any, target_names: Sequence[str] | None = None, **columns: Any
    ) -> None:
        names = target_names or names_of(Y)
        values = Y if isinstance(Y, torch.Tensor) else array_of(Y, "Y")
        if values.ndim != 2 or not values.shape[1]:
            got = f"shape {list(values.shape)}"
            raise DataError("targets Y [n, q]", got, "use Dataset(X, y) for one target")
        names = tuple(names or (f"y{i}" for i in range(values.shape[1])))
        if len(names) != values.shape[1] or len(set(names)) != len(names):
            wanted = f"{counted(values.shape[1], 'different name')}, one for each target"
            raise DataError(wanted, f"{list(names)}", "give target_names")
        each = (Dataset(X, values[:, i], target_name=n, **columns) for i, n in enumerate(names))
        object.__setattr__(self, "datasets", tuple(each))

    @classmethod
    def of(cls, datasets: Sequence[Dataset]) -> Outputs:
        """Return the Outputs of Datasets of the same X."""
        outputs = object.__new__(cls)
        object.__setattr__(outputs, "datasets", tuple(datasets))
        return outputs

    @classmethod
    def from_frame(cls, frame: Any, targets: Sequence[str], **options: Any) -> Outputs:
        """Return the table of a DataFrame.

        Args:
            frame: The DataFrame.
            targets: The columns that are targets; all others are inputs.
            **options: Further arguments of ``Dataset.from_frame``, such as ``one_hot``.

        Raises:
            UnknownName: If the frame lacks one of the targets.
            DataError: If there are no targets, or one is named twice.
        """
        frame = check_frame(frame)
        for name in targets:
            if name not in frame.columns:
                raise UnknownName("target", name, list(frame.columns))
        if not targets or len(set(targets)) != len(targets):
            raise DataError("different names of targets", f"{list(targets)}", "name each once")
        each = []
        for name in targets:
            others = [other for other in targets if other != name]
            each.append(Dataset.from_frame(frame.drop(columns=others), name, **options))
        return cls.of(each)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the targets."""
        return tuple(str(data.target_name) for data in self.datasets)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.datasets[0].n

    @property
    def X(self) -> torch.Tensor:
        """The inputs [n, d]."""
        return self.datasets[0].X

    @property
    def Y(self) -> torch.Tensor:
        """The targets [n, q]."""
        return torch.stack([data.y for data in self.datasets], 1)

    def rows(self, which: Any) -> Outputs:
        """Return some of the rows."""
        return self.of([data.rows(which) for data in self.datasets])

    def split(self, *fractions: float, seed: int = 0) -> tuple[Outputs, ...]:
        """Return disjoint random parts of the rows; see ``Dataset.split``."""
        parts = [data.split(*fractions, seed=seed) for data in self.datasets]
        return tuple(self.of(part) for part in zip(*parts, strict=True))

    def __repr__(self) -> str:
        return f"<Outputs n={self.n} d={self.X.shape[1]} targets={', '.join(self.names)}>"
