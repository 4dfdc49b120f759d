"""The sentences about a table of releases, for every view of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from verl_doctor.toolkit.commands.matrix.judge import Break, PathState, Verdict
from verl_doctor.toolkit.commands.matrix.matrix import Row, Table
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade
from verl_doctor.toolkit.text import counted

STATES = {
    "starts": "starts",
    "import": "fails: import",
    "start": "fails: start",
    "unknown": "unknown",
}
"""The state of a path, for a cell."""
NOTHING_NEWER = "the index has no newer release to upgrade to"


def paths_of(rows: tuple[Row, ...]) -> list[str]:
    """Return the paths that some row judges, in a stable order."""
    return sorted({path.path for row in rows if row.verdict for path in row.verdict.paths}, reverse=True)


def cell(row: Row, path: str) -> str:
    """Return the state of one path of one release."""
    states = [state for state in row.verdict.paths if state.path == path] if row.verdict else []
    if row.verdict is None:
        return "unread"
    return STATES[states[0].state] if states else "-" if row.verdict.paths else STATES["unknown"]


def named(row: Row) -> str:
    """Return a release in readable form."""
    return f"{row.project} {row.version}"


def headline(table: Table) -> tuple[str, str]:
    """Return the result as a word and a sentence."""
    best = table.best
    if best is None:
        return "NONE STARTS", f"no listed release starts with {other(table)}"
    if best.fits:
        return "RECOMMENDED", f"{named(best)}: {fit(best)}"
    if best.starts:
        return "NONE FITS", f"the closest is {named(best)}: it starts, but {'; '.join(against(best))}"
    return "NONE FITS", f"the closest is {named(best)}: {_partly(best)}"


def other(table: Table) -> str:
    """Return the side that is the same in all rows."""
    return f"{table.other.project} {table.other.version or 'of unknown version'}"


def place(table: Table) -> str:
    """Return where the other side was read: a folder of the user's, or its wheel."""
    tree = table.other.tree
    return f"{other(table)}, {tree.found_in}" if tree.place == "wheel" else f"{other(table)} in {tree.folder}"


def labels(rows: Iterable[Row]) -> dict[Row, str]:
    """Return the label of each release: its version, with the project if there are several."""
    known = list(rows)
    several = len({row.project for row in known}) > 1
    return {row: named(row) if several else row.version for row in known}


def extent(table: Table) -> str:
    """Return how many releases were judged, of how many."""
    projects = " and ".join(dict.fromkeys(row.project for row in table.rows))
    return f"{len(table.rows)} of {counted(table.offered, 'release')} of {projects}"


def fit(row: Row) -> str:
    """Return what was judged and found to be right."""
    pins = "verl's pins admit it" if row.pinned else "verl pins no vLLM"
    return f"it starts, {pins}, and nothing installed here conflicts"


def against(row: Row) -> list[str]:
    """Objections to a release besides its sources."""
    return [str(clash) for clash in (*row.clashes, *row.pins, *row.environment)]


def objections(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return each objection, with the releases that it applies to."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        reasons = [
            *against(row),
            *(f"unknown whether a release of {name} satisfies both" for name in row.unclear),
        ]
        reasons += filter(None, [row.unread, row.verdict.reason if row.verdict else ""])
        for reason in reasons:
            found.setdefault(reason, []).append(row)
    return found


def _partly(row: Row) -> str:
    paths = row.verdict.paths if row.verdict else ()
    parts = [f"{path.path} {STATES[path.state]}" for path in paths]
    return ", ".join(parts) + "".join(f"; {objection}" for objection in against(row))


def environment(row: Row) -> str:
    """Return the conflicts of the target with a release, for a cell."""
    about = dict.fromkeys(clash.about for clash in (*row.clashes, *row.environment))
    return ", ".join(about) or ("fits" if row.verdict else "")


def pins(row: Row) -> str:
    """Return whether verl's pins admit a release, for a cell."""
    return "" if row.verdict is None else "no" if row.pins else "yes" if row.pinned else "none"


def first_break(verdict: Verdict) -> Break | None:
    """Return the first break of a job: while modules are imported, then at engine start."""
    return min(
        verdict.stopping,
        key=lambda breakage: (breakage.phase != "import", breakage.code, breakage.places),
        default=None,
    )


def causes(table: Table) -> Iterator[tuple[list[Row], Break]]:
    """Yield the first break of each run of adjacent releases that fail in the same place."""
    failing = [(row, first) for row in table.rows if row.verdict and (first := first_break(row.verdict))]
    for _, group in groupby(
        failing, key=lambda entry: (_message_without_release(*entry), entry[1].places[:1])
    ):
        members = list(group)
        row, first = members[0]
        yield (
            [row for row, _ in members],
            first if len(members) == 1 else replace(first, message=_message_without_release(row, first)),
        )


def _message_without_release(row: Row, breakage: Break) -> str:
    """Return the message of a finding, without the release."""
    return breakage.message.replace(f"vLLM {row.version}", "vLLM")


def span(rows: list[Row], called: Mapping[Row, str]) -> str:
    """Return the releases of a run: "0.12.0 to 0.18.1"."""
    first, last = called[rows[0]], called[rows[-1]]
    return first if len(rows) == 1 else f"{first} to {last}"


def more(verdict: Verdict) -> str:
    """Return what else stops a release."""
    rest = len(verdict.stopping) - 1
    return f"and {counted(rest, 'more break', 'more breaks')}" if rest > 0 else ""


def age(taken: float) -> str:
    """Describe the age of an index page; empty if it is fresh."""
    if not taken:
        return ""
    hours = max(0.0, time.time() - taken) / 3600
    if hours < 1:
        old = "less than an hour old"
    elif hours < 48:
        old = f"{counted(round(hours), 'hour')} old"
    else:
        old = f"{round(hours / 24)} days old"
    return f"the index's list of releases comes from the cache and is {old}"


def upgrade_headline(upgrade: Upgrade) -> tuple[str, str]:
    """Return what an upgrade would do, as a word and a sentence."""
    step = f"{upgrade.now.project} {upgrade.now.version or '(unknown)'} to {named(upgrade.row)}"
    under = f"under verl {upgrade.verl.version or 'of unknown version'}"
    if upgrade.breaks:
        return "BREAKS", f"{step} {under}: {counted(len(upgrade.breaks), 'new break')}"
    still = upgrade.row.verdict.stopping if upgrade.row.verdict else ()
    if still:
        return "NOTHING NEW", f"{step} {under} breaks nothing new"
    return "BREAKS NOTHING", f"{step} {under}"


def states(paths: tuple[PathState, ...]) -> str:
    """Return how far all paths get, in a line."""
    return ", ".join(f"{path.path} {STATES[path.state]}" for path in paths) or "no rollout was checked"
