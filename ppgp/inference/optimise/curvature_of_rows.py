"""The generalised Gauss-Newton matrix of a likelihood of functions of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

from ...capabilities import LikelihoodOfFunctions, require
from ...data.roles import at_rows
from ...density.target import Target
from ...numerics.conjugate_gradients import Product

AT_ONCE = 2**22  # numbers in the Jacobian of a chunk of rows
BLOCKS = 4  # by which a symmetric product is formed


class CurvatureOfRows:
    """Minus the Hessian of the log density at z, up to the second derivatives of the functions.

    The matrix is J' F J + P. J [n K, p] holds the derivatives of the functions of the rows, F the
    Fisher information of the likelihood in them, and P minus the Hessian of the log prior, without
    its negative part if P is diagonal. The rows of the matrix that belong to sites of the
    likelihood, such as its noise, are those of minus the Hessian itself. Schraudolph (2002);
    Martens (2020), section 8.

    Args:
        target: The density.
        jacobian: Whether it includes the log-Jacobian of the transforms.

    Raises:
        NotApplicable: If the model is no likelihood of functions of the rows.
    """

    def __init__(self, target: Target, jacobian: bool) -> None:
        self.target, self.jacobian = target, jacobian
        self.model = require(target.model, LikelihoodOfFunctions)
        self.likelihood = self.model.likelihood_of_functions()
        of_likelihood = set(self.likelihood.sites())
        self.own = [
            i
            for name, s in target.slices.items()
            if name in of_likelihood
            for i in range(s.start, s.stop)
        ]
        self._prior: list[Tensor] = []

    def functions(self, z: Tensor, X: Tensor) -> Tensor:
        """Return the functions of the rows of X at z [p], [K, n]."""
        theta = {name: s.transform(s.of(z)) for name, s in self.target.slices.items()}
        return self.model.functions_of_rows(theta, X)

    def matrix(self, z: Tensor) -> Tensor:
        """Return the matrix at z, [p, p]."""
        z = z.detach()
        data = self.target.data
        A = self._prior_matrix(z)
        for rows in self._chunks(len(z)):
            X, y, w = data.X[rows], data.y[rows], at_rows(data.weights, rows)
            J = self._derivatives(z, X)
            f = self.functions(z, X)
            FJ = self.metric(z, f, w) @ J
            A += _symmetric_product(J.flatten(0, 1), FJ.flatten(0, 1))
            for i, by_own, by_f in self._of_parameters(z, f, y, w):
                across = torch.einsum("kn,nkp->p", by_f, J)
                across[self.own] = 0.0
                A[i] -= across
                A[:, i] -= across
                A[i, self.own] -= by_own[self.own]
        return A

    def product(self, z: Tensor) -> Product:
        """Return the function v [p] -> A v, which forms no matrix, with A that of z."""
        z = z.detach()
        data = self.target.data
        parts = [
            self._product_of(z, data.X[r], data.y[r], at_rows(data.weights, r))
            for r in self._chunks(1)
        ]
        prior = self._prior_product(z)

        def times(v: Tensor) -> Tensor:
            total = prior(v)
            for part in parts:
                total = total + part(v)
            return total

        return times

    def prior_diagonal(self, z: Tensor) -> Tensor | None:
        """Return minus the second derivatives of the log prior [p]; None if any are mixed.

        Negative ones are 0.
        """
        times = self._prior_product(z.detach())
        diagonal = times(torch.ones_like(z))
        signs = 1.0 - 2.0 * (torch.arange(len(z), device=z.device) % 2)
        if not torch.equal(times(signs.to(z)), signs.to(z) * diagonal):
            return None
        return diagonal.clamp_min(0.0)

    def of_likelihood(self, z: Tensor) -> Tensor:
        """Return the block [q, q] of the q coordinates of the likelihood's sites, without prior."""
        data, q = self.target.data, len(self.own)
        total = z.new_zeros(q, q)
        for rows in self._chunks(1):
            f, w = self.functions(z, data.X[rows]), at_rows(data.weights, rows)
            for place, (_, by_own, _) in enumerate(self._of_parameters(z, f, data.y[rows], w)):
                total[place] -= by_own[self.own]
        return total

    def _chunks(self, p: int) -> Iterator[slice]:
        """Yield slices of rows whose Jacobian has few enough numbers."""
        size = max(1, AT_ONCE // (p * self.likelihood.latents))
        n = self.target.data.n
        return (slice(start, min(start + size, n)) for start in range(0, n, size))

    def _parameters(self, z: Tensor) -> dict[str, Tensor]:
        """Return the sites of the likelihood."""
        slices, names = self.target.slices, self.likelihood.sites()
        return {n: s.transform(s.of(z)) for n, s in slices.items() if n in names}

    def metric(self, z: Tensor, f: Tensor, weights: Tensor | None) -> Tensor:
        """Return the Fisher information of the rows in their functions, [n, K, K]."""
        metric = self.likelihood.metric(self._parameters(z), f)
        return metric if weights is None else weights[:, None, None] * metric

    def _derivatives(self, z: Tensor, X: Tensor) -> Tensor:
        """Return the derivatives of the functions by z, [n, K, p]."""

        def of_one(z: Tensor, x: Tensor) -> Tensor:
            return self.functions(z, x[None])[:, 0]

        return vmap(jacrev(of_one), (None, 0))(z, X)

    def _of_parameters(
        self, z: Tensor, f: Tensor, y: Tensor, weights: Tensor | None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield each coordinate i of the likelihood's sites with its second derivatives.

        They are d^2 log p(y given f) / dz_i dz [p] and d^2 log p(y given f) / dz_i df [K, n].
        """
        if not self.own:
            return
        with torch.enable_grad():
            z, f = z.detach().requires_grad_(), f.detach().requires_grad_()
            functions = f if self.likelihood.latents > 1 else f[0]
            density = self.likelihood.distribution(self._parameters(z), functions)
            each = density.log_prob(y)
            total = each.sum() if weights is None else (weights * each).sum()
            (slope,) = torch.autograd.grad(total, z, create_graph=True)
            for i in self.own:
                by_own, by_f = torch.autograd.grad(
                    slope[i], (z, f), retain_graph=True, materialize_grads=True
                )
                yield i, by_own, by_f

    def _product_of(self, z: Tensor, X: Tensor, y: Tensor, weights: Tensor | None) -> Product:
        """Return the function v -> A v without the prior, for some rows."""

        def functions(z: Tensor) -> Tensor:
            return self.functions(z, X)

        f, pullback = vjp(functions, z)[:2]
        metric = self.metric(z, f, weights)
        mixed = list(self._of_parameters(z, f, y, weights))

        def times(v: Tensor) -> Tensor:
            moved = jvp(functions, (z,), (v,))[1]
            weighted = (metric @ moved.mT[..., None])[..., 0].mT
            own = torch.zeros_like(v)
            for i, by_own, by_f in mixed:
                own[i] -= by_own @ v + (by_f * moved).sum()
                weighted = weighted - v[i] * by_f
            return own + pullback(weighted)[0]

        return times

    # -- the prior ------------------------------------------------------------------------------

    def _slope_of_prior(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return z and the gradient of the log prior, as functions of which autograd knows."""
        first = self.target.tables(torch.zeros(1, dtype=torch.long))  # one row runs the priors
        z = z.detach().requires_grad_()
        # flat priors do not depend on z
        log_prior = self.target.joint(z, first, self.jacobian, likelihood=False) + 0.0 * z.sum()
        (slope,) = torch.autograd.grad(log_prior, z, create_graph=True)
        return z, slope

    def _prior_product(self, z: Tensor) -> Product:
        with torch.enable_grad():
            z, slope = self._slope_of_prior(z)

        def times(v: Tensor) -> Tensor:
            if not slope.requires_grad:
                return torch.zeros_like(v)
            (found,) = torch.autograd.grad(slope, z, v, retain_graph=True, materialize_grads=True)
            return -found

        return times

    def _prior_matrix(self, z: Tensor) -> Tensor:
        """Return P [p, p]; a quadratic log prior, which has one P, is not differentiated again."""
        if len(self._prior) == 2 and torch.equal(*self._prior):
            return self._prior[0].clone()
        with torch.enable_grad():
            z, slope = self._slope_of_prior(z)
            P = torch.zeros(len(z), len(z)).to(slope)
            if slope.requires_grad:
                eye = torch.eye(len(z)).to(slope)
                (found,) = torch.autograd.grad(
                    slope, z, eye, is_grads_batched=True, materialize_grads=True
                )
                P = -found
        diagonal = P.diagonal()
        if not bool((P - torch.diag(diagonal)).any()):
            P = torch.diag(diagonal.clamp_min(0.0))
        self._prior = [*self._prior, P][-2:]
        return P.clone()


def _symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """Return A' B [p, p], which is known to be symmetric: its upper blocks are not computed."""
    p = A.shape[1]
    out = torch.empty(p, p, dtype=A.dtype, device=A.device)
    ends = [round(i * p / BLOCKS) for i in range(BLOCKS + 1)]
    for start, end in pairwise(ends):
        block = A[:, start:end].mT @ B[:, :end]
        out[start:end, :end] = block
        out[:start, start:end] = block[:, :start].mT
    return out
