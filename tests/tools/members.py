"""The members of all families: ppgp/recipes/members.json, and the tables of the documentation.

``python tests/tools/members.py`` prints the tables, and with ``--write`` replaces the file and the
tables in the documentation.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from typing import Any

import tables_of_docs

from ppgp import conformal, inference, kernels, learners, likelihoods, models, networks
from ppgp.experiments import EXPERIMENTS, experiment
from ppgp.models.means import Mean
from ppgp.recipes.members import FILE

NAME = "members"  # of the marks in the documentation

#: family -> (module, base class, heading of the table)
FAMILIES: dict[str, tuple[Any, type, str]] = {
    "kernels": (kernels, kernels.Kernel, "kernel"),
    "networks": (networks, networks.Network, "network"),
    "models": (models, models.Model, "model"),
    "means": (models, Mean, "mean of a Gaussian process"),
    "likelihoods": (
        likelihoods,
        likelihoods.Likelihood,
        "likelihood of GLM, GP, SVGP, Boosted and NeuralRegression",
    ),
    "learners": (learners, learners.Learner, "learner of boosting"),
    "methods": (inference, inference.Inference, "method of inference"),
    "scores": (conformal, conformal.Score, "conformal score"),
}


def summary(documented: Any) -> str:
    """Return the first sentence of a docstring."""
    line = (inspect.getdoc(documented) or "").partition("\n")[0]
    sentence = re.split(r"\. (?=[A-Z])", line)[0].removesuffix(".")
    if line.endswith("..."):  # not the end of a sentence
        sentence = line
    return sentence.replace("``", "`")


def of_classes(module: Any, base: type) -> dict[str, list[str]]:
    """Return {name: [call, summary]} of the classes of a family."""
    found = {}
    for name in module.__all__:
        kind = getattr(module, name)
        if inspect.isclass(kind) and issubclass(kind, base) and kind is not base:
            parameters = inspect.signature(kind).parameters.values()
            needed = [p.name for p in parameters if p.default is p.empty]
            found[name] = [f"{name}({', '.join(needed)})", summary(kind)]
    return found


def of_experiments() -> dict[str, list[str]]:
    """Return {name: [name with its options, summary]} of the experiments."""
    found = {}
    for name in EXPERIMENTS:
        run = experiment(name)
        names = [p for p in inspect.signature(run).parameters if p not in ("out", "seed", "quick")]
        options = ["--" + option.replace("_", "-") for option in names]
        module = importlib.import_module(run.__module__)
        found[name] = [" ".join([name, *options]), summary(module)]
    return found


def families() -> dict[str, dict[str, list[str]]]:
    """Return {family: {name: [call, summary]}}."""
    found = {name: of_classes(module, base) for name, (module, base, _) in FAMILIES.items()}
    return {**found, "experiments": of_experiments()}


def stored() -> str:
    """Return the content of members.json."""
    return json.dumps(families(), indent=1, ensure_ascii=False) + "\n"


def tables() -> str:
    """Return the tables as Markdown, one per family."""
    headings = {name: heading for name, (_, _, heading) in FAMILIES.items()}
    parts = []
    for family, entries in families().items():
        heading = headings.get(family, "experiment (`ppgp reproduce`)")
        lines = [f"| {heading} | what it is |", "|---|---|"]
        for call, what in entries.values():
            lines.append(f"| `{call}` | {what.replace('|', chr(92) + '|')} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__" and tables_of_docs.show(NAME, tables()):
    FILE.write_text(stored(), encoding="utf-8")
