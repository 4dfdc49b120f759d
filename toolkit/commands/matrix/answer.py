"""The result of `matrix`: a table of releases, or what one upgrade would break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from verl_doctor.toolkit.commands.matrix import document, render, render_markdown
from verl_doctor.toolkit.commands.matrix.matrix import Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode


@dataclass(frozen=True)
class TableAnswer(Answer):
    """Which releases of one project work with the installed or given release of the other."""

    table: Table

    def document(self) -> Mapping[str, Any]:
        """Return the table in JSON types."""
        return document.table_document(self.table)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the table as text."""
        return render.table_lines(self.table, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the table as a page."""
        return render_markdown.table_lines(self.table)

    def exit_code(self) -> ExitCode:
        """Return 0 if a release fits, 1 if none does, 3 if none could be judged."""
        if any(row.fits for row in self.table.rows):
            return ExitCode.OK
        return (
            ExitCode.FAILED
            if any(row.verdict is not None for row in self.table.rows)
            else ExitCode.COULD_NOT_CHECK
        )


@dataclass(frozen=True)
class UpgradeAnswer(Answer):
    """What an upgrade would newly break, None if there is no newer release."""

    upgrade: Upgrade | None

    def document(self) -> Mapping[str, Any]:
        """Return the upgrade in JSON types."""
        return document.upgrade_document(self.upgrade)

    def text_lines(self, width: int | None) -> Iterable[Text]:
        """Return the upgrade as text."""
        return render.upgrade_lines(self.upgrade, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the upgrade as a page."""
        return render_markdown.upgrade_lines(self.upgrade)

    def exit_code(self) -> ExitCode:
        """Return 0 if nothing new breaks, 1 if something does."""
        return ExitCode.FAILED if self.upgrade is not None and self.upgrade.breaks else ExitCode.OK
