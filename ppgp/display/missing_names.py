"""What Python says where a public module is asked for a name that it does not have."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from .wording import FEWEST_LETTERS, nearest

LIKENESS = 0.81  # similarity from which a name may be a misspelt one


def hints(
    module: str,
    known: Sequence[str],
    others: Mapping[str, str] | None = None,
    elsewhere: Mapping[str, str] | None = None,
) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a module, which offers the nearest of its public names.

    Args:
        module: The name of the module.
        known: Its public names.
        others: {name in another library: public name}.
        elsewhere: {name: full name}, of what another public module has.
    """

    def missing(name: str) -> object:
        near = None
        if not name.startswith("_"):
            begun = [each for each in known if name.casefold().startswith(each.casefold())]
            longest = max(begun, key=len, default="")
            near = (others or {}).get(name) or nearest(name, known, LIKENESS)
            if near is None and len(longest) >= FEWEST_LETTERS:
                near = longest
        full = (elsewhere or {}).get(name)
        if full is None and near is not None:
            full = f"{module}.{near}"
        offer = "" if full is None else f": did you mean {full}?"
        raise AttributeError(f"module {module!r} has no attribute {name!r}{offer}", name=name)

    return missing


def place_of(name: str, package: str, modules: Iterable[str]) -> str | None:
    """Return where a class is public, such as "ppgp.models.GP", from a name in any case.

    Args:
        name: The name of the class.
        package: The name of the package.
        modules: Its public modules. Their files are read; they are not imported.
    """
    places = [
        f"{package}.{module}.{each}"
        for module in modules
        for each in public_names(f"{package}.{module}")
        if each.casefold() == name.casefold() and each[:1].isupper()
    ]
    return " or ".join(places) or None


def public_names(module: str) -> list[str]:
    """Return ``__all__`` of a module, read from its file; nothing if it has none."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return []
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    return []
