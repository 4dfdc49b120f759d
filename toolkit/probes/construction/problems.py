"""Describes an exception: class, message, and the lines of verl, vLLM and the user that caused it."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_LONGEST = 1500  # characters of a text
_MOST = 12  # frames
_OURS = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
_LIBRARY = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OFFLINE = ("OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "NetworkError", "gaierror")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those from which, or during whose handling, it was raised."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def root(error: BaseException) -> BaseException:
    """Return the exception that Hydra wraps when a class rejects its arguments, else the exception itself."""
    while type(error).__name__ == "InstantiationException" and error.__cause__ is not None:
        error = error.__cause__
    return error


def needs_network(error: BaseException) -> str:
    """Return the class of an exception that shows an attempt to use the network; "" if there is none."""
    for cause in causes(error):
        names = {base.__name__ for base in type(cause).__mro__}
        if found := next((name for name in _OFFLINE if name in names), ""):
            return found
    return ""


def described(error: BaseException, home: str) -> Mapping[str, Any]:
    """Return everything that the parent needs. `home` is the job's folder: code below it is the user's."""
    cause = root(error)
    frames = _frames(cause, home)
    return {
        "kind": type(cause).__name__,
        "text": _text(cause, frames),
        "key": _key(error),
        "frames": frames,
    }


def _text(error: BaseException, frames: list[dict[str, Any]]) -> str:
    """Return the message of an exception, or the line of a bare `assert`."""
    text = " ".join(str(error).split())
    if not text and frames:
        line = frames[-1]["text"]
        text = line if line.startswith("assert") else f"raised in {frames[-1]['function']}"
    cause = error.__cause__
    if cause is not None and str(cause) and " ".join(str(cause).split()) not in text:
        text += f": {type(cause).__name__}: {' '.join(str(cause).split())}"
    loaded = getattr(getattr(error, "obj", None), "__file__", None)
    if isinstance(error, AttributeError) and loaded:
        text += f" (loaded from {loaded})"
    return text[:_LONGEST]


def _key(error: BaseException) -> str:
    """Return the configuration key that OmegaConf or Hydra names."""
    keys = (getattr(cause, "full_key", None) for cause in causes(error))
    return next((key for key in keys if isinstance(key, str) and key), "")


def _frames(error: BaseException, home: str) -> list[dict[str, Any]]:
    found = []
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_ours(frame.filename):
            continue
        found.append(
            {
                "file": frame.filename,
                "line": frame.lineno,
                "function": frame.name,
                "text": frame.line or "",
                "of": owner(frame.filename, home),
            }
        )
    return found[-_MOST:]


def owner(file: str, home: str) -> str:
    """Return the owner of a file: "verl", "vllm", "user", or "" for libraries and what is not a file."""
    real = _real(file)
    for name in ("verl", "vllm"):
        package = getattr(sys.modules.get(name), "__file__", None)
        if package and real.startswith(os.path.dirname(_real(package)) + os.sep):  # noqa: PTH120
            return name
    if not os.path.isfile(real):
        return ""
    in_library = real.startswith((*_LIBRARY, *_installed_into())) or f"{os.sep}site-packages{os.sep}" in real
    return "user" if not in_library or real.startswith(home + os.sep) else ""


@functools.cache
def _installed_into() -> tuple[str, ...]:
    """Return the other folders of the path filled by an installer.

    An example is a `pip install --target` folder on PYTHONPATH.
    """
    return tuple(
        os.path.realpath(entry) + os.sep
        for entry in filter(os.path.isdir, sys.path)
        if any(name.endswith(".dist-info") for name in os.listdir(entry))  # noqa: PTH208
    )


def files_of_user(files: Iterable[str], home: str) -> set[str]:
    """Return the files that belong neither to a library, nor to verl, nor to vLLM."""
    return {
        file for file in files if file.endswith(".py") and not _is_ours(file) and owner(file, home) == "user"
    }


def _is_ours(file: str) -> bool:
    return _real(file).startswith(os.path.dirname(_OURS))  # noqa: PTH120


def _real(file: str) -> str:
    """Return the path of a file without symbolic links.

    Each folder is resolved once: a job has executed thousands of files.
    """
    folder, name = os.path.split(file)
    if not os.path.isabs(folder):  # noqa: PTH117
        return os.path.realpath(file)
    real = os.path.join(_real_folder(folder), name)  # noqa: PTH118
    return os.path.realpath(real) if os.path.islink(real) else real  # noqa: PTH114


@functools.cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)
