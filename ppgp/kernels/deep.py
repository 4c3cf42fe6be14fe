"""Deep kernels: a kernel on features that a neural network computes from the inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SettingError, listed
from ..networks.networks import Network, module_of, outputs, weights, width
from ..priors import Param, Prior, Site, per_column, prefixed, site, under
from .base import Kernel, Theta, mapped
from .fourier_features import Draw, Path
from .units import Factor, Units

NETWORK = "network"
COLLAPSED = 1e-6  # relative spread of the features below which all rows count as equal


@dataclass(frozen=True)
class Deep(Kernel):
    """kernel(g(x), g(x')), where g is a network.

    The network maps rows X [n, d] to features [n, q]. Wilson, Hu, Salakhutdinov & Xing (2016),
    equation 5. The weights are params named ``network.<param>``, which MAP and SVI optimise; with a
    ``prior`` they are sites, which are inferred like the others. The network runs on copies of
    them, so that the recipe is never trained. It reads X as the model sees it, standardised inside
    ``fit``; lengthscales of the inner kernel refer to features, and have no unit.

    The marginal likelihood does not protect thousands of weights from overfitting: L-BFGS drives
    the noise towards 0; Adam with dropout does not. See Ober, Rasmussen & van der Wilk (2021), and
    judge a deep kernel by held-out rows.

    Args:
        network: ``MLP``, ``CNN``, or any torch module from rows [n, d] to features [n, q] (a copy
            is kept).
        kernel: The kernel on the features.
        prior: The prior of every weight; None makes the weights params.
        frozen: Whether the weights stay as they are, for a network that was trained before.

    Raises:
        SettingError: If the network is not a network, the kernel not a kernel or the prior not a
            prior, or if the weights are frozen and have a prior; in a fit, if the network lies
            inside another or does not fit the columns of X.

    Examples:
        The weights of a network of three columns have names beside the hyperparameters:

        >>> import torch
        >>> from ppgp import kernels, networks
        >>> kernel = kernels.Deep(networks.MLP(hidden=(8,), out=2), kernels.RBF(1.0))
        >>> for name, site in kernel.sites(d=3).items():
        ...     print(name, list(site.shape))
        network.0.weight [8, 3]
        network.0.bias [8]
        network.3.weight [2, 8]
        network.3.bias [2]
        variance []
        lengthscale []

        A module of your own can take the place of the network. This one sees |x| alone, and the
        kernel does not tell x from -x:

        >>> class Absolute(torch.nn.Module):
        ...     def forward(self, X):
        ...         return X.abs()
        >>> kernel = kernels.Deep(Absolute(), kernels.RBF(1.0, 1.0))
        >>> kernel({}, torch.tensor([[1.0], [-1.0], [2.0]]))[0]
        tensor([1.0000, 1.0000, 0.6065])
    """

    network: Any
    kernel: Kernel
    prior: Prior | None = None
    frozen: bool = False
    about_origin = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.network, Network | nn.Module) or not isinstance(self.kernel, Kernel):
            got = f"Deep({type(self.network).__name__}, {type(self.kernel).__name__})"
            do = "for example Deep(MLP(), RBF())"
            raise SettingError("a network and a kernel in Deep", got, do)
        given: object = self.prior
        if given is not None and not isinstance(given, Prior):
            do = "for example priors.Normal(0.0, 1.0)"
            raise SettingError("a prior, or None, as prior of Deep", repr(given), do)
        if self.frozen and self.prior is not None:
            raise SettingError("weights with a prior, or frozen", "both", "leave one out")
        if isinstance(self.network, nn.Module):
            object.__setattr__(self, "network", copy.deepcopy(self.network))

    def __repr__(self) -> str:
        network = f"<{type(self.network).__name__}>"
        if isinstance(self.network, Network):
            network = repr(self.network)
        settings = f"kernel={self.kernel!r}, prior={self.prior!r}, frozen={self.frozen}"
        return f"Deep(network={network}, {settings})"

    def sites(self, d: int) -> dict[str, Site | Param]:
        given = self.kernel.sites(width(self.network, d))
        # features lie in a ball of one radius, whatever their number
        inner: dict[str, Site | Param] = {}
        for name, s in given.items():
            inner[name] = s
            if not isinstance(s, Param):
                inner[name] = replace(s, prior=per_column(s.prior, 1))
        if any(name.startswith(NETWORK + ".") for name in inner):
            do = "put one network after the other in a module"
            raise SettingError("one network in a kernel", "a Deep in a Deep", do)
        parameters, buffers = weights(module_of(self.network, d))
        own: dict[str, Site | Param] = {}
        for name, value in parameters.items():
            if self.prior is None:
                own[name] = Param(value, trained=not self.frozen, of_network=True)
            else:
                own[name] = Site(site(name, self.prior).prior, tuple(value.shape), start=value)
        for name, value in buffers.items():
            own[name] = Param(value, trained=False, of_network=True)
        return {**prefixed(NETWORK, own), **inner}

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return self.kernel.waves(self.features({}, X).detach())

    def uncertain_level(self) -> bool:
        return self.kernel.uncertain_level()

    def in_units(self, units: Units) -> Kernel:
        return replace(self, kernel=self.kernel.in_units(self._of_features(units)))

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(self._of_features(units))

    def _of_features(self, units: Units) -> Units:
        return Units.none(width(self.network, len(units.x_sd)), units.y_sd)

    def features(self, theta: Theta, X: Tensor) -> Tensor:
        """Return g(X), [*batch, n, q]; weights that theta lacks are those of the recipe."""
        return outputs(self.network, under(NETWORK, theta), X)

    def _inner(self, theta: Theta) -> dict[str, Tensor]:
        """Return the part of theta that belongs to the kernel on the features."""
        return {name: value for name, value in theta.items() if not name.startswith(NETWORK + ".")}

    def to_feature_space(self, theta: Theta, *tables: Tensor) -> tuple[Kernel, Theta, list[Tensor]]:
        features = self.features(theta, torch.cat(tables))
        return self.kernel, self._inner(theta), list(features.split([len(X) for X in tables], -2))

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        first = self.features(theta, X1)
        second = mapped(lambda X: self.features(theta, X), X2)
        return self.kernel(self._inner(theta), first, second)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.kernel.diag(self._inner(theta), self.features(theta, X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(self._inner(theta), self.features(theta, X))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        features = replace(draw, like=self.features(theta, draw.like))
        inner = self.kernel.path(self._inner(theta), width(self.network, d), features)
        return lambda X: inner(self.features(theta, X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        """Return a warning if features are not finite, or the same in all rows."""
        F = self.features(theta, X)
        finite = torch.isfinite(F)
        if not bool(finite.all()):
            rows = finite.all(-1)
            if F.ndim > 2:
                rows = finite.flatten(0, -3).all(-1).all(0)
            where = listed(torch.nonzero(~rows).flatten().tolist(), "row")
            return [
                f"the network gives features that are not finite in {where}: check the data "
                "there, or lower the learning rate"
            ]
        if len(X) > 1 and not torch.equal(X, X[:1].expand_as(X)) and _collapsed(F):
            return [
                "the network gives the same features in all rows, so that the kernel sees no "
                "inputs: lower the learning rate, start from networks.pretrained, or leave the "
                "network out"
            ]
        return self.kernel.check_fit(self._inner(theta), F)


def _collapsed(F: Tensor) -> bool:
    """Whether the features [*batch, n, q] hardly differ between the rows, in every batch entry."""
    spread = (F - F.mean(-2, keepdim=True)).square().mean((-2, -1)).sqrt()
    size = F.square().mean((-2, -1)).sqrt()
    return bool((spread <= COLLAPSED * size).all())
