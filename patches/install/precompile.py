"""Fix for PY103: write the missing bytecode caches once, with the target's own Python."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.change import Change, CompileBytecode, Refusal, fix
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.target import Target


@fix("precompile", repairs="PY103", safety="safe")
def precompile(_: Finding, target: Target, bytecode: Bytecode) -> list[Change] | Refusal:
    """Write the missing bytecode caches of all packages in the folders where the large ones are installed.

    A cache only changes how long an import takes: Python checks it against its source.
    """
    if not bytecode.writable:
        return Refusal(f"{bytecode.prefix or 'site-packages'} is not writable for this user")
    if bytecode.prefix:
        return Refusal(
            f"PYTHONPYCACHEPREFIX sends the caches to {bytecode.prefix}: run python -m compileall with "
            "that variable set"
        )
    lacking = [Path(package.folder) for package in bytecode.packages if package.missing]
    if not lacking:
        return Refusal("every source has a cache now")
    # Whole folders are compiled, because half of the sources that a job imports belong to about a hundred
    # small packages.
    roots = dict.fromkeys(
        folder.parent if str(folder.parent) in bytecode.installs else folder for folder in lacking
    )
    return [CompileBytecode(target.python, tuple(roots))]
