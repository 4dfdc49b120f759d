"""Follows a shell script from top to bottom without running it: the variables it exports, and the programs it calls.

It reads both branches of a condition, and the body of a loop once; what depends on these is unknown afterwards.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from verl_doctor.toolkit.sources.shell.assigned import assigned
from verl_doctor.toolkit.sources.shell.command_words import arguments, expanded, passed
from verl_doctor.toolkit.sources.shell.expand import Scope, pattern_of, text
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines, Stop
from verl_doctor.toolkit.sources.shell.made_files import MadeFiles
from verl_doctor.toolkit.sources.shell.outcome import (
    QUERIES,
    exit_of,
    is_guard,
    is_query,
    likely,
    only_assigns,
)
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.presence import Presence
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange, ShellState, Unset, agreed
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
    Pipeline,
    Simple,
    Substitution,
    Unread,
    Written,
    below,
)
from verl_doctor.toolkit.sources.shell.test import holds, is_test
from verl_doctor.toolkit.sources.shell.variables import Variables, end_functions

_DEEPEST = 20
_MOST_ROUNDS = 4
_MOST_FIRST = 2  # loops, one in the other, of which the first round is followed
_MOST_LOOPS = 4  # one in the other: each is followed several times
_MOST_COMMANDS = 20_000
_MOST_VALUES = 200  # of a loop that only assigns variables
# Search paths: a session that has them has them where the job is checked, too.
_OF_SESSION = frozenset({"LD_LIBRARY_PATH", "LIBRARY_PATH", "LD_PRELOAD", "CPATH", "PYTHONPATH"})
_ASSIGNED = re.compile(r"(?<![\w$.-])([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_DESCRIPTOR = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}[<>]")  # bash assigns a number to it


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
    `files` are those that the script makes, `creates` yields those of a program; `presence` is what it certainly lacks. `stops` are
    what bash refuses for certain. `tested` counts the enclosing places at which a command's failure is handled, `apart_of` the
    subshells. `previous` is whether the command before this one succeeded.

    `piped` is what the next command reads from a pipe, `loops` how many loops enclose it. `guards` is what the last test results in
    if the file `presence.absent`, which does not exist, still does not then: no branch is chosen by it.
    `is_of_windows` returns whether the lines of a file end as in Windows. `tried` are the calls in the last trial, `skips` is the
    number of times that commands were skipped which another round of a loop may run.
    """

    scope: Scope
    load: Callable[[str], str | None]
    path: str
    builtins: Mapping[str, Builtin]
    creates: Callable[[Call], Iterable[str]] = lambda _: ()
    is_of_windows: Callable[[str], bool] = lambda _: False
    calls: list[Call] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    sourcing: list[str] = field(default_factory=list)
    files: MadeFiles = field(init=False)
    presence: Presence = field(init=False)
    variables: Variables = field(init=False)
    conditions: int = 0
    depth: int = 0
    commands: int = 0
    tested: int = 0
    apart_of: int = 0
    previous: bool | None = None
    piped: Lines | None = None
    loops: int = 0
    guards: bool | None = None
    tried: list[Call] = field(default_factory=list)
    skips: int = 0

    def __post_init__(self) -> None:
        self.scope.source = lambda: self.path
        self.files = MadeFiles(self.calls, self.load)
        self.presence = Presence(self.scope, self.files, self.unread)
        self.variables = Variables(self.scope, lambda: self.conditions > 0)

    @property
    def state(self) -> ShellState:
        """The state of the shell that is being followed."""
        return self.scope.state

    @state.setter
    def state(self, state: ShellState) -> None:
        self.scope.state = state

    def script(self, source: str, line: int = 1) -> None:
        """Follow the text of a script whose first line has this number."""
        self.presence.read_header(source)
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
            self.forget_below(node.line)
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

    def not_followed(self, line: int, why: str) -> None:
        """Note what could not be followed."""
        self.unread.append(f"{self.path}:{line}: {why}")

    def forget_below(self, line: int) -> None:
        """Make unknown what the file assigns from this line on: the commands that could not be read may assign it."""
        rest = (self.load(self.path) or "").splitlines()[line - 1 :]
        for name in _ASSIGNED.findall("\n".join(rest)):
            self.state.variables[self.state.resolved(name) or name] = None

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
                end_functions(end, frame.functions, frame.changes)
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
        succeeds, works = self.state.status, likely(node.first, self.state)
        if len(self.stops) > before and not self.stops[-1].whole:
            succeeds = False
        for place, (sign, command) in enumerate(node.rest, 1):
            self.tested -= place == len(node.rest)
            if succeeds is not None:
                if succeeds == (sign == "&&"):
                    self.node(command)
                    succeeds, works = self.state.status, likely(command, self.state)
            elif works and sign == "&&":
                self.node(command)
                works = likely(command, self.state)
            else:
                if place == 1:
                    self.guarded(node.first, (command,), holds_if=sign == "&&")
                self.state.status = sign == "&&"
                self.branches([(command,), ()])
                works = False
        self.state.status = succeeds

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
        values = [None] if node.words is None or node.chosen else self.values_of(node.words)
        self.state.status = True
        if node.name and not values:
            return
        if node.name and None not in values:
            if len(values) <= _MOST_VALUES and all(map(only_assigns, node.body)):
                for value in values:
                    self.variables.store(node.name, value, node.line)
                    self.nodes(node.body)
                return
            if not self.conditions and all(map(is_guard, node.body)):
                self.each_round(node, values)
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
                self.variables.store(node.name, value, node.line)
            end = self.trial((*node.body, *node.condition), self.state)
            wider = start.widened(end)
            if wider == start:
                break
            start = wider
        else:
            self.state = start
            self.variables.forget()
        self.state = start
        if node.name:
            self.variables.store(node.name, self.of_first_round(node, values) or value, node.line)
        self.until("loop", [node.body])
        if node.name and len(values) > 1:
            self.variables.store(node.name, None, node.line)
        known = set(self.state.changes)
        self.state.changes += [entry for entry in end.changes if entry not in known]  # of the condition
        self.conditions -= 1
        self.loops -= 1
        self.state = before if self.state.ended else agreed([before, self.state])
        self.state.status = None

    def values_of(self, words: Iterable[Written]) -> list[str | None]:
        """Expand the words of a loop, patterns to the files that match them now; to unknown ones if something may have changed these."""
        found: list[str | None] = []
        for word in words:
            pattern = pattern_of(word.parts, self.scope) or ""
            if self.presence.is_there is None or not glob.has_magic(pattern):
                found += expanded([word], self.scope, self.path)
            elif self.presence.may_match_others(pattern):
                found.append(None)
            else:
                matching = sorted(glob.iglob(pattern, root_dir=self.state.cwd))  # noqa: PTH207 - of text
                found += matching or expanded([word], self.scope, self.path)
        return found

    def each_round(self, node: Loop, values: Sequence[str | None]) -> None:
        """Follow each round of a loop that only tests something, for the ends of the script that are certain then."""
        lists: list[list[Any]] = [self.calls, self.unread, self.files.made, self.files.outputs]
        lists += [frame.ends for frame in self.frames]
        lengths, before = [len(entries) for entries in lists], self.state
        for value in values:
            self.state = before.copy()
            self.variables.store(node.name, value, node.line)
            self.nodes(node.body)
        self.state = before
        for entries, length in zip(lists, lengths, strict=True):
            del entries[length:]

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
            self.variables.store(node.name, value, node.line)
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
        lists: list[list[Any]] = [self.calls, self.unread, self.stops, self.files.made, self.files.outputs]
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
        self.scope.refused.clear()
        self._simple(node)
        for name in self.scope.changed:
            if not isinstance(value := self.state.value(name), Unset):
                self.variables.store(name, value, node.line)
        self.scope.changed.clear()
        self.failed()

    def unbound(self, node: Simple, argv: Sequence[Argument] = ()) -> None:
        """Note a variable that bash requires and that is unset. In a pipe only that part ends."""
        starts = any(argument.text == "-m" for argument in argv)
        required = [(name, "unbound variable") for name in self.scope.unset if self.state.option("nounset")]
        for name, message in (*required, *self.scope.needed):
            by_others = is_set_by_others(name) and (name not in _OF_SESSION or self.presence.is_batch)
            called = self.presence.may_have_called_functions()
            certain = not (self.conditions or self.unread or by_others or called)
            if certain:
                whole, extended = not self.apart_of or starts, name if _sets(node, name) else ""
                self.stops.append(Stop(self.path, node.line, f"{name}: {message}", whole, extended))
        self.scope.unset.clear()
        self.scope.needed.clear()

    def missing(self, line: int, message: str) -> None:
        """Note a command that certainly fails: it ends the script under `set -e`, else its list."""
        is_here = self.presence.is_there is not None
        if is_here and not self.conditions and not self.presence.may_have_called_functions():
            whole = self.exits_on_error and not self.apart_of
            if whole or self.tested or self.apart_of:
                self.stops.append(Stop(self.path, line, message, whole))

    def refuses(self, line: int) -> bool:
        """Return whether bash certainly refuses to evaluate what was expanded last, and note it: nothing is assigned, and `set -e` does not end the script."""
        if not self.scope.refused or self.conditions or self.is_within("function", "loop"):
            return False
        self.stops.append(Stop(self.path, line, self.scope.refused[0], whole=False))
        self.state.status = None
        return True

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
        is_tested = isinstance(tested, Simple) and (is_test(tested) or self.queried(tested) != "")
        if not is_tested or self.guards is None or not self.presence.absent:
            return
        before = "0" if holds_if else "1"
        found = exit_of(body, before) if self.guards == (holds_if != negated) else None
        if found and not (self.conditions or self.apart_of) and self.presence.is_there is not None:
            line, code = found
            self.stops.append(Stop(self.path, line, f"exit {code}: {self.presence.absent}"))

    def queried(self, node: Simple) -> str:
        """Return the program for which `command -v`, `which`, `type` or `hash` looks; "" for all else."""
        first = node.words[0] if node.words else None
        if not isinstance(first, Written) or first.raw not in QUERIES:
            return ""
        words = [word.text for word in arguments(node.words, self.scope, self.path)]
        names = [word for word in words[1:] if word is None or not word.startswith("-")]
        return (names[0] or "") if is_query(words) and len(names) == 1 else ""

    def lacks_program(self, name: str) -> bool:
        """Return whether the machine on which the job runs certainly has no such program."""
        return self.presence.lacks_program(name, self.builtins)

    def writes(self, targets: Iterable[Written], printed: Lines | None = None) -> None:
        """Note the files that output goes to, and the text if all of it is known and certain."""
        names = expanded(targets, self.scope, self.path)
        self.files.write(names, self.state.cwd, None if self.conditions else printed)

    def read_by(self, node: Simple) -> Lines | None:
        """Return what a command reads: a here-document, a here-string, a file or a pipe; None if unknown."""
        if node.input is None:
            return self.piped
        found = None if node.input.parts is None else text(node.input.parts, self.scope)
        if found is None or not node.input.is_file:
            return None if found is None else Lines(found, self.path, node.input.line)
        return self.files.text_now(found, self.state.cwd)

    def failing(self, assignments: Sequence[Assignment]) -> str:
        """Return the message of an `ls` of nothing that decides the status of `name=$(ls -d x* | tail -1)`; "" if it may succeed."""
        parts = assignments[-1].value if assignments and assignments[-1].items is None else ()
        scripts = [part.script for part in parts if isinstance(part, Substitution)]
        nodes = parse(scripts[0]) if len(scripts) == 1 else ()
        commands = nodes[0].commands if len(nodes) == 1 and isinstance(nodes[0], Pipeline) else nodes
        if len(nodes) != 1 or (len(commands) > 1 and self.state.option("pipefail") is not True):
            return ""
        first = commands[0]
        if not isinstance(first, Simple) or first.assignments or not self.state.cwd:
            return ""
        texts = [argument.text for argument in arguments(first.words, self.scope, self.path)]
        if not texts or None in texts or texts[0] != "ls" or "ls" in self.state.functions:
            return ""
        kept = self.files.substituted
        self.files.substituted = [script for script in kept if script != scripts[0]]
        gone = self.presence.first_missing(name for name in texts[1:] if name and not name.startswith("-"))
        self.files.substituted = kept
        return f"ls: cannot access '{gone}': No such file or directory" if gone else ""

    def piped_by(self, node: Node) -> Lines | None:
        """Return what a command writes to a pipe. Its words are expanded in a state that is lost."""
        if not isinstance(node, Simple) or not node.words:
            return None
        before, unset = self.state, len(self.scope.unset)
        self.state = before.copy()
        printed = self.output_of(node, arguments(node.words, self.scope, self.path))
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
            return self.files.text_now(rest[0], self.state.cwd) if rest else self.read_by(node)
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
                value = self.variables.value_of(assignment)
                if self.refuses(assignment.line):
                    break
                self.variables.store(assignment.name, value, assignment.line)
                if state.status is False:  # a readonly variable: bash omits the rest of the whole command
                    self.leave("shell" if self.exits_on_error else "command")
                    break
            self.unbound(node)
            self.writes(node.written)
            if state.status is None and self.exits_on_error and (message := self.failing(node.assignments)):
                self.missing(node.line, message)
                state.status = False
            return
        if is_test(node):
            state.status = holds(node, self.scope)
            self.presence.absent, self.guards = "", None
            if state.status is None:
                self.guards = holds(node, self.scope, self.presence.lacks)
            self.unbound(node)
            return
        if node.input is not None and node.input.refused:
            self.not_run(node, node.input)
            return
        argv = arguments(words, self.scope, self.path)
        if len(argv) > 1 and argv[0].text in ("command", "builtin") and argv[1].text in self.builtins:
            node, argv = replace(node, words=words[1:]), argv[1:]
        self.unbound(node, argv)
        for_this = self.variables.of_command(node.assignments)
        if queried := self.queried(node):
            searches = any(entry.name == "PATH" for entry in for_this)
            lacks = not searches and self.lacks_program(queried)
            self.presence.absent = f"{queried} is not on the PATH" if lacks else ""
            self.guards = False if lacks else None
        name = argv[0].text if argv else ""
        if name in state.aliases:
            self.not_followed(node.line, f"`{name}` is an alias")
            return
        if for_this and name in ("eval", "source", "."):
            self.variables.with_own(for_this, lambda: self.builtins[name](self, node, argv))
            return
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
            written = tuple(filter(None, expanded(node.written, self.scope, self.path)))
            changes = (*self.variables.environment(), *for_this)
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
            if message := self.presence.not_openable(argv) or self.presence.not_found(name):
                self.missing(node.line, message)
                state.status = False
            if len(argv) == 1 and name == "exec" and (gone := self.presence.first_without_folder(written)):
                self.missing(node.line, f"{gone}: No such file or directory")
                state.status = False
            self.calls.append(call)
            self.files.make(self.creates(call))
            self.writes(node.written, printed)
            if name in ("pushd", "popd"):
                state.cwd = ""
            if name == "exec" and len(argv) > 1:
                self.leave("shell")

    def printed_by(self, node: Simple, argv: Iterable[Argument]) -> Lines | None:
        """Return what a command writes to its only file, as the whole text of that."""
        return self.output_of(node, argv) if len(node.written) == 1 and not node.appends else None

    def function(
        self, name: str | None, argv: list[Argument], changes: Sequence[EnvironmentChange] = ()
    ) -> None:
        """Follow a function at its call. `changes` are the variables set for it alone."""
        here, before, called = self.path, self.state.arguments, self.state.called
        self.path, bodies = self.state.functions[name or ""]
        self.state.arguments, self.state.called = passed(argv[1:]), True
        self.piped = None
        self.depth += 1
        self.variables.with_own(changes, lambda: self.until("function", list(bodies)))
        self.depth -= 1
        self.path, self.state.arguments, self.state.called = here, before, called

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


Builtin = Callable[[Walk, Simple, list[Argument]], None]


def _sets(node: Simple, name: str) -> bool:
    """Return whether a command only assigns to this variable, alone or behind `export`."""
    behind = [part.name for part in node.words if isinstance(part, Assignment)]
    assigned = behind if len(node.words) == 1 + len(behind) else [entry.name for entry in node.assignments]
    return assigned == [name] and len(node.words) == (1 + len(behind) if behind else 0)
