"""Reads errors that Python programs print.

These are the exception that ends a traceback, its causes, and other processes' errors inside it.

Ray prints another process's error inside the message of its own exception (python/ray/exceptions.py): the
frames and exceptions of that process follow the line "ray::Actor.method() (pid=12, ip=...)".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from verl_doctor.toolkit.logs.lines import Line

OVERRIDES = "Error executing job with overrides: "
"""The beginning of the line in which Hydra repeats the command before it prints what a program raised.

The line has the whole command.
"""

_REMOTE = re.compile(r"(?<![\w.<>:])ray::[\w.<>:]+(?:\(\))? \(pid=\d+")
_BEGINS = re.compile(rf"\bTraceback \(most recent call last\):$|{_REMOTE.pattern}")
_JOINS = {
    "The above exception was the direct cause of the following exception:": True,
    "During handling of the above exception, another exception occurred:": False,
}
_QUOTES = '"""'
"""The line before and after the traceback of a process in the exception of the pool to which it belongs."""
_FRAME = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
# A class with its module or a message, or a bare word that can only be a class.
_RAISED = re.compile(
    r"(?P<type>(?:\w+\.)+(?:[A-Z]\w*(?:\([\w.]+\))?|[a-z_]\w*(?=: )|timeout)|[A-Z]\w*(?=:)|[A-Z]\w*"
    r"(?:Error|Exception|Interrupt|Exit|Iteration))(?:: ?(?P<said>.*))?"
)
# Output of a program that is still running, or of a tracker that ends with it: metrics, a progress bar, a
# shell command.
_GOES_ON = re.compile(
    r"wandb: |step:\d+ - |'?Final validation metrics|.{0,60}\d{1,3}%\||\++ \w|ray init kwargs: "
)
_PYDANTIC = re.compile(r" \[type=\w+, input_value=.*|\n\s+For further information visit .*")
_RAISES = re.compile(r"raise (?P<type>[A-Za-z_][\w.]*)\((?P<said>[rf]{0,2}[\"'].+)")
_STRING = re.compile(r"[\"']((?:[^\"'\\]|\\.)*)[\"']")
_LONGEST = 20  # lines of one message
_DEEPEST = 50  # nested processes whose errors quote each other; deeper errors are read separately
LOOKUPS = frozenset(
    {
        "Empty",
        "JSONDecodeError",
        "KeyError",
        "IndexError",
        "StopIteration",
        "ConfigAttributeError",
        "ConfigKeyError",
        "PackageNotFoundError",
    }
)
# What two processes printed at the same moment, each in several pieces: "KeyErrorKeyError: : 'prompt'".
_TWICE = re.compile(r"(\w{3,60}(?:Error|Exception))\1")
_VARIABLE = re.compile(r"\b(?:getenv\(|environ(?:\.get\(|\[))\s*[\"'](\w+)[\"']")


@dataclass(frozen=True)
class Frame:
    """One place of a traceback: file, line, function ("" for a syntax error), and any printed source line."""

    path: str
    line: int
    function: str = ""
    code: str = ""


def variable_read_at(code: str) -> str:
    """Return the environment variable that a source line reads, "" for none."""
    found = _VARIABLE.search(code)
    return found[1] if found else ""


@dataclass(frozen=True)
class Raised:
    """One exception as it was printed, linked to the exception before it.

    `type` is its class with its module ("ray.exceptions.RayActorError"), `message` its full message, `frame`
    the last place in a file, and `line` its line of the log. `before` is the exception from which it was
    raised (`direct`), or during whose handling. `began` is the number of the first line of its traceback.
    `frames` are the places of the traceback, the outermost first.
    """

    type: str
    message: str
    line: Line
    began: int
    frame: Line | None = None
    before: Raised | None = None
    direct: bool = False
    frames: tuple[Frame, ...] = ()

    @property
    def name(self) -> str:
        """The class without its module."""
        return self.type.partition("(")[0].rpartition(".")[2]

    @property
    def words(self) -> str:
        """Class and message in one line."""
        text = " ".join(self.plain.split())
        return f"{self.name}: {text}" if text else self.name

    @property
    def plain(self) -> str:
        """The message without pydantic's notes for programmers and Ray's table of names."""
        return "\n".join(
            line for line in _PYDANTIC.sub("", self.message).split("\n") if not line.startswith("\t")
        )

    @property
    def first(self) -> Raised:
        """The original exception.

        An exception raised for a failed look-up reveals more than the look-up's own.

        So does a second failed look-up whose place was printed: of the first one, in a library that is not in
        Python, Ray prints none.
        """
        others = [raised for raised in self.chain if not raised.type.startswith("ray.exceptions.")]
        informative = [other for other in others if other.name not in LOOKUPS]
        placed = [other for other in others if other.frames]
        return (informative or placed or others or list(self.chain))[-1]

    @property
    def chain(self) -> Iterator[Raised]:
        """This exception, and all those before it."""
        raised: Raised | None = self
        while raised is not None:
            yield raised
            raised = raised.before


def raised_in(lines: Iterable[Line]) -> list[Raised]:
    """Return all exceptions with a traceback, in order; of a chain the last, with the others attached.

    The traceback is printed with them.

    Concurrent output of unnamed processes may be mixed up. Each named process is read separately, and so is
    each message of a logger.
    """
    own: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        own[line.process, line.level, line.place].append(line)
    found = [raised for group in own.values() for raised in _read(group)]
    return sorted(found, key=lambda raised: raised.began)


def bare_errors(lines: Sequence[Line]) -> Iterator[Raised]:
    """Yield the last lines of tracebacks whose other lines are missing.

    Those that another exception follows are included.
    """
    for at, line in enumerate(lines):
        match = _RAISED.fullmatch(line.text.strip())
        if match is not None and match["type"].endswith(("Error", "Exception", "Interrupt", "Exit")):
            near = (other for other in lines[at + 1 : at + 4] if other.number > line.number)
            below = takewhile(line.has_labels_of, near)
            more = [other.text for other in takewhile(lambda line: not _is_over(line), below)]
            kind, message = _once(match)
            yield Raised(kind, "\n".join([message, *more]), line, line.number)


def _read(lines: Sequence[Line]) -> Iterator[Raised]:
    """Yield the exceptions of one process."""
    last: Raised | None = None
    join: bool | None = None  # whether the next exception belongs to the last, and how
    at = 0
    while at < len(lines):
        text = lines[at].text.strip()
        if text in _JOINS and last is not None:
            join = _JOINS[text]
        elif (headless := bool(_FRAME.match(text))) or _BEGINS.search(text):
            raised, at = _exception(lines, at, 0 if headless else 1)
            if raised is not None:
                if last is not None and join is None:
                    yield last
                behind = None if join is None else last
                last, join = (_attached(raised, behind, direct=bool(join)), None)
            continue
        at += 1
    if last is not None:
        yield last


def _attached(raised: Raised, before: Raised | None, *, direct: bool) -> Raised:
    """Attach another exception to the first of this chain."""
    if before is None:
        return raised
    *others, first = raised.chain
    whole = replace(first, before=before, direct=direct, began=before.began)
    for each in reversed(others):
        whole = replace(each, before=whole)
    return whole


def _exception(lines: Sequence[Line], begin: int, head: int = 1, depth: int = 0) -> tuple[Raised | None, int]:
    """Return the exception whose frames begin after this line, and where to continue.

    The exception is None if the log ends or continues otherwise.

    `head` is 0 if the frames begin in this line: the head of the traceback was lost, or printed by another
    process. `depth` is the number of other processes' messages around it.
    """
    at, frame = begin + head, None
    while at < len(lines) and (_is_below(lines[at].text) or _is_code(lines, at)):
        frame = lines[at] if _FRAME.match(lines[at].text) else frame
        at += 1
    if at == len(lines):
        return _cut_off(lines, begin, head, frame), max(at, begin + 1)
    if not (match := _RAISED.fullmatch(lines[at].text.strip())):
        return None, max(at, begin + 1)
    kind, message = _once(match)
    message_lines = [message]
    if _REMOTE.search(message_lines[0]):
        end = at
    else:
        end = at + 1
        while end < len(lines) and len(message_lines) < _LONGEST and not _is_over(lines[end]):
            message_lines.append(lines[end].text)
            end += 1
    frames = tuple(_frames(lines[begin:at]))
    raised = Raised(
        kind, "\n".join(message_lines).strip(), lines[at], lines[begin].number, frame, frames=frames
    )
    if depth < _DEEPEST and end < len(lines) and _REMOTE.search(lines[end].text.strip()):
        inner, after = _remote(lines, end, depth + 1)
        if inner is not None:
            return replace(raised, before=inner, direct=True), after
    return raised, max(end, at + 1)


def _once(match: re.Match[str]) -> tuple[str, str]:
    """Return class and message of an exception, also where two processes printed it into each other."""
    kind, message = match["type"], match["said"] or ""
    twice = _TWICE.fullmatch(kind)
    if twice is None or not message.startswith(": "):
        return kind, message
    message = message[2:]
    half = len(message) // 2
    return twice[1], message[:half] if message[:half] == message[half:] else message


def _cut_off(lines: Sequence[Line], begin: int, head: int, frame: Line | None) -> Raised | None:
    """Return what was being raised if the log ends within a traceback, from its last place's source line."""
    last = next(
        (at for at in reversed(range(begin + head, len(lines))) if _FRAME.match(lines[at].text)), None
    )
    if last is None or frame is None:
        return None
    code = [line.text.strip() for line in lines[last + 1 :] if line.text.strip(" ^~\t")]
    match = _RAISES.match(code[0]) if code else None
    if match is None:
        return None
    message = "".join(_STRING.findall(" ".join([match["said"], *code[1:]])))
    raised = lines[last + 1]
    frames = tuple(_frames(lines[begin:]))
    return Raised(match["type"], message, raised, lines[begin].number, frame, frames=frames)


def _frames(lines: Sequence[Line]) -> Iterator[Frame]:
    """Yield the places of a traceback in order."""
    for at, line in enumerate(lines):
        if match := _FRAME.match(line.text):
            code = lines[at + 1].text.strip() if at + 1 < len(lines) else ""
            is_code = bool(code.strip("~^ ")) and not _FRAME.match(lines[at + 1].text)
            function = (match["function"] or "").partition(" [repeated ")[0]
            yield Frame(match["path"], int(match["line"]), function, code if is_code else "")


def _remote(lines: Sequence[Line], begin: int, depth: int) -> tuple[Raised | None, int]:
    """Return the chain of another process inside the message of this process's exception."""
    raised, at = _exception(lines, begin, depth=depth)
    while raised is not None:
        begin, join = at, None
        while at < len(lines) and (not (text := lines[at].text.strip()) or text in _JOINS):
            join = _JOINS.get(text, join)
            at += 1
        if join is None or at == len(lines) or not lines[at].text.strip().startswith("ray::"):
            return raised, begin
        following, after = _exception(lines, at, depth=depth)
        if following is None:
            return raised, begin
        raised, at = _attached(following, raised, direct=join), after
    return None, at


def _is_below(text: str) -> bool:
    """Return whether a line belongs under the head of a traceback, even if its indentation was stripped."""
    return not text.strip(" \t^~") or text.startswith((" ", "\t")) or bool(_FRAME.match(text))


def _is_code(lines: Sequence[Line], at: int) -> bool:
    """Return whether an unindented line is the code of the preceding place instead of an exception."""
    return bool(_FRAME.match(lines[at - 1].text)) and not _RAISED.fullmatch(lines[at].text.strip())


def _is_over(line: Line) -> bool:
    """Return whether a message ended before this line."""
    text = line.text.strip()
    return (
        not text
        or text == _QUOTES
        or text in _JOINS
        or text.startswith(OVERRIDES)
        or bool(_GOES_ON.match(text))
        or bool(_BEGINS.search(text))
    )
