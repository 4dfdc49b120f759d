"""`check` with a program that hangs, forks and hangs, or never stops writing: it finishes in time and leaves no process."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.elf_files import place
from support.ended import wait_for_end
from support.miniatures.triton import write_triton
from support.running import doctor

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.kernels import triton_build as kernels_triton_build
from verl_doctor.toolkit.collectors.kernels.triton_build import TritonBuild, triton_build
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.slow

# Each leaves its process number in a file of its own. The shell's `exec` keeps the number.
REMEMBER = 'echo $$ >"$PIDS/$$"'
BAD = {
    "hangs": f"{REMEMBER}; exec sleep 300",
    "forks and hangs": f"(setsid sh -c '{REMEMBER}; exec sleep 300' >/dev/null 2>&1 &); {REMEMBER}; exec sleep 300",
    "floods": f"{REMEMBER}; exec yes 'no end in sight'",
}


def planted(folder: Path, name: str, what: str) -> Path:
    """A program of this name that behaves badly."""
    program = folder / "bin" / name
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{what}\n")
    program.chmod(0o755)
    (folder / "pids").mkdir()
    return program


def ended_cleanly(folder: Path) -> None:
    pids = [path.name for path in (folder / "pids").iterdir()]
    assert pids, "it was never asked"
    wait_for_end(pids)


@pytest.mark.parametrize("name", BAD)
def test_silent_interpreter_is_a_finding(tmp_path: Path, name: str) -> None:
    python = planted(tmp_path, "python", BAD[name])
    done = doctor("check", "--python", python, "--format", "json", cwd=tmp_path, PIDS=str(tmp_path / "pids"))
    ended_cleanly(tmp_path)
    assert done.returncode == 1, done.stderr
    results = {result["code"]: result for result in json.loads(done.stdout)["results"]}
    (finding,) = results["PY100"]["findings"]
    expected = "MB of output" if name == "floods" else "did not respond within"
    assert expected in finding["evidence"]["found"] + finding["message"]
    assert len(done.stdout) < 1_000_000


@pytest.mark.parametrize("name", BAD)
def test_silent_program_does_not_end_the_run(tmp_path: Path, name: str) -> None:
    """bash is run to explain why it cannot parse a launch script."""
    program = planted(tmp_path, "bash", BAD[name])
    (tmp_path / "run.sh").write_text("if true; then\npython -m verl.trainer.main_ppo\n")
    arguments = ("check", "run.sh", "--format", "json")
    path = f"{program.parent}:{os.environ['PATH']}"
    done = doctor(*arguments, cwd=tmp_path, PIDS=str(tmp_path / "pids"), PATH=path)
    ended_cleanly(tmp_path)
    assert done.returncode in {0, 1, 3}, done.stderr
    assert "Traceback" not in done.stderr
    assert len(json.loads(done.stdout)["results"]) > 1


@pytest.mark.parametrize("name", BAD)
def test_hanging_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A machine with a GPU, simulated by a device file below a folder."""
    compiler = planted(tmp_path, "cc", BAD[name])
    place(tmp_path, "/dev/nvidia0", b"")
    write_triton(tmp_path)
    environ = {
        "PATH": f"{compiler.parent}:{os.environ['PATH']}",
        "CC": "cc",
        "TRITON_LIBCUDA_PATH": "/a",
        "PIDS": str(tmp_path / "pids"),
    }
    monkeypatch.setattr(kernels_triton_build, "_COMPILER_TIMEOUT", 3.0)
    seen = triton_build.collect(
        Machine(environ=environ, root=tmp_path),
        replace(PYTHON, executable=sys.executable, sys_path=(str(tmp_path),)),
        Variables(environ),
        JobVariables(environ),
        Absent("no verl"),
    )
    ended_cleanly(tmp_path)
    assert isinstance(seen, TritonBuild)
    if name == "floods":
        assert "no end in sight" in seen.compiler_error
    else:
        assert (seen.compiler, seen.patience) == ("cc", 3.0)
        assert seen.hangs.startswith("cc ")
