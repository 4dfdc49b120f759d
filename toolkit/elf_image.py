"""What an ELF file says of itself: for which machine it is, its name, and which libraries it asks for and where."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.elf import read_header

_MAGIC = b"\x7fELF"
_BITS = {1: 32, 2: 64}
_ORDER = {1: "<", 2: ">"}


class NotElf(Exception):  # noqa: N818 - an answer, no error of ours
    """The file is no ELF file, or a damaged one: why, in a few words."""


@dataclass(frozen=True)
class Kind:
    """For which processor a file is: 32 or 64 bits, and the number of the machine (`e_machine` of elf(5))."""

    bits: int
    machine: int


@dataclass(frozen=True)
class Image:
    """The dynamic section of an ELF file. Of rpath and runpath each entry is as it is written, `$ORIGIN` included.

    `interpreter` is the loader that a program names, "" for a library.
    """

    kind: Kind
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str = ""


def kind_of(path: Path) -> Kind:
    """Read the first bytes of a file. Raises NotElf, or OSError when it cannot be read."""
    with path.open("rb") as file:
        head = file.read(20)
    if not head.startswith(_MAGIC):
        raise NotElf("no ELF file" if head else "an empty file")
    if len(head) < 20 or head[4] not in _BITS or head[5] not in _ORDER:
        raise NotElf("a damaged ELF file")
    (machine,) = struct.unpack_from(f"{_ORDER[head[5]]}H", head, 18)
    return Kind(_BITS[head[4]], machine)


def image_of(path: Path) -> Image:
    """Read the dynamic section. Raises NotElf, or OSError when the file cannot be read."""
    kind = kind_of(path)
    header = read_header(str(path))
    if header.problem:
        raise NotElf(f"a damaged ELF file ({header.problem})")
    return Image(
        kind,
        soname=header.soname,
        needed=header.needed,
        rpath=_entries(header.rpath),
        runpath=_entries(header.runpath),
        interpreter=header.interpreter,
    )


def _entries(text: str) -> tuple[str, ...]:
    return tuple(text.split(":")) if text else ()
