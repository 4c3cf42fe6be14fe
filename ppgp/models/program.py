"""A Pyro program written by the user, as a model that ``ppgp.fit`` accepts, and its predictions.

A prediction runs the program again at draws of its posterior. Discrete sites that were summed out
are drawn given the data. Each site that was not drawn then has its predictive distribution.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from pyro.distributions import ExpandedDistribution, MaskedDistribution
from pyro.poutine import Trace
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
)
from torch.nn import Module

from ..data.training_data import same_value
from ..density.assignments import drawn
from ..density.enumeration import Enumerated, enumerated, plate_nesting, row_densities
from ..density.handlers import (
    Redraw,
    Run,
    check_unweighted,
    entries_of_data,
    is_data,
    is_deterministic,
    is_discrete,
    is_factor,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from ..density.layout import OBSERVED, UNOBSERVED
from ..density.plates import plate_of, plates_taking
from ..distributions import univariate
from ..errors import DataError, NotApplicable, PpgpError, listed
from ..numerics.cholesky import LOG_2PI
from ..numerics.shapes import broadcast_shapes
from ..priors import Param, Site
from ..runtime.process_locks import silenced
from ..runtime.seeding import seeded
from ..runtime.threads import ELEMENT
from .base import Model

Theta = Mapping[str, Tensor]
Values = dict[str, Tensor]
Call = Callable[[], Any]
SCALAR = (bool, int, float, str)
VALUE = "\1"  # before the name of a deterministic site
DRAWN = "drawn"  # in place of the name of a parameter: a draw of the site
SEEN = "\0seen"  # suffix of the entry that marks which numbers of a site a mask keeps

# The least number of runs if a run draws random numbers: each draw of the posterior is then used
# several times. It is also about the number of runs if discrete sites are inferred, one draw at a
# time.
RUNS = 1000
AT_ONCE = 2**22  # numbers in the factors of all draws for which discrete sites are inferred at once
#: of programs that are run without arguments which they need
FAILURES = (
    *(RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError),
    *(AssertionError, ZeroDivisionError),
)


@dataclass(frozen=True)
class Same:
    """What the arguments of a prediction have in common with those of the fit.

    Attributes:
        arguments: Whether all that are given are the same.
        others: The numbers of rows of those that are arrays and not the same; -1: not known.
        local: "same" or "new", what the caller says of the units; None: nothing.
        longer: The names of arrays that have more rows, and do not begin with those of the fit.
    """

    arguments: bool
    others: frozenset[int]
    local: str | None = None
    longer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """The distribution of a site in one run.

    Attributes:
        law: The distribution without its wrappers; None: it is known by its draws alone.
        batch: The shape of its rows, before wrappers were taken off.
        event: The shape of the numbers of a row.
    """

    law: Distribution | None
    batch: torch.Size
    event: torch.Size


@dataclass(frozen=True)
class Vectors:
    """The distribution of a site whose rows have several numbers each, or that is known by draws.

    Attributes:
        law: Batch [draw, *batch] with the event of the family, or without one, where the numbers
            are independent; None: it is known by its draws alone.
        batch: The shape of the rows, [] where the whole site is one event.
        event: The shape of the numbers of a row.
        draws: [draw, *batch, *event], where there is no law.
    """

    law: Distribution | None
    batch: torch.Size
    event: torch.Size
    draws: Tensor | None = None


@dataclass(frozen=True)
class Predicted:
    """What a program predicts.

    Attributes:
        distributions: {site: a distribution of batch [draw, n], or ``Vectors``}. Nested plates are
            concatenated.
        values: {deterministic site: [draw, ...]}, of the same draws.
        notes: What the caller should know.
        samples: Draws of y [draw, n] in place of distributions, of a forecasting model.
    """

    distributions: dict[str, Distribution | Vectors]
    values: Values
    notes: list[str] = field(default_factory=list)
    samples: Tensor | None = None


@dataclass(frozen=True)
class Program(Model):
    """A Pyro program ``function(**arguments)``, whose arguments ``ppgp.fit`` takes as a dict.

    ``ppgp.fit`` makes it of a program of Pyro (Bingham et al. 2019). Its sites and plates have the
    names that the program gives them: ``posterior.draws`` is ``{site: [chain, draw, *event]}``.
    Nothing is standardised, so that draws are in the units of the program.

    Args:
        function: The Pyro program.

    Raises:
        NotApplicable: From ``fit``, if the function cannot be called, or for a latent site that is
            discrete and of infinite support.
        DataError: From ``fit``, if the program does not have an argument, or if one that it
            requires is missing.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def coin(heads=None):
        ...     p = pyro.sample("p", dist.Beta(2.0, 2.0))
        ...     with pyro.plate("tosses", 10):
        ...         return pyro.sample("heads", dist.Bernoulli(p), obs=heads)
        >>> heads = torch.tensor([1.0] * 7 + [0.0] * 3)
        >>> posterior = ppgp.fit(coin, {"heads": heads}, inference.MAP(), progress=False)
        >>> posterior.model.function is coin
        True
        >>> posterior.theta["p"].numpy().round(3)  # the mode of Beta(9, 5) is 8 / 12
        array([0.667], dtype=float32)
        >>> posterior.predict(heads=None).probabilities.shape  # [n, classes]
        torch.Size([10, 2])
    """

    function: Callable[..., Any]
    scales = ""

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return {}: the sites are not known without a run of the program."""
        return {}

    # the methods below take the arguments of the program in place of X and a Dataset

    def work(self, n: int, d: int = 1) -> float:
        """Return the approximate number of multiplications in one run.

        Args:
            n: How many numbers the arguments hold, in rows of d.
            d: How many numbers are in a row.
        """
        return ELEMENT * n * d

    def model(self, **arguments: Any) -> Any:  # type: ignore[override] # its own arguments
        return self.function(**arguments)

    def of_all_rows(self, **arguments: Any) -> Any:
        """Run the program with its plates whole, also those with ``subsample_size=``."""
        with plates_taking():
            return self.function(**arguments)

    def _latents(self, theta: Theta) -> dict[str, Tensor]:
        if not theta:
            raise NotApplicable(
                "a program with uncertain sites", "none", "add a pyro.sample without obs"
            )
        return dict(theta)

    def log_likelihood(  # type: ignore[override] # its own arguments
        self, theta: Theta, data: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Return the pointwise log likelihood.

        Args:
            theta: {site: [draw, *event]}.
            data: The arguments of the fit.

        Returns:
            {observed site: log density, [draw, ...]}, without the entries that a mask leaves out
            or that the program computes from latent sites. One joint Gaussian outside plates, as of
            a Gaussian process, has log p(y_i given its other numbers). Discrete sites are summed
            out row by row; observed sites that they connect are one entry, as ``"y_0, y_1"``.

        Raises:
            NotApplicable: If discrete sites connect rows, as in a hidden Markov model, if rows are
                weighted by a scale, or if masks depend on latent sites.
        """
        latents = self._latents(theta)
        first = {name: value[0] for name, value in latents.items()}
        with quietly():
            data_entries = entries_of_data(lambda: self.of_all_rows(**data), first)
        forecasting = is_forecasting(self.function)

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(values) as run:
                self.of_all_rows(**data)
            log_densities, seen = {}, {}
            for name, s in run.observed().items():
                check_unweighted(name, s)
                if forecasting:  # it observes y minus its prediction
                    log_densities[name] = _of_each_time(s)
                    seen[name] = torch.ones_like(log_densities[name], dtype=torch.bool)
                    continue
                joint = _given_the_others(s)
                if joint is not None:
                    log_densities[name] = joint
                    seen[name] = data_entries[name].reshape(()).expand(joint.shape)
                    continue
                seen[name] = (numbers_seen(s) > 0) & data_entries[name]
                log_densities[name] = site_log_prob(s).expand(seen[name].shape)
            if any(name not in values for name in run.latents()):
                found = self.enumerated(values, data)
                observed = run.observed()
                for rows in row_densities(found):
                    joint = ", ".join(rows.sites)
                    any_seen = torch.zeros_like(rows.values, dtype=torch.bool)
                    for name in rows.sites:
                        del log_densities[name]
                        any_seen = any_seen | _in_plates(
                            seen.pop(name), observed[name], rows.plates
                        )
                    log_densities[joint], seen[joint] = rows.values, any_seen
            marks = {name + SEEN: here.reshape(-1) for name, here in seen.items()}
            return {name: x.reshape(-1) for name, x in log_densities.items()} | marks

        with quietly():
            per_draw = over_draws(one, latents)
        return _without_masked(per_draw)

    def enumerated(self, values: Mapping[str, Tensor], data: Mapping[str, Any]) -> Enumerated:
        """Return what a run shows in which discrete sites without a value take all their values.

        Args:
            values: {site or param: [*event]}.
            data: The arguments of the fit.
        """
        with Run(values) as plain, seeded(0):
            self.of_all_rows(**data)
        with Run(values) as run:
            return enumerated(run, lambda: self.of_all_rows(**data), plate_nesting(plain))

    def of_discrete(
        self,
        theta: Theta,
        data: Mapping[str, Any],
        make: Callable[[Enumerated], dict[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Return what a function finds for discrete sites at each draw of the others.

        Args:
            theta: {site or param: [draw, *event]}.
            data: The arguments of the fit.
            make: Of what one run shows, {site: tensor}.

        Returns:
            {site: [draw, ...]}.
        """
        first = self.enumerated({name: value[0] for name, value in theta.items()}, data)
        size = sum(factor.value.numel() for factor in first.factors.values())
        chunk = max(1, AT_ONCE // max(1, size))
        return over_draws(lambda values: make(self.enumerated(values, data)), theta, chunk)

    def seen(self, values: Mapping[str, Tensor], data: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return which numbers of each observed site are data that no mask leaves out.

        Args:
            values: {site or param: [*event]}.
            data: The arguments of the fit.

        Returns:
            {observed site: [n] of bool}.
        """
        with quietly(), torch.no_grad():
            of_data = entries_of_data(lambda: self.of_all_rows(**data), dict(values))
            with Run(values) as run:
                self.of_all_rows(**data)
            observed = run.observed().items()
            marks = {name: (numbers_seen(s) > 0) & of_data[name] for name, s in observed}
        return {name: mark.reshape(-1) for name, mark in marks.items()}

    def factors(self, values: Mapping[str, Tensor], data: Mapping[str, Any]) -> list[str]:
        """Return the names of the ``pyro.factor`` sites; the arguments are those of ``seen``."""
        with quietly(), seeded(0), torch.no_grad(), Run(values) as run:
            self.of_all_rows(**data)
        return [name for name, s in run.samples() if is_factor(s)]

    def predict(  # type: ignore[override] # its own arguments
        self, theta: Theta, arguments: Mapping[str, Any], data: Mapping[str, Any], seed: int = 0
    ) -> dict[str, Distribution | Vectors]:
        """Return the distributions of ``predicted``."""
        return self.predicted(theta, arguments, data, seed).distributions

    def predicted(
        self,
        theta: Theta,
        arguments: Mapping[str, Any],
        data: Mapping[str, Any],
        seed: int = 0,
        local: str | None = None,
    ) -> Predicted:
        """Return the predictive distribution of every site that was not drawn.

        Discrete sites that were summed out are drawn given the data of the fit. Continuous latent
        sites in just the plates of y belong to its units: they are those of the fit, or are drawn
        from their prior, as those of new units. If a run draws random numbers, there are at least
        ``RUNS`` runs. If nothing is left to predict, or the program does not run without its
        observed arguments, its observed sites are drawn again.

        Args:
            theta: {site: [draw, *event]}.
            arguments: Arguments of the prediction; one that is left out has its default, or None.
            data: The arguments of the fit.
            seed: Seed of the random numbers.
            local: "same" or "new": the units of the prediction. None: those of the fit if the
                arrays among the arguments are, and new ones if their number is another.

        Returns:
            The distributions, each of batch [draw, n].

        Raises:
            NotApplicable: For an argument that the program does not have, if every site was drawn,
                if new rows with latent sites of their own have observed ones, or if units of the
                same number may be new or not.
            DataError: If ``local`` is "same" and the number of units is another.
        """
        defaults = self.arguments(data)
        unknown = set(arguments) - set(defaults)
        if unknown:
            raise NotApplicable(
                f"arguments among {sorted(defaults)}",
                f"{sorted(unknown)}",
                "use the program's own names",
            )
        latents = self._latents(theta)
        if is_forecasting(self.function):
            return self._forecast(latents, {**data, **arguments}, seed)
        first = {name: value[0] for name, value in latents.items()}
        before = {**defaults, **data}
        with quietly(), torch.no_grad():
            with seeded(seed), Run(first) as fitted:
                self.of_all_rows(**data)
            observed = arguments_observed(fitted, data)
            full, redraw = self._completed({**defaults, **arguments}, data, fitted, observed)
            used = {
                name: value
                for name, value in full.items()
                if value is not None and not (redraw and name in observed)
            }
            others = [v for name, v in used.items() if not same_value(v, before[name])]
            arrays = frozenset(_rows(v) for v in others if not isinstance(v, SCALAR))
            longer = tuple(n for n, v in used.items() if _is_another_start(v, before[n]))
            same = Same(not others, arrays, local, longer)
            # values that the program computes are no sites to be given
            latents = {n: v for n, v in latents.items() if not _is_computed(fitted, n)}
            found = predictive_distributions(
                lambda: self.of_all_rows(**full),
                lambda: self.of_all_rows(**data),
                same,
                latents,
                seed,
                redraw,
            )
        if not found.distributions:
            raise _nothing_to_predict(fitted)
        given = [repr(n) for n in observed if arguments.get(n) is not None] if redraw else []
        if given:
            drawn = listed([repr(name) for name in found.distributions], "site")
            found.notes.append(
                f"of {', '.join(given)} the shape is used and the values are not: the {drawn} "
                f"{'is' if len(found.distributions) == 1 else 'are'} drawn"
            )
        return found

    def _forecast(self, latents: Values, arguments: Mapping[str, Any], seed: int) -> Predicted:
        """Return draws of y at the times of a forecasting model of Pyro that have no data.

        Without later times they are of the times that have data, drawn again.
        """
        # the module is there, as the model is of it
        from pyro.contrib.forecast.util import PrefixConditionMessenger, PrefixReplayMessenger

        model: Any = self.function
        y, covariates = arguments["data"], arguments["covariates"]
        later = covariates.shape[-2] > y.shape[-2]

        def one(values: Values) -> Tensor:
            if later:
                trace = Trace()
                for name, value in values.items():
                    trace.add_node(name, type="sample", name=name, value=value)
                known = PrefixReplayMessenger(trace)
                past = PrefixConditionMessenger(model._prefix_condition_data)
                with Run({}, params=values), known, past:
                    return model(y, covariates)
            with Run(values, params=values) as run:
                model(y, covariates)
            with Run(values, params=values) as again, Redraw():
                model(y, covariates)
            residual = again.sites["residual"]["value"] - run.sites["residual"]["value"]
            return y + residual.reshape(y.shape)

        size = len(next(iter(latents.values())))
        repeated = _repeated(latents, math.ceil(RUNS / size))
        with quietly(), torch.no_grad(), seeded(seed):
            draws = [
                one({name: value[i] for name, value in repeated.items()}).reshape(-1)
                for i in range(len(next(iter(repeated.values()))))
            ]
        return Predicted({}, {}, samples=torch.stack(draws))

    def _completed(
        self,
        full: dict[str, Any],
        data: Mapping[str, Any],
        fitted: Run,
        observed: Sequence[str],
    ) -> tuple[dict[str, Any], bool]:
        """Return arguments with which the program runs, and whether its data are drawn again.

        Args:
            full: The arguments of the prediction, None where one is left out.
            data: The arguments of the fit.
            fitted: A run of the fit.
            observed: The names of the arguments that the fit observes.

        Raises:
            DataError: If the program needs arguments that are not given, or its observed ones in
                another size than they had.
            NotApplicable: If it needs arguments and has nothing to predict with them.
        """
        values = {name: value for name, value in fitted.values.items() if name in fitted.sites}
        units = frozenset(_sites_of_rows(fitted) & set(values))
        try:
            run = self._run_at(values, full, units)
        except FAILURES as error:
            filled = {n: data[n] for n in observed if full.get(n) is None and n in data}
            absent = [n for n in self.required if full.get(n) is None and n not in filled]
            # a site of which the draws need the data has an assertion as the cause
            asserted = isinstance(error.__cause__ or error, AssertionError)
            read_none = asserted or "None" in str(error)
            if not filled or not read_none:
                if absent and not isinstance(error, PpgpError):
                    if not fitted.observed() and not fitted.latents().keys() - values.keys():
                        raise _nothing_to_predict(fitted) from error
                    raise _without(absent) from error
                raise
            try:
                self._run_at(values, full | filled, units)
            except FAILURES as second:
                if isinstance(second, PpgpError):
                    raise
                if absent:
                    raise _without(absent) from error
                names = ", ".join(map(repr, filled))
                raise DataError(
                    f"{names} with as many rows as the other arguments, which sets the sizes",
                    f"none, and those of the fit do not suit ({_first_line(second)})",
                    f"pass {next(iter(filled))}=, of which the shape is used and the values are "
                    "not",
                ) from error
            return full | filled, True
        known = fitted.latents().keys() | values.keys()
        predicted = [name for name in run.latents() if name not in known]
        again = [name for name in run.latents() if name in fitted.observed()]
        return full, not predicted and not again and bool(run.observed())

    def _run_at(self, values: Values, arguments: Mapping[str, Any], units: frozenset[str]) -> Run:
        """Run the program with sites at the values of the fit, and those of units drawn."""
        with seeded(0), Replay(values, units, strict=False) as run:
            self.of_all_rows(**arguments)
        return run

    def discrete_given_data(self, theta: Theta, data: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return one draw, given the data, of each discrete site that was summed out.

        Args:
            theta: {site or param: [draw, *event]}.
            data: The arguments of the fit.

        Returns:
            {discrete site: [draw, ...]}.
        """
        with quietly(), torch.no_grad():
            return inferred_discrete(lambda: self.of_all_rows(**data), dict(theta))

    def check_arguments(self, data: Mapping[str, Any]) -> None:
        """Check the arguments of a fit against the signature of the program.

        Raises:
            DataError: If the program does not have an argument, or if one that it requires is
                missing.
        """
        try:
            signature = self._signature()
        except (TypeError, ValueError):  # a callable without a signature
            return
        try:
            signature.bind(**data)
        except TypeError:
            wanted = ", ".join(signature.parameters) or "none"
            got = ", ".join(map(str, data)) or "none"
            raise DataError(
                f"the program's arguments: {wanted}", got, "use the program's own names"
            ) from None

    def runs(self, data: Mapping[str, Any]) -> bool:
        """Return whether the program runs with these arguments, every site drawn."""
        try:
            with silenced(), quietly(), torch.no_grad(), seeded(0), Run({}):
                self.of_all_rows(**data)
        except FAILURES:
            return False
        return True

    def _signature(self) -> inspect.Signature:
        """Return the signature of the program; a module has that of its ``forward``."""
        if isinstance(self.function, Module):
            return inspect.signature(self.function.forward)
        return inspect.signature(self.function)

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the arguments that have no default."""
        parameters = self._signature().parameters.values()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return tuple(p.name for p in parameters if p.default is p.empty and p.kind not in several)

    def arguments(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return {argument of the program: its default, or None}.

        If the program takes any keyword, the arguments in ``data`` are also included.
        """
        parameters = self._signature().parameters.values()
        arguments: dict[str, Any] = {}
        if any(p.kind == p.VAR_KEYWORD for p in parameters):
            arguments = dict.fromkeys(data)
        for p in parameters:
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                arguments[p.name] = None
                if p.default is not p.empty:
                    arguments[p.name] = p.default
        return arguments


def _in_plates(seen: Tensor, site: Mapping[str, Any], plates: Sequence[str]) -> Tensor:
    """Return for each element of plates whether anything of a site is seen, [*plates].

    Args:
        seen: For each number of the site, in the shape of its log density.
        site: Its record.
        plates: Some of its plates, outermost first.
    """
    frames = {f.dim: plate_of(f, site) for f in site["cond_indep_stack"] if f.vectorized}
    others = [axis for axis in range(-seen.ndim, 0) if frames.get(axis) not in plates]
    return seen.any(others) if others else seen


def _without_masked(per_draw: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of each site that no mask leaves out.

    Raises:
        NotApplicable: If a mask differs between draws.
    """
    unmasked = {}
    for name, value in per_draw.items():
        if name.endswith(SEEN):
            continue
        seen = per_draw[name + SEEN]
        if bool((seen != seen[0]).any()):
            raise NotApplicable(
                "a mask that is the same at every draw",
                f"one at {name!r} that is not",
                "fix which rows count",
            )
        if bool(seen[0].any()):
            unmasked[name] = value if bool(seen[0].all()) else value[:, seen[0]]
    return unmasked


class Replay(Run):
    """A ``Run`` at given values, which must have the shapes of the program's sites.

    Sites in ``own`` belong to the rows of the fit: here they are drawn, as those of new rows. So
    are, where it is not ``strict``, those of other shapes, which are in ``changed``. Those in
    ``past`` are of the steps of a loop that goes on: later steps draw theirs.
    """

    def __init__(
        self,
        values: Values,
        own: frozenset[str] = frozenset(),
        past: Values | None = None,
        *,
        strict: bool = True,
    ) -> None:
        self.past = past or {}
        given = {n: v for n, v in values.items() if n not in own and n not in self.past}
        super().__init__(given | self.past)
        self.shapes = {name: tuple(value.shape) for name, value in given.items()}
        self.strict = strict
        self.changed: set[str] = set()

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        given = name in self.shapes and not msg["is_observed"] and hasattr(msg["fn"], "event_shape")
        if given and _shape(msg) != self.shapes[name]:
            if self.strict:
                raise _of_another_shape(msg, self.shapes[name])
            self.changed.add(name)
            self.values = {other: v for other, v in self.values.items() if other != name}
        if name in self.past:
            msg["infer"] = {**(msg["infer"] or {}), "continues": True}
        super()._pyro_sample(msg)


def _shape(site: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(site["fn"].batch_shape + site["fn"].event_shape)


def _of_another_shape(site: Mapping[str, Any], before: tuple[int, ...]) -> DataError:
    """Return the error for a site whose draws have another shape than in a prediction."""
    event = len(site["fn"].event_shape)
    here = _shape(site)
    do = (
        "its numbers belong to columns or levels of the arguments: pass those of the fit, in the "
        "same order"
    )
    plates = ", ".join(sorted(repr(name) for name in _plates(site)))
    if plates and here[len(here) - event :] == before[len(before) - event :]:
        do = (
            f"write local='new' if all elements of plate {plates} are new: they are drawn from "
            "their prior; to add some to those of the fit, give them a site and a plate of their "
            "own in the program"
        )
    return DataError(
        f"{site['name']!r} of shape {list(before)}, as in the fit", f"shape {list(here)}", do
    )


def _is_another_start(value: Any, before: Any) -> bool:
    """Return whether an array has more rows than that of the fit, and not the same first ones."""
    if not (isinstance(value, Tensor) and isinstance(before, Tensor) and before.ndim):
        return False
    here = value[: len(before)] if value.ndim == before.ndim else value
    return _rows(value) > len(before) and not same_value(here, before)


def _rows(value: Any) -> int:
    """Return how many rows an argument has; -1: it is no array."""
    return next(iter(getattr(value, "shape", ())), -1)


def _is_computed(run: Run, name: str) -> bool:
    site = run.sites.get(name)
    return site is not None and site["type"] == "sample" and is_deterministic(site)


def is_forecasting(function: Any) -> bool:
    """Return whether a program is a ``ForecastingModel`` of ``pyro.contrib.forecast``."""
    module = sys.modules.get("pyro.contrib.forecast.forecaster")
    return module is not None and isinstance(function, module.ForecastingModel)


def _given_the_others(site: Mapping[str, Any]) -> Tensor | None:
    """Return log p(y_i given the other numbers) of one joint Gaussian outside plates; else None.

    Rasmussen & Williams (2006), equation 5.12. The site of a Gaussian process is one such event,
    whose numbers are rows.
    """
    law, value = site["fn"], site["value"]
    if law.batch_shape or site["cond_indep_stack"] or site["mask"] is not None:
        return None
    while isinstance(law, Independent):
        law = law.base_dist
    if not isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        return None
    apart = (value - law.loc)[..., None]
    if isinstance(law, LowRankMultivariateNormal):  # Woodbury's identity, linear in the rows
        factor = law.cov_factor / law.cov_diag[..., None]
        root = torch.linalg.solve_triangular(law._capacitance_tril, factor.mT, upper=False)
        precision = 1 / law.cov_diag - root.square().sum(-2)
        solved = apart / law.cov_diag[..., None] - root.mT @ (root @ apart)
    else:
        precision = torch.cholesky_inverse(law.scale_tril).diagonal(dim1=-2, dim2=-1)
        solved = torch.cholesky_solve(apart, law.scale_tril)
    # y_i given the others is normal, this far from its mean and with this precision
    distance = solved[..., 0] / precision
    return 0.5 * (precision.log() - precision * distance.square() - LOG_2PI)


def _of_each_time(site: Mapping[str, Any]) -> Tensor:
    """Return the log density of each time, [..., T], of a residual [..., T, D]; or of all times."""
    law = site["fn"]
    if not isinstance(law, Independent):
        return torch.as_tensor(law.log_prob(site["value"]))
    each = law.base_dist.log_prob(site["value"])
    return each.sum(-1) if law.reinterpreted_batch_ndims == 2 else each


def _nothing_to_predict(fitted: Run) -> NotApplicable:
    """Return the error for a program of which the fit has drawn every site."""
    got, do = "none", "observe y by pyro.sample(..., obs=y)"
    factors = [repr(name) for name, s in fitted.samples() if is_factor(s)]
    if factors and not fitted.observed():
        got = f"none beside pyro.factor ({', '.join(factors)}), which has no distribution of data"
        do = f"{do}, with a distribution of your own if no other one fits"
    return NotApplicable("a site of the program that was not drawn, to be predicted", got, do)


def _without(absent: Sequence[str]) -> DataError:
    """Return the error for a program that does not run without arguments that it needs."""
    return DataError(
        "the program's own arguments",
        f"none as {', '.join(map(repr, absent))}",
        f"call predict({', '.join(f'{n}=...' for n in absent)})",
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def arguments_observed(fitted: Run, data: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that a run observes, as a whole or in part.

    Those are arguments whose memory an observed value shares, or else, as with the steps of
    ``ppgp.scan``, whose numbers it has. Where there is none, all arguments that are no single
    numbers or texts may have been observed, changed by the program.
    """
    values = [site["value"] for site in fitted.observed().values()]
    places = {
        value.untyped_storage().data_ptr()
        for value in values
        if isinstance(value, Tensor) and value.layout is torch.strided
    }
    shared = [
        name
        for name, value in data.items()
        if any(one.untyped_storage().data_ptr() in places for one in _tensors_in(value))
    ]
    if not shared:
        shared = [n for n, x in data.items() if any(same_value(x, value) for value in values)]
    if shared or not fitted.observed():
        return shared
    return [n for n, v in data.items() if v is not None and not isinstance(v, SCALAR)]


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the dense tensors in an argument, also those in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(one)


def predictive_distributions(
    program: Call, fitted: Call, same: Same, draws: Values, seed: int, redraw: bool = False
) -> Predicted:
    """Return the predictive distribution of every site that was not drawn.

    Args:
        program: Runs the program with the arguments of the prediction.
        fitted: Runs it with the arguments of the fit.
        same: What both have in common: with the same rows, the sites of rows are those of the fit.
        draws: {site: [draw, *event]}.
        seed: Seed of the random numbers.
        redraw: Whether observed sites are drawn again.
    """
    first = {name: value[0] for name, value in draws.items()}
    with seeded(seed), Run(first) as run:
        fitted()
    of_rows = _sites_of_rows(run)
    again = Redraw if redraw else nullcontext
    units = frozenset(of_rows & set(draws))
    with seeded(seed), Replay(first, units, strict=False) as here, again():
        program()
    if same.local != "new":
        _check_ends_of_loops(run, here)
    past = {} if same.local == "new" else _past_of_longer_loops(run, here)
    if past and same.longer and same.local is None:
        names = listed(list(map(repr, same.longer)), "argument")
        raise DataError(
            "arguments that begin with the rows of the fit, where the steps of ppgp.scan go on",
            f"other first rows of the {names}",
            "write local='same' if the steps go on from those of the fit, or local='new' for "
            "another series from its start",
        )
    if past:
        units = units.difference(past)
        with seeded(seed), Replay(first, units, past, strict=False) as here, again():
            program()
    _check_masks(here)
    beside = _beside_vectors(run)
    own = _sites_of_new_units(here, first, units, beside, same)
    as_fitted = same.local == "same" or (same.arguments and same.local is None)
    left_out = set() if as_fitted else of_rows - set(draws)
    if same.local is None:
        left_out -= {n for n in beside if not _may_be_others(run.sites[n], True, same)}
    left_out -= past.keys() | {name + UNOBSERVED for name in past if run.imputes(name)}
    known = set(draws) | left_out | past.keys()
    left_out |= _discrete_of_others(run, here, known, same.local)
    inferred = _inferred_sites(run, set(draws), left_out)
    if (left_out or own) and not redraw:
        with seeded(seed):
            _check_nothing_known(program, first, own, left_out | own, past)
    repeats = max(1, math.ceil(RUNS / len(next(iter(draws.values())))))
    kinds: dict[str, Kind] = {}

    def one(values: Values) -> Values:
        before = {name: values.get(name, value) for name, value in past.items()}
        before |= _with_imputed(run, values, before)
        return _parameters(program, values, set(inferred), own, kinds, again, before)

    with seeded(seed):
        if inferred:
            draws = _repeated(_thinned(draws, RUNS), repeats)
            draws = draws | over_draws(lambda v: _infer_discrete(fitted, run, v, inferred), draws)
        elif repeats > 1 and _draws_something(one, first, seed):
            draws = _repeated(draws, repeats)
        stacked = over_draws(one, draws)
    distributions = {name: _over_all_draws(name, kind, stacked) for name, kind in kinds.items()}
    return Predicted(distributions, {k[1:]: v for k, v in stacked.items() if k[0] == VALUE})


def _past_of_longer_loops(run: Run, here: Run) -> Values:
    """Return the values in the fit of the sites of ``ppgp.scan`` whose loop has more steps here.

    The first steps keep them, those of the data too, and the later steps go on from there.

    Args:
        run: A run of the fit.
        here: A run of the prediction.
    """
    found = {}
    latents = here.latents()
    for name, s in run.samples():
        before = (s["infer"] or {}).get("of_steps", 0)
        if not before or name not in latents or is_factor(s):
            continue
        if s["infer"].get("from_the_end") or (is_deterministic(s) and not run.imputes(name)):
            continue
        if (latents[name]["infer"] or {}).get("of_steps", 0) > before:
            found[name] = torch.as_tensor(s["value"]).detach()
    return found


def _check_ends_of_loops(run: Run, here: Run) -> None:
    """Refuse more steps than in the fit of ``ppgp.scan`` that begins at the last step.

    Args:
        run: A run of the fit.
        here: A run of the prediction.

    Raises:
        DataError: Naming a site of the steps.
    """
    latents = here.latents()
    for name in latents.keys() & run.sites.keys():
        before, now = (r.sites[name]["infer"] or {} for r in (run, here))
        steps = before.get("of_steps", 0), now.get("of_steps", 0)
        if before.get("from_the_end") and 0 < steps[0] < steps[1]:
            raise DataError(
                f"as many steps of ppgp.scan as in the fit, {steps[0]}",
                f"{steps[1]} at {name!r}, of a loop from the end",
                "predict the steps of the fit, or (without reverse=True) more, which go on from "
                "its last one, or write local='new' for another series",
            )


def _with_imputed(run: Run, values: Values, past: Values) -> Values:
    """Return the values of sites with ``obs_mask`` at a draw, where they are among others.

    Args:
        run: A run of the fit.
        values: The drawn and inferred values.
        past: The sites that are wanted, and others.
    """
    found = {}
    for name, value in past.items():
        if run.imputes(name) and name + UNOBSERVED in values:
            site = run.sites[name + OBSERVED]
            event = len(site["fn"].event_shape)
            seen = site["mask"].reshape(*site["mask"].shape, *(1,) * event)
            imputed = values[name + UNOBSERVED].reshape(value.shape)
            found[name] = torch.where(seen.expand(value.shape), site["value"], imputed)
    return found


def _sites_of_new_units(
    here: Replay, first: Values, units: frozenset[str], beside: set[str], same: Same
) -> frozenset[str]:
    """Return the sites of units that the fit does not have.

    Args:
        here: A run of the prediction, in which the sites of units are drawn.
        first: The values of the fit, {site: [*event]}.
        units: The sites of units.
        beside: The sites of units that have several numbers each.
        same: What prediction and fit have in common.

    Raises:
        NotApplicable: If units of the same number may be new or not.
        DataError: If the units of the fit are wanted and their number is another.
    """
    latents = here.latents()
    there = [name for name in units if name in latents]
    new = [name for name in there if latents[name]["value"].shape != first[name].shape]
    if same.local == "new":
        _check_shapes(here, first, here.changed - _of_plates(here, first))
        return units | here.changed
    new += sorted(here.changed & _of_parts_of_rows(here))
    steps = [name for name in new if (latents[name]["infer"] or {}).get("of_steps")]
    if steps:
        name = steps[0]
        shapes = [list(value.shape) for value in (first[name], latents[name]["value"])]
        before, now = (str(shape[0]) for shape in shapes)
        if before == now:  # of a loop inside a loop
            before, now = (f"in the shape {shape}" for shape in shapes)
        raise DataError(
            f"as many steps of ppgp.scan as in the fit, {before}",
            f"{now} at {name!r}",
            "predict the steps of the fit, or (without reverse=True) more, which go on from its "
            "last one, or write local='new' for another series from its start",
        )
    if same.local == "same" and new:
        raise _other_units(new[0], first[new[0]].shape, latents[new[0]]["value"].shape)
    _check_shapes(here, first, here.changed - set(new))
    kept = [name for name in there if name not in new]
    doubtful = [name for name in kept if _may_be_others(latents[name], name in beside, same)]
    if same.local is None and doubtful:
        names = ", ".join(map(repr, sorted(doubtful)))
        raise NotApplicable(
            "local='same' or local='new' with other arguments for as many units as in the fit",
            "neither",
            f"local='same' keeps the fitted {names} of each unit, row by row; local='new' draws "
            "them from their prior",
        )
    return frozenset(new)


def _other_units(name: str, before: torch.Size, here: torch.Size) -> DataError:
    return DataError(
        f"as many units as in the fit for local='same', {list(before)} at {name!r}",
        f"{list(here)}",
        "predict the units of the fit, or write local='new'",
    )


def _may_be_others(site: Mapping[str, Any], of_vectors: bool, same: Same) -> bool:
    """Return whether the units of a site may be others, though they are as many as in the fit.

    So it is where an argument changes that is an array. Units with several numbers each may be
    groups: an argument then belongs to them if it has a row for each, or is no array.
    """
    if not of_vectors:
        return bool(same.others)
    return bool(same.others & {-1, *site["fn"].batch_shape})


def _check_shapes(here: Replay, first: Values, wrong: set[str]) -> None:
    """Raise DataError for sites that have another shape than in the fit."""
    for name in sorted(wrong):
        raise _of_another_shape(here.sites[name], tuple(first[name].shape))


def _of_plates(here: Replay, first: Values) -> set[str]:
    """Return the sites of which the plates have other sizes than in the fit, not the event."""
    found = set()
    for name in here.changed:
        site, before = here.sites[name], first[name].shape
        event = len(site["fn"].event_shape)
        if _plates(site) and before[len(before) - event :] == site["fn"].event_shape:
            found.add(name)
    return found


def _of_parts_of_rows(run: Run) -> set[str]:
    """Return the latent sites in some of the plates of data, as sequences of steps."""
    of_data = [_plates(s) for _, s in run.samples() if is_data(s)]
    latents = run.latents().items()
    return {
        name
        for name, s in latents
        if _plates(s) and any(_plates(s) <= plates for plates in of_data)
    }


def _discrete_of_others(run: Run, here: Run, known: set[str], local: str | None) -> set[str]:
    """Return the discrete sites whose values of the fit are none of the prediction.

    They are those of another number of units, and with ``local="new"`` those that have lost values.

    Args:
        run: A run of the fit.
        here: A run of the prediction.
        known: Sites that need no check.
        local: "same" or "new", what the caller says of the units; None: nothing.

    Raises:
        DataError: Where that cannot be.
    """
    latents, others = here.latents(), set()
    of_units = _of_parts_of_rows(run) | _of_parts_of_rows(here)
    for name, site in run.latents().items():
        if name in known or not is_discrete(site) or name not in latents:
            continue
        new = latents[name]
        if new["fn"].batch_shape != site["fn"].batch_shape:
            if local == "same":
                raise _other_units(name, site["fn"].batch_shape, new["fn"].batch_shape)
            if local is None and name not in of_units:
                raise _of_another_shape(new, _shape(site))
            others.add(name)
            continue
        before, after = _classes(site), _classes(new)
        if after < before:
            if local != "new":
                raise DataError(
                    f"as many values of {name!r} as in the fit, {before}",
                    f"{after}",
                    "pass arguments of the sizes of the fit, or write local='new', which draws "
                    "it from its prior",
                )
            others.add(name)
    return others


def _classes(site: Mapping[str, Any]) -> int:
    law = _plain(site["fn"])
    return law.probs.shape[-1] if isinstance(law, Categorical) else 0


def _check_masks(run: Run) -> None:
    """Raise DataError for a mask that does not fit the plates of its site.

    A prediction computes no density, in which torch would refuse it.
    """
    for name, site in run.samples():
        mask, law = site["mask"], site["fn"]
        if not isinstance(mask, Tensor) or not hasattr(law, "batch_shape"):
            continue
        try:
            broadcast_shapes(mask.shape, law.batch_shape)
        except RuntimeError:
            raise DataError(
                f"a mask of {name!r} with its shape, {list(law.batch_shape)}",
                f"{list(mask.shape)}",
                "pass the argument that makes the mask with as many rows as the others",
            ) from None


def inferred_discrete(fitted: Call, draws: Values) -> Values:
    """Return draws of the discrete sites that were summed out, given the data: {site: [draw, ...]}.

    Args:
        fitted: Runs the program with the arguments of the fit.
        draws: {site or param: [draw, *event]}.
    """
    with Run({name: value[0] for name, value in draws.items()}) as run:
        fitted()
    wanted = _inferred_sites(run, set(draws), set())
    if not wanted:
        return {}
    return over_draws(lambda values: _infer_discrete(fitted, run, values, wanted), draws)


def _repeated(draws: Values, times: int) -> Values:
    return {name: value.repeat_interleave(times, 0) for name, value in draws.items()}


def _thinned(draws: Values, most: int) -> Values:
    """Return at most this many draws, equally spaced."""
    size = len(next(iter(draws.values())))
    index = torch.linspace(0, size - 1, min(most, size)).long()
    return {name: value[index] for name, value in draws.items()}


def _inferred_sites(run: Run, drawn: set[str], of_rows: set[str]) -> list[str]:
    """Return the discrete sites that were summed out and are inferred given the data.

    Those of rows that the prediction does not have are left out.
    """
    left_out = drawn | of_rows
    return [name for name, s in run.latents().items() if is_discrete(s) and name not in left_out]


def _sites_of_rows(run: Run) -> set[str]:
    """Return the latent sites that each row has for itself: those in just the plates of data."""
    of_data = {_plates(s) for _, s in run.samples() if is_data(s)}
    latents = run.latents().items()
    return {name for name, s in latents if _plates(s) and _plates(s) in of_data}


def _beside_vectors(run: Run) -> set[str]:
    """Return the latent sites in just the plates of data that have several numbers each."""
    of_data = {_plates(s) for _, s in run.samples() if is_data(s) and s["fn"].event_shape}
    return {name for name, s in run.latents().items() if _plates(s) in of_data}


def _plates(site: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(plate_of(frame, site) for frame in site["cond_indep_stack"])


def _check_nothing_known(
    program: Call, first: Values, own: frozenset[str], rows: set[str], past: Values
) -> None:
    """Refuse new rows with data on them beside latent sites of their own.

    Raises:
        NotApplicable: Those sites would be drawn from their prior, not given these data.
    """
    with Replay(first, own, past) as run:
        program()
    latents = {name: _plates(s) for name, s in run.latents().items() if name in rows}
    for name, s in run.samples():
        if not is_data(s):
            continue
        partner = name.removesuffix(OBSERVED) + UNOBSERVED
        for latent, plates in latents.items():
            # the numbers that obs_mask leaves out are told by nothing that it observes
            imputed = latent.endswith(UNOBSERVED)
            told = bool(_plates(s) & plates) if imputed else _plates(s) == plates
            if told and latent != partner:
                raise NotApplicable(
                    "new rows about which nothing is observed, or the rows of the fit",
                    f"{name!r} observed at new rows that have {latent!r} of their own",
                    "fit with these rows as well, and mask what is to be predicted",
                )


def _infer_discrete(fitted: Call, run: Run, values: Values, wanted: list[str]) -> Values:
    """Draw the discrete sites given the data and one draw of the other sites.

    ``run`` is a run of the fitted program, which shows its sites and plates.
    """
    with Run(values) as inner:
        found = enumerated(inner, fitted, plate_nesting(run))
    places = drawn(found)
    return {name: found.support[name][places[name]] for name in wanted}


def _draws_something(one: Callable[[Values], Values], first: Values, seed: int) -> bool:
    """Return whether the distributions depend on random numbers.

    This is so if one site that was not drawn depends on another.
    """
    results = []
    for own in (seed, seed + 1):
        with seeded(own):
            results.append(one(first))
    return any(not torch.equal(value, results[1][name]) for name, value in results[0].items())


def _parameters(
    program: Call,
    values: Values,
    inferred: set[str],
    own: frozenset[str],
    kinds: dict[str, Kind],
    again: Callable[[], Any],
    past: Values,
) -> Values:
    """Run the program once, and return the parameters of each distribution of the prediction.

    Args:
        program: Runs the program.
        values: The drawn and inferred values {site: [*event]}.
        inferred: Names of the discrete sites that were inferred.
        own: Names of drawn sites of the rows of the fit, which are no rows of the prediction.
        kinds: Receives {site: its distribution in this run, and its shapes}.
        again: Makes a handler that draws observed sites again, or none.
        past: The values of sites of a loop that goes on, in the steps of the fit.

    Returns:
        {site, NUL, parameter: tensor}, and {``VALUE``, deterministic site: its value}.
    """
    with Replay(values, own, past) as run, again():
        program()
    parameters = {
        VALUE + name: torch.as_tensor(site["value"])
        for name, site in run.samples()
        if is_deterministic(site)
    }
    for name, site in run.latents().items():
        if name in values and name not in inferred:
            continue
        distribution = _certain(site) if name in values else _plain(site["fn"])
        if distribution is None:
            continue
        by_draws = kinds[name].law is None if name in kinds else not _is_rebuilt(distribution)
        if by_draws:
            tensors = {DRAWN: distribution.sample()}
            batch = torch.Size(site["fn"].batch_shape)
            kinds[name] = Kind(None, batch, tensors[DRAWN].shape[len(batch) :])
        else:
            tensors = univariate.parameters(distribution)
            shapes = site["fn"].batch_shape, site["fn"].event_shape
            kinds[name] = Kind(distribution, *map(torch.Size, shapes))
        parameters |= {f"{name}\0{k}": v for k, v in tensors.items()}
    return parameters


def _is_rebuilt(distribution: Distribution) -> bool:
    """Return whether a distribution can be made again from its tensors."""
    try:
        tensors = univariate.parameters(distribution)
        if tensors:
            univariate.rebuilt(distribution, tensors)
    except (NotApplicable, RuntimeError):  # as DiscreteHMM, whose tensors have another batch
        return False
    return bool(tensors)


def _certain(site: Mapping[str, Any]) -> Distribution | None:
    """Return a distribution with all its mass at the inferred value of a discrete site.

    None for a distribution that is neither Bernoulli nor Categorical.
    """
    distribution, value = _plain(site["fn"]), site["value"]
    if isinstance(distribution, Bernoulli):
        return Bernoulli(probs=value)
    if isinstance(distribution, Categorical):
        classes = distribution.probs.shape[-1]
        probs = torch.nn.functional.one_hot(value.long(), classes).to(distribution.probs)
        return Categorical(probs=probs)
    return None


def _plain(distribution: Any) -> Any:
    """Return a distribution without the wrappers that only reshape or mask it.

    Of a mixture it is one component, drawn by the weights.
    """
    while isinstance(distribution, Independent | MaskedDistribution | ExpandedDistribution):
        inner = distribution.base_dist
        if isinstance(distribution, ExpandedDistribution):
            inner = inner.expand(distribution.batch_shape)
        distribution = inner
    if isinstance(distribution, Categorical) and "probs" not in distribution.arg_constraints:
        return Categorical(probs=distribution.probs)  # of another parameter, as OrderedLogistic
    if isinstance(distribution, MixtureSameFamily) and not distribution.event_shape:
        which = distribution.mixture_distribution.sample()
        component = distribution.component_distribution
        parameters = univariate.parameters(component)
        chosen = {k: _taken(v, which) for k, v in parameters.items()}
        return univariate.rebuilt(component, chosen)
    return distribution


def _taken(parameter: Tensor, which: Tensor) -> Tensor:
    """Return [*batch, *event] from a parameter [*batch, K, *event], at ``which`` [*batch]."""
    axis = which.ndim
    index = which.reshape(*which.shape, *(1,) * (parameter.ndim - axis))
    return torch.take_along_dim(parameter, index, axis).squeeze(axis)


def _over_all_draws(name: str, kind: Kind, stacked: Values) -> Distribution | Vectors:
    """Return the distribution of a site over all draws.

    Plates are concatenated, and so is the one axis of a site that is one event. Rows of several
    numbers keep their shape.
    """
    values = {k.split("\0")[1]: v for k, v in stacked.items() if k.split("\0")[0] == name}
    law, batch, event = kind.law, kind.batch, kind.event
    if event and len(batch) + len(event) > 1:
        if law is None:
            return Vectors(None, batch, event, values[DRAWN])
        return Vectors(univariate.rebuilt(law, values), batch, event)
    if law is None:
        return Vectors(None, batch, event, values[DRAWN])
    axes = len(law.batch_shape)
    rows = () if law.event_shape else (math.prod(law.batch_shape),)
    flat = {k: v.reshape(len(v), *rows, *v.shape[1 + axes :]) for k, v in values.items()}
    return univariate.rebuilt(law, flat)
