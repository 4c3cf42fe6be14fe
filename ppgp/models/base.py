"""The base classes of models, and helpers that several models share."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, ClassVar, TypeVar, cast

import pyro
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..arguments import Elsewhere, check_names_of_arguments, named_arguments
from ..data.dataset import Dataset, Scaler, of_all_ranks
from ..data.training_data import Rows
from ..display.overrides import computed, set_attributes
from ..display.tables import record_page
from ..errors import (
    DataError,
    NotApplicable,
    NumericalError,
    SettingError,
    UnknownName,
    an,
    counted,
)
from ..likelihoods import Bernoulli, Likelihood, StudentT
from ..likelihoods.target_checks import FOR_REGRESSION, distinct
from ..priors import (
    Param,
    Prior,
    Site,
    in_units_of_data,
    refuse_negative,
    value_of,
    with_plain_fields,
)
from ..runtime.process_locks import one_at_a_time
from .independent_rows import observed, predicted
from .sites import Theta, draw

M = TypeVar("M", bound="Model")
LEVELS = ("noise", "nugget", "variance")  # positive quantities that models have as fields
#: methods and properties that a user calls; all others are hooks, which this library calls
FOR_USERS = (
    "candidates",
    "covariance",
    "distribution",
    "from_formula",
    "log_evidence",
    "log_likelihood",
    "loo",
    "model",
    "predict",
    "responsibilities",
    "sites",
    "trend",
)
PACKAGE = __name__.partition(".")[0]


def _for_the_team(prepare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a ``prepare`` of a model that sees the rows of the whole team, as in ``fit``."""

    @wraps(prepare)
    def prepared(self: Any, data: Any) -> Any:
        team = getattr(data, "team", None)
        if team is not None and not team.alone:
            data = of_all_ranks(data) if self.rows_on_every_rank else data.shared
        return prepare(self, data)

    return prepared


@named_arguments
class Model:
    """A recipe: the priors and the structure of a model before it meets data.

    A recipe is a frozen dataclass. It holds no training data, no mode and no fitted tensors, and
    ``model`` is a program that plain Pyro accepts (Bingham et al. 2019).

    A new model defines ``sites``. Where its rows are independent given theta it also defines
    ``distribution``; otherwise it defines ``model`` and ``predict``. Throughout, theta is
    ``{site: [draw, *event]}``. A feature that only some models have is an abstract class in
    ``capabilities.gaussian_processes``, which these models also inherit.

    Attributes:
        scales: What ``fit`` may standardise: "Xy", "X" (counts and classes), "y" (no inputs) or ""
            (the units have a meaning).
        known_noise: Whether ``Dataset.noise_sd`` is part of the distribution of y. Then ``model``
            takes the ``noise_sd`` [n] of its rows by that name, and ``predict`` and ``gaussian``
            that of new rows [m].
        keeps_factor: Whether ``predict`` and ``latent`` take ``kept``, a ResultCache by which the
            predictions of one posterior share the factor of the covariance of the training rows.
        loo_keeps_factor: Whether ``loo`` and ``log_likelihood`` take ``kept`` too. They then
            divide the draws into chunks themselves.
        own_method: The method of ``fit`` without ``how``, a name of ``inference.fitting.fit``; "":
            NUTS up to ``sampled_rows`` rows (some ten minutes), and Laplace past them.
        sampled_rows: See ``own_method``; None: there is no limit.
        guide: A Pyro guide that belongs to the model, a method with the arguments of ``model``;
            None: SVI takes an autoguide.
        takes_missing: Whether X may hold NaN, a missing value (``Dataset(missing="keep")``).
        takes_censored: Whether targets may be right-censored (``Dataset(right_censored=)``). Then
            ``model`` takes their flags by that name.
        roles: The other columns with roles that ``model`` takes by name (``ppgp.data.roles``), such
            as "offset"; ``takes_role`` tells all of them. ``predict`` and ``distribution`` take
            those of their rows by name.
        takes_stream: Whether rows are independent given theta, so that some of them estimate the
            density of all, and ``prepare`` needs no more than a sample (``ppgp.stream``).
        takes_categories: Whether columns of X may hold codes of categories
            (``Dataset(categorical=)``).
        collapsed: Sites that ``predict`` integrates out in closed form if the params of their
            distribution exist.
        latent_values: Sites that hold the values of a latent function. Their joint mode with
            their hyperparameters is a poor fit.
        one_mode: Whether the posterior density has one mode under the usual priors of the model.
        density_at_numbers: What the density of y is where all hyperparameters are fixed numbers:
            "log_evidence", "elbo" (a lower bound on it), or None.
        joint_rows: Whether y has one joint distribution given theta, and no row can count twice.
        inputs_are_places: Whether the columns that ``covariance`` reads are places in one space,
            whose distances have a meaning, also where ``Dataset(coordinates=)`` names none.
        sums_over_team: Whether ``model`` takes the ``team`` whose ranks hold the rows, and adds up
            over it the sums over rows that its density depends on. Without it the density of a
            team is the mean over the ranks.
        rows_on_every_rank: Whether a row depends on any other, so that each rank of a team has the
            rows of all, and the ranks divide the work. ``model`` takes the ``team`` here too.
        survey: How many rows suffice to find out which sites the program has; None: it needs all
            rows at once, because their distribution is joint.
        given: The recipe that ``prepare`` made this one from, from which any fit to other rows
            starts; None: this one.
        made_for: The rows that ``prepare`` made this recipe ready for, on their scale, and the
            Scaler of that scale; None: it was not prepared.
        structural: Prefixes of the names of sites that describe the structure of a fit, such as the
            splits of trees, and are not summarised.
        standardised: Whether numbers and inducing inputs are already on the scale of the model, as
            in the recipe of a posterior. ``fit`` then leaves them unchanged.

    Raises:
        UnknownArgument: From the constructor of every model, for an argument that it does not have.
        SettingError: From the constructor, for a negative noise, nugget or variance; from ``fit``,
            for a prior or number that is none, or a number in the units of the data if the model
            does not define ``in_units``.

    Examples:
        >>> from dataclasses import dataclass
        >>> import ppgp, torch
        >>> from ppgp import inference, models, priors
        >>> @dataclass(frozen=True, repr=False)
        ... class Decay(models.Model):
        ...     rate: priors.PriorLike = priors.LogNormal(0.0, 1.0)
        ...     scales = ""  # nothing is standardised
        ...     def sites(self, d):
        ...         return {"rate": priors.site("rate", self.rate, positive=True)}
        ...     def distribution(self, theta, X):
        ...         rate = self.value(theta, "rate", X)[..., None]  # [*draw, 1]
        ...         return torch.distributions.Normal(torch.exp(-rate * X[:, 0]), 0.01)
        >>> X = torch.linspace(0, 2, 9, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, torch.exp(-0.7 * X[:, 0]))
        >>> posterior = ppgp.fit(Decay(), data, inference.MAP(), progress=False)
        >>> posterior.theta["rate"].numpy().round(3)  # per unit of x
        array([0.7])
        >>> posterior.predict([[1.0], [3.0]]).mean.numpy().round(2)
        array([0.5 , 0.12])
    """

    scales: ClassVar[str] = "Xy"
    known_noise: ClassVar[bool] = False
    keeps_factor: ClassVar[bool] = False
    loo_keeps_factor: ClassVar[bool] = False
    own_method: str = ""
    sampled_rows: ClassVar[int | None] = None
    guide: Any = None
    takes_missing: bool = False
    takes_censored: bool = False
    takes_categories: bool = False
    takes_stream: ClassVar[bool] = False
    roles: ClassVar[tuple[str, ...]] = ()
    collapsed: ClassVar[tuple[str, ...]] = ()
    latent_values: ClassVar[tuple[str, ...]] = ()
    one_mode: ClassVar[bool] = False
    density_at_numbers: str | None = "log_evidence"
    joint_rows: ClassVar[bool] = False
    inputs_are_places: ClassVar[bool] = False
    sums_over_team: ClassVar[bool] = False
    rows_on_every_rank: ClassVar[bool] = False
    survey: int | None = None
    structural: ClassVar[tuple[str, ...]] = ()
    given: ClassVar[Model | None] = None
    made_for: ClassVar[tuple[Dataset, Scaler] | None] = None
    standardised = False

    def __post_init__(self) -> None:
        """Convert and check the numbers; a subclass's ``__post_init__`` calls this first."""
        with_plain_fields(self)
        for name in LEVELS:
            given = getattr(self, name, None)
            if given is not None and not isinstance(given, Prior):
                refuse_negative(name, given)

    def __repr__(self) -> str:
        names = [f.name for f in fields(cast(Any, self)) if f.repr]
        if not self.standardised and "standardised" in names:
            names.remove("standardised")
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({options})"

    def _repr_html_(self) -> str:
        return record_page(self, Prior)

    def __dir__(self) -> list[str]:
        return _names_for_users(self, super().__dir__())

    @property
    def takes_labels(self) -> bool:
        """Whether y may be labels of classes."""
        return "y" not in self.scales

    @property
    def two_classes(self) -> bool:
        """Whether labels can only be those of two classes."""
        return isinstance(getattr(self, "likelihood", None), Bernoulli)

    @property
    def several_modes(self) -> bool:
        """Whether heavy tails of its likelihood, or its kernel, give the density several modes."""
        of_kernel = getattr(self.covariance, "several_modes", False)
        return of_kernel or isinstance(getattr(self, "likelihood", None), StudentT)

    @property
    def covariance(self) -> Any:
        """The kernel of the latent function; None if there is none."""
        return getattr(self, "kernel", None)

    def covariance_columns(self, d: int) -> list[int]:
        """Return the numbers of the d columns of X that ``covariance`` reads."""
        return list(range(d))

    def takes_role(self, name: str) -> bool:
        """Return whether the model uses a column of a Dataset besides X and y.

        Args:
            name: "noise_sd", "right_censored", "offset", "trials", "weights", "groups" or "ids".
        """
        own = {"noise_sd": self.known_noise, "right_censored": self.takes_censored, "ids": True}
        return own.get(name, name in self.roles)

    def sites(self, d: int) -> Mapping[str, Site | Param]:
        """Return {name: site} for inputs with d columns."""
        raise NotImplementedError

    def sites_at(self, d: int) -> Mapping[str, Site | Param]:
        """Return ``sites(d)``, which is built and checked once per d, as a recipe never changes."""
        built: dict[int, Mapping[str, Site | Param]] = vars(self).setdefault("_sites_at", {})
        if d not in built:
            built[d] = self.sites(d)
        return built[d]

    def in_units(self, scaler: Scaler) -> Model:
        """Return this recipe on the scale that ``scaler`` gives the data.

        Numbers, and priors inside ``InUnitsOfData``, are in the units of the data and are
        converted. Other priors are already on the scale of the model.

        Raises:
            SettingError: If a number or prior has no equivalent on that scale, or if the model
                does not define the units of its sites.
        """
        prior_fields = []
        if is_dataclass(self):
            prior_fields = [f.name for f in fields(self) if "PriorLike" in str(f.type)]
        in_data_units = [name for name in prior_fields if in_units_of_data(getattr(self, name))]
        if in_data_units and not scaler.is_identity:
            raise SettingError(
                f"{an(type(self).__name__)} that defines the unit of {in_data_units[0]}",
                "no method in_units",
                "write in_units for it, or pass standardise=False to fit",
            )
        return self

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        """Return the draws in the units of the data.

        Args:
            draws: {site: [chain, draw, *event]} on the scale of the model.
            scaler: The Scaler that standardised the data.

        Returns:
            {site: [chain, draw, *event]}; None for a site that has no equivalent in those units.
        """
        return dict.fromkeys(draws)

    def for_method(self, how: Any) -> Model:
        """Return this recipe in the form that suits an inference method."""
        return self

    def prepare(self, data: Dataset) -> Model:
        """Return this recipe made ready for these data; raise if the data do not suit it.

        In a team these are the rows of all processes, or a sample of them that all have alike, so
        that every process has the same recipe. All of them call it.
        """
        return self

    def start(self, data: Any) -> dict[str, Tensor]:
        """Return {site: value} where an optimiser or a chain starts.

        Here these are the values that sites define themselves, such as the weights of a network,
        for which 0 is a saddle point. A site that is left out starts near the origin of the
        unconstrained scale.
        """
        sites = self.sites_at(data.d)
        given = {name: s.start for name, s in sites.items() if isinstance(s, Site)}
        return {name: value for name, value in given.items() if value is not None}

    def step_scales(self, theta: Theta) -> dict[str, Tensor]:
        """Return {param: the typical step of each of its coordinates} near one draw theta.

        The step of a param that is left out is 1.
        """
        return {}

    def chunked(self, data: Any) -> bool:
        """Return whether the density visits the rows in chunks too large to gain from compiling."""
        return False

    def batch(self, data: Any, rows: Rows) -> tuple[Tensor, ...]:
        """Return what ``model`` reads of a mini-batch: inputs, targets and columns of the rows."""
        return data.tables(rows)

    def check_fit(self, theta: Theta, data: Any) -> list[str]:
        """Return warnings about the fitted model theta; [] if there are none."""
        return []

    def fit_stats(self, theta: Theta, data: Any) -> dict[str, float]:
        """Return what the fitted model theta adds to the stats of its posterior; {} if nothing."""
        return {}

    def check_identifiability(self, data: Any) -> list[str]:
        """Return warnings about what these data cannot determine under these priors."""
        return []

    def relabel(self, draws: dict[str, Tensor]) -> tuple[dict[str, Tensor], str | None]:
        """Make the labels of exchangeable components comparable between draws.

        Args:
            draws: {site: [chain, draw, *event]}.

        Returns:
            The relabelled draws, and a warning if labels switched within a chain, else None.
        """
        return draws, None

    def work(self, n: int, d: int) -> float:
        """Return the approximate number of multiplications in one evaluation of the density.

        The number of threads depends on it (``runtime.threads``), so the order of magnitude is
        enough: each number of a site counts once per row, and that of a convolution once per
        pixel.

        Args:
            n: Number of rows.
            d: Number of columns of X.
        """
        shapes = [s.shape for s in self.sites_at(d).values()]
        return n * (d * d + sum(math.prod(s) * (d if len(s) == 4 else 1) for s in shapes))

    def check_storable(self) -> None:
        """Check that a file can hold a fit of this model; raise NotApplicable if none can."""

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that one evaluation of the density and its gradient on n rows at once fits.

        Args:
            n: Number of rows.
            d: Number of columns of X.
            like: A tensor with the dtype and the device of the computation.

        Raises:
            NotEnoughMemory: If it does not fit into memory. This base class never raises it.
        """

    fit = Elsewhere("ppgp.fit(model, ppgp.Dataset(X, y))")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "prepare" in vars(cls):
            own: Any = cls
            own.prepare = _for_the_team(vars(cls)["prepare"])

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        """Return the likelihood per row: the distribution of y given theta, batch [*draw, n]."""
        raise NotImplementedError

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        """Run the Pyro program of the model.

        A model with ``known_noise`` also takes the ``noise_sd`` [n] of these rows, and others take
        the columns of their ``roles``, such as how often each row counts, ``weights`` [n].

        Args:
            X: Inputs [n, d].
            y: Targets [n]; None: they are drawn.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.

        Returns:
            The targets [n].
        """
        theta = draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X), X, y, total)

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        """Return the predictive distribution of y at X for each draw of theta.

        A model with ``known_noise`` also takes the ``noise_sd`` [n] of these rows, one that
        ``keeps_factor`` takes ``kept``, where that factor is kept between predictions, and others
        take the columns of their ``roles``.

        Args:
            theta: {site: [draw, *event]}.
            X: Inputs [n, d].
            train: The training rows.
            joint: Whether the rows are predicted jointly.

        Returns:
            A distribution of batch [draw, n]; if ``joint``, of batch [draw] and event [n].
        """
        return predicted(self.distribution, theta, X, joint)

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {"y": log p(y_i given theta), [draw, n]}."""
        predictive = self.predict(theta, data.X, data, **data.for_prediction)
        return {"y": predictive.log_prob(data.y)}

    def log_evidence(self, data: Dataset, values: Mapping[str, Any] | None = None) -> float:
        """Return log p(y given values of the hyperparameters), in the units of the data.

        Priors do not enter it, and nothing is standardised or fitted: it is the log marginal
        likelihood that maximum likelihood of type II maximises. Rasmussen & Williams (2006),
        equation 5.8, for a Gaussian process. A drift of Kriging and Vecchia is integrated out under
        a flat prior on the units of y. Where a likelihood is not Gaussian, f is integrated out by
        the approximation of the model. Linear models have all their coefficients among the values.

        Args:
            data: The rows, in the units of the data.
            values: ``{site: value}`` for every site with a prior, such as ``{"kernel.lengthscale":
                2.0, "kernel.variance": 1.0, "noise": 0.1}``, in the units of the data: the names
                are those of ``posterior.draws``. ``posterior.draws_in("data")`` of a single draw is
                such a dictionary, save that one lengthscale of standardised columns is one per
                column there, which ``ARD`` takes. Sites that the recipe fixes to numbers have
                these.

        Returns:
            The log density of y.

        Raises:
            DataError: If ``data`` is no Dataset, or does not suit the model.
            UnknownName: If the model has no site of a name.
            SettingError: If a value is missing, of another shape, or not allowed.
            NotApplicable: If the model does not know its evidence, such as SGPR, whose density is a
                lower bound, and SVGP and networks, whose params are optimised.
        """
        if not isinstance(data, Dataset):
            wanted = f"a Dataset for {type(self).__name__}"
            raise DataError(wanted, an(type(data).__name__), "use ppgp.Dataset(X, y)")
        recipe = self.given or self
        if recipe.density_at_numbers != "log_evidence":
            raise _no_evidence(self, "a bound on it, or another density")
        prepared = recipe.prepare(data)
        sites = prepared.sites_at(data.d)
        if any(isinstance(one, Param) for one in sites.values()):
            raise _no_evidence(self, "params that a fit optimises")
        free = {name: s for name, s in sites.items() if isinstance(s, Site) and not s.fixed}
        if free.keys() & set(prepared.latent_values):
            raise _no_evidence(self, "f as a site, which only draws integrate out")
        chosen = _checked_values(dict(values or {}), free, data.X)
        arguments, named = data.passed()

        def is_data(name: str, node: Any) -> bool:
            return name not in chosen and bool(node["is_observed"])

        with one_at_a_time(), torch.no_grad(), pyro.validation_enabled(False):
            conditioned = pyro.poutine.condition(prepared.model, data=chosen)
            trace = pyro.poutine.trace(conditioned).get_trace(*arguments, **named)
            trace.compute_log_prob(is_data)
        of_data = [n for n in trace.nodes.values() if "log_prob_sum" in n]
        return float(sum(node["log_prob_sum"] for node in of_data))

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """Return theta[name], or the number that this recipe fixes the field ``name`` to."""
        if name in theta:
            return theta[name]
        prior = getattr(self, name)
        if prior is None:
            prior = 0.0
        return value_of(theta, name, prior, like)

    def made_from(self: M, recipe: Model, rows: tuple[Dataset, Scaler] | None) -> M:
        """Record the recipe that this one was prepared from, and the rows that it was made for.

        The record, ``given`` and ``made_for``, is outside the fields of the dataclass, so ``==``
        ignores it.

        Args:
            recipe: The recipe that this one was made from.
            rows: The training rows on their scale, and the Scaler of that scale.

        Returns:
            This recipe itself.
        """
        if self is not recipe:
            vars(self).update(given=recipe.given or recipe, made_for=rows)
        return self


class AnyLikelihood(Model):
    """A model with a field ``likelihood``, which decides about the scale and the labels of y."""

    likelihood: Likelihood

    def _scales(self) -> str:
        """What ``fit`` may standardise, which depends on the likelihood."""
        return self.likelihood.scales

    scales = computed(_scales)

    @property
    def takes_labels(self) -> bool:
        return self.likelihood.takes_labels


class TakesLikelihood(Model):
    """A model of Gaussian noise, whose constructor makes a model of f if given a likelihood.

    Attributes:
        with_likelihood: The function of the arguments of the constructor, and of ``latent``, that
            returns the model of f.
    """

    with_likelihood: ClassVar[Callable[..., Model]]

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return this model, or with a likelihood the model of f."""
        if options.get("likelihood") is None and options.get("latent") is None:
            return super().__new__(cls, **options)
        kind = next(one for one in cls.__mro__ if "with_likelihood" in vars(one))
        check_names_of_arguments(kind, options)
        return cls.with_likelihood(*arguments, **options)


def show_latent(kind: type) -> None:
    """Show the argument ``latent`` of ``kind.__new__`` in the signature of a class.

    It is no field: a method has its name.
    """
    own = list(inspect.signature(kind.__init__).parameters.values())[1:]
    latent = inspect.Parameter(
        "latent", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
    )
    signature = inspect.signature(kind.__init__).replace(parameters=[*own, latent])
    set_attributes(kind, __signature__=signature)


class WeightedRows(Model):
    """A model whose program takes how often each row counts, by the name ``weights``."""

    roles = ("weights",)
    takes_stream = True

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        theta = draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X), X, y, total, weights)


def _names_for_users(model: Model, names: Iterable[str]) -> list[str]:
    """Return the names of a model without the hooks that this library calls.

    They are its fields, the methods in ``FOR_USERS``, what a user's own class adds, and names that
    begin with an underscore. The hooks can be called as before.

    Args:
        model: The model.
        names: All of its names.
    """
    own = [kind for kind in type(model).__mro__ if kind.__module__.partition(".")[0] == PACKAGE]
    hooks = {name for kind in own for name in vars(kind)} - set(FOR_USERS)
    shown: set[str] = set()
    if is_dataclass(model):
        every = fields(model)
        shown = {f.name for f in every if f.repr}
        hooks |= {f.name for f in every}
    return [name for name in names if name.startswith("_") or name in shown or name not in hooks]


def _no_evidence(model: Model, what: str) -> NotApplicable:
    """Return the error of a model that does not know its evidence."""
    do = "use GP, StateSpaceGP or Vecchia, or posterior.log_evidence of a fit by Laplace"
    wanted = "a model whose log evidence is known in closed form"
    return NotApplicable(wanted, f"{type(model).__name__}, which has {what}", do)


def _checked_values(
    values: dict[str, Any], free: Mapping[str, Site], like: Tensor
) -> dict[str, Tensor]:
    """Return the values as tensors of the shapes of their sites."""
    for name in values:
        if name not in free:
            raise UnknownName("site with a prior", name, free)
    missing = [name for name in free if name not in values]
    if missing:
        got = f"none for {', '.join(missing)}"
        raise SettingError("a value for every site with a prior", got, "add it to the values")
    return {name: _value(name, values[name], site, like) for name, site in free.items()}


def _value(name: str, value: Any, site: Site, like: Tensor) -> Tensor:
    """Return a value as a tensor of the shape of its site; one number stands for all entries."""
    do = f"pass a number, or an array of shape {list(site.shape)}"
    try:
        tensor = torch.as_tensor(value, dtype=like.dtype, device=like.device).detach()
    except (TypeError, ValueError, RuntimeError):
        got = f"{an(type(value).__name__)} for {name}"
        raise SettingError("numbers as values", got, do) from None
    size = torch.Size(site.shape).numel()
    if tensor.numel() not in (1, size):
        got = f"shape {list(tensor.shape)} for {name}"
        raise SettingError(f"one number, or shape {list(site.shape)}", got, do)
    tensor = tensor.reshape(-1).expand(size).reshape(site.shape).clone()
    allowed = torch.isfinite(tensor).all() and (not site.positive or (tensor > 0).all())
    if not bool(allowed):
        wanted = f"finite{' positive' * site.positive} numbers for {name}"
        raise SettingError(wanted, str(tensor.tolist()), "change the value")
    return tensor


def mini_batch(model: Model, X: Tensor, total: int, instead: str) -> NotApplicable:
    """Return the error for a mini-batch where the likelihood is one joint distribution of all rows.

    Args:
        model: The model, for the message.
        X: The rows of the batch.
        total: The number of all rows.
        instead: The advice of the message: what can be mini-batched.
    """
    wanted = f"all {total} rows at once for {type(model).__name__}"
    return NotApplicable(wanted, f"a mini-batch of {len(X)}", instead)


def broken_network(found: str, X: Tensor) -> NumericalError:
    """Return the error for a network whose units are all dead or saturated at the initial weights.

    No gradient leads away from such a start.

    Args:
        found: What the kernel of the network says of the rows, by ``check_fit``.
        X: The rows.
    """
    tiny = torch.finfo(X.dtype).tiny
    largest_ratio = float((X.mean(0).abs() / X.std(0).clamp_min(tiny)).max())
    cause = ""
    if largest_ratio > 3:
        cause = f" (a column of X has a mean of {largest_ratio:.3g} times its sd)"
    return NumericalError(
        "a kernel that tells these rows apart before the fit",
        "a network that does not, its units dead or saturated at the initial weights"
        f"{cause}: {found}",
        "standardise X, as fit(standardise=True) does, or give the network another seed, more "
        "units, or activation='tanh'",
    )


def linear(weight: Tensor, bias: Tensor, X: Tensor) -> Tensor:
    """Return X weight + bias, [*draw, n].

    Args:
        weight: [*draw, d], or one number for all columns.
        bias: [*draw].
        X: [n, d].
    """
    return weight.expand(*weight.shape[:-1], X.shape[-1]) @ X.mT + bias[..., None]


def check_labels(model: Model, data: Dataset, classes: int) -> None:
    """Refuse targets that are not the codes 0 .. classes - 1.

    Raises:
        SettingError: Naming the values in y.
    """
    values, shown = distinct(data)
    if any(v not in range(classes) for v in values) or (
        data.classes is not None and len(data.classes) > classes
    ):
        labels = "0 and 1" if classes == 2 else f"0 to {classes - 1}"
        do = "recode y to those labels, or choose a model for such targets"
        if any(v != int(v) for v in values):
            do = FOR_REGRESSION
        raise SettingError(
            f"labels {labels} in y for {type(model).__name__}",
            f"{counted(len(values), 'value')}: {shown}",
            do,
        )
