"""Whether a top-level module is on an interpreter's path, and what else leads there, by folders alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.source import read

_COMPILED = (".so", ".pyd")
_SYSTEM_TOO = re.compile(rb"include-system-site-packages\s*=\s*true", re.IGNORECASE)


def is_on_path(name: str, path: Iterable[str]) -> bool:
    """Return whether `import name` would find a folder, a file, a compiled module or an editable install.

    A module served by an import hook leaves at least a file whose name contains the module's
    (`__editable___name_finder.py`).
    """
    for entry in path:
        if os.path.isdir(Path(entry) / name) or os.path.isfile(Path(entry) / f"{name}.py"):
            return True
        for file in _listed(entry):
            compiled = file.startswith(f"{name}.") and file.endswith(_COMPILED)
            if compiled or (file.startswith("__editable__") and name in file):
                return True
    return False


def sees_system(prefix: Path) -> bool:
    """Return whether an environment also has the packages of the interpreter that created it."""
    config = prefix / "pyvenv.cfg"
    text = read(config) if os.path.isfile(config) else b""
    return isinstance(text, bytes) and _SYSTEM_TOO.search(text) is not None


def pth_lines(site: Path) -> Iterator[str]:
    """Yield the lines of a packages folder's `.pth` files: other folders, and imports (Python's `site`)."""
    for file in sorted(site.glob("*.pth")):
        text = read(file)
        for line in text.decode("utf-8", "replace").splitlines() if isinstance(text, bytes) else ():
            if line.strip() and not line.startswith("#"):
                yield line.rstrip()


def adds_folder(line: str) -> bool:
    """Return whether a line of a `.pth` file names a folder, and is no import."""
    return not line.startswith(("import ", "import\t"))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
