"""What determines which packages an installer is offered.

These are variables, configuration files, and the files and folders that they name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from verl_doctor.toolkit.index.settings import configuration_files
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.errors import reason_of

_VARIABLES = re.compile(r"(?:PIP|UV)_|(?:HTTPS?|ALL|NO)_PROXY$|NETRC$|SSL_CERT_|REQUESTS_CA_", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[\s=,\"'\[\]]+")
_MOST = 1 << 20  # characters of a file
_MOST_ENTRIES = 10_000
_OFFERED = (".whl", ".zip", ".tar.gz", ".html")


def index_inputs(machine: Machine, prefix: Path) -> tuple[object, ...]:
    """Return all of it, for a digest: it may contain passwords.

    What a remote index offers is not part of it.
    """
    variables = sorted((name, value) for name, value in machine.environ.items() if _VARIABLES.match(name))
    files = list(configuration_files(machine, prefix))
    texts = [value for _, value in variables] + [_text(file) for file in files]
    named = {word.removeprefix("file://") for text in texts for word in _BETWEEN_WORDS.split(text) if word}
    paths = (machine.cwd / machine.expanded(word) for word in sorted(named))
    existing = [*files, *(path for path in paths if os.path.exists(path))]
    return (*variables, *map(_state, existing))


def _text(file: Path) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace", opener=_at_once) as stream:
            return stream.read(_MOST)
    except OSError:
        return ""


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _state(path: Path) -> tuple[object, ...]:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        return str(path), reason_of(error)
    return str(path), status.st_size, status.st_mtime_ns, status.st_ino, *_entries(path)


def _entries(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the packages and pages in a folder, and in the folders of an index."""
    for place in (folder, *sorted(folder.glob("*/"))) if os.path.isdir(folder) else ():
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            yield from sorted(
                (entry.name, entry.stat().st_mtime_ns)
                for entry in islice(entries, _MOST_ENTRIES)
                if entry.name.endswith(_OFFERED)
            )
