"""Runs on a node without verl-doctor: it unpacks its input, runs it, prints the result, and leaves nothing.

Started as `PYTHON -I -S -c TEXT TOKEN`, by a Ray task, ssh or srun. Stdin has one line of JSON, the request,
followed by the parcel (`unpacked`). The caller keeps stdin open as long as it needs the result. When stdin
ends, for whatever reason, the work is stopped and cleaned up. The result is one line after the token.

The node's Python is the target's and may be older than verl-doctor's: this file needs 3.7, and reports if the
unpacked code needs more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

SINGLES = 100
"""The number of words of a parcel that one byte stands for."""

_OLDEST = (3, 10)  # for verl-doctor's own code
_DYING = 2.0  # seconds for killed processes to disappear
_STEP = 0.05  # seconds between two checks of the work
_SET_CHILD_SUBREAPER = 36  # prctl(2)
_LONGEST = 300  # characters of an error message


def serve(token: str) -> None:
    """Read the request and the parcel, and print the result in one line."""
    order = json.loads(_line())
    parcel = _exactly(order["parcel"])
    if order["detached"]:
        # Ray kills a worker's children and its process group with it. The process that cleans up must be in
        # neither.
        if os.fork():
            os._exit(0)
        os.setsid()
    try:
        answer = _carried_out(order, parcel)
    except Exception as error:  # noqa: BLE001 - it is this node's result
        answer = {"missing": f"{type(error).__name__}: {error}"[:_LONGEST]}
    with contextlib.suppress(OSError):
        os.write(1, f"\n{token}{json.dumps(answer)}\n".encode("ascii"))


def _carried_out(order: dict[str, Any], parcel: bytes) -> dict[str, Any]:
    if sys.version_info < _OLDEST:
        return {
            "missing": "its Python is {}.{}, the doctor needs {}.{}".format(*sys.version_info[:2], *_OLDEST)
        }
    folder = tempfile.mkdtemp(prefix=f"verl-doctor-{os.getpid()}-")  # `clean` recognises it by this prefix
    try:
        unpack(parcel, folder)
        return _run(folder, order["request"], time.monotonic() + order["seconds"])
    finally:
        _end_all()
        shutil.rmtree(folder, ignore_errors=True)


def unpack(parcel: bytes, folder: str) -> None:
    """Write the files of a parcel below a folder."""
    for name, text in unpacked(parcel).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def unpacked(parcel: bytes) -> dict[str, str]:
    """Return the texts of a parcel by file name.

    Its first line is a list of words; in the JSON that follows, each byte that is not ASCII stands for one of
    them: the first `SINGLES` bytes alone, the others with the byte after them.
    """
    head, _, coded = zlib.decompress(parcel).partition(b"\n")
    words = head.split(b"\0")

    def word(found: re.Match[bytes]) -> bytes:
        code = found[0]
        first = code[0] - 128
        return words[first if len(code) == 1 else SINGLES + (first - SINGLES) * 256 + code[1]]

    pattern = b"[\x80-%c]|[%c-\xff]." % (127 + SINGLES, 128 + SINGLES)
    found: dict[str, str] = json.loads(re.sub(pattern, word, coded, flags=re.DOTALL))
    return found


def _run(folder: str, request: Any, deadline: float) -> dict[str, Any]:
    """Run the folder's `__main__` until it ends, is out of time, or its result is no longer needed."""
    request_path, output_path, complaint = (Path(folder, name) for name in ("request", "answer", "complaint"))
    request_path.write_text(json.dumps(request), "ascii")
    with contextlib.suppress(AttributeError, OSError):
        # Orphans of the work become children of this process, so that it can end them.
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with complaint.open("wb") as stderr:
        work = subprocess.Popen(
            [sys.executable, "-I", "-B", folder, str(request_path), str(output_path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=folder,
            start_new_session=True,
        )
    while work.poll() is None:
        if time.monotonic() > deadline:
            return {"missing": "its facts were not collected in time"}
        if not _is_wanted(_STEP):
            return {"missing": "it was stopped"}
    if os.path.exists(output_path):
        return {"facts": json.loads(output_path.read_text("ascii"))}
    error_lines = complaint.read_text("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
    return {
        "missing": f"the doctor's program ended with status {work.returncode}: {error_lines[-1][:_LONGEST]}"
    }


def _is_wanted(patience: float) -> bool:
    """Return whether the other end of stdin is still open.

    Nothing more is ever sent, so readable means closed.
    """
    readable, _, _ = select.select([0], [], [], patience)
    return not readable or bool(os.read(0, 1))


def _end_all() -> None:
    """Kill and reap our children and the orphans that we inherit, until none is left."""
    deadline = time.monotonic() + _DYING
    while time.monotonic() < deadline:
        children = _children()
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not children:
            return
        time.sleep(0.01)


def _children() -> list[int]:
    """Return the processes whose parent is this one, from the field after the state in /proc/PID/stat."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += _exactly(1)
    return line


def _exactly(size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(0, size)
        if not piece:
            os._exit(1)  # the result is no longer needed
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


if __name__ == "__main__":
    serve(sys.argv[1])
