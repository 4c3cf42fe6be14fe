"""Acquisition functions of several places together, averages over samples of f at all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..posterior.posterior import Posterior
from .acquisition import Acquisition, Improvement, check_beta, check_count

__all__ = ["qEI", "qUCB"]


@dataclass(frozen=True)
class qEI(Improvement):
    """E(max_j f_j - best)+ of a batch of places. Ginsbourger, Le Riche & Carraro (2010), section 2.

    Args:
        maximise: Whether f is to be maximised; False: minimised.
        best: See ``EI``.
        samples: The number of quasi-random samples under each draw of the hyperparameters.
        seed: Their seed.

    Returns:
        The value [] of one batch X [q, d], or the values [b] of batches [b, q, d], in the units of
        y.

    Raises:
        SettingError: If maximise is not True or False, best not a finite number or None, or samples
            not a positive whole number.
        NotApplicable: On use, if the model has no joint latent function.
        DataError: On use, if X is not a table of finite numbers with the columns of the data.

    Examples:
        Two distant places, where f are independent N(0, 1), are worth 0.681, the same place twice
        0.399:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> value = acquisition.qEI(best=0.0)
        >>> apart, twice = value(fit, [[[50.0], [90.0]], [[50.0], [50.0]]]).tolist()
        >>> abs(apart - 0.681) < 0.01, abs(twice - 0.399) < 0.01
        (True, True)
    """

    samples: int = 256
    seed: int = 0
    batch = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("samples", self.samples)

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        mean, root = self._joint(posterior, rows)
        f = mean[:, None] + _deviations(mean, root, self.samples, self.seed)
        return (f.amax(-1) - self._level()).clamp_min(0.0).mean()


@dataclass(frozen=True)
class qUCB(Acquisition):
    """E max_j (mean_j + sqrt(beta pi / 2) |f_j - mean_j|) of a batch, which is UCB for one place.

    Wilson, Moriconi, Hutter & Deisenroth (2017), table 1.

    Args:
        maximise: Whether f is to be maximised; False: minimised.
        samples: The number of quasi-random samples under each draw of the hyperparameters.
        seed: Their seed.
        beta: The weight of the variance, without a unit.

    Returns:
        The value [] of one batch X [q, d], or the values [b] of batches [b, q, d], in the units of
        y.

    Raises:
        SettingError: If maximise is not True or False, beta not a finite number of at least 0, or
            samples not a positive whole number.
        NotApplicable: On use, if the model has no joint latent function.
        DataError: On use, if X is not a table of finite numbers with the columns of the data.

    Examples:
        One place has the value of UCB, and a second one can only add to it:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> value = acquisition.qUCB(beta=4.0)
        >>> one, two = float(value(fit, [[50.0]])), float(value(fit, [[50.0], [90.0]]))
        >>> abs(one - 2.0) < 0.02, two > one
        (True, True)
    """

    samples: int = 256
    seed: int = 0
    beta: float = 4.0
    batch = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("samples", self.samples)
        check_beta(self.beta)

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        mean, root = self._joint(posterior, rows)
        deviations = _deviations(mean, root, self.samples, self.seed)
        width = math.sqrt(self.beta * math.pi / 2) * deviations.abs()
        return (mean[:, None] + width).amax(-1).mean()


def _deviations(mean: Tensor, root: Tensor, samples: int, seed: int) -> Tensor:
    """Return quasi-random samples of f - mean, [draw, samples, q]. Owen (1998) for the scrambling.

    They are a smooth function of the places, as the same seed gives the same numbers of N(0, 1).

    Args:
        mean: [draw, q], of f.
        root: [draw, q, q], of its covariance.
        samples: The number under each draw of the hyperparameters.
        seed: Their seed.
    """
    sobol = torch.quasirandom.SobolEngine(mean.shape[-1], scramble=True, seed=seed)
    uniform = sobol.draw(samples, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
    return (math.sqrt(2) * torch.erfinv(2 * uniform - 1)).to(mean) @ root.mT
