"""Target: a model meets data, as one log density on R^p with a compiled gradient.

Pyro's handlers evaluate the density. ``Graphs`` compiles it and its gradient, and compares the
graph with the program at three points. Where the density is a function of sums over rows that are
read as they are needed, an evaluation takes two passes in float64: the first adds up the sums, and
the second carries their slopes through each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property, partial, reduce
from operator import add
from typing import Any, cast

import numpy as np
import pyro
import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.fx import GraphModule
from torch.nn import Parameter

from ..capabilities import LikelihoodDerivatives, supports
from ..data.argument_mistakes import explained, not_finite, of_dtypes
from ..data.arguments import as_training_data
from ..data.training_data import Batch, Rows, Tables
from ..display.user_warnings import warn
from ..errors import DataError, LostRank, NotApplicable, NumericalError, NumericalWarning
from ..numerics.cholesky import lacks_factor
from ..runtime.memory import only_new_garbage
from ..runtime.process_locks import one_at_a_time, silenced
from ..runtime.seeding import seeded, standard_normal, standard_uniform
from .checks import (
    OutOfTorch,
    check_known,
    check_observed,
    check_plates,
    check_shapes,
    check_sites,
    evaluate_observed,
    no_gradient,
    randomness,
    refuse_values,
    sentence,
    slopes_differ,
    validation,
)
from .enumeration import check_enumeration, summed_out
from .graph.branches import Branching, BranchingCode, SeveralBranching
from .graph.machine_code import MachineCode, machine_code
from .graph.tracing import (
    Looped,
    OrNaN,
    ValueAndGradient,
    agrees_up_to_rounding,
    jacobian_of,
    one_point,
    several_of,
    traced,
    values_alone,
    worth_widening,
)
from .handlers import (
    Run,
    WithoutMissing,
    entries_of_data,
    is_factor,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from .kinks import InExpectation, Kinks, averaged_precision
from .layout import UNOBSERVED, Partly, Slice, laid, names, placed
from .plates import Batches, check_whole, drawn_rows, plates_taking, sites_in, taken_whole
from .prior_medians import at_medians, declared_laws, has_several_modes, quantiles_of
from .supports import Guard, Guarding, everything, guards
from .survey import Survey, arguments, other_points, survey
from .wave_starts import reach_of_waves, starts_of_waves, waves_of
from .waves_of_programs import (
    ABREAST,
    HIGHEST,
    LOWEST,
    PIECES,
    Angles,
    Profile,
    ends_of_many,
    profiles,
    starts_of_profiles,
)

__all__ = ["Graphs", "Sendable", "Target"]

# at these multiples of a point a user's program shows whether its supports and sites are fixed
FAR = (1.0, -1.0, 3.0, -3.0, 10.0, -10.0, 30.0, -30.0)
FEWER_FAR = (1.0, -1.0, 30.0, -30.0)  # of a program that runs long
#: ``evaluated(z, orders, compute)``: the results of an evaluation at z [p], derivatives of these
#: orders.
Evaluated = Callable[[Tensor, Sequence[int], Callable[[], Sequence[Tensor]]], Sequence[Tensor]]
STARTS = 100  # points tried before a density is said to be finite nowhere
LEVELS = 5  # of a hierarchy whose medians are found before a search starts
ALIKE = 1e-9  # of the largest slope: slopes that differ by less are equal
#: laws of numbers whose location says what a program explains of them
NUMBERS = (torch.distributions.Normal, torch.distributions.StudentT, torch.distributions.Laplace)
POINTS = 16  # draws at which the supports of a user's program are compared with its first run
VALUES = "its graph depends on the values (random numbers in it?), or on how often it ran"
SHAPE = (
    "the shape of a tensor depends on the values, as in x[mask] or nonzero; that of "
    "torch.where(mask, a, b) does not"
)
PYTHON_NUMBER = (
    "it turns a value into a Python number, as float(), .item() or .numpy() does; conditions on "
    "tensors are compiled where no random numbers come before them"
)
#: z [p] -> value, gradient [p], in float64
OfNumPy = Callable[[np.ndarray], tuple[float, np.ndarray]]
OfValues = Callable[..., tuple[Tensor, ...]]  # z [p] -> (value,)
Coded = MachineCode | BranchingCode
Key = tuple[int | None, bool, int | None]  # rows of a mini-batch, with Jacobian, number of points
FEWEST, MOST = 8, 64  # points that are compared, of draws and of earlier calls each
SHARE = 20  # draws per point
MANY_VALUES = 200  # log densities without a gradient for which a graph of their own is compiled
ROWS = 2_048  # whose covariances with the inducing inputs have a gradient at once
PLACES = 5  # draws of the prior at which validation is tried
FEW_PLACES = 2  # of a program that runs long
MORE_PLACES = 100  # draws at which a density is looked for where validation refuses those


class Target:
    """log p(theta, y | X) as a function of z in R^p: the sites, unconstrained and laid end to end.

    Samplers and optimisers see a Target and nothing else. z [p] has no unit; values are in nats,
    and with ``jacobian`` they include the log Jacobian of the transformation (Kucukelbir et al.
    2017). Discrete latent sites of finite support are summed out.

    Args:
        model: A model of ``ppgp.models``, or a Program.
        data: The Dataset, on the scale that the model sees, or the arguments of a program. Of a
            stream, ``value_and_grad``, ``callback``, ``log_likelihood`` and the curvature by
            formula pass over all rows, and what else takes all rows is estimated by its sample.
        optimise_params: Whether ``pyro.param`` values are part of z (MAP), or held (samplers).
        compile: Trace value and gradient once and run the graph; otherwise run Pyro's handlers at
            every call.
        collapsed_elbo: Use the model's ``collapsed_elbo`` as objective. The collapsed sites are
            integrated out; their variational parameters become params, which are part of z under
            ``optimise_params``.
        empty: Accept a model with nothing to search.
        subsample: Whether plates of a program with ``subsample_size=`` have mini-batches, which
            ``draw_rows`` draws. They are whole otherwise.

    Attributes:
        arguments: Those it was made from, in order.
        dim: The number p of unconstrained numbers.
        team: The processes that share the rows; densities and gradients are means over them.
        slices: ``{site: Slice}``, the place of each site in z.
        params: The values of the params that are held.
        random: What is random in the density of all rows besides the sites; None where it is the
            same at every call.
        batches: The plates that have mini-batches: how many rows each takes, and has.
        out_of_torch: Where a program takes a value that the density depends on out of torch, so
            that it has no gradient; None if it does not.
        sites_of_batches: The latent sites of real numbers in such plates: {site: plate}.
        noise_seed: Of the random numbers in the density, where they repeat at every call.
        static: Whether each site has the same support at every z.
        known: The latent sites that a user's program may have; None for any.
        guards: The sites that are checked to stay inside their sets.
        collapsed_elbo: Whether the objective is the collapsed bound rather than the density.
        invalid: The validation error that Pyro reports at every point tried; None if any point
            passes.
        notes: Sentences that every Posterior from this target carries.
        visited: Some of the points z at which graphs of a user's program were run.
        warned: The notes that a warning has stated already.
        has_curvature: Whether the model knows its second derivatives.

    Raises:
        NotApplicable: If a latent site has infinitely many discrete values, or there is nothing to
            search and ``empty`` is False.
        DataError: If a program fails because of the kinds, dtypes or sizes of its arguments.

    Examples:
        A scale s with the prior exp(-s), and one y = 1 from N(0, s^2). In z = log s the log
        density is -s - log s - 1 / (2 s^2) - log(2 pi) / 2 + z, whose slope is 1 / s^2 - s:

        >>> import pyro
        >>> import torch
        >>> from pyro.distributions import Exponential, Normal
        >>> import ppgp
        >>> from ppgp import models
        >>> def program(y):
        ...     s = pyro.sample("s", Exponential(1.0))
        ...     pyro.sample("y", Normal(0.0, s), obs=y)
        >>> target = ppgp.Target(models.Program(program), {"y": torch.tensor(1.0)})
        >>> target.dim, target.names()
        (1, ['s'])
        >>> z = target.unconstrain({"s": torch.tensor(2.0)})
        >>> z, target.constrain(z)
        (tensor([0.6931]), {'s': tensor(2.)})
        >>> target.value_and_grad(z)
        (tensor(-3.0439), tensor([-1.7500]))
        >>> target.log_density(z, jacobian=False)
        tensor(-3.7371)
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        optimise_params: bool = False,
        compile: bool = True,
        collapsed_elbo: bool = False,
        empty: bool = False,
        subsample: bool = False,
    ) -> None:
        if isinstance(data, Mapping):
            data = as_training_data(data)
        self.arguments = model, data, optimise_params, compile, collapsed_elbo, empty, subsample
        self.model, self.data = model, data
        self.program = model.collapsed_elbo if collapsed_elbo else model.model
        self.optimise_params, self.collapsed_elbo = optimise_params, collapsed_elbo
        self.team = data.team if data.workers.alone else data.workers
        self.random: str | None = None
        self.batches: Batches = {}
        self.sites_of_batches: dict[str, str] = {}
        self.out_of_torch: str | None = None
        self.noise_seed: int | None = None
        self.guards: dict[str, Guard] = {}
        #: whether equal operations of an enumerated program are done once
        self.shares = True
        self.invalid: str | None = None
        self.notes: list[str] = []
        self.has_curvature = supports(model, LikelihoodDerivatives)
        self._origin: Tensor | None = None
        self._starts: Tensor | None = None
        self._mixes = False
        self._reach = torch.empty(0)
        self._steps_at_once = True
        of_the_library = data.is_table
        stored = None if of_the_library else pyro.get_param_store().get_state()
        run = Run({})
        mistakes = nullcontext() if of_the_library else explained(data, sites=run.dtypes)
        with quietly(), seeded(0), mistakes:
            #: rows that are enough to see which sites a model has; () for all of them
            self._few: Tables = ()
            if model.survey is not None and data.n > model.survey:
                self._few = data.tables(torch.arange(model.survey))
            #: numbers of rows that fit into memory; None: all of them
            self._fits: set[int | None] = set() if self._few else {None, data.n}
            if not self._few and data.n is not None:
                model.check_memory(data.n, data.d, data.X)
            self._all_rows = arguments(model, data)
            args, named = self._all_rows
            if self._few:
                args, named = arguments(model, data, self._few)
            whole = nullcontext({}) if of_the_library else self._of_all_rows()
            # every site is drawn from its prior
            with quietly(stored), seeded(0), whole as batches, run:
                self.program(*args, **named)
                if batches:  # whether the arguments hold all rows
                    run.log_prob()
            if subsample:
                self.batches = batches
                self.sites_of_batches = sites_in(run.latents(), batches)
            elif batches:
                self.notes += taken_whole(batches)
            found = survey(model, data, run, optimise_params, empty)
            if not of_the_library and self._needs_own_dtypes(found):
                found = survey(model, data, run, optimise_params, empty, own_dtypes=True)
            self.survey = found
            self.dim, self.slices, self.params = found.dim, found.slices, found.params
            #: what a program is run in that makes very many objects
            self._collected = only_new_garbage if found.runs_long else nullcontext
            self.static = True
            self.known = None if of_the_library else found.latents
            if not of_the_library and self.dim:
                with self._collected():
                    self.guard(run)
                    self.invalid, self.random = self._check_program(run)
        if found.held:
            held = ", ".join(found.held)
            self.notes.append(f"held where they are: params {held} (MAP and SVI optimise them)")
        if not (of_the_library and found.declared):
            far = FEWER_FAR if found.runs_long else FAR
            points = other_points(found, (1.0,) if of_the_library else far)
            with self._collected():
                self.static = self.supports_stay(points)
        compile = compile and self.random is None and not model.chunked(data)
        compile = compile and self.out_of_torch is None
        self._at_start: tuple[Tensor, bool, Tensor, Tensor] | None = None
        self._graphs = Graphs(self, compile, self.notes, not of_the_library)
        self.visited, self.warned = self._graphs.visited, self._graphs.warned

    def settle(self, jacobian: bool = True) -> None:
        """Compile, and forget values: what follows is equal whatever was evaluated before."""
        self.compiled(None, jacobian)
        self._at_start = None

    # -- the program -------------------------------------------------------------------------------

    @property
    def guarded_program(self) -> Callable[..., Any]:
        """The Pyro program of the model, with a density of 0 where its sites leave their sets.

        Its plates take their rows at random, where they have mini-batches, and numbers stand in
        place of NaN that a mask leaves out.
        """
        program = Guarding(self.guards)(self.model.model) if self.guards else self.model.model
        return WithoutMissing()(program) if self.survey.missing else program

    def run_program(self, tables: Tables = ()) -> None:
        """Run the program under whatever handlers are active.

        Args:
            tables: Inputs and targets of some rows; () for all of them.
        """
        if self.data.is_table:
            args, kwargs = arguments(self.model, self.data, tables) if tables else self._all_rows
            self.program(*args, **kwargs)
            return
        args, kwargs = self._all_rows
        rows = dict(zip(self.batches, tables, strict=True)) if tables else None
        with plates_taking(rows):
            self.program(*args, **kwargs)

    @contextmanager
    def _of_all_rows(self) -> Iterator[Batches]:
        """Run a program with its plates whole.

        Yields:
            The plates with ``subsample_size=``.

        Raises:
            NotApplicable: If only so many rows of a plate as it takes at a time are there.
        """
        found: Batches = {}
        try:
            with plates_taking() as found:
                yield found
        except (RuntimeError, ValueError, IndexError) as error:
            if not found or not self._runs_on_batches():
                raise
            name, (taken, size) = next(iter(found.items()))
            raise NotApplicable(
                f"all {size:,} rows of the plate {name!r} among the arguments",
                f"an error with more than the {taken:,} that it takes ({sentence(error)})",
                "pass all rows and index them by what the plate returns, or give the plate the "
                "size of what is passed",
            ) from error

    def _runs_on_batches(self) -> bool:
        """Return whether the program runs where each plate takes its own rows at random."""
        try:
            with quietly(), seeded(0), torch.no_grad(), Run({}) as run:
                self.program(**self.data)
            run.log_prob()
        except (RuntimeError, ValueError, IndexError):
            return False
        return True

    def tables(self, rows: Rows | None) -> Tables:
        """Return the inputs and targets of some rows; () for all of them.

        Of a program they are the numbers of the rows in each plate that has mini-batches.

        Raises:
            NotApplicable: If rows are asked of a program without such plates.
        """
        return () if rows is None else self.model.batch(self.data, rows)

    def draw_rows(self, generator: torch.Generator) -> Batch:
        """Return random rows of each plate that has mini-batches."""
        device = self.survey.like.device
        return Batch(tuple(rows.to(device) for rows in drawn_rows(self.batches, generator)))

    def _first_rows(self, batch: int) -> Tables:
        """Return the tables of a mini-batch of so many rows, to trace its density."""
        if self.batches:
            return self.draw_rows(torch.Generator().manual_seed(0)).tables
        return self.tables(torch.arange(batch))

    def check_memory(self, rows: int | None = None) -> None:
        """Raise NotEnoughMemory if the density of so many rows, with its gradient, does not fit."""
        if rows not in self._fits and not self.batches:
            n = self.data.n if rows is None else rows
            self.model.check_memory(n, self.data.d, self.data.X)
            self._fits |= {rows, n}

    def joint(
        self, z: Tensor, tables: Tables = (), jacobian: bool = True, likelihood: bool = True
    ) -> Tensor:
        """Return the log density, a differentiable scalar.

        Args:
            z: The unconstrained sites, [p].
            tables: Inputs and targets of some rows; () for all of them.
            jacobian: Whether it is the density of z, or that of the sites on their natural scale.
            likelihood: Whether the observed sites count.
        """
        noise = nullcontext() if self.noise_seed is None else seeded(self.noise_seed)
        guarding = Guarding(self.guards) if self.guards else nullcontext()
        with quietly(), noise, self._run(z, self._steps_at_once) as run, guarding:
            if self.survey.nesting is None:
                self.run_program(tables)
                total = run.log_prob(likelihood)
            else:
                program = partial(self.run_program, tables)
                total = summed_out(run, program, self.survey.nesting, likelihood, self.shares)
                total = total.to(z)
            if self.known is not None:
                run.check_complete()
            total = total + (run.log_jacobian if jacobian else 0.0)
        total = torch.as_tensor(total)
        if total.is_complex():
            do = "pass real and imaginary parts as two arguments"
            raise DataError("a log density that is a real number", "a complex one", do)
        return total.to(z).reshape(())  # the data may have another dtype than the sites

    def _run(self, z: Tensor, steps_at_once: bool = False) -> Run:
        values = {name: s.of(z) for name, s in self.slices.items()}
        return Run(values, True, self.params, self.known, steps_at_once, self.survey.imputed)

    def differentiable_run(self) -> tuple[dict[str, Tensor], Run]:
        """Run the program at the values of the survey; return them, which need a gradient."""
        first = self.survey.first
        free = {name: s.transform.inv(first[name]) for name, s in self.slices.items()}
        values = {name: value.detach().requires_grad_() for name, value in free.items()}
        run = Run(values, True, self.params, imputed=self.survey.imputed)
        # float() of a value that needs a gradient warns
        with quietly(), silenced(), seeded(0), torch.enable_grad(), run:
            self.run_program()
        return values, run

    def _needs_own_dtypes(self, found: Survey) -> bool:
        """Return whether the program fails where sites have the dtype of z, which is wider."""
        first = found.first
        if all(value.dtype == found.like.dtype for value in first.values()):
            return False
        values = {name: value.to(found.like) for name, value in first.items()}
        with quietly(), seeded(0), torch.no_grad():
            try:
                with Run(values, params=found.params) as run:
                    self.run_program()
                if found.nesting is None:
                    run.log_prob()
            except (RuntimeError, ValueError) as error:
                return of_dtypes(error) or isinstance(error, DataError)
        return False

    def guard(self, run: Run) -> None:
        """Find the sites whose value or parameters may leave their sets.

        Args:
            run: One run of the program.
        """
        watch = OutOfTorch()
        try:
            with watch:
                _, again = self.differentiable_run()
        except (RuntimeError, ValueError, TypeError):  # the program takes no gradient
            self.guards = everything(dict(run.samples()))
        else:
            self.guards = guards(dict(again.samples()))
        self.out_of_torch = watch.line

    def _check_program(self, run: Run) -> tuple[str | None, str | None]:
        """Check a user's program before it is fitted.

        Args:
            run: One run of it.

        Returns:
            What Pyro's validation reports at all points where the program was run, and what is
            random in its density; None for either where there is nothing.

        Raises:
            DataError: If data are no tensors, have another shape than their distribution or lie
                outside its support, or the program observes none of the data that it can be given.
            NotApplicable: For a plate with fewer rows than its size where there are no
                mini-batches, and for a batch in no plate beside discrete sites.
        """
        check_sites(run)
        if not self.arguments[-1]:
            check_whole(run.sites)
        check_shapes(run)
        check_observed(run, self.model)
        self._check_networks(run)
        survey = self.survey
        if survey.nesting is not None:
            check_plates(self.run_program, survey.params)
            self.shares = check_enumeration(self.run_program, survey.nesting, survey.params)
        z = survey.like.new_zeros(survey.dim)
        for name, s in survey.slices.items():
            z[s.start : s.stop] = s.transform.inv(run.sites[name]["value"].detach()).reshape(-1)
        if self.out_of_torch is not None and not slopes_differ(self.joint, z):
            self.out_of_torch = None  # it decides on branches alone, or is printed
        places = FEW_PLACES if survey.runs_long else PLACES
        return self._validated(places), randomness(self.joint, z)

    def _check_networks(self, run: Run) -> None:
        """Raise NotApplicable if z has params of a network that do not move the density."""
        slices = self.slices
        params = [
            (name, s) for name, s in run.sites.items() if s["type"] == "param" and name in slices
        ]
        names = [name for name, s in params if any(isinstance(a, Parameter) for a in s["args"])]
        if not names:
            return
        values, again = self.differentiable_run()
        total = torch.as_tensor(again.log_prob())
        gradients: tuple[Tensor | None, ...] = (None,)
        if total.requires_grad:
            gradients = torch.autograd.grad(total, [values[n] for n in names], allow_unused=True)
        if all(gradient is None for gradient in gradients):
            raise NotApplicable(
                "a density that depends on the params of the network",
                f"one that does not change with {names[0]!r}",
                "call the network after pyro.module, inside the program, without detach and "
                "no_grad",
            )

    def _validated(self, places: int) -> str | None:
        """Run the program with Pyro's validation at draws of its prior.

        Args:
            places: How many.

        Returns:
            The message of validation if the program has no density at any draw; None if it passes.

        Raises:
            DataError: If validation refuses values that have a density all the same. Without
                validation they would be fitted without a warning.
        """
        message: str | None = None
        refused = []
        for seed in range(places):
            try:
                with validation(), seeded(seed), Run({}, params=self.params) as run:
                    self.run_program()
                    evaluate_observed(run)
                continue
            except ValueError as error:
                message = sentence(error)
            except RuntimeError as error:
                if not lacks_factor(error):
                    raise
                continue  # validation says nothing about a point without a density
            refused.append(seed)
            if self._has_density(seed):
                refuse_values(message)
        if len(refused) < places:
            return None
        nowhere = not any(self._has_density(seed) for seed in range(places, MORE_PLACES))
        if nowhere and any(self._has_density(seed, guarded=False) for seed in refused):
            refuse_values(message)
        return message

    def _has_density(self, seed: int, guarded: bool = True) -> bool:
        """Return whether the density is finite without validation, or fails as a search would."""
        guarding = Guarding(self.guards if guarded else {})
        values = Run({}, params=self.params)
        with quietly(), seeded(seed), torch.no_grad(), values as run, guarding:
            try:
                self.run_program()
                return bool(torch.isfinite(torch.as_tensor(run.log_prob())))
            except (RuntimeError, ValueError, IndexError):
                return True

    # -- the density -------------------------------------------------------------------------------

    @property
    def parameters(self) -> int:
        """The number of free parameters, of which AIC and BIC are made."""
        return sum(s.parameters for s in self.slices.values())

    def log_density(self, z: Tensor, rows: Rows | None = None, *, jacobian: bool = True) -> Tensor:
        """Return the log joint density at z [p], a differentiable scalar.

        Args:
            z: The unconstrained sites, [p].
            rows: Of a mini-batch, from which the density is estimated without bias.
            jacobian: Whether it is the density of z, or that of the sites on their natural scale.

        In a team the value is that of all rows, and its derivatives are those of this rank's part:
        their mean over the ranks is the gradient.
        """
        value = self.joint(z.to(self.survey.like), self.tables(rows), jacobian)
        if self.team.alone:
            return value
        (mean,) = self.team.means(value.detach())
        return value + (mean - value.detach())

    def value_and_grad(
        self, z: Tensor, rows: Rows | None = None, *, jacobian: bool = True, compile: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return ``log_density`` and its gradient [p]; NaN where a matrix has no factor.

        They come from the graph. With ``compile=False`` the program itself runs unless there is
        a graph already. All rows of a stream are one pass over it.
        """
        if rows is None and self.data.streamed:
            return self._of_all_portions(z, jacobian)
        tables = () if rows is None else self.tables(rows)
        graph = self.compiled(None if rows is None else len(rows), jacobian, compile=compile)
        with torch.no_grad():
            return graph(z.to(self.survey.like), *tables)

    def _of_all_portions(self, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor]:
        """Return value and gradient over all rows of a stream, summed in float64."""
        if self.model.sums_over_team:
            return _of_stream(self, z, jacobian)
        like = self.survey.like
        value, gradient = torch.zeros((), dtype=torch.float64), torch.zeros(self.dim).double()
        size: int | None = None
        for _, rows, share in self.data.portions():
            size = size or len(rows)  # the last portion is smaller: no graph is made for it
            graph = self._graphs.get(len(rows), jacobian, None, len(rows) == size, False)
            with torch.no_grad():
                found = graph(z.to(like), *self.tables(rows))
            value, gradient = value + share * found[0], gradient + share * found[1]
        # once for all portions, whose number differs between the ranks
        value, gradient = self.team.means(value, gradient)
        return value.to(like), gradient.to(like)

    def log_likelihood(self, z: Tensor) -> tuple[float, int]:
        """Return log p(y given theta) at z, and how many numbers are observed and not masked.

        A row of scale w counts as w rows, in both.
        """
        if self.data.streamed and self.model.sums_over_team:
            return _bound_of_stream(self, z)
        z = z.to(self.survey.like)
        total, count = 0.0, 0.0
        for _, rows, share in self.data.portions():
            tables = () if rows is None else self.tables(rows)
            guarding = Guarding(self.guards) if self.guards else nullcontext()
            with torch.no_grad(), quietly(), self._run(z) as run, guarding:
                self.run_program(tables)
            observed = run.observed()
            data = {} if self.data.is_table else self._entries_of_data(run)
            value, seen = 0.0, 0
            for name, s in observed.items():
                numbers, scale = numbers_seen(s) * data.get(name, 1), s["scale"]
                if isinstance(scale, int | float) and scale == 1:
                    seen += int(numbers.sum())
                else:  # a row of scale w counts w times
                    seen += round(float((numbers * torch.as_tensor(scale)).sum()))
                if self.survey.nesting is None:
                    each = scale_and_mask(site_log_prob(s), s["scale"], s["mask"])
                    if name in data:
                        each = torch.where(data[name], each, torch.zeros_like(each))
                    value += float(each.sum())
            if self.survey.nesting is not None:
                joint, prior = (float(self.joint(z, tables, False, of_y)) for of_y in (True, False))
                value = joint - prior
            total, count = total + share * value, count + share * seen
        if self.model.sums_over_team:
            count *= self.data.team.size  # of rows of this rank, beside the density of all
        if not self.team.alone:
            total, count = self.team.mean(total), self.team.mean(count)
        return total, round(count)

    def _entries_of_data(self, run: Run) -> dict[str, Tensor]:
        """Return which entries are data, for sites of a user's program where not all are."""
        values = {name: run.sites[name]["value"] for name in self.slices}
        with quietly():
            entries = entries_of_data(self.run_program, {**self.params, **values})
        return {name: here for name, here in entries.items() if not bool(here.all())}

    def factors(self, z: Tensor) -> list[str]:
        """Return the names of a program's ``pyro.factor`` sites, not in ``log_likelihood``."""
        with torch.no_grad(), quietly(), self._run(z.to(self.survey.like)) as run:
            self.run_program()
        return [name for name, s in run.samples() if is_factor(s)]

    @cached_property
    def on_sample(self) -> Target:
        """The density that the rows in memory estimate; itself unless the data are streamed."""
        if not self.data.streamed:
            return self
        options = {"optimise_params": self.optimise_params, "compile": self.compile}
        options["collapsed_elbo"] = self.collapsed_elbo
        return Target(self.model, self.data.sample, **options, empty=True)

    def value_and_grad_batch(
        self, z: Tensor, rows: Rows | None = None, few: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return values [k] and gradients [k, p] at several points z [k, p], from one graph.

        ``few`` says that a few dozen such calls are all there will be.
        """
        graph = self.compiled(None if rows is None else len(rows), k=len(z), few=few)
        with torch.no_grad():
            return graph(z.to(self.survey.like), *self.tables(rows))

    def log_densities(self, z: Tensor) -> Tensor:
        """Return the log joint densities [k] at several points z [k, p], one after another.

        They come from the graph; a program that runs eagerly computes no gradients.
        """
        points = z.to(self.survey.like)
        if not len(points):
            return points.new_zeros(0)
        graph = None if self.out_of_torch else self.compiled()
        with torch.no_grad():
            if graph is None or self._graphs.eager:
                graph = OrNaN(lambda point: (self.log_density(point),))
                return torch.stack([graph(point)[0] for point in points])
            if len(points) >= MANY_VALUES:
                graph = self._graphs.values_alone() or graph
            return torch.stack([graph(point)[0] for point in points])

    def value_and_grad_of_rows(
        self,
        z: Tensor,
        rows: Tensor | None,
        *,
        jacobian: bool = True,
        reach: Tensor | None = None,
        compile: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Return value and gradient where each point has a mini-batch of its own.

        Args:
            z: The points [k, p], or one point [p].
            rows: Their mini-batches [k, b], or [b]; None: all rows.
            jacobian: As in ``log_density``.
            reach: The length of an adversarial step in each column of X, [d]. The density of the
                rows where they are after that step is then added.
            compile: Whether the graph is used; the program itself otherwise.
        """
        if rows is None:
            rows = torch.arange(self.data.n).expand(*z.shape[:-1], -1)
        k = len(z) if z.ndim == 2 else None
        batch = rows.shape[-1]
        if compile or k is not None:
            graph = self._graphs.of_tables(batch, jacobian, k, reach)
        elif reach is None:
            graph = partial(self.eager_gradient, jacobian)
        else:
            graph = partial(self.adversarial_gradient, jacobian, reach)
        graph = self.team.averaged(graph)
        with torch.no_grad():
            return graph(z.to(self.survey.like), *self.tables(rows))

    def callback(
        self,
        jacobian: bool = True,
        after: float = 0,
        evaluated: Evaluated | None = None,
        often: bool = False,
    ) -> OfNumPy:
        """Return ``value_and_grad`` as a function of NumPy vectors in float64.

        It adds little overhead. What ``start`` found at its point is not computed again.

        Args:
            jacobian: As in ``log_density``.
            after: The first so many calls run the program itself; it is compiled for those that
                follow.
            evaluated: ``evaluated(z, (0, 1), compute)`` returns value and gradient [p]: what
                ``compute()`` returns, or has returned before. None computes them at each call.
            often: Whether it is called thousands of times, which repays machine code.
        """
        if often:
            fast = self._graphs.machine_code(jacobian)
            if fast is not None:
                return fast
        like = self.survey.like
        plain = like.dtype == torch.float64 and like.device.type == "cpu"
        calls = 0
        if self.data.streamed:
            graph, after = partial(self._of_all_portions, jacobian=jacobian), 0
        else:
            graph = self.compiled(None, jacobian, compile=not after)

        def in_numpy(z: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal calls, graph
            # in torch's own memory: BLAS may sum in another order where NumPy's is aligned
            # otherwise
            point = torch.from_numpy(z).clone()
            if calls == after and after:
                graph = self.compiled(None, jacobian)
            calls += 1
            z_here = point.to(like)
            known = None
            if self._at_start is not None and self.random is None:
                start, with_jacobian, *found = self._at_start
                self._at_start = None  # once: y may be changed in place before another search
                if with_jacobian == jacobian and torch.equal(start, z_here):
                    known = found
            if evaluated is None:
                value, gradient = known or graph(z_here)
            else:
                value, gradient = evaluated(z_here, (0, 1), lambda: known or graph(z_here))
            if plain:
                return value.item(), gradient.numpy()
            return value.item(), gradient.double().cpu().numpy()

        return in_numpy

    def eager_gradient(self, jacobian: bool, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and gradient [p] from a run of the program itself."""
        if self.out_of_torch is not None:
            raise no_gradient(self.out_of_torch, "a gradient")
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            value = self.joint(z, tables, jacobian)
            (gradient,) = torch.autograd.grad(value, z, materialize_grads=True)
        return value.detach(), gradient

    def gradient_step_by_step(
        self, jacobian: bool, z: Tensor, *tables: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return ``eager_gradient`` where each step of a loop runs by itself."""
        self._steps_at_once = False
        try:
            return self.eager_gradient(jacobian, z, *tables)
        finally:
            self._steps_at_once = True

    def adversarial_gradient(
        self, jacobian: bool, reach: Tensor, z: Tensor, X: Tensor, *others: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of two densities and its gradient [p].

        They are those of the rows and of X - reach * sign(slope by X), where each row is as
        improbable as it becomes by a step of that length. Goodfellow, Shlens & Szegedy (2015).
        """
        with torch.enable_grad():
            z, X = z.detach().requires_grad_(True), X.detach().requires_grad_(True)
            here = self.joint(z, (X, *others), jacobian)
            gradient, slope = torch.autograd.grad(here, (z, X), materialize_grads=True)
            there = self.joint(z, (X.detach() - reach * slope.sign(), *others), jacobian)
            (other,) = torch.autograd.grad(there, z, materialize_grads=True)
        return (here + there).detach(), gradient + other

    @contextmanager
    def same_noise(self, seed: int) -> Iterator[None]:
        """Context manager: random numbers inside the density repeat at every call."""
        before, self.noise_seed = self.noise_seed, None if self.random is None else seed
        try:
            yield
        finally:
            self.noise_seed = before

    # -- second derivatives ------------------------------------------------------------------------

    def curvature(
        self, z: Tensor, *, jacobian: bool = True, expected: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient [p] and Hessian [p, p], from the model's formula if it has one.

        Args:
            z: The unconstrained sites, [p].
            jacobian: As in ``log_density``.
            expected: Whether the formula has minus the Fisher information of the likelihood in
                place of its Hessian. Where observed sites have kinks it always has.
        """
        if self.has_curvature and not (self.survey.kinked and not self.data.is_sample):
            return self.curvature_by_formula(z, jacobian, expected or self.survey.kinked)
        return (*self.value_and_grad(z, jacobian=jacobian), self.hessian(z, jacobian=jacobian))

    def curvature_by_formula(
        self, z: Tensor, jacobian: bool, expected: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient [p] and Hessian [p, p] from the formula of the model.

        Args:
            z: The unconstrained sites, [p].
            jacobian: Whether it is the density of z, or that of the sites on their natural scale.
            expected: Whether the Hessian of the likelihood is minus the Fisher information.
        """
        z = z.detach().to(self.survey.like)
        formula = self.model.expected_curvature if expected else self.model.curvature
        with torch.no_grad():
            values = {name: s.transform(s.of(z)) for name, s in self.slices.items()}
            own = _summed(formula(values, part) for part, *_ in self.data.portions())
            value, gradient, H = self.team.sums(*own)
        z.requires_grad_(True)
        gradient, H = self._by_unconstrained(z, gradient, H, expected)
        first = self.tables(torch.zeros(1, dtype=torch.long))  # one row runs the priors
        # flat priors do not depend on z
        prior = self.joint(z, first, jacobian, likelihood=False) + 0.0 * z.sum()
        (slope,) = torch.autograd.grad(prior, z, create_graph=True, materialize_grads=True)
        of_prior = jacobian_of(slope, z, at_once=True)
        return value + prior.detach(), gradient + slope.detach(), H + of_prior

    def _by_unconstrained(
        self, z: Tensor, gradient: Tensor, H: Tensor, expected: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives by z, given those by the sites on their natural scale."""
        moved = [s for s in self.slices.values() if not _is_identity(s)]
        if not moved:
            return gradient, H
        J, bend = torch.eye(len(z)).to(z), torch.zeros_like(H)
        for s in moved:
            own = slice(s.start, s.stop)
            with torch.enable_grad():
                free = z[own].detach().requires_grad_()
                natural = s.transform(free.reshape(s.unconstrained)).reshape(-1)
                slope = torch.autograd.grad
                rows = [slope(one, free, create_graph=True)[0] for one in natural]
                block = torch.stack(rows)
                pulled = gradient[own] @ block
            J[own, own] = block.detach()
            if not expected:
                bend[own, own] = jacobian_of(pulled, free)
        return J.mT @ gradient, J.mT @ H @ J + bend

    def hessian(self, z: Tensor, *, jacobian: bool = True, handler: Any = None) -> Tensor:
        """Return the second derivatives of the log density at z, [p, p].

        Those of observed sites with kinks are minus the expected information, averaged over the
        spread of the posterior: see ``kinks``.

        Args:
            z: The unconstrained sites, [p].
            jacobian: As in ``log_density``.
            handler: A handler of Pyro under which the program runs; None: there is none.
        """
        if self.survey.kinked and handler is None:
            return self._between_kinks(z, jacobian)
        z = z.detach().to(self.survey.like).requires_grad_(True)
        with handler or nullcontext():
            value = self.joint(z, (), jacobian)
        (gradient,) = torch.autograd.grad(value, z, create_graph=True)
        if self.team.alone or not self.model.sums_over_team:
            try:
                own = jacobian_of(gradient, z)
            except (RuntimeError, NotImplementedError):
                if self.data.is_table:
                    raise
                own = self._differences(z.detach(), jacobian)
            return own if self.team.alone else self.team.means(own)[0]
        summed = self.team.differentiable_sum(gradient) / self.team.size
        own = [torch.autograd.grad(slope, z, retain_graph=True)[0] for slope in summed]
        (mean,) = self.team.means(torch.stack(own))
        return mean

    def _between_kinks(self, z: Tensor, jacobian: bool) -> Tensor:
        """Return the second derivatives [p, p] at z [p] of a density with kinks of its laws."""
        here = InExpectation()
        without = -self.hessian(z, jacobian=jacobian, handler=here)
        z = z.detach().to(self.survey.like).requires_grad_(True)
        with here:
            self.joint(z, (), jacobian)

        def of_all(own: Tensor) -> Tensor:
            return own if self.team.alone else self.team.means(own)[0]

        rows = [_by_row(kinks, z) for kinks in here.kinks]
        return -averaged_precision(without.double(), rows, of_all).to(without)

    def _differences(self, z: Tensor, jacobian: bool) -> Tensor:
        """Return second derivatives [p, p] from central differences of the gradient.

        They serve programs with a function of which autograd has first derivatives alone.
        """
        step = torch.finfo(z.dtype).eps ** (1 / 3) * (1 + z.abs())
        rows = []
        for move in torch.diag(step):
            above, below = z + move, z - move
            _, here = self.eager_gradient(jacobian, above)
            _, there = self.eager_gradient(jacobian, below)
            rows.append((here - there) / (above - below).sum())
        H = torch.stack(rows)
        return 0.5 * (H + H.mT)

    # -- compiling ---------------------------------------------------------------------------------

    def compiled(
        self,
        batch: int | None = None,
        jacobian: bool = True,
        k: int | None = None,
        compile: bool = True,
        few: bool = False,
    ) -> ValueAndGradient:
        """Return f(z), or f(z, X, y) for mini-batches, which gives (value, gradient).

        Args:
            batch: Rows of a mini-batch; None for all rows.
            jacobian: As in ``log_density``.
            k: The number of points, z [k, p]; None for one point [p].
            compile: False returns the program itself where there is no graph yet.
            few: A graph of k points that runs a few dozen times, and need not start as fast code.
        """
        graph = self._graphs.get(batch, jacobian, k, compile, few)
        return graph if self.team.alone else self.team.averaged(graph)

    @property
    def compile(self) -> bool:
        """Whether graphs are traced; False where the program runs at every call."""
        return self._graphs.compile

    @property
    def eager(self) -> bool:
        """Whether the gradient runs Pyro's handlers, which one thread at a time may do."""
        return self._graphs.eager

    def remember(self, points: Sequence[Tensor]) -> None:
        """Add points z [..., p], at which a graph ran in another process, to ``visited``.

        They may have another dtype than z.
        """
        like = self.survey.like
        self.visited += [z for several in points for z in several.reshape(-1, self.dim).to(like)]

    def graph_was_wrong(self, z: Tensor | None) -> bool:
        """Return whether a graph differs from the program at z [n, p] or where it was run.

        Then graphs are dropped with a note, the program runs directly, and earlier results must be
        recomputed.
        """
        self._at_start = None
        return self._graphs.was_wrong(None if z is None else z.to(self.survey.like))

    # -- points and sites --------------------------------------------------------------------------

    @property
    def enumerates(self) -> bool:
        """Whether discrete latent sites of the program are summed out."""
        return self.survey.nesting is not None

    def names(self) -> list[str]:
        """Return the site of each coordinate of z, and its index there where it has several."""
        return names(self.slices)

    def origin(self) -> Tensor:
        """Return z [p] where searches start: each site at the median of its prior.

        Where a prior has no median, z is 0, or the starting value that the prior names. What the
        model says of its data comes first.
        """
        if self._origin is None:
            self._origin, self._reach = self._where_priors_are()
            given = self.model.start(self.data.shared)
            if given:
                self._origin = placed(self.slices, self._origin, given)
        return self._origin.clone()

    def starts(self, jacobian: bool = True) -> Tensor:
        """Return starts z [k, p], the best first: the origin, and others where waves have modes.

        A period also starts at the peaks of the periodogram of y, see ``wave_starts``, and that of
        a program where a profile of the density is highest, see ``waves_of_programs``.
        """
        origin = self.origin()
        of_program = not self.data.is_table and self.turning
        if not (self.waves or of_program):
            return origin[None]
        if self._starts is None and of_program:
            several = self._abreast(jacobian)
            found = starts_of_profiles(self.turning, origin, self._reach, several)
            self._starts, self._reach = found
        if self._starts is None:

            def density(z: Tensor) -> float:
                with torch.no_grad():
                    return float(self.joint(z, (), jacobian))

            y = self.data.y
            self._starts = starts_of_waves(self.waves, y, self.slices, origin, density)
            self._reach = reach_of_waves(self.waves, self.slices, self._starts[0], self._reach)
        return self._starts

    def _abreast(self, jacobian: bool) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Return z [``ABREAST``, p] -> values and gradients."""
        graph = self.compiled(None, jacobian, ABREAST, few=True)

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                return graph(z)

        return evaluate

    def far_starts(self, jacobian: bool = True) -> tuple[Tensor, Tensor]:
        """Return heights [k] and ends z [k, p] of short climbs from many places, the best first."""
        return ends_of_many(self.origin(), self._reach, self._abreast(jacobian))

    @property
    def alone_and_smooth(self) -> bool:
        """Whether a user's program has a log density that several points can climb at once."""
        own = self.team.alone and self.random is None and self.out_of_torch is None
        return own and not (self.data.is_table or self.data.streamed or self.enumerates)

    def begins_alike(self) -> bool:
        """Whether entries of one site of a program begin alike and have equal gradients.

        Such are hidden units and terms that the program may permute: a search leaves them equal.
        """
        origin = self.origin()
        _, gradient = self.value_and_grad(origin, compile=False)
        tiny = ALIKE * (1 + gradient.abs().max())
        for s in self.slices.values():
            own = slice(s.start, s.stop)
            values, slopes = origin[own], gradient[own]
            equal = bool((values == values[:1]).all()) and s.stop - s.start > 1
            if equal and not s.param and bool((slopes - slopes[:1]).abs().max() <= tiny):
                return True
        return False

    def laws(self, z: Tensor) -> dict[str, Any]:
        """Return the priors of the sites at z [p], which may depend on other sites."""
        with torch.no_grad(), quietly(), seeded(0), self._run(z.to(self.survey.like)) as run:
            self.run_program()
        return {name: run.sites[name]["fn"] for name in self.slices if name in run.latents()}

    def explained(self, z: Tensor) -> float:
        """Return the least share of the squares of observed numbers that their means at z explain.

        It is 1 where no observed site has a mean for each of several numbers, or one mean for all.
        """
        generator = torch.Generator().manual_seed(0)
        other = self.origin() + self._reach * standard_normal(generator, self.dim).to(z)
        runs = []
        for point in (z.to(self.survey.like), other):
            with torch.no_grad(), quietly(), self._run(point) as run:
                self.run_program()
            runs.append(run.observed())
        least = 1.0
        for name, site in runs[0].items():
            law, y = site["fn"], site["value"]
            if not isinstance(law, NUMBERS) or y.numel() < FEWEST or name not in runs[1]:
                continue
            elsewhere = runs[1][name]["fn"].loc
            total = float((y - y.mean()).square().sum())
            if total > 0 and bool((elsewhere != elsewhere.reshape(-1)[0]).any()):
                least = min(least, 1 - float((y - law.loc).square().sum()) / total)
        return least

    @cached_property
    def waves(self) -> dict[str, Tensor]:
        """The sites that are periods or frequencies: {site: the columns [n, e] of their waves}."""
        return waves_of(self.model, self.data, self.slices)

    @cached_property
    def turning(self) -> list[Profile]:
        """Numbers of a user's program that turn waves, as a frequency does: see ``Profile``."""
        if not self.alone_and_smooth:
            return []
        origin, here = self.origin(), self.survey.like

        def angles_at(z: Tensor) -> list[Tensor]:
            with Angles() as angles, torch.enable_grad():
                self.joint(z)
            return angles.found

        try:
            if not angles_at(origin.clone().requires_grad_()):
                return []
            with quietly(), torch.no_grad(), seeded(0), self._run(origin) as run:
                self.run_program()
            at = [LOWEST + (HIGHEST - LOWEST) * k / PIECES for k in range(PIECES + 1)]
            quantiles = here.new_full((len(at), self.dim), torch.nan)
            for name, s in self.slices.items():
                if not s.param:
                    own = quantiles_of(name, run.sites[name]["fn"], s, at)
                    quantiles[:, s.start : s.stop] = own.to(here)
            return profiles(angles_at, quantiles, origin)
        except (RuntimeError, ValueError, ArithmeticError):  # the program has no density there
            return []

    @property
    def mixes(self) -> bool:
        """Whether a user's program observes a mixture, or a law with heavy tails."""
        self.origin()
        return self._mixes

    @property
    def may_have_kinks(self) -> bool:
        """Whether the density may have kinks: those of its laws, or of what a program computes."""
        of_laws = self.survey.kinked or self.survey.kinked_priors
        return of_laws or not self.data.is_table

    @cached_property
    def alike(self) -> list[Slice]:
        """The places of the lengthscales of equal terms of a kernel, which begin alike."""
        kernel = self.model.covariance if self.data.is_table else None
        ends: tuple[str, ...] = ()
        if kernel is not None:
            ends = kernel.alike(len(self.model.covariance_columns(self.data.d)))
        return [s for name, s in self.slices.items() if name.partition(".")[2] in ends]

    def _where_priors_are(self) -> tuple[Tensor, Tensor]:
        """Return z [p] at the medians of the priors, and how far priors reach, [p], at most 1.

        The prior of a site may depend on other sites, so that each run of a user's program brings
        one more level of a hierarchy to its place.
        """
        z = self._without_medians()
        if self.data.is_table:
            sites = self.model.sites_at(self.data.d)
            laws = declared_laws(self.slices, sites, self.survey.like)
            moved, reach = at_medians(self.slices, laws, z)
            return moved, reach.clamp_max(1.0)
        reach = torch.ones_like(z)
        for _ in range(LEVELS):
            try:
                with quietly(), torch.no_grad(), seeded(0), self._run(z) as run:
                    self.run_program()
            except (RuntimeError, ValueError, ArithmeticError):  # a failed factorisation, perhaps
                return z, reach
            laws = {name: run.sites[name]["fn"] for name, s in self.slices.items() if not s.param}
            self._mixes = any(has_several_modes(s["fn"]) for s in run.observed().values())
            moved, reach = at_medians(self.slices, laws, z)
            if torch.equal(moved, z):
                break
            z = moved
        return z, reach.clamp_max(1.0)

    def _without_medians(self) -> Tensor:
        """Return z [p] = 0, but the starting value of params and of sites that name one."""
        z = self.survey.like.new_zeros(self.dim)
        for name, s in self.slices.items():
            first = self.survey.first[name]
            if s.param or name in self.survey.flat:
                z[s.start : s.stop] = s.transform.inv(first).reshape(-1)
            elif s.circular:
                z[s.start : s.stop] = s.transform.inv(torch.zeros_like(first)).reshape(-1)
        return z

    def start(
        self, seed: int = 0, spread: float = 0.0, jacobian: bool = True, compile: bool = True
    ) -> Tensor:
        """Return a point z [p] of finite density.

        It is the first of ``starts`` moved by Uniform(-spread, spread), and less where the prior of
        a site reaches less far; further and further if need be, at last around 0.

        Args:
            seed: Of the moves.
            spread: Half the width of the first move.
            jacobian: As in ``log_density``.
            compile: As in ``value_and_grad``.

        Raises:
            NumericalError: If the density is finite at none of 100 points.
        """
        if self.data.streamed:
            return self.on_sample.start(seed, spread, jacobian, compile)
        generator = torch.Generator().manual_seed(seed)
        origin = self.starts(jacobian)[0]
        value = gradient = origin.new_tensor(torch.nan)  # of the last attempt
        for attempt in range(STARTS):
            step = 2 * standard_uniform(generator, self.dim).to(origin) - 1
            if attempt == 0:
                z = origin + spread * self._reach * step
            else:  # the medians of priors may be far from where the density is finite
                centre = origin if attempt % 2 else self._without_medians()
                z = centre + max(spread, 0.05 * attempt) * step
            if self.out_of_torch is None:
                value, gradient = self.value_and_grad(z, jacobian=jacobian, compile=compile)
            else:
                value, gradient = self.log_densities(z[None])[0], torch.zeros_like(z)
            if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
                self._at_start = (z.clone(), jacobian, value, gradient)
                return z
        if self.survey.missing:
            self._check_known(origin)
        given = {name: getattr(self.model, name, None) for name in ("noise", "nugget")}
        zero = (n for n, v in given.items() if isinstance(v, int | float) and v == 0)
        without = next(zero, None) if hasattr(self.model, "kernel") else None
        reported = self._without_factor(origin)
        if reported is None and self.invalid is not None:
            reported = f"Pyro's validation: {self.invalid}"
        raise _finite_nowhere(value, gradient, self.slices, self.data, reported, STARTS, without)

    def _without_factor(self, z: Tensor) -> str | None:
        """Return what torch says where a matrix of a run at z [p] has no factor; None if all do."""
        try:
            with torch.no_grad():
                self.log_density(z)
        except RuntimeError as error:
            return sentence(error) if lacks_factor(error) else None
        return None

    def _check_known(self, z: Tensor) -> None:
        """Refuse an ``obs_mask`` that is True at NaN, in a run at z [p]."""
        try:
            with quietly(), torch.no_grad(), seeded(0), self._run(z) as run:
                self.run_program()
        except (RuntimeError, ValueError):  # NaN is no parameter of a site that is drawn
            return
        check_known(run)

    def placed(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the origin z [p] except at the sites of ``values``, {site: [*event]}."""
        return placed(self.slices, self.origin(), values)

    def step_scales(self, z: Tensor) -> Tensor:
        """Return how far each coordinate [p] goes in a step of a search near z.

        It is 1 unless it belongs to a param of which the model's ``step_scales`` says otherwise, or
        to a period, whose mode a longer step would leave.
        """
        steps = torch.ones_like(z)
        if self.waves:
            steps = reach_of_waves(self.waves, self.slices, z, steps)
        if not self.data.is_table or not any(s.param for s in self.slices.values()):
            return steps
        for name, value in self.model.step_scales(self.constrain(z)).items():
            if name in self.slices:
                s = self.slices[name]
                steps[s.start : s.stop] = value.to(z).expand(s.event).reshape(-1)
        return steps

    def constrain(self, z: Tensor) -> dict[str, Tensor]:
        """Return ``{site: [..., *event]}`` from z [..., p], deterministic sites included.

        Each site has the dtype of its prior, which may be narrower than that of z.
        """
        z = z.to(self.survey.like)
        flat = z.reshape(-1, self.dim)
        fixed = self.static and not self.survey.deterministic
        if fixed:
            self.static = fixed = self.known is None or self.supports_stay(_ends(flat))
        if fixed:
            values = self.sites(z)
        else:
            with quietly(), torch.no_grad():
                found = over_draws(self._sites_of_run, {"z": flat})
            values = {name: v.reshape((*z.shape[:-1], *v.shape[1:])) for name, v in found.items()}
        first = self.survey.first
        found = {
            name: v.to(first[name].dtype) if name in first else v for name, v in values.items()
        }
        if self.survey.nesting is not None:
            # a program with discrete sites has no values of computed sites but those
            whole = {name.removesuffix(UNOBSERVED): found[name] for name in self.survey.imputed}
            found |= whole
        return found

    def _sites_of_run(self, point: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sites of a run at ``{"z": z [p]}``, deterministic ones included.

        A deterministic site that the run does not reach, in a branch of an ``if``, is NaN.
        """
        with self._run(point["z"]) as run:
            self.run_program()
        kept = {name: run.sites[name]["value"] for name in self.slices}
        if self.survey.nesting is not None:  # what depends on a discrete site has no value here
            return kept
        values = {}
        for name, value in self.survey.deterministic.items():
            reached = run.sites.get(name)
            nowhere = torch.as_tensor(value, dtype=point["z"].dtype) * torch.nan
            values[name] = nowhere if reached is None else reached["value"]
        return kept | values

    def sites(self, z: Tensor) -> dict[str, Tensor]:
        """Return ``{site: [..., *event]}`` from z [..., p], on the supports of the first run."""
        z = z.to(self.survey.like)
        return {name: s.transform(s.of(z)) for name, s in self.slices.items()}

    def unconstrain(self, draws: Mapping[str, Tensor]) -> Tensor:
        """Return z [..., p] from ``{site: [..., *event]}``.

        Raises:
            NotApplicable: If a site is missing, or its support depends on another site.
        """
        missing = [name for name in self.slices if name not in draws]
        if missing:
            every = list(self.slices)
            raise NotApplicable(
                f"a value for each of {every}", f"none for {missing}", "pass all sites"
            )
        if not self.static:
            got = "a support that depends on another site"
            raise NotApplicable("sites of fixed support", got, "start from z instead")
        return laid(self.slices, draws, self.survey.like)

    def supports_stay(self, points: Tensor) -> bool:
        """Return whether each site has the same support at points z [k, p] as in the first run.

        Raises:
            NotApplicable: If a user's program has other latent sites there.
        """
        return all(self._supports_stay_at(z) for z in points)

    def _supports_stay_at(self, z: Tensor) -> bool:
        with quietly(), torch.no_grad(), seeded(0), self._run(z, True) as run:
            try:
                self.run_program(self._few)
            except (RuntimeError, ValueError, ArithmeticError):  # a failed factorisation, perhaps
                return True
            run.check_complete()
        for name, s in self.slices.items():
            if isinstance(s.transform, Partly):
                _check_same_mask(name, run.sites[name], s.transform)
            here, first = run.sites[name]["value"], s.transform(s.of(z))
            if here.shape != first.shape:
                return False
            finite = torch.isfinite(here) & torch.isfinite(first)
            if not torch.equal(here[finite], first[finite]):
                return False
        return True


def _check_same_mask(name: str, site: Mapping[str, Any], transform: Partly) -> None:
    """Raise NotApplicable for an ``obs_mask`` that other latent sites change."""
    mask, free = torch.as_tensor(site["mask"]), transform.free
    if mask.ndim > free.ndim or not torch.equal(mask.expand(free.shape), free):
        raise NotApplicable(
            "an obs_mask that is the same at all values of the latent sites",
            f"one of {name.removesuffix(UNOBSERVED)!r} that depends on them",
            "pass the mask to the program as data",
        )


def _finite_nowhere(
    value: Tensor,
    gradient: Tensor,
    slices: Mapping[str, Slice],
    data: Any,
    reported: str | None,
    tried: int,
    without_noise: str | None = None,
) -> NumericalError:
    """Return the error for a search without a point of finite density.

    Args:
        value: The log density at the last point.
        gradient: Its gradient there, [p].
        slices: ``{site: Slice}``, to name the sites where something is wrong.
        data: Of the program, to name arguments that hold NaN or infinity.
        reported: What torch or Pyro's validation says of it.
        tried: The number of points.
        without_noise: The name of the variance of the noise of a Gaussian process where it is a
            number 0; None otherwise.
    """
    if bool(torch.isfinite(value)):
        finite = torch.isfinite(gradient)
        where = [name for name, s in slices.items() if not bool(finite[s.start : s.stop].all())]
        return NumericalError(
            "a finite gradient somewhere near the start",
            f"a finite density with a gradient of NaN or infinity in {', '.join(where)}",
            "look for a sqrt, log or norm of 0 in the program; torch.where does not help there",
        )
    holes = not_finite(data)
    if holes:
        return NumericalError(
            "numbers in the arguments of the program",
            f"{holes}, and no finite log density",
            "drop those rows, or leave missing numbers of y out by poutine.mask(mask=~y.isnan()), "
            "or impute them by obs_mask=~y.isnan()",
        )
    if without_noise is not None:
        return NumericalError(
            "a covariance of the rows that has an inverse",
            f"a singular one at all of {tried} places, with {without_noise}=0",
            f"give {without_noise} a prior, or a small number such as 1e-6; a kernel of fewer "
            "functions than rows (Linear, Polynomial, Constant, Periodic over whole periods) "
            "needs it",
        )
    why = "" if reported is None else f" ({reported})"
    do = "check the likelihood against the data (values outside its support?), and the priors"
    return NumericalError(
        "a finite log density somewhere near the start",
        f"NaN or infinity at all of {tried} places{why}",
        do,
    )


def _summed(parts: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the sums of values, gradients and Hessians of portions of the rows."""
    return tuple(reduce(add, each) for each in zip(*parts, strict=True))


def _by_row(kinks: Kinks, z: Tensor) -> tuple[Tensor, ...]:
    """Return derivatives [n, p] of locations by z [p], both scales and weights [n], in float64."""
    moved = kinks.moved.reshape(-1)
    v = torch.zeros_like(moved, requires_grad=True)
    J = moved.new_zeros((len(moved), len(z)))
    if moved.requires_grad:
        (total,) = torch.autograd.grad(moved, z, v, create_graph=True, materialize_grads=True)
        for j, one in enumerate(total if total.requires_grad else ()):
            J[:, j] = torch.autograd.grad(one, v, retain_graph=True, materialize_grads=True)[0]
    each = (x.detach().reshape(-1).double() for x in (kinks.left, kinks.right, kinks.weight))
    return (J.detach().double(), *each)


def _is_identity(s: Slice) -> bool:
    """Whether a site is its own unconstrained value."""
    base = getattr(s.transform, "base_transform", s.transform)
    return getattr(base, "parts", None) == []


def _ends(z: Tensor) -> Tensor:
    """Return some rows of z [n, p], those at the ends of its coordinates first."""
    if len(z) <= POINTS or not z.shape[1]:
        return z[:POINTS]
    ends = torch.stack([z.argmax(0), z.argmin(0)], 1).flatten()
    return z[ends[:POINTS]]


def _of_stream(target: Target, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor]:
    """Return the log density at z [p] and its gradient [p], from two passes."""
    z = z.detach().double()
    model, team, like = target.model, target.team, target.survey.like
    one = target.data.X[:1].double()
    with torch.no_grad():
        theta, sums = _theta(target, z), _sums(target, z)
        value = model.bound_of_sums(theta, one, sums)
        slopes = model.slopes_of_sums(theta, one, sums)
    gradient = torch.zeros_like(z)
    if bool(torch.isfinite(value)):
        for X, y in _blocks(target.data):
            free = z.clone().requires_grad_(True)
            with torch.enable_grad():
                term = model.term_of_rows(_theta(target, free), X, y, slopes)
                gradient += torch.autograd.grad(term, free, materialize_grads=True)[0]
    gradient = team.sum(gradient)
    free = z.clone().requires_grad_(True)
    with torch.enable_grad():
        term = model.term_of_shared(_theta(target, free), one, slopes)
        # flat priors do not depend on z
        prior = target.joint(free.to(like), (), jacobian, likelihood=False) + 0.0 * free.sum()
        gradient = gradient + torch.autograd.grad(term + prior, free, materialize_grads=True)[0]
    return (value + prior.detach()).to(like), gradient.to(like)


def _bound_of_stream(target: Target, z: Tensor) -> tuple[float, int]:
    """Return log p(y given theta), or its bound, at z [p], and the number of rows."""
    z = z.detach().double()
    with torch.no_grad():
        sums = _sums(target, z)
        one = target.data.X[:1].double()
        value = target.model.bound_of_sums(_theta(target, z), one, sums)
    return float(value), round(float(sums.n))


def _sums(target: Target, z: Tensor) -> Any:
    """Return the sums over all rows at z [p]."""
    theta = _theta(target, z)
    parts = (
        target.model.sums_of_rows(theta, table.X.double(), table.y.double())
        for table, *_ in target.data.portions()
    )
    return reduce(lambda a, b: a.plus(b), parts).over_ranks(target.team)


def _theta(target: Target, z: Tensor) -> dict[str, Tensor]:
    """Return {site: [*event]} at z [p], with the params that are held, in float64."""
    held = {name: value.double() for name, value in target.params.items()}
    return held | {name: s.transform(s.of(z)) for name, s in target.slices.items()}


def _blocks(data: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield X [rows, d] and y [rows] of all rows of this rank."""
    for table, *_ in data.portions():
        for start in range(0, table.n, ROWS):
            rows = slice(start, start + ROWS)
            yield table.X[rows].double(), table.y[rows].double()


@dataclass(eq=False, repr=False)
class Graphs:
    """The graphs of one density: of all rows or a mini-batch, of one point or several.

    Args:
        density: What is compiled.
        compile: Whether to compile at all; the program runs at every call otherwise.
        notes: A list to which sentences for the user are added.
        watch: Whether to remember points at which graphs run, to compare graph and program there
            later. A user's program may have branches that tracing cannot see.

    Attributes:
        visited: Some of the points at which graphs were run.
        failed: Whether the program could not be compiled.
        warned: Those of ``notes`` that a warning has stated.
    """

    density: Target
    compile: bool
    notes: list[str]
    watch: bool
    visited: list[Tensor] = field(init=False, default_factory=list)
    failed: bool = field(init=False, default=False)
    warned: list[str] = field(init=False, default_factory=list)
    _graphs: dict[Key, ValueAndGradient] = field(init=False, default_factory=dict)
    _recorded: dict[tuple[int | None, bool], _Recorded] = field(init=False, default_factory=dict)
    _of_tables: dict[tuple[Any, ...], ValueAndGradient] = field(init=False, default_factory=dict)
    _machine_code: dict[bool, Coded | None] = field(init=False, default_factory=dict)
    _values: tuple[OfValues | None] | None = field(init=False, default=None)

    @property
    def eager(self) -> bool:
        """Whether the program itself runs at every call."""
        return self.failed or not self.compile

    def get(
        self,
        batch: int | None,
        jacobian: bool,
        k: int | None = None,
        compile: bool = True,
        few: bool = False,
    ) -> ValueAndGradient:
        """Return (z, *tables) -> value, gradient; see ``Target.compiled``."""
        key = (batch, jacobian, k)
        if key not in self._graphs:
            if batch not in self.density._fits:
                self.density.check_memory(batch)
            if not compile and k is None:
                program = partial(self.density.eager_gradient, jacobian)
                return program if self.density.data.is_table else OrNaN(program)
            with one_at_a_time(), self.density._collected():
                graph, reason = self._compiled(batch, jacobian, k, few)
            if reason is not None:
                self._warn_eager(reason)
            watched = self.watch and not self.eager
            self._graphs[key] = _Watched(graph, self.visited, self._dtype) if watched else graph
        return self._graphs[key]

    @property
    def _dtype(self) -> torch.dtype:
        return self.density.survey.like.dtype

    def values_alone(self) -> OfValues | None:
        """Return z [p] -> (value,), without the gradient; None where the gradient costs little.

        Points at which the graph of a user's program runs are remembered, so that it stays.
        """
        density = self.density
        if self.watch or self.eager or not density.team.alone or density.random is not None:
            return None
        if self._values is None:
            recorded = self._recorded[None, True]
            found = values_alone(recorded.graph, (recorded.points[0].clone(),))
            self._values = (found and OrNaN(found),)
        return self._values[0]

    def machine_code(self, jacobian: bool) -> OfNumPy | None:
        """Return z [p] -> value, gradient [p] of NumPy as machine code; None if there is none.

        A program's own numbers in single precision may be far less precise. What is compared with
        the program, where this ran, is therefore the graph of torch.
        """
        density = self.density
        if not density.team.alone or density.data.streamed or density.random is not None:
            return None
        key = (None, jacobian, None)
        self.get(*key)
        if jacobian not in self._machine_code:
            recorded = self._recorded.get((None, jacobian))
            if self.eager or recorded is None:
                return None
            with one_at_a_time():
                code = machine_code(recorded.graph)
                graph = self._graphs[key]
                own = graph.graph if isinstance(graph, _Watched) else graph
                if code is not None and isinstance(own, Branching):
                    # conditions on numbers in float32 need not hold for those of machine code
                    exact = not density.survey.single
                    code = BranchingCode(own, code, self._dtype) if exact else None
                if code is not None and not self._agrees(code, recorded, jacobian):
                    code = None
                self._machine_code[jacobian] = code
        code = self._machine_code[jacobian]
        if code is None:
            return None
        watched = self._graphs[key]
        if not isinstance(watched, _Watched):
            return code.of_numpy
        watched.code = code
        return watched.of_numpy

    def _agrees(
        self, code: MachineCode | BranchingCode, recorded: _Recorded, jacobian: bool
    ) -> bool:
        """Return whether machine code has the values of the program where this was run."""
        one = OrNaN(partial(self.density.eager_gradient, jacobian))
        return all(
            agrees_up_to_rounding(code(z), one, z, (), own(), single=self.density.survey.single)
            for z, own in zip(recorded.points, recorded.own, strict=True)
        )

    def of_tables(
        self, batch: int, jacobian: bool, k: int | None, reach: Tensor | None
    ) -> ValueAndGradient:
        """Return (z, X, y) -> value, gradient, where each of k points has rows of its own.

        Args:
            batch: Rows per point.
            jacobian: As in ``get``.
            k: The arguments are [k, ...]; None for one point.
            reach: The length of an adversarial step in each column, [d]; None: the density itself.
        """
        key = (batch, jacobian, k, None if reach is None else tuple(reach.tolist()))
        if key in self._of_tables:
            return self._of_tables[key]
        self.density.check_memory(batch * (k or 1))
        one = partial(self.density.eager_gradient, jacobian)
        if reach is not None:
            one = partial(self.density.adversarial_gradient, jacobian, reach)
        graph = OrNaN(one) if k is None else Looped(OrNaN(one), True)
        if self.compile:
            tables = self.density.tables(torch.arange(batch))
            points = self._three_points()
            with one_at_a_time():
                found = traced(one, (points[0].clone(), *tables), k, True)
                found = OrNaN(found) if k is None else found
                # other rows at each point, or the same in another order
                rows = [tuple(x.roll(i, 0) for x in tables) for i in range(len(points))]
                agree = (
                    agrees_up_to_rounding(
                        there, OrNaN(one), z, own, single=self.density.survey.single
                    )
                    for there, z, own in zip(
                        several_of(found, points, rows, k, True), points, rows, strict=True
                    )
                )
                graph = found if all(agree) else graph
        self._of_tables[key] = graph
        return graph

    def _compiled(
        self, batch: int | None, jacobian: bool, k: int | None, few: bool = False
    ) -> tuple[ValueAndGradient, str | None]:
        """Return the graph, and why it is the program itself instead, if it has to be."""
        program = partial(self.density.eager_gradient, jacobian)
        # models of the library explain a failed factor themselves
        of_user = not self.density.data.is_table
        one = OrNaN(program) if of_user else program
        if not self.compile:
            return one if k is None else Looped(one), None
        tables = () if batch is None else self.density._first_rows(batch)
        try:
            if (batch, jacobian) not in self._recorded:  # for one point and for several
                points = self._three_points()
                graph = one_point(program, (points[0].clone(), *tables))
                own = [cache(partial(one, z, *tables)) for z in points]
                if self.watch:  # a step may do something else each time
                    in_turn = partial(self.density.gradient_step_by_step, jacobian)
                    own[-1] = cache(partial(OrNaN(in_turn), points[-1], *tables))
                self._recorded[batch, jacobian] = _Recorded(graph, points, own)
            recorded = self._recorded[batch, jacobian]
            if k is not None and not worth_widening(recorded.graph):
                return Looped(self.get(batch, jacobian)), None
            points, own = recorded.points, recorded.own
            graph = traced(recorded.graph, (points[0].clone(), *tables), k, False, few)
            if isinstance(graph, GraphModule) and k is None:
                # it agrees where it was traced; a point costs a step
                points, own = points[1:], own[1:]
            if k is None and of_user:
                graph = OrNaN(graph)
            if recorded.graph.meta["branches"]:
                if k is None:
                    graph = Branching(one, recorded.graph, graph, self.density.survey.single)
                else:
                    graph = SeveralBranching(graph, partial(self.get, batch, jacobian))
            found = several_of(graph, points, [tables] * len(points), k)
            single = self.density.survey.single
            agree = (
                agrees_up_to_rounding(there, one, z, tables, known(), single=single)
                for there, z, known in zip(found, points, own, strict=True)
            )
            reason = None if all(agree) else VALUES
        except (KeyboardInterrupt, LostRank, NotApplicable):
            raise
        except Exception as error:  # any error of a user's program inside a trace: run it eagerly
            graph, reason = one, _reason(error)
        if reason is None:
            return graph, None
        if k is not None:  # a graph of one point may serve where that of several does not
            return Looped(self.get(batch, jacobian)), None
        return one, reason

    def _three_points(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        origin, dim = self.density.origin(), self.density.dim
        steps = [torch.zeros(dim, dtype=torch.float64)]
        for _ in range(2):
            steps.append(0.5 * standard_normal(generator, dim))
        return [origin + step.to(origin) for step in steps]

    def _warn_eager(self, reason: str) -> None:
        if self.failed:
            return
        self.failed = True
        note = (
            f"the program could not be compiled ({reason}); it runs eagerly, several times slower"
        )
        self.notes.append(note)
        self.warned.append(note)
        warn(note, NumericalWarning)

    def was_wrong(self, z: Tensor | None) -> bool:
        """See ``Target.graph_was_wrong``."""
        graph = next((g for key, g in self._graphs.items() if key[0] is None), None)
        if not isinstance(graph, _Watched):
            return False
        key = next(key for key in self._graphs if key[0] is None)
        sentence = _difference(self.density, graph, key, z)
        if sentence is None:
            return False
        self.compile = False
        self._graphs.clear()
        self._recorded.clear()
        self._machine_code.clear()
        self.visited.clear()
        self.notes.append(sentence)
        warn(sentence, NumericalWarning)
        return True


@dataclass(frozen=True, eq=False)
class _Recorded:
    """The operations of a density at one point, behind its graphs of one point and of several.

    Attributes:
        graph: The operations.
        points: Where graphs are compared with the program, [p] each.
        own: Functions that return value and gradient of the program there, computed once.
    """

    graph: GraphModule
    points: list[Tensor]
    own: list[Callable[[], tuple[Tensor, Tensor]]]


def _reason(error: Exception) -> str:
    """Return what kept a program from being traced, in one sentence."""
    said = str(error)
    if "of a value that depends" in said or "data-dependent" in said or "Could not guard" in said:
        return PYTHON_NUMBER
    if "has a shape that depends" in said:
        return SHAPE
    first_line = said.splitlines()[0] if said else ""
    return f"{type(error).__name__}: {first_line}"


class _Watched:
    """A graph that keeps the points of its calls number 1, 2, 4, 8, ...

    More of them are early, in the warm-up of a sampler, where the values vary most.
    """

    def __init__(self, graph: ValueAndGradient, visited: list[Tensor], dtype: torch.dtype) -> None:
        self.graph, self.visited, self.dtype, self.calls = graph, visited, dtype, 0
        self.code: Coded | None = None

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if not self.calls & (self.calls - 1):
            self.visited.append(z.detach().clone())
        return self.graph(z, *tables)

    def of_numpy(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at z [p] and the gradient [p], from machine code."""
        self.calls += 1
        if not self.calls & (self.calls - 1):
            self.visited.append(torch.from_numpy(z.copy()).to(self.dtype))
        return cast(Coded, self.code).of_numpy(z)


def _difference(density: Target, watched: _Watched, key: Key, z: Tensor | None) -> str | None:
    """Return a sentence on the first point where the graph and the program differ; None if none.

    Args:
        density: The density of the program.
        watched: Its graph over all rows.
        key: What the graph is of.
        z: Draws or a mode, [n, p]; their extremes in each coordinate come first, as a branch is
            often at an end.
    """
    _, jacobian, k = key
    points = [] if z is None else _extremes_first(z, min(MOST, max(FEWEST, len(z) // SHARE)))
    first_points = [
        point for each in watched.visited for point in each.reshape(-1, density.dim)[:1]
    ]
    points += first_points[-MOST:]
    one = OrNaN(partial(density.eager_gradient, jacobian))
    single = density.survey.single
    tolerance = 1e-3 if single or density.survey.like.dtype == torch.float32 else 1e-8
    for point in points:
        with torch.no_grad():
            from_graph = several_of(watched.graph, [point], [()], k)[0]
            own = _own(density, point, jacobian)
        if torch.allclose(from_graph[0], own, rtol=tolerance, atol=tolerance, equal_nan=True):
            continue
        finite = bool(torch.isfinite(own))
        if finite and agrees_up_to_rounding(from_graph, one, point, (), single=single):
            continue
        return (
            "the program takes a branch that tracing cannot see: its log density at one point is "
            f"{float(own):.6g}, that of its graph {float(from_graph[0]):.6g}; it ran again "
            "eagerly, several times slower"
        )
    return None


def _own(density: Target, z: Tensor, jacobian: bool) -> Tensor:
    """Return the value of the program itself; NaN where it has none."""
    try:
        return density.joint(z, (), jacobian)
    except (RuntimeError, ValueError, ArithmeticError):  # a failed Cholesky factor, for example
        return torch.full_like(z[0], torch.nan)


def _extremes_first(z: Tensor, most: int) -> list[Tensor]:
    """Return the draws at the ends of each coordinate, then some at equal distances."""
    ends = torch.stack([z.argmax(0), z.argmin(0)], 1).flatten()
    even = torch.linspace(0, len(z) - 1, min(most, len(z)), device=z.device).long()
    chosen = dict.fromkeys([*ends[: most // 2].tolist(), *even.tolist()])
    return [z[i] for i in list(chosen)[:most]]


class Sendable:
    """A Target, or what it is made from.

    Pickling leaves out its graphs, which hold code of this process. Reading the pickle makes no
    Target: that takes locks, and a scheduler reads pickles beside the thread that holds them.

    Args:
        target: The Target.
    """

    def __init__(self, target: Target) -> None:
        self._target: Target | None = target
        self._made_from = type(target), target.arguments
        self.received = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_target": None, "_made_from": self._made_from, "received": True}

    @property
    def target(self) -> Target:
        """The Target, made at the first call where it was received."""
        if self._target is None:
            self._target = self.again()
        return self._target

    def again(self) -> Target:
        """Return a new Target of the same density, without graphs."""
        kind, arguments = self._made_from
        return kind(*arguments)
