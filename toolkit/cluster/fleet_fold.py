"""Merges equal findings of many nodes into one, with ranges of nodes and of its quantities' values."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.rule import Evidence, Finding, Subject
from verl_doctor.toolkit.system.node_names import fold

_BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES: Mapping[str, float] = {**_BINARY, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
# A number with a unit, a bare count, or a process in a path. Not a part of a word, a version, another path or
# an address, nor a number after a name ("GPU 3", "Xid 79", "CUDA 12"), which belongs to the name.
_QUANTITY = re.compile(
    r"(?:(?<=/proc/)|(?<![\w.:/@+-]))(?P<number>\d{1,3}(?:,\d{3})+|\d+)(?P<fraction>\.\d+)?"
    rf"(?P<unit> (?:{'|'.join(_BYTES)}|ms|s|h|days?|°C|W)\b(?!/)| ?%)?"
    r"(?(unit)|(?:(?=/\D)|(?![\w/:@-]|\.\d|[,+]\d)))"
)
_NAMED = re.compile(r"(?:\b[A-Z][\w.-]*|\b(?:version|code|error|signal|line|port|number|status)) $")
_NUMBERS = re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b|\d+", re.IGNORECASE)
_HOLE = "\0"
_ITS_NAME, _ITS_ADDRESS = "<its name>", "<its address>"
_MOST = 6
"""If a rule has more similar findings than this, and more than any single node has, the rest are merged."""

_Quantity = tuple[float, str]
"""An amount in one unit of its kind, and as it is written."""

_FindingNodes = tuple[Finding, set[int]]
"""A finding as text, and its nodes."""


@dataclass
class _Group:
    """Findings with one cause: their number, representative, nodes, and the ends of each quantity's range."""

    findings: int
    finding: Finding
    nodes: set[int]
    least: list[_Quantity]
    most: list[_Quantity]
    subjects: set[Subject | None]

    def add(self, finding: Finding, nodes: Iterable[int], quantities: Iterable[_Quantity]) -> None:
        """Add a finding."""
        known = list(quantities)
        self.findings += 1
        self.subjects.add(finding.subject)
        self.finding = min(self.finding, finding, key=repr)
        self.nodes.update(nodes)
        self.least = list(map(min, self.least, known))
        self.most = list(map(max, self.most, known))


def folded(
    found: Mapping[Finding, Sequence[int]], names: Sequence[str], addresses: Sequence[str]
) -> tuple[Finding, ...]:
    """Return one finding per cause, the one on most nodes first.

    Nodes are numbers, indexes into `names` and `addresses`.
    """
    groups: dict[Finding, _Group] = {}
    for finding, nodes in found.items():
        own = finding if len(nodes) > 1 else _anonymous(finding, names[nodes[0]], addresses[nodes[0]])
        quantities: list[_Quantity] = []
        without_quantities = _mapped(own, functools.partial(_with_holes, quantities=quantities))
        cause = replace(without_quantities, subject=None)
        if cause in groups:
            groups[cause].add(finding, nodes, quantities)
        else:
            groups[cause] = _Group(1, finding, set(nodes), quantities, quantities, {finding.subject})
    entries: list[_FindingNodes] = [
        (_merged(cause, group, names, addresses), group.nodes) for cause, group in groups.items()
    ]
    for alike in (_identity, _message, _severity):
        entries = _bounded(entries, alike)
    return tuple(
        replace(finding, node=fold(names[node] for node in nodes))
        for finding, nodes in sorted(entries, key=lambda pair: (-len(pair[1]), repr(pair[0])))
    )


def without_repeated(some: Iterable[Finding], others: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that duplicate none of the others, regardless of numbers, places and nodes."""
    known = {_identity(finding) for finding in others}
    return tuple(finding for finding in some if _identity(finding) not in known)


def _anonymous(finding: Finding, name: str, address: str) -> Finding:
    """Return a node's finding without the node's name and address, so it can equal another's."""

    def mask(text: str) -> str:
        for own, own_text in ((name, _ITS_NAME), (address, _ITS_ADDRESS)):
            if own and own in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(own)}(?![\w-]|\.\d)", own_text, text)
        return text

    return _mapped(finding, mask)


def _mapped(finding: Finding, change: Callable[[str], str]) -> Finding:
    """Return the finding with each of its texts changed."""
    evidence = finding.evidence
    return replace(
        finding,
        message=change(finding.message),
        evidence=Evidence(change(evidence.found), change(evidence.wanted), change(evidence.read_from)),
        remedy=change(finding.remedy),
    )


def _with_holes(text: str, quantities: list[_Quantity]) -> str:
    """Return the text without its quantities, which are added to `quantities`.

    A unit of bytes is part of the quantity.
    """

    def hole(match: re.Match[str]) -> str:
        unit = (match["unit"] or "").strip()
        if not unit and (match["fraction"] or _NAMED.search(text, 0, match.start())):
            return match[0]
        amount = float(match["number"].replace(",", "") + (match["fraction"] or ""))
        quantities.append((amount * _BYTES.get(unit, 1), match[0]))
        return f"{_HOLE}{'' if unit in _BYTES else unit}{_HOLE}"

    return _QUANTITY.sub(hole, text)


def _merged(cause: Finding, group: _Group, names: Sequence[str], addresses: Sequence[str]) -> Finding:
    """Return a single finding unchanged, and merged ones with ranges if quantities differ."""
    if group.findings == 1:
        return group.finding
    ends = iter(list(zip(group.least, group.most, strict=True)))

    def fill(text: str) -> str:
        text = re.sub(f"{_HOLE}[^{_HOLE}]*{_HOLE}", lambda _: _range(*next(ends)), text)
        if len(group.nodes) > 1:
            return text
        (node,) = group.nodes
        return text.replace(_ITS_NAME, names[node]).replace(_ITS_ADDRESS, addresses[node])

    return replace(_mapped(cause, fill), subject=_common(group.subjects))


def _common(subjects: Iterable[Subject | None]) -> Subject | None:
    """Return the subject of merged findings, without numbers if these differ; None if more differs."""
    found = set(subjects)
    if len(found) > 1:
        found = {subject and _numberless(subject) for subject in found}
    return found.pop() if len(found) == 1 else None


def _range(least: _Quantity, most: _Quantity) -> str:
    return least[1] if least[0] == most[0] else f"{least[1]} to {most[1]}"


def _bounded(entries: Sequence[_FindingNodes], alike: Callable[[Finding], object]) -> list[_FindingNodes]:
    """Return at most a few similar findings, those on most nodes, and one more that represents the rest."""
    groups: dict[object, list[_FindingNodes]] = {}
    for finding, nodes in entries:
        groups.setdefault(alike(finding), []).append((finding, nodes))
    kept = []
    for members in groups.values():
        members.sort(key=lambda pair: (-len(pair[1]), repr(pair[0])))
        on_each = Counter(node for _, nodes in members for node in nodes)
        most = max(_MOST, *on_each.values())
        if len(members) > most:
            members[most - 1 :] = [_representative(members[most - 1 :])]
        kept += members
    return kept


def _representative(members: Sequence[_FindingNodes]) -> _FindingNodes:
    first, _ = members[0]
    note = f"one of {len(members)} similar findings, which differ between nodes"
    evidence = replace(first.evidence, found="; ".join(filter(None, (first.evidence.found, note))))
    return replace(first, evidence=evidence), set().union(*(nodes for _, nodes in members))


def _without_numbers(finding: Finding) -> Finding:
    """Return a finding without its numbers and places."""
    return replace(_mapped(finding, lambda text: _NUMBERS.sub("#", text)), location=None, also=(), node=None)


def _numberless(subject: Subject) -> Subject:
    return Subject(subject.kind, _NUMBERS.sub("#", subject.name), _NUMBERS.sub("#", subject.detail))


def _identity(finding: Finding) -> object:
    """Return what similar findings of one rule must share: the subject, or the text if a plugin sets none."""
    if finding.subject is not None:
        return finding.severity, _numberless(finding.subject)
    return _without_numbers(finding)


def _message(finding: Finding) -> object:
    if finding.subject is not None:
        return _identity(finding)
    return finding.severity, _NUMBERS.sub("#", finding.message)


def _severity(finding: Finding) -> object:
    return finding.severity
