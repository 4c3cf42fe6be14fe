"""Check a deep kernel on held-out rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..capabilities import LeaveOneOut
from ..data.dataset import Dataset
from ..data.new_rows import in_order
from ..errors import ConvergenceWarning, DataError, NotApplicable
from ..inference import MAP
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..kernels import Deep
from ..models import LinearRegression
from ..models.sites import first_draw
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..priors import under
from ..runtime.process_locks import silenced

__all__ = ["NetworkCheck", "check_network"]

SURE = 2.0  # standard errors above which a mean difference is reported
NARROW = 1e-3  # spread of the features over rows, relative to their size
FEWEST_ROWS = 10


@dataclass(frozen=True, eq=False)
class NetworkCheck:
    """The result of ``check_network``; densities are mean log densities per held-out row, in nats.

    Attributes:
        density: Of the posterior.
        error: Its standard error.
        bare: Of the same features under a Bayesian linear head alone.
        gain: Density - bare.
        gain_error: The standard error of the gain, paired by row.
        promised: The density that leave-one-out on the training rows predicts, with the network
            fixed; None where the model has no leave-one-out predictions.
        rank: The effective dimension of the features over the held-out rows, (sum of
            eigenvalues)^2 / sum of squares.
        spread: Of the features over those rows, relative to their size; 0: all rows are equal.
        findings: One sentence per failed check, with what to do.
    """

    density: float
    error: float
    bare: float
    gain: float
    gain_error: float
    promised: float | None
    rank: float
    spread: float
    findings: tuple[str, ...]

    def __repr__(self) -> str:
        head = (
            f"<NetworkCheck {self.density:.3f} +- {self.error:.3f} nats per row, "
            f"{self.gain:+.3f} +- {self.gain_error:.3f} more than the bare network; "
            f"features of effective dimension {self.rank:.1f}>"
        )
        return "\n".join([head, *self.findings])


def check_network(posterior: Posterior, held_out: Dataset) -> NetworkCheck:
    """Check the network of a deep kernel on held-out rows.

    The check shows whether the network has collapsed or memorised its rows, and whether the
    Gaussian process improves on a linear head. The marginal likelihood shows neither: Ober,
    Rasmussen & van der Wilk (2021).

    Args:
        posterior: Of a model whose kernel is ``Deep``, with continuous targets.
        held_out: Rows X [m, d] and y [m] that neither the fit nor the network has used, in the
            units of the data.

    Returns:
        The NetworkCheck.

    Raises:
        NotApplicable: If the kernel is no ``Deep``.
        DataError: If there are fewer than 10 rows, or the posterior was fitted on some of them.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, networks
        >>> x = torch.linspace(-1, 1, 60, dtype=torch.float64)
        >>> train, held_out = ppgp.Dataset(x[:, None], x**2 + 0.05 * torch.sin(50 * x)).split(0.7)
        >>> recipe = models.GP(kernels.Deep(networks.MLP(hidden=(8,), out=2), kernels.RBF()))
        >>> how = inference.MAP("adam", steps=50)
        >>> posterior = ppgp.fit(recipe, train, how, progress=False)
        >>> check = ppgp.check_network(posterior, held_out)
        >>> check.findings
        ()
        >>> round(check.density, 1)
        1.5
        >>> check.gain > 0
        True
    """
    model, train = posterior.model, posterior.data
    kernel = getattr(model, "kernel", None)
    if not isinstance(kernel, Deep) or not isinstance(train, Dataset):
        got = type(model).__name__
        if kernel is not None:
            got += f" with {type(kernel).__name__}"
        raise NotApplicable("a model whose kernel is Deep", got, "compare models with ppgp.compare")
    if held_out.n < FEWEST_ROWS:
        raise DataError(f"at least {FEWEST_ROWS} rows held out", f"{held_out.n}", "hold out more")
    rows = in_order(held_out, train.feature_names)
    prediction = posterior.predict(rows)
    used = int(prediction.in_training_with(held_out.y).sum())
    if used:
        raise DataError("rows that the fit has not used", f"{used} that it has", "hold others out")

    scaler = posterior.scaler
    theta = under("kernel", first_draw(model.sites(train.d), posterior.theta))
    with torch.no_grad():
        F, G = (kernel.features(theta, table) for table in (train.X, scaler.inputs(rows)))
    offset, scale = scaler.location_and_scale
    bare = replace(_linear_head(Dataset(F, train.y), G), offset=offset, scale=scale)
    ours, theirs = prediction.log_prob(held_out.y), bare.log_prob(held_out.y)
    gap = ours - theirs
    root = math.sqrt(held_out.n)
    centred = G - G.mean(0)
    eigenvalues = torch.linalg.svdvals(centred).square()
    tiny = torch.finfo(G.dtype).tiny
    rank = eigenvalues.sum().square() / eigenvalues.square().sum().clamp_min(tiny)
    check = NetworkCheck(
        density=float(ours.mean()),
        error=float(ours.std()) / root,
        bare=float(theirs.mean()),
        gain=float(gap.mean()),
        gain_error=float(gap.std()) / root,
        promised=_leave_one_out_density(posterior),
        rank=float(rank),
        spread=float(centred.norm() / G.norm().clamp_min(tiny)),
        findings=(),
    )
    return replace(check, findings=tuple(_findings(check)))


def _linear_head(data: Dataset, G: Tensor) -> Prediction:
    """Return the prediction of a linear head on the features, its weights and noise by MAP."""
    with silenced(ConvergenceWarning):
        linear = fit(LinearRegression(), data, MAP(), progress=False, standardise=False)
        return raise_if_interrupted(linear).predict(G)


def _leave_one_out_density(posterior: Posterior) -> float | None:
    """Return the mean leave-one-out log density of the training rows, in the units of the data."""
    if not isinstance(posterior.model, LeaveOneOut):
        return None
    scale = float(posterior.scaler.y_sd)
    with torch.no_grad():
        predictive = posterior.model.loo(posterior.theta, posterior.data)
        return float(predictive.log_prob(posterior.data.y).mean()) - math.log(scale)


def _findings(check: NetworkCheck) -> list[str]:
    """Return one sentence per failed check."""
    findings = []
    if check.spread < NARROW:
        findings.append(
            f"the features are nearly equal in all rows (spread {check.spread:.1g} of their size): "
            "start from networks.pretrained, or lower the learning rate of kernel.network"
        )
    if check.gain < -SURE * check.gain_error:
        findings.append(
            "the network with a linear head is better by "
            f"{-check.gain:.2f} +- {check.gain_error:.2f} nats per row: freeze a pretrained "
            "network (Deep(..., frozen=True)), or fit with hold_out"
        )
    if check.promised is not None and check.promised - check.density > SURE * check.error:
        findings.append(
            f"leave-one-out predicts {check.promised:.2f} nats per row and new rows have "
            f"{check.density:.2f}: the network has memorised its rows; calibrate the intervals, "
            "fit with hold_out, or use dropout"
        )
    return findings
