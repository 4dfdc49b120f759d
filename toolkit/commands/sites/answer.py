"""The result of `sites import`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.json_document import Line
from verl_doctor.toolkit.sources.python.site_paths import Setting
from verl_doctor.toolkit.text import harmless


class LeftDocument(TypedDict):
    """A setting that was not imported."""

    name: str
    line: Line
    why: str


class SitesDocument(TypedDict):
    """The paths that were imported into the configuration."""

    schema_version: Literal[1]
    path: Annotated[str, "the configuration file"]
    applied: Annotated[bool, "whether it was written"]
    sites: Annotated[dict[str, str], "the paths that are new or different"]
    left: list[LeftDocument]
    diff: str


@dataclass(frozen=True)
class SitesAnswer(Answer):
    """The paths that go into the configuration at `path`, and the settings that do not, each with the reason.

    `diff` is the change, "" for none. `to_do`: something must still be set by hand.
    """

    path: Path
    taken: Mapping[str, str]
    left: Sequence[tuple[Setting, str]]
    diff: str
    to_do: bool
    applied: bool

    def document(self) -> SitesDocument:
        """Return the result in JSON types."""
        return {
            "schema_version": 1,
            "path": str(self.path),
            "applied": self.applied and bool(self.taken),
            "sites": dict(self.taken),
            "left": [{"name": setting.name, "line": setting.line, "why": why} for setting, why in self.left],
            "diff": self.diff,
        }

    def text_lines(self, _width: int | None) -> Iterable[str]:
        """Return the change as a diff, nothing if it was already made."""
        return [] if self.applied else harmless(self.diff, keep="\n\t").split("\n")[:-1]

    def exit_code(self) -> ExitCode:
        """Return 0 if everything was imported, 1 if something must be set by hand."""
        return ExitCode.FAILED if self.to_do else ExitCode.OK
