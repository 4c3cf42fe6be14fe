"""The log density of a program at an unconstrained vector z, with its derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from ..numerics.process_locks import silenced
from ..numerics.seeding import seeded
from .capabilities import LikelihoodDerivatives, supports
from .conditioned import Conditioned, Tables
from .enumeration import summed_out
from .graph import ValueAndGradient, jacobian_of
from .handlers import (
    Run,
    is_deterministic,
    is_factor,
    numbers_seen,
    over_draws,
    quietly,
    site_log_prob,
)
from .observed_entries import entries_of_data
from .supports import Guard, Guarding, everything, guards
from .survey import Survey

POINTS = 16  # draws at which the supports of a user's program are compared with its first run


class Density:
    """log p(theta, y | X) at z [p], evaluated by Pyro's handlers.

    Args:
        program: the program and its data.
        survey: its sites.
    """

    def __init__(self, program: Conditioned, survey: Survey) -> None:
        self.program, self.survey = program, survey
        self.slices, self.like = survey.slices, survey.like
        self.noise_seed: int | None = None  # of the random numbers in the density, where it has any
        self.static = True  # whether each site has the same support at every z
        # the latent sites that a user's program may have
        self.known = None if program.data.is_table else survey.latents
        self.guards: dict[str, Guard] = {}  # sites that are checked to stay inside their sets

    def __call__(
        self, z: Tensor, tables: Tables = (), jacobian: bool = True, likelihood: bool = True
    ) -> Tensor:
        """Return the log density, a differentiable scalar.

        Args:
            z: the unconstrained sites, [p].
            tables: inputs and targets of some rows; () for all of them.
            jacobian: whether it is the density of z, or that of the sites on their natural scale.
            likelihood: whether the observed sites count.
        """
        noise = nullcontext() if self.noise_seed is None else seeded(self.noise_seed)
        guarding = Guarding(self.guards) if self.guards else nullcontext()
        with quietly(), noise, self._run(z) as run, guarding:
            if self.survey.nesting is None:
                self.program(tables)
                total = run.log_prob(likelihood)
            else:
                total = summed_out(lambda: self.program(tables), self.survey.nesting, likelihood)
            if self.known is not None:
                run.check_complete()
            total = total + (run.log_jacobian if jacobian else 0.0)
        return torch.as_tensor(total).reshape(())

    def _run(self, z: Tensor) -> Run:
        return Run(self.survey.split(z), True, self.survey.params, self.known)

    def differentiable_run(self) -> tuple[dict[str, Tensor], Run]:
        """Run the program at the values of the survey; return them, which need a gradient."""
        first = self.survey.first
        free = {name: s.transform.inv(first[name]) for name, s in self.slices.items()}
        values = {name: value.detach().requires_grad_() for name, value in free.items()}
        run = Run(values, True, self.survey.params)
        # float() of a value that needs a gradient warns
        with quietly(), silenced(), seeded(0), torch.enable_grad(), run:
            self.program()
        return values, run

    def guard(self, run: Run) -> None:
        """Find the sites whose value or parameters may leave their sets.

        Args:
            run: one run of the program.
        """
        try:
            _, again = self.differentiable_run()
        except (RuntimeError, ValueError, TypeError):  # the program takes no gradient
            self.guards = everything(dict(run.samples()))
        else:
            self.guards = guards(dict(again.samples()))

    def eager_gradient(self, jacobian: bool) -> ValueAndGradient:
        """Return the function (z, *tables) -> value, gradient [p] that runs the program itself."""

        def value_and_grad(z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                z = z.detach().requires_grad_(True)
                value = self(z, tables, jacobian)
                (gradient,) = torch.autograd.grad(value, z, materialize_grads=True)
            return value.detach(), gradient

        return value_and_grad

    def adversarial_gradient(self, jacobian: bool, reach: Tensor) -> ValueAndGradient:
        """Return (z, X, y) -> the sum of two densities and its gradient [p].

        They are those of the rows and of X - reach * sign(slope by X), where each row is as
        improbable as it becomes by a step of that length. Goodfellow, Shlens & Szegedy (2015).
        """

        def value_and_grad(z: Tensor, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                z, X = z.detach().requires_grad_(True), X.detach().requires_grad_(True)
                here = self(z, (X, y), jacobian)
                gradient, slope = torch.autograd.grad(here, (z, X), materialize_grads=True)
                there = self(z, (X.detach() - reach * slope.sign(), y), jacobian)
                (other,) = torch.autograd.grad(there, z, materialize_grads=True)
            return (here + there).detach(), gradient + other

        return value_and_grad

    def hessian(self, z: Tensor, jacobian: bool) -> Tensor:
        """Return the second derivatives at z, [p, p]."""
        z = z.detach().to(self.like).requires_grad_(True)
        value = self(z, (), jacobian)
        (gradient,) = torch.autograd.grad(value, z, create_graph=True)
        return jacobian_of(gradient, z)

    @property
    def has_curvature(self) -> bool:
        """Whether the model knows its second derivatives, its sites all being on the real line."""
        if not supports(self.program.model, LikelihoodDerivatives):
            return False
        transforms = (
            getattr(s.transform, "base_transform", s.transform) for s in self.slices.values()
        )
        return all(getattr(t, "parts", None) == [] for t in transforms)

    def curvature(self, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, gradient [p] and Hessian [p, p] from the formula of the model."""
        z = z.detach().to(self.like)
        with torch.no_grad():
            values = self.survey.split(z)
            value, gradient, H = self.program.model.curvature(values, self.program.data)
        z.requires_grad_(True)
        first = self.program.tables(torch.zeros(1, dtype=torch.long))  # one row runs the priors
        # flat priors do not depend on z
        prior = self(z, first, jacobian, likelihood=False) + 0.0 * z.sum()
        (slope,) = torch.autograd.grad(prior, z, create_graph=True, materialize_grads=True)
        return value + prior.detach(), gradient + slope.detach(), H + jacobian_of(slope, z)

    def log_likelihood(self, z: Tensor) -> tuple[float, int]:
        """Return log p(y given theta) at z, and how many numbers are observed and not masked.

        A row of scale w counts as w rows, in both.
        """
        z = z.to(self.like)
        with torch.no_grad(), quietly(), self._run(z) as run, Guarding(self.guards):
            self.program()
        observed = run.observed()
        data = self._entries_of_data(run)
        counts = {name: numbers_seen(s) * data.get(name, 1) for name, s in observed.items()}
        count = sum(_weighted(counts[name], s["scale"]) for name, s in observed.items())
        if self.survey.nesting is not None:
            joint, prior = (float(self(z, (), False, likelihood)) for likelihood in (True, False))
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
        if self.program.data.is_table:
            return {}
        values = {name: run.sites[name]["value"] for name in self.slices}
        with quietly():
            entries = entries_of_data(self.program, {**self.survey.params, **values})
        return {name: here for name, here in entries.items() if not bool(here.all())}

    def factors(self, z: Tensor) -> list[str]:
        """Return the names of ``pyro.factor`` sites, which are not in ``log_likelihood``."""
        with torch.no_grad(), quietly(), self._run(z.to(self.like)) as run:
            self.program()
        return [name for name, s in run.samples() if is_factor(s)]

    def constrain(self, z: Tensor) -> dict[str, Tensor]:
        """Return ``{site: [..., *event]}`` from z [..., p], deterministic sites included."""
        z = z.to(self.like)
        flat = z.reshape(-1, self.survey.dim)
        if self.static and not self.survey.deterministic:
            self.static = self.known is None or self.supports_stay(_ends(flat))
        if self.static and not self.survey.deterministic:
            return {name: s.transform(s.of(z)) for name, s in self.slices.items()}

        def one(values: dict[str, Tensor]) -> dict[str, Tensor]:
            with self._run(values["z"]) as run:
                self.program()
            kept = {name: run.sites[name]["value"] for name in self.slices}
            if self.survey.nesting is not None:  # what depends on a discrete site has no value here
                return kept
            return kept | {name: s["value"] for name, s in run.samples() if is_deterministic(s)}

        with quietly(), torch.no_grad():
            values = over_draws(one, {"z": flat})
        return {name: v.reshape((*z.shape[:-1], *v.shape[1:])) for name, v in values.items()}

    def supports_stay(self, points: Tensor) -> bool:
        """Return whether each site has the same support at points z [k, p] as in the first run.

        Raises:
            NotApplicable: if a user's program has other latent sites there.
        """
        return all(self._supports_stay_at(z) for z in points)

    def _supports_stay_at(self, z: Tensor) -> bool:
        with quietly(), torch.no_grad(), seeded(0), self._run(z) as run:
            try:
                self.program(self.program.survey_tables())
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

    @contextmanager
    def same_noise(self, seed: int, random: bool) -> Iterator[None]:
        """Context manager: random numbers inside the density repeat at every call."""
        before, self.noise_seed = self.noise_seed, seed if random else None
        try:
            yield
        finally:
            self.noise_seed = before


def _weighted(counts: Tensor, scale: float | Tensor) -> int:
    """Return the sum of the counts; a row of scale w counts w times."""
    if isinstance(scale, int | float) and scale == 1:
        return int(counts.sum())
    return round(float((counts * torch.as_tensor(scale)).sum()))


def _ends(z: Tensor) -> Tensor:
    """Return some rows of z [n, p], those at the ends of its coordinates first."""
    if len(z) <= POINTS or not z.shape[1]:
        return z[:POINTS]
    ends = torch.stack([z.argmax(0), z.argmin(0)], 1).flatten()
    return z[ends[:POINTS]]
