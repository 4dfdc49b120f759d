"""The words behind `python` and behind launchers of Python processes, such as torchrun."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.wrappers.programs import PYTHON, PythonProgram, name_of
from verl_doctor.toolkit.sources.shell.found import Argument, Lines

_FLAGS_OF_LAUNCHERS = frozenset(
    {
        "--standalone",
        "--no-python",
        "--no_python",
        "-m",
        "--module",
        "--use-env",
        "--use_env",
        "--multi_gpu",
        "--cpu",
        "--use_deepspeed",
        "--use_fsdp",
        "--debug",
        "-q",
        "--quiet",
        "--same_network",
        "--tpu",
        "--mps",
        "--run-path",
        "--run_path",
        "--no_local_rank",
        "--enable_each_rank_log",
    }
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # what text programs make of hyphens
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.(?!py$)[A-Za-z_]\w*)+")


def runs_python(words: Sequence[Argument]) -> bool:
    """Return whether these words behind an unknown program are Python's: `-u -m module`, `train.py`."""
    own = itertools.takewhile(lambda word: re.fullmatch(r"-[BdEIOPqsSuvx]+", word.text or ""), words)
    after = words[len(list(own)) :]
    return len(after) > 0 and (
        (after[0].text == "-m" and len(after) > 1) or (after[0].text or "").endswith(".py")
    )


def behind_python(words: list[Argument]) -> tuple[PythonProgram | None, list[Argument]]:
    """Parse the words behind `python`: `-m module ...`, `script.py ...`, a launcher's module.

    None for a Python text or nothing.
    """
    place, opens = 0, ""
    while place < len(words):
        text = words[place].text
        if text is None:
            return None, []
        if text and text[0] in _DASHES and not words[place].conditional:
            opens, text = opens or text, f"-{text[1:]}"
        if text == "-m" and place + 1 < len(words):
            module = words[place + 1].text
            if module in ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"):
                return _launched(words, place + 2), []
            return (
                None if module is None else PythonProgram(module, tuple(words[place + 2 :]), opens=opens)
            ), []
        if re.match(r"-m\w", text):
            return PythonProgram(text[2:], tuple(words[place + 1 :])), []
        if text in ("-W", "-X"):
            place += 2
        elif text in ("-c", "-"):
            return None, []
        elif text.startswith("-"):
            place += 1
        else:
            is_module = _DOTTED.fullmatch(text) is not None and not words[place].conditional
            opens = opens or (text if is_module else "")
            return PythonProgram(text, tuple(words[place + 1 :]), opens=opens), []
    return None, []


def safe_path(words: list[Argument]) -> list[Argument]:
    """Return the assignment that amounts to the same as Python's option -P, if it is given."""
    own = itertools.takewhile(lambda word: re.fullmatch(r"-[A-Zbdiqsuvx]+", word.text or ""), words[1:])
    return [
        replace(word, text="PYTHONSAFEPATH=1")
        for word in own
        if re.fullmatch(r"-[bBdEiIOPqsSuvx]*[IP].*", word.text or "")
    ][:1]


def launched_by(words: list[Argument]) -> PythonProgram | None:
    """Parse `torchrun --nproc_per_node=8 -m module ...`, `accelerate launch script.py ...`."""
    place = 1
    name = name_of(words[0])
    if name == "accelerate":
        if len(words) < 2 or words[1].text != "launch":
            return None
        place = 2
    return _launched(words, place)


def _launched(words: list[Argument], place: int) -> PythonProgram | None:
    as_module, opens = False, ""
    starts_programs = any(word.text in ("--no-python", "--no_python") for word in words)
    is_certain = name_of(words[0]) != "accelerate" and not starts_programs
    while place < len(words):
        text = words[place].text
        is_certain = is_certain and text is not None and not words[place].conditional
        if text and text[0] in _DASHES and is_certain and not as_module:
            opens, text = opens or text, f"-{text[1:]}" if text[1:] == "m" else f"--{text[1:]}"
        if text is None:
            place += 1
        elif text in ("-m", "--module"):
            as_module = True
            place += 1
        elif text.startswith("-"):
            place += 1 if "=" in text or text in _FLAGS_OF_LAUNCHERS else 2
        elif not (as_module or opens or starts_programs) and PYTHON.fullmatch(name_of(words[place])):
            opens = text
            place += 1
        elif as_module or text.endswith(".py") or "/" in text:
            return PythonProgram(text, tuple(words[place + 1 :]), tuple(words[:place]), opens=opens)
        elif is_certain and _DOTTED.fullmatch(text):
            return PythonProgram(text, tuple(words[place + 1 :]), tuple(words[:place]), opens=opens or text)
        else:
            place += 1
    return None


def started_by_text(words: list[Argument], stdin: Lines | None) -> PythonProgram | None:
    """Return the program of verl that a Python text starts. None for any other text."""
    text, given, first = _text(words, stdin)
    if text is None or first is None or "verl" not in text:
        return None
    from verl_doctor.toolkit.collectors.launch.python_text import started  # noqa: PLC0415 - only for a Python text

    found = started(text, given, first)
    return PythonProgram(found[0], found[1], uses=found[2]) if found else None


def spawned_by_text(words: list[Argument], stdin: Lines | None) -> list[Argument] | None:
    """Return the words of the command that a Python text starts, if verl is in it.

    None for any other text.
    """
    text, given, first = _text(words, stdin)
    if text is None or first is None or "verl" not in text:
        return None
    from verl_doctor.toolkit.collectors.launch.spawned import spawned  # noqa: PLC0415 - only for a Python text

    return spawned(text, given, first)


def _text(
    words: list[Argument], stdin: Lines | None
) -> tuple[str | None, Sequence[Argument], Argument | None]:
    """Return a Python text (after `-c`, or the input), its arguments, and the place of its first line."""
    place = next(
        (place for place, word in enumerate(words) if not (word.text or "").startswith("-")), len(words)
    )
    place = next((place for place, word in enumerate(words[:place]) if word.text in ("-", "-c")), place)
    option = words[place].text if place < len(words) else "-"
    if option == "-c" and place + 1 < len(words):
        return words[place + 1].text, words[place + 2 :], words[place + 1]
    if option == "-" and stdin is not None and (words or stdin.text):
        return stdin.text, words[place + 1 :], Argument(None, stdin.path, stdin.line, "sys.argv")
    return None, (), None
