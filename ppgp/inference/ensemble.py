"""Ensembles: the same method from several starts, as an equal mixture."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..density.target import Sendable, Target
from ..display.overrides import OF_THE_RUN, computed
from ..errors import NotApplicable, listed
from ..learners import stack
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .base import Inference, fresh_weights, from_draws, starting_point
from .jobs import Workers, each
from .optimise.map import MAP
from .options import Count
from .runs import raise_if_interrupted, run

#: Members start Uniform(-2, 2) around the origin of unconstrained space, the first at the origin.
#: Weights of networks start at the initial weights of another seed.
SPREAD = 2.0


@dataclass(frozen=True)
class Ensemble(Inference):
    """A deep ensemble: an equal mixture of the members' draws.

    Lakshminarayanan, Pritzel & Blundell (2017). With ``MAP`` it is also a search from several
    starts: ``stats["log_density"]`` shows which member is the best, and the spread of the sites
    over the members whether there are several modes. Members of ``MAP("adam")`` are trained
    abreast, by one batched evaluation per step, where the density is the same at every call; they
    equal members trained in turn up to rounding. The spread of the members is no posterior.

    Stats: ``log_density`` [member], if the method has one; ``seconds`` [member].

    Args:
        base: The method of each member. It must optimise no params, or give all members the same.
        members: The number of members.
        workers: How many processes fit the members, each on one thread; None: those of an active
            ``joblib.parallel_config``, or else 1. The result is the same for any number, and does
            not record it. Members that are trained abreast need one process.

    Raises:
        SettingError: If ``base`` is no method, or for an option outside its range.
        NotApplicable: On use, if each member would have params of its own, such as inducing inputs
            that the base method moves.
        NumericalError: On use, if the density is not finite anywhere near a start.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def square(y):  # (x - 1)^2 = 4 has two solutions
        ...     x = pyro.sample("x", dist.Normal(torch.zeros_like(y), 3.0))
        ...     pyro.sample("y", dist.Normal((x - 1) ** 2, 0.1), obs=y)
        >>> how = inference.Ensemble(inference.MAP(), members=8)
        >>> y = torch.tensor(4.0, dtype=torch.float64)
        >>> posterior = ppgp.fit(square, {"y": y}, how, progress=False)
        >>> sorted({round(float(x), 1) for x in posterior.theta["x"]})
        [-1.0, 3.0]
        >>> posterior.stats["log_density"].shape  # one per member
        torch.Size([8])
    """

    base: Inference = field(default_factory=MAP)
    members: Count = 5
    workers: Workers = field(
        default=None, repr=False, compare=False, kw_only=True, metadata=OF_THE_RUN
    )

    def _optimises_params(self) -> bool:
        """Whether the base method optimises params."""
        return self.base.optimises_params

    optimises_params = computed(_optimises_params)

    def _takes_random_density(self) -> bool:
        """Whether the base method takes a density that is random at every call."""
        return self.base.takes_random_density

    takes_random_density = computed(_takes_random_density)

    def _seeks_mode(self) -> bool:
        """Whether the base method searches for a mode."""
        return self.base.seeks_mode

    seeks_mode = computed(_seeks_mode)

    def collapses(self, model: Any) -> bool:
        return self.base.collapses(model)

    def quick(self) -> Ensemble:
        return replace(self, base=self.base.quick(), members=2)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        notes: list[str] = []
        seeds = [seed + member for member in range(self.members)]
        base = self.base
        if isinstance(base, MAP) and base.starts is None:
            # with several starts, every member would end in the same mode
            base = replace(base, starts=1)
        if isinstance(base, MAP) and base.goes_abreast(target):
            first = starting_point(target, init, seed, jacobian=False)
            starts = [first] * self.members
            if init is None:
                starts[1:] = [_start(target, s) for s in seeds[1:]]
            members = base.abreast(target, torch.stack(starts), seeds, progress)
            interrupted = cut_short(members[0].stats)
        else:
            members, interrupted = self._in_turn(base, target, seeds, init, progress)
            if interrupted:
                notes.append(f"stopped by Ctrl-C: {len(members)} of {self.members} members")
        sentences = [s for p in members for s in p.warnings if s not in target.notes]
        notes += list(dict.fromkeys(sentences))
        draws = _joined([p.draws for p in members], target.model.structural)
        seconds = [p.seconds for p in members]
        stats: dict[str, Any] = {"seconds": torch.tensor(seconds, dtype=torch.float64)}
        if all("log_density" in p.stats for p in members):
            heights = [p.stats["log_density"] for p in members]
            stats["log_density"] = torch.tensor(heights, dtype=torch.float64)
        own = base.params_of_run
        params = {name: value for name, value in members[0].params.items() if name not in own}
        return from_draws(
            self, target, draws, started, stats, notes, params, interrupted=interrupted
        )

    def _in_turn(
        self,
        base: Inference,
        target: Target,
        seeds: list[int],
        init: Posterior | Tensor | None,
        progress: bool,
    ) -> tuple[list[Posterior], bool]:
        """Return the members that were fitted each by itself, and whether Ctrl-C came."""
        fitted: dict[int, Posterior] = {}
        interrupted = False
        title = f"Ensemble of {self.members}"
        member = _Member(base, Sendable(target), seeds[0], init)
        try:
            members = each(member, seeds, self.workers, progress, title=title, noun="member")
            with closing(members):
                for number, posterior in members:
                    fitted[number] = posterior
                    first = fitted[min(fitted)]
                    _refuse_own_params(self.base, [first, posterior], target)
                    raise_if_interrupted(posterior)
        except KeyboardInterrupt:
            if not fitted:
                raise
            interrupted = True
        complete = [n for n in sorted(fitted) if not cut_short(fitted[n].stats)]
        return [fitted[n] for n in complete or sorted(fitted)[:1]], interrupted


@dataclass(frozen=True, eq=False)
class _Member:
    """The members of an ensemble as the jobs of ``each``.

    Every member has a Target of its own, so that it depends on its seed alone.

    Args:
        base: The method.
        sendable: The density.
        first: The seed of the member that starts where the method does.
        init: Where all members start; None: each elsewhere.
    """

    base: Inference
    sendable: Sendable
    first: int
    init: Posterior | Tensor | None

    def __call__(self, seed: int) -> Posterior:
        """Return the member of one seed."""
        target, start = self.sendable.again(), self.init
        if start is None and seed != self.first and self.base.starts_at_a_point:
            start = _start(target, seed)
        return run(self.base, target, {"seed": seed, "progress": False, "init": start})


def _start(target: Target, seed: int) -> Tensor:
    """Return where a member after the first starts, z [p]."""
    weights = fresh_weights(target, seed)
    return target.start(seed, SPREAD) if weights is None else weights


def _joined(members: list[dict[str, Tensor]], structural: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the draws of all members, {site: [1, draw, *event]}.

    Sites of structure are padded to one size.
    """
    names = list(members[0])
    joined = {
        name: torch.cat([draws[name] for draws in members], 1)
        for name in names
        if not structural or not name.startswith(structural)
    }
    prefix = next((p for p in structural if any(name.startswith(p) for name in names)), None)
    if prefix is not None:
        inner = [name for name in names if name.startswith(prefix)]
        each = [
            {name.removeprefix(prefix): draws[name][0, j] for name in inner}
            for draws in members
            for j in range(len(draws[inner[0]][0]))
        ]
        joined |= {prefix + name: value[None] for name, value in stack(each).items()}
    return {name: joined[name] for name in names}


def _refuse_own_params(how: Inference, members: list[Posterior], target: Target) -> None:
    """Raise NotApplicable if a member has params of its own: a Posterior holds each param once."""
    first, member = members[0].params, members[-1].params
    own = sorted(
        name
        for name in set(member) - set(target.params) - set(how.params_of_run)
        if len(members) > 1 and not torch.equal(member[name], first[name])
    )
    if own:
        pair = f"{type(how).__name__} on {type(target.model).__name__}"
        raise NotApplicable(
            "a method whose members differ in their sites alone",
            f"{listed(own, 'param')} of each member's own, from {pair}",
            "use the method by itself, or Ensemble(MAP()) of a model whose sites all have priors",
        )
