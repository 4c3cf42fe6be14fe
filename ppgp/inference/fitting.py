"""fit: a model, data and a method in; a Posterior out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler
from ..errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    NumericalError,
    PpgpError,
    SettingError,
    an,
    counted,
    own_class,
)
from ..kernels import Kernel
from ..models import Model, Program
from ..models.base import as_given, made_from
from ..numerics.process_locks import in_turn
from ..numerics.seeding import seeded
from ..numerics.threads import limited_by, numbers_in
from ..posterior.convergence import convergence_warnings
from ..posterior.posterior import Posterior
from ..target.capabilities import Reselects
from ..target.target import Target
from . import NUTS, Inference
from .all_fixed import only_draw
from .base import check_draws
from .interrupts import whole
from .training_tables import also_seen

__all__ = ["fit"]

FEW_ROWS = 3


def _work(model: Any, data: Any, how: Any = None, **_: Any) -> float:
    """About how many multiplications one evaluation of the density takes; 0 where the arguments do not fit."""
    if isinstance(model, Model) and isinstance(data, Dataset):
        rows = min(data.n, getattr(how, "batch_size", None) or data.n)
        with suppress(PpgpError):  # fit says what is wrong
            return model.work(rows, data.d)
    elif callable(model) and isinstance(data, Mapping):
        return Program(model).work(numbers_in(data))
    return 0.0


@in_turn
@limited_by(_work)
def fit(
    model_or_program: Model | Callable[..., Any],
    data: Dataset | Mapping[str, Any],
    how: Inference | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    standardise: bool = True,
    init: Posterior | Tensor | None = None,
    checkpoint: str | Path | None = None,
) -> Posterior:
    """Fit a model to data by a method; everything it does is reproducible from ``seed``.

    Args:
        model_or_program: a model of the zoo, or any Pyro program.
        data: a Dataset for a model; ``{argument: value}`` for a program.
        how: an inference record; None: ``NUTS()``. A model whose hyperparameters are all numbers
            leaves nothing to search: by every method the Posterior is one draw, log p(y) in its stats.
        standardise: put the data on the scale that the model's default priors are meant for (each model says what may be
            scaled). Predictions are in the units of the data all the same, and so is every number of the recipe, every prior
            inside ``priors.InUnitsOfData`` and inducing inputs given by hand; other priors are on the standardised scale. The recipe
            of a posterior, ``posterior.model``, is on the scale of its rows already, and refused for rows of another scale: fit
            ``posterior.recipe`` to them. A program's arguments are never touched.
        init: a Posterior over the same sites, or some of them, or z, to start from. The rows of that posterior count as seen by
            this one, and so do those on which ``fit_variogram`` or ``networks.pretrained`` found what stands in the recipe.
        checkpoint: a file that keeps the state of a long run; started again with the same arguments after a kill, the run
            goes on from it and ends as it would have. SVI and the chains have it (NUTS: by the finished chain). A save that fails
            is a StorageWarning, and the next is tried; ``posterior.warnings`` says if the last one failed. The file is locked
            while the run lasts.

    Returns:
        A Posterior. A run that went badly returns too, with ``posterior.warnings`` (also issued as ConvergenceWarning).

    Raises:
        DataError, SettingError: if the data do not fit the model.
        NotApplicable: if the method cannot fit this model; the message names one that can.
        StorageError: if the checkpoint is of another run, damaged, or in use by another process, which is named.
    """
    how, given = NUTS() if how is None else how, data
    if not isinstance(how, Inference):
        got = repr(how) if isinstance(how, str | type) else an(type(how).__name__)
        do = "call fit(model, Dataset(X, y), inference.NUTS())"
        if isinstance(how, str):
            found = own_class(Inference, how)
            do = (
                f"write inference.{found}()"
                if found
                else f"ppgp.interfaces.recipes.build_how({how!r}) makes one"
            )
        do = f"call it: {how.__name__}()" if isinstance(how, type) else do
        raise NotApplicable("an inference record such as inference.NUTS()", got, do)
    if isinstance(model_or_program, type):
        raise NotApplicable(
            "a model",
            f"the class {model_or_program.__name__}",
            f"call it: {model_or_program.__name__}()",
        )
    if isinstance(model_or_program, Kernel):
        name = type(model_or_program).__name__
        raise NotApplicable("a model", f"the kernel {name}", f"write models.GP({name}())")
    if isinstance(model_or_program, Program):
        model_or_program = model_or_program.function
    if isinstance(model_or_program, Model):
        if not isinstance(data, Dataset):
            raise DataError(
                f"a Dataset for {type(model_or_program).__name__}",
                type(data).__name__,
                "use ppgp.Dataset(X, y)",
            )
        selects_again = isinstance(model_or_program, Reselects) and model_or_program.reselect
        if selects_again and not how.reselects_inducing:
            raise NotApplicable(
                "MAP('adam') or MAP('sgd') to place inducing inputs again on the way",
                repr(how),
                "use one, or leave reselect out",
            )
        model, data, scaler = _prepared(model_or_program, data, standardise)
        recipe = as_given(model_or_program)
    elif callable(model_or_program):
        if isinstance(data, Dataset) or not isinstance(data, Mapping):
            names = ", ".join(f"{name}=..." for name in Program(model_or_program).arguments({}))
            raise DataError(
                "a dict of the program's arguments", type(data).__name__, f"pass dict({names})"
            )
        model, scaler, recipe = Program(model_or_program), None, None
        model.check_arguments(data)
    else:
        named = isinstance(model_or_program, str)
        got = repr(model_or_program) if named else an(type(model_or_program).__name__)
        do = f"ppgp.interfaces.recipes.build_model({got}) makes one" if named else "pass a callable"
        raise NotApplicable("a model of ppgp.models or a Pyro program", got, do)
    of_the_zoo = isinstance(model_or_program, Model)
    target = Target(model, data, optimise_params=how.optimises_params, empty=of_the_zoo)
    kept = {} if checkpoint is None else {"checkpoint": checkpoint}
    if kept and "checkpoint" not in signature(how.__call__).parameters:
        raise NotApplicable(
            "a method with checkpoints",
            type(how).__name__,
            "use SVI, NUTS, HMC or SGLD, or leave checkpoint out",
        )
    if target.random is not None and not how.takes_random_density:
        raise NotApplicable(
            f"the same density at every call for {type(how).__name__}",
            target.random,
            "use SVI or SGLD, or leave subsample_size out and write an integral as a site or a closed form",
        )
    check_draws(how, target)
    options: dict[str, Any] = {"seed": seed, "progress": progress, "init": init, **kept}
    with nullcontext() if target.random is None else seeded(seed):
        posterior = how(target, **options) if target.dim else only_draw(how, target)
    if isinstance(model, Program) and target.dim and target.misled(_reached(target, posterior)):
        if checkpoint is not None:  # it holds what the graph gave
            Path(checkpoint).unlink(missing_ok=True)
        whole(posterior)
        posterior = how(target, **options)
    checks = []
    if isinstance(data, Dataset):
        with torch.no_grad():
            checks = [*model.check_identifiability(data), *model.check_fit(posterior.theta, data)]
    notes = (*posterior.warnings, *checks, *convergence_warnings(posterior))
    seen = also_seen(model_or_program, given, init)
    posterior = replace(posterior, scaler=scaler, recipe=recipe, warnings=notes, also_seen=seen)
    for sentence in posterior.warnings:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=4)
    return posterior


def _reached(target: Target, posterior: Posterior) -> Tensor | None:
    """The draws of a posterior as z [n, p]; None where they cannot be mapped back."""
    params = {
        name: value[None] for name, value in posterior.params.items() if name in target.slices
    }
    draws = {name: value.flatten(0, 1) for name, value in posterior.draws.items()}
    size = max((len(value) for value in draws.values()), default=1)
    try:
        return target.unconstrain(
            {
                **{name: value.expand(size, *value.shape[1:]) for name, value in params.items()},
                **draws,
            }
        )
    except NotApplicable:  # a support that moves with another site
        return None


def _prepared(model: Model, data: Dataset, standardise: bool) -> tuple[Model, Dataset, Any]:
    if data.n < FEW_ROWS:
        raise DataError(
            f"at least {FEW_ROWS} rows to fit a model",
            counted(data.n, "sample"),
            "collect more rows, or use Target directly",
        )
    if "y" in model.scales and data.classes is not None:
        labels = ", ".join(map(str, data.classes[:4])) + (", ..." if len(data.classes) > 4 else "")
        raise DataError(
            f"numbers in y for {type(model).__name__}",
            f"the labels {labels}",
            "use LogisticRegression, or a target with numbers",
        )
    if data.noise_sd is not None and not model.known_noise:
        raise NotApplicable(
            "a model that takes known noise",
            type(model).__name__,
            "use GP or Kriging, or a Dataset without noise_sd",
        )
    if model.standardised and not standardise:
        do = "pass posterior.recipe, which is in the units of the data, or leave standardise=False out"
        raise SettingError(
            "a recipe in the units of the data with standardise=False",
            "one on the standardised scale",
            do,
        )
    scaler = None
    if standardise and model.scales:
        with suppress(
            NumericalError
        ):  # of a network, say, which the standardised X may serve: prepare asks again
            model.check(data)  # what does not fit is said about the data as they are
        data, scaler = data.standardised(scale_y="y" in model.scales, scale_X="X" in model.scales)
    recipe = model
    _refuse_another_scale(model, scaler)
    if not model.standardised:
        model = model.in_units(
            Scaler.of(data, scale_X=False, scale_y=False) if scaler is None else scaler
        )
        if scaler is not None and any(f.name == "standardised" for f in fields(model)):  # type: ignore[arg-type]
            model = replace(model, standardised=True)  # type: ignore[type-var]
    return made_from(model.prepare(data), recipe, (data, scaler)), data, scaler


def _refuse_another_scale(model: Model, scaler: Scaler | None) -> None:
    """Raises SettingError for the recipe of a posterior and rows of another scale, on which its numbers would be others."""
    before = None if model.made_for is None else model.made_for[1]
    if (
        model.standardised
        and before is not None
        and not (scaler is not None and before.like(scaler))
    ):
        raise SettingError(
            "posterior.recipe, which is in the units of the data, for other rows than those of the posterior",
            "posterior.model, whose numbers are on the scale of its own rows",
            "fit posterior.recipe",
        )
