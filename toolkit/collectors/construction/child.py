"""Runs the construction's child process, and a second time without the stage that ended it."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.construction.construction import Built, Construction, Frame
from verl_doctor.toolkit.collectors.construction.world import read
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.probes import construct
from verl_doctor.toolkit.system.child import ending

_PACKAGE = Path(construct.__file__).with_name("construction")
_PASSES = 3
_NO_SUCH_FUNCTION = 127  # the loader's exit code where functions are looked up only when they are called
_SHOWN = 400  # characters of a process's output when it crashes


def constructed(
    machine: Machine, python: str, request: Mapping[str, Any], limit: float
) -> Construction | Unknown:
    """Build the job described by `request`, in at most `limit` seconds."""
    begun = time.monotonic()
    ended: dict[str, Built] = {}
    own: list[str] = []
    reported = None
    skip: list[str] = []
    for _ in range(_PASSES):
        left = limit - (time.monotonic() - begun)
        if left < 1:
            break
        output = _run(machine, python, {**request, "skip": skip}, left)
        if isinstance(output, Unknown):
            return output
        events = events_of(*output)
        stages = stages_of(events, output[0], left)
        for built in stages:
            if ended.get(built.stage, built).ended in ("ok", "not reached") or built.stage not in ended:
                ended[built.stage] = built
        last = stages[-1] if stages else None
        if last is None:
            return Unknown(f"the job could not be built: {ending(output[0], left)}")
        if _is_whole(events):
            own, reported = events[-1]["own"], events[-1].get("world")
            break
        skip.append(last.stage)
    return Construction(tuple(ended.values()), round(time.monotonic() - begun, 2), tuple(own), read(reported))


def _run(
    machine: Machine, python: str, request: Mapping[str, Any], limit: float
) -> tuple[Output, str] | Unknown:
    text = Path(construct.__file__).read_text("utf-8")
    token = f"verl-doctor {secrets.token_hex(8)} "
    order = json.dumps({**request, "package": str(_PACKAGE)})
    home = machine.home
    seen = machine.environ
    hub = seen.get("HF_HOME") or f"{seen.get('XDG_CACHE_HOME') or f'{home}/.cache'}/huggingface"
    env = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": home, "HF_HOME": hub}
    try:
        return machine.run([python, "-c", text, token, order], timeout=limit, env=env), token
    except OSError as error:
        return Unknown(f"{python} cannot be started: {error.strerror}")


def events_of(output: Output, token: str) -> list[Mapping[str, Any]]:
    """Return the events that a child printed after its token. A truncated line is left out."""
    found = []
    for line in output.stdout.splitlines():
        if line.startswith(token):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line.removeprefix(token)))
    return found


def _is_whole(events: list[Mapping[str, Any]]) -> bool:
    """Return whether the child ran to its end."""
    return bool(events) and events[-1]["event"] == "whole"


def stages_of(events: list[Mapping[str, Any]], output: Output, limit: float) -> list[Built]:
    """Return the stages that finished, followed by the stage in which the child ended."""
    users: dict[str, bool] = {}
    found: list[Built] = []
    for event in events:
        if event["event"] == "begin":
            users[event["stage"]] = event["users"]
        elif event["event"] == "end":
            found.append(_built(event, users=users.get(event["stage"], False)))
    open_ = [name for name in users if name not in {built.stage for built in found}]
    if open_ and not _is_whole(events):
        name = open_[-1]
        found.append(_last(name, output, limit, users=users[name]))
    return found


def _last(stage: str, output: Output, limit: float, *, users: bool) -> Built:
    """Return the stage in which the child ended or was killed."""
    if output.code is None:
        return Built(stage, "hangs", text=ending(output, limit), users=users)
    if output.code == _NO_SUCH_FUNCTION:
        return Built(
            stage,
            "not judged",
            text="it calls a library that is not here, such as the GPU's driver",
            users=users,
        )
    kind = f"signal {-output.code}" if output.code < 0 else ""
    return Built(stage, "crashes", kind=kind, text=output.stderr.strip()[:_SHOWN], users=users)


def _built(event: Mapping[str, Any], *, users: bool) -> Built:
    frames = tuple(
        Frame(frame["file"], frame["line"] or 0, frame["function"], frame["of"])
        for frame in event.get("frames", ())
    )
    return Built(
        event["stage"],
        event["state"],
        event["seconds"],
        event.get("kind", ""),
        event.get("text", ""),
        event.get("key", ""),
        frames=frames,
        users=users,
    )
