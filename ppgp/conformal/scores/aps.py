"""Label sets whose size adapts to how uncertain the model is about each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...display.overrides import computed
from ...errors import SettingError
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score

HASHED_DIGITS = 6


def row_uniforms(table: Tensor, seed: int) -> Tensor:
    """Return n numbers in (0, 1), each a hash of its row and the seed.

    The hash depends on nothing else, so that score and region agree on it, the order of rows does
    not matter, and the scores of exchangeable rows stay exchangeable. (SplitMix64; Steele, Lea &
    Flood 2014.)

    Args:
        table: [n, K], one row per number.
        seed: Of the hash.
    """

    def mixed(x: np.ndarray) -> np.ndarray:
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    # pandas.util.hash_pandas_object has no seed (with one as a further column, the numbers of two
    # seeds depend on each other) and is no faster: 17 ms for 100,000 rows, and this 16

    # a sum may round differently in another batch; adding 0.0 turns -0.0 into 0.0
    rounded = np.round(table.detach().double().cpu().numpy(), HASHED_DIGITS) + 0.0
    bits = np.ascontiguousarray(rounded).view(np.uint64)
    with np.errstate(over="ignore"):
        start = np.full(len(bits), seed % 2**64, dtype=np.uint64)
        state = mixed(start + np.uint64(0x9E3779B97F4A7C15))
        for column in bits.T:
            state = mixed(state * np.uint64(0x9E3779B97F4A7C15) + column)
    uniforms = (state >> np.uint64(11)).astype(np.float64) / 2.0**53 + 2.0**-54
    return torch.as_tensor(uniforms).to(table)


@dataclass(frozen=True)
class APS(Score):
    """The total probability of the labels more probable than y, plus U p_y.

    These are adaptive prediction sets. Romano, Sesia & Candes (2020). Labels of equal probability
    are ranked in their fixed order. The scores [n] are probabilities.

    Args:
        randomized: Whether U is uniform: where rows differ in their probabilities the coverage is
            at most level + 1 / (n + 1), and sets may be empty. Otherwise U = 1, and the coverage
            may exceed the level, as labels that rank last all have the score 1.
        seed: Of U, which is a function of the seed and of the row.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is not a class.

    Examples:
        The eighth smallest of nine scores is 0.88. Labels are added, the most probable first, while
        their total is at most that:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> first = [0.5, 0.6, 0.4, 0.7, 0.5, 0.82, 0.45, 0.55, 0.9]
        >>> second = [0.3, 0.3, 0.35, 0.2, 0.38, 0.1, 0.35, 0.25, 0.06]
        >>> p = [[a, b, 1 - a - b] for a, b in zip(first, second)]
        >>> calibration = ppgp.Prediction.from_probabilities(p)
        >>> score = conformal.APS(randomized=False)
        >>> calibrator = ppgp.calibrate(score, calibration, [0, 0, 1, 0, 1, 0, 1, 0, 0])
        >>> new = ppgp.Prediction.from_probabilities(
        ...     [[0.85, 0.1, 0.05], [0.5, 0.3, 0.2], [0.2, 0.4, 0.4]], classes=["a", "b", "c"]
        ... )
        >>> calibrator(new, level=0.8).to_frame()
              set
        0    (a,)
        1  (a, b)
        2  (b, c)
    """

    randomized: bool = True
    seed: int = 0
    kinds = ("classes",)
    of_level = False

    def _conservative(self) -> bool:
        return not self.randomized

    conservative = computed(_conservative)

    def scores(self, prediction: Prediction) -> Tensor:
        """Return the score of every label, [n, K]."""
        p = prediction.probabilities
        order = p.argsort(dim=-1, descending=True, stable=True)
        ranked = p.gather(-1, order)
        u = torch.ones_like(p[:, :1])
        if self.randomized:
            u = row_uniforms(p, self.seed)[:, None]
        upto = ranked.cumsum(-1) - ranked + u * ranked + self._penalty(p.shape[-1]).to(p)
        return torch.empty_like(p).scatter_(-1, order, upto)

    def _penalty(self, labels: int) -> Tensor:
        return torch.zeros(labels)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self.scores(prediction).gather(1, y.long()[:, None])[:, 0]

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        kept = self.scores(prediction) <= torch.as_tensor(q).reshape(-1, 1)
        return Region(level, "", labels=kept, classes=prediction.classes)


@dataclass(frozen=True)
class RAPS(APS):
    """APS with a penalty on large sets: penalty * (rank of y - k_reg)+ is added.

    Angelopoulos et al. (2021). Choose ``penalty`` and ``k_reg`` beforehand, or on rows that are not
    used for calibration. The scores are [n], one per row; ``scores(prediction)`` gives those of
    all labels, [n, K].

    Args:
        randomized: As in ``APS``.
        seed: As in ``APS``.
        penalty: Per label beyond ``k_reg``, at least 0; in the units of the score, a total of
            probabilities.
        k_reg: How many labels have no penalty.

    Raises:
        SettingError: If ``penalty`` or ``k_reg`` is negative.
        NotApplicable: By ``calibrate`` and by its calibrator, if y is not a class.

    Examples:
        The penalty of 0.2 counts once for the second label, twice for the third:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> prediction = ppgp.Prediction.from_probabilities([[0.4, 0.3, 0.2, 0.1]])
        >>> plain = conformal.APS(randomized=False)
        >>> [round(s, 2) for s in plain.scores(prediction)[0].tolist()]
        [0.4, 0.7, 0.9, 1.0]
        >>> penalised = conformal.RAPS(randomized=False, penalty=0.2, k_reg=1)
        >>> [round(s, 2) for s in penalised.scores(prediction)[0].tolist()]
        [0.4, 0.9, 1.3, 1.6]
    """

    penalty: float = 0.1
    k_reg: int = 2

    def __post_init__(self) -> None:
        if not self.penalty >= 0 or self.k_reg < 0:
            raise SettingError(
                "penalty >= 0 and k_reg >= 0 in RAPS",
                f"{self.penalty!r} and {self.k_reg!r}",
                "change them",
            )

    def _penalty(self, labels: int) -> Tensor:
        return self.penalty * (torch.arange(1, labels + 1) - self.k_reg).clamp_min(0).double()
