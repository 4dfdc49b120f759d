"""Only proven leftovers are removed, whatever is in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.left_behind import bound, leftovers, machine, running, session, verdict

from verl_doctor.toolkit.commands.clean import path as clean_path
from verl_doctor.toolkit.leftover import Kept, Leftover, Outcome
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import safe_remove

__all__ = ["machine"]


def removed(machine: Machine, name: str) -> Outcome:
    """Judge, then remove."""
    left = verdict(machine, name)
    assert isinstance(left, Leftover), left
    return only(left, machine)


def only(left: Leftover | Kept, machine: Machine) -> Outcome:
    """Remove one thing."""
    assert isinstance(left, Leftover)
    (outcome,) = clean_path.remove([left], machine)
    return outcome


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_dead_session_is_removed_with_its_content(machine):
    folder = session(machine)
    (folder / "logs" / "\x1b[31mred\nline\udcff").write_text("")
    (folder / "logs").chmod(0o500)
    assert removed(machine, folder.name).state == "removed"
    assert names(folder.parent) == []


def test_session_with_a_newly_opened_file_is_kept(machine):
    folder = session(machine)
    left = verdict(machine, folder.name)
    with (folder / "logs" / "raylet.out").open():
        outcome = only(left, machine)
    assert outcome.state == "kept"
    assert "in use" in outcome.why
    assert folder.is_dir()


def test_replacement_folder_is_kept(machine):
    folder = session(machine)
    left = verdict(machine, folder.name)
    folder.rename(folder.with_name("elsewhere"))
    again = session(machine)
    assert only(left, machine).why == "something else is there now"
    assert again.is_dir()


def test_link_in_a_session_is_removed_and_its_target_kept(machine, tmp_path):
    folder = session(machine)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "model").write_text("weights")
    (folder / "logs" / "link").symlink_to(precious)
    (folder / "model").symlink_to(precious / "model")
    (folder / "model").unlink()
    assert removed(machine, folder.name).state == "removed"
    assert (precious / "model").read_text() == "weights"


def test_link_planted_in_place_of_a_session_is_kept(machine, tmp_path):
    precious = session(machine, ray="/home/precious")
    (machine.at("/tmp/ray")).mkdir()
    link = machine.at("/tmp/ray") / precious.name
    link.symlink_to(precious)
    kept = verdict(machine, link.name)
    assert isinstance(kept, Kept)
    assert "link" in kept.why


def test_link_planted_above_a_session_is_not_followed(machine):
    folder = session(machine)
    left = verdict(machine, folder.name)
    ray = folder.parent
    ray.rename(ray.with_name("moved"))
    ray.symlink_to("moved")
    outcome = only(left, machine)
    assert outcome == Outcome(left, "kept", "it no longer exists")
    assert (ray.with_name("moved") / folder.name).is_dir()


def test_folder_swapped_after_the_proof_gets_its_name_back(machine, monkeypatch):
    folder = session(machine)
    left = verdict(machine, folder.name)
    rename = clean_path.rename

    def swapped_first(old: str, new: str, inside: int) -> None:
        monkeypatch.setattr(clean_path, "rename", rename)
        folder.rename(folder.with_name("aside"))
        session(machine)
        rename(old, new, inside)

    monkeypatch.setattr(clean_path, "rename", swapped_first)
    assert only(left, machine).why == "something else was put there"
    assert names(folder.parent) == ["aside", folder.name]
    assert (folder / "logs" / "raylet.out").exists()


def test_process_that_appears_after_the_proof_keeps_the_folder(machine, monkeypatch):
    folder = session(machine)
    left = verdict(machine, folder.name)
    rename, opened = clean_path.rename, []

    def used_first(old: str, new: str, inside: int) -> None:
        if not opened:
            opened.append((folder / "logs" / "raylet.out").open())
        rename(old, new, inside)

    monkeypatch.setattr(clean_path, "rename", used_first)
    outcome = only(left, machine)
    opened[0].close()
    assert outcome.state == "kept"
    assert outcome.why == "logs/raylet.out has just come into use"
    assert names(folder.parent) == [folder.name]
    assert (folder / "logs" / "raylet.out").exists()


def test_name_reused_during_removal_is_not_overwritten(machine, monkeypatch):
    folder = session(machine)
    left = verdict(machine, folder.name)
    rename, opened = clean_path.rename, []

    def a_job_starts(old: str, new: str, inside: int) -> None:
        if not opened:
            opened.append((folder / "logs" / "raylet.out").open())
            rename(old, new, inside)
            folder.mkdir()
            return
        rename(old, new, inside)

    monkeypatch.setattr(clean_path, "rename", a_job_starts)
    outcome = only(left, machine)
    opened[0].close()
    assert outcome.state == "kept"
    assert "it is now at /tmp/ray/.verl-doctor-removes-" in outcome.why
    assert len(names(folder.parent)) == 2


def test_interrupted_removal_is_resumed(machine):
    folder = session(machine)
    aside = folder.rename(folder.with_name(f".verl-doctor-removes-0123456789abcdef-{folder.name}"))
    assert removed(machine, aside.name).state == "removed"
    assert names(folder.parent) == []


@pytest.mark.slow
def test_link_to_the_last_session_is_removed_only_with_that_session(machine):
    folder, other = session(machine), session(machine, 3_999_999)
    latest = folder.with_name("session_latest")
    latest.symlink_to(other)
    assert removed(machine, folder.name).state == "removed"
    assert latest.resolve() == other
    assert removed(machine, other.name).state == "removed"
    assert names(folder.parent) == []


def test_other_hard_link_keeps_its_content(machine, tmp_path):
    folder = session(machine)
    os.link(folder / "logs" / "raylet.out", tmp_path / "saved")
    assert removed(machine, folder.name).state == "removed"
    assert (tmp_path / "saved").read_text().startswith("started")


def test_undeletable_file_is_named_and_the_rest_removed(machine, monkeypatch):
    folder = session(machine)
    left = verdict(machine, folder.name)
    unlink = os.unlink

    def refused(name: str, *, dir_fd: int) -> None:
        if name == "raylet.out":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(safe_remove.os, "unlink", refused)
    outcome = only(left, machine)
    assert outcome.state == "partly removed"
    assert outcome.why.startswith("raylet.out: Operation not permitted could not be removed; the rest is at ")
    (rest,) = folder.parent.iterdir()
    assert [str(path.relative_to(rest)) for path in rest.rglob("*")] == ["logs", "logs/raylet.out"]


def test_folder_swapped_during_removal_is_kept(machine, monkeypatch, tmp_path):
    """Ray makes its folders with mode 777."""
    folder = session(machine)
    folder.parent.chmod(0o777)
    left = verdict(machine, folder.name)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "model").write_text("weights")
    seen = safe_remove.entries

    def swapped(inner: int):
        found = list(seen(inner))
        for name, _ in found:
            if name == "logs":
                os.rename("logs", "aside", src_dir_fd=inner, dst_dir_fd=inner)
                os.rename(precious, "logs", dst_dir_fd=inner)
        return iter(found)

    monkeypatch.setattr(safe_remove, "entries", swapped)
    outcome = only(left, machine)
    assert outcome.state == "partly removed"
    assert "logs: it was replaced by something else" in outcome.why
    (rest,) = folder.parent.iterdir()
    assert (rest / "logs" / "model").read_text() == "weights"


@pytest.mark.slow
def test_unmapped_segment_is_removed_and_mapped_one_kept(machine):
    shm = machine.at("/dev/shm")
    (shm / "psm_0123abcd").write_bytes(b"x" * 8192)
    held = shm / "psm_4567cdef"
    script = "import mmap, sys; f = open(sys.argv[1], 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close()"
    with running(machine, script, str(held)):
        assert removed(machine, "psm_0123abcd").state == "removed"
        kept = verdict(machine, held.name)
    assert isinstance(kept, Kept)
    assert kept.why == "it is in use"
    assert names(shm) == [held.name]


def test_listening_socket_is_kept(machine):
    path = machine.at("/tmp") / "rl-colocate-zmq-01000000-replica-0-rank-0.sock"
    with bound(path):
        assert "in use" in verdict(machine, path.name).why
    assert removed(machine, path.name).state == "removed"


def test_other_names_are_never_removed(machine):
    (machine.at("/tmp") / "checkpoints").mkdir()
    (machine.at("/dev/shm") / "verl-cache").mkdir()
    assert leftovers(machine).found == leftovers(machine).kept == ()


@pytest.mark.parametrize("name", ["verl_spill_x", "verl_spill_y-1"])
def test_spill_folder_without_a_process_number_is_kept(machine, name):
    (machine.at("/tmp") / name).mkdir()
    assert isinstance(verdict(machine, name), Kept)
