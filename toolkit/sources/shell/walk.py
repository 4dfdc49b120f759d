"""Follows a shell script from top to bottom without running it: the variables it exports, and the programs it calls.

It reads both branches of a condition, and the body of a loop once; what depends on these is unknown afterwards.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_doctor.toolkit.sources.shell.agree import agreed, assigned
from verl_doctor.toolkit.sources.shell.expand import (
    Array,
    Either,
    Element,
    Scope,
    Unset,
    Value,
    fields,
    text,
    undecided,
)
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.syntax import (
    AndOr,
    Assignment,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Parameter,
    Pipeline,
    Simple,
    Text,
    Unread,
    Written,
)
from verl_doctor.toolkit.sources.shell.test import holds, is_test

# Variables that bash sets itself, or that a scheduler or launcher sets where the script will run.
_SET_BY_OTHERS = re.compile(
    r"BASH|SHELL|OS(?:TYPE|NAME)|HOST|MACHTYPE|E?UID|PPID|IFS|COLUMNS|LINES|PIPESTATUS|FUNCNAME|GROUPS|DIRSTACK|OPT(?:ARG|IND|ERR)|REPLY"
    r"|EPOCH|SRANDOM|COMP|HIST|PS[0-4]$|OLDPWD|USER|LOGNAME|TERM|LANG|LC_|TMPDIR|DISPLAY|SSH_|CONDA|VIRTUAL_ENV|LD_|PYTHONPATH|CUDA_|ROCR_|HIP_|ASCEND"
    r"|SLURM|SBATCH|PBS|LSB_|LSF|SGE|OMPI|PMI|MPI|HYDRA_|KUBERNETES|POD_|NODE|RANK|LOCAL_|WORLD|MASTER|WORKER|HEAD|RAY_|JOB_|TASK_|ARRAY"
    r"|MLP_|VC_|PAI_|ARNOLD|VOLC|SM_|AWS|AZ|GOOGLE|CI$|GPU|NPU|NUM_|NPROC|NNODES"
)


def is_set_by_others(name: str) -> bool:
    """Return whether a variable may be set where the script will run although nothing here sets it."""
    return _SET_BY_OTHERS.match(name) is not None


_DEEPEST = 20
_EVERY = (Text("@"),)  # the index in `${name[@]}`
_MOST_COMMANDS = 20_000


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
class Given:
    """A variable that is exported, or unset (`removed`). `conditional`: under an undecided condition."""

    name: str
    value: str | None
    path: str
    line: int
    removed: bool = False
    conditional: bool = False


@dataclass(frozen=True)
class Call:
    """A program that is called: `argv[0]` is its name. `given` are the environment changes made until then.

    `folder` is where it starts, "" where unknown. `written` are the files that its output goes to.
    """

    argv: tuple[Argument, ...]
    given: tuple[Given, ...]
    conditional: bool
    folder: str = ""
    written: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stop:
    """What bash refuses while it runs a script, with its message. `whole`: the script ends there, else one command or list of commands."""

    path: str
    line: int
    message: str
    whole: bool = True


@dataclass
class Walk:
    """What was found so far. `load` returns the text of a file, or None when unreadable; `builtins` are the shell's own commands.

    `limits` are the words of each `ulimit` that is certain to run. `is_there` returns whether a path leads to a folder or
    file; None where that is another machine's. `stops` are what bash refuses for certain; `exits_on_error` is `set -e`,
    `needs_set` is `set -u`. `tested` counts the enclosing places at which a command's failure is handled.
    """

    scope: Scope
    load: Callable[[str], str | None]
    path: str
    builtins: Mapping[str, Builtin]
    given: list[Given] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    limits: list[tuple[str, ...]] = field(default_factory=list)
    functions: dict[str, tuple[str, tuple[Node, ...]]] = field(default_factory=dict)
    conditions: int = 0
    depth: int = 0
    commands: int = 0
    exports_all: bool = False
    ended: bool = False
    is_there: Callable[[str], bool] | None = None
    stops: list[Stop] = field(default_factory=list)
    exits_on_error: bool = False
    needs_set: bool = False
    tested: int = 0
    apart_of: int = 0

    def script(self, source: str, line: int = 1) -> None:
        """Follow the text of a script whose first line has this number."""
        self.nodes(parse(source, line))

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Follow commands one after the other."""
        for node in nodes:
            self.commands += 1
            if self.ended or self.commands > _MOST_COMMANDS:
                return
            self.node(node)

    def node(self, node: Node) -> None:
        """Follow one command."""
        if isinstance(node, Simple):
            self.simple(node)
        elif isinstance(node, Unread):
            if node.refused and not self.conditions:
                self.stops.append(Stop(self.path, node.line, node.refused, whole=False))
            self.not_followed(node.line, node.why)
        elif isinstance(node, Function):
            self.functions[node.name] = (self.path, node.body)
        elif isinstance(node, Group):
            self.group(node)
        elif isinstance(node, Pipeline):
            for command in node.commands:
                self.apart((command,))
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

    # Compound commands

    def group(self, node: Group) -> None:
        """Follow `{ ... }` and `( ... )`."""
        if node.subshell:
            self.apart(node.body)
        else:
            self.nodes(node.body)

    def apart(self, nodes: tuple[Node, ...]) -> None:
        """Follow commands in a separate shell: their variables are lost afterwards."""
        before, exported, cwd = dict(self.scope.variables), set(self.exported), self.scope.cwd
        options = self.exits_on_error, self.needs_set
        self.apart_of += 1
        self.tested += 1
        self.nodes(nodes)
        self.apart_of -= 1
        self.tested -= 1
        self.exits_on_error, self.needs_set = options
        self.scope.variables, self.exported, self.scope.cwd, self.ended = before, exported, cwd, False

    def and_or(self, node: AndOr) -> None:
        """Follow `a && b || c`."""
        before = len(self.stops)
        self.tested += 1
        self.node(node.first)
        self.tested -= 1
        succeeds = holds(node.first, self.scope) if is_test(node.first) else None
        certain = not is_test(node.first)
        if len(self.stops) > before and not self.stops[-1].whole:
            succeeds = certain = False
        for sign, command in node.rest:
            if succeeds is not None:
                if succeeds == (sign == "&&"):
                    self.node(command)
                    if is_test(command):
                        succeeds = holds(command, self.scope)
                    else:
                        succeeds = True if sign == "&&" else None
                    certain = succeeds is not None
                continue
            certain = certain and sign == "&&"
            if certain:
                self.node(command)
            else:
                self.branches([(command,), ()])

    def if_command(self, node: If) -> None:
        """Follow the arm that is taken, or all that may be."""
        bodies = []
        for condition, body in node.arms:
            self.tested += 1
            self.nodes(condition)
            self.tested -= 1
            succeeds = holds(condition[-1], self.scope) if condition else True  # `else` has none
            if succeeds is not False:
                bodies.append(body)
            if succeeds:
                break
        else:
            bodies.append(())
        self.one_of(bodies)

    def case_command(self, node: Case) -> None:
        """Follow the arm whose pattern matches, or all arms."""
        subject = text(node.subject.parts, self.scope)
        bodies: list[tuple[Node, ...]] = []
        for patterns, body in node.arms:
            known = [text(pattern.parts, self.scope) for pattern in patterns]
            if subject is None or None in known or any("[" in (pattern or "") for pattern in known):
                bodies.append(body)
            elif any(fnmatch.fnmatchcase(subject, pattern or "") for pattern in known):
                bodies.append(body)
                break
            if "*" in known:
                break
        else:
            bodies.append(())
        self.one_of(bodies)

    def one_of(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow the only body, or each of several as if it were the only one."""
        if len(bodies) == 1:
            self.nodes(bodies[0])
        else:
            self.branches(bodies)

    def branches(self, bodies: list[tuple[Node, ...]]) -> None:
        """Follow each as if it were the only one; keep what all agree on."""
        before, cwd = dict(self.scope.variables), self.scope.cwd
        ends, folders = [], set[str]()
        exported = set(self.exported)
        self.conditions += 1
        for body in bodies:
            self.scope.variables, self.ended, self.scope.cwd = dict(before), False, cwd
            arguments = list(self.scope.arguments)
            self.nodes(body)
            if self.scope.arguments != arguments:
                self.scope.arguments = [None] * len(arguments)
            if not self.ended:  # after `exit` variables no longer matter
                ends.append(self.scope.variables)
                folders.add(self.scope.cwd)
            exported |= self.exported
        self.conditions -= 1
        self.exported, self.ended = exported, not ends
        self.scope.variables = agreed(ends) if ends else before
        self.scope.cwd = folders.pop() if len(folders) == 1 else "" if folders else cwd

    def loop(self, node: Loop) -> None:
        """Follow the body once; what it assigns becomes unknown."""
        before, cwd = dict(self.scope.variables), self.scope.cwd
        values = [None] if node.words is None else self.expanded(node.words)
        self.tested += 1
        self.nodes(node.condition)
        self.tested -= 1
        for name in assigned(node.body):
            self.scope.variables[name] = None
        if node.name:
            self.scope.variables[node.name] = values[0] if len(values) == 1 else None
        self.conditions += 1
        self.nodes(node.body)
        self.conditions -= 1
        self.ended = False
        self.scope.variables = agreed([before, self.scope.variables])
        self.scope.cwd = cwd if self.scope.cwd == cwd else ""

    # Simple commands

    def simple(self, node: Simple) -> None:
        """Follow a builtin or a function; note another program."""
        self.scope.unset.clear()
        self._simple(node)

    def unbound(self, line: int, argv: Sequence[Argument] = ()) -> None:
        """Note a variable that bash reports as unset under `set -u`. In a pipe only that part ends."""
        starts = any(argument.text == "-m" for argument in argv)
        for name in self.scope.unset:
            given = is_set_by_others(name)
            if self.needs_set and not self.conditions and not self.unread and not given:
                self.stops.append(
                    Stop(self.path, line, f"{name}: unbound variable", not self.apart_of or starts)
                )
        self.scope.unset.clear()

    def missing(self, line: int, message: str) -> None:
        """Note a command that certainly fails: it ends the script under `set -e`, else its list."""
        if not self.conditions and self.is_there is not None:
            whole = self.exits_on_error and not self.tested
            if whole or self.tested:
                self.stops.append(Stop(self.path, line, message, whole))

    def may_have_made(self, path: str, before: Call | None = None) -> bool:
        """Return whether a program called earlier, or `before` a call, may have created a folder or file."""
        name = Path(path).name
        calls = itertools.takewhile(lambda call: call is not before, self.calls)
        return any(
            argument.text is None or name in argument.text or argument.text.endswith((".sh", ".py"))
            for call in calls
            for argument in call.argv
        )

    def _simple(self, node: Simple) -> None:
        words = node.words
        if not words:
            for assignment in node.assignments:
                self.assign(assignment, exports=self.exports_all)
            self.unbound(node.line)
            return
        argv = self.arguments(words)
        self.unbound(node.line, argv)
        for_this: list[Given] = []
        for assignment in node.assignments:
            value = self.value_of(assignment)
            for_this.append(
                Given(
                    assignment.name,
                    value if isinstance(value, str) else None,
                    self.path,
                    assignment.line,
                    conditional=self.conditions > 0,
                )
            )
        name = argv[0].text if argv else ""
        if name in self.functions and self.depth < _DEEPEST:
            self.function(name, argv)
            return
        builtin = self.builtins.get(name or "")
        if builtin:
            builtin(self, node, argv)
        elif argv:
            written = tuple(filter(None, self.expanded(node.written)))
            given = (*self.given, *for_this)
            call = Call(tuple(argv), given, self.conditions > 0, self.scope.cwd, written)
            self.calls.append(call)
            if name in ("pushd", "popd"):
                self.scope.cwd = ""

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
            return Argument(value, *place, source.written, value.conditional)
        return replace(source, text=value)

    def sources(self, word: Written, count: int) -> list[Argument]:
        """Return the source of each word that a written one becomes: itself, or for unknown elements those of an array."""
        whole = Argument(None, self.path, word.line, word.raw)
        part = word.parts[0] if len(word.parts) == 1 else None
        array = self.scope.get(part.name) if isinstance(part, Parameter) and part.index == _EVERY else None
        if not isinstance(array, Array) or len(array) != count:
            return [whole] * count
        return [
            whole if value is not None else Argument(None, array.path, item.line, item.raw)
            for value, item in zip(array, array.words, strict=True)
        ]

    def expanded(self, words: Iterable[Written]) -> list[str | None]:
        """Expand words to the elements of an array."""
        return [
            value if value is None else Element(value, self.path, word.line)
            for word in words
            for value in fields(word.parts, self.scope)
        ]

    def array(self, words: tuple[Written, ...]) -> list[str | None]:
        """Return the elements of an array, with the words that they were written as when each is one."""
        values = self.expanded(words)
        return Array(values, words, self.path) if len(values) == len(words) else values

    def value_of(self, assignment: Assignment) -> Value:
        """Return the value of a variable after an assignment."""
        before = self.scope.get(assignment.name)
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
        before = dict(self.scope.variables)
        texts = []
        for possible in either.texts:
            self.scope.variables[name] = possible
            texts.append(text(assignment.value, self.scope))
        self.scope.variables = before
        known = tuple(dict.fromkeys(found for found in texts if found is not None))
        return Either(known) if None not in texts else None

    def assign(self, assignment: Assignment, *, exports: bool = False) -> None:
        """Assign a variable, and pass it on to programs where it is exported."""
        name = assignment.name
        value = self.value_of(assignment)
        known = name in self.exported or (name in self.scope.environ and name not in self.scope.variables)
        self.scope.variables[name] = value
        if exports or known:
            self.export(name, value, assignment.line)

    def export(self, name: str, value: Value | Unset, line: int) -> None:
        """Pass a variable on to the programs that follow."""
        self.exported.add(name)
        if not isinstance(value, Unset):
            self.given.append(
                Given(
                    name,
                    value if isinstance(value, str) else None,
                    self.path,
                    line,
                    conditional=self.conditions > 0,
                )
            )

    def function(self, name: str | None, argv: list[Argument]) -> None:
        """Follow a function at its call."""
        path, body = self.functions[name or ""]
        before, here = self.scope.arguments, self.path
        self.scope.arguments = [
            None if word.text is None else Element(word.text, word.path, word.line) for word in argv[1:]
        ]
        self.path = path
        self.depth += 1
        self.nodes(body)
        self.depth -= 1
        self.scope.arguments, self.path, self.ended = before, here, False

    def inner(self, source: str, path: str, arguments: list[str | None] | None) -> None:
        """Follow another text in this shell: a sourced file, an evaluated string."""
        if self.depth >= _DEEPEST:
            return
        before, here = self.scope.arguments, self.path
        if arguments:
            self.scope.arguments = arguments
        self.path = path
        self.depth += 1
        self.nodes(parse(source))
        self.depth -= 1
        self.scope.arguments, self.path, self.ended = before, here, False


Builtin = Callable[[Walk, Simple, list[Argument]], None]
