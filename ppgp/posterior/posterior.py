"""Posterior: the result of every inference method, one concrete class for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice, zip_longest
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

from ..capabilities import (
    BoostedSum,
    Candidates,
    Components,
    ComponentsByRole,
    GeneralisedLinear,
    GroupEffects,
    IntegratedCoefficients,
    LatentFunction,
    LeaveOneOut,
    LinearCoefficients,
    PosteriorFunctions,
    ProbitPrediction,
    Updates,
    require,
    supports,
)
from ..data.argument_mistakes import explained
from ..data.arguments import (
    Arguments,
    as_training_data,
    in_usable_dtypes,
    is_frame,
    with_tensors,
)
from ..data.categories import check_codes
from ..data.dataset import Dataset, GivenScaler, IdentityScaler, of_all_ranks
from ..data.entries.arrays import check_inputs
from ..data.new_rows import checked_roles, read
from ..data.roles import ROLES, refuse_role
from ..data.stream.rows_in_chunks import rows_of
from ..data.targets import check_targets
from ..data.training_data import same_value
from ..density.evidence_at_mode import MOST, log_evidence_near
from ..density.handlers import is_data
from ..density.target import Target
from ..display import tables as html
from ..display.user_warnings import warn
from ..distributions.univariate import is_classes, parameters, rebuilt
from ..errors import (
    DataError,
    DataWarning,
    NotApplicable,
    NotKnown,
    SettingError,
    UnknownName,
    an,
    counted,
)
from ..kernels import Kernel
from ..kernels.wrappers import in_words
from ..provenance.provenance import of_table
from ..runtime.batching import in_chunks
from ..runtime.levels import exact_level
from ..runtime.process_locks import one_at_a_time
from ..runtime.result_cache import ResultCache
from ..runtime.seeding import standard_uniform
from ..runtime.threads import PREDICTIONS_PAY_FROM, limited
from ..runtime.whole_numbers import check_seed
from . import arviz as arviz_bridge
from . import coefficient_table
from .axes import Coords, axes_of, columns_by_name, named_scalars, renamed, scalar_names
from .discrete import DiscreteSites, discrete_sites
from .files import storage
from .maximum_likelihood import DispersionCheck, Mode
from .predicting_to_files import ROWS_AT_ONCE, checked_path, predict_to_file, refuse_in_team
from .prediction import Origin, Prediction, digest_of, one_of_each_draw
from .program_rows import ProgramRows, check_numbers, columns
from .simulator import Simulator
from .summary import cut_short, table_of
from .units_of_draws import UNITS, draws_in, scale_of
from .vector_prediction import (
    SitePredictions,
    VectorPrediction,
    loops_of_steps,
    prediction_of_site,
)

__all__ = ["Posterior"]

SHOWN = 20  # scalars that a notebook shows
OUT_OF_FOLD = "out of fold"
INSTEAD = (
    "take posterior.out_of_fold() of a fit with folds: metrics and log_prob of predictions by "
    "members that have not seen the row"
)
AT_A_MODE = 1000  # draws of the coefficients of groups given one draw of the sites
NEW_ROW = "new_row"  # the axis of the group predictions
QUANTILES = (0.05, 0.5, 0.95)
KINDS = ("deviance", "pearson", "quantile")  # of residuals
#: statistics of the density of the rows of the fit
OF_THE_ROWS = (
    *("log_density", "log_evidence", "elbo", "lp", "log_q"),
    *("log_likelihood", "observations"),
)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of every uncertain site, with the model and the data that they are conditional on.

    Attributes:
        model: The prepared recipe (its settings that depend on the data filled in), or a Program.
        data: The training data on the scale of the model: a Dataset, or a program's arguments.
        draws: ``{site: [chain, draw, *event]}`` on the natural (constrained) scale. Empty only if
            no site is uncertain; MAP gives one draw.
        how: The inference method that made it.
        params: ``{name: tensor}``, the values that were optimised rather than inferred.
        stats: Statistics that the inference recorded. Entries of shape [chain, draw] become
            ArviZ's sample_stats. ``interrupted`` says whether Ctrl-C ended the search early;
            ``rows`` counts all rows of a stream; in a team ``processes`` counts its processes, and
            ``bytes_reduced`` the bytes that this rank sent into sums over them during the fit.
        seconds: Wall time in seconds, compilation included.
        warnings: Sentences on what went wrong in an inference, which still returns.
        scaler: The standardisation that turned the user's data into ``data``, which is the scale
            of the draws. If the data were left as they are (None), its ``is_identity`` is True.
        recipe: The model as it was given to ``fit``, before it was prepared for these rows. A fit
            to other rows starts from it. None for a program, and where it is not known.
        also_seen: Other tables (or arguments of a program) that influenced the fit, by ``init=``
            or by numbers or networks of the recipe. Their rows count as training rows too.
        kept: Cache shared by predictions, such as the factor of the covariance of the training
            rows. It is no part of a saved file.

    Raises:
        NotApplicable: If a method needs what the model or its draws do not have, such as ``loo``
            of a model without leave-one-out predictions in closed form. Every method lists its
            own errors.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 12, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.01 * torch.cos(20 * x))
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> posterior
        <Posterior of LinearRegression by Exact: 1 x 1000 draws on the standardised scale, ... s>
        >>> {site: list(draws.shape) for site, draws in posterior.draws.items()}
        {'noise': [1, 1000], 'weight': [1, 1000, 1], 'bias': [1, 1000]}

        Draws and predictions in the units of the data:

        >>> slope = posterior.draws_in("data")["weight"]
        >>> round(slope.mean().item(), 1)
        2.0
        >>> posterior.predict([[0.5], [1.0]]).mean.round(decimals=1)
        tensor([4., 5.], dtype=torch.float64)
        >>> posterior.summary("data").index.tolist()
        ['noise', 'weight[0]', 'bias']
        >>> posterior.log_likelihood().shape
        torch.Size([1, 1000, 12])
    """

    # Every init field is saved. A new one needs a default, so that older files open, and a line in
    # ``_facts`` of ``loading.py``.
    model: Any
    data: Any
    draws: dict[str, Tensor]
    how: Any
    params: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    scaler: GivenScaler = None  # type: ignore[assignment] # __post_init__ replaces it
    recipe: Any = None
    also_seen: tuple[Any, ...] = ()
    kept: ResultCache = field(default_factory=ResultCache, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.data, Mapping):
            object.__setattr__(self, "data", as_training_data(self.data))
        object.__setattr__(self, "also_seen", tuple(map(as_training_data, self.also_seen)))
        object.__setattr__(self, "scaler", self.scaler or IdentityScaler.for_data(self.data))

    @property
    def chains(self) -> int:
        """The number of chains."""
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws per chain); (1, 1) where all hyperparameters are fixed numbers."""
        if not self.draws:
            return 1, 1
        chains, draws = next(iter(self.draws.values())).shape[:2]
        return chains, draws

    @property
    def certain(self) -> bool:
        """Whether all hyperparameters are fixed numbers, so that there was nothing to infer."""
        return not self.draws and self.stats.get("parameters") == 0

    @property
    def mcmc(self) -> bool:
        """Whether the draws come from Markov chains, so that R-hat and ESS have a meaning."""
        return bool(self.draws) and bool(getattr(self.how, "chains", 0))

    @property
    def circular(self) -> tuple[str, ...]:
        """The sites that are angles."""
        return tuple(self.stats.get("circular", ()))

    @property
    def theta(self) -> dict[str, Tensor]:
        """``{site: [chain * draw, *event]}`` and the params, in the form that models take."""
        return {**self.params, **{k: v.flatten(0, 1) for k, v in self.draws.items()}}

    def __repr__(self) -> str:
        model, how = type(self.model).__name__, type(self.how).__name__
        if isinstance(self.recipe, Candidates) and isinstance(self.recipe.covariance, Kernel):
            model += f"({in_words(self.recipe.covariance)})"
        text = f"<Posterior of {model} by {how}: {' x '.join(map(str, self.shape))} draws"
        if not self.scaler.is_identity:
            text += " on the standardised scale"
        text += f", {self.seconds:.1f} s"
        if cut_short(self.stats):
            text += ", interrupted"
        if self.warnings:
            text += f", {counted(len(self.warnings), 'warning')}"
        return text + ">"

    def _repr_html_(self) -> str:
        """Return what notebooks show: model, method, scalars and warnings."""
        model, how = type(self.model).__name__, type(self.how).__name__
        chains, draws = self.shape
        count = f"{draws:,}"
        if self.mcmc:
            count = f"{chains:,} chains of {draws:,}"
        facts = {
            "model": repr(self.model),
            "method": repr(self.how),
            "data": repr(self.data) if self.data.is_table else "",
            "draws": count,
            "optimised": ", ".join(self.params),
            "seconds": f"{self.seconds:.1f}",
            "interrupted": "yes" if cut_short(self.stats) else "",
        }
        parts = [html.facts(facts), self._summary_html()]
        parts.append(html.items("Warnings", self.warnings))
        return html.page("Posterior", f"{model} by {how}", *parts)

    def _summary_html(self) -> str:
        """Return the summary of the first scalars, in the units of the data."""
        draws, left = draws_in("data", self.draws, self.model, self.scaler)
        names = scalar_names(draws, self.model, self.data)
        total = sum(map(len, names.values()))
        if not total:
            return ""
        sites = {name: site for site, of_site in names.items() for name in of_site}
        first = islice(named_scalars(draws, names), SHOWN)
        shown = {name: torch.from_numpy(x.copy()) for name, x in first}
        table = table_of(
            shown,
            {name: [name] for name in shown},
            [name for name in shown if sites[name] in left],
            scale_of("data", self.scaler),
            self.chains if self.mcmc else 0,
            [name for name in shown if sites[name] in self.circular],
        )
        if self.shape == (1, 1):  # a point has no spread
            table = table[["mean"]].rename(columns={"mean": "value"})
        return html.frame(table, SHOWN) + html.more(total - len(shown), "scalar")

    def probit(self, X: Any) -> Prediction:
        """Return the prediction of a binary y by the probit approximation.

        Per row, the logit is approximated by one Gaussian over the draws, so that sigmoids need not
        be averaged.

        Args:
            X: The new rows [m, d], as in ``predict``.

        Returns:
            A Prediction of m rows.

        Raises:
            NotApplicable: If the model is not a logistic regression.
        """
        model = require(self.model, ProbitPrediction)
        rows = model_inputs(self, X)
        with evaluated_at(self, len(rows)):
            found = model.probit(self.theta, rows)
        return in_data_units(self, found, rows, "probit")

    def predict(
        self,
        X: Any = None,
        *,
        joint: Any = None,
        seed: int | None = None,
        local: str | None = None,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        **others: Any,
    ) -> Any:
        """Return the predictive distribution of y at the rows of X, in the units of the data.

        X is an array, a DataFrame or a Dataset. A DataFrame and a Dataset are read by the names
        of their columns if the fit has names (one-hot columns included): the columns may come in
        any order, and the target column may be among them; it is ignored.

        The distribution includes the noise that the model has estimated. Known noise of the new
        rows is included only where it is given:

        - ``noise_sd=``, a number or [m], in the units of y;
        - the noise of a Dataset;
        - the column of a DataFrame with the name that it has in the fit.

        After a fit with known noise alone (``GP(noise=0)``), the distribution without noise is that
        of f.

        A fit with an offset, trials or groups needs those of the new rows, in the same three ways:
        by name (``offset=``, ``trials=``, ``groups={name: labels}``), or as columns of a Dataset or
        of a DataFrame.

        **Programs.** ``predict(**arguments)`` runs a user's own program again at each draw, with
        these arguments, and returns the distribution of every site that has no draws and no data.

        - An argument that is left out has its default, or is None. None as data means: not
          observed.
        - Some programs need their data all the same, for example for their number of rows. Their
          data are then drawn again: ``predict()`` has the rows of the fit, and of
          ``predict(data=...)`` the shape is used and the values are not, which a warning says.
        - The result is one Prediction. It is ``{site: Prediction}`` if several sites have no data.
          The steps ``y_0, y_1, ...`` of a loop are in it one by one, and together as the rows of
          ``"y"``.
        - If the rows have several numbers each, such as several outputs, shares or a vector, it is
          a ``VectorPrediction``, whose statistics have the shape of y.
        - The elements of nested plates are rows one after another, those of the last plate
          adjacent.
        - ``prediction.deterministic`` has the values of ``pyro.deterministic`` sites. The numbers
          that ``obs_mask=`` leaves out have draws: they are in ``posterior.draws``. Those of
          discrete sites have probabilities, by ``posterior.discrete``.
        - Sites that are drawn for the prediction use ``seed``, 0 by default. A short posterior has
          several of their draws for each of its own.

        A latent site in the plates of y has a value for each unit, such as a player, a group or a
        row.

        - ``local="same"`` keeps the values of the fit: unit i is unit i of the fit.
        - ``local="new"`` draws them from their prior given the other sites. So it does for sites of
          other plates whose number of elements has changed.
        - More steps of ``ppgp.scan`` than in the fit are a forecast: the first ones keep the values
          of their latent sites, what the loop carries from them depends on the data of the fit, and
          those after them are drawn one after another. Other arguments begin with the rows of the
          fit.
        - Without the word, the units are those of the fit if the arguments are, and new ones if
          their number is another. With as many units and other arrays among the arguments both can
          be meant, and the word has to be given. It never has to be for discrete sites, which the
          fit has summed out: they are drawn given the data of the fit if the arguments are the
          same, and else from their prior.

        Args:
            X: The new rows [m, d].
            joint: Whether to return one joint distribution over the rows.
            seed: The seed of the draws that a program's prediction needs.
            local: "same" or "new": whether the units of a program's prediction are those of the
                fit.
            arguments: The arguments of a program by name, also those with the name of an argument
                of this method.
            **others: ``noise_sd``, ``offset``, ``trials`` and ``groups`` for a model on a table;
                the arguments of a program.

        Returns:
            A Prediction of m rows; of a program as above.

        Raises:
            DataError: If X has NaN, another number of columns than the training data, or a column
                that is not in the training data, or lacks the offset, trials or groups of the fit,
                or has no rows for a joint distribution.
                Of a program, if it fails because of the kinds or sizes of its arguments, or has
                other groups or columns than in the fit.
            SettingError: If ``local`` is another word, or the seed is no whole number.
            UnknownName: If a column is missing.
            NotApplicable: If the model does not take these arguments.
        """
        if seed is not None:
            seed = check_seed(seed)
        if not self.data.is_table:
            table = {} if X is None else {"X": X}
            return self._predict_program({**table, **others, **arguments}, joint, seed, local)
        arguments = others
        strange = [name for name in arguments if name not in ROLES or not ROLES[name].predicts]
        if local is not None:
            strange.append("local")
        if strange:
            roles = [name for name, role in ROLES.items() if role.predicts]
            wanted = f"X, joint, {', '.join(roles[:-1])} and {roles[-1]}"
            do = "a program alone has arguments of its own"
            if "return_std" in strange:
                do = "leave it out: the result has .mean, .std and .interval(0.9)"
            elif "level" in strange:
                do = "leave it out: the result has .interval(level)"
            elif "return_cov" in strange:
                do = (
                    "write predict(X, joint=True), whose .sample(100) has draws of all rows "
                    "together"
                )
            raise NotApplicable(wanted, ", ".join(strange), do)
        rows, known = inputs_and_roles(self, X, arguments)
        if joint and not len(rows):
            raise DataError("rows for a joint distribution", "none", "leave joint out")
        with evaluated_at(self, len(rows)):
            distribution = self.model.predict(
                self.theta, rows, self.data, joint=bool(joint), **known, **kept_by(self)
            )
        method = "predict with known noise" if "noise_sd" in known else "predict"
        return in_data_units(self, distribution, rows, method)

    def _predict_program(
        self, arguments: dict[str, Any], joint: Any, seed: int | None, local: str | None
    ) -> Prediction | VectorPrediction | dict[str, Any]:
        """Return the prediction of a user's own program.

        Args:
            arguments: The arguments of the program.
            joint: As the caller gave it.
            seed: Of the draws; None: 0.
            local: "same" or "new", or None.

        Raises:
            NotApplicable: If X is given and the program has no argument of that name, or a joint
                distribution is asked for.
            SettingError: If ``local`` is another word.
            DataError: If the program fails because of the kinds, dtypes or sizes of its arguments,
                or NaN among them gives no prediction.
        """
        own = self.model.arguments(self.data)
        if "X" in arguments and "X" not in own:
            do = "call predict(name=value, ...)"
            raise NotApplicable("the program's own arguments by name", "one table", do)
        if joint:
            do = "leave joint out; an argument of the program is passed by arguments={'joint': ...}"
            raise NotApplicable("the prediction of each row of a program", f"joint={joint!r}", do)
        if local not in (None, "same", "new"):
            wanted = "local='same' for the units of the fit, or local='new' for others"
            raise SettingError(wanted, f"local={local!r}", "write one of the two, or leave it out")
        arguments = self._as_in_the_fit(arguments)
        theta = simulator_of(self).with_params(self.theta)
        first = {name: value[0] for name, value in theta.items()}
        predictions: dict[str, Any] = {}
        with limited(Arguments({**self.data, **arguments}).work(self.model), PREDICTIONS_PAY_FROM):
            left_out = [n for n in self.model.required if n in own and n not in arguments]
            sites = {name: str(v.dtype).removeprefix("torch.") for name, v in first.items()}
            with explained(arguments, self.data, left_out, lambda: sites):
                found = self.model.predicted(theta, arguments, self.data, seed or 0, local)
            for note in found.notes:
                warn(note, DataWarning)
            if found.samples is not None:
                origin = Origin(self, "the forecast", {"seed": seed or 0})
                return replace(Prediction.from_samples(found.samples), origin=origin)
            rows = ProgramRows(self.model.function, first, self.data, arguments, self.also_seen)
            every = loops_of_steps(found.distributions) | found.distributions
            for name, law in every.items():
                check_numbers(name, law, arguments)

                def of_rows(
                    each: Prediction, name: str = name, part: slice = slice(None)
                ) -> Prediction:
                    n, unknown = len(each), partial(rows.unknown, name)
                    origin = _origin_of_site(self, name, arguments, n, seed or 0, unknown)
                    known = rows.at(name, n, part)
                    values = found.values
                    return replace(each, in_training=known, origin=origin, deterministic=values)

                predictions[name] = prediction_of_site(law, of_rows, found.values)
        _warn_of_no_mean(predictions)
        if len(predictions) > 1:
            return SitePredictions(predictions)
        return next(iter(predictions.values()))

    def _as_in_the_fit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of a program as tensors, and frames where the fit has frames."""
        frames = {n: v for n, v in arguments.items() if is_frame(self.data.get(n)) and is_frame(v)}
        others = {name: value for name, value in arguments.items() if name not in frames}
        return in_usable_dtypes(with_tensors(others), beside=self.data) | frames

    def predict_to(
        self,
        source: Any,
        out: str | PathLike[str],
        level: float = 0.9,
        calibrator: Any = None,
        rows_at_once: int = ROWS_AT_ONCE,
        *,
        progress: bool = True,
    ) -> Path:
        """Predict rows chunk by chunk, and write the predictions to one Parquet file.

        The columns are ``mean``, ``sd``, ``lower`` and ``upper``, in the units of the data. For
        labels they are ``p(label)`` for each class and, with a calibrator, ``set``, a list of the
        labels in the set. There is one row group per chunk; the rows keep their order. Numbers are
        those of ``predict`` on all rows, up to the rounding that another size of batch gives.

        Each chunk is first a file in the folder ``out.parts``; these are joined at the end and
        removed. The same call after one that was stopped goes on behind its last complete part,
        where the rows come from files.

        Args:
            source: The new rows: a Parquet file, a folder or a list of these; a ``ppgp.stream``; a
                frame or an array [m, d], or an iterable of them. Columns of files are found by the
                names of the training columns, and others are ignored.
            out: The file to write, whose name ends in .parquet. A file that is there is replaced.
            level: The level of the intervals or sets, in (0, 1).
            calibrator: Of ``ppgp.calibrate``: the intervals or sets are conformal. None: intervals
                are those of the predictive distribution.
            rows_at_once: The most rows of one chunk.
            progress: Whether to show a progress bar.

        Returns:
            The path of the file.

        Raises:
            NotApplicable: If the posterior is one of a program or of a rank of a team, or the
                calibrator is none of ``ppgp.calibrate`` or has groups or weights.
            UnknownName: If a training column is missing.
            DataError: If a column is missing in one of the files or has another type there, or a
                value is missing or not finite; the message names column, file, row group and
                row.
            SettingError: If an option is wrong.
            StorageError: If ``out`` cannot be written, is one of the files that are read, or parts
                of another call are in the way.
        """
        path = checked_path(self.data, out, level, calibrator, rows_at_once)
        rows = rows_of(source, self.data)
        identity = digest_of(self)
        predict_to_file(
            self.predict, identity, rows, path, level, calibrator, rows_at_once, progress
        )
        return path

    def latent(self, X: Any) -> Prediction:
        """Return the distribution of f(x), without the noise of y, in the units of the data.

        Args:
            X: The new rows [m, d], as in ``predict``.

        Returns:
            A Prediction of m rows.

        Raises:
            NotApplicable: If the model has no latent function.
        """
        model = require(self.model, LatentFunction)
        rows = model_inputs(self, X)
        with evaluated_at(self, len(rows)):
            found = model.latent(self.theta, rows, self.data, **kept_by(self))
        return in_data_units(self, found, rows, "latent")

    def components(self, X: Any, by: str = "term") -> dict[str, Prediction]:
        """Return the distribution of each term of an additive model, in the units of y.

        Those of a model of log y, such as ``StateSpaceGP(log=True)``, are of log y. The means add
        up to the mean of ``latent`` minus the mean of the model, which belongs to no term. The
        widths of intervals do not add up, because the terms are negatively correlated.

        Args:
            X: The new rows [m, d], as in ``predict``.
            by: "term": one part for each term of the kernel. "role", of a series: the terms of one
                role are one part: "season" (a ``Periodic``, or a ``Cosine`` whose period is a
                number), "cycle" (another wave) and "trend". Columns beside the time are
                "regressors".

        Returns:
            ``{"0 RBF": Prediction, ...}``, one Prediction of m rows per part.

        Raises:
            NotApplicable: If the model is not a sum of terms.
            SettingError: If ``by`` is something else.
        """
        if by not in ("term", "role"):
            raise SettingError('by="term" or by="role"', repr(by), "leave it out for each term")
        if by == "term":
            find = require(self.model, Components).components
        else:
            find = require(self.model, ComponentsByRole).parts_by_role
        rows = model_inputs(self, X)
        with evaluated_at(self, len(rows)):
            terms = find(self.theta, rows, self.data)
        _, scale = self.scaler.location_and_scale
        provenance = of_table(rows, self.data, self.scaler, self.also_seen)
        predictions = {}
        for name, term in terms.items():
            origin = Origin(self, f"the {by} {name!r}")
            predictions[name] = Prediction(term, 0.0, scale, None, provenance, origin)
        return predictions

    def loo(self) -> Prediction:
        """Return the leave-one-out predictions of the training rows, in closed form.

        The hyperparameters stay those of the fit to all rows. All rows count as training rows:
        conformal calibration on these predictions guarantees no coverage.

        Raises:
            NotApplicable: If the model does not know these predictions in closed form.
        """
        if is_boosted(self):
            raise NotApplicable(LeaveOneOut.wanted, "a boosted posterior", INSTEAD)
        model = require(self.model, LeaveOneOut)
        with torch.no_grad(), limited(self.data.work(self.model)):
            found = model.loo(self.theta, self.data, **self._kept_for_loo)
        prediction = in_data_units(self, found, self.data.X, "loo")
        return replace(prediction, in_training=torch.ones(self.data.n, dtype=torch.bool))

    @property
    def _kept_for_loo(self) -> dict[str, Any]:
        """The keyword by which leave-one-out shares the factor of predictions, if its model can."""
        if self.data.is_table and self.model.loo_keeps_factor:
            return {"kept": self.kept}
        return {}

    def pathwise(
        self, samples: int = 100, *, features: int | None = 1024, seed: int = 0
    ) -> Callable[[Any], Tensor]:
        """Return a function that evaluates sampled functions f of the posterior at any rows.

        Args:
            samples: The number of functions. Each is conditional on a randomly chosen draw of the
                hyperparameters.
            features: The number of random Fourier features of each prior function. Mean and
                covariance are exact for any number; the functions are closer to Gaussian the more
                features there are. None: the exact prior, at a cost that is cubic in the number of
                all rows at which the functions are ever evaluated.
            seed: The seed of the random numbers.

        Returns:
            A function from X [m, d] to values [samples, m], in the units of the data.

        Raises:
            SettingError: If ``samples`` or ``features`` is not positive, or the seed is no whole
                number.
            NotApplicable: If the model has no such functions, or its kernel has no known spectral
                density (``features=None`` works then).
        """
        if not isinstance(samples, Integral):
            do = "call pathwise(samples)(X): it returns a function of X"
            raise SettingError("a whole number of samples", an(type(samples).__name__), do)
        if samples < 1 or (features is not None and features < 1):
            got = f"{samples} and {features}"
            raise SettingError("positive samples and features", got, "for example 100 and 1024")
        seed = check_seed(seed)
        model = require(self.model, PosteriorFunctions)
        generator = torch.Generator().manual_seed(seed)
        with evaluated_at(self):
            paths = model.pathwise(self.theta, self.data, samples, features, generator)
        offset, scale = self.scaler.location_and_scale

        def evaluate(X: Any) -> Tensor:
            rows = model_inputs(self, X)
            with torch.no_grad():
                return offset + scale * paths(rows)

        return evaluate

    def update(self, X: Any, y: Any = None, *, noise_sd: Any = None) -> Posterior:
        """Return the posterior of the function given further rows too.

        The draws of the hyperparameters stay those of the fit, and so do the scale of the model and
        the inducing inputs: this is no fit. It agrees with conditioning on all rows at once under
        the same draws. The cost of k rows after n is:

        - GP and Kriging: O(n^2 k) per draw, by k further rows of the Cholesky factor;
        - SGPR with m inducing inputs: O(m^2 k) per draw;
        - StateSpaceGP: O(k) for rows that are later than all others. Other rows cost a pass over
          all rows at the next prediction.

        The first update of a posterior that has made no prediction also factors the n rows.

        Args:
            X: The new rows [m, d], as in ``predict``, or a Dataset.
            y: Their targets [m], in the units of the data; None: those of the Dataset.
            noise_sd: Their known noise [m] or one number, if the rows of the fit have it.

        Returns:
            A Posterior. Its rows, old and new, count as training rows. ``stats["updated"]`` is the
            number of rows of the fit, to which its draws belong: importance sampling of left-out
            rows, AIC and BIC need a new fit.

        Raises:
            NotApplicable: If the model cannot be updated, or the Dataset has a column that it does
                not use, such as weights.
            DataError: If the rows do not suit the fit: numbers that are not finite, another number
                of columns, known noise on one side alone, or duplicates under a noise of exactly 0.
        """
        model, old = require(self.model, Updates), self.data
        new = self._further_rows(X, y, noise_sd)
        both = None
        if old.noise_sd is not None and new.noise_sd is not None:
            both = torch.cat([old.noise_sd, new.noise_sd])
        X_all, y_all = torch.cat([old.X, new.X]), torch.cat([old.y, new.y])
        data = replace(old, X=X_all, y=y_all, noise_sd=both, ids=None).with_origin_of(old)
        stats = {name: self.stats[name] for name in self.stats if name not in OF_THE_ROWS}
        stats.setdefault("updated", old.n)
        found = replace(self, data=data, stats=stats)
        self.model.prepare(data)  # for its checks, such as of duplicate rows without noise
        with evaluated_at(self, new.n):
            model.carry_over(self.theta, old, data, self.kept, found.kept)
        return found

    def one_step_ahead(self, X: Any, y: Any = None, *, noise_sd: Any = None) -> Prediction:
        """Return the prediction of each further row given the fit and all rows before it.

        It is that of ``update`` and ``predict`` in turn, row by row, at the cost of one update. A
        model of time takes the rows in the order of time (Durbin & Koopman 2012, section 4.3), any
        other model in the order given. The draws of the hyperparameters stay those of the fit.

        Args:
            X: The new rows [m, d], or a Dataset. For a model of time they are in any order, none
                before the last row of the fit.
            y: Their targets [m], in the units of the data; None: those of the Dataset. Each enters
                the predictions after its own.
            noise_sd: Their known noise [m] or one number, if the rows of the fit have it.

        Returns:
            A Prediction of the m rows.

        Raises:
            NotApplicable: If the model cannot be updated.
            DataError: If the rows do not suit the fit, as in ``update``, or for a model of time one
                is earlier than the last row of the fit.
        """
        model = require(self.model, Updates)
        new = self._further_rows(X, y, noise_sd)
        with evaluated_at(self, new.n):
            found = model.one_step_ahead(self.theta, self.data, new, self.kept)
        return in_data_units(self, found, new.X, "one_step_ahead")

    def _further_rows(self, X: Any, y: Any, noise_sd: Any) -> Dataset:
        """Return rows with targets on the scale of the model, with the known noise of the fit."""
        old: Dataset = self.data
        if y is None:
            if not isinstance(X, Dataset):
                raise DataError("a Dataset, or X and y", "no y", "pass the targets of the new rows")
            y = X.y
        if isinstance(X, Dataset):
            for name in X.columns_with_roles:
                refuse_role(self.model, name, f"a Dataset without {name}")
        rows, roles = inputs_and_roles(self, X, {"noise_sd": noise_sd})
        targets, _ = check_targets(y, None, rows)
        known = roles.get("noise_sd")
        if (known is None) != (old.noise_sd is None):
            wanted, got = "rows without noise_sd, as in the fit", "some"
            if known is None:
                wanted, got = "noise_sd of the new rows, as in the fit", "none"
            raise DataError(wanted, got, "give known noise to all rows or to none")
        scaled = self.scaler.targets(targets)
        return replace(old, X=rows, y=scaled, noise_sd=known, ids=None).with_origin_of(old)

    def staged(self, X: Any, every: int = 10) -> Iterator[Prediction]:
        """Yield the predictions after ``every``, ``2 * every``, ... stages, and after all.

        A member with fewer stages stays where it has ended.

        Args:
            X: The new rows [m, d].
            every: The number of stages between two predictions, at least 1.

        Raises:
            NotApplicable: If the posterior was not boosted.
            SettingError: If ``every`` is no such number.
        """
        model, rows = _boosted(self), model_inputs(self, X)
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            wanted = "a whole number of at least 1 as every of staged"
            raise SettingError(wanted, repr(every), "for example every=10")
        every = int(every)
        members = [model.tensors_of(one) for one in self._draws_one_by_one()]
        each = zip_longest(*(model.learner.staged(one, rows, every) for one in members))
        sums: list[Tensor] = []
        for stage in each:
            sums = [p if p is not None else sums[j] for j, p in enumerate(stage)]
            f = model.from_start(self.theta, torch.stack(sums).to(rows))
            yield in_data_units(self, model.distribution_at(self.theta, f), rows, "staged")

    def importance(self) -> Any:
        """Return a pandas DataFrame: the importance of each column for each function of x.

        It has one row per column of X and one column per function, each of which sums to 1, or to 0
        where the function does not depend on X, and is averaged over the members. Trees measure how
        much the splits of a column reduced the squared error, and Linear the squares of its
        coefficients.

        Raises:
            NotApplicable: If the posterior was not boosted, or its learner has no such measure.
        """
        import pandas as pd

        model = _boosted(self)
        d = self.data.d
        gains = model.learner.importance(model.tensors_of(self.theta), d).mean(0)
        shares = gains / gains.sum(-1, keepdim=True).clamp_min(torch.finfo(gains.dtype).tiny)
        names = self.data.feature_names or [f"x{j}" for j in range(d)]
        likelihood = model.likelihood
        predicted = [f"{likelihood.scale_of(name)} {name}" for name in likelihood.predicted]
        functions = ["f", *predicted]
        if len(functions) != len(shares):
            functions = [f"f[{k}]" for k in range(len(shares))]
        return pd.DataFrame(shares.mT.numpy(), index=list(names), columns=functions)

    def out_of_fold(self) -> Prediction:
        """Return the distribution of each training row by the member not trained on its fold.

        Its log densities serve ``stacking_weights``, and ``cross_calibrate`` takes it without
        another fit. All rows count as training rows, as other members were trained on them:
        ``calibrate`` on them guarantees no coverage. A Prediction knows no flags: ``log_prob`` and
        ``metrics.nll`` take a right-censored target as the time of an event, so that they need the
        rows that are not censored.

        Raises:
            NotApplicable: If the posterior was not boosted with folds.
        """
        model, fold = _boosted(self), folds_of(self)
        with torch.no_grad():
            everywhere = model.predict(
                self.theta, self.data.X, self.data, **self.data.for_prediction
            )
        rows = torch.arange(len(fold))
        own = _one_draw_per_row(everywhere, fold, rows)
        prediction = in_data_units(self, own, self.data.X, OUT_OF_FOLD)
        return replace(prediction, in_training=torch.ones(len(fold), dtype=torch.bool))

    def _draws_one_by_one(self) -> list[dict[str, Tensor]]:
        """Return {site: [*event]} of each draw."""
        flat = {name: value.flatten(0, 1) for name, value in self.draws.items()}
        return [{name: v[j] for name, v in flat.items()} for j in range(len(flat["start"]))]

    def discrete(self, site: str) -> DiscreteSites:
        """Return a discrete site of a program, which the fit has summed out, given the data.

        Its probabilities are exact for each draw of the other sites; ``sample`` and
        ``most_probable`` give values. For steps ``z_0, z_1, ...`` of a loop, each has its name, and
        ``"z"`` is all of them, on an axis of steps. Those are the smoothed states of a hidden
        Markov model (Rabiner 1989).

        Args:
            site: The name of the site, or of the loop.

        Returns:
            A record with ``probabilities`` [chain, draw, *plates, K], ``values`` [K, *event],
            ``sample(seed=)`` and ``most_probable()``. Steps of a loop are an axis after the draws:
            [chain, draw, steps, *plates, K].

        Raises:
            NotApplicable: If the model is no program with discrete latent sites, or if the site is
                not discrete.
            UnknownName: If there is no such site.

        Examples:
            >>> import ppgp, pyro, torch
            >>> import pyro.distributions as dist
            >>> from ppgp import inference
            >>> def program(y):
            ...     m = pyro.sample("m", dist.Normal(torch.tensor([0.0, 3.0]), 1.0).to_event(1))
            ...     move, z = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), 0
            ...     for t in pyro.markov(range(len(y))):
            ...         z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
            ...         pyro.sample(f"y_{t}", dist.Normal(m[z], 1.0), obs=y[t])
            >>> y = torch.tensor([-0.2, 0.4, 2.8, 3.1])
            >>> posterior = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
            >>> posterior.discrete("z").most_probable()  # [chain, draw, step]
            tensor([[[0, 0, 1, 1]]])
        """
        if self.data.is_table:
            raise NotApplicable(
                "a program with discrete latent sites",
                type(self.model).__name__,
                "write a Pyro program",
            )
        theta = simulator_of(self).with_params(self.theta)
        return discrete_sites(self.model, theta, self.data, self.shape, site)

    def log_likelihood(self) -> Tensor | dict[str, Tensor]:
        """Return log p(y_i | draw) pointwise, [chain, draw, n], in the units of the data.

        Draws are evaluated in chunks of at most ``numerics.batching.MEMORY_BUDGET`` bytes. For a
        joint likelihood (an exact GP) it is log p(y_i | the other rows, draw), the closed-form
        leave-one-out density. A row of any weight has the density of one such row. A program with
        several observed sites gives ``{site: [chain, draw, n]}``.
        """
        each = self.pointwise()
        return next(iter(each.values())) if len(each) == 1 else each

    def pointwise(self) -> dict[str, Tensor]:
        """Return ``log_likelihood`` per observed site, ``{site: [chain, draw, n]}``."""
        with_params = simulator_of(self).with_params

        def density(part: dict[str, Tensor]) -> dict[str, Tensor]:
            return self.model.log_likelihood(with_params(part), self.data)

        draws = {name: value.flatten(0, 1) for name, value in self.draws.items()}
        kept = self._kept_for_loo
        with torch.no_grad(), limited(self.data.work(self.model)):
            if kept:
                each = self.model.log_likelihood(self.theta, self.data, **kept)
            else:
                each = in_chunks(density, draws)
        return {k: (v - self.scaler.y_sd.log()).reshape(*self.shape, -1) for k, v in each.items()}

    @overload
    def coefficients(self) -> coefficient_table.Coefficients: ...

    @overload
    def coefficients(
        self,
        covariance: Any,
        *,
        level: float = ...,
        units: str = ...,
        exponentiate: bool = ...,
        dispersion: str | float | None = ...,
    ) -> Any: ...

    def coefficients(
        self,
        covariance: Any = None,
        *,
        level: float = 0.95,
        units: str = "data",
        exponentiate: bool = False,
        dispersion: str | float | None = None,
    ) -> Any:
        """Return the coefficients: draws in the units of the data, or a table with intervals.

        Without arguments, draws of weights and bias in the units of the data, a dictionary that
        prints and shows as the table of "draws".

        With "draws", a table of these draws: mean, sd, the median and the central interval. The
        regressors of StateSpaceGP have this table alone, of their exact distribution under the
        draws of the hyperparameters.

        Otherwise a table of maximum likelihood, for a GLM with flat priors fitted by MAP: estimate,
        standard error (se), z, the two-sided p-value of a normal z, and the Wald interval. Other
        priors are refused, because these standard errors are those of maximum likelihood, and the
        mode is then another point: "draws" of a fit by Laplace or NUTS has the posterior sds. A
        coefficient that is fixed to a number has the standard error 0, and no z.

        - "model": the inverse of the Fisher information, as of R's ``summary.glm``. The dispersion
          of Gaussian and Gamma, unless a number fixes it, is Pearson's chi-squared over n - p.
        - "HC0": the sandwich of Huber (1967) and White (1980), with the Hessian of the data. The
          standard errors hold if the mean is right and the variance is not.
        - "HC3": the same with scores divided by 1 - leverage. MacKinnon & White (1985).
        - clusters: the same with the sums of scores within clusters, times G / (G - 1)
          (n - 1) / (n - p). Liang & Zeger (1986). It is a name ("ids", or a grouping of the
          Dataset) or labels [n] of the training rows that have a weight.

        Args:
            covariance: None, "draws", "model", "HC0", "HC3", or clusters.
            level: The level of the intervals.
            units: "data", or "model": the scale that the model saw.
            exponentiate: Whether to return exp of the coefficients and of the ends of their
                intervals, for links whose coefficients are logs of ratios: odds ratios, rate ratios
                and ratios of means. The quantiles and the mean of "draws" are those of exp of the
                draws. z and p test a ratio of 1.
            dispersion: With "model", "pearson" to estimate it for any likelihood (that of Poisson
                gives quasi-likelihood; McCullagh & Nelder 1989, chapter 9), or a number.

        Returns:
            ``{name: [chain, draw, ...]}`` with the method ``to_frame``, or a pandas DataFrame with
            one row per coefficient.

        Raises:
            NotApplicable: If the model is not linear; for a table of maximum likelihood, if the
                model is no GLM, the fit is not by MAP or a prior is not flat; for HC3 if there are
                several linear predictors; for ratios, if the link has none.
            SettingError: If the level is not in (0, 1), or for a dispersion beside another
                covariance than "model".
            UnknownName: If there is no such covariance, column or system of units.
            DataError: If clusters are not one label per row or fewer than two, or a leverage is 1.
        """
        share = float(1 - exact_level(level)) / 2
        if units not in UNITS:
            raise UnknownName("system of units", units, UNITS)
        scaler = self.scaler if units == "data" else IdentityScaler.for_data(self.data)
        if isinstance(self.model, IntegratedCoefficients):
            if exponentiate or dispersion is not None:
                name = type(self.model).__name__
                wanted = f"neither exponentiate nor dispersion for the weights of {name}"
                do = "leave them out; exp of the columns 50% and of the interval gives ratios"
                raise SettingError(wanted, "one of them", do)
            require(self.model, IntegratedCoefficients)
            if not isinstance(covariance, str) or covariance != "draws":
                name = type(self.model).__name__
                wanted = (
                    f"'draws' as covariance of the coefficients of {name}, which it integrates out"
                )
                do = "call posterior.coefficients('draws')"
                raise SettingError(wanted, repr(covariance), do)
            with evaluated_at(self, len(self.model.weighted(self.data.d))):
                table = coefficient_table.of_integrated(
                    self.model, self.theta, self.data, scaler, share
                )
            table.index.name = scale_of(units, self.scaler)
            return table
        model = require(self.model, LinearCoefficients)
        given = (level, units, exponentiate, dispersion) != (0.95, "data", False, None)
        if covariance is None and given:
            do = "for example 'draws', or 'model'"
            raise SettingError("a covariance for a table of coefficients", "None", do)
        if covariance is None:
            draws = model.coefficients(self.draws, self.scaler, self.data.X)
            return coefficient_table.Coefficients(draws, partial(self.coefficients, "draws"))
        if isinstance(covariance, str) and covariance == "draws":
            if dispersion is not None:
                raise SettingError("no dispersion beside draws", repr(dispersion), "leave it out")
            table = coefficient_table.of_draws(
                model, self.draws, self.data, scaler, share, exponentiate
            )
        else:
            mode = self._mode("standard errors of maximum likelihood")
            table = coefficient_table.of_maximum_likelihood(
                mode, covariance, scaler, share, exponentiate, dispersion
            )
        title = scale_of(units, self.scaler)
        if exponentiate:
            ratio = coefficient_table.ratio_of(self.model)
            table = table.drop(index=[name for name in table.index if "|" in name])
            title = f"{ratio}, {title}"
        table.index.name = title
        return table

    def residuals(self, kind: str = "deviance", seed: int = 0) -> Tensor:
        """Return a residual per training row, [n].

        - "deviance": the signed root of the row's part of the deviance. McCullagh & Nelder (1989),
          section 2.4.3. It has the unit of y for Gaussian noise, else none.
        - "pearson": (y - mean) / sqrt(V(mean)), where the variance of y is V(mean) times the
          dispersion; y - mean for Gaussian noise.
        - "quantile": the standard normal quantile of P(Y <= y), drawn between P(Y < y) and
          P(Y <= y) for counts and classes. Dunn & Smyth (1996). Under the true model and
          coefficients they are standard normal, for every likelihood. They average over the draws
          of the posterior, and use leave-one-out predictions where the model has them in closed
          form.

        A row of any weight has the residual of one such row, and rows of weight 0 are left out.

        Args:
            kind: "deviance", "pearson" or "quantile".
            seed: The seed of quantile residuals of counts and classes.

        Raises:
            UnknownName: If there is no such kind.
            NotApplicable: For "deviance" and "pearson", if the model is no GLM without groups, the
                fit is not by MAP, or the likelihood has none; for "quantile", if the classes have
                no order.
        """
        if kind not in KINDS:
            raise UnknownName("kind of residuals", str(kind), KINDS)
        if not self.data.is_table:
            got, do = "a program", "take (y - prediction.mean) / prediction.std"
            raise NotApplicable("a model on a table for residuals", got, do)
        if kind == "quantile":
            return self._quantile_residuals(seed)
        mode = self._mode(f"{kind} residuals")
        with torch.no_grad():
            pearson = kind == "pearson"
            found = mode.pearson_residuals() if pearson else mode.deviance_residuals()
        return found * mode.unit

    def _quantile_residuals(self, seed: int) -> Tensor:
        data = self.data
        if data.right_censored is not None and bool(data.right_censored.any()):
            got, do = "right-censored ones", "leave out the censored rows"
            raise NotApplicable("observed targets for residuals", got, do)
        with evaluated_at(self, data.n):
            if supports(self.model, LeaveOneOut) and not is_boosted(self):
                found = self.model.loo(self.theta, data)
            else:
                found = self.model.predict(self.theta, data.X, data, **data.for_prediction)
        prediction = Prediction(found)
        if prediction.kind == "continuous":
            below, above = (one.double().cpu().numpy() for one in prediction.log_tails(data.y))
            z = np.where(below < above, special.ndtri_exp(below), -special.ndtri_exp(above))
            return torch.as_tensor(z).to(data.y)
        u = _between(prediction, self, seed) if is_classes(found) else prediction.pit(data.y, seed)
        least = torch.finfo(torch.float64).eps / 4
        return torch.special.ndtri(u.double().clamp(least, 1 - 2 * least)).to(data.y)

    @property
    def deviance(self) -> float:
        """Twice the log likelihood ratio of the saturated model, times the dispersion.

        The sum of squared deviance residuals. McCullagh & Nelder (1989), section 2.3. For Gaussian
        noise it is the residual sum of squares.

        Raises:
            NotApplicable: As ``residuals("deviance")``.
        """
        try:
            square = self.residuals("deviance").square()
        except NotApplicable as error:  # a property lets ``hasattr`` return False
            raise NotKnown(error.expected, error.got, error.do) from None
        weights = self.data.weights
        return float((square if weights is None else weights * square).sum())

    def dispersion_check(self) -> DispersionCheck:
        """Return Pearson's chi-squared against its degrees of freedom, which shows overdispersion.

        Its ``str`` is a sentence about it. McCullagh & Nelder (1989), section 4.5.

        Raises:
            NotApplicable: If the model is no GLM without groups, the fit is not by MAP, y is one of
                several classes, the dispersion is a parameter of the likelihood, which is then
                fitted, or the likelihood is not one of counts, Gamma, Exponential or Gaussian.
        """
        return self._mode("the check of its dispersion").dispersion_check()

    def _mode(self, wanted: str) -> Mode:
        """Return the mode of a generalised linear model.

        Args:
            wanted: What needs it, in words.

        Raises:
            NotApplicable: If it is no generalised linear model, or the fit is not by MAP.
        """
        model = require(self.model, GeneralisedLinear)
        if "log_likelihood" not in self.stats or "mode" in self.stats or self.shape != (1, 1):
            got = f"draws by {type(self.how).__name__}"
            raise NotApplicable(f"a mode for {wanted}", got, "fit by MAP('newton')")
        theta = {name: value[0] for name, value in self.theta.items()}
        return Mode(model, theta, self.data, self.scaler.y_sd)

    def effects(self, seed: int = 0) -> dict[str, Tensor]:
        """Return draws of the coefficients of the groups, in the units of the data.

        They are what a group adds to the coefficients that all rows share. The levels are those of
        ``data.group_levels``; the coefficients are in the order of the terms of ``Varying``. A fit
        by MAP has one draw of them; ``effects_table`` has their means and sds given the mode.

        Args:
            seed: The seed of coefficients that the model integrates out: one draw of them per draw
                of the sites.

        Returns:
            ``{grouping: [chain, draw, K, q]}``.

        Raises:
            NotApplicable: If no coefficients of the model vary between groups.
            SettingError: If the seed is the name of a grouping.
        """
        found = drawn_effects(self, seed, 1)
        return {name: u.reshape(*self.shape, *u.shape[1:]) for name, u in found.items()}

    def effects_table(self, seed: int = 0) -> Any:
        """Return a pandas DataFrame of the coefficients of the groups, one row per level and term.

        Its columns are mean, sd and the 5 %, 50 % and 95 % quantiles, in the units of the data. Of
        a mode of the other sites, such as by MAP, they are those given the mode.

        Args:
            seed: As in ``effects``.

        Raises:
            NotApplicable: If no coefficients of the model vary between groups.
        """
        import pandas as pd

        rows, index = [], []
        names = require(self.model, GroupEffects).effect_names()
        for grouping, draws in drawn_effects(self, seed).items():
            flat = draws.double()
            spread = flat.std(0) if len(flat) > 1 else torch.full_like(flat[0], torch.nan)
            at = torch.quantile(flat, torch.tensor(QUANTILES, dtype=flat.dtype), dim=0)
            columns = torch.stack([flat.mean(0), spread, *at], -1)
            for k, level in enumerate(self.data.group_levels[grouping]):
                for j, term in enumerate(names[grouping]):
                    rows.append(columns[k, j].tolist())
                    index.append((grouping, level, term))
        axes = pd.MultiIndex.from_tuples(index, names=["grouping", "level", "term"])
        return pd.DataFrame(rows, index=axes, columns=["mean", "sd", "5%", "50%", "95%"])

    @property
    def log_evidence(self) -> float:
        """The log evidence log p(y), in the units of the data.

        Under ``Flat`` priors it is the integral against density 1 on the scale of the model. With a
        flat bias, ``log_evidence`` on standardised data is log(y_sd) lower than with
        ``standardise=False``. Compare models on one scale.

        After MAP it is Laplace's method at the mode, computed when it is first read.

        Raises:
            NotApplicable: If the inference method did not compute it.
            NumericalError: After MAP, if the density does not curve down in every direction.
        """
        found = self.stats.get("log_evidence")
        if found is None:
            found = self._evidence_at_mode
        return float(found) - self.scaler.log_scale(self.data)

    @cached_property
    def _evidence_at_mode(self) -> float:
        """The log evidence on the scale of the model, from the mode of MAP."""
        name = type(self.how).__name__
        do = INSTEAD if is_boosted(self) else "fit by Laplace or Exact"
        one_draw = getattr(self.how, "seeks_mode", False) and self.shape == (1, 1)
        if not one_draw or is_boosted(self) or self.params or self.stats.get("joint_mode"):
            raise NotKnown("a method that knows the evidence", name, do)
        with one_at_a_time():
            target = Target(self.model, self.data)
            if target.dim > MOST:
                got = f"{target.dim:,} unconstrained numbers"
                raise NotKnown(f"at most {MOST:,} numbers for the evidence after MAP", got, do)
            return log_evidence_near(target, target.unconstrain(self.draws)[0, 0])

    @property
    def bic(self) -> float:
        """-2 log L + k log n at the mode; smaller is better. Schwarz (1978).

        k is the number of free parameters. L is the likelihood at the fitted mode, which is the
        maximum of the likelihood if the priors are ``Flat``.

        Raises:
            NotApplicable: If the posterior is not from MAP or Laplace, or nothing is observed.
        """
        log_likelihood, parameters, observations = self._criterion_parts("bic")
        return -2 * log_likelihood + parameters * math.log(observations)

    @property
    def aic(self) -> float:
        """-2 log L + 2 k at the mode; smaller is better. Akaike (1974).

        k and L are those of ``bic``.

        Raises:
            NotApplicable: If the posterior is not from MAP or Laplace, or nothing is observed.
        """
        log_likelihood, parameters, _ = self._criterion_parts("aic")
        return -2 * log_likelihood + 2 * parameters

    def _criterion_parts(self, criterion: str) -> tuple[float, int, int]:
        """Return (log likelihood, free parameters, observations) at the fitted mode.

        Raises:
            NotKnown: If the fit has no mode, or nothing is observed.
        """
        stats = self.stats
        if "log_likelihood" not in stats:
            name = type(self.how).__name__
            do = INSTEAD if is_boosted(self) else "fit by MAP or Laplace"
            raise NotKnown(f"a mode to compute the {criterion} at", name, do)
        if not stats["observations"]:
            raise NotKnown(
                f"observed sites to compute the {criterion} of",
                "none, as in a program of pyro.factor alone",
                "write the likelihood of the data as pyro.sample(..., obs=)",
            )
        if "factors" in stats:
            said = (
                f"the {criterion} leaves out pyro.factor ({stats['factors']}), which may hold "
                "data; write data as pyro.sample(..., obs=)"
            )
            warn(said, DataWarning)
        log_likelihood = float(stats["log_likelihood"]) - self.scaler.log_scale(self.data)
        return log_likelihood, int(stats["parameters"]), int(stats["observations"])

    def to_arviz(
        self,
        *,
        prior: int | Mapping[str, Any] = 0,
        predictive: bool = False,
        predictions: Prediction | VectorPrediction | Mapping[str, Any] | None = None,
        log_likelihood: bool = True,
        log_prior: bool = True,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Any] | None = None,
        seed: int = 0,
        units: str = "model",
    ) -> Any:
        """Return ArviZ's object: InferenceData on ArviZ 0.x, DataTree on ArviZ 1.x.

        Its groups are posterior, sample_stats, log_likelihood, log_prior, observed_data and
        constant_data; on request also prior, prior_predictive, posterior_predictive and
        predictions. Axes are named after the plates of the program (the axes of a site's own event
        follow), and after features, classes and components. Where a program has no log density per
        row, or no log prior per site, that group is left out, and one warning says why.

        Coefficients that vary between groups are the variables ``county.effect``, with the axes
        ``county`` (the levels) and ``county.term``, always in the units of the data.

        Data, log densities and replicates are in the units of the data. Draws are on the scale of
        the model, or as ``draws_in`` gives them with ``units="data"``; ``attrs["units"]`` names the
        scale. ``attrs["draws"]`` is "chains" or "independent": R-hat and ESS have a meaning only
        for chains.

        Args:
            prior: The number of draws from the prior, or the user's own prior draws
                ``{site: [draw, ...]}``.
            predictive: Whether to draw data again at the training rows, once per draw.
            predictions: What ``predict`` returned for new rows. The group predictions has one draw
                of y per draw of the posterior, or several where the prediction has several, on the
                axis new_row.
            log_likelihood: Whether to compute the pointwise log likelihood, which leave-one-out
                cross-validation needs.
            log_prior: Whether to compute the log prior density of each site, [chain, draw], on the
                scale of the model, which power-scaling sensitivity needs (Kallioinen, Paananen,
                Buerkner & Vehtari 2024).
            coords: Coordinates of axes that replace the default ones, as in ``arviz.from_pyro``.
            dims: Names of the axes of variables that replace the default ones.
            seed: The seed of the prior draws and of the replicates.
            units: The scale of the draws from posterior and prior: "model" or "data".

        Raises:
            NotApplicable: If prior draws are requested of a flat prior, or a rank of a team has
                some rows of one joint distribution.
            SettingError: If ``prior`` is neither a number of draws nor a mapping.
            UnknownName: If ``units`` or an axis in ``coords`` is not known.
            DataError: If an axis has another length than its coordinates.
        """
        if self.model.joint_rows:
            refuse_in_team(self.data, "to_arviz()")
        simulator = simulator_of(self)
        sites = simulator.one_run()
        draws, standardised = draws_in(units, self.draws, self.model, self.scaler)
        if supports(self.model, GroupEffects):
            draws |= {f"{name}.effect": u for name, u in self.effects(seed).items()}
        found_dims, found_coords = axes_of(self.model, self.data, sites, draws)
        observed, constant = self._data_groups(sites, found_coords)
        groups: dict[str, Mapping[str, Any]] = {"posterior": draws}
        groups["sample_stats"] = {
            k: v for k, v in self.stats.items() if isinstance(v, Tensor) and v.shape == self.shape
        }
        wanted = {
            "log_likelihood": log_likelihood and partial(self._log_likelihood_by_plates, sites),
            "log_prior": log_prior and simulator.log_prior,
        }
        groups |= _where_they_apply({name: make for name, make in wanted.items() if make})
        if predictions is not None:
            groups["predictions"] = _drawn_predictions(predictions, observed, self.shape, seed)
        if predictive:
            found = simulator.posterior_predictive(seed)
            groups["posterior_predictive"] = {
                name: v.reshape(*self.shape, *v.shape[1:]) for name, v in found.items()
            }
        groups["prior"], groups["prior_predictive"] = simulator.prior_groups(prior, seed, observed)
        if not isinstance(prior, Mapping):
            groups["prior"], _ = draws_in(units, groups["prior"], self.model, self.scaler)
        groups |= {"observed_data": observed, "constant_data": constant}
        renamed(found_dims, found_coords, dims, coords)
        attrs = {
            "inference_library": "ppgp",
            "inference": repr(self.how),
            "sampling_time": self.seconds,
            "draws": "chains" if self.mcmc else "independent",
            "units": scale_of(units, self.scaler),
            "standardised": ", ".join(standardised),
        }
        arrays = {
            group: {name: _array(value) for name, value in values.items()}
            for group, values in groups.items()
        }
        of_new_rows = {name: [NEW_ROW] for name in arrays.get("predictions", ())}
        of_rows = {}
        for name, density in arrays.get("log_likelihood", {}).items():
            axes = found_dims.get(name, ())
            # rows that a mask leaves out, and plates inside rows whose discrete sites are summed
            # out, have no entries
            sizes = zip(axes, density.shape[2:], strict=False)
            fits = all(len(found_coords.get(axis, range(size))) == size for axis, size in sizes)
            if fits and len(axes) == density.ndim - 2:
                of_rows[name] = axes
        own_dims = {"log_likelihood": of_rows, "log_prior": {}, "predictions": of_new_rows}
        return arviz_bridge.to_arviz(arrays, found_coords, found_dims, attrs, own_dims=own_dims)

    def _data_groups(
        self, sites: Mapping[str, Mapping[str, Any]], coords: Coords
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the groups observed_data and constant_data, in the units of the data."""
        if not self.data.is_table:
            return _arguments(self.data, sites, coords)
        X, y = self.scaler.inputs_back(self.data.X), self.scaler.targets_back(self.data.y)
        return {"y": y}, {"X": X, **columns_by_name(self.data)}

    def _log_likelihood_by_plates(
        self, sites: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return ``{observed site: [chain, draw, ...]}``, the pointwise log likelihood."""
        densities = {}
        for name, value in self.pointwise().items():
            n = value.shape[-1]
            shape: tuple[int, ...] = (n,)
            if name in sites:
                batch = tuple(sites[name]["fn"].batch_shape)
                if batch and int(np.prod(batch)) == n:
                    shape = batch
            densities[name] = value.reshape(*self.shape, *shape)
        return densities

    def draws_in(self, units: str = "data") -> dict[str, Tensor]:
        """Return ``draws`` in the units of the data, or (``units="model"``) as they are.

        A single lengthscale for columns that were standardised one by one becomes one lengthscale
        per column, [chain, draw, d]. A quantity that has no equivalent in the units of the data
        (the angle of an anisotropy among such columns, the weights of a network) stays on the
        standardised scale, and ``summary`` marks it. Hyperparameters of kernels that depend on
        where X = 0 is (``Linear``, ``Polynomial``, ``LinearVariogram``) are those of the kernel
        at X minus the mean of its training rows.

        Raises:
            UnknownName: If ``units`` is neither "model" nor "data".
        """
        return draws_in(units, self.draws, self.model, self.scaler)[0]

    def summary(self, units: str = "model") -> Any:
        """Return a pandas DataFrame with one row per scalar, such as ``weight[bmi]``.

        Entries of a site have the coordinates of ``to_arviz``. The columns are mean, sd and the
        5 %, 50 % and 95 % quantiles; for chains also Monte Carlo standard errors and effective
        sample sizes, for several chains also R-hat. Statistics of an angle are taken around its
        circular mean, so that they may exceed pi; its R-hat and effective sample sizes are the
        worse of those of its cosine and its sine. Coefficients of groups that the model
        integrates out are no sites; ``effects_table`` shows them.

        Args:
            units: "model" (the scale that the model saw) or "data". The name of the index states
                the scale (and "interrupted" if Ctrl-C ended the search early). "(standardised)"
                marks scalars that have no equivalent in the units of the data.

        Raises:
            UnknownName: If ``units`` is neither "model" nor "data".
        """
        draws, standardised = draws_in(units, self.draws, self.model, self.scaler)
        title = scale_of(units, self.scaler)
        if cut_short(self.stats):
            title += ", interrupted"
        chains = self.chains if self.mcmc else 0
        names = scalar_names(draws, self.model, self.data)
        return table_of(draws, names, standardised, title, chains, self.circular)

    def r_hat(self) -> dict[str, float]:
        """Return the rank-normalised split R-hat of every scalar. Vehtari et al. (2021).

        Returns:
            ``{name: value}``.

        Raises:
            NotApplicable: If the draws are independent or come from a single chain.
        """
        if not self.mcmc:
            got = f"independent draws by {type(self.how).__name__}"
            do = "ask ppgp.diagnose, which judges them by k-hat"
            raise NotApplicable("Markov chains for R-hat", got, do)
        if self.chains < 2:
            do = "run more, for example NUTS(chains=4)"
            raise NotApplicable("at least two chains for R-hat", "one", do)
        return {str(name): float(value) for name, value in self.summary()["r_hat"].items()}

    def save(self, path: str | Path) -> Path:
        """Write the posterior to one file; ``ppgp.load_posterior`` reads it back.

        The file holds tensors (safetensors) and JSON, with a checksum. A program, a guide, a
        torch module or a class of the user's own is stored by name only, and has to be passed to
        ``load_posterior``. In a team every rank calls it; rank 0 writes, with the rows of all.

        Args:
            path: The file to write.

        Returns:
            The path.

        Raises:
            NotApplicable: If the fit is more than its tensors, as boosted regressors of
                scikit-learn are.
            StorageError: If something could not be read back: an argument of a program that is
                not a number, text, array, tensor, list or mapping of these, or two functions of
                one name; if the path cannot be written; or if the disk is full.
        """
        self.model.check_storable()
        team = self.data.writers if self.data.team.alone else self.data.team
        if team.alone:
            return storage.save(path, self)
        whole = replace(self, data=of_all_ranks(self.data))
        with team.all_or_none():
            if team.rank == 0:
                storage.save(path, whole)
        return Path(path)


@contextmanager
def evaluated_at(posterior: Posterior, rows: int = 0) -> Iterator[None]:
    """Evaluate a model at rows of a table inside the block.

    It runs without gradients, and on as many threads as suit the work.

    Args:
        posterior: The posterior, which is conditional on a table.
        rows: The number of new rows. To condition on the training rows takes as long as n of them.
    """
    data = posterior.data
    work = posterior.model.work(data.n, data.d) * max(1.0, rows / data.n)
    with torch.no_grad(), limited(work, PREDICTIONS_PAY_FROM):
        yield


def model_inputs(posterior: Posterior, X: Any) -> Tensor:
    """Return the rows of X as a tensor [m, d], on the scale of the model.

    Columns with names are put in the order of the training columns.

    Raises:
        DataError: If X has NaN, another number of columns or a column that the fit does not know.
        UnknownName: If a column is missing.
    """
    table, _ = read(X, posterior.data)
    return _on_scale(posterior, table)


def inputs_and_roles(
    posterior: Posterior, X: Any, given: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Tensor, dict[str, Any]]:
    """Return the rows of X and their columns with roles, on the scale of the model.

    Args:
        posterior: The posterior.
        X: The new rows.
        given: ``{role: column}``, in the units of the data; they replace those that X itself holds.

    Returns:
        ``model_inputs``, and ``{role: column}`` of the roles that ``predict`` of the model takes.

    Raises:
        NotApplicable: If the model does not take such a column.
        DataError: If the fit used an offset, trials or groups and the new rows have none.
    """
    table, own = read(X, posterior.data)
    rows = _on_scale(posterior, table)
    columns = {**own, **{name: value for name, value in given.items() if value is not None}}
    for name in columns:
        refuse_role(posterior.model, name, f"leave {name} out")
    columns = checked_roles(columns, posterior.data, rows)
    for name, column in columns.items():
        if ROLES[name].unit_of_y:
            columns[name] = posterior.scaler.noise(column)
    return rows, columns


def _on_scale(posterior: Posterior, table: Any) -> Tensor:
    """Return rows whose columns are in order as a checked tensor, on the scale of the model."""
    data, names = posterior.data, posterior.data.feature_names
    if not names or len(names) != getattr(table, "shape", (0, 0))[-1]:
        names = None
    missing = data.missing == "keep" and posterior.model.takes_missing
    rows = posterior.scaler.inputs(check_inputs(table, names, missing=missing).to(data.X))
    if data.coded:
        check_codes(rows, data.coded, data.feature_names)
    kernel = posterior.model.covariance
    if isinstance(kernel, Kernel):
        kernel.check_places(rows)
    return rows


def in_data_units(
    posterior: Posterior, distribution: Distribution, rows: Tensor, method: str = "predict"
) -> Prediction:
    """Return the Prediction of a distribution of y on the scale of the model.

    Args:
        posterior: The posterior.
        distribution: Batch [draw, m], or batch [draw] and event [m].
        rows: The new rows [m, d], on the scale of the model.
        method: The method of the posterior that found it, in words.
    """
    offset, scale = posterior.scaler.location_and_scale
    provenance = of_table(rows, posterior.data, posterior.scaler, posterior.also_seen)
    origin = Origin(posterior, method)
    return Prediction(distribution, offset, scale, posterior.data.classes, provenance, origin)


def kept_by(posterior: Posterior) -> dict[str, Any]:
    """Return the keyword by which predictions of one fit share a factor, if its model has one."""
    if posterior.model.keeps_factor:
        return {"kept": posterior.kept}
    return {}


def simulator_of(posterior: Posterior) -> Simulator:
    """Return the model of a fit, to be run forwards."""
    return Simulator(
        posterior.model, posterior.data, posterior.draws, posterior.params, posterior.scaler
    )


def is_boosted(posterior: Posterior) -> bool:
    """Return whether a posterior is a sum of learners."""
    return isinstance(posterior.model, BoostedSum) and bool(
        posterior.model.tensors_of(posterior.draws)
    )


def _boosted(posterior: Posterior) -> Any:
    """Return the model of a boosted posterior.

    Raises:
        NotApplicable: If it was not boosted.
    """
    if posterior.data.is_table and not isinstance(posterior.model, BoostedSum):
        raise NotApplicable(
            BoostedSum.wanted,
            type(posterior.model).__name__,
            "fit models.Boosted(likelihood, learner); for CV+ of this model call "
            "cross_calibrate(posterior.recipe, data, how)",
        )
    model: Any = require(posterior.model, BoostedSum)
    if not model.tensors_of(posterior.draws):
        raise NotApplicable(
            "a posterior by NaturalGradientBoosting",
            f"one by {type(posterior.how).__name__}, which has no learners",
            "fit the model by inference.NaturalGradientBoosting()",
        )
    return model


def folds_of(posterior: Posterior) -> Tensor:
    """Return the fold of each training row, [n].

    Raises:
        NotApplicable: If the posterior has no folds.
    """
    _boosted(posterior)
    if "fold" not in posterior.params:
        raise NotApplicable(
            "a posterior with folds",
            "one without",
            "fit by NaturalGradientBoosting(folds=5), to its end",
        )
    return posterior.params["fold"]


def members_of(posterior: Posterior) -> list[tuple[Any, Tensor, Dataset]]:
    """Return, per fold, the posterior of the member without it, the rows' numbers, and the rows."""
    fold = folds_of(posterior)
    members = []
    for j in range(int(fold.max()) + 1):
        rows = torch.nonzero(fold == j).flatten()
        draws = {name: value[:, j : j + 1] for name, value in posterior.draws.items()}
        members.append((replace(posterior, draws=draws), rows, posterior.data.rows(rows)))
    return members


def _one_draw_per_row(distribution: Any, draw: Tensor, rows: Tensor) -> Any:
    """Return the distribution [1, n] whose row i is that of its own draw."""
    chosen = {name: v[draw, rows][None] for name, v in parameters(distribution).items()}
    return rebuilt(distribution, chosen)


def drawn_effects(posterior: Posterior, seed: int, each: int | None = None) -> dict[str, Tensor]:
    """Return draws of the coefficients of the groups, ``{grouping: [draw, K, q]}``.

    Args:
        posterior: The posterior.
        seed: As in ``effects``.
        each: How many draws of coefficients that the model integrates out to take per draw of the
            sites; None: one, or ``AT_A_MODE`` if there is one draw of the sites.
    """
    model = require(posterior.model, GroupEffects)
    if isinstance(seed, str):
        do = f"write effects()[{seed!r}]"
        raise SettingError("a whole number as seed", repr(seed), do)
    generator = torch.Generator().manual_seed(seed)
    if each is None:
        each = AT_A_MODE if posterior.shape == (1, 1) else 1
    with evaluated_at(posterior):
        return model.group_effects(posterior.theta, posterior.data, generator, each)


def _between(prediction: Prediction, posterior: Posterior, seed: int) -> Tensor:
    """Return numbers between the probability of lower classes and that of the same as well.

    Raises:
        NotApplicable: If the classes have no order.
    """
    p = prediction.probabilities
    ordered = p.shape[1] == 2 or hasattr(getattr(posterior.model, "likelihood", None), "cutpoints")
    if not ordered:
        do = "use Brier scores or log losses of the prediction"
        raise NotApplicable("ordered classes for residuals", "classes without an order", do)
    upper = p.cumsum(1).gather(1, posterior.data.y.long()[:, None])[:, 0]
    own = p.gather(1, posterior.data.y.long()[:, None])[:, 0]
    generator = torch.Generator().manual_seed(seed)
    uniform = standard_uniform(generator, *own.shape).to(own)
    return upper - uniform * own


def _arguments(
    arguments: Mapping[str, Any], sites: Mapping[str, Mapping[str, Any]], coords: Coords
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the observed sites, and the other numeric arguments of a program."""
    observed = {name: site["value"] for name, site in sites.items() if is_data(site)}
    constant = {}
    for name, value in arguments.items():
        array = value if isinstance(value, Tensor) else np.asarray(value)
        numeric = isinstance(array, Tensor) or array.dtype.kind in "biuf"
        if numeric and name not in observed and not any(value is y for y in observed.values()):
            if name in coords or name in sites:  # ArviZ takes one name for one set of axes
                name = f"{name}_data"
            constant[name] = array
    return observed, constant


def _where_they_apply(
    groups: Mapping[str, Callable[[], dict[str, Tensor]]],
) -> dict[str, dict[str, Tensor]]:
    """Return the groups that the model has, and warn once of those that it has not."""
    found, reasons = {}, []
    for name, make in groups.items():
        try:
            found[name] = make()
        except NotApplicable as error:
            reasons.append(f"{name} ({error})")
    if reasons:
        warn(f"to_arviz leaves out {' and '.join(reasons)}", DataWarning)
    return found


def _warn_of_no_mean(predictions: Mapping[str, Prediction | VectorPrediction]) -> None:
    """Warn of numbers without a mean, such as a Student's t with 1 degree of freedom or less."""
    for name, prediction in predictions.items():
        each = prediction.each if isinstance(prediction, VectorPrediction) else prediction
        if each.kind != "continuous":
            continue
        try:
            means = each.by_row.distribution.mean
        except NotImplementedError:
            continue
        lost = torch.isnan(means).reshape(len(means), -1).any(1)
        if bool(lost.any()):
            said = (
                f"{name!r} has no mean under {int(lost.sum())} of {len(lost)} draws, such as a "
                "Student's t with 1 degree of freedom or less: mean and std are NaN; take "
                "quantile(0.5) and interval(0.9)"
            )
            warn(said, DataWarning)


def _drawn_predictions(
    predictions: Prediction | VectorPrediction | Mapping[str, Any],
    observed: Iterable[str],
    shape: tuple[int, int],
    seed: int,
) -> dict[str, Tensor]:
    """Return ``{site: [chain, draw, new row]}``, a draw of y from each component in its order.

    A prediction of another number of draws than a multiple of the posterior's is one chain.

    Args:
        predictions: One prediction, or ``{site: Prediction}``.
        observed: The observed sites of the fit. One prediction belongs to the only one of them.
        shape: (chains, draws per chain) of the posterior.
        seed: Of the draws.
    """
    if isinstance(predictions, Prediction | VectorPrediction):
        names = list(observed)
        predictions = {names[0] if len(names) == 1 else "y": predictions}
    drawn = {}
    for site, prediction in predictions.items():
        if isinstance(prediction, VectorPrediction):
            values = prediction.one_of_each_draw(seed)
        elif isinstance(prediction, Prediction):
            values = one_of_each_draw(prediction, seed)
        else:
            got = f"{an(type(prediction).__name__)} as {site!r}"
            do = "pass predictions=posterior.predict(...) of the new rows"
            raise NotApplicable("a Prediction for each site", got, do)
        chains, draws = shape
        chains = chains if len(values) % (chains * draws) == 0 else 1
        drawn[site] = values.reshape(chains, -1, *values.shape[1:])
    return drawn


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _origin_of_site(
    posterior: Posterior,
    site: str,
    arguments: Mapping[str, Any],
    rows: int,
    seed: int,
    unknown: Callable[[], str],
) -> Origin:
    """Return the origin of the prediction of a program's site.

    Args:
        posterior: The posterior.
        site: The site.
        arguments: The arguments of the prediction.
        rows: How many rows the site has. Arguments with one entry per row, and counts of the rows,
            belong to the rows.
        seed: Of the draws.
        unknown: See ``Origin``.
    """
    settings: dict[str, Any] = {"seed": seed}
    for name, value in arguments.items():
        by_row = columns(value, rows) is not None or same_value(value, rows)
        settings[name] = None if by_row else value
    return Origin(posterior, f"the prediction of {site!r}", settings, unknown, site)
