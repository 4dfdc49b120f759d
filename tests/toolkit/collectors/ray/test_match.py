"""How strictly the installed Ray compares Python versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.ray.match import LEVEL, RayMatch, ray_match
from verl_doctor.toolkit.facts import Absent, Unknown


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"os.environ.get('{LEVEL}', 'patch')", RayMatch(variable=True, level="minor")),
        ("python_version_match_level='patch'", RayMatch(variable=False)),
    ],
)
def test_variable_is_recognised_if_ray_reads_it(tmp_path: Path, source: str, found: RayMatch) -> None:
    (tmp_path / "_private").mkdir()
    (tmp_path / "_private" / "utils.py").write_text(source)
    assert look(tmp_path) == found


def test_missing_ray_source_is_unknown(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path), Unknown)


def look(folder: Path) -> RayMatch | Unknown:
    trees = LibraryTrees((Tree(str(folder), "ray", "2.60.0", "site-packages"),))
    return ray_match.collect(trees, Variables({LEVEL: "minor"}), Absent("none was named"))  # type: ignore[no-any-return]
