"""How a model is fitted: one method a file, each a frozen record of options."""

from .exact import Exact
from .gibbs import Gibbs
from .hmc import HMC
from .inference import Inference
from .laplace import Laplace
from .map import MAP
from .nuts import NUTS
from .svi import SVI

__all__ = ["HMC", "MAP", "NUTS", "SVI", "Exact", "Gibbs", "Inference", "Laplace"]
