"""The fit of several outputs, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data.outputs import Outputs
from ..errors import DataError, NotApplicable
from ..models.multi import Multi
from ..posterior.multi import MultiPosterior
from ..posterior.posterior import Posterior


def fit_each(
    multi: Multi, data: Any, fit: Callable[..., Posterior], options: dict[str, Any]
) -> MultiPosterior:
    """Fit one model to each output.

    Args:
        multi: The models.
        data: The Outputs.
        fit: ``ppgp.fit``.
        options: Its options.

    Raises:
        DataError: If the data are no Outputs.
        NotApplicable: With a checkpoint or a start, which belong to one fit.
    """
    if not isinstance(data, Outputs):
        do = "use ppgp.data.Outputs(X, Y)"
        raise DataError("Outputs for Multi", type(data).__name__, do)
    for name in ("init", "checkpoint"):
        if options.get(name) is not None:
            do = "fit that output by itself: ppgp.fit(model, outputs.datasets[0])"
            raise NotApplicable(f"a fit of one output for {name}=", "Multi", do)
    models = multi.models(len(data.datasets))
    pairs = zip(models, data.datasets, strict=True)
    fits = [fit(model, each, **options) for model, each in pairs]
    return MultiPosterior(dict(zip(data.names, fits, strict=True)))
