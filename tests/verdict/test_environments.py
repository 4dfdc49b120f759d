"""The broken environments: each case is whole, and one of them is healed by the real pip."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from verdict.environments import Broken, Builder, cases, document, faults, fix

_STEPS = {"install", "uninstall", "unpack", "rename", "delete", "empty", "editable"}


@pytest.mark.parametrize("case", cases().values(), ids=lambda case: case.name)
def test_every_case_has_a_repair_or_a_reason(case: Broken) -> None:
    assert bool(case.repair) != bool(case.not_healable)
    assert {kind for step in case.steps for kind in step} <= _STEPS
    offered = document()["wheels"]
    pins = [pin for step in case.steps for kind in ("install", "unpack") for pin in step.get(kind, ())]
    assert {pin.replace("==", " ") for pin in pins} <= offered.keys()
    assert set(case.gone) <= offered.keys()


def test_requirements_of_small_wheels_are_valid() -> None:
    for lines in document()["wheels"].values():
        for line in lines:
            Requirement(line.partition(": ")[2] or line)


@pytest.mark.slow
def test_environment_is_healed_in_a_copy(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real pip, a folder of wheels, and four faults at once."""
    builder = Builder(tmp_path_factory.mktemp("environments"))
    prefix = builder.build(cases()["several_at_once"])
    answer = fix(builder, prefix, "--apply", "--unsafe", "--select", "PKG")
    (done,) = [repair for repair in answer["repairs"] if repair["outcome"] == "repaired"]
    (change,) = done["changes"]
    copy = prefix.with_name("several_at_once-repaired")
    assert (change["environment"], change["copy"]) == (str(prefix), str(copy))
    assert {"torch==2.11.0", "numpy==2.3.5", "tensordict==0.10.0", "transferqueue==0.1.8"} <= set(
        change["lock"]
    )
    assert faults(builder, copy, answer) == set()
