from __future__ import annotations

import errno
import os
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from verl_doctor.toolkit.console import view
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.streams import CannotPrintError
from verl_doctor.toolkit.console.view import show


class Well(Answer):
    def document(self) -> dict[str, str]:
        return {"verdict": "ok"}

    def text_lines(self, width: int | None) -> list[str]:
        return []

    def markdown_lines(self) -> list[str]:
        return ["## well"]

    def exit_code(self) -> int:
        return 0


ANSWER = Well()


class Full(StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("next_step", "message"),
    [("", "No space left on device$"), ("undo it", "No space left on device; undo it$")],
)
def test_failed_write_to_stdout_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, next_step: str, message: str
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(view, "give_up_stdout", lambda: None)
    with pytest.raises(CannotPrintError, match=f"^the report cannot be written to stdout: {message}"):
        show(ANSWER, "markdown", None, next_step=next_step)


def test_unknown_format_is_an_error() -> None:
    with pytest.raises(KeyError):
        show(ANSWER, "github", Path("never-written"))


def test_verdict_at_the_end_of_a_long_output_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = f"WILL FAIL  {'a sentence that goes on ' * 6}(HOST108, run.sh:3)"

    class Long(Well):
        def text_lines(self, width: int | None) -> list[str]:
            return [verdict, *["evidence"] * 30]

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    monkeypatch.setattr(view, "_console", lambda _: console)
    view.write(Long(), "text", out)
    last = out.getvalue().rpartition("evidence\n\n")[2].splitlines()
    assert " ".join(last).split() == verdict.split()
    assert max(map(len, last)) <= 80
    assert last[-1].endswith("(HOST108, run.sh:3)")
