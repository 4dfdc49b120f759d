"""The effective environment as a JSON document, and the phrases that its views share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.collectors.variables.effective_environment import (
    NOT_DETERMINED,
    WITHHELD,
    Assigned,
    Decider,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.json_document import plain
from verl_doctor.toolkit.text import counted, listed

NOT_SET = "-"
HIDDEN = "***"
UNDETERMINED = "?"


class RayletDocument(TypedDict):
    """A raylet on this machine."""

    pid: int
    address: str


class ValueDocument(TypedDict):
    """The value of a variable in one place."""

    set: Annotated[bool | None, "null if unknown"]
    text: str | None
    undetermined: Annotated[str | None, "why the text is unknown"]


class AssignedDocument(TypedDict):
    """A value that verl sets."""

    value: ValueDocument
    to: Annotated[str, "the processes that get it"]
    path: str | None
    line: int | None


class VariableDocument(TypedDict):
    """One variable, wherever the job sees it."""

    name: str
    driver: ValueDocument
    raylets: Annotated[list[ValueDocument], "one for each raylet, or one if there is none"]
    workers: Annotated[list[ValueDocument], "what the workers of each raylet see when they start"]
    differs: bool
    decided_by: Decider
    path: str | None
    line: int | None
    dropped: Annotated[
        AssignedDocument | None, "verl's default, omitted because the driver sets the variable"
    ]
    later: Annotated[list[AssignedDocument], "processes to which verl gives another value"]


class ClashDocument(TypedDict):
    """A variable that both the launch script and verl put into the runtime_env."""

    name: str
    path: str
    line: int
    verl_path: str
    verl_line: int


class EnvironmentDocument(TypedDict):
    """The environment variables of a job's processes."""

    schema_version: Literal[1]
    cluster: Annotated[
        str | None, "the address of the cluster that the job joins; null if it starts its own Ray"
    ]
    raylets: list[RayletDocument]
    program: Annotated[str | None, "the program that was followed to ray.init"]
    uses_ray: Annotated[bool, "false: the program starts no Ray, and its workers are its own processes"]
    unread: list[str]
    variables: list[VariableDocument]
    clashes: list[ClashDocument]


def document(environment: EffectiveEnvironment) -> EnvironmentDocument:
    """Return all rows, including those that are the same everywhere."""
    return {
        "schema_version": 1,
        "cluster": environment.standing or None,
        "raylets": [plain(raylet) for raylet in environment.raylets],
        "program": environment.verl or None,
        "uses_ray": environment.uses_ray,
        "unread": list(environment.unread),
        "variables": [_row(row) for row in environment.rows],
        "clashes": [plain(clash) for clash in environment.clashes],
    }


def worth_showing(environment: EffectiveEnvironment, *, every: bool) -> list[Effective]:
    """Return the rows of a table.

    Without `every`, return only those that differ, or that something other than the shell sets.
    """
    decided = ("verl", "the runtime_env")
    return [
        row
        for row in environment.rows
        if every or row.differs or row.dropped is not None or row.decided_by in decided or _by_servers(row)
    ]


def _by_servers(row: Effective) -> bool:
    """Return whether verl gives the rollout servers a value other than the one set."""
    return any(
        assigned.to == "rollout servers" and row.driver.differs(assigned.value) for assigned in row.later
    )


def headline(environment: EffectiveEnvironment) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
    other = [row for row in environment.rows if row.driver.is_set and row.driver.differs(row.worker)]
    if environment.standing and not environment.raylets:
        return "UNKNOWN", "what the workers inherit is not visible from here"
    if other:
        verb = "is" if len(other) == 1 else "are"
        return (
            "DIFFERS",
            f"{counted(len(other), 'variable')} of the driver {verb} different for its workers",
        )
    if not environment.verl and environment.unread:
        return "UNKNOWN", environment.unread[0]
    return "SAME", "the workers see every variable as the driver does"


def circumstances(environment: EffectiveEnvironment) -> Iterator[str]:
    """Yield what the workers inherit from, and what is unknown."""
    numbers = listed((str(raylet.pid) for raylet in environment.raylets), 8)
    if environment.raylets:
        plural = "s" if len(environment.raylets) > 1 else ""
        yield (
            f"the job joins {environment.standing}; its workers inherit from the raylet{plural} here (pid "
            f"{numbers})"
        )
    elif environment.standing:
        cluster = "a cluster" if environment.standing == "auto" else environment.standing
        yield (
            f"the job joins {cluster}, but none of its raylets is visible here: what its workers inherit is "
            "unknown"
        )
    elif environment.by_script:
        yield "the launch script starts Ray: its workers inherit what is set before ray start"
    elif environment.uses_ray:
        yield "the job starts its own Ray: its workers inherit what the driver has"
    else:
        yield "the program starts no Ray: its processes inherit what the driver has"
    if environment.verl:
        yield f"what verl sets is read from {environment.verl}"
    yield from environment.unread


def cell(value: Value) -> str:
    """Return a value in a table."""
    if value.undetermined:
        return HIDDEN if value.undetermined == WITHHELD else UNDETERMINED
    return NOT_SET if value.text is None else value.text or '""'


def legend(rows: Iterable[Effective]) -> str:
    """Return the meaning of the signs that occur in the cells."""
    values = [value for row in rows for value in (row.driver, *row.raylets, *row.workers)]
    signs = {cell(value) for value in values if value.undetermined or value.text is None}
    meanings = {
        NOT_SET: "not set",
        HIDDEN: "set, possibly a secret",
        UNDETERMINED: "unknown",
    }
    return "; ".join(f"{sign} {meaning}" for sign, meaning in meanings.items() if sign in signs)


def decided_at(row: Effective, environment: EffectiveEnvironment) -> str:
    """Return where the workers' value is set, "" if not in a file: "verl/trainer/constants_ppo.py:93"."""
    return _at(row.path, row.line, environment)


def notes(row: Effective, environment: EffectiveEnvironment) -> Iterator[str]:
    """Yield notes on what does not fit into the columns."""
    if row.worker.undetermined not in ("", NOT_DETERMINED, WITHHELD):
        yield f"worker: {row.worker.undetermined}"
    if row.dropped is not None:
        where = _at(row.dropped.path, row.dropped.line, environment)
        yield f"verl omits its default {cell(row.dropped.value)} because the driver sets it ({where})"
    for assigned in row.later:
        given = "removed" if assigned.value.is_set is False else cell(assigned.value)
        yield f"{assigned.to}: {given} ({_at(assigned.path, assigned.line, environment)})"
    if len(set(row.raylets)) > 1 or len(set(row.workers)) > 1:
        pairs = zip(environment.raylets, row.raylets, row.workers, strict=False)
        for raylet, value, worker in pairs:
            yield f"raylet {raylet.pid}: {cell(value)}, its workers: {cell(worker)}"


def _at(path: str, line: int, environment: EffectiveEnvironment) -> str:
    """Shorten a place by the folders above verl's package, which the head of the page names."""
    before, package, _ = environment.verl.rpartition("/verl/")
    short = path.removeprefix(f"{before}/") if package else path
    return f"{short}:{line}" if short and line else short


def _row(row: Effective) -> VariableDocument:
    return {
        "name": row.name,
        "driver": _value(row.driver),
        "raylets": [_value(value) for value in row.raylets],
        "workers": [_value(value) for value in row.workers],
        "differs": row.differs,
        "decided_by": row.decided_by,
        "path": row.path or None,
        "line": row.line or None,
        "dropped": None if row.dropped is None else _assigned(row.dropped),
        "later": [_assigned(assigned) for assigned in row.later],
    }


def _value(value: Value) -> ValueDocument:
    return {"set": value.is_set, "text": value.text, "undetermined": value.undetermined or None}


def _assigned(assigned: Assigned) -> AssignedDocument:
    return {
        "value": _value(assigned.value),
        "to": assigned.to,
        "path": assigned.path or None,
        "line": assigned.line or None,
    }
