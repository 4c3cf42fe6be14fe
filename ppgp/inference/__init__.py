"""Methods of inference. Each is a frozen record of options (SGLD and SGHMC share a file)."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .base import Inference
from .boosting.natural_gradient import NaturalGradientBoosting
from .ensemble import Ensemble
from .exact import Exact
from .mcmc.gibbs import Gibbs
from .mcmc.hmc import HMC
from .mcmc.metropolis import MetropolisHastings
from .mcmc.nuts import NUTS
from .mcmc.sgld import SGHMC, SGLD
from .optimise.laplace import Laplace
from .optimise.map import MAP
from .optimise.mc_dropout import MCDropout
from .optimise.swag import SWAG
from .variational.pathfinder import Pathfinder
from .variational.svi import SVI

__all__ = [
    "HMC",
    "MAP",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SVI",
    "SWAG",
    "Ensemble",
    "Exact",
    "Gibbs",
    "Inference",
    "Laplace",
    "MCDropout",
    "MetropolisHastings",
    "NaturalGradientBoosting",
    "Pathfinder",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__, {"ADVI": "SVI", "VI": "SVI"})
