"""The result of a command, on any subject. `console.view` shows it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.text import Text


@runtime_checkable
class Answer(Protocol):
    """One result in every form in which it can be shown. Nothing is rendered before a form is chosen."""

    @abstractmethod
    def document(self) -> Mapping[str, Any] | Sequence[Any]:
        """Return the result in JSON types."""

    @abstractmethod
    def text_lines(self, width: int | None) -> Iterable[Text | str]:
        """Return the lines for a person; a plain string is written unchanged.

        `width` is the terminal's, None for a pipe, in which nothing is wrapped.
        """

    def markdown_lines(self) -> Iterable[str]:
        """Return a Markdown page's lines: the text as a code block, unless the result defines its own."""
        return _as_code(self.text_lines(None))

    @abstractmethod
    def exit_code(self) -> int:
        """Return the exit code of the command."""

    def ends_with_verdict(self) -> bool:
        """Whether the last line of the text already holds the verdict."""
        return False

    def other_forms(self) -> Mapping[str, Callable[[], str]]:
        """Return the forms of this result besides text, JSON and Markdown, by name."""
        return {}


def _as_code(lines: Iterable[Text | str]) -> Iterator[str]:
    yield "```"
    yield from map(str, lines)
    yield "```"
