"""File systems that hold users' files, and where they are mounted."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_systems

# Below these are mounts of the system and of container runtimes, most of them with a number in the name.
_THEIR_OWN = ("/boot", "/dev", "/etc", "/proc", "/run", "/snap", "/sys", "/usr", "/var/lib")


@dataclass(frozen=True)
class Mount:
    """A mount. `shared`: other machines may see the same files; `runnable`: programs in it may be run.

    The server, the device and the options are left out: they may contain a password.
    """

    path: str
    kind: str
    shared: bool = False
    read_only: bool = False
    runnable: bool = True


@dataclass(frozen=True)
class Mounts:
    """The mounts that are not the system's own, by path."""

    mounts: tuple[Mount, ...] = ()


@collector()
def mounts(machine: Machine) -> Mounts | Absent:
    """Read the kernel's list; no mount is accessed, since an unreachable file server would block."""
    listed = {
        file_system.mounted_on: file_system for file_system in file_systems(machine)
    }  # a later mount hides an earlier one
    if not listed:
        return Absent("this system has no /proc that lists its mounts")
    return Mounts(
        tuple(_mount(file_system) for _, file_system in sorted(listed.items()) if _of_people(file_system))
    )


def _of_people(file_system: FileSystem) -> bool:
    place = f"{file_system.mounted_on}/"
    return (
        file_system.shared or file_system.device.startswith("/") or file_system.mounted_on == "/"
    ) and not place.startswith(tuple(f"{folder}/" for folder in _THEIR_OWN))


def _mount(file_system: FileSystem) -> Mount:
    return Mount(
        file_system.mounted_on,
        file_system.kind,
        file_system.shared,
        file_system.read_only,
        "noexec" not in file_system.options,
    )
