"""Files that the user named: whole or not there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.output import write
from verl_doctor.toolkit.target import UsageError


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "facts.json"
    write(path, "new\n")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert names(tmp_path) == ["facts.json"]


def test_an_old_file_is_replaced_and_keeps_its_permissions_and_the_links_to_it(tmp_path: Path) -> None:
    path, link = tmp_path / "facts.json", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o604)
    link.symlink_to(path)
    with path.open() as reader:
        write(link, "new")
        assert reader.read() == "old", "written into the file that somebody reads"
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_link_that_leads_nowhere_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "facts.json")
    write(tmp_path / "link", "new")
    assert (tmp_path / "facts.json").read_text() == "new"


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "facts.json"
    path.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match=r"facts\.json cannot be written: No space left on device$"):
        write(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["facts.json"]


def test_a_file_that_cannot_be_replaced_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single file that is mounted into a container."""
    path = tmp_path / "facts.json"
    path.write_text("old")

    def busy(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write(path, "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["facts.json"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no/such/folder", "No such file or directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", ".*embedded null .*"),
    ],
)
def test_a_path_that_cannot_be_written_is_a_usage_error(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be written: {reason}$"):
        write(tmp_path / name, "new")
    assert names(tmp_path) == []


def test_a_device_that_is_full_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"^/dev/full cannot be written: No space left on device$"):
        write(Path("/dev/full"), "new")


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write, args=(pipe, "new"), daemon=True)
    writer.start()
    assert pipe.read_text() == "new"
    writer.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


WRITER = """
from pathlib import Path
from verl_doctor.toolkit.output import write
write(Path("/dev/stdout"), "facts\\n")
print("report")
"""


@pytest.mark.parametrize("into_a_file", [False, True], ids=["pipe", "file"])
def test_standard_output_is_written_to(tmp_path: Path, into_a_file: bool) -> None:
    with (tmp_path / "out").open("w+") as out:
        done = subprocess.run(
            [sys.executable, "-c", WRITER],
            stdout=out if into_a_file else subprocess.PIPE,
            text=True,
            check=True,
        )
        out.seek(0)
        assert (out.read() if into_a_file else done.stdout) == "facts\nreport\n"
