"""Weights of a network that has learned to predict y before it becomes part of a kernel."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ..data.dataset import Dataset
from ..data.found_on import mark, origin_of
from ..errors import SettingError
from ..numerics.seeding import seeded
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
    """A new module, trained with a linear head (then thrown away) to predict y by least squares: a start for ``Deep``.

    Adam (Kingma & Ba 2015) on mini-batches, with the one-cycle schedule of Smith & Topin (2019), dropout on. What it is given is
    left as it was. The module knows the rows: a fit with it in its recipe counts them as seen.

    Args:
        network: a record or a module.
        data: X [n, d], y [n].
        learning_rate: the highest of the cycle.
        standardise: as in ``ppgp.fit``, so that the kernel later sees the inputs that the network was trained on.

    Raises:
        SettingError: if epochs, batch_size or learning_rate is not positive, or the network does not fit the data.
    """
    table = data.standardised()[0] if standardise else data
    both = regressor(
        network, table, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size, seed=seed
    )
    mark(both[0], data, before=origin_of(network))
    return both[0]


def regressor(
    network: Network | nn.Module,
    data: Dataset,
    *,
    epochs: int = 50,
    learning_rate: float = 1e-2,
    batch_size: int = BATCH,
    seed: int = 0,
) -> nn.Sequential:
    """What ``pretrained`` trains, with its head: [n, d] -> features [n, q] -> [n, 1], on the scale that the data have."""
    for name, value in (
        ("epochs", epochs),
        ("batch_size", batch_size),
        ("learning_rate", learning_rate),
    ):
        if not value > 0:
            raise SettingError(f"a positive {name} in pretrained", repr(value), "change it")
    features = width(network, data.d)
    module = network.build(data.d) if isinstance(network, Network) else copy.deepcopy(network)
    module = module.to(data.X).requires_grad_(True).train()
    with seeded(seed, data.X.device), torch.enable_grad():
        head = nn.Linear(features, 1).to(data.X)
        both = nn.Sequential(module, head)
        optimizer = torch.optim.Adam(both.parameters(), lr=learning_rate)
        steps = -(-data.n // batch_size) * epochs
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, learning_rate, total_steps=max(steps, 2)
        )
        for _ in range(epochs):
            for rows in torch.randperm(data.n, device=data.X.device).split(batch_size):
                if len(rows) == 1 < data.n:  # batch normalisation has no variance of one row
                    continue
                loss = (both(data.X[rows])[:, 0] - data.y[rows]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                cycle.step()
    for part in (both, both[0]):
        mark(part, data, before=origin_of(network))
    return both.requires_grad_(False).eval()
