"""ENV117: Hugging Face models are read over the network."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.caches import HUGGING_FACE, TRITON, here
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

# sgl-project/sglang#37806: 28 MiB/s when weights are mapped from a network file system, page by page; as of
# 2026-11.
_COST = (
    "measured elsewhere: 28 MiB/s when weights are mapped page by page, against 704 GiB in 43 s read ahead"
)


def _examples() -> list[Example]:
    return [
        Example("on a disk of the node", (here(HUGGING_FACE(kind="xfs", mounted_on="/data")),)),
        Example(
            "compiled code there, which another rule reports",
            (here(TRITON(kind="nfs4", mounted_on="/home", shared=True, is_root=False)),),
        ),
        Example("the whole system is on it", (here(HUGGING_FACE(kind="nfs4", shared=True, is_root=True)),)),
        Example(
            "on Lustre",
            (here(HUGGING_FACE(kind="lustre", mounted_on="/fs", shared=True)),),
            "HF_HOME is on lustre (/fs)",
        ),
    ]


@check("ENV117", severity="info", examples=_examples)
def hub_cache_on_network(caches: Caches) -> Iterator[Finding]:
    """Hugging Face models are read over the network.

    ## Why it matters

    A single copy for all nodes is good for downloads. But each worker on each node maps the weights from
    there, and a network file system delivers mapped pages one at a time: loading takes tens of minutes, where
    a local disk takes one.

    ## How to fix

    Run `verl-doctor warmup` before the job; it reads the model into memory, on all nodes with `--cluster`. Or
    copy the snapshot to a local disk of each node and use its path. Newer vLLM releases read ahead with
    `engine_kwargs.vllm.safetensors_load_strategy=prefetch`.
    """
    for folder in caches.folders:
        if folder.variable == "HF_HOME" and folder.shared and not folder.is_root:
            yield Finding(
                (
                    f"HF_HOME is on {folder.kind} ({folder.mounted_on}): each worker reads the weights over "
                    "the network"
                ),
                Evidence(folder.path, _COST, folder.set_by or "the default of huggingface_hub"),
                subject=Subject("variable", folder.variable),
                remedy="run verl-doctor warmup before the job, or use a copy of the model on a local disk",
            )
