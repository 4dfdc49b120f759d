"""Tiny libraries built with this machine's C compiler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from support.kept import cannot_run


def build(
    folder: Path, name: str, source: str, *flags: str, needs: Iterable[str] = (), versions: str = ""
) -> Path:
    """Compile C into `folder/name`, linked against libraries of the same folder. `versions` is a linker's version script."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        cannot_run("there is no C compiler")
    assert compiler
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    script = folder / f"{path.name}.map"
    script.write_text(versions, encoding="ascii")
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,--no-as-needed",
        "-o",
        str(path),
        *flags,
        "-xc",
        "-",
        "-xnone",
    ]
    command += [str(folder / need) for need in needs]
    command += [f"-Wl,--version-script={script}"] if versions else []
    subprocess.run(command, input=source, text=True, check=True, capture_output=True, timeout=300)
    script.unlink()
    return path
