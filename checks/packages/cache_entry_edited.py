"""PKG103: a file in an installer's cache was edited through an environment that links to it."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.packages._installed import below_site, cache_of
from verl_doctor.toolkit.collectors.packages.records import Drift, PackageRecord, Records
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, listed

_SHOWN = 5

_ENGINE = "/env/lib/python3.11/site-packages/vllm/v1/engine/async_llm.py"
_EDITED = Drift(
    package="vllm", version="0.11.0", path=_ENGINE, state="changed", sha256="ab" * 32, links=1, installer="uv"
)
_IN_CACHE = Drift(
    package="vllm", version="0.11.0", path=_ENGINE, state="changed", sha256="ab" * 32, links=3, installer="uv"
)
_IN_BACKUP = Drift(
    package="vllm",
    version="0.11.0",
    path=_ENGINE,
    state="changed",
    sha256="ab" * 32,
    links=3,
    installer="pip",
)
_GONE = Drift(package="vllm", version="0.11.0", path=_ENGINE, state="missing", installer="uv")


def _facts(*drifts: Drift) -> tuple[Records]:
    return (
        Records(
            packages=(
                PackageRecord(
                    package="vllm",
                    version="0.11.0",
                    files=3_000,
                    trusted=3_000,
                    unread=0,
                    missing=0,
                    changed=len(drifts),
                ),
            ),
            drifts=drifts,
        ),
    )


def _examples() -> list[Example]:
    return [
        Example("all files are the wheel's", _facts()),
        Example("an edit that replaced the file stays in this environment", _facts(_EDITED)),
        Example("a missing file affects no other environment", _facts(_GONE)),
        Example("pip keeps no links, so the other names are a backup's", _facts(_IN_BACKUP)),
        Example("the file that was edited has other names too", _facts(_IN_CACHE), "every other environment"),
    ]


@check("PKG103", severity="warning", examples=_examples)
def cache_entry_edited(records: Records) -> Iterator[Finding]:
    """A file in an installer's cache was edited through an environment that links to it.

    ## Why it matters

    uv and conda do not copy files: a file in site-packages and the one in their cache are the same file under
    two names (hard links). An edit made in place therefore changed the cache too, and all environments built
    from it, now and later, contain the edit. Reinstalling brings it back. See uv#10579, uv#15700 and
    conda#679.

    Other tools make hard links too, for instance a backup with `cp -al`. This rule covers only what uv or
    conda installed; PKG102 covers other edited files with several names.

    ## How to fix

    Remove the entry from the cache, then reinstall the package in each environment. With uv: `uv cache clean
    NAME`, then `uv pip install --reinstall-package NAME NAME==VERSION`. With conda: `conda clean --packages`,
    then `conda install --force-reinstall NAME`. When you edit an installed file, write a new file and rename
    it over the old one, as verl-doctor does, or install with `UV_LINK_MODE=copy`.
    """
    edited: dict[str, list[Drift]] = {}
    for drift in records.drifts:
        if drift.state == "changed" and cache_of(drift):
            edited.setdefault(drift.package, []).append(drift)
    for drifts in edited.values():
        yield _finding(drifts)


def _finding(drifts: list[Drift]) -> Finding:
    first = drifts[0]
    cache = cache_of(first)
    names = f"a link to {first.leads_to}" if first.leads_to else f"a file with {first.links} names"
    return Finding(
        (
            f"{counted(len(drifts), 'file')} of {first.package} {first.version} "
            f"{'was' if len(drifts) == 1 else 'were'} edited in {cache}'s cache, so every other environment "
            "built from it has the edit too: "
        )
        + listed((below_site(drift.path) for drift in drifts), _SHOWN),
        Evidence(
            found=f"{first.path} is {names}, installed by {cache}, and differs from the wheel",
            wanted=f"the files that the wheel of {first.package} {first.version} contained",
            read_from=f"RECORD of {first.package} {first.version}",
        ),
        location=Location(first.path),
        remedy=_remedy(first, cache),
        also=tuple(Location(drift.path) for drift in drifts[1 : _SHOWN + 1]),
        subject=Subject("file", first.path),
    )


def _remedy(drift: Drift, cache: str) -> str:
    wanted = f"{drift.package}=={drift.version}"
    if cache == "conda":
        return f"conda clean --packages, then conda install --force-reinstall {drift.package}"
    return (
        f"uv cache clean {drift.package}, then in each environment: "
        f"uv pip install --reinstall-package {drift.package} {wanted}"
    )
