"""Options of the command line that say what the columns of a table are, as ``load`` takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError
from ..recipes.parsing import MODELS
from .recipe_options import split_names

if TYPE_CHECKING:
    from ..data.dataset import Dataset

Data = Annotated[
    str,
    typer.Argument(
        help="a name (diabetes, iris, openml:NAME, ...), a .csv, .tsv, .parquet or .xlsx file, "
        '"-": .csv from the standard input, or a .toml file with these options'
    ),
]
Target = Annotated[str | None, typer.Option(help="the target column; needed for a file")]
Missing = Annotated[
    str, typer.Option(help='"refuse" missing values of inputs, or "keep" them for ngboost')
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="drop rows with an empty cell, and say how many")
]
Categories = Annotated[
    str,
    typer.Option(
        help='"refuse" text, or turn it into columns of 0 and 1 ("one-hot"), or into "codes" of '
        "categories for ngboost"
    ),
]
Dates = Annotated[
    str,
    typer.Option(
        help='"refuse" dates, or turn them into "years", or into "days", "hours", "minutes" or '
        '"seconds" since 2000'
    ),
]
Sep = Annotated[
    str | None,
    typer.Option(help='what separates columns: ";", "|", "tab", ...; default: "," (.tsv: a tab)'),
]
OneHot = Annotated[
    str,
    typer.Option(help="columns that become columns of 0 and 1, one per value, comma-separated"),
]
Drop = Annotated[str, typer.Option(help="columns to leave out, comma-separated")]
Classes = Annotated[
    str, typer.Option(help="the labels of the target in their order, comma-separated")
]
Coordinates = Annotated[
    str, typer.Option(help="input columns that are places in one space, comma-separated")
]
RightCensored = Annotated[
    str | None, typer.Option(help="the column of flags: 1 where the target is only exceeded")
]
NoiseSd = Annotated[
    str | None, typer.Option(help="the column of the known standard deviation of each error")
]
Offset = Annotated[
    str | None, typer.Option(help="the column of the offset; for counts, the log of the exposure")
]
Trials = Annotated[str | None, typer.Option(help="the column of the numbers of trials")]
Weights = Annotated[str | None, typer.Option(help="the column of the frequency weights")]
Groups = Annotated[
    str,
    typer.Option(
        help="columns of groupings, comma-separated; intercepts of glm vary between the groups"
    ),
]
Ids = Annotated[
    str | None, typer.Option("--id", "--ids", help="the column with the names of the rows")
]


def _option(words: str) -> Callable[[re.Match[str]], str]:
    """Return a function that writes the name found in a message as an option, in some words."""
    return lambda found: words.format("--" + found[1].replace("_", "-"))


def _named(found: re.Match[str]) -> str:
    """Return the name on the command line of a model that a message calls SGPR(kernel)."""
    named = {recipe.partition("(")[0]: name for name, (recipe, _) in reversed(MODELS.items())}
    name = named.get(found[1], found[0])
    return f"{name} with --likelihood" if found[2] else name


def _with_law(found: re.Match[str]) -> str:
    """Return the options for a model that a message calls GP(likelihood=Bernoulli())."""
    return f"{found[1].lower()} with --likelihood {found[2].lower()}"


def _as_dropped(found: re.Match[str]) -> str:
    """Return the option for columns that a message lists as Python does."""
    names = ",".join(re.findall(r"'([^']+)'", found[1]))
    return f"leave out with --drop '{names}'"


def _as_scores(found: re.Match[str]) -> str:
    """Return the option for scores that a message calls Absolute(), Normalized() or Quantile()."""
    return f"pass --scores {found[1].replace('()', '').lower()}"


#: what messages call an option in Python -> what it is on the command line
IN_THE_SHELL: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"got text or dates in (column \S+): drop the column,",
        r"got text or dates in \1: --drop it,",
    ),
    (r"Dataset\.from_frame does, with one_hot=True", "with --one-hot or --categories one-hot"),
    (r"Dataset(?:\.from_frame)?\((missing|categories)='([\w-]+)'\)", r"--\1 \2"),
    (r"with missing='drop'", "with --drop-missing"),
    (r"pass target=, one of", "add --target, one of"),
    (r"\b(missing|categories|dates)='([\w-]+)'", r"--\1 \2"),
    (r"pass (\w+)=, or a Dataset", "add its column to the file"),
    (r"pass \w+=, a Dataset, or a table with (the column .+)$", r"add \1 to the file"),
    (r"write Dataset\(X, y, groups=\{name: labels\}\)", "name its column with --groups"),
    (r"pass Dataset\((\w+)=\)", _option("pass {}")),
    (r"a Dataset without (\w+)", _option("leave {} out")),
    (r"models\.Boosted", "ngboost"),
    (r"\bclasses=", "--classes "),
    (r"ppgp fit or posterior\.save wrote", "ppgp fit wrote"),
    (r"use conformal\.([A-Z].+)$", _as_scores),
    (r"once in classes$", "once in --classes"),
    (r"leave out with drop=\[(.+)\]", _as_dropped),
    (r"\b(S?V?GP)\(likelihood=(\w+)\(\)\)", _with_law),
    (r"\b(Logistic|Softmax)Regression\b", lambda found: found[1].lower()),
    (r"\b([A-Z]\w+)\(kernel(, likelihood=\.\.\.)?\)", _named),
    (r"by (SVI\(batch_size=\d+\))", r"by --how '\1'"),
    (r"pass sep='\\t'", "pass --sep tab"),
    (r"pass sep=('.'|)", r"pass --sep \1"),
    (r"column in one_hot", "column in --one-hot"),
    (r"leave one_hot out", "leave --one-hot out"),
    (r"pass labels as pandas' ordered categories", "name them in order with --classes"),
)


def load_table(
    data: str,
    target: str | None,
    missing: str,
    categories: str,
    coordinates: str,
    groups: str,
    roles: Mapping[str, str | None],
    classes: str = "",
    dates: str = "refuse",
    sep: str | None = None,
    one_hot: str = "",
    drop: str = "",
) -> Dataset:
    """Load the table of a command.

    Args:
        data: A name or a file.
        target: The target column.
        missing: "refuse", "keep" or "drop".
        categories: "refuse", "one-hot" or "codes".
        coordinates: Names of columns, comma-separated.
        groups: Names of columns, comma-separated.
        roles: ``{role: column}`` of the other columns with roles; None: there is none.
        classes: The labels of the target in their order, comma-separated.
        dates: "refuse" or a unit.
        sep: What separates columns, as ``separator`` takes it.
        one_hot: Names of columns, comma-separated.
        drop: Names of columns, comma-separated.
    """
    from ..data.files.loading import load

    return load(
        data,
        target,
        coordinates=split_names(coordinates) or None,
        missing=missing,
        categories=categories,
        groups=split_names(groups) or None,
        classes=split_names(classes) or None,
        dates=dates,
        sep=separator(sep),
        one_hot=split_names(one_hot),
        drop=split_names(drop),
        **roles,
    )


def separator(word: str | None) -> str | None:
    r"""Return the character that ``--sep`` names; "tab" and "\t" are a tab."""
    return "\t" if word in ("tab", r"\t") else word


def treatment_of_blanks(missing: str, drop: bool) -> str:
    """Return what ``load`` takes as ``missing``.

    Args:
        missing: What ``--missing`` gives.
        drop: Whether ``--drop-missing`` is given.

    Raises:
        SettingError: If both are given.
    """
    if drop and missing == "keep":
        raise SettingError("one of --missing keep and --drop-missing", "both", "leave one out")
    return "drop" if drop else missing


def in_the_shell(sentence: str) -> str:
    """Return a message with the options of the command line in place of Python's arguments."""
    for python, shell in IN_THE_SHELL:
        sentence = re.sub(python, shell, sentence)
    return sentence


def format_warning(message: object, *_: object, **__: object) -> str:
    """Return a warning as one line, without the line of code that raised it."""
    return f"warning: {in_the_shell(str(message))}\n"
