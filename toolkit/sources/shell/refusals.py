"""What bash refuses for certain while it runs a script."""

from __future__ import annotations

from collections.abc import Sequence

from verl_doctor.toolkit.sources.shell.command_words import arguments
from verl_doctor.toolkit.sources.shell.found import Argument, Stop
from verl_doctor.toolkit.sources.shell.outcome import QUERIES, exit_of, is_query
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others
from verl_doctor.toolkit.sources.shell.syntax import AndOr, Assignment, Node, Pipeline, Simple, Written
from verl_doctor.toolkit.sources.shell.test import is_test
from verl_doctor.toolkit.sources.shell.walk import Walk

# Search paths: a session that has them has them where the job is checked, too.
_OF_SESSION = frozenset({"LD_LIBRARY_PATH", "LIBRARY_PATH", "LD_PRELOAD", "CPATH", "PYTHONPATH"})


def note_unbound(walk: Walk, node: Simple, argv: Sequence[Argument] = ()) -> None:
    """Note a variable that bash requires and that is unset. In a pipe only that part ends."""
    starts = any(argument.text == "-m" for argument in argv)
    required = [(name, "unbound variable") for name in walk.scope.unset if walk.state.option("nounset")]
    for name, message in (*required, *walk.scope.needed):
        by_others = is_set_by_others(name) and (name not in _OF_SESSION or walk.start.is_batch)
        called = walk.programs.may_have_called_functions()
        certain = not (walk.conditions or walk.unread or by_others or called)
        if certain:
            whole, extended = not walk.apart_of or starts, name if _sets(node, name) else ""
            walk.stops.append(Stop(walk.path, node.line, f"{name}: {message}", whole, extended))
    walk.scope.unset.clear()
    walk.scope.needed.clear()


def refuses(walk: Walk, line: int) -> bool:
    """Return whether bash certainly refuses to evaluate what was expanded last, and note it.

    Nothing is assigned, and `set -e` does not end the script.
    """
    if not walk.scope.refused or walk.conditions or walk.is_within("function", "loop"):
        return False
    walk.stops.append(Stop(walk.path, line, walk.scope.refused[0], whole=False))
    walk.state.status = None
    return True


def guarded(walk: Walk, test: Node, body: Sequence[Node], *, holds_if: bool) -> None:
    """Note that the script ends where `body` exits with an error, if the test before it is known.

    The test that decides it looks for a file that does not exist, or for arguments.
    """
    negated = isinstance(test, Pipeline) and test.negated and len(test.commands) == 1
    tested = test.commands[0] if negated and isinstance(test, Pipeline) else test
    is_tested = isinstance(tested, Simple) and (is_test(tested) or queried(walk, tested) != "")
    if not is_tested or walk.conditions or walk.apart_of or walk.presence.is_there is None:
        return
    enters = holds_if != negated
    found = exit_of(body, "0" if holds_if else "1", walk.state.functions)
    if found and walk.guards == enters and walk.presence.absent:
        walk.stops.append(Stop(walk.path, found[0], f"exit {found[1]}: {walk.presence.absent}"))
    elif found and walk.without == enters:
        message = f"exit {found[1]}: the script is started without arguments"
        walk.stops.append(Stop(walk.path, found[0], message, lacks_arguments=True))


def failing_list(walk: Walk, node: AndOr) -> str:
    """Return why `[ -f file ] && command` fails once its first part has been followed.

    There is no such file; "" if it may succeed.
    """
    first = node.first
    tests = isinstance(first, Simple) and (is_test(first) or queried(walk, first) != "")
    all_follow = all(sign == "&&" for sign, _ in node.rest)
    return walk.presence.absent if tests and all_follow and walk.guards is False else ""


def note_failing(walk: Walk, node: Simple, name: str) -> None:
    """Note that a function or a sourced file certainly returns an error, as its last command does.

    Then `set -e` ends the script.
    """
    if walk.state.status is None and walk.state.fails and walk.exits_on_error:
        walk.missing(node.line, f"{name}: status 1: {walk.state.fails}")


def queried(walk: Walk, node: Simple) -> str:
    """Return the program for which `command -v`, `which`, `type` or `hash` looks; "" for all else."""
    first = node.words[0] if node.words else None
    if not isinstance(first, Written) or first.raw not in QUERIES:
        return ""
    words = [word.text for word in arguments(node.words, walk.scope, walk.path)]
    names = [word for word in words[1:] if word is None or not word.startswith("-")]
    return (names[0] or "") if is_query(words) and len(names) == 1 else ""


def _sets(node: Simple, name: str) -> bool:
    """Return whether a command only assigns to this variable, alone or behind `export`."""
    behind = [part.name for part in node.words if isinstance(part, Assignment)]
    assigned = behind if len(node.words) == 1 + len(behind) else [entry.name for entry in node.assignments]
    return assigned == [name] and len(node.words) == (1 + len(behind) if behind else 0)
