"""Fix for words of the training command: apply a rule's correction that changes the training."""

from __future__ import annotations

from verl_doctor.patches.shared.command_words import CORRECTED, rewritten
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix(
    "script-word-changed",
    repairs=CORRECTED,
    safety="unsafe",
)
def script_word_changed(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Change the launch script to the nearest that is accepted.

    A word gets another value or is left out, or a line that sets a variable is. Unsafe, although it can be
    undone: the job will differ from what the script describes. The plan shows what changes, with the
    arithmetic.
    """
    return rewritten(finding, launch, sources, marker)
