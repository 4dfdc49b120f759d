"""The package indexes that the user has configured for pip and uv, and how to reach them.

They are read from the same variables and files that the installers read, without running them:
https://pip.pypa.io/en/stable/topics/configuration/ and
https://docs.astral.sh/uv/concepts/configuration-files/.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.system.errors import reason_of
from verl_doctor.toolkit.target import UsageError

PYPI = "https://pypi.org/simple"
_SYSTEM_PIP = Path("/etc/pip.conf")
_SYSTEM_UV = Path("/etc/uv/uv.toml")


@dataclass(frozen=True)
class IndexSettings:
    """Where to look for wheels.

    URLs may hold a user and a password, so none of this is a fact or is ever shown.

    `indexes` are simple indexes (PEP 503), `find_links` pages or folders with wheels. `ca` is a file or
    folder of certificates, `client_certificate` a file, `trusted` are hosts with unverified certificates,
    `proxy` is the URL of a proxy that takes precedence over those of the environment. Each is empty if not
    configured.
    """

    indexes: tuple[str, ...] = field(default=(), repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    ca: str = ""
    client_certificate: str = ""
    trusted: tuple[str, ...] = ()
    proxy: str = field(default="", repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def index_settings(
    machine: Machine, prefix: Path, index_url: str | None = None, find_links: Iterable[str] = ()
) -> IndexSettings:
    """Read the configuration of the environment at `prefix`.

    Options of the command line replace the configured values.

    Variables take precedence over files, and pip's settings over uv's. The additional indexes of both are
    used. `find_links` alone disables all indexes, unless one is named as well. Raises UsageError if a file
    cannot be read.
    """
    home = Path(machine.home or "/")
    pip, uv = _pip(machine, home, prefix), _uv(machine, home)
    links = tuple(_place(word, machine.cwd, home) for word in find_links)
    indexes: tuple[str, ...] = ()
    if index_url is not None:
        indexes = (_place(index_url, machine.cwd, home),)
    elif not links:
        links = tuple(
            dict.fromkeys(_place(word, machine.cwd, home) for word in (*pip["find-links"], *uv["find-links"]))
        )
        if "no-index" not in (*pip["no-index"], *uv["no-index"]):
            main = (*pip["index-url"][-1:], *uv["index-url"][-1:], PYPI)[:1]
            indexes = tuple(dict.fromkeys((*main, *pip["extra-index-url"], *uv["extra-index-url"])))
    return IndexSettings(
        indexes=indexes,
        find_links=links,
        ca=_first(pip["cert"], machine.environ, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
        client_certificate=_first(pip["client-cert"], machine.environ, "SSL_CLIENT_CERT"),
        trusted=(*pip["trusted-host"], *machine.environ.get("UV_INSECURE_HOST", "").split()),
        proxy=_first(pip["proxy"], {}),
        environ=machine.environ,
    )


_KEYS = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "cert",
    "client-cert",
    "trusted-host",
    "proxy",
)
_Words = dict[str, tuple[str, ...]]


def _first(words: tuple[str, ...], environ: Mapping[str, str], *names: str) -> str:
    """Return the last of the configured words, or the first variable that is set."""
    return next(filter(None, (*words[-1:], *(environ.get(name, "") for name in names))), "")


def _place(word: str, cwd: Path, home: Path) -> str:
    """Return a URL unchanged, or a path made absolute."""
    if "://" in word or word.startswith("file:"):
        return word
    path = home / word[2:] if word.startswith("~/") else cwd / word
    return os.path.abspath(path)


def _truth(word: str) -> tuple[str, ...]:
    """Return `no-index` if a switch is on, in the way that pip and uv read switches."""
    return ("no-index",) if word.strip().lower() in {"1", "true", "yes", "on", "y", "t"} else ()


def _pip(machine: Machine, home: Path, prefix: Path) -> _Words:
    """Return the settings of pip: files in ascending precedence, then variables."""
    found: _Words = dict.fromkeys(_KEYS, ())
    for file in _pip_files(machine, home, prefix):
        for section in ("global", "install"):
            for key, value in _ini(file, section):
                if key in _KEYS:
                    found[key] = _truth(value) if key == "no-index" else tuple(value.split())
    for key in _KEYS:
        if value := machine.environ.get(f"PIP_{key.upper().replace('-', '_')}", ""):
            found[key] = _truth(value) if key == "no-index" else tuple(value.split())
    return found


def configuration_files(machine: Machine, prefix: Path) -> Iterator[Path]:
    """Yield the files from which pip and uv read their settings, whether or not they exist."""
    home = Path(machine.home or "/")
    yield from _pip_files(machine, home, prefix)
    yield from _uv_files(machine, home)


def _pip_files(machine: Machine, home: Path, prefix: Path) -> Iterator[Path]:
    named = machine.environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:  # means "none at all" to pip
        return
    for folder in reversed((machine.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)):
        yield Path(folder, "pip", "pip.conf")
    yield _SYSTEM_PIP
    config = machine.cwd / (machine.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if not named or not os.path.isfile(machine.cwd / named):
        yield home / ".pip" / "pip.conf"
        yield config / "pip" / "pip.conf"
    yield prefix / "pip.conf"
    if named:
        yield machine.cwd / named


def _ini(file: Path, section: str) -> list[tuple[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
        items = parser.items(section) if parser.has_section(section) else []
    except (configparser.Error, ValueError, OSError) as error:
        reason = str(error).partition("\n")[0].partition(":")[0]  # the rest may quote a line with a password
        raise UsageError(f"{file} is not a configuration that pip can read: {reason}") from None
    return [(key.replace("_", "-"), value) for key, value in items]


def _uv(machine: Machine, home: Path) -> _Words:
    """Return uv's settings: its files, a project's taking precedence over the user's, then variables."""
    found: _Words = dict.fromkeys(_KEYS, ())
    for table in _uv_tables(machine, home):
        for settings in (table, table.get("pip", {})):
            if isinstance(settings, dict):
                found.update(_uv_settings(settings))
    environ = machine.environ
    if url := environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL"):
        found["index-url"] = (_unnamed(url),)
    if urls := (environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or "").split():
        found["extra-index-url"] = tuple(map(_unnamed, urls))
    if links := environ.get("UV_FIND_LINKS", "").replace(",", " ").split():
        found["find-links"] = tuple(links)
    found["no-index"] = _truth(environ.get("UV_NO_INDEX", "")) or found["no-index"]
    return found


def _unnamed(index: str) -> str:
    """Remove the name that an index of uv may have: `internal=https://...`."""
    name, equals, url = index.partition("=")
    return url if equals and "/" not in name else index


def _uv_settings(table: Mapping[str, Any]) -> _Words:
    """Return the index settings in one table of uv's."""
    found: _Words = {}
    for key in ("index-url", "extra-index-url", "find-links"):
        value = table.get(key)
        words = value if isinstance(value, list) else [value]
        if texts := tuple(word for word in words if isinstance(word, str)):
            found[key] = texts
    if table.get("no-index") is True:
        found["no-index"] = ("no-index",)
    entries = table.get("index")
    urls = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    for key, is_default in (("index-url", True), ("extra-index-url", False)):
        chosen = tuple(
            str(entry["url"])
            for entry in urls
            if "url" in entry and (entry.get("default") is True) == is_default and not entry.get("explicit")
        )
        if chosen:
            found[key] = chosen
    return found


def _uv_files(machine: Machine, home: Path) -> Iterator[Path]:
    if named := machine.environ.get("UV_CONFIG_FILE"):
        yield machine.cwd / named
        return
    config = machine.cwd / (machine.environ.get("XDG_CONFIG_HOME") or home / ".config")
    yield _SYSTEM_UV
    yield config / "uv" / "uv.toml"
    for folder in (machine.cwd, *machine.cwd.parents):
        if project := [
            file for name in ("uv.toml", "pyproject.toml") if os.path.isfile(file := folder / name)
        ]:
            yield project[0]
            return


def _uv_tables(machine: Machine, home: Path) -> Iterator[Mapping[str, Any]]:
    for file in _uv_files(machine, home):
        try:
            table = toml.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} is not a configuration that uv can read: {reason_of(error)}") from None
        if file.name == "pyproject.toml":
            tool = table.get("tool", {})
            table = tool.get("uv", {}) if isinstance(tool, dict) else {}
        if isinstance(table, dict):
            yield table
