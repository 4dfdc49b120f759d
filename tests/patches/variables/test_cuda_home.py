"""The fix that lets CUDA_HOME name one folder."""

from __future__ import annotations

from verl_doctor.checks.kernels.cuda_home_malformed import cuda_home_malformed
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER, TOOLKIT
from verl_doctor.patches.variables.cuda_home import cuda_home
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

LIST = TOOLKIT(given_by="CUDA_HOME", home=":/usr/local/cuda-12.8", nvcc="", candidate="/usr/local/cuda-12.8")
NO_JOB = (Configuration, Unknown("no launch script was named"))


def test_folder_containing_nvcc_is_suggested() -> None:
    (finding,) = run_check(cuda_home_malformed, LIST, H200(built=("sampling",)), SAMPLER(), NO_JOB).findings
    assert (finding.fix, finding.severity) == ("cuda-home", "warning")
    (change,) = cuda_home.plan(finding, LIST)
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("CUDA_HOME", "/usr/local/cuda-12.8", True)


def test_finding_is_an_error_if_a_kernel_must_be_compiled() -> None:
    (finding,) = run_check(cuda_home_malformed, LIST, H200(), SAMPLER(), NO_JOB).findings
    assert finding.severity == "error"


def test_missing_nvcc_has_no_fix() -> None:
    nowhere = TOOLKIT(given_by="CUDA_HOME", home="/gone", nvcc="", on_path="", candidate="")
    (finding,) = run_check(
        cuda_home_malformed, nowhere, H200(built=("sampling",)), SAMPLER(), NO_JOB
    ).findings
    assert (finding.fix, finding.severity) == (None, "info")
    assert isinstance(cuda_home.plan(finding, nowhere), Refusal)
