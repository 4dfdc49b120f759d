"""The output of every command on healthy, failing and empty targets, on terminals of 80x24 and 200x50, in one page to read.

`cd tests && python -m support.golden` rewrites `golden/page.txt`. What differs between machines and runs (paths, releases, times)
is replaced by something of the same length.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest import mock

from rich.console import Console

from support import answers, environment
from support.machine_facts import Facts, edited, healthy_node, known
from support.machine_faults import FAULTS
from support.places import TESTS
from support.running import machine_asked_once
from verl_doctor.toolkit.cli.main import cli, main
from verl_doctor.toolkit.commands.demo.demo import build
from verl_doctor.toolkit.console import terminal, view
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.engine import factsfile

PAGE = TESTS / "golden" / "page.txt"
SIZES = ((80, 24), (200, 50))
_OF_ONE_SIZE = frozenset({"help", "explain", "undo", "patches", "guard", "script"})
"""Commands whose output does not depend on the terminal: they are shown once."""

_FAULTY = frozenset(
    {"HOST102", "HOST103", "HOST106", "HOST108", "NET101", "NET102", "NET107", "CUDA113", "ENV105"}
)
"""What is broken on the failing machine."""
_LOG = """\
Traceback (most recent call last):
  File "/env/verl/verl/workers/rollout/vllm_rollout/vllm_async_server.py", line 36, in <module>
    from vllm.worker.worker_base import WorkerWrapperBase
ModuleNotFoundError: No module named 'vllm.worker'
"""
_SCRIPT = "set -e\npython3 -m verl.trainer.main_ppo data.train_batch_size=4\n"

COMMANDS: Sequence[tuple[str, str]] = (
    ("", "help"),
    ("patches", "help"),
    ("help check", "help"),
    ("chekc", "help"),
    ("check --facts healthy.json --select HOST,NET,CUDA,ENV", "healthy"),
    ("check --facts failing.json --select HOST,NET,CUDA,ENV", "failing"),
    ("check --facts empty.json", "empty"),
    ("check -q --facts failing.json --select HOST,NET,CUDA,ENV", "failing"),
    ("check --select VLLM --python miniature", "failing"),
    ("check -v --select VLLM --python miniature", "failing"),
    ("fix --select VLLM --python miniature", "failing"),
    ("fix --select VLLM101 --apply --python miniature", "failing"),
    ("undo --list --python miniature", "failing"),
    ("patches list --python miniature", "failing"),
    ("patches verify --python miniature", "failing"),
    ("undo --python miniature", "failing"),
    ("undo --list", "empty"),
    ("patches list", "empty"),
    ("script run.sh --debug", "empty"),
    ("guard", "empty"),
    ("guard --agree", "empty"),
    ("logs healthy.log", "healthy"),
    ("logs failing.log", "failing"),
    ("logs empty.log", "empty"),
    ("actors --facts healthy.json", "healthy"),
    ("actors --facts empty.json", "empty"),
    ("explain variables --facts healthy.json", "healthy"),
    ("explain variables --facts empty.json", "empty"),
    ("explain --plugins", "empty"),
    ("compare healthy.json failing.json", "failing"),
    ("compare healthy.json healthy.json", "healthy"),
    ("compare empty.json empty.json", "empty"),
)


@dataclass(frozen=True)
class Shown:
    """Output of one command on one terminal."""

    title: str
    stdout: str
    stderr: str
    code: int

    def lines(self) -> Iterator[str]:
        """Yield them as a part of the page."""
        yield f"$ {self.title}  # ends with {self.code}"
        yield from (f"! {line}" for line in self.stderr.splitlines())
        yield from self.stdout.splitlines()
        yield ""


def page() -> str:
    """Run all commands and render all sample answers."""
    with _folder() as folder, machine_asked_once():
        parts = [*_commands(folder), *_samples()]
    return "".join(f"{line}".rstrip() + "\n" for part in parts for line in part.lines())


def _commands(folder: Path) -> Iterator[Shown]:
    for command, target in COMMANDS:
        is_one = not command or command.split()[0] in _OF_ONE_SIZE or target == "help"
        for width, height in SIZES[:1] if is_one else SIZES:
            shown = _run(command.split(), folder, width, height)
            title = f"verl-doctor {command}".rstrip()
            yield Shown(f"{title}  [{target}, {width}x{height}]", *shown)


def _samples() -> Iterator[Shown]:
    """Commands that look at the machine itself: their answers to samples."""
    for name, answer in answers.SAMPLES.items():
        for width, height in SIZES[: 1 if name.startswith("report") else None]:
            with _terminal(width, height):
                out = StringIO()
                view.write(answer, "text", out)
            title = f"verl-doctor {name}  [sample, {width}x{height}]"
            yield Shown(title, normal(out.getvalue(), None), "", int(_code(answer)))


def _code(answer: Answer) -> int:
    return answer.exit_code()


def _run(words: Sequence[str], folder: Path, width: int, height: int) -> tuple[str, str, int]:
    out, err = StringIO(), StringIO()
    code = 0
    with (
        _terminal(width, height),
        mock.patch("verl_doctor.toolkit.cli.main.end_stdout"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return normal(out.getvalue(), folder), normal(err.getvalue(), folder), code


@contextlib.contextmanager
def _terminal(width: int, height: int) -> Iterator[None]:
    """Render answers for a terminal of this size, without colours."""

    def console(file: StringIO) -> Console:
        made = terminal._Console(file=file, highlight=False, markup=False, emoji=False, force_terminal=True)
        made._color_system = None
        made.size = made.size.__class__(width, height)
        return made

    with mock.patch.dict(os.environ, FORCE_COLOR="1"), mock.patch.object(terminal, "console_for", console):
        yield


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A home with the targets, in which the commands run."""
    folder = Path(tempfile.mkdtemp(prefix="vd-golden-", dir="/tmp"))  # its length decides where lines break
    before, cwd = dict(os.environ), Path.cwd()
    try:
        _fill(folder)
        for name in [
            name for name in os.environ if name.startswith(("XDG_", "CONDA_", "VIRTUAL_ENV", "RAY_"))
        ]:
            del os.environ[name]
        os.environ["HOME"] = str(folder)
        os.chdir(folder)
        yield folder
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder)


def _fill(folder: Path) -> None:
    failing = healthy_node()
    for fault in FAULTS:
        if fault.code in _FAULTY and fault.node is healthy_node:
            failing = edited(failing, fault.edits)
    (folder / "healthy.json").write_text(_facts_file(healthy_node()))
    (folder / "failing.json").write_text(_facts_file(failing))
    (folder / "empty.json").write_text('{"schema_version": 1, "verl_doctor": "0", "facts": {}}')
    (folder / "run.sh").write_text(_SCRIPT)
    (folder / "failing.log").write_text(_LOG)
    (folder / "healthy.log").write_text("step:1 - critic/score/mean:0.5\nstep:2 - critic/score/mean:0.6\n")
    (folder / "empty.log").touch()
    build(folder / "miniature")


def _facts_file(facts: Facts) -> str:
    """Return the facts as a file, without the path of the checkout."""
    return factsfile.dump(facts, known().collectors, "0").replace(str(TESTS), "/recorded")


_SAME_LENGTH = (
    (re.compile(r"/tmp/vd-golden-\w{8}"), "/tmp/vd-golden-00000000"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?"), r"2026-01-01\g<1>00:00:00"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "2026-01-01 00:00 UTC"),
    (re.compile(r"\b\d+\.\d s\b"), "0.0 s"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "0" * 12),
    (re.compile(r"(?<=verl-doctor )\d+\.\d+\.\d+\S*"), "0.0.0"),
    (re.compile(r"\b3\.1\d\.\d+\b"), "3.0.0"),
    (re.compile(r"python3\.1\d\b"), "python3.0"),
)


def normal(text: str, folder: Path | None) -> str:
    """Replace values that differ between machines and runs."""
    own = [(re.escape(sys.executable), "/own/python")]
    if folder is not None:
        own.append((re.escape(str(folder)), "/tmp/vd-golden-00000000"))
    for path, name in own:
        text = re.sub(path, name, text)
    for pattern, name in _SAME_LENGTH:
        text = pattern.sub(name, text)
    return text


def listed() -> Sequence[str]:
    """Name the commands of the help."""
    return list(cli.visible())


if __name__ == "__main__":
    environment.clean()
    PAGE.write_text(page(), encoding="utf-8")
