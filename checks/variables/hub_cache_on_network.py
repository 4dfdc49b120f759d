"""ENV117: models of Hugging Face are read over the network."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.caches import HUGGING_FACE, TRITON, here
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

# sgl-project/sglang#37806: 28 MiB/s when weights are mapped from a network file system, page by page; as of 2026-11.
_COST = (
    "measured elsewhere: 28 MiB/s when weights are mapped page by page, against 704 GiB in 43 s read ahead"
)


@check(
    "ENV117",
    severity="info",
    examples=lambda: [
        Example("on a disk of the node", (here(HUGGING_FACE(kind="xfs", mounted_on="/data")),)),
        Example("compiled code there is another rule's", (here(TRITON(kind="nfs4", mounted_on="/home", shared=True, is_root=False)),)),
        Example("all of the system lies there", (here(HUGGING_FACE(kind="nfs4", shared=True, is_root=True)),)),
        Example("on Lustre", (here(HUGGING_FACE(kind="lustre", mounted_on="/fs", shared=True)),), "HF_HOME lies on lustre (/fs)"),
    ],
)  # fmt: skip
def hub_cache_on_network(caches: Caches) -> Iterator[Finding]:
    """Hugging Face models are fetched over the network.

    ## Why it matters

    One copy for all nodes is right for downloads. But each worker of each node maps the weights from there, and over a network
    file system mapped pages come one by one: loading takes tens of minutes where a disk of the node takes one.

    ## How to fix

    `verl-doctor warmup` reads the model into memory before the job, on all nodes with `--cluster`. Or copy the snapshot to a disk of
    each node and give its path. Newer vLLM reads ahead with `engine_kwargs.vllm.safetensors_load_strategy=prefetch`.
    """
    for folder in caches.folders:
        if folder.variable == "HF_HOME" and folder.shared and not folder.is_root:
            yield Finding(
                f"HF_HOME lies on {folder.kind} ({folder.mounted_on}): each worker reads its weights over the network",
                Evidence(folder.path, _COST, folder.set_by or "the default of huggingface_hub"),
                subject=Subject("variable", folder.variable),
                remedy="run verl-doctor warmup before the job, or give a copy of the model on a disk of the node",
            )
