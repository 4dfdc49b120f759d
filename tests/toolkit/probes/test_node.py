"""The program that runs on a node without the doctor: it answers in one line, and leaves nothing however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.trying import LIMITS

from verl_doctor.toolkit.probes import node

TEXT = Path(node.__file__).read_text("utf-8")


@contextlib.contextmanager
def running(
    folder: Path, main: str, *, seconds: float = 120, detached: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The program with a parcel of one file; its temporary folder is below `folder`."""
    parcel = zlib.compress(b"\n" + json.dumps({"__main__.py": main}).encode())
    order = {"parcel": len(parcel), "request": {"word": "hi"}, "seconds": seconds, "detached": detached}
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", TEXT, "TOKEN "],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n" + parcel)
        process.stdin.flush()
        yield process


def answer(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    found = json.loads(process.stdout.read().decode().rpartition("TOKEN ")[2])
    assert isinstance(found, dict)
    return found


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.02)


ECHO = "import sys, pathlib; asked, told = sys.argv[1:]; pathlib.Path(told).write_text(pathlib.Path(asked).read_text())"
# A child in a new session, as started by collectors, whose number is written next to the parcel's folder.
LEAVES_A_CHILD = (
    "import os, pathlib, subprocess, sys, time\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "pathlib.Path(os.environ['TMPDIR'], 'pids').write_text(f'{os.getpid()} {child.pid}')\n"
)


@pytest.mark.parametrize("detached", [False, True])
def test_node_program_responds_and_removes_its_folder(tmp_path: Path, detached: bool) -> None:
    with running(tmp_path, ECHO, detached=detached) as process:
        assert answer(process) == {"facts": {"word": "hi"}}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_error_is_reported_with_its_message(tmp_path: Path) -> None:
    with running(tmp_path, "raise ValueError('no such thing')") as process:
        assert answer(process) == {
            "missing": "the doctor's program ended with status 1: ValueError: no such thing"
        }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_hanging_program_is_ended_with_its_children(tmp_path: Path) -> None:
    for seconds in (0.5, *LIMITS):
        with running(tmp_path, LEAVES_A_CHILD + "time.sleep(600)", seconds=seconds) as process:
            assert answer(process) == {"missing": "its facts were not collected in time"}
        if (tmp_path / "pids").exists() and (tmp_path / "pids").read_text():
            break
    wait_until_gone([int(pid) for pid in (tmp_path / "pids").read_text().split()])
    assert [path.name for path in tmp_path.iterdir()] == ["pids"]


@pytest.mark.slow
def test_children_left_after_a_response_are_ended(tmp_path: Path) -> None:
    with running(tmp_path, LEAVES_A_CHILD + ECHO) as process:
        assert "facts" in answer(process)
    wait_until_gone([int(pid) for pid in (tmp_path / "pids").read_text().split()])


@pytest.mark.slow
@pytest.mark.parametrize("detached", [False, True])
def test_closed_pipe_ends_the_program(tmp_path: Path, detached: bool) -> None:
    """The other side may end in any way: the system closes the pipe."""
    with running(tmp_path, LEAVES_A_CHILD + "time.sleep(600)", detached=detached) as process:
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
            time.sleep(0.02)
        if detached:
            process.wait(300)  # it has gone on in a process of its own
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        process.stdout.read()
    wait_until_gone([int(pid) for pid in (tmp_path / "pids").read_text().split()])
    assert [path.name for path in tmp_path.iterdir()] == ["pids"]


def test_truncated_request_is_ignored(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", TEXT, "TOKEN "], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        output, _ = process.communicate(
            b'{"parcel": 100, "request": {}, "seconds": 5, "detached": false}\nxy'
        )
    assert output == b""


def test_program_is_valid_for_old_pythons() -> None:
    """Python 3.7 is the oldest that supports these annotations."""
    compile(TEXT, "child_node", "exec", dont_inherit=True)
    import ast

    ast.parse(TEXT, feature_version=(3, 7))


def test_killing_the_worker_still_cleans_up(tmp_path: Path) -> None:
    """Ray kills a worker's children and process group. The cleaning process is in neither."""
    worker = (
        "import subprocess, sys, time\n"
        "process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
        "process.stdin.write(sys.stdin.buffer.read()); process.stdin.flush(); time.sleep(60)\n"
    )
    parcel = zlib.compress(b"\n" + json.dumps({"__main__.py": LEAVES_A_CHILD + "time.sleep(600)"}).encode())
    order = {"parcel": len(parcel), "request": {}, "seconds": 50, "detached": True}
    with subprocess.Popen(
        [sys.executable, "-c", worker, sys.executable, "-I", "-S", "-c", TEXT, "TOKEN "],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n" + parcel)
        process.stdin.close()
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
            time.sleep(0.02)
        for child in psutil.Process(process.pid).children():
            child.kill()
        os.killpg(process.pid, signal.SIGKILL)
        wait_until_gone([int(pid) for pid in (tmp_path / "pids").read_text().split()])
    deadline = time.monotonic() + 60
    while [path.name for path in tmp_path.iterdir()] != ["pids"]:
        assert time.monotonic() < deadline, "a folder was left behind"
        time.sleep(0.02)
