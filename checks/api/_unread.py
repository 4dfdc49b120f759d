"""Shared by the rules about source files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable

from verl_doctor.toolkit.collectors.api.uses import Unread
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Subject, Unjudged


def unread_file(file: Unread, package: str, *, damaged: str = "") -> Finding:
    """The finding for a file of `package`. `damaged` precedes the message about a text that is not Python."""
    message, wanted, remedy = _wording(file, package, damaged)
    stops = () if file.kind == "reader" else file.paths
    return Finding(
        message,
        Evidence(file.reason, wanted),
        Location(file.path, file.line or None),
        remedy=remedy,
        severity=None if stops else "warning",
        stops=stops,
        phase="import",
        subject=Subject("symbol", file.module) if file.kind == "missing" else Subject("source", file.path),
    )


def unjudged(files: Iterable[Unread]) -> tuple[Unjudged, ...]:
    """The files that only the doctor cannot read. The paths that load them are not judged."""
    return tuple(
        Unjudged(file.module, file.reason, Location(file.path, file.line or None), file.paths)
        for file in files
        if file.kind in {"reader", "file"} and file.paths
    )


def _wording(file: Unread, package: str, damaged: str) -> tuple[str, str, str]:
    """The message, what is expected, and the next step."""
    match file.kind:
        case "missing":
            message = f"{package} imports {file.module}, which is missing from this tree"
            return message, f"a module {file.module}", f"reinstall {package}, or restore the file"
        case "file":
            message = f"{file.module} cannot be read"
            return message, "a readable file", f"make it readable for the job, or reinstall {package}"
        case "reader":
            message = f"{file.module} was not checked: the Python that runs verl-doctor cannot parse it"
            return (
                message,
                "source that this Python can parse",
                "use the job's Python to run verl-doctor",
            )
    message = f"{damaged}{file.module} cannot be read as Python"
    return message, "Python source", f"repair the file, or reinstall {package}"
