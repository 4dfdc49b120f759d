"""Packages installed into a copy of an environment, or in place, and their undo."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.change import LOCK, PYTHON, InstallPackages
from verl_doctor.toolkit.changes import environment_copy
from verl_doctor.toolkit.changes.apply import Refused, apply, demand_possible, history, undo
from verl_doctor.toolkit.changes.environment_copy import copied

SITE = "lib/python3.12/site-packages"
# What an installer does, as far as this package is concerned: the interpreter is $0, the lock $1.
NEW_TORCH = f'top=${{0%/bin/python}}; rm "$top/{SITE}/torch.py"; cp "$1" "$top/{SITE}/torch.py"'
FULL = (
    "echo 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device'; exit 1"
)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A virtual environment of a few files."""
    prefix = tmp_path / "env"
    site = prefix / SITE
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/python").symlink_to(sys.executable)
    (prefix / "bin/python3").symlink_to(prefix / "bin/python")
    tool = prefix / "bin/tool"
    tool.write_text(f"#!{prefix}/bin/python\nprint('{prefix}-other stays')\n")
    tool.chmod(0o755)
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\ncommand = python -m venv {prefix}\n")
    (site / "torch.py").write_text("old\n")
    (site / "checkout.pth").write_text(f"{prefix}/src/verl\n")
    info = site / "tool-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        "../../../bin/tool,sha256=AA,12\ntorch.py,sha256=BB,4\ntool-1.0.dist-info/RECORD,,\n"
    )
    (prefix / ".verl-doctor").mkdir(mode=0o700)
    return prefix


def tree(prefix: Path) -> dict[str, tuple[str, bytes]]:
    """Everything in an environment but the journal."""
    return {
        inside: (str(path.readlink()), b"")
        if path.is_symlink()
        else ("", b"" if path.is_dir() else path.read_bytes())
        for path, inside in environment_copy.walked(prefix)
    }


def install(
    prefix: Path, script: str = NEW_TORCH, *, in_place: bool = False, cleared: tuple[str, ...] = ()
) -> InstallPackages:
    copy = prefix if in_place else prefix.with_name("env-repaired")
    return InstallPackages(prefix, copy, ("torch==2.11.0",), ("/bin/sh", "-c", script, PYTHON, LOCK), cleared)


def applied(change: InstallPackages, tmp_path: Path) -> Path:
    home = change.environment / ".verl-doctor" if change.in_place else tmp_path / "journal"
    done = apply([change], home, fix="consistent-install", code="PKG101")
    assert done is not None
    return home


def test_copied_environment_refers_to_its_own_path(prefix: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    copied(prefix, copy)
    assert (copy / "bin/tool").read_text() == f"#!{copy}/bin/python\nprint('{prefix}-other stays')\n"
    assert os.access(copy / "bin/tool", os.X_OK)
    assert (copy / "pyvenv.cfg").read_text().endswith(f"python -m venv {copy}\n")
    assert (copy / SITE / "checkout.pth").read_text() == f"{copy}/src/verl\n"
    assert (copy / "bin/python3").readlink() == copy / "bin/python"
    assert (copy / "bin/python").readlink() == Path(sys.executable)
    assert not (copy / ".verl-doctor").exists()
    record = (copy / SITE / "tool-1.0.dist-info/RECORD").read_text().splitlines()
    assert record[0].startswith("../../../bin/tool,sha256=")
    assert record[0] != "../../../bin/tool,sha256=AA,12"
    assert record[1:] == ["torch.py,sha256=BB,4", "tool-1.0.dist-info/RECORD,,"]
    assert "sha256=AA" in (prefix / SITE / "tool-1.0.dist-info/RECORD").read_text()


def test_script_with_a_too_long_shebang_is_run_through_the_shell(prefix: Path, tmp_path: Path) -> None:
    copy = tmp_path / ("x" * 130)
    copy.mkdir()
    (prefix / "bin/tool").write_text(f"#!{prefix}/bin/python\nimport sys\nprint(sys.argv[1])\n")
    copied(prefix, copy)
    completed = subprocess.run([copy / "bin/tool", "hello"], capture_output=True, text=True, check=True)
    assert completed.stdout == "hello\n"


@pytest.mark.parametrize("refused", [errno.EXDEV, errno.EPERM])
def test_files_are_copied_where_the_disk_does_not_support_links(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(environment_copy, "_clone", link)
    copy = tmp_path / "copy"
    copy.mkdir()
    copied(prefix, copy)
    assert (copy / SITE / "torch.py").read_text() == "old\n"
    assert (copy / SITE / "torch.py").stat().st_nlink == 1


def test_install_leaves_the_environment_unchanged_and_undo_removes_the_copy(
    prefix: Path, tmp_path: Path
) -> None:
    before = tree(prefix)
    change = install(prefix)
    home = applied(change, tmp_path)
    assert tree(prefix) == before
    assert (change.copy / SITE / "torch.py").read_text() == "torch==2.11.0\n"
    assert change.lock_file.read_text() == "torch==2.11.0\n"
    (recorded,) = history(home)
    assert [(made.path, made.now) for made in recorded.changes] == [(str(change.copy), "in place")]
    undo(home)
    assert not change.copy.exists()
    assert [made.now for made in history(home)[0].changes] == ["restored"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env", "journal"]


def test_copy_of_a_read_only_environment_can_be_changed_and_removed(prefix: Path, tmp_path: Path) -> None:
    (prefix / SITE).chmod(0o2555)
    change = install(prefix)
    home = applied(change, tmp_path)
    assert stat.S_IMODE((change.copy / SITE).stat().st_mode) == 0o2755
    assert stat.S_IMODE((prefix / SITE).stat().st_mode) == 0o2555
    undo(home)
    assert not change.copy.exists()


def test_undo_of_an_in_place_install_restores_every_file(prefix: Path, tmp_path: Path) -> None:
    (prefix / SITE).chmod(0o2775)
    before = tree(prefix)
    change = install(
        prefix, f'{NEW_TORCH}; mkdir "$top/{SITE}/new"; touch "$top/{SITE}/new/a.py"', in_place=True
    )
    home = applied(change, tmp_path)
    assert (prefix / SITE / "torch.py").read_text() == "torch==2.11.0\n"
    undo(home)
    assert tree(prefix) == before
    assert stat.S_IMODE((prefix / SITE).stat().st_mode) == 0o2775
    assert [folder.name for folder in home.iterdir() if folder.is_dir()] == ["0001-undone"]
    assert not list(home.glob("0001-undone/*environment*"))


@pytest.mark.parametrize("in_place", [False, True])
def test_failed_installer_leaves_no_changes(prefix: Path, tmp_path: Path, *, in_place: bool) -> None:
    before = tree(prefix)
    with pytest.raises(Refused, match=r"No space left on device; everything is as it was$"):
        applied(install(prefix, f"{NEW_TORCH}; {FULL}", in_place=in_place), tmp_path)
    assert tree(prefix) == before
    assert not prefix.with_name("env-repaired").exists()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may become larger than 100 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_copy_over_the_size_limit_is_removed(prefix: Path, tmp_path: Path) -> None:
    lines = [f"export PATH={prefix}/bin"] * (100_001 // len(f"export PATH={prefix}/bin") + 1)
    parts = [prefix / "bin/activate", prefix / "bin/more"]
    for part in parts:
        part.write_text("\n".join(lines)[:99_000])
    copy = prefix.with_name("env-repaired")
    with pytest.raises(Refused, match="File too large; everything is as it was"):
        applied(install(prefix), tmp_path)
    assert not copy.exists()


def test_metadata_that_no_installer_can_remove_is_removed_first(prefix: Path, tmp_path: Path) -> None:
    site = prefix / SITE
    spare = site / "torch-2.9.0.dist-info"
    spare.mkdir()
    (spare / "RECORD").write_text(
        "torch.py,,\ntorch_only_old/a.py,,\n../../../../outside,,\ntorch-2.9.0.dist-info/RECORD,,\n"
    )
    (site / "torch_only_old").mkdir()
    (site / "torch_only_old/a.py").touch()
    (tmp_path / "outside").touch()
    change = install(prefix, "true", cleared=(f"{SITE}/{spare.name}",))
    applied(change, tmp_path)
    left = sorted(path.name for path in (change.copy / SITE).iterdir())
    assert left == ["checkout.pth", "tool-1.0.dist-info", "torch.py"]  # what another package lists stays
    assert (tmp_path / "outside").exists()
    assert (site / "torch_only_old/a.py").exists()


def test_undo_keeps_a_copy_that_was_changed_later(prefix: Path, tmp_path: Path) -> None:
    change = install(prefix)
    home = applied(change, tmp_path)
    (change.copy / SITE / "torch.py").write_text("mine")
    (change.copy / SITE / "__pycache__").mkdir()
    (change.copy / SITE / "__pycache__/torch.cpython-312.pyc").touch()
    with pytest.raises(Refused, match=rf"since then {SITE}/torch.py changed in .*rm -r {change.copy}$"):
        undo(home)
    assert (change.copy / SITE / "torch.py").read_text() == "mine"


def test_copy_in_use_is_not_removed(prefix: Path, tmp_path: Path) -> None:
    change = install(prefix)
    home = applied(change, tmp_path)
    with subprocess.Popen([change.copy / "bin/python", "-S", "-c", "input()"], stdin=subprocess.PIPE) as user:
        while "python" not in Path(f"/proc/{user.pid}/cmdline").read_text():
            time.sleep(0.01)
        with pytest.raises(Refused, match=rf"{change.copy} is in use by process {user.pid} "):
            undo(home)
        with pytest.raises(Refused, match="is in use by process"):
            demand_possible([InstallPackages(change.copy, change.copy, (), ("true",))])
    undo(home)
    assert not change.copy.exists()


def test_folder_of_another_user_is_never_removed(prefix: Path, tmp_path: Path) -> None:
    change = install(prefix)
    home = applied(change, tmp_path)
    (change.copy / ".verl-doctor-copy").write_text("00000000\n")
    with pytest.raises(Refused):
        applied(change, tmp_path)
    undo(home)
    assert change.copy.is_dir()


@pytest.mark.parametrize(
    ("sign", "in_place", "sentence"),
    [
        ("conda-meta", False, "is a conda environment"),
        ("", False, "is not a virtual environment"),
        ("", True, "is not a virtual environment"),
    ],
)
def test_environments_that_cannot_be_copied_are_refused(
    prefix: Path, sign: str, sentence: str, *, in_place: bool
) -> None:
    (prefix / "pyvenv.cfg").unlink()
    if sign:
        (prefix / sign).mkdir()
    with pytest.raises(Refused, match=sentence):
        demand_possible([install(prefix, in_place=in_place)])


@pytest.mark.parametrize("in_place", [False, True])
def test_unwritable_folder_is_named(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_place: bool
) -> None:
    place = prefix / SITE if in_place else tmp_path
    monkeypatch.setattr(os, "access", lambda path, *_, **__: path != place)  # root may write everywhere
    with pytest.raises(Refused, match=rf"^{place} is not writable for user"):
        demand_possible([install(prefix, in_place=in_place)])


def test_pip_variables_of_the_user_do_not_redirect_the_installation(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:SEKRET@host/simple")
    change = install(prefix, 'env > "$1.env"')
    applied(change, tmp_path)
    given = change.lock_file.with_name(f"{change.lock_file.name}.env").read_text()
    assert "PIP_TARGET" not in given
    assert "SEKRET" in given  # the installer needs it; what it prints is blanked


def test_index_password_is_not_printed(
    prefix: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused) as refused:
        applied(
            install(prefix, "echo 'ERROR: no answer from https://me:SEKRET@host/simple'; exit 1"), tmp_path
        )
    assert "SEKRET" not in str(refused.value) + "".join(capfd.readouterr())
