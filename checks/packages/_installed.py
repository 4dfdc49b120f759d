"""Phrases about installed files that several rules use.

They cover the path of files, the command that restores them, and the cache that shares them.
"""

from __future__ import annotations

import re

from verl_doctor.toolkit.collectors.packages.records import Drift

_UV_CACHE = re.compile(r"/archive-v\d+/")


def below_site(path: str) -> str:
    """The path below site-packages or dist-packages."""
    return path.rpartition("-packages/")[2]


def reinstall(name: str, version: str, installer: str = "") -> str:
    """The command that reinstalls a package, in the syntax of the installer that installed it.

    A local version ("0.31.0+cpu") is on no package index, so its wheel must be named.
    """
    if "+" in version:
        return f"pip install --force-reinstall --no-deps WHEEL, with the wheel of {name} {version}"
    if installer.startswith("uv"):
        return f"uv pip install --no-deps --reinstall-package {name} {name}=={version}"
    if installer == "conda":
        return f"conda install --force-reinstall {name}"
    return f"pip install --force-reinstall --no-deps {name}=={version}"


def cache_of(drift: Drift) -> str:
    """The installer whose cache has the same changed file ("uv", "conda"); "" if none.

    A second hard link alone proves nothing: backups made with `cp -al`, ostree and deduplication tools create
    such links too. uv and conda link what they install from their caches, and record themselves in INSTALLER.
    For a symbolic link, the target is known.
    """
    conda = drift.installer == "conda"
    if drift.leads_to:
        if _UV_CACHE.search(drift.leads_to):
            return "uv"
        return "conda" if conda and "/pkgs/" in drift.leads_to else ""
    if drift.links < 2:
        return ""
    return "conda" if conda else "uv" if drift.installer.startswith("uv") else ""
