"""What pages of the reference show: signatures, and the members that users call.

A model, kernel, prior, method or score overrides methods of the base class of its family, whose
page documents them all for those who write a class of their own. The other classes' pages leave
out hooks, which this library calls itself.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from names_in_pages import used_names
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util.inspect import stringify_signature

import ppgp
from ppgp import conformal, inference, kernels, learners, likelihoods, models, networks
from ppgp.acquisition import Acquisition
from ppgp.models.base import FOR_USERS
from ppgp.models.means import Mean
from ppgp.priors.records import Prior

FAMILIES: tuple[type, ...] = (
    Acquisition,
    conformal.Score,
    inference.Inference,
    kernels.Kernel,
    learners.Learner,
    likelihoods.Likelihood,
    Mean,
    models.Model,
    networks.Network,
    Prior,
)
OF_SCIKIT_LEARN = re.compile(r"(set_\w+_request|get_metadata_routing)$")
#: Classes that have methods for users and for this library. Their pages show the members that a
#: page, a notebook or an example uses, and those named here.
WITH_HOOKS: dict[type, tuple[str, ...]] = {
    ppgp.Dataset: (),
    ppgp.Prediction: ("centre", "joint", "kind", "log_tails", "spread"),
    ppgp.Target: ("start",),
    ppgp.Team: (),
    ppgp.conformal.Calibrator: (),
    ppgp.data.Scaler: ("inputs_back",),
    ppgp.data.Stream: (),
}
#: the entry of ``self`` with its further lines, and a section of arguments that has no entry
SELF = re.compile(r"^( +)self: .*\n(?:\1 +.*\n)*", re.MULTILINE)
NO_ARGUMENTS = re.compile(r"^Args:\n(?:\n|(?=\S)|\Z)", re.MULTILINE)


def class_of_page(page: str) -> type | None:
    """Return the class that a page documents, or None: ``api/ppgp.kernels.RBF``."""
    module, _, name = page.rpartition("/")[2].rpartition(".")
    if not module.startswith("ppgp"):
        return None
    found = getattr(importlib.import_module(module), name, None)
    return found if inspect.isclass(found) else None


def shown(kind: type, name: str) -> bool:
    """Return whether the page of a class shows a member."""
    bases = [base for base in FAMILIES if issubclass(kind, base) and kind is not base]
    if any(hasattr(base, name) for base in bases):
        return False
    if models.Model in bases:
        return name in FOR_USERS
    if bases:
        return re.search(rf"\.{name}\b", inspect.getdoc(kind) or "") is not None
    return kind not in WITH_HOOKS or name in used_names() or name in WITH_HOOKS[kind]


def skip(app: Sphinx, what: str, name: str, found: Any, leave_out: bool, options: Any) -> Any:
    """Leave out members that users do not call, and what scikit-learn adds to estimators."""
    if OF_SCIKIT_LEARN.match(name):
        return True
    kind = class_of_page(app.env.docname)
    return None if kind is None or shown(kind, name) else True


def signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, arguments: str, result: str
) -> tuple[str, str] | None:
    """Return the arguments of a class: those of its constructor, with their defaults."""
    if not inspect.isclass(found) or not arguments:
        return None
    if arguments.startswith("(*"):  # ``__new__`` takes any
        try:
            own = inspect.signature(found)
        except ValueError:
            return None
        own = own.replace(return_annotation=inspect.Signature.empty)
        arguments = stringify_signature(own, unqualified_typehints=True)
    return with_defaults(found, arguments), ""


def with_defaults(kind: type, arguments: str) -> str:
    """Return the arguments of a dataclass with expressions in place of marks like ``<factory>``."""
    if not dataclasses.is_dataclass(kind):
        return arguments
    values = {f.name: default_of(f) for f in dataclasses.fields(kind) if f.init}
    for name, parameter in inspect.signature(kind).parameters.items():
        mark = repr(parameter.default)
        if name in values and mark.startswith("<"):
            arguments = arguments.replace(f" = {mark}", f" = {brief(values[name])}", 1)
    return arguments


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field."""
    if field.default_factory is dataclasses.MISSING:
        return field.default
    return field.default_factory()


def brief(value: Any) -> str:
    """Return the expression that makes a record, without the arguments that have their default.

    What no expression is known for is an ellipsis.
    """
    if isinstance(value, tuple):
        return "(" + "".join(f"{brief(one)}, " for one in value).rstrip() + ")"
    if not dataclasses.is_dataclass(value):
        return "..." if repr(value).startswith("<") else repr(value)
    given = [
        f"{f.name}={brief(own)}"
        for f in dataclasses.fields(value)
        if f.init and f.repr and repr(own := getattr(value, f.name)) != repr(default_of(f))
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def without_self(lines: list[str]) -> list[str]:
    """Return the lines of a docstring without the argument ``self`` of a function."""
    text = SELF.sub("", "\n".join(lines) + "\n")
    return NO_ARGUMENTS.sub("", text).split("\n")[:-1]


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Prepare a docstring for napoleon.

    Napoleon takes what precedes a colon in the first line of a property for its type. An empty
    comment takes the place of this line.
    """
    if what == "method":
        lines[:] = without_self(lines)
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


def name_attributes() -> None:
    """Let the list of the attributes of a class have this word as its title."""
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"


def unlink_shapes(app: Sphinx, doctree: nodes.document) -> None:
    """Make text of the names of dimensions in annotations: ``n`` in ``Float[Tensor, "n"]``."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("reftype") == "class" and re.fullmatch("[a-z_]+", link["reftarget"]):
            link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc, and to the pages that were read."""
    name_attributes()
    app.connect("doctree-read", unlink_shapes)
    app.connect("autodoc-process-docstring", process, priority=450)  # that of napoleon is 500
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
