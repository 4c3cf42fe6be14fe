"""The sites of the steps of a loop: each is one site of the program, with an axis of steps.

The handlers around the loop see one message per site, in two parts: before the steps they may give
it a value, and after the steps they see its value and its distribution. Between both, handlers that
change the distribution itself (``poutine.reparam``) act in each step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyro
import pyro.distributions as dist
import torch
from pyro.poutine import runtime
from pyro.poutine.enum_messenger import EnumMessenger
from pyro.poutine.indep_messenger import CondIndepStackFrame
from pyro.poutine.messenger import Messenger
from pyro.poutine.reparam_messenger import ReparamMessenger
from pyro.poutine.runtime import _ENUM_ALLOCATOR
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.distributions import Distribution, Independent, constraints
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...data.argument_mistakes import mask_of_other_shape, spreads_to
from ...distributions import univariate
from ...errors import DataError, NotApplicable
from ...numerics.shapes import broadcast_shapes
from ..layout import OBSERVED, UNOBSERVED
from .enumerated_steps import UNROLLED, DensitiesOfSteps, LoopOfSites, Variable

__all__ = ["NewSite", "SitesOfSteps", "StepLaws"]

Part = tuple[str, str]  # of a site: its value, log density, mask or scale


class NewSite(Exception):  # no error: the step has to run once before it is recorded
    """A step that is recorded has a site that is not known yet."""


@dataclass(eq=False)
class _Site:
    """A site of the steps.

    Attributes:
        msg: The message that the handlers around the loop see.
        depth: How many axes of its batch are right of that of the steps.
        event: How many axes its event has.
        handlers: Those that have seen the message.
        batch: The batch shape in one step.
        observed: Whether a step observes it.
        given: The values of all steps that a handler gave; None where there are none.
        known: How many steps have a given value, where those after them draw theirs.
        drawn: Whether steps draw it.
        variable: All its values, where it is discrete and summed out.
    """

    msg: Any
    depth: int
    event: int
    handlers: list[Messenger] = field(default_factory=list)
    batch: torch.Size = torch.Size()
    observed: bool = False
    given: Tensor | None = None
    known: int | None = None
    drawn: bool = False
    variable: Variable | None = None

    @property
    def computed(self) -> bool:
        """Whether it is ``pyro.deterministic`` or ``pyro.factor``."""
        return is_computed(self.msg["fn"])

    def laid(self, x: Tensor, event: int) -> Tensor:
        """Return x [steps, *batch, *event] with the steps left of the plates.

        A batch of more axes than the plates has those of enumerated values left of the steps, and
        one axis of length 1 where the steps are to be.
        """
        axes = x.ndim - 1 - event
        if axes < self.depth:
            ones = (1,) * (self.depth - axes)
            return x.reshape(len(x), *ones, *x.shape[1:])
        if axes == self.depth:
            return x
        place = -1 - self.depth - event
        return x.squeeze(place).movedim(0, place)

    def given_at(self, t: int) -> bool:
        """Return whether step t has a given value."""
        return self.given is not None and (self.known is None or t < self.known)

    def at(self, t: int) -> Tensor:
        """Return the given value of step t."""
        given, axis = cast(Tensor, self.given), -1 - self.depth - self.event
        return given[t] if given.ndim == -axis else given.narrow(axis, t, 1)


@dataclass(frozen=True)
class _Once:
    """A site in one step."""

    law: Any
    value: Tensor
    mask: Any
    scale: Any


class SitesOfSteps(Messenger):
    """The sites of the steps of one loop.

    Args:
        steps: The number of steps.
        reverse: Whether the last step comes first.

    Attributes:
        sites: Those that are known so far, by name.
        slots: ``{site: its value in this step}`` while a step is recorded; None otherwise.
        elsewhere: The discrete site whose values have the axis of the step before; None for none.
    """

    def __init__(self, steps: int, reverse: bool = False) -> None:
        super().__init__()
        self.steps, self.reverse = steps, reverse
        self.sites: dict[str, _Site] = {}
        self.slots: dict[str, Tensor] | None = None
        self.elsewhere: str | None = None
        self._around: list[Messenger] = list(runtime._PYRO_STACK)
        loops = [i for i, m in enumerate(self._around) if isinstance(m, SitesOfSteps)]
        #: whether it is inside a step of another loop, to which its sites are those of a step
        self._inside = bool(loops)
        self._plates = runtime.get_plates() if self._around else ()
        each = (m for m in self._around if isinstance(m, EnumMessenger))
        self._enumeration: Any = next(each, None)
        # the step of another loop has copies of those around that loop
        own = self._around[loops[-1] :] if loops else self._around
        self._changing = [m for m in own if _changes_laws(m)]
        self._fills_missing = any(getattr(m, "fills_missing", False) for m in self._around)
        self._subsamples: dict[str, Tensor] = {}
        self._seen: dict[str, _Once] = {}
        self._records: list[dict[str, _Once]] = []
        self._plate_names: dict[int, str] = {}  # by the number of axes right of the steps
        self._t = 0
        self._ready = False  # whether one step has ended, so that all sites are known

    @property
    def at_once(self) -> bool:
        """Whether the densities of all steps are wanted alone, and not their distributions."""
        return any(getattr(m, "steps_at_once", False) for m in self._around)

    @property
    def may_be_summed(self) -> bool:
        """Whether discrete sites of the steps are summed out, if there are any."""
        return self._enumeration is not None

    @property
    def variables(self) -> dict[str, Variable]:
        """The discrete sites that are summed out."""
        return {name: s.variable for name, s in self.sites.items() if s.variable is not None}

    # -- in a step ---------------------------------------------------------------------------------

    @contextmanager
    def step(self, t: int) -> Iterator[None]:
        """Context manager: step t runs inside."""
        self._t, self._seen = t, {}
        with ExitStack() as stack:
            stack.enter_context(self)
            for messenger in self._changing:
                stack.enter_context(copy.copy(messenger))
            yield
        missing = [name for name in self.sites if name not in self._seen]
        if missing:
            raise _other_sites(missing[0])
        self._ready = True

    def kept(self) -> None:
        """Keep what the step had, for ``finish``."""
        self._records.append(self._seen)

    @property
    def begun(self) -> bool:
        """Whether a step has run and is kept."""
        return bool(self._records)

    def drop(self) -> None:
        """Forget what the step had."""
        for once in self._seen.values():
            # a density that a handler has put there knows its distribution, whose tensors would
            # stay until Python looks for garbage
            vars(once.law).pop("log_prob", None)
        self._seen = {}

    def turn(self) -> None:
        """Put what is kept in the order of the steps, of a loop that began with the last."""
        self._records.reverse()

    def again(self) -> None:
        """Forget what the steps had."""
        self._records = []

    def _pyro_sample(self, msg: Any) -> None:
        name, law = msg["name"], msg["fn"]
        if site_is_subsample(msg):
            self._take_rows(msg)
            return
        if name in self._seen:
            do = "give each its own name"
            raise DataError(
                "a name of its own for every site of a step of ppgp.scan", f"two {name!r}", do
            )
        if not (is_computed(law) or isinstance(law, Distribution)):
            do = f"write pyro.sample({name!r}, a distribution of Pyro)"
            raise DataError(f"a distribution at {name!r}", type(law).__name__, do)
        site = self.sites.get(name)
        if site is None:
            if self.slots is not None:
                raise NewSite(name)
            if self._ready:
                raise _other_sites(name)
            site = self.sites[name] = self._begun(msg, self._depth_of(msg))
        if not site.computed and site.observed != msg["is_observed"]:
            got = f"one at {name!r} that some steps observe and others do not"
            do = "observe it in a step for all, or mask it by poutine.mask"
            raise DataError("a site that all steps of ppgp.scan observe, or none", got, do)
        if _is_of_steps(msg) and not site.computed:
            self._hand_to_inner(msg, site)
            return
        if site.variable is not None:
            here = name == self.elsewhere
            value = site.variable.elsewhere if here else site.variable.values
        elif not site.computed and site.given_at(self._t):
            value = site.at(self._t) if self.slots is None else self.slots[name]
        elif site.computed or not (site.drawn or site.known):
            value = torch.as_tensor(msg["value"])
        else:
            batch = broadcast_shapes(law.batch_shape, site.batch)
            value = law.expand(batch)(*msg["args"], **msg["kwargs"])
        if not (site.observed or site.computed or self.slots is not None):
            self._check_support(name, law)
        once = _Once(law, value, msg["mask"], msg["scale"])
        msg["value"], msg["done"], msg["stop"] = once.value, True, True
        if self._fills_missing:  # in the density alone
            once = replace(once, value=_without_missing(site, once))
        self._seen[name] = once

    def _hand_to_inner(self, msg: Any, site: _Site) -> None:
        """Give a site of a loop inside this step its value, if it has one."""
        if not site.observed:
            law = msg["fn"]
            msg["fn"] = law.expand(broadcast_shapes(law.batch_shape, site.batch))
            if site.given_at(self._t):
                name = msg["name"]
                msg["value"] = site.at(self._t) if self.slots is None else self.slots[name]
        msg["stop"] = True

    def _take_rows(self, msg: Any) -> None:
        """Let the plate of a step take the same rows in every step."""
        if msg["name"] in self._subsamples:
            msg["value"] = self._subsamples[msg["name"]]
            msg["done"] = msg["stop"] = True
        elif self.slots is not None:
            raise NewSite(msg["name"])

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if site_is_subsample(msg):
            self._subsamples[name] = msg["value"]
        elif _is_of_steps(msg) and name not in self._seen:  # by a loop inside this step
            if not (self.sites[name].observed or self.slots is not None):
                self._check_support(name, msg["fn"])
            self._seen[name] = _Once(msg["fn"], msg["value"], msg["mask"], msg["scale"])

    def _check_support(self, name: str, law: Any) -> None:
        """Refuse a latent site whose support changes from step to step."""
        if not self._records or peek_interpreter_stack() is not None:
            return
        if _get_current_dispatch_mode() is not None:
            return
        pairs = zip(_bounds(self._records[0][name].law), _bounds(law), strict=False)
        if not all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs):
            raise NotApplicable(
                "latent sites of ppgp.scan with one support for all steps",
                f"{name!r}, whose support changes",
                "draw it on a fixed support, and scale or shift it in the step",
            )

    def _depth_of(self, msg: Any) -> int:
        """Return how many axes of the batch of a site are to be right of that of the steps."""
        depth = self._plates_of(msg)
        if self._enumeration is not None:
            return depth
        return max(depth, len(msg["fn"].batch_shape))

    def _plates_of(self, msg: Any) -> int:
        """Return how many axes the plates of a site of a step have."""
        frames = (*msg["cond_indep_stack"], *self._plates)
        return max((-f.dim for f in frames if f.dim is not None), default=0)

    def _begun(self, msg: Any, depth: int) -> _Site:
        """Return a site as its first step shows it, after the handlers have seen its message."""
        if self._inside and self.may_be_summed:
            raise NotApplicable(
                "a program without discrete sites where a step of ppgp.scan has a scan with sites",
                f"{msg['name']!r} in the inner one",
                "write the inner loop in Python, with a number in the name of each site",
            )
        law, inner = msg["fn"], msg["cond_indep_stack"]
        frame, plate = self._plate(msg["name"], depth, inner)
        infer = msg["infer"] or {}
        outer = {
            **msg,
            "cond_indep_stack": (frame, *inner),
            "infer": {
                **infer,
                "of_steps": self.steps,
                "from_the_end": self.reverse,
                "plates_of_steps": {**infer.get("plates_of_steps", {}), frame.name: plate},
            },
            "mask": None,
            "scale": 1.0,
            "args": (),
            "kwargs": {},
        }
        site = _Site(outer, depth, len(law.event_shape), observed=bool(msg["is_observed"]))
        if site.computed:
            return site
        shape = [1] * (depth + 1 - len(law.batch_shape)) + list(law.batch_shape)
        shape[-1 - depth] = self.steps
        outer["fn"] = law.expand(torch.Size(shape))
        stand_in = None
        if site.observed:
            value = torch.as_tensor(msg["value"])
            stand_in = site.laid(value.expand(self.steps, *value.shape), site.event)
        outer["value"] = stand_in
        site.handlers = self._shown(outer)
        if "_enumerate_dim" in outer["infer"]:
            site.variable = self._variable(outer)
            return site
        whole = list(outer["fn"].batch_shape)
        if max(len(whole) - 1, len(law.batch_shape)) > depth:
            whole[-1 - depth] = 1
        else:
            del whole[0]
        site.batch = torch.Size(whole)
        mask = msg["mask"]
        if (
            msg["name"].endswith((OBSERVED, UNOBSERVED))
            and self._enumeration is None
            and isinstance(mask, Tensor)
            and not spreads_to(mask.shape, site.batch)
        ):
            name = msg["name"].removesuffix(OBSERVED).removesuffix(UNOBSERVED)
            raise mask_of_other_shape(name, mask.shape, site.batch, law, self.steps)
        value = outer["value"]
        site.drawn = value is None
        if value is not None and value is not stand_in:
            axis = -1 - depth - site.event
            value = self._without_ones(msg, site, value, axis)
            own = value.ndim - 1 - site.event
            if own in range(depth) and set(law.batch_shape[: len(law.batch_shape) - own]) == {1}:
                # Pyro's Predictive gives other sites axes of length 1, as many as there are plates
                return self._begun(msg, own)
            missing = self.steps - (value.shape[axis] if value.ndim >= -axis else 0)
            if 0 < missing < self.steps and outer["infer"].get("continues"):
                site.known = self.steps - missing
            elif missing:
                raise DataError(
                    f"a value of {msg['name']!r} for {self.steps} steps",
                    f"one of shape {list(value.shape)}",
                    "the first axis of a site of ppgp.scan, before its plates, is that of the "
                    "steps",
                )
            site.given = value
        return site

    def _without_ones(self, msg: Any, site: _Site, value: Tensor, axis: int) -> Tensor:
        """Return a given value without axes of length 1 left of the steps.

        Pyro's Predictive has them where another site is in more plates.
        """
        extra = value.ndim - 1 - self._plates_of(msg) - site.event
        fits = value.ndim >= -axis and value.shape[axis] == self.steps
        if fits or extra <= 0 or value.shape[extra] != self.steps:
            return value
        return value.reshape(value.shape[extra:]) if set(value.shape[:extra]) == {1} else value

    def _variable(self, msg: Any) -> Variable:
        """Return the variable of a discrete site that takes all its values.

        Raises:
            NotApplicable: If the handler that gives them, or one around it, knows no loops.
        """
        name, infer = msg["name"], msg["infer"]
        if not hasattr(self._enumeration, "apart"):
            raise NotApplicable(
                "a fit by ppgp of a program with discrete sites in the steps of ppgp.scan",
                f"{name!r} under an enumeration of Pyro",
                f"fit it by ppgp.fit, or {UNROLLED}",
            )
        if infer.get("_markov_scope") is not None:
            raise NotApplicable(
                "a ppgp.scan with discrete sites outside of pyro.markov",
                f"{name!r} inside",
                UNROLLED,
            )
        dim = infer["_enumerate_dim"]
        before = _ENUM_ALLOCATOR.allocate(None)
        number = infer["_dim_to_id"][dim]
        return Variable(msg["value"], dim, number, *before, len(msg["fn"].event_shape))

    def _plate(self, name: str, depth: int, inner: Sequence[Any]) -> tuple[Any, str]:
        """Return the plate of the steps, for a site with so many axes right of it, and its name.

        Guides of Pyro have one axis for each plate, so that each number of axes is another plate
        there. Where discrete sites are summed out, the steps are one.

        Args:
            name: The site.
            depth: The number of axes.
            inner: The plates of the site in a step.
        """
        new = depth not in self._plate_names
        if not self._plate_names:
            own = f"steps_of_{name}"
            while any(frame.name == own for frame in inner):  # of a loop inside the step
                own = f"outer_{own}"
            self._plate_names[depth] = own
        first = next(iter(self._plate_names.values()))
        own = self._plate_names.setdefault(depth, f"{first}_{depth}")
        if new:
            pyro.plate(own, self.steps, dim=-1 - depth)  # it shows itself to the handlers
        if self._enumeration is not None:
            own = first
        return CondIndepStackFrame(own, -1 - depth, self.steps, 0, self.steps), first

    def _shown(self, msg: Any) -> list[Messenger]:
        """Show a message to the handlers around the loop, from the inside; return those."""
        shown = []
        for messenger in reversed(self._around):
            if not _changes_laws(messenger):
                shown.append(messenger)
                messenger._process_message(msg)
                if msg["stop"]:
                    break
        return shown

    # -- the steps as one graph --------------------------------------------------------------------

    @property
    def recordable(self) -> bool:
        """Whether one step, recorded, can serve all: no site is drawn."""
        return not any(
            site.drawn
            or site.known is not None
            or (site.given is not None and site.given.ndim != site.depth + site.event + 1)
            for site in self.sites.values()
        )

    def given(self) -> dict[str, Tensor]:
        """Return the values [steps, ...] of the sites that have them."""
        return {name: s.given for name, s in self.sites.items() if s.given is not None}

    def parts(self) -> dict[Part, Tensor]:
        """Return the tensors of this step that ``finish`` needs."""
        return _parts_of(self.sites, self._seen, with_log_prob=True)

    # -- sums over discrete sites ------------------------------------------------------------------

    def apart(self) -> Any:
        """Context manager: operations inside are not shared with those outside."""
        return self._enumeration.apart()

    def loop(self) -> LoopOfSites:
        """Return what is known of the loop after its first step."""
        plate = next(iter(self._plate_names.values()))
        return LoopOfSites(plate, self.steps, self.reverse, self.variables)

    def densities(self) -> dict[Part, Tensor]:
        """Return the log densities of a step, masked, and the scales that are tensors."""
        parts: dict[Part, Tensor] = {}
        for name, site in self.sites.items():
            once = self._seen[name]
            if not site.computed:
                parts[name, "log_prob"] = _masked_density(site, once)
            elif isinstance(once.law, dist.Unit):
                factor = once.law.log_factor
                parts[name, "log_prob"] = _where(once.mask, factor)
            else:
                continue
            if isinstance(once.scale, Tensor):
                parts[name, "scale"] = once.scale
        return parts

    def finish_sums(
        self, loop: LoopOfSites, first: dict[Part, Tensor], rest: dict[Part, Tensor] | None
    ) -> None:
        """Show each site to the handlers, with the densities of all steps.

        Args:
            loop: The loop.
            first: ``densities()`` of the first step.
            rest: Of the others in their order, [steps - 1, ...] each, or [1, ...] where they are
                the same; None where there are no others.
        """
        once = self._records[0]
        for name, site in self.sites.items():
            if (name, "log_prob") not in first:  # a value, which has no density
                continue
            msg = site.msg
            if site.computed:
                msg["fn"] = dist.Unit(torch.zeros(()))
                msg["value"] = torch.zeros(0)
                site.handlers = self._shown(msg)
            others = None if rest is None else site.laid(rest[name, "log_prob"], 0)
            scale = once[name].scale
            if isinstance(scale, Tensor) and rest is not None and len(rest[name, "scale"]) > 1:
                scale = site.laid(torch.cat([scale[None], rest[name, "scale"]]), 0)
            densities = DensitiesOfSteps(loop, site.depth, first[name, "log_prob"], others)
            msg["infer"] = {**msg["infer"], "densities_of_steps": densities}
            msg["scale"] = scale * msg["scale"]
            _handed_on(msg, site.handlers)

    # -- after the steps ---------------------------------------------------------------------------

    def finish(self, parts: dict[Part, Tensor] | None = None) -> None:
        """Show each site to the handlers, with the values of all steps.

        Args:
            parts: ``parts()`` of all steps, [steps, ...] each; None where each step ran by itself.
        """
        if not self._records:
            return
        once = self._records[0]
        if parts is None:
            each = [_parts_of(self.sites, record) for record in self._records]
            parts = {key: _stack([one[key] for one in each]) for key in each[0]}
        else:
            self._records = []
        for name, site in self.sites.items():
            self._show(name, site, once[name], parts)

    def _show(self, name: str, site: _Site, once: _Once, parts: dict[Part, Tensor]) -> None:
        msg = site.msg
        if site.computed:
            imputed = name + UNOBSERVED in self.sites
            _put_computed(msg, site, once.law, parts[name, "value"], in_plates=imputed)
            site.handlers = self._shown(msg)
        else:
            value = site.given
            if value is None or site.known is not None:
                value = site.laid(parts[name, "value"], site.event)
            laws = [record[name].law for record in self._records]
            log_probs = parts.get((name, "log_prob"))
            joined = None if log_probs is not None else _joined(laws, site)
            if joined is None:
                log_probs = None if log_probs is None else site.laid(log_probs, 0)
                joined = StepLaws(msg["fn"], site, value, log_probs, laws)
            elif joined.batch_shape != msg["fn"].batch_shape:
                joined = joined.expand(msg["fn"].batch_shape)
            msg["value"], msg["fn"] = value, joined
        mask, scale = once.mask, once.scale
        if (name, "mask") in parts:
            mask = site.laid(parts[name, "mask"], 0)
        if (name, "scale") in parts:
            scale = site.laid(parts[name, "scale"], 0)
        if mask is not None:
            msg["mask"] = mask if msg["mask"] is None else mask & msg["mask"]
        msg["scale"] = scale * msg["scale"]
        _handed_on(msg, site.handlers)


def _handed_on(msg: Any, handlers: Sequence[Any]) -> None:
    """Let the handlers around a loop see a site of it, as Pyro does after a statement."""
    msg["done"] = True
    for messenger in reversed(handlers):
        messenger._postprocess_message(msg)
    if msg["continuation"] is not None:
        msg["continuation"](msg)


class StepLaws(dist.TorchDistribution):
    """The distribution of a site of all steps, given the values at the steps before each.

    Args:
        like: A distribution of its shapes and support.
        site: The site.
        value: Its values.
        log_probs: Their log densities, [steps, *plates]; None where ``laws`` give them.
        laws: The distribution in each step; [] where only the log densities are known.
    """

    arg_constraints: Any = {}  # type: ignore[assignment] # torch declares a property

    def __init__(
        self, like: Any, site: _Site, value: Tensor, log_probs: Tensor | None, laws: list[Any]
    ) -> None:
        self.like, self.site, self.value = like, site, value
        self.log_probs, self.laws = log_probs, laws
        super().__init__(like.batch_shape, like.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.like.support

    @property
    def replaces_missing(self) -> bool:
        """Whether the log densities are those of numbers where a mask leaves values out."""
        return self.log_probs is not None

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.like.has_rsample)

    def expand(self, batch_shape: Any, _instance: Any = None) -> StepLaws:
        if torch.Size(batch_shape) != self.batch_shape:
            raise NotImplementedError("the distribution of steps has its shape")
        return self

    def log_prob(self, value: Tensor) -> Tensor:
        if value is self.value and self.log_probs is not None:
            return self.log_probs
        axis = -1 - self.site.depth - self.site.event
        each = zip(self._laws(), value.unbind(axis), strict=True)
        return self.site.laid(_stack([law.log_prob(x) for law, x in each]), 0)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape)
        draws = [law.expand(self.site.batch)(shape) for law in self._laws()]
        return torch.stack(draws, -1 - self.site.depth - self.site.event)

    @property
    def mean(self) -> Tensor:
        return self.site.laid(_stack([law.mean for law in self._laws()]), self.site.event)

    @property
    def variance(self) -> Tensor:
        return self.site.laid(_stack([law.variance for law in self._laws()]), self.site.event)

    def _laws(self) -> list[Any]:
        if not self.laws:
            raise NotImplementedError("only the log density of the values is known")
        return self.laws


def _masked_density(site: _Site, once: _Once) -> Tensor:
    """Return the log density in one step, 0 where a mask leaves out what is no discrete site."""
    law, value = once.law, once.value
    if site.variable is not None:
        if hasattr(value, "_pyro_categorical_support"):
            cast(Any, value)._pyro_categorical_support = id(
                law
            )  # Pyro has a short way for all its values
        return law.log_prob(value)
    return _where(once.mask, law.log_prob(_without_missing(site, once)))


def _without_missing(site: _Site, once: _Once) -> Tensor:
    """Return a value with a number for each NaN or infinity that a mask leaves out."""
    mask, value = once.mask, once.value
    if not (site.observed and isinstance(mask, Tensor) and value.is_floating_point()):
        return value
    left_out = ~mask.reshape([*mask.shape, *(1,) * site.event])
    return torch.where(~value.isfinite() & left_out, 0.5, value)


def _where(mask: Any, density: Tensor) -> Tensor:
    """Return a log density that is 0 where a mask leaves it out."""
    if mask is None or mask is True:
        return density
    if mask is False:
        return torch.zeros_like(density)
    return torch.where(mask, density, 0.0)


def _is_of_steps(msg: Any) -> bool:
    """Return whether a site is one of the steps of a loop."""
    return bool((msg["infer"] or {}).get("of_steps"))


def is_computed(law: Any) -> bool:
    """Return whether a site is ``pyro.deterministic`` or ``pyro.factor``."""
    if isinstance(law, dist.Unit):
        return True
    masked = isinstance(law, dist.MaskedDistribution) and law._mask is False
    return masked and isinstance(law.base_dist, dist.Delta)


def _put_computed(msg: Any, site: _Site, law: Any, found: Tensor, in_plates: bool = False) -> None:
    """Put distribution and value of all steps into the message of a computed site.

    Args:
        msg: The message.
        site: The site.
        law: Its distribution in the first step.
        found: What ``finish`` has of all steps.
        in_plates: Whether a value without further axes belongs to the steps, each of them one row.
    """
    if isinstance(law, dist.Unit):
        factors = site.laid(found, 0)
        msg["fn"] = dist.Unit(factors, has_rsample=law.has_rsample)
        msg["value"] = factors.new_empty((*factors.shape, 0))
        return
    event = len(law.event_shape)
    # pyro.deterministic without event_dim, and no batch
    if found.ndim - 1 <= event and not in_plates:
        msg["cond_indep_stack"] = ()
        event = found.ndim
    else:
        found = site.laid(found, event)
    msg["fn"], msg["value"] = dist.Delta(found, event_dim=event).mask(False), found


def _changes_laws(messenger: Messenger) -> bool:
    """Return whether a handler replaces distributions, for which it has to see those of a step."""
    return isinstance(messenger, ReparamMessenger) or getattr(messenger, "changes_laws", False)


def _other_sites(name: str) -> DataError:
    return DataError(
        "the same sites in every step of ppgp.scan",
        f"{name!r} in some steps alone",
        "draw it in every step, or write the loop in Python",
    )


def _parts_of(
    sites: dict[str, _Site], seen: dict[str, _Once], with_log_prob: bool = False
) -> dict[Part, Tensor]:
    """Return what the sites of one step give to those of all steps."""
    parts: dict[Part, Tensor] = {}
    for name, site in sites.items():
        once = seen[name]
        if site.computed:
            is_factor = isinstance(once.law, dist.Unit)
            parts[name, "value"] = once.law.log_factor if is_factor else once.value
        else:
            if site.given is None or site.known is not None:
                parts[name, "value"] = once.value
            if isinstance(once.law, StepLaws) and once.law.log_probs is not None:
                parts[name, "log_prob"] = once.law.log_probs
            # a density that a handler has put in place of the distribution's own
            elif with_log_prob or "log_prob" in vars(once.law):
                parts[name, "log_prob"] = once.law.log_prob(_without_missing(site, once))
        for kind, x in (("mask", once.mask), ("scale", once.scale)):
            if isinstance(x, Tensor):
                parts[name, kind] = x
    return parts


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors in one with a new first axis."""
    if all(x.shape == tensors[0].shape for x in tensors):
        return torch.stack(list(tensors))
    return torch.stack(torch.broadcast_tensors(*tensors))


def _joined(laws: list[Any], site: _Site, event: int = 0) -> Any:
    """Return the distributions of all steps as one; None for families without such a form.

    Args:
        laws: One for each step.
        site: Its site.
        event: How many axes of the batch are those of an event, as in ``to_event``.
    """
    first = laws[0]
    if any(type(law) is not type(first) for law in laws):
        return None
    if isinstance(first, Independent):
        over = first.reinterpreted_batch_ndims
        inner = _joined([law.base_dist for law in laws], site, event + over)
        return None if inner is None else dist.Independent(inner, over)
    if isinstance(first, dist.MaskedDistribution):
        inner = _joined([law.base_dist for law in laws], site, event)
        masks = [law._mask for law in laws]
        if inner is None:
            return None
        if not all(isinstance(mask, Tensor) for mask in masks):
            return inner.mask(masks[0]) if all(mask is masks[0] for mask in masks) else None
        return inner.mask(site.laid(_stack(masks), event))
    try:
        each = [univariate.parameters(law) for law in laws]
        if not each[0]:
            return None
        stacked = {}
        for name in each[0]:
            own = each[0][name].ndim - len(first.batch_shape)
            stacked[name] = site.laid(_stack([one[name] for one in each]), event + own)
        found = univariate.rebuilt(first, stacked)
    except (NotApplicable, KeyError, NotImplementedError):
        return None
    right = found.event_shape == first.event_shape
    return found if right and found.batch_shape.numel() else None


def _bounds(law: Any) -> list[Any]:
    """Return the numbers on which the support of a distribution depends."""
    try:
        support = law.support
    except NotImplementedError:
        return []
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return [x for x in vars(support).values() if isinstance(x, Tensor | float | int)]
