"""The installer of an environment: its own pip, uv, or the pip of verl-doctor."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.change import LOCK, PYTHON
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

WHEELS_ONLY = "--only-binary=:all:"
# Without a network it must fail soon. Without any retry, pip does not report that no index responded.
PIP_SOON = ("--retries", "1", "--timeout", "5")
_PIP_DRY = Version("22.2")  # --dry-run, --report
_PIP_OF_OTHERS = Version("22.3")  # --python
_PIP_READS_METADATA = Version("23.3")  # older ones download each wheel for a dry run


@dataclass(frozen=True)
class Installer:
    """The beginning of the command to type, and of the command that performs the dry run."""

    typed: tuple[str, ...]
    command: tuple[str, ...]
    is_uv: bool = False

    def for_lock(self, python: str) -> tuple[str, ...]:
        """Return the command that installs a lock, for any interpreter."""
        beginning = (PYTHON if word == python else word for word in self.command)
        return (*beginning, WHEELS_ONLY, "--no-deps", "-r", LOCK)


def installer_of(
    machine: Machine, target: Target, interpreter: Interpreter, packages: Packages
) -> Installer | Unknown:
    """Choose uv if uv made the environment or pip is missing, else its pip, and finally verl-doctor's own."""
    uv = shutil.which("uv", path=machine.environ.get("PATH", ""))
    pip = packages.get("pip")
    if uv and (pip is None or _made_by_uv(Path(interpreter.prefix))):
        words: tuple[str, ...] = (uv, "pip", "install", "--python", str(target.python))
        return Installer(words, words, is_uv=True)
    install_quietly = ("install", "--no-input", "--disable-pip-version-check")
    own = (sys.executable, "-m", "pip", "--python", str(target.python), *install_quietly)
    has_own = _at_least(_own_pip(), _PIP_OF_OTHERS)
    if pip is not None:
        words = (str(target.python), "-m", "pip", *install_quietly)
        is_faster = _at_least(_own_pip(), _PIP_READS_METADATA) and not _at_least(
            pip.version, _PIP_READS_METADATA
        )
        is_needed = has_own and not _at_least(pip.version, _PIP_DRY)
        return Installer(words, own if is_faster or is_needed else words)
    if has_own:
        return Installer(own, own)
    return Unknown("neither pip nor uv is available; put uv on the PATH")


def _own_pip() -> str:
    """Return the version of the pip installed with verl-doctor, or ""."""
    try:
        return importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _at_least(version: str, wanted: Version) -> bool:
    try:
        return Version(version) >= wanted
    except InvalidVersion:
        return False


def _made_by_uv(prefix: Path) -> bool:
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^uv\s*=", text, re.MULTILINE) is not None
