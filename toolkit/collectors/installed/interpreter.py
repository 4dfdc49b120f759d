"""The target's interpreter, queried in a child process that imports nothing but the standard library."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.system.child import run_probe_text
from verl_doctor.toolkit.system.secret import list_may_hold_secret
from verl_doctor.toolkit.target import LIBRARIES, Target

# Runs under the target's interpreter, which may be so old that it can only report its version. `find_spec` of
# a top-level name imports nothing, but it does query the finders of editable installs. The result follows a
# token that no other output contains.
_QUESTION = r"""
import sys
def answer(text):
    sys.stdout.write("\n" + sys.argv[1] + text + "\n")
    sys.stdout.flush()
if sys.version_info < (3, 6):
    answer('{"too_old": "%d.%d.%d"}' % sys.version_info[:3])
    sys.exit()
import importlib.util, json, os, platform, sysconfig
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
given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sites = [paths["purelib"], paths["platlib"]] + [
    entry for entry in sys.path
    if os.path.basename(entry) in ("site-packages", "dist-packages") and entry not in given]
answer(json.dumps({
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
    "bits": 64 if sys.maxsize > 2 ** 32 else 32,
    "compiler": platform.python_compiler(),
    "build": " ".join(platform.python_build()),
    "glibc": glibc,
    "verl": origin("verl"),
    "vllm": origin("vllm"),
    "libraries": [[name, origin(name)] for name in sys.argv[2:]],
    "safe_path": bool(getattr(sys.flags, "safe_path", False)),
}))
"""
# The part of a reason that shows that the interpreter itself works.
SOUND_WHEN_ISOLATED = "isolated (-I -S) it answers"
_LIMIT = 10
_LIMIT_ISOLATED = 5


@dataclass(frozen=True)
class Interpreter:
    """What the target's Python reports about itself.

    `sys_path` leaves out the current folder, and what may hold a secret. `site_packages` are its own package
    folders, without those that PYTHONPATH names. `glibc` is empty if there is none. `verl` and `vllm` are the
    package folders that an import would use, empty if it would find nothing; `libraries` are those of others,
    by name. `safe_path`: PYTHONSAFEPATH keeps the current folder off the path. `compiler` and `build` (a name
    and a date) are those that it was built with, `bits` is the width of its pointers, 0 if unknown.
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
    safe_path: bool = False
    libraries: tuple[tuple[str, str], ...] = ()
    compiler: str = ""
    build: str = ""
    bits: int = 0


@collector(timeout=25)
def interpreter(machine: Machine, target: Target) -> Interpreter | Unknown:
    """Query the interpreter as the user's job would start it.

    If that fails, query it again without the user's settings.
    """
    python = str(target.python)
    result = _query(machine, [python], _LIMIT)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if reported is None:
        return _why_not(machine, python, output)
    if "too_old" in reported:
        return Unknown(
            f"{python} is Python {reported['too_old']}, which is too old to be examined and for any "
            "verl; name a Python 3"
        )
    try:
        reported["sys_path"] = tuple(path for path in reported["sys_path"] if not list_may_hold_secret(path))
        reported["site_packages"] = tuple(reported["site_packages"])
        reported["libraries"] = tuple((name, folder) for name, folder in reported["libraries"])
        return Interpreter(**reported)
    except (KeyError, TypeError):
        return Unknown(f"{python} is not a Python interpreter: it printed {output.stdout[:60]!r}")


def _query(
    machine: Machine, command: list[str], limit: float
) -> tuple[Output, dict[str, Any] | None] | Unknown:
    """Run the query. A result counts whatever else is printed, and however the process ends."""
    result = run_probe_text(machine, command, _QUESTION, *LIBRARIES, timeout=limit)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    return output, reported if isinstance(reported, dict) else None


def _why_not(machine: Machine, python: str, output: Output) -> Unknown:
    failed = _failure(output, _LIMIT)
    again = _query(machine, [python, "-I", "-S"], _LIMIT_ISOLATED)
    if isinstance(again, Unknown):
        return again
    isolated, reported = again
    if reported is not None:
        set_here = ", ".join(name for name in ("PYTHONHOME", "PYTHONPATH") if machine.environ.get(name))
        return Unknown(
            (
                f"{python} {failed} when it is started as the job would start it; {SOUND_WHEN_ISOLATED}, so "
                "a .pth file, sitecustomize, usercustomize or a PYTHON... variable breaks it"
            )
            + (f" (set here: {set_here})" if set_here else ""),
            kind="sound when isolated",
        )
    if output.code == 0:
        return Unknown(f"{python} is not a Python interpreter: it printed {output.stdout[:60]!r}")
    other = _failure(isolated, _LIMIT_ISOLATED)
    reason = f"{python} {failed}; isolated (-I -S) it fails as well" + (
        f": {other}" if other != failed else ""
    )
    short = any(
        os.strerror(number) in reason for number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE)
    )  # its own output
    return Unknown(reason, kind="no more processes" if short else "")


def _failure(output: Output, limit: float) -> str:
    if output.code is None:
        return f"did not respond within {limit:.0f} s"
    if output.stderr.strip() or output.stdout.strip():
        return f"failed: {output.last_line}"
    if output.code < 0:
        return f"was ended by {_signal(-output.code)}"
    return f"ended with exit code {output.code} and printed nothing"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
