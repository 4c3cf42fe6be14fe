"""Training of a network to predict y, before it becomes part of a kernel."""

from __future__ import annotations

import copy
from numbers import Integral

import torch
from torch import nn

from ..data.dataset import Dataset
from ..errors import DataError, SettingError, an
from ..priors import finite_numbers
from ..provenance.found_on import mark, origin_of
from ..runtime.seeding import seeded
from ..runtime.torch_optimisers import Adam
from .networks import Network, width

BATCH = 64


def pretrained(
    network: Network | nn.Module,
    data: Dataset,
    *,
    epochs: int = 50,
    learning_rate: float = 1e-2,
    batch_size: int = BATCH,
    seed: int = 0,
    standardise: bool = True,
) -> nn.Module:
    """Return a new module that was trained to predict y by least squares, a start for ``Deep``.

    It is trained with a linear head, which is then discarded, by Adam (Kingma & Ba 2015) on
    mini-batches with the one-cycle schedule of Smith & Topin (2019) and with dropout. The network
    that is passed does not change. The module remembers its rows: a fit whose recipe contains it
    counts them as training rows.

    Args:
        network: A network record, or a torch module.
        data: X [n, d], y [n].
        epochs: Passes over the rows.
        learning_rate: The highest of the cycle.
        batch_size: Rows per step.
        seed: The seed of the head, the order of the rows and the dropout.
        standardise: Whether to standardise as ``ppgp.fit`` does, so that the kernel later sees
            inputs on the scale that the network was trained on. False: the module takes X in the
            units of the data.

    Returns:
        The trained module, from rows [n, d] to features [n, q].

    Raises:
        SettingError: If the network is no network or does not fit the data, epochs or batch_size
            is not a positive whole number, or learning_rate not a positive number.
        DataError: If the data are no Dataset.

    Examples:
        The features start a deep kernel, which keeps them as they are if it is frozen:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import kernels, networks
        >>> X = torch.linspace(-1, 1, 40)[:, None]
        >>> data = ppgp.Dataset(X, X[:, 0].abs())
        >>> module = networks.pretrained(networks.MLP((16,), out=2), data, epochs=5)
        >>> module(X).shape
        torch.Size([40, 2])
        >>> kernel = kernels.Deep(module, kernels.RBF(), frozen=True)
        >>> [name for name, site in kernel.sites(d=1).items() if not site.fixed]
        ['variance', 'lengthscale']
    """
    _check_arguments(network, data)
    table = data.standardised()[0] if standardise else data
    with_head = regressor(
        network, table, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size, seed=seed
    )
    mark(with_head[0], data, before=origin_of(network))
    return with_head[0]


def regressor(
    network: Network | nn.Module,
    data: Dataset,
    *,
    epochs: int = 50,
    learning_rate: float = 1e-2,
    batch_size: int = BATCH,
    seed: int = 0,
) -> nn.Sequential:
    """Return the module that ``pretrained`` trains, with its head.

    It maps [n, d] to features [n, q] to predictions [n, 1], on the scale of the data: it takes X
    and returns y in the units of ``data``. Adam (Kingma & Ba 2015) minimises the squares.

    Args:
        network: A network record, or a torch module.
        data: X [n, d], y [n].
        epochs: Passes over the rows.
        learning_rate: The highest of the cycle.
        batch_size: Rows per step.
        seed: The seed of the head, the order of the rows and the dropout.

    Returns:
        The network and its head, which is one linear layer.

    Raises:
        SettingError: As ``pretrained``.
        DataError: As ``pretrained``.

    Examples:
        It explains nearly all of the variance of a parabola:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import networks
        >>> X = torch.linspace(-1, 1, 40)[:, None]
        >>> data = ppgp.Dataset(X, X[:, 0].square())
        >>> network = networks.MLP((32,), out=4, dropout=0.0)
        >>> predict = networks.regressor(network, data, epochs=100, learning_rate=0.05)
        >>> residual = data.y - predict(X)[:, 0]
        >>> bool(residual.square().mean() < 0.05 * data.y.var())
        True
    """
    _check_arguments(network, data)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise SettingError(f"a positive whole number as {name}", repr(value), "change it")
    if not finite_numbers((learning_rate,)) or learning_rate <= 0:
        raise SettingError("a positive learning_rate", repr(learning_rate), "use 0.01")
    features = width(network, data.d)
    module = _fresh_module(network, data.d).to(data.X).requires_grad_(True).train()
    with seeded(seed, data.X.device), torch.enable_grad():
        head = nn.Linear(features, 1).to(data.X)
        with_head = nn.Sequential(module, head)
        optimizer = Adam(with_head.parameters(), lr=learning_rate)
        steps = -(-data.n // batch_size) * epochs
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, learning_rate, total_steps=max(steps, 2)
        )
        for _ in range(epochs):
            for rows in torch.randperm(data.n, device=data.X.device).split(batch_size):
                if len(rows) == 1 < data.n:  # one row has no variance for batch normalisation
                    continue
                loss = (with_head(data.X[rows])[:, 0] - data.y[rows]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                cycle.step()
    for part in (with_head, with_head[0]):
        mark(part, data, before=origin_of(network))
    return with_head.requires_grad_(False).eval()


def _check_arguments(network: object, data: object) -> None:
    """Refuse what is no network or no Dataset."""
    if not isinstance(network, Network | nn.Module):
        got, do = repr(network)[:60], "for example MLP()"
        if isinstance(network, type):
            got, do = f"the class {network.__name__}", f"call it: {network.__name__}()"
        raise SettingError("a network", got, do)
    if not isinstance(data, Dataset):
        do = "pass ppgp.Dataset(X, y)"
        raise DataError("a Dataset", an(type(data).__name__), do)


def _fresh_module(network: Network | nn.Module, d: int) -> nn.Module:
    """Return a module for inputs of d columns that shares no weights with ``network``."""
    if isinstance(network, Network):
        return network.build(d)
    return copy.deepcopy(network)
