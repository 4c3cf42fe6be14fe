"""Rows whose coefficients vary between groups, with these coefficients integrated out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ...distributions.univariate import JointRows
from ...likelihoods import Likelihood
from ...likelihoods.joint_rows import LikelihoodRows
from ...numerics.cholesky import LOG_2PI
from .grouped_effects import Blocks, grouped_log_evidence

Parameters = tuple[Tensor, ...]


class GaussianRows:
    """The log densities of targets with Gaussian noise, of which a part may be known.

    Args:
        y: The targets [n].
        noise_sd: The known sd of each row [n]; None: 0.
    """

    def __init__(self, y: Tensor, noise_sd: Tensor | None) -> None:
        self.y = y
        self.known = 0.0 if noise_sd is None else noise_sd.square()

    def log_prob(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return log p(y_i | f_i), [n]."""
        variance = parameters[0] + self.known
        return -0.5 * (LOG_2PI + variance.log() + (self.y - f).square() / variance)

    def slopes(self, f: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return its first and second derivative by f_i, [n]."""
        variance = parameters[0] + self.known
        return (self.y - f) / variance, (-1 / variance).expand(f.shape)

    def step_curvature(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return minus its second derivative by f_i, [n]."""
        return -self.slopes(f, parameters)[1]

    def quadratic(self, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """Return y [n], the precisions [n] or [1], and the log density at f = y, []."""
        variance = (parameters[0] + self.known).reshape(-1)
        each = LOG_2PI + variance.log()
        return self.y, 1 / variance, -0.5 * (len(self.y) / len(each)) * each.sum()


class WeightedRows:
    """Rows that count as several equal ones.

    Args:
        rows: The log densities of the rows.
        weights: How many rows each row counts as, [n].
    """

    def __init__(self, rows: Any, weights: Tensor) -> None:
        self.rows, self.weights = rows, weights

    def _times(self, value: Tensor) -> Tensor:
        return torch.where(self.weights > 0, self.weights * value, 0.0)

    def log_prob(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return the log density of each row, [n]."""
        return self._times(self.rows.log_prob(f, parameters))

    def slopes(self, f: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return its first and second derivative by f_i, [n]."""
        first, second = self.rows.slopes(f, parameters)
        return self._times(first), self._times(second)

    def step_curvature(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return minus a curvature for steps where it is not concave, [n]."""
        return self._times(self.rows.step_curvature(f, parameters))

    def quadratic(self, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """Return y [n], the precisions [n], and the log density at f = y, []."""
        y, precision, _ = self.rows.quadratic(parameters)
        return y, self._times(precision), self.log_prob(y, parameters).sum()


def rows_of(
    likelihood: Likelihood,
    names: Sequence[str],
    y: Tensor,
    gaussian: bool,
    noise_sd: Tensor | None,
    weights: Tensor | None,
) -> Any:
    """Return the log densities of rows.

    Args:
        likelihood: The likelihood, with the trials of the rows.
        names: Its sites that are not fixed.
        y: The targets [n].
        gaussian: Whether the noise is Gaussian; its variance is then the only parameter.
        noise_sd: The known noise of each row [n].
        weights: How many rows each row counts as, [n].
    """
    rows: Any
    rows = GaussianRows(y, noise_sd) if gaussian else LikelihoodRows(likelihood, names, y)
    return rows if weights is None else WeightedRows(rows, weights)


class GroupedRows(JointRows):
    """y at all rows, with the coefficients of groups integrated out.

    Args:
        blocks: The matrix of the coefficients.
        sd: [1, m], their sds.
        loc: [n], f without them.
        rows: The function y [n] -> the log densities of the rows.
        parameters: Those of the rows.
        gaussian: Whether the rows are Gaussian, so that the log density is exact.
        given: (f, its variance or None) -> the distribution of y.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property

    def __init__(
        self,
        blocks: Blocks,
        sd: Tensor,
        loc: Tensor,
        rows: Callable[[Tensor], Any],
        parameters: Parameters,
        gaussian: bool,
        given: Callable[[Tensor, Tensor | None], Distribution],
    ) -> None:
        self.blocks, self.sd, self.loc = blocks, sd, loc
        self.rows, self.parameters, self.gaussian, self.given = rows, parameters, gaussian, given
        super().__init__(torch.Size(), loc.shape, validate_args=False)

    @property
    def support(self) -> object:  # type: ignore[override] # a class attribute in Pyro
        """The support of y."""
        return constraints.independent(self.given(self.loc, None).support, 1)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GroupedRows:
        """Return this distribution; it has no batch."""
        assert not tuple(batch_shape)
        return self

    def by_row(self) -> Distribution:
        return self.given(self.loc, (self.blocks.features * self.sd).square().sum(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of all rows together."""
        rows = self.rows(value)
        return grouped_log_evidence(
            self.blocks, self.sd, self.loc, rows, self.parameters, self.gaussian
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw the coefficients, then y given them."""
        assert not tuple(sample_shape)
        with torch.no_grad():
            shape = (self.blocks.count, self.blocks.features.shape[1])
            u = self.sd * torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
            f = self.loc + self.blocks.of_rows(u)
            return self.given(f, None).sample().to(f)
