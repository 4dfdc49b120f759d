"""What `logs` adds to a cause: a page that fits, whether rules confirm it here, and what a run survived."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from pathlib import Path

import pytest
from support.logs.builder import traceback

from verl_doctor.toolkit.commands.explain import documentation
from verl_doctor.toolkit.commands.logs import render
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.logs.advice.places import quoted_source
from verl_doctor.toolkit.logs.answer import Answer, Confirmation
from verl_doctor.toolkit.logs.causes import name_of, remedy_of
from verl_doctor.toolkit.logs.confirming import confirmation, is_about
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.document import document
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import FIRST_CAUSE, NOT_DETERMINED, OK, YOUR_CODE, YOUR_CONFIGURATION
from verl_doctor.toolkit.logs.next_steps import next_steps
from verl_doctor.toolkit.logs.signature import of_logs_alone, signatures
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Phase, Subject

ROOT = Path(__file__).parents[3]
VENV = "/venv/lib/python3.11/site-packages"
NO_NCCL = f"""Traceback (most recent call last):
  File "{VENV}/verl/utils/distributed.py", line 93, in initialize_global_process_group_ray
    torch.distributed.init_process_group(
  File "{VENV}/torch/distributed/distributed_c10d.py", line 2181, in _new_process_group_helper
    raise RuntimeError("Distributed package doesn't have NCCL built in")
RuntimeError: Distributed package doesn't have NCCL built in
"""
NO_LEVEL = f"""Traceback (most recent call last):
  File "{VENV}/verl/plugin/platform/platform_manager.py", line 24, in <module>
    logger.setLevel(os.getenv("VERL_LOGGING_LEVEL", "INFO"))
  File "/usr/lib/python3.11/logging/__init__.py", line 207, in _checkLevel
    raise ValueError("Unknown level: %r" % level)
ValueError: Unknown level: 'verbose'
"""
CLASS = f"""Error executing job with overrides: ['data.custom_cls.path=/job/mine.py', 'trainer.nnodes=1']
Traceback (most recent call last):
  File "{VENV}/verl/utils/import_utils.py", line 259, in load_extern_object
    raise AttributeError(f"Object not found in module: {{object_name=}}, {{module_path=}}.")
AttributeError: Object not found in module: object_name='Talk', module_path='/job/mine.py'.
"""


def answered(log: str, **more: object) -> Answer:
    """Return the diagnosis of a log."""
    reading = read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log")
    return Answer(reading, ("run.log",), len(log), **more)  # type: ignore[arg-type]


def cause_of(answer: Answer) -> tuple[str, str]:
    """Return the code of the first cause, and its remedy."""
    assert answer.reading.first is not None
    return name_of(answer.reading.first)[0], remedy_of(answer.reading.first)


def test_code_of_several_faults_has_a_title_of_its_own() -> None:
    titles: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, list[str]] = defaultdict(list)
    for signature in signatures():
        if signature.is_of_logs_alone and signature.code:
            titles[signature.code].add(signature.title)
            groups[signature.code] += [signature.group] if signature.group else []
    several = {code for code, found in titles.items() if len(found) > 1}
    assert {code: len(groups[code]) for code in titles if groups[code]} == dict.fromkeys(several, 1)
    assert [title for title in of_logs_alone().values() if "related fault" in title] == []


def test_page_of_every_code_names_each_fault_that_logs_call_by_it() -> None:
    known = registry.load()
    titles: dict[str, set[str]] = defaultdict(set)
    for signature in signatures():
        titles[signature.code].add(signature.title)
    for code in filter(None, titles):
        rule = known.check(code)
        page = documentation.explain(rule, known) if rule else documentation.explain_of_logs(code, known)
        assert {title for title in titles[code] if title not in (page or "")} == set(), code


def test_torch_without_nccl_is_a_fault_of_its_own() -> None:
    answer = answered(NO_NCCL)
    code, remedy = cause_of(answer)
    assert code == "CUDA117"
    assert "+cpu" in remedy
    assert "install a torch that was built for CUDA" in remedy
    assert [step for step in next_steps(answer) if "explain" in step] == ["verl-doctor explain CUDA117"]


@pytest.mark.parametrize(
    ("log", "steps"),
    [
        (traceback("RuntimeError: these betas are odd", place=f"{VENV}/torch/optim/adam.py"), []),
        (traceback("ValueError: no", place="/job/reward.py"), []),
        (CLASS, ["verl-doctor check LAUNCH_SCRIPT"]),
        ("run.sh: line 3: RUN_NAME: unbound variable\n", ["verl-doctor check LAUNCH_SCRIPT"]),
    ],
)
def test_what_only_states_who_is_at_fault_leads_to_no_page(log: str, steps: list[str]) -> None:
    answer = answered(log)
    assert answer.reading.first is not None
    assert [step.partition("  #")[0] for step in next_steps(answer)] == steps


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (NO_LEVEL, "ENV106"),
        (NO_LEVEL.replace('os.getenv("VERL_LOGGING_LEVEL", "INFO")', "level"), "LOG163"),
        (NO_LEVEL.replace(f"{VENV}/verl/plugin/platform/platform_manager.py", "/job/main.py"), "ENV106"),
    ],
)
def test_unknown_level_of_a_variable_leads_to_the_rule_about_values(log: str, code: str) -> None:
    found, remedy = cause_of(answered(log))
    assert found == code
    assert ("correct VERL_LOGGING_LEVEL" in remedy and "CRITICAL" in remedy) == (code == "ENV106")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("torch.distributed.init_process_group(", "torch.distributed.init_process_group(...)"),
        ("model = build({'a': [1,", "model = build({'a': [1,...]})"),
        ('print("(")', 'print("(")'),
        ("run(x)", "run(x)"),
        ("dtype=torch.float32)", ""),
        ("raise ValueError(", ""),
        ("", ""),
    ],
)
def test_quoted_source_line_is_closed(code: str, shown: str) -> None:
    assert quoted_source(code) == shown


def test_remedy_of_an_unknown_refusal_is_a_step_with_balanced_parentheses() -> None:
    _, remedy = cause_of(answered(NO_NCCL.replace("doesn't have NCCL built in", "is odd")))
    assert remedy.startswith("compare the exception with what verl gives torch at distributed.py:93")
    assert remedy.count("(") == remedy.count(")")


def finding(name: str = "", *, phase: Phase = "workers", place: str = "/job/run.sh:3") -> Finding:
    path, _, line = place.rpartition(":")
    return Finding(
        "it is wrong",
        Evidence("x"),
        Location(path, int(line)),
        severity="error",
        phase=phase,
        subject=Subject("setting", name) if name else None,
    )


@pytest.mark.parametrize(
    ("log", "found", "expected"),
    [
        (CLASS, finding("data.custom_cls.path"), True),
        (CLASS, finding("custom_cls.path", phase="composition"), True),
        (CLASS, finding("data.custom_cls.name", phase="composition"), False),
        (CLASS, finding("data.train_files"), False),
        (traceback("ValueError: no", place="/job/reward.py"), finding(place="/job/reward.py:630"), True),
        (traceback("ValueError: no", place="/job/reward.py"), finding(place="/job/reward.py:631"), False),
        ("run.sh: line 3: RUN: unbound variable\n", finding(phase="shell"), True),
        ("run.sh: line 3: RUN: unbound variable\n", finding(), False),
    ],
)
def test_error_of_a_rule_confirms_what_the_exception_names(
    log: str, found: Finding, *, expected: bool
) -> None:
    first = answered(log).reading.first
    assert first is not None
    assert is_about(found, first) is expected


def test_verification_always_has_a_line() -> None:
    log_code = "LOG160"
    found = Confirmation("CFG126", "mine.py has no Talk", "/job/run.sh:4", "correct it")
    passed = Confirmation("CFG126", "not found here now", is_finding=False)
    for confirmed, line in (
        ({log_code: (found,)}, "confirmed here by CFG126 at /job/run.sh:4"),
        ({log_code: (passed,)}, "not confirmed here by CFG126"),
        ({log_code: ()}, "not confirmed here"),
        ({}, "no rule can confirm this without the launch script (--script)"),
    ):
        answer = answered(CLASS, confirmed=confirmed)
        assert f"  {line}" in [text.plain for text in render.text_lines(answer, None)]
        assert document(answer)["results"][0]["reason"]
    answer = answered(NO_NCCL, confirmed={})
    assert answer.reading.first is not None
    assert confirmation(answer, answer.reading.first) == "no rule can confirm this"
    assert "  no rule can confirm this" in [text.plain for text in render.text_lines(answer, None)]
    assert "confirm" not in "\n".join(text.plain for text in render.text_lines(answered(NO_NCCL), None))


def test_repair_of_a_cause_that_is_not_found_here_is_not_proposed() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/env/verl/utils/config.py", line 9, in make\n'
        "TypeError: RolloutConfig.__init__() got an unexpected keyword argument 'use_fire'\n"
    )
    passed = Confirmation("CFG115", "not found here now", is_finding=False)
    for confirmed in (None, {"CFG115": (passed,)}):
        steps = next_steps(answered(log, fixes={"CFG115": ("script-word", "safe")}, confirmed=confirmed))
        assert any(step.startswith("verl-doctor fix ") for step in steps) == (confirmed is None)


def test_survived_exception_of_the_own_code_is_placed_and_what_verl_did_is_stated() -> None:
    raised = f"""ERROR:2026-11-30 12:22:27,242:Error in _run_prompt for uid=7d5f
{traceback("KeyError: 1", place="/job/reward.py")}"""
    log = f"""{raised}(TaskRunner pid=1) INFO:2026-11-30 12:22:29,309:Upsampled batch from 2 to 4 with 2 synthetic padding samples for required_multiple=4
(TaskRunner pid=1) step:1 - critic/score/mean:0.5
(TaskRunner pid=1) 'Final validation metrics: None'
"""
    answer = answered(log)
    assert answer.verdict == "ok"
    text = [line.plain for line in render.text_lines(answer, None)]
    assert "  run.log:5: KeyError: 1 (raised at /job/reward.py:630, in init_model)" in text
    assert "    verl then trained with 2 samples of padding in their place" in text
    (hint,) = document(answer)["hints"]
    assert (hint["place"], bool(hint["then"])) == ("/job/reward.py:630, in init_model", True)


def test_place_of_an_exception_is_readable_in_80_columns() -> None:
    deep = f"/home/user/.cache/tests/environments/rehearsal-3.11{VENV}/torch/distributed/distributed_c10d.py"
    answer = answered(NO_NCCL.replace(f"{VENV}/torch/distributed/distributed_c10d.py", deep))
    place = next(text.plain for text in render.text_lines(answer, 80) if 'File "' in text.plain)
    assert len(place) <= 80
    assert 'distributed_c10d.py", line 2181, in _new_process_group_helper' in place
    assert any(deep in text.plain for text in render.text_lines(answer, None))


def test_guide_lists_the_headlines() -> None:
    guide = (ROOT / "docs/guides/failed-job.md").read_text("utf-8")
    table = guide.partition("| headline |")[2].partition("\n\n")[0]
    words = re.findall(r"^\| `([A-Z ]+)` \|", table, re.MULTILINE)
    assert sorted(words) == sorted([OK, FIRST_CAUSE, NOT_DETERMINED, YOUR_CODE, YOUR_CONFIGURATION])
    assert len(table.strip().splitlines()) == len(words) + 2


def test_lines_of_a_log_are_wrapped_or_keep_their_ends() -> None:
    long = NO_NCCL.replace("built in\n", f"built in {'on and on ' * 30}the value is 7\n")
    code, _ = cause_of(answered(long))
    remedy = f"replace it {'on and on ' * 12}in /x.py:7"
    confirmed = {code: (Confirmation("VLLM101", "it is wrong", "/x.py:7", remedy),)}
    lines = [line.plain for line in render.text_lines(answered(long, confirmed=confirmed), 80)]
    assert max(map(len, lines)) <= 80
    assert any(line.endswith("in /x.py:7") for line in lines)
    assert any(line.endswith("value is 7") for line in lines)
    code_line = f"    raise ValueError({'on and on ' * 12}, key=7)"
    fitting = render._fitting(code_line, 80)
    assert len(fitting) == 76
    assert (fitting[:16], fitting[-7:]) == (code_line[:16], " key=7)")
