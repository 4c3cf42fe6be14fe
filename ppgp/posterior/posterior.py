"""Posterior: the result of every inference method, one concrete class for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..capabilities import (
    Components,
    LatentFunction,
    LeaveOneOut,
    ProbitPrediction,
    require,
)
from ..data.arguments import as_training_data
from ..data.scaler import GivenScaler, IdentityScaler
from ..data.team_rows import of_all_ranks
from ..errors import NotApplicable, counted
from ..runtime.batching import in_chunks
from ..runtime.result_cache import ResultCache
from ..runtime.threads import limited
from . import (
    arviz_groups,
    coefficient_table,
    criteria,
    functions,
    group_effects,
    posterior_html,
    predicting_to_files,
    row_residuals,
    summary,
    updating,
)
from .boosted import INSTEAD, BoostedMethods, is_boosted
from .files import storage
from .fitted import evaluated_at, with_params
from .model_inputs import model_inputs
from .predicting import (
    in_data_units,
    kept_by,
    kept_for_loo,
    predict_program,
    predict_table,
    terms_in_data_units,
)
from .prediction import Prediction
from .summary import cut_short
from .units_of_draws import draws_in

__all__ = ["Posterior"]


@dataclass(frozen=True, eq=False)
class Posterior(BoostedMethods):
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
    # ``_facts`` of ``loaded_checks.py``.
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
        text = f"<Posterior of {model} by {how}: {' x '.join(map(str, self.shape))} draws"
        if not self.scaler.is_identity:
            text += " on the standardised scale"
        text += f", {self.seconds:.1f} s"
        if cut_short(self.stats):
            text += ", interrupted"
        if self.warnings:
            text += f", {counted(len(self.warnings), 'warning')}"
        return text + ">"

    _repr_html_ = posterior_html.as_html

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
        self, X: Any = None, *, joint: Any = None, seed: int | None = None, **arguments: Any
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

        A user's own program is predicted by ``predict(**arguments)``, which runs it again at each
        draw. An argument that is left out has its default, or is None (not observed). The result
        is a Prediction, or ``{site: Prediction}`` if several sites are unobserved. A discrete
        site that was summed out is drawn given the data of the fit; if its rows are not those of
        the fit, it is drawn from its prior, as is every other site that was not inferred. These
        draws come from ``seed`` (0 by default), several per draw of a short posterior. The
        elements of nested plates are laid out in one row, with those of the last plate adjacent.

        Args:
            X: The new rows [m, d].
            joint: Whether to return one joint distribution over the rows.
            seed: The seed of the draws that a program's prediction needs.
            **arguments: ``noise_sd``, ``offset``, ``trials`` and ``groups`` for a model on a table;
                the arguments of a program.

        Returns:
            A Prediction of m rows; for a program with several unobserved sites, a dictionary.

        Raises:
            DataError: If X has NaN, another number of columns than the training data, or a column
                that is not in the training data, or lacks the offset, trials or groups of the fit.
            UnknownName: If a column is missing.
            NotApplicable: If the model does not take these arguments.
        """
        if not self.data.is_table:
            return predict_program(self, {"X": X, "joint": joint, "seed": seed}, arguments)
        return predict_table(self, X, joint, arguments)

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

    def components(self, X: Any) -> dict[str, Prediction]:
        """Return the distribution of each term of an additive model, in the units of y.

        The means add up to the mean of ``latent`` minus the mean of the model, which belongs to no
        term. The widths of intervals do not add up, because the terms are negatively correlated.

        Args:
            X: The new rows [m, d], as in ``predict``.

        Returns:
            ``{"0 RBF": Prediction, ...}``, one Prediction of m rows per term.

        Raises:
            NotApplicable: If the model is not a sum of terms.
        """
        model = require(self.model, Components)
        rows = model_inputs(self, X)
        with evaluated_at(self, len(rows)):
            terms = model.components(self.theta, rows, self.data)
        return terms_in_data_units(self, terms, rows)

    def loo(self) -> Prediction:
        """Return the leave-one-out predictions of the training rows, in closed form.

        The hyperparameters stay those of the fit to all rows. All rows count as training rows:
        conformal calibration on these predictions guarantees no coverage.

        Raises:
            NotApplicable: If the model does not know these predictions in closed form.
        """
        if is_boosted(self):
            raise NotApplicable(LeaveOneOut.expected, "a boosted posterior", INSTEAD)
        model = require(self.model, LeaveOneOut)
        with torch.no_grad(), limited(self.data.work(self.model)):
            found = model.loo(self.theta, self.data, **kept_for_loo(self))
        prediction = in_data_units(self, found, self.data.X, "loo")
        return replace(prediction, in_training=torch.ones(self.data.n, dtype=torch.bool))

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

        def density(part: dict[str, Tensor]) -> dict[str, Tensor]:
            return self.model.log_likelihood(with_params(self, part), self.data)

        draws = {name: value.flatten(0, 1) for name, value in self.draws.items()}
        kept = kept_for_loo(self)
        with torch.no_grad(), limited(self.data.work(self.model)):
            if kept:
                each = self.model.log_likelihood(self.theta, self.data, **kept)
            else:
                each = in_chunks(density, draws)
        return {k: (v - self.scaler.y_sd.log()).reshape(*self.shape, -1) for k, v in each.items()}

    # methods and properties defined beside their code
    predict_to = predicting_to_files.predict_to
    pathwise = functions.pathwise
    update = updating.update
    one_step_ahead = updating.one_step_ahead
    coefficients = coefficient_table.coefficients
    residuals = row_residuals.residuals
    deviance = property(row_residuals.deviance)
    dispersion_check = row_residuals.dispersion_check
    effects = group_effects.effects
    effects_table = group_effects.effects_table
    to_arviz = arviz_groups.to_arviz
    summary = summary.summary
    log_evidence = property(criteria.log_evidence)
    bic = property(criteria.bic)
    aic = property(criteria.aic)

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
