"""Whether a top-level module is on an interpreter's path, determined from the folders alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_COMPILED = (".so", ".pyd")


def is_on_path(name: str, path: Iterable[str]) -> bool:
    """Return whether `import name` would find something: a folder, a file, a compiled module, or an editable install.

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


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
