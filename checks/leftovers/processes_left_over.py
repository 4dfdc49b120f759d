"""LEFT110: processes of finished jobs are still running."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verl_doctor.checks.shared.gpus import gib, healthy, node
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.leftover import EndProcess, Kept, Leftover
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes, listed, ranges

_SHOWN = 4
_GIB = 1024**3
_ENGINE = Leftover(
    "process",
    "VLLM::EngineCore (process 4711)",
    ("the process that started it has ended, and tini (process 1) adopted it",),
    EndProcess(4711, 123456),
    127 * _GIB,
    "GPU memory",
)
_DOUBT = Kept("process", "VLLM::EngineCore (process 7)", "it is a server", 127 * _GIB, "GPU memory")
_AGENT = Leftover(
    "process",
    "ray::DashboardAgent (process 88)",
    ("the process that started it has ended, and tini (process 1) adopted it",),
    EndProcess(88, 4321),
    _GIB // 4,
    "memory",
)

_GPUS = node(
    *(
        healthy(index, holders=(Holder(pid=4711, memory=held),))
        for index, held in enumerate((127 * 1024, 512))
    )
)
_NO_GPU = (Gpus, Absent("there is no NVIDIA GPU here"))


def _examples() -> list[Example]:
    return [
        Example("nothing is left over", (LeftProcesses(), _GPUS)),
        Example(
            "a doubtful process is kept",
            (
                LeftProcesses(
                    kept=(Kept("process", "VLLM::EngineCore (process 7)", "it may still serve requests"),)
                ),
                _GPUS,
            ),
        ),
        Example(
            "an engine whose job was killed",
            (LeftProcesses((_ENGINE,)), _GPUS),
            (
                "1 process of finished jobs still runs and holds 127.0 GiB of GPU 0, 0.5 GiB of GPU 1: "
                "VLLM::EngineCore (process 4711)"
            ),
        ),
        Example(
            "a doubtful process that holds a GPU",
            (LeftProcesses(kept=(_DOUBT,)), _GPUS),
            (
                "VLLM::EngineCore (process 7) has lost its parent and holds 127 GiB of GPU memory; clean "
                "keeps it because it is a server"
            ),
        ),
        Example("an agent of a dead Ray", (LeftProcesses((_AGENT,)), _NO_GPU), "holds 256 MiB of memory"),
    ]


@check("LEFT110", severity="warning", examples=_examples)
def processes_left_over(left: LeftProcesses, gpus: Gpus | Unknown) -> Iterator[Finding]:
    """Processes of finished jobs are still running.

    ## Why it matters

    An engine of vLLM or SGLang does not notice when the trainer that started it is killed (`kill -9`, out of
    memory, a time limit). It keeps its GPU memory, so the next job finds less than it needs, while `ray stop`
    finds nothing to stop. Agents of a killed Ray keep ports and memory.

    The finding lists only what is provably unused: it runs code of vLLM, SGLang or Ray, its parent has ended,
    no running process is at the other end of its pipes and sockets or shares memory with it, and it shows no
    activity.

    ## How to fix

    `verl-doctor clean` shows each with its proof; `verl-doctor clean --apply` ends them by process ID:
    SIGTERM first, SIGKILL after ten seconds. Never end processes by name: that ends other jobs too. A process
    that is kept, for example because it listens on a port, can be ended with `kill PID` once you are sure
    that nothing needs it.
    """
    if left.found:
        yield _left_over(left, gpus)
    for kept_entry in left.kept:
        if kept_entry.store == "GPU memory" and kept_entry.size:
            yield Finding(
                (
                    f"{kept_entry.name} has lost its parent and holds {in_bytes(kept_entry.size)} of GPU "
                    f"memory; clean keeps it because {kept_entry.why}"
                ),
                Evidence(
                    found=kept_entry.why,
                    wanted="a running parent, or proof that nothing needs it",
                    read_from="/proc",
                ),
                subject=Subject("process", kept_entry.name),
                severity="info",
                remedy="if it is yours and nothing needs it, end it by its process ID",
            )


def _left_over(left: LeftProcesses, gpus: Gpus | Unknown) -> Finding:
    numbers = {leftover.removal.pid for leftover in left.found if isinstance(leftover.removal, EndProcess)}
    held = (
        listed(_by_gpu(numbers, gpus), _SHOWN)
        or f"{in_bytes(sum(leftover.size or 0 for leftover in left.found))} of memory"
    )
    many = len(left.found) > 1
    return Finding(
        (
            f"{counted(len(left.found), 'process', 'processes')} of finished jobs still "
            f"run{'' if many else 's'} and hold{'' if many else 's'} {held}: "
        )
        + listed((leftover.name for leftover in _largest(left)), _SHOWN),
        Evidence(
            found=f"{left.found[0].name}: {'; '.join(left.found[0].proof)}",
            wanted="nothing of a finished job",
            read_from="/proc",
        ),
        subject=Subject("process", ranges(numbers)),
        remedy="run verl-doctor clean to see them with the proof, and with --apply to end them",
    )


def _by_gpu(numbers: Collection[int], gpus: Gpus | Unknown) -> Iterator[str]:
    """Yield, as text, how much of each GPU the processes with these IDs hold."""
    for device in () if isinstance(gpus, Unknown) else gpus.devices:
        held = sum(holder.memory or 0 for holder in device.holders if holder.pid in numbers)
        if held:
            yield f"{gib(held)} of GPU {device.index}"


def _largest(left: LeftProcesses) -> list[Leftover]:
    return sorted(left.found, key=lambda leftover: (leftover.store != "GPU memory", -(leftover.size or 0)))
