"""What every search for a mode shares: its options, what it has computed, and what it returns.

A deterministic search that starts again asks for the same numbers in the same order, so the results
of its evaluations stand for its state, whatever library it belongs to. A stochastic loop keeps its
state after the last step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta, Dirichlet, Gamma

from ...density.handlers import AROUND
from ...density.target import Target
from ...errors import SettingError, UnknownName
from ..checkpoint import Checkpoint

LARGEST = 2**28  # bytes of results that are kept
LOOP = "loop"  # the first part of the names of the tensors of loops in a file

Compute = Callable[[], Sequence[Tensor]]


class Record:
    """The results of evaluations, in order, and the states of stochastic loops.

    Results past ``LARGEST`` bytes are not kept: a search that starts again computes them again.

    Args:
        checkpoint: The file. None: nothing is kept.

    Attributes:
        active: Whether anything is kept.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self._checkpoint: Checkpoint | None = None
        self._known: list[tuple[int, Tensor]] = []
        self._asked, self._bytes, self._left_out = 0, 0, 0
        self._loops: list[Loop] = []
        self._states: dict[int, dict[str, Tensor]] = {}
        self.active = checkpoint is not None and checkpoint.path is not None
        if checkpoint is None or checkpoint.path is None:
            return
        self._checkpoint = checkpoint
        saved = checkpoint.found()
        if saved is not None:
            self._restore(saved)

    def evaluated(self, z: Tensor, orders: Sequence[int], compute: Compute) -> Sequence[Tensor]:
        """Return ``compute()``, or what it returned when an earlier run was at this place.

        Args:
            z: What the results depend on besides their place in the order, [p].
            orders: Of the results as derivatives by z: 0 for a number, 1 for [p], 2 for [p, p].
            compute: The evaluation. Results become contiguous, as a file gives them: another layout
                may be summed in another order.
        """
        if self._checkpoint is None:
            return [r.contiguous() for r in compute()]
        digest = _digest(z, orders)
        place = self._asked
        if place < len(self._known):
            known, numbers = self._known[place]
            if known == digest:
                self._asked += 1
                return _unpacked(numbers, z, orders)
            # another machine rounds otherwise, or the start is another: the rest is of another path
            self._bytes -= sum(_size(numbers) for _, numbers in self._known[place:])
            del self._known[place:]
        results = [r.contiguous() for r in compute()]
        self._asked += 1
        if place == len(self._known):
            self._keep(digest, _packed(results))
        else:
            self._left_out += 1
        self.save_if_due()
        return results

    def _keep(self, digest: int, numbers: Tensor) -> None:
        """Add the results of an evaluation, if there is room."""
        if self._bytes + _size(numbers) > LARGEST:
            self._left_out += 1
            return
        self._bytes += _size(numbers)
        self._known.append((digest, numbers))

    def loop(self) -> Loop:
        """Return the state of the next loop: empty, or where an earlier run had got to."""
        number = len(self._loops)
        self._loops.append(Loop(self, self._states.pop(number, {})))
        return self._loops[-1]

    def save_if_due(self) -> None:
        """Write everything to the file if it is time to."""
        if self._checkpoint is not None and self._checkpoint.due():
            self.save()

    def save(self) -> None:
        """Write everything to the file."""
        if self._checkpoint is None:
            return
        empty = torch.zeros(0, dtype=torch.float64)
        tensors = {
            "digests": torch.tensor([digest for digest, _ in self._known], dtype=torch.int64),
            "sizes": torch.tensor([len(r) for _, r in self._known], dtype=torch.int64),
            "results": torch.cat([empty, *(r for _, r in self._known)]),
        }
        states = {i: loop.tensors() for i, loop in enumerate(self._loops)} | self._states
        for number, state in states.items():
            tensors |= {f"{LOOP}.{number}.{name}": value for name, value in state.items()}
        self._checkpoint.save(tensors)

    def notes(self) -> list[str]:
        """Return what the file leaves out."""
        if not self._left_out:
            return []
        return [
            f"the checkpoint holds {len(self._known)} evaluations of the search, "
            f"{LARGEST >> 20} MB, and a run that goes on from it computes later ones again"
        ]

    def _restore(self, saved: Mapping[str, Tensor]) -> None:
        digests, sizes = saved["digests"].tolist(), saved["sizes"].tolist()
        self._known = list(zip(digests, saved["results"].split(sizes), strict=True))
        self._bytes = sum(_size(numbers) for _, numbers in self._known)
        for name, value in saved.items():
            if name.startswith(f"{LOOP}."):
                _, number, own = name.split(".", 2)
                self._states.setdefault(int(number), {})[own] = value


class Loop:
    """The state of a stochastic loop after its last whole step.

    A step that Ctrl-C or an error cuts short leaves no trace in it.

    Attributes:
        saved: The tensors that an earlier run kept; empty if there are none.
        history: The numbers that it kept, one for each step.
    """

    def __init__(self, record: Record, saved: Mapping[str, Tensor]) -> None:
        self._record = record
        self.saved = {name: value for name, value in saved.items() if name != "history"}
        self.history: list[float] = saved["history"].tolist() if "history" in saved else []
        self._state: tuple[Mapping[str, Tensor], list[float], int] = (
            self.saved,
            self.history,
            len(self.history),
        )

    def keep(self, state: Callable[[], Mapping[str, Tensor]], history: list[float]) -> None:
        """Keep the state after a step, and write it to the file if it is time to.

        Args:
            state: Returns all that the next step depends on, as tensors that later steps do not
                change.
            history: A number for each step so far, a list that only grows.
        """
        if not self._record.active:
            return
        self._state = state(), history, len(history)
        self._record.save_if_due()

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint; none before the first step."""
        state, history, taken = self._state
        if not state:
            return {}
        return {**state, "history": torch.tensor(history[:taken], dtype=torch.float64)}


def _digest(z: Tensor, orders: Sequence[int]) -> int:
    """Return a digest of a question, a whole number of 64 bits."""
    content = z.detach().cpu().contiguous().view(torch.uint8).numpy().data
    digest = hashlib.blake2b(content, digest_size=8, salt=bytes(orders))
    return int.from_bytes(digest.digest(), "little", signed=True)


def _packed(results: Sequence[Tensor]) -> Tensor:
    """Return the numbers of several tensors, end to end."""
    return torch.cat([r.detach().double().cpu().reshape(-1) for r in results])


def _unpacked(numbers: Tensor, z: Tensor, orders: Sequence[int]) -> list[Tensor]:
    """Return the tensors of these orders, with the dtype and on the device of z [p]."""
    shapes = [(len(z),) * order for order in orders]
    parts = numbers.split([prod(shape) for shape in shapes])
    # copies: where a tensor lies in memory decides the last digits of sums
    return [part.clone().to(z).reshape(s) for part, s in zip(parts, shapes, strict=True)]


def _size(numbers: Tensor) -> int:
    """Return the bytes of a tensor."""
    return numbers.numel() * numbers.element_size()


#: Evaluations after which the SciPy searches compile the density. Most end earlier, and compiling
#: costs about as much as this many evaluations.
COMPILE_AFTER = 60
#: The largest gradient at a mode, in units of the root of the value: in float64, and in float32,
#: whose gradients have larger errors of rounding.
STEEP, STEEP_IN_SINGLE = 1e-3, 2e-2


def is_steep(slope: float, value: float, dtype: torch.dtype) -> bool:
    """Return whether the largest entry of a gradient is too large for a mode of this density."""
    least = STEEP if dtype == torch.float64 else STEEP_IN_SINGLE
    return slope > least * max(1.0, abs(value) ** 0.5)


RECENT = 3  # iterations, whose gains tell the rate of a search
LITTLE_GAIN = 0.01  # nats in each of them


@dataclass(frozen=True)
class Few:
    """When a search of few steps ends.

    Attributes:
        bar: The log density that its end has to reach; it is given up where it gains too little
            in an iteration to do so.
        leader: Above this log density it goes on to the mode, as it is then the best of several.
        steps: The largest number of iterations below ``leader``.
    """

    bar: float = -math.inf
    leader: float = math.inf
    steps: int = 12

    def is_given_up(self, heights: Sequence[float]) -> bool:
        """Return whether a search gains next to nothing, or is about to end below the bar.

        Args:
            heights: The best log density after each iteration.
        """
        if len(heights) <= RECENT or heights[-1] > self.leader:
            return False
        gain = max(heights[i] - heights[i - 1] for i in range(-RECENT, 0))
        return gain < LITTLE_GAIN or heights[-1] + (self.steps - len(heights)) * gain < self.bar


@dataclass(frozen=True)
class SearchOptions:
    """The numbers that a search for a mode needs.

    Attributes:
        optimizer: Its name, which the progress bar and the notes show.
        steps: The largest number of iterations.
        learning_rate: One number, or one number per site. None: ``default_rate``.
        default_rate: The default of the optimizer. None: it has no learning rate.
        schedule: How the learning rate changes over the steps. None: the default of the optimizer.
        batch_size: Rows per step. None: all rows, or 32 for "sgd".
        reach: The length of an adversarial step in each column of X, [d]. None: no such step.
        jacobian: Whether the density includes the log-Jacobian of the transform.
        progress: Whether to show a progress bar.
        compile_after: Evaluations after which the SciPy searches compile the density.
        few: Makes it a search of few steps. None: it goes on to the mode.
        root: R [p, p] of L-BFGS, where about R R' = -H^-1 of the second derivatives H: it searches
            over u, z = R u, to a gradient in u that says that the mode is reached. None: the steps
            of the target.
        record: What the search has computed so far, for a checkpoint.
    """

    optimizer: str = "lbfgs"
    steps: int = 1000
    learning_rate: float | Mapping[str, float] | None = None
    default_rate: float | None = None
    schedule: str | None = None
    batch_size: int | None = None
    reach: Tensor | None = None
    jacobian: bool = False
    progress: bool = False
    compile_after: float = COMPILE_AFTER
    few: Few | None = None
    root: Tensor | None = None
    record: Record = field(default_factory=Record)

    def most_steps(self, height: float) -> int:
        """Return the largest number of iterations of a search that has reached a log density."""
        if self.few is None or height > self.few.leader:
            return self.steps
        return min(self.steps, self.few.steps)

    def rates(self, target: Target) -> dict[str, float]:
        """Return the learning rate of each site.

        Raises:
            UnknownName: If a rate is given for a site that the model does not have.
            SettingError: If a site has no rate, or the optimizer has no learning rate.
        """
        given = self.learning_rate
        if given is None:
            given = self.default_rate
        if given is None:
            do = "use one that has, such as 'adam'"
            raise SettingError("an optimizer with a learning rate", self.optimizer, do)
        return site_rates(given, target)


@dataclass(frozen=True)
class SearchResult:
    """Where a search for a mode ended.

    Attributes:
        z: The end on the unconstrained scale, [p].
        stats: Numbers of the search, such as ``log_density``, ``gradient``, ``steps``, ``losses``.
        notes: Reasons to doubt that z is a mode. Empty if the search converged.
        interrupted: Whether Ctrl-C ended the search.
    """

    z: Tensor
    stats: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


#: Distances on the unconstrained scale from which a site is near the edge of its support, and at
#: it: exp(-4) is 0.02, and exp(-7) is 0.001.
NEAR_EDGE, AT_EDGE = 4.0, 7.0
ZERO = 1e-6  # below it a number is next to 0
SHORT_OF_STEPS = "raise steps"  # in the note on a search that took all steps it was allowed
GIVEN_UP = "a search of few steps was given up"  # in the note of such a search
SCATTERED = "searches ended apart"  # in the note on searches from several places
ENDED = "the search ended after"  # the first words of the note on a search with a gradient left


def with_edges(target: Target, result: SearchResult) -> list[str]:
    """Return the notes of a search, with a better reason where it ran to the edge of a support.

    The density of a program may have no highest point: that of a hierarchy whose effects are drawn
    around their mean with a scale that is a site rises without bound as they shrink to the mean.
    """
    notes = result.notes
    if target.data.is_table or not any(note.startswith(ENDED) for note in notes):
        return notes
    places, values, farthest = [], target.constrain(result.z), 0.0
    for name, s in target.slices.items():
        free = result.z[s.start : s.stop].reshape(-1)
        value = values[name].reshape(-1)
        if value.numel() != free.numel() or torch.equal(value, free):
            continue  # a site of real numbers, or of parts of a whole
        far = int(free.abs().argmax())
        distance = float(free[far].abs())
        if distance > NEAR_EDGE:
            places.append(f"{name!r} (now {float(value[far]):.2g})")
            farthest = max(farthest, distance)
    if not places:
        return notes
    do = (
        "fit by NUTS() or SVI(), or draw the effects as mean + scale * e with e ~ Normal(0, 1), as "
        "pyro.infer.reparam.LocScaleReparam(0.0) does"
    )
    where = ", ".join(places)
    if farthest < AT_EDGE:
        return [
            *notes,
            f"a site is near the edge of its support: {where}; if the effects of a hierarchy are "
            f"drawn with it as their scale, the density has no highest point: {do}",
        ]
    edge = (
        "the density seems to have no highest point, as that of a hierarchy whose effects are "
        "drawn around their mean with a scale that is a site: it still rises as a site nears the "
        f"edge of its support, {where}, so that this point says nothing; {do}"
    )
    return [edge, *(note for note in notes if not note.startswith(ENDED))]


def with_unbounded(target: Target, z: Tensor, notes: list[str]) -> list[str]:
    """Return the notes of a search, with a better reason where the density has no maximum.

    The density of a Dirichlet, Beta or Gamma distribution rises without bound towards a zero of
    which the concentration is below 1. With the Jacobian, as in Laplace and NUTS, it does not.

    Args:
        target: The density of a program.
        z: The end of the search, [p].
        notes: Its notes.
    """
    values = target.constrain(z)
    bounded = [name for name in target.slices if name in values and _at_zero(values[name])]
    if not bounded:
        return notes
    laws = target.laws(z)
    sites = [repr(n) for n in bounded if n in laws and _rises_to_zero(laws[n], values[n])]
    if not sites:
        return notes
    unbounded = (
        f"the density has no maximum: it grows without bound at the edge of the support of "
        f"{', '.join(sites)}, where a concentration is below 1, so that this point says nothing; "
        "fit by Laplace() or NUTS(), or give concentrations of at least 1"
    )
    return [unbounded, *(n for n in notes if not n.startswith(ENDED) and SCATTERED not in n)]


def _at_zero(value: Tensor) -> bool:
    """Return whether a number is next to 0, or a share next to 0 or 1."""
    return bool((value.abs() < ZERO).any() | ((1 - value).abs() < ZERO).any())


def _rises_to_zero(law: Any, value: Tensor) -> bool:
    """Return whether a prior's density is unbounded at a zero next to which a value is."""
    while isinstance(law, AROUND):
        law = law.base_dist
    if isinstance(law, Dirichlet):
        low = (value < ZERO) & (law.concentration < 1)
    elif isinstance(law, Beta):
        low = (value < ZERO) & (law.concentration1 < 1)
        low = low | ((1 - value < ZERO) & (law.concentration0 < 1))
    elif isinstance(law, Gamma):
        low = (value * law.rate < ZERO) & (law.concentration < 1)
    else:
        return False
    return bool(low.any())


def site_rates(given: float | Mapping[str, float], target: Target) -> dict[str, float]:
    """Return the learning rate of each site.

    Args:
        given: One rate for all sites, or ``{site: rate}``. The name of a group such as
            ``kernel.network`` stands for all sites in it, and "" for all other sites.
        target: The density, whose sites are the ones to optimise.

    Raises:
        UnknownName: If a rate is given for a site that the target does not have.
        SettingError: If a site has no rate.
    """
    rates = given if isinstance(given, Mapping) else {"": given}
    groups = {name: [group for group in rates if _is_in(name, group)] for name in target.slices}
    for group in rates:
        if group and not any(_is_in(name, group) for name in target.slices):
            raise UnknownName("site in learning_rate", group, target.slices)
    missing = [name for name, matching in groups.items() if not matching]
    if missing:
        raise SettingError(
            "a learning rate for every site",
            f"none for {missing}",
            "add them, or one for the rest under ''",
        )
    return {name: rates[max(matching, key=len)] for name, matching in groups.items()}


def _is_in(site: str, group: str) -> bool:
    """Whether a site is in a group: ``kernel.network.0.weight`` is in ``kernel.network``."""
    return group in ("", site) or site.startswith(group + ".")
