"""No command that judges ends with 0 when it could not: commands times situations, with the exit code of each."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.running import Doctor, index_handed_on, ran

from verl_doctor.toolkit.commands.demo.demo import build
from verl_doctor.toolkit.engine import judge

DEEP = "def deep(x):\n    if x == 0:\n        pass\n" + "".join(
    f"    elif x == {number}:\n        pass\n" for number in range(1, 900)
)
SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
JUDGING = (
    *("check", "check --format json", "check --format sarif", "check --format junit", "check --format markdown"),
    *("check --format github", "fix", "fix --apply", "fix --format json", "fix --apply --format json", "report", "report --format json"),
)  # fmt: skip
Situation = Callable[[pytest.MonkeyPatch, Path], None]


def _no_temporary_folder(patch: pytest.MonkeyPatch, _site: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    patch.setattr(tempfile, "TemporaryDirectory", refuse)


def _a_source_too_deep(_patch: pytest.MonkeyPatch, site: Path) -> None:
    file = site / SERVER
    file.write_text(f"{file.read_text()}\n\n{DEEP}")


def _an_unreadable_source(patch: pytest.MonkeyPatch, site: Path) -> None:
    read = Path.read_bytes
    with (site / SERVER).open("a") as file:
        file.write("# not what was read before\n")

    def refuse(path: Path) -> bytes:
        if path.name == Path(SERVER).name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    patch.setattr(Path, "read_bytes", refuse)


def _every_rule_breaks(patch: pytest.MonkeyPatch, _site: Path) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("it broke")

    patch.setattr(judge, "_call", broken)


def _too_few_descriptors(patch: pytest.MonkeyPatch, _site: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    patch.setattr(tempfile, "TemporaryDirectory", refuse)


def _looking_breaks(patch: pytest.MonkeyPatch, _site: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("it broke")

    patch.setattr(tempfile, "TemporaryDirectory", broken)


SITUATIONS: tuple[Situation, ...] = (
    _no_temporary_folder,
    _too_few_descriptors,
    _looking_breaks,
    _a_source_too_deep,
    _an_unreadable_source,
    _every_rule_breaks,
)
SELECTED = ("--select", "VLLM102,VLLM103,PY100")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("judged") / "environment")


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__.strip("_"))
def test_unjudged_environment_exits_with_3(
    environment: Path, tmp_path: Path, here: Doctor, situation: Situation
) -> None:
    site = next(environment.glob("lib/python*/site-packages"))
    kept = (site / SERVER).read_text()
    codes = {}
    try:
        with pytest.MonkeyPatch.context() as patch:
            situation(patch, site)
            for words in JUDGING:
                done = here(*words.split(), *SELECTED, "--python", environment, cwd=tmp_path)
                codes[words] = done.returncode
                assert done.stdout, words
                assert "NOTHING TO REPAIR" not in done.stdout, words
    finally:
        (site / SERVER).write_text(kept)
    assert codes == dict.fromkeys(JUDGING, 3)


@pytest.mark.slow
def test_script_without_a_job_is_not_checked(environment: Path, tmp_path: Path, here: Doctor) -> None:
    (tmp_path / "run.sh").write_text("cat > inner.sh < template\nbash inner.sh\n")
    rules = ("--select", "CFG105,CFG106")
    done = here("check", "run.sh", *rules, "--python", environment, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith(
        "NOT CHECKED  the job could not be read: no command that starts verl was found"
    )
    ignored = here("check", "run.sh", *rules, "--ignore", "CFG105", "--python", environment, cwd=tmp_path)
    assert ignored.returncode == 0


PRINTING = (
    "check --select PY100",
    "check --format json --select PY100",
    "fix --select PY100",
    "fix --apply --select PY100",
    "report --select PY100",
    "environment",
    "patches list",
    "checklist",
    "compare a.json b.json",
    "logs run.log",
)
PRINTING_ALIKE = ("check --format json --select PY100", "fix --apply --select PY100", "logs run.log")
"""For the other streams one of each kind: a document, changes, an answer. All commands report in one place why they could not print."""


@pytest.mark.parametrize("command", ["patches list", "matrix"])
def test_failed_tree_search_is_not_a_usage_error(
    environment: Path, tmp_path: Path, here: Doctor, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    _no_temporary_folder(monkeypatch, environment)
    done = here(*command.split(), "--python", environment, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no folder for temporary files" in done.stderr


STREAMS = {
    "full stdout": (">/dev/full", 3),
    "closed stdout": (">&-", 3),
    "all closed": (">&- 2>&-", 3),
    "both full": (">/dev/full 2>&1", 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_unwritable_output_exits_with_3(environment: Path, tmp_path: Path, here: Doctor, name: str) -> None:
    redirected, expected = STREAMS[name]
    printing = PRINTING if name == "full stdout" else PRINTING_ALIKE
    (tmp_path / "run.log").write_text("Traceback (most recent call last):\nValueError: x\n")
    if "compare a.json b.json" in printing:
        here("snapshot", "a.json", "--python", environment, cwd=tmp_path)
        shutil.copy(tmp_path / "a.json", tmp_path / "b.json")
    script = "\n".join(
        f"python -m verl_doctor.toolkit {words} {'' if words.startswith(('logs', 'compare')) else f'--python {environment}'} {redirected}; echo $? >> codes"
        for words in printing
    )
    with index_handed_on():
        ran(["bash", "-c", script], tmp_path, {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    codes = dict(zip(printing, map(int, (tmp_path / "codes").read_text().split()), strict=True))
    assert codes == dict.fromkeys(printing, expected)


@pytest.mark.parametrize(
    ("columns", "lines"), [("0", "0"), ("0", "24"), ("x", "x"), ("-1", "0"), ("", ""), ("1", "1")]
)
def test_odd_terminal_sizes_hide_nothing(here: Doctor, tmp_path: Path, columns: str, lines: str) -> None:
    done = here("check", "--select", "PY100", cwd=tmp_path, COLUMNS=columns, LINES=lines)
    assert done.stdout.startswith(("NO FAULT FOUND", "NOT CHECKED"))
