"""The posteriors of several outputs, which know nothing of one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.outputs import Outputs
from ..display import tables as html
from ..errors import DataError, StorageError, UnknownName
from .files import storage
from .loading import read, ready
from .posterior import Posterior
from .prediction import Prediction

__all__ = ["MultiPosterior"]


@dataclass(frozen=True, eq=False)
class MultiPosterior:
    """One Posterior for each output of a ``models.Multi``.

    No distribution is joint over outputs, and no guarantee is. ``predict`` returns one Prediction
    of m rows for each output, in the units of that output, from the rows X [m, d].

    Attributes:
        posteriors: ``{name of the output: Posterior}``, in the order of the outputs.

    Raises:
        UnknownName: If ``posterior[name]`` has a name that no output has.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> from ppgp.data import Outputs
        >>> x = torch.linspace(0, 1, 6, dtype=torch.float64)
        >>> data = Outputs(x[:, None], torch.stack([2 * x, 1 - x], 1), ("up", "down"))
        >>> recipe = models.Multi(models.LinearRegression(noise=1e-6))
        >>> posterior = ppgp.fit(recipe, data, inference.MAP(), progress=False)
        >>> posterior.names
        ('up', 'down')
        >>> prediction = posterior.predict([[0.25]])
        >>> {name: round(each.mean.item(), 3) for name, each in prediction.items()}
        {'up': 0.5, 'down': 0.75}
        >>> posterior["up"]
        <Posterior of LinearRegression by MAP: 1 x 1 draws on the standardised scale, ... s>
    """

    posteriors: dict[str, Posterior]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(self.posteriors)

    def __getitem__(self, name: str) -> Posterior:
        if name not in self.posteriors:
            raise UnknownName("output", name, list(self.posteriors))
        return self.posteriors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.posteriors)

    def __len__(self) -> int:
        return len(self.posteriors)

    def items(self) -> Any:
        """Return the pairs of name and Posterior."""
        return self.posteriors.items()

    def predict(self, X: Any, **options: Any) -> dict[str, Prediction]:
        """Return ``{name: Prediction}``; the arguments are those of ``Posterior.predict``.

        ``joint=True`` is joint over the rows of each output. The targets may be among the columns
        of a frame, and are ignored.
        """
        X = self._inputs(X)
        return {name: each.predict(X, **options) for name, each in self.items()}

    def _inputs(self, X: Any) -> Any:
        """Return a frame without the targets, and anything else as it is."""
        import pandas as pd

        if not isinstance(X, pd.DataFrame):
            return X
        inputs = next(iter(self.posteriors.values())).data.feature_names or ()
        targets = [name for name in self.names if name in X.columns and str(name) not in inputs]
        return X.drop(columns=targets)

    def latent(self, X: Any) -> dict[str, Prediction]:
        """Return ``{name: Prediction}`` of f without noise; see ``Posterior.latent``."""
        X = self._inputs(X)
        return {name: each.latent(X) for name, each in self.items()}

    def loo(self) -> dict[str, Prediction]:
        """Return ``{name: Prediction}`` of the training rows; see ``Posterior.loo``."""
        return {name: each.loo() for name, each in self.items()}

    def update(self, X: Any, Y: Any = None) -> MultiPosterior:
        """Return the posteriors given further rows too; see ``Posterior.update``.

        Args:
            X: The new rows [m, d], or Outputs.
            Y: Their targets [m, q]; None: those of the Outputs.

        Raises:
            DataError: If there is not one target for each output.
        """
        new = X if isinstance(X, Outputs) else Outputs(X, Y, self.names)
        if len(new.datasets) != len(self):
            got = str(len(new.datasets))
            raise DataError(f"{len(self)} targets", got, "pass one for each output")
        pairs = zip(self.items(), new.datasets, strict=True)
        return MultiPosterior({name: fit.update(data) for (name, fit), data in pairs})

    def summary(self, units: str = "model") -> dict[str, Any]:
        """Return ``{name: DataFrame}``; see ``Posterior.summary``."""
        return {name: each.summary(units) for name, each in self.items()}

    def save(self, path: str | Path) -> Path:
        """Write all posteriors to one file, which ``ppgp.MultiPosterior.load`` reads.

        Raises:
            NotApplicable: See ``Posterior.save``.
            StorageError: See ``Posterior.save``.
        """
        for each in self.posteriors.values():
            each.model.check_storable()
        return storage.save(path, self)

    @classmethod
    def load(cls, path: str | Path, model: Any = None) -> MultiPosterior:
        """Read what ``save`` wrote; the arguments are those of ``ppgp.load_posterior``.

        Raises:
            StorageError: See ``ppgp.load_posterior``.
        """
        record, things = read(path, model)
        own = isinstance(record, MultiPosterior) and isinstance(record.posteriors, Mapping)
        if not own or not all(isinstance(p, Posterior) for p in record.posteriors.values()):
            do = "pass a file written by MultiPosterior.save"
            raise StorageError("posteriors of several outputs", type(record).__name__, do)
        return cls({n: ready(each, things) for n, each in record.posteriors.items()})

    def _repr_html_(self) -> str:
        rows = []
        for name, each in self.items():
            model, how = type(each.model).__name__, type(each.how).__name__
            rows.append((name, model, how, f"{each.seconds:.1f}", "; ".join(each.warnings)))
        lines = html.table(("output", "model", "method", "seconds", "warnings"), rows)
        return html.page("MultiPosterior", f"{len(rows)} outputs", lines)

    def __repr__(self) -> str:
        return (
            f"<MultiPosterior of {', '.join(self.names)}: {next(iter(self.posteriors.values()))}>"
        )
