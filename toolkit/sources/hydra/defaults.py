"""Hydra's defaults lists: the files that a configuration is composed of, their order, and where each goes.

Follows hydra-core 1.3, hydra/_internal/defaults_list.py and hydra/core/default_element.py, for
`version_base=None`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verl_doctor.toolkit.sources.hydra.yaml import ConfigFile

_KEY = re.compile(r"(?P<words>(?:(?:optional|override)\s+)*)(?P<group>[^@\s]+)(?:@(?P<package>\S*))?")
_INTERPOLATION = re.compile(r"\$\{([^}]*)\}")
_DEEPEST = 40
# The groups of hydra/conf/__init__.py, and the options that Hydra registers without a file.
_OF_HYDRA = frozenset(
    {
        "output",
        "launcher",
        "sweeper",
        "help",
        "hydra_help",
        "hydra_logging",
        "job_logging",
        "callbacks",
        "env",
    }
)
_REGISTERED = {"hydra/launcher": "basic", "hydra/sweeper": "basic"}


class CompositionError(Exception):
    """A refusal by Hydra to compose this, for the reason in the message.

    `missing` is the nonexistent file of a chosen option.
    """

    missing = ""


class NotFollowedError(Exception):
    """A feature of Hydra that this reader does not support."""


@dataclass(frozen=True)
class Entry:
    """One line of a defaults list: a file, or a group with the chosen option(s), and its package."""

    group: str | None
    value: str | list[str] | None
    package: str | None = None
    optional: bool = False
    override: bool = False
    base: str = ""
    parent_package: str = ""
    header: str | None = None

    @property
    def is_self(self) -> bool:
        """Whether it stands for the file's own content."""
        return self.group is None and self.value == "_self_"

    @property
    def relative_group(self) -> str:
        """The folder as written."""
        if self.group is not None:
            return self.group.removeprefix("/")
        return str(self.value).removeprefix("/").rpartition("/")[0]

    @property
    def group_path(self) -> str:
        """The folder, from the root of the configuration."""
        written = self.group if self.group is not None else str(self.value)
        if written.startswith("/"):
            return self.relative_group
        return "/".join(part for part in (self.base, self.relative_group) if part)

    @property
    def path(self) -> str:
        """The file, from the root of the configuration, without `.yaml`."""
        name = str(self.value).rpartition("/")[2] if self.group is None else str(self.value)
        return "/".join(part for part in (self.group_path, name) if part)

    def final_package(self, *, with_header: bool = True) -> str:
        """Return where the content goes: a dotted path, empty for the root."""
        package = self.package
        if package is not None and "_group_" in package:
            package = "_global_." + package.replace("_group_", self.group_path.replace("/", "."))
        if package is None and with_header:
            package = self.header
        if package is None:
            package = self.relative_group.replace("/", ".")
        whole = ".".join(part for part in (self.parent_package, package) if part)
        place = whole.rfind("_global_")
        return whole if place < 0 else whole[place + len("_global_") + 1 :]

    @property
    def override_key(self) -> str:
        """The name by which another list, or the command line, chooses another option."""
        package = self.final_package(with_header=False)
        if self.group_path.replace("/", ".") == package:
            return self.group_path
        return f"{self.group_path}@{package or '_global_'}"


@dataclass
class Choices:
    """The options chosen for the groups by the command line, `override` lines, and the lists themselves."""

    chosen: dict[str, str | list[str] | None] = field(default_factory=dict)
    appended: list[Entry] = field(default_factory=list)
    deleted: dict[str, str | None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    known: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Placed:
    """A file whose own content goes to a package."""

    path: str
    package: str


def entries_of(defaults: Sequence[Any]) -> list[Entry]:
    """Read the lines of a defaults list. Raises CompositionError."""
    return [_entry(item) for item in defaults]


def _entry(item: Any) -> Entry:
    if isinstance(item, str):
        words = item.split()
        optional = words[:1] == ["optional"]
        path, at, package = words[-1].partition("@") if words else ("", "", "")
        return Entry(None, path, _here(package) if at else None, optional=optional)
    if isinstance(item, Mapping) and len(item) == 1:
        key, value = next(iter(item.items()))
        match = _KEY.fullmatch(str(key).strip())
        if not match or ":" in (match["package"] or ""):
            raise CompositionError(f"the defaults list has an entry `{key}`")
        if value is not None and not isinstance(value, (str, list)):
            value = str(value)
        words = match["words"].split()
        package = match["package"]
        return Entry(
            match["group"],
            value,
            None if package is None else _here(package),
            "optional" in words,
            "override" in words,
        )
    raise CompositionError(f"the defaults list has an entry that is not a name: {str(item)[:60]}")


def _here(package: str) -> str:
    return "" if package == "_here_" else package


class Defaults:
    """Expands the defaults list of one configuration.

    `load` returns a file by its path, or None where it does not exist.

    `has_group` returns whether a folder holds options. `without_plugins`: `load` finds Hydra's own options
    too, and there are no others.
    """

    def __init__(
        self,
        load: Callable[[str], ConfigFile | None],
        choices: Choices,
        has_group: Callable[[str], bool] = lambda _: False,
        *,
        without_plugins: bool = False,
    ) -> None:
        self.load = load
        self.choices = choices
        self.has_group = has_group
        self.without_plugins = without_plugins

    def expand(self, name: str) -> list[Placed]:
        """Return the files in the order in which they are merged.

        Raises CompositionError and NotFollowedError.
        """
        if self.load(name) is None:
            raise CompositionError(f"the configuration `{name}` does not exist")
        found = self._tree(Entry(None, name), root=True, interpolated=False, depth=0)
        for key, option in self.choices.chosen.items():
            if key.startswith("hydra/"):
                self._of_hydra(key, option)
            elif key not in self.choices.used:
                raise CompositionError(_no_such_choice(key, self.choices.known))
        for key in self.choices.deleted:
            if key not in self.choices.used:
                raise CompositionError(f"the defaults list has no `{key}` to delete")
        return found

    def _of_hydra(self, key: str, option: str | list[str] | None) -> None:
        """Look for an option of one of Hydra's own groups.

        Plugins may bring options, and groups of the user's own may add some.
        """
        group = key.partition("@")[0]
        if group.removeprefix("hydra/") not in _OF_HYDRA and not self.has_group(group):
            raise CompositionError(_no_such_choice(key, {}))
        if not self.without_plugins or not isinstance(option, str) or "${" in option:
            return
        if _REGISTERED.get(group) == option or group == "hydra/callbacks":
            return
        if self.load(f"{group}/{option}") is None:
            problem = CompositionError(f"Hydra and its plugins have no `{group}={option}`")
            problem.missing = f"{group}/{option}"
            raise problem

    def _tree(self, entry: Entry, *, root: bool, interpolated: bool, depth: int) -> list[Placed]:
        if depth > _DEEPEST:
            raise CompositionError(f"the defaults list of `{entry.path}` includes itself")
        if (
            entry.value is not None
            and (loaded := self.load(entry.path)) is not None
            and loaded.package is not None
        ):
            header = loaded.package
            entry = replace(entry, header=header if header.startswith("_global_") else f"_global_.{header}")
        if entry.group is not None:
            key = entry.override_key
            if key in self.choices.deleted and self.choices.deleted[key] in (None, entry.value):
                self.choices.used.add(key)
                return []
            self._note(entry)
        if entry.value is None:
            return []
        if entry.path.endswith("???"):
            raise CompositionError(f"`{entry.override_key}` must be chosen")
        loaded = self.load(entry.path)
        if loaded is None:
            if entry.optional:
                return []
            problem = CompositionError(f"the configuration has no `{entry.path}.yaml`")
            problem.missing = entry.path
            raise problem
        return self._children(entry, loaded, root=root, interpolated=interpolated, depth=depth)

    def _note(self, entry: Entry) -> None:
        known, key = self.choices.known, entry.override_key
        value = entry.value if isinstance(entry.value, str) else None
        if key in known and known[key] != value:
            raise CompositionError(f"the defaults list gives `{key}` several values")
        known[key] = value

    def _children(
        self, entry: Entry, loaded: ConfigFile, *, root: bool, interpolated: bool, depth: int
    ) -> list[Placed]:
        own = Placed(entry.path, entry.final_package())
        children = entries_of(loaded.defaults or [])
        if not children and not (root and self.choices.appended):
            return [own]
        if not any(child.is_self for child in children) and (
            not children or any(not child.override for child in children)
        ):
            children.append(Entry(None, "_self_"))
        if root:
            children += self.choices.appended
        children = [
            child
            if child.is_self
            else replace(child, base=entry.group_path, parent_package=entry.final_package())
            for child in children
        ]
        self._overrides(entry, children, interpolated=interpolated)
        found: list[list[Placed] | Entry] = []
        for child in reversed(children):
            if child.is_self:
                found.append([own])
            elif not child.override:
                found.append(self._child(child, depth))
        expanded: list[list[Placed]] = []
        for part in found:
            if isinstance(part, Entry):
                resolved = self._resolved(part, children)
                part = self._tree(resolved, root=False, interpolated=True, depth=depth + 1)  # noqa: PLW2901
            expanded.append(part)
        return [placed for part in reversed(expanded) for placed in part]

    def _overrides(self, parent: Entry, children: list[Entry], *, interpolated: bool) -> None:
        """Note the `override` lines. Those of the outermost list come first and win."""
        for child in children:
            if child.override and not child.is_self:
                if interpolated:
                    raise CompositionError(
                        f"`{parent.path}` was chosen by interpolation and overrides a default"
                    )
                self.choices.chosen.setdefault(child.override_key, child.value)

    def _child(self, child: Entry, depth: int) -> list[Placed] | Entry:
        if child.group is not None and (key := child.override_key) in self.choices.chosen:
            self.choices.used.add(key)
            child = replace(child, value=self.choices.chosen[key])
        if isinstance(child.value, list):
            found: list[Placed] = []
            for item in reversed(child.value):
                entry = Entry(
                    None,
                    f"{child.group}/{item}",
                    child.package,
                    child.optional,
                    base=child.base,
                    parent_package=child.parent_package,
                )
                found[:0] = self._tree(entry, root=False, interpolated=False, depth=depth + 1)
            return found
        if isinstance(child.value, str) and "${" in child.value:
            return child  # resolved when all groups of the list are chosen
        return self._tree(child, root=False, interpolated=False, depth=depth + 1)

    def _resolved(self, entry: Entry, siblings: list[Entry]) -> Entry:
        names: dict[str, Any] = {key: value for key, value in self.choices.known.items() if value is not None}
        for sibling in siblings:
            if sibling.group is not None and isinstance(sibling.value, str):
                names.setdefault(sibling.override_key, sibling.value)

        def value_of(match: re.Match[str]) -> str:
            name = match[1].strip()
            if ":" in name or name.startswith("defaults."):
                raise NotFollowedError(f"`{match[0]}` in the defaults list")
            if name not in names:
                raise CompositionError(f"`{match[0]}` in the defaults list names no group that was chosen")
            return str(names[name])

        return replace(entry, value=_INTERPOLATION.sub(value_of, str(entry.value)))


def _no_such_choice(key: str, known: Mapping[str, str | None]) -> str:
    group = key.partition("@")[0]
    alike = sorted(other for other in known if other.partition("@")[0] == group)
    if alike:
        return f"the defaults list has no `{key}`; it has {', '.join(alike)}"
    return f"the defaults list has no `{key}`"
