"""Whose file it is that a job executed."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.probes.construction.problems import files_of_user


def test_owner_of_a_file_follows_links_to_it_and_to_its_folder(tmp_path: Path) -> None:
    job, library = tmp_path / "job", tmp_path / "site-packages" / "library"
    for folder in (job, library):
        folder.mkdir(parents=True)
        (folder / "module.py").touch()
    (job / "linked.py").symlink_to(library / "module.py")
    (job / "vendored").symlink_to(library)
    (library / "reward.py").symlink_to(job / "module.py")
    own = [str(job / "module.py"), str(library / "reward.py")]
    others = [str(library / "module.py"), str(job / "linked.py"), str(job / "vendored" / "module.py")]
    generated = ["<string>", str(job / "missing.py"), str(job / "settings.yaml")]
    assert files_of_user([*own, *others, *generated], str(job)) == set(own)
