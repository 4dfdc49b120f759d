"""Where an exception was raised, and by which package or file of the job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.logs.blame import is_of_the_job, own_frames, package_of
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import distribution
from verl_doctor.toolkit.logs.python_errors import Frame

# Exceptions that report something outside the program: a file, a network, a limit, a signal, a process.
OUTSIDE = frozenset(
    {
        "OSError",
        "IOError",
        "FileNotFoundError",
        "PermissionError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "TimeoutError",
        "Timeout",
        "BrokenPipeError",
        "MemoryError",
        "OutOfMemoryError",
        "KeyboardInterrupt",
        "SystemExit",
        "CalledProcessError",
        "HTTPError",
        "HTTPStatusError",
        "ReadTimeout",
        "ConnectError",
        "RayTaskError",
        "RayActorError",
        "ActorDiedError",
        "DistBackendError",
        "DistStoreError",
        "DistNetworkError",
        "GetTimeoutError",
        "ProcessRaisedException",
        "ChildFailedError",
    }
)
PASSING = frozenset(
    {
        "starlette",
        "uvicorn",
        "fastapi",
        "click",
        "typer",
        "fire",
        "ray",
        "torch",
        "hydra",
        "uvloop",
        "asyncio",
        "triton",
        "numpy",
        "datasets",
        "pandas",
    }
)
NONE = "'NoneType'"
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
MOST_FIELDS = 3  # fields or settings that advice names
LONGEST = 1500  # characters of a message that are searched for sentences
NEAREST = 3  # the deepest places, which name the part that failed


@dataclass(frozen=True)
class Place:
    """Where an exception was raised: the package ("" for a file of the job), and the place as text."""

    package: str
    words: str
    caller: str = ""
    """The nearest other package, or file of the job, that called it; "" for none."""
    code: str = ""
    """The source line, where the traceback has it."""
    at: str = ""
    """The file and the line."""


def place_of(frames: Sequence[Frame]) -> Place:
    """Return the deepest place outside the standard library."""
    own = own_frames(frames)
    if not own:
        return Place("", "")
    deepest = own[-1]
    at = shown_at(deepest)
    if is_of_the_job(deepest):
        return Place("", at, code=deepest.code, at=at)
    package = package_of(deepest)
    callers = (
        shown_at(frame) if is_of_the_job(frame) else package_of(frame)
        for frame in reversed(own[:-1])
        if package_of(frame) not in {package, "accelerate", *PASSING}
    )
    return Place(package, package or at, next(callers, ""), deepest.code, at)


def installing(package: str, limits: str, frames: Sequence[Frame] = ()) -> str:
    """Return how to get a release of a package within bounds: with pip, or in the source tree that runs."""
    tree = next(
        (
            found[1]
            for frame in frames
            if package_of(frame) == package
            and (found := re.match(rf"(?!.*-packages/)(/.*)/{package}/", frame.path))
        ),
        "",
    )
    if tree:
        where = "the folder that the job uploads" if "/_ray_pkg_" in tree else tree
        return (
            f"check out a release {limits} of {package} in the source tree from which it runs (git checkout "
            f"vX.Y.Z in {where})"
        )
    return f"pip install '{distribution(package)}{limits}'"


def is_named_by(package: str, name: str, frames: Sequence[Frame], lines: Sequence[Line]) -> bool:
    """Return whether a traceback shows that a class or a function is that of a package.

    It may be one of the job with the same name instead.

    Code of another package uses the packages that it requires. A file of the job may define the same name:
    then a line must import it.
    """
    own = own_frames(frames)
    if not own or not is_of_the_job(own[-1]):
        return True
    imports = re.compile(rf"\bfrom {package}\b.* import .*\b{name}\b|\b{package}(?:\.\w+)*\.{name}\b")
    return any(imports.search(frame.code) for frame in frames) or any(
        imports.search(line.text) for line in lines
    )


def shown_at(frame: Frame) -> str:
    """Return the file name and the line of a frame."""
    return f"{frame.path.rpartition('/')[2]}:{frame.line}"


def quoted_source(code: str) -> str:
    """Return a source line that adds something to the message, "" for one that raises it or only ends a call.

    A traceback prints the first line of a call alone: what it opens is closed by `...`.
    """
    opened = ""
    for character in _LITERAL.sub("", code):
        if character in _CLOSES:
            opened += _CLOSES[character]
        elif character in _CLOSES.values():
            if not opened.endswith(character):
                return ""
            opened = opened[:-1]
    if code.startswith("raise "):
        return ""
    return f"{code}...{opened[::-1]}" if opened else code


def is_wordless(message: str) -> bool:
    """Return whether a message holds numbers and shapes alone, or nothing: it explains nothing by itself."""
    return re.search(r"[A-Za-z]{3}", re.sub(r"torch\.Size|tensor", "", message)) is None
