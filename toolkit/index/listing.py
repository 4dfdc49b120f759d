"""What the configured indexes offer for a project. Each page is cached for offline use."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import platformdirs

from verl_doctor.toolkit.index.access import WebError, shown
from verl_doctor.toolkit.index.page import (
    ACCEPT,
    WheelFile,
    is_wheel_of,
    wheels_in_folder,
    wheels_on_page,
)
from verl_doctor.toolkit.index.settings import IndexSettings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.system import cache
from verl_doctor.toolkit.text import canonical

_LARGEST_PAGE = 64_000_000  # bytes


class NoListing(Exception):  # noqa: N818 - named after its cause
    """No index responded, and no cached page exists: one sentence with the next step."""


@dataclass(frozen=True)
class Listing:
    """The wheels of a project on all indexes together, each file name once.

    `taken` is when its oldest page was read, in seconds since the epoch, 0 if all were read just now.
    `silent` names the places that did not respond.
    """

    project: str
    wheels: tuple[WheelFile, ...]
    taken: float = 0.0
    silent: tuple[str, ...] = ()


class PackageIndex:
    """The user's indexes and folders of wheels, read once per project."""

    def __init__(self, settings: IndexSettings, web: Web, *, offline: bool = False) -> None:
        self._settings = settings
        self._web = web
        self._offline = offline
        self._known: dict[str, Listing | str] = {}
        self._lock = threading.Lock()

    @property
    def complete(self) -> bool:
        """Whether all releases of a project can be known: a folder of wheels holds only some."""
        return bool(self._settings.indexes)

    def close(self) -> None:
        """Close the connections."""
        self._web.close()

    def listing(self, project: str) -> Listing:
        """Return the listing of a project. Raises NoListing."""
        with self._lock:
            if project not in self._known:
                try:
                    self._known[project] = self._query(project)
                except NoListing as error:
                    self._known[project] = str(error)
            known = self._known[project]
        if isinstance(known, str):
            raise NoListing(known)
        return known

    def _query(self, project: str) -> Listing:
        wheels: dict[str, WheelFile] = {}
        taken, silent, answered = 0.0, [], 0
        for place in self._places(project):
            try:
                found = self._read(place, project)
                if not _is_local(place):
                    _keep(place, project, found)
            except (WebError, ValueError, OSError) as error:
                silent.append(_sentence(place, error))
                kept = _kept(place, project)
                if kept is None:
                    continue
                found, when = kept
                taken = min(taken or when, when)
            answered += 1
            for wheel in found:
                wheels.setdefault(wheel.filename, wheel)
        if not answered:
            raise NoListing(_nothing(project, silent, offline=self._offline))
        return Listing(project, tuple(wheels.values()), taken, tuple(silent))

    def _places(self, project: str) -> Iterator[str]:
        """Yield the places, folders first because they are cheap."""
        yield from self._settings.find_links
        for index in self._settings.indexes:
            where, hash_mark, rest = index.partition("#")
            yield f"{where.rstrip('/')}/{canonical(project)}/{hash_mark}{rest}"

    def _read(self, place: str, project: str) -> list[WheelFile]:
        """Read one page or folder. An index without the project offers nothing."""
        if (local := local_path(place)) is not None:
            return _in_folder(local, project)
        if self._offline:
            raise WebError("--offline: no index is queried")
        try:
            page = self._web.page(place, ACCEPT, _LARGEST_PAGE)
        except WebError as error:
            if error.status in {404, 410}:
                return []
            raise
        return wheels_on_page(page.content, page.content_type, page.url, project)


def local_path(place: str) -> str | None:
    """Return the path of a `file:` address or of a path, None for an address of a server."""
    if place.startswith("file:"):
        return unquote(urlsplit(place).path)
    return None if "://" in place else place


def _is_local(place: str) -> bool:
    return local_path(place) is not None


def _in_folder(path: str, project: str) -> list[WheelFile]:
    """Read a local place: a page, a project's folder on a mirror, one wheel, or a folder of wheels."""
    page = path if path.endswith((".html", ".htm")) else os.path.join(path, "index.html")  # noqa: PTH118
    if os.path.isfile(page):
        found = wheels_on_page(Path(page).read_bytes(), "text/html", Path(page).as_uri(), project)
        return [replace(wheel, url=local_path(wheel.url) or wheel.url) for wheel in found]
    if os.path.isfile(path):
        name = os.path.basename(path)  # noqa: PTH119
        return [WheelFile(name, path)] if is_wheel_of(name, project) else []
    if not os.path.exists(path) and os.path.isdir(os.path.dirname(path.rstrip("/"))):  # noqa: PTH120
        return []  # a local mirror without this project
    return wheels_in_folder(path, project)


def _file(place: str, project: str) -> Path:
    name = hashlib.sha256(f"{shown(place)} {canonical(project)}".encode()).hexdigest()
    return platformdirs.user_cache_path("verl-doctor") / "index" / f"{name}.json"


def _keep(place: str, project: str, wheels: list[WheelFile]) -> None:
    """Cache a page, without credentials."""
    rows = [asdict(replace(wheel, url=shown(wheel.url))) for wheel in wheels]
    cache.write(_file(place, project), {"taken": time.time(), "wheels": rows})


def _kept(place: str, project: str) -> tuple[list[WheelFile], float] | None:
    kept: Any = cache.read(_file(place, project), _LARGEST_PAGE)
    try:
        wheels = [WheelFile(**row) for row in kept["wheels"]]
        sound = all(is_wheel_of(wheel.filename, project) for wheel in wheels)
        return (wheels, float(kept["taken"])) if sound else None
    except (TypeError, KeyError, ValueError):
        return None


def _sentence(place: str, error: Exception) -> str:
    if isinstance(error, WebError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{shown(place)} is not an index page or a folder of wheels: {reason}"


def _nothing(project: str, silent: list[str], *, offline: bool) -> str:
    if not silent:
        return f"no place to search for {project}: neither an index nor --find-links is configured"
    if offline:
        return (
            f"nothing about {project} is in the cache; run once without --offline, or name a folder of "
            "wheels with --find-links"
        )
    return f"{silent[0]}; no earlier response about {project} is in the cache"
