"""A JSON file written by verl-doctor: read, or refused in one sentence with the next step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.system import user_file
from verl_doctor.toolkit.target import UsageError

_MOST_DIGITS = 40


def _whole_number(text: str) -> int:
    """Read a number that verl-doctor may have written.

    Longer ones overflow where they are compared or shown.
    """
    if len(text) > _MOST_DIGITS:
        raise ValueError(text[:_MOST_DIGITS])
    return int(text)


@dataclass(frozen=True)
class SavedFile:
    """A kind of file: its name, the key of its content, and how to make one.

    `again` describes what to do with a file of another version. `largest` is in MiB.
    """

    kind: str
    key: str
    content: type
    make: str
    again: str
    version: int
    largest: int

    def read(self, path: Path) -> Any:
        """Return the content. Raises UsageError when the file is not of this kind, or of another version."""
        document = self.document(path)
        version = document.get("schema_version")
        if isinstance(version, bool) or version != self.version:
            version_text = str(version)[:20]
            raise UsageError(
                f"{path} has schema version {version_text}, this verl-doctor reads {self.version}; "
                f"{self.again} with it"
            )
        return document[self.key]

    def document(self, path: Path) -> dict[str, Any]:
        """Return everything in the file, whatever its version.

        Raises UsageError when it is not of this kind.
        """
        none_of_these = f"not a {self.kind}; make one with: {self.make}"
        content = user_file.read(path, self.largest * 2**20)
        if content is None:
            raise UsageError(f"{path} is larger than {self.largest} MiB: this is {none_of_these}")
        try:
            document = json.loads(content, parse_int=_whole_number)
        except (ValueError, RecursionError):
            raise UsageError(f"{path} is {none_of_these}") from None
        if not isinstance(document, dict) or not isinstance(document.get(self.key), self.content):
            raise UsageError(f"{path} is {none_of_these}")
        return document
