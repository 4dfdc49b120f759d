"""Sentences and commands as styled lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from verl_doctor.toolkit.text import harmless, wrapped


def lines(
    text: str, width: int | None, indent: int, *, first: str | None = None, style: str = ""
) -> Iterator[Text]:
    """Wrap one sentence at `width` columns, None for no limit.

    Its first line begins with `first` instead of blanks.
    """
    blank = " " * indent
    for line in wrapped(harmless(text), width, indent=blank if first is None else first, hanging=blank):
        yield Text(line, style=style)


def next_steps(steps: Sequence[tuple[str, str]], width: int | None) -> Iterator[Text]:
    """Yield commands to type, each with its reason above it.

    A command has a separate line and is never wrapped. A step without a command is a comment alone. Each line
    of a comment is marked, so that all of it can be pasted into a shell.
    """
    if steps:
        yield Text()
        yield Text("Next:")
    for command, why in steps:
        if why:
            for line in wrapped(harmless(why), width, indent="  # ", hanging="  # "):
                yield Text(line, style="dim")
        if command:
            yield Text(f"  {harmless(command)}")
