"""What models look at before a fit: medians of their priors, and networks that cannot learn."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import NumericalError
from ..kernels import Kernel
from ..priors import Param, Prior, Site
from ..runtime.seeding import seeded


def refuse_broken(kernel: Kernel, X: Tensor) -> None:
    """Refuse a network whose units are all dead or saturated at the initial weights.

    No gradient leads away from such a start.

    Raises:
        NumericalError: If the kernel of such a network does not distinguish the rows of X.
    """
    broken = kernel.check_fit({}, X)
    if not broken:
        return
    tiny = torch.finfo(X.dtype).tiny
    largest_ratio = float((X.mean(0).abs() / X.std(0).clamp_min(tiny)).max())
    cause = ""
    if largest_ratio > 3:
        cause = f" (a column of X has a mean of {largest_ratio:.3g} times its sd)"
    raise NumericalError(
        "a kernel that tells these rows apart before the fit",
        "a network that does not, its units dead or saturated at the initial weights"
        f"{cause}: {broken[0]}",
        "standardise X, as fit(standardise=True) does, or give the network another seed, more "
        "units, or activation='tanh'",
    )


def medians(sites: Mapping[str, Site | Param], X: Tensor, seed: int) -> dict[str, Tensor]:
    """Return {site: the median of 101 draws from its prior}.

    A selection of inducing inputs uses these values before there is a fit. Sites without a prior
    are left out.
    """
    with seeded(seed):
        values = {}
        for name, one in sites.items():
            if isinstance(one, Site) and isinstance(one.prior, Prior):
                prior = one.distribution(X)
                draws = torch.stack([prior.sample() for _ in range(101)])
                values[name] = draws.median(0).values
        return values
