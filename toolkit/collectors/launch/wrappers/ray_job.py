"""The options of `ray job submit`."""

from __future__ import annotations

from collections.abc import Mapping

from verl_doctor.toolkit.sources.shell.found import Argument


def behind_submit(words: list[Argument], options: Mapping[str, list[Argument]]) -> list[Argument]:
    """Return the words after the options of `ray job submit`, and store the values of the given `options`."""
    place = 0
    while place < len(words):
        word = words[place]
        text = word.text or ""
        if text == "--":
            return words[place + 1 :]
        option, equals, value = text.partition("=")
        kept = options.get(option)
        if kept is not None and equals:
            kept.append(Argument(value, word.path, word.line, word.written))
        elif kept is not None and place + 1 < len(words):
            kept.append(words[place + 1])
        if text in ("--no-wait", "--verify", "--no-verify", "-v", "--verbose", "--follow") or (
            text.startswith("-") and equals
        ):
            place += 1
        elif text.startswith("-") or word.text is None:
            place += 2 if text.startswith("-") else 1
        else:
            return words[place:]
    return []
