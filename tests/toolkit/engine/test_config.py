"""The user's configuration, and messages about mistakes."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from verl_doctor.toolkit.engine.config import Config, Ignore, load
from verl_doctor.toolkit.system.sites import Site
from verl_doctor.toolkit.target import UsageError


def test_missing_configuration_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Config()


def test_dedicated_file_wins_over_pyproject(tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text('marker = "ops"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.verl-doctor]\nmarker = "other"\n')
    assert load(tmp_path).marker == "ops"


def test_pyproject_above_is_found_and_one_without_our_table_is_skipped(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text('[project]\nname = "job"\ndependencies = ["verl-doctor"]\n')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.verl-doctor]\nselect = ["VLLM"]\n[tool.verl-doctor.sites]\nmodel = "/m"\n'
    )
    config = load(inner)
    assert (config.select, config.sites) == (("VLLM",), (Site("model", "/m"),))


def test_broken_pyproject_without_our_section_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[[[")
    assert load(tmp_path) == Config()


@pytest.mark.parametrize(
    ("name", "head"), [("verl-doctor.toml", ""), ("pyproject.toml", "[tool.verl-doctor]\n")]
)
def test_world_writable_file_is_skipped_and_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, head: str
) -> None:
    """The next one above counts: another user's file must not hide it."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "verl-doctor.toml").write_text('marker = "mine"\n')
    (inner / name).write_text(f'{head}marker = "theirs"\n')
    assert load(inner).marker == "theirs"
    inner.chmod(0o777)
    assert (load(inner).marker, load(inner).marker) == ("mine", "mine")
    message = capsys.readouterr().err
    assert message.count(f"{inner / name} is skipped: anybody may write to") == 1


@pytest.mark.parametrize("name", ["verl-doctor.toml", "pyproject.toml"])
def test_damaged_configuration_of_another_user_is_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[[[ verl-doctor")
    tmp_path.chmod(0o777)
    assert load(tmp_path) == Config()
    (tmp_path / name).unlink()
    (tmp_path / "verl-doctor.toml").mkdir()
    assert load(tmp_path) == Config()


def test_configuration_of_another_user_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "verl-doctor.toml"
    file.write_text('marker = "theirs"\n')
    if os.geteuid() == 0:
        os.chown(file, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert load(tmp_path) == Config()


def test_ignore_entry_has_a_reason_and_an_end(tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text(
        '[ignore]\nPKG101 = { reason = "shared, OPS-12", until = 2026-12-01 }\nPY103 = { reason = "x", until = "2027-01-01" }\n'
    )
    assert load(tmp_path).ignore == {
        "PKG101": Ignore("shared, OPS-12", date(2026, 12, 1)),
        "PY103": Ignore("x", date(2027, 1, 1)),
    }


@pytest.mark.parametrize(
    ("file", "reasons"),
    [
        ("jobs/debug_1.sh", {"CFG111": "large node", "RAY104": "shared"}),
        ("jobs/train.sh", {"CFG111": "all jobs", "RAY104": "shared"}),
        ("elsewhere/jobs/debug_1.sh", {"CFG111": "all jobs", "RAY104": "shared"}),
        ("elsewhere/own.sh", {"CFG111": "all jobs", "RAY104": "its own"}),
    ],
)
def test_rule_is_ignored_for_a_single_launch_file(tmp_path: Path, file: str, reasons: dict[str, str]) -> None:
    entry = '{{ reason = "{}", until = 2026-12-01 }}'.format
    (tmp_path / "verl-doctor.toml").write_text(
        f"[ignore]\nCFG111 = {entry('all jobs')}\nRAY104 = {entry('shared')}\n"
        f'[per_file_ignores."jobs/debug*.sh"]\nCFG111 = {entry("large node")}\n'
        f'[per_file_ignores."own.sh"]\nray104 = {entry("its own")}\n'
    )
    config = load(tmp_path)
    found = config.ignores_for([tmp_path / "env.yaml", tmp_path / file])
    assert {code: ignore.reason for code, ignore in found.items()} == reasons
    assert config.ignores_for([]) == config.ignore


def test_pattern_may_lead_out_of_the_configuration_s_folder(tmp_path: Path) -> None:
    top = tmp_path.resolve() / "configuration"
    top.mkdir()
    (top / "verl-doctor.toml").write_text(
        '[per_file_ignores."../jobs/*.sh"]\nCFG111 = { reason = "large node", until = 2026-12-01 }\n'
    )
    config = load(top)
    assert set(config.ignores_for([tmp_path.resolve() / "jobs/train.sh"])) == {"CFG111"}
    assert config.ignores_for([top / "jobs/train.sh"]) == {}


def test_example_of_an_entry_has_not_expired(tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text("ignore = { PKG101 = 3 }")
    with pytest.raises(UsageError, match=r"until = [\d-]+ ") as problem:
        load(tmp_path)
    assert date.fromisoformat(str(problem.value).split("until = ")[1][:10]) > date.today()  # noqa: DTZ011


def test_launch_file_is_recognised_behind_a_link_to_its_folder(tmp_path: Path) -> None:
    top = tmp_path.resolve() / "repository"
    (top / "jobs").mkdir(parents=True)
    (tmp_path / "home").symlink_to(top)
    (top / "verl-doctor.toml").write_text(
        '[per_file_ignores."jobs/*.sh"]\nCFG111 = { reason = "large node", until = 2026-12-01 }\n'
    )
    config = load(top)
    assert set(config.ignores_for([tmp_path / "home/jobs/train.sh"])) == {"CFG111"}
    assert config.ignores_for([tmp_path / "elsewhere/jobs/train.sh"]) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[[", "not valid TOML"),
        ("per_file_ignores = 3", "per_file_ignores must be a table of launch files"),
        ('per_file_ignores = { "a.sh" = 3 }', 'per_file_ignores."a.sh" must be a table of codes'),
        ('per_file_ignores = { "a.sh" = { CFG111 = 3 } }', 'per_file_ignores."a.sh".CFG111 needs a reason'),
        ("selct = []", "unknown key 'selct'"),
        ('select = "VLLM"', "list of strings"),
        ("marker = 3", "marker must be one word"),
        ('marker = "a\\nb"', "marker must be one word"),
        ("ignore = 3", "ignore must be a table"),
        ("ignore = { PKG101 = 3 }", "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "x" } }', "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "", until = 2026-12-01 } }', "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "x", until = "soon" } }', "needs a reason and an end date"),
        ('ignore = { PKG101 = { reason = "x", only = ["peft"] } }', "needs a reason and an end date"),
        (
            'ignore = { PKG101 = { reason = "x", until = 2026-12-01, only = "peft" } }',
            'ignore.PKG101.only must be a list of strings, for instance only = ["peft"]',
        ),
        ("sites = { model = 3 }", "sites.model must be a path"),
        ("sites = 3", "sites must be a table"),
    ],
)
def test_mistake_is_reported_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "verl-doctor.toml").write_text(text)
    with pytest.raises(UsageError, match="verl-doctor\\.toml") as refused:
        load(tmp_path)
    assert message in str(refused.value)
