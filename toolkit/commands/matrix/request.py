"""Turn the user's request into a table: which trees, which releases, which index."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES
from verl_doctor.toolkit.commands.matrix.matrix import Side, Study, Subject, Table, vllm_pins
from verl_doctor.toolkit.commands.matrix.next_steps import Upgrade, upgrade
from verl_doctor.toolkit.commands.matrix.releases import Release, by_default, named, release_of
from verl_doctor.toolkit.engine import config
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.index.listing import PackageIndex
from verl_doctor.toolkit.index.settings import index_settings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.index.wheel_sources import WheelSources
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options, UsageError

# Older releases run vLLM through copies of its parts, for which the judgement was never verified. They are
# judged only if named.
_OLDEST_VERL = Version("0.4")


@dataclass(frozen=True)
class Request:
    """What the user requests. `verl` and `vllm` are folders or versions, `releases` versions or a range.

    `following` is the release to compare the installed one with, "" for the next minor, None if not
    requested.
    """

    python: Path | None = None
    verl: str | None = None
    vllm: str | None = None
    packages: tuple[str, ...] = ()
    releases: str | None = None
    patches: bool = False
    following: str | None = None
    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    offline: bool = False
    download: bool = True


@dataclass(frozen=True)
class Callbacks:
    """Progress callbacks: `show` while working, `announce` before a large download."""

    show: Callable[[str], None] = lambda _: None
    announce: Callable[[str], None] = lambda _: None


def study_for(request: Request, machine: Machine, callbacks: Callbacks) -> Study:
    """Find the target and the index. Raises UsageError."""
    options = Options(
        request.python,
        verl=None if _version(request.verl, machine) else _path(request.verl),
        vllm=None if _version(request.vllm, machine) else _path(request.vllm),
    )
    target = discover(options, machine)
    settings = index_settings(machine, target.prefix, request.index_url, request.find_links)
    web = Web(settings)
    return Study(
        target=target,
        config=config.load(machine.cwd),
        index=PackageIndex(settings, web, offline=request.offline),
        sources=WheelSources(web, callbacks.announce, request.offline, request.download),
        machine=machine,
        show=callbacks.show,
    )


def table_for(request: Request, study: Study) -> Table:
    """Judge the requested releases. Raises UsageError, NoListing or WheelError."""
    if request.vllm is not None and request.verl is not None:
        verl, vllm = _verl(request, study), _vllm(request, study)
        row = study.row("vllm", vllm, verl, study.verdict(verl, vllm))
        return Table("vllm", verl, str(study.target.python), (row,), 1)
    if request.vllm is not None:
        return _against(request, study, "verl", _vllm(request, study), ("verl",))
    return _against(request, study, "vllm", _verl(request, study), _projects(request, study))


def upgrade_for(request: Request, study: Study) -> Upgrade | None:
    """Compare the target's vLLM with a newer release. Return None if there is none."""
    verl, vllm = _verl(request, study), _vllm(request, study)
    return upgrade(study, verl, vllm, _projects(request, study)[0], request.following or "")


def _against(
    request: Request, study: Study, subject: Subject, other: Side, projects: tuple[str, ...]
) -> Table:
    chosen: list[Release] = []
    offered, taken, silent = 0, 0.0, []
    for project in projects:
        found, listing = study.offered(project)
        offered += len(found)
        taken = min(filter(None, (taken, listing.taken)), default=0.0)
        silent += [note for note in listing.silent if note not in silent]
        if request.releases is not None:
            chosen += named(found, request.releases, patches=request.patches)
        elif request.patches:
            chosen += found
        elif subject == "verl":
            chosen += by_default([release for release in found if release.version >= _OLDEST_VERL], None, [])
        else:
            pins = vllm_pins(other) if subject == "vllm" else None
            chosen += by_default(found, pins, [study.installed(project)])
    if not chosen:
        raise UsageError(
            f"no configured index has a wheel of {' or '.join(projects)}; "
            f"name another with --index-url, or a folder of wheels with --find-links"
        )
    rows = tuple(study.rows(subject, other, chosen))
    return Table(subject, other, str(study.target.python), rows, offered, taken, tuple(silent))


def _projects(request: Request, study: Study) -> tuple[str, ...]:
    """Return the builds of vLLM to judge: those named, or the installed one."""
    installed = study.packages.get(*VLLM_NAMES) if study.packages is not None else None
    return request.packages or ((installed.name,) if installed is not None else ("vllm",))


def _verl(request: Request, study: Study) -> Side:
    version = _version(request.verl, study.machine)
    return study.side(release_of(study.offered("verl")[0], version)) if version else study.verl_here()


def _vllm(request: Request, study: Study) -> Side:
    version = _version(request.vllm, study.machine)
    if not version:
        return study.vllm_here()
    return study.side(release_of(study.offered(_projects(request, study)[0])[0], version))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _version(text: str | None, machine: Machine) -> str:
    """Return the text if it is a version rather than a folder; "" otherwise.

    Raises UsageError if it is empty.
    """
    if text is None:
        return ""
    if not text:
        raise UsageError(
            "--verl and --vllm take a folder or a version, but this one is empty; is a variable unset?"
        )
    if os.path.exists(machine.cwd / text):
        return ""
    try:
        Version(text)
    except InvalidVersion:
        return ""
    return text
