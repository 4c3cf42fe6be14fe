"""How a model is fitted: one method a file, each a frozen record of options."""

from .ensemble import Ensemble
from .exact import Exact
from .gibbs import Gibbs
from .hmc import HMC
from .inference import Inference
from .laplace import Laplace
from .map import MAP
from .metropolis import MetropolisHastings
from .nuts import NUTS
from .pathfinder import Pathfinder
from .sgld import SGHMC, SGLD
from .svi import SVI

__all__ = [
    "HMC",
    "MAP",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SVI",
    "Ensemble",
    "Exact",
    "Gibbs",
    "Inference",
    "Laplace",
    "MetropolisHastings",
    "Pathfinder",
]
