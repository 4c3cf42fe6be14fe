"""Stochastic variational inference: the SVI record, and the fit that each guide leads to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from ...capabilities import CollapsedBound, supports
from ...density.target import Target
from ...display.overrides import computed
from ...errors import NotApplicable, SettingError
from ...posterior.posterior import Posterior
from ..base import Inference, check_batch
from ..checkpoint import Checkpoint
from ..optimise.first_order import OF_TORCH
from ..optimise.schedules import SCHEDULES
from ..options import Count, OneOf, Positive
from .collapsed_svi import fit_collapsed_elbo
from .gaussian_guide import GRADIENTS
from .gaussian_svi import fit_gaussian_guide
from .pyro_svi import fit_pyro_guide
from .training_loop import SVIOptions

DEFAULT_RATES = {"adam": 0.02, "adagrad": 0.5, "natural": 0.02}
GUIDES = ("normal", "multivariate_normal", "lowrank", "iaf")
GAUSSIAN = ("normal", "multivariate_normal")
#: Particles that each estimate of the gradient needs.
FEWEST = {"pathwise": 1, "score": 1, "score_baseline": 2}

ROWS_AT_ONCE = 10_000  # past which steps on all rows take minutes, with 100 inducing inputs
OWN_BATCH = 1_000


def _own_batch(n: int) -> int | None:
    """Return the rows per step of a bound on n rows where no number is given; None: all."""
    return OWN_BATCH if n > ROWS_AT_ONCE else None


@dataclass(frozen=True)
class SVI(Inference):
    """Stochastic variational inference: maximise the ELBO over a guide q.

    The ELBO is E_q[log p(z, y) - log q(z)]. Hoffman et al. (2013), Kucukelbir et al. (2017).

    Stats: ``elbo`` (of the fitted guide, estimated with its draws); ``elbo_history`` [steps];
    ``lp`` and ``log_q`` of the draws if the guide is Gaussian; ``covariance`` [p, p] of z by linear
    response (deterministic, mean field).
    A model with a bound of its own (SVGP) has ``elbo``, a bound of log p(y given theta);
    ``objective``, log p(theta) + ELBO (or + PPGPR's sum); and ``objective_history`` [steps].

    Args:
        guide: "normal" (mean field), "multivariate_normal" (full covariance), "lowrank", "iaf", a
            Pyro guide or an autoguide class. None: the model's own guide, or else
            "multivariate_normal".
        method: "stochastic", or "deterministic" for a Gaussian guide: natural-gradient steps over
            draws that are fixed once and matched to the guide's mean and covariance. It takes a
            dozen iterations and has no learning rate and no noise; Giordano, Ingram & Broderick
            (2024) introduce the fixed draws. A mean-field guide then comes with its linear-response
            covariance.
        steps: The largest number of steps.
        learning_rate: The rate of the optimiser at the start; for a model with a bound of its own
            also ``{site: rate}``, as in MAP. None: 0.02, and 0.5 for "adagrad".
        schedule: How the rate falls over the steps: "cosine" (to 1 % of itself), "inverse"
            (as 1 / t) or "constant".
        optimizer: "adam"; "adagrad" (each entry of the gradient divided by the root of the sum of
            its squares so far; Duchi, Hazan & Singer 2011); or "natural" for steps along the
            natural gradient: in closed form for a Gaussian guide; by conjugate gradients on
            products with the Fisher matrix of the guide's own draws for others (Martens 2020),
            where about 100 steps at ``learning_rate=0.5``, of at least 64 draws each, take the
            place of thousands. A step moves the guide by at most 0.1 nats of KL divergence.
        gradient: The estimate of the gradient for a Gaussian guide: "pathwise", "score", or
            "score_baseline" (at least 2 particles). All are unbiased; their variances differ by
            orders of magnitude.
        particles: Draws per step.
        batch_size: Rows per step. None: all rows, but 1,000 for a model with a bound of its own
            (SVGP) and more than 10,000 rows; ``stats["batch_size"]`` states it. The number of
            rows stands for all of them.
        patience: Once the moving average of the ELBO over so many steps has not risen for as many
            steps, the rate falls to nothing over as many more, and the fit ends. "deterministic"
            ignores it: that fit ends when an iteration raises the ELBO by less than 0.001 nats,
            and for a model with a bound of its own when L-BFGS has converged. A fit takes no step
            where the Gaussian guide that it begins with is the posterior: ``elbo_history`` then has
            log p - log q at 100 draws, which is the same at all of them.
        draws: Draws from the fitted guide.

    Raises:
        SettingError: For options that exclude each other, or one outside its range; on use, for a
            ``batch_size`` above the number of rows.
        UnknownName: If there is no such guide, method, schedule, optimizer or gradient.
        NotApplicable: On use, for options that the guide does not support, mini-batches of a model
            that needs all rows at once, or a program without uncertain sites.
        ImproperPosterior: On use of a Gaussian guide, if the density does not fall in some
            direction.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[1.0], [2.0], [3.0], [4.0]], [1.1, 1.9, 3.2, 3.8])
        >>> model = models.LinearRegression(noise=0.1)
        >>> options = {"progress": False, "standardise": False}
        >>> how = inference.SVI("normal", method="deterministic")
        >>> mean_field = ppgp.fit(model, data, how, **options)
        >>> exact = ppgp.fit(model, data, inference.Exact(), **options)
        >>> ratio = mean_field.theta["weight"].std() / exact.theta["weight"].std()
        >>> bool(ratio < 0.6)  # too narrow, as weight and bias are correlated
        True
        >>> bool(mean_field.stats["elbo"] < exact.log_evidence)
        True
        >>> mean_field.stats["covariance"].shape  # by linear response, [p, p]
        torch.Size([2, 2])
    """

    guide: Annotated[str, OneOf(GUIDES)] | Callable[..., Any] | None = None
    method: Annotated[str, OneOf(("stochastic", "deterministic"))] = "stochastic"
    steps: Count = 5000
    learning_rate: Positive | Mapping[str, Positive] | None = None
    schedule: Annotated[str, OneOf(SCHEDULES)] = "cosine"
    optimizer: Annotated[str, OneOf((*OF_TORCH, "natural"))] = "adam"
    gradient: Annotated[str, OneOf(GRADIENTS)] = "pathwise"
    particles: Count = 1
    batch_size: Count | None = None
    patience: Count = 500
    draws: Count = 1000
    optimises_params = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.particles < FEWEST[self.gradient]:
            raise SettingError(
                f"at least {FEWEST[self.gradient]} particles with gradient={self.gradient!r}",
                str(self.particles),
                "raise particles",
            )
        if self.optimizer == "natural" and self.gradient != "pathwise":
            raise SettingError(
                "gradient='pathwise' with optimizer='natural'",
                repr(self.gradient),
                "leave gradient out",
            )
        noisy = self.batch_size is not None or self.gradient != "pathwise"
        if self.method == "deterministic" and noisy:
            raise SettingError(
                "all rows and pathwise gradients with method='deterministic'",
                f"batch_size={self.batch_size}, gradient={self.gradient!r}",
                "leave both out",
            )
        if self.method == "deterministic" and self.optimizer == "adagrad":
            raise SettingError(
                "steps of its own with method='deterministic'",
                "optimizer='adagrad'",
                "leave one of the two out",
            )

    def _takes_random_density(self) -> bool:
        """Fixed draws would fit the guide to one choice of the rows, or to another in each step."""
        return self.method == "stochastic"

    takes_random_density = computed(_takes_random_density)

    def _guides_rows(self) -> bool:
        """Whether a guide of the user's own says which rows its latent sites belong to."""
        return not (self.guide is None or isinstance(self.guide, str | type))

    guides_rows = computed(_guides_rows)

    def _options(self) -> SVIOptions:
        """Return the numbers that a fit needs."""
        numbers = {f.name: getattr(self, f.name) for f in fields(SVIOptions)}
        if self.learning_rate is None:
            numbers["learning_rate"] = DEFAULT_RATES[self.optimizer]
        return SVIOptions(**numbers)

    def collapses(self, model: Any) -> bool:
        return self.guide is None and supports(model, CollapsedBound)

    def serves_team(self, model: Any) -> bool:
        return self.collapses(model) or self.guide in (None, *GAUSSIAN)

    def numbers(self, p: int) -> float:
        """Return how many numbers the fit holds, those of a full covariance included.

        That is the root of the covariance, its average, their gradients and moments.
        """
        covariance = 8.0 * p * p if self.guide == "multivariate_normal" else 0.0
        return super().numbers(p) + covariance

    def quick(self) -> SVI:
        return replace(self, steps=20, draws=20)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """Fit the guide; ``checkpoint`` keeps a Gaussian guide, or what a bound is a function of.

        The optimiser and the random numbers are in it too.

        Raises:
            NotApplicable: For options that the guide does not support.
        """
        started = time.perf_counter()
        options = self._options()
        check_batch(self, target, self.batch_size)
        if self.collapses(target.model):
            if self.batch_size is None and self.method == "stochastic":
                own = target.data.own_batch or _own_batch(min(target.data.rows_of_ranks))
                options = replace(options, batch_size=own)
            with Checkpoint(checkpoint, self, target, seed) as kept:
                posterior = fit_collapsed_elbo(
                    self, options, target, seed, progress, init, started, kept
                )
                return kept.with_notes(posterior)
        if all(s.param for s in target.slices.values()):
            raise NotApplicable(
                "an uncertain site for a guide",
                f"params alone ({', '.join(target.slices)})",
                "use MAP, which optimises them",
            )
        guide = self.guide or target.model.guide or "multivariate_normal"
        has_params = any(s.param for s in target.slices.values())
        if guide in GAUSSIAN and not has_params:
            correlated = guide == "multivariate_normal"
            with Checkpoint(checkpoint, self, target, seed) as kept:
                posterior = fit_gaussian_guide(
                    self, options, target, correlated, seed, progress, init, started, kept
                )
                return kept.with_notes(posterior)
        if self.optimizer == "natural" and has_params:
            names = ", ".join(name for name, s in target.slices.items() if s.param)
            raise NotApplicable(
                "a program without params with optimizer='natural'",
                f"params {names}",
                "use optimizer='adam'",
            )
        self._check_other_guide(guide, target, checkpoint is not None)
        return fit_pyro_guide(self, options, target, guide, seed, progress, started)

    def _check_other_guide(
        self, guide: str | Callable[..., Any], target: Target, checkpoint: bool
    ) -> None:
        """Refuse what only Gaussian guides on the compiled target support."""
        name = f"guide {guide}"
        if (self.gradient, self.method) != ("pathwise", "stochastic"):
            shown = guide if isinstance(guide, str) else type(guide).__name__
            raise NotApplicable(
                f"a Gaussian guide with gradient={self.gradient!r} and method={self.method!r}",
                f"guide {shown}",
                "use guide='normal' or 'multivariate_normal'",
            )
        if target.enumerates and guide in GAUSSIAN:
            params = ", ".join(name for name, s in target.slices.items() if s.param)
            raise NotApplicable(
                "a program with discrete sites and without params",
                f"params {params}",
                "use MAP(), which trains them too, or give them a prior by pyro.sample",
            )
        if target.enumerates:
            raise NotApplicable(
                "a Gaussian guide for a program with discrete sites",
                name,
                "use 'normal' or 'multivariate_normal'",
            )
        if checkpoint:
            raise NotApplicable(
                "a Gaussian guide with a checkpoint",
                name,
                "use 'normal' or 'multivariate_normal'",
            )
