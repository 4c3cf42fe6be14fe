"""Lists of names and ``--set`` options of the command line, turned into models and methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..display.user_warnings import warn
from ..errors import NotApplicable, PpgpWarning, SettingError, UnknownName, nearest
from ..recipes import parsing as recipes
from ..recipes.parsing import with_groups, with_likelihood

__all__ = [
    "AUTO",
    "advised_models",
    "build_models_and_methods",
    "check_names",
    "has_times",
    "methods_of_models",
    "options_in",
    "split_names",
    "usual_models",
]

NUTS = "nuts"
AUTO = "auto"  # the models that ``ppgp.advise`` names for a table
MOST_ADVISED = 3
SHORT = 0.5  # seconds of a fit by MAP up to which NUTS, a thousand times slower, is tried too
FEW_ROWS = 500  # rows up to which it is tried
WRAPPED = ("kernel", "children")  # fields of a kernel that a path leaves out
LONG = 600.0  # seconds of a fit past which only the first model is fitted


def split_names(text: str) -> list[str]:
    """Split a comma-separated list; commas inside brackets belong to a recipe. Drop repeats."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def check_names(
    models: str | None, methods: str | None, likelihood: str | None, settings: list[str] | None
) -> None:
    """Check the names that a command gives, before torch is imported.

    Args:
        models: Comma-separated names or recipes of models, or "auto"; None: there are none.
        methods: Comma-separated names or recipes of methods.
        likelihood: The name or recipe of a likelihood.
        settings: What ``--set`` gives.

    Raises:
        UnknownName: If a name is not known.
        SettingError: If a recipe cannot be read, or a setting has no equals sign, or
            no name on one side of a dot.
    """
    for kind, names in (("model", models), ("method", methods), ("likelihood", likelihood)):
        for name in split_names(names or ""):
            if (kind, name) != ("model", AUTO):
                recipes.recipe_of(kind, name)
    do = "for example --set kernel.lengthscale=2"
    for setting in settings or []:
        path, equals, _ = setting.partition("=")
        if not equals:
            raise SettingError("--set option=value", repr(setting), do)
        if not all(path.split(".")):
            wanted = "the name of an option before =, with a name on both sides of each dot"
            raise SettingError(wanted, repr(setting), do)


def usual_models(table: Any, likelihood: str | None = None) -> list[str]:
    """Return the names of the models that ``ppgp compare`` fits if none are given.

    ``ppgp fit`` takes the first of them.

    Args:
        table: The Dataset.
        likelihood: The name or recipe of a likelihood; None: that of the models.
    """
    if likelihood is not None:
        return ["gp"]
    if not table.classes:
        from ..models.advice.suitability import MOST_ROWS

        return ["gp" if table.n <= MOST_ROWS else "sgpr", "linear"]
    return ["logistic" if len(table.classes) == 2 else "softmax"]


def has_times(table: Any) -> bool:
    """Return whether a table has a column of the time, or one of dates alone.

    Args:
        table: The Dataset.
    """
    from ..data.entries.dates import unit_of

    names = table.feature_names or ()
    return table.time is not None or (len(names) == 1 and unit_of(names[0]) is not None)


def advised_models(
    table: Any, likelihood: str | None, methods: str | None, usual: str
) -> dict[str, list[str]]:
    """Return {model: the names of its methods} of the models that ``ppgp.advise`` names.

    Args:
        table: The Dataset.
        likelihood: The name or recipe of a likelihood; None: that of the target.
        methods: Comma-separated methods of all models; None: those that end in time.
        usual: Comma-separated methods of models whose fits are short.

    Raises:
        NotApplicable: If no Gaussian process suits the table.
    """
    from ..models.advice.advice import advise

    asked = None if likelihood is None else recipes.build_likelihood(likelihood)
    advice = advise(table, likelihood=asked)
    if not advice.suited:
        first = advice.options[0]
        got = f"one that {first.model} does not suit: it {first.reason}"
        raise NotApplicable("a table for Gaussian processes", got, "name models: --models linear")
    plan = {}
    for i, option in enumerate(advice.suited[:MOST_ADVISED]):
        if i and option.seconds > LONG:
            continue
        slow = "svi" if option.model == "SVGP" else "map"
        in_time = usual if option.seconds <= SHORT and table.n <= FEW_ROWS else slow
        plan[_advised_recipe(option.model, table, likelihood)] = split_names(methods or in_time)
    return plan


def _advised_recipe(model: str, table: Any, likelihood: str | None) -> str:
    """Return the name of a model, or its recipe with the likelihood of labels."""
    if table.classes and likelihood is None:
        law = "Bernoulli" if len(table.classes) == 2 else "Categorical"
        kernel = "ARD(RBF()), " if model in ("GP", "SVGP") else ""
        return f"{model}({kernel}likelihood={law}())"
    names = (name for name, (call, _) in recipes.MODELS.items() if call.startswith(f"{model}("))
    return next(names)


def methods_of_models(
    models: list[str], methods: str | None, usual: str, n: int
) -> dict[str, list[str]]:
    """Return {model: the names of its methods}.

    Args:
        models: Names or recipes of models.
        methods: Comma-separated methods of all models; None: those that the models have of their
            own.
        usual: Comma-separated methods of the models that have none. NUTS is left out, with a
            warning, of a model for which it takes long.
        n: The number of training rows.
    """
    if methods is not None:
        return {name: split_names(methods) for name in models}
    from ..inference.fitting.fit import default_name

    plan = {}
    for name in models:
        model = recipes.build_model(name)
        plan[name] = split_names(recipes.own_how(name, model) or usual)
        default = default_name(model, n)
        if NUTS in plan[name] and default != NUTS:
            plan[name] = [how for how in plan[name] if how != NUTS] or [default]
            sentence = (
                f"{NUTS} is left out for {name}, as it is slow with {n} rows; --how asks for it"
            )
            warn(sentence, PpgpWarning)
    return plan


def build_models_and_methods(
    models: list[str],
    methods: list[str],
    settings: list[str],
    likelihood: str | None = None,
    groups: Iterable[str] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build the named models and methods and apply ``--likelihood`` and ``--set`` to them.

    ``option=value`` applies to each model and method that has the option, ``name.option=value``
    to the one of that name alone.

    Args:
        models: Names or recipes of models.
        methods: Names or recipes of methods.
        settings: What ``--set`` gives.
        likelihood: The name or recipe of the likelihood of all models; None: their own.
        groups: The groupings of the table, between which the intercept of a GLM varies.

    Raises:
        UnknownName: If a name is not known, or if nothing has the option; the message offers the
            nearest one.
        NotApplicable: If there is a likelihood, and a model takes none.
    """
    built_models = {
        name: with_groups(with_likelihood(recipes.build_model(name), likelihood, name), groups)
        for name in models
    }
    built_methods = {name: recipes.build_how(name) for name in methods}
    for setting in settings:
        path, _, text = setting.partition("=")
        _apply_setting([built_models, built_methods], path, text)
    return built_models, built_methods


def _apply_setting(groups: list[dict[str, Any]], path: str, text: str) -> None:
    """Set the option in every record of ``groups`` that has it, in place.

    Raises:
        UnknownName: If none has it, or if its value is a name that is not known.
        SettingError: If it is that of a model or method that is not in ``groups``.
    """
    head, _, rest = path.partition(".")
    applied = False
    for group in groups:
        for name, record in group.items():
            option = path
            if rest and head == name:
                option = rest
            try:
                group[name] = recipes.changed(record, option, text)
                applied = True
            except UnknownName:
                if option in dict(options_in(record)):  # the value is the unknown name
                    raise
                continue
    if not applied:
        records = {name: record for group in groups for name, record in group.items()}
        raise _unknown_option(records, path, [*recipes.MODELS, *recipes.HOWS])


def options_in(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the options of a model or a method.

    Names are those of ``--set``: ``kernel.lengthscale``.

    The options inside a prior are left out, as a prior is set as a whole.

    Args:
        record: A model, a method, a part of it, or a tuple of parts.
        prefix: What comes before each name.
    """
    from ..priors import Prior

    if isinstance(record, tuple):
        for i, part in enumerate(record):
            yield from options_in(part, f"{prefix}{i}.")
    if not is_dataclass(record) or isinstance(record, Prior):
        return
    for field in fields(record):
        value = getattr(record, field.name)
        if prefix and field.name in WRAPPED:
            yield from options_in(value, prefix)
            continue
        yield f"{prefix}{field.name}", value
        yield from options_in(value, f"{prefix}{field.name}.")


def _unknown_option(records: Mapping[str, Any], path: str, others: Sequence[str]) -> Exception:
    """Return the error for an option that no record has.

    Args:
        records: ``{name: model or method}`` of the run.
        path: The option, as ``--set`` gives it.
        others: The names of models and methods that are not in the run.
    """
    head, dot, _ = path.partition(".")
    if dot and head in others and head not in records:
        return SettingError(
            f"the name of a model or method of this run ({', '.join(records)}) before the dot",
            repr(path),
            f"run {head} too, or leave the setting out",
        )
    owners: dict[str, str] = {}
    for name, record in records.items():
        for option, _ in options_in(record):
            owners.setdefault(option, name)
            owners.setdefault(f"{name}.{option}", name)
    near = nearest(path, owners)
    if near is None:
        top = [option for option in owners if "." not in option]
        return UnknownName(f"option of {' or '.join(records)}", path, top)
    owner = owners[near]
    level = near.rpartition(".")[0]
    known = [one for one in owners if owners[one] == owner and one.rpartition(".")[0] == level]
    return UnknownName(f"option of {owner}", path, known)
