"""Follows pipelines, lists, groups and conditions."""

from __future__ import annotations

from verl_doctor.toolkit.sources.shell.expand import pattern_of, text
from verl_doctor.toolkit.sources.shell.outcome import exit_of, likely
from verl_doctor.toolkit.sources.shell.refusals import failing_list, guarded
from verl_doctor.toolkit.sources.shell.state import agreed
from verl_doctor.toolkit.sources.shell.streams import piped_by
from verl_doctor.toolkit.sources.shell.syntax import AndOr, Case, Group, If, Node, Pipeline
from verl_doctor.toolkit.sources.shell.walk import Walk


def group(walk: Walk, node: Group) -> None:
    """Follow `{ ... }`, `( ... )` and `... &`."""
    walk.writes(node.written)
    if node.subshell:
        walk.beside += node.background
        walk.apart(node.body)
        walk.beside -= node.background
        if node.background:
            walk.state.status = True
        walk.failed()
    else:
        walk.nodes(node.body)


def pipeline(walk: Walk, node: Pipeline) -> None:
    """Follow `a | b` and `! a`."""
    *before, last = node.commands
    walk.tested += node.negated
    statuses, printed = [], None
    for command in before:
        walk.piped = printed
        printed = piped_by(walk, command)
        walk.apart((command,))
        statuses.append(walk.state.status)
    if before:
        walk.piped = printed
    here = not before or walk.scope.is_zsh or walk.state.option("lastpipe")
    if here is not False:
        start = walk.copy()
        walk.node(last)
        if here is None:
            walk.state = agreed([start, walk.state])
    else:
        walk.apart((last,))
    if before:
        walk.piped = None
    walk.tested -= node.negated
    state = walk.state
    if state.option("pipefail") is None:
        state.status = None
    elif state.option("pipefail") and state.status is not False:
        state.status = False if False in statuses else None if None in statuses else state.status
    if node.negated and state.status is not None:
        state.status = not state.status
    elif before:
        walk.failed()


def and_or(walk: Walk, node: AndOr) -> None:
    """Follow `a && b || c`."""
    before = len(walk.stops)
    ends = _ends_it(walk, node)
    walk.tested += 1
    walk.ending += ends
    walk.node(node.first)
    walk.ending -= ends
    succeeds, works = walk.state.status, likely(node.first, walk.state)
    fails = failing_list(walk, node)
    if len(walk.stops) > before and not walk.stops[-1].whole:
        succeeds = False
    for place, (sign, command) in enumerate(node.rest, 1):
        walk.tested -= place == len(node.rest)
        if succeeds is not None:
            if succeeds == (sign == "&&"):
                if place == 1:
                    guarded(walk, node.first, (command,), holds_if=succeeds)
                walk.node(command)
                succeeds, works = walk.state.status, likely(command, walk.state)
        elif works and sign == "&&":
            walk.node(command)
            works = likely(command, walk.state)
        else:
            if place == 1:
                guarded(walk, node.first, (command,), holds_if=sign == "&&")
            walk.state.status = sign == "&&"
            walk.branches([(command,), ()])
            works = False
    walk.state.status, walk.state.fails = succeeds, fails if succeeds is None else ""


def _ends_it(walk: Walk, node: AndOr) -> bool:
    """Return whether the script ends if the first command of a list fails: `a || exit 1`."""
    return (
        len(node.rest) == 1
        and node.rest[0][0] == "||"
        and exit_of((node.rest[0][1],), "1", walk.state.functions) is not None
    )


def if_command(walk: Walk, node: If) -> None:
    """Follow the arm that is taken, or all that may be."""
    bodies = []
    for condition, body in node.arms:
        walk.tested += 1
        walk.nodes(condition)
        walk.tested -= 1
        succeeds = walk.state.status if condition else True  # `else` has none
        if condition and condition == node.arms[0][0]:
            guarded(walk, condition[-1], body, holds_if=True)
        if succeeds is not False:
            bodies.append(body)
        if succeeds:
            break
    else:
        bodies.append(())
    walk.state.status = None if any(not condition for condition, _ in node.arms) else True
    walk.one_of(bodies)


def case_command(walk: Walk, node: Case) -> None:
    """Follow the arm whose pattern matches, or all arms."""
    subject = text(node.subject.parts, walk.scope)
    bodies: list[tuple[Node, ...]] = []
    for patterns, body in node.arms:
        known = [pattern_of(pattern.parts, walk.scope) for pattern in patterns]
        matches = [
            None if subject is None or pattern is None else walk.scope.matches(subject, pattern)
            for pattern in known
        ]
        if True in matches and not node.goes_on:
            bodies.append(body)
            break
        if True in matches or None in matches:
            bodies.append(body)
        if "*" in known:
            break
    else:
        bodies.append(())
    walk.state.status = None if any(bodies) else True
    walk.one_of(bodies)
