"""What lies under the paths that the user's configuration names as those of this cluster (`Sites`)."""

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
    """One path of this cluster, on this machine. `path` is without variables and `~`; the others say nothing where it is not `set`.

    `set` is false for what an example file holds in place of a path. `elsewhere`: it is an address, and was not looked at.
    `writes`: the job writes there; `not_writable` says why it could not, "" when it could. `free` and `wanted_free` are in
    bytes, None and 0 when nobody told. `shared`: other machines may see the same files. `content` is what lies there.
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
        """Whether it is there, missing or unreadable; "" where nobody looked."""
        return self.content.state if self.content else ""


@dataclass(frozen=True)
class SitePlaces:
    """All of them, and the file that names them."""

    places: tuple[SitePlace, ...]
    named_in: str


@collector()
def site_places(sites: Sites, machine: Machine) -> SitePlaces | Absent:
    """Look at each path, and into none of the files."""
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
