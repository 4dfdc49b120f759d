"""Verify a variant.

Read it like the original, compose it with verl's configuration, and judge it by the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.files import read_launch
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, load_text
from verl_doctor.toolkit.collectors.launch.unparsed_start import unread_start
from verl_doctor.toolkit.commands.script.variant import ValueChange, leaves
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.result import Report

_RULES = ("CFG",)


@dataclass(frozen=True)
class Job:
    """One command that starts verl, and the verl configuration that results."""

    command: Command
    configuration: Configuration


@dataclass(frozen=True)
class Seen:
    """A script as read: its facts, its commands, and the findings of the rules about configurations."""

    launch: Launch
    jobs: tuple[Job, ...]
    report: Report


class NoVerlError(Exception):
    """No verl was found; the reason names the places searched."""


def see(session: Session, launch: Launch | None = None) -> Seen | str:
    """Read a script, or use it as read, and judge its configuration. Return a sentence if that fails.

    Raises NoVerlError if no verl can compose it.
    """
    session = session.narrowed(_RULES)
    collection = session.look() if launch is None else session.look({Launch: launch})
    found, trees = collection.get(Launch), collection.get(VerlTrees)
    if isinstance(found, Unknown):
        return found.reason
    if isinstance(trees, Absent):
        raise NoVerlError(trees.reason)
    if isinstance(trees, Unknown):
        return trees.reason
    jobs = []
    for command in [found.command, *found.others] if found.command else ():
        configuration = _configuration(command, trees, session, found, collection.get(Configuration))
        if isinstance(configuration, Unknown):
            return configuration.reason
        if configuration.refused:
            return (
                f"verl's configuration cannot be composed with the settings of {Path(command.path).name}: "
                f"{configuration.refused}"
            )
        jobs.append(Job(command, configuration))
    if not jobs:
        reason = "it contains no command that starts verl: python -m verl... or a *.py with overrides"
        where = unread_start(session.machine, (path for path, _ in found.files))
        return "; ".join([f"{found.files[0][0]}: {reason}", *filter(None, [where]), *found.unread[:1]])
    return Seen(found, tuple(jobs), session.check(collection))


def _configuration(
    command: Command, trees: VerlTrees, session: Session, launch: Launch, known: Configuration | Unknown
) -> Configuration | Unknown:
    """Return the configuration of a command of the launch; that of its first one is `known`."""
    verl = trees.imported
    if command is launch.command:
        return known
    return composed(command, Path(verl.folder), session.machine, verl.version, launch.settings)


def read_as(session: Session, text: str, path: Path) -> tuple[Session, Launch | Unknown]:
    """Return the session and the launch as they would be if the script had this text and this path."""
    again = at_path(session, path)
    as_loaded = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return again, read_launch(again.target, session.machine, overlaid({str(path): as_loaded}))


def at_path(session: Session, path: Path) -> Session:
    """Return the session as it would be if the script were at this path."""
    target = replace(session.target, files=(path, *session.target.files[1:]))
    return replace(session, target=target, begun=[])


def overlaid(texts: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return a reader like `load_text` that also has files that are not yet written."""
    return lambda path: texts[path] if path in texts else load_text(path)


def unlike(before: Seen, after: Seen, changes: Sequence[tuple[ValueChange, ...]]) -> str:
    """Return how the second differs from the first plus exactly these changes, "" if it does not."""
    if len(before.jobs) != len(after.jobs):
        return f"it starts {len(after.jobs)} commands of verl, not {len(before.jobs)}"
    for old, new, wanted in zip(before.jobs, after.jobs, changes, strict=True):
        if strange := _differs(old.configuration, new.configuration, wanted):
            return strange
    return ""


def _differs(old: Configuration, new: Configuration, changes: Sequence[ValueChange]) -> str:
    """Return the first key with an unexpected value."""
    wanted = {**dict(leaves(dict(old.after))), **{change.key: change.value for change in changes}}
    found = dict(leaves(dict(new.after)))
    for key in sorted({*wanted, *found}):
        if not _equal(wanted.get(key), found.get(key)) or (key in wanted) != (key in found):
            return f"{key} would be {found.get(key)!r}, not {wanted.get(key)!r}"
    return ""


def _equal(first: Any, other: Any) -> bool:
    return type(first) is type(other) and bool(first == other)


def new_findings(before: Report, after: Report) -> str:
    """Return what the rules newly find in the second, or can no longer judge there; "" for nothing."""
    was = Counter(result.code for result, _ in before.findings())
    now = Counter(result.code for result, _ in after.findings())
    for result, finding in after.findings():
        if now[result.code] > was[result.code]:
            return f"{result.code}: {finding.message}"
    broken = {r.code: r.reason for r in after.results if r.status == "error"}
    return next((f"{code} could not check: {reason}" for code, reason in broken.items()), "")
