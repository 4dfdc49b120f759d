"""How Ray uses the environment: which cluster a driver joins, and what it changes for a worker."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from verl_doctor.toolkit.collectors.processes.raylets import ADDRESS_FILE, Raylet
from verl_doctor.toolkit.collectors.variables.environment_writes import writes
from verl_doctor.toolkit.collectors.variables.verl_environment import ProcessVariable
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow_values import Place
from verl_doctor.toolkit.sources.python.source import read

RAY = "Ray"
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
# Where Ray writes the environment of a worker that it has started. Paths below its package.
_WRITERS = ("_private/worker.py", "_private/utils.py")
_SWITCH = re.compile(r"[\"'](RAY_EXPERIMENTAL_NOSET_(\w+))[\"']")
_NAMED = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# The vendor's module in Ray, and how a module marks its resource as GPUs (`get_resource_name`).
_NVIDIA = "nvidia_gpu.py"
_FOR_GPUS = re.compile(r"return [\"']GPU[\"']")
_LEFT = re.compile(r"\$\{[A-Z0-9_]+\}")


def address(requested: object, environ: Mapping[str, str], machine: Machine) -> str:
    """Return the address of the cluster that `ray.init(address=requested)` joins; "" if it starts its own.

    `get_ray_address_from_environment` in ray/_private/services.py: RAY_ADDRESS goes first, then the requested
    address, then the file that the last `ray start` on this machine left. "auto" is returned if only that is
    known.
    """
    named = environ.get("RAY_ADDRESS") or (requested if isinstance(requested, str) else "")
    if named == "local":
        return ""
    if named and named != "auto":
        return named.removeprefix("ray://")
    return (machine.read(address_file(environ)) or "").strip() or named


def address_file(environ: Mapping[str, str]) -> str:
    """Return the file in which the start of a head writes its address.

    In Ray, this is ray/_common/utils.py: get_default_ray_temp_dir.
    """
    temporary = environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp"  # noqa: S108 - Ray's own default
    return f"{temporary}/ray/{ADDRESS_FILE}"


def joined(at: str, raylets: tuple[Raylet, ...]) -> tuple[Raylet, ...]:
    """Return the raylets here that belong to the cluster at an address."""
    host, _, port = at.rpartition(":")
    return tuple(
        raylet
        for raylet in raylets
        if at in ("auto", raylet.cluster) or (host in _LOOPBACK and raylet.cluster.endswith(f":{port}"))
    )


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what workers inherit of a raylet's environment, not the allocator Ray preloads for it alone.

    Ray removes that itself (src/ray/raylet/main.cc); before Ray 2.45 the marker had another name.
    """
    own = environ.get("RAY_LD_PRELOAD_ON_WORKERS") == "0" or environ.get("RAY_LD_PRELOAD") == "1"
    return {name: value for name, value in environ.items() if not (own and name == "LD_PRELOAD")}


def named_in(value: str) -> frozenset[str]:
    """Return the variables that Ray expands in a value of `env_vars`."""
    return frozenset(braced or bare for braced, bare in _NAMED.findall(value))


def expanded(value: str, environ: Mapping[str, str]) -> str:
    """Expand `${NAME}` in a value of `env_vars` as Ray does (`update_envs` in ray/_private/utils.py).

    It reads the environment that the worker inherits; an unset name becomes empty.
    """
    known = _NAMED.sub(lambda match: environ.get(match[1] or match[2], match[0]), value)
    return _LEFT.sub("", known)


def for_workers(ray: Path, names: Collection[str]) -> Iterator[ProcessVariable]:
    """Yield the variables that Ray's own code sets in a worker that already has those `names`.

    A variable that it sets in several ways is unclear.
    """
    found: dict[str, ProcessVariable] = {}
    for write in writes(ray, _WRITERS):
        if not (write.asked_first and write.name in names):
            sure = write.value is not None and write.name not in found
            found[write.name] = ProcessVariable(
                write.name, write.value if sure else UNCLEAR, (write.path, write.line), RAY
            )
    yield from found.values()


def devices_of_workers(ray: Path, *, nvidia: bool) -> Iterator[tuple[str, str, Place]]:
    """Yield the variables that give Ray's workers accelerators, the switch that forbids it, and the place.

    Of the GPU vendors Ray uses the one whose GPUs it finds (`get_accelerator_manager_for_resource` in
    ray/_private/accelerators): with NVIDIA GPUs, the variables of the others stay as inherited.
    """
    for path in sorted((ray / "_private" / "accelerators").glob("*.py")):
        source = read(path)
        text = source.decode("utf-8", "replace") if isinstance(source, bytes) else ""
        if nvidia and path.name != _NVIDIA and _FOR_GPUS.search(text):
            continue
        for found in _SWITCH.finditer(text):
            yield found[2], found[1], (str(path), text.count("\n", 0, found.start()) + 1)


def may_override(ray: Path) -> bool:
    """Return whether this Ray rejects a variable that job and driver both set, unless a switch allows it."""
    source = read(ray / "_private" / "worker.py")
    return isinstance(source, bytes) and b"RAY_OVERRIDE_JOB_RUNTIME_ENV" in source
