"""Unknown prefixes, learnt from the log.

They are hosts, pods, loggers and clocks that whatever forwarded the lines has added.

Tracebacks show them best: Python did not print what precedes `Traceback (most recent call last):` and the
places below it. Without a traceback, a prefix is what most lines begin with while the rest differs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from verl_doctor.toolkit.logs.lines import Line, level_named, relabelled

_HEAD = "Traceback (most recent call last):"
_INDENTED = re.compile(r"(\s+)Traceback \(most recent call last\):$")
_FRAME = re.compile(r'File "[^"]+", line \d+(?:, in \S|$)')
_PARTS = re.compile(
    (
        r"(?P<level>\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL)\b)|(?P<date>\b(?:Jan"
        r"|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b)|(?P<id>\b(?=[\w-]*\d)"
        r"(?=[\w-]*[A-Za-z])[\w-]{6,}\b)|(?P<digits>\d+)|(?P<space>\s+)|(?P<word>[^\W\d_]+)|(?P<sign>.)"
    ),
    re.IGNORECASE,
)
_CLASSES = {"level": r"[A-Za-z]+", "date": r"[A-Za-z]{3}", "id": r"[\w-]+", "digits": r"\d+", "space": r"\s+"}
# Where a prefix may end that is not in a traceback.
_CUT = re.compile(r"\s+|(?<=[\]|>:\uff1a\u3011])(?=\S)")
_LABEL = re.compile(r"[\d\[|>]|:\s|[^\x00-\x7f]|^\W+$")
# What a program itself prints before most of its lines.
_OWN = re.compile(r"\bstep:|Progress|shards|Epoch|^\s|\bFile\b", re.IGNORECASE)
_PROCESS = re.compile(r"\([\w:.<>=-]+(?:\([\w-]*\))?,? (?:[\w:.<>=-]+ )?pid=\d+")
_NAME = re.compile(r"[A-Za-z][\w.@/-]*(?:[ :=#]\d{1,5}\b)?")
_LEVELS = re.compile(
    r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL)\b|\b[A-Z][a-z]{2}\b", re.IGNORECASE
)
_NUMBER = re.compile(r"(?:rank )?\d+")
_LONGEST = 200  # characters of a prefix
_SAMPLE = 2000  # lines from which a prefix outside tracebacks is learnt
_CUTS = 16  # places of a line where its prefix may end
_CONSECUTIVE = 4  # lines with consecutive numbers, which count the lines
_FEW = 8  # lines that are too few to learn from
_MOST = 30  # prefixes of tracebacks that are tried
_DIFFERENT = 3  # distinct beginnings of the text after a prefix


@dataclass(frozen=True)
class Prefix:
    """The form of a prefix, in which numbers, identifiers and levels may differ between lines."""

    form: re.Pattern[str]

    def end(self, text: str) -> int:
        """Return where it ends in a line; 0 if the line does not begin with it."""
        found = self.form.match(text)
        return found.end() if found is not None else 0


def unprefixed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without prefixes learnt from the log, each with its prefix's level and process."""
    lines = _without_counters(lines)
    learnt = [*_of_tracebacks(lines), *_of_most_lines(lines)]
    if not learnt:
        return _dedented(lines)
    ends = [next((end for prefix in learnt if (end := prefix.end(line.text))), 0) for line in lines]
    names = _names(lines, ends)
    levels = [level_named(line.text[:end]) for line, end in zip(lines, ends, strict=True) if end]
    has_level = len(levels) < _CONSECUTIVE or len(set(levels)) > 1  # the same for all states nothing
    return _dedented(
        [
            relabelled(line, end, name, has_level=has_level) if end else line
            for line, end, name in zip(lines, ends, names, strict=True)
        ]
    )


def _dedented(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without the indentation that pip and uv add to another program's output.

    A traceback reveals the indentation.
    """
    depths: dict[str, str] = {}  # by process: the blanks before its traceback
    dedented = []
    for line in lines:
        blanks = depths.get(line.process, "")
        if (head := _INDENTED.match(line.text)) is not None:
            blanks = depths[line.process] = head[1]
        elif blanks and line.text.strip() and not line.text.startswith(blanks):
            blanks = depths[line.process] = ""
        dedented.append(replace(line, text=line.text.removeprefix(blanks)) if blanks else line)
    return dedented


def _without_counters(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines without leading line numbers."""
    counted = [int(line.process.rpartition(" ")[2]) for line in lines if _NUMBER.fullmatch(line.process)]
    if len(counted) >= _CONSECUTIVE and counted == list(range(counted[0], counted[0] + len(counted))):
        return [replace(line, process="") if _NUMBER.fullmatch(line.process) else line for line in lines]
    times = Counter(line.process for line in lines if _NUMBER.fullmatch(line.process))
    if len(times) < _FEW or 2 * sum(times.values()) >= 3 * len(times):
        return lines
    return [replace(line, process="") if line.process in times else line for line in lines]


def _of_tracebacks(lines: Sequence[Line]) -> Iterator[Prefix]:
    """Yield what precedes the lines of tracebacks, the longest first, if other lines also have it."""
    forms = Counter(_form(before) for line in lines if (before := _before_anchor(line.text)))
    known = (Prefix(re.compile(form)) for form, _ in forms.most_common(_MOST))
    shared = [prefix for prefix in known if _is_shared(prefix, lines)]
    yield from sorted(shared, key=lambda prefix: len(prefix.form.pattern), reverse=True)


def _before_anchor(text: str) -> str:
    """Return what precedes the head of a traceback or one of its places, "" if nothing does."""
    at = text.find(_HEAD)
    if at < 0 and (frame := _FRAME.search(text)):
        at = frame.start()
        at -= 2 if text[max(at - 2, 0) : at] == "  " else 0
    before = text[: max(at, 0)]
    if label := _PROCESS.search(before):  # Ray and vLLM name their processes themselves
        before = before[: label.start()]
    return before if len(before) <= _LONGEST and before.strip() else ""


def _is_shared(prefix: Prefix, lines: Sequence[Line]) -> bool:
    """Return whether a line other than the head of a traceback has the prefix."""
    return any((end := prefix.end(line.text)) and not line.text.startswith(_HEAD, end) for line in lines)


def _of_most_lines(lines: Sequence[Line]) -> Iterator[Prefix]:
    """Yield what precedes most of the lines without a process name, the longest such prefix."""
    texts = [
        line.text for line in lines if line.text.strip() and not line.level and not _before_anchor(line.text)
    ]
    texts = texts[:: len(texts) // _SAMPLE + 1]
    if len(texts) < _FEW:
        return
    times: Counter[str] = Counter()
    followed: defaultdict[str, set[str]] = defaultdict(set)
    for text in texts:
        for form, rest in _openings(text):
            times[form] += 1
            followed[form].add(_form(rest[:12]))
    shared = [
        form for form, count in times.items() if 2 * count > len(texts) and len(followed[form]) >= _DIFFERENT
    ]
    if shared:
        yield Prefix(re.compile(max(shared, key=len)))


def _openings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the possible prefixes of a line, each with the text that follows it."""
    for cut in islice(_CUT.finditer(text, 0, _LONGEST), _CUTS):
        before = text[: cut.end()]
        if _LABEL.search(before) and not _OWN.search(before) and before.count("(") == before.count(")"):
            yield _form(before), text[cut.end() :]


@lru_cache(maxsize=4096)
def _form(prefix: str) -> str:
    """Return a pattern for all prefixes of this form. The final blank is missing on empty lines."""
    parts = [
        _CLASSES.get(part.lastgroup or "", re.escape(part[0])) for part in _PARTS.finditer(prefix.rstrip(" "))
    ]
    blanks = len(prefix) - len(prefix.rstrip(" "))
    return "".join(parts) + (f"(?:{' ' * blanks}|$)" if blanks else "")


def _names(lines: Iterable[Line], ends: Iterable[int]) -> list[str]:
    """Return the name in each line's prefix.

    "" for all if it never varies or distinguishes lines instead of processes.
    """
    named = [_LEVELS.sub("", line.text[:end]) for line, end in zip(lines, ends, strict=True)]
    full = [" ".join(_NAME.findall(text)) for text in named]
    short = [re.sub(r"\d+", "", name).strip() for name in full]
    for candidates in (full, short):
        times = Counter(name for name in candidates if name)
        if len(times) > 1 and sum(times.values()) >= 3 * len(times):
            return candidates
    return [""] * len(full)
