"""Elements of HTML. What is said in them is escaped here and nowhere else: content is either text, or what an element gave."""

from __future__ import annotations

import html
from typing import NewType

from verl_doctor.toolkit.text import harmless

Html = NewType("Html", str)
"""Markup that is ours."""


def escaped(text: str) -> Html:
    """Text from outside, in which nothing is markup."""
    return Html(html.escape(harmless(text, keep="\t\n")))


def element(name: str, *content: Html, **attributes: str) -> Html:
    """An element. `_` behind the name of an attribute is dropped, in it it is a hyphen: `class_`, `aria_label`."""
    given = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for attribute, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(content)}</{name}>")
