"""Follows simple commands: assignments, tests, builtins, functions, and calls of other programs."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.sources.shell.builtins import BUILTINS
from verl_doctor.toolkit.sources.shell.command_words import arguments, expanded, passed
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines, Stop
from verl_doctor.toolkit.sources.shell.outcome import name_of
from verl_doctor.toolkit.sources.shell.refusals import note_failing, note_unbound, queried, refuses
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange, Unset
from verl_doctor.toolkit.sources.shell.streams import failing, printed_by, read_by
from verl_doctor.toolkit.sources.shell.syntax import Input, Simple, Substitution, Written, below
from verl_doctor.toolkit.sources.shell.test import holds, is_test
from verl_doctor.toolkit.sources.shell.walk import DEEPEST, Walk

_ALL_ARGUMENTS = frozenset({'"$@"', "$@", '"${@}"', "${@}", "$*"})


def simple(walk: Walk, node: Simple) -> None:
    """Follow a builtin or a function; note another program."""
    walk.scope.unset.clear()
    walk.scope.needed.clear()
    walk.scope.refused.clear()
    _follow(walk, node)
    for name in walk.scope.changed:
        if not isinstance(value := walk.state.value(name), Unset):
            walk.variables.store(name, value, node.line)
    walk.scope.changed.clear()
    name = name_of(node)
    walk.failed(
        node.line, f"(({node.words[1].raw}))" if name == "((" and isinstance(node.words[1], Written) else name
    )


def _follow(walk: Walk, node: Simple) -> None:
    if not node.words:
        _assign(walk, node)
    elif is_test(node):
        _test(walk, node)
    elif node.input is not None and node.input.refused:
        _not_run(walk, node, node.input)
    else:
        _command(walk, node, arguments(node.words, walk.scope, walk.path))


def _assign(walk: Walk, node: Simple) -> None:
    """Follow a command that only assigns variables or opens files."""
    state = walk.state
    substitutes = any(isinstance(part, Substitution) for part in below(node.assignments))
    state.status = None if substitutes or node.written else True
    for assignment in node.assignments:
        value = walk.variables.value_of(assignment)
        if refuses(walk, assignment.line):
            break
        walk.variables.store(assignment.name, value, assignment.line)
        if state.status is False:  # a readonly variable: bash omits the rest of the whole command
            walk.leave("shell" if walk.exits_on_error else "command")
            break
    note_unbound(walk, node)
    walk.writes(node.written)
    if state.status is None and walk.exits_on_error and (message := failing(walk, node.assignments)):
        walk.missing(node.line, message, "nothing found", node.assignments[-1].name)
        state.status = False


def _test(walk: Walk, node: Simple) -> None:
    """Follow `test`, `[` and `[[`."""
    walk.state.status = holds(node, walk.scope)
    walk.presence.absent, walk.guards = "", None
    if walk.state.status is None:
        walk.guards = holds(node, walk.scope, walk.presence.lacks)
    walk.without = _without_arguments(walk, node)
    note_unbound(walk, node)


def _without_arguments(walk: Walk, node: Simple) -> bool | None:
    """Return what a test of the script's arguments results in if there are none.

    None if that is unknown, or if some were named.
    """
    before, unset = walk.state, list(walk.scope.unset)
    if not walk.lacks_arguments or before.called or before.arguments:
        return None
    walk.state = before.copy()
    walk.state.called = True
    found = holds(node, walk.scope)
    walk.state = before.copy()
    walk.state.called, walk.state.arguments = True, [None] * 9
    depends = holds(node, walk.scope) is None
    walk.state, walk.scope.unset[:] = before, unset
    return found if depends else None


def _command(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    """Follow a command whose first word is its name."""
    words, state = node.words, walk.state
    if len(argv) > 1 and argv[0].text in ("command", "builtin") and argv[1].text in BUILTINS:
        node, argv = replace(node, words=words[1:]), argv[1:]
    note_unbound(walk, node, argv)
    for_this = walk.variables.of_command(node.assignments)
    if name_queried := queried(walk, node):
        searches = any(entry.name == "PATH" for entry in for_this)
        lacks = not searches and walk.programs.lacks_program(name_queried, BUILTINS)
        walk.presence.absent = f"{name_queried} is not on the PATH" if lacks else ""
        walk.guards = False if lacks else None
        walk.without = None
    name = (argv[0].text if argv else "") or ""
    builtin = BUILTINS.get(name)
    is_name = isinstance(words[0], Written) and words[0] is node.words[0]
    if name in state.aliases:
        walk.not_followed(node.line, f"`{name}` is an alias")
    elif builtin and for_this and name in ("eval", "source", "."):
        walk.variables.with_own(for_this, lambda: builtin(walk, node, argv))
    elif name in state.functions and is_name and walk.depth < DEEPEST:
        walk.writes(node.written)
        _function(walk, node, argv, for_this)
        note_failing(walk, node, name)
    elif builtin:
        walk.writes(node.written, printed_by(walk, node, argv))
        builtin(walk, node, argv)
        if name in ("source", "."):
            note_failing(walk, node, name)
    elif argv:
        _program(walk, node, argv, for_this)


def _program(walk: Walk, node: Simple, argv: list[Argument], for_this: Sequence[EnvironmentChange]) -> None:
    """Note the call of another program. `for_this` are the variables set for it alone."""
    name, state = argv[0].text, walk.state
    if message := walk.programs.spaced_assignment(argv):
        walk.missing(node.line, message, "blank", name or "")
        state.status = False
        return
    written = tuple(filter(None, expanded(node.written, walk.scope, walk.path)))
    changes = (*walk.variables.environment(), *for_this)
    call = Call(
        tuple(argv),
        changes,
        walk.conditions > 0,
        state.cwd,
        written,
        read_by(walk, node),
        tuple(state.limits),
        state.forgotten,
        walk.doubts,
        walk.beside > 0,
    )
    printed = printed_by(walk, node, argv)
    if alias := walk.programs.only_an_alias(name):
        if not walk.conditions and not walk.tested:
            whole = walk.exits_on_error and not walk.apart_of
            message = (
                f"{alias}: it is an alias, which bash expands in scripts only after shopt -s expand_aliases"
            )
            walk.stops.append(Stop(walk.path, node.line, message, whole, hurdle="alias", name=name or ""))
        state.status = False
    if message := walk.presence.not_openable(argv) or walk.programs.not_found(name):
        walk.missing(node.line, message)
        state.status = False
    if len(argv) == 1 and name == "exec" and (gone := walk.presence.first_without_folder(written)):
        folder = posixpath.dirname(gone)
        can_make = walk.presence.can_make(posixpath.join(state.cwd, folder))
        message = f"{gone}: No such file or directory"
        walk.missing(node.line, message, *(("output folder", folder) if can_make else ()))
        state.status = False
    walk.calls.append(call)
    walk.files.make(walk.creates(call))
    walk.writes(node.written, printed)
    if name in ("pushd", "popd"):
        state.cwd = ""
    if name == "exec" and len(argv) > 1:
        walk.leave("shell")


def _not_run(walk: Walk, node: Simple, given: Input) -> None:
    """Note a command whose here-document bash cannot expand: what it opened before that is empty."""
    if given.opens_output and not node.appends:
        walk.writes(node.written, Lines("", walk.path, node.line))
    walk.missing(given.line, given.refused)
    walk.state.status = False


def _function(walk: Walk, node: Simple, argv: list[Argument], changes: Sequence[EnvironmentChange]) -> None:
    """Follow a function at its call. `changes` are the variables set for it alone.

    With `"$@"` it has the script's arguments, which are unknown where none were named: then it is noted if
    the script ends because there are none.
    """
    name = argv[0].text or ""
    if not _gets_those_of_script(walk, node):
        _body(walk, name, passed(argv[1:]), changes, called=True)
        return
    ends, reached = _ends_without_arguments(walk, name, changes)
    calls, stops = len(walk.calls), len(walk.stops)
    _body(walk, name, [], changes, called=False)
    job = max(walk.calls[calls:], key=lambda call: len(call.argv), default=None)
    if job is not None and _place(job) not in reached:
        walk.stops += [
            replace(
                stop,
                message=f"{stop.message}: the script is started without arguments",
                whole=True,
                lacks_arguments=True,
            )
            for stop in ends
            if stop not in walk.stops[stops:]
        ]


def _gets_those_of_script(walk: Walk, node: Simple) -> bool:
    """Return whether a call passes on the arguments of a script that is checked without any."""
    state, words = walk.state, node.words
    own = len(words) == 2 and isinstance(words[1], Written) and words[1].raw in _ALL_ARGUMENTS
    return own and walk.lacks_arguments and not state.called and not state.arguments


def _ends_without_arguments(
    walk: Walk, name: str, changes: Sequence[EnvironmentChange]
) -> tuple[list[Stop], set[tuple[str, int]]]:
    """Return why the script certainly ends in a function without arguments, and the calls made until then."""
    before, walk.state = walk.state, walk.copy()
    calls, stops = len(walk.calls), len(walk.stops)
    with walk.discarded(walk.stops):
        _body(walk, name, [], changes, called=True)
        found = walk.stops[stops:] if walk.state.ended else []
        reached = set(map(_place, walk.calls[calls:]))
    walk.state = before
    return found, reached


def _place(call: Call) -> tuple[str, int]:
    return call.argv[0].path, call.argv[0].line


def _body(
    walk: Walk,
    name: str,
    given: list[str | None],
    changes: Sequence[EnvironmentChange],
    *,
    called: bool,
) -> None:
    """Follow the body of a function; not `called`: it may get other arguments than those given."""
    here, before, called_before = walk.path, walk.state.arguments, walk.state.called
    walk.path, bodies = walk.state.functions[name]
    walk.state.arguments, walk.state.called = given, called
    walk.piped = None
    walk.depth += 1
    walk.variables.with_own(changes, lambda: walk.until("function", list(bodies)))
    walk.depth -= 1
    walk.path, walk.state.arguments, walk.state.called = here, before, called_before
