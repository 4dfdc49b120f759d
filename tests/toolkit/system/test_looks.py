"""Every way in which Python inspects a file is noticed, and every change of an inspected file."""
# ruff: noqa: PTH115, PTH116, PTH121, PTH123, PTH207, PTH208, PLW0108, UP020, SIM115 - ways that are to be noticed, looked up when they are called

from __future__ import annotations

import filecmp
import fileinput
import fnmatch
import glob
import importlib.machinery
import io
import linecache
import os
import shutil
import threading
import time
import tokenize
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.system.looks import states
from verl_doctor.toolkit.system.looks.looks import Kind, Looks, counted
from verl_doctor.toolkit.system.looks.states import CannotBeKeptError, what_changed
from verl_doctor.toolkit.system.looks.watching import watched


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change counts at once."""
    monkeypatch.setattr(states, "_TICKS", dict.fromkeys(states._TICKS, -60.0))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "file.py").write_text("x = 1\n")
    (tmp_path / "folder" / "link").symlink_to("file.py")
    return tmp_path


def in_folder(folder: Path, look: Callable[[int], Any]) -> Any:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return look(descriptor)
    finally:
        os.close(descriptor)


FILE: Mapping[str, Callable[[Path], Any]] = {
    "open": lambda path: open(path).close(),
    "io.open": lambda path: io.open(path, "rb").close(),
    "os.open": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "os.open in a folder": lambda path: os.close(
        in_folder(path.parent, lambda fd: os.open(path.name, 0, dir_fd=fd))
    ),
    "tokenize.open": lambda path: tokenize.open(path).close(),
    "fileinput": lambda path: list(fileinput.input([path])),
    "linecache": lambda path: linecache.updatecache(str(path)),
    "zipfile.is_zipfile": zipfile.is_zipfile,
    "SourceFileLoader": lambda path: importlib.machinery.SourceFileLoader("x", str(path)).get_data(str(path)),
    "os.stat": lambda path: os.stat(path),
    "os.stat by bytes": lambda path: os.stat(os.fsencode(path)),
    "os.stat in a folder": lambda path: in_folder(path.parent, lambda fd: os.stat(path.name, dir_fd=fd)),
    "os.lstat": lambda path: os.lstat(path),
    "os.access": lambda path: os.access(path, os.R_OK),
    "exists": os.path.exists,
    "lexists": os.path.lexists,
    "isfile": os.path.isfile,
    "isdir": os.path.isdir,
    "islink": os.path.islink,
    "getmtime": os.path.getmtime,
    "getsize": os.path.getsize,
    "samefile": lambda path: os.path.samefile(path, path.parent),
    "realpath": os.path.realpath,
    "filecmp": lambda path: filecmp.cmp(path, path.parent / "link", shallow=False),
    "shutil.which": lambda path: shutil.which(path.name, path=str(path.parent)),
    "scandir, stat": lambda path: [entry.stat() for entry in os.scandir(path.parent)],
    "scandir of a descriptor": lambda path: in_folder(
        path.parent, lambda fd: [entry.stat() for entry in os.scandir(fd)]
    ),
    "Path.stat": lambda path: path.stat(),
    "Path.lstat": lambda path: path.lstat(),
    "Path.exists": lambda path: path.exists(),
    "Path.is_file": lambda path: path.is_file(),
    "Path.is_dir": lambda path: path.is_dir(),
    "Path.is_symlink": lambda path: path.is_symlink(),
    "Path.read_bytes": lambda path: path.read_bytes(),
    "Path.open": lambda path: path.open().close(),
    "Path.resolve": lambda path: path.resolve(),
    "Path.samefile": lambda path: path.samefile(path),
    "Path.owner": lambda path: path.owner(),
}

FOLDER: Mapping[str, Callable[[Path], Any]] = {
    "listdir": lambda path: os.listdir(path),
    "listdir of a descriptor": lambda path: in_folder(path, lambda fd: os.listdir(fd)),
    "scandir": lambda path: list(os.scandir(path)),
    "walk": lambda path: list(os.walk(path)),
    "fwalk": lambda path: list(os.fwalk(path)),
    "glob": lambda path: glob.glob(f"{path}/*"),
    "glob **": lambda path: glob.glob(f"{path}/**", recursive=True),
    "glob of one name": lambda path: glob.glob(f"{path.parent}/*/file.py"),
    "fnmatch": lambda path: fnmatch.filter(os.listdir(path), "*.py"),
    "iterdir": lambda path: list(path.iterdir()),
    "Path.glob": lambda path: list(path.glob("*.py")),
    "Path.glob of one name": lambda path: list(path.parent.glob("*/file.py")),
    "Path.rglob": lambda path: list(path.rglob("*.py")),
}


def state_after(look: Callable[[], Any]) -> Any:
    with watched([]) as seen, counted("a fact"):
        look()
    return seen.record(time.time())


@pytest.mark.parametrize("way", FILE)
def test_file(place: Path, way: str) -> None:
    path = place / "folder" / "file.py"
    record = state_after(lambda: FILE[way](path))
    assert what_changed(record) == ""
    path.unlink()
    assert what_changed(record)


@pytest.mark.parametrize("way", [way for way in FILE if not way.startswith("scandir")])
def test_missing_file(place: Path, way: str) -> None:
    path = place / "folder" / "file.py"
    path.unlink()

    def look() -> None:
        try:
            FILE[way](path)
        except (OSError, KeyError):
            return

    record = state_after(look)
    assert what_changed(record) == ""
    path.write_text("")
    assert what_changed(record)


@pytest.mark.parametrize("way", FOLDER)
def test_folder(place: Path, way: str) -> None:
    folder = place / "folder"
    record = state_after(lambda: FOLDER[way](folder))
    assert what_changed(record) == ""
    if "one name" in way:
        (folder / "file.py").unlink()
    else:
        (folder / "new.py").write_text("")
    assert what_changed(record)


@pytest.mark.parametrize(
    "look", [lambda path: os.readlink(path), os.path.realpath, Path.readlink, Path.resolve, Path.is_symlink]
)
def test_link(place: Path, look: Callable[[Path], Any]) -> None:
    link = place / "folder" / "link"
    record = state_after(lambda: look(link))
    assert what_changed(record) == ""
    link.unlink()
    link.symlink_to("inner")
    assert what_changed(record)


def test_unread_files_do_not_matter(place: Path) -> None:
    record = state_after(lambda: (place / "folder" / "file.py").read_text())
    (place / "folder" / "other").write_text("")
    assert what_changed(record) == ""


def test_all_functions_are_restored(place: Path) -> None:
    before = {
        name: getattr(os, name)
        for name in ("stat", "lstat", "readlink", "access", "open", "scandir", "statvfs")
    }
    with watched([]):
        assert os.stat is not before["stat"]
        assert os.stat in os.supports_dir_fd
    assert {name: getattr(os, name) for name in before} == before
    assert list(Path(place).glob("*"))


def test_kernel_files_prevent_recording_of_the_reading_collector(place: Path) -> None:
    """Kernel files cannot be compared: the fact of a collector that reads them is not kept. Other readers do not matter."""
    with watched([]) as seen:
        Path("/proc/self/stat").read_bytes()
    assert not seen.unkept
    seen.record(time.time())
    with watched([]) as seen, counted("a fact"):
        Path("/proc/self/stat").read_bytes()
    assert seen.unkept == {"a fact"}
    with watched([]) as seen, counted("a fact"):
        Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    with pytest.raises(CannotBeKeptError, match="sysfs"):
        seen.record(time.time())


def test_threads_count_as_their_creator(place: Path) -> None:
    path = place / "folder" / "file.py"

    def look() -> None:
        thread = threading.Thread(target=path.read_text)
        thread.start()
        thread.join()

    record = state_after(look)
    path.unlink()
    assert what_changed(record)


def test_late_collector_may_run_while_the_record_is_made() -> None:
    found = Looks((), ())

    class Late(str):
        __slots__ = ()

        def rpartition(self, separator: str, /) -> tuple[str, str, str]:
            kinds: tuple[Kind, ...] = ("followed", "links", "listed")
            for kind in kinds:
                found.add(f"/added/{len(found._paths['followed'])}", kind)
            found.add_access(f"/added/{len(found._access)}", os.R_OK, answer=False)
            return super().rpartition(separator)

    found._paths["followed"].add(Late("/late/name"))
    found._paths["links"].add(Late("/late/link"))
    assert found.record(time.time())["rows"]
