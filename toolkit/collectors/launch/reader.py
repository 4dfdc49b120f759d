"""Reads launch scripts, `runtime_env` files, Dockerfiles and command lines into settings and the command that starts training."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from verl_doctor.toolkit.collectors.launch.dockerfile import started_by, variables_in
from verl_doctor.toolkit.collectors.launch.environment import is_listed
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, WorkingDir
from verl_doctor.toolkit.collectors.launch.program import (
    CONTAINERS,
    OWN_VARIABLES,
    PythonProgram,
    ShellProgram,
    Unwrapped,
    unwrap,
)
from verl_doctor.toolkit.collectors.launch.working_dir import folder_of_overrides, submitted_folder
from verl_doctor.toolkit.sources.make.makefile import NAMES, Makefile, Recipe
from verl_doctor.toolkit.sources.make.request import request_of
from verl_doctor.toolkit.sources.make.text import NotFollowedError
from verl_doctor.toolkit.sources.shell.builtins import BUILTINS
from verl_doctor.toolkit.sources.shell.command_words import passed
from verl_doctor.toolkit.sources.shell.expand import Scope
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines, Stop
from verl_doctor.toolkit.sources.shell.printed import printed
from verl_doctor.toolkit.sources.shell.state import UNSET, EnvironmentChange, ShellState
from verl_doctor.toolkit.sources.shell.walk import Walk
from verl_doctor.toolkit.system.secret import secrets_in, without_secrets


class NotARuntimeEnvError(Exception):
    """The text is not a `runtime_env`. The message gives a short reason."""


def variables_in_yaml(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, value and line of each entry of `env_vars`. A value that is neither text nor number is None."""
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        mark = getattr(problem, "problem_mark", None)
        raise NotARuntimeEnvError(f"invalid YAML: line {mark.line + 1}" if mark else "no YAML") from None
    if top is None:
        return
    if not isinstance(top, yaml.MappingNode):
        raise NotARuntimeEnvError("not a mapping of names to values")
    for key, value in top.value:
        if getattr(key, "value", None) != "env_vars" or not isinstance(value, yaml.MappingNode):
            continue
        for name, node in value.value:
            if isinstance(name, yaml.ScalarNode):
                is_text = isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null")
                yield str(name.value), str(node.value) if is_text else None, name.start_mark.line + 1


def variables_in_json(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each entry of `env_vars`."""
    try:
        top = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARuntimeEnvError("no JSON") from None
    if not isinstance(top, dict):
        raise NotARuntimeEnvError("no JSON object")
    variables = top.get("env_vars")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        yield str(name), value if isinstance(value, str) else None


_TRAINER = re.compile(r"(?:^|[./])(?:main_\w+|\w*_?trainer|train\w*|run_\w+)(?:\.py)?$")
# A source that imports verl's trainer, or that imports verl and reads a configuration with Hydra.
_STARTS_VERL = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+verl\.trainer\b|^[ \t]*(?:from|import)[ \t]+verl\b(?=[\s\S]*^[ \t]*@hydra\.main\()",
    re.MULTILINE,
)
# Hydra's overrides, "a.b=c" with "+", "++" or "~" in front, and its own options.
_OVERRIDE = re.compile(r"(?:\+{0,2}|~)[A-Za-z_][\w/.@-]*=|~[A-Za-z_][\w./]*$")
_HYDRA_OPTION = re.compile(r"--config-(?:name|path|dir)(?:=|$)|-c[npd]$")
# A dotted override in the place of a command: the rest of a command that was cut off.
_LOST = re.compile(r"(?:\+{0,2}|~)[A-Za-z_]\w*(?:\.\w+)+=")
_BATCH_EXPORTS = re.compile(r"\A(?:#.*\n|\s*\n)*?#SBATCH\s+(?:.*\s)?--export(?:=|\s+)(\S+)")
# Programs that only read, and those that may create whatever an archive or a file of rules specifies.
_LOOKS = frozenset({
    "ls", "test", "[", "which", "type", "grep", "du", "df", "head", "tail", "wc", "stat", "file", "find", "sleep", "pip", "pip3", "date",
    "hostname", "kill", "pkill", "rm", "rmdir", "mkdir", "chmod", "chown", "ray", "nvidia-smi", "printenv", "md5sum", "free", "ulimit",
    "cat", "less", "more", "basename", "dirname", "realpath", "readlink", "cut", "tr", "sha256sum", "seq", "expr",
})  # fmt: skip
_COPIES = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
# Programs that start the job in a container or on another machine, with other files.
_OTHER_FILES = CONTAINERS | {"ssh"}
_ELSEWHERE = _OTHER_FILES | {"srun", "sbatch"}
_SLURM_CONTAINER = "--container-image"
# Variables that the options of a program name which starts the job without those of the shell.
_NAMED = re.compile(r"(?<![^\s=])([A-Za-z_]\w*)(?==|\s)")
_UNPACKS = frozenset({"tar", "unzip", "7z", "make", "dvc", "git", "git-lfs", "just"})
_MAKES = frozenset({"make", "gmake"})
_PYTHON = re.compile(r"python[\d.]*")
# Launchers that a Python package installs beside the interpreter of its environment.
_SCRIPTS_OF_PACKAGES = frozenset({"deepspeed", "accelerate", "colossalai", "horovodrun", "ray"})
# Programs behind which the next word is looked for on the PATH of this shell.
_PASSES_ON = frozenset(
    {"nohup", "exec", "command", "time", "nice", "timeout", "stdbuf", "env", "numactl", "taskset"}
)
_INSTALLERS = frozenset({"pip", "pip3", "uv", "conda", "mamba", "micromamba", "poetry", "pixi", "pdm"})
_INSTALLS = frozenset({"install", "sync", "add", "update", "upgrade", "create"})
_WRITES = re.compile(
    r"save|write|download|dump|copy|to_(?:parquet|json|csv)|makedirs|mkdir|open\(|subprocess|system\("
    r"|sink_|extract|unpack|rename|move\(|link\(|run_path|exec\("
)
# Programs that remove, move or replace files, those that do so only with an option, and what Python calls for it.
_REMOVES = frozenset({
    "rm", "rmdir", "unlink", "trash", "trash-put", "shred", "mv", "rsync", "ln", "cp", "install", "rename", "truncate", "sed", "find", "fd",
})  # fmt: skip
_SEARCHES, _SEARCH_RUNS = frozenset({"find", "fd"}), ("-delete", "-exec", "-ok", "-x", "-X")
_REMOVING = re.compile(r"rmtree|remove|unlink|rmdir|replace")
_ANYWHERE = "/"
_SOURCES = (".py", ".yaml", ".yml", ".json", ".jinja", ".jinja2")
_LONGEST_SOURCE = 100_000
_DEEPEST = 8  # shells, one inside the other
_RUNTIME_VARIABLE = re.compile(r"\+{0,2}(?:[\w.]+\.)?runtime_env\.env_vars\.(\w+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """A Python program that is called, and the variables given to it up to that point.

    `launcher` starts its processes, `names` are the programs called on the way to it by the last shell, `around` those called
    before, `folder` is where it starts, ""
    if unknown. `starts_verl`: its source imports verl's trainer, or verl and Hydra. `missing` is the error
    if it, its source or the folder of its output does not exist.
    """

    module: str
    words: tuple[Argument, ...]
    path: str
    line: int
    changes: tuple[EnvironmentChange, ...]
    reaching: tuple[EnvironmentChange, ...]
    conditional: bool
    submitted: bool = False
    launcher: tuple[Argument, ...] = ()
    names: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    folder: str = ""
    starts_verl: bool = False
    missing: str = ""
    in_container: bool = False
    limits: tuple[tuple[str, ...], ...] = ()
    written: tuple[tuple[str, str | None], ...] = ()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it starts in a container or on another machine."""
        return _are_elsewhere((*self.around, *self.names))

    @property
    def rank(self) -> int:
        """How certainly it starts training; 0: not at all."""
        overrides = sum(1 for word in self.words if _OVERRIDE.match(word.text or word.written))
        options = any(_HYDRA_OPTION.match(word.text or "") for word in self.words)
        from_verl = re.match(r"verl[./]", self.module) is not None or "/verl/" in self.module
        trains = _TRAINER.search(self.module) is not None
        if from_verl and trains:
            return 4
        if self.starts_verl or (trains and (overrides or options)):
            return 3
        if from_verl and overrides:
            return 2
        return 1 if overrides >= 2 or options else 0


@dataclass
class LaunchReader:
    """Reads the named files and words. `load` returns the text of a file, or None if it cannot be read.

    `is_there` reports whether a path exists; it is None if the scripts run on another machine. `is_empty` reports
    whether an unset variable counts as empty, `is_of_windows` whether the lines of a file end as in Windows. `bin` is the folder of
    the job's interpreter. `is_here`: the job runs on this machine, so that a program which is not here is missing.
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

    def script(self, text: str, path: str, arguments: Sequence[str | None]) -> None:
        """Follow a shell script called with these arguments."""
        state = ShellState(self.environ, arguments=list(arguments), called=bool(arguments), cwd=self.cwd)
        scope = Scope(state, script=path, is_zsh=_is_zsh((), text))
        walk = self.walk(scope, path)
        walk.presence.is_there = self.is_there
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
        walk = Walk(scope, self.load, path, BUILTINS, creates=self.creates, is_of_windows=self.is_of_windows)
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
            self.removed += [*_outputs_before(walk, call), *self.may_remove(call, unwrapped)]
        if _LOST.match(first.text if first.text is not None else first.written):
            self.lost += call.argv
            return
        if unwrapped.folder is not None:
            moved = unwrapped.folder.text
            call = replace(call, folder=_path(call.folder, moved) if moved and call.folder else "")
        changes = (*self.inherited(unwrapped, call), *self.from_env(unwrapped, call.conditional))
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
            if self.training is None and (moves or _WRITES.search(program.uses)):
                self.made.append(_ANYWHERE)
            reaching = (*reaching, *self.from_overrides(program, call.conditional))
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
                    in_container=not _OTHER_FILES.isdisjoint(_base_names((*self.around, *names))),
                    limits=call.limits,
                    written=tuple({**self.written, **_written(walk, call)}.items()),
                )
            )
        elif isinstance(program, ShellProgram):
            call, around, written = replace(call, changes=changes), self.around, self.written
            self.around, self.written = (*around, *names), {**written, **_written(walk, original)}
            environ = self.environ
            self.environ = environ if unwrapped.inherits == "all" else {}
            self.shell(walk, program, call, reaching, original, submitted=unwrapped.submits)
            self.around, self.environ, self.written = around, environ, written
        elif unwrapped.rest and unwrapped.rest[0].text and _base_names([unwrapped.rest[0].text]) & _MAKES:
            around, self.around = self.around, (*self.around, *names[:-1])
            self.make(walk, replace(call, changes=changes), unwrapped.rest[1:], original)
            self.around = around
        if self.training is None:
            self.made += self.may_make(call, unwrapped)
            self.installs = self.installs or _installs(call)

    def spawned(self, walk: Walk, unwrapped: Unwrapped, call: Call) -> Unwrapped:
        """Return what a Python program of the user's own starts, in its place, if its source names it."""
        program = unwrapped.program
        if not isinstance(program, PythonProgram) or program.launcher or not program.module.endswith(".py"):
            return unwrapped
        path = _path(call.folder or self.cwd, program.module)
        source = walk.files.text_at(path, before=call)
        text = source.text if source is not None else ""
        if source is None or "verl" not in text or _STARTS_VERL.search(text):
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
        )

    def missing(self, walk: Walk, call: Call, names: Sequence[str], program: PythonProgram) -> str:
        """Return the error for a program, its source or the folder of its output that does not exist; "" if all may exist."""
        module = program.module
        if program.opens and (
            "/" in program.opens or self.load(_path(call.folder or self.cwd, program.opens)) is None
        ):
            return f"{names[-1]} opens {program.opens} as the source of a program"
        if self.is_there is None or not call.folder or _are_elsewhere((*self.around, *names)):
            return ""
        for name in names:
            if "/" in name and self.is_missing(name, walk, call):
                return f"{name}: No such file or directory"
            is_first = all(other in _PASSES_ON for other in names[: names.index(name)])
            if name in _SCRIPTS_OF_PACKAGES and is_first and self.lacks_script(name, walk, call):
                return f"{name}: command not found"
        if module.endswith(".py") and self.is_missing(module, walk, call):
            return f"python: can't open file {module}"
        for name in call.written:
            folder = str(Path(_path(call.folder, name)).parent)
            if not self.is_there(folder) and not walk.files.may_have_made(folder, before=call):
                return f"{name}: No such file or directory"
        return ""

    def lacks_script(self, name: str, walk: Walk, call: Call) -> bool:
        """Return whether a launcher of a package is neither beside the job's interpreter nor on the PATH, and nothing may have brought it."""
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
        """Return whether a file does not exist, and nothing called before may have created it or its first folder."""
        path = _path(call.folder, name)
        made = any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in self.made)
        first = "" if name.startswith(("/", "..")) else Path(name).parts[0]
        made = made or walk.files.may_have_made(path, before=call)
        made = made or (first != "" and walk.files.may_have_made(first, before=call))
        return self.is_there is not None and not made and not self.is_there(path)

    def starts_verl(self, module: str, folder: str) -> bool:
        """Return whether the source of a program in the job's folder starts verl."""
        path = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
        text = self.load(_path(folder or self.cwd, path))
        return text is not None and _STARTS_VERL.search(text) is not None

    def may_make(self, call: Call, unwrapped: Unwrapped) -> Iterator[str]:
        """Yield what a program called before the job may create: the paths in its arguments, `_ANYWHERE` without any."""
        folder = Path(call.folder or self.cwd)
        yield from (os.path.normpath(folder / name) for name in call.written)
        names = {name.rpartition("/")[2] for name in unwrapped.names}
        program = unwrapped.program
        if names & _LOOKS or (isinstance(program, PythonProgram) and program.module in _LOOKS):
            return
        home = self.environ.get("HOME", "")
        words = [word.text for word in call.argv[1:] if word.text]
        values = [word.partition("=")[2] if word.startswith("-") else word for word in words]
        secrets = set(secrets_in(shlex.join(word.text or "" for word in call.argv)))  # `curl -u joe:secret`
        paths = [
            re.sub(r"^~(?=/|$)", home, value)
            for value in values
            if value
            and not value.startswith("-")
            and without_secrets(value) == value
            and not any(secret in value for secret in secrets)
        ]
        known = [
            path for path in paths if "/" in path and "://" not in path and not path.endswith((".py", ".sh"))
        ]
        runs = isinstance(program, PythonProgram) or (
            isinstance(program, ShellProgram) and not self.is_read(program, call.folder)
        )
        if (
            names & _UNPACKS
            or (runs and not known)
            or (program is None and _runs_inline_python(names, words))
        ):
            yield _ANYWHERE
        if (
            names & _COPIES
            and len(paths) > 1
            and not any(word.startswith(("-t", "--target")) for word in words)
        ):
            copies = [f"{paths[-1]}/{Path(path).name}" for path in paths[:-1]]
            paths = [paths[-1], *copies]
        is_shell = isinstance(program, ShellProgram)
        yield from (os.path.normpath(folder / path) for path in (known if runs or is_shell else paths))

    def may_remove(self, call: Call, unwrapped: Unwrapped) -> Iterator[str]:
        """Yield what a program called before the job may remove, move or replace: `_ANYWHERE` for an unknown path."""
        names, words = _base_names(unwrapped.names), [word.text for word in call.argv[1:]]
        if unwrapped.program is None and any(map(_PYTHON.fullmatch, names)):
            if any(word is None or _REMOVING.search(word) for word in words):
                yield _ANYWHERE
            return
        changing = names & _REMOVES
        runs = any(word is None or word.startswith(_SEARCH_RUNS) for word in words)
        if not changing or (changing <= _SEARCHES and not runs):
            return
        if None in words or names & {"xargs", "parallel"}:
            yield _ANYWHERE
        for word in words:
            if word and not word.startswith("-"):
                known = re.split(r"[*?[]", word, maxsplit=1)[0] if glob.has_magic(word) else f"{word}/"
                path = os.path.normpath(Path(call.folder, known.rpartition("/")[0] or ("/" if known[:1] == "/" else ".")))  # fmt: skip
                yield path if path.startswith("/") else _ANYWHERE

    def creates(self, call: Call) -> Iterator[str]:
        """Yield what a program may create, as long as nothing that it runs has been read."""
        unwrapped = unwrap(call.argv)
        is_python = any(_PYTHON.fullmatch(name.rpartition("/")[2]) for name in unwrapped.names)
        if isinstance(unwrapped.program, ShellProgram) or (unwrapped.program is None and is_python):
            yield _ANYWHERE
        yield from self.may_make(call, unwrapped)

    def is_read(self, program: ShellProgram, folder: str) -> bool:
        """Return whether the script of a shell was followed."""
        return program.text is not None or (
            program.path is not None and self.load(_path(folder or self.cwd, program.path)) is not None
        )

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
        inner.piped = program.read if program.read is not None and text != program.read.text else None
        inner.presence.is_login = walk.presence.may_have_called_functions()
        inner.presence.is_batch = walk.presence.is_batch or _are_elsewhere(self.around)
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
        """Follow what a shell in a terminal gets line by line: it keeps its folder and its variables between them."""
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
            makefile = Makefile(found.text, request.given, environ, included, folder)
            for recipe in makefile.recipes(request.goals, folder, is_there):
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
        """Return the state in which a shell starts: with this shell's variables and those given to the call.

        In a container there are none of this shell's; those that its options name have unknown values.
        """
        state = ShellState(self.environ, cwd=call.folder or self.cwd)
        state.changes, state.limits, state.forgotten = list(call.changes), list(call.limits), call.forgotten
        for change in call.changes:
            unsure = change.conditional and not call.conditional
            before, exported = state.value(change.name), state.exports(change.name)
            value = UNSET if change.removed else change.value
            state.variables[change.name] = None if unsure and value != before else value
            state.exported[change.name] = (
                not change.removed if not unsure or exported != change.removed else None
            )
        if not OWN_VARIABLES.isdisjoint(_base_names(self.around)):
            state.cwd = ""
            options = " ".join(word.text or "" for word in call.argv)
            names = [name for name, value in state.variables.items() if value is not UNSET]
            state.environ, state.variables = {}, dict.fromkeys((*names, *_NAMED.findall(options)))
            state.variables |= {
                change.name: change.value for change in call.changes if change.value is not None
            }
        return state

    def inherited(self, unwrapped: Unwrapped, call: Call) -> Iterable[EnvironmentChange]:
        """Yield what a program gets of the variables given so far, and what it does not get of this shell's."""
        if unwrapped.inherits == "all":
            yield from call.changes
            return
        first, is_known = call.argv[0], unwrapped.inherits == "none"
        for change in call.changes:
            if change.name in unwrapped.passed:
                yield change
            elif not is_known:
                yield replace(change, value=None)
        for name in self.environ:
            if is_listed(name) and name not in unwrapped.passed and not name.startswith("SLURM_"):
                yield EnvironmentChange(
                    name, None, first.path, first.line, removed=is_known, conditional=call.conditional
                )

    def from_env(self, unwrapped: Unwrapped, conditional: bool) -> Iterable[EnvironmentChange]:
        """Yield what `env` sets and removes."""
        for word in unwrapped.assigned:
            name, _, value = (word.text or "").partition("=")
            yield EnvironmentChange(name, value, word.path, word.line, conditional=conditional)
        for word in unwrapped.dropped:
            if word.text:
                yield EnvironmentChange(
                    word.text, None, word.path, word.line, removed=True, conditional=conditional
                )

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

    def from_overrides(self, program: PythonProgram, conditional: bool) -> Iterable[EnvironmentChange]:
        """Yield the worker variables set by `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`."""
        for word in program.words:
            match = _RUNTIME_VARIABLE.fullmatch(word.text if word.text is not None else word.written)
            if match:
                value = match.group(2).strip("'\"") if word.text is not None else None
                yield EnvironmentChange(match.group(1), value, word.path, word.line, conditional=conditional)

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


def _written(walk: Walk, call: Call) -> dict[str, str | None]:
    """Return the sources and configuration files that a script has written before a call, without texts that may hold secrets."""
    found: dict[str, str | None] = {}
    for path in walk.files.outputs:
        if path.endswith(_SOURCES) and path not in found and walk.files.has_written(path, before=call):
            text = walk.files.text_at(path, before=call)
            known = text is not None and len(text.text) < _LONGEST_SOURCE and not any(secrets_in(text.text))
            found[path] = text.text if text is not None and known else None
    return found


def _outputs_before(walk: Walk, call: Call) -> Iterator[str]:
    """Yield the files that a script's output goes to before a call."""
    yield from (path for path in dict.fromkeys(walk.files.outputs) if walk.files.has_made(path, before=call))


def _names_of(unwrapped: Unwrapped, call: Call) -> tuple[str, ...]:
    """Return the programs called on the way; Slurm's own containers count as one."""
    in_image = any((word.text or "").startswith(_SLURM_CONTAINER) for word in call.argv)
    return ("enroot", *unwrapped.names) if in_image else unwrapped.names


def _installs(call: Call) -> bool:
    """Return whether a call may install packages: `pip install`, `python -m pip install`, `uv sync`."""
    words = [(word.text or "").rpartition("/")[2] for word in call.argv]
    installer = next((place for place, word in enumerate(words) if word in _INSTALLERS), None)
    return installer is not None and not _INSTALLS.isdisjoint(words[installer:])


_LIKE_SH = re.compile(
    r"^\s*(?:setopt\b.*\b(?:sh_?word_?split|ksh_?arrays)|emulate\b.*\b(?:sh|ksh|bash))\b",
    re.IGNORECASE | re.MULTILINE,
)


def _is_zsh(names: Sequence[str], text: str) -> bool:
    """Return whether zsh runs a script by its own rules: the shell that is called does, otherwise the one in its first line."""
    if _LIKE_SH.search(text):
        return False
    called = _base_names(names) & {"bash", "sh", "dash", "zsh"}
    return "zsh" in called if called else re.match(r"#!.*\bzsh\b", text) is not None


def _base_names(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in names}


def _are_elsewhere(names: Iterable[str]) -> bool:
    """Return whether what these programs start runs in a container or on another machine."""
    return not _ELSEWHERE.isdisjoint(_base_names(names))


def _finds(pattern: str, folder: str) -> bool:
    """Return whether files match a pattern of the shell in this folder. If that is unknown (""), those of a setting do not."""
    if not folder and not pattern.startswith("/"):
        return "=" not in pattern
    return any(True for _ in glob.iglob(pattern, root_dir=folder or None))  # noqa: PTH207 - of text


def _path(folder: str, name: str) -> str:
    return os.path.normpath(Path(folder, name))


def _runs_inline_python(names: Collection[str], words: Sequence[str]) -> bool:
    """Return whether Python runs code from its input, or code in its arguments that may write files."""
    if not any(_PYTHON.fullmatch(name) for name in names):
        return False
    is_input = not words or words[0] == "-"
    return is_input or ("-c" in words and any(_WRITES.search(word) for word in words))
