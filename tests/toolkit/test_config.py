"""The user's configuration, and what is said when it is wrong."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from verl_doctor.toolkit.config import Config, Ignore, load
from verl_doctor.toolkit.sites import Site
from verl_doctor.toolkit.target import UsageError


def test_no_configuration_is_the_default(tmp_path: Path) -> None:
    assert load(tmp_path) == Config()


def test_the_own_file_wins_over_pyproject(tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text('marker = "ops"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.verl-doctor]\nmarker = "other"\n')
    assert load(tmp_path).marker == "ops"


def test_pyproject_above_is_found_and_one_without_our_table_is_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text('[project]\nname = "job"\ndependencies = ["verl-doctor"]\n')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.verl-doctor]\nselect = ["VLLM"]\n[tool.verl-doctor.sites]\nmodel = "/m"\n'
    )
    config = load(inner)
    assert (config.select, config.sites) == (("VLLM",), (Site("model", "/m"),))


def test_a_broken_pyproject_that_is_not_about_us_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[[[")
    assert load(tmp_path) == Config()


def test_an_ignore_carries_its_reason_and_end(tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text(
        '[ignore]\nPKG101 = { reason = "shared, OPS-12", until = 2026-12-01 }\nPY103 = { reason = "x", until = "2027-01-01" }\n'
    )
    assert load(tmp_path).ignore == {
        "PKG101": Ignore("shared, OPS-12", date(2026, 12, 1)),
        "PY103": Ignore("x", date(2027, 1, 1)),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[[", "no valid TOML"),
        ("selct = []", "unknown key 'selct'"),
        ('select = "VLLM"', "list of strings"),
        ("marker = 3", "marker must be one word"),
        ('marker = "a\\nb"', "marker must be one word"),
        ("ignore = 3", "ignore must be a table"),
        ("ignore = { PKG101 = 3 }", "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "x" } }', "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "", until = 2026-12-01 } }', "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "x", until = "soon" } }', "needs a reason and an end date"),
        ("sites = { model = 3 }", "sites.model must be a path"),
        ("sites = 3", "sites must be a table"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "verl-doctor.toml").write_text(text)
    with pytest.raises(UsageError, match="verl-doctor\\.toml") as refused:
        load(tmp_path)
    assert said in str(refused.value)
