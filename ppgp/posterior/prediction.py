"""Prediction: the law of y at new rows, an equal mixture over posterior draws, in the units of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.arrays import as_tensor
from ..errors import DataError, NotApplicable, Renamed, SettingError, renamed_arguments
from ..numerics import mixture, univariate
from ..numerics.blocks import each_block, sampled
from ..numerics.seeding import stream
from ..numerics.threads import ELEMENT, limited_by
from .provenance import Provenance
from .region import Region, exact_level

__all__ = ["Prediction"]

QUARTILES = 1.3489795003921634  # distance of the quartiles of a normal law, in sds


def _work(prediction: Prediction, *_: Any, **__: Any) -> float:
    return ELEMENT * prediction.draws * len(prediction)


@renamed_arguments(seen="in_training")
@dataclass(frozen=True, eq=False)
class Prediction:
    """The law of y at n rows.

    Args:
        distribution: batch [draw, n] (or [n], one draw); or a joint law over the rows, batch [draw] and event [n].
        offset, scale: y = offset + scale * (what the distribution is about): how a standardised model speaks in the
            units of the data.
        classes: names of the labels, for Bernoulli and Categorical.
        in_training: which rows the fit was trained on, [n] bool, or what tells it once their y is known; ``in_training_with`` asks.

    Every figure is that of the mixture: ``quantile`` is its true quantile, not the mean of quantiles; ``log_prob``
    the log of the mean density, not the mean of logs.

    Raises:
        DataError: where the distribution has neither of these shapes.
    """

    distribution: Distribution
    offset: float | Tensor = 0.0
    scale: float | Tensor = 1.0
    classes: tuple[Any, ...] | None = None
    in_training: Tensor | Provenance | None = None
    seen = Renamed("in_training")
    seen_with = Renamed("in_training_with")

    def __post_init__(self) -> None:
        d = self.distribution
        if not isinstance(d, Distribution):
            raise DataError(
                "a torch or Pyro distribution", type(d).__name__, "for example Normal(mean, sd)"
            )
        if len(d.batch_shape) + len(d.event_shape) == 1:
            d = d.expand(torch.Size([1]) + d.batch_shape)
            object.__setattr__(self, "distribution", d)
        if len(d.batch_shape) + len(d.event_shape) != 2 or len(d.event_shape) > 1:
            got = f"batch {list(d.batch_shape)}, event {list(d.event_shape)}"
            raise DataError(
                "a distribution with batch [draw, n], or batch [draw] and event [n]",
                got,
                "reshape its parameters",
            )

    def in_training_with(self, y: Any) -> Tensor:
        """[n] bool: rows that the fit was trained on, with this y [n] up to rounding; the same x with another y is a fresh row.

        Raises:
            DataError: if there is not one y per row.
        """
        y = as_tensor(y, "y")
        if y.shape != (len(self),):
            raise DataError(
                f"one y a row ({len(self)})", f"shape {list(y.shape)}", "pass the y of those rows"
            )
        if isinstance(self.in_training, Provenance):
            return self.in_training.in_training_with(y)
        return (
            torch.zeros(len(self), dtype=torch.bool)
            if self.in_training is None
            else self.in_training
        )

    @property
    def joint(self) -> bool:
        """Whether this is one joint law over all rows."""
        return len(self.distribution.event_shape) == 1

    @property
    def _rows(self) -> Distribution:
        return univariate.marginals(self.distribution) if self.joint else self.distribution

    @property
    def by_row(self) -> Prediction:
        """The law of each row by itself, whether or not this is a joint law."""
        return (
            Prediction(self._rows, self.offset, self.scale, self.classes, self.in_training)
            if self.joint
            else self
        )

    @property
    def kind(self) -> Literal["continuous", "count", "classes"]:
        """What y is."""
        if univariate.is_classes(self._rows):
            return "classes"
        return "count" if univariate.is_discrete(self._rows) else "continuous"

    @property
    def dtype(self) -> torch.dtype:
        """Of the law's parameters, and of every figure."""
        return univariate.like(self._rows).dtype

    @property
    def draws(self) -> int:
        return self.distribution.batch_shape[0]

    def __len__(self) -> int:
        return self._rows.batch_shape[1]

    def __getitem__(self, index: Any) -> Prediction:
        """The same law at some of the rows (an index, several, a slice or a mask)."""
        if self.joint:
            raise NotApplicable(
                "a law row by row",
                "a joint one",
                "predict the rows wanted, or predict without joint=True",
            )
        index = torch.arange(len(self))[index].reshape(-1)
        seen = None if self.in_training is None else self.in_training[index]
        return Prediction(
            univariate.take(self.distribution, index), self.offset, self.scale, self.classes, seen
        )

    def __repr__(self) -> str:
        law = type(self._rows).__name__
        return f"<Prediction of {len(self)} rows: {self.kind}, {'joint ' if self.joint else ''}mixture of {self.draws} {law}>"

    def _numbers(self, wanted: str) -> Distribution:
        if self.kind == "classes":
            raise NotApplicable(
                f"a number for y to have a {wanted}",
                "classes",
                "use .probabilities, label sets (conformal.LAC), Brier or log loss",
            )
        return self._rows

    def _inside(self, y: Any) -> Tensor:
        """y on the scale of the distribution, checked."""
        rows = self._rows
        like = univariate.like(rows)
        y = as_tensor(y, "y").to(like)
        if y.shape[-1:] != (len(self),):
            raise DataError(
                f"one y a row ({len(self)})", f"shape {list(y.shape)}", "pass y with shape [n]"
            )
        if self.kind == "classes":
            known = univariate.probabilities(rows).shape[-1]
            strange = y[~((y == y.round()) & (y >= 0) & (y < known))].unique().tolist()
            if strange:
                raise DataError(
                    f"labels among the {known} that the fit has seen (codes 0 to {known - 1})",
                    ", ".join(f"{v:g}" for v in strange[:5]),
                    "drop those rows",
                )
        return (y - self.offset) / self.scale

    @property
    def mean(self) -> Tensor:
        """[n]"""
        return self.offset + self.scale * mixture.moments(self._numbers("mean"))[0]

    @property
    def variance(self) -> Tensor:
        """[n], in squared units: epistemic + aleatoric."""
        return self.scale * self.scale * mixture.moments(self._numbers("variance"))[1]

    @property
    def std(self) -> Tensor:
        """[n]"""
        return self.scale * mixture.sd(self._numbers("sd"))

    @property
    def centre(self) -> Tensor:
        """[n]: the mean, or the median where the law has no finite mean."""
        mean = self.mean
        bad = torch.nonzero(~torch.isfinite(mean)).flatten()
        if not len(bad):
            return mean
        return mean.index_copy(0, bad, self.by_row[bad].quantile(0.5))

    @property
    def spread(self) -> Tensor:
        """[n]: the sd, or where it is not finite and positive the interquartile range over 1.349 (its value in sds of a normal law).

        One draw of a Student's t with at most 2 degrees of freedom gives the mixture an infinite sd.
        """
        sd = self.std
        bad = torch.nonzero(~(torch.isfinite(sd) & (sd > 0))).flatten()
        if not len(bad):
            return sd
        part = self.by_row[bad]
        return sd.index_copy(0, bad, (part.quantile(0.75) - part.quantile(0.25)) / QUARTILES)

    @property
    def epistemic(self) -> Tensor:
        """[n]: variance, between draws, of the mean of y; what more data would shrink. A single draw has none.

        (Where the model integrates the latent function in closed form, that part lies within a draw.)
        """
        between = each_block(lambda law: law.mean.var(0, correction=0), self._numbers("variance"))
        return self.scale * self.scale * between

    @property
    def aleatoric(self) -> Tensor:
        """[n]: mean, over draws, of the variance of y given the draw."""
        return (
            self.scale
            * self.scale
            * each_block(lambda law: law.variance.mean(0), self._numbers("variance"))
        )

    @property
    def probabilities(self) -> Tensor:
        """[n, K], averaged over draws.

        Raises:
            NotApplicable: if y is not a class.
        """
        if self.kind != "classes":
            raise NotApplicable("classes for y", f"a {self.kind} law", "use .cdf or .quantile")
        classes = univariate.probabilities(univariate.take(self._rows, slice(0, 1))).shape[-1]
        return each_block(
            lambda law: univariate.probabilities(law).mean(0).mT, self._rows, share=classes
        ).mT

    @limited_by(_work)
    def cdf_by_draw(self, y: Any) -> Tensor:
        """P(Y <= y) under each posterior draw, [draw, n] for y [n]: ``cdf`` is their mean."""
        return each_block(univariate.cdf, self._numbers("cdf"), self._inside(y))

    @limited_by(_work)
    def cdf(self, y: Any) -> Tensor:
        """P(Y <= y), [..., n] for y [..., n]."""
        return mixture.cdf(self._numbers("cdf"), self._inside(y))

    @limited_by(_work)
    def log_tails(self, y: Any) -> tuple[Tensor, Tensor]:
        """(log P(Y <= y), log P(Y > y)), [n] each for y [n], to full relative precision however far out y lies.

        Raises:
            NotApplicable: if y is not continuous.
        """
        return mixture.log_tails(self._with_tails(), self._inside(y))

    @limited_by(_work)
    def log_tail(self, y: Any, upper: bool = False) -> Tensor:
        """log P(Y <= y), or log P(Y > y) where ``upper``, [n]: one of ``log_tails``, the same to the last digit."""
        return mixture.log_tail(self._with_tails(), self._inside(y), upper)

    def _with_tails(self) -> Distribution:
        if self.kind != "continuous":
            raise NotApplicable(
                "a continuous y for the logarithm of a tail",
                self.kind,
                "use .cdf or .probabilities",
            )
        return self._rows

    @limited_by(_work)
    def tail_quantile(self, log_p: Tensor, upper: bool = False) -> Tensor:
        """[n], y with log P(Y <= y) = log_p [n], or log P(Y > y) = log_p where ``upper``, to about 60 roundings."""
        rows = self._rows
        inside = mixture.tail_quantile(rows, log_p.to(mixture.middle(rows)), upper)
        return self.offset + self.scale * inside

    @limited_by(_work)
    def quantile(self, p: float | Tensor) -> Tensor:
        """The p-quantile of the mixture, [n] (the smallest count with cdf >= p, for counts); p is one number, or one a row.

        Raises:
            SettingError: if p lies outside (0, 1).
        """
        each = torch.as_tensor(p, dtype=torch.float64)
        if not bool(((each > 0) & (each < 1)).all()):
            raise SettingError("a probability in (0, 1)", repr(p), "for example 0.05")
        if each.ndim > 0 and each.shape[-1] not in (1, len(self)):
            raise SettingError(
                f"one probability, or one a row ({len(self)})",
                f"{each.shape[-1]}",
                "call it once for each",
            )
        return self.offset + self.scale * mixture.quantile(self._numbers("quantile"), p)

    def interval(self, level: float = 0.9) -> Region:
        """The central interval of the law: it covers as often as it says only if the model is right."""
        alpha = float(1 - exact_level(level))
        lower, upper = self.quantile(alpha / 2), self.quantile(1 - alpha / 2)
        return Region(
            level, "none beyond the model: the central posterior predictive interval", lower, upper
        )

    @limited_by(_work)
    def log_prob(self, y: Any) -> Tensor:
        """Log density (or mass) of the mixture at y: [n], or a scalar where the law is joint."""
        y = self._inside(y)
        stretch = (
            torch.log(torch.as_tensor(self.scale, dtype=y.dtype))
            if self.kind == "continuous"
            else torch.zeros(())
        )

        def summed(law: Distribution, y: Tensor) -> Tensor:
            each = univariate.log_prob(law, y) - stretch * (len(self) if self.joint else 1)
            return torch.logsumexp(each, 0) - math.log(self.draws)

        return (
            summed(self.distribution, y) if self.joint else each_block(summed, self.distribution, y)
        )

    @limited_by(_work)
    def crps(self, y: Any) -> Tensor:
        """Continuous ranked probability score [n], in the units of y; smaller is better."""
        return self.scale * mixture.crps(self._numbers("CRPS"), self._inside(y))

    def pit(self, y: Any, seed: int = 0) -> Tensor:
        """Probability integral transform [n]: uniform if the law is right; randomised between F(y-) and F(y) for counts."""
        rows, inside = self._numbers("PIT"), self._inside(y)
        upper = mixture.cdf(rows, inside)
        if self.kind == "continuous":
            return upper
        below = mixture.cdf(rows, inside - 1)
        generator = torch.Generator().manual_seed(seed)
        return below + torch.rand(upper.shape, generator=generator, dtype=upper.dtype).to(upper) * (
            upper - below
        )

    @limited_by(_work)
    def sample(self, k: int = 1, seed: int = 0) -> Tensor:
        """k draws of y, [k, n]: a posterior draw at random, then y given it (jointly over rows where the law is joint)."""
        parameter = univariate.like(self._rows)
        with stream(seed, parameter.device), torch.no_grad():
            return sampled(
                self.distribution, k, lambda values: self.offset + self.scale * values.to(parameter)
            )
