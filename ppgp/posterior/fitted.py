"""``Fitted``, the protocol of a posterior for functions that ``Posterior`` itself imports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..data.dataset import Scaler
from ..errors import NotApplicable
from ..runtime.result_cache import ResultCache
from ..runtime.threads import PREDICTIONS_PAY_FROM, limited


@runtime_checkable
class Fitted(Protocol):
    """The part of a Posterior that is read here; its attributes are documented at ``Posterior``."""

    @property
    def model(self) -> Any:
        """The prepared recipe, or the wrapped program."""
        ...

    @property
    def data(self) -> Any:
        """The training data on the scale of the model: a Dataset, or a program's arguments."""
        ...

    @property
    def draws(self) -> dict[str, Tensor]:
        """``{site: [chain, draw, *event]}``."""
        ...

    @property
    def params(self) -> dict[str, Tensor]:
        """``{name: tensor}``, the values that were optimised."""
        ...

    @property
    def stats(self) -> dict[str, Any]:
        """Statistics that the inference recorded."""
        ...

    @property
    def how(self) -> Any:
        """The inference method."""
        ...

    @property
    def scaler(self) -> Scaler:
        """The standardisation of the data."""
        ...

    @property
    def also_seen(self) -> tuple[Any, ...]:
        """Other tables whose rows count as training rows."""
        ...

    @property
    def kept(self) -> ResultCache:
        """What predictions share."""
        ...

    @property
    def seconds(self) -> float:
        """Wall time in seconds."""
        ...

    @property
    def mcmc(self) -> bool:
        """Whether the draws come from Markov chains."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """The number of chains and the number of draws per chain."""
        ...

    @property
    def theta(self) -> dict[str, Tensor]:
        """``{site: [chain * draw, *event]}`` and the params."""
        ...

    def pointwise(self) -> dict[str, Tensor]:
        """``{site: [chain, draw, n]}``, the pointwise log likelihood of each observed site."""
        ...


def with_params(fit: Fitted, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return draws ``{site: [draw, *event]}`` together with the params of the fit.

    A program is run draw by draw, so its params are expanded to one copy per draw.
    """
    if fit.data.is_table:
        return {**fit.params, **draws}
    size = next(len(value) for name, value in draws.items() if name not in fit.params)
    copies = {name: value.expand(size, *value.shape) for name, value in fit.params.items()}
    return {**copies, **{name: draws[name] for name in fit.draws}}


def refuse_in_team(data: Any, call: str) -> None:
    """Raise NotApplicable if a rank of a team has some of the training rows alone.

    Args:
        data: The training data.
        call: The call of a posterior that needs all of them.
    """
    if not data.team.alone:
        raise NotApplicable(
            f"{call} of a posterior in one process",
            f"that of rank {data.team.rank} of {data.team.size}",
            'call posterior.save("fit.safetensors") on every rank, and on one of them '
            f'ppgp.load_posterior("fit.safetensors").{call}',
        )


@contextmanager
def evaluated_at(fit: Fitted, rows: int = 0) -> Iterator[None]:
    """Evaluate a model at rows of a table inside the block.

    It runs without gradients, and on as many threads as suit the work.

    Args:
        fit: The posterior, which is conditional on a table.
        rows: The number of new rows. To condition on the training rows takes as long as n of them.
    """
    data = fit.data
    work = fit.model.work(data.n, data.d) * max(1.0, rows / data.n)
    with torch.no_grad(), limited(work, PREDICTIONS_PAY_FROM):
        yield
