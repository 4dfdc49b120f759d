"""CUDA156: GPUs cannot access each other's memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, healthy, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus, Peers
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import counted, listed

_ALL = VisibleDevices(tuple(range(8)))
_CARDS = (healthy(links=0, links_active=0), healthy(1, links=0, links_active=0))
_LINKED = (healthy(), healthy(1))
_SHOWN = 4


def _examples() -> list[Example]:
    return [
        Example(
            "they reach each other",
            (node(*_LINKED, peers=(Peers(first=0, second=1, read="ok", nvlink=True),)), _ALL),
        ),
        Example(
            "a driver that does not report it",
            (node(*_LINKED, peers=(Peers(first=0, second=1, read="unknown (None)"),)), _ALL),
        ),
        Example(
            "the job uses one of the GPUs",
            (
                node(*_CARDS, peers=(Peers(first=0, second=1, read="GPU not supported"),)),
                VisibleDevices((0,)),
            ),
        ),
        Example(
            "gaming GPUs",
            (node(*_CARDS, peers=(Peers(first=0, second=1, read="GPU not supported"),)), _ALL),
            "GPUs 0 and 1 cannot access each other's memory: GPU not supported",
        ),
        Example(
            "although NVLinks are up",
            (node(*_LINKED, peers=(Peers(first=0, second=1, read="topology not supported"),)), _ALL),
            "although they have NVLinks",
        ),
    ]


@check("CUDA156", severity="info", requires={"CUDA140"}, examples=_examples)
def gpus_without_peer_access(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """GPUs cannot access each other's memory.

    ## Why it matters

    NCCL then goes through the host's memory, and vLLM's own all-reduce is off. On consumer GPUs this is
    by design and only slower, but with some drivers and releases of NCCL it fails (`Cuda failure 217
    'peer access is not supported between these two devices'`) or hangs. Between GPUs with NVLinks it is
    a fault, or peer access was turned off.

    ## How to fix

    `verl-doctor check --deep` runs a real all-reduce and, if it fails, names the variable with which it works
    (NET130). For GPUs with NVLinks, check the settings of NVIDIA's kernel module and of the hypervisor.
    """
    mine = {device.index: device for device in of_job(gpus, visible)}
    apart = [pair for pair in gpus.peers if _is_apart(pair) and {pair.first, pair.second} <= mine.keys()]
    linked = [pair for pair in apart if mine[pair.first].links_active and mine[pair.second].links_active]
    pairs = linked or apart
    if pairs:
        ends = {index for pair in pairs for index in (pair.first, pair.second)}
        pairs_text = listed((f"{pair.first} and {pair.second}" for pair in pairs), _SHOWN)
        yield Finding(
            f"GPUs {pairs_text} cannot access each other's memory: {pairs[0].read}"
            + (", although they have NVLinks" if linked else ""),
            Evidence(
                found=f"{counted(len(pairs), 'pair')}: {', '.join(sorted({pair.read for pair in pairs}))}",
                wanted="peer access",
                read_from=f"{NVML}, driver {gpus.driver}",
            ),
            remedy="test whether NCCL works here: verl-doctor check --deep",
            severity="warning" if linked else None,
            subject=about(mine[index] for index in sorted(ends)),
        )


def _is_apart(pair: Peers) -> bool:
    return pair.read != "ok" and not pair.read.startswith("unknown")
