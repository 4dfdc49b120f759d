"""Location and cached share of weights, on the file systems of this machine and on recorded ones."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from support.evicted import evict
from support.trying import unless_disturbed

from verl_doctor.toolkit.collectors.model import storage
from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.collectors.model.storage import ModelStorage, model_storage
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

SIZE = 4 * 1024 * 1024


@pytest.fixture
def files(disk: Path) -> ModelFiles:
    """Two files, of which nothing is cached: nothing was ever written into them."""
    folder = disk / "qwen"
    folder.mkdir()
    names = ("a.safetensors", "b.safetensors")
    for name in names:
        folder.joinpath(name).touch()
        os.truncate(folder / name, SIZE)
    return ModelFiles(str(folder), tuple(WeightFile(name, "safetensors", SIZE) for name in names))


def recorded(folder: Path, mounts: str, **kernel: str) -> Machine:
    for path, text in {"/proc/self/mountinfo": mounts, **kernel}.items():
        file = folder / "machine" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Machine(environ={}, root=folder / "machine")


@unless_disturbed
def test_read_files_are_cached(files: ModelFiles) -> None:
    for file in files.files:
        evict(Path(files.folder, file.name))
    before = model_storage.collect(Machine(), files)
    assert (before.bytes, before.cached, before.cold) == (2 * SIZE, 0, 2 * SIZE)
    Path(files.folder, "a.safetensors").read_bytes()
    after = model_storage.collect(Machine(), files)
    assert (after.cached, after.cold) == (SIZE, SIZE)
    assert after.kind
    assert f"({after.mounted_on})" in after.where


def test_nfs_mount_reports_its_read_ahead(files: ModelFiles, tmp_path: Path) -> None:
    options = "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=8,addr=10.0.0.1"
    mounts = f"40 27 0:50 / {files.folder} ro,relatime - nfs4 filer:/models {options}\n"
    machine = recorded(tmp_path, mounts, **{"/sys/class/bdi/0:50/read_ahead_kb": "128\n"})
    found = model_storage.collect(machine, files)
    assert (found.kind, found.device, found.shared) == ("nfs4", "filer:/models", True)
    assert found.options == ("vers=4.2", "rsize=1048576", "proto=tcp", "nconnect=8")
    assert (found.read_ahead, found.rotational) == (128 * 1024, None)


def test_partition_uses_the_queue_of_its_disk(files: ModelFiles, tmp_path: Path) -> None:
    mounts = "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    disk = "/sys/devices/sda/queue"
    kernel = {f"{disk}/read_ahead_kb": "4096\n", f"{disk}/rotational": "1\n"}
    machine = recorded(tmp_path, mounts, **kernel)
    (machine.root / "sys/devices/sda/sda1").mkdir()
    (machine.root / "sys/dev/block").mkdir(parents=True)
    (machine.root / "sys/dev/block/8:1").symlink_to("../../devices/sda/sda1")
    found = model_storage.collect(machine, files)
    assert (found.read_ahead, found.rotational, found.shared) == (4096 * 1024, True, False)


def test_hidden_kernel_information_is_unknown(
    files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "residency", lambda *_, **__: Unknown("nobody may know"))
    found = model_storage.collect(recorded(tmp_path, ""), files)
    assert (found.kind, found.read_ahead, found.rotational) == ("", None, None)
    assert (found.cached, found.undetermined, found.cold) == (None, "nobody may know", 2 * SIZE)
    assert "does not name" in found.where


def test_files_that_open_too_slowly_are_undetermined(
    files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "OPEN_TIMEOUT", -1.0)
    found = model_storage.collect(Machine(), files)
    assert found.cached is None
    assert "could not be opened within" in found.undetermined


def test_earlier_copy_by_verl_is_found(files: ModelFiles, tmp_path: Path) -> None:
    machine = recorded(tmp_path, "")
    assert not model_storage.collect(machine, files).in_shared_memory
    name = hashlib.md5(files.folder.encode()).hexdigest()  # as verl names it
    copy = machine.at(f"/dev/shm/verl-cache/{name}/qwen")
    copy.mkdir(parents=True)
    for file in files.files:
        copy.joinpath(file.name).touch()
        os.truncate(copy / file.name, SIZE)
    assert model_storage.collect(machine, files).in_shared_memory
    os.truncate(copy / "a.safetensors", 1)
    assert not model_storage.collect(machine, files).in_shared_memory


def test_in_memory_file_system_has_no_disk() -> None:
    assert ModelStorage("/dev/shm/qwen", "tmpfs", in_memory=True, bytes=SIZE, cached=0).cold == 0
