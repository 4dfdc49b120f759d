"""How long a process of the target takes to import Ray, as each Ray worker does before it registers."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_LIMIT = 45


@dataclass(frozen=True)
class RayImport:
    """Seconds from the start of the interpreter to its end. `ended` is False if it was stopped."""

    seconds: float
    ended: bool = True


@collector(timeout=_LIMIT + 10)
def ray_import(interpreter: Interpreter, trees: LibraryTrees, machine: Machine) -> RayImport | Unknown:
    """Import it once. Recently read files are in the page cache, so a first import may take longer still."""
    if all(tree.module != "ray" for tree in trees.trees):
        return Absent("Ray is not installed in this environment")
    try:
        output = machine.run([interpreter.executable, "-c", "import ray"], timeout=_LIMIT)
    except OSError as error:
        return Unknown(f"{interpreter.executable} cannot be started: {error.strerror}")
    if output.code:
        return Unknown(f"Ray cannot be imported: {output.last_line}")
    return RayImport(round(output.seconds, 2), output.code is not None)
