"""RAY102: the file with the last Ray's address points to one that has stopped."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.ray._ray_arguments import refused_arguments
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.ray import FILE, MINE, ray_place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.ray.addresses import AddressFile, RayAddresses
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_time

_DEAD = ray_place(source="address file", reply="refused", error="Connection refused")
_NO_SCRIPT = (Configuration, Absent("no launch script was named"))
_STALE = RayAddresses((_DEAD,), file=AddressFile(path=FILE, owner="me", age=7200))


def _examples() -> list[Example]:
    return [
        Example("its Ray answers", (RayAddresses((ray_place(source="address file"),)), _NO_SCRIPT)),
        Example("no file", (RayAddresses(), _NO_SCRIPT)),
        Example("RAY_ADDRESS takes precedence", (RayAddresses((ray_place(), _DEAD)), _NO_SCRIPT)),
        Example("the job starts a new Ray", (RayAddresses((ray_place("local"), _DEAD)), _NO_SCRIPT)),
        Example(
            "the script starts a head, which rewrites it",
            (RayAddresses((_DEAD, ray_place(source="ray start --head", reply="refused"))), _NO_SCRIPT),
        ),
        Example(
            "its processes run in another network namespace",
            (RayAddresses(places=(_DEAD,), running=(MINE,)), _NO_SCRIPT),
        ),
        Example("a job that was killed", (_STALE, _NO_SCRIPT), "ray.init() would wait for it forever"),
        Example(
            "with the CPUs that verl passes to Ray",
            (_STALE, *configured("ray_kwargs.ray_init.num_cpus=16")),
            "num_cpus and num_gpus must not be provided",
        ),
        Example(
            "another user's file",
            (RayAddresses((_DEAD,), file=AddressFile(path=FILE, owner="eve", mine=False)), _NO_SCRIPT),
            "which eve wrote, names",
        ),
    ]


@check("RAY102", phase="ray", examples=_examples)
def address_file_stale(addresses: RayAddresses, configuration: Configuration | Unknown) -> Iterator[Finding]:
    """The file with the last Ray's address points to one that has stopped.

    ## Why it matters

    A Ray that was killed leaves `ray_current_cluster` behind. `ray.init()` without an address reads it and
    waits forever. With `num_cpus` or `num_gpus`, which verl passes, it stops at once and blames a cluster
    that does not exist: `When connecting to an existing cluster, num_cpus and num_gpus must not be provided.`

    ## How to fix

    `verl-doctor clean` shows the file with the proof that nothing needs it; `--apply` removes it.
    `RAY_ADDRESS=local` makes one job on this machine ignore it and start its own Ray.
    """
    place = addresses.taken
    if place is None or place.source != "address file" or place.reply in ("", "connected"):
        return
    if addresses.ray_at(place.address) is not None:
        return
    given = refused_arguments(configuration)
    effect = (
        (
            "ray.init() would stop with 'When connecting to an existing cluster, num_cpus and num_gpus must "
            "not be provided'"
        )
        if given
        else "ray.init() would wait for it forever"
    )
    file = addresses.file
    whose = "" if file is None or file.mine else f", which {file.owner} wrote,"
    age = f", written {in_time(file.age)} ago" if file is not None and file.age else ""
    yield Finding(
        f"{place.given_by}{whose} names {place.address}, but no Ray answers there: {effect}",
        Evidence(
            f"{place.address}: {place.error or place.reply}{age}",
            "no such file, or a running Ray",
            place.given_by,
        ),
        subject=Subject("file", place.given_by),
        remedy="run verl-doctor clean --apply to remove it"
        if file is None or file.mine
        else f"ask {file.owner} to remove it, or keep your Ray elsewhere: export RAY_TMPDIR=/tmp/ray-$USER",
    )
