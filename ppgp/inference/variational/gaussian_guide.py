"""Gaussian guides over z in R^p, for the guides "normal" and "multivariate_normal" of SVI.

z = origin + root w,  w = loc + exp(log_scale) * (T e),  e ~ N(0, I), with T unit lower triangular
(the identity for mean field). Origin and root are fixed: the optimiser works on w, in which a
posterior near its Laplace approximation is near N(0, I).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...data.training_data import Rows
from ...density.target import Target
from ...numerics.cholesky import LOG_2PI

GRADIENTS = ("pathwise", "score", "score_baseline")


class GaussianGuide:
    """The parameters of a Gaussian guide, their gradients, and draws.

    Args:
        origin: The fixed part of the mean, [p].
        root: The fixed coordinates, [p, p]; diagonal unless ``correlated``.
        correlated: Whether the covariance is full; else it is diagonal.
    """

    def __init__(self, origin: Tensor, root: Tensor, correlated: bool) -> None:
        self.origin, self.root, self.correlated = origin, root, correlated
        self.log_det_root = float(torch.linalg.slogdet(root).logabsdet)
        self.loc, self.log_scale = torch.zeros_like(origin), torch.zeros_like(origin)
        several = correlated and len(origin) > 1  # one number has no correlation
        self.lower = torch.zeros_like(root) if several else None

    def copy(self) -> GaussianGuide:
        """Return a guide with its own copy of the parameters."""
        other = GaussianGuide(self.origin, self.root, self.correlated)
        for mine, theirs in zip(self.parameters(), other.parameters(), strict=True):
            theirs.copy_(mine)
        return other

    def parameters(self) -> list[Tensor]:
        """Return the tensors that an optimiser changes in place."""
        if self.lower is None:
            return [self.loc, self.log_scale]
        return [self.loc, self.log_scale, self.lower]

    def _unit(self) -> Tensor | None:
        """Return T [p, p]; None for a mean-field guide."""
        if self.lower is None:
            return None
        return self.lower + torch.eye(len(self.loc), dtype=self.loc.dtype, device=self.loc.device)

    def _mixed(self, e: Tensor) -> Tensor:
        """Return T e for rows e [..., p]."""
        return e if self.lower is None else e + e @ self.lower.mT

    def draw(self, e: Tensor) -> Tensor:
        """Return z [..., p] from standard normal e [..., p]."""
        return self.origin + (self.loc + self.log_scale.exp() * self._mixed(e)) @ self.root.mT

    def log_prob(self, e: Tensor) -> Tensor:
        """Return log q(draw(e)), [...]."""
        return (
            -0.5 * e.square().sum(-1)
            - self.log_scale.sum()
            - self.log_det_root
            - 0.5 * e.shape[-1] * LOG_2PI
        )

    def estimates(
        self, target: Target, e: Tensor, kind: str = "pathwise", batch: Rows | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return unbiased estimates of the ELBO and of its gradient, one per draw.

        Args:
            target: The density.
            e: Standard normal draws, [k, p].
            kind: The estimate of the gradient.
                "pathwise": d/dw [log p - log q] carried back to the parameters, without the score
                of the guide, so that the variance is zero if q equals p ("sticking the landing",
                Roeder, Wu & Duvenaud 2017).
                "score": (log p - log q) times the score of q (Ranganath, Gerrish & Blei 2014,
                equation 3).
                "score_baseline": the same with a control variate a * score, whose coefficient for
                each parameter, E[f h^2] / E[h^2], is estimated from the other draws (Ranganath,
                Gerrish & Blei 2014, section 3.2); k >= 2.
            batch: The rows of a mini-batch; None: all rows.

        Returns:
            The ELBOs [k], and one gradient [k, *shape] per parameter.
        """
        scale = self.log_scale.exp()
        mixed = self._mixed(e)
        z = self.origin + (self.loc + scale * mixed) @ self.root.mT
        if len(e) == 1:
            value, slope = (x[None] for x in target.value_and_grad(z[0], batch))
        else:
            value, slope = target.value_and_grad_batch(z, batch)
        f = value - self.log_prob(e)
        unit = self._unit()
        whitened = e
        if unit is not None:
            solved = torch.linalg.solve_triangular(unit.mT, e.mT, upper=True, unitriangular=True)
            whitened = solved.mT
        if kind == "pathwise":
            force = slope @ self.root + whitened / scale
            gradients = [force, force * scale * mixed]
            if self.lower is not None:
                gradients.append(((force * scale)[:, :, None] * e[:, None, :]).tril(-1))
            return f, gradients
        scores = [whitened / scale, whitened * mixed - 1]
        if self.lower is not None:
            scores.append((whitened[:, :, None] * e[:, None, :]).tril(-1))
        return f, [_weighted(f, h, baseline=kind == "score_baseline") for h in scores]

    def evaluate(
        self, target: Target, e: Tensor, at_a_time: int | None = None, batch: Rows | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the ELBOs [k] of draws e [k, p], and the gradients [k, p] of the log density.

        ``at_a_time`` limits how many draws are evaluated together, in a fit of a few dozen
        evaluations; ``batch`` holds the rows of a mini-batch.
        """
        z, few = self.draw(e), at_a_time is not None
        parts = [
            target.value_and_grad_batch(part, batch, few) for part in z.split(at_a_time or len(z))
        ]
        value, slope = (torch.cat(part) for part in zip(*parts, strict=True))
        return value - self.log_prob(e), slope

    def natural_step(self, e: Tensor, slope: Tensor, rate: float) -> bool:
        """Take one step along the natural gradient.

        The precision moves by the retraction of Lin, Schmidt & Khan (2020), equation 11, which
        keeps it positive definite. The expected Hessian is estimated from gradients (Stein's
        lemma). The score of q is subtracted from both, so that there is no noise at the optimum of
        a Gaussian target.

        Args:
            e: Standard normal draws, [k, p].
            slope: The gradients of the log density at these draws, from ``evaluate``, [k, p].
            rate: The size of the step.

        Returns:
            False if no step was possible.
        """
        scale = self.log_scale.exp()
        unit = self._unit()
        pull = self._pull(e, slope)
        if unit is None:
            G = -(e * pull).mean(0)
            self.loc += rate * scale * pull.mean(0)
            self.log_scale -= 0.5 * torch.log1p(rate * G + 0.5 * (rate * G).square())
            return True
        G = -0.5 * (e.mT @ pull + pull.mT @ e) / len(e)
        I = torch.eye(len(G), dtype=G.dtype, device=G.device)  # noqa: E741
        L = scale[:, None] * unit
        new, failed = torch.linalg.cholesky_ex(I + rate * G + 0.5 * rate**2 * G @ G)
        if int(failed):  # the density does not exist at some draw
            return False
        self.loc += rate * L @ pull.mean(0)
        half = torch.linalg.solve_triangular(new, L.mT, upper=False)
        L = torch.linalg.cholesky(half.mT @ half)
        self.log_scale.copy_(L.diagonal().log())
        assert self.lower is not None
        self.lower.copy_((L / L.diagonal()[:, None]).tril(-1))
        return True

    def _pull(self, e: Tensor, slope: Tensor) -> Tensor:
        """Return the gradients [k, p] of log p - log q at draws e, in the coordinates of e."""
        slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0) @ self.root
        slope, unit = slope * self.log_scale.exp(), self._unit()
        return slope + e if unit is None else slope @ unit + e

    def loss_of_draws(self, e: Tensor, slope: Tensor) -> float:
        """Return about how far the ELBO is from its best, in nats, at the optimum over draws.

        The natural gradient has a sampling error there, and a step of that error costs a quarter of
        the square of its covariance. What it does to the mean is left out: a skew density pulls
        it by a quadratic function, over which matched draws are exact. White (1982) has the error
        of such an optimum.

        Args:
            e: Draws in pairs, the second half minus the first, [k, p].
            slope: The gradients of the log density at these draws, from ``evaluate``, [k, p].
        """
        own, pairs = e[: len(e) // 2], len(e) // 2
        pull = self._pull(e, slope)
        odd = 0.5 * (pull[:pairs] - pull[pairs:])
        if self.lower is None:
            return 0.25 * float((own * odd).var(0).sum()) / pairs
        # of the matrices (own odd' + odd own') / 2
        squares = own.square().sum(1) * odd.square().sum(1) + (own * odd).sum(1).square()
        mean = 0.5 * (own.mT @ odd + odd.mT @ own) / pairs
        spread = 0.5 * squares.mean() - mean.square().sum()
        return 0.25 * float(spread) / (pairs - 1)

    def rise(self, e: Tensor, slope: Tensor) -> float:
        """Return about how many nats a natural step raises the ELBO over draws by.

        The arguments are those of ``natural_step``.
        """
        pull = self._pull(e, slope)
        G = 0.5 * (e.mT @ pull + pull.mT @ e) / len(e)
        if self.lower is None:
            G = G.diagonal()
        return 0.5 * float(pull.mean(0).square().sum()) + 0.25 * float(G.square().sum())


def _weighted(f: Tensor, h: Tensor, baseline: bool) -> Tensor:
    """Return f h, or (f - a) h with the coefficient a estimated from the other draws."""
    f = f.reshape(-1, *[1] * (h.ndim - 1))
    if not baseline:
        return f * h
    square = h.square()
    above, below = (f * square).sum(0) - f * square, square.sum(0) - square
    return (f - torch.where(below > 0, above / below, torch.zeros_like(below))) * h
