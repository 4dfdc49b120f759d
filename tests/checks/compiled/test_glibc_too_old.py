"""Tags of wheels against the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.environments import interpreter

from verl_doctor.checks.compiled.glibc_too_old import glibc_too_old
from verl_doctor.toolkit.collectors.packages.wheels import Wheel, Wheels
from verl_doctor.toolkit.testing import run_check


def messages(*tags: str, glibc: str = "2.31", machine: str = "x86_64") -> list[str]:
    python = replace(interpreter(machine=machine), glibc=glibc)
    wheels = Wheels((Wheel("vllm", "1", tags, (), "/env/vllm-1.dist-info"),))
    return [finding.message for finding in run_check(glibc_too_old, python, wheels).findings]


@pytest.mark.parametrize(
    "tag",
    [
        "cp38-abi3-manylinux1_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-linux_x86_64",
        "py3-none-any",
        "cp311-cp311-musllinux_1_2_x86_64",
        "cp311-cp311-win_amd64",
        "no tag at all",
        "manylinux_99999_1_x86_64",
        "",
    ],
)
def test_matching_and_other_wheels_have_no_findings(tag: str) -> None:
    assert messages(tag) == []


def test_single_matching_tag_suffices() -> None:
    assert messages("cp38-abi3-manylinux_2_39_x86_64", "cp38-abi3-manylinux_2_28_x86_64") == []


def test_lowest_sufficient_glibc_is_named() -> None:
    (message,) = messages("cp38-abi3-manylinux_2_39_x86_64", "cp38-abi3-manylinux_2_35_x86_64")
    assert message == "vllm 1 needs glibc 2.35, but this machine has 2.31"


def test_minor_glibc_version_is_compared_as_a_number() -> None:
    assert messages("cp38-abi3-manylinux_2_5_x86_64", glibc="2.31") == []
    assert messages("cp38-abi3-manylinux_2_31_x86_64", glibc="2.4") != []


def test_other_processor_is_not_reported_as_an_old_glibc() -> None:
    (message,) = messages("cp38-abi3-manylinux_2_39_x86_64", machine="aarch64")
    assert message == "vllm 1 is built for x86_64, but this machine is aarch64"
