"""Collects the errors that verl's validation raises."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.validation.validation import Validation
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Unknown, collector


@collector(timeout=20, kept=True)
def validation(
    configuration: Configuration,
    trees: VerlTrees,
    vllm: VllmTree | Unknown,
    interpreter: Interpreter | Unknown,
    processes: JobProcesses | Unknown,
) -> Validation | Unknown:
    """Evaluate the validation of the job's program with the job's values."""
    if not configuration.complete:
        return Unknown(configuration.why_incomplete)
    from verl_doctor.toolkit.collectors.configuration.validation.reader import read_validation  # noqa: PLC0415 - only where a configuration was composed

    return read_validation(configuration, trees, vllm, interpreter, processes)
