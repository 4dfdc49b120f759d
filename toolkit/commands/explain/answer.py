"""The result of `explain`: a page, the list of all rules, the list of plugins, or a plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_doctor.toolkit.commands.explain import documentation
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.text import harmless

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_KEYS = ("code", "severity", "cost", "fix", "title")


class _Explanation(Answer):
    """An explanation, which has no verdict."""

    def exit_code(self) -> ExitCode:
        """Return 0."""
        return ExitCode.OK

    def ends_with_verdict(self) -> bool:
        """Return True: without a verdict, no headline is repeated below a long text."""
        return True


@dataclass(frozen=True)
class PageAnswer(_Explanation):
    """A page in Markdown about a subject."""

    subject: str
    page: str

    def document(self) -> Mapping[str, Any]:
        """Return the subject and its page."""
        return {"subject": self.subject, "page": self.page}

    def text_lines(self, width: int | None) -> Iterable[Text | str]:
        """Return the page, rendered on a terminal and as Markdown in a pipe."""
        if width is None:
            return self.page.splitlines()
        from rich.markdown import Markdown  # noqa: PLC0415 - it takes long to load, and a check does without it

        return _rendered(Markdown(self.page), width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the page."""
        return self.page.splitlines()


@dataclass(frozen=True)
class RulesAnswer(_Explanation):
    """All rules, or those of one family."""

    known: Registry
    family: str = ""

    def document(self) -> Sequence[Mapping[str, Any]]:
        """Return an object for each rule."""
        return [dict(zip(_KEYS, row, strict=True)) for row in documentation.rows(self.known, self.family)]

    def text_lines(self, width: int | None) -> Iterable[Text | str]:
        """Return a table on a terminal, and columns between tabs in a pipe."""
        rows = documentation.rows(self.known, self.family)
        if width is None:
            return (
                f"{code}\t{severity}\t{cost}\t{title}\t{fixes}" for code, severity, cost, fixes, title in rows
            )
        from rich.table import Table  # noqa: PLC0415 - a check does without it

        table = Table("code", "severity", "what it finds", "fix", box=None, pad_edge=False)
        for code, severity, _, fixes, title in rows:
            table.add_row(code, severity, title, fixes)
        return _rendered(table, width)

    def markdown_lines(self) -> Iterable[str]:
        """Return the table of the documentation."""
        return documentation.table(self.known, self.family)


@dataclass(frozen=True)
class PluginsAnswer(_Explanation):
    """What other distributions add, and what could not be loaded."""

    known: Registry

    def document(self) -> Mapping[str, Any]:
        """Return plugins and problems."""
        return {
            "plugins": [
                {
                    "distribution": plugin.distribution,
                    "version": plugin.version,
                    "group": plugin.group,
                    "adds": list(plugin.adds),
                }
                for plugin in self.known.plugins
            ],
            "problems": [
                {
                    "distribution": problem.distribution,
                    "entry_point": problem.entry_point,
                    "error": problem.error,
                }
                for problem in self.known.problems.problems
            ],
        }

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return a line for each."""
        lines = [
            (
                f"{plugin.distribution} {plugin.version}: {plugin.group.removeprefix('verl_doctor.')} "
                f"{', '.join(plugin.adds)}"
            )
            for plugin in self.known.plugins
        ]
        lines += [
            f"{problem.distribution}: {problem.entry_point} could not be loaded: {problem.error}"
            for problem in self.known.problems.problems
        ]
        none = (
            "no plugins; distributions add them through the entry points verl_doctor.checks, .fixes and "
            ".facts"
        )
        return map(harmless, lines or [none])

    def markdown_lines(self) -> Iterable[str]:
        """Return the same lines."""
        return self.text_lines(None)


@dataclass(frozen=True)
class TextAnswer(_Explanation):
    """A text for another program, the same in every form: a schema, a completion script."""

    text: str

    def document(self) -> Mapping[str, Any]:
        """Return nothing: the text has no other form."""
        return {}

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return the text."""
        return self.text.splitlines()

    def markdown_lines(self) -> Iterable[str]:
        """Return the text."""
        return self.text.splitlines()


def _rendered(shown: RenderableType, width: int) -> Iterator[Text]:
    """Yield the lines that rich renders at this width."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=width, highlight=False, markup=False, emoji=False, force_terminal=True)
    for segments in console.render_lines(shown, pad=False):
        line = Text()
        for segment in segments:
            line.append(segment.text, segment.style)
        yield line
