"""Judges many nodes and merges the results into one report, in which equal results appear once.

Each response is judged on arrival and then dropped, so memory use does not grow with the number of nodes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from verl_doctor.toolkit.cluster.fleet_compare import Comparison
from verl_doctor.toolkit.cluster.fleet_facts import FactStore, NodeFacts
from verl_doctor.toolkit.cluster.fleet_fold import folded, without_repeated
from verl_doctor.toolkit.cluster.fleet_judge import NodeJudge, common, worst
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.ray.fleet import Fleet
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.examination import Watch
from verl_doctor.toolkit.engine.session import Session, describe
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.result import CheckResult, NodeGroup, Nodes, Report, status_of
from verl_doctor.toolkit.rule import Evidence, Finding
from verl_doctor.toolkit.system.node_names import expand, plain
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import counted, listed

_ENVIRONMENT = (Interpreter, VerlTrees, VllmTree)


class Gathering:
    """The responses of many nodes as they arrive, in any order. Interim results are available at any time."""

    def __init__(self, session: Session) -> None:
        given = {
            Config: session.config,
            Marker: Marker(session.config.marker),
            PluginProblems: session.registry.problems,
        }
        self._store = FactStore(session.registry.collectors, given)
        self._judge = NodeJudge(session.registry.checks, session.selection, date.today())  # noqa: DTZ011
        self._comparison = Comparison()
        self._names: list[str] = []
        self._addresses: list[str] = []
        self._responded: set[str] = set()
        self._missing: dict[str, str] = {}
        self._environments: Counter[tuple[int, ...]] = Counter()
        self._one_with: dict[tuple[int, ...], NodeFacts] = {}

    def add(self, response: NodeResponse) -> None:
        """Judge one node. If a node is queried again, its first response counts."""
        node = plain(response.node)
        if node in self._responded:
            return
        if response.missing or not response.facts:
            self._missing[node] = response.missing or "it responded without any fact"
            return
        self._missing.pop(node, None)
        self._responded.add(node)
        number = len(self._names)
        self._names.append(node)
        self._addresses.append(response.address)
        facts = self._store.facts_of(response)
        environment = tuple(facts.numbers.get(fact, 0) for fact in _ENVIRONMENT)
        self._environments[environment] += 1
        self._one_with.setdefault(environment, facts)
        self._judge.judge(facts)
        self._comparison.add(number, facts)

    def so_far(self) -> str:
        """Return one line on the progress."""
        parts = [counted(len(self._names), "node") + " answered"]
        parts += [f"{len(self._missing):,} did not"] if self._missing else []
        parts += [f"{code} fails on {nodes:,}" for code, nodes in self._judge.failing.most_common(3)]
        return ", ".join(parts)

    def fleet(self) -> Fleet:
        """Return the values in which the nodes that responded differ."""
        return self._comparison.fleet(self._names)

    def nodes(self, fleet: Fleet) -> Nodes:
        """Return how many nodes responded and agree, and which did not respond."""
        lost = tuple(self._missing)
        by_reason: dict[Finding, list[int]] = {}
        for number, reason in enumerate(self._missing.values()):
            by_reason.setdefault(Finding(reason, Evidence("")), []).append(number)
        missing = folded(by_reason, lost, ("",) * len(lost))
        return Nodes(
            answered=len(self._names),
            agree=fleet.nodes - fleet.odd,
            kinds=tuple(NodeGroup(kind.gpus, kind.count, kind.nodes) for kind in fleet.kinds),
            missing=tuple(
                NodeGroup(finding.message, len(expand(finding.node or "")), finding.node or "")
                for finding in missing
            ),
        )

    def usual(self) -> NodeFacts:
        """Return the facts of a node with the most common environment."""
        most = max(self._environments.values(), default=0)
        usual = (self._one_with[key] for key, count in self._environments.items() if count == most)
        return min(
            usual,
            key=lambda facts: repr([facts.get(fact) for fact in _ENVIRONMENT]),
            default=NodeFacts({}, {}),
        )

    def results(self) -> tuple[CheckResult, ...]:
        """Return the results of the rules about a single node."""
        return self._judge.results(self._names, self._addresses)


def judge(
    responses: Iterable[NodeResponse], session: Session, collection: Collection, watch: Watch = lambda _: None
) -> Report:
    """Judge the nodes that respond, and this machine, on which the job's script, trees and cluster are.

    `collection` holds this machine's facts, collected in `session`; `watch` receives interim results.
    Findings without a node are about this machine.
    """
    session = session.at_cost("cluster")
    gathering = _gathered(responses, session, watch)
    fleet = gathering.fleet()
    collection.give(Fleet, fleet)
    here = session.check(collection, watch)
    ours = {result.code: result for result in here.results}
    theirs = {result.code: result for result in gathering.results()}
    cluster = {check.code for check in session.registry.checks if check.cost == "cluster"}
    results = tuple(
        result if code in cluster or code not in theirs else _merged(result, theirs[code])
        for code, result in ours.items()
    )
    return replace(here, results=results, nodes=gathering.nodes(fleet))


def judge_nodes(
    responses: Iterable[NodeResponse], session: Session, chosen_by: str, watch: Watch = lambda _: None
) -> Report:
    """Judge only the nodes that respond, without this machine.

    `chosen_by` describes their selection in the report.
    """
    return report_on(_gathered(responses, session, watch), session, chosen_by)


def report_on(gathering: Gathering, session: Session, chosen_by: str) -> Report:
    """Return the report on the judged nodes alone: rules about single nodes, and those that compare nodes."""
    fleet = gathering.fleet()
    elsewhere = Unknown("the nodes were examined, not this machine")
    given = {part.fact: elsewhere for part in session.registry.collectors}
    about_all = tuple(check for check in session.registry.checks if check.cost == "cluster")
    comparing = replace(session.at_cost("cluster"), registry=replace(session.registry, checks=about_all))
    here = comparing.check(Collection((), {**given, Fleet: fleet}))
    target = {"python": "", "chosen_by": chosen_by, "passed_over": "", "arguments": []}
    return replace(
        here,
        target={**describe(session.target, gathering.usual(), None), **target},
        results=tuple(sorted((*here.results, *gathering.results()), key=lambda result: result.code)),
        nodes=gathering.nodes(fleet),
    )


def judge_files(named: Sequence[Path], session: Session, watch: Watch = lambda _: None) -> Report:
    """Judge facts files, one per node; in a folder all `*.json` in it.

    A file that is named twice is one node; an unusable file counts as that node's missing response. Raises
    UsageError if a file does not exist.
    """
    several = (sorted(path.glob("*.json")) if os.path.isdir(path) else [path] for path in named)
    files = list({os.path.abspath(file): file for some in several for file in some}.values())
    if not files:
        raise UsageError(
            f"{named[0]} contains no facts files; create them with verl-doctor check --save-facts "
            f"{named[0]}/NODE.json"
        )
    report = judge_nodes(responses_in(files), session, counted(len(files), "facts file"), watch)
    arguments = [word for path in named for word in ("--facts", str(path))]
    return replace(report, target={**report.target, "arguments": arguments})


def responses_in(files: Sequence[Path]) -> Iterator[NodeResponse]:
    """Yield facts files as the responses of the nodes they are named after; by path if two share a name."""
    named = Counter(file.stem for file in files)
    for file in files:
        node = file.stem if named[file.stem] == 1 else str(file.with_suffix(""))
        try:
            yield NodeResponse(node, facts=factsfile.texts_in(file))
        except UsageError as error:
            if not os.path.exists(file):
                raise
            yield NodeResponse(node, missing=str(error).replace(str(file), "its facts file"))


def _gathered(responses: Iterable[NodeResponse], session: Session, watch: Watch) -> Gathering:
    gathering = Gathering(session)
    for response in responses:
        gathering.add(response)
        watch(gathering.so_far())
    return gathering


def _merged(ours: CheckResult, theirs: CheckResult) -> CheckResult:
    """Merge one rule's results here and on the nodes.

    Findings that nodes also report are not repeated for this machine.
    """
    findings = (*without_repeated(ours.findings, theirs.findings), *theirs.findings)
    status = worst((ours.status, theirs.status))
    ended_so = [result for result in (ours, theirs) if result.status == status]
    reasons = [result.reason for result in ended_so if result.reason]
    return replace(
        theirs,
        status=status_of(findings) if status in {"fail", "warn", "pass"} else status,
        reason=listed(dict.fromkeys(reasons), 2),
        seconds=ours.seconds + theirs.seconds,
        findings=findings,
        paths=tuple(dict.fromkeys((*ours.paths, *theirs.paths))),
        trace=ours.trace or theirs.trace,
        deliberate=ours.deliberate and theirs.deliberate,
        reason_kind=common(result.reason_kind for result in ended_so),
        follows_from=common(result.follows_from for result in ended_so),
        unjudged=tuple(dict.fromkeys((*ours.unjudged, *theirs.unjudged))),
    )
