"""The options of wrappers that only change how a program runs, such as nice, timeout, `uv run` and srun."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.sources.shell.found import Argument

_SLURM = (
    "-N",
    "-n",
    "-c",
    "-p",
    "-w",
    "-x",
    "-J",
    "-t",
    "-A",
    "-o",
    "-e",
    "-G",
    "-D",
    "-q",
    "--nodes",
    "--ntasks",
    "--gpus-per-node",
    "--cpus-per-task",
    "--nodelist",
    "--partition",
    "--container-image",
    "--container-mounts",
    "--job-name",
    "--output",
    "--error",
    "--ntasks-per-node",
    "--mem",
    "--time",
    "--gres",
    "--container-workdir",
    "--container-name",
    "--jobid",
    "--account",
    "--export",
    "--het-group",
    "--wrap",
    "--gpus",
    "--exclude",
    "--chdir",
    "--qos",
    "--constraint",
    "--dependency",
    "--array",
    "--begin",
    "--comment",
    "--mail-type",
    "--mail-user",
    "--reservation",
    "--signal",
    "--cpu-bind",
    "--mpi",
    "--distribution",
    "--input",
    "-a",
    "-b",
    "-C",
    "-d",
    "-i",
    "-L",
    "-m",
)
_SUDO = ("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-r", "-t", "-T", "-U", "--user", "--group", "--chdir")
# Options that take the next word as their value, for the wrappers whose own options are skipped.
WITH_VALUE = {
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
        "--with",
        "--python",
        "-p",
        "--project",
        "--directory",
        "--extra",
        "--group",
        "--env-file",
        "--with-editable",
        "--with-requirements",
        "--index",
        "--index-url",
        "--package",
        "--only-group",
        "--no-group",
        "--no-extra",
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
    "deepspeed": (
        "--num_gpus",
        "--num_nodes",
        "--include",
        "--exclude",
        "--hostfile",
        "--master_port",
        "--master_addr",
    ),
}
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

_DURATION = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def behind_options(words: list[Argument], name: str) -> list[Argument]:
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
        place += 2 if text in WITH_VALUE[name] else 1
    if name in ("timeout", "taskset") and place < len(words):  # the duration, the mask
        numbers = re.compile(r"\+?[\d.,xa-f-]+[smhd]?|inf(?:inity)?")
        place += 1 if numbers.fullmatch(words[place].text or "") else 0
    return words[place:]


def seconds_of_timeout(words: Sequence[Argument], behind: Sequence[Argument]) -> float | None:
    """Return after how long `timeout` ends the program `behind` it; None if that is unknown, or never."""
    match = _DURATION.fullmatch(words[len(words) - len(behind) - 1].text or "")
    return float(match[1]) * _UNITS[match[2]] or None if match else None
