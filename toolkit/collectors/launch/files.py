"""Reads the given launch files and words, each by its kind, and builds the `Launch` fact without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.job_program import Program
from verl_doctor.toolkit.collectors.launch.job_variables import from_file
from verl_doctor.toolkit.collectors.launch.launch import (
    COMMAND_LINE,
    TO_FILL_IN,
    VARIABLE,
    Command,
    Kind,
    Launch,
    LostAssignment,
    ScriptError,
    Setting,
    Word,
    WorkingDir,
    load_text,
)
from verl_doctor.toolkit.collectors.launch.reader import LOST, LaunchReader
from verl_doctor.toolkit.collectors.launch.shell_refused import refused
from verl_doctor.toolkit.collectors.launch.stopped import not_found, stopped
from verl_doctor.toolkit.collectors.launch.working_dir import folder_in_file
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.make.makefile import NAMES
from verl_doctor.toolkit.sources.shell.found import Argument
from verl_doctor.toolkit.sources.shell.parse import parse
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange
from verl_doctor.toolkit.sources.shell.syntax import Simple, below, spaced_assignment
from verl_doctor.toolkit.system.secret import (
    is_secret,
    may_hold_secret,
    setting_is_secret,
    suggests_secret,
    without_user,
)
from verl_doctor.toolkit.target import LARGEST_SCRIPT, Target

_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_DEVICE = re.compile(r"[+~]*trainer\.device\b")
_SBATCH_NODES = re.compile(r"#SBATCH\s+(?:.*\s)?(?:--nodes(?:=|\s+)|-N\s*)(?:\d+-)?(\d+)(?:\s|$)")
_SBATCH_GPUS = re.compile(
    r"#SBATCH\s+(?:.*\s)?(?:--gpus-per-node(?:=|\s+)(?:\w+:)?|--gres(?:=|\s+)(?:\S*,)?gpu:(?:"
    r"[\w.-]+:)?)(\d+)(?:[,\s]|$)"
)


def read_launch(
    target: Target, machine: Machine, load: Callable[[str], str | None] = load_text
) -> Launch | Unknown:
    """Read the launch files of a target and the words after them. Unknown if a file is not text.

    `load` returns the text of a file, None if it is not text; it may supply a file that is not written yet.
    """
    is_here = _has_gpu_driver(machine)
    found = _read_launch(target, machine, load, is_here=is_here)
    if is_here or isinstance(found, Unknown) or found.command is None or not _is_on_cpu(found.command):
        return found
    return _read_launch(target, machine, load, is_here=True)


def _is_on_cpu(command: Command) -> bool:
    """Return whether the job certainly trains on the CPU: the last word that may set its device sets that."""
    setting = [word for word in command.words if word.text is None or _DEVICE.match(word.text)]
    last = setting[-1] if setting else None
    return (
        last is not None
        and not last.conditional
        and (last.text or "").lstrip("+").replace("'", "").replace('"', "") == "trainer.device=cpu"
    )


def _has_gpu_driver(machine: Machine) -> bool:
    """Return whether programs here can reach a driver for NVIDIA GPUs.

    Where they cannot, the job may run on another machine.

    The device is a file whose record can be compared later, which /proc/driver/nvidia is not.
    """
    return os.path.exists(machine.at("/dev/nvidiactl"))


def _read_launch(
    target: Target, machine: Machine, load: Callable[[str], str | None], *, is_here: bool
) -> Launch | Unknown:
    reader = _reader(target, machine, load, is_here=is_here)
    files: list[tuple[str, Kind]] = []
    settings: list[Setting] = []
    errors: list[ScriptError | None] = []
    named: list[WorkingDir | None] = []
    nodes = gpus = None
    scripts = [path for path in target.files if _kind(path) == "shell script"]
    for path in target.files:
        kind = _kind(path)
        text = load(str(path))
        if text is None:
            return Unknown(_why_not(path))
        files.append((str(path), kind))
        if kind == "runtime_env":
            followed = len(reader.unread)
            settings += [_setting(change, reaches=True) for change in from_file(reader, text, str(path))]
            named.append(folder_in_file(text, str(path)))
            errors += [_no_runtime_env(str(path), why) for why in reader.unread[followed:]]
        elif kind == "Dockerfile":
            reader.dockerfile(text, str(path), starts=not scripts and not target.words)
        else:
            followed = len(reader.unread)
            nodes = nodes or _of_batch(text, _SBATCH_NODES)
            gpus = gpus or _of_batch(text, _SBATCH_GPUS)
            reader.script(text, str(path), target.words if path == scripts[0] else ())
            if path.name.startswith(NAMES) or path.suffix == ".mk":  # not every line of it is a command
                reader.lost = [word for word in reader.lost if word.path != str(path)]
            if len(reader.unread) > followed and not _has_carriage_returns(str(path), machine):
                errors.append(refused(str(path), text, machine))
    if target.words and not scripts:
        files.append((COMMAND_LINE, "command line"))
        reader.command_line(target.words)
    found = _launch(reader, tuple(files), settings, machine)
    if (
        found.command is not None
        and not reader.unread
        and any(word.text is None for word in (*found.command.words, *found.command.launcher))
    ):
        hollow = tuple(_hollow(found.command, target, machine, load, is_here=is_here))
        found = replace(
            found,
            hollow=hollow,
            spaced=tuple(_spaced(hollow, load)),
            not_exported=tuple(_not_exported(hollow, load)),
        )
    working_dir = next(
        (working_folder for working_folder in [*reader.working_dirs, *named] if working_folder), None
    )
    return replace(
        found,
        refused=tuple(error for error in errors if error),
        nodes=nodes,
        gpus_per_node=gpus,
        working_dir=working_dir,
    )


def _reader(
    target: Target, machine: Machine, load: Callable[[str], str | None], *, is_here: bool
) -> LaunchReader:
    reader = LaunchReader(
        load,
        machine.environ,
        str(machine.cwd),
        is_there=os.path.exists,
        bin=str(target.python.parent),
        is_here=is_here,
    )
    reader.is_of_windows = lambda path: _has_carriage_returns(path, machine, everywhere=True)
    return reader


def _hollow(
    command: Command,
    target: Target,
    machine: Machine,
    load: Callable[[str], str | None],
    *,
    is_here: bool,
) -> Iterator[Word]:
    """Yield the words that become known once unset variables are empty, as bash treats them."""
    reader = _reader(target, machine, load, is_here=is_here)
    reader.is_empty = lambda name: not is_set_by_others(name)
    scripts = [path for path in target.files if _kind(path) == "shell script"]
    for path in scripts:
        reader.script(load(str(path)) or "", str(path), target.words if path == scripts[0] else ())
    program = reader.training
    if program is None or reader.unread:
        return
    known = {
        (word.path, word.line, word.written): word
        for word in (*_words(program.words), *_words(program.launcher))
    }
    for word in (*command.words, *command.launcher):
        supposed = known.get((word.path, word.line, word.written))
        if word.text is None and not word.conditional and supposed is not None and supposed.text:
            yield supposed


def _spaced(hollow: tuple[Word, ...], load: Callable[[str], str | None]) -> Iterator[LostAssignment]:
    """Yield the lines that assign to an unset variable of these words, with a blank before the sign."""
    names: dict[str, dict[str, None]] = {}
    for word in hollow:
        names.setdefault(word.path, {}).update(dict.fromkeys(VARIABLE.findall(word.written)))
    for path, unset in names.items():
        text = None if path == COMMAND_LINE else load(path)
        nodes = list(below(parse(text))) if text else []
        for name in unset:
            for node in nodes:
                if spaced_assignment(node) == name:
                    yield LostAssignment(name, path, node.line)


def _not_exported(hollow: tuple[Word, ...], load: Callable[[str], str | None]) -> Iterator[LostAssignment]:
    """Yield the lines above these words that certainly assign to a variable of theirs."""
    for word in hollow:
        text = None if word.path == COMMAND_LINE else load(word.path)
        nodes = [node for node in parse(text) if isinstance(node, Simple)] if text else []
        for name in dict.fromkeys(VARIABLE.findall(word.written)):
            assigned = (part for node in nodes if not node.words for part in node.assignments)
            lines = [part.line for part in assigned if part.name == name and part.line < word.line]
            yield from (LostAssignment(name, word.path, line) for line in lines[-1:])


def _of_batch(text: str, option: re.Pattern[str]) -> int | None:
    """Return the number that `#SBATCH` lines request: the last line counts, and a node range's maximum.

    Slurm reads these lines only up to the first command: https://slurm.schedmd.com/sbatch.html
    """
    found = None
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        match = option.match(line)
        found = int(match[1]) if match else found
    return found


def _launch(
    reader: LaunchReader, files: tuple[tuple[str, Kind], ...], settings: list[Setting], machine: Machine
) -> Launch:
    program = reader.training
    rest = [other for word in (program.words if program else ()) for other in word.rest]
    images = [
        change
        for change in reader.changes
        if any(path == change.path for path, kind in files if kind == "Dockerfile")
    ]
    changes = reader.changes if program is None else [*images, *program.changes]
    settings = [*(_setting(assignment) for assignment in changes), *settings]
    settings += [_setting(assignment, reaches=True, by_raylet=True) for assignment in reader.from_raylet]
    settings += [_setting(assignment, reaches=True) for assignment in (program.reaching if program else ())]
    return Launch(
        files,
        tuple(dict.fromkeys(settings)),
        _command(program) if program else None,
        tuple(_command(other) for other in reader.programs if other is not program and other.rank),
        _words([*reader.lost, *(other for other in rest if LOST.match(other.text or ""))]),
        tuple(
            path for path, kind in files if kind == "shell script" and _has_carriage_returns(path, machine)
        ),
        tuple(dict.fromkeys(reader.unread)),
        ray_starts=tuple(map(_words, reader.ray_starts)),
        stopped=stopped(reader, program) or not_found(reader, program),
        stops_ray=reader.stops_ray,
        limits=program.limits if program else tuple(reader.limits),
        submitted=program is not None and program.submitted,
        made=tuple(dict.fromkeys(reader.made)),
        folders=tuple(dict.fromkeys(reader.folders)),
        removed=tuple(dict.fromkeys(reader.removed)),
        installs=reader.installs,
        in_container=program is not None and program.in_container,
    )


def _no_runtime_env(path: str, why: str) -> ScriptError:
    line = re.search(r"line (\d+)$", why)
    return ScriptError(path, int(line[1]) if line else 0, why.removeprefix(f"{path}: "))


def _why_not(path: Path) -> str:
    """Return why `load_text` returned None."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return f"{path}: it cannot be read: {error.strerror}"
    if size > LARGEST_SCRIPT:
        return (
            f"{path} has {size / 1e6:.1f} MB, and no more than {LARGEST_SCRIPT / 1e6:.0f} MB of a launch "
            "script are read"
        )
    return f"{path}: not a readable text file, so it starts no job"


def _has_carriage_returns(path: str, machine: Machine, *, everywhere: bool = False) -> bool:
    """Return whether a line of the file, or each of its lines, ends as in Windows."""
    content = machine.planned.get(path)
    if content is None:
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                content = file.read(LARGEST_SCRIPT)
        except OSError:
            return False
    count = content.count(b"\r\n")
    return count > 0 and (not everywhere or count == content.count(b"\n"))


def _kind(path: Path) -> Kind:
    name = path.name.lower()
    if name.endswith((".yaml", ".yml", ".json")):
        return "runtime_env"
    if name.startswith(("dockerfile", "containerfile")) or name.endswith((".dockerfile", ".docker")):
        return "Dockerfile"
    return "shell script"


def _setting(change: EnvironmentChange, *, reaches: bool = False, by_raylet: bool = False) -> Setting:
    value = change.value
    if value is not None:
        value = without_user(value)
        holds_secret = suggests_secret(change.name) or may_hold_secret(value.replace("***@", ""))
        if holds_secret and not TO_FILL_IN.fullmatch(value):
            value = None
    return Setting(
        change.name, value, change.path, change.line, change.removed, reaches, change.conditional, by_raylet
    )


def _command(program: Program) -> Command:
    return Command(
        program.module,
        _words(program.words),
        program.path,
        program.line,
        program.conditional,
        _words(program.launcher),
        (*program.around, *program.names),
        program.folder,
        program.written,
        program.ends_after,
    )


def _words(arguments: Iterable[Argument]) -> tuple[Word, ...]:
    """Return the words of one command; of a possible secret only its key."""
    words = []
    option = ""
    for argument in arguments:
        words.append(_word(argument, option))
        seen = _seen(argument)
        option = seen if _OPTION.fullmatch(seen) else ""
    return tuple(words)


def _word(argument: Argument, option: str = "") -> Word:
    """Return the word, or only its key if its value may be a secret.

    `option` is the preceding option, if the word may be its value.
    """
    seen = _seen(argument)
    key, equals, value = seen.partition("=")
    if _OPTION.fullmatch(seen):
        secret = False
    elif equals and not key.startswith("{"):
        secret = setting_is_secret(key.lstrip("+"), value) or may_hold_secret(
            argument.written.partition("=")[2]
        )
    else:
        secret = is_secret(option, seen) or may_hold_secret(seen) or may_hold_secret(argument.written)
    if secret:
        written = f"{key}=***" if equals else "***"
        return Word(None, argument.path, argument.line, written, argument.conditional)
    text = None if argument.text is None else str(argument.text)
    return Word(text, argument.path, argument.line, argument.written, argument.conditional)


def _seen(argument: Argument) -> str:
    return argument.text if argument.text is not None else argument.written
