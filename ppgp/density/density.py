"""The log density of a program on its data at an unconstrained vector z, with its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from operator import add
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.distributions import (
    Cauchy,
    Laplace,
    LogNormal,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    StudentT,
)

from ..capabilities import LikelihoodDerivatives, supports
from ..data.argument_mistakes import of_dtypes
from ..data.training_data import Rows, Tables
from ..errors import DataError
from ..runtime.process_locks import silenced
from ..runtime.seeding import seeded
from .enumeration import summed_out
from .graph.tracing import ValueAndGradient, jacobian_of
from .handlers import (
    Run,
    entries_of_data,
    is_deterministic,
    is_factor,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from .layout import Slice, placed
from .supports import AROUND, Guard, Guarding, everything, guards
from .survey import Survey, arguments, few_rows

LEVELS = 3  # of a hierarchy whose locations are found before a search starts
#: distributions whose ``loc`` is where their unconstrained values are centred
WITH_LOCATION = (
    Normal,
    LogNormal,
    StudentT,
    Laplace,
    Cauchy,
    MultivariateNormal,
    LowRankMultivariateNormal,
)
POINTS = 16  # draws at which the supports of a user's program are compared with its first run


class Density:
    """log p(theta, y | X) at z [p], evaluated by Pyro's handlers.

    Args:
        model: A model of ``ppgp.models``, or a Program.
        data: The Dataset, on the scale that the model sees, or the arguments of a program.
        program: The Pyro program of the model.
        survey: The sites of the program.

    Attributes:
        dim: The number p of unconstrained numbers.
        team: The processes that share the rows; densities and gradients are means over them.
        slices: ``{site: Slice}``, the place of each site in z.
        params: The values of the params that are held.
        random: What is random in the density besides the sites (a subsampled plate); None where it
            is the same at every call.
        noise_seed: Of the random numbers in the density, where they repeat at every call.
        static: Whether each site has the same support at every z.
        known: The latent sites that a user's program may have; None for any.
        guards: The sites that are checked to stay inside their sets.
    """

    def __init__(self, model: Any, data: Any, program: Callable[..., Any], survey: Survey) -> None:
        self.model, self.data, self.program, self.survey = model, data, program, survey
        self.dim, self.slices, self.params = survey.dim, survey.slices, survey.params
        self.random: str | None = None
        self.noise_seed: int | None = None
        self.static = True
        self.known = None if data.is_table else survey.latents
        self.guards: dict[str, Guard] = {}
        self.team = data.team if data.workers.alone else data.workers
        self._all_rows = arguments(model, data)
        # numbers of rows that fit into memory: the survey has run the program on some
        self._fit: set[int | None] = {None} if few_rows(model, data) else {None, data.n}
        self._origin: Tensor | None = None

    def run_program(self, tables: Tables = ()) -> None:
        """Run the program under whatever handlers are active.

        Args:
            tables: Inputs and targets of some rows; () for all of them.
        """
        args, kwargs = arguments(self.model, self.data, tables) if tables else self._all_rows
        self.program(*args, **kwargs)

    def tables(self, rows: Rows | None) -> Tables:
        """Return the inputs and targets of some rows; () for all of them.

        Raises:
            NotApplicable: If rows are asked of a program with arguments of its own.
        """
        return () if rows is None else self.model.batch(self.data, rows)

    def check_memory(self, rows: int | None = None) -> None:
        """Raise NotEnoughMemory if the density of so many rows, with its gradient, does not fit."""
        if rows is None:
            rows = self.data.n
        if rows not in self._fit:  # None: nothing tells the rows of a program
            self.model.check_memory(rows, self.data.d, self.data.X)
            self._fit.add(rows)

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
        with quietly(), noise, self._run(z) as run, guarding:
            if self.survey.nesting is None:
                self.run_program(tables)
                total = run.log_prob(likelihood)
            else:
                nesting = self.survey.nesting
                total = summed_out(lambda: self.run_program(tables), nesting, likelihood)
                total = total.to(z)
            if self.known is not None:
                run.check_complete()
            total = total + (run.log_jacobian if jacobian else 0.0)
        total = torch.as_tensor(total)
        if total.is_complex():
            do = "pass real and imaginary parts as two arguments"
            raise DataError("a log density that is a real number", "a complex one", do)
        return total.to(z).reshape(())  # the data may have another dtype than the sites

    def _run(self, z: Tensor) -> Run:
        values = {name: s.of(z) for name, s in self.slices.items()}
        return Run(values, True, self.params, self.known)

    def differentiable_run(self) -> tuple[dict[str, Tensor], Run]:
        """Run the program at the values of the survey; return them, which need a gradient."""
        first = self.survey.first
        free = {name: s.transform.inv(first[name]) for name, s in self.slices.items()}
        values = {name: value.detach().requires_grad_() for name, value in free.items()}
        run = Run(values, True, self.params)
        # float() of a value that needs a gradient warns
        with quietly(), silenced(), seeded(0), torch.enable_grad(), run:
            self.run_program()
        return values, run

    def needs_own_dtypes(self) -> bool:
        """Return whether the program fails where sites have the dtype of z, which is wider."""
        first = self.survey.first
        if all(value.dtype == self.survey.like.dtype for value in first.values()):
            return False
        values = {name: value.to(self.survey.like) for name, value in first.items()}
        with quietly(), seeded(0), torch.no_grad():
            try:
                with Run(values, params=self.params) as run:
                    self.run_program()
                if self.survey.nesting is None:
                    run.log_prob()
            except (RuntimeError, ValueError) as error:
                return of_dtypes(error) or isinstance(error, DataError)
        return False

    def guard(self, run: Run) -> None:
        """Find the sites whose value or parameters may leave their sets.

        Args:
            run: One run of the program.
        """
        try:
            _, again = self.differentiable_run()
        except (RuntimeError, ValueError, TypeError):  # the program takes no gradient
            self.guards = everything(dict(run.samples()))
        else:
            self.guards = guards(dict(again.samples()))

    def eager_gradient(self, jacobian: bool) -> ValueAndGradient:
        """Return the function (z, *tables) -> value, gradient [p] that runs the program itself."""

        def of_program(z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                z = z.detach().requires_grad_(True)
                value = self.joint(z, tables, jacobian)
                (gradient,) = torch.autograd.grad(value, z, materialize_grads=True)
            return value.detach(), gradient

        return of_program

    def adversarial_gradient(self, jacobian: bool, reach: Tensor) -> ValueAndGradient:
        """Return (z, X, y) -> the sum of two densities and its gradient [p].

        They are those of the rows and of X - reach * sign(slope by X), where each row is as
        improbable as it becomes by a step of that length. Goodfellow, Shlens & Szegedy (2015).
        """

        def of_both(z: Tensor, X: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                z, X = z.detach().requires_grad_(True), X.detach().requires_grad_(True)
                here = self.joint(z, (X, *others), jacobian)
                gradient, slope = torch.autograd.grad(here, (z, X), materialize_grads=True)
                there = self.joint(z, (X.detach() - reach * slope.sign(), *others), jacobian)
                (other,) = torch.autograd.grad(there, z, materialize_grads=True)
            return (here + there).detach(), gradient + other

        return of_both

    def hessian(self, z: Tensor, *, jacobian: bool = True) -> Tensor:
        """Return the second derivatives of the log density at z, [p, p]."""
        z = z.detach().to(self.survey.like).requires_grad_(True)
        value = self.joint(z, (), jacobian)
        (gradient,) = torch.autograd.grad(value, z, create_graph=True)
        if self.team.alone or not self.model.sums_over_team:
            try:
                own = jacobian_of(gradient, z)
            except (RuntimeError, NotImplementedError):
                if self.data.is_table:
                    raise
                own = self._differences(z.detach(), jacobian)
            (mean,) = self.team.means(own)
            return mean
        summed = self.team.differentiable_sum(gradient) / self.team.size
        own = [torch.autograd.grad(slope, z, retain_graph=True)[0] for slope in summed]
        (mean,) = self.team.means(torch.stack(own))
        return mean

    def _differences(self, z: Tensor, jacobian: bool) -> Tensor:
        """Return second derivatives [p, p] from central differences of the gradient.

        They serve programs with a function of which autograd has first derivatives alone.
        """
        gradient = self.eager_gradient(jacobian)
        step = torch.finfo(z.dtype).eps ** (1 / 3) * (1 + z.abs())
        rows = []
        for move in torch.diag(step):
            above, below = z + move, z - move
            change = gradient(above)[1] - gradient(below)[1]
            rows.append(change / (above - below).sum())
        H = torch.stack(rows)
        return 0.5 * (H + H.mT)

    @property
    def has_curvature(self) -> bool:
        """Whether the model knows its second derivatives."""
        return supports(self.model, LikelihoodDerivatives)

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

    def log_likelihood(self, z: Tensor) -> tuple[float, int]:
        """Return log p(y given theta) at z, and how many numbers are observed and not masked.

        A row of scale w counts as w rows, in both.
        """
        z = z.to(self.survey.like)
        total, count = 0.0, 0.0
        for _, rows, share in self.data.portions():
            value, seen = self._log_likelihood_of(z, self.tables(rows))
            total, count = total + share * value, count + share * seen
        if self.model.sums_over_team:
            count *= self.data.team.size  # of rows of this rank, beside the density of all
        return self.team.mean(total), round(self.team.mean(count))

    def _log_likelihood_of(self, z: Tensor, tables: Tables) -> tuple[float, int]:
        """Return ``log_likelihood`` as some of the rows estimate it; () for all of them."""
        with torch.no_grad(), quietly(), self._run(z) as run, Guarding(self.guards):
            self.run_program(tables)
        observed = run.observed()
        data = self._entries_of_data(run)
        counts = {name: numbers_seen(s) * data.get(name, 1) for name, s in observed.items()}
        count = sum(_weighted(counts[name], s["scale"]) for name, s in observed.items())
        if self.survey.nesting is not None:
            joint, prior = (float(self.joint(z, tables, False, of_y)) for of_y in (True, False))
            return joint - prior, count
        total = 0.0
        for name, s in observed.items():
            each = scale_and_mask(site_log_prob(s), s["scale"], s["mask"])
            if name in data:
                each = torch.where(data[name], each, torch.zeros_like(each))
            total += float(each.sum())
        return total, count

    def _entries_of_data(self, run: Run) -> dict[str, Tensor]:
        """Return which entries are data, for sites of a user's program where not all are."""
        if self.data.is_table:
            return {}
        values = {name: run.sites[name]["value"] for name in self.slices}
        with quietly():
            entries = entries_of_data(self.run_program, {**self.params, **values})
        return {name: here for name, here in entries.items() if not bool(here.all())}

    def factors(self, z: Tensor) -> list[str]:
        """Return the names of a program's ``pyro.factor`` sites, not in ``log_likelihood``."""
        with torch.no_grad(), quietly(), self._run(z.to(self.survey.like)) as run:
            self.run_program()
        return [name for name, s in run.samples() if is_factor(s)]

    def constrain(self, z: Tensor) -> dict[str, Tensor]:
        """Return ``{site: [..., *event]}`` from z [..., p], deterministic sites included.

        Each site has the dtype of its prior, which may be narrower than that of z.
        """
        values = self._constrained(z)
        first = self.survey.first
        return {name: v.to(first[name].dtype) if name in first else v for name, v in values.items()}

    def _constrained(self, z: Tensor) -> dict[str, Tensor]:
        z = z.to(self.survey.like)
        flat = z.reshape(-1, self.dim)
        if self.static and not self.survey.deterministic:
            self.static = self.known is None or self.supports_stay(_ends(flat))
        if self.static and not self.survey.deterministic:
            return self.sites(z)

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with self._run(values["z"]) as run:
                self.run_program()
            kept = {name: run.sites[name]["value"] for name in self.slices}
            if self.survey.nesting is not None:  # what depends on a discrete site has no value here
                return kept
            return kept | {name: s["value"] for name, s in run.samples() if is_deterministic(s)}

        with quietly(), torch.no_grad():
            values = over_draws(one, {"z": flat})
        return {name: v.reshape((*z.shape[:-1], *v.shape[1:])) for name, v in values.items()}

    def sites(self, z: Tensor) -> dict[str, Tensor]:
        """Return ``{site: [..., *event]}`` from z [..., p], on the supports of the first run."""
        z = z.to(self.survey.like)
        return {name: s.transform(s.of(z)) for name, s in self.slices.items()}

    def supports_stay(self, points: Tensor) -> bool:
        """Return whether each site has the same support at points z [k, p] as in the first run.

        Raises:
            NotApplicable: If a user's program has other latent sites there.
        """
        return all(self._supports_stay_at(z) for z in points)

    def _supports_stay_at(self, z: Tensor) -> bool:
        with quietly(), torch.no_grad(), seeded(0), self._run(z) as run:
            try:
                self.run_program(few_rows(self.model, self.data))
            except (RuntimeError, ValueError, ArithmeticError):  # a failed factorisation, perhaps
                return True
            run.check_complete()
        for name, s in self.slices.items():
            here, first = run.sites[name]["value"], s.transform(s.of(z))
            if here.shape != first.shape:
                return False
            finite = torch.isfinite(here) & torch.isfinite(first)
            if not torch.equal(here[finite], first[finite]):
                return False
        return True

    def origin(self) -> Tensor:
        """Return z [p] = 0, but the starting value of sites whose prior or model names one.

        In a user's program, sites whose prior has a location start there.
        """
        if self._origin is None:
            z = self.survey.like.new_zeros(self.dim)
            for name, s in self.slices.items():
                first = self.survey.first[name]
                if s.param or name in self.survey.flat:
                    z[s.start : s.stop] = s.transform.inv(first).reshape(-1)
                elif s.circular:
                    z[s.start : s.stop] = s.transform.inv(torch.zeros_like(first)).reshape(-1)
            if not self.data.is_table:
                z = self._at_locations(z)
            self._origin = placed(self.slices, z, self.model.start(self.data.shared))
        return self._origin.clone()

    def _at_locations(self, z: Tensor) -> Tensor:
        """Return z [p] with real and log-normal sites at the locations of their priors.

        Components of a mixture that have priors apart then start apart. The location of a site may
        be another site, so that each run of the program brings one more level of a hierarchy to
        its place.
        """
        for _ in range(LEVELS):
            try:
                with quietly(), torch.no_grad(), seeded(0), self._run(z) as run:
                    self.run_program()
            except (RuntimeError, ValueError, ArithmeticError):  # a failed factorisation, perhaps
                return z
            moved = z.clone()
            for name, s in self.slices.items():
                place = None if s.param else _location(run.sites[name]["fn"])
                if place is not None and place.isfinite().all():
                    moved[s.start : s.stop] = place.expand(s.event).reshape(-1).to(z)
            if torch.equal(moved, z):
                break
            z = moved
        return z

    @contextmanager
    def same_noise(self, seed: int) -> Iterator[None]:
        """Context manager: random numbers inside the density repeat at every call."""
        before, self.noise_seed = self.noise_seed, None if self.random is None else seed
        try:
            yield
        finally:
            self.noise_seed = before


def _location(law: Any) -> Tensor | None:
    """Return where the unconstrained value of a prior is centred; None for other priors."""
    while isinstance(law, AROUND):
        law = law.base_dist
    return law.loc if isinstance(law, WITH_LOCATION) else None


def _summed(parts: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the sums of values, gradients and Hessians of portions of the rows."""
    return tuple(reduce(add, each) for each in zip(*parts, strict=True))


def _weighted(counts: Tensor, scale: float | Tensor) -> int:
    """Return the sum of the counts; a row of scale w counts w times."""
    if isinstance(scale, int | float) and scale == 1:
        return int(counts.sum())
    return round(float((counts * torch.as_tensor(scale)).sum()))


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
