"""CFG130: the processes of the job are not started, or wait for others that never start."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.checks.shared.corrections import healed
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Command, Launch, Word
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PYTHON
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Phase,
    Rewrite,
    Subject,
    check,
)
from verl_doctor.toolkit.text import counted

_RANKS = ("RANK", "WORLD_SIZE")
_LOOPBACK = re.compile(r"(?:localhost|127\.[\d.]+|\[?::1\]?)(?::\d+)?")
_VARIABLES = re.compile(r"PET_\w+")
_TORCHRUN = "torchrun --standalone --nnodes=1 --nproc_per_node=1"
_LAST_PORT = 65535
_DEVICES = frozenset({"gpu", "cpu", "auto", "xpu", "npu"})
_OTHERS = frozenset(
    {"srun", "mpirun", "mpiexec", "ray"}
)  # these may set ranks, or start the command on several nodes


def _launch(*launcher: str) -> Launch:
    words = tuple(Word(text=word, path=SCRIPT, line=3, written=word) for word in launcher)
    names = (launcher or ("python3",))[:1]
    return Launch(
        files=((SCRIPT, "shell script"),),
        settings=(),
        command=Command(
            module="verl.trainer.sft_trainer", words=(), path=SCRIPT, line=3, launcher=words, names=names
        ),
    )


def _run(**options: str | None) -> JobProcesses:
    return JobProcesses(needs_ranks=True, launcher="torchrun", options=options)


_GPUS = Resources(gpus=(Gpu(name="NVIDIA H200", memory=143771),) * 4, cpus=16, memory=128 << 30)


def _examples() -> list[Example]:
    return [
        Example(
            "torchrun on one node",
            (
                *configured(),
                _launch("torchrun", "--standalone"),
                _run(standalone=None, nproc_per_node="4"),
                _GPUS,
                JobVariables(),
            ),
        ),
        Example(
            "ranks of the script's own",
            (
                *configured(),
                _launch(),
                JobProcesses(needs_ranks=True),
                JobVariables({"RANK": "0", "WORLD_SIZE": "1"}),
            ),
        ),
        Example(
            "a program with Ray", (*configured(), _launch(), JobProcesses(needs_ranks=False), JobVariables())
        ),
        Example(
            "two nodes that can meet",
            (*configured(), _launch("torchrun"), _run(nnodes="2", master_addr="10.0.0.4"), JobVariables()),
        ),
        Example(
            "no launcher",
            (*configured(), _launch(), JobProcesses(needs_ranks=True), JobVariables()),
            "is started without torchrun, and nothing sets RANK and WORLD_SIZE",
        ),
        Example(
            "two nodes, and an address that only one of them can reach",
            (*configured(), _launch("torchrun"), _run(nnodes="2", master_addr="127.0.0.1"), JobVariables()),
            "torchrun waits for 2 nodes at 127.0.0.1",
        ),
        Example(
            "two nodes, and no address",
            (*configured(), _launch("torchrun"), _run(nnodes="2"), JobVariables()),
            "torchrun waits for 2 nodes at 127.0.0.1",
        ),
        Example(
            "more processes than GPUs",
            (*configured(), _launch("torchrun"), _run(nproc_per_node="8"), _GPUS, JobVariables()),
            "torchrun starts 8 processes on this node, which has 4 GPUs",
        ),
        Example(
            "a process for each GPU",
            (*configured(), _launch("torchrun"), _run(nproc_per_node="gpu"), _GPUS, JobVariables()),
        ),
        Example(
            "a process for each GPU of another machine",
            (
                *configured(),
                _launch("torchrun"),
                _run(nproc_per_node="gpu"),
                replace(_GPUS, gpus=()),
                JobVariables(),
            ),
        ),
        Example(
            "no number of processes",
            (*configured(), _launch("torchrun"), _run(nproc_per_node="all"), JobVariables()),
            "torchrun does not accept all as the number of processes",
        ),
        Example(
            "a port that does not exist",
            (*configured(), _launch("torchrun"), _run(master_port="295000"), JobVariables()),
            "--master_port has port 295000",
        ),
        Example(
            "etcd without its package",
            (
                *configured(),
                _launch("torchrun"),
                _run(rdzv_backend="etcd", rdzv_endpoint="10.0.0.4:2379"),
                JobVariables(),
                Packages(()),
            ),
            "needs the package python-etcd",
        ),
        Example(
            "an option of another launcher",
            (
                *configured(),
                _launch("torchrun"),
                JobProcesses(
                    needs_ranks=True,
                    launcher="torchrun",
                    unknown=("--num_gpus",),
                    known=("nnodes", "nproc_per_node"),
                ),
                JobVariables(),
            ),
            "torchrun has no option --num_gpus",
        ),
    ]


@check("CFG130", requires=("CFG105", "CFG116", "PY113"), examples=_examples, since="0.2")
def processes_cannot_meet(
    configuration: Configuration,
    launch: Launch,
    processes: JobProcesses,
    resources: Resources | Unknown,
    variables: JobVariables,
    packages: Packages | Unknown,
) -> Iterator[Finding]:
    """The processes of the job are not started, or wait for others that never start.

    ## Why it matters
    The SFT trainer needs `RANK`, `WORLD_SIZE` and the others that torchrun sets for each process. torchrun
    stops at an option that it does not have. With several nodes and an address that only this node can reach,
    it waits for the others until it times out; with more processes than GPUs, the last ones find no device.

    ## How to fix
    Start the trainer with `torchrun --standalone --nnodes=1 --nproc_per_node=N`, N being the GPUs of the
    node. For several nodes, run it on each of them with the same `--master_addr`, an address of the first
    node that the others can reach.
    """
    command = launch.command
    if command is None or launch.submitted or command.conditional:
        return
    if processes.needs_ranks and not processes.launcher and not _has_ranks(launch, variables):
        yield _finding(
            command,
            f"{command.module} is started without torchrun, and nothing sets RANK and WORLD_SIZE",
            "python alone",
            "torchrun",
            f"write {_TORCHRUN} -m {command.module}",
            "workers",
            _by_torchrun(command),
        )
    for option in processes.unknown:
        near = next(
            iter(difflib.get_close_matches(option.lstrip("-").replace("-", "_"), processes.known, 1)), ""
        )
        yield _finding(
            command,
            f"torchrun has no option {option}" + (f"; did you mean --{near}?" if near else ""),
            option,
            processes.read_from,
            f"write --{near}" if near else f"remove {option}",
            "import",
            _renamed(command, option, f"--{near}") if near else None,
        )
    if processes.launcher != "torchrun" and not processes.launcher.startswith("torch."):
        return
    if processes.undetermined or processes.unknown or any(map(_VARIABLES.fullmatch, variables.values)):
        return
    yield from _waiting(launch, processes)
    yield from _rendezvous(command, processes, packages)
    yield from _too_many(configuration, launch, processes, resources, variables)


def _has_ranks(launch: Launch, variables: JobVariables) -> bool:
    given = {setting.name for setting in launch.settings if not setting.removed}
    wrapped = _OTHERS & {name.rpartition("/")[2] for name in launch.command.names} if launch.command else ()
    return bool(wrapped) or any(variables.has(name) or name in given for name in _RANKS)


def _waiting(launch: Launch, processes: JobProcesses) -> Iterator[Finding]:
    """Yield a finding for a rendezvous of several nodes on the loopback device.

    Two commands in one script may be two nodes.
    """
    nodes = (processes.options.get("nnodes") or "1").partition(":")[0]
    if not nodes.isdigit() or int(nodes) < 2 or "standalone" in processes.options or launch.others:
        return
    address = processes.options.get("rdzv_endpoint") or processes.options.get("master_addr") or "127.0.0.1"
    if launch.command is not None and _LOOPBACK.fullmatch(address):
        yield _finding(
            launch.command,
            f"torchrun waits for {nodes} nodes at {address}, which no other node can reach",
            address,
            "an address of the first node that the others can reach",
            "set --master_addr to the first node's address, or request one node",
            "import",
        )


def _rendezvous(command: Command, processes: JobProcesses, packages: Packages | Unknown) -> Iterator[Finding]:
    """Yield findings for a port that does not exist, and for etcd without its package."""
    options = processes.options
    if "standalone" in options:
        return
    backend = options.get("rdzv_backend") or "static"
    own = backend == "static" and "rdzv_endpoint" not in options
    port = options.get("master_port") if own else (options.get("rdzv_endpoint") or "").rpartition(":")[2]
    if port and port.lstrip("-").isdigit() and not 0 <= int(port) <= _LAST_PORT:
        name = "--master_port" if own else "--rdzv_endpoint"
        yield _finding(
            command,
            f"{name} has port {port}, which does not exist",
            port,
            f"a port up to {_LAST_PORT}",
            f"set a port up to {_LAST_PORT} in {name}",
            "import",
        )
    if (
        backend in ("etcd", "etcd-v2")
        and isinstance(packages, Packages)
        and packages.get("python-etcd") is None
    ):
        yield _finding(
            command,
            f"--rdzv_backend={backend} needs the package python-etcd, which is not installed",
            backend,
            "c10d, or python-etcd",
            "set --rdzv_backend=c10d, or install python-etcd",
            "import",
        )


def _too_many(
    configuration: Configuration,
    launch: Launch,
    processes: JobProcesses,
    resources: Resources | Unknown,
    variables: JobVariables,
) -> Iterator[Finding]:
    count = processes.options.get("nproc_per_node")
    if count is None or launch.command is None:
        return
    if not count.isdigit() and count not in _DEVICES:
        yield _finding(
            launch.command,
            f"torchrun does not accept {count} as the number of processes",
            f"--nproc_per_node={count}",
            "a number, or gpu, cpu or auto",
            "set --nproc_per_node to a number, gpu, cpu or auto",
            "import",
        )
    gpus = resources.gpus if isinstance(resources, Resources) else None
    visible = variables.values.get("CUDA_VISIBLE_DEVICES")
    usable = (
        len(gpus or ()) if visible is None else len([entry for entry in visible.split(",") if entry.strip()])
    )
    on_cpu = configuration.get("trainer.device") == "cpu"
    if gpus and not on_cpu and count.isdigit() and int(count) > min(usable, len(gpus)):
        has = counted(min(usable, len(gpus)), "GPU")
        yield _finding(
            launch.command,
            f"torchrun starts {count} processes on this node, which has {has}",
            f"--nproc_per_node={count}",
            has,
            f"set --nproc_per_node={min(usable, len(gpus))}",
            "workers",
            _with_count(launch.command, count, min(usable, len(gpus))),
        )


def _by_torchrun(command: Command) -> Correction | None:
    """The module is started by torchrun, in one process, in place of Python."""
    python = command.names[-1] if command.names else ""
    if not PYTHON.fullmatch(python.rpartition("/")[2]) or command.path == COMMAND_LINE:
        return None
    rewrite = Rewrite(python, _TORCHRUN, Location(command.path, command.line))
    return Correction("", (rewrite,), effect="torchrun starts one process, and sets its rank")


def _renamed(command: Command, option: str, new: str) -> Correction | None:
    """An option of torchrun under its right name."""
    rewrites = [
        Rewrite(word.text, f"{new}{word.text.removeprefix(option)}", Location(word.path, word.line))
        for word in command.launcher
        if word.text and word.path != COMMAND_LINE and word.text.partition("=")[0] == option
    ]
    return Correction("", tuple(rewrites), f"{new} is torchrun's option") if len(rewrites) == 1 else None


def _with_count(command: Command, count: str, new: int) -> Correction | None:
    """As many processes as there are GPUs."""
    rewrites = [
        Rewrite(word.text, f"{option}={new}", Location(word.path, word.line))
        for word in command.launcher
        if word.text and word.path != COMMAND_LINE and not word.conditional
        for option, _, value in [word.text.partition("=")]
        if option.replace("-", "_") == "__nproc_per_node" and value == count
    ]
    effect = f"{counted(new, 'process', 'processes')} train instead of {count}"
    return Correction("", tuple(rewrites), effect=effect) if len(rewrites) == 1 and new > 0 else None


def _finding(
    command: Command,
    message: str,
    found: str,
    wanted: str,
    remedy: str,
    phase: Phase,
    correction: Correction | None = None,
) -> Finding:
    return Finding(
        message,
        Evidence(found=found, wanted=wanted),
        location=Location(command.path, command.line),
        remedy=remedy,
        subject=Subject("symbol", command.module),
        stops=(EVERY_JOB,),
        phase=phase,
        **healed("CFG130", correction),
    )
