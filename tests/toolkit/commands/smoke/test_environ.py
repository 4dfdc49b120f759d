"""Children of a smoke test have the job's variables and the verl that the job imports, and nothing else from its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches
from verl_doctor.toolkit.collectors.installed.trees import HERE, NAMED, SITE, Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.commands.smoke import environ as subject
from verl_doctor.toolkit.commands.smoke.environ import smoke_environ, with_own_tree
from verl_doctor.toolkit.commands.smoke.rung import Outcome
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.machine import Machine


def environ(private: Path, tree: Path, found_in: str, **variables: str) -> dict[str, str]:
    facts = Collection((), {VerlTrees: VerlTrees(Tree(str(tree), "verl", "1", found_in), "the test")})
    return smoke_environ(Machine(environ=variables), facts, private)


@pytest.mark.parametrize("found_in", [NAMED, HERE])
def test_tree_outside_site_packages_is_linked_alone(found_in: str, tmp_path: Path) -> None:
    tree = tmp_path / "env" / "verl"
    tree.mkdir(parents=True)
    path = environ(tmp_path, tree, found_in, PYTHONPATH="/mine")["PYTHONPATH"].split(os.pathsep)
    assert path[1:] == ["/mine"]
    assert [(entry.name, entry.readlink()) for entry in Path(path[0]).iterdir()] == [("verl", tree)]
    seen = Outcome("failed", lines=(f'File "{path[0]}/verl/trainer/main_ppo.py", line 1',))
    assert with_own_tree(tmp_path, seen).lines == (f'File "{tree}/trainer/main_ppo.py", line 1',)


def test_importable_tree_needs_no_link(tmp_path: Path) -> None:
    assert "PYTHONPATH" not in environ(tmp_path, tmp_path / "verl", SITE)
    assert not list(tmp_path.iterdir())


def test_path_of_the_launch_script_is_used_and_made_absolute(tmp_path: Path) -> None:
    machine = Machine(environ={"PYTHONPATH": "/shell"}, cwd=tmp_path)
    job = JobVariables({"PYTHONPATH": "lib:/shell"}, {"PYTHONPATH": ("run.sh", 1)})
    facts = Collection((), {Variables: Variables({"PYTHONPATH": "/shell"}), JobVariables: job})
    assert smoke_environ(machine, facts, tmp_path)["PYTHONPATH"] == f"{tmp_path}/lib:/shell"


@pytest.mark.parametrize(("set_by", "owner", "counts"), [("", 0, True), ("", 1, False), ("X_CACHE", 1, True)])
def test_cache_of_another_user_is_used_only_if_the_job_names_it(
    set_by: str, owner: int, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user can create /tmp/torchinductor_USER, and its content is executed."""
    folder = CacheFolder("kernels", "X_CACHE", str(tmp_path), set_by)
    monkeypatch.setattr(subject.os, "geteuid", lambda: tmp_path.stat().st_uid + owner)
    facts = Collection((), {Caches: Caches((folder,))})
    assert ("X_CACHE" in smoke_environ(Machine(environ={}), facts, tmp_path)) is counts
