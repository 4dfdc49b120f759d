"""A child of a smoke test: its log, time limit and watchers, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ended import wait_for_end
from support.trying import LIMITS

from verl_doctor.toolkit.commands.smoke import child
from verl_doctor.toolkit.commands.smoke.child import Ran, run_logged
from verl_doctor.toolkit.system.supervised import NotStarted

SLEEP = "import time; time.sleep(600)"
# A daemon with a title of its own, as Ray's workers have: it leaves the group and takes its mark away.
HIDES = """
import os, subprocess, sys, time
env = {"PATH": os.environ["PATH"]}
hidden = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env, start_new_session=True)
print(hidden.pid, flush=True)
"""
# Children whose parent ends at once, in new sessions and without the marked environment.
ESCAPES = """
import os, shutil, time
sleep = shutil.which("sleep")
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(f"{os.getpid()}.pid", "w") as file:
                file.write("x")
            os.closerange(0, 3)
            os.execve(sleep, ["sleep", "600"], {})
        os._exit(0)
    os.wait()
while len([name for name in os.listdir() if name.endswith(".pid")]) < 3:
    time.sleep(0.01)
print("all", flush=True)
"""


def run(script: str, folder: Path, **options: object) -> Ran:
    environ = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "-c", script]
    return run_logged(argv, environ, folder, folder / "child.log", **{"limit": 120.0, **options})  # type: ignore[arg-type]


def waited(question: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not question() and time.monotonic() < deadline:
        time.sleep(0.02)
    return question()


def test_child_output_is_logged_in_order(tmp_path: Path) -> None:
    ran = run("import sys; print('a'); print('b', file=sys.stderr); print('c'); sys.exit(3)", tmp_path)
    assert (ran.code, ran.text, ran.why_ended) == (3, "a\nb\nc\n", "")


@pytest.mark.slow
def test_hanging_child_is_ended_with_a_reason(tmp_path: Path) -> None:
    argv = ["sh", "-c", "echo begun; sleep 600"]
    for limit in LIMITS:
        ran = run_logged(argv, {"PATH": os.environ["PATH"]}, tmp_path, tmp_path / "child.log", limit=limit)
        if ran.text:
            break
    assert (ran.code, ran.text, ran.why_ended) == (None, "begun\n", f"it did not finish within {limit:.0f} s")


def test_signal_gives_a_negative_exit_code(tmp_path: Path) -> None:
    assert run("import os; os.abort()", tmp_path).code == -signal.SIGABRT


def test_watcher_of_the_output_can_end_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LOOK", 0.1)
    heard: list[str] = []

    def watch(text: str) -> child.End | None:
        heard.append(text)
        return child.End("no room", "it waits for ever") if "waiting" in text else None

    ran = run(f"print('waiting'); {SLEEP}", tmp_path, watch=watch)
    assert (ran.code, ran.why_ended) == (None, "it waits for ever")
    assert heard[-1].rstrip() == "waiting"  # the end of the line may come later


def test_excessive_output_is_stopped_and_its_beginning_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_MOST", 2_000_000)
    ran = run("import os\nwhile True: os.write(1, b'flood ' * 10000)", tmp_path)
    assert ran.why_ended == "it was ended after writing more than 1 MB"
    assert ran.log.stat().st_size == 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending", [pytest.param("", id="it ends"), pytest.param(SLEEP, id="it hangs", marks=pytest.mark.slow)]
)
def test_hidden_descendants_end_with_the_child(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_LOOK", 0.1)
    wait = "while not os.path.exists('seen'): time.sleep(0.02)\n"
    looks = []

    def look(_: object) -> None:
        looks.append(1)
        if len(looks) > 1:
            (tmp_path / "seen").touch()

    for limit in LIMITS if ending else (120.0,):
        ran = run(HIDES + wait + ending, tmp_path, limit=limit, look=look)
        if ran.text:
            break
    assert ran.code == (None if ending else 0)
    wait_for_end([int(ran.text.split()[0])])


def escaped(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.pid")]


def test_immediately_hidden_orphans_end_with_the_child(tmp_path: Path) -> None:
    ran = run(ESCAPES, tmp_path)
    assert (ran.code, ran.text) == (0, "all\n")
    pids = escaped(tmp_path)
    assert len(pids) == 3
    wait_for_end(pids)


def test_hidden_orphans_end_when_the_doctor_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from verl_doctor.toolkit.commands.smoke.child import run_logged
argv = [sys.executable, "-c", {ESCAPES + SLEEP!r}]
run_logged(argv, dict(os.environ), Path({str(tmp_path)!r}), Path({str(tmp_path / "log")!r}), limit=60)
"""
    doctor = subprocess.Popen([sys.executable, "-c", script])
    try:
        assert waited(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text() == "all\n")
    finally:
        doctor.kill()
        doctor.wait()
    wait_for_end(escaped(tmp_path))


def test_command_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="/nowhere/python"):
        run_logged(["/nowhere/python"], {}, tmp_path, tmp_path / "child.log", limit=5)


def test_complete_lines_of_the_event_file_are_read(tmp_path: Path) -> None:
    script = """
import os
with open(os.environ["VERL_DOCTOR_TOLD"], "a") as file:
    file.write('{"step": "import", "seconds": 1.5}\\n[1]\\n{"step": "load", "sec')
"""
    ran = run(script, tmp_path)
    assert ran.documents == ({"step": "import", "seconds": 1.5},)
    assert [path.name for path in tmp_path.iterdir()] == ["child.log"]


@pytest.mark.slow
def test_ctrl_c_ends_the_child_and_its_descendants(tmp_path: Path) -> None:
    script = f"""
import os, sys
from pathlib import Path
from verl_doctor.toolkit.commands.smoke.child import run_logged
grand = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); time.sleep(600)"
run_logged([sys.executable, "-c", grand], dict(os.environ), Path({str(tmp_path)!r}), Path({str(tmp_path / "log")!r}), limit=60)
"""
    doctor = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    log = tmp_path / "log"
    while not (log.exists() and log.read_text().strip()):
        assert doctor.poll() is None
        time.sleep(0.05)
    doctor.send_signal(signal.SIGINT)
    assert doctor.wait(300) != 0
    wait_for_end([int(log.read_text())])
