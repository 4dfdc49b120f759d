"""Finds the program that a command line finally starts, after wrappers such as `nohup`, `torchrun` and `ray job submit`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.sources.shell.walk import Argument

_PYTHON = re.compile(r"(?:pypy|python)[\d.]*")
_SHELL = frozenset({"bash", "sh", "zsh", "dash"})
_SLURM = (
        "-N", "-n", "-c", "-p", "-w", "-x", "-J", "-t", "-A", "-o", "-e", "-G", "-D", "-q", "--nodes", "--ntasks",
        "--gpus-per-node", "--cpus-per-task", "--nodelist", "--partition", "--container-image", "--container-mounts",
        "--job-name", "--output", "--error", "--ntasks-per-node", "--mem", "--time", "--gres", "--container-workdir",
        "--container-name", "--jobid", "--account", "--export", "--het-group",
    )  # fmt: skip
# Options that take the next word as their value, for the wrappers whose own options are skipped.
_WITH_VALUE = {
    "nohup": (),
    "exec": ("-a",),
    "command": (),
    "time": ("-f", "-o"),
    "setsid": (),
    "sudo": ("-u", "-g"),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "stdbuf": ("-o", "-e", "-i"),
    "unbuffer": (),
    "timeout": ("-k", "-s"),
    "taskset": ("-c",),
    "numactl": ("-C", "-N", "-m", "-i", "-p"),
    "uv": ("--with", "--python", "-p", "--project", "--directory", "--extra", "--group"),
    "conda": ("-n", "--name", "-p", "--prefix"),
    "mamba": ("-n", "--name", "-p", "--prefix"),
    "micromamba": ("-n", "--name", "-p", "--prefix"),
    "poetry": (),
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
    "accelerate": "launch",
    "verl-doctor": "guard",
}
CONTAINERS = frozenset({"docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "kubectl"})
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


@dataclass(frozen=True)
class PythonProgram:
    """A Python module ("verl.trainer.main_ppo") or the path of a script, and its arguments.

    `launcher` are the words of a process launcher with its options (`torchrun --nproc_per_node=8 -m`), empty for plain Python.
    """

    module: str
    words: tuple[Argument, ...]
    launcher: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class ShellProgram:
    """A shell with a command text (`bash -c text`) or the path of a script, and its arguments."""

    text: str | None
    path: str | None
    words: tuple[Argument, ...]


@dataclass(frozen=True)
class Unwrapped:
    """The innermost program, and what the wrappers around it add to its environment.

    `assigned` are `name=value` words of `env`, `dropped` the names that `env -u` removes, `runtime_env` the `ray job
    submit` options for it, `working_dir` its `--working-dir`, `starts_ray` the words after `ray start`; `stops_ray`:
    the program is `ray stop`. `names` are all programs on the way, the last included, as they are called. `folder` is
    the one that `env -C` enters.
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


def unwrap(argv: Sequence[Argument]) -> Unwrapped:
    """Strip the wrappers. The program is None if it is neither Python nor a shell."""
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
    while rest:
        name = _name(rest[0])
        names.append(rest[0].text or "")
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
            program, rest = _python(rest[1:])
            if program is None:
                continue
            break
        elif name in _SHELL:
            program = _shell(rest[1:])
            break
        elif name in ("torchrun", "accelerate", "deepspeed"):
            program = _launcher(rest)
            break
        elif name in _WITH_VALUE:
            rest = _options(rest, name)
            if name == "uv" and rest and rest[0].text in ("-m", "--module"):
                program, rest = _python([replace(rest[0], text="-m"), *rest[1:]])
                break
            if name == "sbatch" and rest:
                program = ShellProgram(None, rest[0].text, tuple(rest[1:]))
                break
        elif name in _AROUND:
            rest = _inside(rest)
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
        tuple(assigned),
        tuple(dropped),
        tuple(files),
        tuple(texts),
        tuple(folders),
        submits,
        starts_ray,
        stops_ray,
        tuple(names),
        entered[-1] if entered else None,
    )


def _name(word: Argument) -> str:
    """Return the name of a program without its folder."""
    return (word.text or "").rpartition("/")[2]


def _inside(words: list[Argument]) -> list[Argument]:
    """Return what runs in a container or below a profiler: from the first word that is a Python, a shell or a launcher. Empty if there is none."""
    for place, word in enumerate(words[1:], 1):
        name = _name(word)
        if _PYTHON.fullmatch(name) or name in _SHELL or name in ("torchrun", "accelerate", "ray"):
            return words[place:]
    return []


def _env(
    words: list[Argument], assigned: list[Argument], dropped: list[Argument], entered: list[Argument]
) -> list[Argument]:
    place = 0
    while place < len(words):
        text = words[place].text or ""
        if text in ("-u", "--unset", "-C", "--chdir", "-S"):
            if text in ("-u", "--unset") and place + 1 < len(words):
                dropped.append(words[place + 1])
            if text in ("-C", "--chdir"):
                entered += words[place + 1 : place + 2]
            place += 2
        elif text.startswith("--chdir="):
            entered.append(replace(words[place], text=text.partition("=")[2]))
            place += 1
        elif text.startswith("--unset="):
            dropped.append(words[place])
            place += 1
        elif text.startswith("-"):
            place += 1
        elif re.match(r"[A-Za-z_]\w*=", text):
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
    as_module = False
    while place < len(words):
        text = words[place].text
        if text is None:
            place += 1
        elif text in ("-m", "--module"):
            as_module = True
            place += 1
        elif text.startswith("-"):
            place += 1 if "=" in text or text in _FLAGS_OF_LAUNCHERS else 2
        elif as_module or text.endswith(".py") or "/" in text:
            return PythonProgram(text, tuple(words[place + 1 :]), tuple(words[:place]))
        else:
            place += 1
    return None


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


def _shell(words: list[Argument]) -> ShellProgram | None:
    place = 0
    while place < len(words):
        text = words[place].text
        if text is None:
            return None
        if text.startswith("-") and "c" in text and not text.startswith("--"):
            if place + 1 >= len(words):
                return None
            return ShellProgram(words[place + 1].text, None, tuple(words[place + 2 :]))
        if text == "-s":
            return None
        if text in ("-o", "-O", "+o", "--rcfile", "--init-file"):
            place += 2
        elif text.startswith(("-", "+")):
            place += 1
        else:
            return ShellProgram(None, text, tuple(words[place + 1 :]))
    return None
