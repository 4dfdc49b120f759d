"""Fix for words of the training command: apply a rule's correction that does not change the training."""

from __future__ import annotations

from verl_doctor.patches.shared.command_words import CORRECTED, rewritten
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix(
    "script-word",
    repairs=CORRECTED,
    safety="safe",
)
def script_word(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Correct the launch script.

    Only what the script clearly intends, or what decides where and in which batches the same numbers are
    computed: the result of the training stays the same. The value keeps its quotes, and the old line stays as
    a comment.
    """
    return rewritten(finding, launch, sources, marker)
