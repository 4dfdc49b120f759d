"""Small environments that look like real ones: a folder with metadata, and the interpreter's report on it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages, packages

LONG_AGO = 1_600_000_000


def site_packages(top: Path) -> Path:
    """Create the folder for packages."""
    site = top / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    return site


def interpreter(
    *sites: Path, version: str = "3.11.7", system: str = "Linux", machine: str = "x86_64"
) -> Interpreter:
    """Return what the Python of such an environment would report about itself."""
    return Interpreter(
        executable="/env/bin/python",
        version=version,
        implementation="cpython",
        cache_tag="cpython-" + "".join(version.split(".")[:2]),
        environment="venv",
        prefix=str(sites[0].parents[2]) if sites else "/env",
        sys_path=tuple(map(str, sites)),
        site_packages=tuple(map(str, sites)),
        system=system,
        machine=machine,
        glibc="2.36",
        verl="",
        vllm="",
    )


def look_at(*sites: Path, version: str = "3.11.7") -> Packages:
    """Collect the packages of these folders."""
    found = packages.collect(interpreter(*sites, version=version))
    assert isinstance(found, Packages)
    return found


def install(
    site: Path,
    name: str,
    version: str,
    *,
    requires: Iterable[str] = (),
    extras: Iterable[str] = (),
    requires_python: str = "",
    files: Mapping[str, bytes] | None = None,
    installer: str = "pip",
    tag: str = "py3-none-any",
) -> Path:
    """Install a package as pip would: its files long ago, then the metadata, RECORD last. Return the metadata folder."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    fields = [("Metadata-Version", "2.1"), ("Name", name), ("Version", version)]
    fields += [("Requires-Python", requires_python)] if requires_python else []
    fields += [("Requires-Dist", text) for text in requires] + [("Provides-Extra", text) for text in extras]
    content = dict(files or {})
    content[f"{folder.name}/METADATA"] = "".join(f"{key}: {value}\n" for key, value in fields).encode()
    content[f"{folder.name}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    lines = []
    for path, body in content.items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        os.utime(file, (LONG_AGO, LONG_AGO))
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(body)}")
    (folder / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
    (folder / "RECORD").write_text("\n".join([*lines, f"{folder.name}/RECORD,,", ""]), encoding="utf-8")
    return folder
