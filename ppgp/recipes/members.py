"""The members of the families, read without torch.

``members.json`` is generated from the classes: ``make tables`` writes it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("members.json")


class Member(NamedTuple):
    """A class or an experiment.

    Attributes:
        call: Its constructor with the arguments that it needs; of an experiment, its name and
            options.
        summary: The first sentence of its docstring.
    """

    call: str
    summary: str


@cache
def members() -> dict[str, dict[str, Member]]:
    """Return ``{family: {name: Member}}``."""
    families = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        family: {name: Member(*entry) for name, entry in entries.items()}
        for family, entries in families.items()
    }


def named_recipes(family: str, own: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return {name: (recipe, what it is)}.

    A member that needs no argument and has no other name is named as its class, in lower case.

    Args:
        family: The family.
        own: Recipes with names of their own, and what they are; "": what their class is.
    """
    kinds = members()[family]
    named = {
        name: (recipe, meaning or kinds[recipe.partition("(")[0]].summary)
        for name, (recipe, meaning) in own.items()
    }
    calls = {recipe for recipe, _ in named.values()}
    for kind, (call, summary) in kinds.items():
        if call == f"{kind}()" and call not in calls:
            named.setdefault(kind.lower(), (call, summary))
    return named
