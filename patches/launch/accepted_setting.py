"""Fix for what construction finds and no rule can correct: the nearest settings that it accepts."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.shared.corrections import LEAVE_OUT, settings
from verl_doctor.patches.shared.command_words import rewritten
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.construction.accepted import Accepted
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted


@fix(
    "accepted-setting",
    repairs=(
        *("BUILD101", "BUILD102", "BUILD103", "BUILD104", "BUILD105", "BUILD106"),
        *("BUILD107", "BUILD108", "BUILD109", "BUILD110", "BUILD111", "BUILD112"),
    ),
    safety="unsafe",
    last_resort=True,
)
def accepted_setting(
    finding: Finding,
    accepted: Accepted,
    configuration: Configuration,
    launch: Launch,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Change the settings of the launch script to the nearest with which the job can be built.

    Found by trying: values that the exception and the code around it name, other values of the setting, and
    verl's defaults, one after the other, until verl's own code builds the job. Unsafe, although it can be
    undone: the job will differ from what the script describes.
    """
    line = f"edit {finding.location} by hand" if finding.location else "change it by hand"
    tried = f"{counted(accepted.tried, 'configuration')} tried in {accepted.seconds:.0f} s"
    if accepted.unclear:
        return Refusal(f"it may mean {' or '.join(accepted.unclear)}; {line}")
    if not accepted.settings:
        return Refusal(f"no other setting of the script heals it ({tried}); {line}")
    values = {setting.key: LEAVE_OUT if setting.left_out else setting.value for setting in accepted.settings}
    correction = settings(configuration, values, f"construction accepts the job with this ({tried})")
    if correction is None:
        return Refusal(f"{', '.join(values)} cannot be changed in a file; {line}")
    changed = replace(finding, correction=replace(correction, code="BUILD"))
    return rewritten(changed, launch, sources, marker)
