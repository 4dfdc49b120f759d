"""Elements of HTML.

Their content is escaped here and nowhere else: it is either text, or the result of an element.
"""

from __future__ import annotations

import html
from typing import NewType

from verl_doctor.toolkit.text import harmless

Html = NewType("Html", str)
"""Our own markup."""


def escaped(text: str) -> Html:
    """Escape external text, so that nothing in it is markup."""
    return Html(html.escape(harmless(text, keep="\t\n")))


def element(name: str, *content: Html, **attributes: str) -> Html:
    """Return an element.

    In attribute names a trailing `_` is dropped, any other is a hyphen: `class_`, `aria_label`.
    """
    given = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for attribute, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(content)}</{name}>")
