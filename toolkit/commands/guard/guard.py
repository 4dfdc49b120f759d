"""Judge with a few cheap reads whether the agreement holds where a job is about to start."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from verl_doctor.toolkit.collectors.gpu.nvidia_driver import driver_version, has_gpu_on_bus
from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES, versions_in
from verl_doctor.toolkit.commands.guard.agreement import DRIVER, Agreement, Bases
from verl_doctor.toolkit.commands.guard.files import Found
from verl_doctor.toolkit.json_document import plain
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import nearest, space_of
from verl_doctor.toolkit.system.path_timeout import PATH_TIMEOUT, in_time
from verl_doctor.toolkit.system.sites import Site, is_elsewhere, plain_path
from verl_doctor.toolkit.text import in_bytes

AGREE_ANEW = "verl-doctor guard --agree"
# BuildKit sets it in the containers of RUN lines unless BUILDKIT_SANDBOX_HOSTNAME overrides it
# (docs.docker.com/build).
_BUILD_HOST = "buildkitsandbox"
_IN_AN_IMAGE = "not available while an image is built; it is checked where the job starts"

Status = Literal["pass", "fail", "skipped", "not_applicable"]
Verdict = Literal["ok", "failures", "could_not_check"]


@dataclass(frozen=True)
class Term:
    """One agreed item and its state. `next_step` is the remedy if it does not hold."""

    subject: str
    status: Status
    agreed: str
    found: str = ""
    reason: str = ""
    next_step: str = ""

    def __str__(self) -> str:
        """Return a description."""
        if self.reason:
            return f"{self.subject}: {self.reason}"
        return f"{self.subject} is {self.found or 'missing'}; agreed: {self.agreed}"


@dataclass(frozen=True)
class Here:
    """Where the job is about to start.

    `verl` is the package folder that the user names, or None. `in_image`: an image is being built, so that
    devices, mounts and variables are not a node's.
    """

    machine: Machine
    python: Path
    bases: Bases
    verl: Path | None = None
    in_image: bool = False


def is_image_build(machine: Machine, host: str = "") -> bool:
    """Return whether this runs in a RUN line of a Dockerfile under BuildKit."""
    return (host or platform.node()) == _BUILD_HOST and machine.root == Path("/")


def judged(agreement: Agreement, here: Here, files: Iterable[Found]) -> tuple[Term, ...]:
    """Judge every agreed item; `files` has the states of the repaired files."""
    of_the_node = [*_variables(agreement, here), *_driver(agreement, here), *_paths(agreement, here)]
    return (*of_environment(agreement, here), *map(_file, files), *of_the_node)


def of_environment(agreement: Agreement, here: Here) -> tuple[Term, ...]:
    """Judge the agreed environment itself, without which repairs make no sense."""
    return (*_python(agreement, here), *_packages(agreement, here), *_tree(agreement, here))


def verdict(terms: Iterable[Term]) -> Verdict:
    """Return the overall verdict; if nothing was judged, it is uncertain."""
    statuses = {term.status for term in terms}
    if "fail" in statuses:
        return "failures"
    return "ok" if "pass" in statuses and "skipped" not in statuses else "could_not_check"


class TermDocument(TypedDict):
    """One agreed item."""

    subject: Annotated[str, "a package, a variable, a repaired file, a path, or the driver"]
    status: Status
    agreed: str
    found: Annotated[str, "empty if there was nothing, or if it could not be examined"]
    reason: Annotated[str, "why it has this status, if that needs an explanation"]
    next_step: Annotated[str, "what to do if it does not hold"]


class GuardDocument(TypedDict):
    """Whether the environment is as agreed."""

    schema_version: Literal[1]
    verdict: Annotated[Verdict, "ok: the job may start; failures: it may not; could_not_check: unknown"]
    agreement: Annotated[str, "the file with the agreement; empty for none"]
    outweighed: Annotated[
        dict[str, str], "agreed items that a configuration overrides, and the file of that configuration"
    ]
    results: list[TermDocument]


def document(terms: Iterable[Term], agreement: str, outweighed: Mapping[str, str]) -> GuardDocument:
    """Return the result in JSON types; `agreement` is the file that was read, "" if there is none.

    `outweighed` is what another file overrides, and that file.
    """
    every = tuple(terms)
    return {
        "schema_version": 1,
        "verdict": verdict(every),
        "agreement": agreement,
        "outweighed": dict(outweighed),
        "results": [plain(term) for term in every],
    }


def _python(agreement: Agreement, here: Here) -> Iterator[Term]:
    if not agreement.python:
        return
    version = _python_version(here.python)
    if not version:
        yield Term("Python", "skipped", agreement.python, reason=f"{here.python} does not show its version")
    else:
        status: Status = "pass" if version == agreement.python else "fail"
        yield Term("Python", status, agreement.python, version, next_step=f"use Python {agreement.python}")


def _python_version(python: Path) -> str:
    """Return the minor version of an interpreter, derived from its path; "" if the path does not show it."""
    named = re.search(r"python(\d+\.\d+)$", os.path.realpath(python))
    if named:
        return named[1]
    try:
        text = (python.parent.parent / "pyvenv.cfg").read_text("utf-8", "replace")
    except OSError:
        return ""
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+)", text, re.MULTILINE)
    return match[1] if match else ""


def _packages(agreement: Agreement, here: Here) -> Iterator[Term]:
    if not agreement.packages:
        return
    installed: dict[str, str] = {}
    closed = ""
    for folder in _path(agreement, here):
        closed = closed or _closed(folder / "x")
        installed = {**versions_in(str(folder), {*agreement.packages, *VLLM_NAMES}), **installed}
    for name, wanted in agreement.packages.items():
        named = (name, *VLLM_NAMES) if name == "vllm" else (name,)
        version = next((installed[name] for name in named if name in installed), "")
        if not version and closed:
            yield Term(name, "skipped", wanted, reason=closed)
        elif version and is_within(version, wanted):
            yield Term(name, "pass", wanted, version)
        else:
            step = f"install {name}{wanted}" if wanted else f"install {name}"
            yield Term(name, "fail", wanted, version or "not installed", next_step=step)


def _closed(path: Path) -> str:
    """Return why this user cannot see whether a path exists; "" if they can."""
    may_list = not os.path.isdir(path.parent) or os.access(path.parent, os.R_OK | os.X_OK)
    try:
        os.stat(path)  # noqa: PTH116 - os.path.exists is False for a denied path too
    except PermissionError:
        may_list = False
    except OSError:
        pass
    return "" if may_list else f"user {os.geteuid()} has no access to {path.parent}"


def is_within(version: str, specifier: str) -> bool:
    """Return whether a specifier admits a version, pre-releases included."""
    if specifier in ("", f"=={version}"):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - most agree on one version
    from packaging.version import InvalidVersion  # noqa: PLC0415 - see above

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _path(agreement: Agreement, here: Here) -> Iterator[Path]:
    """Yield where the job looks for packages, as far as known without its interpreter."""
    for entry in here.machine.environ.get("PYTHONPATH", "").split(os.pathsep):
        if entry:
            yield here.machine.cwd / entry
    yield from map(here.bases.path, agreement.site_packages)


def _tree(agreement: Agreement, here: Here) -> Iterator[Term]:
    """Judge whether the job imports the agreed verl: it must exist and come first on the path."""
    if agreement.verl is None:
        return
    agreed = here.bases.path(agreement.verl)
    first = here.verl or next(_verls(agreement, here), agreed)
    if closed := _closed(agreed / "__init__.py"):
        yield Term("verl's folder", "skipped", str(agreed), reason=closed)
    elif not os.path.isfile(agreed / "__init__.py"):
        yield Term("verl's folder", "fail", str(agreed), next_step="install verl there")
    elif not first.samefile(agreed):
        step = "start the job in another folder, or remove this one from PYTHONPATH"
        yield Term("verl's folder", "fail", str(agreed), str(first), next_step=step)
    else:
        yield Term("verl's folder", "pass", str(agreed), str(agreed))


def _verls(agreement: Agreement, here: Here) -> Iterator[Path]:
    """Yield the package folders called verl, in the order in which the job finds them."""
    if not here.machine.environ.get("PYTHONSAFEPATH"):
        yield from _verl_in(here.machine.cwd)
    for folder in _path(agreement, here):
        yield from _verl_in(folder)


def _verl_in(folder: Path) -> Iterator[Path]:
    if os.path.isfile(folder / "verl" / "__init__.py"):
        yield folder / "verl"


_LOST: Mapping[str, str] = {
    "gone": "the file does not exist",
    "lost": "the repair is no longer in the file",
    "changed": "the file differs from the agreed one",
}


def _file(found: Found) -> Term:
    subject = f"repair {found.agreed.why} of {found.path}"
    if found.state in {"kept", "edited"}:
        remark = "" if found.state == "kept" else "in place; the file was edited elsewhere"
        return Term(subject, "pass", "in place", "in place", remark)
    if found.state == "unreadable":
        return Term(subject, "skipped", "in place", reason=f"it cannot be read: {found.reason}")
    return Term(subject, "fail", "in place", found.state, _LOST[found.state], "verl-doctor guard --apply")


def _variables(agreement: Agreement, here: Here) -> Iterator[Term]:
    for name, wanted in agreement.variables.items():
        value = here.machine.environ.get(name)
        if here.in_image:
            yield Term(name, "not_applicable", wanted, reason=_IN_AN_IMAGE)
        elif value == wanted:
            yield Term(name, "pass", wanted, value)
        else:
            shown = "not set" if value is None else shown_value(name, value)
            yield Term(name, "fail", wanted, shown, next_step=f"set {name} before the job starts")


def shown_value(name: str, value: str) -> str:
    """Return a variable's value, with secrets masked."""
    from verl_doctor.toolkit.collectors.launch.environment import is_harmless  # noqa: PLC0415 - only for one that is wrong
    from verl_doctor.toolkit.system.secret import suggests_secret  # noqa: PLC0415 - see above

    return "another" if suggests_secret(name) or not is_harmless(name, value) else value


def _driver(agreement: Agreement, here: Here) -> Iterator[Term]:
    wanted, subject = agreement.driver, DRIVER
    if not wanted:
        return
    if here.in_image:
        yield Term(subject, "not_applicable", wanted, reason=_IN_AN_IMAGE)
    elif version := driver_version(here.machine):
        status: Status = "pass" if is_within(version, wanted) else "fail"
        yield Term(subject, status, wanted, version, next_step="use a node with that driver")
    elif has_gpu_on_bus(here.machine):
        step = "load the driver, or give the container its GPUs"
        yield Term(subject, "fail", wanted, "not loaded, although there is a GPU", next_step=step)
    else:
        yield Term(subject, "not_applicable", wanted, reason="there is no NVIDIA GPU here")


def _paths(agreement: Agreement, here: Here) -> Iterator[Term]:
    for site in agreement.sites:
        path = plain_path(site, here.machine)
        if is_elsewhere(path):
            yield Term(f"site {site.name}", "not_applicable", path, reason="it is an address, not a path")
        elif here.in_image:
            yield Term(f"site {site.name}", "not_applicable", path, reason=_IN_AN_IMAGE)
        else:
            yield from _site(site, path, here)


def _site(site: Site, path: str, here: Here) -> Iterator[Term]:
    subject, room = f"site {site.name}", f"room in {path}"
    exists = in_time(lambda: os.path.exists(path) or site.writes)
    if exists is None:
        yield Term(subject, "skipped", path, reason=f"{path} did not respond within {PATH_TIMEOUT} s")
    else:
        status: Status = "pass" if exists else "fail"
        yield Term(subject, status, path, path if exists else "", next_step=f"mount or create {path}")
    if not site.free or exists is None:
        return
    space, wanted = in_time(lambda: space_of(nearest(here.machine, path))), in_bytes(site.free)
    if space is None:
        yield Term(room, "skipped", wanted, reason=f"its file system did not respond within {PATH_TIMEOUT} s")
    else:
        status = "pass" if space.free >= site.free else "fail"
        yield Term(
            room,
            status,
            f"at least {wanted}",
            in_bytes(space.free),
            next_step="remove what is not needed there",
        )
