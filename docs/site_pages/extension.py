"""The Sphinx extension: writes the generated pages before Sphinx looks for sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from site_pages.pages import write_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("config-inited", lambda app, _config: write_pages(Path(app.srcdir)))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
