"""Neural regression: the functions of x behind a likelihood are the outputs of a network."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ..capabilities import (
    Capability,
    GaussianNetwork,
    LikelihoodOfFunctions,
    NetworkWeights,
)
from ..data.dataset import Dataset, Scaler
from ..display.overrides import computed
from ..errors import NotApplicable, SettingError, an, counted
from ..likelihoods import Gaussian, Likelihood, Predicted, Scored
from ..likelihoods.base import check_is_likelihood
from ..networks.linearised_networks import LINEARISED_AT, linearised_outputs
from ..networks.networks import ACTIVATIONS, MLP, Network, fresh, module_of, outputs, weights, width
from ..priors import Flat, InUnitsOfData, Prior, PriorLike, Site, prefixed, site, under
from .advice.memory_checks import check_memory_of_rows
from .base import AnyLikelihood, WeightedRows
from .sites import Theta
from .units import times

NETWORK = "network"
COPIES = 4.0  # of the values of all units that a gradient holds


@dataclass(frozen=True, repr=False)
class NeuralRegression(  # type: ignore[override] # scales follows the likelihood
    AnyLikelihood, WeightedRows, NetworkWeights, GaussianNetwork, LikelihoodOfFunctions
):
    """A neural network with a likelihood: y ~ likelihood(network(x)).

    Nix & Weigend (1994) for a Gaussian whose mean and variance are outputs; MacKay (1992) and Neal
    (1996) for priors of the weights. The weights are sites named ``network.<name>``. With the flat
    prior ``MAP`` is maximum likelihood and ``Ensemble(MAP("adam"))`` a deep ensemble; with
    ``Normal(0, s)`` it is a Bayesian neural network.

    Weights have no unit: they are those for standardised columns. If the network has dropout,
    units are left out in the steps of MAP and SVI, and in no prediction.

    Args:
        network: ``MLP``, ``CNN``, or a torch module from rows [n, d] to [n, K] (a copy is kept). K
            is the number of functions of the likelihood. The number of outputs of an ``MLP`` or a
            ``CNN`` is set to K, and its outputs are not bounded.
        likelihood: A member of ``ppgp.likelihoods``; a parameter of it that is ``Predicted()`` is
            an output of the network.
        prior: The prior of every weight.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If network, likelihood or prior has another type; in ``prepare``, if a module
            does not have K outputs.
        DataError: From ``fit``, if y does not suit the likelihood.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, likelihoods, models, networks
        >>> X = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, X[:, 0].abs())
        >>> network = networks.MLP(hidden=(8,), dropout=0.0)
        >>> model = models.NeuralRegression(network, likelihoods.Gaussian(noise=0.01))
        >>> posterior = ppgp.fit(model, data, inference.MAP(starts=1, steps=200), progress=False)
        >>> posterior.predict([[-0.8], [0.0], [0.8]]).mean.numpy().round(1)
        array([0.8, 0. , 0.8])
        >>> [(name, list(draw.shape[2:])) for name, draw in posterior.draws.items()][:2]
        [('network.0.weight', [8, 1]), ('network.0.bias', [8])]
    """

    network: Any = field(default_factory=lambda: MLP(hidden=(50,), dropout=0.0))
    likelihood: Likelihood = field(default_factory=lambda: Gaussian(noise=Predicted()))
    prior: PriorLike = Flat()
    standardised: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.network, Network | nn.Module):
            got = an(type(self.network).__name__)
            raise SettingError("a network in NeuralRegression", got, "for example networks.MLP()")
        check_is_likelihood(self.likelihood, "Gaussian(noise=Predicted())")
        if not isinstance(self.prior, Prior) or isinstance(self.prior, InUnitsOfData):
            do = "for example Flat() or Normal(0, 1)"
            raise SettingError("a prior on the scale of the model", repr(self.prior), do)
        network = self.network
        if isinstance(network, nn.Module):
            network = copy.deepcopy(network)
        else:
            network = _with_outputs(network, 1)
            with suppress(SettingError):  # the number of classes is not known before the data
                network = self._sized()
        object.__setattr__(self, "network", network)

    def _own_method(self) -> str:
        """A deep ensemble, unless the weights have a prior."""
        return "deep-ensemble" if isinstance(self.prior, Flat) else ""

    own_method = computed(_own_method)

    def _sized(self) -> Network | nn.Module:
        """Return the network with K outputs."""
        return _with_outputs(self.network, self.likelihood.latents)

    def sites(self, d: int) -> dict[str, Site]:
        parameters, _ = weights(module_of(self._sized(), d))
        own = {}
        for name, value in parameters.items():
            prior = site(name, self.prior, tuple(value.shape)).prior
            own[name] = Site(prior, tuple(value.shape), start=value)
        return {**prefixed(NETWORK, own), **self.likelihood.sites()}

    def functions(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the outputs of the network: f [*draw, K, n], or [*draw, n] if K is 1.

        They are those of the linearised network where theta says at which weights.
        """
        given, at = under(NETWORK, theta), under(f"{LINEARISED_AT}.{NETWORK}", theta)
        if at:
            found = linearised_outputs(self._sized(), at, given, X)
        else:
            found = outputs(self._sized(), given, X)
        return found.movedim(-1, -2) if self.likelihood.latents > 1 else found[..., 0]

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        return self.likelihood.distribution(theta, self.functions(theta, X))

    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        return outputs(self._sized(), under(NETWORK, theta), X).mT

    def likelihood_of_functions(self) -> Likelihood:
        return self.likelihood

    def in_units(self, scaler: Scaler) -> NeuralRegression:
        return replace(self, likelihood=self.likelihood.in_units(float(scaler.y_sd)))

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return times(draws, self.likelihood.factors(float(scaler.y_sd)))

    def prepare(self, data: Dataset) -> NeuralRegression:
        """Return the recipe with a likelihood for these rows.

        Raises:
            DataError: If y does not suit the likelihood.
            SettingError: If the network does not take these rows, or has not K outputs.
        """
        ready = replace(self, likelihood=self.likelihood.prepare(data))
        found, wanted = width(ready._sized(), data.d), ready.likelihood.latents
        if found != wanted:
            name = type(ready.likelihood).__name__
            raise SettingError(
                f"a network with {counted(wanted, 'output')}, as {name} has functions",
                str(found),
                "change its last layer, or use MLP",
            )
        return ready

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the initial weights of the network."""
        return self._levelled(weights(module_of(self._sized(), data.d))[0], data)

    def initial_weights(self, data: Dataset, seed: int) -> dict[str, Tensor]:
        return self._levelled(fresh(self._sized(), data.d, seed), data)

    def network_module(self, d: int) -> tuple[str, nn.Module]:
        return NETWORK, module_of(self._sized(), d)

    def _levelled(self, initial: dict[str, Any], data: Dataset) -> dict[str, Tensor]:
        """Return initial weights as sites, with the constants of least score as last biases."""
        values = {name: value.detach().clone() for name, value in initial.items()}
        last = list(values)[-1]
        likelihood = self.likelihood
        fixed = all(one.fixed for one in likelihood.sites().values())
        if fixed and isinstance(likelihood, Scored) and values[last].shape == (likelihood.latents,):
            level = likelihood.initial(data.y.double()).to(values[last])
            if bool(torch.isfinite(level).all()):
                values[last] += level
        return {f"{NETWORK}.{name}": value for name, value in values.items()}

    # -- dense layers with Gaussian noise -------------------------------------------------------

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is LikelihoodOfFunctions and not isinstance(self.likelihood, Scored):
            advice = "use MAP('lbfgs')"
            return NotApplicable("a likelihood with scores", repr(self.likelihood), advice)
        if capability is not GaussianNetwork:
            return None
        advice = "use NUTS, or NeuralRegression(MLP(), Gaussian())"
        if not isinstance(self.likelihood, Gaussian) or self.likelihood.predicted:
            return NotApplicable(
                "Gaussian noise of one variance, a number or a prior", repr(self.likelihood), advice
            )
        if not isinstance(self.network, MLP):
            got = an(type(self.network).__name__)
            return NotApplicable("an MLP as network", got, advice)
        return None

    def dense_layers(self, d: int) -> list[tuple[str, str]]:
        names = [f"{NETWORK}.{name}" for name in weights(module_of(self._sized(), d))[0]]
        return list(zip(names[::2], names[1::2], strict=True))

    def activation(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.network.activation]()(x)

    def noise_number(self) -> float | None:
        noise: Any = self.likelihood.sites()["noise"]
        return float(noise.prior) if noise.fixed else None

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the values of all units at n rows at once fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        shapes = [s.shape for name, s in self.sites(d).items() if name.startswith(NETWORK)]
        units = sum(shape[0] * (d if len(shape) == 4 else 1) for shape in shapes if len(shape) > 1)
        do = "pass batch_size= to MAP('adam') or SVI, or use fewer units"
        check_memory_of_rows(n, COPIES * units, like, f"the values of {units:,} units", do)


def _with_outputs(network: Network | nn.Module, outputs: int) -> Network | nn.Module:
    """Return a network with so many outputs and no bound; a module as it is."""
    if not isinstance(network, Network):
        return network
    record: Any = network
    wanted = {"out": outputs, "bounded": False}
    names = {f.name for f in fields(record)}
    return replace(record, **{name: v for name, v in wanted.items() if name in names})
