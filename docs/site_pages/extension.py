"""The Sphinx extension: writes the generated pages before Sphinx reads, and labels cells of wide tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from site_pages.pages import write_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_NARROW_ENOUGH = 2  # columns that need no label


class LabelledCells(SphinxPostTransform):
    """Puts the heading of its column into each cell.

    `site.css` shows it in narrow windows, where a row becomes a card.
    """

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Label the cells of each table with more than two columns, except those of its first column."""
        for group in self.document.findall(nodes.tgroup):
            headings = [
                entry.astext() for head in group.findall(nodes.thead) for entry in head.findall(nodes.entry)
            ]
            if len(headings) <= _NARROW_ENOUGH:
                continue
            for body in group.findall(nodes.tbody):
                for row in body.findall(nodes.row):
                    for heading, cell in list(zip(headings, row.findall(nodes.entry), strict=False))[1:]:
                        if cell.astext():
                            cell.children[0].insert(
                                0, nodes.inline("", f"{heading}: ", classes=["column-heading"])
                            )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("config-inited", lambda app, _config: write_pages(Path(app.srcdir)))
    app.add_post_transform(LabelledCells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
