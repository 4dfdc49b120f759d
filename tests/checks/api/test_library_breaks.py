"""The rules about Ray, transformers, tensordict and SGLang on real releases whose compatibility is known from importing them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.trying import thorough

from verl_doctor.checks.api.library_attribute_missing import library_attribute_missing
from verl_doctor.checks.api.library_call_mismatch import library_call_mismatch
from verl_doctor.checks.api.library_import_missing import library_import_missing
from verl_doctor.checks.api.library_source_unreadable import library_source_unreadable
from verl_doctor.toolkit.collectors.api.trees import read_libraries
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.rule import Finding

WheelTree = Callable[[str, str], Path]


def found(wheel_tree: WheelTree, verl: str, **libraries: str) -> list[Finding]:
    """Findings of the four rules for a verl release with these library releases."""
    trees = [
        Tree(str(wheel_tree(name, version) / name), name, version, f"--{name}")
        for name, version in libraries.items()
    ]
    uses = read_libraries(
        Tree(str(wheel_tree("verl", verl) / "verl"), "verl", verl, "--verl"), trees, "3.11.7"
    )
    assert isinstance(uses, LibraryUses)
    return [
        *library_import_missing.judge(uses),
        *library_attribute_missing.judge(uses),
        *library_call_mismatch.judge(uses),
        *library_source_unreadable.judge(uses, Absent("vLLM is not installed in this environment")),
    ]


@pytest.mark.real
@pytest.mark.parametrize(
    ("verl", "transformers"),
    [
        *(thorough(*pair) for pair in (("0.5.0", "4.52.4"), ("0.6.1", "4.57.3"), ("0.8.0", "5.10.4"))),
        ("0.7.0", "4.57.3"),
        ("0.9.1", "5.10.4"),
    ],
)
def test_importable_verl_is_not_reported_to_stop(wheel_tree: WheelTree, verl: str, transformers: str) -> None:
    """Each of these imports `verl.trainer.main_ppo` and its workers."""
    findings = found(wheel_tree, verl, transformers=transformers, tensordict="0.8.3")
    assert [finding.message for finding in findings if finding.stops] == []


@pytest.mark.real
@pytest.mark.parametrize("verl", ["0.6.1", "0.7.0"])
def test_transformers_5_stops_verl_at_import_and_is_named_once(wheel_tree: WheelTree, verl: str) -> None:
    """`import verl.trainer.main_ppo`: ImportError: cannot import name 'AutoModelForVision2Seq' from 'transformers'."""
    (finding,) = [part for part in found(wheel_tree, verl, transformers="5.10.4") if part.stops]
    assert "AutoModelForVision2Seq" in finding.message
    assert "AutoModelForImageTextToText" in finding.message
    assert finding.phase == "import"
    assert "trainer" in finding.stops
    assert finding.location is not None
    assert finding.location.path.endswith("verl/utils/model.py")
    assert any(place.path.endswith("fsdp_workers.py") for place in finding.also)


@pytest.mark.real
def test_workers_of_old_verl_stop_with_transformers_5_only_at_start(
    wheel_tree: WheelTree,
) -> None:
    """verl 0.5.0 imports with transformers 5; its workers ask for the class when they build the model."""
    (finding,) = [part for part in found(wheel_tree, "0.5.0", transformers="5.10.4") if part.stops]
    assert (finding.phase, finding.stops) == ("start", ("trainer",))


@pytest.mark.real
def test_compatible_ray_and_tensordict_releases_have_no_findings(wheel_tree: WheelTree) -> None:
    assert found(wheel_tree, "0.9.1", tensordict="0.10.0") == []
    assert found(wheel_tree, "0.6.1", ray="2.41.0", tensordict="0.6.2") == []


def test_use_needed_only_on_an_npu_is_a_hint() -> None:
    """A use needed only on an NPU gives no warning elsewhere; one needed under a setting is a warning."""
    verl = Tree("/env/verl", "verl", "0.5.0", "site-packages")
    library = Tree("/env/transformers", "transformers", "4.57.3", "site-packages")

    def severity(when: str) -> str | None:
        use = ApiUse(
            "/env/verl/a.py", 1, "import", "transformers:Gone", "missing", "import", ("trainer",), when
        )
        uses = LibraryUses(verl, (ApiUses(verl, library, (use,)),), ("trainer",))
        (finding,) = library_import_missing.judge(uses)
        return finding.severity

    assert severity("not is_cuda_available and is_npu_available") == "info"
    assert severity("not is_npu_available and config.lora") == "warning"
