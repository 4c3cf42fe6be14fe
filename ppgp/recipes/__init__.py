"""The names of the command line in Python.

``recipes.model("gp")`` is the model that ``ppgp fit --model gp`` fits. A name is one of those that
``ppgp list`` shows, and ``recipes.names("model")`` returns; a recipe is the text of a constructor
call, such as ``"GP(Matern(1.5) + Linear(), noise=0.1)"``. Only calls of the library's own classes
are evaluated, never other code.

``ppgp.fit`` takes the objects: ``ppgp.fit(recipes.model("gp"), data, recipes.method("nuts"))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SettingError, UnknownName, an
from . import parsing as parsing

if TYPE_CHECKING:
    from ..conformal import Score
    from ..inference import Inference
    from ..likelihoods import Likelihood
    from ..models import Model

__all__ = ["likelihood", "method", "model", "names", "score"]

#: what a name can stand for -> {name: (recipe, what it is)}
TABLES = parsing.TABLES


def model(name: str) -> Model:
    """Return the model of a name, or of a recipe such as ``GP(Matern(1.5) + Linear())``.

    Args:
        name: One of ``names("model")``, or a recipe.

    Returns:
        The model, as its constructor returns it.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a model.

    Examples:
        >>> from ppgp import recipes
        >>> recipes.model("gp").kernel
        ARD(kernel=RBF(...))
        >>> type(recipes.model("GP(Matern(1.5) + Linear(), noise=0.1)").kernel).__name__
        'Sum'
        >>> recipes.model("gpp")
        Traceback (most recent call last):
        ppgp.errors.UnknownName: expected the name of a model, got 'gpp': did you mean ...
    """
    return parsing.build_model(_text("model", name))


def method(name: str) -> Inference:
    """Return the method of inference of a name, or of a recipe such as ``NUTS(draws=200)``.

    Args:
        name: One of ``names("method")``, or a recipe.

    Returns:
        The record of ``ppgp.inference``.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a method.

    Examples:
        >>> from ppgp import recipes
        >>> recipes.method("nuts").draws
        500
        >>> recipes.method("NUTS(draws=200, chains=2)").chains
        2
    """
    return parsing.build_how(_text("method", name))


def likelihood(name: str) -> Likelihood:
    """Return the likelihood of a name, or of a recipe such as ``Gamma(shape=2)``.

    Args:
        name: One of ``names("likelihood")``, or a recipe.

    Returns:
        The likelihood.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a likelihood.

    Examples:
        >>> from ppgp import recipes
        >>> recipes.likelihood("poisson")
        Poisson()
        >>> recipes.likelihood("ZeroInflated(Poisson())")
        ZeroInflated(likelihood=Poisson(), ...)
    """
    return parsing.build_likelihood(_text("likelihood", name))


def score(name: str) -> Score:
    """Return the conformal score of a name, or of a recipe such as ``Quantile(unit="width")``.

    Args:
        name: One of ``names("score")``, or a recipe.

    Returns:
        The score.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a score.

    Examples:
        >>> from ppgp import recipes
        >>> recipes.score("normalized")
        Normalized()
        >>> recipes.score("Quantile(unit='width')")
        Quantile(widen_only=False, unit='width')
    """
    return parsing.build_score(_text("score", name))


def names(kind: str) -> dict[str, str]:
    """Return the names of one kind, each with the recipe that it stands for.

    Args:
        kind: "model", "method", "likelihood" or "score".

    Returns:
        ``{name: recipe}``.

    Raises:
        UnknownName: If there is no such kind.

    Examples:
        >>> from ppgp import recipes
        >>> recipes.names("model")["gp"]
        'GP(ARD(RBF()))'
        >>> recipes.names("score")["lac"]
        'LAC()'
    """
    if not isinstance(kind, str) or kind not in TABLES:
        raise UnknownName("kind of recipe", str(kind), TABLES)
    return {name: recipe for name, (recipe, _) in TABLES[kind].items()}


def _text(kind: str, name: object) -> str:
    """Return a name or a recipe; raise SettingError for what is no text."""
    if isinstance(name, str):
        return name
    do = f"pass one of ppgp.recipes.names({kind!r})"
    raise SettingError(f"the name of a {kind}, or its recipe, as text", an(type(name).__name__), do)
