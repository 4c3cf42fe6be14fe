"""Monte Carlo dropout: draws of a network are networks with units left out at random."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy import optimize
from torch import Tensor

from ...capabilities import GaussianNetwork, require
from ...data.roles import refuse_weights
from ...density.graph.tracing import traced
from ...density.target import Target
from ...errors import SettingError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ...runtime.seeding import permutation, standard_uniform
from ...runtime.torch_optimisers import Adam
from ..base import Inference, finish, starting_point
from ..options import Count, Positive, Share
from .dense_network import Dense

FEWEST_ROWS = 2
COMPILE_FROM = 500  # steps, which take as long as compiling one
REACH = 15.0  # of the log precision around that of the residuals


@dataclass(frozen=True)
class MCDropout(Inference):
    """Dropout as an approximate posterior: a draw is a network with units left out at random.

    Gal & Ghahramani (2016). A network is trained by Adam per rate p, with dropout before every
    layer, that of the inputs included, by mean squared error plus the penalty
    ``lengthscale^2 (1 - p) / (2 n precision)`` times the sum of the squared weights, which takes
    the place of the prior. The rate and the precision of the noise are those of the highest log
    score of rows that are held out; the precision enters the training as 1, and a line search
    chooses it after the training. The network is then trained on all rows at the chosen rate. Draws
    of a weight are W diag(b / (1 - p)) with b ~ Bernoulli(1 - p), and the noise is 1 / precision.

    It serves NeuralRegression with an MLP and Gaussian noise: a number, which is then kept, or a
    prior, which only says that the noise is not known. The dropout of the MLP itself is not used.

    Stats: ``rate``; ``precision`` on the scale of the model; ``held_out_nlpd`` [rate]; ``losses``
    of the last training.

    Args:
        rates: The rates among which it chooses.
        epochs: Passes over the rows. The published results need 4,000.
        draws: The number of draws.
        batch_size: Rows per step.
        learning_rate: Of Adam.
        validation: The share of the rows that choose rate and precision.
        lengthscale: The lengthscale l of the penalty.

    Raises:
        SettingError: If a rate is not between 0 and 1, or for an option outside its range; on use,
            if fewer than 2 rows are held out, or left.
        NotApplicable: On use, for another model than a network of dense layers with Gaussian noise
            of one variance.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, likelihoods, models, networks
        >>> X = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, X[:, 0] ** 2)
        >>> model = models.NeuralRegression(networks.MLP(hidden=(20,)), likelihoods.Gaussian())
        >>> how = inference.MCDropout(rates=(0.01, 0.05), epochs=100, draws=100)
        >>> posterior = ppgp.fit(model, data, how, progress=False)
        >>> posterior.stats["rate"] in (0.01, 0.05)
        True
        >>> prediction = posterior.predict([[0.0], [0.9]])
        >>> bool(prediction.mean[1] - prediction.mean[0] > 0.4)  # 0.81
        True
        >>> bool((prediction.epistemic > 0).all())  # networks with other units left out disagree
        True
    """

    rates: tuple[float, ...] = (0.005, 0.01, 0.05, 0.1)
    epochs: Count = 400
    draws: Count = 1000
    batch_size: Count = 128
    learning_rate: Positive = 0.005
    validation: Share = 0.1
    lengthscale: Positive = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rates or not all(isinstance(p, float) and 0 < p < 1 for p in self.rates):
            do = "for example rates=(0.01, 0.1)"
            raise SettingError("rates of dropout between 0 and 1", repr(self.rates), do)

    def quick(self) -> MCDropout:
        return replace(self, rates=self.rates[:2], epochs=2, draws=20)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        model, data = require(target.model, GaussianNetwork), target.data
        refuse_weights(data, "MCDropout")
        network = Dense(model, target)
        first = starting_point(target, init, seed, jacobian=False, check=False)
        generator = torch.Generator().manual_seed(seed)
        count = round(self.validation * data.n)
        if not FEWEST_ROWS <= count <= data.n - FEWEST_ROWS:
            raise SettingError(
                f"at least {FEWEST_ROWS} rows for validation, and {FEWEST_ROWS} left",
                f"{count} of {data.n}",
                "change validation",
            )
        order = permutation(generator, data.n).to(data.X.device)
        held_out, rest = order[:count], order[count:]
        notes: list[str] = []
        trained, losses, done = self._train(
            network, first, self.rates, data.X[rest], data.y[rest], generator, progress
        )
        scores, precisions = [], []
        for weights, rate in zip(trained, self.rates, strict=True):
            z = network.thinned(weights, rate, self.draws, generator)
            f = network.means(z, data.X[held_out])
            precision = best_precision(f, data.y[held_out], model.noise_number())
            precisions.append(precision)
            scores.append(-float(log_score(f, data.y[held_out], precision)))
        best = min(range(len(scores)), key=lambda i: scores[i])
        chosen, rate = trained[best], self.rates[best]
        if done:
            (chosen,), losses, done = self._train(
                network, first, (rate,), data.X, data.y, generator, progress
            )
        if not done:
            notes.append("stopped by Ctrl-C before the end of the training; this is its last step")
        z = network.thinned(chosen, rate, self.draws, generator)
        network.put_noise(z, 1 / precisions[best])
        stats = {
            "rate": rate,
            "precision": precisions[best],
            "held_out_nlpd": torch.tensor(scores, dtype=torch.float64),
            "losses": torch.tensor(losses, dtype=torch.float64),
        }
        return finish(self, target, z[None], started, stats, notes, interrupted=not done)

    def _train(
        self,
        network: Dense,
        first: Tensor,
        rates: Sequence[float],
        X: Tensor,
        y: Tensor,
        generator: torch.Generator,
        progress: bool,
    ) -> tuple[Tensor, list[float], bool]:
        """Train one network per rate, side by side.

        Returns:
            Their weights [rate, p], the mean loss per epoch, and whether all epochs were run.
        """
        p = torch.tensor(rates, dtype=torch.float64).to(X)[:, None, None]
        precision = 1 / (network.model.noise_number() or 1.0)
        penalty = self.lengthscale**2 * (1 - p) / (2 * len(X) * precision)
        loss_of = penalised_loss(network, penalty)
        z = first.expand(len(rates), -1).clone()
        optimizer = Adam([z], lr=self.learning_rate)
        units = [shape[1] for shape in network.shapes]
        size = min(self.batch_size, len(X))
        graph = loss_of
        if self.epochs * (len(X) // size) >= COMPILE_FROM:
            masks = draw_masks(p, size, units, generator.clone_state())
            graph = traced(loss_of, (z, X[:size], y[:size], *masks))
        losses: list[float] = []
        done = True
        try:
            with bar("MC dropout", self.epochs, progress) as update:
                for epoch in range(self.epochs):
                    total, steps = 0.0, 0
                    for rows in permutation(generator, len(X)).split(size):
                        masks = draw_masks(p, len(rows), units, generator)
                        step = graph if len(rows) == size else loss_of
                        loss, z.grad = step(z, X[rows], y[rows], *masks)
                        optimizer.step()
                        total, steps = total + float(loss) / len(rates), steps + 1
                    losses.append(total / steps)
                    update(epoch + 1, loss=losses[-1])
        except KeyboardInterrupt:
            done = False
        return z, losses, done


def penalised_loss(network: Dense, penalty: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return (z [rate, p], X, y, *masks) -> the sum of the losses of all rates, and its gradient.

    A loss is the mean squared error plus the penalty times the sum of the squared weights; a mask
    [rate, row, unit] multiplies the inputs of a layer.
    """

    def loss(z: Tensor, X: Tensor, y: Tensor, *masks: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            layers, left = network.layers(z), iter(masks)
            f = network.forward(layers, X, lambda x: x * next(left))
            value = (y - f).square().mean(-1).sum()
            for W, _ in layers:
                value = value + (penalty * W.square()).sum()
            (gradient,) = torch.autograd.grad(value, z)
        return value.detach(), gradient

    return loss


def draw_masks(
    p: Tensor, rows: int, units: Sequence[int], generator: torch.Generator
) -> list[Tensor]:
    """Return per layer Bernoulli(1 - p) / (1 - p), [rate, rows, unit], for p [rate, 1, 1]."""
    masks = []
    for size in units:
        u = standard_uniform(generator, len(p), rows, size)
        masks.append((u.to(p) >= p) / (1 - p))
    return masks


def log_score(f: Tensor, y: Tensor, precision: float) -> Tensor:
    """Return the mean over the rows of log mean_t N(y; f_t, 1 / precision), for f [draw, n]."""
    each = 0.5 * (math.log(precision) - LOG_2PI - precision * (y - f).square())
    return (torch.logsumexp(each, 0) - math.log(len(f))).mean()


def best_precision(f: Tensor, y: Tensor, noise: float | None) -> float:
    """Return the precision of the highest log score; 1 / noise if the noise is known.

    Args:
        f: Means at the rows, [draw, n].
        y: Their targets, [n].
        noise: The variance of the noise, or None.
    """
    if noise is not None:
        return 1 / noise
    tiny = torch.finfo(f.dtype).tiny
    start = -math.log(max(float((y - f.mean(0)).square().mean()), tiny))

    def loss(log_precision: float) -> float:
        return -float(log_score(f, y, math.exp(log_precision)))

    grid = [start + step for step in torch.linspace(-3.0, REACH, 37).tolist()]
    middle = min(grid, key=loss)
    reach = (middle - 0.6, middle + 0.6)
    found: Any = optimize.minimize_scalar(loss, bounds=reach, method="bounded")
    return math.exp(float(found.x))
