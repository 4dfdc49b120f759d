"""The target's interpreter, asked in a child process that imports nothing but the standard library."""

from __future__ import annotations

import json
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

# Runs under the target's interpreter, perhaps an old one. `find_spec` of a top-level name imports nothing, yet it
# asks the finders that editable installs put in place.
_QUESTION = r"""
import importlib.util, json, os, platform, sys, sysconfig
sys.path[:] = [entry for entry in sys.path if entry]
def origin(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:
        return ""
    if spec is None:
        return ""
    return (list(spec.submodule_search_locations or []) or [spec.origin or ""])[0]
try:
    glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
except Exception:
    glibc = ""
paths = sysconfig.get_paths()
conda = os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
sites = [paths["purelib"], paths["platlib"]] + [
    entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
print(json.dumps({
    "executable": sys.executable,
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "cache_tag": sys.implementation.cache_tag or "",
    "environment": "venv" if sys.prefix != sys.base_prefix else "conda" if conda else "system",
    "prefix": sys.prefix,
    "sys_path": sys.path,
    "site_packages": [path for path in dict.fromkeys(sites) if os.path.isdir(path)],
    "system": platform.system(),
    "machine": platform.machine(),
    "glibc": glibc,
    "verl": origin("verl"),
    "vllm": origin("vllm"),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What the target's Python says of itself.

    `sys_path` leaves the current folder out. `glibc` is empty where there is none. `verl` and `vllm` are the package
    folders that an import would take, empty when it would find nothing.
    """

    executable: str
    version: str
    implementation: str
    cache_tag: str
    environment: str
    prefix: str
    sys_path: tuple[str, ...]
    site_packages: tuple[str, ...]
    system: str
    machine: str
    glibc: str
    verl: str
    vllm: str


@collector(timeout=15)
def interpreter(machine: Machine, target: Target) -> Interpreter | Unknown:
    """Ask the interpreter, as the user's job would start it."""
    try:
        answer = machine.run([str(target.python), "-c", _QUESTION], timeout=10)
    except OSError as error:
        return Unknown(f"{target.python} cannot be started: {error.strerror}")
    if answer.code is None:
        return Unknown(f"{target.python} did not answer within 10 s")
    if answer.code != 0:
        return Unknown(f"{target.python} failed: {answer.said}")
    try:
        said = json.loads(answer.stdout.splitlines()[-1])
        said["sys_path"], said["site_packages"] = tuple(said["sys_path"]), tuple(said["site_packages"])
        return Interpreter(**said)
    except (ValueError, KeyError, TypeError, IndexError):
        return Unknown(f"{target.python} is no Python interpreter: it answered {answer.stdout[:60]!r}")
