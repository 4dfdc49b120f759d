"""The installed distributions' compiled files: listed in RECORD, or found next to their sources."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from verl_doctor.toolkit.collectors.compiled.elf_memory import ElfMemory
from verl_doctor.toolkit.collectors.installed.packages import Distribution
from verl_doctor.toolkit.index.records import look
from verl_doctor.toolkit.text import canonical

_LARGEST_RECORD = 64 * 1024 * 1024  # bytes
_LARGEST_LIST = 64 * 1024
_SHARED_OBJECT = re.compile(r'^([^,"\r\n]+\.so(?:\.\d+)*),', re.MULTILINE)
_MOST_FOUND = 300
# The depth below a package's folder at which its modules are found, as in
# vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so.
_PATTERNS = ("*.so", "*/*.so", "*/*/*.so")


def compiled_files(
    distributions: Iterable[Distribution], memory: ElfMemory
) -> Iterator[tuple[str, Distribution]]:
    """Yield each existing file with the distribution that it belongs to."""
    for distribution in distributions:
        record = f"{distribution.location}/RECORD"
        listed = memory.recall("compiled files", [record], lambda kept: [str(name) for name in kept])
        if listed is None:
            listed = _SHARED_OBJECT.findall(_text(record, _LARGEST_RECORD))
            memory.keep("compiled files", [record], listed)
        site = str(Path(distribution.location).parent)
        paths = [os.path.normpath(f"{site}/{name}") for name in listed]
        if look(record) is None or distribution.editable:
            paths += _found(distribution)
        yield from ((path, distribution) for path in dict.fromkeys(paths) if os.path.isfile(path))


def stray_modules(
    sites: Iterable[str], distributions: Iterable[Distribution]
) -> Iterator[tuple[str, Distribution]]:
    """Yield modules next to the packages that a local build left.

    With each comes the distribution that it seems to belong to.
    """
    owners = sorted(distributions, key=lambda distribution: len(distribution.name), reverse=True)
    for site in sites:
        for path in sorted(Path(site).glob("*.so")):
            name = canonical(path.name.partition(".")[0])
            owner = next(
                (distribution for distribution in owners if name.startswith(distribution.name)), None
            )
            yield str(path), owner or Distribution(name, "", site)


def _found(distribution: Distribution) -> Iterator[str]:
    """Yield files next to an editable installation's sources, or in the packages of one without RECORD."""
    source = _source(distribution)
    if source:
        roots = [Path(source)]
    else:
        above = Path(distribution.location).parent
        names = _text(f"{distribution.location}/top_level.txt", _LARGEST_LIST).split()
        roots = [above / name for name in names if name.isidentifier()]
        yield from (str(path) for name in names if name.isidentifier() for path in above.glob(f"{name}.*so"))
    found = (str(path) for root in roots for pattern in _PATTERNS for path in root.glob(pattern))
    yield from islice(found, _MOST_FOUND)


def _source(distribution: Distribution) -> str:
    """Return the source folder of an editable installation, "" if not recorded (PEP 610)."""
    try:
        url = urlsplit(json.loads(_text(f"{distribution.location}/direct_url.json", _LARGEST_LIST))["url"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return unquote(url.path) if distribution.editable and url.scheme == "file" else ""


def _text(path: str, most: int) -> str:
    if look(path) is None:  # opening a pipe would block
        return ""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - no Path is needed
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
