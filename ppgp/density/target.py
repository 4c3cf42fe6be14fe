"""Target: a model meets data, as one log density on R^p with a compiled gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor

from ..data.argument_mistakes import explained
from ..data.arguments import as_training_data
from ..data.training_data import Rows
from ..errors import NotApplicable
from ..runtime.seeding import seeded, standard_uniform
from .checks import check_program
from .compiled import Graphs
from .density import Density
from .graph.tracing import ValueAndGradient
from .handlers import Run, quietly
from .layout import laid, names, placed
from .start import finite_nowhere
from .sums_of_streams import bound_of_stream, of_stream
from .supports import Guarding
from .survey import other_points, run_from_prior, survey

__all__ = ["Target"]

# at these multiples of a point a user's program shows whether its supports and sites are fixed
FAR = (1.0, -1.0, 3.0, -3.0, 10.0, -10.0, 30.0, -30.0)
#: ``evaluated(z, orders, compute)``: the results of an evaluation at z [p], derivatives of these
#: orders.
Evaluated = Callable[[Tensor, Sequence[int], Callable[[], Sequence[Tensor]]], Sequence[Tensor]]
STARTS = 100  # points tried before a density is said to be finite nowhere


def at_once(
    z: Tensor, orders: Sequence[int], compute: Callable[[], Sequence[Tensor]]
) -> Sequence[Tensor]:
    """Return ``compute()``."""
    return compute()


class Target(Density):
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

    Attributes:
        arguments: Those it was made from, in order.
        collapsed_elbo: Whether the objective is the collapsed bound rather than the density.
        invalid: The validation error that Pyro reports at every point tried; None if any point
            passes.
        notes: Sentences that every Posterior from this target carries.
        visited: Some of the points z at which graphs of a user's program were run.

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
    ) -> None:
        data = as_training_data(data)
        self.arguments = model, data, optimise_params, compile, collapsed_elbo, empty
        program = model.collapsed_elbo if collapsed_elbo else model.model
        self.optimise_params, self.collapsed_elbo = optimise_params, collapsed_elbo
        self.invalid: str | None = None
        self.notes: list[str] = []
        of_the_library = data.is_table
        stored = None if of_the_library else pyro.get_param_store().get_state()
        run = Run({})
        with quietly(), seeded(0), explained(data, sites=run.dtypes):
            run_from_prior(model, data, program, stored, run)
            found = survey(model, data, run, optimise_params, empty)
            super().__init__(model, data, program, found)
            if not of_the_library and self.needs_own_dtypes():
                found = survey(model, data, run, optimise_params, empty, own_dtypes=True)
                super().__init__(model, data, program, found)
            if not of_the_library and found.dim:
                self.guard(run)
                self.invalid, self.random = check_program(self, run)
        if found.held:
            held = ", ".join(found.held)
            self.notes.append(f"held where they are: params {held} (MAP and SVI optimise them)")
        if not (of_the_library and found.declared):
            points = other_points(found, (1.0,) if of_the_library else FAR)
            self.static = self.supports_stay(points)
        compile = compile and self.random is None and not model.chunked(data)
        self._at_start: tuple[Tensor, bool, Tensor, Tensor] | None = None
        self._graphs = Graphs(self, compile, self.notes, not of_the_library)
        self.visited = self._graphs.visited

    def settle(self, jacobian: bool = True) -> None:
        """Compile, and forget values: what follows is equal whatever was evaluated before."""
        self.compiled(None, jacobian)
        self._at_start = None

    # -- the density -------------------------------------------------------------------------------

    @property
    def guarded_program(self) -> Callable[..., Any]:
        """The Pyro program of the model, with a density of 0 where its sites leave their sets."""
        return Guarding(self.guards)(self.model.model) if self.guards else self.model.model

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
        """Return ``log_density`` and its gradient [p]; NaN where it cannot be evaluated.

        They come from the graph. With ``compile=False`` the program itself runs unless there is
        a graph already. All rows of a stream are one pass over it.
        """
        if rows is None and self.data.streamed:
            return self._of_all_portions(z, jacobian)
        graph = self.compiled(None if rows is None else len(rows), jacobian, compile=compile)
        with torch.no_grad():
            return graph(z.to(self.survey.like), *self.tables(rows))

    def _of_all_portions(self, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor]:
        """Return value and gradient over all rows of a stream, summed in float64."""
        if self.model.sums_over_team:
            return of_stream(self, z, jacobian)
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
        if self.data.streamed and self.model.sums_over_team:
            return bound_of_stream(self, z)
        return super().log_likelihood(z)

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
        graph = self.compiled()
        points = z.to(self.survey.like)
        if not len(points):
            return points.new_zeros(0)
        with torch.no_grad():
            if self._graphs.eager:
                return torch.stack([self.log_density(point) for point in points])
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
            graph = self.eager_gradient(jacobian)
        else:
            graph = self.adversarial_gradient(jacobian, reach)
        graph = self.team.averaged(graph)
        with torch.no_grad():
            return graph(z.to(self.survey.like), *self.tables(rows))

    def callback(
        self, jacobian: bool = True, after: float = 0, evaluated: Evaluated = at_once
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """Return ``value_and_grad`` as a function of NumPy vectors in float64.

        It adds little overhead. What ``start`` found at its point is not computed again.

        Args:
            jacobian: As in ``log_density``.
            after: The first so many calls run the program itself; it is compiled for those that
                follow.
            evaluated: ``evaluated(z, (0, 1), compute)`` returns value and gradient [p]: what
                ``compute()`` returns, or has returned before.
        """
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
            known = self._known(z_here, jacobian)
            value, gradient = evaluated(z_here, (0, 1), lambda: known or graph(z_here))
            if plain:
                return value.item(), gradient.numpy()
            return value.item(), gradient.double().cpu().numpy()

        return in_numpy

    def curvature(
        self, z: Tensor, *, jacobian: bool = True, expected: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient [p] and Hessian [p, p], from the model's formula if it has one.

        Args:
            z: The unconstrained sites, [p].
            jacobian: As in ``log_density``.
            expected: Whether the formula has minus the Fisher information of the likelihood in
                place of its Hessian.
        """
        if self.has_curvature:
            return self.curvature_by_formula(z, jacobian, expected)
        return (*self.value_and_grad(z, jacobian=jacobian), self.hessian(z, jacobian=jacobian))

    @property
    def enumerates(self) -> bool:
        """Whether discrete latent sites of the program are summed out."""
        return self.survey.nesting is not None

    @property
    def parameters(self) -> int:
        """How many numbers can be chosen: p, but 1 for an angle, which takes two coordinates."""
        return sum(s.free for s in self.slices.values())

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
        return self.team.averaged(self._graphs.get(batch, jacobian, k, compile, few))

    @property
    def compile(self) -> bool:
        """Whether graphs are traced; False where the program runs at every call."""
        return self._graphs.compile

    @property
    def eager(self) -> bool:
        """Whether the gradient runs Pyro's handlers, which one thread at a time may do."""
        return self._graphs.eager

    @property
    def warned(self) -> list[str]:
        """The notes that a warning has stated already."""
        return self._graphs.warned

    def remember(self, points: Sequence[Tensor]) -> None:
        """Add points z [..., p], at which a graph ran in another process, to ``visited``.

        They may have another dtype than z.
        """
        self._graphs.remember(points)

    def graph_was_wrong(self, z: Tensor | None) -> bool:
        """Return whether a graph differs from the program at z [n, p] or where it was run.

        Then graphs are dropped with a note, the program runs directly, and earlier results must be
        recomputed.
        """
        self._at_start = None
        return self._graphs.was_wrong(None if z is None else z.to(self.survey.like))

    # -- points ------------------------------------------------------------------------------------

    def start(
        self, seed: int = 0, spread: float = 0.0, jacobian: bool = True, compile: bool = True
    ) -> Tensor:
        """Return a point z [p] of finite density.

        It is the origin moved by Uniform(-spread, spread), further and further if need be.

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
        origin = self.origin()
        value = gradient = origin.new_tensor(torch.nan)  # of the last attempt
        for attempt in range(STARTS):
            reach = spread if attempt == 0 else max(spread, 0.05 * attempt)
            step = (2 * standard_uniform(generator, self.dim) - 1) * reach
            z = origin + step.to(origin)
            value, gradient = self.value_and_grad(z, jacobian=jacobian, compile=compile)
            if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
                self._at_start = (z.clone(), jacobian, value, gradient)
                return z
        given = {name: getattr(self.model, name, None) for name in ("noise", "nugget")}
        zero = (n for n, v in given.items() if isinstance(v, int | float) and v == 0)
        without = next(zero, None) if hasattr(self.model, "kernel") else None
        raise finite_nowhere(value, gradient, self.slices, self.data, self.invalid, STARTS, without)

    def _known(self, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor] | None:
        """Return value and gradient at the point of the last ``start``; None elsewhere."""
        if self._at_start is None or self.random is not None:
            return None
        point, with_jacobian, value, gradient = self._at_start
        self._at_start = None  # once: y may be changed in place before another search
        if with_jacobian != jacobian or not torch.equal(point, z):
            return None
        return value, gradient

    def placed(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the origin z [p] except at the sites of ``values``, {site: [*event]}."""
        return placed(self.slices, self.origin(), values)

    def step_scales(self, z: Tensor) -> Tensor:
        """Return how far each coordinate [p] goes in a step of a search near z.

        It is 1 unless the model's ``step_scales`` says otherwise.
        """
        steps = torch.ones_like(z)
        if not self.data.is_table:
            return steps
        for name, value in self.model.step_scales(self.constrain(z)).items():
            if name in self.slices:
                s = self.slices[name]
                steps[s.start : s.stop] = value.to(z).expand(s.event).reshape(-1)
        return steps

    def names(self) -> list[str]:
        """Return the site of each coordinate of z, and its index there where it has several."""
        return names(self.slices)

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
