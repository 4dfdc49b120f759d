"""HOST113: the kernel does not overcommit memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_GIB = 1 << 30


def _example(memory: HostMemory) -> tuple[object, ...]:
    return memory, HERE


def _strict(limit: int, committed: int) -> HostMemory:
    return HostMemory(
        total=250 * _GIB,
        available=240 * _GIB,
        overcommit=2,
        commit_limit=limit * _GIB,
        committed=committed * _GIB,
    )


def _examples() -> list[Example]:
    return [
        Example(
            "Linux's default",
            _example(
                HostMemory(
                    total=250 * _GIB,
                    available=240 * _GIB,
                    overcommit=0,
                    commit_limit=125 * _GIB,
                    committed=1 * _GIB,
                )
            ),
        ),
        Example(
            "strict overcommit, with half of the memory",
            _example(_strict(125, 20)),
            "commit at most 105 GiB more",
        ),
    ]


@check("HOST113", severity="warning", examples=_examples)
def memory_is_not_promised(memory: HostMemory, here: JobHere) -> Iterator[Finding]:
    """The kernel does not overcommit memory.

    ## Why it matters

    With vm.overcommit_memory=2 every mapping counts when it is made, not when it is used. CUDA, NCCL and vLLM
    map many times what they use, and a fork counts its parent again. The result is `OSError: [Errno 12]
    Cannot allocate memory` while most of the memory is free, as in verl-project/verl#3210.

    ## How to fix

    Run `sysctl vm.overcommit_memory=0` as root (1 works too), or ask the administrator. Adding swap space
    also raises the limit.
    """
    if memory.overcommit != 2 or memory.commit_limit is None or memory.committed is None:
        return
    left = max(0, memory.commit_limit - memory.committed)
    yield Finding(
        f"vm.overcommit_memory is 2: the kernel will commit at most {in_bytes(left)} more, used or not",
        Evidence(
            found=f"CommitLimit {in_bytes(memory.commit_limit)}, Committed_AS {in_bytes(memory.committed)}",
            wanted="vm.overcommit_memory 0 or 1",
            read_from="/proc/meminfo",
        ),
        subject=Subject("limit", "vm.overcommit_memory"),
        remedy="run as root: sysctl vm.overcommit_memory=0",
        severity=hint(here),
    )
