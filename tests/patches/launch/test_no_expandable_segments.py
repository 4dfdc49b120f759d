"""Taking one option out of the options of torch's allocator."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.variables.expandable_segments_against_sleep import expandable_segments_against_sleep
from verl_doctor.patches.launch.no_expandable_segments import no_expandable_segments
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables, job_variables
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.collectors.vllm.sleep_allocator import SleepAllocator
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.testing import run_check

NAME = "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR = SleepAllocator("0.12.0", "/env/vllm/device_allocator/cumem.py", "refuses", (NAME,))
UNKNOWN = Unknown("not asked")


def plan(shell: dict[str, str], there: Launch | Unknown) -> list[Change] | Refusal:
    variables = Variables(shell)
    job = job_variables.collect(variables, there, UNKNOWN)
    assert isinstance(job, JobVariables)
    result = run_check(
        expandable_segments_against_sleep,
        ALLOCATOR,
        VllmPlatform("cuda", "torch 2.9.0+cu128"),
        variables,
        job,
        (Launch, there) if isinstance(there, Unknown) else there,
        (Configuration, UNKNOWN),
        (VariableReaders, UNKNOWN),
    )
    (finding,) = result.findings
    made: list[Change] | Refusal = no_expandable_segments.plan(
        finding, ALLOCATOR, variables, job, there, SourceFiles(), Marker()
    )
    return made


def script(folder: Path, line: str) -> Launch:
    path = folder / "run.sh"
    path.write_text(f"#!/bin/bash\n{line}\npython -m verl.trainer.main_ppo\n")
    found = launch.collect(Target(Path("/env/bin/python"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(found, Launch)
    return found


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("expandable_segments:True", None),
        ("max_split_size_mb:128,expandable_segments:True", "max_split_size_mb:128"),
        (
            "expandable_segments: True,roundup_power2_divisions:[64:8,256:4]",
            "roundup_power2_divisions:[64:8,256:4]",
        ),
    ],
)
def test_other_options_are_kept(value: str, rest: str | None) -> None:
    made = plan({NAME: value}, UNKNOWN)
    assert isinstance(made, list)
    (change,) = made
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == (NAME, rest)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            f"export {NAME}=max_split_size_mb:128,expandable_segments:True",
            f"export {NAME}=max_split_size_mb:128",
        ),
        (f'export {NAME}="expandable_segments:True"', ""),
    ],
)
def test_launch_script_line_is_edited(tmp_path: Path, line: str, after: str) -> None:
    made = plan({}, script(tmp_path, line))
    assert isinstance(made, list)
    (change,) = made
    assert isinstance(change, ReplaceFile)
    lines = [row.partition("  #")[0] for row in change.after.decode().splitlines() if not row.startswith("#")]
    assert lines == [line for line in (after, "python -m verl.trainer.main_ppo") if line]
