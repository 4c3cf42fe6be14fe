"""The interface of all inference methods, and the way from draws to a Posterior."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from ..arguments import named_arguments
from ..capabilities import NetworkWeights
from ..data.training_data import Batch, Rows
from ..density.target import Target
from ..errors import NotApplicable, SettingError, an
from ..posterior.posterior import Posterior
from ..posterior.stats import Stats
from .options import check_options

T = TypeVar("T")


@named_arguments
class Inference:
    """An inference method: a frozen record of options, which is called with a Target.

    ``how(target, seed=, progress=, init=)`` returns a Posterior, also after a run that did not
    converge, which then has warnings. Only misuse raises an error. ``ppgp.fit`` makes the Target
    and calls the method. Log densities, evidences and ELBOs in the stats are in nats, ``seconds``
    are wall time, and a point z [p] is on the unconstrained scale.

    A new method defines ``__call__`` and ``quick``, and annotates its options with the types of
    ``options.py``. A ``__post_init__`` of its own calls this one first.

    Attributes:
        optimises_params: Whether the method also optimises ``pyro.param`` values (the
            ``optimise_params`` of Target).
        takes_random_density: Whether it can use a density that is random at every call and
            unbiased. Plates of a program with ``subsample_size=`` then have mini-batches.
        guides_rows: Whether it can draw latent sites of the rows of a mini-batch, as the user's own
            guide does.
        needs_gradient: Whether it needs the gradient of the density.
        starts_at_a_point: Whether a run begins at a point z of the target.
        seeks_mode: Whether it searches for a mode of the density of all sites.
        params_of_run: Params that describe one run, which an ensemble of runs leaves out.
        less_memory: What to do if the draws, or a matrix behind them, do not fit in memory.

    Raises:
        UnknownArgument: From the constructor of every method, for an argument that it does not
            have.
        SettingError: From the constructor, for an option of another type or outside its range; from
            the call, for an ``init`` of another shape, or a ``batch_size`` above the number of
            rows.
        UnknownName: From the constructor, for a word that an option does not have.
        NotApplicable: From the call, if the method cannot fit the model of the target.
        NumericalError: From the call, if the density is not finite anywhere near the start.
        NotEnoughMemory: From ``fit``, if the draws do not fit into memory.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> how = inference.MAP(steps=50)
        >>> isinstance(how, inference.Inference), how.quick().steps
        (True, 20)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
        >>> model = models.LinearRegression(bias=0.0, noise=1.0)  # weight ~ N(0, 1)
        >>> target = ppgp.Target(model, data)  # what ``fit`` makes of a model and rows
        >>> posterior = how(target, seed=0)
        >>> round(float(posterior.theta["weight"]), 4)  # 5 / 6
        0.8333
    """

    optimises_params: ClassVar[bool] = False
    takes_random_density: ClassVar[bool] = False
    guides_rows: ClassVar[bool] = False
    needs_gradient: ClassVar[bool] = True
    starts_at_a_point: ClassVar[bool] = True
    seeks_mode: ClassVar[bool] = False
    params_of_run: ClassVar[tuple[str, ...]] = ()
    less_memory: ClassVar[str] = "use fewer draws, or SVI('normal'), which holds no matrix of them"

    @property
    def reselects_inducing(self) -> bool:
        """Whether it can select inducing inputs again during a run, for ``SGPR(reselect=)``."""
        return False

    __post_init__ = check_options

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        """Run the method.

        Args:
            target: The density.
            seed: The seed that every random number follows from.
            progress: Whether to show a progress bar.
            init: Where to start: the mean of a Posterior over all or some of the sites, or z [p].
        """
        raise NotImplementedError

    def collapses(self, model: Any) -> bool:
        """Return whether the method fits the collapsed bound of the model, not its density."""
        return False

    def serves_team(self, model: Any) -> bool:
        """Return whether the ranks of a ``Team`` can run it together, each on its own rows.

        They can if all that it learns from the rows is value, gradient and curvature of the target,
        and random numbers follow from the seed alone.
        """
        return False

    def numbers(self, p: int) -> float:
        """Return how many numbers the draws, of p numbers each, and their computation hold."""
        draws = getattr(self, "draws", None) or 1
        chains = getattr(self, "chains", None) or 1
        return 3.0 * p * draws * chains

    def quick(self) -> Inference:
        """Return the same method with a tiny budget, to check that a model runs at all."""
        raise NotImplementedError


def check_batch(how: Inference, target: Target, batch_size: int | None) -> None:
    """Check that mini-batches of this size exist.

    Raises:
        NotApplicable: If the data are not a Dataset.
        SettingError: If there are fewer rows.
    """
    if batch_size is None:
        return
    n = None if target.data.n is None else min(target.data.rows_of_ranks)
    if n is None:
        raise NotApplicable(
            "a Dataset to take mini-batches from",
            "a program with its own arguments",
            "leave batch_size out",
        )
    rows = "n" if target.team.alone else "the rows of the smallest shard"
    with target.team.all_or_none():
        if batch_size > n:
            raise SettingError(
                f"batch_size of at most {rows} = {n} in {type(how).__name__}",
                str(batch_size),
                "lower it, or leave it out",
            )


def draw_batch(target: Target, batch_size: int | None, generator: torch.Generator) -> Rows | None:
    """Return ``batch_size`` random rows, without replacement: their indices, or themselves.

    It is None, for all rows, without a batch size. A program takes as many rows as its plates say.
    """
    if target.batches:
        return target.draw_rows(generator)
    if batch_size is None:
        return None
    if not (target.data.team.alone or target.data.streamed):
        # one draw on every rank, whatever its number of rows, keeps their generators in step
        seed = int(torch.randint(2**62, (1,), generator=generator, device="cpu")) + target.team.rank
        generator = torch.Generator().manual_seed(seed)
    return target.data.draw(batch_size, generator)


def order_of_batches(target: Target, generator: torch.Generator) -> dict[str, Tensor]:
    """Return all that the next mini-batches and random numbers depend on, for a checkpoint."""
    return {"generator": generator.get_state(), **target.data.order_of_batches(generator)}


def continue_batches(
    target: Target, generator: torch.Generator, saved: Mapping[str, Tensor]
) -> None:
    """Go on with the mini-batches and random numbers after those of ``order_of_batches``."""
    generator.set_state(saved["generator"])
    target.data.continue_batches(generator, saved)


def numbers_of(rows: Rows | None) -> Tensor | None:
    """Return the indices of the rows of a mini-batch, for a method that looks rows up in a table.

    Raises:
        NotApplicable: If the rows are those of a stream.
    """
    if isinstance(rows, Batch):
        do = "use MAP('adam') or SGLD()"
        raise NotApplicable("a Dataset, whose rows have numbers", "a stream", do)
    return rows


def starting_point(
    target: Target,
    init: Posterior | Tensor | None,
    seed: int,
    spread: float = 0.0,
    jacobian: bool = True,
    check: bool = True,
    compile: bool = True,
) -> Tensor:
    """Return the point z [p] at which a method starts.

    Args:
        target: The density.
        init: A Posterior, or the point itself. None: a point near the origin.
        seed: The seed of a random point.
        spread: How far from the origin a random point may be.
        jacobian: Whether the density includes the log-Jacobian.
        check: Whether to look for a point of finite density; else it is the origin.
        compile: Whether this check compiles the density.

    Raises:
        SettingError: If ``init`` is something else, or has another shape.
        NotApplicable: If no site of ``init`` is a site of the target.
    """
    if init is None:
        if not check:
            return target.origin()
        return target.start(seed, spread, jacobian=jacobian, compile=compile)
    if isinstance(init, Posterior):
        return _mean_of(init, target)
    try:
        z = torch.as_tensor(init)
    except (TypeError, ValueError, RuntimeError):
        do = "pass a Posterior that has those sites, or a tensor of their unconstrained values"
        raise SettingError(
            f"a Posterior or z [{target.dim}] as init", an(type(init).__name__), do
        ) from None
    if z.shape != (target.dim,):
        raise SettingError(
            f"init with shape [{target.dim}]", f"shape {list(z.shape)}", "pass a Posterior or z"
        )
    return z.to(target.survey.like)


def fresh_weights(target: Target, seed: int) -> Tensor | None:
    """Return the origin z [p] with initial weights of another seed; None if there is no network.

    The origin moved at random is no start for a network: it would ignore how many inputs a unit
    has.
    """
    model = target.model
    if not isinstance(model, NetworkWeights):
        return None
    return target.placed(model.initial_weights(target.data.shared, seed))


def _mean_of(init: Posterior, target: Target) -> Tensor:
    """Return z [p] at the mean of a posterior's draws and at its params.

    Sites that the posterior does not have stay at the origin.

    Raises:
        NotApplicable: If the two have no site in common.
    """
    means = {**init.params, **{name: v.flatten(0, 1).mean(0) for name, v in init.draws.items()}}
    both = {
        name: v
        for name, v in means.items()
        if name in target.slices and v.shape == target.slices[name].event
    }
    if not both:
        raise NotApplicable(
            f"init over some of {', '.join(target.slices)}",
            f"one over {', '.join(means)}",
            "pass a Posterior of this model, or z",
        )
    if both.keys() == target.slices.keys() <= init.draws.keys():
        return target.unconstrain(init.draws).flatten(0, 1).mean(0)
    return target.placed(both)


def divergences(diverging: Tensor) -> list[str]:
    """Return a warning if any trajectory diverged, else []."""
    count = int(diverging.sum())
    if not count:
        return []
    return [
        f"{count} of {diverging.numel()} draws diverged: the sampler could not follow the "
        "posterior there; raise target_accept, or reparametrise"
    ]


def attempted(
    target: Target, notes: list[str], what: str, compute: Callable[[], T], otherwise: T
) -> T:
    """Return ``compute()``, which follows a complete run; ``otherwise`` if it fails.

    The draws of a run are not lost to an error that comes after it: a sentence about the error is
    added to ``notes``, which become warnings of the posterior. A program that does not apply
    (NotApplicable) is refused as ever. In a team every rank has to fail, so the error is raised.

    Args:
        target: The density of the run.
        notes: Warnings of the posterior.
        what: What is computed, as the sentence names it.
        compute: The computation.
        otherwise: What stands for its result.
    """
    try:
        return compute()
    except NotApplicable:
        raise
    except Exception as error:
        if not target.team.alone:
            raise
        notes.append(failed_afterwards(what, error))
        return otherwise


def weighed(
    target: Target, notes: list[str], compute: Callable[[], Tensor]
) -> tuple[Tensor | None, bool]:
    """Return the log densities of draws, and whether Ctrl-C came; see ``attempted``.

    The draws are complete without their densities, which are None after an error or Ctrl-C.
    """
    try:
        return attempted(target, notes, "the log density at the draws", compute, None), False
    except KeyboardInterrupt:
        notes.append("stopped by Ctrl-C before the draws were weighed against the density")
        return None, True


def failed_afterwards(what: str, error: Exception) -> str:
    """Return the sentence about an error that came after a complete run."""
    reason = next(iter(str(error).splitlines()), "")
    return f"{what} failed after the run was complete ({type(error).__name__}: {reason})"


def at_the_mode(target: Target, z: Tensor, notes: list[str]) -> dict[str, Any]:
    """Return the stats at z [p] that BIC and AIC are made of; a note if they have no value."""
    what = "the log likelihood, of which BIC and AIC are made,"
    found = attempted(target, notes, what, partial(target.log_likelihood, z), None)
    factors: list[str] | None = []
    if not target.data.is_table and found is not None:
        factors = attempted(target, notes, what, partial(target.factors, z), None)
    if found is None or factors is None:
        return {}
    stats: dict[str, Any] = {"log_likelihood": found[0], "observations": found[1]}
    stats["parameters"] = target.parameters
    if factors:
        stats["factors"] = ", ".join(factors)
    return stats


def finish(
    how: Inference,
    target: Target,
    z: Tensor,
    started: float,
    stats: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    params: Mapping[str, Tensor] | None = None,
    interrupted: bool = False,
) -> Posterior:
    """Make a Posterior from draws z [chain, draw, p].

    Args:
        how: The method.
        target: The density.
        z: The draws on the unconstrained scale.
        started: When the run began, as ``time.perf_counter()``.
        stats: What the method recorded.
        notes: Its warnings.
        params: Params that are not part of z.
        interrupted: Whether Ctrl-C ended the run early.
    """
    notes = list(notes)
    with torch.no_grad():
        what = "the computation of deterministic sites at the draws"
        static = target.static
        values = attempted(target, notes, what, lambda: target.constrain(z), None)
        if values is None:  # supports that depend on other sites need the program
            values = target.sites(z) if static else target.constrain(z)
    optimised = {
        name: v[0, 0]
        for name, v in values.items()
        if name in target.slices and target.slices[name].param
    }
    draws = {name: v for name, v in values.items() if name not in optimised}
    params = {**optimised, **(params or {})}
    return from_draws(how, target, draws, started, stats, notes, params, interrupted)


def from_draws(
    how: Inference,
    target: Target,
    draws: dict[str, Tensor],
    started: float,
    stats: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    params: Mapping[str, Tensor] | None = None,
    interrupted: bool = False,
) -> Posterior:
    """Make a Posterior from draws ``{site: [chain, draw, *event]}`` on the natural scale.

    Args:
        how: The method.
        target: The density.
        draws: The draws.
        started: When the run began, as ``time.perf_counter()``.
        stats: What the method recorded; ``interrupted`` is added.
        notes: Its warnings.
        params: What was optimised.
        interrupted: Whether Ctrl-C ended the run early.
    """
    notes = list(notes)
    what = "the search for one labelling of all draws"
    draws, relabelled = attempted(
        target, notes, what, lambda: target.model.relabel(draws), (draws, None)
    )
    if relabelled:
        notes.append(relabelled)
    own: dict[str, Any] = {}
    if target.random is not None:
        own["random_density"] = target.random
    elif target.batches:
        name, (rows, size) = next(iter(target.batches.items()))
        own["random_density"] = f"a plate {name!r} that takes {rows:,} of {size:,} rows at random"
    angles = tuple(name for name in draws if name in target.slices and target.slices[name].circular)
    if angles:
        own["circular"] = angles
    return Posterior(
        model=target.model,
        data=target.data,
        draws=draws,
        how=how,
        params={**target.params, **(params or {})},
        stats=Stats(stats or {}, **own, interrupted=interrupted),
        seconds=time.perf_counter() - started,
        warnings=(*target.notes, *notes),
    )
