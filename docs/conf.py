"""Settings of the documentation: ``make docs`` builds the pages into docs/build/html."""

from __future__ import annotations

import sys
from pathlib import Path

import ppgp

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from public_names import aliases, by_kind

project = "ppgp"
author = "the authors of ppgp"
copyright = author
version = release = ppgp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "docstrings",
    "gallery_programs",
    "mathml",
    "notebook_pages",
    "readme_blocks",
    "reference",
]
exclude_patterns = ["build", "extensions", "templates"]
templates_path = ["templates"]

# Notebooks are stored with their outputs: a build runs none of them.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
# What a module shares with ``ppgp`` itself is documented once, there.
autosummary_context = {"aliases": aliases(), "public": by_kind()}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Formulas become MathML, which browsers draw themselves: a page loads no script for them.
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_js_files = ["search_from_disk.js"]
html_theme = "pydata_sphinx_theme"
html_title = "ppgp"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 4,
}
ALONE = (
    "installation",
    "choose",
    "your-own-table",
    "contents",
    "guarantees",
    "command-line",
    "estimators",
    "notebooks",
    "experiments",
    "notation",
    "units",
    "speed",
    "notes",
    "data",
    "contributing",
    "changelog",
)
html_sidebars = {page: [] for page in ALONE}  # pages without others below them
