"""Generalised linear models: linear functions of x behind any likelihood."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    Capability,
    ClosedForm,
    GeneralisedLinear,
    LikelihoodDerivatives,
    LinearCoefficients,
    RowScores,
)
from ...data.dataset import Dataset, Scaler
from ...display.overrides import computed, set_attributes
from ...errors import NotApplicable, SettingError
from ...likelihoods import (
    Bernoulli,
    Categorical,
    FromDistribution,
    Gaussian,
    Likelihood,
    Ordinal,
    StudentT,
    ZeroInflated,
)
from ...likelihoods.base import check_is_likelihood
from ...likelihoods.joint_slopes import has_joint_slopes
from ...priors import Flat, Normal, PriorLike, Site, bare, site, value_of
from ..base import AnyLikelihood
from ..classification import check_coefficients_determined
from ..independent_rows import observed, predicted
from ..sites import Theta, draw
from ..units import times
from .glm_checks import check_overlap, informative_priors, separated
from .glm_derivatives import derivatives, row_scores
from .glm_formula import from_formula
from .glm_starts import start_of
from .glm_units import coefficients_in_data_units, recipe_in_units
from .linear_regression import EXACT, LinearRegression
from .varying import Varying

DEFAULT_BIAS = Normal(0.0, 5.0)


@dataclass(frozen=True, repr=False)
class GLM(AnyLikelihood, ClosedForm, LikelihoodDerivatives, LinearCoefficients, GeneralisedLinear):
    """Generalised linear model: y ~ likelihood(eta), with eta = X weight + bias + offset.

    McCullagh & Nelder (1989). ``GLM(Poisson())`` is Poisson regression, ``GLM(Binomial())``
    logistic regression of events among trials, and ``GLM(Ordinal())`` the cumulative model of
    ordered classes, whose cutpoints take the place of the intercept. With ``Flat()`` as weight and
    bias, MAP is maximum likelihood. ``MAP("newton")`` is iteratively reweighted least squares:
    Newton steps where the density curves down, and Fisher scoring elsewhere.

    A parameter of the likelihood that is ``Predicted()`` has a linear predictor of its own, with
    weights and intercept of its own: a distributional regression, of K functions. y is
    standardised only if it has a unit and may be negative. The offset, which belongs to the first
    function, is in the units of eta.

    A row of weight w counts as w equal rows.

    Args:
        likelihood: A member of ``ppgp.likelihoods``. Its parameters that have a prior are sites.
        weight: Prior or number of the weights; the site has shape [d], or [K, d] for K functions.
        bias: Prior or number of the intercepts; the site has shape [], or [K]. None:
            ``Normal(0, 5)``, or no intercept beside cutpoints.
        groups: ``{grouping: Varying(...)}``, the coefficients that vary between the groups of
            rows. The result is a ``Multilevel``.
        effects: With groups, how the coefficients of groups are treated: see ``Multilevel``.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If the likelihood is something else, for an intercept beside cutpoints, or for
            groups that are no ``{grouping: Varying(...)}``; from ``fit``, for flat weights of all
            classes, or an offset where y is standardised.
        DataError: From ``fit``, if y does not suit the likelihood, if flat weights are not
            determined, or if the inputs separate ordered classes under flat priors.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> counts = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1, 3, 5, 7])
        >>> model = models.GLM(likelihoods.Poisson(), weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, counts, inference.MAP("newton"), progress=False)
        >>> posterior.predict([[0.0], [1.0]]).mean.numpy().round(3)  # the means of the two groups
        array([2., 6.])
        >>> table = posterior.coefficients("model", exponentiate=True)
        >>> table["estimate"].round(3).tolist()  # the first mean, and the ratio of the two
        [2.0, 3.0]
    """

    likelihood: Likelihood = field(default_factory=Gaussian)
    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike | None = None
    groups: Mapping[str, Varying] | None = field(default=None, repr=False, kw_only=True)
    effects: str | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("weight", "bias", "noise")
    takes_stream = True
    with_groups: ClassVar[Any] = None  # the class ``Multilevel``, which its own file sets

    from_formula = classmethod(from_formula)

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return a GLM, or with groups a Multilevel."""
        given = (options.get(name) for name in ("groups", "effects"))
        if cls is GLM and any(one is not None for one in given):
            return super().__new__(cls.with_groups, **options)
        return super().__new__(cls, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_likelihood(self.likelihood, "likelihoods.Poisson()")
        if isinstance(self.likelihood, Ordinal) and self.bias not in (None, 0.0):
            raise SettingError(
                "no intercept beside cutpoints, as a constant added to both changes nothing",
                f"bias={self.bias!r}",
                "leave bias out",
            )

    def _one_mode(self) -> bool:
        """Whether the log density has one mode; heavy tails and mixtures may have several."""
        several = isinstance(self.likelihood, StudentT | ZeroInflated)
        return has_joint_slopes(self.likelihood) and not several

    one_mode = computed(_one_mode)

    def takes_role(self, name: str) -> bool:
        if name == "trials":
            return self.likelihood.takes_trials
        if name == "offset":
            return not isinstance(self.likelihood, Categorical)
        return name == "weights" or super().takes_role(name)

    # -- the sites ------------------------------------------------------------------------------

    @property
    def intercept(self) -> PriorLike:
        """The prior or number of the intercepts; 0 beside cutpoints."""
        if self.bias is not None:
            return self.bias
        return 0.0 if isinstance(self.likelihood, Ordinal) else DEFAULT_BIAS

    def sites(self, d: int) -> dict[str, Site]:
        K = self.likelihood.latents
        several = (K,) if K > 1 else ()
        own = {
            "weight": site("weight", self.weight, (*several, d)),
            "bias": site("bias", self.intercept, several),
        }
        return {**own, **self.likelihood.sites()}

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        if name == "bias":
            return value_of(theta, name, self.intercept, like)
        return super().value(theta, name, like)

    def predictors(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights [*draw, K, d] and intercepts [*draw, K]."""
        K = self.likelihood.latents
        weight, bias = self.value(theta, "weight", X), self.value(theta, "bias", X)
        several = K > 1
        if "weight" not in theta:
            weight = weight.expand(K, X.shape[-1])
        elif not several:
            weight = weight[..., None, :]
        if "bias" not in theta:
            bias = bias.expand(K)
        elif not several:
            bias = bias[..., None]
        return weight, bias

    def functions(self, theta: Theta, X: Tensor, offset: Tensor | None = None) -> Tensor:
        """Return eta [*draw, n], or f [*draw, K, n] for K > 1 functions.

        Args:
            theta: {site: [*draw, *event]}.
            X: Inputs [n, d].
            offset: [n], which is added to the first function.
        """
        weight, bias = self.predictors(theta, X)
        f = weight @ X.mT + bias[..., None]
        if offset is not None and f.shape[-2] == 1:
            f = f + offset
        elif offset is not None:
            f = torch.cat([f[..., :1, :] + offset, f[..., 1:, :]], -2)
        return f if self.likelihood.latents > 1 else f[..., 0, :]

    def distribution(
        self,
        theta: Theta,
        X: Tensor,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
    ) -> Distribution:
        f = self.functions(theta, X, offset)
        return self.likelihood.for_rows(trials).distribution(theta, f)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model.

        Args:
            X: Inputs [n, d].
            y: Targets [n]; None: they are drawn.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.
            offset: Of eta [n].
            trials: Of each row [n], for a binomial likelihood.
            weights: How many rows each row counts as, [n].

        Returns:
            The targets [n].
        """
        theta = draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X, offset, trials), X, y, total, weights)

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
    ) -> Distribution:
        """Return the predictive distribution of y at X for each draw of theta.

        Args:
            theta: {site: [draw, *event]}, with the params of the closed form after ``Exact``.
            X: Inputs [n, d].
            train: The training rows.
            joint: Whether the rows are predicted jointly.
            offset: Of eta [n].
            trials: Of each row [n], for a binomial likelihood.

        Returns:
            A distribution of batch [draw, n]; if ``joint``, of batch [draw] and event [n].
        """
        if EXACT + "basis" in theta and not joint:
            found: Any = self._linear().predict(theta, X, train)
            return found if offset is None else _moved(found, offset)
        columns = {"offset": offset, "trials": trials}
        # a user's own distribution may take long, and figures of classes take little time
        slow = isinstance(self.likelihood, FromDistribution | Bernoulli | Categorical | Ordinal)
        return predicted(self.distribution, theta, X, joint, columns, linear=not slow)

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return {"y": log p(y_i given theta), [draw, n]}."""
        given_theta = predicted(self.distribution, theta, data.X, columns=data.for_prediction)
        return {"y": given_theta.log_prob(data.y)}

    # -- preparation and units ------------------------------------------------------------------

    def prepare(self, data: Dataset) -> GLM:
        """Return the recipe with a likelihood for these rows.

        Raises:
            DataError: If y does not suit the likelihood, if flat weights are not determined, or if
                the inputs separate ordered classes under flat priors.
            SettingError: For flat weights of all classes, which no data determine, or an offset
                beside standardised y.
        """
        if data.offset is not None and self.standardised and "y" in self.scales:
            do = "pass standardise=False to fit, or subtract the offset from y"
            raise SettingError("no offset where y is standardised", "one", do)
        counted = data if data.weights is None else data.rows(data.weights > 0)
        ready = replace(self, likelihood=self.likelihood.prepare(counted))
        flat = [isinstance(bare(p), Flat) for p in (self.weight, self.intercept)]
        if isinstance(ready.likelihood, Categorical) and any(flat):
            do = "use SoftmaxRegression, which has a class of reference, or Normal priors"
            raise SettingError("proper priors with Categorical", repr(self), do)
        # the cutpoints are an intercept
        bias = Flat() if isinstance(self.likelihood, Ordinal) else self.intercept
        check_coefficients_determined(counted, self.weight, bias)
        check_overlap(ready.likelihood, counted, self.weight)
        return ready

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return weights of 0 and the constants of least score, or a start in the domain of eta."""
        return start_of(self, data)

    def in_units(self, scaler: Scaler) -> GLM:
        return recipe_in_units(self, scaler)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = coefficients_in_data_units(self, draws, scaler)
        others = {k: v for k, v in draws.items() if k not in own}
        factors = times(others, self.likelihood.factors(float(scaler.y_sd)))
        return {**{k: v for k, v in own.items() if k in draws}, **factors}

    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients in the units of the data.

        Args:
            draws: {site: [chain, draw, *event]} on the scale of the model.
            scaler: The Scaler that standardised the data.
            X: The training inputs [n, d].

        Returns:
            "weight" [chain, draw, (K,) d] (eta over units of x_j); "bias" [chain, draw, (K)], or
            for ordered classes "cutpoints" [chain, draw, classes - 1].
        """
        every = next((v.shape[:2] for v in draws.values()), torch.Size([1, 1]))
        found = coefficients_in_data_units(self, draws, scaler, X.shape[1])
        return {name: value.expand(*every, *value.shape[2:]) for name, value in found.items()}

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Return a warning if the inputs separate the classes and the priors are nearly flat."""
        counted = data if data.weights is None else data.rows(data.weights > 0)
        return separated(self.likelihood, counted, self.weight, self.intercept)

    # -- derivatives ----------------------------------------------------------------------------

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is ClosedForm and (
            not isinstance(self.likelihood, Gaussian) or self.likelihood.predicted
        ):
            got, do = repr(self.likelihood), "use NUTS, or Laplace for an approximation"
            return NotApplicable("Gaussian noise of one variance for the closed form", got, do)
        if capability is LikelihoodDerivatives and not has_joint_slopes(self.likelihood):
            return NotApplicable("a likelihood with slopes", repr(self.likelihood), "use L-BFGS")
        return None

    def curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta), its gradient [p] and its Hessian [p, p], as IRLS needs them.

        The p coordinates are those of weight, bias and the likelihood's sites; fixed ones are left
        out.

        Args:
            theta: One draw, {site: [*event]}.
            data: The training rows.
        """
        return derivatives(self, theta, data, False)

    def expected_curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same with minus the Fisher information in place of the Hessian."""
        return derivatives(self, theta, data, True)

    def informative_priors(self) -> list[str]:
        return informative_priors(self)

    def row_scores(self, theta: Theta, data: Dataset) -> RowScores:
        return row_scores(self, theta, data)

    # -- the closed form ------------------------------------------------------------------------

    def _linear(self) -> LinearRegression:
        """Return the linear regression that this model with Gaussian noise is."""
        noise = self.likelihood.given("noise")
        return LinearRegression(self.weight, self.intercept, noise, standardised=self.standardised)

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draw from the exact posterior, as ``LinearRegression`` does.

        Args:
            train: The training rows.
            draws: Number of draws.
            generator: The random generator.

        Returns:
            The draws {site: [draw, *event]}, the params of the closed form, and the log evidence.
        """
        return self._linear().exact(train, draws, generator)


def _moved(found: Any, offset: Tensor) -> Distribution:
    """Return a Normal or Student's distribution with the offset added."""
    rest = {"df": found.df} if hasattr(found, "df") else {}
    return type(found)(loc=found.loc + offset, scale=found.scale, **rest)


def with_signature(kind: type[GLM]) -> type[GLM]:
    """Return a class with the signature of its ``__init__``, which ``__new__`` would hide."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    set_attributes(kind, __signature__=inspect.Signature(parameters))
    return kind


with_signature(GLM)
