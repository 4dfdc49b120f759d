"""Text for a terminal: external input is made harmless, and lines are wrapped with a hanging indent.

Also the name of an enumeration that a wrong one may mean.
"""

from __future__ import annotations

import difflib
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

# Cf holds the characters that reorder text on the screen, with which a log or a path may hide something.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

_SEPARATORS = re.compile(r"[-_.]+")
# How programs begin a line of output: a clock, a Ray worker, a shell's trace, a traceback, a bar, a step, or
# their own name before a complaint.
_OUTPUT = re.compile(
    rb"^(?:\x1b\[[\d;]*m)*(?:(?:[A-Z]+[: ])?[\[(]?\d{2,4}[-/]?\d\d[-/]?\d\d[ T]\d\d:\d\d"
    rb"|\[?[IWEF]\d{4} \d\d:\d\d"
    rb"|[A-Z]+ \d\d-\d\d \d\d:\d\d|\d\d:\d\d:\d\d\b|\(\S[^()\n]{0,80}\bpid=\d+"
    rb"|:(?:job_id|actor_name|task_name):|\++ \S|Traceback \(most recent|step:\d+ - "
    rb"|\[rank\d+\]|\S+: line \d+: |[^\n]{0,80}\d%\|"
    rb"|[\w./+-]{1,80}: (?:[\w /:.-]{0,80}: )?(?:\*{3} )?(?i:error|fatal|warning|cannot|can't|could not"
    rb"|unable to|no such|no module named|command not found|permission denied|failed|out of memory|job \d+)"
    rb"|(?:Killed|Aborted|Bus error|Segmentation fault|Illegal instruction|Floating point exception)\b)",
    re.MULTILINE,
)


def lines_of_output(text: bytes) -> int:
    """Return how many lines begin as output of programs does, which lines of scripts do not."""
    return sum(1 for _ in _OUTPUT.finditer(text))


def harmless(text: str, *, keep: str = "") -> str:
    """Show control, reordering and undecodable characters as escapes instead of obeying them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _HARMFUL
        else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


_PROGRAM = re.compile(
    r"`[^`]+`|(?<![\w/.-])(?:verl-doctor|pip|uv|ray|conda|docker|apt-get|nvidia-smi|ulimit|mount|export"
    r"|source|sudo|python3?)(?= )"
)
_PLAIN = re.compile(r"[a-z]+")
_WORD_OF_COMMAND = re.compile(r"[^\s]*[^\s,;:.)]")
_SUBCOMMANDS = frozenset(
    {
        "install",
        "uninstall",
        "sync",
        "pip",
        "stop",
        "start",
        "run",
        "exec",
        "update",
        "list",
        "export",
        "verify",
        "apply",
        "import",
    }
)
_NO_BREAK = "\x00"


def commands_kept_whole(text: str) -> str:
    """Join the words of each command in a sentence, and of backquoted text, by a non-blank character."""
    parts: list[str] = []
    place = 0
    while match := _PROGRAM.search(text, place):
        end = match.end() if match[0].startswith("`") else _end_of_command(text, match)
        parts += [text[place : match.start()], text[match.start() : end].replace(" ", _NO_BREAK)]
        place = end
    return "".join([*parts, text[place:]])


def _end_of_command(text: str, program: re.Match[str]) -> int:
    """Return where a command ends that begins with this program.

    It ends before the next plain word that belongs to the sentence.
    """
    end, last, is_first = program.end(), "", True
    while text[end : end + 1] == " " and (word := _WORD_OF_COMMAND.match(text, end + 1)):
        subcommand = (is_first and program[0] == "verl-doctor") or word[0] in _SUBCOMMANDS
        if _PLAIN.fullmatch(word[0]) and not subcommand and not last.startswith("--"):
            break
        end, last, is_first = word.end(), word[0], False
    return end


def wrapped(text: str, width: int | None, *, indent: str = "", hanging: str = "") -> list[str]:
    """Wrap to `width` columns, or not at all when it is None: output to a pipe has one item per line.

    Long words, such as paths, are never broken, and neither are commands to copy.
    """
    if width is None:
        return [indent + text]
    lines = textwrap.wrap(
        commands_kept_whole(text),
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines] or [indent]


def appended(words: Iterable[str]) -> str:
    """Return words as the end of a shell command, each after a blank; "" for none."""
    return "".join(f" {shlex.quote(word)}" for word in words)


def listed(words: Iterable[str], most: int) -> str:
    """Name the first few and count the rest: "a, b and 7 more"."""
    every = list(words)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers, with three or more consecutive numbers as a range: "0-5, 7"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run) for run in runs)
    return ", ".join(word for run in words for word in run)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun: "1 failure", "3 failures", "1,000 failures"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def in_bytes(amount: float) -> str:
    """Format an amount of bytes with three digits, in binary units: "64.0 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.0f} TiB" if amount >= 100 else f"{amount:.1f} TiB"


def in_time(seconds: float) -> str:
    """Format a duration in the largest unit of which it holds two: "90 seconds", "3 hours", "5 days"."""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds), "second")


def without_middle(text: str, size: int) -> str:
    """Return a text without its middle when it is longer than `size`.

    The ends matter most: those of a path, or the subject of a sentence and its value or place.
    """
    if len(text) <= size:
        return text
    end = (size - 2) // 2
    return f"{text[: size - 2 - end]}..{text[len(text) - end :]}"


def canonical(name: str) -> str:
    """Return the normalised form of a distribution's name (PEP 503)."""
    return _SEPARATORS.sub("-", name).strip("-").lower()


def with_part(part: str, names: Iterable[str]) -> list[str]:
    """Return the other names of which a word is a part, as async is of separate_async."""
    word = part.lower()
    return [name for name in names if word in re.split(r"[-_ .]", name.lower()) and name.lower() != word]


def closest(name: str, names: Sequence[str], cutoff: float = 0.6) -> str:
    """Return the accepted name that a wrong one may mean, "" if there is none or several may be meant.

    If accepted names have it as a part, only these may: the nearest in letters may be the opposite.
    """
    if (whole := with_part(name, names)) and name not in names:
        return whole[0] if len(whole) == 1 else ""
    return next(iter(difflib.get_close_matches(name, names, 1, cutoff)), "")
