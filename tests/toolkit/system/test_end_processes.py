"""Ending processes by number: the intended ones, protected ones, and reused numbers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from verl_doctor.toolkit.leftover import EndProcess
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import end_processes as module
from verl_doctor.toolkit.system.end_processes import end_processes
from verl_doctor.toolkit.system.process_table import row_of

DEAF = ["bash", "-c", "trap '' TERM; echo; while :; do sleep 600 & wait $!; done"]


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Ends all processes of a test."""
    with ExitStack() as stack:
        yield stack


def running(started: ExitStack, argv: Sequence[str] = ("sleep", "600")) -> subprocess.Popen[bytes]:
    """A process in a separate group, ended with the test."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    started.callback(process.communicate)
    started.callback(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
    return process


def removal(pid: int) -> EndProcess:
    """The record of a process, as a collector would have made it."""
    row = row_of(pid, Machine())
    assert row is not None
    return EndProcess(pid, row.ticks)


def test_process_receives_sigterm(started: ExitStack) -> None:
    process = running(started)
    wanted = removal(process.pid)
    assert end_processes([wanted], Machine()) == {wanted: ""}
    assert process.wait() == -signal.SIGTERM


def test_process_that_ignores_sigterm_is_killed(started: ExitStack) -> None:
    process = running(started, DEAF)
    assert process.stdout is not None
    process.stdout.readline()
    wanted = removal(process.pid)
    assert end_processes([wanted], Machine(), patience=0.1) == {wanted: ""}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its child
    assert process.wait() == -signal.SIGKILL


def test_process_that_reuses_the_number_is_left_alone(started: ExitStack) -> None:
    process = running(started)
    before = replace(removal(process.pid), ticks=removal(process.pid).ticks - 1)
    assert end_processes([before], Machine()) == {before: ""}  # the intended process has ended
    assert process.poll() is None


def test_ended_process_is_not_an_error(started: ExitStack) -> None:
    process = running(started)
    wanted = removal(process.pid)
    process.kill()
    process.wait()
    assert end_processes([wanted], Machine()) == {wanted: ""}


def test_this_program_and_its_ancestors_are_never_ended() -> None:
    line = [removal(os.getpid()), removal(os.getppid()), EndProcess(1, removal(1).ticks)]
    assert end_processes(line, Machine()) == dict.fromkeys(line, "it is this program, or an ancestor of it")


def test_process_of_another_user_is_left_alone(started: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    process = running(started)
    monkeypatch.setattr(module, "row_of", lambda *of: replace(row_of(*of), mine=False))  # type: ignore[type-var]
    (why,) = end_processes([removal(process.pid)], Machine()).values()
    assert why == "it is another user's"
    assert process.poll() is None


def test_number_reused_in_between_is_safe(started: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The intended process ends after its descriptor was opened; a process that reuses its number receives nothing."""
    meant, other = running(started), running(started)
    wanted, held = removal(meant.pid), os.pidfd_open(meant.pid)
    started.callback(os.close, held)
    monkeypatch.setattr(module.os, "pidfd_open", lambda _: os.dup(held))
    row = row_of(meant.pid, Machine())
    meant.kill()
    meant.wait()
    monkeypatch.setattr(module, "row_of", lambda pid, of: row if pid == meant.pid else row_of(pid, of))
    assert end_processes([wanted], Machine()) == {wanted: ""}
    assert other.poll() is None


def test_no_process_is_ended_without_a_pidfd(started: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    process = running(started)

    def too_old(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(module.os, "pidfd_open", too_old)
    (why,) = end_processes([removal(process.pid)], Machine()).values()
    assert why == (
        "this kernel cannot open a process by number (Function not implemented); end it with: "
        f"kill {process.pid}"
    )
    assert process.poll() is None
