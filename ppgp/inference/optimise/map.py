"""Maximum a posteriori estimation: the MAP record, and the search behind each optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...capabilities import Capability, LikelihoodOfFunctions, NetworkWeights, WarmStart, require
from ...density.target import Target
from ...display.overrides import OF_THE_RUN
from ...errors import NotApplicable, SettingError, an, counted
from ...posterior.posterior import Posterior
from ...priors import Param
from ...runtime.seeding import standard_normal
from ..base import Inference, at_the_mode, check_batch, finish, starting_point
from ..checkpoint import Checkpoint
from ..jobs import Workers, in_parallel
from ..options import Count, OneOf, Positive, Share
from .batched_search import by_entry_abreast, can_go_abreast
from .first_order import OF_TORCH, by_entry, gd, sgd
from .gauss_newton import gauss_newton
from .held_out_rows import EVALUATIONS, EarlyStopping
from .irls import irls
from .kfac import kfac
from .schedules import SCHEDULES
from .scipy_search import lbfgs, trust_region_newton
from .search import Few, Record, SearchOptions, SearchResult, with_edges, with_unbounded
from .search_starts import (
    NEAR,
    OF_STARTS,
    Plan,
    best_of,
    gone_elsewhere,
    plan_of_starts,
    scattered,
)

Search = Callable[..., SearchResult]


@dataclass(frozen=True)
class _Optimizer:
    """One optimizer of MAP.

    Attributes:
        search: ``search(options, target, z0, seed)``, which also takes ``early_stopping`` if the
            optimizer is stoppable.
        default_rate: The learning rate where the user gives none; None: it has no learning rate.
        stochastic: Whether it takes mini-batches, drops units of networks out, and lets the model
            select its inducing inputs again.
        stoppable: Whether rows can be held out of its search.
        compiles_late: Whether it compiles the density only after many evaluations, not at the
            start.
        search_with_curvature: Its search where the model knows its own curvature; None: ``search``.
        needs: What the model must be able to do.
    """

    search: Search
    default_rate: float | None = None
    stochastic: bool = False
    stoppable: bool = False
    compiles_late: bool = False
    search_with_curvature: Search | None = None
    needs: tuple[type[Capability], ...] = ()


#: ``{name: record}``; ``MAP.optimizer`` is one of the names.
OPTIMIZERS = {
    "lbfgs": _Optimizer(lbfgs, stoppable=True, compiles_late=True),
    "newton": _Optimizer(trust_region_newton, compiles_late=True, search_with_curvature=irls),
    "gauss_newton": _Optimizer(gauss_newton, compiles_late=True, needs=(LikelihoodOfFunctions,)),
    "gd": _Optimizer(gd, default_rate=1.0),
    "sgd": _Optimizer(sgd, default_rate=0.1, stochastic=True, stoppable=True),
    "adam": _Optimizer(by_entry, default_rate=0.05, stochastic=True, stoppable=True),
    "adagrad": _Optimizer(by_entry, default_rate=0.5, stochastic=True, stoppable=True),
    "kfac": _Optimizer(
        kfac,
        default_rate=0.01,
        stochastic=True,
        stoppable=True,
        needs=(NetworkWeights, LikelihoodOfFunctions),
    ),
}
STOPPABLE = tuple(name for name, optimizer in OPTIMIZERS.items() if optimizer.stoppable)
STOCHASTIC = tuple(name for name, optimizer in OPTIMIZERS.items() if optimizer.stochastic)


SUBSET_STEPS = 30


@dataclass(frozen=True)
class MAP(Inference):
    """The mode of the posterior density on the natural scale of the sites: one draw.

    With ``Flat`` priors this is maximum likelihood. The density is that of the sites themselves
    (no log-Jacobian), as in Pyro's AutoDelta and Stan's optimiser.

    A model with a subset model (fewer rows of the same data) is started at the mode of the subset
    model, which L-BFGS finds. Networks drop units out in the steps of sgd, Adam, AdaGrad and
    K-FAC; the other optimizers need the same density at every call.

    Stats: ``log_density`` at the mode; ``log_likelihood``, ``observations`` and ``parameters``
    (what BIC and AIC are made of); ``gradient`` (largest entry, unconstrained scale); ``steps``;
    ``losses``; and ``interrupted`` (by Ctrl-C).
    With several starts also ``ends`` [start, p] (unconstrained scale), ``end_log_densities``
    [start], ``losses_of_starts``, and ``starts_elsewhere``, a sentence on those that ended below
    the best, if any did; these are the subset model's if the starts are its own.
    ``at_kink`` is True where the mode is at a kink of the density, as that of absolute errors.
    With ``hold_out`` also ``held_out_nlpd`` per evaluation and ``held_out_step``, the best step;
    ``log_density`` and the stats of the search are then those of the rows that are not held out.
    ``joint_mode`` if f was searched together with its hyperparameters (an SVGP), a poor fit.

    Args:
        optimizer: "lbfgs" (SciPy's L-BFGS-B); "newton" (iteratively reweighted least squares where
            the model knows its curvature, as logistic and softmax regression and GLM do, and
            SciPy's trust-region Newton method on the exact Hessian elsewhere); "gauss_newton"
            (Levenberg-Marquardt steps on the generalised Gauss-Newton matrix, for networks with a
            likelihood and linear models; Schraudolph 2002; Madsen, Nielsen & Tingleff 2004); "gd"
            (gradient descent, its step size found by backtracking, Armijo 1966, unless
            ``learning_rate`` fixes it); "sgd" (stochastic gradient descent, Robbins & Monro 1951);
            "adam" (Kingma & Ba 2015); "adagrad" (Duchi, Hazan & Singer 2011: each entry of the
            gradient divided by the root of the sum of its squares so far); or "kfac" (for networks
            with a likelihood: steps of Linear and Conv2d layers by the inverse of a Kronecker
            product per layer, Martens & Grosse 2015, and Adam for other sites; Notes tell when it
            pays).
        steps: The largest number of iterations.
        starts: The number of searches. The first begins at the medians of the priors (or
            ``init``), the others at draws from the prior (within a factor of e^2 of the usual place
            where the prior is improper). The highest end is the answer, and a warning reports
            searches that ended apart. None: 1 with ``init`` or ``hold_out``, and for the linear
            models, whose density has one mode; otherwise 8 if a prior is improper (``Flat``), the
            log of a site has a prior sd above 3 or discrete sites are summed out, reduced to 5 if
            the first 5 end alike; otherwise short searches from 3 to 8 places, the best of
            which goes on to its end, where a density has several modes by its making (the period
            of a kernel, which also starts at the peaks of the periodogram; a Student-t likelihood;
            a network of up to 200 rows; a frequency in a program) or where one search has not
            converged, or explains next to nothing of what a program observes; otherwise 1.
        learning_rate: The rate of gd and sgd (on the density per row), of Adam, of AdaGrad and of
            K-FAC. One number, or ``{site: rate}``, with "kernel.network" for all sites under it
            and "" for the rest. None: 0.1 for sgd, 0.05 for Adam, 0.5 for AdaGrad, 0.01 for K-FAC.
            One number for K-FAC is that of its layers, and other sites have 0.05.
        schedule: How the rate falls over the steps: "constant", "cosine" (to 1 % of itself) or
            "inverse" (as 1 / t). None: "inverse" for sgd, "constant" otherwise.
        batch_size: Rows per step of sgd (None: 32), Adam, AdaGrad and K-FAC (None: all).
        hold_out: The share of the rows, such as 0.1, that lbfgs, sgd, Adam, AdaGrad and K-FAC do
            not use. The search ends when the predictive density of these rows has stopped rising,
            and returns the point where it was highest. The posterior is then conditional on all
            rows. Meant for deep kernels.
        adversarial: Adversarial training by sgd, Adam, AdaGrad and K-FAC: the length of a step in
            each column of X, as a share of its range, such as 0.01. The log density of the rows
            that are moved so far against the sign of its slope by X is added to that of the rows,
            so that the distribution of y is smooth around them. Goodfellow, Shlens & Szegedy
            (2015). The rows have to be independent given the sites.
        workers: How many processes make the searches, each on one thread; None: those of an active
            ``joblib.parallel_config``, or else 1. The result is the same for any number, and does
            not record it. With ``hold_out`` or a checkpoint the searches follow one another.

    Raises:
        SettingError: If ``hold_out``, ``batch_size`` or ``adversarial`` does not apply to the
            optimizer, or for an option outside its range.
        UnknownName: If there is no such optimizer or schedule; on use, for a rate of a site that
            the model does not have.
        NotApplicable: On use, for "gauss_newton" or "kfac" of a model that does not serve them.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Notes:
        K-FAC pays where the density at the mode is what counts, as for ``Laplace``. In 8 seconds of
        CPU per run with mini-batches of 128 and a cosine schedule, each at its best rate among
        0.003, 0.01 and 0.03 (``tests/bench/test_kfac_of_networks.py``; log density per row at the
        end, negative log predictive density of test rows, and CPU seconds of Adam and of K-FAC to
        the lowest training loss of Adam):

        ====================  =============  =============  =============  =============  =========
        network, data         density, Adam  density, KFAC  test, Adam     test, KFAC     seconds
        ====================  =============  =============  =============  =============  =========
        MLP 64-64-32, kin8nm  -0.495         -0.128         0.760          2.458          7.8, 4.6
        MLP 50, energy        1.358          1.730          -1.930         -1.370         6.0, 0.7
        CNN 8-16, digits      -1.264         -1.255         0.039          0.029          7.5, 3.1
        ====================  =============  =============  =============  =============  =========

        A higher density is no better prediction: both regressions overfit, K-FAC more so in the
        same time. Pass ``hold_out``, or stay with Adam, where predictions by the mode count.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[0.0], [1.0], [0.0], [1.0]], [1.0, 3.0, 2.0, 6.0])
        >>> model = models.LinearRegression(priors.Flat(), priors.Flat(), priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)  # maximum likelihood
        >>> posterior.draws["weight"].shape  # [chain, draw, d]
        torch.Size([1, 1, 1])
        >>> mode = posterior.draws_in("data")
        >>> {name: round(float(value), 3) for name, value in mode.items()}
        {'weight': 3.0, 'bias': 1.5, 'noise': 1.25}
        >>> round(posterior.aic - 2 * posterior.stats["parameters"], 3)  # -2 log likelihood
        12.244
    """

    optimizer: Annotated[str, OneOf(tuple(OPTIMIZERS))] = "lbfgs"
    steps: Count = 1000
    starts: Count | None = None
    learning_rate: Positive | Mapping[str, Positive] | None = None
    schedule: Annotated[str, OneOf(SCHEDULES)] | None = None
    batch_size: Count | None = None
    hold_out: Share | None = None
    adversarial: Share | None = None
    workers: Workers = field(
        default=None, repr=False, compare=False, kw_only=True, metadata=OF_THE_RUN
    )
    optimises_params = True
    seeks_mode = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_out is not None and not OPTIMIZERS[self.optimizer].stoppable:
            raise SettingError(
                f"hold_out with {', '.join(STOPPABLE)}",
                f"hold_out={self.hold_out!r} with {self.optimizer}",
                "change one, or leave hold_out out",
            )
        for name in ("batch_size", "adversarial"):
            if getattr(self, name) is not None and not OPTIMIZERS[self.optimizer].stochastic:
                raise SettingError(
                    f"the whole data with {self.optimizer}",
                    f"{name}={getattr(self, name)}",
                    f"use optimizer={' or '.join(map(repr, STOCHASTIC))}",
                )

    def serves_team(self, model: Any) -> bool:
        return self.optimizer not in ("gauss_newton", "kfac") and self.hold_out is None

    @property
    def reselects_inducing(self) -> bool:
        """Whether a model may select its inducing inputs again during the search."""
        return OPTIMIZERS[self.optimizer].stochastic

    def quick(self) -> MAP:
        return replace(self, steps=20, starts=min(self.starts or 1, 2))

    def rates(self, target: Target) -> dict[str, float]:
        """Return the learning rate of each site.

        Raises:
            UnknownName: If a rate is given for a site that the model does not have.
            SettingError: If a site has no rate.
        """
        return self._options(False).rates(target)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """Search; ``checkpoint`` keeps evaluations, or the state of a stochastic optimizer."""
        started = time.perf_counter()
        if checkpoint is None:
            return self._fit(target, seed, progress, init, Record(), started)
        with Checkpoint(checkpoint, self, target, seed) as kept:
            record = Record(kept)
            try:
                return kept.with_notes(self._fit(target, seed, progress, init, record, started))
            except KeyboardInterrupt:  # on the way to the start
                record.save()
                raise

    def _fit(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Posterior | Tensor | None,
        record: Record,
        started: float,
    ) -> Posterior:
        searched, early_stopping = target, None
        if self.hold_out is not None:
            every = 1
            if OPTIMIZERS[self.optimizer].stochastic:
                every = max(1, self.steps // EVALUATIONS)
            early_stopping = EarlyStopping(self, every, self.hold_out, target, seed)
            searched = early_stopping.target
        if self.batch_size is not None:
            check_batch(self, searched, self.batch_size)
        options = replace(self._options(progress, searched), record=record)
        result = self._search(options, searched, seed, init, early_stopping)
        if record.active:
            record.save()
            result = replace(result, notes=[*result.notes, *record.notes()])
        if early_stopping is not None:
            z, held_out_stats = early_stopping.best_point(result.z)
            result = replace(result, z=z, stats={**result.stats, **held_out_stats})
        return self._posterior(target, result, started)

    def _posterior(self, target: Target, result: SearchResult, started: float) -> Posterior:
        # rows are held out, or units of networks drop out in the steps
        guarded = self.hold_out is not None or OPTIMIZERS[self.optimizer].stochastic
        notes = list(with_edges(target, result) if result.notes else [])
        if not target.data.is_table:
            notes = with_unbounded(target, result.z, notes)
        if not guarded and any(s.param for s in target.slices.values()):
            notes += _overfitting_notes(self.optimizer, target)
        z, stats = result.z, {**result.stats, **at_the_mode(target, result.z, notes)}
        if target.model.latent_values and found_jointly(target):
            stats["joint_mode"] = True
            notes.append(JOINT_MODE)
        return finish(
            self, target, z[None, None], started, stats, notes, interrupted=result.interrupted
        )

    def goes_abreast(self, target: Target) -> bool:
        """Return whether ``abreast`` finds what the searches find one after another."""
        one = self.hold_out is None and self.starts in (None, 1)
        return self.optimizer in OF_TORCH and one and can_go_abreast(target)

    def abreast(
        self, target: Target, starts: Tensor, seeds: Sequence[int], progress: bool = False
    ) -> list[Posterior]:
        """Search from several points z [k, p] at once, each with the seed of its mini-batches.

        The results are those of one search after another, up to rounding.
        """
        started = time.perf_counter()
        check_batch(self, target, self.batch_size)
        options = self._options(progress, target)
        results = by_entry_abreast(options, target, starts, seeds)
        each = [self._posterior(target, result, started) for result in results]
        share = (time.perf_counter() - started) / len(each)
        return [replace(posterior, seconds=share) for posterior in each]

    def mode(self, target: Target, seed: int) -> SearchResult:
        """Return the end of the search alone, for a method that starts there."""
        options = self._options(False, target)
        return self._search(options, target, seed, None, None)

    def _options(self, progress: bool, target: Target | None = None) -> SearchOptions:
        """Return the numbers that a search needs; some depend on the target."""
        reach = None
        if target is not None and self.adversarial is not None:
            reach = reach_of(target, self.adversarial)
        return SearchOptions(
            optimizer=self.optimizer,
            steps=self.steps,
            learning_rate=self.learning_rate,
            default_rate=OPTIMIZERS[self.optimizer].default_rate,
            schedule=self.schedule,
            batch_size=self.batch_size,
            reach=reach,
            progress=progress,
        )

    def _search(
        self,
        options: SearchOptions,
        target: Target,
        seed: int,
        init: Posterior | Tensor | None,
        early_stopping: EarlyStopping | None,
    ) -> SearchResult:
        """Search from one or several starts, after the subset model where there is one."""
        own = OPTIMIZERS[self.optimizer]
        for capability in own.needs:
            require(target.model, capability)
        by_curvature = own.search_with_curvature
        if not target.has_curvature or (by_curvature is not None and target.survey.kinked):
            by_curvature = None  # Newton's steps end far from a kink
        reweighted = by_curvature is not None
        search = by_curvature or own.search
        if early_stopping is not None:
            search = partial(search, early_stopping=early_stopping)
        plan = Plan(1)
        if early_stopping is None or self.starts is not None:
            plan = plan_of_starts(target, self.starts, init)
        if plan.short and own.stochastic:  # a few steps from each start say nothing yet
            plan = Plan(1)
        workers = self.workers
        if early_stopping is not None or options.record.active or not target.team.alone:
            workers = 1  # these follow all searches, one after another
        from_subset = isinstance(target.model, WarmStart) and init is None
        if from_subset and self.starts in (None, 1) and not reweighted:
            several = partial(best_of, plan=plan, seed=seed, workers=workers)
            result = _after_a_subset(search, options, target, seed, plan, several)
            if result is not None:
                return result
        z0 = starting_point(
            target,
            init,
            seed,
            jacobian=False,
            check=not reweighted,
            compile=reweighted or not own.compiles_late,
        )
        if plan.starts > 1 and in_parallel(workers):
            options = replace(options, progress=False)
        search_from = partial(_from, search, options)
        if plan.starts == 1:
            result = search(options, target, z0, seed)
            by_default = self.starts is None and init is None and early_stopping is None
            if not by_default or own.stochastic:
                return result
            return gone_elsewhere(target, result, search_from, seed)
        best = best_of(target, search_from, z0, plan, seed, workers=workers)
        if not plan.short or own.stochastic:
            return best
        return gone_elsewhere(target, best, search_from, seed)


def _from(
    search: Search,
    options: SearchOptions,
    target: Target,
    z: Tensor,
    seed: int,
    few: Few | None = None,
) -> SearchResult:
    """Return the result of one search from z [p], of few steps if ``few`` is given."""
    return search(replace(options, few=few), target, z, seed)


def _after_a_subset(
    search: Callable[..., SearchResult],
    options: SearchOptions,
    target: Target,
    seed: int,
    plan: Plan,
    several: Callable[..., SearchResult],
) -> SearchResult | None:
    """Search from the place to which the mode of the subset model leads.

    With several starts, it is the subset model that is searched from several places, by
    ``several(target, search, z0)``.

    Returns:
        The result; None if the model has no subset model, or the search found no finite density.
    """
    model: WarmStart = target.model
    subset = model.subset_model(target.data.shared)
    if subset is None:
        return None
    small = Target(*subset, compile=False, empty=True)
    of_subset = SearchOptions(steps=SUBSET_STEPS, record=options.record)
    search_small = partial(_from, lbfgs, of_subset)
    ends: dict = {}
    z = small.origin()
    if small.dim:
        z = small.start(seed, jacobian=False)
        one = plan.starts == 1
        first = search_small(small, z, seed) if one else several(small, search_small, z)
        if first.interrupted:
            raise KeyboardInterrupt("stopped on the way to the start; there is no point to return")
        z, ends = first.z, first.stats
    with torch.no_grad():
        z = target.placed(model.warm_start(small.constrain(z), target.data.shared))
    # a model with a subset model is large, and compiling it would not repay
    result = search(replace(options, compile_after=math.inf), target, z, seed)
    kept = {name: ends[name] for name in OF_STARTS if name in ends}
    notes = result.notes
    if kept and not plan.short:  # few steps end near a mode, not in it
        notes = [*notes, *scattered(kept["end_log_densities"], NEAR)]
    if not math.isfinite(result.stats["log_density"]):
        return None
    return replace(result, stats={**result.stats, **kept}, notes=notes)


def _overfitting_notes(optimizer: str, target: Target) -> list[str]:
    """Return a warning if nothing regularises a network with more weights than there are rows.

    Args:
        optimizer: Its name.
        target: The density that was maximised.
    """
    if not target.data.is_table:
        return []
    sites, rows = target.model.sites_at(target.data.d), target.data.n
    networks = [name for name, s in sites.items() if isinstance(s, Param) and s.of_network]
    weights = sum(
        s.stop - s.start for name, s in target.slices.items() if s.param and name in networks
    )
    if weights <= rows:
        return []
    fitted = f"{optimizer} has fitted {counted(weights, 'weight')} of a network"
    return [
        f"{fitted} to {counted(rows, 'row')}, and the marginal likelihood does not guard "
        "against overfitting by so many: pass hold_out=0.1, or use MAP('adam') with dropout, "
        "or Deep(..., frozen=True), and see ppgp.check_network"
    ]


def reach_of(target: Target, share: float) -> Tensor:
    """Return the length of an adversarial step in each column of X, [d]: a share of its range.

    Raises:
        NotApplicable: If the rows are not independent given the sites, or their distribution does
            not change smoothly with X.
    """
    if not target.data.is_table:
        raise _refused("a program with its own arguments")
    X = target.data.X
    ends = target.team.rows_of_all(torch.stack([X.min(0).values, X.max(0).values]))
    reach = share * (ends.max(0).values - ends.min(0).values)
    generator = torch.Generator().manual_seed(0)
    step = standard_normal(generator, target.dim)
    z = target.origin() + 0.1 * step.to(X)
    rows = torch.arange(min(2, target.data.n - 1))
    try:
        plain = target.log_density(z, rows)
    except NotApplicable:
        raise _refused(an(type(target.model).__name__)) from None
    both, _ = target.value_and_grad_of_rows(z, rows, reach=reach, compile=False)
    if bool(reach.any()) and float(both) == 2 * float(plain):
        raise _refused(an(type(target.model).__name__))
    return reach


def _refused(got: str) -> NotApplicable:
    return NotApplicable(
        "a model with independent rows whose distribution is smooth in X, for adversarial=",
        got,
        "leave adversarial out",
    )


JOINT_MODE = (
    "this is the joint mode of f and of its hyperparameters, a poor fit: it favours "
    "hyperparameters under which f can be a constant, and no spread of f is averaged over; "
    "fit by SVI or NUTS, which integrate f out"
)


def found_jointly(target: Target) -> bool:
    """Whether a search for the mode moves the values of a latent function and other sites too."""
    values = set(target.model.latent_values)
    return bool(values & target.slices.keys()) and bool(target.slices.keys() - values)
