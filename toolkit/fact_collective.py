"""Whether the visible GPUs can reduce a tensor together: tried with the target's torch and NCCL, and with what may help.

The order of the remedies is that of what they cost. NCCL_NVLS_ENABLE=0: verl-project/verl verl/trainer/constants_ppo.py. NCCL_CUMEM_HOST_ENABLE=0: NVIDIA/nccl#1838, verl-project/verl#2803.
NCCL_P2P_DISABLE, NCCL_SHM_DISABLE: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.fact_gpus import Device, Gpus
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.fact_visible_devices import VISIBLE_DEVICES, VisibleDevices
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

Remedy = tuple[tuple[str, str], ...]

LIMIT = 60.0  # seconds of one trial, most of which is importing torch
_GRACE = 10.0
_NEEDED = 1536  # MiB of each GPU: CUDA's context and NCCL's buffers
_MOST_LINES = 6
_LONGEST_LINE = 300

REMEDIES: tuple[Remedy, ...] = (
    (("NCCL_NVLS_ENABLE", "0"),),
    (("NCCL_CUMEM_HOST_ENABLE", "0"),),
    (("NCCL_P2P_DISABLE", "1"),),
    (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")),
)
"""What is tried when NCCL fails by itself, the cheapest first. The first concerns GPUs on NVSwitches only."""

WORKAROUNDS = ("NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
"""Variables that the plain trial is made without: whether they are needed is what it finds out."""

# Of what a rank prints: NCCL's warnings, and the last line of a Python traceback. The first group is host and process.
_TELLING = re.compile(
    r"(?:\S+:\d+:\d+ \[\d+\] )?(?:.*?(NCCL WARN .*)|(\w+(?:\.\w+)*(?:Error|Exception)\b.*))"
)


@dataclass(frozen=True)
class Trial:
    """One trial with these `variables` set.

    `works`: every rank had the right result in time. `wrong`: some rank had a wrong one. `stuck` says what the slowest rank
    was doing when it failed, `ended` how the ranks ended that did (exit codes, signals as negative numbers), `said` what
    NCCL and torch complained about. `first` is how long the first collective took, in seconds; `bandwidth` is the bus
    bandwidth in GB/s (nccl-tests) with 16 MiB, 0 when it came to none. `seconds` is how long the trial took.
    """

    variables: Remedy = ()
    works: bool = False
    wrong: bool = False
    stuck: str = ""
    ended: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    first: float = 0.0
    bandwidth: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Collective:
    """The trials on these GPUs in order: plain, and when that failed the remedies up to the first that works."""

    gpus: tuple[int, ...]
    nccl: str
    trials: tuple[Trial, ...]

    @property
    def plain(self) -> Trial:
        """The trial without any remedy."""
        return self.trials[0]

    @property
    def remedy(self) -> Remedy:
        """The variables with which it works when it does not without, empty when there are none."""
        return self.trials[-1].variables if self.trials[-1].works else ()


@collector(timeout=(LIMIT + _GRACE) * (1 + len(REMEDIES)) + 10)
def collective(
    machine: Machine,
    interpreter: Interpreter,
    gpus: Gpus,
    visible: VisibleDevices,
    launch: Launch | Unknown,
) -> Collective | Unknown:
    """Try it plain, and as long as that fails with one remedy after the other."""
    mine = [device for device in gpus.sound if device.index in visible.devices]
    obstacle = _obstacle(mine, gpus)
    if obstacle is not None:
        return obstacle
    numbers = tuple(device.index for device in mine)
    job = {
        **_given_by(launch),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's
        VISIBLE_DEVICES: ",".join(map(str, numbers)),
        "NCCL_DEBUG": "WARN",
    }
    trials: list[Trial] = []
    version = ""
    for variables in ((), *_remedies(mine, {**machine.environ, **job})):
        told = try_collective(machine, interpreter.executable, "nccl", len(mine), {**job, **dict(variables)})
        if isinstance(told, Unknown):
            return told
        if why := _no_fault_of_nccl(told):
            return Unknown(why)
        version = version or next((rank["nccl"] for rank in told["ranks"] if "nccl" in rank), "")
        trials.append(_trial(variables, told))
        if trials[-1].works:
            break
    return Collective(numbers, version, tuple(trials))


def _obstacle(mine: Sequence[Device], gpus: Gpus) -> Unknown | None:
    """Why nothing is tried."""
    if len(mine) < 2:
        return Absent(f"a collective needs two GPUs, and the job sees {len(mine)} of {len(gpus.devices)}")
    if any(device.mig for device in mine):
        return Absent("NCCL does not run on the parts of a divided GPU")
    for device in mine:
        if device.memory and device.memory.free < _NEEDED:
            return Unknown(f"GPU {device.index} has only {device.memory.free} MiB free, too little to try")
    return None


def _remedies(mine: Sequence[Device], environ: Mapping[str, str]) -> Iterator[Remedy]:
    """Those that may change something: not what the job has already, and no multicast where there are no switches."""
    switches = any(device.fabric.state == "completed" for device in mine)
    for remedy in REMEDIES:
        needless = remedy[0][0] == "NCCL_NVLS_ENABLE" and not switches
        has = all(name not in WORKAROUNDS and environ.get(name) == value for name, value in remedy)
        if not needless and not has:
            yield remedy


def _given_by(launch: Launch | Unknown) -> dict[str, str]:
    """NCCL's variables that launch files set."""
    settings = () if isinstance(launch, Unknown) else launch.settings
    return {
        one.name: one.value
        for one in settings
        if one.name.startswith("NCCL_") and one.value is not None and not one.conditional
        if one.name not in WORKAROUNDS
    }


def try_collective(
    machine: Machine,
    python: str,
    backend: str,
    world: int,
    variables: Mapping[str, str],
    limit: float = LIMIT,
) -> dict[str, Any] | Unknown:
    """Run one trial; see `child_collective` for what it answers."""
    from verl_doctor.toolkit import child_collective  # noqa: PLC0415

    token = f"verl-doctor {secrets.token_hex(8)} "
    text = Path(child_collective.__file__).read_text("utf-8")
    given = [f"{name}={value}" for name, value in variables.items()]
    command = [python, "-c", text, token, backend, str(world), str(limit), ",".join(WORKAROUNDS), *given]
    try:
        answer = machine.run(command, timeout=limit + _GRACE)
    except OSError as error:
        return Unknown(f"{python} cannot be started: {error.strerror}")
    _, found, rest = answer.stdout.rpartition(token)
    try:
        told = json.loads(rest.partition("\n")[0]) if found else None
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return Unknown(f"a collective could not be tried: {answer.said[:_LONGEST_LINE]}")
    return told


def _no_fault_of_nccl(told: Mapping[str, Any]) -> str:
    """Why a trial says nothing about NCCL: some rank did not get so far."""
    for rank in told["ranks"]:
        stage = rank.get("stage", "starting")
        if stage in ("starting", "importing torch", "opening the GPU"):
            how = "took too long" if rank["ended"] is None else "failed"
            said = "".join(f": {line}" for line in list(_telling(rank["printed"]))[-1:])
            return f"a collective could not be tried: {stage} {how}{said}"
    return ""


def _trial(variables: Remedy, told: Mapping[str, Any]) -> Trial:
    ranks: Sequence[Mapping[str, Any]] = told["ranks"]
    wrong = any(rank.get("wrong") for rank in ranks)
    behind = [rank for rank in ranks if rank.get("stage") != "done"]
    said = dict.fromkeys(line for rank in ranks for line in _telling(rank["printed"]))
    return Trial(
        variables,
        works=not behind and not wrong,
        wrong=wrong,
        stuck=behind[0].get("stage", "starting") if behind else "",
        ended=tuple(rank["ended"] for rank in ranks if rank["ended"] is not None),
        said=tuple(said)[:_MOST_LINES] if behind or wrong else (),
        first=round(max((rank.get("first", 0.0) for rank in ranks), default=0.0), 3),
        bandwidth=round(min((rank.get("bandwidth", 0.0) for rank in ranks), default=0.0), 1),
        seconds=round(float(told["seconds"]), 1),
    )


def _telling(printed: str) -> Iterator[str]:
    for line in printed.splitlines():
        if match := _TELLING.fullmatch(line.strip()):
            yield (match[1] or match[2])[:_LONGEST_LINE]
