"""What an ELF file says of itself: for which machine it is, its name, and which libraries it asks for and where."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

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
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - few runs need it, and it is slow to import
    from elftools.elf.dynamic import DynamicSegment  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415
    from elftools.elf.segments import InterpSegment  # noqa: PLC0415

    kind = kind_of(path)
    told: dict[str, list[str]] = {tag: [] for tag in ("DT_SONAME", "DT_NEEDED", "DT_RPATH", "DT_RUNPATH")}
    interpreter = ""
    try:
        with path.open("rb") as file:
            for segment in ELFFile(file).iter_segments():
                if isinstance(segment, InterpSegment):
                    interpreter = segment.get_interp_name()
                elif isinstance(segment, DynamicSegment):
                    for tag in segment.iter_tags():
                        if tag.entry.d_tag in told:
                            told[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag[3:].lower()))
    except (ELFError, ValueError, LookupError, AttributeError, TypeError, struct.error) as error:
        raise NotElf(f"a damaged ELF file ({error or type(error).__name__})") from error
    return Image(
        kind,
        soname="".join(told["DT_SONAME"][:1]),
        needed=tuple(told["DT_NEEDED"]),
        rpath=_entries(told["DT_RPATH"]),
        runpath=_entries(told["DT_RUNPATH"]),
        interpreter=interpreter,
    )


def _entries(lists: list[str]) -> tuple[str, ...]:
    return tuple(entry for text in lists if text for entry in text.split(":"))
