"""Querying interpreters that are noisy, old, broken, or broken by imported modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.interpreter import SOUND_WHEN_ISOLATED, Interpreter, interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


def interpreter_at(python: str | Path, **environ: str) -> Interpreter | Unknown:
    machine = Machine(environ={"PATH": os.environ["PATH"], **environ})
    return interpreter.collect(machine, Target(Path(python), "--python"))  # type: ignore[no-any-return]


def reason(python: str | Path, **environ: str) -> str:
    result = interpreter_at(python, **environ)
    assert isinstance(result, Unknown)
    return result.reason


def with_sitecustomize(folder: Path, text: str) -> str:
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "noise",
    [
        "print('hello')",
        "print('{}'); import atexit; atexit.register(print, '{\"version\": 1}')",
        "import sys; sys.stdout.write('no end of line')",
        "import atexit, sys; atexit.register(sys.stdout.write, 'no end of line')",
        "import atexit, os; atexit.register(os._exit, 3)",
    ],
)
def test_output_around_the_result_is_ignored(tmp_path: Path, noise: str) -> None:
    result = interpreter_at(sys.executable, PYTHONPATH=with_sitecustomize(tmp_path, noise))
    assert isinstance(result, Interpreter)
    assert result.executable == sys.executable


def test_secret_on_the_path_is_hidden(tmp_path: Path) -> None:
    result = interpreter_at(sys.executable, PYTHONPATH=f"{tmp_path}:/x?token=hunter2")
    assert isinstance(result, Interpreter)
    assert str(tmp_path) in result.sys_path
    assert "hunter2" not in repr(result)


@pytest.mark.parametrize(
    ("breaking", "failure"),
    [
        ("import os; os._exit(3)", "ended with exit code 3 and printed nothing"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("raise SystemExit('no licence')", "no licence"),
    ],
)
def test_failure_caused_by_user_settings_is_reported_as_such(
    tmp_path: Path, breaking: str, failure: str
) -> None:
    result = reason(sys.executable, PYTHONPATH=with_sitecustomize(tmp_path, breaking))
    assert failure in result.partition(" when it is started")[0]
    assert SOUND_WHEN_ISOLATED in result
    assert result.endswith("(set here: PYTHONPATH)")


def test_wrong_home_is_named() -> None:
    result = reason(sys.executable, PYTHONHOME="/nowhere")
    assert SOUND_WHEN_ISOLATED in result
    assert "PYTHONHOME" in result


def test_failure_that_also_occurs_isolated_is_reported_once(tmp_path: Path) -> None:
    python = script(tmp_path / "python", "echo broken >&2; exit 1")
    assert reason(python) == f"{python} failed: broken; isolated (-I -S) it fails as well"


def test_program_that_echoes_its_arguments_is_not_an_interpreter(tmp_path: Path) -> None:
    python = script(tmp_path / "python", 'echo "$@"')
    assert "is not a Python interpreter" in reason(python)


def test_interpreter_that_only_prints_its_version_is_too_old(tmp_path: Path) -> None:
    python = script(tmp_path / "python", """printf '\\n%s{"too_old": "2.7.18"}\\n' "$3" """)
    assert "is Python 2.7.18, which is too old" in reason(python)


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_old_interpreter_reports_its_version(version: str) -> None:
    home = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    found = sorted((home / "versions").glob(f"{version}.*/bin/python"))
    found += [Path(f"/usr/bin/python{version}")]
    if not found[0].exists():
        pytest.skip(f"no Python {version} here")
    result = interpreter_at(found[0])
    if version == "2.7":
        assert isinstance(result, Unknown)
        assert "is Python 2.7." in result.reason
    else:
        assert isinstance(result, Interpreter)
        assert result.version.startswith(version)


def test_package_in_the_user_site_is_found(tmp_path: Path) -> None:
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    if not base.exists():
        pytest.skip("no interpreter outside of a virtual environment")
    folder = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    package = tmp_path / ".local" / "lib" / folder / "site-packages" / "verl"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    result = interpreter_at(base, HOME=str(tmp_path))
    assert isinstance(result, Interpreter)
    assert result.verl == str(package)


def test_safe_path_is_reported() -> None:
    for value, expected in (("1", sys.version_info >= (3, 11)), ("", False)):
        result = interpreter_at(sys.executable, PYTHONSAFEPATH=value)
        assert isinstance(result, Interpreter)
        assert result.safe_path is expected
