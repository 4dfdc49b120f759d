"""Files named by the user are written completely or not at all."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.console.output import (
    AGREEMENT,
    ANSWER,
    FACTS,
    PATCHES,
    PICTURE,
    Kind,
    refuse_inputs,
    refuse_others,
    write,
)
from verl_doctor.toolkit.target import UsageError


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_private_file_is_readable_only_by_its_owner(tmp_path: Path, umask: int) -> None:
    path, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("x")
    old.chmod(0o664)
    for file in (path, old):
        write(file, "text", private=True)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, old)] == [0o600, 0o664]


def test_new_file_follows_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "facts.json"
    write(path, "new\n")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert names(tmp_path) == ["facts.json"]


def test_replaced_file_keeps_permissions_and_links(tmp_path: Path) -> None:
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


def test_broken_link_gets_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "facts.json")
    write(tmp_path / "link", "new")
    assert (tmp_path / "facts.json").read_text() == "new"


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "facts.json"
    path.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match=r"facts\.json cannot be written: No space left on device$"):
        write(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["facts.json"]


def test_file_that_cannot_be_replaced_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single file that is mounted into a container."""
    path = tmp_path / "facts.json"
    path.write_text("old")

    def busy(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    write(path, "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["facts.json"]


def test_failed_in_place_write_restores_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "facts.json"
    path.write_text("old")
    written = Path.write_bytes

    def busy(self: Path, target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    def full(self: Path, content: bytes) -> int:
        number = written(self, content[:4])
        if number < len(content):
            raise OSError(28, "No space left on device")
        return number

    monkeypatch.setattr(Path, "replace", busy)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write(path, "new and longer")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no/such/folder", "No such file or directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", ".*embedded null .*"),
    ],
)
def test_unwritable_path_is_a_usage_error(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be written: {reason}$"):
        write(tmp_path / name, "new")
    assert names(tmp_path) == []


def test_full_device_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"^/dev/full cannot be written: No space left on device$"):
        write(Path("/dev/full"), "new")


def test_named_pipe_can_be_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="pipe cannot be written: no process reads it"):
        write(pipe, "new")
    large = "new" * 50_000  # more than a pipe holds
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        writer = threading.Thread(target=write, args=(pipe, large), daemon=True)
        writer.start()
        select.select([reader], [], [], 120)
        os.set_blocking(reader.fileno(), True)
        assert reader.read() == large
        writer.join(120)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


WRITER = """
from pathlib import Path
from verl_doctor.toolkit.console.output import (ANSWER, AGREEMENT, FACTS, PATCHES, PICTURE, Kind, refuse_inputs, refuse_others, write)
write(Path("/dev/stdout"), "facts\\n")
print("report")
"""


@pytest.mark.parametrize("into_a_file", [False, True], ids=["pipe", "file"])
def test_standard_output_can_be_written(tmp_path: Path, into_a_file: bool) -> None:
    with (tmp_path / "out").open("w+") as out:
        done = subprocess.run(
            [sys.executable, "-c", WRITER],
            stdout=out if into_a_file else subprocess.PIPE,
            text=True,
            check=True,
        )
        out.seek(0)
        assert (out.read() if into_a_file else done.stdout) == "facts\nreport\n"


OURS = {
    FACTS: '{\n "schema_version": 1,\n "verl_doctor": "0.1.0",\n "facts": {}\n}\n',
    AGREEMENT: '{"schema_version": 1, "verl_doctor": "0.1.0", "agreed": {}}',
    PATCHES: '{\n "schema_version": 1,\n "verl_doctor": "0.1.0",\n "verl": "0.9",\n "patches": []\n}\n',
    PICTURE: '<svg xmlns="http://www.w3.org/2000/svg" class="vd" role="img"></svg>',
    ANSWER: '{\n  "schema_version": 1,\n  "verdict": "ok"\n}\n',
}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.name)
def test_only_files_of_the_same_kind_are_replaced(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "file"
    refuse_others(path, kind)
    for other, content in {None: "", **OURS}.items():
        path.write_text(content)
        if other in (None, kind):
            refuse_others(path, kind)
        else:
            with pytest.raises(UsageError, match=f"is not a verl-doctor {kind.name}: name another file, or"):
                refuse_others(path, kind)


@pytest.mark.parametrize(
    "content",
    [
        "#!/bin/bash\npython -m verl.trainer.main_ppo # after verl-doctor check\n",
        '{"facts": {"sky": "blue"}}',
        "FAIL  1 error\nverl-doctor: see above\n",
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
        "INFO  2026-11-22 verl-doctor guard: agreed\n",
    ],
)
def test_files_written_by_a_person_are_never_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    for kind in OURS:
        with pytest.raises(UsageError, match="exists and is not a"):
            refuse_others(path, kind)


def test_link_is_judged_by_its_target(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("three years")
    (tmp_path / "out.json").symlink_to("thesis")
    with pytest.raises(UsageError, match=r"out\.json exists and is not a verl-doctor facts file or snapshot"):
        refuse_others(tmp_path / "out.json", FACTS)


def test_special_files_can_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/full")):
        refuse_others(path, ANSWER)


def test_input_file_cannot_be_the_output(tmp_path: Path) -> None:
    (tmp_path / "o.log").write_text("")
    (tmp_path / "link").symlink_to("o.log")
    refuse_inputs(tmp_path / "new", [tmp_path / "o.log", "-"])
    with pytest.raises(UsageError, match="link is what is read: name another file to write to"):
        refuse_inputs(tmp_path / "link", ["-", tmp_path / "o.log"])


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to create another user's files")


@as_root
def test_link_of_another_user_in_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    """The kernel refuses it too (fs.protected_symlinks), but not where the path was resolved before."""
    shared, home = tmp_path / "shared", tmp_path / "home"
    for folder in (shared, home):
        folder.mkdir()
    (shared / "report").symlink_to(home / "new")
    (shared / "folder").symlink_to(home)
    shared.chmod(0o1777)
    write(shared / "report", "ours")
    (home / "new").unlink()
    for link in ("report", "folder"):
        os.chown(shared / link, 65534, 65534, follow_symlinks=False)
    for path in (shared / "report", shared / "folder" / "new"):
        for use in (lambda: write(path, "text"), lambda: refuse_others(path, ANSWER)):  # noqa: B023 - used here
            with pytest.raises(UsageError, match="is a link of user 65534"):
                use()
    assert not names(home)
    shared.chmod(0o755)
    write(shared / "report", "text")
    assert names(home) == ["new"]


@as_root
def test_private_file_is_not_given_to_another_user(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.touch(0o666)
    os.chown(path, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to user 65534, who could read it"):
        write(path, "text", private=True)
    assert not path.read_bytes()
    write(path, "text")
    assert path.read_text() == "text"
