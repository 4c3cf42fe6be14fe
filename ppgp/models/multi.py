"""Several outputs, each by a model of its own."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import named_arguments
from ..errors import DataError, SettingError, counted
from .base import Model

__all__ = ["Multi"]


@named_arguments
@dataclass(frozen=True)
class Multi:
    """Independent models of several outputs y [n, q] of the same rows, in one call of ``fit``.

    ``ppgp.fit(Multi(GP()), Outputs(X, Y))`` gives a MultiPosterior, whose predictions are one
    Prediction for each output. The outputs share nothing: intervals hold for one output at a time,
    and nothing is stated about several outputs of a row together. For outputs that inform one
    another see ``kernels.Coregionalisation``. Each output is standardised by itself, and each
    Prediction is in the units of its output.

    Args:
        model: The model of each output, or a tuple or a list of one model for each.

    Raises:
        SettingError: If there is no model, or something else.
        DataError: From ``fit``, for data that are no Outputs, or another number of outputs than of
            models.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> X = torch.linspace(0, 1, 10, dtype=torch.float64)[:, None]
        >>> Y = torch.stack([1 + 2 * X[:, 0], 3 - X[:, 0]], 1)  # [n, 2]
        >>> data = ppgp.data.Outputs(X, Y, target_names=["up", "down"])
        >>> model = models.Multi(models.LinearRegression(noise=1e-4))
        >>> posterior = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> predictions = posterior.predict([[0.5]])
        >>> {name: round(float(one.mean), 2) for name, one in predictions.items()}
        {'up': 2.0, 'down': 2.5}
    """

    model: Model | tuple[Model, ...] | list[Model]

    def __post_init__(self) -> None:
        own: object = self.model
        if isinstance(own, list):
            own = tuple(own)
            object.__setattr__(self, "model", own)
        each = own if isinstance(own, tuple) else (own,)
        if each and all(isinstance(one, Model) for one in each):
            return
        wanted, got = "a model of ppgp.models, or a tuple of them, in Multi", repr(own)[:80]
        do = "for example Multi(GP())"
        classes = [one.__name__ for one in each if isinstance(one, type)]
        if classes:
            got, do = f"the class {classes[0]}", f"call it: {classes[0]}()"
        raise SettingError(wanted, got, do)

    def models(self, outputs: int) -> tuple[Model, ...]:
        """Return the model of each output.

        Raises:
            DataError: If there are several models, and not one for each output.
        """
        if isinstance(self.model, Model):
            return (self.model,) * outputs
        assert isinstance(self.model, tuple)  # see __post_init__
        if len(self.model) != outputs:
            wanted = f"{counted(len(self.model), 'output')}, one for each model of Multi"
            raise DataError(wanted, str(outputs), "give one model for all, or one for each")
        return tuple(self.model)
