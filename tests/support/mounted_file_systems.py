"""Repairs and undoes a miniature on a file system of its own that is full, has a quota or shares blocks between files.

    unshare --mount --fork --pid --mount-proc --kill-child python tests/support/mounted_file_systems.py KIND

KIND is "blocks" or "inodes" for a tmpfs that is full, "btrfs quota", or "btrfs copy" or "xfs copy" for an environment that is a copy of
another one by reference. Exits with 77 where the kernel or a program lacks it, and prints why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from support.places import ROOT
from verl_doctor.toolkit.commands.demo.demo import build

PLACE = Path("/mnt")
SELECTED = ("--select", "VLLM101,ENV101")
_LEFT = {"blocks": (0, 6, 80), "inodes": (0, 6, 60), "btrfs quota": (0, 400)}


def sh(*words: object) -> str:
    """Run a program."""
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def mount(kind: str) -> Path:
    """Mount a file system of this kind. Exits if there is none."""
    sh("mount", "--make-rprivate", "/")
    for folder in (Path("/tmp"), Path("/dev/shm")):
        sh("mount", "-t", "tmpfs", "-o", "mode=1777,size=1g", "none", PLACE)
        for kept in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):  # what runs here may lie below /tmp
            if kept.is_relative_to(folder):
                here = PLACE / kept.relative_to(folder)
                here.mkdir(parents=True, exist_ok=True)
                sh("mount", "--bind", kept, here)
        sh("mount", "--move", PLACE, folder)
    if kind in ("blocks", "inodes"):
        room = "size=24m" if kind == "blocks" else "size=64m,nr_inodes=2500"
        sh("mount", "-t", "tmpfs", "-o", f"mode=755,{room}", "none", PLACE)
        return PLACE
    name = kind.partition(" ")[0]
    if f"\t{name}\n" not in Path("/proc/filesystems").read_text() or not shutil.which(f"mkfs.{name}"):
        print(f"this machine has no {name}, or no mkfs.{name}", file=sys.stderr)
        sys.exit(77)
    image = Path("/tmp/image")
    with image.open("wb") as file:
        file.truncate(400 * 2**20)
    sh(f"mkfs.{name}", "-q", image)
    sh("mount", "-o", "loop", image, PLACE)
    if kind == "btrfs quota":
        sh("btrfs", "quota", "enable", PLACE)
        sh("btrfs", "subvolume", "create", PLACE / "limited")
        return PLACE / "limited"
    return PLACE


class Room:
    """Leaves so little room, and makes room again."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place, self.fill = kind, place, place / "fill"

    def leave(self, few: int) -> None:
        """Leave this many blocks of 4 KiB, or inodes."""
        if self.kind == "btrfs quota":
            sh("sync")
            (number,) = (
                line.split()
                for line in sh("btrfs", "qgroup", "show", "--raw", "-f", self.place).splitlines()
                if line[:2] == "0/"
            )
            sh("btrfs", "qgroup", "limit", int(number[1]) + few * 4096, number[0], PLACE)
        elif self.kind == "inodes":
            self.fill.mkdir()
            numbers = []
            try:
                while True:
                    (self.fill / str(len(numbers))).touch()
                    numbers.append(len(numbers))
            except OSError:
                for number in numbers[-few:] if few else ():
                    (self.fill / str(number)).unlink()
        else:
            with self.fill.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    file.truncate(max(file.tell() // 4096 - few, 0) * 4096)

    def make(self) -> None:
        """Make room again."""
        if self.kind == "btrfs quota":
            number = next(
                line.split()[0]
                for line in sh("btrfs", "qgroup", "show", "-f", self.place).splitlines()
                if line[:2] == "0/"
            )
            sh("btrfs", "qgroup", "limit", "none", number, PLACE)
        else:
            shutil.rmtree(self.fill) if self.fill.is_dir() else self.fill.unlink()


def tree(*folders: Path) -> dict[str, bytes]:
    """Return the bytes of all files, without the journal and bytecode."""
    return {
        str(file): file.read_bytes()
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and not {"__pycache__", ".verl-doctor"} & set(file.parts)
    }


class Job:
    """A miniature with a script, in a home of its own."""

    def __init__(self, place: Path) -> None:
        self.environment, self.folder, self.home = place / "environment", place / "job", place / "home"
        if not self.environment.exists():
            build(self.environment)
        for folder in (self.folder, self.home):
            folder.mkdir(exist_ok=True)
        (self.folder / "run.sh").write_text(
            "export VLLM_USE_V1=0\npython3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=8\n"
        )

    def doctor(self, *words: str, files: Iterable[str] = ("run.sh",)) -> subprocess.CompletedProcess[str]:
        """Run a command on it."""
        python = ("--python", str(self.environment / "bin/python"))
        homes = {
            "XDG_CACHE_HOME": f"{self.home}/cache",
            "XDG_STATE_HOME": f"{self.home}/state",
            "HOME": str(self.home),
        }
        done = subprocess.run(
            [sys.executable, "-m", "verl_doctor.toolkit", *words, *files, *python],
            cwd=self.folder,
            env={**os.environ, **homes},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done
        return done

    def apply(self) -> subprocess.CompletedProcess[str]:
        """Repair it."""
        return self.doctor("fix", "--apply", *SELECTED)

    def undo(self) -> subprocess.CompletedProcess[str]:
        """Undo all repairs."""
        return self.doctor("undo", "--all", files=())

    @property
    def tree(self) -> dict[str, bytes]:
        """What may change."""
        return tree(self.environment, self.folder)


def full(kind: str, place: Path) -> None:
    """Repair, undo, check and write with less and less room: files are old or new, and undone whole once there is room."""
    job, room = Job(place), Room(kind, place)
    old = job.tree
    assert job.apply().returncode in (0, 1)
    new = job.tree
    assert new != old
    assert job.undo().returncode == 0
    assert job.tree == old
    for few in _LEFT[kind]:
        room.leave(few)
        applied = job.apply()
        room.make()
        now = job.tree
        assert now.keys() == old.keys(), few
        assert all(now[name] in (old[name], new[name]) for name in old), few
        assert applied.returncode != 0 or now == new, (few, applied)
        assert job.undo().returncode == 0
        assert job.tree == old, few
        job.apply()
        assert job.tree == new, few
        room.leave(few)
        undone = job.undo()
        room.make()
        now = job.tree
        assert all(now[name] in (old[name], new[name]) for name in old), (few, undone)
        assert undone.returncode != 0 or now == old, (few, undone)
        job.undo()
        assert job.tree == old, few
    room.leave(0)
    for words in (("check",), ("check", "--format", "json"), ("fix",)):
        done = job.doctor(*words, *SELECTED)
        assert (done.returncode, bool(done.stdout)) == (1, True), done
    for words in (
        ("check", "--output", "o"),
        ("snapshot", "k.json"),
        ("report", "--output", "r"),
        ("guard", "--agree", "--lock", "l"),
    ):
        done = job.doctor(*words, files=())
        assert done.returncode in (2, 3), done
        assert any(why in done.stderr for why in ("No space left", "quota")), done
    cleaned = job.doctor("clean", "--apply", files=())  # there is nothing, and the journal cannot be written
    assert (cleaned.returncode, bool(cleaned.stdout)) == (0, True), cleaned
    assert job.tree == old
    room.make()


def copied(place: Path) -> None:
    """Repair an environment that shares its blocks with another one: the other one keeps its bytes, and undo restores all."""
    build(place / "other")
    sh("cp", "-a", "--reflink=always", place / "other", place / "environment")
    job = Job(place)
    old, other = job.tree, tree(place / "other")
    about = {name: Path(name).stat() for name in old}
    time.sleep(0.05)
    assert job.apply().returncode in (0, 1)
    assert job.tree != old
    assert tree(place / "other") == other
    assert job.undo().returncode == 0
    assert job.tree == old
    for name, before in about.items():
        after = Path(name).stat()
        kept = ("st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_ino", "st_nlink")
        assert [getattr(after, field) for field in kept] == [getattr(before, field) for field in kept], name
    assert tree(place / "other") == other


if __name__ == "__main__":
    full(sys.argv[1], mount(sys.argv[1])) if sys.argv[1] in _LEFT else copied(mount(sys.argv[1]))
