"""The progress line appears only on a terminal, and is cleared."""

from __future__ import annotations

import ast
import fcntl
import io
import os
import struct
import sys
import termios
import threading
import time
from dataclasses import dataclass

import pytest
from support.places import ROOT

from verl_doctor.toolkit.console import progress
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import collector


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


BEGUN, END = threading.Event(), threading.Event()


@dataclass(frozen=True)
class Lasting:
    pass


@collector()
def lasting() -> Lasting:
    BEGUN.set()
    END.wait(120)
    return Lasting()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_QUIET", 0.02)
    monkeypatch.setattr(progress, "_STEP", 0.01)


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, wait: bool) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress() as line:
        line.show("reading \x1b[31mvllm")
        deadline = time.monotonic() + 120
        while wait and not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    return stream.getvalue()


def test_progress_is_shown_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    output = shown(Terminal(), monkeypatch, wait=True)
    assert "reading \\x1b[31mvllm" in output
    assert output.endswith("\r\x1b[2K")
    assert "\n" not in output


def test_collector_that_a_rule_waits_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection((lasting,), {})
    collection.start((Lasting,))
    assert BEGUN.wait(120)
    output = shown(Terminal(), monkeypatch, wait=True)
    END.set()
    assert "vllm; reading Lasting" in output
    collection.get(Lasting)
    assert "; reading" not in shown(Terminal(), monkeypatch, wait=True)


def test_short_run_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_QUIET", 60)
    assert shown(Terminal(), monkeypatch, wait=False) == ""


def test_progress_is_not_written_to_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress() as line:
        line.show("reading")
        time.sleep(0.1)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["a pipe", "a terminal"])
def test_finished_steps_remain_visible(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress() as line:
        line.show("reading")
        line.done("read \x1b[31mvllm")
    assert "read \\x1b[31mvllm\n" in stream.getvalue()


def printed_over(source: str) -> list[int]:
    """The lines that print while a line of progress may be on the terminal, other than by `Progress.done`."""
    blocks = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.With) and any("Progress()" in ast.unparse(item) for item in node.items)
    )
    calls = (node for block in blocks for node in ast.walk(block) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if ast.unparse(call.func) in {"print", "click.echo", "announce"}]


@pytest.mark.slow
def test_no_command_prints_over_the_line_of_progress() -> None:
    assert printed_over("with Progress() as line:\n    print(1)\n    line.done('2')\nprint(3)\n") == [2]
    sources = {path: path.read_text("utf-8") for path in (ROOT / "toolkit").rglob("*.py")}
    found = {
        str(path): lines
        for path, text in sources.items()
        if "Progress()" in text and (lines := printed_over(text))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("doing", "width", "line"),
    [("a long step", 12, " 0.0 s  a l"), ("数据文件", 12, " 0.0 s  数"), ("step", 0, " 0.0 s  step")],
)
def test_line_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, doing: str, width: int, line: str
) -> None:
    """A wrapped line could not be cleared, and would stay on the screen ten times a second."""
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    with open(terminal, "w", encoding="utf-8") as stderr:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stderr", stderr)
        shown_line = Progress()
        shown_line.show(doing)
        with shown_line:
            output = os.read(master, 1000).decode()
    os.close(master)
    assert output == f"\r\x1b[2K{line}"
