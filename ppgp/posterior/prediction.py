"""Prediction: the predictive distribution of y at new rows, in the units of the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..data.entries.arrays import advice_on_targets, array_of, as_tensor, one_per_row
from ..data.entries.row_numbers import chosen_rows
from ..display import tables as html
from ..distributions import mixture, univariate
from ..distributions.blocks import each_block, sampled
from ..distributions.crps import crps
from ..distributions.known_in_part import CountMass, KnownInPart, Points, QuantileFunction
from ..distributions.rows_on_demand import RowsOnDemand
from ..errors import DataError, NotApplicable, SettingError, counted, listed
from ..numerics.finite import all_finite
from ..provenance.provenance import Provenance
from ..runtime.fingerprint import fingerprint
from ..runtime.levels import exact_level
from ..runtime.seeding import stream
from ..runtime.threads import ELEMENT, limited_by
from ..runtime.whole_numbers import check_seed
from .region import Region, label_sets, numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Origin", "Prediction"]

QUARTILES = 1.3489795003921634  # interquartile range of N(0, 1)
ROUNDED_QUARTILES = 1.34  # the same in the bandwidth of Silverman (1986)
SUM_TOLERANCE = 1e-3  # of the probabilities of one row, which half precision rounds
AT_A_POINT = 1e-3  # of the sd of draws, half of which or more are equal
FEWEST_DRAWS = 2
INFINITE = "NaN or infinity"
SHOWN = 5  # rows that a notebook shows
LEVEL = 0.9  # of the interval that it shows


@dataclass(frozen=True, eq=False)
class Origin:
    """The function of one row that gave a prediction.

    Attributes:
        fit: The posterior.
        method: Its method, in words.
        settings: What the method was told, one value for all rows.
        unknown: () -> why it cannot be told which rows are training rows; "" where it can.
        site: The name of what is predicted.
    """

    fit: Any  # posterior.py imports this module
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    unknown: Callable[[], str] = str
    site: str = "y"


def _work(prediction: Prediction, *_: Any, **__: Any) -> float:
    """Estimate the multiplications of an elementwise function of all draws and rows."""
    return ELEMENT * prediction.draws * len(prediction)


@dataclass(frozen=True, eq=False)
class Prediction:
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
        deterministic: Values of the ``pyro.deterministic`` sites of a program at the draws of the
            prediction, {site: [draw, ...]}.

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
    deterministic: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

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
        for name, least in (("offset", -math.inf), ("scale", 0.0)):
            value = getattr(self, name)
            usual = type(value) is float
            if isinstance(value, Tensor) and isinstance(d, torch.distributions.Normal):
                alike = value.dtype == d.loc.dtype and value.device == d.loc.device
                usual = alike and value.ndim == 0 and not value.requires_grad
            if not (usual and least < float(value) < math.inf):
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

    @classmethod
    def from_points(cls, points: Any, sd: Any = None) -> Prediction:
        """Return the prediction that a regressor's output stands for.

        Args:
            points: [n], one predicted number per row.
            sd: [n] or one number, the predictive standard deviation: y is then normal. None: only
                the points are known, which is enough for ``conformal.Absolute`` and ``Signed``.

        Raises:
            DataError: If there is not one finite number per row, or an sd is not positive.
        """
        value = _finite(points, "points", "[n]", 1)
        if sd is None:
            return cls(Points(value[None]))
        scale = as_tensor(sd, "sd").to(value)
        if scale.ndim > 1 or scale.numel() not in (1, len(value)):
            wanted = f"one sd per row ({len(value)}), or one for all"
            raise DataError(wanted, f"shape {list(scale.shape)}", "pass the sd of those rows")
        scale = scale.reshape(-1).expand(len(value))
        _refuse(
            ~(torch.isfinite(scale) & (scale > 0)),
            "an sd above 0",
            "check those rows",
            "0, less or NaN",
        )
        return cls(dist.Normal(value[None], scale[None], validate_args=False))

    @classmethod
    def from_quantiles(cls, quantiles: Any, probabilities: Any) -> Prediction:
        """Return the prediction that the output of a quantile regression stands for.

        Quantiles of a row that cross are sorted. Between the given probabilities quantiles are
        interpolated, and beyond them none is known: ``conformal.Quantile`` takes levels up to that
        of the outermost pair.

        Args:
            quantiles: [n, k], one column per probability.
            probabilities: [k], increasing, such as ``[0.05, 0.5, 0.95]``.

        Raises:
            DataError: If the shapes do not fit, a quantile is not finite, or the probabilities do
                not increase between 0 and 1.
        """
        value = _finite(quantiles, "quantiles", "[n, k]", 2)
        p = as_tensor(probabilities, "probabilities").to(value)
        if p.ndim != 1 or len(p) != value.shape[1] or len(p) < 2:
            wanted = "two or more probabilities, one per column of quantiles"
            got = f"{list(p.shape)} for quantiles of shape {list(value.shape)}"
            raise DataError(wanted, got, "pass quantiles [n, k] and probabilities [k]")
        if not bool(((p > 0) & (p < 1)).all() and (p.diff() > 0).all()):
            got = ", ".join(f"{one:g}" for one in p.tolist())
            do = "for example [0.05, 0.5, 0.95]"
            raise DataError("probabilities that increase between 0 and 1", got, do)
        return cls(QuantileFunction(value.sort(1).values[None], p, validate_args=False))

    @classmethod
    def from_probabilities(
        cls, probabilities: Any, classes: Sequence[Any] | None = None
    ) -> Prediction:
        """Return the prediction that a classifier's probabilities stand for.

        Args:
            probabilities: [n, K], one column per class; the rows sum to 1.
            classes: The names of the K classes; y is the number of a class, 0 to K - 1, anyway.

        Raises:
            DataError: If the shape is not that of K >= 2 classes, or a row has no probabilities.
        """
        p = _finite(probabilities, "probabilities", "[n, K] with K >= 2", 2)
        if p.shape[1] < 2:
            got = f"shape {list(p.shape)}"
            do = "for two classes stack 1 - p and p"
            raise DataError("probabilities with shape [n, K] with K >= 2", got, do)
        strange = (p < 0).any(1) | ((p.sum(1) - 1).abs() > SUM_TOLERANCE)
        do = "apply softmax to logits, or check those rows"
        _refuse(strange, "probabilities >= 0 that sum to 1 in each row", do)
        if classes is not None and len(classes) != p.shape[1]:
            got = f"{len(classes)} for {p.shape[1]} columns"
            raise DataError("one name per class", got, "pass the classes in the order of columns")
        named = None if classes is None else tuple(classes)
        law = dist.Categorical(probs=(p / p.sum(1, keepdim=True))[None], validate_args=False)
        return cls(law, classes=named)

    @classmethod
    def from_samples(cls, samples: Any) -> Prediction:
        """Return the prediction that draws of y stand for.

        Draws of counts (of an integer type) have their empirical distribution. Other draws are
        smoothed by a normal kernel (bandwidth of Silverman 1986, equation 3.31) around points that
        are moved towards the mean, so that the mean and the variance are those of the draws
        (Silverman 1986, section 6.4.1). Every score applies. Where half of the draws of a row or
        more are equal, such as no rain, the bandwidth is a thousandth of the usual one.

        Args:
            samples: [draw, n] or [chain, draw, n], draws of y, observation noise included.

        Raises:
            DataError: If there are fewer than two draws, a draw is not finite, the draws of a row
                are all the same, or counts are negative.
        """
        counts = _holds_integers(samples)
        value = as_tensor(samples, "samples")
        if value.ndim not in (2, 3) or value.shape[:-1].numel() < FEWEST_DRAWS:
            wanted = "samples with shape [draw, n] or [chain, draw, n] and two or more draws"
            do = "put one draw of all rows in each line"
            if value.ndim == 4:
                do = "make one prediction for each target, such as of samples[..., 0]"
            raise DataError(wanted, f"shape {list(value.shape)}", do)
        value = value.reshape(-1, value.shape[-1])
        _refuse(
            ~torch.isfinite(value).all(0), "finite samples", "check those rows", "NaN or infinity"
        )
        if counts:
            do = "pass floats if y is not a count"
            _refuse((value < 0).any(0), "counts of 0 or more in integer samples", do)
            return cls(CountMass(value, validate_args=False))
        mean, sd = value.mean(0), value.std(0, correction=0)
        quarter = max(1, len(value) // 4)
        low, high = (value.kthvalue(k, 0).values for k in (quarter, len(value) + 1 - quarter))
        rounding = 4 * torch.finfo(value.dtype).eps * mean.abs()
        do = "pass predictive draws, noise included, or use from_points"
        _refuse(~(sd > rounding), "samples that differ within each row", do)
        narrow = (high - low) / ROUNDED_QUARTILES
        unit = torch.where(narrow > 0, torch.minimum(sd, narrow), AT_A_POINT * sd)
        width = 0.9 * len(value) ** -0.2 * unit
        kept = (1 - (width / sd).square()).sqrt()
        places = mean + kept * (value - mean)
        return cls(dist.Normal(places, width.expand_as(places), validate_args=False))

    def in_training_with(self, y: Any) -> Tensor:
        """Return which rows are training rows with this y, as [n] bool.

        A row with the same x and another y (beyond rounding) is a new row.

        Args:
            y: The targets [n] of these rows.

        Raises:
            DataError: If there is not one y per row.
        """
        return training_rows(self, one_per_row(y, len(self), do="pass the y of those rows"))[0]

    def alike_with(self, y: Any) -> Tensor:
        """Return which rows equal a training row with this y, whether by chance or not, [n] bool.

        Where most do and chance explains as many, as with few different x and y,
        ``in_training_with`` cannot tell training rows from new ones.

        Args:
            y: The targets [n] of these rows.

        Raises:
            DataError: If there is not one y per row.
        """
        return training_rows(self, one_per_row(y, len(self), do="pass the y of those rows"))[1]

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

    @cached_property
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
            name = "y" if self.origin is None else self.origin.site
            raise NotApplicable(f"a number for {name} to have a {wanted}", "classes", do)
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

    def to_frame(self, level: float = LEVEL) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per row, with the columns of ``predict_to``.

        They are ``mean``, ``sd``, ``lower`` and ``upper``, the ends of the central predictive
        interval; of labels ``p(label)`` for each class. A figure that the distribution does not
        know, such as the mean of one that is given by quantiles, is left out.

        Args:
            level: The level of the interval, in (0, 1).

        Raises:
            SettingError: If the level is not in (0, 1).
        """
        return frame_of(self, level)

    def _repr_html_(self) -> str:
        """Return what notebooks show: its kind and its first rows."""
        about = f"{len(self):,} rows, {self.kind}, {self.draws:,} draws"
        if self.joint:
            about += ", joint over the rows"
        first = self.by_row[: min(SHOWN, len(self))].to_frame()
        notes = ""
        if "lower" in first:
            notes = html.sentence(f"lower and upper: the central {LEVEL:.0%} interval")
        left = html.more(len(self) - len(first), "row")
        return html.page("Prediction", about, html.frame(first, SHOWN), left, notes)

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
        return self.scale * crps(self._numbers("CRPS"), self._inside(y))

    def pit(self, y: Any, seed: int = 0) -> Tensor:
        """Return the probability integral transform [n], which is uniform if the model is right.

        For counts it is randomised between F(y - 1) and F(y).
        """
        rows, inside = self._numbers("PIT"), self._inside(y)
        upper = mixture.cdf(rows, inside)
        if self.kind == "continuous":
            return upper
        below = mixture.cdf(rows, inside - 1)
        seed = check_seed(seed)
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

        def scaled_back(values: Tensor) -> Tensor:
            return self.offset + self.scale * values.to(parameter)

        with stream(seed, parameter.device), torch.no_grad():
            return sampled(self.distribution, k, scaled_back)


def _holds_integers(values: Any) -> bool:
    """Return whether entries are integers by their type."""
    if isinstance(values, Tensor):
        return (
            not (values.is_floating_point() or values.is_complex()) and values.dtype != torch.bool
        )
    return bool(np.issubdtype(array_of(values, "samples").dtype, np.integer))


def _finite(values: Any, what: str, shape: str, axes: int) -> Tensor:
    """Return values as a finite float tensor with so many axes and at least one row."""
    tensor = as_tensor(values, what)
    if tensor.ndim != axes or len(tensor) == 0:
        wanted, do = f"{what} with shape {shape}", f"reshape it to {shape}"
        if tensor.ndim == axes:
            do = "pass at least one row"
        elif tensor.ndim == axes + 1 and min(tensor.shape) > 1:
            wanted = f"{what} of one target with shape {shape}"
            do = f"make one prediction for each target, such as of {what}[..., 0]"
        raise DataError(wanted, f"shape {list(tensor.shape)}", do)
    strange = ~torch.isfinite(tensor).reshape(len(tensor), -1).all(1)
    _refuse(strange, f"finite {what}", "check those rows", INFINITE)
    return tensor


def _refuse(strange: Tensor, wanted: str, do: str, got: str = "others") -> None:
    """Raise DataError that names the rows where ``strange`` [n] holds ``got``."""
    rows = torch.nonzero(strange).flatten().tolist()
    if rows:
        raise DataError(wanted, f"{got} in {listed(rows, 'row')}", do)


def training_rows(prediction: Prediction, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows are training rows with this y, and which equal one by chance or not.

    Args:
        prediction: The prediction of n rows.
        y: Their targets [n], which are checked.

    Returns:
        Two masks, [n] bool.
    """
    flags = prediction.in_training
    if isinstance(flags, Provenance):
        return flags.compared_with(y)
    if flags is None:
        flags = torch.zeros(len(prediction), dtype=torch.bool)
    return flags, flags


def frame_of(
    prediction: Prediction, level: float = LEVEL, region: Region | None = None
) -> pd.DataFrame:
    """Return the data frame of ``Prediction.to_frame``.

    Args:
        prediction: The prediction.
        level: The level of its own interval.
        region: A Region of the same rows, whose intervals or label sets take the place of this
            interval; None: there is none.
    """
    import pandas as pd

    if prediction.kind == "classes":
        probabilities = prediction.probabilities
        labels = prediction.classes or range(probabilities.shape[1])
        names = [f"p({label})" for label in labels]
        table = pd.DataFrame(numbers_of(probabilities), columns=pd.Index(names))
        if region is not None and region.labels is not None:
            table["set"] = label_sets(region.labels, region.classes)
        return table
    figures: dict[str, Callable[[], Sequence[Tensor]]] = {
        "mean": lambda: [prediction.mean],
        "sd": lambda: [prediction.std],
        "lower upper": lambda: [*(prediction.interval(level) if region is None else region)],
    }
    columns: dict[str, np.ndarray] = {}
    for names, figure in figures.items():
        try:
            found = figure()
        except NotApplicable:
            continue
        columns |= dict(zip(names.split(), map(numbers_of, found), strict=True))
    return pd.DataFrame(columns, index=pd.RangeIndex(len(prediction)))


def one_of_each_draw(prediction: Prediction, seed: int = 0) -> Tensor:
    """Return one draw of y given each draw of the posterior, [draw, n], in their order."""
    parameter = univariate.like(prediction._rows)
    with stream(seed, parameter.device), torch.no_grad():
        values = prediction.distribution.sample().to(parameter)
    return prediction.offset + prediction.scale * values


def covariance(prediction: Prediction) -> Tensor:
    """Return the covariance matrix [n, n] of y in squared units, by the law of total covariance.

    Args:
        prediction: A joint prediction, of ``posterior.predict(X, joint=True)``.

    Raises:
        NotApplicable: If it is not joint, or its covariance is not known.
    """
    d: Any = prediction.distribution
    if not prediction.joint:
        do = "pass posterior.predict(X, joint=True)"
        raise NotApplicable("a joint prediction", "one distribution per row", do)
    if isinstance(d, Independent):
        within = torch.diag_embed(d.variance)
    elif hasattr(d, "covariance_matrix"):
        within = d.covariance_matrix
    else:
        do = "use return_std"
        raise NotApplicable("a joint distribution with a covariance", type(d).__name__, do)
    means = d.mean - d.mean.mean(0)
    between = means.mT @ means / len(means)
    scale = torch.as_tensor(prediction.scale, dtype=within.dtype, device=within.device)
    return scale * scale[..., None] * (within.mean(0) + between)


def digest_of(fit: Any) -> str:
    """Return a digest of a posterior or an average, equal to that of one read from its file."""
    posteriors = getattr(fit, "posteriors", None)
    if posteriors is not None:
        return fingerprint(fit.weights, *map(digest_of, posteriors.values()))
    return fingerprint(fit.model, fit.data, fit.draws, fit.params, fit.scaler)
