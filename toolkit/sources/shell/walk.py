"""Follows a shell script from top to bottom without running it.

Finds the variables it exports, and the programs it calls.

It reads both branches of a condition, and the body of a loop once; what depends on these is unknown
afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from verl_doctor.toolkit.sources.shell.command_words import expanded
from verl_doctor.toolkit.sources.shell.found import Call, Lines, Stop
from verl_doctor.toolkit.sources.shell.hurdle import Hurdle
from verl_doctor.toolkit.sources.shell.made_files import MadeFiles
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.presence import Presence
from verl_doctor.toolkit.sources.shell.programs import Programs
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.start import Start, options_of_header
from verl_doctor.toolkit.sources.shell.state import OPTIONS, Functions, ShellState, agreed
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Function,
    Group,
    Node,
    Simple,
    Unread,
    Written,
)
from verl_doctor.toolkit.sources.shell.variables import Variables, end_functions

DEEPEST = 20
_MOST_STEPS = 20_000
_COPIED = 32  # entries of a state, whose copy takes as long as a command
_DONE_WITH_STATUS_1 = frozenset({"read", "let"})
_REST = "the rest is not followed"
_ASSIGNED = re.compile(r"(?<![\w$.-])([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_DESCRIPTOR = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}[<>]")  # bash assigns a number to it


Kind = Literal["loop", "function", "source", "command", "shell"]


@dataclass
class Frame:
    """A loop, a function, a sourced file, a whole command of the script or a shell that is being followed.

    `ends` are the states in which it was left early.

    `changes` is the number of changes to the environment at its start, `functions` that of functions that
    were running, `arguments` are those of the innermost.
    """

    kind: Kind
    changes: int = 0
    functions: int = 0
    arguments: Sequence[str | None] = ()
    ends: list[ShellState] = field(default_factory=list)


@dataclass
class Walk:
    """What was found so far.

    `load` returns the text of a file, or None when unreadable; `followers` follow each kind of command.

    `scope.state` is the state of the shell that is being followed, `frames` what encloses the current
    command. `files` are those that the script makes, `creates` yields those of a program. `start` is how it
    is started, `presence` and `programs` are what it certainly lacks. `stops` are what bash refuses for
    certain. `steps` are the commands that were followed, with what copies of states take. `tested` counts the
    enclosing places at which a command's failure is handled, `ending` those of them at which the script ends
    then, `apart_of` the subshells, `beside` those that run in the background. `previous` is whether the
    command before this one succeeded.

    `piped` is what the next command reads from a pipe, `loops` how many loops enclose it. `guards` is what
    the last test results in if the file `presence.absent`, which does not exist, still does not then: no
    branch is chosen by it. `without` is what it results in if the script gets no arguments, as
    `lacks_arguments` supposes where none were named. `is_of_windows` returns whether the lines of a file end
    as in Windows. `tried` are the calls in the last trial, `skips` is the number of times that commands were
    skipped which another round of a loop may run. `exported` are the functions that another bash gets from
    this one.
    """

    scope: Scope
    load: Callable[[str], str | None]
    path: str
    followers: Mapping[type[Node], Follower]
    creates: Callable[[Call], Iterable[str]] = lambda _: ()
    is_of_windows: Callable[[str], bool] = lambda _: False
    calls: list[Call] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    sourcing: list[str] = field(default_factory=list)
    files: MadeFiles = field(init=False)
    start: Start = field(default_factory=Start)
    presence: Presence = field(init=False)
    programs: Programs = field(init=False)
    variables: Variables = field(init=False)
    conditions: int = 0
    depth: int = 0
    steps: int = 0
    tested: int = 0
    ending: int = 0
    apart_of: int = 0
    beside: int = 0
    previous: bool | None = None
    piped: Lines | None = None
    loops: int = 0
    guards: bool | None = None
    without: bool | None = None
    lacks_arguments: bool = False
    tried: list[Call] = field(default_factory=list)
    skips: int = 0
    exported: Functions = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scope.source = lambda: self.path
        self.files = MadeFiles(self.calls, self.load)
        self.presence = Presence(self.scope, self.files, self.start)
        self.programs = Programs(self.presence, self.start, self.unread)
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
        self.start.read_header(source)
        for letter in options_of_header(source):
            # `bash run.sh` does not read that line; a batch system does.
            self.state.options[OPTIONS[letter]] = True if self.start.is_batch else None
        for name in _DESCRIPTOR.findall(source):
            self.state.variables.setdefault(name, None)
        try:
            for node in parse(source, line):
                self.until("command", [(node,)])
        except RecursionError:  # functions within functions, each nested deeply
            self.steps = _MOST_STEPS + 1
            self.unread.append(f"{self.path}: nested too deeply")

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Follow commands one after the other."""
        for node in nodes:
            self.steps += 1
            if self.steps > _MOST_STEPS:
                if not any(note.endswith(_REST) for note in self.unread):  # a trial discards its notes
                    self.unread.append(f"{self.path}: after {_MOST_STEPS} steps {_REST}")
                return
            if self.state.ended:
                return
            self.node(node)

    def node(self, node: Node) -> None:
        """Follow one command, unless the shell has ended."""
        if self.state.ended:
            return
        self.previous, self.state.status, self.state.fails = self.state.status, None, ""
        if isinstance(node, Unread):
            if node.refused and not self.conditions:
                self.stops.append(Stop(self.path, node.line, node.refused, whole=False))
            self.not_followed(node.line, node.why)
            self.forget_below(node.line)
        elif isinstance(node, Function):
            self.state.functions[node.name] = (self.path, (node.body,))
            self.state.status = True
        else:
            self.followers[type(node)](self, node)
            if not isinstance(node, (AndOr, Group, Simple)):
                self.state.fails = ""

    def not_followed(self, line: int, why: str) -> None:
        """Note what could not be followed."""
        self.unread.append(f"{self.path}:{line}: {why}")

    def forget_below(self, line: int) -> None:
        """Make unknown what the file assigns from this line on, as unreadable commands may assign it."""
        rest = (self.load(self.path) or "").splitlines()[line - 1 :]
        for name in _ASSIGNED.findall("\n".join(rest)):
            self.state.variables[self.state.resolved(name) or name] = None

    # What encloses commands, and which of them are followed

    def apart(self, nodes: tuple[Node, ...]) -> None:
        """Follow commands in a subshell: only its status is left."""
        before, self.state = self.state, self.copy()
        self.apart_of += 1
        self.until("shell", [nodes])
        self.apart_of -= 1
        before.status, self.state = self.state.status, before

    def copy(self) -> ShellState:
        """Return a copy of the state, which takes time in proportion to its size."""
        self.steps += self.state.size // _COPIED
        return self.state.copy()

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
        """The number of conditions around the current command, except loops, and of its handlers.

        The handlers are the places at which its failure is handled, and does not end the script.
        """
        return self.conditions - self.loops + self.tested - self.ending

    def leave(self, kind: Kind) -> None:
        """End the enclosing loops, the function or sourced file, or shell, where the current state resumes.

        The current state counts again there.
        """
        self.skips += kind == "loop" or (
            self.conditions > self.loops and (kind == "function" or self.apart_of > 0)
        )
        ends = {"shell", "function", "source"} if kind == "function" else {"shell", kind}
        if kind == "loop":
            frames = list(itertools.takewhile(lambda frame: frame.kind == "loop", reversed(self.frames)))
        else:
            frames = [frame for frame in self.frames if frame.kind in ends][-1:]
        for frame in frames:
            end = self.copy()
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

    def failed(self, line: int = 0, name: str = "") -> None:
        """End the shell if the last command fails and `set -e` is in force.

        `name` is the command on this line, "" to note nothing.
        """
        if self.state.status is False and self.exits_on_error:
            known = any((stop.path, stop.line) == (self.path, line) for stop in self.stops)
            if name and not known:
                has_done_its_work = name in _DONE_WITH_STATUS_1 or name.startswith("((")
                self.missing(line, f"{name}: status 1", "status" if has_done_its_work else "")
            self.leave("shell")

    def one_of(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow the only body, or each of several as if it were the only one."""
        if len(bodies) == 1:
            self.nodes(bodies[0])
        else:
            self.branches(bodies)

    def branches(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow each as if it were the only one; keep what all agree on."""
        if self.steps > _MOST_STEPS:
            return
        before, ends = self.state, []
        self.conditions += 1
        for body in bodies:
            self.state = before
            self.state = self.copy()
            self.nodes(body)
            if not self.state.ended:  # what an end leaves behind is kept by its frame
                ends.append(self.state)
        self.conditions -= 1
        self.state = agreed(ends) if ends else before
        self.state.ended = not ends

    def trial(self, nodes: tuple[Node, ...], start: ShellState) -> ShellState:
        """Return the state after commands that are followed once more later."""
        before, self.state = self.state, start
        self.state = self.copy()
        with self.discarded(self.stops):
            first = len(self.calls)
            self.until("loop", [nodes])
            self.tried = self.calls[first:]
        end, self.state = self.state, before
        return start if end.ended else end

    @contextlib.contextmanager
    def discarded(self, *more: list[Any]) -> Iterator[None]:
        """Discard what is found within, these lists included."""
        files = self.files
        lists: list[list[Any]] = [self.calls, self.unread, files.made, files.outputs, files.awaited, *more]
        lists += [frame.ends for frame in self.frames]
        lengths = [len(entries) for entries in lists]
        yield
        for entries, length in zip(lists, lengths, strict=True):
            del entries[length:]

    # What is noted about commands

    def missing(self, line: int, message: str, hurdle: Hurdle = "", name: str = "") -> None:
        """Note a command that certainly fails: it ends the script under `set -e`, else its list."""
        is_here = self.presence.is_there is not None
        if is_here and not self.conditions and not self.programs.may_have_called_functions():
            whole = self.exits_on_error and not self.apart_of
            if whole or self.tested or self.apart_of:
                self.stops.append(Stop(self.path, line, message, whole, hurdle=hurdle, name=name))

    def writes(self, targets: Iterable[Written], printed: Lines | None = None) -> None:
        """Note the files that output goes to, and the text if all of it is known and certain."""
        names = expanded(targets, self.scope, self.path)
        self.files.write(names, self.state.cwd, None if self.conditions else printed)

    def inner(self, source: str, path: str, arguments: list[str | None] | None, line: int = 1) -> None:
        """Follow another text in this shell: a sourced file, or an evaluated string that begins on a line."""
        if self.depth >= DEEPEST:
            return
        before, here = self.state.arguments, self.path
        if arguments:
            self.state.arguments = arguments
        self.path = path
        self.depth += 1
        nodes = parse(source, line)
        if arguments is None:
            self.nodes(nodes)
        else:
            self.until("source", [nodes])
        self.depth -= 1
        if arguments:
            self.state.arguments = before
        self.path = here


Follower = Callable[[Walk, Any], None]
