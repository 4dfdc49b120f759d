"""Shared by the rules that compare nodes: findings about those that differ from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.ray.fleet import ReportedValue, Subject, together
from verl_doctor.toolkit.rule import Evidence, Finding, Severity, SubjectKind
from verl_doctor.toolkit.rule import Subject as About
from verl_doctor.toolkit.text import listed

_NAMED = 4  # subjects, or values, that one sentence names
_SHOWN = 12  # values that the evidence shows
# Findings of one rule. If there are more groups of nodes, the last finding is about the rest.
_MOST_FINDINGS = 8
_BAD: tuple[Severity | None, ...] = ("error", "warning", "info", None)
# The subject of a finding, for each kind of comparison: its kind, its name and a detail; {} is the name of
# what was compared.
_ABOUT: Mapping[str, tuple[SubjectKind, str, str]] = {
    "adapter": ("interface", "{}", ""),
    "build": ("package", "{}", "build"),
    "capacity": ("memory", "{}", ""),
    "capacity CPUs": ("limit", "CPUs", ""),
    "capacity memory": ("memory", "host", ""),
    "clock": ("resource", "clock", ""),
    "content": ("file", "{}", "content"),
    "driver": ("driver", "nvidia", ""),
    "edited file": ("file", "{}", ""),
    "file": ("file", "{}", ""),
    "GPU setting": ("device", "GPU", "{}"),
    "GPUs": ("device", "GPU", ""),
    "limit": ("limit", "{}", ""),
    "mount": ("folder", "{}", ""),
    "package": ("package", "{}", ""),
    "Python": ("interpreter", "python", ""),
    "route": ("interface", "{}", ""),
    "variable": ("variable", "{}", ""),
    "written": ("file", "{}", "written"),
}


@dataclass(frozen=True)
class Words:
    """The phrases with which a rule reports its subjects.

    `phrase` describes what a node has: "vllm 0.10.2", "no vllm". `singular` and `several` are the word for a
    subject. `severity` is the rule's own if it returns None.
    """

    phrase: Callable[[Subject, str], str]
    singular: str
    several: str
    read_from: str
    remedy: str
    severity: Callable[[Subject], Severity | None] = lambda _: None

    def more(self, names: Sequence[str]) -> str:
        """Further subjects: "3 more packages: numpy, ray, torch"."""
        return (
            f"{len(names):,} more {self.singular if len(names) == 1 else self.several}: "
            f"{listed(names, _NAMED)}"
        )


def differences(subjects: Iterable[Subject], words: Words) -> Iterator[Finding]:
    """Yield one finding for each set of nodes, worst first.

    The number of subjects in which these nodes differ from the others does not matter.

    Without a majority for any value, the finding states that and lists all values.
    """
    odd: dict[str, list[tuple[Subject, ReportedValue]]] = {}
    divided: dict[str, list[Subject]] = {}
    for subject in sorted(subjects, key=lambda subject: _BAD.index(words.severity(subject))):
        if subject.usual is not None:
            for reported in subject.answers[1:]:
                odd.setdefault(reported.nodes, []).append((subject, reported))
        else:
            divided.setdefault(" ".join(sorted(reported.nodes for reported in subject.answers)), []).append(
                subject
            )
    groups = sorted(
        odd.values(), key=lambda pairs: (_BAD.index(words.severity(pairs[0][0])), -pairs[0][1].count)
    )
    shown = len(groups) if len(groups) <= _MOST_FINDINGS else _MOST_FINDINGS - 1
    yield from (_odd_ones(pairs, words) for pairs in groups[:shown])
    if groups[shown:]:
        yield _further([pair for pairs in groups[shown:] for pair in pairs], words)
    yield from (_divided(several, words) for several in divided.values())


def _odd_ones(pairs: list[tuple[Subject, ReportedValue]], words: Words) -> Finding:
    subject, reported = pairs[0]
    usual = subject.answers[0]
    others = f"the other {usual.count:,}" if len(subject.answers) == 2 else f"{usual.count:,} others"
    message = (
        f"{reported.named} {_have(reported.count)} {words.phrase(subject, reported.value)}, "
        f"{others}{_of_a_kind(subject)} {_have(usual.count)} {words.phrase(subject, usual.value)}"
    )
    if more := [subject.name for subject, _ in pairs[1:]]:
        differ = "it differs" if reported.count == 1 else "they differ"
        message += f"; {differ} in {words.more(more)}"
    return _finding(message, pairs, reported.nodes, words)


def _further(pairs: list[tuple[Subject, ReportedValue]], words: Words) -> Finding:
    """One finding for all groups of nodes that are too many to report separately."""
    names = listed(dict.fromkeys(subject.name for subject, _ in pairs), _NAMED)
    nodes = together(reported.nodes for _, reported in pairs)
    return _finding(f"{nodes.count:,} more nodes differ from most: in {names}", pairs, nodes.nodes, words)


def _finding(message: str, pairs: list[tuple[Subject, ReportedValue]], nodes: str, words: Words) -> Finding:
    found = (words.phrase(subject, reported.value) for subject, reported in pairs)
    wanted = (words.phrase(subject, subject.answers[0].value) for subject, _ in pairs)
    return Finding(
        message,
        Evidence(listed(found, _SHOWN), listed(dict.fromkeys(wanted), _SHOWN), words.read_from),
        subject=_about(pairs[0][0]),
        remedy=words.remedy,
        severity=words.severity(pairs[0][0]),
        node=nodes,
    )


def _divided(subjects: list[Subject], words: Words) -> Finding:
    """One finding for subjects without a majority that divide the nodes in the same way."""
    subject = subjects[0]
    values = [
        f"{reported.named} {_have(reported.count)} {words.phrase(subject, reported.value)}"
        for reported in subject.answers
    ]
    message = f"there is no majority{_of_a_kind(subject)}: {listed(values, _NAMED)}"
    if more := [other.name for other in subjects[1:]]:
        message += f"; they differ in {words.more(more)}"
    return Finding(
        message,
        Evidence(listed(values, _SHOWN), f"one {words.singular} on all nodes", words.read_from),
        subject=_about(subject),
        remedy=words.remedy,
        severity=words.severity(subject),
        node=together(reported.nodes for reported in subject.answers).nodes,
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _of_a_kind(subject: Subject) -> str:
    return f" of the nodes with {subject.among}" if subject.among else ""


def _about(subject: Subject) -> About:
    kind, name, detail = _ABOUT.get(f"{subject.kind} {subject.name}") or _ABOUT[subject.kind]
    apart = filter(None, (detail.format(subject.name), subject.among))
    return About(kind, name.format(subject.name), ", ".join(apart))
