"""Plans that install packages: judged in the copy, taken back when that is worse, and how the job is started from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest

from verl_doctor.toolkit.change import LOCK, PYTHON, Change, InstallPackages, fix
from verl_doctor.toolkit.changes.apply import undo
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render import text
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Evidence, Finding, check
from verl_doctor.toolkit.target import Target


@dataclass(frozen=True)
class Lock:
    """The file that represents all packages, and the first entry of PATH."""

    packages: str
    first: str


@collector()
def lock(target: Target, machine: Machine) -> Lock:
    """Read it in the environment that is examined."""
    return Lock((target.prefix / "packages").read_text(), machine.environ.get("PATH", "").split(":")[0])


@check("PKG901")
def old_packages(lock: Lock) -> Iterator[Finding]:
    """The packages are old."""
    if lock.packages.startswith("old"):
        yield Finding("old packages", Evidence(lock.packages), fix="renew")


@check("PKG902")
def torn_packages(lock: Lock) -> Iterator[Finding]:
    """The packages are torn."""
    if "torn" in lock.packages:
        yield Finding("torn packages", Evidence(lock.packages))


@check("PKG903", severity="warning")
def twice_packages(lock: Lock) -> Iterator[Finding]:
    """The same packages are what is wrong here too."""
    if lock.packages.startswith("old"):
        yield Finding("old here too", Evidence(lock.packages), fix="renew")


def renewing(packages: str, installs: str):
    @fix("renew", repairs=("PKG901", "PKG903"), safety="unsafe", restart="Ray and the job")
    def renew(_: Finding, target: Target) -> list[Change]:
        """Install others."""
        script = f'top=${{0%/bin/python}}; rm "$top/packages"; {installs}'
        copy = target.prefix.with_name("env-repaired")
        words = ("/bin/sh", "-c", script, PYTHON, LOCK)
        return [InstallPackages(target.prefix, copy, (packages,), words, (), ("upgraded: a 1 -> 2",))]

    return renew


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python").symlink_to(sys.executable)
    (prefix / "pyvenv.cfg").touch()
    (prefix / "packages").write_text("old")
    return prefix


def session(prefix: Path, packages: str, installs: str = 'cp "$1" "$top/packages"') -> Session:
    checks = (old_packages, torn_packages, twice_packages)
    registry = Registry(checks, (renewing(packages, installs),), (lock,), (), PluginProblems(()))
    machine = Machine(environ={"PATH": f"{prefix}/bin:/usr/bin"}, cwd=prefix.parent)
    target = Target(prefix / "bin/python", "launch script", chosen_at="run.sh:3")
    return Session(machine, target, Config(), registry, Selection())


def carried_out(run: Session, *, in_place: bool = False) -> Report:
    seen = run.look()
    return repair.carry_out(run, seen, run.check(seen), unsafe=True, in_place=in_place)


def printed(report: Report) -> str:
    return "\n".join(line.plain for line in text.render(report))


def test_copy_is_judged_and_the_environment_left_unchanged(prefix: Path) -> None:
    report = carried_out(session(prefix, "new"))
    copy = prefix.with_name("env-repaired")
    assert [(done.code, done.outcome) for done in report.repairs or ()] == [("PKG901", "repaired")]
    assert repair.exit_code(report) == 0
    assert report.target["python"] == str(copy / "bin/python")
    assert (prefix / "packages").read_text() == "old"
    (done,) = report.repairs or ()
    assert done.notes == (
        "upgraded: a 1 -> 2",
        f"lock file: {copy}/verl-doctor.lock.txt",
        f"run.sh:3 names {prefix}/bin/python: write {copy}/bin/python there",
    )
    assert f"source {copy}/bin/activate" in printed(report)
    home = platformdirs.user_state_path("verl-doctor") / "journal"
    assert done.transaction == f"{home}/0001"
    undo(home)
    assert not copy.exists()


@pytest.mark.parametrize(
    ("packages", "installs", "outcome", "reason"),
    [
        ("torn", 'cp "$1" "$top/packages"', "made worse, undone", "PKG902 found more errors after it"),
        ("old 2", 'cp "$1" "$top/packages"', "still failing", "PKG901 still reports the same findings, so the installation was undone"),
        ("new", "echo ERROR: no wheel; exit 1", "refused", "the installer failed: no wheel; everything is as it was"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_place", [False, True])
def test_useless_installation_is_undone(
    prefix: Path, packages: str, installs: str, outcome: str, reason: str, *, in_place: bool
) -> None:
    report = carried_out(session(prefix, packages, installs), in_place=in_place)
    done = (report.repairs or ())[0]
    assert (done.outcome, done.reason) == (outcome, reason)
    assert report.verdict == "failures"
    assert report.target["python"] == str(prefix / "bin/python")
    assert [path.name for path in prefix.parent.iterdir()] == ["env"]
    assert sorted(path.name for path in prefix.iterdir() if path.name != ".verl-doctor") == [
        "bin",
        "packages",
        "pyvenv.cfg",
    ]
    assert (prefix / "packages").read_text() == "old"


def test_in_place_installation_judges_the_environment_itself(prefix: Path) -> None:
    report = carried_out(session(prefix, "new"), in_place=True)
    assert [done.outcome for done in report.repairs or ()] == ["repaired"]
    assert (prefix / "packages").read_text() == "new\n"
    assert "bin/activate" not in printed(report)
    undo(prefix / ".verl-doctor")
    assert (prefix / "packages").read_text() == "old"


def test_plan_names_the_command_once_and_changes_nothing(prefix: Path) -> None:
    run = session(prefix, "new")
    seen = run.look()
    report = repair.show(run, seen, run.check(seen))
    first, second = report.repairs or ()
    assert f"# a copy of {prefix} in {prefix}-repaired; the environment itself stays as it is\n" in first.diff
    assert first.diff.endswith("# upgraded: a 1 -> 2\n# lock file: 1 pin\n")
    assert (second.diff, second.reason) == ("", "the same installation as for PKG901")
    assert [path.name for path in prefix.parent.iterdir()] == ["env"]


def test_command_runs_if_nothing_can_be_kept_for_undo(prefix: Path) -> None:
    (prefix / "pyvenv.cfg").unlink()
    run = session(prefix, "new")
    seen = run.look()
    refused = repair.show(run, seen, run.check(seen))
    assert {done.outcome for done in refused.repairs or ()} == {"refused"}
    assert "is not a virtual environment" in (refused.repairs or ())[0].reason
    planned = repair.show(run, seen, run.check(seen), in_place=True)
    (change,) = (planned.repairs or ())[0].changes
    assert (change["kind"], change["argv"][-1]) == ("run_command", "new")
