"""K-FAC: steps by the inverse of a Kronecker product per layer of a network."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NotApplicable
from ...networks.networks import training
from ...runtime.seeding import seeded
from ...runtime.torch_optimisers import Adam
from ..base import numbers_of
from .curvature_of_rows import CurvatureOfRows
from .first_order import Gradients, Steps, ascend, dropout_seed, memory_of, restore_memory
from .held_out_rows import EarlyStopping
from .kronecker_factors import Factors, KroneckerFactors, Layer, layers_of
from .network_expansion import unbounded
from .search import SearchOptions, SearchResult, site_rates

RATE_OF_OTHERS = 0.05  # of Adam, for the sites that are no layer
REFRESH = 10  # steps between two mini-batches whose factors enter the running means
MEMORY = 0.95  # of the running means, once there are enough
DAMPING = 1e-2  # added to the curvature of the log density per row
MOMENTUM = 0.9
LARGEST_MOVE = 1e-2  # nats per row by which a step moves the distribution of y


def kfac(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density by K-FAC on Linear and Conv2d layers, and Adam on other sites.

    Martens & Grosse (2015). The gradient V of a layer per row becomes ``G^-1 V A^-1``, with running
    means of the factors of mini-batches. Both are damped (factored Tikhonov, equation 27; the
    prior precision per row is part of the damping). The step is shortened to one that moves the
    distribution of y by 0.01 nats per row, and goes on with momentum 0.9. Random signs take the
    place of targets that are drawn from the model: the mean of the factors is the same.

    Raises:
        NotApplicable: If the network has no such layer, or the likelihood no scores.
    """
    z = z0.clone()
    gradients = Gradients(options, target, z, options.batch_size, seed)
    steps = _Steps(options, target, z, gradients, seed)
    schedule = options.schedule or "constant"
    return ascend(options, target, z, gradients, steps, schedule, early_stopping)


class _Steps(Steps):
    """Steps of z in place, ``steps(gradient, factor)`` with a factor on the learning rates.

    Args:
        options: The learning rates.
        target: The density.
        z: The point [p], which the steps move.
        gradients: Those of the mini-batches, which knows their rows.
        seed: Of the random signs.
    """

    def __init__(
        self, options: SearchOptions, target: Target, z: Tensor, gradients: Gradients, seed: int
    ) -> None:
        self.target, self.z, self.gradients = target, z, gradients
        self.curvature = CurvatureOfRows(target, options.jacobian)
        self.layers = [layer for layer in layers_of(target) if _is_free(layer, z)]
        if not self.layers:
            raise NotApplicable(
                "a network with Linear or Conv2d layers, whose weights are unbounded",
                "another",
                "use MAP('adam')",
            )
        self.factors = KroneckerFactors(self.curvature, self.layers)
        self.generator = torch.Generator().manual_seed(seed)
        self.damped = [_Damped() for _ in self.layers]
        self.momentum = torch.zeros_like(z)
        self.taken = 0
        rates = options.rates(target)
        self.rates = [
            next(rates[name] for name, s in target.slices.items() if s is layer.weight)
            for layer in self.layers
        ]
        own = {id(s) for layer in self.layers for s in (layer.weight, layer.bias)}
        self.others = {name: s for name, s in target.slices.items() if id(s) not in own}
        if not isinstance(options.learning_rate, Mapping):
            rates = site_rates(RATE_OF_OTHERS, target)
        self.rates_of_others = [rates[name] for name in self.others]
        self.pieces = [z[s.start : s.stop] for s in self.others.values()]
        self.adam: torch.optim.Optimizer | None = None
        if self.pieces:
            self.adam = Adam([{"params": [piece]} for piece in self.pieces])

    def __call__(self, gradient: Tensor, factor: float) -> None:
        if self.taken % REFRESH == 0:
            self._refresh()
        self.taken += 1
        n = self.target.data.n
        slopes = [layer.of(gradient) / n for layer in self.layers]
        moves = [d.solve(slope) for d, slope in zip(self.damped, slopes, strict=True)]
        moved = sum(
            0.5 * (factor * rate) ** 2 * float((move * slope).sum())
            for rate, move, slope in zip(self.rates, moves, slopes, strict=True)
        )
        shorter = min(1.0, math.sqrt(LARGEST_MOVE / moved)) if moved > 0 else 1.0
        step = torch.zeros_like(self.z)
        for layer, rate, move in zip(self.layers, self.rates, moves, strict=True):
            layer.put(step, factor * rate * shorter * move)
        self.momentum = MOMENTUM * self.momentum + step
        self.z += self.momentum
        if self.adam is None:
            return
        groups = self.adam.param_groups
        for piece, s, group, rate in zip(
            self.pieces, self.others.values(), groups, self.rates_of_others, strict=True
        ):
            piece.grad = -gradient[s.start : s.stop]
            group["lr"] = factor * rate
        self.adam.step()

    def tensors(self) -> dict[str, Tensor]:
        out = {
            "kfac.momentum": self.momentum,
            "kfac.taken": torch.tensor(self.taken),
            "kfac.generator": self.generator.get_state(),
        }
        for j, damped in enumerate(self.damped):
            out |= {f"kfac.{j}.{name}": value for name, value in damped.tensors().items()}
        return out if self.adam is None else {**out, **memory_of(self.adam)}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        self.momentum = saved["kfac.momentum"].to(self.z)
        self.taken = int(saved["kfac.taken"])
        self.generator.set_state(saved["kfac.generator"])
        for j, damped in enumerate(self.damped):
            prefix = f"kfac.{j}."
            own = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
            damped.restore(own, self.z)
        if self.adam is not None:
            restore_memory(self.adam, saved)

    def _refresh(self) -> None:
        """Bring the factors of the last mini-batch into the running means."""
        rows, z = numbers_of(self.gradients.rows), self.z
        if self.gradients.dropout:
            with seeded(dropout_seed(self.generator), z.device), training():
                found = self.factors.at(z, rows, self.generator)
        else:
            found = self.factors.at(z, rows, self.generator)
        data = self.target.data
        count = data.n if rows is None else len(rows)
        prior = self.curvature.prior_diagonal(z)
        for layer, damped, (A, G) in zip(self.layers, self.damped, found, strict=True):
            of_prior = 0.0 if prior is None else float(layer.of(prior).mean()) / data.n
            damped.add((A, G / count), DAMPING + of_prior)


class _Damped:
    """Running means of the factors of a layer, and the inverses of the damped means."""

    def __init__(self) -> None:
        self.count = 0
        self.means: Factors | None = None
        self.inverses: Factors | None = None

    def add(self, factors: Factors, damping: float) -> None:
        """Bring factors [in, in] and [out, out] of some rows into the means."""
        self.count += 1
        kept = min(MEMORY, 1 - 1 / self.count)
        if self.means is None:
            self.means = factors
        A, G = (kept * m + (1 - kept) * f for m, f in zip(self.means, factors, strict=True))
        # contiguous as in a checkpoint: another layout may be summed in another order
        self.means = A, G = A.contiguous(), G.contiguous()
        sizes = float(A.diagonal().mean()), float(G.diagonal().mean())
        tiny = torch.finfo(A.dtype).tiny
        ratio = math.sqrt(max(sizes[0], tiny) / max(sizes[1], tiny))
        root = math.sqrt(damping)
        self.inverses = _inverse(A, root * ratio), _inverse(G, root / ratio)

    def tensors(self) -> dict[str, Tensor]:
        """Return the means and the inverses, for a checkpoint."""
        out = {"count": torch.tensor(self.count)}
        for name, factors in (("means", self.means), ("inverses", self.inverses)):
            if factors is not None:
                out |= {f"{name}.A": factors[0], f"{name}.G": factors[1]}
        return out

    def restore(self, saved: Mapping[str, Tensor], like: Tensor) -> None:
        """Take back what ``tensors`` returned, with the dtype and on the device of ``like``."""
        self.count = int(saved["count"])
        if "means.A" in saved:
            self.means = saved["means.A"].to(like), saved["means.G"].to(like)
            self.inverses = saved["inverses.A"].to(like), saved["inverses.G"].to(like)

    def solve(self, slope: Tensor) -> Tensor:
        """Return G^-1 slope A^-1 of a slope [out, in]."""
        if self.inverses is None:
            return slope
        A, G = self.inverses
        return G @ slope @ A


def _inverse(A: Tensor, damping: float) -> Tensor:
    """Return (A + damping I)^-1, with more damping where rounding needs it."""
    eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
    L, failed = torch.linalg.cholesky_ex(A + damping * eye)
    while int(failed):
        damping *= 10
        L, failed = torch.linalg.cholesky_ex(A + damping * eye)
    return torch.cholesky_inverse(L).contiguous()


def _is_free(layer: Layer, z: Tensor) -> bool:
    """Return whether the weights of a layer are their own unconstrained values."""
    return all(unbounded(s, z) for s in (layer.weight, layer.bias) if s is not None)
