"""Children: time limits, output limits, and leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ended import is_running, wait_for_end
from support.trying import LIMITS

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.process import group
from verl_doctor.toolkit.system.child import ending, run_probe_text

SLEEP = "import time; time.sleep(600)"


def run(script: str, *, timeout: float = 120, **environ: str) -> Output:
    machine = Machine(environ={"PATH": os.environ["PATH"], **environ})
    return machine.run([sys.executable, "-c", script], timeout=timeout)


def test_environment_values_that_are_not_utf8_reach_the_child() -> None:
    answer = run(r"import os; print(os.environb[b'ODD'])", ODD=os.fsdecode(b"\xff"))
    assert answer.stdout == "b'\\xff'\n"


def test_output_and_exit_code_are_reported() -> None:
    answer = run("import sys; print('out'); print('first\\nlast', file=sys.stderr); sys.exit(3)")
    assert (answer.code, answer.stdout, answer.last_line) == (3, "out\n", "last")
    assert (
        run("print('\\udcff'.encode('utf-8', 'surrogateescape')); import os; os.write(1, b'\\xff')").code == 0
    )


@pytest.mark.slow
def test_output_before_a_timeout_is_kept() -> None:
    machine = Machine(environ={"PATH": os.environ["PATH"]})
    for limit in (1.0, *LIMITS):
        answer = machine.run(["sh", "-c", "echo begun; exec sleep 600"], timeout=limit)
        if answer.stdout:
            break
    assert (answer.code, answer.stdout) == (None, "begun\n")


def test_child_of_a_waiting_thread_ends_with_the_doctor() -> None:
    script = f"""
import sys, threading, time
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process import group
child = [sys.executable, "-c", {SLEEP!r}]
threading.Thread(target=Machine().run, args=(child,), kwargs=dict(timeout=600), daemon=True).start()
while not group._running:
    time.sleep(0.01)
print(*group._running)
sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    wait_for_end([int(done.stdout)])


@pytest.mark.parametrize("escaped", [False, True])
def test_child_does_not_outlive_a_killed_doctor(escaped: bool) -> None:
    grandchild = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True).pid, flush=True); {SLEEP}"
    child = grandchild if escaped else f"import os; print(os.getpid(), flush=True); {SLEEP}"
    script = f"""
import sys
from verl_doctor.toolkit.process.group import started
with started([sys.executable, "-c", {child!r}], {{}}, "/") as process:
    print(process.stdout.readline().decode(), end="", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as doctor:
        assert doctor.stdout
        pid = int(doctor.stdout.readline())
        assert is_running(pid)
        doctor.kill()
    wait_for_end([pid])


FLOODS = {
    "stdout": "while True: os.write(1, b'flood ' * 10000)",
    "stderr": "while True: os.write(2, b'flood ' * 10000)",
    "a grandchild": "subprocess.Popen(['yes'], start_new_session=True); time.sleep(60)",
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_excessive_output_is_stopped_and_its_beginning_kept(
    monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setattr(group, "_MOST_READ", 2_000_000)
    answer = run(f"import os, subprocess, sys, time\n{flood}")
    assert answer.code == -9
    assert answer.last_line == ending(answer, 30) == "it was killed after 1 MB of output"
    assert max(len(answer.stdout), len(answer.stderr)) <= 2_000_000 + 100


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('verl-doctor 1 {}'); os._exit(0)", "the process ended with status 0 without a result"),
        ("print('verl-doctor 1 {}'); sys.exit('no driver')", "no driver"),
        ("os.abort()", "the process was ended by signal 6"),
    ],
)
def test_exit_of_a_child_is_distinguished_from_its_output(code: str, words: str) -> None:
    assert ending(run(f"import os, sys\n{code}", timeout=120), 120) == words


def test_output_of_a_surviving_grandchild_is_not_waited_for() -> None:
    endless = "while :; do echo y; sleep 0.01; done"
    answer = run(f"import subprocess; subprocess.Popen(['sh', '-c', {endless!r}], start_new_session=True)")
    assert answer.code == 0
    assert set(answer.stdout) <= set("y\n")


ESCAPES = {
    "same session": "subprocess.Popen([sys.executable, '-c', SLEEP])",
    "own session": "subprocess.Popen([sys.executable, '-c', SLEEP], start_new_session=True)",
    "double fork": "subprocess.Popen([sys.executable, '-c', DOUBLE], start_new_session=True).wait()",
    "own session in an own session": "subprocess.Popen([sys.executable, '-c', NESTED], start_new_session=True)",
}
PREAMBLE = """\
import os, subprocess, sys, time
SLEEP = "import os, time; open(os.environ['PIDS'], 'a').write(str(os.getpid()) + ' '); time.sleep(600)"
NESTED = "import subprocess, sys, time; SLEEP = " + repr(SLEEP) + "; p = subprocess.Popen([sys.executable, '-c', SLEEP], start_new_session=True); p.wait()"
DOUBLE = "import os\\nif os.fork() == 0:\\n    os.setsid()\\n    exec(" + repr(SLEEP) + ")"
def started():
    while not os.path.exists(os.environ['PIDS']) or not open(os.environ['PIDS']).read().endswith(' '): time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", id="it ended"),
        pytest.param("\n" + SLEEP, id="it was killed", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_no_descendant_survives_or_is_waited_for(tmp_path: Path, escape: str, ending: str) -> None:
    pids = tmp_path / "pids"
    script = f"{PREAMBLE}{escape}\nstarted(); print('done', flush=True){ending}"
    for limit in LIMITS if ending else (120.0,):
        pids.unlink(missing_ok=True)
        answer = run(script, timeout=limit, PIDS=str(pids))
        if answer.stdout:
            break
    assert (answer.code, answer.stdout) == (None if ending else 0, "done\n")
    assert answer.seconds < 300
    (pid,) = map(int, pids.read_text().split())
    wait_for_end([pid])


def test_children_of_other_processes_are_not_touched() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True) as stranger:
        try:
            run("pass")
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.slow
def test_children_of_several_threads_do_not_end_each_other() -> None:
    answers: list[Output] = []
    threads = [
        threading.Thread(target=lambda: answers.append(run("import time; time.sleep(0.5); print('mine')")))
        for _ in range(4)
    ]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(0.05 * number)
    run("pass")
    for thread in threads:
        thread.join()
    assert [answer.stdout for answer in answers] == ["mine\n"] * 4
    assert group._is_subreaper() == 0


def without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")


def without_subreaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_become_subreaper", lambda _: False)


@pytest.mark.parametrize("poorer", [without_pidfd, without_subreaper])
def test_time_limit_holds_without_optional_system_calls(
    monkeypatch: pytest.MonkeyPatch, poorer: Callable[[pytest.MonkeyPatch], None]
) -> None:
    poorer(monkeypatch)
    assert run("print(1)").stdout == "1\n"
    assert run(SLEEP, timeout=0.3).code is None


def test_escaped_processes_are_found_by_token_without_a_subreaper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_subreaper(monkeypatch)
    pids = tmp_path / "pids"
    run(f"{PREAMBLE}{ESCAPES['own session']}\nstarted()", PIDS=str(pids))
    wait_for_end([int(pids.read_text())])


def test_command_that_cannot_be_started_is_an_error() -> None:
    with pytest.raises(OSError, match="nowhere"):
        Machine(environ={}).run(["/nowhere/python"], timeout=1)


def test_children_that_are_forgotten_while_they_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is forgotten by the thread that waits for it, which runs on until the doctor has ended."""
    running, watchers = {1: "a", 2: "b"}, {7, 8}
    ended: list[int] = []

    def killed(pid: int, _signal: int) -> None:
        ended.append(pid)
        running.pop(pid)

    def dismissed(pipe: int) -> None:
        watchers.discard(pipe)

    monkeypatch.setattr(group, "_ending", threading.Lock())
    monkeypatch.setattr(group, "_running", running)
    monkeypatch.setattr(group, "_watchers", watchers)
    monkeypatch.setattr(group, "_dismiss", dismissed)
    monkeypatch.setattr(group, "_end_escaped", lambda _token, **_: None)
    monkeypatch.setattr(os, "killpg", killed)
    group._end_running()
    assert (ended, running, watchers) == ([1, 2], {}, set())


def test_child_without_dev_null_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that cannot be started for want of it is not blamed."""
    monkeypatch.setattr(os, "devnull", str(tmp_path / "null"))
    found = run_probe_text(Machine(), (sys.executable,), "", timeout=20.0)
    assert isinstance(found, Unknown)
    assert found.kind == "no more processes"
    assert str(tmp_path / "null") in found.reason
