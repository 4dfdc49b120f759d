"""What code of the job may do while it is built: the kernel keeps it from everything outside its folder, whatever it calls."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from verl_doctor.toolkit.probes.construction import namespaces
from verl_doctor.toolkit.process.group import run_group

_CHILD = """
import json, os, sys
from verl_doctor.toolkit.probes.construction.isolation import Isolation
private, code, given = sys.argv[1:]
isolation = Isolation(private)
isolation.begin()
globals().update(json.loads(given))
try:
    exec(code)
    raised = ""
except BaseException as error:
    raised = type(error).__name__
print(json.dumps([raised, isolation.taken()]))
"""


@dataclass(frozen=True)
class Outside:
    """What others own: a file, an empty folder, shared memory, a process, and a server at a Unix socket."""

    folder: Path
    file: Path
    shared: Path
    process: subprocess.Popen[bytes]
    server: socket.socket

    def state(self) -> object:
        """Return everything that the code could change."""
        about = self.file.stat()
        return (
            sorted(path.name for path in self.folder.iterdir()),
            self.file.read_text(),
            (about.st_mode, about.st_uid, about.st_mtime_ns, os.listxattr(self.file)),
            self.shared.read_text() if self.shared.exists() else None,
            (self.process.poll(), os.getpriority(os.PRIO_PROCESS, self.process.pid)),
            socket.gethostname(),
        )

    def was_reached(self) -> bool:
        """Return whether somebody has connected to the server."""
        try:
            self.server.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("kept")
    with ExitStack() as stack:
        shared = Path(f"/dev/shm/verl_doctor_test_{os.getpid()}")
        shared.write_text("kept")
        stack.callback(shared.unlink, missing_ok=True)
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(folder / "socket"))
        server.listen()
        server.setblocking(False)
        process = stack.enter_context(_waiting())
        yield Outside(folder, folder / "file", shared, process, server)


@contextmanager
def _waiting() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def _run(code: str, outside: Outside, tmp_path: Path) -> tuple[str, list[str]]:
    """Return the class of the exception in this code, and what was refused."""
    private = tmp_path / "private"
    private.mkdir()
    given = {"file": str(outside.file), "shared": str(outside.shared), "pid": outside.process.pid}
    given["server"] = str(outside.folder / "socket")
    words = [sys.executable, "-c", _CHILD, str(private), code, json.dumps(given)]
    done = run_group(words, os.environ, 60.0, str(tmp_path))
    assert done.code == 0, done.stderr
    raised, refused = json.loads(done.stdout.splitlines()[-1])
    return raised, refused


def _needs_namespaces() -> None:
    if not namespaces._works(lambda: namespaces._set_up(namespaces._MOUNTS | namespaces._PROCESSES, "/mnt")):
        pytest.skip("this user may not enter namespaces")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import ctypes; ctypes.CDLL(None).chmod(file.encode(), 0o777)",
        "os.system(f'chmod 777 {file}; touch -d 1999-01-01 {file}; rm -f {file}; echo x > {file}')",
        "os.system(f'rm -f {shared}')",
        "import ctypes; ctypes.CDLL(None).unlink(shared.encode())",
        "import ctypes; ctypes.CDLL(None).shm_unlink(os.path.basename(shared).encode())",
        "os.system(f'kill -9 {pid}')",
        "import ctypes; ctypes.CDLL(None).kill(pid, 9)",
        "os.system(f'renice 19 {pid}; hostname pwned')",
        "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    ],
)
def test_kernel_prevents_effects_outside(code: str, outside: Outside, tmp_path: Path) -> None:
    _needs_namespaces()
    before = outside.state()
    _run(code, outside, tmp_path)
    assert outside.state() == before


@pytest.mark.slow
def test_writing_to_shared_memory_of_others_is_refused(outside: Outside, tmp_path: Path) -> None:
    """The link to it leads into the private folder, where it lies read-only."""
    _needs_namespaces()
    before = outside.state()
    raised, reasons = _run("open(shared, 'a').write('x')", outside, tmp_path)
    assert (raised, reasons) == ("RefusedError", [f"it writes {outside.shared}"])
    assert outside.state() == before


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("os.remove(file)", "it writes "),
        ("os.fchmod(os.open(file, os.O_RDONLY), 0o777)", "it writes "),
        ("os.utime(file, (1, 1))", "it writes "),
        ("os.setxattr(file, 'user.x', b'1')", "it writes "),
        ("os.open('/dev/mem', os.O_RDWR)", "it writes "),
        ("os.open('/dev/sg0', os.O_RDWR)", "it writes "),
        ("os.open('/dev/console', os.O_WRONLY)", "it writes "),
        ("os.kill(pid, 9)", "it sends a signal "),
        ("os.kill(-1, 9)", "it sends a signal "),
        ("import socket; socket.socket(socket.AF_UNIX).connect(server)", "it connects to "),
    ],
)
def test_attempt_is_refused_and_reported(code: str, refused: str, outside: Outside, tmp_path: Path) -> None:
    before = outside.state()
    raised, reasons = _run(code, outside, tmp_path)
    assert raised in ("RefusedError", "NoNetworkError")
    assert reasons[-1].startswith(refused)
    assert outside.state() == before
    assert not outside.was_reached()


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from multiprocessing import shared_memory; m = shared_memory.SharedMemory(create=True, size=9); m.close(); m.unlink()",
        "import multiprocessing as m; q = m.get_context('fork').Queue(); p = m.get_context('fork').Process(target=q.put, args=(1,)); p.start(); q.get(); p.join()",
        "import subprocess; p = subprocess.Popen(['sleep', '9']); p.terminate(); p.wait()",
        "open('/dev/null', 'w').write('x'); os.openpty()",
        "import tempfile; tempfile.TemporaryFile(dir=private); os.chmod(private, 0o700)",
        "assert open(shared).read() == 'kept'",
        "assert os.access(os.path.dirname(file), os.W_OK)",
        "assert not os.access('/proc/version', os.W_OK) or os.geteuid() == 0",
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); socket.create_connection(s.getsockname())",
        "assert str(os.getpid()) == os.readlink('/proc/self')",
    ],
)
def test_what_libraries_do_still_works(code: str, outside: Outside, tmp_path: Path) -> None:
    assert _run(code, outside, tmp_path) == ("", [])


def test_daemon_without_its_parents_variables_is_ended(outside: Outside, tmp_path: Path) -> None:
    """It has left the group and its environment is empty, so nothing but its namespace shows where it came from."""
    _needs_namespaces()
    mark = f"verl-doctor-test-{os.getpid()}"
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', "
        f"'{mark}'], env={{}}, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    _run(code, outside, tmp_path)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, f"\0{mark}\0")]


def _has(path: Path, text: str) -> bool:
    try:
        return text.encode() in path.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("code", "status"), [("os._exit(7)", 7), ("os.abort()", -6), ("os.kill(os.getpid(), 9)", -9)]
)
def test_end_of_the_process_is_passed_on(code: str, status: int, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    words = [sys.executable, "-c", _CHILD, str(private), code, "{}"]
    assert run_group(words, os.environ, 60.0, str(tmp_path)).code == status


@pytest.mark.slow
def test_time_limit_ends_the_process_in_its_namespace(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    code = "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64)); open(private + '/begun', 'w'); time.sleep(600)"
    words = [sys.executable, "-c", _CHILD, str(private), code, json.dumps({"mark": f"limit-{os.getpid()}"})]
    assert run_group(words, os.environ, 5.0, str(tmp_path)).code is None
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, f"limit-{os.getpid()}")]


def test_terminals_of_others_cannot_be_written_or_read(outside: Outside, tmp_path: Path) -> None:
    _needs_namespaces()
    ours, others = os.openpty()
    try:
        name = os.ttyname(others)
        raised, _ = _run(f"os.write(os.open({name!r}, os.O_RDWR | os.O_NOCTTY), b'x')", outside, tmp_path)
        os.set_blocking(ours, False)
        assert raised in ("FileNotFoundError", "RefusedError")
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
    finally:
        os.close(ours)
        os.close(others)
