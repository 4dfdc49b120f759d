"""What tmux and screen start, and what is typed into their terminals."""

from __future__ import annotations

import itertools
import re

from verl_doctor.toolkit.collectors.launch.wrappers.programs import ShellProgram
from verl_doctor.toolkit.sources.shell.found import Argument

_TMUX = {"-c", "-e", "-F", "-f", "-n", "-s", "-t", "-x", "-y", "-l", "-p", "-L", "-S", "-T"}
_TMUX_STARTS = {"new-session", "new", "new-window", "neww", "split-window", "splitw"}
_TMUX_TYPES = {"send-keys", "send"}
_TMUX_KEYS = re.compile(
    r"(?:[CMS]-)+\S+|Escape|Up|Down|Left|Right|Home|End|BSpace|Tab|BTab|F\d+|[NP]Page|[ID]C"
)
_SCREEN = {"-S", "-c", "-e", "-h", "-p", "-T", "-s", "-t", "-Logfile"}


def in_terminal(words: list[Argument], name: str) -> tuple[ShellProgram | None, list[Argument]]:
    """Parse `tmux new-session -d TEXT` and `screen -dm PROGRAM`: what the terminal starts."""
    if name == "tmux" and (typed := _typed(words)) is not None:
        return typed, []
    place, starts = 1, name == "screen"
    while place < len(words):
        text = words[place].text or ""
        if text in _TMUX_STARTS and name == "tmux":
            starts = True
        elif text in (_TMUX if name == "tmux" else _SCREEN) or re.fullmatch(r"-\w*[dDm]\w*S", text):
            place += 1
        elif not text.startswith("-") or words[place].text is None:
            break
        place += 1
    inner = list(itertools.takewhile(lambda word: word.text != ";", words[place:] if starts else []))
    if name == "tmux" and len(inner) == 1:  # a single word is the text of a shell
        return ShellProgram(inner[0].text, None, ()), []
    return None, inner


def _typed(words: list[Argument]) -> ShellProgram | None:
    """Parse `tmux send-keys -t SESSION TEXT Enter`: the text that a shell in a terminal gets."""
    begin = next((place for place, word in enumerate(words) if word.text in _TMUX_TYPES), 0)
    if not begin:
        return None
    session, place, literal = "", begin + 1, False
    while place < len(words) and (words[place].text or "").startswith("-"):
        option = words[place].text or ""
        literal = literal or "l" in option
        if option[-1] in "tNc":
            session = (
                (words[place + 1].text or "" if place + 1 < len(words) else "")
                if option[-1] == "t"
                else session
            )
            place += 1
        place += 1
    keys = list(itertools.takewhile(lambda word: word.text != ";", words[place:]))
    if any(word.text is None for word in keys):
        return ShellProgram(None, None, (), session=session or "0")
    text = ""
    for word in keys:
        key = word.text or ""
        if not literal and key in ("Enter", "KPEnter", "C-m", "C-j"):
            text += "\n"
        elif literal or not _TMUX_KEYS.fullmatch(key):
            text += " " if key == "Space" and not literal else key
    return ShellProgram(text, None, (), session=session.partition(":")[0] or "0")
