"""RAY103: the job sets the number of CPUs or GPUs of a Ray that is already running."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.ray._ray_arguments import refused_arguments
from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_CPUS = "ray_kwargs.ray_init.num_cpus"
_LIVE = RayAddresses((ray_place(source="address file"),))


def _examples() -> list[Example]:
    return [
        Example("a Ray of the job's own", (RayAddresses(), *configured(f"{_CPUS}=16"))),
        Example("null", (_LIVE, *configured(f"{_CPUS}=null"))),
        Example(
            "the job starts a new Ray",
            (RayAddresses((ray_place("local"), *_LIVE.places)), *configured(f"{_CPUS}=16")),
        ),
        Example(
            "nothing answers, which RAY102 reports",
            (RayAddresses((ray_place(source="address file", reply="refused"),)), *configured(f"{_CPUS}=16")),
        ),
        Example(
            "the script starts a Ray itself",
            (
                RayAddresses((ray_place(source="ray start --head", reply="refused"),)),
                *configured(f"{_CPUS}=16"),
            ),
            "the script starts one at 10.0.0.5:6379",
        ),
        Example("CPUs", (_LIVE, *configured(f"{_CPUS}=16")), f"{_CPUS}=16 is refused"),
        Example(
            "GPUs, and a given address",
            (RayAddresses((ray_place(),)), *configured("+ray_kwargs.ray_init.num_gpus=8")),
            "10.0.0.5:6379 is already running",
        ),
    ]


@check("RAY103", phase="ray", examples=_examples)
def cluster_refuses_arguments(addresses: RayAddresses, configuration: Configuration) -> Iterator[Finding]:
    """The job sets the number of CPUs or GPUs of a Ray that is already running.

    ## Why it matters

    verl passes the keys below `ray_kwargs.ray_init` to `ray.init()`. If that finds a running cluster, through
    RAY_ADDRESS or the file of the last start on this machine, it stops at once: `When connecting to an
    existing cluster, num_cpus and num_gpus must not be provided.`

    ## How to fix

    Remove the key and pass the number to `ray start` instead, or stop the running Ray if nothing needs it. On
    a single machine `RAY_ADDRESS=local` starts a separate Ray for the job.
    """
    taken = addresses.taken
    if taken is None or taken.source == "--ray-address":
        return
    if taken.source == "ray start --head":
        runs = f"the script starts one at {taken.address or 'its head'}"
    elif taken.reply == "connected":
        runs = f"the one at {taken.address} is already running"
    else:
        return
    for word in refused_arguments(configuration):
        yield Finding(
            f"{word.text.lstrip('+')} is refused when the job joins a Ray, and {runs}",
            Evidence(word.text, "no such key", taken.given_by),
            subject=Subject("setting", word.key),
            location=place(word),
            remedy=f"remove {word.key}; or set RAY_ADDRESS=local to start a separate Ray for this job",
            **healed(
                "RAY103",
                settings(configuration, {word.key: LEAVE_OUT}, "the Ray that runs has its own number"),
            ),
        )
