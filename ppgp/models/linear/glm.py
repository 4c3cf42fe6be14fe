"""Generalised linear models: linear functions of x behind any likelihood."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
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
from ...data.entries.arrays import as_pandas
from ...data.formula_design import design_of
from ...display.overrides import computed, set_attributes
from ...errors import DataError, NotApplicable, SettingError, UnknownName
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
from ...likelihoods.ordinal import CutpointPrior
from ...priors import (
    Flat,
    Normal,
    Prior,
    PriorLike,
    Site,
    Uniform,
    bare,
    in_units_of_data,
    rescaled,
    site,
    value_of,
)
from ..base import AnyLikelihood
from ..classification import (
    check_coefficients_determined,
    check_overlap,
    separation_under,
)
from ..independent_rows import observed, predicted
from ..sites import Theta, draw
from ..units import coefficients_in_units, times
from .glm_curvature import predictor_curvature
from .joint_slopes import JointSlopes, Rows, free_sites, has_joint_slopes, starting_constants
from .linear_regression import EXACT, LinearRegression
from .varying import Varying

DEFAULT_WEIGHT = Normal(0.0, 1.0)
DEFAULT_BIAS = Normal(0.0, 5.0)
ROWS = 10_000  # that show where a search starts
LARGEST = 1e3  # of a standardised weight that is sought for eta > 0


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
    weight: PriorLike = DEFAULT_WEIGHT
    bias: PriorLike | None = None
    groups: Mapping[str, Varying] | None = field(default=None, repr=False, kw_only=True)
    effects: str | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("weight", "bias", "noise")
    takes_stream = True
    with_groups: ClassVar[Any] = None  # the class ``Multilevel``, which its own file sets

    @classmethod
    def from_formula(
        cls: Any,
        formula: str,
        table: Any,
        likelihood: Likelihood | None = None,
        weight: PriorLike = DEFAULT_WEIGHT,
        bias: PriorLike | None = None,
        *,
        groups: Mapping[str, Varying] | None = None,
        effects: str | None = None,
        offset: str | None = None,
        trials: str | None = None,
        weights: str | None = None,
        ids: str | None = None,
    ) -> tuple[Any, Dataset]:
        """Return a GLM and the Dataset of a formula: ``model, data = GLM.from_formula(...)``.

        The formula is in Wilkinson's notation as formulaic reads it: "y ~ x + C(z)",
        "log(y) ~ x * z", "y ~ bs(x, df=4)", and "y ~ ." for all other columns without a role.
        formulaic is the extra ``ppgp[formula]``. Its expressions are Python code: do not evaluate a
        formula that you do not trust.

        ``predict`` of a fit to the Dataset takes tables with the variables of the formula:
        categories have the levels of the training rows, and functions such as ``center`` their
        constants. ``data.design(table)`` makes these columns. A file of a posterior holds no
        formula, so that ``predict`` of a loaded one takes ``data.design(table)``.

        Args:
            formula: "target ~ terms". A formula without intercept ("- 1") fixes the bias to 0, and
                ``fit`` then needs ``standardise=False``.
            table: A pandas DataFrame.
            likelihood: As of ``GLM``; None: Gaussian.
            weight: As of ``GLM``.
            bias: As of ``GLM``.
            groups: As of ``GLM``: {column of the table: Varying(...)}, whose terms are columns of
                the design.
            effects: As of ``GLM``.
            offset: The column of the offset of the linear predictor.
            trials: The column of the numbers of trials.
            weights: The column of the frequency weights.
            ids: The column with the names of the rows.

        Returns:
            The model and the Dataset.

        Raises:
            NotApplicable: If formulaic is not installed.
            SettingError: If the formula cannot be read, has not one target or no terms, or if a
                bias is given beside a formula without an intercept.
            UnknownName: If the table lacks a column.
            DataError: If the table is no DataFrame, or a variable has missing values.
        """
        roles = {"offset": offset, "trials": trials, "weights": weights, "ids": ids}
        named = {role: name for role, name in roles.items() if name is not None}
        others = (*named.values(), *(groups or {}))
        table = as_pandas(table)
        columns = getattr(table, "columns", others)
        for name in others:
            if name not in columns:
                raise UnknownName("column", str(name), map(str, columns))
        design, inputs, target, name = design_of(formula, table, others)
        law = Gaussian() if likelihood is None else likelihood
        if not design.intercept and not isinstance(law, Ordinal):
            if bias is not None:
                do = "leave out '- 1' in the formula"
                raise SettingError("no bias beside a formula without an intercept", repr(bias), do)
            bias = 0.0
        data = Dataset(
            inputs.to_numpy(dtype=float),
            target,
            feature_names=design.names,
            target_name=name,
            groups={one: table[one] for one in groups} if groups else None,
            role_names=named,
            **{role: table[column].to_numpy() for role, column in named.items()},
        )
        options = {} if groups is None else {"groups": groups, "effects": effects}
        return cls(law, weight, bias, **options), data.with_design(design)

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
        """Run the Pyro program of the model; see ``Model.model``.

        Rows may have an ``offset`` of eta [n], the ``trials`` [n] of a binomial likelihood, and
        ``weights`` [n], how many rows each row counts as.
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
        """Return the predictive distribution of y at X; see ``Model.predict``.

        After ``Exact`` theta holds the params of the closed form. Rows may have an ``offset`` of
        eta [n] and the ``trials`` [n] of a binomial likelihood.
        """
        if EXACT + "basis" in theta and not joint:
            found: Any = self._linear().predict(theta, X, train)
            return found if offset is None else _moved(found, offset)
        columns = {"offset": offset, "trials": trials}
        # a user's own distribution may take long, and figures of classes take little time
        slow = isinstance(self.likelihood, FromDistribution | Bernoulli | Categorical | Ordinal)
        return predicted(self.distribution, theta, X, joint, columns, linear=not slow)

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
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
        """Return weights of 0 and the constants of least score, or a start in the domain of eta.

        Raises:
            DataError: If eta must be positive, and no weights make it so in every row.
        """
        likelihood: Any = self.likelihood
        if isinstance(likelihood, Ordinal):
            return _start_of_cutpoints(likelihood, data)
        if not has_joint_slopes(likelihood):
            return {}
        y, trials, offset = _some_rows(data)
        functions, values = starting_constants(likelihood, y, trials)
        if not bool(torch.isfinite(functions).all()):
            return {}
        if offset is not None:
            functions[0] -= offset.mean()
        start = {n: v for n, v in values.items() if bool(torch.isfinite(v)) and float(v) > 0}
        if isinstance(self.intercept, Prior):
            start["bias"] = functions if likelihood.latents > 1 else functions[0]
        return self._positive_start(data, start) if likelihood.positive_f else start

    def _positive_start(self, data: Dataset, start: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a start with eta > 0 in every row."""
        zero = {"weight": data.X.new_zeros(data.d)} if isinstance(self.weight, Prior) else {}
        several = self.likelihood.latents > 1
        if several and zero:
            zero["weight"] = data.X.new_zeros(self.likelihood.latents, data.d)
        here = {**zero, **start}
        if bool((self._first(here, data) > 0).all()):
            return here
        moved = self._sought(here, data)
        if moved is None:
            raise DataError(
                "some weights for which eta is positive in every row, as the inverse link needs",
                "none",
                "use link='log', or give the model an intercept",
            )
        return moved

    def _first(self, theta: dict[str, Tensor], data: Dataset) -> Tensor:
        """Return the first function of every row, [n]."""
        f = self.functions(theta, data.X, data.offset)
        return f[0] if f.ndim == 2 else f

    def _sought(self, start: dict[str, Tensor], data: Dataset) -> dict[str, Tensor] | None:
        """Return the start with weights and intercept for which the least eta is largest.

        A linear programme finds them. None: no weights make eta positive.
        """
        from scipy.optimize import linprog

        several = self.likelihood.latents > 1
        columns, names = [], [n for n in ("weight", "bias") if n in start]
        if not names:
            return None
        if "weight" in names:
            columns.append(data.X)
        if "bias" in names:
            columns.append(torch.ones_like(data.X[:, :1]))
        A = torch.cat(columns, 1).double().cpu().numpy()
        level_only = {n: (torch.zeros_like(v) if n in names else v) for n, v in start.items()}
        fixed = self._first(level_only, data).double().cpu().numpy()
        level = float(1 / data.y.mean())
        gain = np.append(np.zeros(A.shape[1]), -1.0)
        limits = [(-LARGEST * level, LARGEST * level)] * A.shape[1] + [(None, level)]
        found = linprog(
            gain,
            A_ub=np.hstack([-A, np.ones((len(A), 1))]),
            b_ub=fixed,
            bounds=limits,
            method="highs",
        )
        if found.status != 0 or not found.x[-1] > 0:
            return None
        values = torch.as_tensor(found.x[:-1]).to(data.X)
        moved = dict(start)
        if "weight" in names:
            moved["weight"] = _in_first(start["weight"], values[: data.d], several)
            values = values[data.d :]
        if "bias" in names:
            moved["bias"] = _in_first(start["bias"], values[0], several)
        return moved

    def in_units(self, scaler: Scaler) -> GLM:
        y_sd = float(scaler.y_sd)
        likelihood: Any = self.likelihood.in_units(y_sd)
        given = [p for p in (self.weight, self.bias) if in_units_of_data(p)]
        if likelihood.predicted and given and y_sd != 1.0:
            raise SettingError(
                "priors on the standardised scale for several functions, which differ in their "
                "units",
                repr(given[0]),
                "pass standardise=False to fit, or use other priors",
            )
        if isinstance(likelihood, Ordinal):
            likelihood = self._cutpoints_in_units(likelihood, scaler)
        if isinstance(likelihood, Ordinal) or self.bias is None:
            weight, _ = coefficients_in_units(self.weight, Flat(), scaler)
            return replace(self, likelihood=likelihood, weight=weight)
        weight, bias = coefficients_in_units(self.weight, self.bias, scaler)
        return replace(self, likelihood=likelihood, weight=weight, bias=bias)

    def _cutpoints_in_units(self, likelihood: Ordinal, scaler: Scaler) -> Ordinal:
        """Return the likelihood with its numbers, if it has them, at the mean of X."""
        x_mean, cutpoints = scaler.x_mean.tolist(), likelihood.cutpoints
        if isinstance(cutpoints, Prior) or not any(x_mean):
            return likelihood
        weight: Any = self.weight
        if isinstance(weight, Prior):
            raise SettingError(
                "cutpoints in the units of the data beside fixed weights alone",
                repr(cutpoints),
                "pass standardise=False to fit, or give the cutpoints a prior",
            )
        each = weight if isinstance(weight, tuple) else (weight,) * len(x_mean)
        shift = -sum(w * m for w, m in zip(each, x_mean, strict=True))
        return replace(likelihood, cutpoints=rescaled(cutpoints, 1.0, shift, "cutpoints"))

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = self._coefficients_in_data_units(draws, scaler)
        others = {k: v for k, v in draws.items() if k not in own}
        factors = times(others, self.likelihood.factors(float(scaler.y_sd)))
        return {**{k: v for k, v in own.items() if k in draws}, **factors}

    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients in the units of the data; see ``LinearCoefficients``.

        They are "weight" [chain, draw, (K,) d] (eta over units of x_j), and "bias"
        [chain, draw, (K)], or for ordered classes "cutpoints" [chain, draw, classes - 1].
        """
        every = next((v.shape[:2] for v in draws.values()), torch.Size([1, 1]))
        found = self._coefficients_in_data_units(draws, scaler, X.shape[1])
        return {name: value.expand(*every, *value.shape[2:]) for name, value in found.items()}

    def _coefficients_in_data_units(
        self, draws: Mapping[str, Tensor], scaler: Scaler, d: int | None = None
    ) -> dict[str, Tensor]:
        """Return weights, and intercepts or cutpoints, in the units of the data.

        Args:
            draws: {site: [chain, draw, *event]} on the scale of the model.
            scaler: The Scaler that standardised the data.
            d: The number of columns of X; None: that of the Scaler.

        Returns:
            {name: [chain, draw, *event]}, or [1, 1, *event] where all that it depends on is fixed.
        """
        likelihood, like = self.likelihood, scaler.x_mean
        d = len(like) if d is None else d
        weight, bias = self.predictors(draws, like.new_zeros(1, d))
        if weight.ndim == 2:
            weight = weight[None, None]
        if bias.ndim == 1:
            bias = bias[None, None]
        factor, shift = _of_functions(likelihood, scaler)
        weight = weight * factor[:, None] / scaler.x_sd
        at_mean = weight @ scaler.x_mean.expand(d)
        if isinstance(likelihood, Ordinal):
            cutpoints: Any = likelihood.value(draws, "cutpoints", like)[..., 0]
            if cutpoints.ndim == 1:
                cutpoints = cutpoints[None, None]
            return {"weight": weight[..., 0, :], "cutpoints": cutpoints + at_mean}
        bias = bias * factor + shift - at_mean
        if likelihood.latents == 1:
            return {"weight": weight[..., 0, :], "bias": bias[..., 0]}
        return {"weight": weight, "bias": bias}

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Return a warning if the inputs separate the classes and the priors are nearly flat."""
        counted = data if data.weights is None else data.rows(data.weights > 0)
        return separation_under(self.likelihood, counted, self.weight, self.intercept)

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
        """Return log p(y given theta), its gradient and its Hessian, as IRLS needs them.

        The coordinates are those of weight, bias and the likelihood's sites; fixed ones are left
        out.
        """
        return self._derivatives(theta, data, False)

    def expected_curvature(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor, Tensor]:
        return self._derivatives(theta, data, True)

    def _derivatives(
        self, theta: Theta, data: Dataset, expected: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log p(y given theta), its gradient [p] and its Hessian [p, p].

        Args:
            theta: One draw, {site: [*event]}.
            data: The training rows.
            expected: Whether the Hessian is minus the Fisher information.
        """
        d, K = data.d, self.likelihood.latents
        slopes = JointSlopes(self.likelihood, theta)
        P, with_bias = len(slopes.constants), isinstance(self.intercept, Prior)
        weight, bias = self.predictors(theta, data.X)
        rows = _rows(weight, bias, slopes, data, expected)
        value, gradient, H = predictor_curvature(data.X, rows, K, P, with_bias)
        q = d + with_bias
        order = self._order(d, K, P)
        by_constant, bend = slopes.by_natural()
        factor = torch.cat([gradient.new_ones(K * q), by_constant.to(gradient)])
        H = factor[:, None] * H * factor
        if not expected:
            H[K * q :, K * q :] += torch.diag(gradient[K * q :] * bend.to(gradient))
        return value, (factor * gradient)[order], H[order][:, order]

    def _order(self, d: int, K: int, P: int) -> Tensor:
        """Return the places of the coordinates that have a prior.

        They are the weights, the intercepts and the constants.
        """
        q = d + isinstance(self.intercept, Prior)
        index = torch.arange(K * q).reshape(K, q)
        kept = [index[:, :d].reshape(-1)] if isinstance(self.weight, Prior) else []
        return torch.cat([*kept, index[:, d:].reshape(-1), K * q + torch.arange(P)])

    def informative_priors(self) -> list[str]:
        """Return the priors that are neither flat nor that of a dispersion, in words.

        A uniform prior is flat where the mode can be.
        """
        likelihood = self.likelihood
        priors: dict[str, Any] = {"weight": bare(self.weight), "bias": bare(self.intercept)}
        priors |= {name: bare(one.prior) for name, one in likelihood.sites().items()}
        return [
            f"{name} ~ {prior!r}"
            for name, prior in priors.items()
            if isinstance(prior, Prior)
            and not isinstance(prior, Flat | Uniform)
            and not (isinstance(prior, CutpointPrior) and prior.flat)
            and name != likelihood.dispersion_parameter()
        ]

    def row_scores(self, theta: Theta, data: Dataset) -> RowScores:
        """Return the derivatives of the rows at one draw, as of ``GeneralisedLinear``.

        The coordinates of positive parameters are their logs.
        """
        d, K, likelihood = data.d, self.likelihood.latents, self.likelihood
        slopes = JointSlopes(likelihood, theta)
        free = slopes.free
        if likelihood.dispersion_parameter() in free:
            free = []
        P, with_bias = len(slopes.constants), isinstance(self.intercept, Prior)
        weight, bias = self.predictors(theta, data.X)
        order = self._order(d, K, P if free else 0)
        each = _rows(weight, bias, slopes, data, False, weighted=False)(slice(None))[1]
        A = torch.cat([data.X, torch.ones_like(data.X[:, :1])], 1)[:, : d + with_bias]
        by_predictor = [one[:, None] * A for one in each[:K]]
        scores = torch.cat([*by_predictor, each[K:].mT], 1)[:, order]

        def information(expected: bool) -> Tensor:
            rows = _rows(weight, bias, slopes, data, expected)
            return -predictor_curvature(data.X, rows, K, P, with_bias)[2][order][:, order]

        fisher = information(True)
        own = {name: self.sites(d)[name] for name in ("weight", "bias", *free)}
        sites = {name: torch.Size(one.shape) for name, one in own.items() if not one.fixed}
        leverage = None
        if K == 1 and not free and isinstance(self.weight, Prior):
            second = _rows(weight, bias, slopes, data, True, weighted=False)(slice(None))[2][0, 0]
            leverage = -second * (A * torch.linalg.solve(fisher, A.mT).mT).sum(-1)
        return RowScores(sites, scores, partial(information, False), fisher, leverage)

    # -- the closed form ------------------------------------------------------------------------

    def _linear(self) -> LinearRegression:
        """Return the linear regression that this model with Gaussian noise is."""
        noise = self.likelihood.given("noise")
        return LinearRegression(self.weight, self.intercept, noise, standardised=self.standardised)

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draw from the exact posterior, as ``LinearRegression`` does."""
        return self._linear().exact(train, draws, generator)


def _moved(found: Any, offset: Tensor) -> Distribution:
    """Return a Normal or Student's distribution with the offset added."""
    rest = {"df": found.df} if hasattr(found, "df") else {}
    return type(found)(loc=found.loc + offset, scale=found.scale, **rest)


def _some_rows(data: Dataset) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return targets, trials and offset of some rows that count."""
    rows = torch.arange(data.n, device=data.X.device)
    if data.weights is not None:
        rows = rows[data.weights > 0]
    rows = rows[:: max(1, len(rows) // ROWS)]
    others = (None if c is None else c[rows] for c in (data.trials, data.offset))
    return (data.y[rows], *others)  # type: ignore[return-value]


def _start_of_cutpoints(likelihood: Ordinal, data: Dataset) -> dict[str, Tensor]:
    if not free_sites(likelihood):
        return {}
    numbers: Any = likelihood.at_shares(data).cutpoints
    return {"cutpoints": torch.tensor(numbers, dtype=data.X.dtype, device=data.X.device)}


def _in_first(before: Tensor, value: Tensor, several: bool) -> Tensor:
    """Return the value of the first function, with those of the others as before."""
    if not several:
        return value
    after = before.clone()
    after[0] = value
    return after


def _of_functions(likelihood: Likelihood, scaler: Scaler) -> tuple[Tensor, Tensor]:
    """Return factor and shift [K] from the functions on the scale of the model to data units."""
    K = likelihood.latents
    factor, shift = torch.ones(K).to(scaler.x_mean), torch.zeros(K).to(scaler.x_mean)
    if "y" not in likelihood.scales:
        return factor, shift
    factor[0], shift[0] = scaler.y_sd, scaler.y_mean
    for k, name in enumerate(likelihood.predicted, 1):
        shift[k] = likelihood.dimensions.get(name, 0) * math.log(float(scaler.y_sd))
    return factor, shift


def _rows(
    weight: Tensor,
    bias: Tensor,
    slopes: JointSlopes,
    data: Dataset,
    expected: bool,
    weighted: bool = True,
) -> Callable[[slice], Rows]:
    """Return the function that maps a slice of rows to their derivatives, times their weights."""
    offset, trials = data.offset, data.trials
    weights = data.weights if weighted else None

    def rows(chunk: slice) -> Rows:
        f = torch.addmm(bias[:, None], weight, data.X[chunk].mT)
        if offset is not None:
            f[0] += offset[chunk]
        own = trials if trials is None else trials[chunk]
        found = slopes.rows(f, data.y[chunk], own, expected)
        if weights is None:
            return found
        w = weights[chunk]
        value, first, second = (torch.where(w > 0, w * one, 0.0) for one in found)
        return value, first, second

    return rows


def with_signature(kind: type[GLM]) -> type[GLM]:
    """Return a class with the signature of its ``__init__``, which ``__new__`` would hide."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    set_attributes(kind, __signature__=inspect.Signature(parameters))
    return kind


with_signature(GLM)
