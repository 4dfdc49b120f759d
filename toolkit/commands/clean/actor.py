"""End actors and remove placement groups that finished jobs left in Ray clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import KillActor, Leftover, Outcome, RemoveGroup
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import ray_remove
from verl_doctor.toolkit.system.child import ending, run_probe

_ENDING, _LIMIT = 60.0, 75.0  # seconds: for the child's work, and until it is killed

_SILENCE = "Ray did not report the result"


def remove(leftovers: Sequence[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Query each cluster once.

    Refuse if another driver has connected meanwhile, or the cluster has been replaced.
    """
    for cluster, some in groupby(leftovers, key=lambda leftover: _cluster(leftover.removal)):
        same = list(some)
        reasons = _reasons(same, cluster, machine)
        for leftover in same:
            why = reasons.get(_identity(leftover.removal), reasons.get("", _SILENCE))
            yield Outcome(leftover, "not removed" if why else "removed", why)


def _cluster(removal: object) -> tuple[str, str, str, str]:
    """Return address, session, interpreter and token of the cluster."""
    if isinstance(removal, (KillActor, RemoveGroup)):
        return removal.address, removal.session, removal.python, removal.token
    raise TypeError(f"{type(removal).__name__} is not a removal in a Ray cluster")


def _identity(removal: object) -> str:
    return removal.actor if isinstance(removal, KillActor) else getattr(removal, "group", "")


def _reasons(
    leftovers: Sequence[Leftover], cluster: tuple[str, str, str, str], machine: Machine
) -> dict[str, str]:
    """Return for each identity why it still exists, "" if it is gone; the entry "" holds for all others."""
    address, session, python, token = cluster
    removals = [leftover.removal for leftover in leftovers]
    question = {
        "address": address,
        "session": session,
        "actors": [removal.actor for removal in removals if isinstance(removal, KillActor)],
        "groups": [removal.group for removal in removals if isinstance(removal, RemoveGroup)],
        "limit": _ENDING,
    }
    mode = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token} if token else {"RAY_AUTH_MODE": "disabled"}
    )
    result = run_probe(machine, python, ray_remove, json.dumps(question), timeout=_LIMIT, variables=mode)
    if isinstance(result, Unknown):
        return {"": result.reason}
    answer, reported = result
    if not isinstance(reported, dict):
        return {"": f"Ray could not be queried: {ending(answer, _LIMIT)}"}
    return dict(reported.get("told") or {"": str(reported.get("refused") or _SILENCE)})
