"""Options of the command line that say what the columns of a table are, and its messages."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ..display.overrides import set_attributes
from ..errors import SettingError
from ..recipes.parsing import MODELS
from .recipe_options import split_names

if TYPE_CHECKING:
    from ..tables.first_look import Looked

Data = Annotated[
    str,
    typer.Argument(
        help="a name (diabetes, iris, openml:NAME, ...), a .csv, .tsv, .parquet or .xlsx file, "
        '"-": .csv from the standard input, or a .toml file with these options'
    ),
]
Target = Annotated[str | None, typer.Option(help="the target column; needed for a file")]
Sep = Annotated[
    str | None,
    typer.Option(help='what separates columns: ";", "|", "tab", ...; default: "," (.tsv: a tab)'),
]
RightCensored = Annotated[
    str | None, typer.Option(help="the column of flags: 1 where the target is only exceeded")
]
MissingOfKnown = Annotated[
    str,
    typer.Option(help='"refuse" rows with an empty cell, or "drop" them, and say how many'),
]


@dataclass(frozen=True)
class TableOptions:
    """The options of ``fit`` and ``compare`` for the columns of their table, as ``load`` has them.

    Several names in one option are comma-separated.
    """

    missing: Annotated[
        str,
        typer.Option(
            help='"refuse" rows with an empty cell, "drop" them, and say how many, or "keep" '
            "missing values of inputs for ngboost"
        ),
    ] = "refuse"
    categories: Annotated[
        str,
        typer.Option(
            help='"refuse" text, or turn it into columns of 0 and 1 ("one-hot"), or into "codes" '
            "of categories for ngboost"
        ),
    ] = "refuse"
    dates: Annotated[
        str,
        typer.Option(
            help='"refuse" dates, or turn them into "years", or into "days", "hours", "minutes" '
            'or "seconds" since 2000'
        ),
    ] = "refuse"
    time: Annotated[
        str | None,
        typer.Option(
            help="the input column that is the time of a series, whose dates become days; other "
            "input columns are then regressors"
        ),
    ] = None
    one_hot: Annotated[
        str,
        typer.Option(help="columns that become columns of 0 and 1, one per value, comma-separated"),
    ] = ""
    drop: Annotated[str, typer.Option(help="columns to leave out, comma-separated")] = ""
    sep: Sep = None
    coordinates: Annotated[
        str, typer.Option(help="input columns that are places in one space, comma-separated")
    ] = ""
    noise_sd: Annotated[
        str | None, typer.Option(help="the column of the known standard deviation of each error")
    ] = None
    offset: Annotated[
        str | None,
        typer.Option(help="the column of the offset; for counts, the log of the exposure"),
    ] = None
    trials: Annotated[str | None, typer.Option(help="the column of the numbers of trials")] = None
    weights: Annotated[str | None, typer.Option(help="the column of the frequency weights")] = None
    groups: Annotated[
        str,
        typer.Option(
            help="columns of groupings, comma-separated; intercepts of glm vary between the groups"
        ),
    ] = ""
    ids: Annotated[
        str | None, typer.Option("--id", "--ids", help="the column with the names of the rows")
    ] = None
    classes: Annotated[
        str, typer.Option(help="the labels of the target in their order, comma-separated")
    ] = ""

    def look(self, data: str, target: str | None, right_censored: str | None = None) -> Looked:
        """Look at the table of a command, before torch is imported.

        Args:
            data: A name or a file.
            target: The target column.
            right_censored: The column of the flags of censored targets; None: there is none.
        """
        from ..tables.first_look import Asked, look

        roles = {"noise_sd": self.noise_sd, "right_censored": right_censored}
        roles |= {"offset": self.offset, "trials": self.trials, "weights": self.weights}
        roles |= {"ids": self.ids}
        asked = Asked(
            target=target,
            roles={role: name for role, name in roles.items() if name is not None},
            groups=split_names(self.groups),
            words={"missing": self.missing, "categories": self.categories, "dates": self.dates},
            one_hot=split_names(self.one_hot),
            drop=split_names(self.drop),
            classes=split_names(self.classes) or None,
            coordinates=split_names(self.coordinates) or None,
            sep=separator(self.sep),
            time=self.time,
        )
        return look(data, asked)


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of ``TableOptions`` in place of its argument ``columns``.

    Args:
        command: A function with the keyword ``columns``, a ``TableOptions``.
    """
    options = inspect.signature(TableOptions, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if name == "columns":
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters += [option.replace(kind=keyword) for option in options.values()]
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        columns = TableOptions(**{name: given.pop(name) for name in options})
        command(columns=columns, **given)

    set_attributes(
        with_options,
        __signature__=inspect.Signature(parameters),
        __annotations__={one.name: one.annotation for one in parameters},
    )
    return with_options


class TableCommand(TyperCommand):
    """A command that reads a table of the user's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command."""
        refuse_drop_missing(self.name, args)
        return super().parse_args(ctx, args)


def refuse_drop_missing(command: str | None, words: Sequence[str]) -> None:
    """Raise SettingError for ``--drop-missing`` among the words of a command."""
    if "--drop-missing" in words:
        wanted = f"an option of ppgp {command}"
        raise SettingError(wanted, "'--drop-missing'", "write --missing drop")


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
    (r"pass target=, one of", "add --target, one of"),
    (r"\b(missing|categories|dates|time)='([\w-]+)'", r"--\1 \2"),
    (r"\btime=('[^']+')", r"--time \1"),
    (r"pass (\w+)=, or a Dataset", "add its column to the file"),
    (r"pass \w+=, a Dataset, or a table with (the column .+)$", r"add \1 to the file"),
    (r"write Dataset\(X, y, groups=\{name: labels\}\)", "name its column with --groups"),
    (r"pass Dataset\((\w+)=\)", _option("pass {}")),
    (r"a Dataset without (\w+)", _option("leave {} out")),
    (r"models\.Boosted", "ngboost"),
    (r" \(pandas\.to_datetime\(column, format=\.\.\.\) reads other dates\)", ""),
    (r"pandas\.to_datetime\(column.+\) makes dates of them$", "write them as 2024-05-31"),
    (r"\bgive a kernel$", "name a model, such as --model gp"),
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


def separator(word: str | None) -> str | None:
    r"""Return the character that ``--sep`` names; "tab" and "\t" are a tab."""
    return "\t" if word in ("tab", r"\t") else word


def drops_rows(missing: str) -> bool:
    """Return whether ``--missing`` drops the rows with an empty cell that a saved posterior gets.

    Raises:
        SettingError: If it is neither "refuse" nor "drop".
    """
    from ..tables.names import check_word

    check_word("--missing", missing, ("refuse", "drop"))
    return missing == "drop"


def in_the_shell(sentence: str) -> str:
    """Return a message with the options of the command line in place of Python's arguments."""
    for python, shell in IN_THE_SHELL:
        sentence = re.sub(python, shell, sentence)
    return sentence


def format_warning(message: object, *_: object, **__: object) -> str:
    """Return a warning as one line, without the line of code that raised it."""
    return f"warning: {in_the_shell(str(message))}\n"
