"""Follows loops. What changes in any round is unknown in each, unless the rounds are followed one by one."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.sources.shell.assigned import assigned
from verl_doctor.toolkit.sources.shell.command_words import arguments, expanded
from verl_doctor.toolkit.sources.shell.expand import pattern_of
from verl_doctor.toolkit.sources.shell.made_files import ANYWHERE
from verl_doctor.toolkit.sources.shell.outcome import is_guard, name_of, only_assigns
from verl_doctor.toolkit.sources.shell.state import agreed
from verl_doctor.toolkit.sources.shell.syntax import Loop, Simple, Written, below
from verl_doctor.toolkit.sources.shell.test import NEEDS_FILE, is_test
from verl_doctor.toolkit.sources.shell.walk import Walk

_WAITING = frozenset({"sleep", "usleep", "inotifywait", "wait"})
_MOST_ROUNDS = 4
_MOST_FIRST = 2  # loops, one in the other, of which the first round is followed
_MOST_LOOPS = 4  # one in the other: each is followed several times
_MOST_VALUES = 200  # of a loop that only assigns variables


def loop(walk: Walk, node: Loop) -> None:
    """Follow the body once; what changes in any round is unknown."""
    values = [None] if node.words is None or node.chosen else _values_of(walk, node.words)
    walk.state.status = True
    if node.name and not values:
        return
    if node.name and None not in values:
        if len(values) <= _MOST_VALUES and all(map(only_assigns, node.body)):
            for value in values:
                walk.variables.store(node.name, value, node.line)
                walk.nodes(node.body)
            return
        if not walk.conditions and node.body and is_guard(node.body[0]):
            _each_round(walk, node, values)
    walk.tested += 1
    walk.nodes(node.condition)
    walk.tested -= 1
    start = walk.copy()
    for name in assigned((*node.condition, *node.body)):
        start.variables[start.resolved(name) or name] = None
    before, value = walk.state, values[0] if len(values) == 1 else None
    walk.conditions += 1
    walk.loops += 1
    end = start
    for _ in range(_MOST_ROUNDS if walk.loops <= _MOST_LOOPS else 0):
        walk.state = start.copy()
        if node.name:
            walk.variables.store(node.name, value, node.line)
        end = walk.trial((*node.body, *node.condition), walk.state)
        wider = start.widened(end)
        if wider == start:
            break
        start = wider
    else:
        walk.state = start
        walk.variables.forget()
    walk.state = start
    if node.name:
        walk.variables.store(node.name, _of_first_round(walk, node, values) or value, node.line)
    walk.until("loop", [node.body])
    if node.name and len(values) > 1:
        walk.variables.store(node.name, None, node.line)
    known = set(walk.state.changes)
    walk.state.changes += [entry for entry in end.changes if entry not in known]  # of the condition
    walk.conditions -= 1
    walk.loops -= 1
    walk.files.wait_for(_waited_for(walk, node))
    walk.state = before if walk.state.ended else agreed([before, walk.state])
    walk.state.status = None


def _waited_for(walk: Walk, node: Loop) -> Iterator[str]:
    """Yield the files that a loop may wait for, which others make meanwhile.

    They are those that its tests look for and that do not exist now.
    """
    waits = any(isinstance(part, Simple) and name_of(part) in _WAITING for part in below(node.body))
    for part in below((node.condition, node.body) if waits else node.condition):
        if isinstance(part, Simple) and is_test(part):
            words = [argument.text for argument in arguments(part.words, walk.scope, walk.path)]
            named = (name for sign, name in itertools.pairwise(words) if sign in NEEDS_FILE)
            for name in named:
                path = os.path.normpath(Path(walk.state.cwd, name)) if name and walk.state.cwd else ANYWHERE
                if path == ANYWHERE or walk.presence.is_gone(path):
                    yield path


def _values_of(walk: Walk, words: Iterable[Written]) -> list[str | None]:
    """Expand the words of a loop, patterns to the files that match them now.

    Expand them to unknown ones if something may have changed these.
    """
    found: list[str | None] = []
    for word in words:
        pattern = pattern_of(word.parts, walk.scope) or ""
        if walk.presence.is_there is None or not glob.has_magic(pattern):
            found += expanded([word], walk.scope, walk.path)
        elif walk.presence.may_match_others(pattern):
            found.append(None)
        else:
            matching = sorted(glob.iglob(pattern, root_dir=walk.state.cwd))  # noqa: PTH207 - of text
            found += matching or expanded([word], walk.scope, walk.path)
    return found


def _each_round(walk: Walk, node: Loop, values: Sequence[str | None]) -> None:
    """Follow the rounds of a loop, for the ends of the script that are certain then.

    Follow each round of a loop that only tests something, and of another loop the tests in its first round.
    """
    tests = tuple(itertools.takewhile(is_guard, node.body))
    before, walk.state = walk.state, walk.copy()
    with walk.discarded():
        for value in values if len(tests) == len(node.body) else values[:1]:
            if not walk.state.ended:
                walk.variables.store(node.name, value, node.line)
                walk.nodes(tests)
    walk.state = before


def _of_first_round(walk: Walk, node: Loop, values: Sequence[str | None]) -> str | None:
    """Return the first of several known values, if its round calls all programs that any round may call.

    None if a condition decides whether a program runs that gets the value, or what follows its failure.
    """
    first = values[0] if len(values) > 1 and None not in values and walk.loops <= _MOST_FIRST else None
    if first is None:
        return None
    rounds, skips = [], 0
    for value in (None, first):
        state = walk.copy()
        before, walk.state = walk.state, state
        walk.variables.store(node.name, value, node.line)
        walk.state = before
        skips = walk.skips
        walk.trial(node.body, state)
        rounds.append(walk.tried)
    calls, known = rounds
    is_certain = len(calls) == len(known) and walk.skips == skips
    given = (call for call, other in zip(known, calls, strict=False) if call != other)
    return first if is_certain and all(call.doubts <= walk.doubts for call in given) else None
