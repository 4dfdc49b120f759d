"""Packages installed into a copy of an environment, or into the environment itself.

In the latter case, what undo needs is saved before.

Undo removes a copy as a whole. Before an installation in place, all files are saved in the journal, as hard
links if the disk supports them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from pathlib import Path

from verl_doctor.toolkit.change import InstallPackages
from verl_doctor.toolkit.changes import environment_copy, files, installer, journal
from verl_doctor.toolkit.changes.distribution_files import cleared
from verl_doctor.toolkit.changes.environment_copy import OWN, is_folder, is_read_only, read_only_folder
from verl_doctor.toolkit.changes.journal_entries import entries_of
from verl_doctor.toolkit.changes.records import Entry, FileRecord, InstallRecord, Planned
from verl_doctor.toolkit.system.environment_users import users_of
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.text import listed

_SIGN = ".verl-doctor-copy"
_MANIFEST, _BEGUN, _KEPT = "manifest", "begun", "environment"
_SHOWN = 3


def plan(change: InstallPackages) -> Planned:
    """Return the record of an installation.

    Raises Refused if this environment cannot be copied or may not be changed.
    """
    environment, copy = change.environment, change.copy
    if not os.path.exists(environment / "pyvenv.cfg"):
        _demand_place(change)
    if change.in_place:
        _demand_writable(
            read_only_folder(environment),
            "packages would be installed there",
            "run this as its owner"
            + (
                ""
                if is_read_only(environment.parent)
                else ", or omit --in-place: then a copy is made next to it"
            ),
        )
        _demand_unused(environment, "end it first, or omit --in-place")
    else:
        if os.path.lexists(copy):
            raise Refused(f"{copy} already exists; move it away, then try again")
        _demand_writable(
            copy.parent if is_read_only(copy.parent) else None,
            "the copy would be there",
            "run this as its owner, or copy the environment to a disk of your own",
        )
    lock = "".join(f"{pin}\n" for pin in change.lock).encode()
    record = InstallRecord("install_packages", str(environment), str(copy), change.command, change.cleared)
    return Planned(record, {"after": lock})


def make(entry: Entry, index: int, record: InstallRecord, held: int) -> None:
    """Copy or save the environment, then install.

    Raises Refused and OSError, after undoing what was begun.
    """
    environment, copy = Path(record.environment), Path(record.copy)
    if record.in_place:
        kept = entry.at(index, _KEPT)
        kept.mkdir(0o700)
        environment_copy.kept(environment, kept)
        journal.note(entry, index, _BEGUN, b"")
    else:
        copy.mkdir()
        (copy / _SIGN).write_text(f"{entry.token}\n", encoding="utf-8")
        environment_copy.copied(environment, copy)
    for metadata in record.cleared:
        cleared(copy / metadata, copy)
    lock = copy / "verl-doctor.lock.txt"
    lock.unlink(missing_ok=True)  # it may be a hard link to a kept file
    lock.write_bytes(journal.noted(entry, index, "after") or b"")
    installer.run(record.argv, held)
    journal.note(entry, index, _MANIFEST, zlib.compress(json.dumps(environment_copy.manifest(copy)).encode()))


def take_back(entry: Entry, index: int, record: InstallRecord) -> None:
    """Remove the copy, or restore the environment's files.

    Nothing is done if nothing was begun. Raises OSError.
    """
    copy = Path(record.copy)
    if record.in_place:
        kept = entry.at(index, _KEPT)
        if journal.noted(entry, index, _BEGUN) is not None and os.path.isdir(kept):
            environment_copy.restore(copy, kept)
        if os.path.isdir(kept):
            shutil.rmtree(kept)
        return
    gone = copy.with_name(f".{copy.name}-{entry.token}")
    if _is_ours(entry, copy):
        copy.rename(gone)
    if os.path.isdir(gone):
        shutil.rmtree(gone)


def is_there(entry: Entry, index: int, record: InstallRecord) -> bool:
    """Return whether the copy or the saved files of the environment exist."""
    if record.in_place:
        return os.path.isdir(entry.at(index, _KEPT))
    return _is_ours(entry, Path(record.copy))


def demand_undoable(entry: Entry, index: int, record: InstallRecord) -> None:
    """Raise Refused if later changes would be lost, or if a process is using the environment."""
    copy = Path(record.copy)
    if not is_there(entry, index, record):
        return
    noted = journal.noted(entry, index, _MANIFEST)
    then: dict[str, int] = json.loads(zlib.decompress(noted)) if noted else {}
    now = environment_copy.manifest(copy)
    ours = _repaired_since(copy) if not record.in_place else frozenset()
    changed = sorted(
        path for path in then.keys() | now.keys() if then.get(path) != now.get(path) and path not in ours
    )
    if noted and changed:
        raise Refused(
            (
                f"{entry.id} was not undone, and nothing was changed: since then {listed(changed, _SHOWN)} "
                f"changed in {copy}"
            )
            + ("" if record.in_place else f"; save what you need of it, then remove the folder: rm -r {copy}")
        )
    _demand_writable(
        read_only_folder(copy) if record.in_place else None,
        "files would be restored there",
        "make it writable, then try again",
    )
    _demand_unused(copy, "end it first")


def description(record: InstallRecord) -> str:
    """Return what was done, for the list of repairs."""
    if record.in_place:
        return f"installed packages into {record.environment}"
    return f"made {record.copy}, a copy of {record.environment} with other packages"


def _is_ours(entry: Entry, copy: Path) -> bool:
    """Return whether a folder is the copy of this transaction: it contains the marker, or is still empty."""
    try:
        sign = (copy / _SIGN).read_text(encoding="utf-8")
        return secrets.compare_digest(sign.strip(), entry.token)
    except FileNotFoundError:
        return is_folder(copy) and not os.listdir(copy)  # noqa: PTH208
    except (OSError, ValueError):
        return False


def _repaired_since(copy: Path) -> frozenset[str]:
    """Return the files of a copy that the doctor repaired later and that are unchanged since."""
    if not os.path.isdir(copy / OWN):
        return frozenset()
    records = [record for entry in entries_of(copy / OWN) for _, record in entry.files()]
    return frozenset(
        os.path.relpath(record.file, os.path.realpath(copy)) for record in records if _holds(record)
    )


def _holds(record: FileRecord) -> bool:
    return files.state(record) == "after"


def _demand_place(change: InstallPackages) -> None:
    environment = change.environment
    if os.path.isdir(environment / "conda-meta"):
        if not change.in_place:
            raise Refused(
                f"{environment} is a conda environment, whose files only conda can rewrite for another "
                "folder: clone it with conda create --clone and examine the clone, or add --in-place"
            )
        return
    raise Refused(
        f"{environment} is not a virtual environment, so its packages belong to the whole system: "
        "create one with python -m venv, install there, and examine it with --python"
    )


def _demand_writable(read_only: Path | None, why: str, otherwise: str) -> None:
    if read_only is not None:
        raise Refused(f"{read_only} is not writable for user {os.geteuid()}, and {why}; {otherwise}")


def _demand_unused(environment: Path, otherwise: str) -> None:
    if users := users_of(environment):
        raise Refused(f"{environment} is in use by process {listed(users, _SHOWN)}; {otherwise}")
