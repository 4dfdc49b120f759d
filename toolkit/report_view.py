"""A report as it is shown: masked for anybody to read, unless its reader asked for all of it; free of secrets in any case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit import render_page_markdown, render_page_text, report_document
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.masks import Masks
from verl_doctor.toolkit.page import Page, mapped, texts_in
from verl_doctor.toolkit.report import page_of
from verl_doctor.toolkit.report_names import names_in
from verl_doctor.toolkit.report_seen import Seen
from verl_doctor.toolkit.secret import without_secrets
from verl_doctor.toolkit.view import View, as_view


@dataclass(frozen=True)
class Made:
    """The page and the document that holds it, fit to be shown."""

    page: Page
    document: Mapping[str, Any]


def make(seen: Seen, machine: Machine, *, masked: bool) -> Made:
    """Put the page together and mask it."""
    plain = page_of(seen, masked=masked)
    change = Masks(names_in(seen, machine, texts_in(plain))) if masked else without_secrets
    page = mapped(plain, change)
    return Made(page, mapped(report_document.document(seen, page, masked=masked), change))


def view(made: Made) -> View:
    """The forms for a terminal, a program and a ticket."""
    return as_view(
        lambda: made.document,
        lambda: render_page_markdown.render(made.page),
        lambda width: render_page_text.render(made.page, width),
    )
