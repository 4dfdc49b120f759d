"""Shared by the rules that compare nodes: what a finding says of those that are not like the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from verl_doctor.toolkit.fact_fleet import Said, Subject
from verl_doctor.toolkit.rule import Evidence, Finding, Severity
from verl_doctor.toolkit.text import counted, listed

_NAMED = 4  # subjects, or answers, that one sentence names

_SHOWN = 12  # values that the evidence shows
_BAD: tuple[Severity | None, ...] = ("error", "warning", "info", None)

Sentence = Callable[[Subject, str], str]
"""How a value of a subject is said: `vllm 0.10.2`, `no vllm`."""


def differences(
    subjects: Iterable[Subject],
    what: tuple[str, str],
    say: Sentence,
    read_from: str,
    remedy: str,
    severity: Callable[[Subject], Severity | None] = lambda _: None,
) -> Iterator[Finding]:
    """One finding for the same nodes, in however many subjects they are unlike the others: the worst of them comes first.

    `what` is the word for a subject, for one and for several. Where no answer has a majority, the finding says so and names all; where nearly
    every node has an answer of its own, the subject names the node, and nothing is said.
    """
    groups: dict[str, list[tuple[Subject, Said]]] = {}
    divided = []
    for subject in subjects:
        if subject.usual is None:
            divided.append(subject)
            continue
        for said in subject.answers:
            if said is not subject.usual:
                groups.setdefault(said.nodes, []).append((subject, said))
    for nodes, pairs in groups.items():
        pairs.sort(key=lambda pair: _BAD.index(severity(pair[0])))
        found = (say(subject, said.value) for subject, said in pairs)
        wanted = (say(subject, subject.answers[0].value) for subject, _ in pairs)
        yield replace(
            _odd_ones(pairs, what, say),
            node=nodes,
            severity=severity(pairs[0][0]),
            remedy=remedy,
            evidence=Evidence(listed(found, _SHOWN), listed(wanted, _SHOWN), read_from),
        )
    for subject in divided:
        if _of_its_own(subject):
            continue
        yield replace(_divided(subject, say, read_from), severity=severity(subject), remedy=remedy)


def _of_its_own(subject: Subject) -> bool:
    """Whether the subject tells the nodes apart rather than being meant to be the same."""
    nodes = sum(said.count for said in subject.answers)
    return len(subject.answers) > max(2, nodes / 2)


def _odd_ones(pairs: list[tuple[Subject, Said]], what: tuple[str, str], say: Sentence) -> Finding:
    subject, said = pairs[0]
    usual = subject.answers[0]
    have = "has" if said.count == 1 else "have"
    others = f"the other {usual.count:,}" if len(subject.answers) == 2 else f"{usual.count:,} others"
    of_kind = f" of the nodes with {subject.among}" if subject.among else ""
    first = (
        f"{said.nodes} {have} {say(subject, said.value)}, {others}{of_kind} have {say(subject, usual.value)}"
    )
    if len(pairs) == 1:
        return Finding(first, Evidence(""))
    more = listed((subject.name for subject, _ in pairs[1:]), _NAMED)
    differ = "it differs" if said.count == 1 else "they differ"
    return Finding(f"{first}; {differ} in {counted(len(pairs) - 1, *what)} more: {more}", Evidence(""))


def _divided(subject: Subject, say: Sentence, read_from: str) -> Finding:
    answers = [f"{said.nodes} ({said.count:,}) {say(subject, said.value)}" for said in subject.answers]
    of_kind = f" among the nodes with {subject.among}" if subject.among else ""
    return Finding(
        f"nodes do not agree on {subject.name} and there is no majority{of_kind}: {listed(answers, _NAMED)}",
        Evidence(listed(answers, _SHOWN), "one answer on all nodes", read_from),
        node=",".join(said.nodes for said in subject.answers),
    )
