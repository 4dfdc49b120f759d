"""How commands end, as far as their text alone shows it.

Some succeed in a script that works, others end it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from verl_doctor.toolkit.sources.shell.state import Functions, ShellState
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Group,
    If,
    Node,
    Pipeline,
    Simple,
    Substitution,
    Written,
    below,
)
from verl_doctor.toolkit.sources.shell.test import is_test

# Programs that answer a question by their status: what follows `&&` may not run.
_ANSWERS = frozenset(
    {
        "false",
        "grep",
        "egrep",
        "fgrep",
        "rg",
        "ls",
        "command",
        "which",
        "type",
        "hash",
        "pgrep",
        "pkill",
        "kill",
        "killall",
        "nvidia-smi",
        "ping",
        "nc",
        "curl",
        "wget",
        "diff",
        "cmp",
        "id",
        "getent",
        "lsof",
        "stat",
        "read",
        "lspci",
        "lsmod",
        "ip",
        "ifconfig",
        "ibstat",
        "nvcc",
    }
)


QUERIES = frozenset({"command", "which", "type", "hash"})
"""Commands that may look for a program."""
_SAYS = frozenset({"echo", "printf", "exit", ":", "true", "false"})


def likely(node: Node, state: ShellState, within: frozenset[str] = frozenset()) -> bool:
    """Return whether a command succeeds in a script that works: one that makes something, not a test."""
    if isinstance(node, Pipeline):
        parts = node.commands[-1:] if state.option("pipefail") is not None else node.commands
        return not node.negated and all(likely(part, state, within) for part in parts)
    if isinstance(node, AndOr):
        return all(likely(part, state, within) for part in (node.first, *(part for _, part in node.rest)))
    if isinstance(node, Group):
        return not node.body or likely(node.body[-1], state, within)
    if not isinstance(node, Simple):
        return True
    name = name_of(node)
    _, bodies = state.functions.get(name, ("", ()))
    if name not in within and bodies:
        return all(likely(Group(body), state, within | {name}) for body in bodies)
    return not is_test(node) and name not in _ANSWERS


def only_assigns(node: Node) -> bool:
    """Return whether a command only assigns variables."""
    return isinstance(node, Simple) and not node.words and bool(node.assignments)


def is_query(words: Sequence[str | None]) -> bool:
    """Return whether a command only looks for a program: `command -v`, `which`, `type` or `hash`."""
    name = words[0] if words else None
    looks = name != "command" or (len(words) > 1 and words[1] in ("-v", "-V"))
    return name in QUERIES and looks


def name_of(node: Simple) -> str:
    """Return the first word of a command as it is written; "" for an assignment."""
    return node.words[0].raw if node.words and isinstance(node.words[0], Written) else ""


def is_guard(node: Node) -> bool:
    """Return whether a command only tests, looks for things or enters a folder, and prints or exits then."""
    if isinstance(node, AndOr):
        return all(map(is_guard, (node.first, *(part for _, part in node.rest))))
    if isinstance(node, If):
        return all(map(is_guard, itertools.chain.from_iterable((*test, *body) for test, body in node.arms)))
    if isinstance(node, Pipeline):
        return len(node.commands) == 1 and is_guard(node.commands[0])
    if isinstance(node, Group):
        return not node.subshell and all(map(is_guard, node.body))
    if not isinstance(node, Simple) or node.assignments:
        return False
    name = name_of(node)
    changes = any(isinstance(part, Substitution) for part in below(node.words))
    return not changes and (is_test(node) or name in QUERIES | _SAYS | {"cd"})


def exit_of(nodes: Sequence[Node], before: str, functions: Functions) -> tuple[int, str] | None:
    """Return the line and the status of an `exit` with an error that these commands reach.

    None if there may be none.

    `before` is the status of the command before these.
    """
    for place, node in enumerate(nodes):
        if isinstance(node, Group) and not node.subshell:
            return exit_of(node.body, before if place == 0 else "0", functions)
        if not isinstance(node, Simple):
            return None
        words = [word.raw for word in node.words if isinstance(word, Written)]
        _, bodies = functions.get(name_of(node), ("", ()))
        if bodies:
            others = {name: found for name, found in functions.items() if name != words[0]}
            found = exit_of(bodies[0], "0", others) if len(bodies) == 1 else None
            return (node.line, found[1]) if found else None
        if words[:1] in (["exit"], ["return"], ["exec"]):
            code = words[1] if len(words) > 1 else before if place == 0 else "0"
            return (node.line, code) if words[0] == "exit" and code.isdigit() and int(code) else None
    return None
