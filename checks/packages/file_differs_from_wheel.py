"""PKG102: installed files are not what their wheel contained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.checks.packages._installed import below_site, cache_of, reinstall
from verl_doctor.toolkit.collectors.packages.journal import ChangedFile, JournalEntry, JournalHistory
from verl_doctor.toolkit.collectors.packages.records import Drift, PackageRecord, Records
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, listed

# It does not matter to a job whether these are missing or changed. Images are slimmed by removing them, and
# conda writes its prefix into some.
_NEVER_RUN = (".pyi", ".cmake", ".md", ".txt", ".rst", ".pxd", ".pyx", ".typed", ".a", ".map", ".pc")
_HEADERS = (".h", ".hpp", ".cuh")
_SHOWN = 5

_ENGINE = "/env/lib/python3.11/site-packages/vllm/v1/engine/async_llm.py"
_EDITED = Drift(package="vllm", version="0.11.0", path=_ENGINE, state="changed", sha256="ab" * 32)
_MARKED = Drift(
    package="vllm", version="0.11.0", path=_ENGINE, state="changed", sha256="ab" * 32, markers=("Uky",)
)
_GONE = Drift(package="vllm", version="0.11.0", path=_ENGINE, state="missing")
_STUB_GONE = Drift(
    package="torch", version="2.8.0", path="/env/lib/python3.11/site-packages/torch/_VF.pyi", state="missing"
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
    links=2,
    installer="pip",
)
_OURS = JournalEntry(
    id="0007",
    time="2026-11-01T02:00:00Z",
    fix="init-app-state",
    code="VLLM101",
    state="applied",
    files=(ChangedFile(path=_ENGINE, after="ab" * 32),),
)


def _facts(*drifts: Drift, entries: tuple[JournalEntry, ...] = ()) -> tuple[Records, JournalHistory]:
    package = PackageRecord(
        package="vllm",
        version="0.11.0",
        files=3_000,
        trusted=3_000 - len(drifts),
        unread=0,
        missing=0,
        changed=len(drifts),
    )
    return Records(packages=(package,), drifts=drifts), JournalHistory(entries)


def _without_record(problem: str, installer: str = "pip") -> tuple[Records, JournalHistory]:
    record = "/env/lib/python3.11/site-packages/ray-2.49.0.dist-info/RECORD"
    package = PackageRecord(
        package="ray",
        version="2.49.0",
        files=0,
        trusted=0,
        unread=0,
        missing=0,
        changed=0,
        problem=problem,
        record=record,
        installer=installer,
    )
    return Records((package,)), JournalHistory()


def _examples() -> list[Example]:
    return [
        Example("all files are the wheel's", _facts()),
        Example("type stubs removed to make an image smaller", _facts(_STUB_GONE)),
        Example("the installer's cache was edited, which another rule reports", _facts(_IN_CACHE)),
        Example(
            "a backup has the same file under another name",
            _facts(_IN_BACKUP),
            "1 of these is hard-linked elsewhere",
        ),
        Example("a file was edited by hand", _facts(_EDITED), "without a marker"),
        Example("a file was edited and marked", _facts(_MARKED), "marked 'Uky'"),
        Example("verl-doctor repaired it", _facts(_EDITED, entries=(_OURS,)), "repaired by verl-doctor"),
        Example("a source file is missing", _facts(_GONE), "missing"),
        Example("the list of its files is missing", _without_record("missing"), "its RECORD is missing"),
        Example("conda keeps another list", _without_record("missing", "conda"), "was not compared"),
    ]


@check("PKG102", severity="warning", examples=_examples)
def file_differs_from_wheel(records: Records, journal: JournalHistory | Unknown) -> Iterator[Finding]:
    """Installed files differ from what their wheel contained.

    ## Why it matters

    An edit inside site-packages is lost at the next installation, exists on this machine only, and appears in
    no bug report. A missing or truncated file usually comes from an interrupted installation, or from two
    packages that own the same file.

    Files of verl, vLLM, torch, Ray and transformers are compared with the RECORD of their wheel: first by
    size and time, then, where those look suspicious, by content. `--deep` compares the content of all.
    Without a RECORD an edit cannot be detected, and pip refuses to uninstall or upgrade the package.

    ## How to fix

    To keep the edit, save it as a patch outside the environment: `diff -u` against the file of a fresh wheel.
    Otherwise reinstall the package: `pip install --force-reinstall --no-deps NAME==VERSION`, or with
    `--ignore-installed` if its RECORD is missing. Files that verl-doctor repaired are listed for
    completeness; `verl-doctor undo` restores them.
    """
    history = JournalHistory() if isinstance(journal, Unknown) else journal
    groups: dict[tuple[str, _Author], list[Drift]] = {}
    for drift in records.drifts:
        if not (drift.state == "changed" and cache_of(drift)) and not _dispensable(drift):
            groups.setdefault((drift.package, _author(drift, history)), []).append(drift)
    for (_, author), drifts in groups.items():
        yield _finding(author, drifts)
    for package in records.packages:
        if package.problem:
            yield _uncompared(package)


def _uncompared(package: PackageRecord) -> Finding:
    """The finding for a package without a list of its files.

    If not in RECORD, conda lists the files of its packages elsewhere.
    """
    conda = package.installer == "conda" and package.problem == "missing"
    name = f"{package.package} {package.version}"
    how = "cannot be compared" if package.files == 0 else "cannot be compared in full"
    # With --force-reinstall pip tries to uninstall first, and refuses without a RECORD.
    command = reinstall(package.package, package.version, package.installer)
    command = command.replace("pip install --force-reinstall", "pip install --ignore-installed")
    return Finding(
        f"{name} was not compared: conda installed it, without a RECORD"
        if conda
        else f"{name} {how} with its wheel: its RECORD is {package.problem}",
        Evidence(
            found=f"RECORD is {package.problem}",
            wanted="the list of the package's files and their hashes",
            read_from=package.record,
        ),
        location=Location(package.record),
        remedy="" if conda else f"reinstall it: {command}",
        severity="info" if conda else "warning",
        subject=Subject("file", package.record),
    )


@dataclass(frozen=True)
class _Author:
    """What became of a file and through what, as text, and whether this doctor did it."""

    words: str
    ours: bool = False


def _author(drift: Drift, history: JournalHistory) -> _Author:
    if drift.state == "missing":
        return _Author("missing")
    if (entry := history.author(drift.path, drift.sha256)) is not None:
        return _Author(f"repaired by verl-doctor ({entry.id}, {entry.code}, {entry.time[:10]})", ours=True)
    return _Author(
        f"changed and marked '{', '.join(drift.markers)}'" if drift.markers else "changed without a marker"
    )


def _finding(author: _Author, drifts: list[Drift]) -> Finding:
    package, version = drifts[0].package, drifts[0].version
    return Finding(
        (
            f"{counted(len(drifts), 'file')} of {package} {version} {'is' if len(drifts) == 1 else 'are'} "
            f"{author.words}: "
        )
        + listed((below_site(drift.path) for drift in drifts), _SHOWN)
        + _sharing(drifts),
        Evidence(
            found=listed((drift.path for drift in drifts), _SHOWN),
            wanted=f"the files that the wheel of {package} {version} contained",
            read_from=f"RECORD of {package} {version}",
        ),
        location=Location(drifts[0].path),
        remedy="verl-doctor undo --list shows it"
        if author.ours
        else f"reinstall it: {reinstall(package, version, drifts[0].installer)}",
        severity="info" if author.ours else "warning",
        also=tuple(Location(drift.path) for drift in drifts[1 : _SHOWN + 1]),
        subject=Subject("file", drifts[0].path),
        fix="consistent-install" if _lacks_code(drifts) else None,
    )


def _lacks_code(drifts: list[Drift]) -> bool:
    """Whether a file that a job runs, loads or reads is missing."""
    return any(drift.lost for drift in drifts)


def _dispensable(drift: Drift) -> bool:
    if drift.path.endswith(_NEVER_RUN):
        return True
    return drift.state == "missing" and (drift.path.endswith(_HEADERS) or "/test" in drift.path)


def _sharing(drifts: list[Drift]) -> str:
    """Report what is proven: that the same file has another name, not what created that name."""
    links = [drift for drift in drifts if drift.leads_to]
    if links:
        return (
            f" (a link to {links[0].leads_to})" if len(links) == 1 else f" ({len(links)} of them are links)"
        )
    names = sum(drift.links > 1 for drift in drifts)
    if not names:
        return ""
    is_are = "is" if names == 1 else "are"
    return (
        f" ({names} of these {is_are} hard-linked elsewhere, perhaps in a backup, where the edit appears as "
        "well)"
    )
