"""The directive ``readme-block``: a fenced block of the README, so that pages need no copy of it.

Its argument is the language of the block, and the option ``number`` counts from 1.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

README = Path(__file__).parents[2] / "README.md"


class ReadmeBlock(SphinxDirective):
    """A block of the README as literal text."""

    required_arguments = 1
    option_spec = {"number": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(README))
        language, number = self.arguments[0], self.options.get("number", 1)
        text = README.read_text(encoding="utf-8")
        blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if number > len(blocks):
            raise self.error(f"the README has {len(blocks)} blocks of {language}, not {number}")
        block = blocks[number - 1]
        literal = nodes.literal_block(block, block, language=language)
        self.set_source_info(literal)
        return [literal]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("readme-block", ReadmeBlock)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
