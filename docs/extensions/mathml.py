"""Formulas as MathML, which browsers draw without a script or a font of another server."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(latex2mathml.tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula"><p>{formula}</p></div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
