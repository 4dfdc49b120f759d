"""Runs verl-doctor isolated from other users' networks, processes and shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from support.running import index_handed_on, ran

# A separate PID namespace: whatever is left in it ends with it.
ALONE = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--uts",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
)
_INSIDE = 'mount -t sysfs none /sys; mount -t tmpfs none /dev/shm; exec "$@"'


@cache
def possible() -> bool:
    """Return whether this user may create such namespaces."""
    return not subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode


def command(*arguments: str | Path) -> list[str]:
    """Return the words of `verl-doctor ARGUMENTS` there, or on this machine if that is impossible."""
    alone = [*ALONE, "sh", "-c", _INSIDE, "sh"] if possible() else []
    return [*alone, sys.executable, "-m", "verl_doctor.toolkit", *map(str, arguments)]


def doctor(*arguments: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run verl-doctor with these variables added to the test's own."""
    with index_handed_on(Path(environ.get("HOME", os.environ["HOME"]))):
        return ran(command(*arguments), cwd, environ)
