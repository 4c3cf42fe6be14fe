"""Target: a model meets data; one log density on R^p with its compiled gradient. All that samplers and optimisers see."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any

import numpy as np
import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.distributions import constraints, transform_to

from ..data.dataset import Dataset
from ..errors import NotApplicable, NumericalWarning, Renamed
from ..numerics.process_locks import one_at_a_time
from ..numerics.seeding import seeded
from ..priors import FlatDistribution, Param
from .branches import Watched, difference
from .capabilities import LikelihoodDerivatives, supports
from .checks import check_program
from .compiled import compiled, on_vectors
from .enumeration import check_enumerable, is_discrete, plate_nesting, summed_out
from .graph import jacobian_of
from .handlers import (
    Run,
    is_deterministic,
    mapping,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from .layout import Slice, laid, names, placed
from .rows import check_memory, enough_rows
from .start import finite_start

__all__ = ["Target"]


class Target:
    """log p(theta, y | X) as a function of z in R^p, the sites mapped to unconstrained space and laid end to end.

    Args:
        model: a model of the zoo, or a Program.
        data: the Dataset that it is conditional on (on the scale that the model sees), or a program's arguments.
        optimise_params: whether ``pyro.param`` values are part of z (MAP) or held where they are (samplers).
        compile: trace value and gradient once and run the graph; otherwise run Pyro's handlers at every call.
        collapsed_elbo: take the model's ``collapsed_elbo`` for its program: its collapsed sites integrated under params of their law.
        empty: take a model with nothing to search as well.

    Attributes:
        dim: p.
        slices: ``{site: Slice}``.
        params: the values of the params that are held.
        random: what is random in the density besides the sites (a subsampled plate); None where it is the same at every call.

    Discrete latent sites of finite support are summed out.

    Raises:
        NotApplicable: if a latent site has endlessly many discrete values, or there is nothing to search (but for ``empty``).
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
        self.model, self.data, self.optimise_params, self._empty = (
            model,
            data,
            optimise_params,
            empty,
        )
        self._program = model.collapsed_elbo if collapsed_elbo else model.model
        self.compile = compile and not (isinstance(data, Dataset) and model.chunked(data))
        self.slices: dict[str, Slice] = {}
        self.params: dict[str, Tensor] = {}
        self.random: str | None = None
        self.visited: list[
            Tensor
        ] = []  # some of the points z that graphs of a user's program were run at
        self.notes: list[str] = []  # sentences that every Posterior from this target carries
        self._graphs: dict[
            tuple[int | None, bool, int | None], Callable[..., tuple[Tensor, Tensor]]
        ] = {}
        self._traced = False
        self._at_origin: Tensor | None = None
        self.invalid: str | None = (
            None  # what Pyro's validation says of the program, at all places that it was run at
        )
        self._noise_seed: int | None = None
        self._survey()

    # -- the program ---------------------------------------------------------------------------------------------

    def _call(self, tables: tuple[Tensor, ...]) -> None:
        if isinstance(self.data, Dataset):
            X, y = tables or (self.data.X, self.data.y)
            self._program(X, y, total=self.data.n)
        else:
            self._program(**self.data)

    def _survey(self) -> None:
        """One run from the prior: which sites there are, and their shapes."""
        some = enough_rows(self.model, self.data)
        if not some:
            check_memory(self.model, self.data)
        self._nesting: int | None = None  # of plates, where discrete sites are to be summed out
        with quietly(), seeded(0):
            with Run({}) as run:
                self._call(some)
            position = 0
            frozen = self._frozen()
            for name, site in run.sites.items():
                is_param = site["type"] == "param"
                if site["type"] == "sample" and site["is_observed"]:
                    continue
                if is_param and (name in frozen or not self.optimise_params):
                    self.params[name] = site["value"].detach().clone()
                    continue
                support = (
                    site["kwargs"].get("constraint", constraints.real)
                    if is_param
                    else site["fn"].support
                )
                if not is_param and is_discrete(site):
                    check_enumerable(name, site)
                    self._nesting = plate_nesting(run)
                    continue
                transform = transform_to(support) if is_param else mapping(name, site["fn"])
                free = transform.inv(site["value"].detach())
                self.slices[name] = Slice(
                    position,
                    position + free.numel(),
                    free.shape,
                    site["value"].shape,
                    transform,
                    is_param,
                )
                position += free.numel()
                self._like = free.reshape(-1)
            # a program may draw float32 sites beside float64 data: z has the widest dtype there is
            values = [
                s["value"]
                for _, s in run.samples()
                if isinstance(s["value"], Tensor) and s["value"].is_floating_point()
            ]
            widest = reduce(torch.promote_types, [v.dtype for v in values], torch.float32)
            self.dim = position
            if not self.dim and not self._empty:
                do = "give a hyperparameter a prior; ppgp.fit takes a model of numbers alone"
                raise NotApplicable("a model with at least one uncertain site", "none", do)
            self._like = self._like.to(widest) if self.dim else values[0].new_zeros(0, dtype=widest)
            self._has_deterministic = (
                any(is_deterministic(s) for _, s in run.samples()) and not self.enumerates
            )
            self._first = {
                name: site["value"].detach()
                for name, site in run.sites.items()
                if name in self.slices
            }
            if not isinstance(self.data, Dataset) and self.dim:
                self.invalid, self.random = check_program(self, run)
                self.compile = self.compile and self.random is None
        held = [name for name in self.params if name not in frozen]
        if held:
            self.notes.append(
                f"held where they are: params {', '.join(held)} (MAP and SVI optimise them)"
            )
        self._static = self._supports_are_static()

    def _frozen(self) -> set[str]:
        """Params that nothing moves: buffers of a network, and its weights where it is frozen. They are no part of z."""
        if not isinstance(self.data, Dataset):
            return set()
        return {
            name
            for name, s in self.model.sites(self.data.d).items()
            if isinstance(s, Param) and not s.trained
        }

    def _supports_are_static(self) -> bool:
        """Whether the transforms of the first run are those of every run."""
        generator = torch.Generator().manual_seed(1)
        z = torch.randn(self.dim, generator=generator, dtype=torch.float64).to(self._like)
        with quietly(), seeded(0), Run(self._split(z), unconstrained=True) as run:
            self._call(enough_rows(self.model, self.data))
        return all(
            torch.equal(run.sites[n]["value"], s.transform(s.of(z))) for n, s in self.slices.items()
        )

    def _split(self, z: Tensor) -> dict[str, Tensor]:
        return {name: s.of(z) for name, s in self.slices.items()}

    def _density(
        self, z: Tensor, tables: tuple[Tensor, ...], jacobian: bool, likelihood: bool = True
    ) -> Tensor:
        same = nullcontext() if self._noise_seed is None else seeded(self._noise_seed)
        with quietly(), same:
            with Run(self._split(z), unconstrained=True, params=self.params) as run:
                if self._nesting is None:
                    self._call(tables)
                    total = run.log_prob(likelihood)
                else:
                    total = summed_out(lambda: self._call(tables), self._nesting, likelihood)
            total = total + (run.log_jacobian if jacobian else 0.0)
        return torch.as_tensor(total).reshape(())

    # -- the density ---------------------------------------------------------------------------------------------

    def tables(self, rows: Tensor | None) -> tuple[Tensor, ...]:
        if rows is None:
            return ()
        if not isinstance(self.data, Dataset):
            raise NotApplicable(
                "a Dataset to take mini-batches from",
                "a program with its own arguments",
                "use the full batch",
            )
        return self.data.X[rows], self.data.y[rows]

    def log_density(
        self, z: Tensor, rows: Tensor | None = None, *, jacobian: bool = True
    ) -> Tensor:
        """The log joint density at z [p], a differentiable scalar; ``rows``: an unbiased estimate from those rows.

        With ``jacobian`` it is the density of z; without, that of the sites on their natural scale.
        """
        return self._density(z, self.tables(rows), jacobian)

    def value_and_grad(
        self, z: Tensor, rows: Tensor | None = None, *, jacobian: bool = True, compile: bool = True
    ) -> tuple[Tensor, Tensor]:
        """``log_density`` and its gradient [p], from the compiled graph; NaN where the density does not exist. ``compile=False``
        evaluates the program itself."""
        graph = self.compiled(None if rows is None else len(rows), jacobian, compile=compile)
        with torch.no_grad():
            return graph(z.to(self._like), *self.tables(rows))

    side_by_side = Renamed("value_and_grad_batch")

    def value_and_grad_batch(self, z: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``value_and_grad`` at several points at once, z [k, p]: values [k] and gradients [k, p] from one graph."""
        graph = self.compiled(None if rows is None else len(rows), k=len(z))
        with torch.no_grad():
            return graph(z.to(self._like), *self.tables(rows))

    def hessian(self, z: Tensor, *, jacobian: bool = True) -> Tensor:
        """Second derivatives of ``log_density``, [p, p]."""
        z = z.detach().to(self._like).requires_grad_(True)
        value = self._density(z, (), jacobian)
        (gradient,) = torch.autograd.grad(value, z, create_graph=True)
        return jacobian_of(gradient, z)

    def curvature(self, z: Tensor, *, jacobian: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Value, gradient [p] and Hessian [p, p] together; from the model's own formula where it has one."""
        if not self.has_curvature:
            return (*self.value_and_grad(z, jacobian=jacobian), self.hessian(z, jacobian=jacobian))
        z = z.detach().to(self._like)
        with torch.no_grad():
            value, gradient, H = self.model.curvature(self._split(z), self.data)
        z.requires_grad_(True)
        first = self.tables(torch.zeros(1, dtype=torch.long))  # one row is enough to run the priors
        prior = (
            self._density(z, first, jacobian, likelihood=False) + 0.0 * z.sum()
        )  # flat priors do not depend on z
        (slope,) = torch.autograd.grad(prior, z, create_graph=True, materialize_grads=True)
        return value + prior.detach(), gradient + slope.detach(), H + jacobian_of(slope, z)

    @property
    def has_curvature(self) -> bool:
        """Whether the model knows its second derivatives, its sites all being on the real line."""
        if not supports(self.model, LikelihoodDerivatives):
            return False
        transforms = (
            getattr(s.transform, "base_transform", s.transform) for s in self.slices.values()
        )
        return all(getattr(t, "parts", None) == [] for t in transforms)

    def log_likelihood(self, z: Tensor) -> tuple[float, int]:
        """log p(y given theta) at z, and how many numbers were observed (masked ones are not)."""
        with (
            torch.no_grad(),
            quietly(),
            Run(self._split(z.to(self._like)), unconstrained=True, params=self.params) as run,
        ):
            self._call(())
        seen = run.observed()
        count = sum(int(numbers_seen(s).sum()) for s in seen.values())
        if self.enumerates:
            both = (
                self._density(z.to(self._like), (), False, likelihood)
                for likelihood in (True, False)
            )
            return float(next(both) - next(both)), count
        total = sum(
            float(scale_and_mask(site_log_prob(s), s["scale"], s["mask"]).sum())
            for s in seen.values()
        )
        return total, count

    def callback(
        self, jacobian: bool = True, after: float = 0
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """``value_and_grad`` on NumPy vectors in float64, with as little around the graph as possible. Unless there is a graph, the
        first ``after`` calls run the program itself, and it is compiled for those that follow."""
        return on_vectors(self, self._like, jacobian, after)

    @property
    def enumerates(self) -> bool:
        """Whether discrete latent sites of the program are summed out here."""
        return self._nesting is not None

    @property
    def eager(self) -> bool:
        """Whether the gradient runs Pyro's handlers, whose stack is global: one thread at a time."""
        return self._traced or not self.compile

    @property
    def parameters(self) -> int:
        """How many numbers can be chosen: p, but 1 for an angle, which is laid into a plane."""
        return sum(s.free for s in self.slices.values())

    @contextmanager
    def same_noise(self, seed: int) -> Iterator[None]:
        """Inside, a density with random numbers of its own has the same ones at every call."""
        before, self._noise_seed = self._noise_seed, seed if self.random is not None else None
        try:
            yield
        finally:
            self._noise_seed = before

    # -- compiling -----------------------------------------------------------------------------------------------

    def compiled(
        self,
        batch: int | None = None,
        jacobian: bool = True,
        k: int | None = None,
        compile: bool = True,
    ) -> Callable[..., tuple[Tensor, Tensor]]:
        """(z) -> value, gradient for the full data, or (z, X, y) for mini-batches of ``batch`` rows; with ``k``, z is [k, p].
        ``compile=False``: the program itself where there is no graph yet."""
        key = (batch, jacobian, k)
        if key not in self._graphs:
            check_memory(self.model, self.data, batch)
            if not compile and k is None:
                return self.eager_gradient(jacobian)
            with one_at_a_time():
                graph, reason = compiled(self, batch, jacobian, k)
            if reason is not None:
                self._say_eager(reason)
            # a user's program may have branches that tracing cannot see
            self._graphs[key] = (
                graph
                if self.eager or isinstance(self.data, Dataset)
                else Watched(graph, self.visited)
            )
        return self._graphs[key]

    def _say_eager(self, reason: str) -> None:
        if not self._traced:
            self._traced = True
            note = f"the program could not be compiled ({reason}); it runs eagerly, several times slower"
            self.notes.append(note)
            warnings.warn(note, NumericalWarning, stacklevel=4)

    def misled(self, z: Tensor | None) -> bool:
        """Whether a graph of a user's program differs from the program at z [n, p] or where it was run; says so, and leaves the
        graphs for the program itself, so that what was computed from them is to be computed again."""
        found = difference(self, self._graphs, z)
        if found is not None:
            self.compile = False
            self._graphs.clear()
            self.visited.clear()
            self.notes.append(found)
            warnings.warn(found, NumericalWarning, stacklevel=3)
        return found is not None

    def eager_gradient(self, jacobian: bool) -> Callable[..., tuple[Tensor, Tensor]]:
        def value_and_grad(z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                z = z.detach().requires_grad_(True)
                value = self._density(z, tables, jacobian)
                (gradient,) = torch.autograd.grad(value, z, materialize_grads=True)
            return value.detach(), gradient

        return value_and_grad

    # -- points --------------------------------------------------------------------------------------------------

    def origin(self) -> Tensor:
        """z = 0, but the starting value of sites whose prior or model names one, and of params."""
        if (
            self._at_origin is None
        ):  # Pyro's handler stack is global: samplers' threads must not run the program
            self._at_origin = self._origin()
        return self._at_origin.clone()

    def _origin(self) -> Tensor:
        z = torch.zeros_like(self._like[:1]).repeat(self.dim)
        with quietly(), seeded(0), Run({}) as run:
            self._call(enough_rows(self.model, self.data))
        for name, s in self.slices.items():
            base: Any = run.sites[name].get("fn")
            while hasattr(base, "base_dist"):
                base = base.base_dist
            if s.param or isinstance(base, FlatDistribution):
                z[s.start : s.stop] = s.transform.inv(self._first[name]).reshape(-1)
            elif s.circular:
                z[s.start : s.stop] = s.transform.inv(torch.zeros_like(self._first[name])).reshape(
                    -1
                )
        if isinstance(self.data, Dataset):
            z = placed(self.slices, z, self.model.start(self.data))
        return z

    def start(
        self, seed: int = 0, spread: float = 0.0, jacobian: bool = True, compile: bool = True
    ) -> Tensor:
        """A point z [p] of finite density: the origin moved by Uniform(-spread, spread), further and further if need be. ``once``:
        without compiling.

        Raises:
            NumericalError: if the density is finite at none of 100 places.
        """
        return finite_start(self, seed, spread, jacobian, compile)

    def placed(self, values: Mapping[str, Tensor]) -> Tensor:
        """The origin z [p], but at ``values`` {site: [*event]} where they are given and lie inside the support."""
        return placed(self.slices, self.origin(), values)

    def step_scales(self, z: Tensor) -> Tensor:
        """How far each coordinate [p] goes in a step of a search near z: 1 unless the model's ``step_scales`` says otherwise."""
        found = torch.ones_like(z)
        scales = self.model.step_scales(self.constrain(z)) if isinstance(self.data, Dataset) else {}
        for name, value in scales.items():
            if name in self.slices:
                s = self.slices[name]
                found[s.start : s.stop] = value.to(z).expand(s.event).reshape(-1)
        return found

    def names(self) -> list[str]:
        """The site of each coordinate of z, and its index there where it has several."""
        return names(self.slices)

    def constrain(self, z: Tensor) -> dict[str, Tensor]:
        """``{site: [..., *event]}`` on the natural scale from z [..., p]; deterministic sites of the program included."""
        z = z.to(self._like)
        if self._static and not self._has_deterministic:
            return {name: s.transform(s.of(z)) for name, s in self.slices.items()}
        flat = z.reshape(-1, self.dim)

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with Run(self._split(values["z"]), unconstrained=True, params=self.params) as run:
                self._call(())
            kept = {name: run.sites[name]["value"] for name in self.slices}
            wanted = (
                () if self.enumerates else run.samples()
            )  # what depends on a discrete site has no value here
            return kept | {name: s["value"] for name, s in wanted if is_deterministic(s)}

        with quietly(), torch.no_grad():
            values = over_draws(one, {"z": flat})
        return {name: v.reshape((*z.shape[:-1], *v.shape[1:])) for name, v in values.items()}

    def unconstrain(self, draws: Mapping[str, Tensor]) -> Tensor:
        """z [..., p] from ``{site: [..., *event]}``.

        Raises:
            NotApplicable: if a site is missing, or its support moves with another site.
        """
        missing = [name for name in self.slices if name not in draws]
        if missing:
            raise NotApplicable(
                f"a value for each of {list(self.slices)}", f"none for {missing}", "pass all sites"
            )
        if not self._static:
            raise NotApplicable(
                "sites of fixed support",
                "a support that depends on another site",
                "start from z instead",
            )
        return laid(self.slices, draws, self._like)
