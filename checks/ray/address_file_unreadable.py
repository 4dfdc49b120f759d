"""RAY119: the file with the last Ray's address is not readable."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import FILE, ray_place
from verl_doctor.toolkit.collectors.ray.addresses import AddressFile, RayAddresses
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_CLOSED = AddressFile(path=FILE, owner="eve", mine=False, readable=False)


def _examples() -> list[Example]:
    return [
        Example("a readable file", (RayAddresses(file=AddressFile(path=FILE, owner="eve", mine=False)),)),
        Example("none", (RayAddresses(),)),
        Example("an address is named", (RayAddresses((ray_place(),), file=_CLOSED),)),
        Example("another user's file", (RayAddresses(file=_CLOSED),), "belongs to eve and is not readable"),
    ]


@check("RAY119", phase="ray", examples=_examples)
def address_file_unreadable(addresses: RayAddresses) -> Iterator[Finding]:
    """The file with the last Ray's address is not readable.

    ## Why it matters

    Another user's Ray wrote it with a strict umask. `ray.init()` and `ray start` read it before anything
    else, and stop: `PermissionError: [Errno 13] Permission denied: '/tmp/ray/ray_current_cluster'`.

    ## How to fix

    Keep your Ray in a folder of your own: `export RAY_TMPDIR=/tmp/ray-$USER` for `ray start` and for the job.
    """
    file = addresses.file
    if file is None or file.readable or addresses.submitted:
        return
    named = addresses.of("ray.init") or addresses.of("RAY_ADDRESS")
    if named is not None and named.text != "auto" and addresses.head is None:
        return
    yield Finding(
        (
            f"{file.path} belongs to {file.owner} and is not readable: ray.init() and ray start would stop "
            "with PermissionError"
        ),
        Evidence(f"a file of {file.owner}", "a file that this user may read and write, or none", file.path),
        subject=Subject("file", file.path),
        location=Location(file.path),
        remedy="export RAY_TMPDIR=/tmp/ray-$USER for ray start and for the job",
    )
