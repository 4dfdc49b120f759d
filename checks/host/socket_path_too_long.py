"""HOST108: the path of a temporary folder is too long for sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.corrections import LEAVE_OUT, Healed, healed, settings, variable
from verl_doctor.checks.shared.folders import named, roomy
from verl_doctor.checks.shared.limits_examples import an_h200_node
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_VARIABLE = "RAY_TMPDIR"
_WHY = "Ray's own folder has a short path"
_KEY = "ray_kwargs.ray_init._temp_dir"
_MOST = 107  # bytes of a path, unix(7)
# ray/_private/node.py: session_{%Y-%m-%d_%H-%M-%S_%f}_{pid}/sockets/plasma_store
_STAMP = "2026-11-21_15-38-35_651345"
_UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
_LONG = "/scratch/users/somebody/projects/reinforcement/tmp"


def _example(*folders: Folder, **variables: str) -> tuple[object, ...]:
    return Folders(folders), an_h200_node(), Variables(variables)


def _examples() -> list[Example]:
    return [
        Example("the usual path", _example(roomy(), roomy("temporary files", "/tmp"))),
        Example("39 bytes", _example(roomy(path=f"{'/scratch/somebody/tmp/of/this/project':39}/ray"))),
        Example(
            "a running raylet already has its sockets", _example(roomy(path=f"{_LONG}/ray", in_use=True))
        ),
        Example(
            "50 bytes", _example(roomy(path=f"{_LONG}/ray", given_by="TMPDIR of this shell")), "Ray's sockets"
        ),
        Example(
            "71 bytes, for vLLM",
            _example(roomy("temporary files", f"{_LONG}/of-this-very-long-job")),
            "vLLM's sockets",
        ),
        Example(
            "a folder set for vLLM",
            _example(roomy(), VLLM_RPC_BASE_PATH=f"{_LONG}/of-this-very-long-job"),
            "VLLM_RPC_BASE_PATH",
        ),
    ]


@check("HOST108", phase="ray", severity="error", examples=_examples)
def socket_path_too_long(
    folders: Folders,
    limits: HostLimits,
    variables: Variables,
    configuration: Configuration | Unknown,
    launch: Launch | Unknown,
) -> Iterator[Finding]:
    """The path of a temporary folder is too long for sockets.

    ## Why it matters

    The path of a Unix socket has at most 107 bytes, and Ray appends 60 or more to its folder: `AF_UNIX path
    length cannot exceed 107 bytes`. A TMPDIR of more than 39 bytes is too long for Ray, of more than 70 for
    vLLM.

    ## How to fix

    Set a short RAY_TMPDIR before Ray starts, and for vLLM a short VLLM_RPC_BASE_PATH or TMPDIR. A short
    symbolic link to the long path works: only the written path counts (tested with Ray 2.60).
    """
    number = str((limits.pid_max or 4194304) - 1)
    socket = f"/session_{_STAMP}_{number}/sockets/plasma_store"
    for folder in folders.of("Ray's sessions"):
        if not folder.in_use and _length(folder.path, socket) > _MOST:
            found = _finding(named(folder), "Ray's sockets", folder.path, socket, "short-ray-folder")
            yield (
                replace(
                    found, **(_set_by_script(folder.path, launch) or _set_by_key(folder.path, configuration))
                )
            )
    base = variables.get("VLLM_RPC_BASE_PATH")
    if base and _length(base, f"/{_UUID}") > _MOST:
        yield _finding("VLLM_RPC_BASE_PATH", "vLLM's sockets", base, f"/{_UUID}")
    for folder in folders.of("temporary files"):
        if not base and _length(folder.path, f"/{_UUID}") > _MOST:
            yield _finding(named(folder), "vLLM's sockets", folder.path, f"/{_UUID}")


def _set_by_script(path: str, launch: Launch | Unknown) -> Healed:
    """A line of the script that names the folder is left out: Ray then chooses a short one."""
    lines = () if isinstance(launch, Unknown) else launch.settings
    for line in lines:
        if line.name == _VARIABLE and line.value and line.in_file and not line.removed:
            at = Location(line.path, line.line)
            if path.rstrip("/") == f"{line.value.rstrip('/')}/ray":
                return healed("HOST108", variable(line.name, line.value, at, None, _WHY))
    return {}


def _set_by_key(path: str, configuration: Configuration | Unknown) -> Healed:
    """A folder that the command itself names is left out: Ray then chooses a short one."""
    if isinstance(configuration, Unknown):
        return {}
    word = configuration.override_of(_KEY)
    if word is None or str(word.value).rstrip("/") != path.rstrip("/"):
        return {}
    return healed("HOST108", settings(configuration, {_KEY: LEAVE_OUT}, _WHY, ""))


def _length(path: str, more: str) -> int:
    return len(f"{path.rstrip('/')}{more}".encode("utf-8", "surrogateescape"))


def _finding(name: str, whose: str, path: str, more: str, fix: str | None = None) -> Finding:
    least = _MOST - len(more)
    return Finding(
        f"{name} is too long for {whose}: their paths would be {_length(path, more)} bytes long",
        Evidence(
            found=f"{path.rstrip('/')}{more}", wanted=f"{_MOST} bytes, so {least} or fewer for the folder"
        ),
        remedy="set RAY_TMPDIR to a short path on a local disk, before Ray starts"
        if fix
        else "set VLLM_RPC_BASE_PATH or TMPDIR to a short path on a local disk",
        fix=fix,
        subject=Subject("folder", path, whose),
    )
