"""Sphinx's configuration: `python -m sphinx -W -n docs SITE` builds the site."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "verl-doctor"
author = "the verl-doctor maintainers"
version = release = installed_version("verl-doctor")

extensions = ["myst_parser", "site_pages.extension"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_generated"]
highlight_language = "none"
nitpicky = True

myst_heading_anchors = 3
smartquotes = False  # commands, messages and versions are copied from these pages
myst_enable_extensions = ["colon_fence", "deflist"]

html_theme = "furo"
html_title = "verl-doctor"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
