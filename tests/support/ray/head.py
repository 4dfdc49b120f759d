"""A real Ray of a test's own: in its own environment, folder and ports, and every process of it ended by number."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.environment import fetching
from support.kept import cannot_run, kept

VERSION = "2.60.0"
_TRIES, _STARTING = 3, 180.0  # seconds of each, on a machine that has much else to do
ALONE = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
"""Options without which all raylets of a machine take the same ports: with these they ask the kernel."""

LEAN = ("--no-monitor", "--include-log-monitor=false")
"""Options without which Ray starts two more processes that no test needs, each of which imports Ray."""


def environment(version: str = VERSION) -> Path:
    """A virtual environment with Ray and nothing else, made once. Shared: read it, never change it."""

    def make(folder: Path) -> None:
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            pip = [str(folder / "bin" / "pip"), "install", "-q", f"ray=={version}"]
            subprocess.run(pip, check=True, capture_output=True, timeout=1800, env=fetching())
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            cannot_run(f"an environment with Ray {version} could not be made: {error}")

    return kept(f"environments/ray-{version}-{sys.version_info.major}.{sys.version_info.minor}", make)


@dataclass(frozen=True)
class Head:
    """A running head: the raylet's number, the environment it was started in, and the address to connect to."""

    raylet: int
    python: Path
    folder: Path
    address: str


@contextlib.contextmanager
def head(python: Path, before: str = "", *options: str) -> Iterator[Head]:
    """Start a head behind the shell commands `before` (`ulimit -n 240;`), and end all that it started."""
    folder = Path(tempfile.mkdtemp(prefix="vd-", dir="/tmp"))  # a short path: sockets lie in it
    environ = {**os.environ, "RAY_TMPDIR": str(folder), "HOME": str(folder), "RAY_AUTH_MODE": "disabled"}
    start = f"{python.parent}/ray start --head --block --port=0 --include-dashboard=false {' '.join((*LEAN, *ALONE))}"
    start += " --disable-usage-stats --object-store-memory=100000000"
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> subprocess.Popen[bytes]:
        _address_file(folder).unlink(missing_ok=True)  # that of a try before
        started.append(
            subprocess.Popen(
                ["bash", "-c", f"{before} exec {start} {' '.join(options)}"],
                env=environ,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
        )
        return started[-1]

    try:
        until_up(begin, lambda: bool(address_in(folder) and raylets(folder)))
        yield Head(raylets(folder)[-1].pid, python, folder, address_in(folder))
    finally:
        end(started, folder)


def until_up(begin: Callable[[], subprocess.Popen[bytes]], is_up: Callable[[], bool]) -> None:
    """Start a node of Ray until it is up. On a busy machine Ray itself sometimes gives up."""
    for _ in range(_TRIES):
        process = begin()
        deadline = time.monotonic() + _STARTING
        while process.poll() is None and time.monotonic() < deadline:
            if is_up():
                return
            time.sleep(0.2)
    raise AssertionError(f"no Ray came up in {_TRIES} tries")


def end(started: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """End what was started, and everything that it started in this folder; then remove the folder."""
    for process in started:
        process.send_signal(signal.SIGTERM)
    for left in [*below(folder)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.send_signal(signal.SIGCONT)  # a test may have stopped it
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)  # longer only with actors that nobody ends
    kill_all(started, folder)
    shutil.rmtree(folder, ignore_errors=True)


def kill_all(started: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Kill the started processes and all that use this folder, until none is left."""
    deadline = time.monotonic() + 60
    while (left := [*below(folder)]) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for process in started:
            process.poll()
        time.sleep(0.05)
    for process in started:
        process.kill()
        process.wait(60)


def raylets(folder: Path) -> list[psutil.Process]:
    """Return the raylets with this folder, the oldest first."""
    return named("raylet", folder)


def named(name: str, folder: Path) -> list[psutil.Process]:
    """Return the processes with this name and folder, the oldest first."""
    found = {}
    for process in below(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name:
                found[process] = process.create_time()
    return sorted(found, key=lambda process: found[process])


def address_in(folder: Path) -> str:
    """Return the address that Ray writes into its file, shortly after the raylet starts; "" until then."""
    said = _address_file(folder)
    return said.read_text().strip() if said.exists() else ""


def _address_file(folder: Path) -> Path:
    return folder / "ray" / "ray_current_cluster"


def below(folder: Path) -> Iterator[psutil.Process]:
    """Yield the processes with this private folder in their command line or environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and (
                any(str(folder) in word for word in process.cmdline())
                or process.environ().get("RAY_TMPDIR") == str(folder)
            ):
                yield process
