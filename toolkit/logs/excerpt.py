"""A bounded number of a log's lines that may explain why a run failed.

They are searched in blocks rather than line by line.

A line counts if it contains a known word. After the head of a traceback every line counts for a while,
because several processes may write in turn. A repeated complaint counts a few times; the end of the log
always counts. If every line of a log complains, the first and the last complaints are kept.
"""

from __future__ import annotations

import functools
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ahocorasick_rs import BytesAhoCorasick

from verl_doctor.toolkit.logs.lines import Line, decoded, read_line
from verl_doctor.toolkit.logs.quoted import MARKS
from verl_doctor.toolkit.system.errors import reason_of

CUT_OFF = (EOFError, zlib.error, OSError, ValueError)
"""The errors that readers of compressed files raise when a file is damaged or truncated."""

WORDS = (
    "rror",
    "ERROR",
    "xception",
    "raceback",
    "ailed",
    "annot",
    "nable to",
    "illed",
    "ould not",
    "NCCL WARN",
    "not found",
    "No such file or directory",
    "No space left on device",
    "No module named",
    "temporarily unavailable",
    "terminate called",
    "Watchdog caught",
    "out of memory",
    "low on ",
    "memory pressure",
    "oom_kill",
    "% full, available space",
    "Sleep mode freed",
    " received at time=",
    "trigger received signal=",
    "Application startup complete",
    "fired up and ready to roll",
    "Successfully built ",
    "Successfully installed ",
    "double free detected",
    "not registered within",
    "fate shares",
    "marked",
    "NVRM: Xid",
    "Unknown vLLM environment",
    "KeyboardInterrupt",
    "checkpoint shards",
    " took ",
    "core engine proc",
    "Final validation metrics",
    "ray init kwargs",
    "ptxas fatal   : ",
    "UserWarning: CUDA initialization: ",
    "Waiting for register center actor ",
    "which is incompatible",
    "access fault",
    "step creation ",
    "xceed",
    "Pressure]",
    "cache memory: -",
    "times out",
    "profiled value",
    "exit code",
    "PREEMPT",
    "Preempted by",
    "Eviction",
    "node scale down",
    "death signal",
    ":nan",
    "': nan",
    "HCCP",
    "Assertion `",
    "ermission denied",
    "untime env agent",
    ": fatal: ",
    "list too long",
    "Ray dependencies",
    "NVIDIA Driver was not",
    "NET/Socket : Using",
    "NVSHMEM API called",
    "UNREACHABLE executed",
    ": invalid option",
    "free(): invalid",
    "corruption (",
    "corrupted size vs",
    "munmap_chunk()",
    "malloc(): ",
    "numeric argument required",
    "not a valid identifier",
    " synthetic padding",
)
"""Search words: nearly every complaint contains at least one, and so do the beginning and the end of a run.

Longer words search faster: the search takes up to half a second per gigabyte. The tests of the signatures
name an example that contains none.
"""

GOES_ON = 2
"""How many lines after a complaint its message may continue."""

_OPENERS = (b"Traceback (most recent", b"ray::", b"Error executing job", b"terminate called", b'File "')
_SPECIAL = BytesAhoCorasick([*_OPENERS, *(mark.encode() for mark in MARKS)])
_WINDOW = 40  # lines after an opener, or after a frame
_OFTEN = 3  # times that a complaint is kept
_TRACEBACKS = 20  # times that a traceback is kept
_SAMPLE = 600  # bytes by which tracebacks are distinguished
_KNOWN = 100_000  # complaints that are remembered
_FIRST, _LAST = 20_000, 10_000  # lines that are kept
_TAIL = 32_768  # bytes of the end
_LONGEST = 3500  # bytes of a line
_BEFORE, _ENDING = 160, 1000  # bytes of a longer line: before its first complaint, at its end
_BLOCK = 1 << 20
_DIGITS = b"0123456789"


@dataclass(frozen=True)
class Excerpt:
    """The relevant lines in their order, and the number of lines and bytes in the log.

    `left_out` counts the lines beyond the limit, `shortened` the complaining lines longer than the buffer.
    `cut_off` is why the log could not be read to its end.
    """

    lines: tuple[Line, ...]
    total: int
    size: int
    left_out: int = 0
    shortened: int = 0
    cut_off: str = ""


def excerpt(
    read: Callable[[int], bytes],
    words: Sequence[str] = WORDS,
    *,
    beside: Callable[[int, bytes], None] | None = None,
) -> Excerpt:
    """Read a log to its end, in time proportional to its size and in bounded memory.

    `beside` also receives all of it, in blocks of whole lines with the number of the first line.
    """
    reader = _Reader(tuple(word.encode() for word in (*words, *MARKS)))
    cut_off = ""
    try:
        for block, size in _blocks(read, reader.shortened):
            if beside is not None:
                beside(reader.number, block)
            reader.take(block, size)
    except CUT_OFF as error:
        if not reader.size:
            raise
        cut_off = reason_of(error)
    return replace(reader.end(), cut_off=cut_off)


def has_word(text: str) -> bool:
    """Return whether a line contains one of the words."""
    return any(word in text for word in WORDS)


def _blocks(read: Callable[[int], bytes], shortened: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield the content in blocks of whole lines, each with its original size in bytes.

    An endless line is shortened as it grows.

    A partial line is yielded before the reader's error is raised.
    """
    begun, size = b"", 0
    broken: Exception | None = None
    while True:
        try:
            chunk = read(_BLOCK)
        except CUT_OFF as error:
            chunk, broken = b"", error
        if not chunk:
            break
        size += len(chunk)
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield begun + whole + newline, size - len(rest)
            begun, size = rest, len(rest)
        elif len(begun) + len(chunk) > 2 * _BLOCK:
            begun = shortened(begun + chunk)
        else:
            begun += chunk
    if begun:
        yield begun + b"\n", size
    if broken is not None:
        raise broken


def _lines_with(search: BytesAhoCorasick, block: bytes) -> list[int]:
    """Return the offsets of the lines that contain one of the words."""
    found, end = [], 0
    for _, at, _ in search.find_matches_as_indexes(block):
        if at >= end:
            found.append(block.rfind(b"\n", 0, at) + 1)
            end = block.index(b"\n", at)
    return found


def _special_lines(block: bytes) -> tuple[set[int], set[int]]:
    """Return the offsets of the lines that open a traceback, and of those with a quotation mark."""
    opening: set[int] = set()
    marked: set[int] = set()
    for which, at, _ in _SPECIAL.find_matches_as_indexes(block):
        (opening if which < len(_OPENERS) else marked).add(block.rfind(b"\n", 0, at) + 1)
    return opening, marked


@functools.cache
def _search_for(words: tuple[bytes, ...]) -> BytesAhoCorasick:
    """Return the search for these words; building it takes longer than searching a small log."""
    return BytesAhoCorasick(words)


class _Reader:
    """One log, block by block."""

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._words = words
        self._search = _search_for(words)
        self.number = 1  # of the next line
        self.size = 0
        self._window = 0  # how many further lines count, whatever they contain
        self._seen: dict[int, int] = {}
        self._first: list[tuple[int, bytes]] = []
        self._last: deque[tuple[int, bytes]] = deque(maxlen=_LAST)
        self._left_out = 0
        self._shortened = 0  # complaining lines longer than a block
        self._opening: set[int] = set()  # offsets in the block of lines that open a traceback
        self._marked: set[int] = set()  # and of those with a quotation mark
        self._tail = (1, b"")

    def take(self, block: bytes, size: int) -> None:
        """Read the next block, which stands for `size` bytes of the log and ends with a line end."""
        at, number = 0, self.number
        self._tail = (number, block) if len(block) >= _TAIL else (self._tail[0], self._tail[1] + block)
        hits = _lines_with(self._search, block)
        self._opening, self._marked = _special_lines(block)
        for hit in (*hits, len(block)):
            while self._window and at < len(block):
                at, number = self._read(block, at, number), number + 1
            if at <= hit < len(block):
                number += block.count(b"\n", at, hit)
                at, number = self._complaint(block, hit, number), number + 1
        self.size += size
        if size > len(block):
            self._shortened += bool(hits) and hits[0] == 0
        self.number = number + block.count(b"\n", at)
        self._cut_tail()

    def _read(self, block: bytes, at: int, number: int) -> int:
        """Keep a line after an opener; return the offset of the next line."""
        end = block.index(b"\n", at)
        line = block[at:end]
        self._keep(number, line)
        self._window -= 1
        if at in self._opening:
            self._window = _WINDOW
        elif (
            self._window < GOES_ON
            and self._is_new(line, _OFTEN)
            and self._search.find_matches_as_indexes(line)
        ):
            self._window = GOES_ON
        return end + 1

    def _complaint(self, block: bytes, at: int, number: int) -> int:
        """Keep a line with one of the words unless it occurred too often; return the next line's offset."""
        end = block.index(b"\n", at)
        if at in self._opening:
            is_new, goes_on = self._is_new(block[at : at + _SAMPLE], _TRACEBACKS), _WINDOW
        else:
            is_new, goes_on = self._is_new(block[at:end], _OFTEN), GOES_ON
        if is_new or at in self._marked:
            self._keep(number, block[at:end])
            self._window = max(self._window, goes_on)
        return end + 1

    def _is_new(self, message: bytes, most: int) -> bool:
        """Return whether this message occurred fewer than `most` times, ignoring numbers."""
        key = hash(message.translate(None, _DIGITS))
        times = self._seen.get(key, 0)
        if times or len(self._seen) < _KNOWN:
            self._seen[key] = times + 1
        return times < most

    def _keep(self, number: int, line: bytes) -> None:
        kept = number, self.shortened(line)
        if len(self._first) < _FIRST:
            self._first.append(kept)
        else:
            self._left_out += len(self._last) == _LAST
            self._last.append(kept)

    def shortened(self, line: bytes) -> bytes:
        """Shorten a very long line to its end and the text around the first of the words.

        The result reads as if the end overwrote the rest.
        """
        if len(line) <= _LONGEST:
            return line
        first = len(line)
        for word in self._words:
            at = line.find(word, 0, first)
            first = at if at >= 0 else first
        first = 0 if first == len(line) else first
        begin = max(first - _BEFORE, line.rfind(b"\r", 0, first) + 1)
        if len(line) - begin <= _LONGEST:
            return line[begin:]
        return line[begin : begin + _LONGEST - _ENDING - 1] + b"\r" + line[-_ENDING:]

    def _cut_tail(self) -> None:
        number, text = self._tail
        if len(text) > _TAIL:
            cut = text.find(b"\n", len(text) - _TAIL) + 1
            self._tail = number + text.count(b"\n", 0, cut), text[cut:]

    def end(self) -> Excerpt:
        """Return what was kept, including the log's last lines."""
        number, text = self._tail
        last = enumerate(text.split(b"\n")[:-1], number)
        kept = {**{at: self.shortened(line) for at, line in last}, **dict(self._first), **dict(self._last)}
        lines = (line for at in sorted(kept) for line in read_line(at, decoded(kept[at]).replace("\0", "")))
        return Excerpt(tuple(lines), self.number - 1, self.size, self._left_out, self._shortened)
