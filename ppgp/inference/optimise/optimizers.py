"""The optimizers of MAP: one record for each, with its search and what applies to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...capabilities import Capability, LikelihoodOfFunctions, NetworkWeights
from .first_order import by_entry, sgd
from .gauss_newton import gauss_newton
from .irls import irls
from .kfac import kfac
from .scipy_search import lbfgs, trust_region_newton
from .search import SearchResult
from .steepest_ascent import gd

Search = Callable[..., SearchResult]


@dataclass(frozen=True)
class Optimizer:
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
    "lbfgs": Optimizer(lbfgs, stoppable=True, compiles_late=True),
    "newton": Optimizer(trust_region_newton, compiles_late=True, search_with_curvature=irls),
    "gauss_newton": Optimizer(gauss_newton, compiles_late=True, needs=(LikelihoodOfFunctions,)),
    "gd": Optimizer(gd, default_rate=1.0),
    "sgd": Optimizer(sgd, default_rate=0.1, stochastic=True, stoppable=True),
    "adam": Optimizer(by_entry, default_rate=0.05, stochastic=True, stoppable=True),
    "adagrad": Optimizer(by_entry, default_rate=0.5, stochastic=True, stoppable=True),
    "kfac": Optimizer(
        kfac,
        default_rate=0.01,
        stochastic=True,
        stoppable=True,
        needs=(NetworkWeights, LikelihoodOfFunctions),
    ),
}
STOPPABLE = tuple(name for name, optimizer in OPTIMIZERS.items() if optimizer.stoppable)
STOCHASTIC = tuple(name for name, optimizer in OPTIMIZERS.items() if optimizer.stochastic)
