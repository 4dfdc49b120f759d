"""Reads launch files into settings and the command that starts training.

The files are launch scripts, `runtime_env` files and Dockerfiles; command lines are read as well.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.dockerfile import started_by, variables_in
from verl_doctor.toolkit.collectors.launch.effects import (
    ANYWHERE,
    PYTHON,
    WRITES,
    awaited_before,
    installs,
    may_make,
    may_remove,
    outputs_before,
    written_before,
)
from verl_doctor.toolkit.collectors.launch.environment import is_listed
from verl_doctor.toolkit.collectors.launch.job_program import (
    OTHER_FILES,
    STARTS_VERL,
    Program,
    are_elsewhere,
    base_names,
)
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, WorkingDir
from verl_doctor.toolkit.collectors.launch.passed_variables import (
    from_env,
    from_overrides,
    inherited,
    state_of,
)
from verl_doctor.toolkit.collectors.launch.runtime_env import (
    NotARuntimeEnvError,
    variables_in_json,
    variables_in_yaml,
)
from verl_doctor.toolkit.collectors.launch.working_dir import folder_of_overrides, submitted_folder
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram, ShellProgram
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped, unwrap
from verl_doctor.toolkit.sources.make.makefile import NAMES, Makefile
from verl_doctor.toolkit.sources.make.recipes import Recipe, Run
from verl_doctor.toolkit.sources.make.request import request_of
from verl_doctor.toolkit.sources.make.text import NotFollowedError
from verl_doctor.toolkit.sources.make.variables import Variables
from verl_doctor.toolkit.sources.shell.command_words import passed
from verl_doctor.toolkit.sources.shell.commands import COMMANDS
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines, Stop
from verl_doctor.toolkit.sources.shell.printed import printed
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange, ShellState
from verl_doctor.toolkit.sources.shell.walk import Walk

# A dotted override in the place of a command: the rest of a command that was cut off.
_LOST = re.compile(r"(?:\+{0,2}|~)[A-Za-z_]\w*(?:\.\w+)+=")
_BATCH_EXPORTS = re.compile(r"\A(?:#.*\n|\s*\n)*?#SBATCH\s+(?:.*\s)?--export(?:=|\s+)(\S+)")
_SLURM_CONTAINER = "--container-image"
_MAKES = frozenset({"make", "gmake"})
# Launchers that a Python package installs beside the interpreter of its environment.
_SCRIPTS_OF_PACKAGES = frozenset({"deepspeed", "accelerate", "colossalai", "horovodrun", "ray"})
# Programs behind which the next word is looked for on the PATH of this shell.
_PASSES_ON = frozenset(
    {"nohup", "exec", "command", "time", "nice", "timeout", "stdbuf", "env", "numactl", "taskset"}
)
_DEEPEST = 8  # shells, one inside the other


@dataclass
class LaunchReader:
    """Reads the named files and words. `load` returns the text of a file, or None if it cannot be read.

    `is_there` reports whether a path exists; it is None if the scripts run on another machine. `is_empty`
    reports whether an unset variable counts as empty, `is_of_windows` whether the lines of a file end as in
    Windows. `bin` is the folder of the job's interpreter. `is_here`: the job runs on this machine, so that a
    program which is not here is missing. `timeout` ends the shell that is being followed after `seconds`.
    """

    load: Callable[[str], str | None]
    environ: Mapping[str, str]
    cwd: str
    changes: list[EnvironmentChange] = field(default_factory=list)
    from_raylet: list[EnvironmentChange] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    lost: list[Argument] = field(default_factory=list)
    ray_starts: list[tuple[Argument, ...]] = field(default_factory=list)
    stops_ray: bool = False
    installs: bool = False
    limits: list[tuple[str, ...]] = field(default_factory=list)
    working_dirs: list[WorkingDir] = field(default_factory=list)
    is_there: Callable[[str], bool] | None = None
    is_empty: Callable[[str], bool] = lambda _: False
    is_of_windows: Callable[[str], bool] = lambda _: False
    stops: list[Stop] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    calling: list[str] = field(default_factory=list)
    around: tuple[str, ...] = ()
    sessions: dict[str, tuple[Walk, str]] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    bin: str = ""
    is_here: bool = False
    seconds: float | None = None

    def script(self, text: str, path: str, arguments: Sequence[str | None]) -> None:
        """Follow a shell script called with these arguments."""
        state = ShellState(self.environ, arguments=list(arguments), called=bool(arguments), cwd=self.cwd)
        scope = Scope(state, script=path, is_zsh=_is_zsh((), text))
        walk = self.walk(scope, path)
        walk.presence.is_there, walk.lacks_arguments = self.is_there, not arguments
        exported = _BATCH_EXPORTS.search(text)
        if exported and "ALL" not in exported[1].split(
            ","
        ):  # Slurm reads the variables of a login shell instead
            line = text.count("\n", 0, exported.start()) + 1
            state.variables |= dict.fromkeys(self.environ)
            state.changes += [
                EnvironmentChange(name, None, path, line) for name in self.environ if is_listed(name)
            ]
        walk.script(text)
        self.stops += walk.stops
        self.follow(walk)
        self.changes += walk.state.changes
        self.limits += walk.state.limits
        self.unread += walk.unread

    def walk(self, scope: Scope, path: str) -> Walk:
        """Return a walk through one file, not yet begun."""
        walk = Walk(scope, self.load, path, COMMANDS, creates=self.creates, is_of_windows=self.is_of_windows)
        walk.presence.is_here, walk.presence.bin = self.is_here, self.bin
        scope.is_empty = lambda name: self.is_empty(name) and not walk.presence.may_have_called_functions()
        if self.is_there is not None:
            scope.finds = lambda pattern: _finds(pattern, scope.state.cwd)
        scope.printed = printed(walk)
        return walk

    def follow(self, walk: Walk, place: int = 0) -> None:
        """Record the calls of a walk from this place on, and follow the scripts among them."""
        while place < len(walk.calls):
            self.call(walk, walk.calls[place])
            place += 1
        if self.training is None:
            self.removed += walk.files.outputs

    def command_line(self, words: Sequence[str]) -> None:
        """Read a whole command as typed."""
        argv = [Argument(word, COMMAND_LINE, place, word) for place, word in enumerate(words, 1)]
        if re.match(r"[A-Za-z_]\w*=", words[0]):  # A=b before the command, as in a shell
            argv.insert(0, Argument("env", COMMAND_LINE, 1, ""))
        scope = Scope(ShellState(self.environ, cwd=self.cwd))
        walk = self.walk(scope, COMMAND_LINE)
        walk.calls.append(Call(tuple(argv), (), conditional=False, folder=self.cwd))
        self.follow(walk)
        self.unread += walk.unread

    def call(self, walk: Walk, call: Call) -> None:
        """Record a Python program; follow a shell."""
        unwrapped, original = self.spawned(walk, unwrap(call.argv, call.stdin), call), call
        first = call.argv[0]
        if self.training is None:
            self.removed += [*outputs_before(walk, call), *may_remove(call, unwrapped)]
            self.made += awaited_before(walk, call)
        if _LOST.match(first.text if first.text is not None else first.written):
            self.lost += call.argv
            return
        if unwrapped.folder is not None:
            moved = unwrapped.folder.text
            call = replace(call, folder=_path(call.folder, moved) if moved and call.folder else "")
        changes = (*inherited(unwrapped, call, self.environ), *from_env(unwrapped, call.conditional))
        reaching = self.from_job(unwrapped, call.conditional)
        if unwrapped.submits and (folder := submitted_folder(unwrapped, self.load, self.cwd)):
            self.working_dirs.append(folder)
        if unwrapped.starts_ray:
            # Workers inherit from the raylet, which inherits from this command.
            self.from_raylet += changes
            self.ray_starts.append(unwrapped.starts_ray)
        self.stops_ray = self.stops_ray or (unwrapped.stops_ray and not self.ray_starts)
        program, names = unwrapped.program, _names_of(unwrapped, call)
        if isinstance(program, PythonProgram):
            moves = "chdir(" in program.uses
            if moves:
                call = replace(call, folder="")
            if self.training is None and (moves or WRITES.search(program.uses)):
                self.made.append(ANYWHERE)
            reaching = (*reaching, *from_overrides(program, call.conditional))
            self.working_dirs += folder_of_overrides(program.words)
            self.programs.append(
                Program(
                    module=program.module,
                    words=program.words,
                    path=first.path,
                    line=first.line,
                    changes=changes,
                    reaching=reaching,
                    conditional=call.conditional,
                    submitted=unwrapped.submits,
                    launcher=program.launcher,
                    names=names,
                    around=self.around,
                    folder=call.folder,
                    starts_verl=self.starts_verl(program.module, call.folder),
                    missing=self.missing(walk, call, names, program),
                    in_container=not OTHER_FILES.isdisjoint(base_names((*self.around, *names))),
                    limits=call.limits,
                    written=tuple({**self.written, **written_before(walk, call)}.items()),
                    ends_after=self.ends_after(unwrapped, call),
                )
            )
        elif isinstance(program, ShellProgram):
            call, around, written = replace(call, changes=changes), self.around, self.written
            self.around, self.written = (*around, *names), {**written, **written_before(walk, original)}
            environ, seconds = self.environ, self.seconds
            self.environ = environ if unwrapped.inherits == "all" else {}
            self.seconds = self.ends_after(unwrapped, call)
            self.shell(walk, program, call, reaching, original, submitted=unwrapped.submits)
            self.around, self.environ, self.written, self.seconds = around, environ, written, seconds
        elif unwrapped.rest and unwrapped.rest[0].text and base_names([unwrapped.rest[0].text]) & _MAKES:
            around, self.around = self.around, (*self.around, *names[:-1])
            self.make(walk, replace(call, changes=changes), unwrapped.rest[1:], original)
            self.around = around
        if self.training is None:
            self.made += self.may_make(call, unwrapped)
            self.installs = self.installs or installs(call)

    def spawned(self, walk: Walk, unwrapped: Unwrapped, call: Call) -> Unwrapped:
        """Return what a Python program of the user's own starts, in its place, if its source names it."""
        program = unwrapped.program
        if not isinstance(program, PythonProgram) or program.launcher or not program.module.endswith(".py"):
            return unwrapped
        path = _path(call.folder or self.cwd, program.module)
        source = walk.files.text_at(path, before=call)
        text = source.text if source is not None else ""
        if source is None or "verl" not in text or STARTS_VERL.search(text):
            return unwrapped
        from verl_doctor.toolkit.collectors.launch.spawned import spawned  # noqa: PLC0415 - only for such a program

        command = spawned(text, program.words, Argument(None, source.path, source.line, ""))
        found = unwrap(command) if command else None
        if found is None or found.program is None:
            return unwrapped
        return replace(
            found,
            names=(*unwrapped.names, *found.names),
            assigned=(*unwrapped.assigned, *found.assigned),
            dropped=(*unwrapped.dropped, *found.dropped),
            folder=unwrapped.folder,
            inherits=unwrapped.inherits,
            passed=unwrapped.passed,
            submits=unwrapped.submits or found.submits,
            ends_after=unwrapped.ends_after,
            outlives=unwrapped.outlives or found.outlives,
        )

    def missing(self, walk: Walk, call: Call, names: Sequence[str], program: PythonProgram) -> str:
        """Return the error for a missing program, source or output folder; "" if all may exist."""
        module, opens = program.module, program.opens
        if PYTHON.fullmatch(opens.rpartition("/")[2]) and (
            "/" in opens or self.load(_path(call.folder or self.cwd, opens)) is None
        ):
            return f"{names[-1]} opens {opens} as the source of a program"
        if self.is_there is None or not call.folder or are_elsewhere((*self.around, *names)):
            return ""
        for name in names:
            if "/" in name and self.is_missing(name, walk, call):
                return f"{name}: No such file or directory"
            is_first = all(other in _PASSES_ON for other in names[: names.index(name)])
            if name in _SCRIPTS_OF_PACKAGES and is_first and self.lacks_script(name, walk, call):
                return f"{name}: command not found"
        opened = opens or (module if module.endswith(".py") else "")
        if opened and self.is_missing(opened, walk, call):
            return f"python: can't open file {opened}"
        for name in call.written:
            folder = str(Path(_path(call.folder, name)).parent)
            if not self.is_there(folder) and not walk.files.may_have_made(folder, before=call):
                return f"{name}: No such file or directory"
        return ""

    def lacks_script(self, name: str, walk: Walk, call: Call) -> bool:
        """Return whether a package's launcher is neither beside the job's interpreter nor on the PATH.

        In addition, nothing may have brought it.
        """
        folders = [self.bin, *self.environ.get("PATH", "").split(os.pathsep)]
        searches = any(change.name == "PATH" for change in call.changes) or any(
            (word.text or "PATH=").startswith("PATH=") for word in call.argv
        )
        unsure = self.installs or walk.unread or call.doubts > 0 or searches
        known = self.bin != "" and not (
            unsure or walk.presence.may_be_exported(name) or walk.presence.may_have_brought(name, before=call)
        )
        return (
            known
            and self.is_there is not None
            and not any(self.is_there(f"{folder}/{name}") for folder in folders if folder)
        )

    def is_missing(self, name: str, walk: Walk, call: Call) -> bool:
        """Return whether a file is missing, and no earlier call may have created it or its first folder."""
        path = _path(call.folder, name)
        made = any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in self.made)
        first = "" if name.startswith(("/", "..")) else Path(name).parts[0]
        made = made or walk.files.may_have_made(path, before=call)
        made = made or (first != "" and walk.files.may_have_made(first, before=call))
        return self.is_there is not None and not made and not self.is_there(path)

    def ends_after(self, unwrapped: Unwrapped, call: Call) -> float | None:
        """Return after how many seconds `timeout` ends a program; None if it does not.

        One around the shell ends it, too, unless the shell leaves it behind, in the background or with a
        server.
        """
        around = None if call.background or unwrapped.outlives else self.seconds
        return min(filter(None, (around, unwrapped.ends_after)), default=None)

    def starts_verl(self, module: str, folder: str) -> bool:
        """Return whether the source of a program in the job's folder starts verl."""
        path = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
        text = self.load(_path(folder or self.cwd, path))
        return text is not None and STARTS_VERL.search(text) is not None

    def creates(self, call: Call) -> Iterator[str]:
        """Yield what a program may create, as long as nothing that it runs has been read."""
        unwrapped = unwrap(call.argv)
        is_python = any(map(PYTHON.fullmatch, base_names(unwrapped.names)))
        if isinstance(unwrapped.program, ShellProgram) or (unwrapped.program is None and is_python):
            yield ANYWHERE
        yield from self.may_make(call, unwrapped)

    def may_make(self, call: Call, unwrapped: Unwrapped) -> Iterator[str]:
        """Yield what a program may create. What a shell does is known once its script was followed."""
        folder, program = call.folder or self.cwd, unwrapped.program
        is_read = isinstance(program, ShellProgram) and (
            program.text is not None
            or (program.path is not None and self.load(_path(folder, program.path)) is not None)
        )
        return may_make(call, unwrapped, folder, self.environ.get("HOME", ""), is_read=is_read)

    def shell(
        self,
        walk: Walk,
        program: ShellProgram,
        call: Call,
        reaching: tuple[EnvironmentChange, ...],
        original: Call,
        *,
        submitted: bool,
    ) -> None:
        """Follow `bash -c text` and `bash script`. `original` is the call as `walk` has it."""
        words = passed(program.words)
        first = call.argv[0]
        line = 1
        if program.session and program.text is not None:
            self.typed(walk, program, call)
            return
        if program.read is not None and program.read.text == program.text:
            text, path, line = program.read.text, program.read.path, program.read.line
            name, arguments = unwrap(call.argv).names[-1], words
        elif program.text is not None:
            line = first.line
            text, path, name, arguments = (
                program.text,
                first.path,
                (words[0] if words else None) or "",
                words[1:],
            )
        elif program.path is not None:
            path = _path(call.folder or self.cwd, program.path)
            found = walk.files.text_at(path, before=original)
            why = ""
            if path in self.calling:
                why = "calls itself"
            elif found is None:
                why = "does not exist" if self.load(path) is None else "the script changes it before"
            if found is None or why:
                self.unread.append(f"{first.path}:{first.line}: {program.path} is called, but {why}")
                return
            text, name, arguments, path, line = found.text, path, words, found.path, found.line
        else:
            self.unread.append(f"{first.path}:{first.line}: the text that a shell runs is unknown")
            return
        if walk.depth >= _DEEPEST:
            return
        state = self.state(call)
        state.arguments = list(arguments)
        scope = Scope(state, script=name, is_zsh=_is_zsh(unwrap(call.argv).names, text))
        inner = self.walk(scope, path)
        inner.exported = dict(walk.exported)
        if "bash" in base_names(unwrap(call.argv).names):
            inner.state.functions |= inner.exported
        inner.piped = program.read if program.read is not None and text != program.read.text else None
        inner.presence.is_login = walk.presence.may_have_called_functions()
        inner.presence.is_batch = walk.presence.is_batch or are_elsewhere(self.around)
        inner.depth, inner.conditions = walk.depth + 1, int(call.conditional)
        inner.script(text, line)
        before = len(self.programs)
        self.calling.append(path)
        self.follow(inner)
        self.calling.pop()
        self.programs[before:] = [
            replace(
                program,
                reaching=(*reaching, *program.reaching),
                submitted=program.submitted or submitted,
            )
            for program in self.programs[before:]
        ]
        self.unread += inner.unread

    def typed(self, walk: Walk, program: ShellProgram, call: Call) -> None:
        """Follow what a terminal's shell gets line by line; it keeps its folder and variables in between."""
        first, waiting = call.argv[0], ""
        if program.session in self.sessions:
            inner, waiting = self.sessions[program.session]
        else:
            inner = self.walk(Scope(self.state(call)), first.path)
            inner.presence.is_login = True
            inner.depth, inner.conditions = walk.depth + 1, int(call.conditional)
        whole, newline, rest = (waiting + (program.text or "")).rpartition("\n")
        self.sessions[program.session] = inner, rest
        if newline and walk.depth < _DEEPEST:
            place, followed = len(inner.calls), len(inner.unread)
            inner.script(whole + newline, first.line)
            self.follow(inner, place)
            self.unread += inner.unread[followed:]

    def make(self, walk: Walk, call: Call, words: Sequence[Argument], original: Call) -> None:
        """Follow the recipes that `make` runs."""
        first = call.argv[0]
        where = f"{first.path}:{first.line}"
        request = request_of([word.text for word in words])
        if request is None or not (call.folder or self.cwd):
            self.unread.append(f"{where}: the words after `make` are unknown")
            return
        folder = _path(call.folder or self.cwd, request.folder)
        names = [request.file] if request.file else NAMES
        found = next(
            (text for name in names if (text := walk.files.text_at(_path(folder, name), before=original))),
            None,
        )
        if not request.runs or walk.depth >= _DEEPEST:
            return
        if request.problem:
            self.unread.append(f"{where}: {request.problem}")
            return
        if found is None:
            self.unread.append(f"{where}: `make` has no makefile in {folder} that can be read")
            return
        state = self.state(replace(call, folder=folder))

        def environ(name: str) -> str | None:
            value = state.value(name)
            return value if isinstance(value, str) and state.exports(name) is not False else None

        def is_there(name: str) -> bool:
            return self.is_there is not None and self.is_there(_path(folder, name))

        def included(name: str) -> str | None:
            folders = [folder, *(_path(folder, other) for other in request.included)]
            texts = (self.load(_path(other, name)) for other in folders)
            return next((text for text in texts if text is not None), None)

        try:
            makefile = Makefile(found.text, Variables(request.given, environ, folder), included)
            for recipe in Run(makefile, folder, is_there).recipes(request.goals):
                self.recipe(walk, call, recipe, Lines(recipe.text, found.path, recipe.line or 1), folder)
        except (NotFollowedError, RecursionError) as problem:
            self.unread.append(f"{found.path}: {problem}")

    def recipe(self, walk: Walk, call: Call, recipe: Recipe, lines: Lines, folder: str) -> None:
        """Follow the commands of one shell that `make` starts."""
        first = call.argv[0]
        exported = [
            EnvironmentChange(name, value, first.path, first.line) for name, value in recipe.exported.items()
        ]
        inner = replace(call, changes=(*call.changes, *exported), folder=folder)
        program = ShellProgram(lines.text, None, (), lines)
        self.shell(walk, program, inner, (), call, submitted=False)

    def state(self, call: Call) -> ShellState:
        """Return the state in which a shell starts."""
        return state_of(call, self.environ, call.folder or self.cwd, self.around)

    def from_job(self, unwrapped: Unwrapped, conditional: bool) -> tuple[EnvironmentChange, ...]:
        """Return what `ray job submit` gives to the job and its workers."""
        found: list[EnvironmentChange] = []
        for word in unwrapped.runtime_env:
            where = f"{word.path}:{word.line}"
            if word.text is None:
                self.unread.append(f"{where}: the name of the runtime_env file is unknown")
                continue
            path = _path(self.cwd, word.text)
            text = self.load(path)
            if text is None:
                self.unread.append(f"{where}: {word.text} is named as runtime_env, but does not exist")
                continue
            found += self.runtime_env(text, path)
        for word in unwrapped.runtime_env_json:
            if word.text is None:
                self.unread.append(f"{word.path}:{word.line}: the runtime_env in JSON is unknown")
                continue
            try:
                found += [
                    EnvironmentChange(name, value, word.path, word.line, conditional=conditional)
                    for name, value in variables_in_json(word.text)
                ]
            except NotARuntimeEnvError as problem:
                self.unread.append(
                    f"{word.path}:{word.line}: the argument of --runtime-env-json is {problem}"
                )
        return tuple(found)

    def runtime_env(self, text: str, path: str) -> list[EnvironmentChange]:
        """Return the variables of a `runtime_env` file."""
        try:
            return [
                EnvironmentChange(name, value, path, line) for name, value, line in variables_in_yaml(text)
            ]
        except NotARuntimeEnvError as problem:
            self.unread.append(f"{path}: this is {problem}")
            return []

    def dockerfile(self, text: str, path: str, *, starts: bool) -> None:
        """Record the variables that an image sets, and with `starts` the command that it starts."""
        self.changes += [EnvironmentChange(env.name, env.value, path, env.line) for env in variables_in(text)]
        command, line = started_by(text) if starts else ("", 0)
        if command:
            self.script("\n" * (line - 1) + f"docker run IMAGE {command}", path, ())

    @property
    def training(self) -> Program | None:
        """Return the program that most certainly starts training; of equals the first."""
        ranked = [program for program in self.programs if program.rank]
        return max(ranked, key=lambda program: program.rank, default=None)


def _names_of(unwrapped: Unwrapped, call: Call) -> tuple[str, ...]:
    """Return the programs called on the way; Slurm's own containers count as one."""
    in_image = any((word.text or "").startswith(_SLURM_CONTAINER) for word in call.argv)
    return ("enroot", *unwrapped.names) if in_image else unwrapped.names


_LIKE_SH = re.compile(
    r"^\s*(?:setopt\b.*\b(?:sh_?word_?split|ksh_?arrays)|emulate\b.*\b(?:sh|ksh|bash))\b",
    re.IGNORECASE | re.MULTILINE,
)


def _is_zsh(names: Sequence[str], text: str) -> bool:
    """Return whether zsh runs a script by its own rules.

    The shell that is called decides, otherwise the one in the script's first line.
    """
    if _LIKE_SH.search(text):
        return False
    called = base_names(names) & {"bash", "sh", "dash", "zsh"}
    return "zsh" in called if called else re.match(r"#!.*\bzsh\b", text) is not None


def _finds(pattern: str, folder: str) -> bool:
    """Return whether files match a pattern of the shell in this folder.

    If that is unknown (""), those of a setting do not.
    """
    if not folder and not pattern.startswith("/"):
        return "=" not in pattern
    return any(True for _ in glob.iglob(pattern, root_dir=folder or None))  # noqa: PTH207 - of text


def _path(folder: str, name: str) -> str:
    return os.path.normpath(Path(folder, name))
