"""A table of releases, and what an upgrade would break, as JSON documents."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.commands.matrix.judge import State
from verl_doctor.toolkit.commands.matrix.matrix import Row, Side, Subject, Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.commands.matrix.sentences import headline, upgrade_headline
from verl_doctor.toolkit.json_document import Code, Count, plain
from verl_doctor.toolkit.rule import Severity


class SideDocument(TypedDict):
    """The release on one side of a pair."""

    project: str
    version: str
    folder: str
    found_in: str


class StateDocument(TypedDict):
    """The state of one path of a job."""

    path: str
    state: Annotated[State, "it starts, fails in its imports or at engine start, or could not be checked"]


class BreakDocument(TypedDict):
    """A finding about a pair."""

    code: Code
    message: str
    severity: Severity
    phase: Annotated[str, "empty if unknown"]
    stops: list[str]
    may_stop: list[str]
    places: Annotated[list[str], "lines, relative to the folder that holds the package"]
    remedy: str
    fix: Annotated[str | None, "the fix that repairs it, if there is one"]


class ObjectionDocument(TypedDict):
    """A requirement that is not met."""

    about: Annotated[str, "a package, or python, wheel, cuda or driver"]
    wanted: str
    here: str
    by: str


class RowDocument(TypedDict):
    """A pair of releases."""

    project: str
    version: str
    installed: bool
    starts: bool
    fits: Annotated[bool, "it starts, and no requirement is violated"]
    paths: list[StateDocument]
    reason: Annotated[str, "why it could not be checked"]
    breaks: list[BreakDocument]
    optional: list[BreakDocument]
    pinned: Annotated[bool, "whether this verl pins vLLM at all"]
    pins: Annotated[list[ObjectionDocument], "pins of verl that exclude the pair"]
    environment: Annotated[list[ObjectionDocument], "what the target violates"]
    exchanged: Annotated[list[ObjectionDocument], "packages that would have to be replaced along with it"]
    clashes: Annotated[
        list[ObjectionDocument], "packages that verl and vLLM require in incompatible versions"
    ]
    unclear: Annotated[list[str], "packages for which that is unknown"]


# The key is that of 0.1; `said` is a poor name for an attribute.
_Sentence = TypedDict("_Sentence", {"said": Annotated[str, "the result as a sentence"]})  # noqa: UP013


class MatrixDocument(_Sentence):
    """Releases of one project with the installed release of the other."""

    schema_version: Literal[1]
    kind: Literal["matrix"]
    subject: Annotated[Subject, "the project of the rows"]
    other: SideDocument
    python: Annotated[str, "the interpreter of the environment that was examined"]
    releases_offered: Annotated[Count, "releases with a wheel in the index"]
    index_read: Annotated[
        float | None,
        "when the cached list of releases was read, in seconds since the epoch; null if it was read just now",
    ]
    index_silent: Annotated[list[str], "indexes that did not respond"]
    recommended: Annotated[str | None, "the newest release that fits; null if none does"]
    nearest: Annotated[str | None, "the release that comes closest; null if none starts"]
    rows: list[RowDocument]


class UpgradeDocument(_Sentence):
    """What an upgrade of vLLM would change."""

    schema_version: Literal[1]
    kind: Literal["next"]
    verl: SideDocument
    now: SideDocument
    breaks: Annotated[list[BreakDocument], "what would newly stop a path"]
    may_break: Annotated[list[BreakDocument], "what would newly stop a path under some settings"]
    mends: Annotated[list[BreakDocument], "what stops a path now and no longer would"]
    paths_now: list[StateDocument]
    next: RowDocument
    newer_verl: Annotated[list[RowDocument], "newer releases of verl with the new vLLM, if something breaks"]


class NothingNewerDocument(TypedDict):
    """There is no newer release."""

    schema_version: Literal[1]
    kind: Literal["next"]
    next: None


AnyDocument = MatrixDocument | UpgradeDocument | NothingNewerDocument


def table_document(table: Table) -> MatrixDocument:
    """Return the document about a table."""
    best = table.best
    return {
        "schema_version": 1,
        "kind": "matrix",
        "subject": table.subject,
        "other": _side(table.other),
        "python": table.python,
        "releases_offered": table.offered,
        "index_read": table.taken or None,
        "index_silent": list(table.silent),
        "recommended": best.version if best is not None and best.fits else None,
        "nearest": best.version if best is not None else None,
        "said": headline(table)[1],
        "rows": [_row(row) for row in table.rows],
    }


def upgrade_document(upgrade: Upgrade | None) -> UpgradeDocument | NothingNewerDocument:
    """Return the document about an upgrade; empty if there is no newer release."""
    if upgrade is None:
        return {"schema_version": 1, "kind": "next", "next": None}
    return {
        "schema_version": 1,
        "kind": "next",
        "verl": _side(upgrade.verl),
        "now": _side(upgrade.now),
        "said": upgrade_headline(upgrade)[1],
        "breaks": [plain(breakage) for breakage in upgrade.breaks],
        "may_break": [plain(breakage) for breakage in upgrade.may_break],
        "mends": [plain(mend) for mend in upgrade.mends],
        "paths_now": [plain(path) for path in upgrade.before.paths],
        "next": _row(upgrade.row),
        "newer_verl": [_row(row) for row in upgrade.verls],
    }


def _side(side: Side) -> SideDocument:
    return {
        "project": side.project,
        "version": side.version,
        "folder": side.tree.folder,
        "found_in": side.tree.found_in,
    }


def _row(row: Row) -> RowDocument:
    verdict = row.verdict
    return {
        "project": row.project,
        "version": row.version,
        "installed": row.installed,
        "starts": row.starts,
        "fits": row.fits,
        "paths": [plain(path) for path in verdict.paths] if verdict else [],
        "reason": row.unread or (verdict.reason if verdict else ""),
        "breaks": [plain(breakage) for breakage in verdict.stopping] if verdict else [],
        "optional": [plain(breakage) for breakage in verdict.optional] if verdict else [],
        "pinned": row.pinned,
        "pins": [plain(pin) for pin in row.pins],
        "environment": [plain(objection) for objection in row.environment],
        "exchanged": [plain(objection) for objection in row.exchanged],
        "clashes": [plain(clash) for clash in row.clashes],
        "unclear": list(row.unclear),
    }
