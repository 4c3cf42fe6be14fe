"""Named recipes as plain strings, and the reader that builds a record from a string.

A recipe is the text of a constructor call, such as ``GP(ARD(RBF()))``. It describes a model, an
inference method or a score before it meets data. The reader evaluates calls of known classes and
never runs other code. Nothing here imports torch until a recipe is built.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

from ..errors import NotApplicable, PpgpError, SettingError, UnknownName, an
from .members import named_recipes

__all__ = [
    "HOWS",
    "LIKELIHOODS",
    "MODELS",
    "SCORES",
    "build_how",
    "build_likelihood",
    "build_model",
    "build_score",
    "changed",
    "own_how",
    "recipe_of",
    "with_groups",
    "with_likelihood",
]

PRIOR = "Prior"  # in the annotations of fields that take a prior or a number
#: recipes with names of their own -> (recipe, what it is; "": what its class is)
OWN_MODELS = {
    "gp": ("GP(ARD(RBF()))", "exact Gaussian process, one lengthscale per column"),
    "gp-classifier": (
        "GP(ARD(RBF()), likelihood=Bernoulli())",
        "Gaussian process for two classes, f by Laplace's approximation",
    ),
    "sgpr": (
        "SGPR(ARD(RBF()))",
        "sparse Gaussian process: 100 inducing inputs, one lengthscale per column",
    ),
    "svgp": (
        "SVGP(ARD(RBF()))",
        "stochastic variational Gaussian process: mini-batches, any likelihood",
    ),
    "dkl": (
        "GP(Deep(MLP((64, 64), 16, dropout=0.0), ARD(RBF())))",
        "deep kernel: a Gaussian process of the features of a small network",
    ),
    "svdkl": (
        "SVGP(Deep(MLP((64, 64), 16, dropout=0.0), ARD(RBF())))",
        "the same, sparse and in mini-batches",
    ),
    "ne-gp": (
        "GP(Deep(MLP((64, 64), 32, dropout=0.1), RBF()))",
        "neural-enhanced Gaussian process: 64-64-32, ReLU, dropout 0.1",
    ),
    "ne-svgp": (
        "SVGP(Deep(MLP((64, 64), 32, dropout=0.1), RBF()))",
        "the same, sparse and in mini-batches",
    ),
    "ngboost": (
        "Boosted(Gaussian(noise=Predicted()))",
        "boosted trees: mean and variance are sums of trees of x",
    ),
    "ngboost-classifier": (
        "Boosted(Categorical())",
        "the same for labels: the log-odds are sums of trees of x",
    ),
    "deep-ensemble": (
        "NeuralRegression(likelihood=Gaussian(noise=Predicted()))",
        "a network with mean and variance as outputs, by default five of them",
    ),
    "mc-dropout": (
        "NeuralRegression(likelihood=Gaussian())",
        "a network with the mean as output and one variance, by default with dropout",
    ),
    "linear": ("LinearRegression()", ""),
    "ordinal": ("GLM(Ordinal())", "ordered classes: one linear predictor between cutpoints"),
    "logistic": ("LogisticRegression()", ""),
    "mixture": ("GaussianMixture()", ""),
    "softmax": ("SoftmaxRegression()", ""),
    "state-space": (
        "StateSpaceGP()",
        "exact Gaussian process on one column, time, in O(n): Matern 5/2",
    ),
    "vecchia": (
        "Vecchia()",
        "Gaussian process of many places, each row given its nearest rows: Matern 3/2",
    ),
}
OWN_HOWS = {
    "newton": (
        "MAP('newton')",
        "the mode, by Newton's method (IRLS if the model has a curvature formula)",
    ),
    "metropolis": ("MetropolisHastings()", ""),
    "hmc": ("HMC(draws=500, warmup=500)", ""),
    "dvi": (
        "SVI(method='deterministic')",
        "a Gaussian guide by natural gradients over fixed draws: no noise, few steps",
    ),
    "deep-ensemble": (
        "Ensemble(MAP('adam', adversarial=0.01))",
        "five networks, trained on rows and on adversarial rows beside them",
    ),
    "mc-dropout": ("MCDropout()", ""),
    "ngb": ("NaturalGradientBoosting()", ""),
    "nuts": ("NUTS(draws=500)", ""),
}
#: models whose own method is not that of their class -> the name of the method
HOW_OF_MODEL = {"mc-dropout": "mc-dropout"}
OWN_LIKELIHOODS = {
    "asymmetric-laplace": ("AsymmetricLaplace()", ""),
    "log-normal": ("LogNormal()", ""),
    "negative-binomial": ("NegativeBinomial()", ""),
    "student-t": ("StudentT()", ""),
    "zero-inflated-poisson": ("ZeroInflated(Poisson())", ""),
    "zero-inflated-negative-binomial": ("ZeroInflated(NegativeBinomial())", ""),
}
OWN_SCORES = {"signed": ("Signed(normalized=True)", "")}

#: name -> (recipe, what it is)
MODELS = named_recipes("models", OWN_MODELS)
HOWS = named_recipes("methods", OWN_HOWS)
SCORES = named_recipes("scores", OWN_SCORES)
LIKELIHOODS = named_recipes("likelihoods", OWN_LIKELIHOODS)
TABLES = {"model": MODELS, "method": HOWS, "score": SCORES, "likelihood": LIKELIHOODS}


def build_model(name_or_recipe: str) -> Any:
    """Build a model from its name, or from a recipe such as ``GP(Matern(1.5) + Linear())``.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a model.
    """
    from .. import kernels, learners, likelihoods, models, priors
    from ..networks import networks

    return _build(
        "model",
        name_or_recipe,
        [models, _with_groups(), networks, learners, likelihoods, priors, kernels],
        models.Model,
    )


def _with_groups() -> Any:
    """Return the classes of recipes with groups, which are not models of ``models.__all__``."""
    from ..models import Multilevel, Varying

    return SimpleNamespace(
        __all__=["Multilevel", "Varying"], Multilevel=Multilevel, Varying=Varying
    )


def build_how(name_or_recipe: str) -> Any:
    """Build an inference record from its name, or from a recipe such as ``NUTS(draws=200)``.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a method.
    """
    from .. import inference

    return _build("method", name_or_recipe, [inference], inference.Inference)


def build_likelihood(name_or_recipe: str) -> Any:
    """Build a likelihood from its name, or from a recipe such as ``Gamma(shape=2)``.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a likelihood.
    """
    from .. import likelihoods, priors

    return _build("likelihood", name_or_recipe, [priors, likelihoods], likelihoods.Likelihood)


def own_how(name_or_recipe: str, model: Any) -> str:
    """Return the name of the method that a recipe uses if none is given; "" if it has none.

    Args:
        name_or_recipe: The name or the recipe of the model.
        model: The model itself.
    """
    return HOW_OF_MODEL.get(name_or_recipe) or model.own_method


def build_score(name_or_recipe: str) -> Any:
    """Build a conformal score from its name, or from a recipe such as ``Quantile(unit="width")``.

    Raises:
        UnknownName: If there is no such name, or no such class in the recipe.
        SettingError: If the recipe cannot be read, or does not describe a score.
    """
    from .. import conformal

    members = {name for name in conformal.__all__ if isinstance(getattr(conformal, name), type)}
    family = SimpleNamespace(
        __all__=sorted(members), **{name: getattr(conformal, name) for name in members}
    )
    return _build("score", name_or_recipe, [family], conformal.Score)


def _build(kind: str, text: str, families: list[Any], wanted: type) -> Any:
    recipe = recipe_of(kind, text)
    built = read(recipe, families, wanted.__name__)
    if not isinstance(built, wanted):
        do = f"name one of {', '.join(TABLES[kind])}, or write its recipe"
        raise SettingError(an(kind), text, do)
    return built


def recipe_of(kind: str, text: str) -> str:
    """Return the recipe that a name or a recipe stands for, without torch.

    Args:
        kind: "model", "method", "likelihood" or "score".
        text: The name or the recipe. Whether the classes of a recipe are known is not checked.

    Raises:
        UnknownName: If there is no such name.
        SettingError: If the recipe cannot be read.
    """
    named = TABLES[kind]
    text = _known(text, named)
    if text not in named and "(" not in text:
        raise _unknown_recipe(kind, text, TABLES)
    recipe, _ = named.get(text, (text, ""))
    _parsed(recipe)
    return recipe


def _parsed(text: str) -> ast.expr:
    """Return the syntax tree of a recipe."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        do = "close its brackets and quotes"
        raise SettingError("a recipe such as GP(RBF())", repr(text), do) from None


def _known(text: str, named: Mapping[str, tuple[str, str]]) -> str:
    """Return the name that the text spells, as it is or as its class: GridGP, grid_gp, gridgp."""
    if text in named or "(" in text:
        return text
    spelled = {_folded(recipe.removesuffix("()")): name for name, (recipe, _) in named.items()}
    spelled |= {_folded(name): name for name in named}
    return spelled.get(_folded(text), text)


def _folded(name: str) -> str:
    """Return a name without hyphens and underscores, in lower case."""
    return name.replace("_", "").replace("-", "").casefold()


def read(text: str, families: Sequence[Any], wanted: str = "") -> Any:
    """Evaluate a recipe: calls of known classes, literals, + and *, and nothing else.

    Two families may have a class of the same name: StudentT is a prior and a likelihood. The
    annotation of the field that receives the value decides, and otherwise the last family.

    Args:
        text: The recipe.
        families: Modules whose ``__all__`` lists the known classes.
        wanted: The annotation of the field that receives the value.

    Raises:
        UnknownName: If a class is not known.
        SettingError: If the text is anything else, or a class refuses its arguments.
    """
    members: dict[str, list[type]] = {}
    for family in families:
        for name in family.__all__:
            members.setdefault(name, []).append(getattr(family, name))
    body = _parsed(text)
    try:
        return _value(body, members, wanted)
    except PpgpError:
        raise
    except TypeError as error:
        raise SettingError("a recipe with the right arguments", repr(text), str(error)) from None


def _as_class(code: str, members: Mapping[str, list[type]]) -> str:
    """Return how a name with hyphens that is called is written in a recipe; "" if it is not."""
    found = re.fullmatch(r"([a-z]+(?: - [a-z]+)+)(\(.*\))", code)
    name = "".join(map(str.capitalize, found[1].split(" - "))) if found else ""
    return f"write {name}{found[2]}" if found and name in members else ""


def _value(node: ast.expr, members: Mapping[str, list[type]], wanted: str = "") -> Any:
    """Evaluate a node; ``wanted`` is the annotation of the field that receives the value."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node, members, wanted)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left, members, wanted), _value(node.right, members, wanted)
        if isinstance(node.op, ast.Add):
            return left + right
        return left * right
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_value(e, members, wanted) for e in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = (ast.literal_eval(key) for key in node.keys if key is not None)
        return {k: _value(v, members, wanted) for k, v in zip(keys, node.values, strict=True)}
    try:
        return ast.literal_eval(node)
    except ValueError:
        do = _as_class(ast.unparse(node), members) or "see `ppgp list`"
        raise SettingError(
            "calls, numbers, + and * in a recipe", ast.unparse(node).replace(" - ", "-"), do
        ) from None


def _call(name: str, node: ast.Call, members: Mapping[str, list[type]], wanted: str) -> Any:
    """Build the class of this name with the arguments of the call."""
    kind = _chosen_class(name, members, wanted)
    annotations = _annotations(kind)
    in_order = [*annotations.values(), *[""] * len(node.args)]
    positional = [
        _value(argument, members, annotation)
        for argument, annotation in zip(node.args, in_order, strict=False)
    ]
    named = {
        keyword.arg: _value(keyword.value, members, annotations.get(keyword.arg, ""))
        for keyword in node.keywords
        if keyword.arg
    }
    return kind(*positional, **named)


def _annotations(record_or_class: Any) -> dict[str, str]:
    """Return the annotation of each field of a dataclass; of anything else, nothing."""
    if not is_dataclass(record_or_class):
        return {}
    return {field.name: str(field.type) for field in fields(record_or_class)}


def _chosen_class(name: str, members: Mapping[str, list[type]], wanted: str) -> type:
    """Return the class of a name whose base the annotation names, or else the last one.

    Raises:
        UnknownName: If there is no such class, or it is no prior where one is wanted; the message
            lists those of the wanted family.
    """
    suited = [one for one, kinds in members.items() if any(_suits(kind, wanted) for kind in kinds)]
    kinds = [kind for kind in members.get(name, ()) if _suits(kind, wanted)]
    if kinds:
        return kinds[0]
    if name not in members or (suited and PRIOR in wanted):
        kind = "prior in a recipe" if suited and PRIOR in wanted else "class in a recipe"
        raise UnknownName(kind, name, suited or members)
    return members[name][-1]


def _suits(kind: Any, wanted: str) -> bool:
    """Return whether an annotation names a class or one of its bases; no function suits."""
    if not isinstance(kind, type):
        return False
    if any(base.__name__ in wanted for base in kind.__mro__[1:-1]):
        return True
    return kind.__name__ in re.findall(r"\w+", wanted)


def changed(record: Any, path: str, text: str) -> Any:
    """Return a copy of a record with one option changed.

    Wrappers are transparent: ``kernel.lengthscale`` of ``GP(ARD(RBF()))`` is that of the RBF.

    Args:
        record: A model, a method, or a tuple of kernels.
        path: The option, such as ``kernel.lengthscale``; a number picks a term of a sum.
        text: The new value: a number, a word, or a prior such as ``LogNormal(0, 1)``.

    Raises:
        UnknownName: If there is no such option; the message lists the known ones.
    """
    head, _, rest = path.partition(".")
    if isinstance(record, tuple):
        if not head.isdigit() or int(head) >= len(record):
            raise UnknownName("term", head, map(str, range(len(record))))
        terms = list(record)
        terms[int(head)] = changed(terms[int(head)], rest, text)
        return tuple(terms)
    annotations = _annotations(record)
    if head in annotations:
        if rest:
            value = changed(getattr(record, head), rest, text)
        else:
            value = _option(text, annotations[head])
        return replace(record, **{head: value})
    for inner in ("kernel", "children"):
        if inner in annotations:
            return replace(record, **{inner: changed(getattr(record, inner), path, text)})
    raise UnknownName(f"option of {type(record).__name__}", head, list(annotations))


def _option(text: str, wanted: str) -> Any:
    """Read the value of an option: a word stands for itself, anything else is a recipe."""
    from .. import kernels, learners, likelihoods, priors
    from ..networks import networks

    if text.isidentifier() and text not in ("None", "True", "False"):
        return text
    families = [_with_groups(), networks, learners, likelihoods, kernels, priors]
    return read(text, families, wanted)


def with_likelihood(model: Any, likelihood: Any, called: str) -> Any:
    """Return the model with another likelihood.

    Args:
        model: A model.
        likelihood: A name that ``ppgp list`` prints, a recipe, or a likelihood; None: the model's
            own.
        called: What the user called the model.

    Raises:
        NotApplicable: If the model has no likelihood to change.
        UnknownName: If there is no likelihood of that name.
        SettingError: If the recipe cannot be read, or the model refuses the likelihood.
    """
    if likelihood is None:
        return model
    if not any(field.name == "likelihood" for field in fields(model)):
        do = "use glm, gp, svgp, vecchia, state-space, or leave the likelihood out"
        raise NotApplicable("a model that takes a likelihood", called, do)
    if isinstance(likelihood, str):
        likelihood = build_likelihood(likelihood)
    return replace(model, likelihood=likelihood)


def with_groups(model: Any, names: Iterable[str]) -> Any:
    """Return a GLM with an intercept that varies between the groups of each grouping.

    Any other model, and one whose recipe has groups, is returned as it is.

    Args:
        model: A model.
        names: The groupings of the table.
    """
    from ..models import GLM, Varying

    names = list(names)
    if type(model) is not GLM or not names:
        return model
    return replace(model, groups={name: Varying("1") for name in names})


class _OtherKind(UnknownName):
    """A name is known, but as that of something else.

    Args:
        kind: What it should name.
        name: The name.
        other: What it names.
        known: The names of the right kind.
    """

    def __init__(self, kind: str, name: str, other: str, known: Mapping[str, object]) -> None:
        got, do = f"{name!r}, {an(other)}", f"name one of {', '.join(known)}"
        PpgpError.__init__(self, f"the name of {an(kind)}", got, do)


class _NoCall(UnknownName):
    """A recipe has no parentheses."""

    def __init__(self, kind: str, text: str) -> None:
        do = "write a call with parentheses, as in GP(RBF())"
        PpgpError.__init__(self, f"the name of {an(kind)}, or its recipe", repr(text), do)


def _unknown_recipe(
    kind: str, text: str, tables: Mapping[str, Mapping[str, object]]
) -> UnknownName:
    """Return the error for a text without parentheses that is no name of its kind.

    Args:
        kind: What it should name, a key of ``tables``.
        text: The text.
        tables: The known names of each kind.
    """
    for other, names in tables.items():
        if text in names:
            return _OtherKind(kind, text, other, tables[kind])
    if not re.fullmatch(r"[\w .-]*", text):
        return _NoCall(kind, text)
    return UnknownName(kind, text, tables[kind])
