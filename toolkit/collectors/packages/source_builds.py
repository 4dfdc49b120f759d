"""Requirements that an installer could meet only by building sources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.packages.installer import PIP_SOON, Installer
from verl_doctor.toolkit.collectors.packages.installer_errors import Complaint
from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.machine import Machine

_LIMIT_VERSIONS = 15.0
# How uv 0.4 to 0.13 report a package that only an sdist would satisfy.
_UV_SDIST = re.compile(
    r"Because (?:only )?(\S+) (?:has|is available and has) no usable wheels"
    r"|Failed to (?:build|download and build) `([^`@ ]+)[^`]*`(?=[\s\S]*Building source distributions)"
    r"|Wheels are required for `([^`]+)`"
)
_PIP_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


def only_an_sdist(
    machine: Machine, installer: Installer, found: Complaint, text: str, environ: Mapping[str, str]
) -> str:
    """Return the requirement that an sdist meets and no wheel does, "" if there is none.

    `text` is the installer's output, `found` what it complains about.
    """
    return _sdist_for_uv(text) if installer.is_uv else _sdist_for_pip(machine, installer, found, environ)


def fetched_from_a_url(packages: Packages, requirements: Requirements) -> str:
    """Return why no query is made: pip always fetches and builds a requirement named by URL."""
    for name in requirements.closure:
        distribution = packages.get(name)
        for text in distribution.requires if distribution is not None else ():
            if "://" in text and _built(text, packages.markers or {}):
                what = text.partition("@")[0].strip()
                return f"{name} requires {what} from a URL; the installer would fetch and build it"
    return ""


def _built(text: str, markers: Mapping[str, str]) -> bool:
    """Return whether this requirement names sources by URL and applies here. True if unknown."""
    try:
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({**markers, "extra": ""})
    except Exception:  # noqa: BLE001 - as in the walk over the requirements
        return True
    return applies and not (requirement.url or "").partition("#")[0].endswith(".whl")


def _sdist_for_uv(output: str) -> str:
    """Return the package that only an sdist would satisfy, as uv prints it."""
    found = _UV_SDIST.search(output)
    return next(filter(None, found.groups())) if found else ""


def _sdist_for_pip(
    machine: Machine, installer: Installer, found: Complaint, environ: Mapping[str, str]
) -> str:
    """Return the requirement that an sdist meets and no wheel does.

    Pip does not report it; listing versions builds nothing.
    """
    try:
        wanted = Requirement(found.not_offered)
        pip = installer.command[: installer.command.index("install")]
        output = machine.run(
            [*pip, "index", "versions", wanted.name, "--pre", "--no-input", *PIP_SOON],
            timeout=_LIMIT_VERSIONS,
            env=environ,
        )
    except (InvalidRequirement, ValueError, OSError):
        return ""
    listed = _PIP_VERSIONS.search(output.stdout)
    versions = listed[1].split(", ") if listed and output.code == 0 else []
    return found.not_offered if any(_meets(wanted, version) for version in versions) else ""


def _meets(wanted: Requirement, version: str) -> bool:
    try:
        return wanted.specifier.contains(Version(version.strip()), prereleases=True)
    except InvalidVersion:
        return False
