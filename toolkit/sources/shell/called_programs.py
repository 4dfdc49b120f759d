"""Programs that scripts call before the job, by what they certainly do not do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from verl_doctor.toolkit.sources.shell.found import Call
from verl_doctor.toolkit.sources.shell.outcome import is_query

CHANGES_NONE = frozenset(
    [
        *("ls", "date", "hostname", "nvidia-smi", "whoami", "id", "uname", "nproc", "lscpu", "free"),
        *("df", "du", "which", "dirname", "basename", "realpath", "readlink", "seq", "sleep", "cat"),
        *("head", "tail", "wc", "grep", "ps", "printenv", "mkdir"),
    ]
)
"""They change no files but those that their output goes to."""
BRINGS_NONE = CHANGES_NONE | frozenset(
    [
        *("chmod", "cut", "expr", "kill", "pkill", "rm", "rmdir", "sort", "tee", "touch", "tr"),
    ]
)
"""Nor do these make another program available."""
INSTALLS_NONE = BRINGS_NONE | frozenset(["lspci", "nvcc", "ray", "sysctl"])
"""Nor do these put files where no argument shows it."""
CHANGES = re.compile(r"\b(?:rm|rmdir|mv|cp|ln|touch|find|tar|unzip|rsync|git|python\S*|(?:ba|z|da)?sh)\b|>")
"""In the text of a command substitution: it may change files."""
BRINGS = re.compile(
    r"\b(?:(?:ba|z|da)?sh|curl|wget|tar|unzip|apt\S*|yum|dnf|zypper|apk|pip\w*|uvx?|make|ln|cp|mv"
    r"|install|git|python\S*|PATH)\b"
)
"""In the text of a command substitution: it may make a program available."""


def called_programs(calls: Iterable[Call]) -> set[str | None]:
    """Return the names of the programs that were called, without those that only look for a program."""
    return {call.argv[0].text for call in calls if not is_query([word.text for word in call.argv])}
