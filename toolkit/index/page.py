"""The page of one project on a package index: JSON (PEP 691) or HTML (PEP 503), or a folder of wheels."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from verl_doctor.toolkit.text import canonical

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True)
class WheelFile:
    """One wheel on an index or in a folder.

    `url` is its address or an absolute path. `sha256` is empty if the index has none. `requires_python` is as
    written, `yanked` the reason for its withdrawal, with " " for none given.
    """

    filename: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    yanked: str = ""

    @property
    def version(self) -> Version:
        """The version in its name."""
        return parse_wheel_filename(self.filename)[1]

    @property
    def build(self) -> tuple[int, str] | tuple[()]:
        """The build number in its name: installers prefer the higher of two builds of one version."""
        return parse_wheel_filename(self.filename)[2]

    @property
    def tags(self) -> frozenset[Tag]:
        """The Pythons and platforms in its name."""
        return parse_wheel_filename(self.filename)[3]

    def for_python(self, version: str) -> bool:
        """Return whether the index offers it to this Python. An invalid bound does not count."""
        try:
            return not version or SpecifierSet(self.requires_python).contains(version, prereleases=True)
        except InvalidSpecifier:
            return True


def wheels_on_page(content: bytes, content_type: str, url: str, project: str) -> list[WheelFile]:
    """Return the wheels of a project on a page. Raises ValueError if it is no index page."""
    text = content.decode("utf-8", "replace")
    if content_type.partition(";")[0].strip().lower() in {_JSON, "application/json"}:
        found: Iterable[WheelFile] = _in_json(text, url)
    else:
        found = _in_html(text, url)
    return [wheel for wheel in found if is_wheel_of(wheel.filename, project)]


def wheels_in_folder(folder: str, project: str) -> list[WheelFile]:
    """Return the wheels of a project in a folder. Raises OSError."""
    names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    return [WheelFile(name, os.path.join(folder, name)) for name in names if is_wheel_of(name, project)]  # noqa: PTH118


def is_wheel_of(filename: str, project: str) -> bool:
    """Return whether a file name is that of a wheel of this project."""
    try:
        return canonical(parse_wheel_filename(filename)[0]) == canonical(project)
    except (InvalidWheelFilename, ValueError):
        return False


def _in_json(text: str, url: str) -> Iterator[WheelFile]:
    try:
        page = json.loads(text)
    except RecursionError:
        page = None
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, list):
        raise ValueError("it is JSON without a list of files")  # noqa: TRY004 - the content is wrong, no argument
    for file in files:
        match file:
            case {"filename": str(name), "url": str(address)}:
                hashes, yanked = file.get("hashes"), file.get("yanked", False)
                yield WheelFile(
                    name,
                    urljoin(url, address),
                    _sha256(hashes.get("sha256")) if isinstance(hashes, dict) else "",
                    str(file.get("requires-python") or ""),
                    (yanked if isinstance(yanked, str) and yanked else " ") if yanked is not False else "",
                )


def _in_html(text: str, url: str) -> Iterator[WheelFile]:
    anchors = _Anchors()
    try:
        anchors.feed(text)
    except AssertionError:  # raised by the standard library for some malformed input
        raise ValueError("it is not HTML") from None
    base = urljoin(url, anchors.base) if anchors.base else url
    for anchor in anchors.found:
        address, _, fragment = urljoin(base, anchor.get("href") or "").partition("#")
        yield WheelFile(
            unquote(urlsplit(address).path.rpartition("/")[2]),
            address,
            _sha256(fragment.partition("sha256=")[2].partition("&")[0]),
            anchor.get("data-requires-python") or "",
            (anchor["data-yanked"] or " ") if "data-yanked" in anchor else "",
        )


def _sha256(text: object) -> str:
    """Return the digest if it is valid: it becomes the name of a folder."""
    digest = text.lower() if isinstance(text, str) else ""
    return digest if len(digest) == 64 and not digest.strip("0123456789abcdef") else ""


class _Anchors(HTMLParser):
    """Collects the links of a page, and the address that they are relative to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a link."""
        if tag == "a":
            self.found.append(dict(attrs))
        elif tag == "base" and not self.base:
            self.base = dict(attrs).get("href") or ""
