"""Stand-ins for hosts. Those that are called alike but for a number keep it, so that lists of them can still be read.

gpu-a100-[001-112] becomes node-[001-112], those of the next such row node2-007, a host without a number host-1. Of a domain that is known
every name is a host, and so is what is named as clouds and clusters name machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from verl_doctor.toolkit.mask_stand_ins import StandIns

# A dotted name of Python has no number or hyphen before its first dot.
_OF_CLOUDS = re.compile(
    r"\bip-\d+-\d+-\d+-\d+(?:\.[\w-]+)*"
    r"|(?<![\w./-])(?=[A-Za-z0-9-]*[\d-])[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*"
    r"\.(?:internal|local|localdomain|lan|corp|intranet|cluster)\b(?![\w(/-])"
)
_NUMBERED = re.compile(r"(.{2,}?)\d+")
_ONLY_HEX = re.compile(r"[0-9a-f]{8,}")  # what container engines call a container
_LONGEST_GENERIC = 4  # letters before a number that may as well be those of a GPU


class HostMask:
    """Masks the hosts in a text, which are named with or without their domain; without it only those that `may_be_found` as words."""

    def __init__(
        self, hosts: Iterable[str], may_be_found: Callable[[str], bool], stand_ins: StandIns
    ) -> None:
        self._stand_ins = stand_ins
        parts = [host.partition(".") for host in hosts]
        self._names = {name for name, _, _ in parts if may_be_found(name)}
        stems = {name: _stem(name) for name in self._names}
        domains = "|".join(sorted(re.escape(domain) for _, _, domain in parts if domain))
        behind = rf"(?:\.(?:{domains}))?" if domains else ""
        self._row = any_of(
            filter(None, stems.values()), r"(?<![\w-])", rf"(?P<number>\d+(?!\w)|\[[\d,-]+\]){behind}"
        )
        self._alone = any_of(
            (name for name, stem in stems.items() if not stem), r"(?<![\w-])", rf"{behind}(?![\w-])"
        )
        self._domain = re.compile(rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:{domains})\b") if domains else None

    def __call__(self, text: str) -> str:
        """The text with stand-ins."""
        if self._row is not None:
            text = self._row.sub(self._in_row, text)
        if self._alone is not None:
            text = self._alone.sub(lambda found: self._stand_ins.of("host", found["word"]), text)
        if self._domain is not None:
            text = self._domain.sub(self._host, text)
        return _OF_CLOUDS.sub(self._host, text)

    def _host(self, found: re.Match[str]) -> str:
        return self._stand_ins.of("host", found[0])

    def _in_row(self, found: re.Match[str]) -> str:
        stem, number = found["word"], found["number"]
        if len(stem) <= _LONGEST_GENERIC and number.isdigit() and stem + number not in self._names:
            return found[0]
        row = self._stand_ins.number("row", stem)
        return f"node{'' if row == '1' else row}-{number}"


def _stem(name: str) -> str:
    """What stands before the number at the end of a name, "" where there is none."""
    numbered = None if _ONLY_HEX.fullmatch(name) else _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else ""


def any_of(words: Iterable[str], before: str, behind: str) -> re.Pattern[str] | None:
    """A pattern that finds each of the words, the longest first, as the group `word`; None when there are none."""
    listed = "|".join(map(re.escape, sorted(set(words), key=len, reverse=True)))
    return re.compile(f"{before}(?P<word>{listed}){behind}") if listed else None
