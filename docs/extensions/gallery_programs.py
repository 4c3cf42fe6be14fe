"""The directive ``gallery-programs``: the programs of ``notebooks/gallery`` with their titles."""

from __future__ import annotations

import ast
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[2] / "notebooks" / "gallery"


class GalleryPrograms(SphinxDirective):
    """A section for each program, titled by the first sentence of its docstring."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for path in sorted(FOLDER.glob("[0-9]*.py")):
            self.env.note_dependency(str(path))
            text = path.read_text(encoding="utf-8")
            docstring = ast.get_docstring(ast.parse(text)) or path.stem
            program = text.split('"""', 2)[2].strip() + "\n"
            section = nodes.section(ids=[path.stem.partition("_")[2].replace("_", "-")])
            section += nodes.title("", docstring.rstrip("."))
            literal = nodes.literal_block(program, program, language="python")
            self.set_source_info(literal)
            section += literal
            self.state.document.note_implicit_target(section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("gallery-programs", GalleryPrograms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
