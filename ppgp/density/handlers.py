"""Pyro handlers: run a program with given values, or draw its data again; what its sites are."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.hmm import HiddenMarkovModel
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import (
    ComposeTransform,
    Distribution,
    Independent,
    TransformedDistribution,
    VonMises,
    biject_to,
    constraints,
    transform_to,
)
from torch.distributions.transforms import IndependentTransform
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from ..data.argument_mistakes import mask_of_other_shape, of_dtypes, spreads_to
from ..errors import DataError, NotApplicable, an
from ..numerics.shapes import broadcast_shapes
from ..runtime.process_locks import one_at_a_time, silenced, when_abandoned
from ..runtime.seeding import seeded
from .graph.batching import Batched, MixedCondition
from .layout import OBSERVED, UNOBSERVED, Angle, Partly


class _NetworkParams(TorchFunctionMode):
    """Inside the block, operations on the parameters that were ``put`` see their values.

    ``pyro.module`` and ``PyroModule`` call ``pyro.param`` for each parameter of a network and
    ignore what it returns: the network computes with its own. Here each operation of torch on such
    a parameter receives the value instead, and the network itself stays as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        # the parameter is kept beside its value, so that no other object gets its id
        self._values: dict[int, tuple[Parameter, Tensor]] = {}

    def put(self, parameter: Parameter, value: Tensor) -> None:
        """Use the value in place of the parameter."""
        self._values[id(parameter)] = parameter, value

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*self._with_values(args), **self._with_values(dict(kwargs or {})))

    def _with_values(self, given: Any) -> Any:
        if isinstance(given, Parameter):
            return self._values.get(id(given), (None, given))[1]
        if type(given) in (tuple, list):
            return type(given)(map(self._with_values, given))
        if type(given) is dict:
            return {key: self._with_values(each) for key, each in given.items()}
        return given


AROUND = (Independent, dist.MaskedDistribution, dist.ExpandedDistribution)


@dataclass(eq=False, repr=False)
class Run(Messenger):
    """Give the named sample sites and params their values, and record every site in ``sites``.

    With ``unconstrained=True`` the values are unconstrained: each is mapped to the support that its
    site has in this run, and the log-Jacobians of sample sites are summed in ``log_jacobian``.
    ``known`` are the only latent sites that the program may have; None for any.
    """

    values: Mapping[str, Tensor]
    unconstrained: bool = False
    params: Mapping[str, Tensor] = field(default_factory=dict)
    known: frozenset[str] | None = None
    #: whether values and densities are wanted alone: the steps of ``ppgp.scan`` then need not run
    #: one by one, which gives their distributions too
    steps_at_once: bool = False
    #: ``{site that obs_mask makes: the bijection of its free entries}``
    imputed: Mapping[str, Partly] = field(default_factory=dict)
    sites: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    log_jacobian: Tensor | float = field(init=False, default=0.0)
    #: the site at which the program is
    drawing: dict[str, Any] | None = field(init=False, default=None)
    _network: _NetworkParams | None = field(init=False, default=None)

    def __exit__(self, *error: Any) -> None:
        if self._network is not None:
            self._network.__exit__(*error)
            self._network = None
        super().__exit__(*error)
        site = self.drawing
        if site is not None and isinstance(error[1], AssertionError) and not site["done"]:
            law = type(site["fn"]).__name__  # as DiscreteHMM without a duration
            raise NotApplicable(
                f"a distribution at {site['name']!r} that can be drawn from",
                f"{an(law)}, which refuses to be ({str(error[1]) or 'AssertionError'})",
                "give it what its draws need, such as duration=, or pass what the site observes",
            ) from error[1]

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites and not site_is_subsample(msg):
            do = "use pyro.plate, or a name with a number in a loop, such as f'y{i}'"
            raise NotApplicable(
                "a name of its own for every site", f"two sites named {msg['name']!r}", do
            )
        law = msg["fn"]
        if isinstance(law, AROUND) or getattr(law, "_validate_args", False):
            msg["fn"] = without_validation(law)
        self.drawing = msg
        if site_is_subsample(msg):
            return
        if not msg["is_observed"] and msg["name"] in self.values:
            value = self.values[msg["name"]]
            if self.unconstrained:
                transform, free = mapping(msg["name"], msg["fn"]), value
                if msg["name"] in self.imputed:
                    transform = self.imputed[msg["name"]].of(transform)
                value = transform(free)
                if self.known is not None and transform.inverse_shape(value.shape) != free.shape:
                    raise NotApplicable(
                        "supports that do not depend on discrete sites, which are summed out",
                        f"that of {msg['name']!r}",
                        "draw it on a fixed support, and scale or shift it in the program",
                    )
                slope = transform.log_abs_det_jacobian(free, value)
                self.log_jacobian = self.log_jacobian + slope.sum()
            msg["value"], msg["done"] = value, True
        elif (
            self.known is not None
            and not (msg["is_observed"] or msg["done"])
            and msg["name"] not in self.known
        ):
            raise other_sites(msg["name"], "is missing in other runs")
        elif not msg["is_observed"] and isinstance(msg["fn"], dist.ImproperUniform):
            msg["value"], msg["done"] = _middle(msg["fn"]), True  # it cannot be drawn
        elif not msg["is_observed"] and not callable(msg["fn"]):
            law = type(msg["fn"]).__name__
            do = f"write pyro.distributions.{law}, which has the same arguments"
            raise NotApplicable(
                "a distribution of Pyro at every site that is drawn",
                f"torch's {law} at {msg['name']!r}",
                do,
            )

    def check_complete(self) -> None:
        """Raise NotApplicable if a latent site that another run has is missing in this one."""
        missing = [name for name in self.known or () if name not in self.sites]
        if missing:
            raise other_sites(missing[0], "is missing in one run")

    def _pyro_post_sample(self, msg: Any) -> None:
        self.drawing = None
        if not site_is_subsample(msg):
            self.sites[msg["name"]] = dict(msg)

    def _pyro_param(self, msg: Any) -> None:
        name = msg["name"]
        if len(msg["args"]) == 1:  # of a PyroModule, which puts its constraint into the store
            constraint = pyro.get_param_store().get_state()["constraints"].get(name)
            if constraint is not None:
                msg["kwargs"]["constraint"] = constraint
        if name in self.values:
            value = self.values[name]
            if self.unconstrained:  # no Jacobian: a param has no density
                value = transform_to(msg["kwargs"].get("constraint", constraints.real))(value)
            msg["value"], msg["done"] = value, True
        elif name in self.params:
            msg["value"], msg["done"] = self.params[name], True
        first = next(iter(msg["args"][1:]), None)
        if not isinstance(first, Parameter):
            return
        if not msg["done"]:  # a network computes with its own, whatever the store holds
            msg["value"], msg["done"] = first, True
            return
        if self._network is None:
            self._network = _NetworkParams()
            self._network.__enter__()
        self._network.put(first, msg["value"])

    def _pyro_post_param(self, msg: Any) -> None:
        self.sites[msg["name"]] = dict(msg)

    def dtypes(self) -> dict[str, str]:
        """Return ``{site: dtype}`` of the sites with real numbers, up to where the program is."""
        values = {name: site["value"] for name, site in self.sites.items()}
        found = {
            name: _name_of(value.dtype)
            for name, value in values.items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        if self.drawing is not None:
            parts = _dtypes_of_law(self.drawing["fn"])
            found[self.drawing["name"]] = " and ".join(sorted(set(parts.values()))) or "numbers"
        return found

    def samples(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Return the sample sites, by name."""
        return ((name, s) for name, s in self.sites.items() if s["type"] == "sample")

    def latents(self) -> dict[str, dict[str, Any]]:
        """Return the unobserved sample sites."""
        return {name: s for name, s in self.samples() if not s["is_observed"]}

    def observed(self) -> dict[str, dict[str, Any]]:
        """Return the observed sample sites that are data: no deterministic values, no factors."""
        return {
            name: s
            for name, s in self.samples()
            if s["is_observed"] and not is_deterministic(s) and not is_factor(s)
        }

    def imputes(self, name: str) -> bool:
        """Return whether ``obs_mask`` makes a site of the numbers that are missing at ``name``."""
        return name + OBSERVED in self.sites and name + UNOBSERVED in self.sites

    def log_prob(self, likelihood: bool = True) -> Tensor | float:
        """Return the sum of the sites' log densities, with the scales of plates and with masks.

        Without ``likelihood`` only the latent sites count.
        """
        total: Tensor | float = 0.0
        for _, s in self.samples():
            if not is_deterministic(s) and (likelihood or not s["is_observed"]):
                total = total + scale_and_mask(site_log_prob(s), s["scale"], s["mask"]).sum()
        return total


def other_sites(name: str, where: str) -> NotApplicable:
    """Return the error for a program whose latent sites depend on values."""
    return NotApplicable(
        "the same latent sites in every run of the program",
        f"{name!r}, which {where}",
        "draw it on every branch (one that does not use it leaves it at its prior)",
    )


def partly(transform: Any, site: Mapping[str, Any], sites: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the bijection of the free entries of a site that ``obs_mask`` makes.

    Args:
        transform: That of all entries.
        site: The record of the latent site, or of one of such a name.
        sites: The records of the sites before it.

    Raises:
        DataError: If the mask does not fit the site.
    """
    name = site["name"].removesuffix(UNOBSERVED)
    partner = sites.get(name + OBSERVED)
    if partner is None or not partner["is_observed"] or not isinstance(site["mask"], Tensor):
        return transform
    batch, event = site["fn"].batch_shape, site["fn"].event_shape
    if not spreads_to(site["mask"].shape, batch):
        raise mask_of_other_shape(name, site["mask"].shape, batch, site["fn"])
    given = torch.as_tensor(partner["value"]).detach().expand(batch + event)
    return Partly(transform, site["mask"].expand(batch), given)


def mapping(name: str, law: Any) -> Any:
    """Return the bijection from unconstrained space to the support of a site.

    Args:
        name: Of the site, for the error.
        law: Its distribution.

    Raises:
        NotApplicable: If there is none.
    """
    inner = law
    while isinstance(inner, (*AROUND, dist.SineSkewed)):
        inner = inner.base_dist
    if isinstance(inner, VonMises | dist.SineBivariateVonMises):
        return Angle()  # whatever torch gives as the support of angles
    if isinstance(law, Independent) or is_transformed(law):
        through_base = _through_base(law)
        if through_base is not None:
            return through_base
    try:
        return biject_to(law.support)
    except NotImplementedError:
        do = "compute it from sites on the real line, or from LKJCholesky and scales"
        if "Mixture" in type(law).__name__:
            do = (
                "for a mixture draw its component as a Categorical site (it is summed out) and the "
                "value given that"
            )
        raise NotApplicable(
            "a latent site on a support that unconstrained space can be mapped to",
            f"{name!r} on {type(law.support).__name__}",
            do,
        ) from None


def _through_base(law: Any) -> Any:
    """Return the bijection through the base of a TransformedDistribution, where it is needed.

    Its ``support`` is all that the last transform can give, as the real line for 2 + an exponential
    variable. None where that is right.
    """
    if isinstance(law, Independent):
        inner = _through_base(law.base_dist)
        return inner and IndependentTransform(inner, law.reinterpreted_batch_ndims)
    if not is_transformed(law) or not all(t.bijective for t in law.transforms):
        return None
    sets = [law.base_dist.support]
    for transform in law.transforms:
        if _bounds(sets[-1]) != _bounds(transform.domain):
            first = mapping("", law.base_dist)
            return ComposeTransform([first, *law.transforms])
        sets.append(transform.codomain)
    return None


def _bounds(support: Any) -> Any:
    """Return the ends of an interval, or the kind of another set, to compare two of them."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if isinstance(support, type(constraints.real)):
        return (-math.inf, math.inf)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is None and high is None:
        return type(support)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return object()  # equal to nothing: their values may not be asked for while a graph is made
    return (-math.inf if low is None else low, math.inf if high is None else high)


def without_validation(law: Any) -> Any:
    """Return a distribution that does not validate its values, where validation is off.

    One that was made before, such as the prior of a PyroSample, may have kept the setting of then:
    it would ask for values that a trace does not have.
    """
    if Distribution._validate_args or not isinstance(law, Distribution):
        return law
    inner = getattr(law, "base_dist", None) if isinstance(law, AROUND) else None
    unvalidated = inner if inner is None else without_validation(inner)
    if not law._validate_args and unvalidated is inner:
        return law
    changed: Any = copy.copy(law)
    changed._validate_args = False
    if inner is not None:
        changed.base_dist = unvalidated
    return changed


def is_transformed(law: Any) -> bool:
    """Return whether a distribution is a plain TransformedDistribution, of no named family."""
    return (
        isinstance(law, TransformedDistribution)
        and type(law).support is TransformedDistribution.support
    )


def is_discrete(site: dict[str, Any]) -> bool:
    """Return whether a record of ``Run`` is a latent site of discrete values."""
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and bool(site["fn"].support.is_discrete)
    )


def _middle(law: Any) -> Tensor:
    """Return the value that an improper prior has at 0 of the unconstrained scale."""
    transform = biject_to(law.support)
    return transform(torch.zeros(transform.inverse_shape(law.batch_shape + law.event_shape)))


class Redraw(Messenger):
    """Draw every observed site from its distribution, so that the program simulates data.

    Values that the program computes (``pyro.deterministic``) stay. ``is_data`` is True for the
    sites that were observed.
    """

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] and not is_deterministic(msg) and not is_factor(msg):
            msg["infer"] = {**(msg["infer"] or {}), "was_observed": True}
            msg["fn"] = _of_length(msg["fn"], msg["value"])
            msg["is_observed"], msg["done"], msg["value"] = False, False, None


def _of_length(law: Any, value: Any) -> Any:
    """Return a hidden Markov model of Pyro with as many steps as its data, so that it is drawn."""
    if not isinstance(law, HiddenMarkovModel) or law.duration is not None:
        return law
    changed = copy.copy(law)
    changed._duration = value.shape[-len(law.event_shape)]
    changed._event_shape = torch.Size([changed._duration, *law.event_shape[1:]])
    return changed


def is_data(s: Mapping[str, Any]) -> bool:
    """Return whether a site is data: observed, or drawn again by ``Redraw``."""
    if s["type"] != "sample" or is_deterministic(s) or is_factor(s):
        return False
    return bool(s["is_observed"] or (s["infer"] or {}).get("was_observed", False))


def site_log_prob(s: Mapping[str, Any]) -> Tensor:
    """Return the log density of a site's value, without scale and mask.

    Raises:
        DataError: If torch has none for a value and a distribution of these dtypes.
    """
    value = s["value"]
    if s["mask"] is not None or isinstance(s["fn"], AROUND):
        value = without_missing(s)
    try:
        return s["fn"].log_prob(value, *s["args"], **s["kwargs"])
    except RuntimeError as error:
        raise _of_other_dtypes(s, error) or error from None


def without_missing(s: Mapping[str, Any]) -> Any:
    """Return the value of a site with a number for each NaN or infinity that a mask leaves out.

    A mask multiplies slopes by 0, and 0 times NaN is NaN. The number is one that is observed.
    """
    value = s["value"]
    if not s["is_observed"] or not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    if getattr(s["fn"], "replaces_missing", False):
        return value
    masks = [mask for mask in _masks(s) if isinstance(mask, Tensor)]
    try:
        if not masks or value.requires_grad or bool(value.isfinite().all()):
            return value
    except RuntimeError:  # it depends on latent sites
        return value
    event = len(s["fn"].event_shape)
    kept = torch.ones((), dtype=torch.bool, device=value.device)
    for mask in masks:
        kept = kept & mask
    left_out = (~kept).reshape([*kept.shape, *(1,) * event])
    size = math.prod(value.shape[value.ndim - event :])
    rows = value.reshape(-1, size)
    whole = rows[rows.isfinite().all(1)]
    instead = whole[0] if len(whole) else _number_inside(s["fn"], rows[0])
    fill = instead.reshape(value.shape[value.ndim - event :])
    return torch.where(~value.isfinite() & left_out, fill, value)


def _number_inside(law: Any, like: Tensor) -> Tensor:
    """Return a value of a distribution, the same number in all places of a tensor [event].

    Laws of counts and of shares, which sum to 1, do not take any number.
    """
    for number in (0.5, 0.0, 1.0, 1 / len(like)):
        value = torch.full_like(like, number)
        try:
            event = value.reshape(law.event_shape)
            if bool(torch.as_tensor(law.support.check(event)).all()):
                return value
        except (RuntimeError, ValueError, NotImplementedError):  # ends that depend on latent sites
            break
    return torch.full_like(like, 0.5)


class WithoutMissing(Messenger):
    """Give observed values numbers in place of each NaN or infinity that a mask leaves out.

    Pyro's own densities of a program then have slopes. The program itself goes on with what is
    missing: a number in its place would be taken for data wherever it is used again.
    """

    fills_missing = True  # so that steps of ppgp.scan do so too

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Any] = {}

    def _pyro_sample(self, msg: Any) -> None:
        filled = msg["value"] if site_is_subsample(msg) else without_missing(msg)
        if filled is not msg["value"]:
            self._given[msg["name"]], msg["value"] = msg["value"], filled

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self._given:  # handlers outside have recorded it
            msg["value"] = self._given.pop(msg["name"])


def _masks(s: Mapping[str, Any]) -> Iterator[Any]:
    """Return the masks of a site: by a handler, and of its distribution."""
    yield s["mask"]
    law = s["fn"]
    while isinstance(law, AROUND):
        if isinstance(law, dist.MaskedDistribution):
            yield law._mask
        law = law.base_dist


def _of_other_dtypes(s: Mapping[str, Any], error: RuntimeError) -> DataError | None:
    """Return the error for a site whose value and distribution have several dtypes, if they do."""
    value = s["value"]
    parts = _dtypes_of_law(s["fn"])
    if isinstance(value, Tensor):
        parts["obs" if s["is_observed"] else "value"] = _name_of(value.dtype)
    reason = str(error).splitlines()[0]
    if value.dtype == torch.bool:
        do = f"pass numbers, such as {s['name']}.to(torch.float32)"
        return DataError(f"numbers as obs of {s['name']!r}", f"booleans ({reason})", do)
    if not of_dtypes(error) or len(set(parts.values())) < 2:
        return None
    got = ", ".join(f"{dtype} {name}" for name, dtype in parts.items())
    do = "convert the others to one of them, as by .to(torch.float64)"
    return DataError(f"one dtype at site {s['name']!r}", f"{got} ({reason})", do)


def _dtypes_of_law(law: Any) -> dict[str, str]:
    """Return ``{parameter: dtype}`` of a distribution that may be wrapped."""
    while isinstance(law, Independent | dist.MaskedDistribution | dist.ExpandedDistribution):
        law = law.base_dist
    names = getattr(law, "arg_constraints", None) or {}
    values = {name: vars(law).get(name) for name in names}
    return {
        name: _name_of(value.dtype)
        for name, value in values.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def is_deterministic(s: Mapping[str, Any]) -> bool:
    """Return whether the program computes the value: ``pyro.deterministic``, or reparametrised."""
    if s["infer"] and s["infer"].get("_deterministic", False):
        return True
    law = s["fn"]
    return (
        isinstance(law, dist.MaskedDistribution)
        and law._mask is False
        and isinstance(law.base_dist, dist.Delta)
    )


def numbers_seen(s: Mapping[str, Any]) -> Tensor:
    """Return how many numbers of an observed site count, in the shape of its log density.

    Masked numbers and NaN (of ``NanMaskedNormal``) do not count.
    """
    law, value, mask = s["fn"], s["value"], s["mask"]
    counts = _unmasked(law).to(value.device)
    if mask is not None:
        counts = counts * torch.as_tensor(mask).to(counts)
    # outside of plates a value may have more rows than its distribution
    rows = value.shape[: value.ndim - len(law.event_shape)]
    counts = counts.expand(broadcast_shapes(counts.shape, rows))
    if not value.is_floating_point():
        return counts
    missing = value.isnan()
    if len(rows) < missing.ndim:
        missing = missing.flatten(len(rows)).sum(-1)
    return (counts - missing.to(counts)).clamp_min(0)


def _unmasked(law: Any) -> Tensor:
    if isinstance(law, Independent):
        inner = _unmasked(law.base_dist)
        over = law.reinterpreted_batch_ndims
        return inner.sum(tuple(range(-over, 0))) if over else inner
    if isinstance(law, dist.MaskedDistribution):
        inner = _unmasked(law.base_dist)
        return inner * torch.as_tensor(law._mask).to(inner)
    if isinstance(law, dist.ExpandedDistribution):
        return _unmasked(law.base_dist).expand(law.batch_shape)
    return torch.full(law.batch_shape, math.prod(law.event_shape))


def is_factor(s: Mapping[str, Any]) -> bool:
    """Return whether a site is ``pyro.factor``."""
    return isinstance(s["fn"], dist.Unit)


def _without_handlers() -> None:
    """Clear the stack of handlers that a forked child inherits from another thread."""
    pyro.poutine.runtime._PYRO_STACK.clear()


when_abandoned(_without_handlers)


@contextmanager
def quietly(stored: Any = None) -> Iterator[None]:
    """Run Pyro without validation, and leave no param in the global store.

    Validation asks for values that a trace or vmap does not have. One thread at a time is inside,
    as Pyro's handlers belong to the process.

    Args:
        stored: The ``get_state()`` of a store whose params have their values inside; None for none.
    """
    with one_at_a_time(), pyro.validation_enabled(False), pyro.get_param_store().scope(stored):
        yield


def over_draws(
    function: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    draws: Mapping[str, Tensor],
    chunk: int = 500,
) -> dict[str, Tensor]:
    """Apply a function of one draw to all draws, by vmap if possible, else in a loop.

    Draws at which the program takes the same branches go through vmap together.

    Args:
        function: ``{name: value}`` to ``{name: value}``.
        draws: ``{name: [draw, ...]}``.
        chunk: Draws per call of vmap.

    Returns:
        ``{name: [draw, ...]}``.
    """
    names = list(draws)
    total = len(draws[names[0]])

    def one(*values: Tensor) -> dict[str, Tensor]:
        return function(dict(zip(names, values, strict=True)))

    several = torch.vmap(one, randomness="different")
    stacked = tuple(draws[name] for name in names)
    parts: list[tuple[Tensor, dict[str, Tensor]]] = []
    for chosen in torch.arange(total).split(min(chunk, total)):
        parts += _by_way(one, several, stacked, chosen)
    _check_same_names([found for _, found in parts])
    if len(parts) == 1:
        return parts[0][1]
    order = torch.cat([chosen for chosen, _ in parts]).argsort()
    columns = {name: torch.cat([found[name] for _, found in parts]) for name in parts[0][1]}
    return {name: column[order.to(column.device)] for name, column in columns.items()}


#: Calls of vmap for one chunk of draws, after which those left go in a loop; and how many draws go
#: in a loop at once, as a call of vmap costs as much.
MOST_GROUPS, FEW_DRAWS = 32, 8


def _by_way(
    one: Callable[..., dict[str, Tensor]],
    several: Callable[..., dict[str, Tensor]],
    stacked: tuple[Tensor, ...],
    chosen: Tensor,
) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Return what a function returns at some draws, in groups that take the same branches.

    Args:
        one: The function of one draw.
        several: The same by vmap.
        stacked: Its arguments, [draw, ...] each.
        chosen: The indices of the draws.

    Returns:
        Pairs of the indices of a group and ``{name: [draw in the group, ...]}``.
    """
    found: list[tuple[Tensor, dict[str, Tensor]]] = []
    groups, calls = [chosen], 0
    while groups:
        group = groups.pop()
        own = tuple(values[group.to(values.device)] for values in stacked)
        if not calls or (calls < MOST_GROUPS and len(group) > FEW_DRAWS):
            calls += 1
            try:
                with Batched(), silenced(UserWarning, "There is a performance drop because"):
                    found.append((group, several(*own)))
                continue
            except MixedCondition as mixed:
                groups += [group[~mixed.truth], group[mixed.truth]]
                continue
            except (RuntimeError, ValueError, NotImplementedError, TypeError):
                pass  # the program asks for a number: .item(), .numpy()
        each = [one(*values) for values in zip(*own, strict=True)]
        _check_same_names(each)
        found.append((group, {k: torch.stack([e[k] for e in each]) for k in each[0]}))
    return found


def _check_same_names(each: Sequence[Mapping[str, Any]]) -> None:
    """Raise NotApplicable if some sites are there at some draws alone."""
    for other in each:
        differing = sorted(each[0].keys() ^ other.keys())
        if differing:
            # characters that no name has mark what belongs to a site
            name = "".join(c for c in differing[0] if c.isprintable())
            raise NotApplicable(
                "the same sites at all draws",
                f"{name!r} at some of them, as in a branch of an if",
                "write the site outside of the branch, and choose its value by torch.where",
            )


NUDGE = 2.0**-10  # a relative change of the latent sites, which leaves cones and intervals alone


def entries_of_data(call: Callable[[], Any], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return which values of each observed site do not depend on the latent sites.

    A program may observe a value that it computes from latent sites: imputed numbers, or a prior
    written as an observation. They are no data.

    Args:
        call: Runs the program.
        values: {latent site or param: [*event]}.

    Returns:
        {observed site: bool, in the shape of its value without the event}.
    """
    first, second = {}, {}
    for name, value in values.items():
        moved = value.detach()
        first[name] = moved
        if moved.is_floating_point():
            second[name] = torch.where(moved == 0, NUDGE, moved * (1 - NUDGE))
        else:
            second[name] = moved
    at_first = _observed_values(call, first)
    try:
        at_second = _observed_values(call, second)
    except (RuntimeError, ValueError, ArithmeticError, IndexError):  # not defined there
        at_second = at_first
    entries = {}
    for name, (value, event) in at_first.items():
        other = at_second.get(name, (value, event))[0]
        if other.shape != value.shape:
            other = value
        same = (value == other) | (value != value) & (other != other)
        entries[name] = same.flatten(same.ndim - event).all(-1) if event else same
    return entries


def _observed_values(
    call: Callable[[], Any], values: dict[str, Tensor]
) -> dict[str, tuple[Tensor, int]]:
    """Return the value of each observed site, and the number of axes of its event."""
    with torch.no_grad(), seeded(0), Run(values) as run:
        call()
    return {
        name: (torch.as_tensor(s["value"]), len(s["fn"].event_shape))
        for name, s in run.samples()
        if is_data(s)
    }


def check_unweighted(name: str, site: Mapping[str, Any]) -> None:
    """Raise NotApplicable for an observed site that counts more or less than once.

    The importance weights of leave-one-out cross-validation would be those of another posterior.
    """
    scale = site["scale"]
    if (isinstance(scale, int | float) and scale == 1) or not is_data(site):
        return
    weights = torch.as_tensor(scale)
    if bool((weights != 1).any()):
        raise NotApplicable(
            "rows that count once each",
            f"a scale at {name!r} (pyro.poutine.scale, or a subsample of a plate)",
            "repeat the rows that count several times, or leave the scale out",
        )
