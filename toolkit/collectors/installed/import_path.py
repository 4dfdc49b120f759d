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

    An entry of the path may be a zip file.
    """
    path = list(path)
    for entry in path:
        if os.path.isdir(Path(entry) / name) or os.path.isfile(Path(entry) / f"{name}.py"):
            return True
        if os.path.isfile(entry) and _is_packed(name, entry):
            return True
        if any(file.startswith(f"{name}.") and file.endswith(_COMPILED) for file in _listed(entry)):
            return True
    return is_editable(name, path)


def is_editable(name: str, path: Iterable[str]) -> bool:
    """Return whether an import hook on the path serves a module, or modules below it.

    The module is named in the hook's file, or in the name of that file (`_name_editable_loader.py`): that of
    `__editable___project_finder.py` is the project's, which may be another.
    """
    hooks = (Path(entry, file) for entry in path for file in _listed(entry) if "editable" in file)
    return any(name in hook.name or _is_served(name, hook) for hook in hooks)


def _is_packed(name: str, file: str) -> bool:
    """Return whether a zip file has the module; also if the file cannot be read."""
    import zipfile  # noqa: PLC0415 - slow to import, and hardly any path has one

    try:
        with zipfile.ZipFile(file) as packed:
            return any(member.startswith((f"{name}/", f"{name}.")) for member in packed.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return True


def _is_served(name: str, hook: Path) -> bool:
    """Return whether the file of an import hook names a module, or one below it."""
    text = read(hook) if hook.suffix == ".py" else b""
    return (
        isinstance(text, bytes) and re.search(rb"['\"]%b['\".]" % re.escape(name.encode()), text) is not None
    )


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
