"""CFG111: the launch script asks for more GPUs than this machine has."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._configuration import GPUS, asked, place
from verl_doctor.checks._machine_settings import recommended
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_resources import Gpu, Resources
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import counted

_H200 = Gpu("NVIDIA H200", 143771)


def _machine(gpus: int, cpus: float = 16) -> Resources:
    return Resources((_H200,) * gpus, cpus, 128 << 30)


@check(
    "CFG111",
    severity="warning",
    requires={"CUDA152", "CUDA155"},
    examples=[
        Example("as many as there are", (*asked(), _machine(8))),
        Example("no driver here: a login node", (*asked(), Resources(None, 4, None, "there is no NVIDIA GPU here"))),
        Example("a value that is not known", (*asked(f"{GPUS}=${{oc.env:N}}"), _machine(1))),
        Example("8 of 1", (*asked(), _machine(1)), "asks for 8 GPUs on each node, and this machine has 1 GPU"),
    ],
)  # fmt: skip
def more_gpus_than_there_are(configuration: Configuration, resources: Resources) -> Iterator[Finding]:
    """The launch script asks for more GPUs than this machine has.

    ## Why it matters
    If the job is to run here, verl stops when it places its workers (`Total available GPUs ... is less than total desired GPUs`)
    or waits for ever for nodes that do not come. On a login node or for another machine the finding has no weight.

    ## How to fix
    Start from the settings that the finding names. They are computed from what is here: one tensor-parallel rank for one GPU,
    FSDP offload of parameters and optimizer, batches in proportion, micro batches by the GPU's memory, fewer samples and
    sequences at a time, memory left for the larger shards. Nothing was measured: raise them while the memory lasts.
    """
    wanted = configuration.number(GPUS)
    if resources.gpus is None or not wanted or wanted <= len(resources.gpus):
        return
    here = counted(len(resources.gpus), "GPU")
    word = configuration.asked_for(GPUS)
    settings = recommended(configuration, resources)
    yield Finding(
        f"the job asks for {wanted:g} GPUs on each node, and this machine has {here}",
        Evidence(
            found=f"{here}: {', '.join(sorted({f'{gpu.name} ({gpu.memory / 1024:.0f} GiB)' for gpu in resources.gpus}))}"
            if resources.gpus
            else here,
            wanted=f"{GPUS}={wanted:g}" + ("" if word else ", verl's default"),
            read_from="NVML",
        ),
        location=place(word) if word else None,
        remedy=f"To run it here, start from: {' '.join(settings)}" if settings else "",
    )
