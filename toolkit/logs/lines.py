"""Splits a log into lines, and separates each line's process from its text.

The process is the one that printed the line. The text is without colours, names and clocks.

Ray puts "(WorkerDict pid=12, ip=10.0.0.1) " before its workers' output, vLLM "(EngineCore pid=34) ", and then
"ERROR 11-20 12:00:00 [core.py:700] " before each line of a message, tracebacks included. torchrun, srun,
mpirun and containers add a number or a name; log collectors add a date, or wrap the line in JSON. Other
prefixes are learnt from the log itself (`prefix`).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from verl_doctor.toolkit.system.secret import MASK, without_secrets
from verl_doctor.toolkit.system.token_shapes import without_keys
from verl_doctor.toolkit.text import harmless

# Escape sequences, including those that programs print as visible text, and colours that have lost their
# first character.
_COLOUR = re.compile(
    r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033|#033)\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\[\d{1,2}(?:;\d{1,3}){0,4}m"
)
_PROCESS = re.compile(
    r"\((?P<who>(?:[\w:.<>=-]+(?:\([\w-]*\))?,? ){0,2}(?:pid|PID)=\d+)[^()]*\) ?|\((?P<ray>raylet"
    r"|autoscaler|gcs_server)[^()]*\) "
)
# Labels of torchrun, mpirun (two kinds), `srun --label` and SGLang, of a container, of a pod (`kubectl logs
# --prefix`), of the node (pdsh).
_RANK = re.compile(
    r"\[(?P<rank>(?:rank|default)(?:\d+|[a-zA-Z]))\]:? ?|\[\d+,(?P<mpi>\d+)\]<std\w+>: ?|\["
    r"(?P<tag>\d{1,5})\] |(?P<task>\d{1,4}): |\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?P<parallel>(?:"
    r"[DTPE]P\d+ ?)+)\] |(?P<container>[\w.-]{1,60}) *\| |\[pod/(?P<pod>[\w./-]{1,150})\] |"
    r"(?P<node>\d{1,3}(?:\.\d{1,3}){3}): |\[(?P<worker>[A-Za-z][\w.]{0,40}-\d{1,5})\]:? "
)
# A date, the journal's date with a program's name, what Kubernetes or GitLab puts after it, a time of day, a
# quotation mark, a line number, the number of a BuildKit step.
_CLOCK = re.compile(
    r"\[?\d{4}([-/])\d\d\1\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? (?:\| (?=[A-Z])|std"
    r"(?:out|err) [FP] |\d\d[OE][+ ]?)?|\d{1,9}\.\d{3} (?=\()|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:? "
    r"|#\d{1,3} (?:\d{1,5}\.\d{1,3} )?|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \w[\w.-]* (?![\w.]*(?:Error"
    r"|Exception|Warning):)[\w.@/-]+(?:\[\d+\])?: |> | {0,6}\d{1,8}\t"
)
_LEVEL = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
# The level alone, in brackets, or after a clock and a logger's name.
_BRACKETED = re.compile(r"\[(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL)\][: ]+")
_BARE = re.compile(
    r"(?:- )?(?:(?!(?:no|an?|the|any|got|with|without|of|for|zero|this|that|as|is|was|are|on|in|from"
    r"|last)\b)[a-z_][\w.:/-]{0,60} (?:- )?)?(?P<level>TRACE|DEBUG|INFO|NOTICE|SUCC|WARN|WARNING|ERROR"
    r"|ERR|CRITICAL|FATAL)(?: *[:|-]+ *| +)"
)
_NAMES = {"WARN": "WARNING", "ERR": "ERROR", "TRACE": "DEBUG", "NOTICE": "INFO", "SUCC": "INFO"}
# Headers of vLLM (vllm/logger.py), Python with a date, Hydra, Ray's C++ processes, glog in torch's form,
# NCCL, loguru, the example in Python's documentation, and two of transformers.
_HEADER = re.compile(
    rf"(?:\[[\w-]+\] )?(?P<level>{_LEVEL}) (?:\d\d-\d\d|\d{{4}}-\d\d-\d\d) \d\d:\d\d:\d\d(?:"
    r"[.,]\d+)? \[?(?P<place>[^\]\[ ]+(?: [^\]\[ ]+)?)\] ?|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+"
    rf"[\s:-]+(?P<named>{_LEVEL}|ERR|SUCC|WARN)\b(?:[ :\w./-]*? -- | - [\w.]+ - )|(?P<first>{_LEVEL}):"
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+|[\w.]+):|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\]\["
    rf"[\w.]+\]\[(?P<hydra>{_LEVEL})\] - |\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?P<letter>"
    r"[DIWECF]) \d+ \d+\] |\[?(?P<glog>[DIWEF])\d{3,4} \d\d:\d\d:\d\d(?:\.\d+)?(?: +\d+)? (?P<source>"
    rf"[\w./<>-]+:\d+)\] ?|[\w.-]+:\d+:\d+ \[\d+\] NCCL (?P<nccl>INFO) |(?P<loguru>{_LEVEL}|SUCCESS"
    r"|TRACE) +\| (?P<module>[\w.]+:[\w<>]+:\d+) - |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? - "
    rf"[\w.-]+ - (?P<python>{_LEVEL}|FATAL) - |\d\d/\d\d/\d{{4}} \d\d:\d\d:\d\d - "
    rf"(?P<american>{_LEVEL}) - (?P<logger>[\w.]+) +- +|\[(?P<hugging>{_LEVEL})\|(?P<at>"
    r"[\w.]+:\d+)\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+ >> ?"
)
# A warning as the module `warnings` prints it, with a place in front, and lines that are marked as warnings.
_WARNING = re.compile(r"[\w./<>-]+:\d+: \w*Warning: |Warning: ")
# A progress bar behind which another process began its line before the bar ended its own.
_BAR = re.compile(
    r"\d[^\[\]|]{0,20} \[[\d:]{4,9}<[^\]\[]{1,120}\](?= ?(?:\[|Traceback|[A-Z]\w*Error: |\(\w+ pid=))"
)
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "[^"]+", line \d+')
_LEVELS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "C": "FATAL", "F": "FATAL"}
_KNOWN = frozenset({*_LEVELS.values()})
_ANY_LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL)\b", re.IGNORECASE)
# What a launcher puts before the output of a program that it passes on through its own logger: that logger's
# level is not the program's.
_STREAM = re.compile(r"[\[(<]?(?:stderr|stdout)[\])>]?\s*[:|>-]?\s+", re.IGNORECASE)
# A line of logfmt, with the quoted message, and a line of CSV whose fields are quoted.
_LOGFMT = re.compile(
    r'(?:[\w./-]{1,80}: )?(?:[\w./-]+=(?:"(?:[^"\\]|\\.)*"|[^\s"]*)\s+)*(?:msg|message)=(?P<said>"(?:'
    r'[^"\\]|\\.)*")(?P<more>(?:\s+[\w./-]+=.*)?)$'
)
_LOGFMT_LEVEL = re.compile(r"\b(?:level|lvl|severity)=\"?(\w+)")
_CSV = re.compile(r'"(?:[^"]|"")*"(?:,"(?:[^"]|"")*")+')
_FIELD_OF_CSV = re.compile(r'"((?:[^"]|"")*)"')
# Text within one line in which the breaks were escaped, as in the repr of a program's output.
_ESCAPED = "(most recent call last):\\n"
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\'": "'", '\\"': '"', "\\\\": "\\", "\\r": ""}
_ESCAPE = re.compile(r"\\[nt'\"\\r]")
_BARS = ("\u2502", "\u2503")  # at both ends of a line in a box
_ENTITY = re.compile(r"&(?:quot|#x?\d+|lt|gt);|<br ?/?>")
_QUIET = frozenset({"INFO", "DEBUG"})
_MEANINGLESS = (
    {"INFO"},
    {"DEBUG"},
    {"WARNING"},
)  # what all lines of a log are called where nothing distinguishes them
_FEW = 3  # lines of a collector or a relay, from which it is known that it gives all of them its level
_LONGEST = 4000  # characters of a line that are read
_WRAPPED = (
    "message",
    "msg",
    "log",
    "textPayload",
    "event",
    "short_message",
    "MESSAGE",
)  # keys under which collectors store the text of a line
_WRAPPED_OR_DATA = ("text", "content", "body", "line", "raw")  # and under which rows of data hold texts
_OF_RECORDS = frozenset(
    {
        *("time", "ts", "timestamp", "@timestamp", "_time", "asctime", "datetime", "observedTimestamp"),
        *("stream", "logger", "host", "hostname", "pod", "container", "kubernetes", "node"),
    }
)  # keys besides the level that records of a log have, and rows of data do not
_TRACED = (
    "exc_info",
    "exception",
    "traceback",
    "stack_trace",
    "stacktrace",
    "stack",
    "error",
)  # and what was raised
_LEVELLED = ("level", "levelname", "severity", "lvl", "log_level", "loglevel")
_NESTED = ("jsonPayload", "record", "fields", "data")


@dataclass(frozen=True)
class Line:
    """One line.

    `number` counts from 1; `process` is "WorkerDict pid=12" or "rank3", "" if the line has no name.

    `level` is the logger's, "" if there is none; `place` is the source line that logged it ("core.py:700").
    `text` is the message, `written` the whole line without colours. `wrapped` is whether something else
    contained the line, such as JSON; `collected` whether the level is that of this container, not of the
    program that printed the line.
    """

    number: int
    process: str
    level: str
    place: str
    text: str
    written: str
    wrapped: bool = False
    collected: bool = False

    def has_labels_of(self, other: Line) -> bool:
        """Return whether process, level and place are those of another line."""
        return (self.process, self.level, self.place) == (other.process, other.level, other.place)


def decoded(raw: bytes) -> str:
    """Decode a line as UTF-8, else as GBK if the result is Chinese, as on systems configured for GBK."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        text = raw.decode("gb18030")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")
    foreign = [letter for letter in text if letter > "\x7f"]
    chinese = sum(
        "\u4e00" <= letter <= "\u9fff" or "\u3000" <= letter <= "\u303f" or letter > "\uff00"
        for letter in foreign
    )
    return text if 10 * chinese >= 9 * len(foreign) else raw.decode("utf-8", "replace")


def log_lines(text: str) -> Iterator[Line]:
    """Yield all lines in order."""
    for number, raw in enumerate(text.split("\n"), 1):
        yield from read_line(number, raw)


def read_line(number: int, raw: str) -> Iterator[Line]:
    """Yield the lines in a line of a file.

    Updates of a progress bar become separate lines, attributed to the process named before them.
    """
    process_name = ""
    for part in _parts(raw):
        written = _REPEATED.sub(
            "", _COLOUR.sub("", part if part.startswith("{") else part[:_LONGEST])
        ).rstrip()
        rest, process, level, place = _without_labels(written)
        process_name = process or process_name
        if (wrapped := _contained(rest)) is not None:
            yield from _of_json(number, process_name, *wrapped)
        else:
            yield Line(number, process_name, level, place, rest[:_LONGEST], written[:_LONGEST])


def _parts(raw: str) -> Iterator[str]:
    """Yield the updates of a progress bar in a line, and what other processes printed behind it."""
    for part in raw.rstrip("\r").split("\r"):
        begin = 0
        if "it/s" in part or "s/it" in part:
            for bar in _BAR.finditer(part[:_LONGEST]):
                yield part[begin : bar.end()]
                begin = bar.end()
        yield part[begin:].removeprefix(" ") if begin else part


def _contained(rest: str) -> tuple[str, str] | None:
    """Return the text and the level of a line that something else contains.

    That is JSON, logfmt, CSV, a box, HTML or a text with escaped breaks.
    """
    if rest.startswith('{"') and (wrapped := _unwrapped(rest)) is not None:
        return wrapped
    if ('msg="' in rest or 'message="' in rest) and (found := _LOGFMT.match(rest)) is not None:
        named = _LOGFMT_LEVEL.search(rest[: found.start("said")] + found["more"])
        level = named[1].upper() if named is not None else ""
        return _unescaped(found["said"][1:-1]), _NAMES.get(level, level if level in _KNOWN else "")
    if _ESCAPED in rest:
        return _unescaped(rest).rstrip("'\" )"), ""
    if rest[:1] == '"' and rest[-1:] == '"' and '","' in rest and _CSV.fullmatch(rest):
        return _FIELD_OF_CSV.findall(rest)[-1].replace('""', '"'), ""
    if rest[:1] in _BARS and rest[-1:] == rest[:1] and len(rest) > 1:
        return rest[1:-1].removeprefix(" ").rstrip(), ""
    if "&" in rest and _ENTITY.search(rest):
        return html.unescape(rest.replace("<br>", "")), ""
    return None


def _unescaped(text: str) -> str:
    """Return a text with the escaped breaks, tabs and quotation marks in it as such."""
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)


def _of_json(number: int, process_name: str, text: str, level: str) -> Iterator[Line]:
    """Yield the lines of a message wrapped in JSON; a traceback has several, each with its own labels."""
    for part in text.split("\n"):
        written = _COLOUR.sub("", part[:_LONGEST]).rstrip("\r ")
        rest, process, own, place = _without_labels(written)
        # What has a label of its own was passed on: the level is that of whatever passed it on.
        level_of_part = own or ("" if process and level in _QUIET else level)
        collected = bool(level_of_part) and not own
        yield Line(number, process or process_name, level_of_part, place, rest, written, True, collected)


def _unwrapped(raw: str) -> tuple[str, str] | None:
    """Return the text and the level of a line that a collector wrapped in JSON; None for other JSON."""
    try:
        wrapped = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(wrapped, dict):
        return None
    inside = [wrapped, *(wrapped[key] for key in _NESTED if isinstance(wrapped.get(key), dict))]
    level = _field(inside, _LEVELLED).upper()
    level = _NAMES.get(level, level if level in _KNOWN else "")
    is_record = bool(level) or any(key in _OF_RECORDS for mapping in inside for key in mapping)
    field = _field(inside, _WRAPPED) or (_field(inside, _WRAPPED_OR_DATA) if is_record else "")
    if not field:
        return None
    raised = _field(inside, _TRACED)
    text = field if not raised or raised in field else f"{field}\n{raised}"
    return text.rstrip(), level


def _field(objects: Iterable[Mapping[str, object]], names: Sequence[str]) -> str:
    """Return the first of these fields that holds a text, or an object with a text or name; "" if none."""
    for mapping in objects:
        for name in names:
            value = mapping.get(name)
            if isinstance(value, dict):
                value = next(
                    (value[key] for key in ("name", "text", "message") if isinstance(value.get(key), str)),
                    None,
                )
            if isinstance(value, str):
                return value
    return ""


def _without_labels(written: str) -> tuple[str, str, str, str]:
    """Split a line into its text, process, level and place."""
    rest, process, has_clock = written, "", False
    while True:
        if label := _PROCESS.match(rest):
            process = label["who"] or label["ray"]
        elif label := _HEADER.match(rest):
            level, place = _of_header(label)
            rest, again = rest[label.end() :], process
            if stream := _STREAM.match(rest):
                rest, level, place = rest[stream.end() :], "", ""
                continue
            if label := _PROCESS.match(rest):
                rest, again = rest[label.end() :], label["who"] or label["ray"]
            return rest, again, level, place
        elif label := _BRACKETED.match(rest) or (_BARE.match(rest) if has_clock else None):
            if stream := _STREAM.match(rest, label.end()):
                rest = rest[stream.end() :]
                continue
            return rest[label.end() :], process, _NAMES.get(label["level"], label["level"]), ""
        elif label := _RANK.match(rest):
            process = _of_rank(label)
        elif label := _CLOCK.match(rest):
            has_clock = True
        else:
            return rest, process, "WARNING" if _WARNING.match(rest) else "", ""
        rest = rest[label.end() :]


def _of_header(header: re.Match[str]) -> tuple[str, str]:
    """Return the level and the place in a logger's header."""
    named = ("level", "named", "hydra", "first", "nccl", "loguru", "python", "american", "hugging")
    level = next((header[name] for name in named if header[name]), None)
    level = level or _LEVELS[header["letter"] or header["glog"]]
    places = ("place", "source", "module", "logger", "at")
    return _NAMES.get(level, level), next((header[name] for name in places if header[name]), "")


def _of_rank(label: re.Match[str]) -> str:
    """Return the process that a label of a launcher, a container or a node names."""
    named = ("rank", "parallel", "container", "pod", "node", "worker")
    name = next((label[name_part] for name_part in named if label[name_part]), None)
    return name or f"rank {label['mpi'] or label['tag'] or label['task']}"


def unrelayed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without a level where a logger only passes on the output of another program.

    It prints each line of a traceback as a message of its own, as information: what the program itself calls
    it is unknown.
    """
    quiet = [line for line in lines if line.level in _QUIET]
    heads = {_origin(line) for line in quiet if _TRACEBACK in line.text}
    relays = heads & {_origin(line) for line in quiet if _FRAME.match(line.text)}
    return [replace(line, level="") if _origin(line) in relays else line for line in lines]


def without_collected_levels(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines without levels of a collector or a relay that state nothing about the lines.

    A collector wraps the whole log. It either gives all lines the same level, or guesses each from the words
    of the line, which divides tracebacks; what it wraps has labels of its own. A relay prints all lines of a
    log, its tracebacks line by line, as information in its own name. A program that writes JSON itself also
    prints other lines, or distinguishes levels, and its levels stay.
    """
    levels = [line.level for line in lines if line.collected]
    printed = [line for line in lines if line.written.strip()]
    is_uniform = len(levels) >= _FEW and set(levels) in _MEANINGLESS
    is_raw = any(line.collected and line.text != line.written for line in lines)
    if ((is_uniform or is_raw) and all(map(_is_wrapped, printed))) or _are_guessed(lines):
        lines = [replace(line, level="") if line.collected else line for line in lines]
    if len(printed) < _FEW or printed[0].level not in _QUIET or len({_label(line) for line in printed}) > 1:
        return lines
    is_relayed = any(_TRACEBACK in line.text for line in printed) and any(
        _FRAME.match(line.text) for line in printed
    )
    return [replace(line, level="") for line in lines] if is_relayed else lines


def _is_wrapped(line: Line) -> bool:
    """Return whether a line was contained in something else, or is other JSON, or JSON that was cut off."""
    return line.wrapped or line.written.startswith("{") or line.written.endswith("}")


def _are_guessed(lines: Sequence[Line]) -> bool:
    """Return whether the head of a traceback and the place below it were collected with different levels."""
    return any(
        first.collected
        and first.process == second.process
        and (second.collected or not second.level)
        and first.level != second.level
        and _TRACEBACK in first.text
        and _FRAME.match(second.text) is not None
        for first, second in pairwise(lines)
    )


def _label(line: Line) -> tuple[str, str, str]:
    """Return the level and the place of a line, and whether it has a header at all."""
    return line.level, line.place, "" if line.text == line.written else "header"


def _origin(line: Line) -> tuple[str, str, str]:
    return line.process, line.level, line.place


def level_named(text: str) -> str:
    """Return the logger's level in a prefix, "" for none."""
    found = _ANY_LEVEL.search(text)
    return "" if found is None else _NAMES.get(name := found[1].upper(), name)


def relabelled(line: Line, begin: int, process: str, *, has_level: bool) -> Line:
    """Return a line without the prefix of its text, which ends at `begin`.

    `process` is the process that the prefix names.

    `has_level` is whether the level in the prefix counts.
    """
    before, rest = line.text[:begin], line.text[begin:]
    rest, inner, level, place = _without_labels(rest)
    level = level or (level_named(before) if has_level else "") or line.level
    return replace(
        line, text=rest, process=inner or line.process or process, level=level, place=place or line.place
    )


def shown(text: str) -> str:
    """Return a log line that is safe to display: without terminal control sequences and secrets."""
    return harmless(without_secrets(text), keep="\t")


def shown_together(lines: Sequence[str]) -> list[str]:
    """Do the same for lines that follow each other.

    Only the first line of a private key shows what the others are.
    """
    hidden = without_keys("\n".join(lines), MASK).split("\n")
    return [shown(line) for line in hidden[: len(lines)]]
