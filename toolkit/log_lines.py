"""The lines of a log in which several processes speak: of each who said it, and what is left without colours, names and clocks.

Ray puts "(WorkerDict pid=12, ip=10.0.0.1) " before what its workers say, vLLM "(EngineCore pid=34) ", and then "ERROR 11-20 12:00:00
[core.py:700] " before each line of a message, also of a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SPEAKER = re.compile(r"\((?P<who>[\w:.<>-]+(?: [\w:.<>-]+)? ?(?:pid|PID)=\d+)[^()]*\) ?")
# vLLM's (vllm/logger.py), Python's own with a date, glog's of Ray's C++ processes.
_HEADER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d\d-\d\d|\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d(?:[.,]\d+)? \[(?P<place>[^\]]*)\] ?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+[\s:-]+(?P<named>DEBUG|INFO|WARNING|ERROR|CRITICAL)\b[ :\w./-]*? -- "
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?P<letter>[DIWECF]) \d+ \d+\] "
)
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "C": "FATAL", "F": "FATAL"}


@dataclass(frozen=True)
class Line:
    """One line. `number` counts from 1, `process` is "WorkerDict pid=12", "" for one that does not say its name.

    `level` is that of a logger, "" where none wrote it, `place` the line of its program that spoke ("core.py:700"). `text` is what it says, `written` the whole line without colours.
    """

    number: int
    process: str
    level: str
    place: str
    text: str
    written: str


def log_lines(text: str) -> Iterator[Line]:
    """All lines in their order."""
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        written = _REPEATED.sub("", _COLOUR.sub("", raw)).rstrip()
        rest, process = written, ""
        while speaker := _SPEAKER.match(rest):
            process, rest = speaker["who"], rest[speaker.end() :]
        level = place = ""
        if header := _HEADER.match(rest):
            level = header["level"] or header["named"] or _LEVELS[header["letter"]]
            place = header["place"] or ""
            rest = rest[header.end() :]
        yield Line(number, process, level, place, rest, written)
