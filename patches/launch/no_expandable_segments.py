"""Fix for ENV115: remove expandable_segments from the options of torch's allocator, and keep the others."""

from __future__ import annotations

from verl_doctor.checks.variables._allocator import is_expandable, without_expandable
from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.vllm.sleep_allocator import CONFIGURATIONS, SleepAllocator
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location, Subject
from verl_doctor.toolkit.sources.python.edit import CannotEdit


@fix(
    "no-expandable-segments",
    repairs="ENV115",
    safety="safe",
    restart="Ray and the job",
    upstream="vllm-project/vllm#40812",
)
def no_expandable_segments(
    finding: Finding,
    allocator: SleepAllocator,
    variables: Variables,
    job: JobVariables,
    launch: Launch | Unknown,
    sources: SourceFiles,
    marker: Marker,
) -> list[Change] | Refusal:
    """Remove expandable_segments from the options of torch's allocator, and keep the others.

    Edits the lines of launch files that turn it on; a value set in the shell is replaced in the environment
    file.
    """
    changes: list[Change] = []
    if finding.location is not None and isinstance(launch, Launch):
        edited = edit_lines(
            finding, launch, sources, marker.comment("ENV115"), lambda place: _edit(place, launch)
        )
        if isinstance(edited, Refusal):
            return edited
        changes += edited
    for name in CONFIGURATIONS:
        value = job.get(name)
        by_file = bool(changes) and not is_expandable(variables.get(name))
        if is_expandable(value) and not by_file and finding.subject == Subject("variable", name):
            why = f"the sleep mode of vLLM {allocator.version} does not work with expandable segments"
            until = (
                "vLLM reads this variable and switches them off itself (0.20.1 for PYTORCH_CUDA_ALLOC_CONF)"
            )
            changes.append(SetVariable(name, without_expandable(value) or None, why, until))
    return changes or Refusal("the variable is no longer set")


def _edit(place: Location, launch: Launch) -> LineEdit:
    """Keep the rest of the value. A line that sets nothing else is commented out."""
    here = [
        setting for setting in launch.settings if (setting.path, setting.line) == (place.path, place.line)
    ]
    found = [
        setting for setting in here if setting.name in CONFIGURATIONS and is_expandable(setting.value or "")
    ]
    if len(found) != 1 or found[0].value is None:
        raise CannotEdit(f"{place}: this line does not set one list of options; edit it by hand")
    rest = without_expandable(found[0].value)
    return (
        LineEdit(place.line or 0, found[0].value, rest) if rest else LineEdit(place.line or 0, found[0].name)
    )
