"""``load_posterior``, which reads what ``posterior.save`` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pyro.infer import autoguide
from torch import nn

from ..errors import StorageError, an
from .files import encoding, storage
from .loaded_checks import SAME_RECIPE, check_fields, check_shapes
from .posterior import Posterior

#: modules of the classes that a file may name; imported by name, as some of them use this module
FAMILIES = (
    "data",
    "inference",
    "kernels",
    "networks",
    "learners",
    "likelihoods",
    "models",
    "models.means",
    "models.linear.multilevel",
    "models.linear.varying",
    "posterior",
    "priors",
)


def table() -> dict[str, type]:
    """Return every class that a file may name, by its name in a file."""
    families = [import_module(f"ppgp.{family}") for family in FAMILIES]
    members = [getattr(family, name) for family in families for name in family.__all__]
    return {encoding.class_name(member): member for member in members if isinstance(member, type)}


def load_posterior(path: str | Path, model: Any = None) -> Posterior:
    """Read a Posterior that ``posterior.save`` wrote.

    Args:
        path: The file.
        model: What a file cannot hold: the program, guide or torch module that the posterior was
            fitted with, or the recipe that contains this module or a class of the user's own;
            several as a tuple. (The weights are in the file.)

    Returns:
        The Posterior, with the same draws [chain, draw, *event] and params. It predicts in the
        units of the data, as the one that was saved.

    Raises:
        StorageError: If the file is missing, foreign or damaged; if it needs a program, a module
            or a user's class and ``model`` is not given; or if the module is not the one in the
            file.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [2.0, 0.0, -1.0])
        >>> posterior = ppgp.fit(models.GP(kernels.RBF()), data, inference.MAP(), progress=False)
        >>> path = posterior.save("posterior.ppgp")
        >>> again = ppgp.load_posterior(path)
        >>> again
        <Posterior of GP by MAP: 1 x 1 draws on the standardised scale, ... s>
        >>> bool(again.predict([[0.5]]).mean == posterior.predict([[0.5]]).mean)
        True
    """
    posterior, things = read(path, model)
    if not isinstance(posterior, Posterior):
        do = "pass a file that posterior.save wrote; several outputs: ppgp.MultiPosterior.load"
        raise StorageError("a Posterior in the file", type(posterior).__name__, do)
    return ready(posterior, things)


def read(path: str | Path, model: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the record of a file, not yet checked, and the modules that ``model`` supplies."""
    classes, things = encoding.by_name(model)
    known = {**classes, **table()}
    guides = {name: getattr(autoguide, name) for name in autoguide.__all__}
    try:
        record = storage.load(path, known, {**guides, **things})
    except encoding.NotSupplied as error:
        if model is None:
            raise
        got = ", ".join(map(repr, things)) or an(type(model).__name__)
        raise encoding.NotSupplied(error.expected, got, error.do) from None
    return record, things


def ready(posterior: Posterior, things: Mapping[str, Any]) -> Posterior:
    """Return a posterior that was read, checked and connected with its recipe and its data."""
    try:
        check_fields(posterior)
        if any(isinstance(thing, nn.Module) for thing in things.values()):
            check_shapes(posterior)
        if posterior.recipe is not None:
            posterior.model.made_from(posterior.recipe, (posterior.data, posterior.scaler))
        return posterior
    except StorageError:
        raise
    except Exception as error:  # a recipe may raise anything on numbers that are not its own
        wanted = "a Posterior that fits its model"
        raise StorageError(wanted, storage.first_line(error), SAME_RECIPE) from None
