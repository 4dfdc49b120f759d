"""Running the doctor as a user does: another process, its output captured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def doctor(*arguments: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `verl-doctor ARGUMENTS` in a folder, with these variables added to the test's own."""
    return subprocess.run(
        [sys.executable, "-m", "verl_doctor.toolkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=300,
        env={**os.environ, **environ},
    )
