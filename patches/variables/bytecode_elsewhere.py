"""Fix for PY103 if site-packages is not writable: bytecode caches on the node's own disk."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode
from verl_doctor.toolkit.rule import Finding

_FORBIDS = "PYTHONDONTWRITEBYTECODE"


@fix("bytecode-elsewhere", repairs="PY103", safety="safe", restart="Ray and the job")
def bytecode_elsewhere(
    _: Finding, bytecode: Bytecode, caches: Caches, variables: Variables
) -> list[Change] | Refusal:
    """Keep bytecode caches on the node's own disk; the first run writes them.

    `PYTHONDONTWRITEBYTECODE` would prevent that, so it is removed.
    """
    if bytecode.writable:
        return Refusal("the folder of the packages is writable now")
    if not caches.local:
        return Refusal("no disk of this node has a folder that this user can write to")
    why = "site-packages is not writable, so each process compiles all its imports again"
    folder = f"{caches.local}/pycache"
    changes: list[Change] = [SetVariable("PYTHONPYCACHEPREFIX", folder, why, node_only=True)]
    if variables.get(_FORBIDS):
        changes.append(SetVariable(_FORBIDS, None, f"it prevents Python from writing to {folder}"))
    return changes
