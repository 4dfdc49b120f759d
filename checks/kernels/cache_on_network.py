"""CUDA135: compiled code is kept on a file system that several machines share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from verl_doctor.checks.shared.caches import (
    COMPILED,
    HUGGING_FACE,
    TRITON,
    VLLM,
    compiled_and_shared,
    here,
    in_words,
    mount,
)
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import listed


def _examples() -> list[Example]:
    return [
        Example("on the node's own disk", (here(TRITON()),)),
        Example(
            "models are downloaded once for all nodes",
            (here(HUGGING_FACE(kind="nfs4", mounted_on="/home", shared=True)),),
        ),
        Example("the whole system is on it", (here(TRITON(kind="nfs4", shared=True)),)),
        Example("the home is on NFS", (here(TRITON(), VLLM()),), "compiled code is kept on nfs4 (/home)"),
        Example(
            "no disk of the node can be written", (here(VLLM(), local=""),), "compiled code is kept on nfs4"
        ),
    ]


@check("CUDA135", severity="warning", examples=_examples)
def cache_on_network(caches: Caches) -> Iterator[Finding]:
    """Compiled code is kept on a file system that several machines share.

    ## Why it matters

    Triton, torch.compile and vLLM write thousands of small files while an engine starts, from each process,
    and read what others have written. Over NFS or Lustre each file costs a round trip, and engines that start
    at once on several nodes read each other's incomplete entries: `Stale file handle`, `FileNotFoundError`, a
    corrupted compilation artifact.

    ## How to fix

    Give each node a folder on its own disk. If that disk is emptied after each job, every job compiles again;
    to avoid that, copy a warm cache there first. Hugging Face models and data may stay on the shared file
    system.
    """
    affected = [folder for folder in caches.folders if compiled_and_shared(folder)]
    affected.sort(key=lambda folder: (folder.mounted_on, folder.variable))
    for mounted_on, group in groupby(affected, key=lambda folder: folder.mounted_on):
        folders = list(group)
        yield Finding(
            f"compiled code is kept on {folders[0].kind} ({mounted_on}), which other machines share",
            Evidence(
                listed(map(in_words, folders), len(COMPILED)),
                "a folder on this node's own disk; what sharing costs is not measured",
                "/proc/self/mountinfo",
            ),
            remedy=(
                f"set {listed((folder.variable for folder in folders), len(COMPILED))} to "
                f"{'folders' if len(folders) > 1 else 'a folder'} on a disk of the node"
            )
            + (f", below {caches.local}" if caches.local else ""),
            fix="local-caches" if caches.local else None,
            subject=mount(folders[0]),
        )
