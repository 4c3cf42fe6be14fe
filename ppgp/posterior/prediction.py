"""Prediction: the predictive distribution of y at new rows, in the units of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.entries.arrays import advice_on_targets, as_tensor, one_per_row
from ..data.entries.row_numbers import chosen_rows
from ..distributions import mixture, mixture_crps, univariate
from ..distributions.blocks import each_block, sampled
from ..distributions.known_in_part import KnownInPart
from ..distributions.rows_on_demand import RowsOnDemand
from ..errors import DataError, NotApplicable, SettingError, counted, listed
from ..numerics.finite import all_finite
from ..provenance.provenance import Provenance
from ..runtime.seeding import stream
from ..runtime.threads import ELEMENT, limited_by
from . import frames
from .given_predictions import GivenPredictions
from .origin import Origin
from .region import Region, exact_level

__all__ = ["Prediction"]

QUARTILES = 1.3489795003921634  # interquartile range of N(0, 1)


def _work(prediction: Prediction, *_: Any, **__: Any) -> float:
    """Estimate the multiplications of an elementwise function of all draws and rows."""
    return ELEMENT * prediction.draws * len(prediction)


@dataclass(frozen=True, eq=False)
class Prediction(GivenPredictions):
    """The predictive distribution of y at n rows: a mixture with equal weights over the draws.

    All statistics are those of the mixture: ``quantile`` is its true quantile, not the mean of
    the draws' quantiles, and ``log_prob`` the log of the mean density, not the mean of logs.
    Means, standard deviations, quantiles and ``crps`` are in the units of y; ``log_prob`` is in
    nats. Gneiting & Raftery (2007), section 4.2, for the CRPS.

    Args:
        distribution: Batch [draw, n] (or [n], one draw); or a joint distribution over the rows,
            with batch [draw] and event [n].
        offset: The offset in y = offset + scale * z, where z has this distribution: one number, or
            one for each row [n]. A standardised model predicts in the units of the data this way.
        scale: See ``offset``; positive.
        classes: Names of the labels, for Bernoulli and Categorical.
        in_training: Which rows are training rows: [n] bool, or a Provenance that decides it once
            their y are known; see ``in_training_with``.
        origin: The fit and the method that made it; None if they are not known. Conformal sets
            are guaranteed for predictions of one origin.

    Raises:
        DataError: If the distribution has neither of these shapes, if an offset or a scale is
            neither one number nor one for each row, or not finite, or if a scale is not positive.

    Examples:
        The mixture of N(-1, 1) and N(1, 1) has mean 0. Its variance of 2 is the sum of the
        variance between the draws and the variance within a draw:

        >>> import torch
        >>> from torch.distributions import Normal
        >>> import ppgp
        >>> two_draws = Normal(torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1))
        >>> prediction = ppgp.Prediction(two_draws)
        >>> prediction.mean, prediction.variance
        (tensor([0.]), tensor([2.]))
        >>> prediction.epistemic, prediction.aleatoric
        (tensor([1.]), tensor([1.]))
        >>> prediction.cdf([0.0])
        tensor([0.5000])

        In the units of the data, here y = 20 + 3 z:

        >>> rows = Normal(torch.zeros(1, 2), torch.ones(1, 2))
        >>> prediction = ppgp.Prediction(rows, offset=20.0, scale=3.0)
        >>> prediction.quantile([0.5, 0.975]).round(decimals=2)
        tensor([[20.0000, 20.0000],
                [25.8800, 25.8800]])
        >>> prediction.interval(0.9).covers([21.0, 26.0])
        tensor([ True, False])
    """

    distribution: Distribution
    offset: float | Tensor = 0.0
    scale: float | Tensor = 1.0
    classes: tuple[Any, ...] | None = None
    in_training: Tensor | Provenance | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        d = self.distribution
        if not isinstance(d, Distribution):
            do = "for example Normal(mean, sd)"
            raise DataError("a torch or Pyro distribution", type(d).__name__, do)
        if len(d.batch_shape) + len(d.event_shape) == 1:
            d = d.expand(torch.Size([1]) + d.batch_shape)
            object.__setattr__(self, "distribution", d)
        if len(d.batch_shape) + len(d.event_shape) != 2 or len(d.event_shape) > 1:
            got = f"batch {list(d.batch_shape)}, event {list(d.event_shape)}"
            wanted = "a distribution with batch [draw, n], or batch [draw] and event [n]"
            raise DataError(wanted, got, "reshape its parameters")
        for name in ("offset", "scale"):
            object.__setattr__(self, name, self._of_each_row(name))
        flags = self.in_training
        if flags is not None and not isinstance(flags, Provenance):
            do = "pass a mask of shape [n]"
            flags = one_per_row(flags, len(self), "flag", do, "in_training").bool()
            object.__setattr__(self, "in_training", flags)

    def _of_each_row(self, name: str) -> float | Tensor:
        """Return the offset or the scale: one number, or a tensor [n].

        Raises:
            DataError: If it has another shape, is not finite, or is a scale that is not positive.
        """
        value = getattr(self, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers = torch.tensor(float(value), dtype=torch.float64)
        else:
            if not (isinstance(value, Tensor) and value.is_floating_point()):
                value = as_tensor(value, name)
            d = self.distribution
            family = d.first if isinstance(d, RowsOnDemand) else d
            # all figures have the dtype of the distribution
            value = value.to(next(iter(univariate.parameters(family).values()), value))
            if value.numel() == 1 and value.ndim < 2:
                value = value.reshape(())
            numbers = value.detach()
        if numbers.ndim and numbers.shape != (len(self),):
            wanted = f"one {name}, or one for each of {counted(len(self), 'row')}"
            raise DataError(wanted, f"shape {list(numbers.shape)}", f"pass {name} with shape [n]")
        wanted, usable = f"a finite {name}", torch.isfinite(numbers)
        if name == "scale":
            wanted, usable = "a finite scale above 0", usable & (numbers > 0)
        if not bool(usable.all()):
            wrong = numbers[~usable].flatten().tolist()
            got = f"{wrong[0]:g}"
            if numbers.ndim:
                got = f"others in {listed(torch.nonzero(~usable).flatten().tolist(), 'row')}"
            raise DataError(wanted, got, "check what it was computed from")
        return value

    def in_training_with(self, y: Any) -> Tensor:
        """Return which rows are training rows with this y, as [n] bool.

        A row with the same x and another y (beyond rounding) is a new row.

        Args:
            y: The targets [n] of these rows.

        Raises:
            DataError: If there is not one y per row.
        """
        y = one_per_row(y, len(self), do="pass the y of those rows")
        if isinstance(self.in_training, Provenance):
            return self.in_training.in_training_with(y)
        if self.in_training is None:
            return torch.zeros(len(self), dtype=torch.bool)
        return self.in_training

    def alike_with(self, y: Any) -> Tensor:
        """Return which rows equal a training row with this y, whether by chance or not, [n] bool.

        Where most do and chance explains as many, as with few different x and y,
        ``in_training_with`` cannot tell training rows from new ones.

        Args:
            y: The targets [n] of these rows.

        Raises:
            DataError: If there is not one y per row.
        """
        y = one_per_row(y, len(self), do="pass the y of those rows")
        if isinstance(self.in_training, Provenance):
            return self.in_training.alike_with(y)
        return self.in_training_with(y)

    @property
    def joint(self) -> bool:
        """Whether this is one joint distribution over all rows."""
        return len(self.distribution.event_shape) == 1

    @property
    def _rows(self) -> Distribution:
        d = self.distribution
        return univariate.marginals(d) if d.event_shape else d

    @property
    def by_row(self) -> Prediction:
        """The marginal distribution of each row; the prediction itself if it is not joint."""
        if not self.joint:
            return self
        return replace(self, distribution=self._rows)

    @property
    def kind(self) -> Literal["continuous", "count", "classes"]:
        """The kind of y."""
        if univariate.is_classes(self._rows):
            return "classes"
        return "count" if univariate.is_discrete(self._rows) else "continuous"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters of the distribution, and of all statistics."""
        return univariate.like(self._rows).dtype

    @property
    def draws(self) -> int:
        """The number of posterior draws."""
        return self.distribution.batch_shape[0]

    def __len__(self) -> int:
        return (*self.distribution.batch_shape, *self.distribution.event_shape)[1]

    def __getitem__(self, index: Any) -> Prediction:
        """Return the prediction of some rows.

        Args:
            index: The number of a row, several numbers, a slice, or a mask [n] of booleans: a list,
                an array, a tensor or a column of pandas. Negative numbers count from the end.

        Raises:
            NotApplicable: If the prediction is joint.
            DataError: If the index is none of these, or there is no such row.
        """
        if self.joint:
            do = "predict the rows wanted, or predict without joint=True"
            raise NotApplicable("a distribution per row", "a joint one", do)
        rows = chosen_rows(index, len(self))
        in_training = self.in_training
        if in_training is not None:
            in_training = in_training[rows]
        distribution = univariate.take(self.distribution, rows)
        offset, scale = self.units_of(rows)
        return replace(
            self, distribution=distribution, offset=offset, scale=scale, in_training=in_training
        )

    def units_of(self, rows: Tensor) -> tuple[float | Tensor, float | Tensor]:
        """Return the offset and the scale of some rows: one number each, or one for each of them.

        Args:
            rows: The numbers of the rows, [k].
        """
        offset, scale = (
            value[rows] if isinstance(value, Tensor) and value.ndim else value
            for value in (self.offset, self.scale)
        )
        return offset, scale

    def __repr__(self) -> str:
        rows = self._rows.first if isinstance(self._rows, RowsOnDemand) else self._rows
        family = type(rows).__name__
        joint = "joint " * self.joint
        parts = f"{joint}mixture of {self.draws} {family}"
        return f"<Prediction of {len(self)} rows: {self.kind}, {parts}>"

    def _numbers(self, wanted: str) -> Distribution:
        """Return the distribution of each row, which must be one of numbers.

        Raises:
            NotApplicable: If y is a class.
        """
        rows = self._rows
        if univariate.is_classes(rows):
            do = "use .probabilities, label sets (conformal.LAC), Brier or log loss"
            raise NotApplicable(f"a number for y to have a {wanted}", "classes", do)
        return rows

    def _inside(self, y: Any) -> Tensor:
        """Return y, checked, on the scale of the distribution.

        Raises:
            DataError: If there is not one y per row, or a label is not known.
        """
        rows = self._rows
        like = univariate.like(rows)
        y = as_tensor(y, "y").to(like)
        if y.shape[-1:] != (len(self),):
            got = f"shape {list(y.shape)}"
            do = advice_on_targets(y, len(self), "y", "pass y with shape [n]")
            raise DataError(f"one y per row ({len(self)})", got, do)
        if self.kind == "classes":
            known = univariate.probabilities(univariate.take(rows, slice(0, 1))).shape[-1]
            strange = y[~((y == y.round()) & (y >= 0) & (y < known))].unique().tolist()
            if strange:
                wanted = f"labels among the {known} of the training rows (codes 0 to {known - 1})"
                got = ", ".join(f"{v:g}" for v in strange[:5])
                raise DataError(wanted, got, "drop those rows")
        return (y - self.offset) / self.scale

    @property
    def mean(self) -> Tensor:
        """The mean of y, [n]."""
        return self.offset + self.scale * mixture.mean(self._numbers("mean"))

    @property
    def variance(self) -> Tensor:
        """The variance of y [n] in squared units, the sum of epistemic and aleatoric."""
        return self.scale * self.scale * mixture.moments(self._numbers("variance"))[1]

    @property
    def std(self) -> Tensor:
        """The standard deviation of y, [n]."""
        return self.scale * mixture.sd(self._numbers("sd"))

    @property
    def centre(self) -> Tensor:
        """The mean [n], or the median where the distribution has no finite mean."""
        if isinstance(self._rows, KnownInPart):
            return self.offset + self.scale * self._rows.centre
        mean = self.mean
        if all_finite(mean):
            return mean
        bad = torch.nonzero(~torch.isfinite(mean)).flatten()
        return mean.index_copy(0, bad, self.by_row[bad].quantile(0.5))

    @property
    def spread(self) -> Tensor:
        """The sd [n], or the interquartile range over 1.349 where the sd is not in (0, inf).

        1.349 is the interquartile range of N(0, 1). The sd of the mixture is infinite as soon as
        one draw is a Student's t with at most 2 degrees of freedom.
        """
        if isinstance(self._rows, KnownInPart):
            return self.scale * self._rows.spread
        sd = self.std
        if all_finite(sd) and bool((sd > 0).all()):
            return sd
        bad = torch.nonzero(~(torch.isfinite(sd) & (sd > 0))).flatten()
        part = self.by_row[bad]
        return sd.index_copy(0, bad, (part.quantile(0.75) - part.quantile(0.25)) / QUARTILES)

    @property
    def epistemic(self) -> Tensor:
        """The variance [n] of the mean of y between draws, which more data would reduce.

        It is 0 for a single draw. A model that integrates the latent function in closed form has
        this uncertainty within each draw, where it counts as aleatoric.
        """
        rows = self._numbers("variance")
        between = each_block(lambda block: block.mean.var(0, correction=0), rows)
        return self.scale * self.scale * between

    @property
    def aleatoric(self) -> Tensor:
        """The mean over draws of the variance of y given the draw, [n]."""
        within = each_block(lambda block: block.variance.mean(0), self._numbers("variance"))
        return self.scale * self.scale * within

    @property
    def probabilities(self) -> Tensor:
        """The probability of each class, [n, K], averaged over draws.

        Raises:
            NotApplicable: If y is not a class.
        """
        if self.kind != "classes":
            got = f"a {self.kind} distribution"
            raise NotApplicable("classes for y", got, "use .cdf or .quantile")
        classes = univariate.probabilities(univariate.take(self._rows, slice(0, 1))).shape[-1]

        def averaged(block: Distribution) -> Tensor:
            return univariate.probabilities(block).mean(0).mT

        return each_block(averaged, self._rows, share=classes).mT

    @limited_by(_work)
    def cdf_by_draw(self, y: Any) -> Tensor:
        """Return P(Y <= y) under each posterior draw, [draw, n] for y [n]; ``cdf`` is its mean."""
        return each_block(univariate.cdf, self._numbers("cdf"), self._inside(y))

    @limited_by(_work)
    def cdf(self, y: Any) -> Tensor:
        """Return P(Y <= y), [..., n] for y [..., n]."""
        return mixture.cdf(self._numbers("cdf"), self._inside(y))

    @limited_by(_work)
    def log_tails(self, y: Any) -> tuple[Tensor, Tensor]:
        """Return (log P(Y <= y), log P(Y > y)), [n] each for y [n].

        Both have full relative precision, however far in the tails y lies.

        Raises:
            NotApplicable: If y is not continuous.
        """
        below, above = mixture.log_tails(self._with_tails(), self._inside(y))
        return below, above

    @limited_by(_work)
    def log_tail(self, y: Any, upper: bool = False) -> Tensor:
        """Return log P(Y <= y), or log P(Y > y) if ``upper``, [n]; equal to ``log_tails``."""
        return mixture.log_tail(self._with_tails(), self._inside(y), upper)

    def _with_tails(self) -> Distribution:
        if self.kind != "continuous":
            wanted = "a continuous y for the logarithm of a tail"
            raise NotApplicable(wanted, self.kind, "use .cdf or .probabilities")
        return self._rows

    @limited_by(_work)
    def tail_quantile(self, log_p: Tensor, upper: bool = False) -> Tensor:
        """Return y [n] with log P(Y <= y) = log_p [n], or log P(Y > y) = log_p if ``upper``.

        It is exact to about 60 units of rounding.
        """
        rows = self._rows
        inside = mixture.tail_quantile(rows, log_p.to(mixture.middle(rows)), upper)
        return self.offset + self.scale * inside

    @limited_by(_work)
    def quantile(self, p: Any) -> Tensor:
        """Return the p-quantile of the mixture; of counts, the smallest number with cdf >= p.

        Args:
            p: A probability; k of them; or a table [k, n] with a probability for each row.

        Returns:
            [n] for one probability, otherwise [k, n], one line per probability.

        Raises:
            SettingError: If p lies outside (0, 1), or is a table with another number of rows.
        """
        each = as_tensor(p, "p", torch.float64)
        if not bool(((each > 0) & (each < 1)).all()):
            raise SettingError("a probability in (0, 1)", repr(p), "for example 0.05")
        if each.ndim == 1:
            each = each[:, None]
        if each.ndim > 2 or (each.ndim == 2 and each.shape[1] not in (1, len(self))):
            wanted = f"a probability, several, or a table with one for each of {len(self)} rows"
            got = f"shape {list(each.shape)}"
            raise SettingError(wanted, got, "for example p.quantile([0.1, 0.9])")
        return self.offset + self.scale * mixture.quantile(self._numbers("quantile"), each)

    to_frame = frames.to_frame  # defined beside its code
    _repr_html_ = frames.prediction_as_html

    def interval(self, level: float = 0.9) -> Region:
        """Return the central predictive interval. Its coverage is right only if the model is."""
        alpha = float(1 - exact_level(level))
        lower, upper = self.quantile(alpha / 2), self.quantile(1 - alpha / 2)
        guarantee = "none beyond the model: the central posterior predictive interval"
        return Region(level, guarantee, lower, upper)

    @limited_by(_work)
    def log_prob(self, y: Any) -> Tensor:
        """Return the log density (or mass) of the mixture at y: [n], or a scalar if joint."""
        y = self._inside(y)
        log_scale = y.new_zeros(())
        if self.kind == "continuous":
            log_scale = torch.log(torch.as_tensor(self.scale, dtype=y.dtype, device=y.device))

        def mixed(block: Distribution, y: Tensor) -> Tensor:
            each = univariate.log_prob(block, y)
            return torch.logsumexp(each, 0) - math.log(self.draws)

        if self.joint:
            return mixed(self.distribution, y) - log_scale.expand(len(self)).sum()
        return each_block(mixed, self.distribution, y) - log_scale

    @limited_by(_work)
    def crps(self, y: Any) -> Tensor:
        """Return the continuous ranked probability score [n], in the units of y."""
        return self.scale * mixture_crps.crps(self._numbers("CRPS"), self._inside(y))

    def pit(self, y: Any, seed: int = 0) -> Tensor:
        """Return the probability integral transform [n], which is uniform if the model is right.

        For counts it is randomised between F(y - 1) and F(y).
        """
        rows, inside = self._numbers("PIT"), self._inside(y)
        upper = mixture.cdf(rows, inside)
        if self.kind == "continuous":
            return upper
        below = mixture.cdf(rows, inside - 1)
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(upper.shape, generator=generator, dtype=upper.dtype, device="cpu")
        return below + uniform.to(upper) * (upper - below)

    @limited_by(_work)
    def sample(self, k: int = 1, seed: int = 0) -> Tensor:
        """Return k draws of y, [k, n]: a posterior draw at random, then y given this draw.

        The rows of a joint distribution are drawn jointly.

        Raises:
            SettingError: If k is no whole number, or negative.
        """
        if not isinstance(k, Integral) or k < 0:
            wanted = "a whole number of draws"
            raise SettingError(wanted, repr(k)[:60], "for example 100")
        parameter = univariate.like(self._rows)

        def in_data_units(values: Tensor) -> Tensor:
            return self.offset + self.scale * values.to(parameter)

        with stream(seed, parameter.device), torch.no_grad():
            return sampled(self.distribution, k, in_data_units)
