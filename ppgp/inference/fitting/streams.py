"""Fits to a stream of rows: which models and methods take one, and the rows in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ...data.stream.stream import SAMPLE, Stream
from ...data.stream.streamed_rows import StreamedRows
from ...errors import NotApplicable, SettingError
from ...models import SGPR, Model
from ...posterior.posterior import Posterior
from .. import MAP, SGLD, SVI

__all__ = ["streamed_rows", "with_sums"]


PASSES = ("lbfgs", "newton")  # optimizers of MAP that take one pass over the rows per evaluation
STEPS = ("adam", "adagrad", "sgd")
IN_MEMORY = "fit a sample, stream.sample(rows)"
BY_STEPS = "SVGP by SVI(), SGPR by MAP(), or a linear model or network by MAP('adam') or SGLD()"


def streamed_rows(model: Any, how: Any, rows: Stream) -> StreamedRows:
    """Return what a fit to a stream sees: a sample of the rows, which stands for all of them.

    Args:
        model: The model.
        how: The method; None: none was given.
        rows: The stream.

    Raises:
        NotApplicable: If the model or the method needs all rows in memory.
        SettingError: If ``batch_size`` exceeds the number of rows.
        DataError: If a value of the stream is missing or not finite.
    """
    batch = getattr(how, "batch_size", None) or 0
    with rows.team.all_or_none():
        _check_model(model)
        _check_method(model, how)
        most, words = rows.n, "n"
        if not rows.team.alone:
            most, words = min(rows.rows_of_ranks), "the rows of the smallest shard"
        if batch > most:
            wanted = f"batch_size of at most {words} = {most} in {type(how).__name__}"
            raise SettingError(wanted, str(batch), "lower it, or leave it out")
    rows.statistics()  # before the sample: it names the row group of a value that cannot be used
    # graphs of mini-batches are traced on rows of the sample
    return StreamedRows.of(rows, rows.sample(max(SAMPLE, batch)))


def with_sums(posterior: Posterior, data: Any) -> Posterior:
    """Return the posterior with the sums over a stream that its predictions need.

    They take one pass. The posterior of a model that needs none is returned as it is.
    """
    model = posterior.model
    if not isinstance(model, SGPR):
        return posterior
    with torch.no_grad():
        return replace(
            posterior, params={**posterior.params, **model.kept_of(posterior.theta, data)}
        )


def _check_model(model: Any) -> None:
    """Raise NotApplicable for a model whose rows are not independent given its sites."""
    if isinstance(model, Model) and (model.takes_stream or isinstance(model, SGPR)):
        return
    name = "a program" if callable(model) else type(model).__name__
    raise NotApplicable(
        "a model of independent rows for a stream", name, f"use {BY_STEPS}, or {IN_MEMORY}"
    )


def _check_search(how: Any) -> None:
    """Raise NotApplicable for a method that a bound of all rows cannot serve from a stream."""
    got = "none" if how is None else type(how).__name__
    if isinstance(how, MAP):
        got = f"MAP({how.optimizer!r})"
        for name in ("hold_out", "adversarial", "batch_size"):
            if getattr(how, name) is not None:
                raise NotApplicable(f"a Dataset with {name}", "a stream", f"leave {name} out")
        if how.optimizer in ("lbfgs", "adam", "adagrad"):
            return
    do = f"use MAP() or MAP('adam'), or {IN_MEMORY}"
    raise NotApplicable("a method that reads a stream as how", got, do)


def _check_method(model: Model, how: Any) -> None:
    """Raise NotApplicable for a method that needs all rows at once."""
    got = type(how).__name__
    if isinstance(model, SGPR):
        _check_search(how)
        return
    if isinstance(how, SVI) and how.collapses(model) and how.method == "stochastic":
        return
    if isinstance(how, SGLD):
        return
    if isinstance(how, MAP):
        if how.hold_out is not None or how.adversarial is not None:
            name = "hold_out" if how.hold_out is not None else "adversarial"
            raise NotApplicable(f"a Dataset with {name}", "a stream", f"leave {name} out")
        if how.optimizer in (*STEPS, *PASSES):
            return
        got = f"MAP({how.optimizer!r})"
    elif isinstance(how, SVI):
        got = f"SVI of {type(model).__name__} with guide={how.guide!r}, method={how.method!r}"
    elif how is None:
        got = "none"
    suited = "MAP('adam'), MAP('sgd'), MAP() or SGLD()"
    if SVI().collapses(model):
        suited = "SVI()"
    do = f"use {suited}, or {IN_MEMORY}"
    raise NotApplicable("a method that reads a stream as how", got, do)
