"""Running a Pyro program with given values: the one handler behind Target and behind a user's own program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import Independent, VonMises, biject_to, constraints, transform_to

from ..errors import NotApplicable
from ..numerics.process_locks import one_at_a_time, when_abandoned
from .angles import Angle


class Run(Messenger):
    """Gives the named sample sites and params their values, and keeps every site's record in ``sites``.

    With ``unconstrained=True`` the values of sample sites and constrained params are unconstrained: each is mapped to
    its support, whatever that is in this run, and the log-Jacobians are added up in ``log_jacobian``.
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        unconstrained: bool = False,
        params: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.values, self.unconstrained, self.params = values, unconstrained, params or {}
        self.sites: dict[str, dict[str, Any]] = {}
        self.subsampled: dict[str, str] = {}  # plates that draw their rows at random, and how many
        self.log_jacobian: Tensor | float = 0.0

    def _mapped(self, name: str, law: Any) -> Tensor:
        value = self.values[name]
        if not self.unconstrained:
            return value
        transform = mapping(name, law)
        mapped = transform(value)
        self.log_jacobian = self.log_jacobian + transform.log_abs_det_jacobian(value, mapped).sum()
        return mapped

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites and not site_is_subsample(msg):
            do = "use pyro.plate, or a name with a number in a loop, such as f'y{i}'"
            raise NotApplicable(
                "a name of its own for every site", f"two sites named {msg['name']!r}", do
            )
        if site_is_subsample(msg):
            wanted, size = msg["fn"].subsample_size, msg["fn"].size
            if msg["value"] is None and wanted is not None and wanted < size:
                self.subsampled[msg["name"]] = f"{wanted} of {size} rows"
        elif not msg["is_observed"] and msg["name"] in self.values:
            msg["value"] = self._mapped(msg["name"], msg["fn"])
            msg["done"] = True
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

    def _pyro_post_sample(self, msg: Any) -> None:
        if not site_is_subsample(msg):
            self.sites[msg["name"]] = dict(msg)

    def _pyro_param(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.values:
            value = self.values[name]
            # it has no density that would change with its scale
            transform = (
                transform_to(msg["kwargs"].get("constraint", constraints.real))
                if self.unconstrained
                else None
            )
            msg["value"] = value if transform is None else transform(value)
            msg["done"] = True
        elif name in self.params:
            msg["value"], msg["done"] = self.params[name], True

    def _pyro_post_param(self, msg: Any) -> None:
        self.sites[msg["name"]] = dict(msg)

    def samples(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((name, s) for name, s in self.sites.items() if s["type"] == "sample")

    def latents(self) -> dict[str, dict[str, Any]]:
        """The unobserved sample sites."""
        return {name: s for name, s in self.samples() if not s["is_observed"]}

    def observed(self) -> dict[str, dict[str, Any]]:
        """The observed sample sites that are a likelihood (no deterministic values, no factors)."""
        return {name: s for name, s in self.samples() if s["is_observed"] and is_data(s)}

    def log_prob(self, likelihood: bool = True) -> Tensor | float:
        """The sum of all sites' log densities, with plate scales and masks; without ``likelihood``, of the latent ones."""
        total: Tensor | float = 0.0
        for _, s in self.samples():
            if not is_deterministic(s) and (likelihood or not s["is_observed"]):
                total = total + scale_and_mask(site_log_prob(s), s["scale"], s["mask"]).sum()
        return total


def mapping(name: str, law: Any) -> Any:
    """The bijection from unconstrained space to the support of a site, given its law.

    Raises:
        NotApplicable: if there is none.
    """
    if is_circular(law):
        return Angle()
    try:
        return biject_to(law.support)
    except NotImplementedError:
        raise NotApplicable(
            "a latent site on a support that unconstrained space can be mapped to",
            f"{name!r} on {type(law.support).__name__}",
            "for a mixture draw its component as a Categorical site (it is summed out) and the value given that",
        ) from None


def is_circular(law: Any) -> bool:
    """Whether a law is one of angles, which torch says to be of the real line."""
    while isinstance(
        law, Independent | dist.MaskedDistribution | dist.ExpandedDistribution | dist.SineSkewed
    ):
        law = law.base_dist
    return isinstance(law, VonMises | dist.SineBivariateVonMises)


def _middle(law: Any) -> Tensor:
    """Where the unconstrained scale of an improper law is 0."""
    transform = biject_to(law.support)
    return transform(torch.zeros(transform.inverse_shape(law.batch_shape + law.event_shape)))


class Redraw(Messenger):
    """Draws every observed site from its law, whatever was observed: the program then simulates data (replicates).

    Values that the program computes (``pyro.deterministic``) are left alone. ``is_data`` tells the sites that were observed.
    """

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] and not is_deterministic(msg) and not is_factor(msg):
            msg["infer"] = {**(msg["infer"] or {}), "was_observed": True}
            msg["is_observed"], msg["done"], msg["value"] = False, False, None


def is_data(s: Mapping[str, Any]) -> bool:
    """Whether a site is a likelihood: observed, or drawn again by ``Redraw``."""
    seen = s["type"] == "sample" and (
        s["is_observed"] or (s["infer"] or {}).get("was_observed", False)
    )
    return bool(seen) and not is_deterministic(s) and not is_factor(s)


def site_log_prob(s: Mapping[str, Any]) -> Tensor:
    return s["fn"].log_prob(s["value"], *s["args"], **s["kwargs"])


def is_deterministic(s: Mapping[str, Any]) -> bool:
    """Whether a site is a value that the program computes: ``pyro.deterministic``, or a site that was reparametrised."""
    if s["infer"] and s["infer"].get("_deterministic", False):
        return True
    law = s["fn"]
    return (
        isinstance(law, dist.MaskedDistribution)
        and law._mask is False
        and isinstance(law.base_dist, dist.Delta)
    )


def numbers_seen(s: Mapping[str, Any]) -> Tensor:
    """How many numbers of an observed site are data, in the shape of its log density: what a mask leaves out counts nothing."""
    law, value, mask = s["fn"], s["value"], s["mask"]
    counts = _unmasked(law)
    if mask is not None:
        counts = counts * torch.as_tensor(mask).to(counts)
    rows = value.shape[
        : value.ndim - len(law.event_shape)
    ]  # a value may have more rows than a law outside of plates
    return counts.expand(torch.broadcast_shapes(counts.shape, rows))


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
    return torch.full(law.batch_shape, law.event_shape.numel())


def is_factor(s: Mapping[str, Any]) -> bool:
    return isinstance(s["fn"], dist.Unit)


def _without_handlers() -> None:
    """A forked child has the stack of handlers of the thread that was inside, which would answer for its sites."""
    pyro.poutine.runtime._PYRO_STACK.clear()


when_abandoned(_without_handlers)


@contextmanager
def quietly() -> Iterator[None]:
    """No validation (it asks questions that a trace or vmap cannot answer), and no param left in the global store; one
    thread at a time, as Pyro's handlers are those of the process."""
    with one_at_a_time(), pyro.validation_enabled(False), pyro.get_param_store().scope():
        yield


def over_draws(
    function: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    draws: Mapping[str, Tensor],
    chunk: int = 500,
) -> dict[str, Tensor]:
    """``function`` of one draw, applied to all: ``{name: [draw, ...]}`` in and out; vmap where it can, else a loop."""
    names = list(draws)
    total = len(draws[names[0]])

    def one(*values: Tensor) -> dict[str, Tensor]:
        return function(dict(zip(names, values, strict=True)))

    stacked = tuple(draws[name] for name in names)
    try:
        return torch.vmap(one, randomness="different", chunk_size=min(chunk, total))(*stacked)
    except (
        RuntimeError,
        ValueError,
        NotImplementedError,
        TypeError,
    ):  # a program that asks for a value: .item(), if, for
        each = [one(*(v[i] for v in stacked)) for i in range(total)]
        return {k: torch.stack([e[k] for e in each]) for k in each[0]}
