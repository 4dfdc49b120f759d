"""What an environment holds once packages are installed, and what must be removed or installed again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.packages.install_needs import Broken, InstallNeeds, relative_to


@dataclass(frozen=True)
class EnvironmentLock:
    """All packages of an environment as pins, and the changes by kind, as the fields of `Resolution`.

    `reinstalled` are the pins of what is installed again.
    """

    lock: tuple[str, ...]
    up: tuple[str, ...]
    down: tuple[str, ...]
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    again: tuple[str, ...]
    cleared: tuple[str, ...]
    reinstalled: tuple[str, ...]


def environment_lock(
    new: Mapping[str, str], packages: Packages, needs: InstallNeeds, prefix: str
) -> EnvironmentLock:
    """Return the lock of an environment at `prefix` in which these versions are installed."""
    after = {distribution.name: distribution.version for distribution in packages.distributions}
    broken = {distribution.name: distribution for distribution in needs.broken}
    cleared = [
        relative_to(prefix, place) for distribution in broken.values() for place in distribution.locations
    ]
    cleared += [relative_to(prefix, place) for place in needs.left_over]
    kept = [distribution for distribution in broken.values() if distribution.version]
    after |= {distribution.name: distribution.version for distribution in kept} | dict(new)
    dropped = [
        distribution
        for distribution in broken.values()
        if not distribution.version and _goes(distribution, packages, new)
    ]
    for distribution in dropped:
        after.pop(distribution.name, None)
    again = [distribution for distribution in kept if distribution.name not in new]
    return EnvironmentLock(
        lock=tuple(f"{name}=={version}" for name, version in sorted(after.items()) if _is_version(version)),
        up=tuple(_moved(new, packages, up=True)),
        down=tuple(_moved(new, packages, up=False)),
        added=tuple(f"{name} {version}" for name, version in new.items() if packages.get(name) is None),
        dropped=tuple(f"{distribution.name} ({distribution.why})" for distribution in dropped),
        again=tuple(
            f"{distribution.name} {distribution.version} ({distribution.why})" for distribution in again
        ),
        cleared=tuple(dict.fromkeys(filter(None, cleared))),
        reinstalled=tuple(f"{distribution.name}=={distribution.version}" for distribution in again),
    )


def _goes(broken: Broken, packages: Packages, new: Mapping[str, str]) -> bool:
    """Return whether a distribution without a version is removed entirely.

    With an editable install only its spare metadata is removed.
    """
    installed = packages.get(broken.name)
    return broken.name not in new and installed is not None and installed.location in broken.locations


def _moved(new: Mapping[str, str], packages: Packages, *, up: bool) -> Iterator[str]:
    """Yield what becomes newer, or older."""
    for name, version in new.items():
        installed = packages.get(name)
        if (
            installed is not None
            and installed.version != version
            and _is_above(version, installed.version) is up
        ):
            yield f"{name} {installed.version} -> {version}"


def _is_above(new: str, old: str) -> bool:
    try:
        return Version(new) > Version(old)
    except InvalidVersion:
        return True


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def free_name(prefix: Path) -> Path:
    """Return an unused name next to an environment."""
    names = (f"{prefix.name}-repaired{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
    return next(path for name in names if not os.path.lexists(path := prefix.with_name(name)))
