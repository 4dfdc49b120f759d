"""Signs that a file is still in use, and things that cannot be observed: each keeps the file."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.left_behind import (
    NOBODY,
    bound,
    dead_socket,
    leftovers,
    machine,
    machine_in,
    running,
    session,
    show,
    two_minutes_later,
    verdict,
)

from verl_doctor.toolkit.collectors.leftovers import files, places
from verl_doctor.toolkit.collectors.leftovers.file_judgement import judged
from verl_doctor.toolkit.collectors.leftovers.files import LeftFile, LeftFiles
from verl_doctor.toolkit.collectors.leftovers.process_signs import signs_of
from verl_doctor.toolkit.leftover import Kept, Leftover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_table
from verl_doctor.toolkit.system.process_table import command_of

__all__ = ["machine"]

DEAD = LeftFile("session folder", "/tmp/ray/session_1", "folder", 0, True, 1, 2, 3, latest=1000.0, size=10)
AT = LeftFiles(now=1000.0 + 3600)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def why(machine: Machine, name: str) -> str:
    one = verdict(machine, name)
    assert isinstance(one, Kept), one
    return one.why


def spill(machine: Machine, name: str) -> Path:
    folder = machine.at("/tmp") / name
    node = folder / "ray_spilled_objects_00112233445566778899"
    node.mkdir(parents=True)
    (node / "object").write_text("x" * 100)
    return folder


@pytest.mark.parametrize(
    ("changes", "among", "fragment"),
    [
        ({"mine": False, "owner": 7}, AT, "another user (number 7)"),
        ({"type": "link"}, AT, "it is a link, but a job would create a folder"),
        ({"uses": ("raylet (process 9) has it open", "b", "c")}, AT, "raylet (process 9) has it open, and 2 more processes"),
        ({"used": "session_1/logs/a"}, AT, "logs/a is in use, although no visible process uses it"),
        ({"used": "session_1/logs/a"}, replace(AT, processes=False), "logs/a is in use"),
        ({"pid": 9, "maker": "runs"}, AT, "process 9, which its name contains, runs"),
        ({"pid": 9, "maker": "hidden"}, AT, "/proc hides it"),
        ({"closed": "session_1/x"}, AT, "x cannot be read"),
        ({"undetermined": "session_1/x"}, AT, "does not report whether x is in use"),
        ({"seen": "this machine", "lies_on": "nfs4"}, AT, "it is on nfs4, so processes of other machines may use it"),
        ({"seen": "this namespace"}, AT, "other containers or the host may share this folder"),
        ({"foreign": "session_1/x"}, AT, "x belongs to another user"),
        ({"mounted": "session_1/x"}, AT, "x is a mount"),
        ({"written": "session_1/x"}, AT, "x was written by the job"),
        ({"latest": AT.now + 100}, AT, "is in the future"),
        ({"latest": AT.now - 5}, AT, "it was changed 5 seconds ago"),
        ({}, replace(AT, closed=("sshd (process 9) may not be looked into",)), "sshd (process 9) may not be looked into"),
        ({"kind": "shared memory", "type": "file"}, replace(AT, closed=("a", "b")), "a, and 1 more process, so it is unknown"),
        ({}, replace(AT, in_flight=("a descriptor is on its way",)), "a descriptor is on its way"),
        ({"kind": "spill folder"}, AT, "does not show its owner"),
        ({"kind": "temporary folder"}, AT, "does not show its owner"),
        ({"kind": "spill folder", "node": "ab"}, replace(AT, nodeless=("raylet (process 9), which",)), "its node may be that of raylet"),
        ({"kind": "address file", "type": "file"}, AT, "no valid address"),
        ({"kind": "address file", "type": "file", "address": "a:1", "answer": "connected"}, AT, "a:1, which it names, answers"),
        ({"kind": "address file", "type": "file", "address": "a:1", "answer": "silence"}, AT, "neither responds nor refuses"),
    ],
)  # fmt: skip
def test_each_sign_of_life_keeps_the_file(changes, among, fragment):
    kept = judged(replace(DEAD, **changes), among)
    assert isinstance(kept, Kept)
    assert fragment in kept.why


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({}, "no process works in it or names it"),
        ({"files": 9, "sockets": 3}, "the kernel counts no process, in any container, that has anything in it open or mapped or is bound to its 3 sockets"),
        ({"pid": 9, "maker": "ended"}, "process 9, which its name contains, has ended"),
        ({"pid": 9, "maker": "started later"}, "the process that has the number 9 now started after its last change"),
        ({"kind": "shared memory", "type": "file", "files": 1}, "the kernel counts no process, in any container, that has it open or mapped"),
        ({"kind": "address file", "type": "file", "address": "a:1", "answer": "refused"}, "a:1, which it names, refuses connections"),
    ],
)  # fmt: skip
def test_proof_lists_the_observations(changes, fragment):
    left = judged(replace(DEAD, **changes), AT)
    assert isinstance(left, Leftover)
    assert fragment in left.proof
    assert left.proof[-1] == "it was last changed 1 hour ago"


@pytest.mark.parametrize(
    ("started", "fragment"),
    [
        ((), "ended"),
        ((900.0,), "runs"),
        ((1001.0,), "runs"),
        ((1010.0,), "started later"),
        ((1010.0, 900.0), "runs"),
    ],
)
def test_reused_process_number_is_recognised_by_the_start_time(machine, started, fragment):
    signs = replace(signs_of((), machine), started={NOBODY: started} if started else {})
    assert files._maker(NOBODY, 1000.0, machine, signs) == fragment


def test_folder_of_a_running_process_is_kept(machine):
    with running(machine, "") as process:
        folder = spill(machine, f"verl_spill_{process.pid}")
        assert why(machine, folder.name) == f"process {process.pid}, which its name contains, runs"
    assert isinstance(verdict(machine, folder.name), Leftover)


@pytest.mark.slow
def test_temporary_folder_of_a_killed_doctor_is_a_leftover(machine):
    def folder_of(pid):
        folder = machine.at(f"/tmp/verl-doctor-{pid}-h4et_966")
        folder.mkdir(parents=True)
        (folder / "asked").touch()
        return folder.name

    killed, own = folder_of(NOBODY), folder_of(os.getpid())
    assert isinstance(verdict(machine, killed), Leftover)
    assert own not in {place.name for place in places.places(machine, [], [], [])}
    with running(machine, "") as process:
        assert why(machine, folder_of(process.pid)) == f"process {process.pid}, which its name contains, runs"
    with running(machine, "", env={"TMPDIR": f"/tmp/{killed}"}):  # a child that outlived it
        assert "names" in why(machine, killed)


def test_zombie_owner_counts_as_ended(machine):
    process = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    folder = spill(machine, f"verl_spill_{process.pid}")
    show(machine, process.pid)
    try:
        assert isinstance(verdict(machine, folder.name), Leftover)
    finally:
        process.wait()


def test_folder_that_is_a_working_directory_is_kept(machine):
    folder = session(machine)
    with running(machine, "", cwd=folder / "logs"):
        assert why(machine, folder.name).endswith("works in it")


@pytest.mark.parametrize("where", ["environment", "command line"])
def test_folder_named_by_a_process_is_kept(machine, where):
    folder = spill(machine, f"verl_spill_{NOBODY}")
    path = f"/elsewhere/{folder.name}/x"
    environ = {**os.environ, "SPILL": path} if where == "environment" else None
    with running(machine, "", *([path] if where == "command line" else []), env=environ):
        assert why(machine, folder.name).endswith(f"names it in its {where}")
    with running(machine, "", f"/tmp/{folder.name}1"):
        assert isinstance(verdict(machine, folder.name), Leftover)


@pytest.mark.slow
def test_long_path_of_a_program_is_shown_with_both_ends(machine, tmp_path):
    folder = session(machine)
    program = tmp_path / ("environment" * 8) / "python"
    program.parent.mkdir()
    program.symlink_to(os.path.realpath(sys.executable))
    again = "import os, sys; sys.argv[1:] and os.execv(sys.argv[1], [sys.argv[1], *sys.orig_argv[1:-1]])"
    with running(machine, again, str(program), cwd=folder / "logs"):
        reason = why(machine, folder.name)
    shown = reason.partition(" (process ")[0]
    assert (shown[:5], shown[-7:]) == (str(program)[:5], "/python")
    assert ".." in shown


def test_session_with_a_listening_socket_is_kept(machine):
    folder = session(machine)
    with bound(folder / "sockets" / "plasma_store"):
        assert why(machine, folder.name) == "sockets/plasma_store is in use"


def test_listener_is_named_if_all_processes_are_visible(machine):
    dead_socket(machine.at("/tmp") / "rl-colocate-zmq-1.sock")
    folder = session(machine)
    script = "import os, socket, sys; os.chdir(sys.argv[1]); s = socket.socket(socket.AF_UNIX); s.bind('raylet.1'); s.listen()"
    with running(machine, script, str(folder / "sockets")) as process:
        assert f"(process {process.pid}) " in why(machine, folder.name)


def test_files_that_a_job_wrote_into_its_unpacked_sources_are_kept(machine, monkeypatch):
    folder = session(machine)
    sources = folder / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    (sources / "__pycache__").mkdir(parents=True)
    (sources / "train.py").write_text("")
    assert isinstance(verdict(machine, folder.name), Leftover)
    monkeypatch.setattr("verl_doctor.toolkit.collectors.leftovers.contents._WHILE_UNPACKED", 0)
    (sources / "__pycache__" / "train.pyc").write_text("")
    assert isinstance(verdict(machine, folder.name), Leftover)
    (sources / "checkpoints").mkdir()
    (sources / "checkpoints" / "actor.pt").write_text("weights")
    assert "checkpoints/actor.pt was written by the job" in why(machine, folder.name)


def test_user_files_in_a_session_are_kept(machine):
    folder = session(machine)
    (folder / "checkpoints").mkdir()
    assert why(machine, folder.name).startswith("checkpoints was written by the job")


@pytest.mark.parametrize("name", [f"verl_ray_{NOBODY}", "verl_ray_results", f"verl_spill_{NOBODY}"])
def test_user_files_in_a_folder_with_a_trainer_name_are_kept(machine, name):
    folder = machine.at("/tmp") / name
    folder.mkdir()
    (folder / "model.safetensors").write_text("weights")
    assert why(machine, name).startswith("model.safetensors was written by the job")


def test_date_in_a_name_is_not_a_process_number(machine):
    (machine.at("/tmp") / "verl_spill_20251120").mkdir()
    assert why(machine, "verl_spill_20251120") == "its name does not show its owner"


def test_raylet_is_matched_by_its_node_id(machine):
    folder = spill(machine, f"verl_spill_{NOBODY}")
    with running(machine, "", "--node_id=00112233445566778899"):
        assert why(machine, folder.name).endswith("names it in its command line")
    assert isinstance(verdict(machine, folder.name), Leftover)


@pytest.mark.slow
def test_unopened_shared_memory_is_kept_while_its_tracker_runs(machine):
    """The process that opens it next may still be busy with the previous one."""
    makes = (
        "import sys; from multiprocessing import resource_tracker as t, shared_memory as s\n"
        "t.ensure_running(); print(t._resource_tracker._pid, flush=True)"
    )
    path = machine.at("/dev/shm") / "psm_0123abcd"
    with subprocess.Popen(
        [sys.executable, "-c", makes + "; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        tracker = int(job.stdout.readline())
        while "resource_tracker" not in command_of(tracker, Machine()):  # it is still a copy of its parent
            time.sleep(0.01)
        show(machine, tracker)
        path.write_bytes(b"x")
        assert why(machine, path.name).endswith("may track it for its job")
        job.communicate("")
    assert isinstance(verdict(machine, path.name), Leftover)


def test_process_in_the_middle_of_execve_is_waited_for(tmp_path, monkeypatch):
    """It has memory, and neither command line nor environment: up to 20 ms after Popen has returned, on a busy machine."""
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (process / "status").write_text(
        f"State:\tR (running)\nUid:\t0\t{os.geteuid()}\t0\t0\nVmSize:\t 2576 kB\n"
    )
    (process / "stat").write_text("7 (sh) R 1 " + " ".join("0" * 40))
    for name in ("cmdline", "environ"):
        (process / name).touch()
    command = process / "cmdline"
    monkeypatch.setattr(process_table.time, "sleep", lambda _: command.write_text("sh\0psm_0123abcd"))
    assert signs_of(["psm_0123abcd"], Machine(root=tmp_path)).of("psm_0123abcd")


@needs_root
def test_link_of_another_user_is_not_followed(machine):
    folder = session(machine, ray="/home/saved")
    link = machine.at("/tmp/ray")
    link.symlink_to("/home/saved")
    assert verdict(machine, folder.name).name == f"/home/saved/{folder.name}"
    os.chown(link, 12345, 12345, follow_symlinks=False)
    assert leftovers(machine).found == leftovers(machine).kept == ()


def test_regular_file_with_the_name_of_a_socket_is_ignored(machine):
    (machine.at("/tmp") / "0f14d0ab-9605-4a62-a9e4-5ed26688389b").write_text("data")
    assert leftovers(machine).found == leftovers(machine).kept == ()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "", "x" * 300, "\x1b[0m:1"])
def test_address_file(machine, address):
    machine.at("/tmp/ray").mkdir()
    (machine.at("/tmp/ray") / "ray_current_cluster").write_text(address)
    one = verdict(machine, "ray_current_cluster")
    assert isinstance(one, Leftover if address.endswith("1:1") else Kept)


def test_session_within_a_trainer_folder_is_removed_with_it(machine):
    session(machine, ray=f"/tmp/verl_ray_{NOBODY}/ray")
    assert [leftover.name for leftover in leftovers(machine).found] == [f"/tmp/verl_ray_{NOBODY}"]


def test_session_below_any_folder_for_temporary_files_is_found(machine):
    folder = session(machine, ray="/tmp/mine/ray")
    assert verdict(machine, folder.name).name == f"/tmp/mine/ray/{folder.name}"


@pytest.mark.parametrize("kind", ["ext4", "overlay"])
def test_only_sockets_are_leftovers_on_a_shared_mount(machine, monkeypatch, kind):
    folder = session(machine)
    (machine.at("/dev/shm") / "psm_0123abcd").write_bytes(b"x")
    dead_socket(machine.at("/tmp") / "rl-colocate-zmq-1.sock")
    signs = "verl_doctor.toolkit.collectors.leftovers.process_signs"
    monkeypatch.setattr(f"{signs}.sees_all", lambda _: False)
    monkeypatch.setattr(f"{signs}.hides_others", lambda _: False)
    monkeypatch.setattr(files, "file_system_of", lambda *_: files.FileSystem("/", kind, "/dev/sda1"))
    assert "other containers" in why(machine, folder.name)
    assert "other containers" in why(machine, "psm_0123abcd")
    assert isinstance(verdict(machine, "rl-colocate-zmq-1.sock"), Leftover)
    monkeypatch.setattr(files, "file_system_of", lambda *_: None)
    assert "other machines" in why(machine, folder.name)


# In namespaces of the kernel's, which only root may make.

_JUDGE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
from support.left_behind import leftovers
from verl_doctor.toolkit.collectors.leftovers import files as left_files
from verl_doctor.toolkit.machine import Machine
now = left_files.time.time
left_files.time.time = lambda: now() + 120
if sys.argv[3:]:
    leftovers(Machine(root=Path(sys.argv[2]), environ={}))  # what Python loads late it may not read later
    import ctypes, os
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE, which setuid takes away
found = leftovers(Machine(root=Path(sys.argv[2]), environ={}))
print(json.dumps({leftover.name: getattr(leftover, "why", "") for leftover in (*found.found, *found.kept)}))
"""


def judged_in(namespace: list[str], machine: Machine, *, nobody: bool = False) -> dict[str, str]:
    """Result of another process in private namespaces: the reason for keeping each file, "" for a leftover.

    Its network namespace is empty: messages wait at sockets of the machine's other processes at any time.
    """
    as_nobody = ["nobody"] if nobody else []
    path = json.dumps([entry for entry in sys.path if entry])
    done = subprocess.run(
        ["unshare", "--net", *namespace, sys.executable, "-c", _JUDGE, path, str(machine.root), *as_nobody],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "unshare" in done.stderr and "permitted" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return {Path(name).name: fragment for name, fragment in json.loads(done.stdout).items()}


@pytest.fixture
def public() -> Iterator[Machine]:
    """A machine in a folder that every user may enter: pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="vd-") as folder, two_minutes_later():
        Path(folder).chmod(0o755)
        yield machine_in(Path(folder))


def give_to_nobody(*paths: Path) -> None:
    for path in paths:
        os.chown(path, 65534, 65534, follow_symlinks=False)


def all_of_proc(machine: Machine) -> None:
    """Use /proc as it is, whatever its contents."""
    for entry in machine.at("/proc").iterdir():
        entry.unlink()
    machine.at("/proc").rmdir()
    machine.at("/proc").symlink_to("/proc")


@needs_root
@pytest.mark.slow
def test_container_that_shares_the_folders_of_the_host(machine):
    """Files held by a process outside, or by no visible process, are kept; only unconnected sockets are removed."""
    all_of_proc(machine)
    folder, idle = session(machine), spill(machine, f"verl_spill_{os.getpid()}")
    socket = dead_socket(machine.at("/tmp") / "rl-colocate-zmq-1.sock")
    free, mapped = (machine.at("/dev/shm") / f"psm_0000000{number}" for number in "12")
    free.write_bytes(b"x")
    script = "import mmap, sys; f = open(sys.argv[1], 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close(); "
    with running_unseen(script + "g = open(sys.argv[2])", str(mapped), str(folder / "logs" / "raylet.out")):
        fragment = judged_in(["unshare", "--pid", "--fork", "--mount-proc"], machine)
    assert "although no visible process uses it" in fragment[folder.name]
    assert "although no visible process uses it" in fragment[mapped.name]
    assert "other containers or the host may share this folder" in fragment[idle.name]
    assert "other containers or the host may share this folder" in fragment[free.name]
    assert fragment[socket.name] == ""


@needs_root
@pytest.mark.slow
def test_host_whose_folders_a_container_shares(machine):
    """In the container the maker has another number than here."""
    all_of_proc(machine)
    folder = spill(machine, "verl_spill_2")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, start_new_session=True) as container:
        assert container.stdout is not None
        assert container.stdout.readline() == "2\n"
        try:
            assert "process 2, which its name contains, runs" in why(machine, folder.name)
        finally:
            for child in _below(container.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, 9)
            container.kill()


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("what", ["tmpfs", "bind", "bind file"])
def test_mount_in_a_session_is_not_entered(machine, tmp_path, what):
    show(machine, 1)
    folder, precious = session(machine), tmp_path / "precious"
    precious.mkdir()
    (precious / "model").write_text("weights")
    inner = folder / "logs" / "inner"
    if what == "bind file":
        inner.write_text("")
    else:
        inner.mkdir()
    mount = {
        "tmpfs": f"mount -t tmpfs none {inner}",
        "bind": f"mount --bind {precious} {inner}",
        "bind file": f"mount --bind {precious / 'model'} {inner}",
    }[what]
    fragment = judged_in(["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"], machine)
    assert fragment[folder.name] == "logs/inner is a mount"


@needs_root
@pytest.mark.slow
def test_files_of_other_users_are_kept(machine):
    folder, theirs = session(machine), session(machine, 3_999_999)
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.chown(folder / "logs" / "raylet.out", 65534, 65534)
    assert why(machine, folder.name) == "logs/raylet.out belongs to another user"
    assert why(machine, theirs.name) == "it belongs to another user (number 65534)"


@needs_root
@pytest.mark.slow
def test_files_opened_by_root_are_kept_for_an_ordinary_user(public):
    """Neither /proc nor the owner shows it, but the kernel does."""
    all_of_proc(public)
    folder, locked = session(public), session(public, 3_999_999)
    free = public.at("/dev/shm") / "psm_0123abcd"
    free.write_bytes(b"x")
    (locked / "logs" / "roots").mkdir(mode=0o700)
    give_to_nobody(folder, *folder.rglob("*"), locked, locked / "logs", free)
    with (folder / "logs" / "raylet.out").open():
        fragment = judged_in([], public, nobody=True)
    assert fragment[folder.name] == "logs/raylet.out is in use, although no visible process uses it"
    assert "another user" in fragment[locked.name] or "cannot be read" in fragment[locked.name]
    assert "may not be looked into" in fragment[free.name]


@needs_root
@pytest.mark.slow
def test_owner_hidden_by_proc_counts_as_running(public):
    all_of_proc(public)
    live, dead = spill(public, f"verl_spill_{os.getpid()}"), spill(public, f"verl_spill_{NOBODY}")
    give_to_nobody(*(path for folder in (live, dead) for path in (folder, *folder.rglob("*"))))
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 none /proc && exec "$@"', "sh"]
    fragment = judged_in(hidden, public, nobody=True)
    assert fragment[live.name] == f"process {os.getpid()}, which its name contains, runs, but /proc hides it"
    assert any(
        why in fragment[dead.name]  # the second one in a container
        for why in ("/proc hides other users' processes", "their processes are not visible here")
    )


@contextlib.contextmanager
def running_unseen(script: str, *arguments: str) -> Iterator[None]:
    """A process that no machine of a test is shown by itself."""
    waits = f"{script}\nprint('ready', flush=True)\nimport time; time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", waits, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [number for child in map(int, children) for number in (*_below(child), child)]


def test_session_with_a_named_pipe_is_kept(machine):
    """A process that waits for the other end has no descriptor: it is counted nowhere, and would wait for ever."""
    folder = session(machine)
    assert isinstance(verdict(machine, folder.name), Leftover)
    os.mkfifo(folder / "logs" / "pipe")
    assert why(machine, folder.name) == "the kernel does not report whether logs/pipe is in use"
