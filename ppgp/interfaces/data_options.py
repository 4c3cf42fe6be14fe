"""Options of the command line that say what the columns of a table are, as ``load`` takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SettingError
from .recipe_options import split_names

if TYPE_CHECKING:
    from ..data.dataset import Dataset

Data = Annotated[
    str,
    typer.Argument(
        help="a name (diabetes, breast_cancer, openml:NAME, ...) or a .csv, .tsv or .parquet file"
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
Dates = Annotated[str, typer.Option(help='"refuse" dates, or turn them into "years"')]
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
Ids = Annotated[str | None, typer.Option(help="the column with the names of the rows")]


def _option(words: str) -> Callable[[re.Match[str]], str]:
    """Return a function that writes the name found in a message as an option, in some words."""
    return lambda found: words.format("--" + found[1].replace("_", "-"))


#: what messages call an option in Python -> what it is on the command line
IN_THE_SHELL: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"Dataset\.from_frame does, with one_hot=True", "--categories one-hot does"),
    (r"Dataset(?:\.from_frame)?\((missing|categories)='([\w-]+)'\)", r"--\1 \2"),
    (r"with missing='drop'", "with --drop-missing"),
    (r"\b(missing|categories|dates)='([\w-]+)'", r"--\1 \2"),
    (r"pass (\w+)=, or a Dataset", "add its column to the file"),
    (r"pass \w+=, a Dataset, or a table with (the column .+)$", r"add \1 to the file"),
    (r"write Dataset\(X, y, groups=\{name: labels\}\)", "name its column with --groups"),
    (r"pass Dataset\((\w+)=\)", _option("pass {}")),
    (r"a Dataset without (\w+)", _option("leave {} out")),
    (r"models\.Boosted", "ngboost"),
    (r"\bclasses=", "--classes "),
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
        dates: "refuse" or "years".
    """
    from ..data.loading import load

    return load(
        data,
        target,
        coordinates=split_names(coordinates) or None,
        missing=missing,
        categories=categories,
        groups=split_names(groups) or None,
        classes=split_names(classes) or None,
        dates=dates,
        **roles,
    )


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
