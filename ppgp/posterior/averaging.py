"""Several posteriors of the same rows, averaged with weights, such as by their evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from ..data.dataset import Dataset
from ..data.entries.arrays import as_tensor
from ..data.training_data import same_value
from ..display import tables as html
from ..distributions.weighted_mixture import weighted
from ..errors import DataError, NotApplicable, SettingError, StorageError, UnknownName, an
from .files import storage
from .loading import load_posterior, read, ready
from .posterior import Posterior
from .prediction import Origin, Prediction
from .summary import cut_short

__all__ = ["Average", "average", "same_targets"]

ROUNDING = 1e-9  # of standardising and back, relative to the largest target
SHOWN = 3  # posteriors of the largest weights in the repr
ROLES = ("trend", "season", "cycle", "regressors")
NOTHING = 1e-9  # the sd of a part that a model does not have, in sds of another part
NEGLIGIBLE = 1e-4  # a weight below it takes no part in predictions


@dataclass(frozen=True, eq=False)
class Average:
    """Posteriors of several models of the same rows, with weights that sum to 1.

    ``ppgp.average`` makes it. Predictions are mixtures: the distribution of y at a row is the sum
    of those of the posteriors [K] times their weights, in the units of y. Hoeting, Madigan, Raftery
    & Volinsky (1999).

    Attributes:
        posteriors: ``{name: Posterior}``.
        weights: [K], in the order of the posteriors.
        by: What the weights come from: "evidence" or "weights".
        warnings: What is wrong with the choice of the posteriors, one sentence each.
        took: The wall time in seconds of that choice and of all fits; None: only that of each fit
            is known.

    Raises:
        UnknownName: If ``average[name]`` has a name that no posterior has.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> x = torch.linspace(0, 1, 12, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> recipes = {
        ...     "flat": models.LinearRegression(weight=priors.Normal(0.0, 0.01)),
        ...     "steep": models.LinearRegression(weight=priors.Normal(0.0, 1.0)),
        ... }
        >>> how = inference.Exact()
        >>> fits = {name: ppgp.fit(m, data, how, progress=False) for name, m in recipes.items()}
        >>> average = ppgp.average(fits)
        >>> average
        <Average of 2 posteriors by evidence: 1.00 steep, 0.00 flat>
        >>> average.predict([[1.0]]).mean.round(decimals=1)
        tensor([5.], dtype=torch.float64)
    """

    posteriors: dict[str, Posterior]
    weights: Tensor
    by: str = "evidence"
    warnings: tuple[str, ...] = ()
    took: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the posteriors."""
        return tuple(self.posteriors)

    @property
    def best(self) -> str:
        """The name of the posterior of the largest weight."""
        return self.names[int(self.weights.argmax())]

    @property
    def data(self) -> Any:
        """The training data of the posterior of the largest weight, on the scale of its model."""
        return self[self.best].data

    @property
    def seconds(self) -> float:
        """The wall time of all fits, and of the choice among candidates that were left out too."""
        if self.took is not None:
            return self.took
        return sum(each.seconds for each in self.posteriors.values())

    @property
    def model(self) -> Any:
        """The model of the posterior of the largest weight."""
        return self[self.best].model

    @property
    def how(self) -> Any:
        """The method of the posterior of the largest weight."""
        return self[self.best].how

    @property
    def scaler(self) -> Any:
        """What put the rows on the scale of the posterior of the largest weight."""
        return self[self.best].scaler

    @property
    def stats(self) -> dict[str, Any]:
        """Whether Ctrl-C ended one of the fits, as "interrupted"."""
        return {"interrupted": any(cut_short(each.stats) for each in self.posteriors.values())}

    @property
    def draws(self) -> dict[str, Tensor]:
        """None: each posterior has its own, of other sites."""
        return {}

    def used(self) -> dict[str, Posterior]:
        """Return the posteriors that take part in predictions: those of a weight above 1e-4."""
        return {name: self.posteriors[name] for name in self._used()[0]}

    def __getitem__(self, name: str) -> Posterior:
        if name not in self.posteriors:
            raise UnknownName("posterior", name, list(self.posteriors))
        return self.posteriors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.posteriors)

    def __len__(self) -> int:
        return len(self.posteriors)

    def items(self) -> Any:
        """Return the pairs of name and Posterior."""
        return self.posteriors.items()

    def __repr__(self) -> str:
        order = self.weights.argsort(descending=True)[:SHOWN].tolist()
        parts = [f"{self.weights[i]:.2f} {self.names[i]}" for i in order]
        if len(self) > SHOWN:
            parts.append("...")
        return f"<Average of {len(self)} posteriors by {self.by}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the weight of each posterior."""
        rows = []
        for (name, each), weight in zip(self.items(), self.weights.tolist(), strict=True):
            how = type(each.how).__name__
            facts = (f"{weight:.3f}", repr(each.model), how, f"{each.seconds:.1f}")
            rows.append((name, *facts, "; ".join(each.warnings)))
        head = ("posterior", "weight", "model", "method", "seconds", "warnings")
        return html.page("Average", f"{len(rows)} posteriors by {self.by}", html.table(head, rows))

    def predict(self, X: Any, **options: Any) -> Prediction:
        """Return the mixture of the predictive distributions of y at the rows of X.

        Posteriors of a weight below 1e-4 are left out.

        Args:
            X: The new rows [m, d], as ``Posterior.predict`` takes them.
            **options: Those of ``Posterior.predict``, apart from ``joint``.

        Returns:
            A Prediction of m rows, in the units of y.

        Raises:
            NotApplicable: For ``joint=True``, and if the distributions are of different kinds.
        """
        if options.pop("joint", None):
            do = "predict jointly by one of them, such as average[average.best]"
            raise NotApplicable("a distribution of each row", "joint=True", do)
        used, weights = self._used()
        found = [self.posteriors[name].predict(X, **options) for name in used]
        return self._mixed(found, weights, "predict")

    def latent(self, X: Any) -> Prediction:
        """Return the mixture of the distributions of f at the rows of X; see ``predict``.

        Raises:
            NotApplicable: If some models are of log y and others of y.
        """
        used, weights = self._in_one_unit("f in one unit")
        found = [self.posteriors[name].latent(X) for name in used]
        return self._mixed(found, weights, "latent")

    def components(self, X: Any) -> dict[str, Prediction]:
        """Return the mixtures of trend, season, cycle and regressors, in the units of y.

        A model without a season, for example, has a season of 0 without doubt. The means add up to
        the mean of ``latent``, minus the weighted mean of the models' means. Parts of models of
        log y are of log y, and such models are averaged with one another alone.

        Args:
            X: The new rows [m, d], as in ``predict``.

        Returns:
            ``{role: Prediction}``; see ``Posterior.components``, by="role".

        Raises:
            NotApplicable: If a model has no kernel, or some are of log y and others of y.
        """
        used, weights = self._in_one_unit("parts in one unit")
        each = [self.posteriors[name].components(X, by="role") for name in used]
        roles = [role for role in ROLES if any(role in parts for parts in each)]
        mixed = {}
        for role in roles:
            found = [parts.get(role, _zero_like(parts)) for parts in each]
            mixed[role] = self._mixed(found, weights, f"the role {role!r}")
        return mixed

    def update(self, X: Any, y: Any = None, **options: Any) -> Average:
        """Return the average given further rows too.

        Each posterior is updated, and its weight is multiplied by the density of the new rows given
        the old ones. The draws of hyperparameters stay those of the fits. Posteriors of a weight
        below 1e-4 are left out.

        Args:
            X: The new rows [m, d], or a Dataset; see ``Posterior.update``.
            y: Their targets [m], in the units of y.
            **options: Those of ``Posterior.update``.

        Raises:
            NotApplicable: If a model cannot be updated.
        """
        if y is None and not isinstance(X, Dataset):
            raise DataError("targets y of the new rows", "none", "pass y, or a Dataset as X")
        targets = X.y if y is None else as_tensor(y, "y")
        logs, updated = [], {}
        for name, weight in zip(*self._used(), strict=True):
            each = self.posteriors[name]
            ahead = each.one_step_ahead(X, y, **options)
            logs.append(weight.log() + ahead.log_prob(targets).sum().to(weight))
            updated[name] = each.update(X, y, **options)
        weights = torch.stack(logs).softmax(0)
        return replace(self, posteriors=updated, weights=weights)

    def _used(self) -> tuple[list[str], Tensor]:
        """Return the names of the posteriors whose weight counts, and these weights."""
        kept = self.weights > NEGLIGIBLE * self.weights.max()
        names = [name for name, use in zip(self.names, kept.tolist(), strict=True) if use]
        return names, self.weights[kept] / self.weights[kept].sum()

    def _in_one_unit(self, wanted: str) -> tuple[list[str], Tensor]:
        """Return what ``_used`` does.

        Raises:
            NotApplicable: If some models are of log y and others of y.
        """
        used, weights = self._used()
        logs = {bool(getattr(self.posteriors[name].model, "log", False)) for name in used}
        if len(logs) > 1:
            do = "ask one of them, such as average[average.best]"
            raise NotApplicable(wanted, "models of y and of log y", do)
        return used, weights

    def _mixed(self, found: Sequence[Prediction], weights: Tensor, method: str) -> Prediction:
        """Return the mixture of predictions of the same rows."""
        first = found[0]
        origin = Origin(self, f"{method} of an average")
        kinds = {each.kind for each in found}
        if len(kinds) > 1:
            do = "average models of one kind of y"
            raise NotApplicable("predictions of one kind", " and ".join(sorted(kinds)), do)
        if first.kind == "classes":
            parts = zip(weights, found, strict=True)
            total = torch.stack([w.to(p.dtype) * p.probabilities for w, p in parts]).sum(0)
            law: Any = Categorical(probs=total[None], validate_args=False)
        else:
            units = [(each.offset, each.scale) for each in found]
            law = weighted([each.distribution for each in found], weights, units)
        return Prediction(law, 0.0, 1.0, first.classes, first.in_training, origin)

    def summary(self, units: str = "model") -> Any:
        """Return a pandas DataFrame with the weight of each posterior, and one row per scalar.

        The index has the name of the posterior and that of the scalar, in the order of the weights.
        The first column is the weight of the posterior; the others are those of
        ``Posterior.summary``, NaN where the method of a posterior has none. Posteriors of a weight
        below 1e-4 are left out.

        Args:
            units: "model" or "data"; see ``Posterior.summary``.

        Raises:
            UnknownName: If ``units`` is neither "model" nor "data".

        Examples:
            >>> import torch
            >>> import ppgp
            >>> from ppgp import inference, models, priors
            >>> x = torch.linspace(0, 1, 12, dtype=torch.float64)
            >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x)
            >>> recipes = {
            ...     f"slope of about {sd}": models.LinearRegression(weight=priors.Normal(0.0, sd))
            ...     for sd in (1.0, 2.0)
            ... }
            >>> how = inference.MAP()
            >>> fits = {name: ppgp.fit(m, data, how, progress=False) for name, m in recipes.items()}
            >>> ppgp.average(fits, by=[0.25, 0.75]).summary("data")["weight"].tolist()
            [0.75, 0.75, 0.75, 0.25, 0.25, 0.25]
        """
        import pandas as pd

        names, weights = self._used()
        tables: dict[str, Any] = {}
        for i in weights.argsort(descending=True, stable=True).tolist():
            table = self.posteriors[names[i]].summary(units)
            table.insert(0, "weight", float(weights[i]))
            tables[names[i]] = table
        titles = dict.fromkeys(table.index.name for table in tables.values())
        return pd.concat(tables, names=["posterior", "; ".join(titles)])

    def save(self, path: str | Path) -> Path:
        """Write all posteriors and weights to one file, which ``ppgp.Average.load`` reads.

        Raises:
            NotApplicable: See ``Posterior.save``.
            StorageError: See ``Posterior.save``.
        """
        for each in self.posteriors.values():
            each.model.check_storable()
        return storage.save(path, self)

    @classmethod
    def load(cls, path: str | Path, model: Any = None) -> Average:
        """Read what ``save`` wrote; the arguments are those of ``ppgp.load_posterior``.

        Raises:
            StorageError: See ``ppgp.load_posterior``.
        """
        return cls._checked(*read(path, model))

    @classmethod
    def _checked(cls, record: Any, things: Mapping[str, Any]) -> Average:
        """Return an average that was read, after checking it.

        Raises:
            StorageError: If it is something else, or damaged.
        """
        own = isinstance(record, Average) and isinstance(record.posteriors, Mapping)
        if not own or not all(isinstance(p, Posterior) for p in record.posteriors.values()):
            do = "pass a file written by Average.save"
            raise StorageError("an average of posteriors", type(record).__name__, do)
        weights = record.weights
        fits = isinstance(weights, Tensor) and weights.shape == (len(record.posteriors),)
        if not fits or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
            do = "it is damaged or foreign; save again"
            raise StorageError("one weight for each posterior in the file", "something else", do)
        posteriors = {name: ready(each, things) for name, each in record.posteriors.items()}
        took = None if record.took is None else float(record.took)
        return cls(posteriors, weights, str(record.by), tuple(map(str, record.warnings)), took)


def _zero_like(parts: Mapping[str, Prediction]) -> Prediction:
    """Return a part that is 0, beside the parts of a model, as a normal of a negligible sd."""
    one = next(iter(parts.values()))
    law: Any = one.distribution
    scale = NOTHING * law.scale.mean().expand(law.scale.shape)
    return replace(one, distribution=Normal(torch.zeros_like(law.loc), scale))


def load_fitted(path: str | Path) -> Posterior | Average:
    """Read a Posterior or an Average; see ``ppgp.load_posterior``."""
    record, things = read(path, None)
    if isinstance(record, Average):
        return Average._checked(record, things)
    return load_posterior(path)


def average(
    posteriors: Mapping[str, Any] | Sequence[Any],
    by: str | Tensor | Sequence[float] = "evidence",
) -> Average:
    """Return an average of posteriors of the same rows, weighted by their evidence.

    The weight of model k is proportional to p(y under model k), its log evidence in the units of
    the data, under equal prior probabilities of the models. Kass & Raftery (1995), equation 1.

    Args:
        posteriors: K of them, in a list or by name.
        by: "evidence", or the weights [K] themselves, such as ``ppgp.stacking_weights(posteriors)``
            of those that predict left-out rows best.

    Returns:
        The Average. Its predictions are in the units of y.

    Raises:
        SettingError: If ``by`` is something else, or there is no posterior.
        DataError: If the posteriors are fits to different rows, or weights do not sum to 1.
        NotKnown: If the method of a posterior did not compute its evidence.

    Examples:
        Two priors of the slope, the second of which expects far larger ones:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> x = torch.linspace(0, 1, 12, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + torch.cos(20 * x))
        >>> recipes = [models.LinearRegression(weight=priors.Normal(0.0, sd)) for sd in (1, 10)]
        >>> fits = [ppgp.fit(recipe, data, inference.Exact()) for recipe in recipes]
        >>> average = ppgp.average(fits)
        >>> ratio = torch.tensor(fits[0].log_evidence - fits[1].log_evidence).exp()
        >>> bool((average.weights[0] / average.weights[1] - ratio).abs() < 1e-6 * ratio)
        True
    """
    if not isinstance(posteriors, Mapping):
        posteriors = {str(i): each for i, each in enumerate(posteriors)}
    given = dict(posteriors)
    if not given:
        raise SettingError("one posterior or more", "none", "pass those of several models")
    for name, each in given.items():
        if not isinstance(each, Posterior):
            got = f"{an(type(each).__name__)} as {name!r}"
            raise SettingError(
                "posteriors, in a list or by name", got, "pass what ppgp.fit returns"
            )
    if not same_targets(list(given.values())):
        do = "fit all models to the same rows"
        raise DataError("posteriors of the same training rows", "other targets", do)
    if isinstance(by, str):
        if by != "evidence":
            do = "for stacking pass by=ppgp.stacking_weights(posteriors)"
            raise SettingError('by="evidence", or weights', repr(by), do)
        logs = [each.log_evidence for each in given.values()]
        return Average(given, _by_evidence(logs, list(given)))
    try:
        weights = torch.as_tensor(by, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        do = 'pass "evidence", or one number for each posterior'
        raise SettingError('by="evidence", or weights', repr(by), do) from None
    total = float(weights.sum())
    if weights.shape != (len(given),) or not bool((weights >= 0).all()) or abs(total - 1) > 1e-6:
        got = f"shape {list(weights.shape)} with the sum {total:g}"
        wanted = f"{len(given)} weights of 0 or more that sum to 1"
        raise DataError(wanted, got, "pass one weight for each posterior")
    return Average(given, weights, "weights")


def _by_evidence(logs: Sequence[float], names: Sequence[str]) -> Tensor:
    """Return the weights [K] of models with these log evidences.

    Raises:
        DataError: If one is not finite.
    """
    bad = [name for name, value in zip(names, logs, strict=True) if not math.isfinite(value)]
    if bad:
        do = "leave it out, or look at its warnings"
        raise DataError("a finite log evidence of each posterior", f"none of {bad[0]!r}", do)
    return torch.tensor(np.asarray(logs), dtype=torch.float64).softmax(0)


def same_targets(posteriors: Sequence[Posterior]) -> bool:
    """Return whether all are fits to the same targets, up to rounding, in the same order.

    The inputs may differ, as each model may use other columns. Programs have the same targets if
    their arguments of the same names are equal.
    """
    first = posteriors[0]
    return all(_same_targets(first, other) for other in posteriors[1:])


def _same_targets(a: Posterior, b: Posterior) -> bool:
    if a.data is b.data:
        return True
    if a.data.is_table and b.data.is_table:
        y, other = (one.scaler.targets_back(one.data.y).double().cpu() for one in (a, b))
        coarser = max(torch.finfo(one.data.y.dtype).eps for one in (a, b))
        close = max(ROUNDING, 8 * coarser) * float(y.abs().max())
        return y.shape == other.shape and bool(((y - other).abs() <= close).all())
    if a.data.is_table or b.data.is_table:
        return False
    shared = a.data.keys() & b.data.keys()
    return bool(shared) and all(same_value(a.data[k], b.data[k]) for k in shared)
