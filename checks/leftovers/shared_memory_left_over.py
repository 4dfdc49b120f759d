"""LEFT102: shared memory segments of dead jobs occupy memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.leftovers._left_files import GIB, file, held, named, proven, severity
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import FileLeftovers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import Kept
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_WORTH_A_WORD = 64 << 20
_ROOMY = SharedMemory(size=1000 * GIB, free=900 * GIB)
_SMALL = SharedMemory(size=8 * GIB, free=1 * GIB)


def _examples() -> list[Example]:
    return [
        Example("nothing is left over", (FileLeftovers(), _SMALL)),
        Example(
            "empty queues, of which only a page is used",
            (FileLeftovers((file("shared memory", "/dev/shm/psm_0123abcd", 4096),) * 4), _SMALL),
        ),
        Example(
            "weights that a process maps",
            (
                FileLeftovers(
                    kept=(
                        Kept(
                            "shared memory",
                            "/dev/shm/verl_weights_0123abcd",
                            "it is in use",
                            2 * GIB,
                            "shared memory",
                        ),
                    )
                ),
                _SMALL,
            ),
        ),
        Example(
            "weights of a dead job",
            (FileLeftovers((file("shared memory", "/dev/shm/verl_weights_0123abcd", 2 * GIB),)), _ROOMY),
            "1 segment of shared memory that nothing uses takes 2.0 GiB",
        ),
        Example(
            "a small /dev/shm full of NCCL's segments",
            (FileLeftovers((file("shared memory", "/dev/shm/nccl-a1b2c3", 33 << 20),) * 200), _SMALL),
            "200 segments of shared memory that nothing uses take 6.4 GiB",
        ),
    ]


@check("LEFT102", severity="warning", examples=_examples)
def shared_memory_left_over(left: FileLeftovers, shm: SharedMemory | Unknown) -> Iterator[Finding]:
    """Shared memory segments of dead jobs occupy memory.

    ## Why it matters

    What a killed job had in /dev/shm (vLLM's queues, NCCL's buffers, verl's weights on their way to vLLM)
    stays until the machine restarts, and counts as used memory. When /dev/shm is full, NCCL and vLLM stop
    with `No space left on device` or a bus error.

    ## How to fix

    `verl-doctor clean` shows each; `verl-doctor clean --apply` removes those that, according to the kernel,
    no process in any container has open or mapped.
    """
    found = left.of("shared memory")
    taken = held(found)
    if taken < _WORTH_A_WORD:
        return
    free = None if isinstance(shm, Unknown) else shm.free
    yield Finding(
        (
            f"{counted(len(found), 'segment')} of shared memory that nothing uses "
            f"take{'' if len(found) > 1 else 's'} {in_bytes(taken)}: {named(found)}"
        ),
        Evidence(
            found=f"{in_bytes(taken)}" + ("" if free is None else f", and {in_bytes(free)} free in /dev/shm"),
            wanted="nothing",
            read_from=proven(found),
        ),
        subject=Subject("memory", "/dev/shm"),
        remedy="run verl-doctor clean to see them all, and with --apply to remove them",
        severity=severity(taken, free),
    )
