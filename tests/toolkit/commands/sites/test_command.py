"""Paths go from a Python file into the configuration, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.system import toml

PATHS = 'BASE = "/data/me"\nMODEL = BASE + "/qwen"\nOUT = "/path/to/out"\nSTEPS = 3\n'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "paths.py").write_text(PATHS)
    return tmp_path


def test_imported_sites_are_shown_written_and_undone(here: Doctor, job: Path) -> None:
    place = job / "verl-doctor.toml"
    shown = here("sites", "import", "paths.py", cwd=job)
    assert shown.returncode == 1, "OUT is left to set"
    assert '+MODEL = "/data/me/qwen"' in shown.stdout
    assert "paths.py:3: OUT is not set in it yet" in shown.stderr
    assert not place.exists()

    assert here("sites", "import", "paths.py", "--apply", cwd=job).returncode == 1
    sites = toml.loads(place.read_text())["sites"]
    assert sites == {"BASE": "/data/me", "MODEL": "/data/me/qwen", "OUT": "/path/to/out"}

    assert here("undo", cwd=job).returncode == 0
    assert not place.exists()


def test_placeholder_does_not_replace_a_configured_site(here: Doctor, job: Path) -> None:
    place = job / "verl-doctor.toml"
    place.write_text('marker = "ops"  # ours\n\n[sites]\nOUT = "/scratch/me"\nMODEL = "/old"\n')
    done = here("sites", "import", "paths.py", "--apply", cwd=job)
    assert done.returncode == 0, done.stderr
    assert place.read_text() == (
        'marker = "ops"  # ours\n\n[sites]\nOUT = "/scratch/me"\nMODEL = "/data/me/qwen"\nBASE = "/data/me"\n'
    )
    again = here("sites", "import", "paths.py", "--apply", cwd=job)
    assert "already has all of them" in again.stderr


def test_table_in_pyproject_is_kept(here: Doctor, job: Path) -> None:
    (job / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.verl-doctor]\nselect = ["PY"]\n')
    here("sites", "import", "paths.py", "--apply", cwd=job)
    tool = toml.loads((job / "pyproject.toml").read_text())["tool"]["verl-doctor"]
    assert tool["select"] == ["PY"]
    assert tool["sites"]["BASE"] == "/data/me"
    assert not (job / "verl-doctor.toml").exists()


def test_import_as_a_document(here: Doctor, job: Path) -> None:
    done = here("sites", "import", "paths.py", "--format", "json", cwd=job)
    found = json.loads(done.stdout)
    validate(found, schema_text("sites"))
    assert (done.returncode, done.stderr) == (1, "")
    assert found["sites"]["MODEL"] == "/data/me/qwen"
    assert (found["applied"], found["left"][0]) == (
        False,
        {"name": "OUT", "line": 3, "why": "is not set in it yet"},
    )


def test_linked_configuration_is_written_at_its_target(here: Doctor, job: Path) -> None:
    (job / "shared").mkdir()
    (job / "shared" / "site.toml").write_text("select = []\n")
    (job / "verl-doctor.toml").symlink_to("shared/site.toml")
    done = here("sites", "import", "paths.py", "--apply", cwd=job)
    assert done.returncode == 1, done.stderr
    assert toml.loads((job / "shared" / "site.toml").read_text())["sites"]["MODEL"] == "/data/me/qwen"
    assert (job / "verl-doctor.toml").is_symlink()


@pytest.mark.parametrize(
    ("text", "message"),
    [("A = = 1\n", "not valid Python"), ("A = 3\n", "contains no paths"), (None, "cannot be read")],
)
def test_unusable_input_is_refused(here: Doctor, tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "p.py").write_text(text)
    done = here("sites", "import", "p.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
