"""Findings of many nodes that say the same: one finding, with the nodes as ranges and its quantities as a range of values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.fleet_names import fold
from verl_doctor.toolkit.rule import Evidence, Finding

# A number with a unit, or a bare count. What is part of a word, a version, a path or an address is none, and neither is
# what follows a name ("GPU 3", "Xid 79", "CUDA 12"), for it is one.
_UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
_QUANTITY = re.compile(
    r"(?<![\w.:/@+-])(?P<number>\d{1,3}(?:,\d{3})+|\d+)(?P<fraction>\.\d+)?"
    rf"(?:(?P<unit> (?:{'|'.join(_UNITS)}|ms|s|h|days?|°C|W)\b(?!/)| ?%)|(?![\w/:@-]|\.\d|[,+]\d))"
)
_NAMED = re.compile(r"(?:\b[A-Z][\w.-]*|\b(?:version|code|error|signal|line|port|number|status)) $")
_NUMBERS = re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b|\d+", re.IGNORECASE)
_HOLE = "\0"
_MOST = 6
"""Findings of one rule whose texts are equal but for numbers of any kind: where there are more, they become one."""


@dataclass
class _Group:
    """Findings with one cause: the one that stands for all, the nodes, and the lowest and highest of each quantity."""

    finding: Finding
    nodes: set[int]
    least: list[tuple[float, str]]
    most: list[tuple[float, str]]

    def add(self, finding: Finding, nodes: Iterable[int], values: list[tuple[float, str]]) -> None:
        if repr(finding) < repr(self.finding):
            self.finding = finding
        self.nodes.update(nodes)
        self.least = list(map(min, self.least, values))
        self.most = list(map(max, self.most, values))


def folded(
    found: Mapping[Finding, Sequence[int]], names: Sequence[str], addresses: Sequence[str]
) -> tuple[Finding, ...]:
    """One finding for each cause, the one on most nodes first. Nodes are numbers, places in `names` and `addresses`."""
    groups: dict[Finding, _Group] = {}
    for finding, nodes in found.items():
        own = finding if len(nodes) > 1 else _anonymous(finding, names[nodes[0]], addresses[nodes[0]])
        values: list[tuple[float, str]] = []
        cause = _mapped(own, functools.partial(_with_holes, values=values))
        if cause in groups:
            groups[cause].add(finding, nodes, values)
        else:
            groups[cause] = _Group(finding, set(nodes), values, values)
    told = [(_filled(cause, group), group.nodes) for cause, group in groups.items()]
    return tuple(
        replace(finding, node=fold(names[node] for node in nodes))
        for finding, nodes in sorted(_bounded(told), key=lambda pair: (-len(pair[1]), repr(pair[0])))
    )


def without_repeated(some: Iterable[Finding], others: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that none of the others says too, whatever their quantities and nodes."""
    known = {_shape(finding) for finding in others}
    return tuple(finding for finding in some if _shape(finding) not in known)


def _anonymous(finding: Finding, name: str, address: str) -> Finding:
    """The finding of one node without that node's name and address, so that it can equal another's."""

    def mask(text: str) -> str:
        for own, said in ((name, "<its name>"), (address, "<its address>")):
            if own and own in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(own)}(?![\w-]|\.\d)", said, text)
        return text

    return _mapped(finding, mask)


def _mapped(finding: Finding, change: Callable[[str], str]) -> Finding:
    """The finding with each of its texts changed."""
    evidence = finding.evidence
    return replace(
        finding,
        message=change(finding.message),
        evidence=Evidence(change(evidence.found), change(evidence.wanted), change(evidence.read_from)),
        remedy=change(finding.remedy),
    )


def _with_holes(text: str, values: list[tuple[float, str]]) -> str:
    """The text without its quantities, which are added to `values`."""

    def hole(match: re.Match[str]) -> str:
        unit = (match["unit"] or "").strip()
        named = not unit and (match["fraction"] or _NAMED.search(text, 0, match.start()))
        if named:
            return match[0]
        amount = float(match["number"].replace(",", "") + (match["fraction"] or ""))
        values.append((amount * _UNITS.get(unit, 1), match[0]))
        return _HOLE + ("" if unit in _UNITS else unit)

    return _QUANTITY.sub(hole, text)


def _filled(cause: Finding, group: _Group) -> Finding:
    """The finding in words: a quantity where all agree, else its range."""
    if len(group.nodes) == 1:
        return group.finding
    pairs = iter(list(zip(group.least, group.most, strict=True)))

    def fill(text: str) -> str:
        return re.sub(f"{_HOLE}(?:ms|s|h|days?|°C|W|%)?", lambda _: _range(*next(pairs)), text)

    return _mapped(cause, fill)


def _range(least: tuple[float, str], most: tuple[float, str]) -> str:
    return least[1] if least[0] == most[0] else f"{least[1]} to {most[1]}"


def _bounded(told: Sequence[tuple[Finding, set[int]]]) -> list[tuple[Finding, set[int]]]:
    """The same, but where the numbers of one text differ on many nodes in other ways, one finding with one node's words."""
    shapes: dict[Finding, list[tuple[Finding, set[int]]]] = {}
    for finding, nodes in told:
        shapes.setdefault(_shape(finding), []).append((finding, nodes))
    kept = []
    for alike in shapes.values():
        if len(alike) <= _MOST:
            kept += alike
            continue
        first, _ = min(alike, key=lambda pair: (-len(pair[1]), repr(pair[0])))
        note = f"numbers and names in it differ: these are those of one of {len(alike)} cases"
        evidence = replace(first.evidence, found="; ".join(filter(None, (first.evidence.found, note))))
        kept.append((replace(first, evidence=evidence), set().union(*(nodes for _, nodes in alike))))
    return kept


def _shape(finding: Finding) -> Finding:
    """What is left of a finding without its numbers and places."""
    return replace(_mapped(finding, lambda text: _NUMBERS.sub("#", text)), location=None, also=(), node=None)
