"""Commands replace files of a person only on request, and their own earlier output always."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.places import MACHINES
from support.running import Doctor

LOG = "step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
MINE = "#!/bin/bash\necho mine\n"

COMMANDS: dict[str, tuple[str, ...]] = {
    "snapshot": ("snapshot", "FILE"),
    "facts": ("check", "--facts", "laptop.json", "--save-facts", "FILE"),
    "guard": ("guard", "--agree", "FILE"),
    "svg": ("logs", "o.log", "--svg", "FILE"),
    "patches": ("patches", "export", "FILE"),
    **{
        f"check {form}": ("check", "--facts", "laptop.json", "--format", form, "--output", "FILE")
        for form in ("text", "json", "markdown", "sarif", "junit", "github")
    },
    **{
        f"{words[0]} {form}": (*words, "--format", form, "--output", "FILE")
        for form in ("text", "json", "markdown")
        for words in (("logs", "o.log"), ("compare", "laptop.json", "laptop.json"))
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    laptop = MACHINES / "laptop.json"
    (tmp_path / "laptop.json").write_bytes(laptop.read_bytes())
    (tmp_path / "o.log").write_text(LOG)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_files_written_by_a_person_are_not_overwritten(here: Doctor, folder: Path, name: str) -> None:
    (folder / "run.sh").write_text(MINE)
    done = here(*(word.replace("FILE", "run.sh") for word in COMMANDS[name]), cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "run.sh exists and is not a " in done.stderr
    assert done.stderr.endswith(": name another file, or add --force\n")
    assert (folder / "run.sh").read_text() == MINE


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith(("check", "logs", "compare"))])
def test_files_written_by_the_command_are_replaced(here: Doctor, folder: Path, name: str) -> None:
    words = COMMANDS[name]
    first = here(*words, cwd=folder)
    again = here(*words, cwd=folder)
    assert first.returncode == again.returncode != 2, again.stderr
    (folder / "FILE").write_text(MINE)
    forced = here(*words, "--force", cwd=folder)
    assert forced.returncode == first.returncode
    assert (folder / "FILE").read_text() != MINE


def test_log_is_not_overwritten_by_its_report(here: Doctor, folder: Path) -> None:
    log = folder / "run.log"
    log.write_text("WARN  1 warning\n  Python 3.11\n" + LOG)
    done = here("logs", "run.log", "--output", "run.log", cwd=folder)
    assert done.returncode == 2
    assert "run.log is what is read: name another file to write to" in done.stderr
    assert log.read_text().endswith(LOG)
