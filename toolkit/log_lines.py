"""The lines of a log in which several processes speak: of each who said it, and what is left without colours, names and clocks.

Ray puts "(WorkerDict pid=12, ip=10.0.0.1) " before what its workers say, vLLM "(EngineCore pid=34) ", and then "ERROR 11-20 12:00:00
[core.py:700] " before each line of a message, also of a traceback. torchrun, srun, mpirun and containers put a number or a name, and
whoever collects logs a date, or the line in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Escape sequences, also as programs write them that show what cannot be seen, and colours that have lost their first character.
_COLOUR = re.compile(
    r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033)\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\[\d{1,2}(?:;\d{1,3}){0,4}m"
)
_SPEAKER = re.compile(
    r"\((?P<who>(?:[\w:.<>=-]+(?:\([\w-]*\))?,? ){0,2}(?:pid|PID)=\d+)[^()]*\) ?|\((?P<ray>raylet|autoscaler|gcs_server)[^()]*\) "
)
# torchrun's, mpirun's (two kinds), `srun --label`'s and SGLang's, the name of a container, of a pod (`kubectl logs --prefix`), the node (pdsh).
_RANK = re.compile(
    r"\[(?P<rank>(?:rank|default)\d+)\]:? ?|\[\d+,(?P<mpi>\d+)\]<std\w+>: ?|\[(?P<tag>\d{1,5})\] |(?P<task>\d{1,4}): |"
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?P<parallel>(?:[DTPE]P\d+ ?)+)\] |(?P<container>[\w.-]{1,60}) *\| |"
    r"\[pod/(?P<pod>[\w./-]{1,150})\] |(?P<node>\d{1,3}(?:\.\d{1,3}){3}): "
)
# A date, that of the journal with the name of a program, what Kubernetes puts behind it, the sign of a quotation, the number of a line.
_CLOCK = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? (?:std(?:out|err) [FP] )?|\d{1,9}\.\d{3} (?=\()|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@/-]+(?:\[\d+\])?: |> | {0,6}\d{1,8}\t"
)
_LEVEL = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
# vLLM's (vllm/logger.py), Python's own with a date, Hydra's, that of Ray's C++ processes, glog's as torch has it, NCCL's.
_HEADER = re.compile(
    rf"(?:\[[\w-]+\] )?(?P<level>{_LEVEL}) (?:\d\d-\d\d|\d{{4}}-\d\d-\d\d) \d\d:\d\d:\d\d(?:[.,]\d+)? \[?(?P<place>[^\]\[ ]+(?: [^\]\[ ]+)?)\] ?"
    rf"|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+[\s:-]+(?P<named>{_LEVEL})\b(?:[ :\w./-]*? -- | - [\w.]+ - )"
    rf"|(?P<first>{_LEVEL}):(?:\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+|[\w.]+):"
    rf"|\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]\[[\w.]+\]\[(?P<hydra>{_LEVEL})\] - "
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?P<letter>[DIWECF]) \d+ \d+\] "
    r"|\[?(?P<glog>[DIWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d+)?(?: +\d+)? (?P<source>[\w./<>-]+:\d+)\] ?"
    r"|[\w.-]+:\d+:\d+ \[\d+\] NCCL (?P<nccl>INFO) "
)
# As the module `warnings` prints one, and what says so of itself.
_WARNING = re.compile(r"(?:[\w./<>-]+:\d+: )?\w*Warning: ")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "C": "FATAL", "F": "FATAL"}
_LONGEST = 4000  # characters of a line that are read
_WRAPPED = ("log", "message", "msg", "textPayload")  # where collectors keep what a line said


@dataclass(frozen=True)
class Line:
    """One line. `number` counts from 1, `process` is "WorkerDict pid=12" or "rank3", "" for one that does not say its name.

    `level` is that of a logger, "" where none wrote it, `place` the line of its program that spoke ("core.py:700"). `text` is what it
    says, `written` the whole line without colours.
    """

    number: int
    process: str
    level: str
    place: str
    text: str
    written: str


def log_lines(text: str) -> Iterator[Line]:
    """All lines in their order."""
    for number, raw in enumerate(text.split("\n"), 1):
        yield from read_line(number, raw)


def read_line(number: int, raw: str) -> Iterator[Line]:
    """One line of a file, or what a progress bar wrote over itself as one line each, all of whoever spoke in it before."""
    raw, speaker = raw.rstrip("\r"), ""
    for part in (_unwrapped(raw) if raw.startswith('{"') else raw).split("\r"):
        written = _REPEATED.sub("", _COLOUR.sub("", part[:_LONGEST])).rstrip()
        rest, process, level, place = _without_labels(written)
        speaker = process or speaker
        yield Line(number, speaker, level, place, rest, written)


def _unwrapped(raw: str) -> str:
    """What a line said before a collector wrapped it in JSON, or the line itself."""
    try:
        wrapped = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    said = next((wrapped[key] for key in _WRAPPED if isinstance(wrapped.get(key), str)), raw)
    return str(said).rstrip().replace("\n", " ")


def _without_labels(written: str) -> tuple[str, str, str, str]:
    """What a line says, and who, at which level, from where."""
    rest, process = written, ""
    while True:
        if speaker := _SPEAKER.match(rest):
            process = speaker["who"] or speaker["ray"]
        elif header := _HEADER.match(rest):
            level = header["level"] or header["named"] or header["hydra"] or header["first"] or header["nccl"]
            level = level or _LEVELS[header["letter"] or header["glog"]]
            rest, again = rest[header.end() :], process
            if speaker := _SPEAKER.match(rest):
                rest, again = rest[speaker.end() :], speaker["who"] or speaker["ray"]
            return rest, again, level, header["place"] or header["source"] or ""
        elif speaker := _RANK.match(rest):
            process = (
                speaker["rank"]
                or speaker["parallel"]
                or speaker["container"]
                or speaker["pod"]
                or speaker["node"]
                or f"rank {speaker['mpi'] or speaker['tag'] or speaker['task']}"
            )
        elif not (speaker := _CLOCK.match(rest)):
            return rest, process, "WARNING" if _WARNING.match(rest) else "", ""
        rest = rest[speaker.end() :]
