"""The interface of all kernels, and sums, products and rescaled inputs of kernels.

A kernel holds priors on its hyperparameters, and is a pure function of (theta, X1, X2).

Shapes: theta holds ``{name: [*batch]}`` (``[*batch, d]`` under ARD), X1 is [n1, d] and X2 [n2, d].
``kernel(theta, X1, X2)`` is [*batch, n1, n2], for all draws of the hyperparameters at once.
Names: ``+`` and ``*`` flatten their operands and number them (``0.lengthscale``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import named_arguments
from ..capabilities import Capability
from ..display.overrides import computed
from ..display.tables import record_page
from ..errors import DataError, NotApplicable, SettingError, an, counted, own_class
from ..priors import (
    Param,
    Prior,
    Site,
    finite_numbers,
    in_units_of_data,
    no_numbers,
    plain,
    prefixed,
    refuse_negative,
    rescaled,
    site,
    under,
    value_of,
    with_plain_fields,
)
from ..priors.units import power
from ..runtime.memory import SMALL, must_fit
from .fourier_features import Draw, Path, fourier
from .state_space import Markov, StateSpace, lacking, multiplied, require, summed
from .units import Factor, Units

R = TypeVar("R")

Theta = Mapping[str, Tensor]
NO_UNIT = (0, 0)  # powers of y and of X
ROUNDING = 1e-4  # by which a code may differ from a whole number, after it was standardised


class OutputColumn(NamedTuple):
    """A column of X that tells the output of each row: its code is factor * x + shift.

    Attributes:
        outputs: The number of outputs, whose codes are 0, 1, .., outputs - 1.
        factor: See above; 1 where X is not standardised.
        shift: See above; 0 where X is not standardised.
    """

    outputs: int
    factor: float = 1.0
    shift: float = 0.0

    def codes(self, x: Tensor) -> Tensor:
        """Return the codes of a column x of X, as whole numbers in the dtype of x.

        Raises:
            DataError: If a code is not among 0, 1, .., outputs - 1, unless a trace hides the
                values.
        """
        given = x.detach() * self.factor + self.shift
        code = given.round()
        wrong = ((given - code).abs() > ROUNDING) | (code < 0) | (code > self.outputs - 1)
        try:
            found = bool(wrong.any())
        except RuntimeError:
            return code
        if found:
            wanted = f"codes of outputs, whole numbers from 0 to {self.outputs - 1}"
            do = "number the outputs, or name their column by Subspace(kernel, [column])"
            raise DataError(wanted, f"{float(given[wrong][0]):.4g}", do)
        return code


def output_of_rows(columns: Mapping[int, OutputColumn], X: Float[Tensor, "*b n d"]) -> Tensor:
    """Return the number of the output of each row [*b, n], whole numbers.

    With several columns of codes each combination of codes is an output of its own.

    Args:
        columns: The columns of X that hold codes, see ``Kernel.output_columns``.
        X: Inputs [*b, n, d].
    """
    number = torch.zeros(X.shape[:-1], dtype=torch.long, device=X.device)
    for c, column in columns.items():
        number = number * column.outputs + column.codes(X[..., c]).long()
    return number


@named_arguments
class Kernel:
    """A covariance function. A new one defines ``hyper``, ``gram`` and ``variances``.

    ``kernel(theta, X1, X2)`` is the covariance [*batch, n1, n2] of rows X1 [n1, d] and X2 [n2, d],
    in the unit of y^2, where theta holds ``{name: [*batch]}`` of the hyperparameters that no number
    fixes. X2 = None means the rows X1 themselves. ``kernel.diag(theta, X)`` is the diagonal alone.
    Kernels are added by ``+`` and multiplied by ``*``. Rasmussen & Williams (2006), section 4.1.

    ``gram(h, X1, X2)`` is the covariance and ``variances(h, X)`` its diagonal, where ``h[name]``
    is [*batch, 1, 1] for ``gram`` and [*batch, 1] for ``variances``; X2 is None if both sides are
    the same rows.

    It is a frozen record. Its hyperparameters are fields, each a prior or a number that fixes it.

    Attributes:
        hyper: Names of the positive hyperparameters; each field is a prior or a fixed number.
        signed: Those of them that may be negative too.
        widths: The smallest and the largest number of columns of X for which it is a covariance.
        dimensions: ``{hyperparameter: (power of y, power of X)}`` beside those of the base class,
            which are ``variance``, ``lengthscale`` and ``period``; a missing name has no unit.
        rescales: Whether X enters only through |x - x'| / lengthscale, as ARD requires.
        about_origin: Whether the kernel depends on where X = 0 is; a stationary one does not.
        several_modes: Whether the density of the hyperparameters has several modes by the making of
            the kernel, so that a search begins at several places.
        terms: The number of elementary kernels, each of which keeps matrices for the gradient.
        multiple: (kernel, number) -> the product; ``wrappers`` sets it.
        proportioned: (kernel, units) -> the kernel on columns in the proportions of the data;
            ``around`` sets it.

    Raises:
        UnknownArgument: If an argument of a kernel has another name.
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative; on
            use, if theta lacks one, or the kernel does not take this number of columns.
        NotEnoughMemory: On use, if the matrix does not fit into memory.

    Examples:
        Covariances under two draws of the lengthscale, at once:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[1.0], [2.0], [4.0]])
        >>> theta = {"lengthscale": torch.tensor([1.0, 2.0])}
        >>> kernels.RBF(variance=3.0)(theta, X).shape
        torch.Size([2, 3, 3])

        Brownian motion, whose covariance is the smaller of two times, as a kernel of your own:

        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Brownian(kernels.Kernel):
        ...     variance: float = 1.0
        ...     hyper = ("variance",)
        ...
        ...     def gram(self, h, X1, X2):
        ...         other = X1 if X2 is None else X2
        ...         return h["variance"] * torch.minimum(X1, other.mT)
        ...
        ...     def variances(self, h, X):
        ...         return h["variance"] * X[..., 0]
        >>> Brownian(2.0)({}, X)
        tensor([[2., 2., 2.],
                [2., 4., 4.],
                [2., 4., 8.]])
    """

    hyper: ClassVar[tuple[str, ...]] = ()
    signed: ClassVar[tuple[str, ...]] = ()
    widths: ClassVar[tuple[int, float]] = (1, math.inf)
    dimensions: ClassVar[Mapping[str, tuple[float, float]]] = {
        "variance": (2, 0),
        "lengthscale": (0, 1),
        "period": (0, 1),
    }
    rescales: ClassVar[bool] = False
    about_origin: ClassVar[bool] = True
    several_modes: ClassVar[bool] = False
    terms: ClassVar[int] = 1
    multiple: ClassVar[Callable[..., Kernel]]
    proportioned: ClassVar[Callable[..., Kernel]]
    # an array times a kernel is no array of kernels: NumPy leaves the product to the kernel
    __array_ufunc__ = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Add the ``dimensions`` of a subclass to those that it inherits."""
        super().__init_subclass__(**options)
        if not isinstance(vars(cls).get("dimensions"), Mapping):
            return  # they are inherited, or computed for each record
        merged: dict[str, tuple[float, float]] = {}
        for kind in reversed(cls.__mro__):
            own = vars(kind).get("dimensions")
            if isinstance(own, Mapping):
                merged.update(own)
        cls.dimensions = merged

    def __post_init__(self) -> None:
        """Convert and check numbers; a subclass with its own ``__post_init__`` calls it first.

        Raises:
            SettingError: If a hyperparameter is no prior and no number, or a number below 0.
        """
        with_plain_fields(self)
        for name in self.hyper:
            given = getattr(self, name)
            if isinstance(given, Prior):
                continue
            called = f"{type(self).__name__}.{name}"
            if not finite_numbers(given):
                raise no_numbers(given, called)
            if name not in self.signed:
                refuse_negative(called, given)

    def _repr_html_(self) -> str:
        return record_page(self, Prior)

    def check_columns(self, d: int) -> None:
        """Raise SettingError if this is no covariance for inputs of d columns."""
        low, high = self.widths
        if low <= d <= high:
            return
        if d < low:
            wanted = f"at least {counted(low, 'column')} of X"
        else:
            wanted = f"at most {counted(int(high), 'column')} of X"
        do = "choose another kernel, or Subspace(kernel, columns)"
        raise SettingError(f"{wanted} for {type(self).__name__}", str(d), do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return ``{name: Site}`` of the hyperparameters for inputs of d columns.

        A quantity that is optimised rather than inferred is a Param.
        """
        low, high = self.widths
        if not low <= d <= high:
            self.check_columns(d)
        kind = type(self).__name__
        return {
            name: site(f"{kind}.{name}", getattr(self, name), positive=True) for name in self.hyper
        }

    def measured(self) -> bool:
        """Whether a length (period, slope, angle, ...) is given in the units of the data."""
        return any(
            self.dimensions.get(name, NO_UNIT)[1] and in_units_of_data(getattr(self, name))
            for name in self.hyper
        )

    def uncertain_level(self) -> bool:
        """Whether a variance has a prior; the first such factor of a product has the unit of y."""
        return any(
            self.dimensions.get(name, NO_UNIT)[0] and isinstance(getattr(self, name), Prior)
            for name in self.hyper
        )

    def factors(self, units: Units) -> dict[str, Factor]:
        """Return ``{site: factor}`` from draws on the scale of a model to the units of the data.

        A factor is one number, or one per column of X (a length in columns of several sds becomes
        one length per column); NaN where there is no equivalent.
        """
        return {name: units.scale(*self.dimensions.get(name, NO_UNIT)) for name in self.hyper}

    def _values(self, theta: Mapping[str, Tensor], like: Tensor, axes: int) -> dict[str, Tensor]:
        """Return the hyperparameters with so many axes of length 1 at the end."""
        values = {}
        for name in self.hyper:
            value = theta.get(name)
            if value is None:
                value = value_of(theta, name, getattr(self, name), like)
            for _ in range(axes):
                value = value.unsqueeze(-1)
            values[name] = value
        return values

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        """Return the covariance [*batch, n1, n2]."""
        raise NotImplementedError

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        """Return the diagonal of the covariance, [*batch, n]."""
        raise NotImplementedError

    def in_units(self, units: Units) -> Kernel:
        """Return this kernel on the scale of a model whose X and y were standardised by ``units``.

        A number, and a prior inside ``InUnitsOfData``, is in the units of the data; any other
        prior is on the scale of the model. If a length (period, slope, ...) is in the units of
        the data and the columns have several sds, the kernel reads X in the proportions of the
        data: one length for all columns has no equivalent in columns scaled one by one.
        """
        if not any(in_units_of_data(getattr(self, name)) for name in self.hyper):
            return self
        measured = self.measured()
        length = units.middle if measured else 1.0
        changed = {}
        for name in self.hyper:
            y, x = self.dimensions.get(name, NO_UNIT)
            before = getattr(self, name)
            after = rescaled(before, power(units.y_sd, -y) * power(length, -x), what=name)
            if after is not before:
                changed[name] = after
        kernel = replaced(self, **changed) if changed else self
        return self.proportioned(kernel, units) if measured else kernel

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        """Draw frequencies [samples, L, d] from the spectral density at h; raise if unknown."""
        do = "draw the prior exactly: features=None"
        raise NotApplicable("a kernel with a spectral density", type(self).__name__, do)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        """Draw functions from the prior at one theta (no draw axis): X [m, d] -> [samples, m].

        Raises:
            NotApplicable: If the spectral density of the kernel is not known.
        """
        h = self._values(theta, draw.like, 0)
        return fourier(draw, self.spectrum(h, d, draw), h["variance"])

    def to_feature_space(self, theta: Theta, *tables: Tensor) -> tuple[Kernel, Theta, list[Tensor]]:
        """Return this kernel, its theta and its inputs.

        A deep kernel returns its inner kernel and the features, which it computes in one pass.
        """
        return self, theta, list(tables)

    def output_columns(self) -> Mapping[int, OutputColumn]:
        """Return the columns of X that tell the output of a row; {} without Coregionalisation."""
        return {}

    def waves(self, X: Float[Tensor, "n d"]) -> Mapping[str, Tensor]:
        """Return {site: columns} of the periods and frequencies, of which a density has many modes.

        The columns [n, e] are those along which the waves run, in the unit of the site or of its
        inverse. A site of one number is a period; one of [components, e] numbers are frequencies.
        """
        return {}

    def alike(self, d: int) -> tuple[str, ...]:
        """Return the sites of the lengthscales of equal terms, which a search leaves equal."""
        return ()

    def check_places(self, X: Float[Tensor, "*b d"], names: Sequence[str] | None = None) -> None:
        """Check the rows of data, which a kernel with places of its own does not take everywhere.

        Places that a search tries, such as inducing inputs, are not checked.

        Args:
            X: Rows [*b, d], as the kernel sees them.
            names: The names of the columns; None: they have none.

        Raises:
            DataError: If a row is no place of the kernel, or of one inside it; if the names say
                that a ``Sphere`` would read a longitude as latitude.
        """

    def has_places(self) -> bool:
        """Whether the kernel, or one inside it, has places of its own: see ``check_places``."""
        return type(self).check_places is not Kernel.check_places

    def check_fit(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> list[str]:
        """Return warnings that this kernel (a deep one) cannot distinguish the rows of X."""
        return []

    def __call__(
        self, theta: Theta, X1: Float[Tensor, "*b n1 d"], X2: Float[Tensor, "*b n2 d"] | None = None
    ) -> Float[Tensor, "*batch n1 n2"]:
        """Return k(X1, X2), [*batch, n1, n2]; X2=None means X1, to which White adds its variance.

        Raises:
            SettingError: If the kernel does not take this number of columns, theta is no mapping,
                or X1 no tensor.
            NotEnoughMemory: If the matrix does not fit into memory.
        """
        if not isinstance(theta, Mapping):
            do = (
                "write kernel(theta, X1, X2), with theta = {} where all hyperparameters are numbers"
            )
            raise SettingError("theta, {name: value}, first", type(theta).__name__, do)
        if not isinstance(X1, Tensor):
            do = "pass torch.as_tensor(X)"
            raise SettingError("a tensor [n, d] as X1", type(X1).__name__, do)
        low, high = self.widths
        if not low <= X1.shape[-1] <= high:
            self.check_columns(X1.shape[-1])
        n1 = n2 = X1.shape[-2]
        if X2 is not None:
            n2 = X2.shape[-2]
        size = X1.element_size() * n1 * n2
        if size > SMALL:
            what = f"a kernel matrix of {n1:,} by {n2:,} rows"
            must_fit(size, what, "pass fewer rows at a time", X1.device)
        return self.gram(self._values(theta, X1, 2), X1, X2)

    def diag(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n"]:
        """Return the diagonal of k(X, X), [*batch, n], without computing the matrix."""
        return self.variances(self._values(theta, X, 1), X)

    def nugget(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n"] | None:
        """Return the variance that a row shares with no other, even at its place; None if none."""
        return None

    def shared(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n n"]:
        """Return k(X, X) without the nugget: the part that inducing variables can represent."""
        own = self.nugget(theta, X)
        return self(theta, X) if own is None else self(theta, X) - torch.diag_embed(own)

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))

    def __mul__(self, other: object) -> Kernel:
        if _is_number(other):
            return self.multiple(self, plain(other))
        return Product((self, check_kernel(other)))

    def __radd__(self, other: object) -> Sum:
        return Sum((check_kernel(other), self))

    def __rmul__(self, other: object) -> Kernel:
        return self * other if _is_number(other) else check_kernel(other) * self


def check_kernel(value: object) -> Kernel:
    """Return the value if it is a kernel.

    Raises:
        SettingError: If it is a number, a name, data, a class that was not called, or of another
            library.
    """
    if isinstance(value, Kernel):
        return value
    got, do = repr(value), "for a number write Constant(1.0)"
    if isinstance(value, type):
        got, do = f"the class {value.__name__}", f"call it: {value.__name__}()"
    elif type(value) is int and value == 0:  # where ``sum`` starts
        do = "write k1 + k2 or Sum((k1, k2)) in place of sum(...), or Constant(1.0) for a number"
    elif isinstance(value, str):
        do = f"write it as an object, such as kernels.{own_class(Kernel, value) or 'Matern'}()"
    elif hasattr(value, "shape") or isinstance(value, list):
        got = an(type(value).__name__)
        do = "a recipe takes no data; write ppgp.fit(model, Dataset(X, y))"
    elif ".likelihoods." in type(value).__module__:
        do = "name it: likelihood=..."
    raise SettingError("a kernel, a member of ppgp.kernels", got, do)


@dataclass(frozen=True)
class _Combination(Kernel, Markov):
    """Kernels combined entry by entry; a sum in a sum is flattened, a product in a product too."""

    children: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.children
        children = tuple(given) if isinstance(given, Iterable) else ()
        if not children:
            name = type(self).__name__
            do = f"write {name}((k1, k2)) for two kernels k1 and k2"
            raise SettingError(f"a tuple of kernels in {name}", repr(given), do)
        flat: list[Kernel] = []
        for child in children:
            check_kernel(child)
            if isinstance(child, _Combination) and type(child) is type(self):
                flat.extend(child.children)
            else:
                flat.append(child)
        object.__setattr__(self, "children", tuple(flat))

    def sites(self, d: int) -> dict[str, Site | Param]:
        sites: dict[str, Site | Param] = {}
        for i, child in enumerate(self.children):
            sites |= prefixed(str(i), child.sites(d))
        return sites

    def has_places(self) -> bool:
        return any(child.has_places() for child in self.children)

    def check_places(self, X: Tensor, names: Sequence[str] | None = None) -> None:
        for child in self.children:
            child.check_places(X, names)

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        found: dict[str, Tensor] = {}
        for i, child in enumerate(self.children):
            found |= prefixed(str(i), child.waves(X))
        return found

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return [
            sentence for child, part in self.parts(theta) for sentence in child.check_fit(part, X)
        ]

    def _terms(self) -> int:
        return sum(child.terms for child in self.children)

    terms = computed(_terms)

    def output_columns(self) -> Mapping[int, OutputColumn]:
        found: dict[int, OutputColumn] = {}
        for child in self.children:
            found |= child.output_columns()
        return dict(sorted(found.items()))

    def _about_origin(self) -> bool:
        return any(child.about_origin for child in self.children)

    about_origin = computed(_about_origin)

    def _several_modes(self) -> bool:
        return any(child.several_modes for child in self.children)

    several_modes = computed(_several_modes)

    def measured(self) -> bool:
        return any(child.measured() for child in self.children)

    def uncertain_level(self) -> bool:
        return any(child.uncertain_level() for child in self.children)

    def units_of_children(self, units: Units) -> list[Units]:
        """Return the units of each child."""
        return [units for _ in self.children]

    def in_units(self, units: Units) -> Kernel:
        pairs = zip(self.children, self.units_of_children(units), strict=True)
        return type(self)(tuple(child.in_units(own) for child, own in pairs))

    def factors(self, units: Units) -> dict[str, Factor]:
        pairs = zip(self.children, self.units_of_children(units), strict=True)
        each = [child.factors(own) for child, own in pairs]
        return {f"{i}.{name}": f for i, part in enumerate(each) for name, f in part.items()}

    def parts(self, theta: Theta) -> list[tuple[Kernel, dict[str, Tensor]]]:
        """Return each child with its part of theta."""
        return [(child, under(str(i), theta)) for i, child in enumerate(self.children)]

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        return next(filter(None, map(lacking, self.children)), None)

    def state_spaces(self, theta: Theta, like: Tensor) -> list[StateSpace]:
        """Return the state space of each child."""
        return [require(child).state_space(part, like) for child, part in self.parts(theta)]


@dataclass(frozen=True)
class Sum(_Combination):
    """k1 + k2 + ...: the kernel of a sum of independent functions.

    The covariances [n1, n2] are added. A sum in a sum is flattened. The hyperparameters of the
    terms are numbered, as in ``0.lengthscale``; each term is in the unit of y^2. Rasmussen &
    Williams (2006), section 4.2.4.

    Args:
        children: The kernels; ``k1 + k2`` is ``Sum((k1, k2))``.

    Raises:
        SettingError: If there is no kernel, or one of them is not a kernel.

    Examples:
        A smooth function plus a straight line:

        >>> import torch
        >>> from ppgp import kernels
        >>> list((kernels.RBF() + kernels.Linear()).sites(d=1))
        ['0.variance', '0.lengthscale', '1.variance']
        >>> kernel = kernels.RBF(1.0, 1.0) + kernels.Linear(1.0)
        >>> kernel({}, torch.tensor([[1.0], [2.0]]))
        tensor([[2.0000, 2.6065],
                [2.6065, 5.0000]])
    """

    def alike(self, d: int) -> tuple[str, ...]:
        found = []
        for i, child in enumerate(self.children):
            if self.children.count(child) > 1:
                sites = prefixed(str(i), child.sites(d))
                found += [name for name in sites if name.endswith("lengthscale")]
        return tuple(found)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return reduce(add, [child(part, X1, X2) for child, part in self.parts(theta)])

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        return summed(self.state_spaces(theta, like))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        paths = [child.path(part, d, draw) for child, part in self.parts(theta)]
        return lambda X: reduce(add, [path(X) for path in paths])

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return reduce(add, [child.diag(part, X) for child, part in self.parts(theta)])

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = [child.nugget(part, X) for child, part in self.parts(theta)]
        nuggets = [each for each in own if each is not None]
        return reduce(add, nuggets) if nuggets else None


@dataclass(frozen=True)
class Product(_Combination):
    """k1 * k2 * ...: the product of covariances.

    The covariances [n1, n2] are multiplied entry by entry. Their variances are identified only as a
    product: fix all but one. One variance carries the unit y^2 and the others have no unit of y: it
    is the first that has a prior, or the first of all if none has. A product in a product is
    flattened, and the hyperparameters of the factors are numbered, as in ``0.lengthscale``.
    Rasmussen & Williams (2006), section 4.2.4.

    Args:
        children: The kernels; ``k1 * k2`` is ``Product((k1, k2))``.

    Raises:
        SettingError: If there is no kernel, or one of them is not a kernel.

    Examples:
        A wave of period 1 whose shape changes over a time of 2: rows that are one period apart
        differ as much as the first factor says.

        >>> import torch
        >>> from ppgp import kernels
        >>> slow, wave = kernels.RBF(1.0, lengthscale=2.0), kernels.Periodic(1.0, 1.0, period=1.0)
        >>> (slow * wave)({}, torch.tensor([[0.0], [0.5], [1.0]]))[0]
        tensor([1.0000, 0.1312, 0.8825])
        >>> list((kernels.RBF(1.0) * kernels.Periodic()).sites(d=1))
        ['0.variance', '0.lengthscale', '1.variance', '1.lengthscale', '1.period']
    """

    def units_of_children(self, units: Units) -> list[Units]:
        carrier = unit_carrier([child.uncertain_level() for child in self.children])
        return [units if i == carrier else units.alone() for i in range(len(self.children))]

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        moving = [type(child).__name__ for child in self.children if child.about_origin]
        if moving and super().lacks(capability) is None:
            wanted = "a product of stationary kernels, which has a state space"
            return NotApplicable(wanted, f"{moving[0]} in it", "use it in a sum, or models.GP")
        return super().lacks(capability)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        return reduce(multiplied, self.state_spaces(theta, like))

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return reduce(mul, [child(part, X1, X2) for child, part in self.parts(theta)])

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return reduce(mul, [child.diag(part, X) for child, part in self.parts(theta)])

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = [child.nugget(part, X) for child, part in self.parts(theta)]
        if all(each is None for each in own):
            return None
        whole = [child.diag(part, X) for child, part in self.parts(theta)]
        shared = [v if e is None else v - e for v, e in zip(whole, own, strict=True)]
        return reduce(mul, whole) - reduce(mul, shared)


def _is_number(value: object) -> bool:
    """Return whether a value is a number of Python, NumPy or torch."""
    return isinstance(plain(value), int | float) and not isinstance(value, bool)


def replaced(record: R, /, **changes: object) -> R:
    """Return a copy of a dataclass with other values in some of its fields."""
    original: Any = record
    return replace(original, **changes)


def unit_carrier(have_priors: list[bool]) -> int:
    """Return the index of the factor of a product that carries the unit of y.

    It is the first factor whose variance has a prior, or the first of all if none has one.
    """
    if not any(have_priors):
        return 0
    return have_priors.index(True)


def other_rows(X1: Tensor, X2: Tensor | None) -> Tensor:
    """Return X2, or X1 if X2 is None, which means the same rows."""
    return X1 if X2 is None else X2


def mapped(function: Callable[[Tensor], Tensor], X2: Tensor | None) -> Tensor | None:
    """Return function(X2), or None if X2 is None."""
    return None if X2 is None else function(X2)


def constant_variance(h: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Return the diagonal [*batch, n] of a kernel that has ``variance`` there."""
    return h["variance"].expand(*h["variance"].shape[:-1], X.shape[-2])
