"""Posterior: what any inference returns; one concrete class for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.arrays import check_inputs, check_noise
from ..data.dataset import Dataset, Scaler, in_order, noise_of
from ..errors import NotApplicable, NotKnown, SettingError
from ..numerics.batching import in_chunks
from ..numerics.threads import limited_by, numbers_in
from ..target.capabilities import (
    Components,
    LatentFunction,
    LeaveOneOut,
    LinearCoefficients,
    PosteriorFunctions,
    ProbitPrediction,
    require,
)
from . import arviz as arviz_bridge
from . import arviz_groups, storage
from .prediction import Prediction
from .provenance import ProgramRows, of_table
from .summary import cut_short, draws_in, scale_of, table_of

__all__ = ["Posterior"]


def _work(posterior: Posterior, X: Any = None, *_: Any, **arguments: Any) -> float:
    """About how many multiplications it takes to condition on the training rows and look at the rows of X."""
    model, data = posterior.model, posterior.data
    if not isinstance(data, Dataset):
        return model.work(numbers_in({**data, **arguments}))
    try:
        rows = len(X)
    except (TypeError, RuntimeError):  # no table; what it is instead is said by predict
        rows = 1
    return model.work(data.n, data.d) * max(1.0, rows / data.n)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of every uncertain site, and the model and data they are conditional on.

    Attributes:
        model: the prepared recipe (or the wrapped program).
        data: the training data on the scale that the model saw.
        draws: ``{site: [chain, draw, *event]}`` on the natural scale, always filled; MAP is one draw.
        params: ``{name: tensor}``, what was optimised rather than inferred.
        stats: what the inference recorded; entries of shape [chain, draw] become ArviZ's sample_stats. ``interrupted``: whether
            Ctrl-C ended the search before its time.
        how: the inference record that made it.
        seconds: wall time, compiling included.
        warnings: sentences on what went badly; an inference that went badly returns, with warnings.
        scaler: how the data of the user became ``data`` (None: untouched). Draws are on the scaled side; see ``draws_in``.
        recipe: the model as it was given to ``fit``, before it was made ready for these rows: what a fit to other rows starts from.
            None for a program, and where it is not known.
        also_seen: other tables (or arguments of a program) that the fit owes something to: those of ``init=``, and those on which
            numbers or networks of the recipe were found. Their rows count as seen too.
    """

    model: Any
    data: Any
    draws: dict[str, Tensor]
    how: Any
    params: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    scaler: Scaler | None = None
    recipe: Any = None
    also_seen: tuple[Any, ...] = ()

    @property
    def chains(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """How many chains, and draws in each; (1, 1) where all hyperparameters are numbers."""
        chains, draws = next(iter(self.draws.values())).shape[:2] if self.draws else (1, 1)
        return chains, draws

    @property
    def certain(self) -> bool:
        """Whether all hyperparameters are numbers, so that there was nothing to search."""
        return not self.draws and self.stats.get("parameters") == 0

    @property
    def mcmc(self) -> bool:
        """Whether the draws come from Markov chains, so that R-hat and ESS mean something."""
        return bool(self.draws) and bool(getattr(self.how, "chains", 0))

    @property
    def circular(self) -> tuple[str, ...]:
        """The sites that are angles."""
        return tuple(self.stats.get("circular", ()))

    @property
    def theta(self) -> dict[str, Tensor]:
        """``{site: [chain * draw, *event]}`` and the params, as models take them."""
        return {**self.params, **{k: v.reshape(-1, *v.shape[2:]) for k, v in self.draws.items()}}

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        problems = (
            f", {len(self.warnings)} warning{'s' if len(self.warnings) > 1 else ''}"
            if self.warnings
            else ""
        )
        scale = "" if self.scaler is None else " on the standardised scale"
        name, how = type(self.model).__name__, type(self.how).__name__
        cut = ", interrupted" if cut_short(self.stats) else ""
        return f"<Posterior of {name} by {how}: {shape} draws{scale}, {self.seconds:.1f} s{cut}{problems}>"

    def _new_rows(self, X: Any) -> Tensor:
        names = self.data.feature_names
        X = in_order(X, names, self.data.target_name, self.data.noise_name)
        X = check_inputs(
            X, names if names and len(names) == getattr(X, "shape", (0, 0))[-1] else None
        ).to(self.data.X)
        if self.scaler is not None:
            return self.scaler.inputs(X)
        return Scaler.of(self.data, scale_X=False, scale_y=False).inputs(
            X
        )  # checks the number of columns

    def _prediction(self, law: Any, X: Tensor) -> Prediction:
        offset, scale = (
            (0.0, 1.0) if self.scaler is None else (self.scaler.y_mean, self.scaler.y_sd)
        )
        return Prediction(
            law,
            offset,
            scale,
            self.data.classes,
            of_table(X, self.data, self.scaler, self.also_seen),
        )

    @limited_by(_work)
    def probit(self, X: Any) -> Prediction:
        """The law of a binary y with the logits taken as Gaussian over the draws: no average over draws is needed.

        Raises:
            NotApplicable: if the model is not a logistic regression.
        """
        model = require(self.model, ProbitPrediction)
        rows = self._new_rows(X)
        with torch.no_grad():
            return self._prediction(model.probit(self.theta, rows), rows)

    @limited_by(_work)
    def predict(
        self, X: Any = None, *, joint: Any = None, seed: int | None = None, **arguments: Any
    ) -> Any:
        """The law of y at rows X [m, d], in the units of the data; ``joint=True``: one joint law over the rows.

        X is an array, or a DataFrame or a Dataset, which are read by their columns' names where the fit has names, one-hot columns
        included: in any order, with the target too, which is not looked at.

        The noise in this law is what the model has estimated. Noise that is known of the new rows is added where it is given:
        ``noise_sd=`` (a number or [m], in the units of y), or that of a Dataset. After a fit to known noise alone
        (``GP(noise=0)``) the law without it is that of f. A DataFrame has it in the column that the fit had it in, if there is one.

        For a user's own program: ``predict(**arguments)`` runs it again at each draw; an argument left out has its default, or is
        None (not observed), and the answer is a Prediction (``{site: Prediction}`` where several sites are unobserved). A discrete
        site that was summed out is drawn given the data of the fit; one of rows that are not those of the fit from its prior, as
        every other site that was not drawn. Those draws come from ``seed`` (0), several for each draw of a short posterior.
        The places of plates within plates are laid end to end, the last plate's side by side.

        Raises:
            DataError: if X has NaN, another number of columns than the training data, or a column that the fit has not seen.
            UnknownName: if a column is missing.
            NotApplicable: for arguments or known noise that this model does not take.
        """
        if not isinstance(self.data, Dataset):
            own = self.model.arguments(self.data)
            if X is not None and "X" not in own:
                raise NotApplicable(
                    "the program's own arguments by name",
                    "one table",
                    "call predict(name=value, ...)",
                )
            for name, value in (("X", X), ("joint", joint), ("seed", seed)):
                if name in own and value is not None:
                    arguments[name] = value
            number = 0 if "seed" in own or seed is None else seed
            theta = self._every(self.theta)
            found = self.model.predict(theta, arguments, self.data, number)
            laws = {name: Prediction(law) for name, law in found.items()}
            rows = ProgramRows(
                self.model.function,
                {k: v[0] for k, v in theta.items()},
                self.data,
                arguments,
                self.also_seen,
            )
            predictions = {
                name: replace(law, in_training=rows.at(name, len(law)))
                for name, law in laws.items()
            }
            return predictions if len(predictions) > 1 else next(iter(predictions.values()))
        noise_sd = arguments.pop("noise_sd", None)
        if arguments:
            raise NotApplicable(
                "X, joint and noise_sd",
                ", ".join(arguments),
                "a program alone has arguments of its own",
            )
        if noise_sd is None:
            noise_sd = noise_of(X, self.data.noise_name)
        rows = self._new_rows(X)
        with torch.no_grad():
            law = self.model.predict(
                self.theta, rows, self.data, joint=bool(joint), **self._known(noise_sd, rows)
            )
        return self._prediction(law, rows)

    def _known(self, noise_sd: Any, rows: Tensor) -> dict[str, Tensor]:
        """The argument ``noise_sd`` of the model for new rows [m, d], on its scale; {} where nothing is known."""
        if noise_sd is None:
            return {}
        if not self.model.known_noise:
            name = type(self.model).__name__
            raise NotApplicable(
                "a model that takes known noise", name, "use GP or Kriging, or leave noise_sd out"
            )
        sd = check_noise(noise_sd, len(rows), rows)
        return {"noise_sd": sd if self.scaler is None else sd / self.scaler.y_sd}

    @limited_by(_work)
    def latent(self, X: Any) -> Prediction:
        """The law of f(x), without the noise of y, in the units of the data.

        Raises:
            NotApplicable: if the model has no latent function.
        """
        model = require(self.model, LatentFunction)
        rows = self._new_rows(X)
        with torch.no_grad():
            return self._prediction(model.latent(self.theta, rows, self.data), rows)

    @limited_by(_work)
    def pathwise(
        self, samples: int = 100, *, features: int | None = 1024, seed: int = 0
    ) -> Callable[[Any], Tensor]:
        """Functions f of the posterior, drawn once, to be evaluated anywhere: X [m, d] -> [samples, m], in the units of the data.

        Args:
            samples: how many functions; each belongs to a draw of the hyperparameters at random.
            features: random Fourier features of each prior function (mean and covariance are right for any number, normality with
                many); None: the exact prior, its cost cubic in all the rows ever asked for.

        Raises:
            NotApplicable: if the model has no such functions, or its kernel no spectral law (then ``features=None``).
        """
        if samples < 1 or (features is not None and features < 1):
            raise SettingError(
                "positive samples and features",
                f"{samples} and {features}",
                "for example 100 and 1024",
            )
        model = require(self.model, PosteriorFunctions)
        with torch.no_grad():
            paths = model.pathwise(
                self.theta, self.data, samples, features, torch.Generator().manual_seed(seed)
            )
        offset, scale = (
            (0.0, 1.0) if self.scaler is None else (self.scaler.y_mean, self.scaler.y_sd)
        )

        def evaluate(X: Any) -> Tensor:
            rows = self._new_rows(X)
            with torch.no_grad():
                return offset + scale * paths(rows)

        return evaluate

    @limited_by(_work)
    def components(self, X: Any) -> dict[str, Prediction]:
        """The law of each term of an additive model, ``{"0 RBF": Prediction, ...}``, in the units of y.

        Means add up to that of ``latent`` less the constant mean, which is in no term. Bands do not add up: what one term takes,
        another lacks.

        Raises:
            NotApplicable: if the model is no sum of terms.
        """
        model = require(self.model, Components)
        rows = self._new_rows(X)
        with torch.no_grad():
            laws = model.components(self.theta, rows, self.data)
        scale = 1.0 if self.scaler is None else self.scaler.y_sd
        origin = of_table(rows, self.data, self.scaler, self.also_seen)
        return {name: Prediction(law, 0.0, scale, None, origin) for name, law in laws.items()}

    @limited_by(_work)
    def loo(self) -> Prediction:
        """Leave-one-out predictions of the training rows in closed form (hyperparameters as fitted on all of them).

        All of them count as seen by the fit: calibrated on them, no coverage is guaranteed.

        Raises:
            NotApplicable: if the model does not know them in closed form.
        """
        model = require(self.model, LeaveOneOut)
        with torch.no_grad():
            law = self._prediction(model.loo(self.theta, self.data), self.data.X)
        return replace(law, in_training=torch.ones(self.data.n, dtype=torch.bool))

    def log_likelihood(self) -> Tensor | dict[str, Tensor]:
        """log p(y_i given the draw), pointwise [chain, draw, n], in the units of the data.

        All draws at once, in chunks of ``chunks.MEMORY_BUDGET`` bytes. For a joint likelihood (an exact GP) it is
        log p(y_i given the other rows, and the draw): the closed-form leave-one-out density. A program with several
        observed sites gives ``{site: [chain, draw, n]}``.
        """
        each = self.pointwise()
        return next(iter(each.values())) if len(each) == 1 else each

    @limited_by(_work)
    def pointwise(self) -> dict[str, Tensor]:
        """``log_likelihood`` by observed site, ``{site: [chain, draw, n]}``, however many there are."""
        draws = {name: value.flatten(0, 1) for name, value in self.draws.items()}
        with torch.no_grad():
            each = in_chunks(
                lambda part: self.model.log_likelihood(self._every(part), self.data), draws
            )
        shift = 0.0 if self.scaler is None else self.scaler.y_sd.log()
        return {k: (v - shift).reshape(*self.shape, -1) for k, v in each.items()}

    def _every(self, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The draws and the params; a program is run draw by draw, so each draw gets a copy of the params."""
        if isinstance(self.data, Dataset):
            return {**self.params, **draws}
        size = next(len(v) for k, v in draws.items() if k not in self.params)
        return {
            **{k: v.expand(size, *v.shape) for k, v in self.params.items()},
            **{k: draws[k] for k in self.draws},
        }

    @property
    def log_evidence(self) -> float:
        """log p(y), in the units of the data.

        With ``Flat`` priors it is the integral against density 1 on the scale of the model, and another number on another scale: a
        flat bias that was standardised takes log(y_sd) off what it is with ``standardise=False``. Compare models on one scale.

        Raises:
            NotApplicable: if the method that made this posterior does not know it.
        """
        if "log_evidence" not in self.stats:
            raise NotKnown(
                "a method that knows the evidence",
                type(self.how).__name__,
                "fit by Laplace or Exact",
            )
        return float(self.stats["log_evidence"]) - self._log_units()

    @property
    def bic(self) -> float:
        """-2 log L + k log n at the mode, the usual sign and scale: smaller is better. Schwarz (1978); k counts free numbers.

        L is the likelihood at the fitted mode: the maximum of the likelihood itself where priors are ``Flat``.

        Raises:
            NotApplicable: if the posterior was not made by MAP or Laplace, or nothing is observed.
        """
        log_likelihood, k, n = self._at_the_mode("bic")
        return -2 * log_likelihood + k * math.log(n)

    @property
    def aic(self) -> float:
        """-2 log L + 2 k at the mode, the usual sign and scale: smaller is better. Akaike (1974).

        Raises:
            NotApplicable: if the posterior was not made by MAP or Laplace, or nothing is observed.
        """
        log_likelihood, k, _ = self._at_the_mode("aic")
        return -2 * log_likelihood + 2 * k

    def _at_the_mode(self, what: str) -> tuple[float, int, int]:
        if "log_likelihood" not in self.stats:
            raise NotKnown(
                f"a mode to compute the {what} at", type(self.how).__name__, "fit by MAP or Laplace"
            )
        figures = self.stats
        if not figures["observations"]:
            do = "write the law of the data as pyro.sample(..., obs=)"
            raise NotKnown(
                f"observed sites to compute the {what} of",
                "none, as in a program of pyro.factor alone",
                do,
            )
        return (
            float(figures["log_likelihood"]) - self._log_units(),
            int(figures["parameters"]),
            int(figures["observations"]),
        )

    def _log_units(self) -> float:
        """What a log density of y loses on the way from the scale of the model to the units of the data."""
        return 0.0 if self.scaler is None else self.data.n * float(self.scaler.y_sd.log())

    def coefficients(self) -> dict[str, Tensor]:
        """Weights and bias in the units of the data, ``{name: [chain, draw, ...]}``.

        Raises:
            NotApplicable: if the model is not linear.
        """
        return require(self.model, LinearCoefficients).coefficients(
            self.draws, self.scaler, self.data.X
        )

    def to_arviz(
        self,
        *,
        prior: int | Mapping[str, Any] = 0,
        predictive: bool = False,
        log_likelihood: bool = True,
        coords: Mapping[str, Any] | None = None,
        dims: Mapping[str, Any] | None = None,
        seed: int = 0,
        units: str = "model",
    ) -> Any:
        """ArviZ's object: InferenceData on 0.x, DataTree on 1.x.

        Groups: posterior, sample_stats, log_likelihood, observed_data, constant_data; on request prior, prior_predictive and
        posterior_predictive. Axes are named after the program's plates (own axes of a site follow), after features, classes
        and components. Draws are on the scale of the model, or as ``draws_in`` gives them with ``units="data"``, and
        ``attrs["units"]`` says which; data, log densities and replicates are in the units of the data. ``attrs["draws"]`` says "chains" or "independent": R-hat and ESS mean something only for the former.

        Args:
            prior: how many draws from the prior, or ``{site: [draw, ...]}``, one's own.
            predictive: whether to draw data again at the training rows, once a draw.
            log_likelihood: whether to compute it, pointwise; leave-one-out needs it.
            coords, dims: names in place of those found, as ``arviz.from_pyro`` takes them.
            seed: of prior and replicates.
            units: of the draws from posterior and prior: "model" or "data".

        Raises:
            NotApplicable: if prior draws are wanted from a flat prior.
            SettingError, UnknownName, DataError: if an option, an axis or the length of its coords is wrong.
        """
        groups, found, axes = arviz_groups.collected(
            self, log_likelihood, predictive, prior, coords, dims, seed, units
        )
        kind = "chains" if self.mcmc else "independent"
        attrs = {
            "inference_library": "ppgp",
            "inference": repr(self.how),
            "sampling_time": self.seconds,
            "draws": kind,
        }
        _, left = draws_in(units, self.draws, self.model, self.scaler)
        attrs |= {"units": scale_of(units, self.scaler), "standardised": ", ".join(left)}
        return arviz_bridge.to_arviz(groups, found, axes, attrs)

    def draws_in(self, units: str = "data") -> dict[str, Tensor]:
        """``draws`` in the units of the data (or, "model", as they are). One length for columns that were scaled one by one is one
        a column, [chain, draw, d]. What has no equivalent (the angle of an anisotropy among such columns, the weights of a network)
        stays on the standardised scale, and ``summary`` marks it. Numbers of kernels that know where X = 0 is (``Linear``,
        ``Polynomial``, ``LinearVariogram``) are those of the kernel at X less the mean of its training rows."""
        return draws_in(units, self.draws, self.model, self.scaler)[0]

    def summary(self, units: str = "model") -> Any:
        """A pandas DataFrame, one row a scalar: mean, sd, 5 %, 50 %, 95 %; for chains also MCSE and ESS, for several R-hat.

        Args:
            units: "model" (the scale that the model saw) or "data"; the name of the index says which (and "interrupted", of a
                search that Ctrl-C ended before its time), and "(standardised)" marks draws that have no equivalent in the units of the data.

        Figures of an angle are about its circular mean, so that they may pass pi; its R-hat and effective numbers of draws are
        the worse of its cosine's and its sine's.
        """
        draws, left = draws_in(units, self.draws, self.model, self.scaler)
        title = scale_of(units, self.scaler) + (", interrupted" if cut_short(self.stats) else "")
        return table_of(draws, left, title, self.chains if self.mcmc else 0, self.circular)

    def r_hat(self) -> dict[str, float]:
        """Rank-normalised split R-hat of every scalar, ``{name: value}``. Vehtari et al. (2021).

        Raises:
            NotApplicable: if the draws are independent, or come from one chain: there is nothing to compare.
        """
        if not self.mcmc:
            name = type(self.how).__name__
            raise NotApplicable(
                "Markov chains for R-hat",
                f"independent draws by {name}",
                "ask ppgp.diagnose, which judges them by k-hat",
            )
        if self.chains < 2:
            raise NotApplicable(
                "at least two chains for R-hat", "one", "run more, for example NUTS(chains=4)"
            )
        return {str(name): float(value) for name, value in self.summary()["r_hat"].items()}

    def save(self, path: str | Path) -> Path:
        """Write everything to one file (safetensors + JSON, with a checksum); read it back with ``ppgp.load_posterior``.

        A program, a guide, a torch module or a class of one's own stands in it by name, and is passed again to read it.

        Raises:
            StorageError: for what would not come back: an argument of a program that is no number, text, array, tensor, list or
                mapping of them; two functions of one name; a path that cannot be written, or a disk that is full.
        """
        return storage.save(path, self)
