"""How a script is started: where, and by what kind of shell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.sources.shell.state import OPTIONS

# It is started in another shell, on another machine.
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|COBALT|OAR|MSUB|NQSV|QSUB|PJM|\$|[ \t]*flux:)[ \t]", re.MULTILINE)
_LOGIN = re.compile(r"#!.*\bbash\s+(?:-\w*l|--login)\b")
# A shell that expands the aliases of a script: one that is called as `sh`, or is interactive.
_EXPANDS = re.compile(r"#!.*(?:\b(?:da|k)?sh\b|\bbash\b.*\s(?:-\w*i|--posix|-O))")
_HEADER = re.compile(r"#!.*\b(?:ba|da|k)?sh((?:[ \t]+-\w+)+)")


def options_of_header(source: str) -> set[str]:
    """Return the letters of the options of `set` in the first line of a script: `#!/bin/bash -ea`."""
    header = _HEADER.match(source)
    return {letter for letter in header[1] if letter in OPTIONS} if header else set()


@dataclass
class Start:
    """How a script is started.

    `is_login`: bash has read the user's profile. `is_batch`: a batch system starts the script.
    `expands_aliases`: its shell does. `is_here`: the job runs on this machine. `bin` is the folder of the
    job's interpreter.
    """

    is_login: bool = False
    is_batch: bool = False
    is_here: bool = False
    expands_aliases: bool = False
    bin: str = ""

    def read_header(self, source: str) -> None:
        """Take from the text of a script how it is started."""
        self.is_login = self.is_login or _LOGIN.match(source) is not None
        self.is_batch = self.is_batch or _BATCH.search(source) is not None
        self.expands_aliases = self.expands_aliases or _EXPANDS.match(source) is not None
