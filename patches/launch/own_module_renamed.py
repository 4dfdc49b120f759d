"""Fix for PY112: rename a user's file that shadows an installed module."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.change import Change, NewFile, Refusal, RemoveFile, fix
from verl_doctor.toolkit.collectors.installed.shadows import Shadows
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.source import Unreadable

_SUFFIX = ".renamed"


@fix("own-module-renamed", repairs="PY112", safety="unsafe")
def own_module_renamed(finding: Finding, shadows: Shadows, sources: SourceFiles) -> list[Change] | Refusal:
    """Rename a file that shadows an installed module.

    In a package, only `__init__.py` is renamed: without it the folder shadows nothing, and the paths of its
    files stay the same. Unsafe, although it can be undone. Refused if another file next to it imports what it
    defines. Removing the folder from the job's path would not help: Ray puts the folder in which the job
    starts on the path of each worker.
    """
    path = finding.subject.name if finding.subject else ""
    shadow = next((shadow for shadow in shadows.modules if shadow.path == path), None)
    if shadow is None:
        return Refusal(f"{path} no longer shadows anything")
    if shadow.importer is None:
        return Refusal(f"unknown whether files next to {path} import it; rename it by hand")
    if shadow.importer:
        return Refusal(f"{shadow.importer} imports {path}; rename it there too")
    source = Path(path) if path.endswith(".py") else Path(path, "__init__.py")
    content = sources.read(str(source))
    if isinstance(content, Unreadable):
        return Refusal(content.reason)
    return [NewFile(source.with_name(source.name + _SUFFIX), content), RemoveFile(source, content)]
