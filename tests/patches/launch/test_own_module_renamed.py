"""A file that hides an installed module gets another name, and one that is needed under its name stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.interpreter.package_shadowed import package_shadowed
from verl_doctor.patches.launch.own_module_renamed import own_module_renamed
from verl_doctor.toolkit.change import NewFile, Refusal, RemoveFile
from verl_doctor.toolkit.collectors.installed.shadows import Shadow, Shadows
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles


def plan(path: Path, importer: str | None = "") -> object:
    there = Shadows(str(path.parent), (Shadow(path.stem, str(path), "/site/x", importer),))
    (finding,) = package_shadowed.judge(there)
    return own_module_renamed.plan(finding, shadows=there, sources=SourceFiles())


def test_file_or_init_of_a_folder_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_bytes(b"SEED = 1\n")
    (tmp_path / "datasets").mkdir()
    init = tmp_path / "datasets" / "__init__.py"
    init.write_bytes(b"")
    assert plan(tmp_path / "random.py") == [
        NewFile(tmp_path / "random.py.renamed", b"SEED = 1\n"),
        RemoveFile(tmp_path / "random.py", b"SEED = 1\n"),
    ]
    assert plan(init.parent) == [NewFile(init.with_name("__init__.py.renamed"), b""), RemoveFile(init, b"")]


@pytest.mark.parametrize(("importer", "why"), [("/home/me/reward.py", "imports"), (None, "unknown whether")])
def test_module_needed_by_other_files_is_kept(tmp_path: Path, importer: str | None, why: str) -> None:
    (tmp_path / "random.py").write_bytes(b"")
    found = plan(tmp_path / "random.py", importer)
    assert isinstance(found, Refusal)
    assert why in found.reason
