"""The state of the paths that the user's configuration lists for this cluster (`Sites`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.model.job_files import JobFile, seen
from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of, nearest, space_of, why_not_writable
from verl_doctor.toolkit.system.secret import without_user
from verl_doctor.toolkit.system.sites import Site, Sites, is_elsewhere, is_placeholder, plain_path


@dataclass(frozen=True)
class SitePlace:
    """One path of this cluster, on this machine.

    `path` has variables and `~` expanded; the other fields apply only if `set`.

    `set` is false for a placeholder from an example file. `elsewhere`: it is an address, and was not checked.
    `writes`: the job writes there; `not_writable` is why it cannot, else "". `free` and `wanted_free` are in
    bytes, None and 0 if unknown. `shared`: other machines may see the same files. `content` is what the path
    holds.
    """

    name: str
    path: str
    set: bool = True
    elsewhere: bool = False
    writes: bool = False
    not_writable: str = ""
    free: int | None = None
    wanted_free: int = 0
    shared: bool = False
    content: JobFile | None = None

    @property
    def state(self) -> str:
        """Return whether it exists, is missing or unreadable; "" if not checked."""
        return self.content.state if self.content else ""


@dataclass(frozen=True)
class SitePlaces:
    """All paths, and the file that lists them."""

    places: tuple[SitePlace, ...]
    named_in: str


@collector()
def site_places(sites: Sites, machine: Machine) -> SitePlaces | Absent:
    """Check each path without opening any file."""
    if not sites.sites:
        return Absent("no paths of this cluster are named in [tool.verl-doctor.sites]")
    return SitePlaces(tuple(_place(site, machine) for site in sites.sites), sites.path)


def _place(site: Site, machine: Machine) -> SitePlace:
    path = plain_path(site, machine)
    if is_placeholder(site.path) or "$" in path:
        return SitePlace(site.name, without_user(path), set=False)
    if is_elsewhere(path):
        return SitePlace(site.name, without_user(path), elsewhere=True)
    system = file_system_of(machine, path)
    space = space_of(nearest(machine, path)) if site.writes or site.free else None
    return SitePlace(
        name=site.name,
        path=path,
        writes=site.writes,
        not_writable=why_not_writable(machine, path) if site.writes else "",
        free=space.free if space else None,
        wanted_free=site.free,
        shared=system is not None and system.shared,
        content=seen(Path(path), "site", machine),
    )
