"""CFG104: overrides that stand behind the end of the command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.launch_examples import GOOD, SCRIPT
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import listed

_LOST = (Word("trainer.total_epochs=1", SCRIPT, 6), Word("trainer.save_freq=-1", SCRIPT, 7))
_SHOWN = 3


@check(
    "CFG104",
    phase="validation",
    requires=("CFG116",),
    examples=lambda: [
        Example("all overrides belong to the command", (GOOD,)),
        Example(
            "two of them do not", (replace(GOOD, lost=_LOST),), "trainer.total_epochs=1, trainer.save_freq=-1"
        ),
    ],
)
def overrides_cut_off(launch: Launch) -> Iterator[Finding]:
    r"""Overrides come after the end of the command.

    ## Why it matters
    The shell takes them for another command, which it does not find, and the job runs without them: with verl's defaults for
    what the script seems to set. It happens when a line in the middle is commented out, when the `\` at its end is missing, or
    when a space stands behind it.

    ## How to fix
    Let every line but the last end in `\` with nothing behind it, and move comments in front of the command.
    """
    if launch.lost:
        first = launch.lost[0]
        words = listed((word.text or word.written for word in launch.lost), _SHOWN)
        yield Finding(
            f"these words are cut off from the command, so they have no effect: {words}",
            Evidence(
                found=f"{first.path}:{first.line} begins another command",
                wanted="a line that goes on with \\",
            ),
            location=Location(first.path, first.line),
            remedy="Look at the line above: it must end in \\, with no comment on it and nothing behind the \\",
            subject=Subject("file", first.path),
            fix="joined-lines",
        )
