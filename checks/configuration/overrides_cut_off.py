"""CFG104: overrides that stand behind the end of the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.checks.shared.launch_examples import GOOD, SCRIPT
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.sources.shell.syntax import every_word
from verl_doctor.toolkit.text import listed

_LOST = (
    Word(text="trainer.total_epochs=1", path=SCRIPT, line=6),
    Word(text="trainer.save_freq=-1", path=SCRIPT, line=7),
)
_SHOWN = 3


def _examples() -> list[Example]:
    return [
        Example("all overrides belong to the command", (GOOD,)),
        Example(
            "two of them do not", (replace(GOOD, lost=_LOST),), "trainer.total_epochs=1, trainer.save_freq=-1"
        ),
        Example(
            "an array without its index",
            (replace(GOOD, lost=tuple(replace(word, written="$ARGS") for word in _LOST)),),
            "$ARGS is the first element of an array alone",
        ),
    ]


@check("CFG104", phase="validation", requires=("CFG116",), examples=_examples)
def overrides_cut_off(launch: Launch) -> Iterator[Finding]:
    r"""Overrides come after the end of the command.

    ## Why it matters
    The shell treats the rest as another command, which it cannot find. The job runs without them, on verl's
    defaults. This happens when a line in the middle is commented out, when its final `\` is missing, or when
    a space follows the `\`.

    ## How to fix
    End every line but the last with `\` and nothing after it. Move comments above the command.
    Pass an array as `"${ARGS[@]}"`.
    """
    of_array = [word for word in launch.lost if every_word(word.written)]
    for written in dict.fromkeys(word.written for word in of_array):
        yield _not_passed([word for word in of_array if word.written == written])
    if lost := [word for word in launch.lost if word not in of_array]:
        first = lost[0]
        words = listed((word.text or word.written for word in lost), _SHOWN)
        yield Finding(
            f"these overrides come after the end of the command and have no effect: {words}",
            Evidence(
                found=f"{first.path}:{first.line} begins another command",
                wanted="a line continued with \\",
            ),
            location=Location(first.path, first.line),
            remedy="end the line above with \\, without a comment and with nothing after the \\",
            subject=Subject("file", first.path),
            fix="joined-lines",
        )


def _not_passed(words: Sequence[Word]) -> Finding:
    written, meant = words[0].written, every_word(words[0].written)
    shown = listed((word.text or "" for word in words), _SHOWN)
    return Finding(
        f"{written} is the first element of an array alone: these overrides have no effect: {shown}",
        Evidence(found=written, wanted=meant),
        location=Location(words[0].path, words[0].line),
        remedy=f"write {meant} in its place",
        subject=Subject("setting", written, meant),
        fix="every-word-passed",
    )
