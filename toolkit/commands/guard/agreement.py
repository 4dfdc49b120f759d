"""A team's agreement on what its jobs need: a file next to the launch scripts, read before each job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.console.masked import masked
from verl_doctor.toolkit.engine.config import Config, is_specifier
from verl_doctor.toolkit.engine.saved_document import SavedFile
from verl_doctor.toolkit.system.restore import restored
from verl_doctor.toolkit.system.sites import Site
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import canonical

SCHEMA_VERSION = 1
NAME = "verl-doctor.lock"
DRIVER = "NVIDIA's driver"
"""The name of the driver among the agreed items."""
_FILE = SavedFile(
    kind="agreement",
    key="agreed",
    content=dict,
    make="verl-doctor guard --agree",
    again="write a new agreement",
    version=SCHEMA_VERSION,
    largest=16,
)
_PYTHON = re.compile(r"\d+\.\d+")

Base = Literal["environment", "project", "machine"]


@dataclass(frozen=True)
class Place:
    """A path that is valid elsewhere: below the environment or the agreement's folder, or absolute."""

    base: Base
    path: str


@dataclass(frozen=True)
class Bases:
    """The folders that places are relative to: of the environment, and of the agreement."""

    environment: Path
    project: Path

    def place(self, path: str) -> Place:
        """Return the place of an absolute path."""
        for base, folder in (("environment", self.environment), ("project", self.project)):
            for top in dict.fromkeys((folder, Path(os.path.realpath(folder)))):
                if Path(path).is_relative_to(top):
                    return Place(base, str(Path(path).relative_to(top)))  # type: ignore[arg-type]
        return Place("machine", path)

    def path(self, place: Place) -> Path:
        """Return the local path of a place."""
        top = {"environment": self.environment, "project": self.project, "machine": Path("/")}[place.base]
        return top / place.path


@dataclass(frozen=True)
class AgreedFile:
    """A file that was repaired, or created by a repair. `why` names the rule or the marker that it was for.

    `sha256` is of its content, or with `link` of the link's target. `marked` are digests of its marked lines
    (`line_digest`): while all of them are present, so are the repairs, whatever else was edited. `patches`
    restore them, in the format of `patches export`, and `loose` are the marked lines that no such patch
    holds.
    """

    place: Place
    why: str
    sha256: str
    link: bool = False
    marked: tuple[str, ...] = ()
    patches: tuple[Mapping[str, Any], ...] = ()
    loose: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """What must hold where a job starts. Empty fields were not agreed.

    `written` is UTC in ISO 8601. `python` is the version without its patch level. `packages` and `driver` are
    version specifiers, the packages by canonical name; `site_packages` are the folders that contain them.
    `verl` is the package folder of the verl that the job imports. `sites` are the cluster's required paths,
    and the free space that they need.
    """

    written: str = ""
    python: str = ""
    site_packages: tuple[Place, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    verl: Place | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    sites: tuple[Site, ...] = ()
    files: tuple[AgreedFile, ...] = ()

    def with_expected(self, config: Config) -> Agreement:
        """Return the agreement with the expectations of the user's configuration, which take precedence."""
        expected = config.expected
        sites = {site.name: site for site in (*self.sites, *config.sites)}
        return replace(
            self,
            packages={**self.packages, **{canonical(name): text for name, text in expected.packages.items()}},
            variables={**self.variables, **expected.variables},
            driver=expected.driver or self.driver,
            sites=tuple(sites.values()),
        )

    def outweighed(self, config: Config) -> tuple[str, ...]:
        """Return the names of agreed items that the user's configuration overrides."""
        after, sites = self.with_expected(config), {site.name: site for site in config.sites}
        both = ((self.packages, after.packages), (self.variables, after.variables))
        names = [name for agreed, now in both for name, value in agreed.items() if now[name] != value]
        driver = [DRIVER] if self.driver and after.driver != self.driver else []
        return (
            *names,
            *driver,
            *(f"site {site.name}" for site in self.sites if sites.get(site.name, site) != site),
        )


def expected_names(config: Config) -> tuple[str, ...]:
    """Return the names of items that the user's configuration requires."""
    expected = config.expected
    driver = [DRIVER] if expected.driver else []
    sites = (f"site {site.name}" for site in config.sites)
    return (*map(canonical, expected.packages), *expected.variables, *driver, *sites)


def nearest(folder: Path) -> Path | None:
    """Return the agreement in a folder, or in the nearest one above it."""
    return next((place / NAME for place in (folder, *folder.parents) if os.path.lexists(place / NAME)), None)


def read(path: Path) -> Agreement:
    """Read an agreement. Raises UsageError if the file is not one, or of another version."""
    agreed = _FILE.read(path)
    if "\\u0000" in json.dumps(agreed):
        raise _damaged(path, "a path or a name contains a NUL character")
    try:
        agreement = restored(Agreement, agreed)
        nonsense = next(_nonsense(agreement, agreed), "")
    except (TypeError, RecursionError) as error:
        raise _damaged(path, str(error)[:200]) from None
    if nonsense:
        raise _damaged(path, nonsense)
    return agreement


def _nonsense(agreement: Agreement, agreed: Mapping[str, Any]) -> Iterator[str]:
    """Yield entries that cannot be intended: they would never be judged, and so always pass."""
    for name in _unknown(agreed, asdict(agreement)):
        yield f"{name!r:.60} is not a valid key"
    if agreement.python and not _PYTHON.fullmatch(agreement.python):
        yield f"{agreement.python!r:.60} is not a Python version such as 3.12"
    for name, text in (*agreement.packages.items(), ("driver", agreement.driver)):
        as_installed = name in agreement.packages and text.startswith(
            "=="
        )  # some versions follow no standard
        if not as_installed and not is_specifier(text):
            yield f"{name[:60]} has {text!r:.60}, which is not a version specifier"
    for site in agreement.sites:
        if isinstance(site.free, bool) or site.free < 0:
            yield f"the room in site {site.name[:60]} is not a number of bytes"


def _unknown(given: Any, known: Any) -> Iterator[str]:
    """Yield the keys of a document that were not restored."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        yield from (key for key in given if key not in known)
        for key in given.keys() & known.keys():
            yield from _unknown(given[key], known[key])
    elif isinstance(given, list) and isinstance(known, (list, tuple)):
        for value, other in zip(given, known, strict=True):
            yield from _unknown(value, other)


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}; write a new one with: {_FILE.make}")


def dump(agreement: Agreement, doctor: str) -> str:
    """Return an agreement as the content of a file; `doctor` is the version that writes it."""
    document = {"schema_version": SCHEMA_VERSION, "verl_doctor": doctor, "agreed": asdict(agreement)}
    return json.dumps(masked(document), indent=1) + "\n"
