"""A build step that adds the index of rules to a wheel.

It is named in `pyproject.toml`, run by setuptools, and imported nowhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools.command.build_py import build_py

_TOOLKIT = "verl_doctor/toolkit"
_PROGRAM = "verl_doctor.toolkit.engine.index_write"


class BuildWithIndex(build_py):
    """Copies the modules, and indexes the copies.

    Where that fails, such as without the build requirements, the wheel has no index: the doctor builds it on
    first run.
    """

    def run(self) -> None:
        """Copy, then index. An editable installation has no copy."""
        super().run()
        if not self.editable_mode:
            self._index(Path(self.build_lib).absolute())

    def _index(self, top: Path) -> None:
        paths = filter(None, (str(top), os.environ.get("PYTHONPATH")))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM, top / _TOOLKIT],
            cwd=top,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            self.warn(f"the wheel gets no index of its rules: {done.stderr.strip()}")
