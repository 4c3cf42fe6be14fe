"""Named recipes as plain strings, and the reader that turns a string into a record without running it.

Nothing here imports torch until a recipe is built.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from ..errors import SettingError, UnknownName, an

__all__ = ["HOWS", "MODELS", "SCORES", "build_how", "build_model", "build_score", "changed"]

#: name -> (recipe, what it is)
MODELS: dict[str, tuple[str, str]] = {
    "gp": ("GP(ARD(RBF()))", "exact Gaussian process, one lengthscale a column"),
    "sgpr": (
        "SGPR(ARD(RBF()))",
        "sparse Gaussian process: 100 inducing inputs, one lengthscale a column",
    ),
    "svgp": (
        "SVGP(ARD(RBF()))",
        "stochastic variational Gaussian process: mini-batches, any likelihood",
    ),
    "dkl": (
        "GP(Deep(MLP((64, 64), 16, dropout=0.0), ARD(RBF())))",
        "deep kernel: a Gaussian process of what a small network makes of the inputs",
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
    "kriging": ("Kriging()", "ordinary kriging, exponential variogram; units are left as they are"),
    "linear": ("LinearRegression()", "Bayesian linear regression, unknown noise"),
    "logistic": ("LogisticRegression()", "Bayesian logistic regression, two classes"),
    "mixture": ("GaussianMixture()", "a mixture of normal laws of y, the inputs not used"),
    "softmax": ("SoftmaxRegression()", "Bayesian softmax regression, any number of classes"),
}

HOWS: dict[str, tuple[str, str]] = {
    "map": ("MAP()", "the mode, by L-BFGS"),
    "laplace": ("Laplace()", "a Gaussian at the mode of the unconstrained density"),
    "svi": ("SVI()", "a full-covariance Gaussian guide, or the model's own"),
    "newton": (
        "MAP('newton')",
        "the mode, by Newton's method (IRLS where the model knows its curvature)",
    ),
    "exact": ("Exact()", "the posterior in closed form, where the model has one"),
    "gibbs": ("Gibbs()", "Gibbs sampling, where the model has conditionals"),
    "ensemble": ("Ensemble()", "MAP from five starts, side by side"),
    "metropolis": ("MetropolisHastings()", "random-walk Metropolis, without gradients"),
    "sgld": ("SGLD()", "stochastic gradient Langevin dynamics"),
    "sghmc": ("SGHMC()", "the same with momentum"),
    "hmc": ("HMC(draws=500, warmup=500)", "Hamiltonian Monte Carlo, four chains abreast"),
    "dvi": (
        "SVI(method='deterministic')",
        "the same guide by natural gradients over fixed draws: no noise, a dozen steps",
    ),
    "nuts": ("NUTS(draws=500, warmup=500)", "the No-U-Turn sampler, four chains"),
}

SCORES: dict[str, tuple[str, str]] = {
    "absolute": ("Absolute()", "one width for all rows"),
    "normalized": ("Normalized()", "in units of the predictive sd"),
    "signed": ("Signed(normalized=True)", "one threshold a side"),
    "quantile": ("Quantile()", "the predictive quantiles moved (CQR)"),
    "pit": ("PIT()", "a central interval of the predictive CDF"),
    "density": ("Density()", "where the predictive density is highest"),
    "lac": ("LAC()", "labels by probability: the smallest sets"),
    "aps": ("APS()", "labels by cumulative probability: adaptive sets"),
    "raps": ("RAPS()", "APS with a price on long sets"),
}


def build_model(name_or_recipe: str) -> Any:
    """A model from its name in the zoo, or from a recipe such as ``GP(Matern(1.5) + Linear())``."""
    from .. import kernels, likelihoods, models, priors
    from ..kernels import networks

    return _build(
        "model",
        name_or_recipe,
        MODELS,
        [models, networks, likelihoods, priors, kernels],
        models.Model,
    )


def build_how(name_or_recipe: str) -> Any:
    """An inference record from its name, or from a recipe such as ``NUTS(draws=200)``."""
    from .. import inference

    return _build("method", name_or_recipe, HOWS, [inference], inference.Inference)


def build_score(name_or_recipe: str) -> Any:
    """A conformal score from its name, or from a recipe such as ``Quantile(unit="width")``."""
    from .. import conformal

    members = {name for name in conformal.__all__ if isinstance(getattr(conformal, name), type)}
    family = SimpleNamespace(
        __all__=sorted(members), **{name: getattr(conformal, name) for name in members}
    )
    return _build("score", name_or_recipe, SCORES, [family], conformal.Score)


def _build(
    kind: str, text: str, named: Mapping[str, tuple[str, str]], families: list[Any], wanted: type
) -> Any:
    if text not in named and "(" not in text:
        raise UnknownName(kind, text, named)
    built = read(named[text][0] if text in named else text, families)
    if not isinstance(built, wanted):
        raise SettingError(an(kind), text, f"name one of {', '.join(named)}, or write its recipe")
    return built


def read(text: str, families: Sequence[Any], wanted: str = "") -> Any:
    """Evaluate calls of the members of ``families``, literals, + and *: nothing else, and no code.

    Where two families have a member of one name (StudentT is a prior and a likelihood), the annotation of the field that it is for
    decides, and then the family named last.

    Raises:
        SettingError: for anything else.
    """
    members: dict[str, list[type]] = {}
    for family in families:
        for name in family.__all__:
            members.setdefault(name, []).append(getattr(family, name))
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, members, wanted)
    except SyntaxError:
        raise SettingError(
            "a recipe such as GP(RBF())", repr(text), "close its brackets and quotes"
        ) from None
    except TypeError as error:
        raise SettingError("a recipe with the right arguments", repr(text), str(error)) from None


def _value(node: ast.expr, members: Mapping[str, list[type]], wanted: str = "") -> Any:
    """``wanted``: the annotation of the field that this is for."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id not in members:
            raise UnknownName("class in a recipe", node.func.id, members)
        options = members[node.func.id]
        kind = next(
            (o for o in options if any(base.__name__ in wanted for base in o.__mro__[1:-1])),
            options[-1],
        )
        annotated = {f.name: str(f.type) for f in fields(kind)} if is_dataclass(kind) else {}
        in_order = [*annotated.values(), *[""] * len(node.args)]
        arguments = [
            _value(a, members, annotation)
            for a, annotation in zip(node.args, in_order, strict=False)
        ]
        named = {
            k.arg: _value(k.value, members, annotated.get(k.arg, ""))
            for k in node.keywords
            if k.arg
        }
        return kind(*arguments, **named)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left, members, wanted), _value(node.right, members, wanted)
        return left + right if isinstance(node.op, ast.Add) else left * right
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_value(e, members, wanted) for e in node.elts)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise SettingError(
            "calls, numbers, + and * in a recipe", ast.unparse(node), "see `ppgp list`"
        ) from None


def changed(record: Any, path: str, text: str) -> Any:
    """The record with the option at ``path`` (``kernel.lengthscale``) set to ``text``: a number, a word, or a prior.

    Wrappers are transparent: ``kernel.lengthscale`` of ``GP(ARD(RBF()))`` is that of the RBF.

    Raises:
        UnknownName: if there is no such option; those that there are, are listed.
    """
    head, _, rest = path.partition(".")
    if isinstance(record, tuple):
        if not head.isdigit() or int(head) >= len(record):
            raise UnknownName("term", head, map(str, range(len(record))))
        return tuple(changed(r, rest, text) if i == int(head) else r for i, r in enumerate(record))
    names = [f.name for f in fields(record)] if is_dataclass(record) else []
    if head in names:
        value = getattr(record, head)
        annotation = next(str(f.type) for f in fields(record) if f.name == head)
        new = changed(value, rest, text) if rest else _option(text, annotation)
        return replace(cast(Any, record), **{head: new})
    for inner in ("kernel", "children"):
        if inner in names:
            return replace(record, **{inner: changed(getattr(record, inner), path, text)})  # type: ignore[type-var]
    raise UnknownName(f"option of {type(record).__name__}", head, names)


def _option(text: str, wanted: str) -> Any:
    from .. import kernels, likelihoods, priors
    from ..kernels import networks

    if text.isidentifier() and text not in ("None", "True", "False"):
        return text
    return read(text, [networks, likelihoods, kernels, priors], wanted)
