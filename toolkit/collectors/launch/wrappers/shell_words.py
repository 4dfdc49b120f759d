"""The words behind `bash`, and behind programs that take a command as the text of a shell."""

from __future__ import annotations

import re

from verl_doctor.toolkit.collectors.launch.wrappers.programs import ShellProgram, starts_program
from verl_doctor.toolkit.sources.shell.found import Argument, Lines

# Programs that take a command as the text of a shell, and their options with values; the command of ssh is
# the rest of its words.
WITH_TEXT = {
    "su": ("-g", "-G", "-s", "-w", "--group", "--shell"),
    "runuser": ("-u", "-g", "-G", "-s", "-w", "--user", "--group", "--shell"),
    "sg": (),
    "script": ("-E", "-I", "-O", "-B", "-T", "-m", "-o"),
    "flock": ("-w", "-E", "--timeout", "--wait"),
    "ssh": tuple(f"-{letter}" for letter in "BbcDEeFIiJLlmOoPpQRSWw"),
}


def behind_shell(words: list[Argument], stdin: Lines | None) -> ShellProgram | None:
    """Parse the words behind `bash`: `-c TEXT ...`, `script.sh ...`, or a text from the input.

    None for an interactive shell.
    """
    place, reads = 0, False
    while place < len(words):
        text = words[place].text
        if text is None:
            return None
        if text.startswith("-") and "c" in text and not text.startswith("--"):
            if place + 1 >= len(words):
                return None
            return ShellProgram(words[place + 1].text, None, tuple(words[place + 2 :]))
        if text in ("-s", "-", "/dev/stdin"):
            reads = reads or text != "-"
            place += 1
        elif text in ("-o", "-O", "+o", "--rcfile", "--init-file"):
            place += 2
        elif text.startswith(("-", "+")):
            reads = reads or "s" in text[1:]
            place += 1
        elif reads:
            break
        else:
            return ShellProgram(None, text, tuple(words[place + 1 :]))
    return ShellProgram(stdin.text, None, tuple(words[place:]), stdin) if stdin else None


def with_text(
    words: list[Argument], name: str, stdin: Lines | None
) -> tuple[ShellProgram | None, list[Argument]]:
    """Parse `su -c TEXT`, `script -qc TEXT`, `ssh HOST TEXT`: a shell with a text, or a command's words."""
    place = 1
    while place < len(words):
        text = words[place].text
        if text is None or (name == "ssh" and not text.startswith("-")):
            break
        if text == "--":
            return None, words[place + 1 :]
        if name != "ssh" and re.fullmatch(r"-\w*c|--command", text) and place + 1 < len(words):
            return ShellProgram(words[place + 1].text, None, ()), []
        if name != "ssh" and text.startswith("--command="):
            return ShellProgram(text.partition("=")[2], None, ()), []
        if name == "flock" and starts_program(words[place]):
            return None, words[place:]
        place += 2 if text in WITH_TEXT[name] else 1
    if name != "ssh":
        return None, []
    remote = [word.text for word in words[place + 1 :]]
    if remote and None not in remote:
        return ShellProgram(" ".join(text or "" for text in remote), None, (), stdin), []
    return (ShellProgram(stdin.text, None, (), stdin) if stdin and not remote else None), []
