"""Reads launch files into settings and the command that starts training.

The files are launch scripts, `runtime_env` files and Dockerfiles; command lines are read as well.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.dockerfile import started_by, variables_in
from verl_doctor.toolkit.collectors.launch.effects import (
    ANYWHERE,
    PYTHON,
    WRITES,
    awaited_before,
    folders_made,
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
from verl_doctor.toolkit.collectors.launch.job_variables import from_job
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.collectors.launch.launch_state import DEEPEST, LaunchState, path_in
from verl_doctor.toolkit.collectors.launch.make_recipes import make_run
from verl_doctor.toolkit.collectors.launch.missing_files import missing_file
from verl_doctor.toolkit.collectors.launch.own_programs import started_instead
from verl_doctor.toolkit.collectors.launch.passed_variables import (
    from_env,
    from_overrides,
    inherited,
)
from verl_doctor.toolkit.collectors.launch.working_dir import folder_of_overrides, submitted_folder
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram, ShellProgram
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped, unwrap
from verl_doctor.toolkit.sources.make.recipes import Recipe
from verl_doctor.toolkit.sources.make.text import NotFollowedError
from verl_doctor.toolkit.sources.shell.command_words import passed
from verl_doctor.toolkit.sources.shell.commands import COMMANDS
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines
from verl_doctor.toolkit.sources.shell.printed import printed
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange, ShellState
from verl_doctor.toolkit.sources.shell.walk import Walk

LOST = re.compile(r"(?:\+{0,2}|~)[A-Za-z_]\w*(?:\.\w+)+=")
"""A dotted override. In the place of a command it is the rest of one that was cut off."""
_BATCH_EXPORTS = re.compile(r"\A(?:#.*\n|\s*\n)*?#SBATCH\s+(?:.*\s)?--export(?:=|\s+)(\S+)")
_SLURM_CONTAINER = "--container-image"
_MAKES = frozenset({"make", "gmake"})


class LaunchReader(LaunchState):
    """Follows the files and words, and what they start."""

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
        walk.start.is_here, walk.start.bin = self.is_here, self.bin
        scope.is_empty = lambda name: self.is_empty(name) and not walk.programs.may_have_called_functions()
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
        unwrapped, original = started_instead(walk, unwrap(call.argv, call.stdin), call, self.cwd), call
        first = call.argv[0]
        if self.training is None:
            self.removed += [*outputs_before(walk, call), *may_remove(call, unwrapped)]
            self.made += awaited_before(walk, call)
        if LOST.match(first.text if first.text is not None else first.written):
            self.lost += call.argv
            return
        if unwrapped.folder is not None:
            moved = unwrapped.folder.text
            call = replace(call, folder=path_in(call.folder, moved) if moved and call.folder else "")
        changes = (*inherited(unwrapped, call, self.environ), *from_env(unwrapped, call.conditional))
        reaching = from_job(self, unwrapped, call.conditional)
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
                    missing=missing_file(self, walk, call, names, program),
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
            self.folders += folders_made(
                call, unwrapped, call.folder or self.cwd, self.environ.get("HOME", "")
            )
            self.installs = self.installs or installs(call)

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
        text = self.load(path_in(folder or self.cwd, path))
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
            or (program.path is not None and self.load(path_in(folder, program.path)) is not None)
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
            path = path_in(call.folder or self.cwd, program.path)
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
        if walk.depth >= DEEPEST:
            return
        state = self.of_shell(call)
        state.arguments = list(arguments)
        scope = Scope(state, script=name, is_zsh=_is_zsh(unwrap(call.argv).names, text))
        inner = self.walk(scope, path)
        inner.exported = dict(walk.exported)
        if "bash" in base_names(unwrap(call.argv).names):
            inner.state.functions |= inner.exported
        inner.piped = program.read if program.read is not None and text != program.read.text else None
        inner.start.is_login = walk.programs.may_have_called_functions()
        inner.start.is_batch = walk.start.is_batch or are_elsewhere(self.around)
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
            inner = self.walk(Scope(self.of_shell(call)), first.path)
            inner.start.is_login = True
            inner.depth, inner.conditions = walk.depth + 1, int(call.conditional)
        whole, newline, rest = (waiting + (program.text or "")).rpartition("\n")
        self.sessions[program.session] = inner, rest
        if newline and walk.depth < DEEPEST:
            place, followed = len(inner.calls), len(inner.unread)
            inner.script(whole + newline, first.line)
            self.follow(inner, place)
            self.unread += inner.unread[followed:]

    def make(self, walk: Walk, call: Call, words: Sequence[Argument], original: Call) -> None:
        """Follow the recipes that `make` runs."""
        if (run := make_run(self, walk, call, words, original)) is None:
            return
        try:
            for recipe, lines in run.recipes:
                self.recipe(walk, call, recipe, lines, run.folder)
        except (NotFollowedError, RecursionError) as problem:
            self.unread.append(f"{run.path}: {problem}")

    def recipe(self, walk: Walk, call: Call, recipe: Recipe, lines: Lines, folder: str) -> None:
        """Follow the commands of one shell that `make` starts."""
        first = call.argv[0]
        exported = [
            EnvironmentChange(name, value, first.path, first.line) for name, value in recipe.exported.items()
        ]
        inner = replace(call, changes=(*call.changes, *exported), folder=folder)
        program = ShellProgram(lines.text, None, (), lines)
        self.shell(walk, program, inner, (), call, submitted=False)

    def dockerfile(self, text: str, path: str, *, starts: bool) -> None:
        """Record the variables that an image sets, and with `starts` the command that it starts."""
        self.changes += [EnvironmentChange(env.name, env.value, path, env.line) for env in variables_in(text)]
        command, line = started_by(text) if starts else ("", 0)
        if command:
            self.script("\n" * (line - 1) + f"docker run IMAGE {command}", path, ())


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
