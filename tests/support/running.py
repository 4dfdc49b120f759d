"""Running the doctor as a user does: another process, its output captured."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from verl_doctor.toolkit.cli.main import main
from verl_doctor.toolkit.collectors.gpu import nvml
from verl_doctor.toolkit.collectors.installed import interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

Doctor = Callable[..., "subprocess.CompletedProcess[str]"]
"""What the fixture `here` gives."""


def doctor(*arguments: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `verl-doctor ARGUMENTS` in a folder, with these variables added to the test's own."""
    with index_handed_on(Path(environ.get("HOME", os.environ["HOME"]))):
        return ran([sys.executable, "-m", "verl_doctor.toolkit", *map(str, arguments)], cwd, environ)


_index: dict[str, bytes] = {}


@contextlib.contextmanager
def index_handed_on(home: Path | None = None) -> Iterator[None]:
    """Keep the rule index of the first doctor for those with other homes: each would import all rules to build its own."""
    folder = Path(home or os.environ["HOME"], ".cache", "verl-doctor", "index")
    with contextlib.suppress(OSError):
        if _index and not folder.parent.exists():
            for made in (folder.parent.parent, folder.parent, folder):
                made.mkdir(mode=0o700, exist_ok=True)
            for name, content in _index.items():
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o600)
    yield
    with contextlib.suppress(OSError):
        if not _index:
            _index.update({file.name: file.read_bytes() for file in folder.glob("*.json")})


_really_ask = interpreter._query
_really_ask_nvml = nvml.query_nvml
_answers: dict[frozenset[tuple[str, str]], Any] = {}


def _asked_once(machine: Machine, command: list[str], limit: float) -> Any:
    if command != [sys.executable] or not _is_this_machine(machine):
        return _really_ask(machine, command, limit)
    variables = {name: value for name, value in machine.environ.items() if name != "PYTEST_CURRENT_TEST"}
    if sys.prefix != sys.base_prefix:  # a virtual environment has no packages of the user's home
        variables = {name: value for name, value in variables.items() if name not in _OF_A_TEST}
    key = frozenset({*variables.items(), ("", str(machine.cwd) if "PYTHONPATH" in variables else "")})
    if key not in _answers:
        said = _really_ask(machine, command, limit)
        if isinstance(said, Unknown) or said[1] is None:
            return said
        _answers[key] = copy.deepcopy(said)
    return copy.deepcopy(_answers[key])


_OF_A_TEST = frozenset({"HOME", "RAY_TMPDIR", "PYTEST_CURRENT_TEST"})


def _nvml_asked_once(machine: Machine) -> Any:
    if not _is_this_machine(machine):
        return _really_ask_nvml(machine)
    variables = {name: value for name, value in machine.environ.items() if name not in _OF_A_TEST}
    key = frozenset({*variables.items(), ("", "NVML")})
    if key not in _answers:
        answer = _really_ask_nvml(machine)
        if isinstance(answer, Unknown):
            return answer
        _answers[key] = copy.deepcopy(answer)
    return copy.deepcopy(_answers[key])


def _is_this_machine(machine: Machine) -> bool:
    return machine.runner is None and machine.root == Path("/")


@contextlib.contextmanager
def machine_asked_once() -> Iterator[None]:
    """Have the Python that runs the tests describe itself once, and NVML queried once: in the same environment they answer the same."""
    with (
        mock.patch.object(interpreter, "_query", _asked_once),
        mock.patch.object(nvml, "query_nvml", _nvml_asked_once),
    ):
        yield


def ran(words: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run these words in a folder, with these variables added to the test's own."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=900,
        env={**os.environ, **environ},
    )


def inside(
    *arguments: str | Path,
    cwd: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    **environ: str,
) -> subprocess.CompletedProcess[str]:
    """Run the same in this process, for answers that need no process of their own: four times as fast."""
    with monkeypatch.context() as patch, machine_asked_once():
        patch.chdir(cwd)
        for name, value in environ.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
    said = capfd.readouterr()
    code = ended.value.code
    return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 0, said.out, said.err)


@dataclass
class JobStarted:
    """A job that runs through `clean --run`: the doctor's process, the words of the job's first line, and where the report will lie."""

    process: subprocess.Popen[str]
    ready: list[str]
    report: Path

    def ended(self) -> tuple[int, str, dict[str, Any]]:
        """Return the exit code, the rest of the job's output, and the document."""
        output = self.process.communicate(timeout=300)[0]
        return self.process.returncode, output, json.loads(self.report.read_text())


@contextlib.contextmanager
def job_started(
    folder: Path, command: Sequence[str | Path], terminal: int | None = None, **environ: str
) -> Iterator[JobStarted]:
    """Run a command in a new session, on a terminal if given. The report is written into a folder."""
    report = folder / "report.json"
    words = [
        sys.executable,
        "-m",
        "verl_doctor.toolkit",
        "clean",
        "--run",
        "--json",
        "--output",
        str(report),
        "--",
    ]
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(
            [*(() if terminal is None else ("setsid", "--ctty")), *words, *map(str, command)],
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=terminal is None,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            assert ready, (folder / "stderr").read_text()
            yield JobStarted(process, ready, report)
        finally:
            process.kill()
