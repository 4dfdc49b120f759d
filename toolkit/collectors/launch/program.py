"""Finds the program that a command line finally starts, after wrappers such as `nohup`, `torchrun` and `ray job submit`."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from verl_doctor.toolkit.sources.shell.found import Argument, Lines

_PYTHON = re.compile(r"(?:pypy|python)[\d.]*")
_SHELL = frozenset({"bash", "sh", "zsh", "dash"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_SLURM = (
        "-N", "-n", "-c", "-p", "-w", "-x", "-J", "-t", "-A", "-o", "-e", "-G", "-D", "-q", "--nodes", "--ntasks",
        "--gpus-per-node", "--cpus-per-task", "--nodelist", "--partition", "--container-image", "--container-mounts",
        "--job-name", "--output", "--error", "--ntasks-per-node", "--mem", "--time", "--gres", "--container-workdir",
        "--container-name", "--jobid", "--account", "--export", "--het-group", "--wrap", "--gpus", "--exclude", "--chdir", "--qos",
        "--constraint", "--dependency", "--array", "--begin", "--comment", "--mail-type", "--mail-user", "--reservation", "--signal",
        "--cpu-bind", "--mpi", "--distribution", "--input", "-a", "-b", "-C", "-d", "-i", "-L", "-m",
    )  # fmt: skip
_SUDO = ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-r", "-t", "-T", "-U", "--user", "--group", "--chdir")
# Options that take the next word as their value, for the wrappers whose own options are skipped.
_WITH_VALUE = {
    "nohup": (),
    "exec": ("-a",),
    "command": (),
    "time": ("-f", "-o"),
    "setsid": (),
    "sudo": _SUDO,
    "doas": ("-u", "-C"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "-n", "--class", "--classdata"),
    "stdbuf": ("-o", "-e", "-i", "--output", "--error", "--input"),
    "unbuffer": (),
    "timeout": ("-k", "-s", "--kill-after", "--signal"),
    "taskset": ("-c", "--cpu-list"),
    "numactl": ("-C", "-N", "-m", "-i", "-p"),
    "uv": (
        "--with", "--python", "-p", "--project", "--directory", "--extra", "--group", "--env-file", "--with-editable",
        "--with-requirements", "--index", "--index-url", "--package", "--only-group", "--no-group", "--no-extra",
    ),
    "conda": ("-n", "--name", "-p", "--prefix", "--cwd"),
    "mamba": ("-n", "--name", "-p", "--prefix", "--cwd"),
    "micromamba": ("-n", "--name", "-p", "--prefix", "--cwd"),
    "poetry": (),
    "pipenv": (),
    "accelerate": (),
    "verl-doctor": ("--python", "--verl", "--lock", "--wait", "--when-unsure", "--format"),
    "torchrun": (),
    "srun": _SLURM,
    "sbatch": _SLURM,
    "mpirun": ("-np", "-n", "-H", "-hostfile", "--hostfile", "-x", "--host"),
    "deepspeed": ("--num_gpus", "--num_nodes", "--include", "--exclude", "--hostfile", "--master_port", "--master_addr"),
}  # fmt: skip
# Words between a wrapper and its options or program: `uv run`, `conda run`, `accelerate launch`.
_SUBCOMMAND = {
    "uv": "run",
    "conda": "run",
    "mamba": "run",
    "micromamba": "run",
    "poetry": "run",
    "pipenv": "run",
    "accelerate": "launch",
    "verl-doctor": "guard",
}
CONTAINERS = frozenset(
    {"docker", "docker-compose", "podman", "nerdctl", "apptainer", "singularity", "enroot", "kubectl"}
)
# Programs that start a job without the variables of the shell.
OWN_VARIABLES = frozenset({"docker", "docker-compose", "podman", "nerdctl", "kubectl", "ssh"})
# Programs that take a command as the text of a shell, and their options with values; the command of ssh is the rest of its words.
_WITH_TEXT = {
    "su": ("-g", "-G", "-s", "-w", "--group", "--shell"),
    "runuser": ("-u", "-g", "-G", "-s", "-w", "--user", "--group", "--shell"),
    "sg": (),
    "script": ("-E", "-I", "-O", "-B", "-T", "-m", "-o"),
    "flock": ("-w", "-E", "--timeout", "--wait"),
    "ssh": tuple(f"-{letter}" for letter in "BbcDEeFIiJLlmOoPpQRSWw"),
}
_TMUX = {"-c", "-e", "-F", "-f", "-n", "-s", "-t", "-x", "-y", "-l", "-p", "-L", "-S", "-T"}
_TMUX_STARTS = {"new-session", "new", "new-window", "neww", "split-window", "splitw"}
_TMUX_TYPES = {"send-keys", "send"}
_TMUX_KEYS = re.compile(
    r"(?:[CMS]-)+\S+|Escape|Up|Down|Left|Right|Home|End|BSpace|Tab|BTab|F\d+|[NP]Page|[ID]C"
)
_SCREEN = {"-S", "-c", "-e", "-h", "-p", "-T", "-s", "-t", "-Logfile"}
_XARGS = (
    "-I",
    "-n",
    "-P",
    "-L",
    "-s",
    "-d",
    "-a",
    "-E",
    "--arg-file",
    "--max-args",
    "--max-procs",
    "--max-lines",
    "--delimiter",
    "--replace",
)
_PARALLEL = ("-j", "--jobs", "--delay", "--timeout", "--joblog", "--results", "--tmpdir", "-S", "--sshlogin")
# Programs whose own options end where a Python, a shell or a launcher is called.
_AROUND = CONTAINERS | {
    "nsys", "ncu", "py-spy", "strace", "gdb", "perf", "xvfb-run", "proxychains", "proxychains4", "tini", "dumb-init", "chrt", "flock",
    "pixi", "pyenv", "rye", "pdm", "hatch", "catchsegv", "systemd-run", "caffeinate",
}  # fmt: skip
_FLAGS_OF_LAUNCHERS = frozenset(
    {
        "--standalone", "--no-python", "--no_python", "-m", "--module", "--use-env", "--use_env", "--multi_gpu", "--cpu",
        "--use_deepspeed", "--use_fsdp", "--debug", "-q", "--quiet", "--same_network", "--tpu", "--mps", "--run-path", "--run_path",
        "--no_local_rank", "--enable_each_rank_log",
    }
)  # fmt: skip


_FLAGS_OF_DOCKER = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--read-only", "--no-healthcheck", "--publish-all",
     "--oom-kill-disable", "--quiet"}
)  # fmt: skip

Inherits = Literal["all", "none", "unknown"]


@dataclass(frozen=True)
class PythonProgram:
    """A Python module ("verl.trainer.main_ppo") or the path of a script, and its arguments.

    `launcher` are the words of a process launcher with its options (`torchrun --nproc_per_node=8 -m`), empty for plain Python.
    `uses` are the names in the Python text that starts the module, as if each was called. `opens` is the Python between torchrun
    and the module, which torchrun opens as the source of a program.
    """

    module: str
    words: tuple[Argument, ...]
    launcher: tuple[Argument, ...] = ()
    uses: str = ""
    opens: str = ""


@dataclass(frozen=True)
class ShellProgram:
    """A shell with a command text (`bash -c text`) or the path of a script, and its arguments. `read`: it is text from the input.

    `session` is the terminal into which the text is typed, whose shell goes on.
    """

    text: str | None
    path: str | None
    words: tuple[Argument, ...]
    read: Lines | None = None
    session: str = ""


@dataclass(frozen=True)
class Unwrapped:
    """The innermost program, and what the wrappers around it add to its environment.

    `assigned` are `name=value` words of `env`, `dropped` the names that `env -u` removes, `runtime_env` the `ray job
    submit` options for it, `working_dir` its `--working-dir`, `starts_ray` the words after `ray start`; `stops_ray`:
    the program is `ray stop`. `names` are all programs on the way, the last included, as they are called. `folder` is
    the one that `env -C` enters. `inherits` is what the program gets of the variables around it: none after `env -i`, and after
    `sudo` only those that are `passed` are known. `rest` are the words of a program that is neither Python nor a shell.
    """

    program: PythonProgram | ShellProgram | None
    assigned: tuple[Argument, ...] = ()
    dropped: tuple[Argument, ...] = ()
    runtime_env: tuple[Argument, ...] = ()
    runtime_env_json: tuple[Argument, ...] = ()
    working_dir: tuple[Argument, ...] = ()
    submits: bool = False
    starts_ray: tuple[Argument, ...] = ()
    stops_ray: bool = False
    names: tuple[str, ...] = ()
    folder: Argument | None = None
    inherits: Inherits = "all"
    passed: tuple[str, ...] = ()
    rest: tuple[Argument, ...] = ()


def unwrap(argv: Sequence[Argument], stdin: Lines | None = None) -> Unwrapped:
    """Strip the wrappers. The program is None if it is neither Python nor a shell. `stdin` is what it reads."""
    assigned: list[Argument] = []
    dropped: list[Argument] = []
    files: list[Argument] = []
    texts: list[Argument] = []
    folders: list[Argument] = []
    submits = False
    starts_ray: tuple[Argument, ...] = ()
    stops_ray = False
    rest = list(argv)
    program: PythonProgram | ShellProgram | None = None
    names: list[str] = []
    entered: list[Argument] = []
    inherits: Inherits = "all"
    passed: list[str] = []
    while rest:
        name = _name(rest[0])
        names.append(rest[0].text or "")
        found, more = _inherited(name, rest)
        if found != "all":
            inherits, assigned, passed = found, [], list(more)
        if rest[0].text is None and len(rest) > 2 and rest[1].text == "-m":
            program, rest = _python(rest[1:])  # `$PYTHON -m module`
            break
        if name == "env":
            rest = _env(rest[1:], assigned, dropped, entered)
        elif name == "ray":
            words = [word.text for word in rest]
            if words[1:2] == ["start"]:
                starts_ray = tuple(rest[2:])
            stops_ray = words[1:2] == ["stop"]
            if words[1:3] != ["job", "submit"]:
                break
            submits = True
            rest = _ray_job(
                rest[3:],
                {"--runtime-env": files, "--runtime-env-json": texts, "--working-dir": folders},
            )
        elif _PYTHON.fullmatch(name):
            started = _in_text(rest[1:], stdin)
            if started is None and (inner := _spawned_in_text(rest[1:], stdin)):
                rest = inner
                continue
            safe = _safe_path(rest)
            program, rest = (started, rest) if started else _python(rest[1:])
            if program is None:
                continue
            if not program.launcher:  # its processes do not inherit the option
                assigned += safe
            break
        elif name in _SHELL:
            program = _shell(rest[1:], stdin)
            break
        elif name in _WITH_TEXT:
            program, rest = _with_text(rest, name, stdin)
            if program is not None:
                break
        elif name in ("tmux", "screen"):
            program, rest = _in_terminal(rest, name)
            if program is not None:
                break
        elif name in ("xargs", "parallel"):
            rest = _with_input(rest, name, stdin)
        elif name in ("torchrun", "accelerate", "deepspeed"):
            program = _launcher(rest)
            break
        elif name in _WITH_VALUE:
            rest = _options(rest, name)
            if name == "uv" and rest and rest[0].text in ("-m", "--module"):
                program, rest = _python([replace(rest[0], text="-m"), *rest[1:]])
                break
            if name in ("srun", "sbatch"):
                assigned += _exported(argv)
            if name == "sbatch":
                program = _batch(argv, rest, stdin)
                break
            while name in ("sudo", "doas") and rest and _ASSIGNED.match(rest[0].text or ""):
                assigned.append(rest.pop(0))
        elif name in _AROUND:
            inner = _inside(rest)
            if name in OWN_VARIABLES:
                assigned += _in_image(rest[: len(rest) - len(inner)])
            rest = inner
        elif name.endswith(".sh"):
            program = ShellProgram(None, rest[0].text, tuple(rest[1:]))
            break
        elif name.endswith(".py"):
            program = PythonProgram(rest[0].text or "", tuple(rest[1:]))
            break
        else:
            break
    return Unwrapped(
        program,
        assigned=tuple(assigned),
        dropped=tuple(dropped),
        runtime_env=tuple(files),
        runtime_env_json=tuple(texts),
        working_dir=tuple(folders),
        submits=submits,
        starts_ray=starts_ray,
        stops_ray=stops_ray,
        names=tuple(names),
        folder=entered[-1] if entered else None,
        inherits=inherits,
        passed=tuple(passed),
        rest=tuple(rest) if program is None else (),
    )


def _inherited(name: str, words: Sequence[Argument]) -> tuple[Inherits, Sequence[str]]:
    """Return what a wrapper passes on of the variables around it, and the names that it passes in any case."""
    texts = [word.text or "" for word in words[1:]]
    own = list(itertools.takewhile(lambda text: text.startswith("-"), texts))
    if name == "env":
        return (
            "none" if any(re.fullmatch(r"-\w*i\w*|-|--ignore-environment", text) for text in own) else "all"
        ), ()
    if name == "exec":
        return ("none" if any(re.fullmatch(r"-[cl]*c[cl]*", text) for text in own) else "all"), ()
    if name in ("sudo", "doas"):
        kept = [text for text in texts if re.fullmatch(r"-[A-Za-z]*E[A-Za-z]*|--preserve-env(=.*)?", text)]
        listed = [name for text in kept for name in text.partition("=")[2].split(",") if name]
        return ("all" if kept and not listed else "unknown"), listed
    if name in ("su", "runuser") and any(text in ("-", "-l", "--login") for text in texts):
        return "unknown", ()
    if name in OWN_VARIABLES:
        return "unknown", [text for before, text in itertools.pairwise(texts) if before in ("-e", "--env")]
    if name == "tmux":
        return "unknown", ()
    if name in ("srun", "sbatch"):
        exported = _export_option(words)
        if exported is None or "ALL" in exported.split(","):
            return "all", ()
        # sbatch reads the variables of a login shell instead.
        return ("none" if name == "srun" else "unknown"), exported.split(",")
    return "all", ()


def _in_image(options: Sequence[Argument]) -> Iterator[Argument]:
    """Yield the assignments in the options of `docker run -e A=1 --env=B=2`."""
    for before, word in itertools.pairwise(options):
        text = word.text or ""
        attached = re.match(r"--env=|-e(?=[A-Za-z_]\w*=)", text)
        given = text[attached.end() :] if attached else text if before.text in ("-e", "--env") else ""
        if _ASSIGNED.match(given):
            yield replace(word, text=given)


def _export_option(words: Sequence[Argument]) -> str | None:
    """Return the value of Slurm's `--export`; None without one."""
    for place, word in enumerate(words):
        if (word.text or "").startswith("--export="):
            return (word.text or "").partition("=")[2]
        if word.text == "--export" and place + 1 < len(words):
            return words[place + 1].text or ""
    return None


def _exported(words: Sequence[Argument]) -> list[Argument]:
    """Return the assignments in Slurm's `--export=ALL,A=1`."""
    parts = (_export_option(words) or "").split(",")
    return [replace(words[0], text=part) for part in parts if _ASSIGNED.match(part)]


def _batch(argv: Sequence[Argument], rest: list[Argument], stdin: Lines | None) -> ShellProgram | None:
    """Parse what `sbatch` submits: the text after `--wrap`, a script, or its input."""
    for place, word in enumerate(argv):
        text = word.text or ""
        if text.startswith("--wrap=") or (text == "--wrap" and place + 1 < len(argv)):
            wrapped = text.partition("=")[2] if "=" in text else argv[place + 1].text
            return ShellProgram(wrapped, None, ())
    if rest:
        return ShellProgram(None, rest[0].text, tuple(rest[1:]))
    return ShellProgram(stdin.text, None, (), stdin) if stdin else None


def _with_text(
    words: list[Argument], name: str, stdin: Lines | None
) -> tuple[ShellProgram | None, list[Argument]]:
    """Parse `su -c TEXT`, `script -qc TEXT`, `ssh HOST TEXT`: a shell with a text, or the words of a command."""
    place = 1
    while place < len(words):
        text = words[place].text
        if text is None or (name == "ssh" and not text.startswith("-")):
            break
        if text == "--":
            return None, words[place + 1 :]
        if name != "ssh" and re.fullmatch(r"-\w*c|--command", text) and place + 1 < len(words):
            return ShellProgram(words[place + 1].text, None, ()), []
        if name != "ssh" and text.startswith("--command="):
            return ShellProgram(text.partition("=")[2], None, ()), []
        if name == "flock" and _starts_program(words[place]):
            return None, words[place:]
        place += 2 if text in _WITH_TEXT[name] else 1
    if name != "ssh":
        return None, []
    remote = [word.text for word in words[place + 1 :]]
    if remote and None not in remote:
        return ShellProgram(" ".join(text or "" for text in remote), None, (), stdin), []
    return (ShellProgram(stdin.text, None, (), stdin) if stdin and not remote else None), []


def _in_terminal(words: list[Argument], name: str) -> tuple[ShellProgram | None, list[Argument]]:
    """Parse `tmux new-session -d TEXT` and `screen -dm PROGRAM`: what the terminal starts."""
    if name == "tmux" and (typed := _typed(words)) is not None:
        return typed, []
    place, starts = 1, name == "screen"
    while place < len(words):
        text = words[place].text or ""
        if text in _TMUX_STARTS and name == "tmux":
            starts = True
        elif text in (_TMUX if name == "tmux" else _SCREEN) or re.fullmatch(r"-\w*[dDm]\w*S", text):
            place += 1
        elif not text.startswith("-") or words[place].text is None:
            break
        place += 1
    inner = list(itertools.takewhile(lambda word: word.text != ";", words[place:] if starts else []))
    if name == "tmux" and len(inner) == 1:  # a single word is the text of a shell
        return ShellProgram(inner[0].text, None, ()), []
    return None, inner


def _typed(words: list[Argument]) -> ShellProgram | None:
    """Parse `tmux send-keys -t SESSION TEXT Enter`: the text that a shell in a terminal gets."""
    begin = next((place for place, word in enumerate(words) if word.text in _TMUX_TYPES), 0)
    if not begin:
        return None
    session, place, literal = "", begin + 1, False
    while place < len(words) and (words[place].text or "").startswith("-"):
        option = words[place].text or ""
        literal = literal or "l" in option
        if option[-1] in "tNc":
            session = (
                (words[place + 1].text or "" if place + 1 < len(words) else "")
                if option[-1] == "t"
                else session
            )
            place += 1
        place += 1
    keys = list(itertools.takewhile(lambda word: word.text != ";", words[place:]))
    if any(word.text is None for word in keys):
        return ShellProgram(None, None, (), session=session or "0")
    text = ""
    for word in keys:
        key = word.text or ""
        if not literal and key in ("Enter", "KPEnter", "C-m", "C-j"):
            text += "\n"
        elif literal or not _TMUX_KEYS.fullmatch(key):
            text += " " if key == "Space" and not literal else key
    return ShellProgram(text, None, (), session=session.partition(":")[0] or "0")


def _with_input(words: list[Argument], name: str, stdin: Lines | None) -> list[Argument]:
    """Return the command that `xargs` or `parallel` starts, with the words that it gets from its input: unknown ones if that is unknown."""
    place, mark, read_elsewhere, limited = 1, "{}" if name == "parallel" else "", False, name == "parallel"
    while place < len(words) and (words[place].text or "").startswith("-"):
        text = words[place].text or ""
        has_value = text in (_XARGS if name == "xargs" else _PARALLEL)
        if name == "xargs":
            value = (words[place + 1].text or "") if has_value and place + 1 < len(words) else ""
            mark = (
                value or text.partition("=")[2] or text[2:] or "{}"
                if text.startswith(("-I", "-i", "--replace"))
                else mark
            )
            read_elsewhere = read_elsewhere or text.startswith(("-a", "--arg-file", "-d", "-0", "-E"))
            limited = limited or text.startswith(("-n", "-L", "--max-args", "--max-lines"))
        place += 2 if has_value else 1
    command = list(itertools.takewhile(lambda word: not (word.text or "").startswith(":::"), words[place:]))
    if not command or (name == "parallel" and len(command) == 1 and " " in (command[0].text or "")):
        return []
    if mark and any(mark in (word.text or "") for word in command):
        return [replace(word, text=None) if mark in (word.text or "") else word for word in command]
    unknown = Argument(None, words[0].path, words[0].line, f"the words that {name} reads")
    try:
        read = shlex.split(stdin.text) if stdin and not read_elsewhere and not mark and not limited else None
    except ValueError:
        read = None
    return [
        *command,
        *([unknown] if read is None else [replace(unknown, text=word, written=word) for word in read]),
    ]


def _starts_program(word: Argument) -> bool:
    """Return whether a word is a Python, a shell or a launcher."""
    name = _name(word)
    is_shell = name in _SHELL
    return is_shell or _PYTHON.fullmatch(name) is not None or name in ("torchrun", "accelerate", "ray")


def _name(word: Argument) -> str:
    """Return the name of a program without its folder."""
    return (word.text or "").rpartition("/")[2]


def _inside(words: list[Argument]) -> list[Argument]:
    """Return what runs in a container or below a profiler: from the first word that is a Python, a shell or a launcher. Empty if there is none."""
    entry = next(
        (place for place, word in enumerate(words) if (word.text or "").startswith("--entrypoint")), 0
    )
    if entry:
        return _behind_entrypoint(words, entry)
    return next((words[place:] for place, word in enumerate(words) if place and _starts_program(word)), [])


def _behind_entrypoint(words: list[Argument], entry: int) -> list[Argument]:
    """Return what `docker run --entrypoint PROGRAM IMAGE WORDS` runs. Each option has a value but flags."""
    text = words[entry].text or ""
    program = (
        replace(words[entry], text=text.partition("=")[2])
        if "=" in text
        else words[entry + 1]
        if entry + 1 < len(words)
        else None
    )
    place = entry + (1 if "=" in text else 2)
    while place < len(words) and (option := words[place].text or "").startswith("-"):
        is_flag = "=" in option or option in _FLAGS_OF_DOCKER or re.fullmatch(r"-[ditPq]+", option)
        place += 1 if is_flag else 2
    return [program, *words[place + 1 :]] if program is not None and program.text else []


def _env(
    words: list[Argument], assigned: list[Argument], dropped: list[Argument], entered: list[Argument]
) -> list[Argument]:
    place = 0
    while place < len(words):
        text = words[place].text or ""
        split = re.match(r"-\w*S|--split-string=?", text)
        if split:
            attached = text[split.end() :]
            rest = words[place + 1 :] if attached else words[place + 2 :]
            line = attached or (words[place + 1].text if place + 1 < len(words) else "") or ""
            try:
                found = [replace(words[place], text=word, written=word) for word in shlex.split(line)]
            except ValueError:
                return []
            return _env([*found, *rest], assigned, dropped, entered)
        if text in ("-u", "--unset", "-C", "--chdir"):
            if text in ("-u", "--unset") and place + 1 < len(words):
                dropped.append(words[place + 1])
            if text in ("-C", "--chdir"):
                entered += words[place + 1 : place + 2]
            place += 2
        elif text.startswith("--chdir="):
            entered.append(replace(words[place], text=text.partition("=")[2]))
            place += 1
        elif text.startswith("--unset=") or re.match(r"-u\w", text):
            dropped.append(replace(words[place], text=text.removeprefix("--unset=").removeprefix("-u")))
            place += 1
        elif text.startswith("-"):
            place += 1
        elif _ASSIGNED.match(text):
            assigned.append(words[place])
            place += 1
        else:
            break
    return words[place:]


def _ray_job(words: list[Argument], options: Mapping[str, list[Argument]]) -> list[Argument]:
    """Return the words after the options of `ray job submit`, and store the values of the given `options`."""
    place = 0
    while place < len(words):
        word = words[place]
        text = word.text or ""
        if text == "--":
            return words[place + 1 :]
        option, equals, value = text.partition("=")
        kept = options.get(option)
        if kept is not None and equals:
            kept.append(Argument(value, word.path, word.line, word.written))
        elif kept is not None and place + 1 < len(words):
            kept.append(words[place + 1])
        if text in ("--no-wait", "--verify", "--no-verify", "-v", "--verbose", "--follow") or (
            text.startswith("-") and equals
        ):
            place += 1
        elif text.startswith("-") or word.text is None:
            place += 2 if text.startswith("-") else 1
        else:
            return words[place:]
    return []


def _options(words: list[Argument], name: str) -> list[Argument]:
    """Return the words after the options of a wrapper."""
    place = 1
    if len(words) > 1 and words[1].text == _SUBCOMMAND.get(name):
        place = 2
    elif name in _SUBCOMMAND:
        return []
    while place < len(words):
        text = words[place].text
        if text == "--":
            place += 1
            break
        if text is None or not text.startswith("-") or (name == "uv" and text in ("-m", "--module")):
            break
        place += 2 if text in _WITH_VALUE[name] else 1
    if name in ("timeout", "taskset") and place < len(words):  # the duration, the mask
        numbers = re.compile(r"[\d.,xa-f-]+[smhd]?")
        place += 1 if numbers.fullmatch(words[place].text or "") else 0
    return words[place:]


def _launcher(words: list[Argument]) -> PythonProgram | None:
    """Parse `torchrun --nproc_per_node=8 -m module ...`, `accelerate launch script.py ...`."""
    place = 1
    name = _name(words[0])
    if name == "accelerate":
        if len(words) < 2 or words[1].text != "launch":
            return None
        place = 2
    return _launched(words, place)


def _launched(words: list[Argument], place: int) -> PythonProgram | None:
    as_module, opens = False, ""
    starts_programs = any(word.text in ("--no-python", "--no_python") for word in words)
    while place < len(words):
        text = words[place].text
        if text is None:
            place += 1
        elif text in ("-m", "--module"):
            as_module = True
            place += 1
        elif text.startswith("-"):
            place += 1 if "=" in text or text in _FLAGS_OF_LAUNCHERS else 2
        elif not (as_module or opens or starts_programs) and _PYTHON.fullmatch(_name(words[place])):
            opens = text
            place += 1
        elif as_module or text.endswith(".py") or "/" in text:
            return PythonProgram(text, tuple(words[place + 1 :]), tuple(words[:place]), opens=opens)
        else:
            place += 1
    return None


def _safe_path(words: list[Argument]) -> list[Argument]:
    """Return the assignment that amounts to the same as Python's option -P, if it is given."""
    own = itertools.takewhile(lambda word: re.fullmatch(r"-[A-Zbdiqsuvx]+", word.text or ""), words[1:])
    return [
        replace(word, text="PYTHONSAFEPATH=1")
        for word in own
        if re.fullmatch(r"-[bBdEiIOPqsSuvx]*[IP].*", word.text or "")
    ][:1]


def _python(words: list[Argument]) -> tuple[PythonProgram | None, list[Argument]]:
    place = 0
    while place < len(words):
        text = words[place].text
        if text is None:
            return None, []
        if text == "-m" and place + 1 < len(words):
            module = words[place + 1].text
            if module in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"):
                return _launched(words, place + 2), []
            return (None if module is None else PythonProgram(module, tuple(words[place + 2 :]))), []
        if re.match(r"-m\w", text):
            return PythonProgram(text[2:], tuple(words[place + 1 :])), []
        if text in ("-W", "-X"):
            place += 2
        elif text in ("-c", "-"):
            return None, []
        elif text.startswith("-"):
            place += 1
        else:
            return PythonProgram(text, tuple(words[place + 1 :])), []
    return None, []


def _in_text(words: list[Argument], stdin: Lines | None) -> PythonProgram | None:
    """Return the program of verl that a Python text starts. None for any other text."""
    text, given, first = _text(words, stdin)
    if text is None or first is None or "verl" not in text:
        return None
    from verl_doctor.toolkit.collectors.launch.python_text import started  # noqa: PLC0415 - only for a Python text

    found = started(text, given, first)
    return PythonProgram(found[0], found[1], uses=found[2]) if found else None


def _spawned_in_text(words: list[Argument], stdin: Lines | None) -> list[Argument] | None:
    """Return the words of the command that a Python text starts, if verl is in it. None for any other text."""
    text, given, first = _text(words, stdin)
    if text is None or first is None or "verl" not in text:
        return None
    from verl_doctor.toolkit.collectors.launch.spawned import spawned  # noqa: PLC0415 - only for a Python text

    return spawned(text, given, first)


def _text(
    words: list[Argument], stdin: Lines | None
) -> tuple[str | None, Sequence[Argument], Argument | None]:
    """Return a Python text, the one after `-c` or the input, with its arguments and the place of its first line."""
    place = next(
        (place for place, word in enumerate(words) if not (word.text or "").startswith("-")), len(words)
    )
    place = next((place for place, word in enumerate(words[:place]) if word.text in ("-", "-c")), place)
    option = words[place].text if place < len(words) else "-"
    if option == "-c" and place + 1 < len(words):
        return words[place + 1].text, words[place + 2 :], words[place + 1]
    if option == "-" and stdin is not None and (words or stdin.text):
        return stdin.text, words[place + 1 :], Argument(None, stdin.path, stdin.line, "sys.argv")
    return None, (), None


def _shell(words: list[Argument], stdin: Lines | None) -> ShellProgram | None:
    place, reads = 0, False
    while place < len(words):
        text = words[place].text
        if text is None:
            return None
        if text.startswith("-") and "c" in text and not text.startswith("--"):
            if place + 1 >= len(words):
                return None
            return ShellProgram(words[place + 1].text, None, tuple(words[place + 2 :]))
        if text in ("-s", "-", "/dev/stdin"):
            reads = reads or text != "-"
            place += 1
        elif text in ("-o", "-O", "+o", "--rcfile", "--init-file"):
            place += 2
        elif text.startswith(("-", "+")):
            reads = reads or "s" in text[1:]
            place += 1
        elif reads:
            break
        else:
            return ShellProgram(None, text, tuple(words[place + 1 :]))
    return ShellProgram(stdin.text, None, tuple(words[place:]), stdin) if stdin else None
