"""The environment in which the rungs of a smoke test climb: the job's own, as it looks from a private folder."""

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
    """The variables of the process that the job starts with. `folder` is the private one in which children run."""
    variables, job, rollout = facts.get(Variables), facts.get(JobVariables), facts.get(RolloutModule)
    environ = dict(machine.environ)
    if not isinstance(variables, Unknown) and not isinstance(job, Unknown):
        environ = child_environ(machine, variables, job, rollout)
    environ |= replace(machine, environ=environ).as_seen_from_elsewhere()
    if path := _with_own_verl(facts.get(VerlTrees), folder):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), environ.get("PYTHONPATH"))))
    return {**environ, **_warm_caches(facts)}


def _with_own_verl(trees: VerlTrees | Unknown, folder: Path) -> Path | None:
    """A folder with a link to the verl that the job imports, where an interpreter in another folder would import another one.

    A link, so that what lies beside the tree is not imported too.
    """
    if isinstance(trees, Unknown) or trees.imported.place not in ("named", "current folder"):
        return None
    path = folder / _PATH
    path.mkdir()
    (path / _LINK).symlink_to(trees.imported.folder)
    return path


def with_own_tree(folder: Path, outcome: Outcome) -> Outcome:
    """Say where the tree lies, where a traceback shows the link to it."""
    link = folder / _PATH / _LINK
    if not link.is_symlink():
        return outcome
    names = str(link), str(link.readlink())
    lines = tuple(line.replace(*names) for line in outcome.lines)
    return replace(outcome, cause=outcome.cause.replace(*names), lines=lines)


def _warm_caches(facts: Facts) -> dict[str, str]:
    """The job's caches of compiled kernels, as far as they are there: without them each climb would compile everything again.

    What is fetched from the hub, or made of data, stays in the private home. A folder that nobody named, /tmp/torchinductor_USER, may
    be another user's work: what lies there is run.
    """
    caches = facts.get(Caches)
    known = () if isinstance(caches, Unknown) else caches.folders
    return {
        cache_folder.variable: cache_folder.value
        for cache_folder in known
        if cache_folder.variable != "HF_HOME"
        and os.path.isdir(cache_folder.path)
        and (cache_folder.told_by or _is_own(cache_folder.path))
    }


def _is_own(folder: str) -> bool:
    return Path(folder).stat().st_uid == os.geteuid()
