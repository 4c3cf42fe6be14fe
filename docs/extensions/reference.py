"""What pages of the reference show: signatures of records, and members that say something new.

A model, kernel, prior, method or score overrides methods of the base class of its family, whose
page documents them. Its own page shows the others.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

from ppgp import conformal, inference, kernels, learners, likelihoods, models, networks
from ppgp.acquisition import Acquisition
from ppgp.priors.records import Prior

FAMILIES: tuple[type, ...] = (
    Acquisition,
    conformal.Score,
    inference.Inference,
    kernels.Kernel,
    learners.Learner,
    likelihoods.Likelihood,
    models.Model,
    networks.Network,
    Prior,
)
OF_SCIKIT_LEARN = re.compile(r"(set_\w+_request|get_metadata_routing)$")


def owner(found: Any) -> type | None:
    """Return the class of this library whose body defines a method or a property."""
    function = inspect.unwrap(found.fget if isinstance(found, property) else found)
    name = getattr(function, "__qualname__", "").rpartition(".")[0]
    return getattr(inspect.getmodule(function), name, None) if name else None


def skip(app: Sphinx, what: str, name: str, found: Any, leave_out: bool, options: Any) -> Any:
    """Leave out overrides of a family's base class, and what scikit-learn adds to estimators."""
    if OF_SCIKIT_LEARN.match(name):
        return True
    kind = owner(found)
    if not inspect.isclass(kind):
        return None
    bases = [base for base in FAMILIES if issubclass(kind, base) and kind is not base]
    return True if any(hasattr(base, name) for base in bases) else None


def signature(
    app: Sphinx, what: str, name: str, found: Any, options: Any, arguments: str, result: str
) -> tuple[str, str] | None:
    """Return the arguments of the constructor where ``__new__`` takes any."""
    if inspect.isclass(found) and arguments and arguments.startswith("(*"):
        try:
            own = inspect.signature(found)
        except ValueError:
            return None
        own = own.replace(return_annotation=inspect.Signature.empty)
        return stringify_signature(own, unqualified_typehints=True), ""
    return None


def unlink_shapes(app: Sphinx, doctree: nodes.document) -> None:
    """Make text of the names of dimensions in annotations: ``n`` in ``Float[Tensor, "n"]``."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("reftype") == "class" and re.fullmatch("[a-z_]+", link["reftarget"]):
            link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to autodoc, and to the pages that were read."""
    app.connect("doctree-read", unlink_shapes)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
