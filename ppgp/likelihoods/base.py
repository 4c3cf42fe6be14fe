"""The interface of likelihoods: the distribution of y given functions f of x, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..arguments import named_arguments
from ..data.dataset import Dataset
from ..errors import NotApplicable, SettingError, an, nearest
from ..numerics.gaussian_nodes import turning_nodes
from ..priors import Site, in_units_of_data, rescaled, value_of, with_plain_fields
from ..priors.units import power as to_power

Theta = Mapping[str, Tensor]
#: {name in other libraries: name here}
OTHER_NAMES = {"Normal": "Gaussian"}


@named_arguments
class Likelihood:
    """p(y | f), a frozen record of priors and structure.

    A new likelihood defines ``distribution`` and ``marginal``, and ``expected`` if it has a closed
    form; that of this class is Gauss-Hermite quadrature, as in Hensman, Matthews & Ghahramani
    (2015). ``theta`` is ``{site: [*draw, *event]}``; f, mean and variance are [*draw, n], or
    [*draw, K, n] for K latent functions, and y is [n]. They are on the scale of the model, which is
    in the units of y if ``fit`` does not standardise y. Log densities are in nats.

    Attributes:
        scales: What ``fit`` may standardise: "Xy", "X" or "".
        dimensions: ``{site: power of y in its unit}``, 0 for a site without unit. A number for a
            site that is missing is refused where y is standardised.
        nodes: The number of Gauss-Hermite nodes in ``expected``. A likelihood that is narrow
            relative to the uncertainty of f needs more.
        positive: Whether y is positive, and f the log of a quantity in its unit.
        positive_f: Whether f must be positive.
        numeric: Whether y is never a label, though its scale is fixed, as that of counts is.
        predicted: The parameters that are functions of x too.
        takes_trials: Whether rows may have a number of trials.

    Raises:
        UnknownArgument: If a subclass has no argument of a name.
        SettingError: If an argument of a subclass is a class of this library in place of an
            instance, or a distribution that cannot be a prior. ``fit`` raises it where it
            standardises y and ``dimensions`` lacks a site whose value is in the units of the data.

    Examples:
        A geometric distribution of counts, whose mean is exp(f). The maximum of the likelihood
        gives both groups of rows their own mean:

        >>> from dataclasses import dataclass
        >>> import pyro.distributions as dist
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> @dataclass(frozen=True)
        ... class Geometric(likelihoods.Likelihood):
        ...     scales = "X"
        ...     numeric = True
        ...     def distribution(self, theta, f):
        ...         return dist.Geometric(logits=-f)
        >>> model = models.GLM(Geometric(), weight=priors.Flat(), bias=priors.Flat())
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1, 3, 2, 10])
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> log_means = posterior.draws_in("data")
        >>> log_means["bias"].exp().round(decimals=2).tolist()
        [[2.0]]
        >>> log_means["weight"].exp().round(decimals=2).tolist()
        [[[3.0]]]
    """

    scales: ClassVar[str] = "Xy"
    dimensions: ClassVar[Mapping[str, float]] = {}
    nodes: ClassVar[int] = 20
    positive: ClassVar[bool] = False
    positive_f: ClassVar[bool] = False
    numeric: ClassVar[bool] = False
    predicted: Any = ()
    takes_trials: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert numbers to Python's; a subclass with its own ``__post_init__`` calls it first."""
        with_plain_fields(self)

    @property
    def takes_labels(self) -> bool:
        """Whether y may be labels of classes."""
        return "y" not in self.scales and not self.positive and not self.numeric

    @property
    def latents(self) -> int:
        """The number of latent functions."""
        return 1

    def sites(self) -> dict[str, Site]:
        """Return ``{name: Site}`` of the hyperparameters."""
        return {}

    def levels(self) -> dict[str, Site]:
        """Return {name: Site} of the levels of ``Predicted`` parameters, which an SVGP has."""
        return {}

    def in_units(self, y_sd: float) -> Likelihood:
        """Return this likelihood for y / y_sd.

        A number, and a prior inside ``InUnitsOfData``, is in the units of y and is rescaled.

        Raises:
            SettingError: If it is to be rescaled, and ``dimensions`` does not have its unit.
        """
        changed = {}
        for name in self.sites():
            before = self.given(name)
            after = self._in_unit(name, before, y_sd)
            if after is not before:
                changed[name] = after
        return self.replaced(changed) if changed else self

    def _in_unit(self, name: str, given: Any, y_sd: float) -> Any:
        """Return a number or prior of a parameter for y / y_sd."""
        unknown = "y" in self.scales and name not in self.dimensions
        if unknown and y_sd != 1.0 and in_units_of_data(given):
            raise SettingError(
                f"{an(type(self).__name__)} that defines the unit of {name}",
                f"no {name} in dimensions",
                f"add its power of y to dimensions, {{{name!r}: 0}} if it has no unit, or pass "
                "standardise=False to fit",
            )
        return rescaled(given, to_power(y_sd, -self._power_of_y(name)), what=name)

    def _power_of_y(self, name: str) -> float:
        """Return the power of y in the unit of a parameter."""
        return self.dimensions.get(name, 0)

    def given(self, name: str) -> Any:
        """Return the number, prior or ``Predicted()`` that a parameter was given as."""
        return getattr(self, name)

    def replaced(self, changed: Mapping[str, Any]) -> Likelihood:
        """Return this likelihood with other parameters."""
        recipe: Any = self  # every concrete likelihood is a dataclass; this interface is not
        return replace(recipe, **changed)

    def factors(self, y_sd: float) -> dict[str, float]:
        """Return ``{site: factor}`` from draws on the scale of a model to the units of y."""
        return {name: to_power(y_sd, self._power_of_y(name)) for name in self.sites()}

    def prepare(self, data: Dataset) -> Likelihood:
        """Return this likelihood prepared for these targets.

        Raises:
            DataError: If the targets do not fit it.
        """
        return self

    def for_rows(self, trials: Tensor | None = None) -> Likelihood:
        """Return this likelihood for rows with these numbers of trials [n]; None: itself.

        Raises:
            NotApplicable: If it has no trials.
        """
        if trials is not None:
            got, do = repr(self), "use likelihood=Binomial(), or a Dataset without trials"
            raise NotApplicable("a likelihood of events among trials", got, do)
        return self

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        """Return the distribution of y given f, batch [*draw, n]."""
        raise NotImplementedError

    def ratio(self) -> str | None:
        """Return what exp of a difference of f is, such as "odds ratio"; None if it is nothing."""
        return None

    def dispersion_parameter(self) -> str | None:
        """Return the name of the parameter that is phi or 1 / phi, var(y) = phi V(mean of y).

        None: the variance has no such factor. McCullagh & Nelder (1989), section 2.2.2.
        """
        return None

    def dispersion(self, theta: Theta, like: Tensor) -> Tensor:
        """Return phi [*draw, 1]; 1 if there is none."""
        return like.new_ones(1)

    def most_probable(self, y: Tensor) -> Tensor | None:
        """Return the f at which the density of each y is greatest, [n]; None if it is not known.

        Infinite values are replaced by large ones. f is that of the saturated model.
        """
        return None

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        """Return the distribution of y for f ~ N(mean, variance), batch [*draw, n]."""
        raise NotImplementedError

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f) over f ~ N(mean, variance), [*draw, n].

        It is computed by Gauss-Hermite quadrature, unless a subclass has a closed form.
        """
        nodes, weights = hermite(self.nodes, mean)
        column = (-1,) + (1,) * mean.ndim
        f = mean + root(variance) * nodes.reshape(column)
        return (self.distribution(theta, f).log_prob(y) * weights.reshape(column)).sum(0)

    def check_real_f(self) -> None:
        """Check that f may be any real number, as Gaussian processes and sums of learners are.

        Raises:
            NotApplicable: If it must be positive.
        """
        if self.positive_f:
            wanted = "a link whose f may be any real number"
            raise NotApplicable(wanted, repr(self), "use link='log'")

    def check_expected(self) -> None:
        """Check that the mean of log p(y | f) over normal functions of x is finite.

        Raises:
            NotApplicable: If it is not.
        """

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """Return theta[name], or the number that fixes the field, with an axis for the rows."""
        value = theta.get(name)
        if value is None:
            value = value_of(theta, name, self.given(name), like)
        return value[..., None]


def check_is_likelihood(likelihood: Any, example: str = "likelihoods.Bernoulli()") -> None:
    """Check that an option is a likelihood of this library.

    The message names the one that a text, or a distribution of torch or Pyro, is about.

    Args:
        likelihood: The option.
        example: What to pass otherwise, as Python code.

    Raises:
        SettingError: If it is no likelihood.
    """
    if isinstance(likelihood, Likelihood):
        return
    name, likeness = likelihood, 0.4
    if not isinstance(name, str):
        name, likeness = getattr(likelihood, "__name__", type(likelihood).__name__), 0.8
    plain = name.replace("-", "").replace("_", "")
    meant = OTHER_NAMES.get(plain.title()) or nearest(plain, _names_of(Likelihood), likeness)
    do = f"for example {example}"
    if meant is not None:
        do = f"pass likelihoods.{meant}()"
    if isinstance(likelihood, str):
        do += "; only the command line and ppgp.estimators take names"
    raise SettingError("a member of ppgp.likelihoods as likelihood", repr(likelihood), do)


def _names_of(family: type) -> list[str]:
    """Return the names of the public classes of this library that derive from a class."""
    names: list[str] = []
    for kind in family.__subclasses__():
        if kind.__module__.startswith(__package__ or "ppgp"):
            names += [kind.__name__, *_names_of(kind)]
    return [name for name in names if not name.startswith("_")]


def log_of_count(y: Tensor) -> Tensor:
    """Return log y, and a number whose exponential is next to nothing for y = 0."""
    return y.clamp_min(torch.finfo(y.dtype).tiny).log()


def root(variance: Tensor) -> Tensor:
    """Return the sd of f, with a finite gradient where the variance is 0.

    A linear kernel has variance 0 at x = 0, and one such row would make every gradient NaN.
    """
    return variance.clamp_min(torch.finfo(variance.dtype).eps).sqrt()


def turning_average(
    h: Callable[[Tensor], Tensor],
    mean: Tensor,
    variance: Tensor,
    turn: Tensor,
    **options: Any,
) -> Tensor:
    """Return E h(f) over f ~ N(mean, variance), [*draw, n], for an h that changes near a turn.

    Args:
        h: A function of f [node, *draw, n], row by row.
        mean: The mean of f.
        variance: The variance of f.
        turn: Where h changes, within a few units of f. Far from it h changes slowly.
        options: Those of ``turning_nodes``.
    """
    sd = root(variance)
    z, weight = turning_nodes(mean, sd, turn, **options)
    return (h(mean + sd * z) * weight).sum(0)


@lru_cache(maxsize=8)
def _hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def hermite(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nodes and weights [count] of Gauss-Hermite quadrature of E h(Z), Z ~ N(0, 1)."""
    nodes, weights = _hermite(count)
    return torch.as_tensor(nodes).to(like), torch.as_tensor(weights).to(like)


def product_nodes(count: int, dimension: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes [count^dimension, dimension] and weights of Gauss-Hermite quadrature."""
    if dimension == 0:
        return like.new_zeros(1, 0), like.new_ones(1)
    nodes, weights = hermite(count, like)
    points = torch.cartesian_prod(*[nodes] * dimension).reshape(-1, dimension)
    return points, torch.cartesian_prod(*[weights] * dimension).reshape(-1, dimension).prod(-1)
