"""Fix for PY112: rename a file of the user's that hides an installed module."""

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
    """Rename a file that hides an installed module.

    Of a folder the `__init__.py` is renamed: without one it hides nothing, and the paths of what lies in it stay. Unsafe, although it
    can be undone. Only where no other file beside it imports what it defines. To leave the folder off the path of the job would not
    do: Ray puts the folder in which the job starts on the path of each worker.
    """
    path = finding.subject.name if finding.subject else ""
    shadow = next((shadow for shadow in shadows.modules if shadow.path == path), None)
    if shadow is None:
        return Refusal(f"{path} hides nothing any more")
    if shadow.importer is None:
        return Refusal(f"whether files beside {path} import it is not known; rename it by hand")
    if shadow.importer:
        return Refusal(f"{shadow.importer} imports {path}; rename it there too")
    source = Path(path) if path.endswith(".py") else Path(path, "__init__.py")
    content = sources.read(str(source))
    if isinstance(content, Unreadable):
        return Refusal(content.reason)
    return [NewFile(source.with_name(source.name + _SUFFIX), content), RemoveFile(source, content)]
