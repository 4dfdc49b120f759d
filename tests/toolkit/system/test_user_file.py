"""Files named by the user: endless files and silent pipes are refused at once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.places import MACHINES
from support.running import Doctor

from verl_doctor.toolkit.system import user_file
from verl_doctor.toolkit.target import UsageError


def test_file_is_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to("file")
    assert user_file.read(tmp_path / "link", 4) == b"four"
    assert user_file.read(tmp_path / "link", 3) is None


def test_endless_files_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(UsageError, match=f"{path} is a pipe or a device; name a file"):
            user_file.read(path, 10)


@pytest.mark.parametrize(
    ("name", "why"), [("none", "No such file"), (".", "Is a directory"), ("a\0", "null")]
)
def test_reasons_why_a_file_cannot_be_read(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be read: .*{why}"):
        user_file.read(tmp_path / name, 10)


def test_file_without_a_size_is_read_up_to_the_limit() -> None:
    assert user_file.read(Path("/proc/self/status"), 10) is None


def test_output_of_another_command_is_read() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 0.05; printf facts"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert user_file.read(Path(f"/dev/fd/{writer.stdout.fileno()}"), 10) == b"facts"


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--facts"),
        ("report", "--facts"),
        ("report", "--from"),
        ("compare",),
        ("checklist", "--from"),
        ("patches", "apply"),
        ("sites", "import"),
    ],
)
@pytest.mark.parametrize("special", ["pipe", "/dev/zero"])
def test_no_command_waits_or_reads_forever(
    here: Doctor, tmp_path: Path, words: tuple[str, ...], special: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    laptop = MACHINES / "laptop.json"
    (tmp_path / "laptop.json").write_bytes(laptop.read_bytes())
    done = here(*words, special, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{special} is a pipe or a device; name a file\n")
