"""The changes that a dry run of pip or uv reports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.machine import Output
from verl_doctor.toolkit.text import canonical

_UV_CHANGE = re.compile(r"^ ([+-]) ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def changes_in(output: Output, *, is_uv: bool) -> dict[str, str]:
    """Return the versions that would be installed, by name."""
    return _uv_changes(output) if is_uv else _pip_changes(output)


def _uv_changes(output: Output) -> dict[str, str]:
    found = _UV_CHANGE.findall(output.stderr + output.stdout)
    return {canonical(name): version for sign, name, version in found if sign == "+"}


def _pip_changes(output: Output) -> dict[str, str]:
    """Parse the report, which is mixed with pip's messages."""
    text = "\n" + output.stdout
    start = text.find("\n{")
    try:
        report, _ = json.JSONDecoder().raw_decode(text, max(start, 0) + 1)
        metadata = [entry["metadata"] for entry in report["install"]]
        return {canonical(entry["name"]): str(entry["version"]) for entry in metadata}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def in_words(changes: Mapping[str, str], packages: Packages) -> Iterator[str]:
    """Yield each change as text."""
    for name, version in sorted(changes.items()):
        installed = packages.get(name)
        if installed is None:
            yield f"{name} {version} (new)"
        elif installed.version == version:
            yield f"{name} {version} (again)"
        else:
            yield f"{name} {installed.version} -> {version}"
