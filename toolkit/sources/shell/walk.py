"""Follows a shell script from top to bottom without running it: the variables it exports, and the programs it calls.

It reads both branches of a condition, and the body of a loop once; what depends on these is unknown afterwards.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.sources.shell.assigned import assigned
from verl_doctor.toolkit.sources.shell.expand import (
    LONGEST,
    Scope,
    evaluated,
    fields,
    pattern_of,
    text,
    undecided,
)
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others
from verl_doctor.toolkit.sources.shell.state import (
    UNSET,
    Array,
    Either,
    Element,
    EnvironmentChange,
    Local,
    ShellState,
    Unset,
    Value,
    agreed,
)
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Assignment,
    Case,
    Function,
    Group,
    If,
    Input,
    Loop,
    Node,
    Parameter,
    Pipeline,
    Simple,
    Substitution,
    Text,
    Unread,
    Written,
    below,
)
from verl_doctor.toolkit.sources.shell.test import holds, is_test

_DEEPEST = 20
_MOST_ROUNDS = 4
_MOST_FIRST = 2  # loops, one in the other, of which the first round is followed
_MOST_LOOPS = 4  # one in the other: each is followed several times
_EVERY = (Text("@"),)  # the index in `${name[@]}`
_MOST_COMMANDS = 20_000
_ANYWHERE = "/"
# Programs that answer a question by their status: what follows `&&` may not run.
_ANSWERS = frozenset({
    "false", "grep", "egrep", "fgrep", "rg", "ls", "command", "which", "type", "hash", "pgrep", "pkill", "kill", "killall", "nvidia-smi", "ping",
    "nc", "curl", "wget", "diff", "cmp", "id", "getent", "lsof", "stat", "read", "lspci", "lsmod", "ip", "ifconfig", "ibstat", "nvcc",
})  # fmt: skip


# Commands that are functions of the user's shell, also where a program has the same name, because they change variables.
_FUNCTIONS = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba", "pyenv", "nvm", "use"})
# Those that scripts do not have unless the shell that starts them exports them, or a program has the name.
_NOT_EXPORTED = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba"})
# Programs that bring no other program.
_BRINGS_NONE = frozenset({
    "ls", "mkdir", "rmdir", "rm", "touch", "chmod", "cat", "head", "tail", "wc", "grep", "cut", "tr", "sort", "tee", "seq", "expr", "date",
    "sleep", "hostname", "whoami", "id", "uname", "df", "du", "free", "nproc", "lscpu", "nvidia-smi", "kill", "pkill", "ps", "which",
    "printenv", "dirname", "basename", "realpath", "readlink",
})  # fmt: skip
_BRINGS = re.compile(
    r"\b(?:(?:ba|z|da)?sh|curl|wget|tar|unzip|apt\S*|yum|dnf|zypper|apk|pip\w*|uvx?|make|ln|cp|mv|install|git|python\S*|PATH)\b"
)
# It is started in another shell, on another machine.
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|COBALT|OAR|MSUB|NQSV|QSUB|PJM|\$|[ \t]*flux:)[ \t]", re.MULTILINE)
_LOGIN = re.compile(r"#!.*\bbash\s+(?:-\w*l|--login)\b")
_OF_MACHINES = re.compile(
    r"/(?:dev|proc|sys|etc|usr|opt|run|tmp|var|lib\w*|s?bin|boot|snap|local\w*|scratch\w*)(?:/|$)|/\.\w+$"
)
_SHALLOW = 2  # the parts of `/tmp`: such a folder is nobody's own
_PYTHON, _SHELLS = re.compile(r"python[\d.]*"), frozenset({"bash", "sh"})
_DESCRIPTOR = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}[<>]")  # bash assigns a number to it


def _exit_of(nodes: Sequence[Node], before: str) -> tuple[int, str] | None:
    """Return the line and the status of an `exit` with an error that these commands reach; None if there may be none.

    `before` is the status of the command before these.
    """
    for place, node in enumerate(nodes):
        if isinstance(node, Group) and not node.subshell:
            return _exit_of(node.body, before if place == 0 else "0")
        if not isinstance(node, Simple):
            return None
        words = [word.raw for word in node.words if isinstance(word, Written)]
        if words[:1] in (["exit"], ["return"], ["exec"]):
            code = words[1] if len(words) > 1 else before if place == 0 else "0"
            return (node.line, code) if words[0] == "exit" and code.isdigit() and int(code) else None
    return None


@dataclass(frozen=True)
class Argument:
    """A word of a program's command line. `text` is None when it cannot be determined, `written` is as in the script.

    `conditional`: it exists only under a condition.
    """

    text: str | None
    path: str
    line: int
    written: str
    conditional: bool = False


@dataclass(frozen=True)
class Lines:
    """A text that a script contains or prints, or that of a file: where its first line is written."""

    text: str
    path: str
    line: int = 1


@dataclass(frozen=True)
class Call:
    """A program that is called: `argv[0]` is its name. `changes` are the environment changes made until then.

    `folder` is where it starts, "" where unknown. `written` are the files that its output goes to, `stdin` is what it reads,
    `limits` are the words of each `ulimit` until then. `forgotten`: it may have other variables, too. `doubts` is the number of
    enclosing conditions, and of places at which its failure is handled.
    """

    argv: tuple[Argument, ...]
    changes: tuple[EnvironmentChange, ...]
    conditional: bool
    folder: str = ""
    written: tuple[str, ...] = ()
    stdin: Lines | None = None
    limits: tuple[tuple[str, ...], ...] = ()
    forgotten: bool = False
    doubts: int = 0


@dataclass(frozen=True)
class Stop:
    """What bash refuses while it runs a script, with its message. `whole`: the script ends there, else one command or list of commands."""

    path: str
    line: int
    message: str
    whole: bool = True


Kind = Literal["loop", "function", "source", "command", "shell"]


@dataclass
class Frame:
    """A loop, a function, a sourced file, a whole command of the script or a shell that is being followed. `ends` are the states in which it was left early.

    `changes` is the number of changes to the environment at its start, `functions` that of functions that were running, `arguments`
    are those of the innermost.
    """

    kind: Kind
    changes: int = 0
    functions: int = 0
    arguments: Sequence[str | None] = ()
    ends: list[ShellState] = field(default_factory=list)


@dataclass
class Walk:
    """What was found so far. `load` returns the text of a file, or None when unreadable; `builtins` are the shell's own commands.

    `scope.state` is the state of the shell that is being followed, `frames` what encloses the current command.
    `is_there` returns whether a folder or file exists; it is None if the script runs on another machine. `stops` are what bash
    refuses for certain. `tested` counts the enclosing places at which a command's failure is handled, `apart_of` the
    subshells. `previous` is whether the command before this one succeeded.

    `made` are the paths that redirections and programs may have created, each with the number of calls until then,
    `outputs` those of redirections; `creates` yields those of a program, `texts` are what a command has certainly written to
    a file, each with the length of `made` then, `substituted` are the texts of command substitutions. `piped` is what the
    next command reads from a pipe, `loops` how many loops enclose it. `is_login`: bash has read the user's profile. `guards` is what
    the last test results in if the file `absent`, which does not exist, still does not then: no branch is chosen by it.
    `is_of_windows` returns whether the lines of a file end as in Windows. `tried` are the calls in the last trial, `skips` is the
    number of times that commands were skipped which another round of a loop may run.
    """

    scope: Scope
    load: Callable[[str], str | None]
    path: str
    builtins: Mapping[str, Builtin]
    calls: list[Call] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    conditions: int = 0
    depth: int = 0
    frames: list[Frame] = field(default_factory=list)
    sourcing: list[str] = field(default_factory=list)
    commands: int = 0
    is_there: Callable[[str], bool] | None = None
    stops: list[Stop] = field(default_factory=list)
    tested: int = 0
    apart_of: int = 0
    previous: bool | None = None
    is_login: bool = False
    is_batch: bool = False
    made: list[tuple[int, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    creates: Callable[[Call], Iterable[str]] = lambda _: ()
    texts: dict[str, tuple[int, Lines]] = field(default_factory=dict)
    substituted: list[str] = field(default_factory=list)
    piped: Lines | None = None
    loops: int = 0
    absent: str = ""
    guards: bool | None = None
    tried: list[Call] = field(default_factory=list)
    skips: int = 0
    is_of_windows: Callable[[str], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.scope.source = lambda: self.path

    @property
    def state(self) -> ShellState:
        """The state of the shell that is being followed."""
        return self.scope.state

    @state.setter
    def state(self, state: ShellState) -> None:
        self.scope.state = state

    def script(self, source: str, line: int = 1) -> None:
        """Follow the text of a script whose first line has this number."""
        self.is_login = self.is_login or _LOGIN.match(source) is not None
        self.is_batch = self.is_batch or _BATCH.search(source) is not None
        for name in _DESCRIPTOR.findall(source):
            self.state.variables.setdefault(name, None)
        for node in parse(source, line):
            self.until("command", [(node,)])

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Follow commands one after the other."""
        for node in nodes:
            self.commands += 1
            if self.commands == _MOST_COMMANDS + 1:
                self.unread.append(f"{self.path}: after {_MOST_COMMANDS} commands the rest is not followed")
            if self.state.ended or self.commands > _MOST_COMMANDS:
                return
            self.node(node)

    def node(self, node: Node) -> None:
        """Follow one command, unless the shell has ended."""
        if self.state.ended:
            return
        self.previous, self.state.status = self.state.status, None
        if isinstance(node, Simple):
            self.simple(node)
        elif isinstance(node, Unread):
            if node.refused and not self.conditions:
                self.stops.append(Stop(self.path, node.line, node.refused, whole=False))
            self.not_followed(node.line, node.why)
        elif isinstance(node, Function):
            self.state.functions[node.name] = (self.path, (node.body,))
            self.state.status = True
        elif isinstance(node, Group):
            self.group(node)
        elif isinstance(node, Pipeline):
            self.pipeline(node)
        elif isinstance(node, AndOr):
            self.and_or(node)
        elif isinstance(node, If):
            self.if_command(node)
        elif isinstance(node, Case):
            self.case_command(node)
        else:
            self.loop(node)

    def forget(self) -> None:
        """Make all variables unknown: names that could not be determined were assigned."""
        self.state.variables.update(dict.fromkeys(self.state.variables))
        self.state.forgotten = True

    def not_followed(self, line: int, why: str) -> None:
        """Note what could not be followed."""
        self.unread.append(f"{self.path}:{line}: {why}")

    # Compound commands

    def group(self, node: Group) -> None:
        """Follow `{ ... }`, `( ... )` and `... &`."""
        self.writes(node.written)
        if node.subshell:
            self.apart(node.body)
            if node.background:
                self.state.status = True
            self.failed()
        else:
            self.nodes(node.body)

    def pipeline(self, node: Pipeline) -> None:
        """Follow `a | b` and `! a`."""
        *before, last = node.commands
        self.tested += node.negated
        statuses, printed = [], None
        for command in before:
            self.piped = printed
            printed = self.piped_by(command)
            self.apart((command,))
            statuses.append(self.state.status)
        if before:
            self.piped = printed
        here = not before or self.scope.is_zsh or self.state.option("lastpipe")
        if here is not False:
            start = self.state.copy()
            self.node(last)
            if here is None:
                self.state = agreed([start, self.state])
        else:
            self.apart((last,))
        if before:
            self.piped = None
        self.tested -= node.negated
        state = self.state
        if state.option("pipefail") is None:
            state.status = None
        elif state.option("pipefail") and state.status is not False:
            state.status = False if False in statuses else None if None in statuses else state.status
        if node.negated and state.status is not None:
            state.status = not state.status
        elif before:
            self.failed()

    def apart(self, nodes: tuple[Node, ...]) -> None:
        """Follow commands in a subshell: only its status is left."""
        before, self.state = self.state, self.state.copy()
        self.apart_of += 1
        self.until("shell", [nodes])
        self.apart_of -= 1
        before.status, self.state = self.state.status, before

    def until(self, kind: Kind, bodies: list[tuple[Node, ...]]) -> None:
        """Follow what `break`, `return` or `exit` may leave early: its end has the states of all ways out."""
        state = self.state
        self.frames.append(Frame(kind, len(state.changes), len(state.locals), tuple(state.arguments)))
        self.one_of(bodies)
        ends = self.frames.pop().ends
        if not self.state.ended:
            ends.append(self.state)
        if kind == "function" and self.exits_on_error:  # bash does not return from a call that fails
            ends = [end for end in ends if end.status is not False] or ends
        if ends:
            self.state = agreed(ends)

    @property
    def doubts(self) -> int:
        """The number of conditions that enclose the current command, except loops, and of places at which its failure is handled."""
        return self.conditions - self.loops + self.tested

    def leave(self, kind: Kind) -> None:
        """End the enclosing loops, the function or sourced file, or the shell, where the current state counts again."""
        self.skips += kind == "loop" or (
            self.conditions > self.loops and (kind == "function" or self.apart_of > 0)
        )
        ends = {"shell", "function", "source"} if kind == "function" else {"shell", kind}
        if kind == "loop":
            frames = list(itertools.takewhile(lambda frame: frame.kind == "loop", reversed(self.frames)))
        else:
            frames = [frame for frame in self.frames if frame.kind in ends][-1:]
        for frame in frames:
            end = self.state.copy()
            if len(end.locals) > frame.functions:
                end.arguments = list(frame.arguments)
                _end_functions(end, frame.functions, frame.changes)
            frame.ends.append(end)
        self.state.ended = kind == "shell" or bool(frames)

    def is_within(self, *kinds: Kind) -> bool:
        """Return whether a function, a sourced file or the like is being followed."""
        return any(frame.kind in kinds for frame in self.frames)

    @property
    def exits_on_error(self) -> bool:
        """Whether the shell ends at a command that fails here."""
        return self.state.option("errexit") is True and not self.tested

    def failed(self) -> None:
        """End the shell if the last command fails and `set -e` is in force."""
        if self.state.status is False and self.exits_on_error:
            self.leave("shell")

    def and_or(self, node: AndOr) -> None:
        """Follow `a && b || c`."""
        before = len(self.stops)
        self.tested += 1
        self.node(node.first)
        succeeds, likely = self.state.status, self.likely(node.first)
        if len(self.stops) > before and not self.stops[-1].whole:
            succeeds = False
        for place, (sign, command) in enumerate(node.rest, 1):
            self.tested -= place == len(node.rest)
            if succeeds is not None:
                if succeeds == (sign == "&&"):
                    self.node(command)
                    succeeds, likely = self.state.status, self.likely(command)
            elif likely and sign == "&&":
                self.node(command)
                likely = self.likely(command)
            else:
                if place == 1:
                    self.guarded(node.first, (command,), holds_if=sign == "&&")
                self.state.status = sign == "&&"
                self.branches([(command,), ()])
                likely = False
        self.state.status = succeeds

    def likely(self, node: Node, within: frozenset[str] = frozenset()) -> bool:
        """Return whether a command succeeds in a script that works: one that makes, not one that asks."""
        if isinstance(node, Pipeline):
            parts = node.commands[-1:] if self.state.option("pipefail") is not None else node.commands
            return not node.negated and all(self.likely(part, within) for part in parts)
        if isinstance(node, AndOr):
            return all(self.likely(part, within) for part in (node.first, *(part for _, part in node.rest)))
        if isinstance(node, Group):
            return not node.body or self.likely(node.body[-1], within)
        if not isinstance(node, Simple):
            return True
        name = node.words[0].raw if node.words and isinstance(node.words[0], Written) else ""
        _, bodies = self.state.functions.get(name, ("", ()))
        if name not in within and bodies:
            return all(self.likely(Group(body), within | {name}) for body in bodies)
        return not is_test(node) and name not in _ANSWERS

    def if_command(self, node: If) -> None:
        """Follow the arm that is taken, or all that may be."""
        bodies = []
        for condition, body in node.arms:
            self.tested += 1
            self.nodes(condition)
            self.tested -= 1
            succeeds = self.state.status if condition else True  # `else` has none
            if condition and condition == node.arms[0][0]:
                self.guarded(condition[-1], body, holds_if=True)
            if succeeds is not False:
                bodies.append(body)
            if succeeds:
                break
        else:
            bodies.append(())
        self.state.status = None if any(not condition for condition, _ in node.arms) else True
        self.one_of(bodies)

    def case_command(self, node: Case) -> None:
        """Follow the arm whose pattern matches, or all arms."""
        subject = text(node.subject.parts, self.scope)
        bodies: list[tuple[Node, ...]] = []
        for patterns, body in node.arms:
            known = [pattern_of(pattern.parts, self.scope) for pattern in patterns]
            matches = [
                None if subject is None or pattern is None else self.scope.matches(subject, pattern)
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
        self.state.status = None if any(bodies) else True
        self.one_of(bodies)

    def one_of(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow the only body, or each of several as if it were the only one."""
        if len(bodies) == 1:
            self.nodes(bodies[0])
        else:
            self.branches(bodies)

    def branches(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow each as if it were the only one; keep what all agree on."""
        before, ends = self.state, []
        self.conditions += 1
        for body in bodies:
            self.state = before.copy()
            self.nodes(body)
            if not self.state.ended:  # what an end leaves behind is kept by its frame
                ends.append(self.state)
        self.conditions -= 1
        self.state = agreed(ends) if ends else before
        self.state.ended = not ends

    def loop(self, node: Loop) -> None:
        """Follow the body once; what changes in any round is unknown."""
        values = [None] if node.words is None else self.expanded(node.words)
        self.state.status = True
        if node.name and not values:
            return
        self.tested += 1
        self.nodes(node.condition)
        self.tested -= 1
        start = self.state.copy()
        for name in assigned((*node.condition, *node.body)):
            start.variables[start.resolved(name) or name] = None
        before, value = self.state, values[0] if len(values) == 1 else None
        self.conditions += 1
        self.loops += 1
        end = start
        for _ in range(_MOST_ROUNDS if self.loops <= _MOST_LOOPS else 0):
            self.state = start.copy()
            if node.name:
                self.store(node.name, value, node.line)
            end = self.trial((*node.body, *node.condition), self.state)
            wider = start.widened(end)
            if wider == start:
                break
            start = wider
        else:
            self.state = start
            self.forget()
        self.state = start
        if node.name:
            self.store(node.name, self.of_first_round(node, values) or value, node.line)
        self.until("loop", [node.body])
        if node.name and len(values) > 1:
            self.store(node.name, None, node.line)
        known = set(self.state.changes)
        self.state.changes += [entry for entry in end.changes if entry not in known]  # of the condition
        self.conditions -= 1
        self.loops -= 1
        self.state = before if self.state.ended else agreed([before, self.state])
        self.state.status = None

    def of_first_round(self, node: Loop, values: Sequence[str | None]) -> str | None:
        """Return the first of several known values, if the first round calls all programs that any round may call.

        None if a condition decides whether a program runs that gets the value, or what follows its failure.
        """
        first = values[0] if len(values) > 1 and None not in values and self.loops <= _MOST_FIRST else None
        if first is None:
            return None
        rounds, skips = [], 0
        for value in (None, first):
            state = self.state.copy()
            before, self.state = self.state, state
            self.store(node.name, value, node.line)
            self.state = before
            skips = self.skips
            self.trial(node.body, state)
            rounds.append(self.tried)
        calls, known = rounds
        is_certain = len(calls) == len(known) and self.skips == skips
        given = (call for call, other in zip(known, calls, strict=False) if call != other)
        return first if is_certain and all(call.doubts <= self.doubts for call in given) else None

    def trial(self, nodes: tuple[Node, ...], start: ShellState) -> ShellState:
        """Return the state after commands that are followed once more later."""
        lists: list[list[Any]] = [self.calls, self.unread, self.stops, self.made, self.outputs]
        lists += [frame.ends for frame in self.frames]
        lengths = [len(entries) for entries in lists]
        before, self.state = self.state, start.copy()
        self.until("loop", [nodes])
        end, self.state = self.state, before
        self.tried = self.calls[lengths[0] :]
        for entries, length in zip(lists, lengths, strict=True):
            del entries[length:]
        return start if end.ended else end

    # Simple commands

    def simple(self, node: Simple) -> None:
        """Follow a builtin or a function; note another program."""
        self.scope.unset.clear()
        self.scope.needed.clear()
        self._simple(node)
        for name in self.scope.changed:
            if not isinstance(value := self.state.value(name), Unset):
                self.store(name, value, node.line)
        self.scope.changed.clear()
        self.failed()

    def unbound(self, line: int, argv: Sequence[Argument] = ()) -> None:
        """Note a variable that bash requires and that is unset. In a pipe only that part ends."""
        starts = any(argument.text == "-m" for argument in argv)
        required = [(name, "unbound variable") for name in self.scope.unset if self.state.option("nounset")]
        for name, message in (*required, *self.scope.needed):
            certain = not (
                self.conditions or self.unread or is_set_by_others(name) or self.may_have_called_functions()
            )
            if certain:
                self.stops.append(Stop(self.path, line, f"{name}: {message}", not self.apart_of or starts))
        self.scope.unset.clear()
        self.scope.needed.clear()

    def missing(self, line: int, message: str) -> None:
        """Note a command that certainly fails: it ends the script under `set -e`, else its list."""
        if not self.conditions and self.is_there is not None and not self.may_have_called_functions():
            whole = self.exits_on_error and not self.apart_of
            if whole or self.tested or self.apart_of:
                self.stops.append(Stop(self.path, line, message, whole))

    def not_run(self, node: Simple, given: Input) -> None:
        """Note a command whose here-document bash cannot expand: what it opened before that is empty."""
        if given.opens_output and not node.appends:
            self.writes(node.written, Lines("", self.path, node.line))
        self.missing(given.line, given.refused)
        self.state.status = False

    def guarded(self, test: Node, body: Sequence[Node], *, holds_if: bool) -> None:
        """Note that the script ends where `body` exits with an error, if the test that decides it looks for a file that does not exist."""
        negated = isinstance(test, Pipeline) and test.negated and len(test.commands) == 1
        tested = test.commands[0] if negated and isinstance(test, Pipeline) else test
        is_tested = isinstance(tested, Simple) and is_test(tested)
        if not is_tested or self.guards is None or not self.absent:
            return
        before = "0" if holds_if else "1"
        found = _exit_of(body, before) if self.guards == (holds_if != negated) else None
        if found and not (self.conditions or self.apart_of) and self.is_there is not None:
            line, code = found
            self.stops.append(Stop(self.path, line, f"exit {code}: {self.absent} does not exist"))

    def may_have_called_functions(self) -> bool:
        """Return whether a command so far may be a function of the user's shell, which may set any variable (`module load`)."""
        folders = self.state.environ.get("PATH", "").split(os.pathsep)

        def is_program(name: str | None) -> bool:
            if name is None or name in _FUNCTIONS:
                return False
            return (
                "/" in name
                or self.is_there is None
                or any(map(self.is_there, (f"{folder}/{name}" for folder in folders)))
            )

        return self.is_login or not all(
            is_program(name) for name in {call.argv[0].text for call in self.calls}
        )

    def may_have_made(self, path: str, before: Call | None = None) -> bool:
        """Return whether something that ran earlier, or `before` a call, may have created a folder or file."""
        name = Path(path).name
        calls = list(itertools.takewhile(lambda call: call is not before, self.calls))
        return (
            any(
                argument.text is None or name in argument.text or argument.text.endswith((".sh", ".py"))
                for call in calls
                for argument in call.argv
            )
            or any(number <= len(calls) and _leads_to(place, path) for number, place in self.made)
            or any(name in script for script in self.substituted)
        )

    def has_written(self, path: str, before: Call | None = None) -> bool:
        """Return whether the script may have changed this file, or done so `before` a call: its text is not the one on the disk."""
        return path in self.outputs or self.has_made(path, before)

    def has_made(self, path: str, before: Call | None = None) -> bool:
        """Return whether the script may have created exactly this file `before` a call."""
        count = len(list(itertools.takewhile(lambda call: call is not before, self.calls)))
        return any(number <= count and place == path for number, place in self.made)

    def writes(self, targets: Iterable[Written], printed: Lines | None = None) -> None:
        """Note the files that output goes to, and the text if all of it is known and certain."""
        for target in self.expanded(targets):
            if target is None or not target.startswith("/dev/"):
                known = target is not None and self.state.cwd
                path = os.path.normpath(Path(self.state.cwd, target or "")) if known else _ANYWHERE
                self.made.append((len(self.calls), path))
                if printed is None or self.conditions:
                    self.texts.pop(path, None)
                else:
                    self.texts[path] = (len(self.made), printed)
                self.outputs.append(path)

    def text_at(self, path: str, before: Call) -> Lines | None:
        """Return the text of a file at a call, None if it is unknown: the one that a command has written, or that on the disk."""
        if not self.has_written(path, before):
            source = self.load(path)
            return None if source is None else Lines(source, path)
        count = len(list(itertools.takewhile(lambda call: call is not before, self.calls)))
        written, found = self.texts.get(path, (0, None))
        later = (place for number, place in self.made[written:] if number <= count)
        return None if any(_leads_to(place, path) for place in later) else found

    def read_by(self, node: Simple) -> Lines | None:
        """Return what a command reads: a here-document, a here-string, a file or a pipe; None if unknown."""
        if node.input is None:
            return self.piped
        found = None if node.input.parts is None else text(node.input.parts, self.scope)
        if found is None or not node.input.is_file:
            return None if found is None else Lines(found, self.path, node.input.line)
        return self.file(found)

    def file(self, name: str) -> Lines | None:
        """Return the text of a file; None if it is unknown or may have been written by the script."""
        path = os.path.normpath(Path(self.state.cwd, name)) if self.state.cwd else ""
        source = self.load(path) if path and not self.may_have_made(path) else None
        return None if source is None else Lines(source, path)

    def failing(self, assignments: Sequence[Assignment]) -> str:
        """Return the message of an `ls` of nothing that decides the status of `name=$(ls -d x* | tail -1)`; "" if it may succeed."""
        parts = assignments[-1].value if assignments and assignments[-1].items is None else ()
        scripts = [part.script for part in parts if isinstance(part, Substitution)]
        nodes = parse(scripts[0]) if len(scripts) == 1 else ()
        commands = nodes[0].commands if len(nodes) == 1 and isinstance(nodes[0], Pipeline) else nodes
        if len(nodes) != 1 or (len(commands) > 1 and self.state.option("pipefail") is not True):
            return ""
        first = commands[0]
        if not isinstance(first, Simple) or first.assignments or not self.state.cwd or self.is_there is None:
            return ""
        texts = [argument.text for argument in self.arguments(first.words)]
        if not texts or None in texts or texts[0] != "ls" or "ls" in self.state.functions:
            return ""
        kept, self.substituted = (
            self.substituted,
            [script for script in self.substituted if script != scripts[0]],
        )
        names = [text for text in texts[1:] if text and not text.startswith("-")]
        missing = (name for name in names if not self.is_of_machine(name) and self.has_no(name))
        message = next((f"ls: cannot access '{name}': No such file or directory" for name in missing), "")
        self.substituted = kept
        return message

    def without_folder(self, names: Iterable[str]) -> str:
        """Return the first of these files whose folder does not exist, and that nothing may have made; "" without any."""
        paths = {name: Path(os.path.normpath(Path(self.state.cwd, name))) for name in names if self.state.cwd}
        missing = (name for name, path in paths.items() if self.has_no(str(path.parent)))
        return next((name for name in missing if not self.is_of_machine(name)), "")

    def is_of_machine(self, name: str) -> bool:
        """Return whether a path belongs to the machine rather than to the job: it may exist where the job runs."""
        path = Path(os.path.normpath(Path(self.state.cwd, name)))
        own = (Path(self.state.cwd), Path(self.path).parent)
        if any(len(folder.parts) > _SHALLOW and path.is_relative_to(folder) for folder in own):
            return False
        top = str(Path(*path.parts[:2]))
        return _OF_MACHINES.match(str(path)) is not None or (
            self.is_there is not None and not self.is_there(top)
        )

    def lacks(self, name: str) -> bool:
        """Return whether a file that a test names certainly does not exist, and note it."""
        found = self.state.cwd != "" and not self.is_of_machine(name) and self.has_no_here(name)
        self.absent = name if found else self.absent
        return found

    def has_no_here(self, name: str) -> bool:
        """Return whether nothing has this name, also in the script's folder, where the job may be started."""
        return self.has_no(name) and self.has_no(os.path.normpath(Path(self.path).parent / name))

    def not_openable(self, argv: Sequence[Argument]) -> str:
        """Return the error of Python or a shell for its program if there is no such file; "" if there may be."""
        name, program = argv[0].text or "", argv[1].text if len(argv) > 1 else None
        if not program or glob.has_magic(program) or not self.state.cwd:
            return ""
        if self.is_of_machine(program) or not self.has_no_here(program):
            return ""
        if _PYTHON.fullmatch(name) and program.endswith(".py"):
            return f"{name}: can't open file {program}"
        return (
            f"{name}: {program}: No such file or directory"
            if name in _SHELLS and program.endswith(".sh")
            else ""
        )

    def not_found(self, name: str | None) -> str:
        """Return bash's error for a command of the user's shell that this script does not have; "" for all others."""
        environ = self.state.environ
        if name is None or name not in _NOT_EXPORTED or self.is_batch or self.unread or self.is_there is None:
            return ""
        if "BASH_ENV" in environ or any(key.startswith(f"BASH_FUNC_{name}") for key in environ):
            return ""
        if self.may_have_brought(name):
            return ""
        folders = environ.get("PATH", "").split(os.pathsep)
        known = any(folders) and not any(self.is_there(f"{folder}/{name}") for folder in folders)
        return f"{name}: command not found" if known else ""

    def may_have_brought(self, name: str) -> bool:
        """Return whether the script may have made a command available that the shell that starts it lacks."""
        state = self.state
        if "PATH" in state.variables or state.aliases or "command_not_found_handle" in state.functions:
            return True
        ran = {call.argv[0].text for call in self.calls}
        return (
            not all(program is not None and Path(program).name in _BRINGS_NONE for program in ran)
            or any(_BRINGS.search(script) for script in self.substituted)
            or any(place == _ANYWHERE or Path(place).name == name for _, place in self.made)
        )

    def has_no(self, name: str) -> bool:
        """Return whether nothing has this name or matches this pattern, and nothing that ran may have changed that."""
        if not glob.has_magic(name):
            path = os.path.normpath(Path(self.state.cwd, name))
            return self.is_there is not None and not self.is_there(path) and not self.may_have_made(path)
        folder = (
            re.split(r"/(?=[^/]*[*?[])", name, maxsplit=1)[0] if "/" in re.split(r"[*?[]", name)[0] else "."
        )
        made = any(_leads_to(place, os.path.normpath(Path(self.state.cwd, folder))) for _, place in self.made)
        return not self.scope.finds(name) and not made and not self.calls

    def piped_by(self, node: Node) -> Lines | None:
        """Return what a command writes to a pipe. Its words are expanded in a state that is lost."""
        if not isinstance(node, Simple) or not node.words:
            return None
        before, unset = self.state, len(self.scope.unset)
        self.state = before.copy()
        printed = self.output_of(node, self.arguments(node.words))
        self.state = before
        del self.scope.unset[unset:]
        return printed

    def output_of(self, node: Simple, argv: Iterable[Argument]) -> Lines | None:
        """Return what `cat`, `echo` or `printf` prints; None for all else."""
        words = [argument.text for argument in argv]
        if node.assignments or not words:
            return None
        name, *rest = [word or "" for word in words]
        if None in words or name in self.state.functions or any(word.startswith("-") for word in rest):
            return None
        if name == "cat" and len(rest) < 2:
            return self.file(rest[0]) if rest else self.read_by(node)
        if name == "echo" and not any("\\" in word for word in rest):
            return Lines(" ".join(rest) + "\n", self.path, node.line)
        if name == "printf" and len(rest) == 1 and "%" not in rest[0] and not re.search(r"\\[^n]", rest[0]):
            return Lines(rest[0].replace("\\n", "\n"), self.path, node.line)
        return None

    def _simple(self, node: Simple) -> None:
        words, state = node.words, self.state
        if not words:
            substitutes = any(isinstance(part, Substitution) for part in below(node.assignments))
            state.status = None if substitutes or node.written else True
            for assignment in node.assignments:
                self.store(assignment.name, self.value_of(assignment), assignment.line)
                if state.status is False:  # a readonly variable: bash omits the rest of the whole command
                    self.leave("shell" if self.exits_on_error else "command")
                    break
            self.unbound(node.line)
            self.writes(node.written)
            if state.status is None and self.exits_on_error and (message := self.failing(node.assignments)):
                self.missing(node.line, message)
                state.status = False
            return
        if is_test(node):
            state.status = holds(node, self.scope)
            self.absent, self.guards = "", None
            if state.status is None:
                self.guards = holds(node, self.scope, self.lacks)
            self.unbound(node.line)
            return
        if node.input is not None and node.input.refused:
            self.not_run(node, node.input)
            return
        argv = self.arguments(words)
        if len(argv) > 1 and argv[0].text in ("command", "builtin") and argv[1].text in self.builtins:
            node, argv = replace(node, words=words[1:]), argv[1:]
        self.unbound(node.line, argv)
        for_this: list[EnvironmentChange] = []
        variables = state.variables
        if node.assignments:
            state.variables = dict(variables)  # each sees those before it
        for assignment in node.assignments:
            letters = state.attributes.get(assignment.name, "")
            if letters and "r" in letters:
                continue
            value = None if letters is None else self.value_of(assignment)
            state.variables[assignment.name] = value
            for_this.append(self.entry(assignment.name, value, assignment.line))
        name = argv[0].text if argv else ""
        if name in state.aliases:
            self.not_followed(node.line, f"`{name}` is an alias")
            return
        if for_this and name in ("eval", "source", "."):
            state.variables = variables
            self.with_own(for_this, lambda: self.builtins[name](self, node, argv))
            return
        state.variables = variables
        is_name = isinstance(words[0], Written) and words[0] is node.words[0]
        if name in state.functions and is_name and self.depth < _DEEPEST:
            self.writes(node.written)
            self.function(name, argv, for_this)
            return
        builtin = self.builtins.get(name or "")
        if builtin:
            self.writes(node.written, self.printed_by(node, argv))
            builtin(self, node, argv)
        elif argv:
            written = tuple(filter(None, self.expanded(node.written)))
            changes = (*self.environment(), *for_this)
            call = Call(
                tuple(argv),
                changes,
                self.conditions > 0,
                state.cwd,
                written,
                self.read_by(node),
                tuple(state.limits),
                state.forgotten,
                self.doubts,
            )
            printed = self.printed_by(node, argv)
            if message := self.not_openable(argv) or self.not_found(name):
                self.missing(node.line, message)
                state.status = False
            if len(argv) == 1 and name == "exec" and (gone := self.without_folder(written)):
                self.missing(node.line, f"{gone}: No such file or directory")
                state.status = False
            self.calls.append(call)
            self.made += [(len(self.calls), path) for path in self.creates(call)]
            self.writes(node.written, printed)
            if name in ("pushd", "popd"):
                state.cwd = ""
            if name == "exec" and len(argv) > 1:
                self.leave("shell")

    def environment(self) -> tuple[EnvironmentChange, ...]:
        """Return the changes to the environment. A variable whose value changed since it was exported has its present one."""
        last = {entry.name: entry for entry in self.state.changes}
        changed = [
            replace(entry, value=value if isinstance(value, str) else None)
            for name, entry in last.items()
            if not (entry.removed or entry.conditional) and entry.value is not None
            if self.state.exports(name) and not isinstance(value := self.state.value(name), (Either, Unset))
            if value != entry.value
        ]
        return (*self.state.changes, *changed)

    def printed_by(self, node: Simple, argv: Iterable[Argument]) -> Lines | None:
        """Return what a command writes to its only file, as the whole text of that."""
        return self.output_of(node, argv) if len(node.written) == 1 and not node.appends else None

    def arguments(self, words: tuple[Written | Assignment, ...]) -> list[Argument]:
        """Expand the words of a command."""
        found: list[Argument] = []
        for word in words:
            if isinstance(word, Written):
                values = fields(word.parts, self.scope)
                found += map(self.argument, values, self.sources(word, len(values)))
            else:
                value = text(word.value, self.scope) if word.items is None else None
                found.append(
                    Argument(
                        None if value is None else f"{word.name}={value}", self.path, word.line, word.name
                    )
                )
        return found

    def argument(self, value: str | None, source: Argument) -> Argument:
        """Return an expanded word. An element of an array keeps the place where the array was written."""
        if isinstance(value, Element):
            place = (value.path, value.line) if value.line else (source.path, source.line)
            return Argument(value, *place, value.written or source.written, value.conditional)
        return replace(source, text=value)

    def sources(self, word: Written, count: int) -> list[Argument]:
        """Return the source of each word that a written one becomes: itself, or for unknown elements those of an array."""
        whole = Argument(None, self.path, word.line, word.raw)
        part = word.parts[0] if len(word.parts) == 1 else None
        array = (
            self.scope.get(part.name)
            if isinstance(part, Parameter) and part.index == _EVERY and not part.indirect
            else None
        )
        if not isinstance(array, Array) or len(array) != count:
            return [whole] * count
        return [
            whole if value is not None else Argument(None, array.path, item.line, item.raw)
            for value, item in zip(array, array.words, strict=True)
        ]

    def expanded(self, words: Iterable[Written]) -> list[str | None]:
        """Expand words to the elements of an array."""
        return [
            value
            if value is None
            else Element(value, self.path, word.line, word.raw if len(values) == 1 else "")
            for word in words
            for values in (fields(word.parts, self.scope),)
            for value in values
        ]

    def array(self, words: tuple[Written, ...]) -> list[str | None]:
        """Return the elements of an array, with the words that they were written as when each is one."""
        values = self.expanded(words)
        return Array(values, words, self.path) if len(values) == len(words) else values

    def value_of(self, assignment: Assignment) -> Value:
        """Return the value of a variable after an assignment."""
        before = self.scope.get(assignment.name)
        sums = "i" in (self.state.attributes.get(self.state.resolved(assignment.name) or "") or "")
        if sums and assignment.append and assignment.items is None and assignment.index is None:
            value = self.text_of(assignment)
            old = "0" if isinstance(before, Unset) else before
            return f"({old}) + ({value})" if isinstance(old, str) and isinstance(value, str) else None
        if assignment.items is not None:
            items = self.array(assignment.items)
            if any(item.raw.startswith("[") for item in assignment.items):
                return None  # explicit subscripts
            if not assignment.append or isinstance(before, Unset):
                return items
            if before is None:
                return None
            if isinstance(before, Array) and isinstance(items, Array) and before.path == items.path:
                return Array([*before, *items], [*before.words, *items.words], items.path)
            if isinstance(before, Either):
                return None
            return [*(before if isinstance(before, list) else [before]), *items]
        value = self.text_of(assignment)
        if assignment.index is not None:
            return None
        if isinstance(before, list):
            return None
        if assignment.append and isinstance(before, Either):
            return Either(tuple(old + value for old in before.texts)) if isinstance(value, str) else None
        if isinstance(value, Either):
            return None if assignment.append else value
        if assignment.append:
            if isinstance(before, Unset):
                return value
            return None if before is None or isinstance(before, Either) or value is None else before + value
        return value

    def text_of(self, assignment: Assignment) -> str | Either | None:
        """Return the assigned text: several when it contains an undecided variable."""
        choice = undecided(assignment.value, self.scope)
        if choice is None:
            return text(assignment.value, self.scope)
        name, either = choice
        before = self.state
        texts = []
        for possible in either.texts:
            self.state = before.copy()
            self.state.variables[self.state.resolved(name) or name] = possible
            texts.append(text(assignment.value, self.scope))
        self.state = before
        known = tuple(dict.fromkeys(found for found in texts if found is not None))
        return Either(known) if None not in texts else None

    def store(self, name: str, value: Value, line: int, *, exports: bool = False) -> None:
        """Give a variable a value, and pass it on to programs where it is exported."""
        target = self.state.resolved(name)
        if target is None:
            self.forget()
            return
        letters = self.state.attributes.get(target, "")
        if letters and "r" in letters:
            self.state.status = False
            if exports:
                self.export(target, self.state.value(target), line)
            return
        value = self.with_attributes(letters, value)
        if isinstance(value, (str, list)) and len(value) > LONGEST:
            value = None
        all_exported = self.state.option("allexport")
        exported = exports or all_exported or self.state.exports(target)
        self.state.variables[target] = value
        if exported or exported is None or all_exported is None:
            self.export(target, value, line, certain=exported is True)

    def with_attributes(self, letters: str | None, value: Value) -> Value:
        """Return the value that a variable gets which was declared with `-i`, `-l` or `-u`; None if that is undecided."""
        if letters == "":
            return value
        if letters is None or not isinstance(value, str):
            return None
        if "i" in letters:
            number = evaluated((Text(value),), self.scope)
            return None if number is None else str(number)
        return value.lower() if "l" in letters else value.upper()

    def localise(self, name: str) -> None:
        """Make a variable local to the function that is being followed."""
        state = self.state
        if name not in state.locals[-1]:
            hidden = Local(state.stored(name), state.exports(name), state.attributes.get(name, ""))
            state.locals[-1] = {**state.locals[-1], name: hidden}
            state.variables[name] = UNSET

    def export(self, name: str, value: Value | Unset, line: int, *, certain: bool = True) -> None:
        """Pass a variable on to the programs that follow."""
        target = self.state.resolved(name) or name
        self.state.exported[target] = True if certain else None
        if not isinstance(value, Unset):
            entry = self.entry(target, value, line)
            self.state.changes.append(entry if certain else replace(entry, conditional=True))

    def unset(self, name: str, line: int) -> None:
        """Remove a variable, unless it is readonly."""
        certain = self.state.attributes.get(name, "") is not None
        self.state.variables[name] = UNSET if certain else None
        if certain:
            self.state.attributes.pop(name, None)
        self.unexport(name, line, certain=certain)

    def unexport(self, name: str, line: int, *, certain: bool = True) -> None:
        """Pass a variable on no longer."""
        self.state.exported[name] = False if certain else None
        entry = replace(self.entry(name, None, line), removed=True)
        self.state.changes.append(entry if certain else replace(entry, conditional=True))

    def entry(self, name: str, value: Value | Unset, line: int) -> EnvironmentChange:
        """Return a change to the environment."""
        known = value if isinstance(value, str) else None
        return EnvironmentChange(name, known, self.path, line, conditional=self.conditions > 0)

    def function(
        self, name: str | None, argv: list[Argument], changes: Sequence[EnvironmentChange] = ()
    ) -> None:
        """Follow a function at its call. `changes` are the variables set for it alone."""
        here, before, called = self.path, self.state.arguments, self.state.called
        self.path, bodies = self.state.functions[name or ""]
        self.state.arguments, self.state.called = passed(argv[1:]), True
        self.piped = None
        self.depth += 1
        self.with_own(changes, lambda: self.until("function", list(bodies)))
        self.depth -= 1
        self.path, self.state.arguments, self.state.called = here, before, called

    def with_own(self, changes: Sequence[EnvironmentChange], follow: Callable[[], None]) -> None:
        """Follow commands with variables of their own: the given ones, and those that a function makes local."""
        state, start = self.state, len(self.state.changes)
        state.locals.append({})
        for entry in changes:
            self.localise(entry.name)
            state.variables[entry.name], state.exported[entry.name] = entry.value, True
            state.changes.append(entry)
        follow()
        state = self.state
        names = {entry.name for entry in changes}
        again = [entry for entry in state.changes[start:] if entry.name in names][len(changes) :]
        _end_functions(state, len(state.locals) - 1, start)
        for entry in again:  # releases of bash differ in whether such an export counts afterwards
            state.variables[entry.name] = state.exported[entry.name] = None
            state.changes.append(replace(entry, value=None, removed=False, conditional=True))

    def inner(self, source: str, path: str, arguments: list[str | None] | None) -> None:
        """Follow another text in this shell: a sourced file, an evaluated string."""
        if self.depth >= _DEEPEST:
            return
        before, here = self.state.arguments, self.path
        if arguments:
            self.state.arguments = arguments
        self.path = path
        self.depth += 1
        nodes = parse(source)
        if arguments is None:
            self.nodes(nodes)
        else:
            self.until("source", [nodes])
        self.depth -= 1
        if arguments:
            self.state.arguments = before
        self.path = here


def passed(words: Iterable[Argument]) -> list[str | None]:
    """Return the words as `$1`, `$2` and so on, with their places. An unknown word without quotes may be several, or none, which moves the others."""
    found: list[str | None] = []
    moved = False
    for word in words:
        moved = moved or (word.text is None and '"' not in word.written)
        known = None if moved else word.text
        found.append(
            None
            if known is None
            else Element(known, word.path, word.line, word.written, conditional=word.conditional)
        )
    return found


def _end_functions(state: ShellState, depth: int, start: int) -> None:
    """Give the variables of functions, down to a depth, back what they hid. `start` is the number of changes before these functions."""
    while len(state.locals) > depth:
        names = state.locals.pop()
        for name, hidden in names.items():
            state.variables[name] = hidden.value
            state.exported[name] = hidden.exported
            state.attributes[name] = hidden.attributes
        state.changes[start:] = [entry for entry in state.changes[start:] if entry.name not in names]


def _leads_to(made: str, path: str) -> bool:
    """Return whether a folder or file exists because another was made."""
    return made in (_ANYWHERE, path) or path.startswith(f"{made}/") or made.startswith(f"{path}/")


Builtin = Callable[[Walk, Simple, list[Argument]], None]
