"""The two files of `--output-env DIR`: reads them, and turns them into changes for the change engine.

Both begin with a line that names verl-doctor and a checksum of the rest: a file that was written or edited by
anyone else is never replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import Change, NewFile, ReplaceFile
from verl_doctor.toolkit.changes import safe_write
from verl_doctor.toolkit.repair import envfile_ray, envfile_shell
from verl_doctor.toolkit.repair.envfile import Entry
from verl_doctor.toolkit.system.errors import Refused, os_error_text

SHELL_FILE = "verl-doctor.env.sh"
RAY_FILE = "verl-doctor.runtime_env.yaml"
_FORMAT = 1
_HEAD = re.compile(
    r"# Written by verl-doctor, format (?P<format>[0-9]+), checksum (?P<checksum>[0-9a-f]{16})\.\n"
)
_ABOUT_SHELL = """\
# Variables of the job, each with its reason. Source this file in the shell that starts the job, and in the
# one that starts Ray, on every node, unless a variable is marked as being for one node only. Do not edit it:
# verl-doctor fix --apply --output-env rewrites it, verl-doctor undo restores it.
"""
_ABOUT_RAY = f"""\
# The settings of {SHELL_FILE} for the workers of a running Ray cluster. Submit it with the job, or add its
# env_vars to those of the runtime_env that you use:
#     ray job submit --runtime-env {RAY_FILE} -- ...
# If Ray cannot merge it with the job's own runtime_env, RAY_OVERRIDE_JOB_RUNTIME_ENV=1 makes the job's win.
"""
_LARGEST = 16 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class EnvFiles:
    """The files in one folder. Its path is absolute; it need not exist."""

    folder: Path

    @property
    def shell(self) -> Path:
        """The file to source."""
        return self.folder / SHELL_FILE

    @property
    def ray(self) -> Path:
        """The file for Ray."""
        return self.folder / RAY_FILE

    def entries(self) -> tuple[Entry, ...]:
        """Return what an earlier run wrote, if anything. Raises Refused for a file that was edited."""
        return self._read()[1]

    @property
    def sign(self) -> str:
        """The value by which a later run detects that the shell file was sourced.

        It is the path where the file was first written.

        It stays the same if the folder is moved or reached by another name. Raises Refused as `entries` does.
        """
        return self._read()[0]

    def _read(self) -> tuple[str, tuple[Entry, ...]]:
        text = _ours(self.shell)
        _ours(self.ray)
        if text is None:
            return str(self.shell), ()
        found = envfile_shell.read(text.partition(_ABOUT_SHELL)[2])
        if found is None:
            raise Refused(_not_ours(self.shell, "is not in the form that this verl-doctor writes"))
        return found

    def changes(self, entries: Iterable[Entry], set_here: Container[str]) -> list[Change]:
        """Return the changes that make the files contain these entries, sorted by name.

        Raises Refused as `entries` does.

        `set_here` are variables that the environment has without these files.
        """
        ordered = sorted(entries, key=lambda entry: entry.name)
        return [
            _change(self.shell, _ABOUT_SHELL + envfile_shell.written(ordered, self.sign)),
            _change(self.ray, _ABOUT_RAY + envfile_ray.written(ordered, set_here)),
        ]


def _change(path: Path, body: str) -> Change:
    content = (f"# Written by verl-doctor, format {_FORMAT}, checksum {_checksum(body)}.\n{body}").encode(
        "utf-8", "surrogateescape"
    )
    before = _read(path)
    return NewFile(path, content) if before is None else ReplaceFile(path, before, content)


def _ours(path: Path) -> str | None:
    """Return the text of a file after its first line, None if it does not exist.

    Raises Refused if it is not ours.
    """
    content = _read(path)
    if content is None:
        return None
    text = content.decode("utf-8", "surrogateescape")
    head = _HEAD.match(text)
    if head is None:
        raise Refused(_not_ours(path, "was not written by verl-doctor"))
    if int(head["format"]) != _FORMAT:
        raise Refused(_not_ours(path, "was written by another version of verl-doctor"))
    body = text[head.end() :]
    if head["checksum"] != _checksum(body):
        raise Refused(_not_ours(path, "was edited since verl-doctor wrote it"))
    return body


def _read(path: Path) -> bytes | None:
    try:
        return safe_write.read(Path(os.path.realpath(path)), _LARGEST)
    except OSError as error:
        raise Refused(f"{os_error_text(error)}; choose another folder with --output-env") from None


def _not_ours(path: Path, why: str) -> str:
    return f"{path} {why}, so it is not replaced; move it away, or choose another folder with --output-env"


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:16]
