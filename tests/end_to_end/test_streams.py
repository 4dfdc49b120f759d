"""Closed, full and unread streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import doctor

from verl_doctor.toolkit.commands.demo import demo
from verl_doctor.toolkit.console.streams import NO_READER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("index_at_hand")]
CHECK = f"{sys.executable} -m verl_doctor.toolkit check --select PY100 --format json"


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=cwd, timeout=300
    )


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_closed_stream_does_not_matter(tmp_path: Path, closed: str) -> None:
    done = shell(f"{CHECK} {closed}", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == "ok"


def test_closed_stdout_harms_no_file(tmp_path: Path) -> None:
    done = shell(f"{CHECK} --save-facts facts.json >&-", tmp_path)
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "facts.json").read_text())["facts"]


def test_full_disk_at_stdout_is_one_sentence(tmp_path: Path) -> None:
    done = shell(f"{CHECK} > /dev/full", tmp_path)
    assert done.returncode == 3
    assert "the report cannot be written to stdout: No space left on device" in done.stderr
    assert "defect" not in done.stderr
    listed = shell(f"{sys.executable} -m verl_doctor.toolkit rules > /dev/full", tmp_path)
    assert "the report cannot be written to stdout: No space left on device" in listed.stderr
    assert "Traceback" not in listed.stderr


def test_facts_can_be_written_to_stdout_before_the_report(tmp_path: Path) -> None:
    done = doctor(
        *("check", "--select", "PY100", "--format", "json", "--save-facts", "/dev/stdout"), cwd=tmp_path
    )
    facts, end = json.JSONDecoder().raw_decode(done.stdout)
    assert facts["facts"]
    assert json.loads(done.stdout[end:])["verdict"] == "ok"


def test_demo_stops_quietly_when_its_reader_is_gone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[object] = []

    def run(*arguments: object, **_: object) -> subprocess.CompletedProcess[bytes]:
        ended.append(arguments)
        return subprocess.CompletedProcess([], NO_READER)

    monkeypatch.setattr(demo, "build", lambda prefix: prefix)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BrokenPipeError):
        demo.run(keep=False)
    assert (len(ended), capfd.readouterr().err) == (1, "")


def test_letters_that_stdout_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "r\u00fcn.sh").write_text("true\n")
    done = doctor("check", "r\u00fcn.sh", "--select", "PY", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert "defect" not in done.stderr, done.stderr
    assert "r\\xfcn.sh" in done.stdout


def test_pipe_and_device_on_the_search_path_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = "import sys; sys.argv = ['verl-doctor', '--version']; from verl_doctor.toolkit.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}/pipe:/dev/zero"},
    )  # fmt: skip
    assert done.stdout.startswith("verl-doctor "), done.stderr


@pytest.mark.parametrize("variable", ["PYTHONUNBUFFERED", "OTHER"])
def test_stdout_that_does_not_wait_gets_the_whole_report(tmp_path: Path, variable: str) -> None:
    """Programs such as Node.js make their pipes non-blocking: what did not fit was lost, with exit code 0."""
    command = [sys.executable, "-m", "verl_doctor.toolkit", "explain", "--list"]
    script = f"""
import fcntl, os, struct, subprocess, sys, termios, time
reads, writes = os.pipe()
fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
os.set_blocking(writes, False)
child = subprocess.Popen({command!r}, stdout=writes)
while struct.unpack("i", fcntl.ioctl(reads, termios.FIONREAD, bytes(4)))[0] < 4000 and child.poll() is None:
    time.sleep(0.1)
time.sleep(1)
assert not os.get_blocking(writes), "the flag belongs to all who share the pipe"
os.close(writes)
with open(reads, "rb") as file:
    text = file.read()
assert child.wait() == 0
sys.stdout.buffer.write(text)
"""
    shown = [
        subprocess.run(
            words,
            capture_output=True,
            check=True,
            cwd=tmp_path,
            timeout=300,
            env={**os.environ, variable: "1"},
        ).stdout
        for words in ([sys.executable, "-c", script], command)
    ]
    assert len(shown[1]) > 4096
    assert shown[0] == shown[1]


def test_non_blocking_file_keeps_what_others_wrote(tmp_path: Path) -> None:
    file = os.open(tmp_path / "all.txt", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"the line before\n")
    os.set_blocking(file, False)
    subprocess.run([sys.executable, "-m", "verl_doctor.toolkit", "--version"], stdout=file, check=True)
    os.close(file)
    assert (tmp_path / "all.txt").read_text().startswith("the line before\nverl-doctor")


def test_parent_that_ignores_the_ends_of_children_hides_no_exit_code(tmp_path: Path) -> None:
    """The kernel discards the exit codes of the children of a process that ignores SIGCHLD, and the ignoring is inherited."""
    begin = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    ignoring = [sys.executable, "-c", begin]
    job = [*ignoring, "-m", "verl_doctor.toolkit", "clean", "--run", "--", "sh", "-c", "exit 7"]
    assert subprocess.run(job, check=False, cwd=tmp_path).returncode == 7
    check = [*ignoring, *CHECK.split()[1:]]
    assert subprocess.run(check, check=False, cwd=tmp_path).returncode == 0
    become = (
        "import os; from verl_doctor.toolkit.process.signals import heed_ends_of_children, ignore_as_inherited; "
        "heed_ends_of_children(); assert not os.system('true'); ignore_as_inherited(); os.execvp('grep', ['grep', 'SigIgn', '/proc/self/status'])"
    )
    for words, ignored in (([*ignoring, "-c", become], 1), ([sys.executable, "-c", become], 0)):
        shown = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        assert int(shown.split()[1], 16) >> (signal.SIGCHLD - 1) & 1 == ignored
