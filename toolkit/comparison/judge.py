"""Compare and judge two snapshots: what differs, which difference breaks the job, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from packaging.utils import canonicalize_name

from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines
from verl_doctor.toolkit.comparison.cause import Key, cause_of, key_of, missing_packages
from verl_doctor.toolkit.comparison.comparison import Difference, Weight, between, in_order, not_compared
from verl_doctor.toolkit.comparison.meaning import ByHand, complete
from verl_doctor.toolkit.comparison.sides import HERE, Side
from verl_doctor.toolkit.engine import factsfile
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.factsfile import NotHeld
from verl_doctor.toolkit.engine.judge import DEEP, facts_of
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.facts import Broken, Unknown
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.snapshot.examination import WholeSnapshot
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.system.node_names import expand
from verl_doctor.toolkit.text import listed

Verdict = Literal["equal", "matters", "breaks", "could_not_compare"]

_CODES: Mapping[Verdict, ExitCode] = {
    "equal": ExitCode.OK,
    "matters": ExitCode.FAILED,
    "breaks": ExitCode.FAILED,
    "could_not_compare": ExitCode.COULD_NOT_CHECK,
}
_JUDGED = frozenset({"pass", "warn", "fail"})
_CONCLUSIVE = _JUDGED | {"not_applicable"}
_VERDICT_STATUSES = frozenset({"error", "warning"})


@dataclass(frozen=True)
class Comparison:
    """The differences, the most important first.

    `gone` are findings of the old side only, `kept` those of both.

    `not_compared` are sentences on what only one side reports; `lost` is why nothing, or not everything,
    could be read.
    """

    old: Snapshot
    new: Snapshot
    differences: tuple[Difference, ...]
    gone: tuple[tuple[str, str], ...] = ()
    not_compared: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    kept: frozenset[Key] = frozenset()

    def of(self, weight: str) -> tuple[Difference, ...]:
        """Return the differences of one weight."""
        return tuple(difference for difference in self.differences if difference.weight == weight)

    @property
    def verdict(self) -> Verdict:
        """The verdict. Lost data outweighs that nothing else differs."""
        for weight in ("breaks", "matters"):
            if self.of(weight):
                return "breaks" if weight == "breaks" else "matters"
        return "could_not_compare" if self.lost else "equal"

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 if no difference matters, 1 if one does, 3 if something could not be read."""
        return _CODES[self.verdict]


def compared(old: Snapshot, new: Snapshot, run: Session) -> Comparison:
    """Compare, judge both sides by all rules whose facts they have, and join findings to differences."""
    sides = Side(old, run.registry.collectors), Side(new, run.registry.collectors)
    found = between(*sides)
    # Rules of --deep too: their facts were collected for the snapshot, or are unknown.
    costly = run.at_cost(*DEEP)
    before, after = (examine(Request(costly, WholeSnapshot(snapshot))).report for snapshot in (old, new))
    reported = {key_of(result.code, finding) for result, finding in before.findings()}
    still = {key_of(result.code, finding) for result, finding in after.findings()}
    news = [
        (result, finding)
        for result, finding in after.findings()
        if key_of(result.code, finding) not in reported
    ]
    joined = _joined(
        sorted(news, key=lambda entry: entry[1].severity != "error"),
        found,
        sides,
        before,
        run,
    )
    judged_now = {result.code: result.status for result in after.results}
    gone = {
        key_of(result.code, finding): (result.code, finding.message)
        for result, finding in before.findings()
        if finding.severity in _VERDICT_STATUSES
        and key_of(result.code, finding) not in still
        and judged_now.get(result.code) in _CONCLUSIVE
        and not ((check := run.registry.check(result.code)) and _lacks(check, old, new))
    }
    return Comparison(
        old,
        new,
        tuple(
            replace(difference, next=complete(difference.next, run.target)) for difference in in_order(joined)
        ),
        tuple(gone.values()),
        (*old.unread, *new.unread, *not_compared(old, new)),
        tuple(_lost(old, new)),
        frozenset(reported & still),
    )


def _joined(
    news: Iterable[tuple[CheckResult, Finding]],
    found: list[Difference],
    sides: tuple[Side, Side],
    before: Report,
    run: Session,
) -> list[Difference]:
    """Return the differences, each with its findings, and findings without a known cause as separate ones."""
    was = {result.code: result for result in before.results}
    places = {id(cause): number for number, cause in enumerate(found)}
    joined, alone = list(found), []
    selection = run.at_cost(*DEEP).selection
    for result, finding in news:
        check = run.registry.check(result.code)
        nodes = expand(finding.node) if finding.node else [HERE]
        node = nodes[0]
        mine = sides[1].facts(node)
        theirs = _counterpart(sides[0], node, sides[1].kinds.get(node, ""))
        if check and _lacks(check, mine, theirs):
            continue
        here = [cause for cause in found if _is_on(cause, nodes)]
        causes = missing_packages(finding, here)
        if len(causes) > 1 and finding.fix:  # it installs all of them together
            for missing in causes:
                joined[places[id(missing)]] = replace(
                    joined[places[id(missing)]], next=_next(result, finding)
                )
        if not causes and check and (cause := cause_of(finding, check, here, theirs, mine, selection)):
            causes = [cause]
        for cause in causes:
            joined[places[id(cause)]] = _breaking(joined[places[id(cause)]], result, finding)
        if not causes:
            alone.append(_alone(result, finding, was.get(result.code)))
    return [*(_without_engine(difference, *sides) for difference in joined), *alone]


def _without_engine(difference: Difference, old: Side, new: Side) -> Difference:
    """Mark a missing package as breaking if the settings choose it, even where no rule came to report it."""
    before, after = (side.snapshot.get(ChosenEngines) for side in (old, new))
    if difference.kind != "package" or difference.new or difference.weight == "breaks":
        return difference
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return difference
    installed = {engine.key for engine in before.engines if engine.installed}
    for engine in after.engines:
        name = canonicalize_name(engine.module.partition(".")[0])
        if name == difference.subject and not engine.installed and engine.key in installed:
            why = f"{engine.key} is {engine.name}, but {engine.title} is not installed"
            return replace(difference, weight="breaks", why=why)
    return difference


def _lacks(check: Check, mine: Facts, theirs: Facts) -> bool:
    """Return whether a rule lacked facts: one that only the old file holds, or all that it requires."""
    facts = list(facts_of([check]))
    lacking = [fact for fact in facts if isinstance(mine.get(fact), NotHeld)]
    return lacking == facts or any(not isinstance(theirs.get(fact), NotHeld) for fact in lacking)


def _is_on(difference: Difference, nodes: list[str]) -> bool:
    return not difference.nodes or nodes == [HERE] or not set(expand(difference.nodes)).isdisjoint(nodes)


def _counterpart(old: Side, node: str, kind: str) -> Facts:
    """Return the facts that those of a new node are compared with."""
    if node == HERE or node in old.nodes or not old.nodes:
        return old.facts(node)
    alike = [name for name in old.nodes if old.kinds[name] == kind]
    return old.facts((alike or list(old.nodes))[0])


def _breaking(difference: Difference, result: CheckResult, finding: Finding) -> Difference:
    """Mark a difference as breaking. The first finding supplies the text."""
    first = not difference.codes
    return replace(
        difference,
        weight="breaks" if difference.weight == "breaks" else _weight(finding),
        codes=tuple(dict.fromkeys((*difference.codes, result.code))),
        why=finding.message if first else difference.why,
        next=difference.next or _next(result, finding),
    )


def _alone(result: CheckResult, finding: Finding, before: CheckResult | None) -> Difference:
    """Return a finding with no single cause.

    If the old side was not judged, it is unknown whether it is new.
    """
    status = "skipped" if before is None else before.status
    reason = f": {before.reason}" if before and before.reason else ""
    return Difference(
        "finding",
        result.code,
        "passed" if status in _JUDGED else f"{status.replace('_', ' ')}{reason}",
        result.title,
        finding.node or "",
        _weight(finding)
        if status not in {"skipped", "error"}
        else "noise"
        if finding.severity == "info"
        else "matters",
        finding.message,
        _next(result, finding),
        (result.code,),
    )


def _weight(finding: Finding) -> Weight:
    """Return the weight of a finding: only an error stops the job."""
    return "breaks" if finding.severity == "error" else "matters"


def _next(result: CheckResult, finding: Finding) -> str:
    if finding.fix:
        return f"verl-doctor fix --select {result.code}"
    return ByHand(finding.remedy) if finding.remedy else f"verl-doctor explain {result.code}"


def _lost(old: Snapshot, new: Snapshot) -> Iterable[str]:
    for side, name in ((old, "old"), (new, "new")):
        if missing := side.nodes.missing:
            which = listed((f"{node} ({why})" for node, why in missing.items()), 2)
            yield f"{len(missing):,} of the {name} nodes did not respond: {which}"
        if side.schema != factsfile.SCHEMA_VERSION:
            yield (
                f"{side.path} has schema version {side.schema}, this verl-doctor reads "
                f"{factsfile.SCHEMA_VERSION}: what is called alike may mean something else"
            )
        broken = [fact.__name__ for fact, value in side.facts.items() if isinstance(value, Broken)]
        if broken:
            yield f"the {name} side could not read {', '.join(broken)}"
        if all(isinstance(value, Unknown) for value in side.facts.values()) and not side.nodes:
            yield f"the {name} side has no facts"
