"""Runs the construction's child process, and a second time without the stage that ended it.

Alternatively, it runs one that builds many similar jobs.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.construction.construction import Built, Construction, Frame
from verl_doctor.toolkit.collectors.construction.world import read
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.probes import construct
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.process.dialogue import Dialogue
from verl_doctor.toolkit.system.child import ending

_PACKAGE = Path(construct.__file__).with_name("construction")
_PASSES = 3
_NO_SUCH_FUNCTION = 127  # the loader's exit code where functions are looked up only when they are called
_REPORTED = 5.0  # seconds until the end of a process that exceeded its limit is reported
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


class Builder:
    """A child that has imported what takes long, and builds each job in a process of its own.

    `deadline` (of time.monotonic) is that of everything.
    """

    def __init__(self, dialogue: Dialogue, deadline: float) -> None:
        self._dialogue, self.deadline = dialogue, deadline

    def build(self, changed: Mapping[str, Any], limit: float) -> Construction | Unknown:
        """Build the job with these parts of the request changed, in at most `limit` seconds.

        Stages that it does not reach, because `until` ended it or a process crashed, are left out.
        """
        begun = time.monotonic()
        limit = min(limit, self.deadline - begun)
        if limit < 1:
            return Unknown("there is no time left")
        token = _token()
        self._dialogue.send(json.dumps({**changed, "token": token, "limit": limit}).encode() + b"\n")
        printed: list[str] = []
        for line in self._events(token, begun + limit + _REPORTED):
            event = json.loads(line.removeprefix(token))
            if event["event"] == "ended":
                output = Output(event["code"], "\n".join(printed), "", time.monotonic() - begun)
                return _of_events(events_of(output, token), output, limit)
            printed.append(line)
        return Unknown(f"the process that builds does not respond: {self._dialogue.last_error}")

    def is_ready(self, token: str) -> bool:
        """Wait until it has imported everything. Return whether it could."""
        return next(self._events(token, self.deadline), "") != ""

    def _events(self, token: str, deadline: float) -> Iterator[str]:
        with TURNS.waiting():
            for line in self._dialogue.lines(min(deadline, self.deadline)):
                if (text := line.decode("utf-8", "replace")).startswith(token):
                    yield text


@contextlib.contextmanager
def builder(
    machine: Machine, python: str, request: Mapping[str, Any], limit: float
) -> Iterator[Builder | Unknown]:
    """Start a child that builds jobs similar to the one of `request` for at most `limit` seconds.

    Afterwards it is ended.
    """
    deadline = time.monotonic() + limit
    token = _token()
    words = _command(python, token, {**request, "serve": True})
    try:
        with machine.open_dialogue(words, b"", env=_variables(machine), patience=0.0) as dialogue:
            found = Builder(dialogue, deadline)
            yield (
                found
                if found.is_ready(token)
                else Unknown(f"verl could not be imported: {dialogue.last_error}")
            )
    except OSError as error:
        yield Unknown(f"{python} cannot be started: {error.strerror}")


def _of_events(events: list[Mapping[str, Any]], output: Output, limit: float) -> Construction:
    whole = events[-1] if _is_whole(events) else {}
    stages = stages_of(events, output, limit)
    return Construction(
        tuple(stages), round(output.seconds, 2), tuple(whole.get("own", ())), read(whole.get("world"))
    )


def _run(
    machine: Machine, python: str, request: Mapping[str, Any], limit: float
) -> tuple[Output, str] | Unknown:
    token = _token()
    try:
        words = _command(python, token, request)
        return machine.run(words, timeout=limit, env=_variables(machine)), token
    except OSError as error:
        return Unknown(f"{python} cannot be started: {error.strerror}")


def _token() -> str:
    return f"verl-doctor {secrets.token_hex(8)} "


def _command(python: str, token: str, request: Mapping[str, Any]) -> list[str]:
    text = Path(construct.__file__).read_text("utf-8")
    return [python, "-c", text, token, json.dumps({**request, "package": str(_PACKAGE)})]


def _variables(machine: Machine) -> dict[str, str]:
    home = machine.home
    seen = machine.environ
    hub = seen.get("HF_HOME") or f"{seen.get('XDG_CACHE_HOME') or f'{home}/.cache'}/huggingface"
    return {"PYTHONDONTWRITEBYTECODE": "1", "HOME": home, "HF_HOME": hub}


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
