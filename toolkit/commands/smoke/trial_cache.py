"""Remember passed trials in the doctor's cache, with their conditions.

Once the conditions change, the trials no longer count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from verl_doctor.toolkit.cluster.fleet_subjects import compared_variables
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed import result_cache
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import F, Unknown
from verl_doctor.toolkit.text import listed

Conditions = Mapping[str, str]
"""The conditions of a trial: readable names, each with a version or a digest."""

_DIGEST = "digest "
_NAMED = 3


@dataclass(frozen=True)
class Climbed:
    """The results of `verl-doctor smoke`, rung by rung, in these conditions. `when` is UTC in ISO 8601."""

    when: str
    conditions: Conditions
    run: SmokeRun


@dataclass(frozen=True)
class Logged:
    """A first training step in a log: `where` is its file and line."""

    when: str
    conditions: Conditions
    where: str


def conditions(run: Session, facts: Facts) -> dict[str, str]:
    """Return the conditions that a trial depends on, as this look found them."""
    interpreter, packages = facts.get(Interpreter), facts.get(Packages)
    verl, vllm = facts.get(VerlTrees), facts.get(VllmTree)
    gpus, variables = facts.get(Gpus), facts.get(Variables)
    found = {"Python": "" if isinstance(interpreter, Unknown) else interpreter.version}
    if not isinstance(packages, Unknown):
        found.update({distribution.name: distribution.version for distribution in packages.distributions})
    if not isinstance(verl, Unknown):
        found["the sources of verl"] = _sources(verl.imported.folder)
    if not isinstance(vllm, Unknown):
        found["the sources of vLLM"] = _sources(vllm.tree.folder)
    if not isinstance(gpus, Unknown):
        found["the driver"] = gpus.driver
        found["the GPUs"] = ", ".join(device.name for device in gpus.devices)
    if not isinstance(variables, Unknown):
        found.update({name: value for (_, name), value in compared_variables(variables).items()})
    found.update({f"{path.name}": digest_of(path) for path in run.target.files})
    return found


def changed(before: Conditions, now: Conditions) -> str:
    """Describe what has changed since; "" for nothing."""
    return listed(_changes(before, now), _NAMED)


def _changes(before: Conditions, now: Conditions) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        was, is_now = before.get(name, ""), now.get(name, "")
        if was != is_now:
            digests = was.startswith(_DIGEST) or is_now.startswith(_DIGEST)
            yield f"{name} changed" if digests else f"{name} {was or 'none'} -> {is_now or 'none'}"


def digest_of(path: Path) -> str:
    """Return the digest of a file's content for the conditions."""
    try:
        return f"digest {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    except OSError as error:
        return f"digest of nothing: {error.strerror}"


def _sources(folder: str) -> str:
    return f"digest {result_cache.fingerprint([Path(folder)])[:16]}"


def keep_climb(run: Session, facts: Facts, climbed: SmokeRun) -> None:
    """Remember a climb.

    Rungs that passed earlier in the same conditions, and were not tried this time, stay passed.
    """
    now = conditions(run, facts)
    before = recall(run, Climbed)
    if before is not None and not changed(before.conditions, now):
        tried = {rung.number for rung in climbed.rungs if rung.status != "not reached"}
        others = [rung for rung in before.run.rungs if rung.number not in tried]
        kept = {rung.number: rung for rung in (*climbed.rungs, *others)}
        climbed = replace(climbed, rungs=tuple(kept[number] for number in sorted(kept)))
    result_cache.keep(Climbed(_now(), now, climbed), _key(run))


def keep_log(run: Session, where: str, now: Conditions) -> None:
    """Remember that a first step was logged."""
    result_cache.keep(Logged(_now(), now, where), _key(run))


def recall(run: Session, kind: type[F]) -> F | None:
    """Return what was last remembered for this interpreter and script, whatever has changed since."""
    return result_cache.recall(kind, _key(run))


def _key(run: Session) -> str:
    target = run.target
    about = (str(target.python), str(target.verl), [str(file) for file in target.files], target.words)
    return hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")).hexdigest()


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
