"""The fix for a tree that never ends its servers: edits, refusals, and behaviour of the edited code."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from verl_doctor.patches.source.servers_end_with_training import servers_end_with_training
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.rollout_servers import RolloutServers, rollout_servers
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding

NOTHING = Absent("no launch script was named")
MANAGER = """\
import ray


class Servers:
    def __init__(self):
        self.async_llm_servers = [None, "first", "second"]
        self.agent_loop_workers = ["worker"]

    def sleep(self):
        pass
"""
TRAINER = """\
class Trainer:
    def __init__(self, manager):
        self.async_rollout_manager = manager

    def fit(self, error=None):
        self.async_rollout_manager.sleep()
        if error:
            raise error
        return "trained"
"""


def written(folder: Path, manager: str = MANAGER, trainer: str = TRAINER) -> Path:
    for name, text in (("workers/rollout/servers.py", manager), ("trainer/trainer.py", trainer)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def seen(folder: Path, cwd: Path | None = None) -> RolloutServers | Absent:
    trees = VerlTrees(Tree(str(folder), "verl", "", ""), "")
    found = rollout_servers.collect(trees, NOTHING, NOTHING, Machine(cwd=cwd or folder))
    assert isinstance(found, (RolloutServers, Absent))
    return found


def planned(folder: Path, cwd: Path | None = None) -> dict[str, ReplaceFile] | Refusal:
    found = seen(folder, cwd)
    assert isinstance(found, RolloutServers)
    plan = servers_end_with_training.plan(
        Finding("", Evidence("")), found, SourceFiles(), Marker("verl-doctor")
    )
    if isinstance(plan, Refusal):
        return plan
    return {change.path.name: change for change in plan if isinstance(change, ReplaceFile)}


def run(plan: dict[str, ReplaceFile]) -> tuple[Any, list[str]]:
    """A trainer of the edited code, and the actors that it kills."""
    killed: list[str] = []

    def kill(actor: str) -> None:
        if actor == "first":
            raise RuntimeError("it is dead already")
        killed.append(actor)

    scope: dict[str, Any] = {"ray": SimpleNamespace(kill=kill)}
    for name in ("servers.py", "trainer.py"):
        text = plan[name].after.decode().replace("import ray", "")
        exec(compile(text, name, "exec"), scope)
    return scope["Trainer"](scope["Servers"]()), killed


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_servers_end_when_training_returns(
    tmp_path: Path, newline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(written(tmp_path, MANAGER.replace("\n", newline), TRAINER.replace("\n", newline)))
    assert isinstance(plan, dict)
    trainer, killed = run(plan)
    assert trainer.fit() == "trained"
    assert killed == ["worker", "second"], "one that cannot be killed keeps no other alive"
    assert "it is dead already" in capsys.readouterr().out
    assert trainer.async_rollout_manager.async_llm_servers == []
    for change in plan.values():
        lines = change.after.decode().split(newline)
        assert not any("\n" in line or line != line.rstrip() for line in lines)
        added = [line for line in lines if line.strip() and line not in change.before.decode().split(newline)]
        assert all(line.endswith("# verl-doctor: LEFT130") for line in added)


@pytest.mark.parametrize("error", [RuntimeError("no more memory"), KeyboardInterrupt(), SystemExit(15)])
def test_servers_end_when_training_fails_and_the_error_is_unchanged(
    tmp_path: Path, error: BaseException
) -> None:
    plan = planned(written(tmp_path))
    assert isinstance(plan, dict)
    trainer, killed = run(plan)
    with pytest.raises(type(error)) as raised:
        trainer.fit(error)
    assert raised.value is error
    assert killed == ["worker", "second"]


def test_failing_cleanup_does_not_hide_the_training_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(written(tmp_path))
    assert isinstance(plan, dict)
    trainer, _ = run(plan)

    def fails() -> None:
        raise OSError("the connection is gone")

    trainer.async_rollout_manager.cleanup = fails
    with pytest.raises(RuntimeError, match="no more memory"):
        trainer.fit(RuntimeError("no more memory"))
    assert trainer.fit() == "trained"
    assert "the connection is gone" in capsys.readouterr().out


def test_repaired_tree_is_left_alone(tmp_path: Path) -> None:
    folder = written(tmp_path)
    plan = planned(folder)
    assert isinstance(plan, dict)
    for change in plan.values():
        change.path.write_bytes(change.after)
    found = seen(folder)
    assert isinstance(found, RolloutServers)
    assert all(owner.ends for owner in (*found.managers, *found.trainers))
    assert planned(folder) == {}


def test_trainer_that_ends_its_servers_is_left_alone(tmp_path: Path) -> None:
    own = TRAINER + dedent(
        """
            def close(self):
                if hasattr(self.async_rollout_manager, "cleanup"):
                    self.async_rollout_manager.cleanup()
        """
    ).replace("\n", "\n    ")
    plan = planned(written(tmp_path, trainer=own.rstrip() + "\n"))
    assert isinstance(plan, dict)
    assert set(plan) == {"servers.py"}


@pytest.mark.parametrize(
    ("manager", "trainer", "why"),
    [
        (MANAGER.replace("import ray", "from ray import kill"), TRAINER, "does not import ray"),
        (MANAGER, TRAINER.replace("    def fit", "    async def fit"), "is not a plain method"),
    ],
)  # fmt: skip
def test_unfamiliar_form_is_refused(tmp_path: Path, manager: str, trainer: str, why: str) -> None:
    plan = planned(written(tmp_path, manager, trainer))
    assert isinstance(plan, Refusal)
    assert why in plan.reason


def test_tree_without_rollout_servers_is_absent(tmp_path: Path) -> None:
    assert isinstance(seen(written(tmp_path, "import ray\n")), Absent)


KEEPER = """\
class Keeper:
    def init_workers(self, manager):
        self.async_rollout_manager = manager
        self.async_rollout_manager.sleep()
"""


def test_copies_in_a_custom_project_are_found_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that keeps two files of verl in a folder `verl`, and trains elsewhere."""
    package = tmp_path / "project" / "agents" / "verl"
    package.mkdir(parents=True)
    (package / "async_server.py").write_text(MANAGER)
    (package / "ray_trainer.py").write_text(KEEPER)
    installed = tmp_path / "env" / "verl"
    installed.mkdir(parents=True)
    assert isinstance(seen(installed), Absent)
    plan = planned(installed, tmp_path / "project")
    assert isinstance(plan, dict)
    assert set(plan) == {"async_server.py", "ray_trainer.py"}
    ended: list[str] = []
    names: dict[str, Any] = {"ray": SimpleNamespace(kill=ended.append)}
    for change in plan.values():
        exec(change.after.decode().replace("import ray\n", ""), names)
        change.path.write_bytes(change.after)
    keeper = names["Keeper"]()
    keeper.init_workers(names["Servers"]())
    keeper.cleanup()
    assert ended == ["worker", "first", "second"]
    again = seen(installed, tmp_path / "project")
    assert isinstance(again, RolloutServers)
    assert all(part.ends for part in (*again.managers, *again.holders))
    assert planned(installed, tmp_path / "project") == {}
