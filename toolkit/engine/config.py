"""The user's configuration: `[tool.verl-doctor]` in pyproject.toml, or a verl-doctor.toml.

select = ["VLLM", "PKG"]
marker = "verl-doctor"

[tool.verl-doctor.ignore]
RAY104 = { reason = "shared cluster, see OPS-12", until = 2027-06-30 }
PKG102 = { reason = "our fork of peft", until = 2027-12-31, only = ["peft"] }

[tool.verl-doctor.per_file_ignores."jobs/debug*.sh"]
CFG111 = { reason = "runs on the large node, OPS-14", until = 2027-06-30 }

[tool.verl-doctor.sites]
model = "/models/qwen"
results = { path = "/scratch/me", writes = true, free = "200 GiB" }

[tool.verl-doctor.expected]
packages = { vllm = ">=0.11,<0.12" }
variables = { NCCL_SOCKET_IFNAME = "bond0" }
driver = ">=570"
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_doctor.toolkit.system.ownership import warn_once, why_not_ours
from verl_doctor.toolkit.target import UsageError

if TYPE_CHECKING:
    from verl_doctor.toolkit.system.sites import Site

_KEYS = ("select", "ignore", "per_file_ignores", "marker", "sites", "disable_plugins", "expected")
_EXPECTED = ("packages", "variables", "driver")
_MARKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}")
# What `guard --agree` writes, recognised without the library that knows all forms.
_PLAIN_SPECIFIER = re.compile(r"(?:[=>]=\d{1,9}(?:\.\d{1,9})*)?")
_EXAMPLES = {"only": "peft", "disable_plugins": "noisy-plugin"}  # of an entry in a list
_USUAL = timedelta(days=90)  # until the example of an entry ends
_LARGEST = 1_000_000


@dataclass(frozen=True)
class Ignore:
    """A rule that the user silenced: why, and the last day on which it stays silent.

    `only` are the names of the subjects that it does not report; without any, it is not judged at all.
    """

    reason: str
    until: date
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What `guard` demands in addition to, or in place of, what was agreed.

    `packages` are version specifiers by name; `driver` is a specifier for NVIDIA's driver, "" for none.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""


@dataclass(frozen=True)
class Config:
    """The user's configuration. `path` is empty when there is none.

    `per_file_ignores` are the rules silenced for jobs that one of these launch files starts, by pattern.
    """

    path: str = ""
    select: tuple[str, ...] = ()
    ignore: Mapping[str, Ignore] = field(default_factory=dict)
    per_file_ignores: Mapping[str, Mapping[str, Ignore]] = field(default_factory=dict)
    marker: str = "verl-doctor"
    sites: tuple[Site, ...] = ()
    disable_plugins: tuple[str, ...] = ()
    expected: Expected = field(default_factory=Expected)

    def ignores_for(self, files: Collection[Path]) -> Mapping[str, Ignore]:
        """Return what is silenced for a job that these launch files start.

        A pattern is a path from the configuration's folder, or the name of a file in any folder; `*` matches
        any characters. An entry for the file replaces that of the same code for all jobs.
        """
        ignores = dict(self.ignore)
        for pattern, entries in self.per_file_ignores.items():
            if matches(self, pattern, files):
                ignores |= entries
        return ignores


def matches(config: Config, pattern: str, files: Iterable[Path]) -> bool:
    """Return whether a pattern of `per_file_ignores` matches one of these files."""
    whole = os.path.normpath(Path(glob.escape(str(Path(config.path).parent)), pattern))
    return any(
        fnmatchcase(file.name, pattern)
        or any(fnmatchcase(path, whole) for path in (str(file), _without_linked_folders(file)))
        for file in files
    )


def _without_linked_folders(file: Path) -> str:
    """Return the file's path without links to its folder: the folder of the configuration has none either."""
    return os.path.join(os.path.realpath(file.parent), file.name)  # noqa: PTH118 - as realpath returns it


def load(folder: Path) -> Config:
    """Read the nearest configuration from `folder` upwards.

    Raises UsageError, naming file and key, when it is invalid. A pyproject.toml without our table is skipped;
    invalid TOML is ignored unless it is the nearest file that mentions us. Another user's file is skipped
    with a message on stderr.
    """
    for place in (folder, *folder.parents):
        own = place / "verl-doctor.toml"
        if os.path.lexists(own) and not _passed_over(own):
            if not os.path.isfile(own):
                raise UsageError(f"{own} is not a readable configuration file; correct or remove it")
            return _config(own, _table(own))
        shared = place / "pyproject.toml"
        if os.path.isfile(shared) and b"verl-doctor" in _bytes(shared) and not _passed_over(shared):
            table = _table(shared).get("tool", {})
            if isinstance(table, dict) and "verl-doctor" in table:
                return _config(shared, table["verl-doctor"])
    return Config()


def _passed_over(path: Path) -> bool:
    """Return whether a file may be another user's.

    It could silence rules and gates, so this is reported, once.
    """
    why = why_not_ours(path, group_counts=False)
    if why:
        warn_once(f"{path} is skipped: {why}; a configuration must be writable only by you or root")
    return bool(why)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _table(path: Path) -> dict[str, Any]:
    from verl_doctor.toolkit.system import toml  # noqa: PLC0415 - most folders have no configuration

    try:
        table: dict[str, Any] = toml.loads(_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: bad TOML, bad UTF-8, absurdly long numbers
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    return table


def _config(path: Path, table: Any) -> Config:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.verl-doctor] must be a table")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{path}: unknown key '{key}'; known keys are {', '.join(_KEYS)}")
    marker = table.get("marker", "verl-doctor")
    if not isinstance(marker, str) or not _MARKER.fullmatch(marker):
        raise UsageError(f"{path}: marker must be one word of letters, digits, '.', '_' or '-'")
    return Config(
        path=str(path),
        select=tuple(word.upper() for word in _words(path, "select", table)),
        ignore=_ignores(path, table.get("ignore", {})),
        per_file_ignores=_per_file_ignores(path, table.get("per_file_ignores", {})),
        marker=marker,
        sites=_sites(path, table.get("sites", {})),
        disable_plugins=_words(path, "disable_plugins", table),
        expected=_expected(path, table.get("expected", {})),
    )


def _words(path: Path, key: str, table: Mapping[str, Any], within: str = "") -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(
            f"{path}: {within}{key} must be a list of strings, for instance {key} = "
            f'["{_EXAMPLES.get(key, "VLLM")}"]'
        )
    return tuple(value)


def _sites(path: Path, value: Any) -> tuple[Site, ...]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: sites must be a table")
    return tuple(_site(path, name, entry) for name, entry in value.items())


def _site(path: Path, name: str, entry: Any) -> Site:
    from verl_doctor.toolkit.system.sites import Site, amount, is_for_output  # noqa: PLC0415 - most configurations name no site

    fields = {"path": entry} if isinstance(entry, str) else entry
    example = f'{name} = "/path", or {name} = {{ path = "/path", writes = true, free = "200 GiB" }}'
    if not isinstance(fields, dict) or set(fields) - {"path", "writes", "free"}:
        raise UsageError(f"{path}: sites.{name} must be a path: {example}")
    place, writes, free = (
        fields.get("path"),
        fields.get("writes", is_for_output(name)),
        fields.get("free", "0 GiB"),
    )
    needed = amount(free) if isinstance(free, str) else None
    if not isinstance(place, str) or "\0" in place or not isinstance(writes, bool) or needed is None:
        raise UsageError(f"{path}: sites.{name} must be a path: {example}")
    return Site(name, place, writes, needed)


def _strings(path: Path, key: str, table: Mapping[str, Any]) -> dict[str, str]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected.{key} must be a table")
    for name, text in value.items():
        if not isinstance(text, str):
            raise UsageError(f"{path}: expected.{key}.{name} must be a string")
    return value


def _per_file_ignores(path: Path, value: Any) -> dict[str, dict[str, Ignore]]:
    if not isinstance(value, dict):
        raise UsageError(
            f'{path}: per_file_ignores must be a table of launch files, for instance "jobs/*.sh" = '
            "{ CFG111 = { ... } }"
        )
    return {
        pattern: _ignores(path, entries, f'per_file_ignores."{pattern}"')
        for pattern, entries in value.items()
    }


def _ignores(path: Path, value: Any, key: str = "ignore") -> dict[str, Ignore]:
    end = date.today() + _USUAL  # noqa: DTZ011 - a day of the user's calendar
    example = f'{{ reason = "shared cluster, see OPS-12", until = {end} }}'
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {key} must be a table of codes, for instance RAY104 = {example}")
    ignores = {}
    for code, entry in value.items():
        if not isinstance(entry, dict) or set(entry) - {"only"} != {"reason", "until"}:
            raise UsageError(f"{path}: {key}.{code} needs a reason and an end date: {code} = {example}")
        reason, until = entry["reason"], _day(entry["until"])
        if not isinstance(reason, str) or not reason.strip() or until is None:
            raise UsageError(f"{path}: {key}.{code} needs a reason and an end date: {code} = {example}")
        ignores[code.upper()] = Ignore(reason.strip(), until, _words(path, "only", entry, f"{key}.{code}."))
    return ignores


def _expected(path: Path, table: Any) -> Expected:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected must be a table")
    for key in table:
        if key not in _EXPECTED:
            raise UsageError(f"{path}: unknown key 'expected.{key}'; known are {', '.join(_EXPECTED)}")
    packages = _strings(path, "packages", table)
    driver = table.get("driver", "")
    for name, text in {
        **{f"packages.{name}": text for name, text in packages.items()},
        "driver": driver,
    }.items():
        if not isinstance(text, str) or not is_specifier(text):
            raise UsageError(
                f'{path}: expected.{name} must be a version specifier, for instance ">=0.11,<0.12"'
            )
    return Expected(
        packages=packages,
        variables=_strings(path, "variables", table),
        driver=driver,
    )


def is_specifier(text: str) -> bool:
    """Return whether a text is a version specifier."""
    if _PLAIN_SPECIFIER.fullmatch(text):
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - few need it

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def _day(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None
