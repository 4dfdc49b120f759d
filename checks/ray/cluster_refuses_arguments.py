"""RAY103: the job tells a Ray that it would join how many CPUs or GPUs to have."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.ray._ray_arguments import refused_arguments
from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_CPUS = "ray_kwargs.ray_init.num_cpus"
_LIVE = RayAddresses((ray_place(source="address file"),))


@check(
    "RAY103",
    phase="ray",
    examples=lambda: [
        Example("a Ray of the job's own", (RayAddresses(), *configured(f"{_CPUS}=16"))),
        Example("null", (_LIVE, *configured(f"{_CPUS}=null"))),
        Example("a new one is asked for", (RayAddresses((ray_place("local"), *_LIVE.places)), *configured(f"{_CPUS}=16"))),
        Example("nobody answers, which is another matter", (RayAddresses((ray_place(source="address file", reply="refused"),)), *configured(f"{_CPUS}=16"))),
        Example("the script starts a Ray itself", (RayAddresses((ray_place(source="ray start --head", reply="refused"),)), *configured(f"{_CPUS}=16")), "the script starts one at 10.0.0.5:6379"),
        Example("CPUs", (_LIVE, *configured(f"{_CPUS}=16")), f"{_CPUS}=16 is refused"),
        Example("GPUs, and an address that is given", (RayAddresses((ray_place(),)), *configured("+ray_kwargs.ray_init.num_gpus=8")), "10.0.0.5:6379 runs already"),
    ],
)  # fmt: skip
def cluster_refuses_arguments(addresses: RayAddresses, configuration: Configuration) -> Iterator[Finding]:
    """The job tells a running Ray how many CPUs or GPUs to have.

    ## Why it matters

    verl hands the keys below `ray_kwargs.ray_init` to `ray.init()`. Where that finds a running cluster, by RAY_ADDRESS or by the file
    of its last start on this machine, it stops at once: `When connecting to an existing cluster, num_cpus and num_gpus must not be
    provided.`

    ## How to fix

    Leave the key away and tell `ray start` instead, or end the Ray that runs if nothing needs it. On one machine `RAY_ADDRESS=local`
    starts a Ray of the job's own beside it.
    """
    taken = addresses.taken
    if taken is None or taken.source == "--ray-address":
        return
    if taken.source == "ray start --head":
        runs = f"the script starts one at {taken.address or 'its head'}"
    elif taken.reply == "connected":
        runs = f"the one at {taken.address} runs already"
    else:
        return
    for word in refused_arguments(configuration):
        yield Finding(
            f"{word.text.lstrip('+')} is refused when a Ray is joined, and {runs}",
            Evidence(word.text, "no such key", taken.said_by),
            subject=Subject("setting", word.key),
            location=place(word),
            remedy=f"leave {word.key} away; or RAY_ADDRESS=local for a Ray of this job's own",
        )
