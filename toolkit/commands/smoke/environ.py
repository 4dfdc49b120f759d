"""The environment of a smoke test's rungs: the job's own, adapted to a private folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.commands.smoke.rung import Outcome
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

_PATH, _LINK = "path", "verl"


def smoke_environ(machine: Machine, facts: Facts, folder: Path) -> dict[str, str]:
    """Return the variables of the job's first process.

    `folder` is the private folder in which children run.
    """
    variables, job, rollout = facts.get(Variables), facts.get(JobVariables), facts.get(RolloutModule)
    environ = dict(machine.environ)
    if not isinstance(variables, Unknown) and not isinstance(job, Unknown):
        environ = child_environ(machine, variables, job, rollout)
    environ |= replace(machine, environ=environ).as_seen_from_elsewhere()
    if path := _with_own_verl(facts.get(VerlTrees), folder):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), environ.get("PYTHONPATH"))))
    return {**environ, **_warm_caches(facts)}


def _with_own_verl(trees: VerlTrees | Unknown, folder: Path) -> Path | None:
    """Return a folder with a link to the job's verl.

    This is done if an interpreter in another folder would import a different one.

    It is a link, so that nothing next to the tree is imported too.
    """
    if isinstance(trees, Unknown) or trees.imported.place not in ("named", "current folder"):
        return None
    path = folder / _PATH
    path.mkdir()
    (path / _LINK).symlink_to(trees.imported.folder)
    return path


def with_own_tree(folder: Path, outcome: Outcome) -> Outcome:
    """Replace the path of the link in a traceback by the path of the tree."""
    link = folder / _PATH / _LINK
    if not link.is_symlink():
        return outcome
    names = str(link), str(link.readlink())
    lines = tuple(line.replace(*names) for line in outcome.lines)
    return replace(outcome, cause=outcome.cause.replace(*names), lines=lines)


def _warm_caches(facts: Facts) -> dict[str, str]:
    """Return the job's existing caches of compiled kernels, without which each climb compiles all again.

    What is fetched from the hub, or made from data, stays in the private home. A folder that no
    variable names, /tmp/torchinductor_USER, counts only if this user owns it, because its content is
    executed.
    """
    caches = facts.get(Caches)
    known = () if isinstance(caches, Unknown) else caches.folders
    return {
        cache_folder.variable: cache_folder.value
        for cache_folder in known
        if cache_folder.variable != "HF_HOME"
        and os.path.isdir(cache_folder.path)
        and (cache_folder.set_by or _is_own(cache_folder.path))
    }


def _is_own(folder: str) -> bool:
    return Path(folder).stat().st_uid == os.geteuid()
