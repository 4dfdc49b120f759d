"""PKG104: a file was edited and its time put back."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.packages._installed import below_site, reinstall
from verl_doctor.toolkit.collectors.packages.records import Drift, HashedRecords
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_EDITED = Drift(
    package="ray",
    version="2.49.0",
    path="/env/lib/python3.11/site-packages/ray/worker.py",
    state="changed",
    sha256="ab" * 32,
)


def _examples() -> list[Example]:
    return [
        Example("every file has the recorded content", (HashedRecords(3_000),)),
        Example(
            "a file has other content of the same size",
            (HashedRecords(read=3_000, drifts=(_EDITED,)),),
            "ray/worker.py",
        ),
    ]


@check("PKG104", severity="warning", cost="live", examples=_examples)
def edit_with_old_time(hashed: HashedRecords) -> Iterator[Finding]:
    """A file was edited and its modification time was reset.

    ## Why it matters

    Its size and time match those of the wheel, but its content does not. Some patch scripts restore the time,
    and a damaged disk or copy looks the same. Only reading all files shows it, so this rule needs `--deep`
    and takes a few seconds per gigabyte; later runs read only what changed.

    ## How to fix

    Reinstall the package: `pip install --force-reinstall --no-deps NAME==VERSION`. If a library (`.so`) is
    affected, suspect the disk too.
    """
    for drift in hashed.drifts:
        yield Finding(
            f"{below_site(drift.path)} of {drift.package} {drift.version} differs from its wheel, "
            f"although its size and time match"
            + (f"; it is marked '{', '.join(drift.markers)}'" if drift.markers else ""),
            Evidence(
                found=f"SHA-256 {drift.sha256}",
                wanted="the SHA-256 in RECORD",
                read_from=f"RECORD of {drift.package} {drift.version}",
            ),
            location=Location(drift.path),
            remedy=f"reinstall it: {reinstall(drift.package, drift.version, drift.installer)}",
            subject=Subject("file", drift.path),
        )
