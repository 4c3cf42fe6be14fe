"""check_network: what a deep kernel is worth on rows that nothing of the fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..data.new_rows import in_order
from ..errors import ConvergenceWarning, DataError, NotApplicable
from ..inference import MAP
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..kernels import Deep
from ..models import LinearRegression
from ..models.sites import first_draw
from ..numerics.process_locks import silenced
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..priors import under
from ..target.capabilities import LeaveOneOut

__all__ = ["NetworkCheck", "check_network"]

SURE = 2.0  # standard errors of a mean difference
NARROW = 1e-3  # spread of the features over rows, relative to their size
FEWEST = 10


@dataclass(frozen=True, eq=False)
class NetworkCheck:
    """What ``check_network`` found; densities are mean log densities a row of those held out, in nats.

    Attributes:
        density, error: of the posterior, and its standard error.
        bare: of the same features under a Bayesian linear head alone; ``gain`` is density - bare, ``gain_error`` its standard
            error, paired by row.
        promised: what leave-one-out on the training rows promises, the network held; None where the model has none.
        rank: effective dimension of the features over the rows held out, (sum of eigenvalues)^2 / sum of squares.
        spread: of the features over those rows, relative to their size; 0: all rows are one.
        findings: a sentence for each thing wrong, with what to do.
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
            f"<NetworkCheck {self.density:.3f} +- {self.error:.3f} nats a row, {self.gain:+.3f} +- {self.gain_error:.3f} beside the bare "
            f"network; features of effective dimension {self.rank:.1f}>"
        )
        return "\n".join([head, *self.findings])


def check_network(posterior: Posterior, held_out: Dataset) -> NetworkCheck:
    """Whether the network of a deep kernel has collapsed or memorised its rows, and whether the Gaussian process on it earns its keep.

    The marginal likelihood says none of it: Ober, Rasmussen & van der Wilk (2021).

    Args:
        posterior: of a model whose kernel is ``Deep``, of continuous targets.
        held_out: rows that neither the fit nor the network has seen, in the units of the data.

    Raises:
        NotApplicable: if the kernel is no ``Deep``.
        DataError: if there are fewer than 10 rows, or the posterior was fitted on some of them.
    """
    model, train = posterior.model, posterior.data
    kernel = getattr(model, "kernel", None)
    if not isinstance(kernel, Deep) or not isinstance(train, Dataset):
        got = (
            type(model).__name__
            if kernel is None
            else f"{type(model).__name__} with {type(kernel).__name__}"
        )
        raise NotApplicable("a model whose kernel is Deep", got, "compare models with ppgp.compare")
    if held_out.n < FEWEST:
        raise DataError(f"at least {FEWEST} rows held out", f"{held_out.n}", "hold out more")
    rows = in_order(held_out, train.feature_names)
    law = posterior.predict(rows)
    seen = int(law.in_training_with(held_out.y).sum())
    if seen:
        raise DataError("rows that the fit has not seen", f"{seen} that it has", "hold others out")

    scaler = posterior.scaler
    theta = under("kernel", first_draw(model.sites(train.d), posterior.theta))
    with torch.no_grad():
        X = rows if scaler is None else scaler.inputs(rows)
        F, G = (kernel.features(theta, table) for table in (train.X, X))
    bare = _bare(Dataset(F, train.y), G)
    bare = bare if scaler is None else replace(bare, offset=scaler.y_mean, scale=scaler.y_sd)
    ours, theirs = law.log_prob(held_out.y), bare.log_prob(held_out.y)
    gap = ours - theirs
    root = math.sqrt(held_out.n)
    promised = _promised(posterior, 1.0 if scaler is None else float(scaler.y_sd))
    centred = G - G.mean(0)
    eigenvalues = torch.linalg.svdvals(centred).square()
    found = NetworkCheck(
        density=float(ours.mean()),
        error=float(ours.std()) / root,
        bare=float(theirs.mean()),
        gain=float(gap.mean()),
        gain_error=float(gap.std()) / root,
        promised=promised,
        rank=float(
            eigenvalues.sum().square()
            / eigenvalues.square().sum().clamp_min(torch.finfo(G.dtype).tiny)
        ),
        spread=float(centred.norm() / G.norm().clamp_min(torch.finfo(G.dtype).tiny)),
        findings=(),
    )
    return replace(found, findings=tuple(_findings(found)))


def _bare(data: Dataset, G: Tensor) -> Prediction:
    """The network with a linear head, its weights and noise by MAP."""
    with silenced(ConvergenceWarning):
        return whole(
            fit(LinearRegression(), data, MAP(), progress=False, standardise=False)
        ).predict(G)


def _promised(posterior: Posterior, scale: float) -> float | None:
    if not isinstance(posterior.model, LeaveOneOut):
        return None
    with torch.no_grad():
        return float(
            posterior.model.loo(posterior.theta, posterior.data).log_prob(posterior.data.y).mean()
        ) - math.log(scale)


def _findings(c: NetworkCheck) -> list[str]:
    out = []
    if c.spread < NARROW:
        out.append(
            f"the features are all but one point (spread {c.spread:.1g} of their size): start from networks.pretrained, or lower the "
            "learning rate of kernel.network"
        )
    if c.gain < -SURE * c.gain_error:
        out.append(
            f"the network with a linear head does better by {-c.gain:.2f} +- {c.gain_error:.2f} nats a row: freeze a pretrained network "
            "(Deep(..., frozen=True)), or fit with hold_out"
        )
    if c.promised is not None and c.promised - c.density > SURE * c.error:
        out.append(
            f"leave-one-out promises {c.promised:.2f} nats a row and new rows have {c.density:.2f}: the network has memorised its rows; "
            "calibrate the intervals, fit with hold_out, or use dropout"
        )
    return out
