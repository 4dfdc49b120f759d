"""Code decides by fields: with other words in every sentence, each plan, status, verdict and exit code is the same."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import pytest
from support import reworded
from support.machine_facts import known, machine

from verl_doctor.toolkit.change import Change, RunCommand, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Ignore
from verl_doctor.toolkit.engine.judge import DEEP, Selection, judge, not_selected
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.render import text
from verl_doctor.toolkit.repair.plan import Plan, plan_of
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Check, Example, Finding
from verl_doctor.toolkit.sources.python.source import Unreadable

TODAY = date(2026, 1, 1)
ALL_COSTS = Selection(costs=frozenset({"instant", "live", "gpu", "cluster", "slow"}))
FAMILIES = sorted({check.family for check in known().checks})


@dataclass(frozen=True)
class Written(SourceFiles):
    """Launch files of an example, from its facts instead of the disk."""

    lines: Mapping[str, Mapping[int, list[str]]] = field(default_factory=dict)

    def read(self, path: str) -> bytes | Unreadable:
        if path not in self.lines:
            return super().read(path)
        told = self.lines[path]
        return "".join(f"{' '.join(told.get(row, ['#']))}\n" for row in range(1, max(told) + 1)).encode()


def examples_of(family: str) -> Iterator[tuple[Check, Example]]:
    for check in known().checks:
        if check.family == family:
            yield from ((check, example) for example in check.examples)


def given(example: Example) -> dict[type, Any]:
    """Facts of an example, and those needed by its fix."""
    facts = dict(fact if isinstance(fact, tuple) else (type(fact), fact) for fact in example.facts)
    lines: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(functools.partial(defaultdict, list))
    launch, configuration = facts.get(Launch), facts.get(Configuration)
    for setting in launch.settings if isinstance(launch, Launch) else ():
        if setting.line:
            lines[setting.path][setting.line].append(f"export {setting.name}={setting.value}")
    for word in configuration.overrides if isinstance(configuration, Configuration) else ():
        if word.line:
            lines[word.path][word.line].append(f"{word.text} \\")
    scripts = Launch(tuple((path, "shell script") for path in lines), command=_command(configuration))
    return {Marker: Marker(), SourceFiles: Written(lines=lines), Launch: scripts, **facts}


def _command(configuration: Any) -> Command | None:
    """The command with the words that an example's configuration requires."""
    asked = configuration.overrides if isinstance(configuration, Configuration) else ()
    words = tuple(Word(word.text, word.path, word.line, word.text) for word in asked)
    return Command("verl.trainer.main_ppo", words, words[0].path, words[0].line) if words else None


def judged(check: Check, facts: Mapping[type, Any]) -> CheckResult:
    (result,) = judge([check], Collection([], facts), ALL_COSTS, today=TODAY)
    return result


def decisive(result: CheckResult) -> CheckResult:
    """A result without its sentences."""
    bare = tuple(replace(finding, message="", remedy="", evidence=None) for finding in result.findings)
    return replace(result, reason="", trace="", findings=bare, unjudged=(None,) * len(result.unjudged))


def planned(check: Check, one: Finding, facts: Mapping[type, Any]) -> Plan | None:
    """The plan for a finding without the reasons that it shows."""
    fix = known().fix(one.fix)
    if fix is None:
        return None
    plan = plan_of(fix, check.code, one, Collection([], facts))
    return replace(plan, changes=tuple(map(without_reason, plan.changes)))


def without_reason(change: Change) -> Change:
    return replace(change, why="") if isinstance(change, (SetVariable, RunCommand)) else change


@pytest.mark.parametrize("family", FAMILIES)
def test_plan_does_not_depend_on_the_wording_of_the_finding(family: str) -> None:
    for check, example in examples_of(family):
        facts = given(example)
        findings = judged(check, facts).findings
        plans = [planned(check, finding, facts) for finding in findings]
        assert plans == [planned(check, reworded.finding(finding), facts) for finding in findings], (
            check.code,
            example.name,
        )
        assert not [plan.refusal for plan in plans if plan and plan.refusal.startswith("the fix broke")]


@pytest.mark.slow
def test_compared_plans_are_not_all_refusals() -> None:
    plans = [
        planned(check, finding, facts)
        for check in known().checks
        for example in check.examples
        for facts in (given(example),)
        for finding in judged(check, facts).findings
    ]
    assert len({plan.fix.id for plan in plans if plan and plan.changes}) >= 30


@pytest.mark.parametrize("family", FAMILIES)
def test_judgement_does_not_depend_on_the_wording_of_facts(family: str) -> None:
    for check, example in examples_of(family):
        facts = given(example)
        other = {kind: reworded.fact(value) for kind, value in facts.items() if kind is not SourceFiles}
        first, second = judged(check, facts), judged(reworded.check(check), other)
        assert decisive(first) == decisive(second), (check.code, example.name)


MACHINES = ("closed-container", "h200-verl-0.9.1-vllm-0.24.0", "h200-with-job", "laptop")


def reported(name: str, selection: Selection, *, in_other_words: bool) -> Report:
    """Findings of all rules on a recorded machine."""
    facts, checks = machine(name), list(known().checks)
    if in_other_words:
        facts = {kind: reworded.fact(value) for kind, value in facts.items()}
        checks = list(map(reworded.check, checks))
    collection = Collection([], facts)
    results = judge(checks, collection, selection, today=TODAY)
    if in_other_words:
        results = tuple(replace(result, reason=reworded.other(result.reason)) for result in results)
    return Report(
        {"python": "", "python_version": "", "verl": None, "vllm": None, "arguments": [], "chosen_by": ""},
        results,
        not_selected=not_selected(checks, collection, results),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_verdict_does_not_depend_on_wording(name: str) -> None:
    until = {"HOST": Ignore("not ours", date(2026, 6, 1)), "ENV": Ignore("done by now", date(2025, 6, 1))}
    for selection in (Selection(costs=frozenset({"instant"}) | DEEP), Selection(ignores=until)):
        first, second = (reported(name, selection, in_other_words=other) for other in (False, True))
        assert list(map(decisive, first.results)) == list(map(decisive, second.results))
        assert (first.verdict, first.paths, first.not_selected) == (
            second.verdict,
            second.paths,
            second.not_selected,
        )
        for strict in (False, True):
            assert first.exit_code(strict=strict) == second.exit_code(strict=strict)
        assert leads(first) == leads(second)


def leads(report: Report) -> list[str]:
    """How the lines of the rules begin in the text: with a code, and how the rule ended."""
    codes = {result.code for result in report.results}
    words = (line.plain.split() for line in text.render(report, verbose=False, width=100))
    return [" ".join(line[:2]) for line in words if line and line[0] in codes]
