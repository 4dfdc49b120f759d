"""The steps of the migration checklist, judged by rules, by the old cluster's snapshot, and by trials."""

from __future__ import annotations

import importlib.resources
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces
from verl_doctor.toolkit.commands.checklist.checklist import (
    NAMED,
    Invocation,
    Judgement,
    State,
    Step,
    step,
)
from verl_doctor.toolkit.commands.checklist.patches import judge_patches
from verl_doctor.toolkit.commands.checklist.tree import judge_tree
from verl_doctor.toolkit.commands.checklist.trials import judge_debug_run, judge_quick_test, steps_logged
from verl_doctor.toolkit.comparison.cause import Key, key_of
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.judge import Comparison, compared
from verl_doctor.toolkit.comparison.meaning import ByHand, environment_arguments
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.render.result_words import headline, next_steps
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import PHASES, Finding
from verl_doctor.toolkit.snapshot.snapshot import Snapshot, taken
from verl_doctor.toolkit.system import toml
from verl_doctor.toolkit.text import appended, counted, in_bytes, listed

_NAMED = 4  # findings of one rule
_FIRST_STEP = PHASES.index("first update")  # when verl logs its first step


@dataclass(frozen=True)
class Look:
    """What steps are judged by: this run and its facts, the old cluster's snapshot, the DEBUG run's log.

    If other nodes were queried, `nodes` has their results, `new` is a snapshot of this cluster with these
    nodes, and `node_options` are the options that name them.
    """

    run: Session
    facts: Collection
    report: Report
    nodes: Report | None = None
    new: Snapshot | None = None
    old: Snapshot | None = None
    log: Path | None = None
    node_options: tuple[str, ...] = ()

    @cached_property
    def comparison(self) -> Comparison | None:
        """This machine or cluster compared with the old one; None without an old one."""
        if self.old is None:
            return None
        return compared(self.old, self.new or taken(self.run, self.facts), self.run)

    @cached_property
    def logged(self) -> str:
        """Evidence that a training step was logged with the present environment, "" if there is none."""
        return steps_logged(self.run, self.facts, self.log)

    @property
    def invocation(self) -> Invocation:
        """This run, for commands that repeat it."""
        old = "" if self.old is None else self.old.path
        return Invocation(self.run.target, old, self.node_options, str(self.log or ""))

    @property
    def arguments(self) -> str:
        """The options with which another command examines the same target, with a space before them."""
        return appended(self.run.target.arguments)

    @property
    def tree_arguments(self) -> str:
        """The same for a command about the environment alone, not about a job."""
        return appended(environment_arguments(self.run.target))


def steps(look: Look) -> tuple[Step, ...]:
    """Judge every step."""
    return tuple(_step(entry, look) for entry in _entries())


@cache
def _entries() -> list[dict[str, Any]]:
    data = importlib.resources.files("verl_doctor.checks") / "data/migration_steps.toml"
    entries: list[dict[str, Any]] = toml.loads(data.read_text("utf-8"))["step"]
    return entries


def _codes() -> frozenset[str]:
    """Return the rules that steps are judged by."""
    return frozenset(
        code for entry in _entries() for key in ("judged_by", "on_nodes") for code in entry.get(key, ())
    )


def _step(entry: Mapping[str, Any], look: Look) -> Step:
    """Combine the step's own judgements and then the rules.

    If all rules that judge it do not apply, it stays unknown.
    """
    key: str = entry["key"]
    statements = _JUDGES[key](look) if key in _JUDGES else []
    before = look.comparison.kept if look.comparison and entry.get("as_before") else frozenset()
    do = f"{entry.get('do', '')}{look.arguments}"
    rules = [_by_rules(entry.get("judged_by", ()), look.report, do, before, look.logged)]
    if look.nodes is not None and "on_nodes" in entry:
        do = f"{entry.get('do', '')}{appended(look.node_options)}{look.arguments}"
        rules.append(_by_rules(entry["on_nodes"], look.nodes, do, before, look.logged))
        rules += _missing_nodes(look.nodes)
    statements += [statement for statement in rules if statement.state is not None]
    return step(key, entry["title"], statements or [replace(rules[0], state="unknown")])


def _missing_nodes(report: Report) -> list[Judgement]:
    """Return the nodes that did not respond and are therefore unknown."""
    lost = report.nodes.missing if report.nodes else ()
    silent = tuple(
        f"no response from {group.nodes or counted(group.count, 'node')}: {group.what}" for group in lost
    )
    return [Judgement("unknown", silent)] if silent else []


def _by_rules(
    codes: Sequence[str], report: Report, do: str, before: Container[Key], logged: str = ""
) -> Judgement:
    """Judge by findings that are new since `before`.

    Rules that do not apply, or that the user ignores with a reason, do not count.
    """
    results = [result for result in report.results if result.code in codes]
    reported = [
        (result.code, finding)
        for result in results
        for finding in result.findings
        if finding.severity != "info"
    ]
    new = [(code, finding) for code, finding in reported if key_of(code, finding) not in before]
    as_before = tuple(_as_before(pair for pair in reported if pair not in new))
    stops = any(_stops(code, finding, before, logged) for code, finding in reported)
    if new or stops:
        state: State = "failed" if stops else "open"
        return Judgement(state, (*_sentences(new), *as_before), do)
    lost = [result for result in results if result.status in ("error", "skipped") and not result.deliberate]
    if lost:
        reasons = tuple(dict.fromkeys(f"{result.code} could not check: {result.reason}" for result in lost))
        return Judgement("unknown", (*reasons, *as_before), do)
    passed = [result.code for result in results if result.status == "pass"]
    if passed or as_before:
        return Judgement("done", (*([f"{listed(passed, 8)} passed"] if passed else []), *as_before))
    return Judgement(
        None,
        tuple(dict.fromkeys(result.reason for result in results if result.reason and not result.deliberate)),
    )


def _stops(code: str, finding: Finding, before: Container[Key], logged: str) -> bool:
    """Return whether a finding stops the job here.

    One that the old cluster had too does, unless a step was logged here that comes after it.
    """
    passed = finding.phase is None or PHASES.index(finding.phase) <= _FIRST_STEP
    return finding.severity == "error" and not (logged and passed and key_of(code, finding) in before)


def _as_before(reported: Iterable[tuple[str, Finding]]) -> Iterator[str]:
    return (f"same as on the old cluster: {code} {finding.message}" for code, finding in reported)


def _sentences(reported: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    for code, some in groupby(reported, key=lambda pair: pair[0]):
        findings = [finding for _, finding in some]
        for finding in findings[:_NAMED]:
            node = f" ({finding.node})" if finding.node else ""
            at = finding.location
            place = f" ({PurePath(at.path).name}:{at.line})" if at is not None and at.line else ""
            yield f"{code} {finding.message}{place}{node}"
        if len(findings) > _NAMED:
            yield f"{code}: {counted(len(findings) - _NAMED, 'more finding')}"


def _judge_sites(look: Look) -> list[Judgement]:
    places = look.facts.get(SitePlaces)
    if isinstance(places, Unknown):
        return [_judge_sites_unset(places.reason, look.run.machine.cwd)]
    place_lines = tuple(_place_line(place) for place in places.places if place.state == "there")
    nodes = None if look.nodes is None else look.nodes.nodes
    where = (
        f"examined on {counted(nodes.answered, 'node')}"
        if nodes
        else "examined on this machine; --cluster examines every node"
    )
    return [Judgement(None, (*place_lines, where))]


def _judge_sites_unset(reason: str, folder: Path) -> Judgement:
    """Judge a configuration without paths: where they may come from, and the command that takes them over."""
    found = min((path.name for path in folder.glob("*path*.py")), default="")
    where = (
        f'the lines of {found}, such as MODEL = "/models/qwen", can be taken over'
        if found
        else 'write them there, or into a Python file of lines such as MODEL = "/models/qwen"'
    )
    do = shlex.join(("verl-doctor", "sites", "import", found or "FILE.py", "--apply"))
    what = "writes the paths into the configuration; without --apply it shows the change"
    return Judgement("open", (f"{reason}: {where}",), f"{do}  # {what}")


def _place_line(place: SitePlace) -> str:
    content = place.content
    mount = f" on {content.mount}" if content and content.mount else ""
    shared = "shared between nodes" if place.shared else "only on this node"
    free = f", {in_bytes(place.free)} free" if place.free is not None else ""
    return f"{place.name} = {place.path}: exists{mount}, {shared}{free}"


def _judge_job(look: Look) -> list[Judgement]:
    """Judge the errors that no other step is judged by, those of the launch script above all."""
    others, before = _codes(), look.comparison.kept if look.comparison else frozenset()
    return [
        _rest_judged(report, others, before, look)
        for report in (look.report, look.nodes)
        if report is not None
    ]


def _rest_judged(report: Report, others: Container[str], before: Container[Key], look: Look) -> Judgement:
    """Judge one report by the rules that are not among the `others`.

    Where they find nothing, but the job fails for another reason or some of them could not check, it is
    unknown whether anything else stops the job.
    """
    rest = replace(report, results=tuple(result for result in report.results if result.code not in others))
    reported = [(result.code, finding) for result, finding in rest.findings() if finding.severity == "error"]
    if reported:
        new = [(code, finding) for code, finding in reported if key_of(code, finding) not in before]
        as_before = _as_before(pair for pair in reported if pair not in new)
        if not any(_stops(code, finding, before, look.logged) for code, finding in reported):
            return Judgement("done", (look.logged, *as_before))
        command, why = next_steps(rest)[0]
        return Judgement("failed", (*_sentences(new), *as_before), command or ByHand(why))
    passed = rest.summary["pass"] + rest.summary["warn"]
    none = f"no error found by {counted(passed, 'more rule')}"
    lost = [result for result in rest.results if result.status == "skipped" and not result.deliberate]
    skipped = f"{counted(len(lost), 'rule')} could not check"
    if report.verdict == "failures":
        first = " and ".join(dict.fromkeys(code for path in report.paths for code in path.codes[:1]))
        after = f": {skipped}" if lost else ""
        sentence = f"{none}, but {first} stops the job before others would show{after}"
        command, why = next_steps(report)[0]
        return Judgement("unknown", (sentence,), command or ByHand(why))
    if rest.verdict == "could_not_check":
        return Judgement("unknown", (headline(rest)[1],), f"verl-doctor check{look.arguments}")
    if lost:
        reasons = listed(dict.fromkeys(result.reason for result in lost), _NAMED)
        return Judgement(
            "unknown", (f"{none}, but {skipped}: {reasons}",), f"verl-doctor check -v{look.arguments}"
        )
    return Judgement("done", (none,))


_OF_OTHER_STEPS = frozenset({"patch", "file"})


def _judge_environment(look: Look) -> list[Judgement]:
    """Judge the differences from the old cluster.

    A run that logged a step despite a difference settles it. Findings that other steps are judged by are
    not repeated.
    """
    found, judged, run = look.comparison, _codes(), look.invocation
    if found is None:
        return [Judgement("unknown", ("only the old cluster can show the differences",), run.with_snapshot())]
    breaks, matters = (
        [difference for difference in found.of(weight) if not _is_judged_elsewhere(difference, judged)]
        for weight in ("breaks", "matters")
    )
    noise, nodes = len(found.of("noise")), len(found.new.nodes)
    rest = [f"{counted(noise, 'difference')} without consequence"] if noise else []
    rest += [f"{counted(nodes, 'node')} compared"] if nodes else []
    do = shlex.join(("verl-doctor", "compare", found.old.path, *run.nodes, *run.target.arguments))
    if breaks:
        return [Judgement("failed", (*_differing(breaks), *_differing(matters), *rest), breaks[0].next or do)]
    lost = tuple(f"not compared: {sentence}" for sentence in found.lost)
    if lost:
        return [Judgement("unknown", (*lost, *_differing(matters), *rest), do)]
    if not matters:
        return [Judgement("done", ("no difference matters", *rest))]
    sentences = (*_differing(matters), *rest)
    if look.logged:
        return [
            Judgement(
                "done",
                (f"{look.logged}, with {counted(len(matters), 'difference')} that might matter", *sentences),
            )
        ]
    settled = "a DEBUG run that logs a step shows that they are harmless"
    return [Judgement("open", (*sentences, settled), matters[0].next or do)]


def _is_judged_elsewhere(difference: Difference, judged: Container[str]) -> bool:
    """Return whether another step judges it: the patches, the paths, the tree."""
    return difference.kind in _OF_OTHER_STEPS or (
        bool(difference.codes) and all(code in judged for code in difference.codes)
    )


def _differing(found: Sequence[Difference]) -> Iterator[str]:
    for difference in found[:NAMED]:
        name = (
            difference.subject
            if difference.kind in ("", difference.subject)
            else f"{difference.kind} {difference.subject}"
        )
        nodes = f" on {difference.nodes}" if difference.nodes else ""
        why = f" ({', '.join(difference.codes)}: {difference.why})" if difference.codes else ""
        yield (
            difference.summary
            or f"{name}: {difference.old or 'none'} -> {difference.new or 'none'}{nodes}{why}"
        )
    if len(found) > NAMED:
        yield f"and {counted(len(found) - NAMED, 'more difference')}"


_JUDGES: Mapping[str, Callable[[Look], list[Judgement]]] = {
    "tree": lambda look: judge_tree(look.old, look.run, look.facts, look.log, look.invocation),
    "patches": lambda look: judge_patches(
        look.old, look.run, look.facts, look.tree_arguments, look.invocation
    ),
    "sites": _judge_sites,
    "environment": _judge_environment,
    "job": _judge_job,
    "quick": lambda look: judge_quick_test(look.run, look.facts, look.invocation),
    "debug": lambda look: judge_debug_run(look.run, look.facts, look.log, look.arguments, look.invocation),
}
