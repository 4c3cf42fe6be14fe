"""Tables of the coefficients of linear models, and their draws, which show as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyro.distributions as dist
import torch
from torch import Tensor

from ..capabilities import IntegratedCoefficients, LinearCoefficients
from ..data.dataset import Dataset, Scaler
from ..display import tables as html
from ..errors import NotApplicable
from ..numerics.sandwich import two_sided
from .maximum_likelihood import Mode
from .prediction import Prediction

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Coefficients", "of_draws", "of_integrated", "of_maximum_likelihood", "ratio_of"]

SHOWN = 60  # coefficients that a notebook shows


class Coefficients(dict[str, Tensor]):
    """Draws of coefficients in the units of the data, ``{name: [chain, draw, ...]}``.

    Args:
        draws: The draws.
        table: Makes the data frame of the draws.
    """

    def __init__(self, draws: Mapping[str, Tensor], table: Callable[[], pd.DataFrame]) -> None:
        super().__init__(draws)
        self._table = table

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per coefficient: ``Posterior.coefficients("draws")``."""
        return self._table()

    def _shown(self) -> pd.DataFrame:
        """Return the table; of a point, which has no spread, the values alone."""
        table = self.to_frame()
        chains, draws = next(iter(self.values())).shape[:2]
        if chains * draws > 1:
            return table
        return table["mean"].to_frame("value")

    def __repr__(self) -> str:
        return self._shown().to_string(float_format=lambda number: f"{number:.4g}")

    def _repr_html_(self) -> str:
        table = self._shown()
        about = f"{len(table):,}, {table.index.name}"
        return html.page("Coefficients", about, html.frame(table.rename_axis(None), SHOWN))


def of_draws(
    model: LinearCoefficients,
    draws: Mapping[str, Tensor],
    data: Dataset,
    scaler: Scaler,
    share: float,
    exponentiate: bool,
) -> pd.DataFrame:
    """Return the table of draws: mean, sd, the median and the central interval.

    Args:
        model: The model.
        draws: ``{site: [chain, draw, *event]}``.
        data: The training rows.
        scaler: What gives the units of the table.
        share: The probability outside each end of the intervals.
        exponentiate: Whether the table is one of exp of the coefficients.
    """
    import pandas as pd

    names, flat = _in_rows(model, data, model.coefficients(draws, scaler, data.X))
    flat = flat.exp() if exponentiate else flat
    spread = flat.std(0) if len(flat) > 1 else torch.full_like(flat[0], torch.nan)
    at = torch.quantile(flat, flat.new_tensor([share, 0.5, 1 - share]), dim=0)
    columns = ["mean", "sd", *_labels(share, "50%")]
    rows = torch.stack([flat.mean(0), spread, *at], -1).tolist()
    return pd.DataFrame(rows, index=pd.Index(names), columns=columns)


def of_maximum_likelihood(
    mode: Mode,
    kind: Any,
    scaler: Scaler,
    share: float,
    exponentiate: bool,
    dispersion: str | float | None,
) -> pd.DataFrame:
    """Return the table of maximum likelihood: estimate, se, z, p and the Wald interval.

    Args:
        mode: The mode of the model.
        kind: The covariance, as of ``Mode.covariance``.
        scaler: What gives the units of the table.
        share: The probability outside each end of the intervals.
        exponentiate: Whether the table is one of exp of the coefficients.
        dispersion: As of ``Mode.covariance``.
    """
    import pandas as pd

    found, precise = mode.covariance(kind, dispersion)
    covariance = precise.double()
    model: Any = mode.model
    data = mode.data
    # the coefficients are affine in the sites: at 0, and at each unit vector
    p, start, units = len(covariance), 0, {}
    identity = torch.cat([precise.new_zeros(1, p), torch.eye(p).to(precise)])
    for name, shape in found.sites.items():
        end = start + shape.numel()
        units[name] = identity[:, start:end].reshape(1, p + 1, *shape)
        start = end
    moved = _in_rows(model, data, model.coefficients(units, scaler, data.X))[1]
    own = {name: value[None, None] for name, value in mode.theta.items()}
    names, estimate = _in_rows(model, data, model.coefficients(own, scaler, data.X))
    J = (moved[1:] - moved[:1]).mT
    error = (J @ covariance * J).sum(1).clamp_min(0.0).sqrt()
    b = estimate[0]
    z = torch.where(error > 0, b / error, torch.nan)
    reach = -float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    columns = {"estimate": b, "se": error, "z": z, "p": two_sided(z)}
    for label, end in zip(_labels(share), (b - reach * error, b + reach * error), strict=True):
        columns[label] = end
    table = pd.DataFrame({k: v.cpu().numpy() for k, v in columns.items()}, index=pd.Index(names))
    if exponentiate:
        table = table.drop(columns="se")
        ends = ["estimate", *_labels(share)]
        table[ends] = table[ends].map(_exp)
    return table


def of_integrated(
    model: IntegratedCoefficients,
    theta: Mapping[str, Tensor],
    data: Dataset,
    scaler: Scaler,
    share: float,
) -> pd.DataFrame:
    """Return the table of coefficients that a model integrates out.

    It has mean, sd, the median and the central interval of the mixture of the normal distributions
    that the coefficients have given each draw of the hyperparameters, and of no draws of their own.

    Args:
        model: The model.
        theta: ``{site: [draw, *event]}``.
        data: The training rows.
        scaler: What gives the units of the table.
        share: The probability outside each end of the intervals.
    """
    import pandas as pd

    columns = list(model.weighted(data.d))
    mean, sd = model.weight_moments(theta, data)
    scale = scaler.y_sd / scaler.x_sd[columns]
    found = Prediction(dist.Normal(mean * scale, sd * scale))
    names = data.feature_names or [f"x{j}" for j in range(data.d)]
    low, high = _labels(share)
    table = {"mean": found.mean, "sd": found.std, low: found.quantile(share)}
    table |= {"50%": found.quantile(0.5), high: found.quantile(1 - share)}
    index = pd.Index([names[column] for column in columns])
    return pd.DataFrame({name: value.cpu().numpy() for name, value in table.items()}, index=index)


def ratio_of(model: Any) -> str:
    """Return what exp of a coefficient is.

    Raises:
        NotApplicable: If it is nothing.
    """
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None and hasattr(model, "likelihood_of_functions"):
        likelihood = model.likelihood_of_functions()
    ratio = None if likelihood is None else likelihood.ratio()
    if ratio is None:
        got = type(model).__name__ if likelihood is None else repr(likelihood)
        do = "leave exponentiate out"
        raise NotApplicable("a log or logit link, whose coefficients are logs of ratios", got, do)
    return ratio


def _in_rows(model: Any, data: Dataset, found: dict[str, Tensor]) -> tuple[list[str], Tensor]:
    """Return the names of all coefficients, and their draws [draw, coefficient].

    The intercept comes first, and the cutpoints between ordered classes last.
    """
    columns = data.feature_names or [f"x{j}" for j in range(data.d)]
    names: list[str] = []
    parts: list[Tensor] = []
    weight = found["weight"].flatten(0, 1)
    several = weight.ndim == 3
    bias = found["bias"].flatten(0, 1) if "bias" in found else None
    for k, before in enumerate(_functions(model, data, weight.shape[1]) if several else [""]):
        if bias is not None:
            names.append(f"{before}intercept")
            parts.append((bias[:, k] if several else bias)[:, None])
        names += [f"{before}{column}" for column in columns]
        parts.append(weight[:, k] if several else weight)
    if "cutpoints" in found:
        cuts = found["cutpoints"].flatten(0, 1)
        labels = data.classes or range(cuts.shape[1] + 1)
        names += [f"{labels[k]}|{labels[k + 1]}" for k in range(cuts.shape[1])]
        parts.append(cuts)
    return names, torch.cat(parts, 1).double()


def _functions(model: Any, data: Dataset, count: int) -> list[str]:
    """Return what precedes the names of the coefficients of each function."""
    likelihood: Any = getattr(model, "likelihood", None)
    predicted = tuple(getattr(likelihood, "predicted", ()))
    if len(predicted) == count - 1:
        return ["", *(f"{likelihood.scale_of(name)} {name}: " for name in predicted)]
    labels = list(data.classes or range(count))
    return [f"{label}: " for label in labels[len(labels) - count :]]


def _labels(share: float, *middle: str) -> list[str]:
    low, high = (f"{round(100 * s, 10):g}%" for s in (share, 1 - share))
    return [low, *middle, high]


def _exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())
