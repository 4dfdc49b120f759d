"""Make a variant of a launch script: the recipe for each command, a text, and its verification.

Nothing is written here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.shell_refused import refused_text
from verl_doctor.toolkit.commands.script.proof import Seen, new_findings, read_as, see, unlike
from verl_doctor.toolkit.commands.script.text import Draft, Order, drafts, same_but_for
from verl_doctor.toolkit.commands.script.variant import Kind, Recipe, head_of
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.sources.python.edit import CannotEdit


class NoVariant(Exception):  # noqa: N818 - it is an answer
    """The reason why this script has no variant: one sentence with the next step."""


@dataclass(frozen=True)
class Made:
    """A verified variant: its bytes, the recipe of each command, and both scripts as read and judged."""

    content: bytes
    recipes: tuple[Recipe, ...]
    before: Seen
    after: Seen


def make(session: Session, kind: Kind, path: Path, recipe: Callable[[Configuration], Recipe]) -> Made:
    """Make the variant of the session's script for `path`. Raises NoVariant."""
    script = session.target.files[0]
    source = _text(script)
    before = see(session)
    if isinstance(before, str):
        raise NoVariant(before)
    if refused := _refused(before):
        command = shlex.join(("verl-doctor", "check", *session.target.arguments))
        raise NoVariant(f"{script.name} itself would not start: {refused}; run {command}")
    recipes = tuple(recipe(job.configuration) for job in before.jobs)
    orders = [Order(job.command, recipe.changes) for job, recipe in zip(before.jobs, recipes, strict=True)]
    if not any(recipe.changes for recipe in recipes):
        kept = [sentence for recipe in recipes for sentence in recipe.kept]
        raise NoVariant(
            "; ".join([f"{script.name} already is its own {kind} variant: nothing to change", *kept])
        )
    comment = f"# {Marker(session.config.marker).word}: {kind}"
    head = head_of(kind, script.name, source.encode("utf-8", "surrogateescape"))
    tried = drafts(source, str(script), orders, comment, head, last=bool(session.target.words))
    try:
        draft, after = _first_proven(session, before, source, path, orders, tried)
    except CannotEdit as reason:
        raise NoVariant(
            f"{script.name} cannot be changed safely: {reason}; {_next_step(before, script)}"
        ) from None
    if found := new_findings(before.report, after.report):
        code = found.partition(":")[0]
        raise NoVariant(
            f"the {kind} variant of {script.name} would not work: {found}; see verl-doctor explain {code}"
        )
    return Made(draft.text.encode("utf-8", "surrogateescape"), recipes, before, after)


def _refused(seen: Seen) -> str:
    """Return what Hydra rejects in the present script."""
    for job in seen.jobs:
        for word in job.configuration.overrides:
            if word.fate not in ("applied", "chosen", "not told"):
                return f"{word.text} ({Path(word.path).name}:{word.line}): {word.fate}"
    return ""


def _text(script: Path) -> str:
    text = script.read_bytes().decode("utf-8", "surrogateescape")
    if "\r" in text:
        raise NoVariant(
            f"{script}: it has Windows line ends, so bash cannot run it; convert it first: sed -i "
            f"'s/\\r$//' {script}"
        )
    return text


def _first_proven(
    session: Session, before: Seen, source: str, path: Path, orders: list[Order], tried: Iterator[Draft]
) -> tuple[Draft, Seen]:
    """Return the first text that is the intended variant, and its reading.

    Raises CannotEdit if there is none.
    """
    doubt = ""
    for draft in tried:
        after = _proven(session, before, draft, source, path, orders)
        if isinstance(after, Seen):
            return draft, after
        doubt = doubt or after
    raise CannotEdit(doubt)


def _proven(
    session: Session, before: Seen, draft: Draft, source: str, path: Path, orders: list[Order]
) -> Seen | str:
    """Return the reading of a text that is the intended variant, or the reason why it is not."""
    if not same_but_for(source, draft):
        return "the shell would parse it differently"
    if refusal := refused_text(draft.text, session.machine):
        return f"bash refuses line {refusal[0]} of it: {refusal[1]}"
    again, launch = read_as(session, draft.text, path)
    if isinstance(launch, Unknown):
        return launch.reason
    after = see(again, launch)
    if isinstance(after, str):
        return after
    changes = [order.changes for order in orders]
    return unlike(before, after, changes) or _other_settings(before.launch, launch) or after


def _other_settings(before: Launch, after: Launch) -> str:
    was, now = (
        [(setting.name, setting.value, setting.removed) for setting in launch.settings]
        for launch in (before, after)
    )
    return "" if was == now else "it would set other variables"


def _next_step(before: Seen, script: Path) -> str:
    elsewhere = {job.command.path for job in before.jobs} - {str(script)}
    if elsewhere:
        return (
            f"name the file that starts verl, {min(elsewhere)}, or make {script.name} pass its arguments on "
            'with "$@"'
        )
    return "write the command in the script with each override as a separate word, then try again"
