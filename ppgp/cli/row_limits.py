"""Models that take long with many rows, and those to name in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..display.user_warnings import warn
from ..errors import PpgpWarning
from ..recipes.parsing import MODELS

__all__ = ["warn_of_many_rows"]

EXACT = {"GP": "GP", "LatentGP": "GP"}  # class -> its name in ``ppgp.advise``
IN_PLACE = ("Vecchia", "SGPR", "SVGP")  # that the message names, where they suit


def warn_of_many_rows(models: Mapping[str, Any], table: Any) -> None:
    """Warn of each exact Gaussian process that has more rows than ``ppgp.advise`` gives it.

    Args:
        models: {name: model}.
        table: The Dataset to fit.
    """
    from ..models.advice.advice import about, advise

    for name, model in models.items():
        if type(model).__name__ not in EXACT:
            continue
        law = getattr(model, "likelihood", None)
        advice = advise(n=table.n, d=table.d, kernel=model.kernel, likelihood=law)
        options = {option.model: option for option in advice.options}
        own = options[EXACT[type(model).__name__]]
        others = [options[one] for one in IN_PLACE if options[one].suits]
        if own.suits or not own.seconds > 0:
            continue
        faster = ", or ".join(f"{_name(one.model)} ({about(one.seconds)})" for one in others)
        sentence = (
            f"{name} {own.reason}; a fit to {table.n:,} takes about {about(own.seconds)}: "
            f"fit {faster}"
        )
        warn(sentence, PpgpWarning)


def _name(model: str) -> str:
    """Return the name of a class in ``ppgp list``."""
    return next(name for name, (recipe, _) in MODELS.items() if recipe.startswith(f"{model}("))
