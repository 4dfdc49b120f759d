"""CFG104: overrides that stand behind the end of the command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.launch_examples import GOOD, SCRIPT
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
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
    """
    if launch.lost:
        first = launch.lost[0]
        words = listed((word.text or word.written for word in launch.lost), _SHOWN)
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
